//! The folder of the log: numbered segments, and snapshots that make the older ones unnecessary.
//!
//! ```text
//!  lock                          held for as long as the store is open
//!  00000000000000000007.snapshot all that segments before 7 still have to say
//!  00000000000000000007.log      what happened since, oldest first
//!  00000000000000000008.log      the one being written
//! ```
//!
//! A file gets its name once it is whole and durable, so what has a name is whole, or was damaged since.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a lock may be held by nobody in particular: a child of whoever had it, between its fork and its exec.
const PATIENCE: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_millis(5);

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    /// What happened, oldest first.
    Changes,
    /// What is left of everything before.
    Snapshot,
}

/// The folder, ours alone.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

/// What is in it.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) segments: BTreeSet<u64>,
    pub(crate) snapshots: BTreeSet<u64>,
}

impl Directory {
    /// Enters the folder, or makes it; `None` if somebody else is in it.
    pub(crate) fn enter(path: &Path) -> io::Result<Option<Self>> {
        // Secrets live here, so only the owner may read.
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => sync(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path.join("lock"))?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Some(Self { path: path.to_owned(), _lock: lock })),
                Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => std::thread::sleep(RETRY),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    pub(crate) fn path_of(&self, holds: Holds, number: u64) -> PathBuf {
        path_of(&self.path, holds, number)
    }

    /// What has a name; what has none yet, or no longer needs one, is removed.
    pub(crate) fn tidy(&self) -> io::Result<Contents> {
        let mut contents = Contents::default();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            match (path.extension().and_then(|extension| extension.to_str()), number) {
                (Some("log"), Some(number)) => drop(contents.segments.insert(number)),
                (Some("snapshot"), Some(number)) => drop(contents.snapshots.insert(number)),
                (Some("part"), _) => fs::remove_file(&path)?,
                _ => {}
            }
        }
        if let Some(newest) = contents.snapshots.last().copied() {
            self.remove_before(newest)?;
            contents.segments.retain(|number| *number >= newest);
            contents.snapshots.retain(|number| *number >= newest);
        }
        Ok(contents)
    }

    /// Removes what the snapshot with this number made unnecessary.
    pub(crate) fn remove_before(&self, number: u64) -> io::Result<()> {
        remove_before(&self.path, number)
    }

    /// Where another thread may write a snapshot.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a file with `write`, durable and whole before it has its name. Answers it with what `write` answered.
pub(crate) fn make<T>(
    directory: &Path,
    holds: Holds,
    number: u64,
    write: impl FnOnce(&mut File) -> io::Result<T>,
) -> io::Result<(File, T)> {
    let path = path_of(directory, holds, number);
    let mut draft = path.clone().into_os_string();
    draft.push(".part");
    let draft = PathBuf::from(draft);
    let made = (|| {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let answer = write(&mut file)?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        sync(directory)?;
        Ok((file, answer))
    })();
    if made.is_err() {
        // A full disk needs the room; a draft that stays is removed when the folder is next entered.
        let _ = fs::remove_file(&draft);
    }
    made
}

/// Removes what the snapshot with this number made unnecessary.
pub(crate) fn remove_before(directory: &Path, number: u64) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_ours = path.extension().is_some_and(|extension| extension == "log" || extension == "snapshot");
        let own = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if is_ours && own.is_some_and(|own| own < number) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn path_of(directory: &Path, holds: Holds, number: u64) -> PathBuf {
    let extension = match holds {
        Holds::Changes => "log",
        Holds::Snapshot => "snapshot",
    };
    directory.join(format!("{number:020}.{extension}"))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
