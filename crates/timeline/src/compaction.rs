//! The journal of a node that runs for months stays as long as what it has to remember.
//!
//! When most of the file is about lives that are over, or about what a fold stands for, what is needed of it is copied into
//! a new one by a thread of its own, while records go on being appended to the old one. When the copy is durable the writer
//! adds what came meanwhile, gives it the journal's name, and goes on there:
//!
//! ```text
//!  journal       ████░░██░░░░█│▒▒▒        ░ not needed   ▒ came since
//!  journal.new   ███████ ─sync─┴▒▒▒ ─sync─ rename ─sync the folder─▶ the next record goes here
//! ```
//!
//! Whenever it is killed, whichever file has the name holds all that anybody was told is durable.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::file;
use crate::index::Index;
use crate::record;

/// Below so many bytes that nobody needs, a file is left as it is.
const WORTH_COMPACTING: usize = 64 << 10;

/// So much is copied at once.
const COPY: usize = 64 << 10;

/// Whether a file of `length` bytes is mostly about what nobody needs.
pub(crate) fn is_worth_compacting(length: usize, index: &Index) -> bool {
    let needed = index.needed();
    length.saturating_sub(needed) > needed.max(WORTH_COMPACTING)
}

/// Why there is no shorter file.
pub(crate) enum CopyError {
    /// It could not be made; the old one is whole and has the name.
    Copy(io::Error),
    /// It was given the name, and it is not known whether that will be found after a loss of power.
    Switch(io::Error),
}

/// Who makes a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyBy {
    /// A thread of its own, while records go on being written.
    Thread,
    /// Whoever writes.
    Itself,
}

enum Copying {
    ByThread(JoinHandle<io::Result<(File, usize)>>),
    Done(io::Result<(File, usize)>),
}

impl Copying {
    fn end(self) -> io::Result<(File, usize)> {
        match self {
            Self::ByThread(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("the copy broke"))),
            Self::Done(copied) => copied,
        }
    }
}

/// A copy that is being made.
pub(crate) struct Compaction {
    copying: Copying,
    over: Arc<AtomicBool>,
    /// Where the old file ended when it was begun.
    since: usize,
    /// What was needed then, and where it stands in the new file.
    index: Index,
}

impl Compaction {
    /// Begins to copy what `index` needs of the first `since` bytes of `old`. `done` is told when that is over.
    pub(crate) fn begin(
        (path, old): (&Path, &File),
        since: usize,
        index: &Index,
        by: CopyBy,
        done: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let old = old.try_clone()?;
        let mut index = index.clone();
        let needed = index.compact();
        let path = path.to_owned();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let copy_all = move || {
            let copied = supervision::catch_blocking("journal-copy", || copy(&path, &old, &needed));
            let copied = copied.unwrap_or_else(|panic| Err(io::Error::other(panic)));
            is_over.store(true, Ordering::Release);
            done();
            copied
        };
        let copying = match by {
            CopyBy::Itself => Copying::Done(copy_all()),
            CopyBy::Thread => {
                let thread = std::thread::Builder::new().name("journal-copy".to_owned());
                Copying::ByThread(thread.spawn(copy_all)?)
            }
        };
        Ok(Self { copying, over, since, index })
    }

    /// Whether the copy is there, or was given up.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Nobody needs it any more.
    pub(crate) fn abandon(self, path: &Path) {
        // It holds the draft, which the next one who opens the journal may want to make.
        let _ = self.copying.end();
        give_up(path);
    }

    /// Adds what came since, whose marks are `later`, and puts the new file in the place of the old one. Answers it with
    /// its length and what is needed of it.
    pub(crate) fn finish(
        self,
        path: &Path,
        old: &File,
        end: usize,
        later: Vec<(crate::index::Mark, usize)>,
    ) -> Result<(File, usize, Index), CopyError> {
        let copied = self.copying.end();
        let (mut file, mut length) = copied.map_err(CopyError::Copy)?;
        append(old, self.since..end, &mut file).map_err(CopyError::Copy)?;
        file.sync_data().map_err(CopyError::Copy)?;
        let mut index = self.index;
        for (mark, size) in later {
            index.take(mark, length..length + size);
            length += size;
        }
        fs::rename(file::draft_path(path), path).map_err(CopyError::Copy)?;
        // Before anything is appended to it: the old one is not written to any more.
        file::sync_directory(path).map_err(CopyError::Switch)?;
        Ok((file, length, index))
    }
}

/// What an attempt that failed may have left.
pub(crate) fn give_up(path: &Path) {
    let _ = fs::remove_file::<PathBuf>(file::draft_path(path));
}

fn copy(path: &Path, old: &File, needed: &[Range<usize>]) -> io::Result<(File, usize)> {
    let mut file = file::draft(path)?;
    let mut length = record::FILE_HEADER;
    file.write_all(&record::file_header())?;
    let mut pending: Option<Range<usize>> = None;
    // Neighbours are copied together.
    for part in needed {
        length += part.len();
        match &mut pending {
            Some(before) if before.end == part.start => before.end = part.end,
            _ => {
                let before = pending.replace(part.clone());
                before.map_or(Ok(()), |before| append(old, before, &mut file))?;
            }
        }
    }
    pending.map_or(Ok(()), |before| append(old, before, &mut file))?;
    file.sync_all()?;
    Ok((file, length))
}

/// Copies a part of `old` to the end of `new`.
fn append(old: &File, part: Range<usize>, new: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; COPY.min(part.len())];
    let mut at = part.start;
    while at < part.end {
        let step = buffer.len().min(part.end - at);
        old.read_exact_at(&mut buffer[..step], u64::try_from(at).map_err(io::Error::other)?)?;
        new.write_all(&buffer[..step])?;
        at += step;
    }
    Ok(())
}
