//! A copy of everything in a store, as lines of JSON that say whether they are whole: for both a person and another log.
//!
//! ```text
//!  {"adieuStoreBackup":1,"revision":1234,"objects":2}
//!  {"key":["pods","default","web"],"revision":17,"value":{…}}
//!  {"key":["pods","default","odd"],"revision":19,"hex":"7b22…"}         stored bytes that are no object, or are encrypted
//!  {"end":2,"crc32":"9ae0daaf"}                                          over all bytes before this line
//! ```
//!
//! What the servers of a store keep for themselves (collections that begin with `/`) is left out: it means nothing elsewhere.

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::encryption::is_sealed;
use crate::{Encryption, Key, Object, Revision};

const FORMAT: u64 = 1;

/// No line is longer: an object, or twice as many digits.
const LINE_MAX: u64 = 64 << 20;

/// Everything that is stored at one revision.
#[derive(Debug)]
pub struct Backup {
    /// That revision.
    pub revision: Revision,
    objects: Vec<Arc<Object>>,
    /// How values are written.
    encryption: Encryption,
}

/// Why a file is not a backup that can be restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It cannot be read.
    #[error("cannot read the backup")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no backup of a store: {0}")]
    NotABackup(&'static str),
    /// It ends early, or was changed.
    #[error("the backup is not whole: {0}")]
    Damaged(String),
}

impl Backup {
    pub(crate) fn new(revision: Revision, mut objects: Vec<Arc<Object>>, encryption: Encryption) -> Self {
        objects.retain(|object| !object.key.collection.starts_with('/'));
        Self { revision, objects, encryption }
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Its lines, each with its end.
    pub fn lines(self) -> impl Iterator<Item = Vec<u8>> + Send {
        let count = self.objects.len();
        let head = json!({ "adieuStoreBackup": FORMAT, "revision": self.revision.0, "objects": count });
        let mut sum = crc32fast::Hasher::new();
        let (mut objects, encryption) = (self.objects.into_iter(), self.encryption);
        let mut next = Some(format!("{head}\n").into_bytes());
        let mut has_ended = false;
        std::iter::from_fn(move || {
            let line = match next.take().or_else(|| objects.next().map(|object| line(&object, &encryption))) {
                Some(line) => line,
                None if has_ended => return None,
                None => {
                    has_ended = true;
                    let sum = format!("{:08x}", sum.clone().finalize());
                    return Some(format!("{}\n", json!({ "end": count, "crc32": sum })).into_bytes());
                }
            };
            sum.update(&line);
            Some(line)
        })
    }

    /// Writes it.
    pub fn write(self, out: &mut impl Write) -> io::Result<()> {
        self.lines().try_for_each(|line| out.write_all(&line))
    }

    /// Reads one back, whole or not at all.
    pub fn read(input: &mut impl BufRead) -> Result<Self, BackupError> {
        let mut sum = crc32fast::Hasher::new();
        let mut line = Vec::new();
        let head = next(input, &mut line)?.ok_or(BackupError::NotABackup("it is empty"))?;
        match head["adieuStoreBackup"].as_u64() {
            Some(FORMAT) => {}
            Some(_) => return Err(BackupError::NotABackup("it is of another version")),
            None => return Err(BackupError::NotABackup("its first line says nothing of the kind")),
        }
        let number = |value: &Value| value.as_u64().ok_or(BackupError::NotABackup("its first line is not whole"));
        let (revision, promised) = (Revision(number(&head["revision"])?), number(&head["objects"])?);
        let mut objects = Vec::new();
        loop {
            sum.update(&line);
            let damaged = |what: &str| BackupError::Damaged(format!("line {}: {what}", objects.len() + 2));
            let value = next(input, &mut line)?.ok_or_else(|| damaged("the end is missing"))?;
            if let Some(end) = value["end"].as_u64() {
                let expected = format!("{:08x}", sum.finalize());
                if value["crc32"] != expected.as_str() || end != promised || end != objects.len() as u64 {
                    return Err(damaged("what is before it is not what was written"));
                }
                if next(input, &mut line)?.is_some() {
                    return Err(damaged("something follows the end"));
                }
                return Ok(Self { revision, objects, encryption: Encryption::default() });
            }
            let object = object(&value).ok_or_else(|| damaged("this is no object"))?;
            objects.push(Arc::new(object));
        }
    }

    pub(crate) fn into_objects(self) -> Vec<Arc<Object>> {
        self.objects
    }
}

fn line(object: &Object, encryption: &Encryption) -> Vec<u8> {
    let Key { collection, namespace, name } = &object.key;
    let mut line =
        format!("{{\"key\":{},\"revision\":{},", json!([&**collection, &**namespace, &**name]), object.revision);
    let mut stored = Vec::with_capacity(object.stored().len());
    encryption.seal(&object.key, object.stored(), &mut stored);
    if object.damage().is_none() && !is_sealed(&stored) {
        line.push_str("\"value\":");
        let mut line = line.into_bytes();
        line.extend_from_slice(&stored);
        line.extend_from_slice(b"}\n");
        return line;
    }
    line.push_str("\"hex\":\"");
    for byte in stored {
        let _ = write!(line, "{byte:02x}");
    }
    line.push_str("\"}\n");
    line.into_bytes()
}

fn object(line: &Value) -> Option<Object> {
    let [collection, namespace, name] = line["key"].as_array()?.as_slice() else { return None };
    let key = Key::new(collection.as_str()?, namespace.as_str()?, name.as_str()?);
    let revision = Revision(line["revision"].as_u64()?);
    let stored = match line["hex"].as_str() {
        Some(hex) => Bytes::from(unhex(hex)?),
        None => Bytes::from(line.get("value").filter(|value| value.is_object())?.to_string()),
    };
    // What is encrypted stays so: whoever restores it needs no key.
    Some(Object::read(key, revision, stored, &Encryption::default()))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

/// The next line, also left in `line`; `None` where the input ends.
fn next(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<Option<Value>, BackupError> {
    line.clear();
    let mut limited = io::Read::take(&mut *input, LINE_MAX);
    limited.read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(BackupError::Damaged("it ends inside a line".to_owned()));
    }
    serde_json::from_slice(line).map(Some).map_err(|error| BackupError::Damaged(error.to_string()))
}
