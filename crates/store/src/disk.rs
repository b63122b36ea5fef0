//! The file: rows by revision, and a few numbers about them, in one `redb` database.
//!
//! The table `log` holds every change that is still needed: the newest of each live key, and all of the history window
//! with what each of its changes replaced. So opening is one scan in order, and a watch can resume across a restart.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::Revision;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &'static str, u64> = TableDefinition::new("meta");

/// Raised when an older program could not read what this one writes.
const FORMAT: u64 = 1;

/// Memory for pages. Reads come from the view, so that only the pages being written need a place.
const CACHE: usize = 8 << 20;

/// How many revisions are passed over after a crash; more than one commit can hold.
const LEAP: u64 = 10_000;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Someone else has it open.
    #[error(
        "the store {} is open in another process; stop that one first, or give this one a data directory of its own",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is not what was written.
    #[error("the store {} is damaged; restore a copy of it, or move it away to start empty", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It is from the future.
    #[error(
        "the store {} has format {found}, and this version reads up to format {FORMAT}; use the version that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The system did not let us.
    #[error("cannot open the store {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    /// Who opened the file before. Tells a reopening log whether anyone else came in between.
    pub(crate) previous_owner: u64,
}

/// The numbers stored beside the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The newest revision given out.
    pub(crate) revision: Revision,
    /// No change after this one was removed.
    pub(crate) floor: Revision,
}

/// One durable step of the file.
#[derive(Debug)]
pub(crate) struct Commit<'a> {
    pub(crate) rows: &'a [(Revision, Vec<u8>)],
    pub(crate) remove: &'a [Revision],
    pub(crate) marks: Marks,
}

impl Disk {
    /// Opens or makes the file, and leaves the mark of `owner` in it.
    pub(crate) fn open(path: &Path, owner: u64) -> Result<Self, OpenError> {
        if !fs::exists(path).map_err(|source| io_error(path, source))? {
            create(path)?;
        }
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|source| io_error(path, source))?;
        let repaired = Arc::new(AtomicBool::new(false));
        let database = database(file, Arc::clone(&repaired)).map_err(|error| open_error(path, error))?;
        let repaired = repaired.load(Ordering::Relaxed);
        Self::enter(database, owner, repaired).map_err(|error| match error {
            EnterError::Newer(found) => OpenError::Newer { path: path.to_owned(), found },
            EnterError::Redb(error) => open_error(path, error),
        })
    }

    /// Checks the format and notes the owner, which also proves that the file can be written.
    ///
    /// After a crash the last commit, if the disk did not keep what it promised, may have been taken back. Its revisions
    /// were seen by others, so they are passed over.
    fn enter(database: Database, owner: u64, repaired: bool) -> Result<Self, EnterError> {
        let transaction = database.begin_write().map_err(redb::Error::from)?;
        let previous_owner = {
            let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
            let found = number(&meta, "format")?;
            if found > FORMAT {
                return Err(EnterError::Newer(found));
            }
            let previous_owner = number(&meta, "owner")?;
            meta.insert("owner", owner).map_err(redb::Error::from)?;
            if repaired {
                let mut marks = Marks::read(&meta)?;
                marks.revision.0 += LEAP;
                marks.write(&mut meta)?;
            }
            previous_owner
        };
        transaction.commit().map_err(redb::Error::from)?;
        Ok(Self { database, previous_owner })
    }

    pub(crate) fn marks(&self) -> Result<Marks, redb::Error> {
        Marks::read(&self.database.begin_read()?.open_table(META)?)
    }

    /// Tells every row, in order.
    pub(crate) fn scan<E: From<redb::Error>>(
        &self,
        mut told: impl FnMut(Revision, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let transaction = self.database.begin_read().map_err(redb::Error::from)?;
        let log = transaction.open_table(LOG).map_err(redb::Error::from)?;
        for row in log.iter().map_err(redb::Error::from)? {
            let (revision, row) = row.map_err(redb::Error::from)?;
            told(Revision(revision.value()), row.value())?;
        }
        Ok(())
    }

    /// Makes all of it durable, or none.
    pub(crate) fn commit(&self, commit: &Commit<'_>) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut log = transaction.open_table(LOG)?;
            for revision in commit.remove {
                log.remove(revision.0)?;
            }
            for (revision, row) in commit.rows {
                log.insert(revision.0, row.as_slice())?;
            }
            let mut meta = transaction.open_table(META)?;
            commit.marks.write(&mut meta)?;
        }
        Ok(transaction.commit()?)
    }
}

impl Marks {
    fn read(meta: &impl ReadableTable<&'static str, u64>) -> Result<Self, redb::Error> {
        let marks = Self { revision: Revision(number(meta, "revision")?), floor: Revision(number(meta, "floor")?) };
        if number(meta, "sum")? != marks.sum() {
            return Err(redb::Error::Corrupted("the checksum of the marks does not match".to_owned()));
        }
        Ok(marks)
    }

    fn write(self, meta: &mut Table<'_, &'static str, u64>) -> Result<(), redb::Error> {
        meta.insert("revision", self.revision.0)?;
        meta.insert("floor", self.floor.0)?;
        meta.insert("sum", self.sum())?;
        Ok(())
    }

    fn sum(self) -> u64 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.revision.0.to_le_bytes());
        hasher.update(&self.floor.0.to_le_bytes());
        hasher.finalize().into()
    }
}

fn number(meta: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, redb::Error> {
    Ok(meta.get(name)?.map_or(0, |number| number.value()))
}

enum EnterError {
    Newer(u64),
    Redb(redb::Error),
}

impl From<redb::Error> for EnterError {
    fn from(error: redb::Error) -> Self {
        Self::Redb(error)
    }
}

/// Makes an empty store beside `path` and gives it its name only when it is whole, so that a crash in between leaves
/// nothing that looks like a store. A name already taken is left alone: someone else was faster.
fn create(path: &Path) -> Result<(), OpenError> {
    let io_error = |source| io_error(path, source);
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let draft = PathBuf::from(draft);
    // Secrets live here, so only the owner may read.
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft);
    let file = file.map_err(io_error)?;
    let made = database(file, Arc::default()).map_err(redb::Error::from).and_then(|database| {
        let transaction = database.begin_write()?;
        {
            transaction.open_table(LOG)?;
            let mut meta = transaction.open_table(META)?;
            meta.insert("format", FORMAT)?;
            Marks { revision: Revision::FIRST, floor: Revision::FIRST }.write(&mut meta)?;
        }
        Ok(transaction.commit()?)
    });
    made.map_err(|error| open_error(path, error))?;
    match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(error)),
        _ => {}
    }
    fs::remove_file(&draft).map_err(io_error)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io_error)
}

fn database(file: File, repaired: Arc<AtomicBool>) -> Result<Database, DatabaseError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder.set_repair_callback(move |_| repaired.store(true, Ordering::Relaxed));
    builder.create_file(file)
}

fn io_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), source: source.into() }
}

/// Sorts what `redb` says into what a person can do about it.
pub(crate) fn open_error(path: &Path, error: impl Into<redb::Error>) -> OpenError {
    let (path, error) = (path.to_owned(), error.into());
    if matches!(error, redb::Error::DatabaseAlreadyOpen) {
        return OpenError::InUse { path };
    }
    if let redb::Error::Io(source) = &error
        && !is_about_content(source)
    {
        return OpenError::Io { path, source: error.into() };
    }
    OpenError::Damaged { path, source: error.into() }
}

/// `redb` reports a file that is not one of its own, or is cut short, as an I/O error.
fn is_about_content(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
