//! Reading a log back: the newest snapshot, then every segment since, told to a new view.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::sync::Arc;

use crate::directory::{Directory, Holds};
use crate::files::{self, Head, Payload};
use crate::frame::{Chain, FrameError, Frames};
use crate::row::{self, NotRows, Row};
use crate::segment::{Segment, drop_end};
use crate::view::View;
use crate::{Change, Encryption, Key, Object, Revision, Window};

/// Why the log could not be read to its end.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// A file could not be read.
    Io(io::Error),
    /// It is from the future.
    Newer(u32),
    /// What is there makes no sense.
    Damaged(Damage),
}

/// Why a log makes no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("{holds:?} {number} cannot be read")]
    Frame { holds: Holds, number: u64, source: FrameError },
    #[error("{holds:?} {number} does not say what it is")]
    Head { holds: Holds, number: u64 },
    #[error("segment {number} is missing")]
    Missing { number: u64 },
    #[error("segment {number} continues revision {begun_at}, and the one before it ends at {newest}")]
    Gap { number: u64, begun_at: Revision, newest: Revision },
    #[error("a snapshot of {promised} rows has {found}")]
    Short { promised: u64, found: u64 },
    #[error(transparent)]
    Rows(#[from] NotRows),
    #[error("revision {revision} removes {key}, which is not there")]
    RemovesNothing { revision: Revision, key: Key },
    #[error("revision {found} comes after {newest}")]
    Order { found: Revision, newest: Revision },
    #[error("the file has a part that does not belong there")]
    Shape,
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<T: Into<Damage>> From<T> for LoadError {
    fn from(damage: T) -> Self {
        Self::Damaged(damage.into())
    }
}

/// A log that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) view: View,
    /// The last segment, to be continued; `None`: there is none yet.
    pub(crate) segment: Option<(u64, Segment)>,
    /// How long the snapshot is, and the segments behind it altogether.
    pub(crate) snapshot_size: u64,
    pub(crate) log_size: u64,
    /// Whether values are in it that would be written with another key, or encrypted at all, or plain.
    pub(crate) is_stale: bool,
}

/// Reads everything in the folder. A last write that was never finished is cut off; whatever else is wrong is damage.
pub(crate) fn load(directory: &Directory, window: Window, encryption: &Encryption) -> Result<Loaded, LoadError> {
    let contents = directory.tidy()?;
    let snapshot = contents.snapshots.last().copied();
    let mut loading = Loading::new(Revision::FIRST, window, encryption);
    let mut loaded_size = 0;
    if let Some(number) = snapshot {
        let bytes = read(directory, Holds::Snapshot, number)?.1;
        loaded_size = bytes.len() as u64;
        loading = Loading::from_snapshot(number, &bytes, window, encryption)?;
    }
    let first = snapshot.unwrap_or(1);
    let mut last = None;
    let mut log_size = 0;
    for (expected, number) in (first..).zip(&contents.segments) {
        if *number != expected {
            return Err(Damage::Missing { number: expected }.into());
        }
        let is_last = contents.segments.last() == Some(number);
        let segment = loading.segment(directory, *number, is_last)?;
        log_size += segment.len();
        last = Some((*number, segment));
    }
    // A snapshot is only made once the segment that continues it is there.
    if last.is_none() && snapshot.is_some() {
        return Err(Damage::Missing { number: first }.into());
    }
    loading.view.tell_damage();
    let Loading { view, is_stale, .. } = loading;
    Ok(Loaded { view, segment: last, snapshot_size: loaded_size, log_size, is_stale })
}

fn read(directory: &Directory, holds: Holds, number: u64) -> io::Result<(File, Vec<u8>)> {
    let mut file = OpenOptions::new().read(true).write(true).open(directory.path_of(holds, number))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((file, bytes))
}

struct Loading<'a> {
    view: View,
    newest: Revision,
    encryption: &'a Encryption,
    is_stale: bool,
}

impl<'a> Loading<'a> {
    fn new(floor: Revision, window: Window, encryption: &'a Encryption) -> Self {
        Self { view: View::new(floor, window), newest: floor, encryption, is_stale: false }
    }

    fn from_snapshot(number: u64, bytes: &[u8], window: Window, encryption: &'a Encryption) -> Result<Self, LoadError> {
        let holds = Holds::Snapshot;
        let broken = |source| Damage::Frame { holds, number, source };
        let mut frames = Frames::new(bytes);
        let head = head(&mut frames, holds, number)?;
        let mut loading = Self::new(head.floor, window, encryption);
        let (mut found, mut promised) = (0, None);
        while let Some(payload) = frames.next().map_err(broken)? {
            match files::read(payload) {
                Some(Payload::Rows(mut rows)) if promised.is_none() => {
                    while !rows.is_empty() {
                        loading.take(row::decode(&mut rows, loading.newest)?, head.floor)?;
                        found += 1;
                    }
                }
                Some(Payload::End(rows)) if promised.is_none() => promised = Some(rows),
                _ => return Err(Damage::Shape.into()),
            }
        }
        if promised != Some(found) {
            return Err(Damage::Short { promised: promised.unwrap_or(0), found }.into());
        }
        loading.view.advance_to(head.revision);
        loading.newest = head.revision;
        Ok(loading)
    }

    /// Takes over a segment; answers it ready to be continued.
    fn segment(&mut self, directory: &Directory, number: u64, is_last: bool) -> Result<Segment, LoadError> {
        let holds = Holds::Changes;
        let (file, bytes) = read(directory, holds, number)?;
        let mut frames = Frames::new(&bytes);
        let head = head(&mut frames, holds, number)?;
        if head.revision != self.newest {
            return Err(Damage::Gap { number, begun_at: head.revision, newest: self.newest }.into());
        }
        loop {
            let payload = match frames.next() {
                Ok(None) => break,
                Ok(Some(payload)) => payload,
                Err(FrameError::Unfinished { at }) if is_last => {
                    // Zeros alone are what is left of one that was dropped before, on a full disk.
                    if bytes[at..].iter().any(|byte| *byte != 0) {
                        tracing::warn!(segment = number, at, "the last write was never finished; it is dropped");
                    }
                    drop_end(&file, at as u64)?;
                    break;
                }
                Err(source) => return Err(Damage::Frame { holds, number, source }.into()),
            };
            let Some(Payload::Rows(mut rows)) = files::read(payload) else { return Err(Damage::Shape.into()) };
            while !rows.is_empty() {
                self.take(row::decode(&mut rows, self.newest)?, Revision::NONE)?;
            }
        }
        // What is shown from now on must be as safe as what was acknowledged.
        file.sync_all()?;
        let (end, chain): (usize, Chain) = frames.end();
        Ok(Segment::new(file, end as u64, chain))
    }

    /// Takes over a row: up to `floor` what it left, after it the change it was.
    fn take(&mut self, row: Row, floor: Revision) -> Result<(), LoadError> {
        let Row { revision, key, json } = row;
        let in_window = revision > floor;
        if in_window && revision <= self.newest {
            return Err(Damage::Order { found: revision, newest: self.newest }.into());
        }
        let before = self.view.get(&key);
        let change = match (json, before) {
            (Some(json), before) => {
                let is_current = self.encryption.is_current(&key.collection, &json);
                let after = Object::read(key, revision, json, self.encryption);
                // What cannot be read cannot be written otherwise.
                self.is_stale |= !is_current && !after.lacks_key();
                match before {
                    None => Change::Added(Arc::new(after)),
                    Some(before) => Change::Modified { before, after: Arc::new(after) },
                }
            }
            (None, Some(before)) => {
                let (last, _) = Object::stamped(key, revision, before.to_value());
                Change::Deleted { before, last: Arc::new(last) }
            }
            (None, None) => return Err(Damage::RemovesNothing { revision, key }.into()),
        };
        if in_window {
            self.view.replay(&change);
            self.newest = revision;
        } else {
            self.view.restore(&change);
        }
        Ok(())
    }
}

fn head(frames: &mut Frames<'_>, holds: Holds, number: u64) -> Result<Head, LoadError> {
    let payload = frames.next().map_err(|source| Damage::Frame { holds, number, source })?;
    match payload.and_then(files::read) {
        Some(Payload::Newer(format)) => Err(LoadError::Newer(format)),
        Some(Payload::Head(head)) if (head.holds, head.number) == (holds, number) => Ok(head),
        _ => Err(Damage::Head { holds, number }.into()),
    }
}
