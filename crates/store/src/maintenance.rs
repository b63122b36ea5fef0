//! What is done to a store that is not open: looking whether it is whole, bringing a backup back, keeping what is left.
//!
//! Nothing here changes the files of the store it finds. What is made is made beside it, whole and durable, and then put in
//! its place; what was there stays, under another name.
//!
//! Revisions never come twice: what is made begins so far behind everything that was known that no client can have seen it,
//! and knows no change before that. So whoever resumes a watch is told that it is too old, and lists.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::backup::{Backup, BackupError};
use crate::directory::Directory;
use crate::embedded;
use crate::encryption::label;
use crate::mark::Mark;
use crate::salvage::{Lost, Salvage, SalvageError};
use crate::snapshot::{self, FullSnapshot};
use crate::{Encryption, Key, Object, OpenError, Revision};

/// How far behind everything known the revisions of a store begin that was restored or repaired: more than any store can
/// have come on between a backup and its loss.
const BUMP: u64 = 1_000_000_000;

/// The one file of what is made, and the segment that continues it.
const NUMBER: u64 = 1;

/// How a store is.
#[derive(Debug)]
pub struct Report {
    /// How many objects can be read.
    pub objects: usize,
    /// The newest revision in it.
    pub revision: Revision,
    /// How far it had come, if that is further.
    pub known: Option<Revision>,
    /// What is wrong with its files.
    pub problems: Vec<String>,
    /// What cannot be read as it last was.
    pub lost: Vec<Lost>,
    /// What was read from a damaged part, and looks whole: it is there as that says, or gone.
    pub doubtful: Vec<Key>,
    /// How many objects are encrypted, by key (`aesgcm:v1:NAME`).
    pub encrypted: BTreeMap<String, usize>,
    /// What none of the given keys opens, and why; nothing if there is none.
    pub locked: Vec<(Key, String)>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.known.is_none()
    }
}

/// What was made of a store.
#[derive(Debug)]
pub struct Rebuilt {
    /// How many objects it has.
    pub objects: usize,
    /// Where it begins.
    pub revision: Revision,
    /// Where the files are that were there before, if there were any.
    pub aside: Option<PathBuf>,
}

/// Why a store could not be made anew. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// It cannot be looked into.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backup is none.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// It has come further than what is left of it, so something is lost that nobody can name.
    #[error(
        "the store had reached revision {known}, and what is left ends at {found}; what came between cannot be named. Restore a \
         backup, or keep what is left with --accept-loss"
    )]
    Behind {
        /// How far it had come.
        known: Revision,
        /// How far it comes.
        found: Revision,
    },
    /// The system did not let us.
    #[error("cannot write {}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Reads every byte of the closed store in the folder `path`, and changes none.
/// With keys, what is encrypted is looked into as well.
pub fn check(path: &Path, encryption: &Encryption) -> Result<Report, OpenError> {
    let _ours = enter(path)?;
    examine(path, encryption).map(|(_, report)| report)
}

/// Puts a store with what `backup` has in the place of the one in the folder `path`, which is kept beside it.
pub fn restore(path: &Path, backup: Backup) -> Result<Rebuilt, RebuildError> {
    let _ours = enter(path)?;
    // What cannot be read of what was there, a store from the future too, only makes the first revision a guess.
    let found = Salvage::read(path, &Encryption::default()).map_or(Revision::NONE, |salvage| salvage.newest);
    let known = [found, backup.revision].into_iter().chain(Mark::look(path)).max().unwrap_or_default();
    rebuild(path, known, backup.into_objects(), "before-restore")
}

/// Puts a store with everything that can be read in the place of the damaged one in the folder `path`, which is kept beside
/// it. One that had come further than what is left of it needs `accept_loss`. A store that is sound stays as it is: `None`. What is
/// encrypted stays so; of a damaged part only those are kept that a key opens.
pub fn repair(
    path: &Path,
    accept_loss: bool,
    encryption: &Encryption,
) -> Result<(Report, Option<Rebuilt>), RebuildError> {
    let _ours = enter(path)?;
    let (salvage, report) = examine(path, encryption)?;
    if report.is_sound() {
        return Ok((report, None));
    }
    if let Some(known) = report.known.filter(|_| !accept_loss) {
        return Err(RebuildError::Behind { known, found: report.revision });
    }
    let read = |(key, revision, stored): (&Key, _, &Bytes)| {
        Object::read(key.clone(), revision, stored.clone(), &Encryption::default())
    };
    let objects = salvage.objects().map(read);
    let known = report.known.unwrap_or(report.revision);
    let rebuilt = rebuild(path, known, objects.map(Arc::new).collect(), "damaged")?;
    Ok((report, Some(rebuilt)))
}

/// Keeps others out of the folder, if it is there.
fn enter(path: &Path) -> Result<Option<Directory>, OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    if !path.try_exists().map_err(io_error)? {
        return Ok(None);
    }
    let directory = Directory::enter(path).map_err(io_error)?;
    directory.map(Some).ok_or_else(|| OpenError::InUse { path: path.to_owned() })
}

fn examine(path: &Path, encryption: &Encryption) -> Result<(Salvage, Report), OpenError> {
    let salvage = Salvage::read(path, encryption).map_err(|error| match error {
        SalvageError::Io(source) => OpenError::Io { path: path.to_owned(), source },
        SalvageError::Newer(found) => OpenError::Newer { path: path.to_owned(), found },
    })?;
    let mut encrypted = BTreeMap::new();
    let mut locked = Vec::new();
    for (key, _, stored) in salvage.objects() {
        let Some(label) = label(stored) else { continue };
        *encrypted.entry(label).or_default() += 1;
        if !encryption.is_empty()
            && let Err(reason) = encryption.open(key, stored)
        {
            locked.push((key.clone(), reason));
        }
    }
    let report = Report {
        objects: salvage.objects().count(),
        revision: salvage.newest,
        known: Mark::look(path).filter(|known| *known > salvage.newest),
        problems: salvage.problems.clone(),
        lost: salvage.lost(),
        doubtful: salvage.doubtful(),
        encrypted,
        locked,
    };
    Ok((salvage, report))
}

fn rebuild(path: &Path, known: Revision, objects: Vec<Arc<Object>>, why: &str) -> Result<Rebuilt, RebuildError> {
    let revision = Revision(known.0.saturating_add(BUMP));
    let count = objects.len();
    let made = beside(path, "new");
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| RebuildError::Io { path, source }
    };
    // What an earlier try left.
    match fs::remove_dir_all(&made) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&made)(error)),
        _ => {}
    }
    let write = || -> io::Result<()> {
        let directory = Directory::enter(&made)?.ok_or_else(|| io::Error::other("somebody else is in it"))?;
        embedded::begin(directory.path(), NUMBER, revision)?;
        let everything = FullSnapshot { revision, floor: revision, objects, changes: Vec::new() };
        let as_they_are = Encryption::default();
        snapshot::write(directory.path(), NUMBER, everything, &as_they_are, &AtomicBool::new(false))?;
        Ok(())
    };
    write().map_err(at(&made))?;
    let aside = install(path, &made, why).map_err(at(path))?;
    // Last: before this the note is behind, which harms nobody.
    let (mut mark, _) = Mark::open(path).map_err(at(path))?;
    mark.note(revision);
    mark.sync().map_err(at(path))?;
    Ok(Rebuilt { objects: count, revision, aside })
}

/// Puts the folder `made` in the place of `path`, in one step where the file system can, and what was there beside it.
fn install(path: &Path, made: &Path, why: &str) -> io::Result<Option<PathBuf>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_there = path.try_exists()?;
    let aside = (1..).map(|number| beside(path, &format!("{why}-{number}"))).find(|aside| !aside.exists());
    let aside = aside.ok_or_else(|| io::Error::other("there is no name left"))?;
    if !is_there {
        fs::rename(made, path)?;
    } else if renameat_with(CWD, made, CWD, path, RenameFlags::EXCHANGE).is_ok() {
        fs::rename(made, &aside)?;
    } else {
        fs::rename(path, &aside)?;
        fs::rename(made, path)?;
    }
    fs::File::open(parent)?.sync_all()?;
    Ok(is_there.then_some(aside))
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}
