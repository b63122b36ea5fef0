//! How one change is written: what became of a key at a revision, with a checksum over both.
//!
//! `crc32 · tag · collection · namespace · name · json`; the names carry their length in front, the JSON takes the rest.
//! A deletion stores no object, since the row before it has it.

use bytes::Bytes;

use crate::{Change, Key, Revision};

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// One row, read back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// The object became this.
    Put { key: Key, json: Bytes },
    /// It was removed.
    Delete { key: Key },
}

/// Why bytes are not a row.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
    #[error("the checksum of revision {0} does not match its content")]
    Checksum(Revision),
    #[error("revision {0} cannot be read, although its checksum matches")]
    Shape(Revision),
}

/// The row of a change.
pub(crate) fn encode(change: &Change) -> Vec<u8> {
    let key = change.key();
    let (tag, json) = match change {
        Change::Added(after) | Change::Modified { after, .. } => (PUT, &after.json[..]),
        Change::Deleted { .. } => (DELETE, &[][..]),
    };
    let mut row = Vec::with_capacity(4 + 1 + 12 + 64 + json.len());
    row.extend_from_slice(&[0; 4]);
    row.push(tag);
    for name in [&key.collection, &key.namespace, &key.name] {
        let length = u32::try_from(name.len()).expect("a name is shorter than 4 GiB");
        row.extend_from_slice(&length.to_le_bytes());
        row.extend_from_slice(name.as_bytes());
    }
    row.extend_from_slice(json);
    let sum = checksum(change.revision(), &row[4..]);
    row[..4].copy_from_slice(&sum.to_le_bytes());
    row
}

/// The row stored at `revision`.
pub(crate) fn decode(revision: Revision, row: &[u8]) -> Result<Row, RowError> {
    let (sum, body) = row.split_first_chunk::<4>().ok_or(RowError::Checksum(revision))?;
    if u32::from_le_bytes(*sum) != checksum(revision, body) {
        return Err(RowError::Checksum(revision));
    }
    parse(body).ok_or(RowError::Shape(revision))
}

fn parse(body: &[u8]) -> Option<Row> {
    let (&tag, mut rest) = body.split_first()?;
    let mut name = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        rest = after;
        std::str::from_utf8(name).ok()
    };
    let key = Key::new(name()?, name()?, name()?);
    match tag {
        PUT => Some(Row::Put { key, json: Bytes::copy_from_slice(rest) }),
        DELETE if rest.is_empty() => Some(Row::Delete { key }),
        _ => None,
    }
}

/// Covers the revision too, so that a row found under another revision is not believed.
fn checksum(revision: Revision, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.0.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::Object;

    fn added() -> Change {
        let (object, _) = Object::stamped(Key::new("pods", "default", "web"), Revision(7), json!({ "a": "ü" }));
        Change::Added(Arc::new(object))
    }

    #[test]
    fn a_row_reads_back() {
        let change = added();
        let object = change.object();
        let put = Row::Put { key: object.key.clone(), json: object.json.clone() };
        assert_eq!(decode(Revision(7), &encode(&change)), Ok(put));
        let (last, _) = Object::stamped(object.key.clone(), Revision(8), object.to_value());
        let deleted = Change::Deleted { before: Arc::clone(object), last: Arc::new(last) };
        assert_eq!(decode(Revision(8), &encode(&deleted)), Ok(Row::Delete { key: object.key.clone() }));
    }

    #[test]
    fn a_row_changed_in_any_bit_cut_short_or_moved_is_not_believed() {
        let row = encode(&added());
        for bit in 0..row.len() * 8 {
            let mut changed = row.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(Revision(7), &changed), Err(RowError::Checksum(Revision(7))), "bit {bit}");
        }
        for length in 0..row.len() {
            assert!(decode(Revision(7), &row[..length]).is_err(), "length {length}");
        }
        assert_eq!(decode(Revision(8), &row), Err(RowError::Checksum(Revision(8))));
    }

    #[test]
    fn a_sound_row_of_another_shape_is_named() {
        let mut row = encode(&added());
        row[4] = 9;
        let sum = checksum(Revision(7), &row[4..]);
        row[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(decode(Revision(7), &row), Err(RowError::Shape(Revision(7))));
    }
}
