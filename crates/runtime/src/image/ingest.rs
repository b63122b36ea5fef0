//! A private place for what is on its way in, and the locks that keep processes out of each other's way.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use super::digest::Digest;
use super::error::ImageError;
use file_tree::delete_tree;

/// A private place for one load, one pulled layer or one removal. What is left in it at the end, good or bad, goes.
#[derive(Debug)]
pub(super) struct Ingest {
    pub(super) path: PathBuf,
    temporary: AtomicUsize,
    /// Held while the place is used, so that nobody takes it for a leftover.
    _claim: File,
}

impl Ingest {
    pub(super) fn begin(dir: &Path) -> Result<Self, ImageError> {
        let _lock = lock(dir)?;
        for number in 0_u32.. {
            let path = dir.join("ingest").join(number.to_string());
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ImageError::store("create", path)(error)),
                Ok(()) => {
                    let claim = File::open(&path).map_err(ImageError::store("open", &path))?;
                    claim.lock().map_err(ImageError::store("lock", &path))?;
                    return Ok(Self { path, temporary: AtomicUsize::new(0), _claim: claim });
                }
            }
        }
        Err(ImageError::store("create", dir.join("ingest"))(std::io::ErrorKind::AlreadyExists.into()))
    }

    /// Removes what those left behind who did not live to clean up.
    pub(super) fn sweep(dir: &Path) -> Result<(), ImageError> {
        let _lock = lock(dir)?;
        let ingest = dir.join("ingest");
        for entry in fs::read_dir(&ingest).map_err(ImageError::store("read", &ingest))? {
            let path = entry.map_err(ImageError::store("read", &ingest))?.path();
            let claim = match File::open(&path) {
                // Whoever used it has just removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened.map_err(ImageError::store("open", &path))?,
            };
            if claim.try_lock().is_ok() {
                delete_tree(&path).map_err(ImageError::store("remove", &path))?;
            }
        }
        Ok(())
    }

    pub(super) fn layer(&self, diff_id: Digest) -> PathBuf {
        self.path.join(diff_id.hex())
    }

    /// Whether a layer was unpacked here to its end.
    pub(super) fn has_layer(&self, diff_id: Digest) -> bool {
        self.layer(diff_id).join("layer.json").exists()
    }

    /// Brings everything written here to disk. A layer is thousands of files; one sync of the file system is far
    /// cheaper than one of each.
    pub(super) fn sync(&self) -> Result<(), ImageError> {
        let whole = File::open(&self.path).map_err(ImageError::store("open", &self.path))?;
        rustix::fs::syncfs(&whole).map_err(|error| ImageError::store("sync", &self.path)(error.into()))
    }

    pub(super) fn write_json(&self, path: &Path, record: &impl Serialize) -> Result<(), ImageError> {
        let text = serde_json::to_vec(record).map_err(|error| ImageError::store("write", path)(error.into()))?;
        self.write(path, &text)
    }

    /// Makes a file appear at `path`, complete and synced.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> Result<(), ImageError> {
        let temporary = self.path.join(format!("file-{}", self.temporary.fetch_add(1, Ordering::Relaxed)));
        let mut file = File::create_new(&temporary).map_err(ImageError::store("create", &temporary))?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(ImageError::store("write", &temporary))?;
        fs::rename(&temporary, path).map_err(ImageError::store("create", path))?;
        sync_dir(path.parent().unwrap_or(Path::new("/")))
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if let Err(error) = delete_tree(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "leftovers stay until the store is opened again");
        }
    }
}

/// An [`Ingest`] that async code holds: what is left in it may be thousands of files, and is removed elsewhere.
#[derive(Clone, Debug)]
pub(super) struct SharedIngest(Option<Arc<Ingest>>);

impl SharedIngest {
    pub(super) fn new(ingest: Ingest) -> Self {
        Self(Some(Arc::new(ingest)))
    }
}

impl std::ops::Deref for SharedIngest {
    type Target = Ingest;

    fn deref(&self) -> &Ingest {
        self.0.as_ref().expect("taken only when dropped")
    }
}

impl Drop for SharedIngest {
    fn drop(&mut self) {
        let Some(ingest) = self.0.take() else { return };
        if let (Some(ingest), Ok(runtime)) = (Arc::into_inner(ingest), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(ingest));
        }
    }
}

/// Keeps everyone else, in this process or another, from changing records until it is dropped.
pub(super) fn lock(dir: &Path) -> Result<File, ImageError> {
    let (path, file) = open_lock(dir, "lock")?;
    file.lock().map_err(ImageError::store("lock", &path))?;
    Ok(file)
}

/// Keeps images from being removed until it is dropped. Those who begin to use an image hold it together.
pub(super) fn lock_uses(dir: &Path) -> Result<File, ImageError> {
    let (path, file) = open_lock(dir, "uses")?;
    file.lock_shared().map_err(ImageError::store("lock", &path))?;
    Ok(file)
}

/// Keeps everyone else from beginning to use an image until it is dropped.
pub(super) fn lock_removal(dir: &Path) -> Result<File, ImageError> {
    let (path, file) = open_lock(dir, "uses")?;
    file.lock().map_err(ImageError::store("lock", &path))?;
    Ok(file)
}

fn open_lock(dir: &Path, name: &str) -> Result<(PathBuf, File), ImageError> {
    let path = dir.join(name);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(ImageError::store("open", &path))?;
    Ok((path, file))
}

pub(super) fn sync_dir(path: &Path) -> Result<(), ImageError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(ImageError::store("sync", path))
}
