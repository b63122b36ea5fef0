//! How one change is written: what became of a key at a revision.
//!
//! `length · revision · tag · collection · namespace · name · json`; the names carry their length in front, the JSON takes
//! the rest, or what `encryption` made of it. A deletion stores no object, since the row before it has it. Checksums are the frame's.

use bytes::Bytes;

use crate::{Change, Encryption, Key, Object, Revision};

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// One row, read back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) revision: Revision,
    pub(crate) key: Key,
    /// What the object became; `None`: it was removed.
    pub(crate) json: Option<Bytes>,
}

/// Bytes that are not rows, although their checksum says that we wrote them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rows after revision {after} cannot be read")]
pub(crate) struct NotRows {
    pub(crate) after: Revision,
}

/// Appends the row of a change.
pub(crate) fn encode(change: &Change, encryption: &Encryption, out: &mut Vec<u8>) {
    match change {
        Change::Added(after) | Change::Modified { after, .. } => encode_object(after, encryption, out),
        Change::Deleted { last, .. } => write(last.revision, DELETE, &last.key, |_| {}, out),
    }
}

/// Appends the row that made an object what it is.
pub(crate) fn encode_object(object: &Object, encryption: &Encryption, out: &mut Vec<u8>) {
    let value = |out: &mut Vec<u8>| encryption.seal(&object.key, object.stored(), out);
    write(object.revision, PUT, &object.key, value, out);
}

fn write(revision: Revision, tag: u8, key: &Key, value: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a row is shorter than 4 GiB").to_le_bytes();
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&revision.0.to_le_bytes());
    out.push(tag);
    for name in [&key.collection, &key.namespace, &key.name] {
        out.extend_from_slice(&length(name.as_bytes()));
        out.extend_from_slice(name.as_bytes());
    }
    value(out);
    let written = length(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&written);
}

/// Takes the next row off the front of `rows`, which are not empty. `after` is the revision of the one before.
pub(crate) fn decode(rows: &mut &[u8], after: Revision) -> Result<Row, NotRows> {
    take(rows).ok_or(NotRows { after })
}

fn take(rows: &mut &[u8]) -> Option<Row> {
    let mut row = prefixed(rows)?;
    let (revision, rest) = row.split_first_chunk::<8>()?;
    let (&tag, rest) = rest.split_first()?;
    row = rest;
    let mut name = || std::str::from_utf8(prefixed(&mut row)?).ok();
    let key = Key::new(name()?, name()?, name()?);
    let json = match tag {
        PUT => Some(Bytes::copy_from_slice(row)),
        DELETE if row.is_empty() => None,
        _ => return None,
    };
    Some(Row { revision: Revision(u64::from_le_bytes(*revision)), key, json })
}

/// Takes as many bytes as the length in front of them says.
fn prefixed<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (taken, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn rows_read_back() {
        let (object, _) = Object::stamped(Key::new("pods", "default", "web"), Revision(7), json!({ "a": "ü" }));
        let (last, _) = Object::stamped(object.key.clone(), Revision(8), object.to_value());
        let object = Arc::new(object);
        let mut bytes = Vec::new();
        encode(&Change::Added(Arc::clone(&object)), &Encryption::default(), &mut bytes);
        let deleted = Change::Deleted { before: Arc::clone(&object), last: Arc::new(last) };
        encode(&deleted, &Encryption::default(), &mut bytes);
        let mut rows = &bytes[..];
        let (key, json) = (object.key.clone(), object.json.clone());
        let put = Row { revision: Revision(7), key: key.clone(), json: Some(json) };
        assert_eq!(decode(&mut rows, Revision(6)), Ok(put));
        assert_eq!(decode(&mut rows, Revision(7)), Ok(Row { revision: Revision(8), key, json: None }));
        assert!(rows.is_empty());
    }

    #[test]
    fn bytes_of_another_shape_are_named_and_never_panic() {
        let (object, _) = Object::stamped(Key::new("pods", "default", "web"), Revision(7), json!({}));
        let mut bytes = Vec::new();
        encode_object(&object, &Encryption::default(), &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(decode(&mut &bytes[..length], Revision(6)), Err(NotRows { after: Revision(6) }));
        }
        bytes[12] = 9;
        assert_eq!(decode(&mut &bytes[..], Revision(6)), Err(NotRows { after: Revision(6) }));
    }
}
