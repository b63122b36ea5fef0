//! What can still be read of a damaged log: every object, as far as the bytes say what it was, and what is lost by name.
//!
//! Reads only. A frame whose sum is wrong is read row by row all the same; a row in it is believed if it is an object that
//! carries the revision of its row, and said to be doubtful, since a changed byte inside a text cannot be seen. One that is encrypted is
//! believed if it is that once a key has opened it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::directory::Holds;
use crate::files::{self, Head, Payload};
use crate::frame::{self, Scanned};
use crate::row::{self, Row};
use crate::{Encryption, Key, Revision};

/// An object that cannot be read as it last was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Which.
    pub key: Key,
    /// What it had become.
    pub revision: Revision,
    /// The older state that is there instead.
    pub kept: Option<Revision>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as of revision {}", self.key, self.revision)?;
        match self.kept {
            Some(kept) => write!(f, " (it is there as of revision {kept})"),
            None => Ok(()),
        }
    }
}

/// What is in the files of a store.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// What each key last became, and whether that is beyond doubt.
    rows: BTreeMap<Key, Last>,
    pub(crate) newest: Revision,
    /// What is wrong, in words.
    pub(crate) problems: Vec<String>,
    unreadable: Vec<(Key, Revision)>,
    encryption: Encryption,
}

#[derive(Debug)]
struct Last {
    revision: Revision,
    json: Option<Bytes>,
    is_doubtful: bool,
}

/// Why the files cannot be looked into.
pub(crate) enum SalvageError {
    Io(io::Error),
    /// A later version wrote them, in this format.
    Newer(u32),
}

impl From<io::Error> for SalvageError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Salvage {
    /// Reads everything in the folder; one that is not there has nothing.
    pub(crate) fn read(path: &Path, encryption: &Encryption) -> Result<Self, SalvageError> {
        let mut salvage = Self { encryption: encryption.clone(), ..Self::default() };
        let mut files = Vec::new();
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(salvage),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            let holds = match path.extension().and_then(|extension| extension.to_str()) {
                Some("snapshot") => Holds::Snapshot,
                Some("log") => Holds::Changes,
                _ => continue,
            };
            files.extend(number.map(|number| (number, holds, path)));
        }
        // A snapshot comes before the segment that continues it.
        files.sort_by_key(|(number, holds, _)| (*number, *holds == Holds::Changes));
        let snapshot = files.iter().filter(|(_, holds, _)| *holds == Holds::Snapshot).map(|(number, ..)| *number).max();
        let first = snapshot.unwrap_or(1);
        let last = files.last().map(|(number, ..)| *number);
        let mut expected = first;
        for (number, holds, path) in files {
            // What is older than the newest snapshot only still has something to say if that is damaged; it does no harm.
            if holds == Holds::Changes && number >= first {
                for missing in expected..number {
                    salvage.problems.push(format!("segment {missing} is missing"));
                }
                expected = number + 1;
            }
            salvage.file(&fs::read(&path)?, holds, number, Some(number) == last)?;
        }
        if snapshot.is_some() && expected == first {
            salvage.problems.push(format!("segment {first} is missing"));
        }
        Ok(salvage)
    }

    fn file(&mut self, bytes: &[u8], holds: Holds, number: u64, is_last: bool) -> Result<(), SalvageError> {
        let name = match holds {
            Holds::Changes => format!("segment {number}"),
            Holds::Snapshot => format!("snapshot {number}"),
        };
        let (mut has_head, mut has_end, mut rows) = (false, false, 0_u64);
        let (frames, tail) = frame::scan(bytes);
        for frame in frames {
            let Scanned { at, payload, is_sound, has_header } = frame;
            if !is_sound || !has_header {
                self.problems.push(format!("{name}: the frame at byte {at} is not what was written"));
            }
            match files::read(payload) {
                Some(Payload::Newer(format)) if is_sound => return Err(SalvageError::Newer(format)),
                Some(Payload::Head(head)) => {
                    has_head |= is_sound;
                    self.head(&head, &name, holds, is_sound);
                }
                Some(Payload::Rows(bytes)) => rows += self.rows_of(bytes, &name, is_sound),
                Some(Payload::End(promised)) => {
                    has_end = true;
                    if promised != rows {
                        self.problems.push(format!("{name}: {rows} of its {promised} rows are there"));
                    }
                }
                Some(Payload::Newer(_)) | None if is_sound => {
                    self.problems.push(format!("{name}: the frame at byte {at} has a part that does not belong there"));
                }
                // The byte that says what it is may be the one that changed; rows are what most frames have.
                Some(Payload::Newer(_)) | None => {
                    rows += self.rows_of(payload.get(1..).unwrap_or_default(), &name, false);
                }
            }
        }
        match tail {
            // The last write of a process that was killed. Nobody was told that it was done.
            Some(at) if is_last && holds == Holds::Changes => tracing::info!(at, "the last write was never finished"),
            Some(at) => self.problems.push(format!("{name}: it ends at byte {at}, inside a frame")),
            None => {}
        }
        if !has_head {
            self.problems.push(format!("{name}: it does not say what it is"));
        }
        if holds == Holds::Snapshot && !has_end {
            self.problems.push(format!("{name}: its end is missing"));
        }
        Ok(())
    }

    fn head(&mut self, head: &Head, name: &str, holds: Holds, is_sound: bool) {
        if !is_sound {
            return;
        }
        if holds == Holds::Changes && self.newest != Revision::NONE && head.revision != self.newest {
            let (begun, newest) = (head.revision, self.newest);
            self.problems
                .push(format!("{name}: it continues revision {begun}, and what is before it ends at {newest}"));
        }
        self.newest = self.newest.max(head.revision);
    }

    /// Takes over rows; answers how many there were.
    fn rows_of(&mut self, mut bytes: &[u8], name: &str, is_sound: bool) -> u64 {
        let mut count = 0;
        while !bytes.is_empty() {
            let left = bytes.len();
            match row::decode(&mut bytes, self.newest) {
                Ok(row) => self.take(row, is_sound),
                Err(_) => {
                    self.problems.push(format!("{name}: {left} bytes of rows after revision {} are lost", self.newest));
                    break;
                }
            }
            count += 1;
        }
        count
    }

    fn take(&mut self, row: Row, is_sound: bool) {
        let Row { revision, key, json } = row;
        if !is_sound && let Some(json) = &json {
            let opened = self.encryption.open(&key, json).ok().flatten();
            let own = carried(opened.as_deref().unwrap_or(json), revision, &key);
            if own.as_ref() != Some(&key) {
                // Which of the two is the damaged one cannot be known.
                self.unreadable.extend(own.map(|own| (own, revision)));
                self.unreadable.push((key, revision));
                return;
            }
        }
        self.newest = self.newest.max(revision);
        if self.rows.get(&key).is_none_or(|last| last.revision < revision) {
            self.rows.insert(key, Last { revision, json, is_doubtful: !is_sound });
        }
    }

    /// The objects that were found.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Key, Revision, &Bytes)> {
        self.rows.iter().filter_map(|(key, last)| Some((key, last.revision, last.json.as_ref()?)))
    }

    /// Those of which a byte may have changed unseen, or of whose removal.
    pub(crate) fn doubtful(&self) -> Vec<Key> {
        self.rows.iter().filter(|(_, last)| last.is_doubtful).map(|(key, _)| key.clone()).collect()
    }

    /// What cannot be read as it last was. What became of it later may be there all the same, and then nothing is lost.
    pub(crate) fn lost(&self) -> Vec<Lost> {
        let mut lost: BTreeMap<&Key, Revision> = BTreeMap::new();
        for (key, revision) in &self.unreadable {
            let newest = lost.entry(key).or_insert(*revision);
            *newest = (*newest).max(*revision);
        }
        let last = |key: &Key| self.rows.get(key);
        lost.retain(|key, revision| last(key).is_none_or(|last| last.revision < *revision));
        let kept = |key: &Key| last(key).filter(|last| last.json.is_some()).map(|last| last.revision);
        lost.into_iter().map(|(key, revision)| Lost { key: key.clone(), revision, kept: kept(key) }).collect()
    }
}

/// The key that `json` says it has, if it is an object that says that it is of this revision.
fn carried(json: &[u8], revision: Revision, key: &Key) -> Option<Key> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let metadata = &value["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str());
    let is_of_it = metadata["resourceVersion"] == revision.to_string().as_str();
    is_of_it.then(|| Key::new(Arc::clone(&key.collection), namespace, name.unwrap_or(&key.name)))
}
