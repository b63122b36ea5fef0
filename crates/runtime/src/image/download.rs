//! A layer on its way from a registry: a file that grows, is hashed as it grows, and can be gone on with later.
//!
//! The file is locked while someone writes it, so two processes never write the same one; a file that nobody has locked
//! is a beginning that the next pull of the same layer goes on with, or that is swept away when it has grown old.
//! Hashing and writing happen on a thread of their own, away from those that wait for sockets.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::digest::{Digest, digest_of_hasher};
use super::error::{ImageError, caught};
use super::room;

/// How long the beginning of a download is kept for whoever pulls the same layer again.
pub(super) const KEPT: Duration = Duration::from_hours(24);
/// How much is written before the disk is looked at again: others write to it too.
const CHECKED_BYTES: u64 = 16 << 20;
/// How many pieces may wait for the disk before the socket has to.
const WAITING_MOST: usize = 32;

/// Removes downloads that nobody works on and nobody went on with for `kept`; returns their bytes.
pub(super) fn sweep(dir: &Path, kept: Duration) -> Result<u64, ImageError> {
    let downloads = dir.join("downloads");
    let mut freed = 0;
    for entry in fs::read_dir(&downloads).map_err(ImageError::store("read", &downloads))? {
        let path = entry.map_err(ImageError::store("read", &downloads))?.path();
        let Ok(file) = File::open(&path) else { continue };
        let Ok(meta) = file.metadata() else { continue };
        let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default();
        if age >= kept && file.try_lock().is_ok() && is_at(&file, &path) {
            fs::remove_file(&path).map_err(ImageError::store("remove", &path))?;
            freed += meta.blocks() * 512;
        }
    }
    Ok(freed)
}

/// A file that a layer is downloaded into; ours alone while it is open.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) file: File,
    path: PathBuf,
}

impl Download {
    /// Goes on with the download of `digest`, or begins it; in `private` if another process is at it.
    pub(super) fn open(dir: &Path, private: &Path, digest: Digest) -> Result<Self, ImageError> {
        let path = dir.join("downloads").join(digest.hex());
        loop {
            let file = open(&path).map_err(ImageError::store("open", &path))?;
            if file.try_lock().is_err() {
                let path = private.join("download");
                let file = open(&path).map_err(ImageError::store("open", &path))?;
                return Ok(Self { file, path });
            }
            // Whoever swept it away between the opening and the locking has left us a file without a name.
            if is_at(&file, &path) {
                return Ok(Self { file, path });
            }
        }
    }

    /// The layer is in the store, or the bytes are worthless.
    pub(super) fn discard(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a download stays until it is swept away");
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether the name still stands for this file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// What reaches the disk thread.
enum Piece {
    Bytes(Bytes),
    /// The registry sends everything from the beginning.
    FromTheStart,
}

/// Writes a download. Dropping it leaves what was written so far.
pub(super) struct Writer {
    pieces: mpsc::Sender<Piece>,
    done: JoinHandle<Result<Written, ImageError>>,
}

/// A download at its end.
pub(super) struct Written {
    pub(super) download: Download,
    pub(super) digest: Digest,
    pub(super) length: u64,
}

impl Writer {
    /// Starts to write `download`; what it already holds is hashed first, and its length told. `guard` is held for as
    /// long as the thread has the file.
    pub(super) async fn start(
        download: Download,
        length_max: u64,
        guard: impl Send + 'static,
    ) -> Result<(Self, u64), ImageError> {
        let (pieces, waiting) = mpsc::channel(WAITING_MOST);
        let (tell, told) = oneshot::channel();
        let done = tokio::task::spawn_blocking(move || {
            let _guard = guard;
            caught(|| write(download, length_max, waiting, tell))
        });
        match told.await {
            Ok(length) => Ok((Self { pieces, done }, length)),
            // The thread ended before it could tell: its error says why.
            Err(_) => match ended(done).await {
                Err(error) => Err(error),
                Ok(_) => Err(ImageError::Broke { source: "a download ended before it began".into() }),
            },
        }
    }

    /// Hands over the next bytes. False if they cannot be taken: [`Self::finish`] tells why.
    pub(super) async fn write(&self, bytes: Bytes) -> bool {
        self.pieces.send(Piece::Bytes(bytes)).await.is_ok()
    }

    /// Forgets what was written so far.
    pub(super) async fn start_over(&self) -> bool {
        self.pieces.send(Piece::FromTheStart).await.is_ok()
    }

    /// Waits until everything is written.
    pub(super) async fn finish(self) -> Result<Written, ImageError> {
        drop(self.pieces);
        ended(self.done).await
    }
}

async fn ended(done: JoinHandle<Result<Written, ImageError>>) -> Result<Written, ImageError> {
    done.await.unwrap_or_else(|gone| Err(ImageError::Broke { source: gone.into() }))
}

fn write(
    mut download: Download,
    length_max: u64,
    mut pieces: mpsc::Receiver<Piece>,
    tell: oneshot::Sender<u64>,
) -> Result<Written, ImageError> {
    let path = download.path.clone();
    let failed = |error| ImageError::store("write", &path)(error);
    let mut hasher = Sha256::new();
    let mut length = hash_existing_part(&mut download.file, length_max, &mut hasher).map_err(failed)?;
    room::check(&path, length_max.saturating_sub(length), "a layer")?;
    let mut unchecked = 0;
    // Whoever asked may be gone; then there are no pieces either.
    let _ = tell.send(length);
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Piece::Bytes(bytes) => {
                download.file.write_all(&bytes).map_err(failed)?;
                hasher.update(&bytes);
                length += bytes.len() as u64;
                unchecked += bytes.len() as u64;
                if unchecked >= CHECKED_BYTES {
                    room::check(&path, length_max.saturating_sub(length), "a layer")?;
                    unchecked = 0;
                }
            }
            Piece::FromTheStart => {
                start_over(&mut download.file).map_err(failed)?;
                hasher = Sha256::new();
                length = 0;
            }
        }
    }
    Ok(Written { download, digest: digest_of_hasher(hasher), length })
}

/// Hashes the beginning that an earlier download left; one that is too long is worth nothing.
fn hash_existing_part(file: &mut File, length_max: u64, hasher: &mut Sha256) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    if file.metadata()?.len() > length_max {
        start_over(file)?;
        return Ok(0);
    }
    let mut buffer = vec![0; 256 * 1024];
    let mut length = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn start_over(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0)).map(drop)
}
