//! Reading a store back: every row, in order, told to a new view.

use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, Marks};
use crate::row::{self, Row, RowError};
use crate::view::{Garbage, View};
use crate::{Change, Key, Object, Revision, Window};

/// Why the file could not be read to its end.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The file could not be read.
    Redb(redb::Error),
    /// It could, but its rows make no sense.
    Rows(RowsError),
}

/// Why the rows make no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowsError {
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("revision {revision} holds no JSON")]
    Json { revision: Revision, source: serde_json::Error },
    #[error("revision {revision} removes {key}, which is not there")]
    RemovesNothing { revision: Revision, key: Key },
    #[error("revision {found} is stored although the newest is {newest}")]
    Beyond { found: Revision, newest: Revision },
}

impl From<redb::Error> for LoadError {
    fn from(error: redb::Error) -> Self {
        Self::Redb(error)
    }
}

/// Tells a new view every row: up to the floor what it left, after it the change it was.
pub(crate) fn load(disk: &Disk, marks: Marks, window: Window) -> Result<(View, Garbage), LoadError> {
    let mut loading = Loading { view: View::new(marks.floor, window), garbage: Garbage::default(), marks };
    disk.scan(|revision, row| loading.take(revision, row).map_err(LoadError::Rows))?;
    let Loading { view, garbage, marks } = loading;
    view.advance_to(marks.revision);
    Ok((view, garbage))
}

struct Loading {
    view: View,
    garbage: Garbage,
    marks: Marks,
}

impl Loading {
    fn take(&mut self, revision: Revision, row: &[u8]) -> Result<(), RowsError> {
        if revision > self.marks.revision {
            return Err(RowsError::Beyond { found: revision, newest: self.marks.revision });
        }
        let in_window = revision > self.marks.floor;
        let change = match row::decode(revision, row)? {
            Row::Put { key, json } => self.put(revision, key, json)?,
            Row::Delete { key } => match self.view.get(&key) {
                Some(before) => {
                    let (last, _) = Object::stamped(key, revision, before.to_value());
                    Change::Deleted { before, last: Arc::new(last) }
                }
                None if in_window => return Err(RowsError::RemovesNothing { revision, key }),
                // Left behind by a commit that failed after the row it removed was gone.
                None => {
                    self.garbage.rows.push(revision);
                    return Ok(());
                }
            },
        };
        if in_window {
            let trimmed = self.view.replay(&change);
            self.garbage.floor = trimmed.floor.or(self.garbage.floor);
            self.garbage.rows.extend(trimmed.rows);
        } else {
            self.garbage.rows.extend(self.view.restore(&change));
        }
        Ok(())
    }

    fn put(&self, revision: Revision, key: Key, json: Bytes) -> Result<Change, RowsError> {
        let before = self.view.get(&key);
        let after = Object::read(key, revision, json).map_err(|source| RowsError::Json { revision, source })?;
        let after = Arc::new(after);
        Ok(match before {
            None => Change::Added(after),
            Some(before) => Change::Modified { before, after },
        })
    }
}
