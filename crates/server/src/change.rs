//! Read, change, write: the loop that every update of a stored object goes through.

use std::sync::Arc;

use api::{Kind, Status, bounds};
use serde_json::Value;
use store::{Change, Expect, Key, Object, Step, WriteError};

use crate::respond::Shown;
use crate::state::{State, readable, write_failure};

/// How often another writer may get in between before the caller is told so. With one winner per round, as many
/// writers can race for one object without any of them noticing.
const TRIES: usize = 100;

/// What became of a change.
pub(crate) enum Outcome {
    /// It is stored, or was there already.
    Stored(Arc<Object>),
    /// It took away the last thing a deleting object waited for, so the object is gone. This is what was submitted.
    Removed(Value),
    /// A dry run would have stored this.
    Imagined(Value),
}

impl Outcome {
    pub(crate) fn shown(self) -> Shown {
        match self {
            Self::Stored(object) => Shown::Stored(object),
            Self::Removed(value) | Self::Imagined(value) => Shown::made(value),
        }
    }
}

/// Reads the object under `key`, lets `change` make its successor, writes that. When another writer gets in between,
/// `change` is asked again with the newer object; it may refuse.
pub(crate) async fn modify(
    state: &State,
    kind: &Kind,
    key: &Key,
    dry_run: bool,
    mut change: impl FnMut(&Object) -> Result<Value, Status>,
) -> Result<Outcome, Status> {
    let mut current = state.store.get(key);
    for _ in 0..TRIES {
        let Some(object) = current else { return Err(Status::not_found(kind, &key.name)) };
        let object = readable(kind, object)?;
        // Held, so that everybody who asks for it from here to the write shares one reading of the bytes.
        let old = object.value();
        let new = change(&object)?;
        if dry_run {
            bounds::check(kind, &key.name, &new)?;
            return Ok(Outcome::Imagined(new));
        }
        let removes = api::update_removes(kind, &old, &new);
        let (step, submitted) = if removes {
            (Step::Delete { key: key.clone() }, Some(new))
        } else {
            (Step::Put { key: key.clone(), value: new }, None)
        };
        match state.store.write(key, Expect::Revision(object.revision), vec![step]).await {
            Ok(changes) => {
                return Ok(match submitted {
                    Some(submitted) => Outcome::Removed(submitted),
                    None => Outcome::Stored(changes.last().and_then(after).unwrap_or(object)),
                });
            }
            Err(WriteError::Conflict(found)) => match (found, submitted) {
                // Somebody else finished the removal: what was asked for has happened.
                (None, Some(submitted)) => return Ok(Outcome::Removed(submitted)),
                (found, _) => current = found,
            },
            Err(error @ (WriteError::Refused(_) | WriteError::Log(_))) => return Err(write_failure(state, error)),
        }
    }
    Err(Status::conflict_modified(kind, &key.name))
}

/// The object as it is after `change`, if it is still there.
pub(crate) fn after(change: &Change) -> Option<Arc<Object>> {
    match change {
        Change::Added(object) | Change::Modified { after: object, .. } => Some(Arc::clone(object)),
        Change::Deleted { .. } => None,
    }
}
