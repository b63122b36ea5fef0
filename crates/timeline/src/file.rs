//! The care for the file: opening it alone, reading it to its end, cutting what was never finished, leaving out what is
//! over.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::compaction::{self, is_worth_compacting};
use crate::index::Index;
use crate::journal::{JournalError, RESERVE};
use crate::life::{Concluded, Life, Lives};
use crate::record::{self, Entry, FILE_HEADER, Framed, Opening};

/// How long a lock may be held by nobody in particular: a child of whoever had it, between its fork and its exec.
const PATIENCE: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_millis(5);

/// An open journal.
pub(crate) struct Opened {
    /// At its end, locked, and whole.
    pub(crate) file: File,
    /// How long it is.
    pub(crate) end: usize,
    pub(crate) index: Index,
    pub(crate) lives: Vec<Life>,
    pub(crate) concluded: Vec<Concluded>,
}

/// Opens or makes the journal at `path` for this boot.
pub(crate) fn open(path: &Path, boot_id: &str) -> Result<Opened, JournalError> {
    let cannot = |doing| move |source| JournalError::Io { doing, path: path.to_owned(), source };
    let mut file = lock(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(cannot("read"))?;
    let (mut lives, end) = read(path, &bytes)?;
    if end < bytes.len() {
        let torn = bytes.len() - end;
        tracing::warn!(bytes = torn, "the end of the journal was never finished; it is cut off");
        bytes.truncate(end);
        // Where the reserve could not be had again, which goes with the end.
        if end > 0 && !disk::has_room_for(&file, 2 * RESERVE) {
            let padding = cover(&file, end, torn).map_err(cannot("cover the end of"))?;
            lives.take(Entry::Padding, end..end + padding.len());
            bytes.extend_from_slice(&padding);
        } else {
            file.set_len(u64::try_from(end).expect("a file's length")).map_err(cannot("cut the end of"))?;
        }
    }
    if end == 0 {
        bytes.extend_from_slice(&record::file_header());
        file.rewind().and_then(|()| file.write_all(&bytes)).map_err(cannot("begin"))?;
    }
    let mut end = bytes.len();
    if is_worth_compacting(end, &lives.index) {
        let mut compacted = record::file_header().to_vec();
        let mut index = lives.index.clone();
        index.compact().into_iter().for_each(|part| compacted.extend_from_slice(&bytes[part]));
        match replace(path, &compacted) {
            Ok(shorter) => {
                (file, end, lives.index) = (shorter, compacted.len(), index);
                tracing::info!(before = bytes.len(), after = end, "the journal was compacted");
            }
            // A full disk has no room for a second file. The first is as good, only longer.
            Err(error) => {
                tracing::warn!(%error, "the journal could not be compacted");
                compaction::give_up(path);
            }
        }
    }
    file.seek(SeekFrom::End(0)).map_err(cannot("find the end of"))?;
    if lives.boot_id.as_deref() != Some(boot_id) {
        let mut boot = Vec::new();
        let entry = Entry::Boot { boot_id: boot_id.to_owned() };
        record::frame(&entry, &mut boot);
        file.write_all(&boot).map_err(cannot("note the boot in"))?;
        lives.take(entry, end..end + boot.len());
        end += boot.len();
    }
    // Before anything is appended: what was read must still be there after a crash, and so must the file itself.
    file.sync_all().and_then(|()| sync_directory(path)).map_err(cannot("sync"))?;
    let (lives, concluded, index) = lives.into_parts();
    Ok(Opened { file, end, index, lives, concluded })
}

/// Writes a record that says nothing over so many bytes at the end. Answers it.
fn cover(file: &File, end: usize, torn: usize) -> io::Result<Vec<u8>> {
    let padding = record::padding(torn);
    let (header, payload) = padding.split_at(record::HEADER);
    let at = |offset: usize| u64::try_from(offset).map_err(io::Error::other);
    // Its header last: until that is there, what is here is a record that was never finished.
    file.write_all_at(payload, at(end + record::HEADER)?)?;
    file.sync_data()?;
    file.write_all_at(header, at(end)?)?;
    Ok(padding)
}

/// Reads every record. Answers the lives and where the sound part ends.
fn read(path: &Path, bytes: &[u8]) -> Result<(Lives, usize), JournalError> {
    let mut lives = Lives::default();
    // A journal whose very first write was cut short holds nothing yet.
    if bytes.len() < FILE_HEADER && record::file_header().starts_with(bytes) {
        return Ok((lives, 0));
    }
    match record::read_file_header(bytes) {
        Opening::Ours => {}
        Opening::Newer(version) => return Err(JournalError::Newer { path: path.to_owned(), version }),
        Opening::Foreign => return Err(JournalError::Foreign { path: path.to_owned() }),
    }
    let mut offset = FILE_HEADER;
    while offset < bytes.len() {
        let damaged = |what: String| JournalError::Damaged { path: path.to_owned(), offset, what };
        match record::unframe(&bytes[offset..], offset) {
            Framed::Sound(payload, length) => {
                let entry = record::read(payload).map_err(|error| damaged(error.to_string()))?;
                lives.take(entry, offset..offset + length);
                offset += length;
            }
            Framed::Torn => break,
            Framed::Damaged => return Err(damaged("its checksum does not match".to_owned())),
            Framed::Newer(version) => {
                return Err(JournalError::Newer { path: path.to_owned(), version: version.into() });
            }
        }
    }
    Ok((lives, offset))
}

/// Opens the file for us alone, and makes sure that it is still the one of that name.
fn lock(path: &Path) -> Result<File, JournalError> {
    let cannot = |source| JournalError::Io { doing: "open", path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(cannot)?;
    let in_use = || JournalError::InUse { path: path.to_owned() };
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                std::thread::sleep(RETRY);
                waited += RETRY;
            }
            Err(TryLockError::WouldBlock) => return Err(in_use()),
            Err(TryLockError::Error(source)) => return Err(cannot(source)),
        }
    }
    let (ours, named) = (file.metadata().map_err(cannot)?, fs::metadata(path).map_err(cannot)?);
    if (ours.dev(), ours.ino()) == (named.dev(), named.ino()) { Ok(file) } else { Err(in_use()) }
}

/// Puts a new file in the place of the old one: whole and durable before it gets the name, locked before that too.
fn replace(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = draft(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(draft_path(path), path)?;
    Ok(file)
}

/// Where the next file is written before it gets the journal's name.
pub(crate) fn draft_path(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    PathBuf::from(draft)
}

/// An empty file, locked, that may become the journal. What an earlier attempt left of one is gone.
pub(crate) fn draft(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(draft_path(path))?;
    file.try_lock()?;
    Ok(file)
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
