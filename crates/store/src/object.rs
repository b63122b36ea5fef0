//! The small behaviour of the words in `lib.rs`: how a change names itself, how an object gets its revision.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::encryption::is_sealed;
use crate::soundness;
use crate::{Change, Encryption, Key, Object, Revision, Step, TransactError, WriteError};

impl Revision {
    /// The revision of a store that was never written to. Nothing happened at it; the first write comes after.
    pub const FIRST: Self = Self(1);

    /// Before everything.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Key {
    /// The key of `name` in `namespace` (empty for cluster-scoped kinds) of `collection`.
    pub fn new(collection: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { collection: collection.into(), namespace: namespace.into(), name: name.into() }
    }

    /// How many bytes name it.
    pub(crate) fn len(&self) -> usize {
        self.collection.len() + self.namespace.len() + self.name.len()
    }

    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        namespace.is_empty() || &*self.namespace == namespace
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.collection, self.name)
        } else {
            write!(f, "{}/{}/{}", self.collection, self.namespace, self.name)
        }
    }
}

impl From<TransactError> for WriteError {
    fn from(error: TransactError) -> Self {
        match error {
            TransactError::Conflict { found, .. } => Self::Conflict(found),
            TransactError::Refused(refusal) => Self::Refused(refusal),
            TransactError::Log(source) => Self::Log(source),
        }
    }
}

impl Step {
    /// The key the step concerns.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Mark { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Most objects are shorter than this.
const USUAL_BYTES_MAX: usize = 4096;

impl Change {
    /// When it happened.
    pub fn revision(&self) -> Revision {
        self.object().revision
    }

    /// What it happened to.
    pub fn key(&self) -> &Key {
        &self.object().key
    }

    /// The object that carries the change's own revision: as it is, or as it last was.
    pub fn object(&self) -> &Arc<Object> {
        match self {
            Self::Added(object) => object,
            Self::Modified { after, .. } => after,
            Self::Deleted { last, .. } => last,
        }
    }
}

impl Object {
    /// `value` as stored under `key` at `revision`: stamped, then serialised this one time. The parsed form lives as
    /// long as the second half of the answer.
    pub(crate) fn stamped(key: Key, revision: Revision, mut value: Value) -> (Self, Arc<Value>) {
        stamp(&mut value, revision);
        let mut json = Vec::with_capacity(USUAL_BYTES_MAX);
        serde_json::to_writer(&mut json, &value).expect("a JSON value serialises: its keys are strings");
        let value = Arc::new(value);
        let parsed = Mutex::new(Arc::downgrade(&value));
        // A copy is kept, as long as it needs to be: there may be tens of thousands, and what is written to grows by
        // doubling.
        (Self { key, revision, json: Bytes::copy_from_slice(&json), damage: None, parsed }, value)
    }

    /// The object that was stored as `stored`, or what can be shown of it.
    pub(crate) fn read(key: Key, revision: Revision, stored: Bytes, encryption: &Encryption) -> Self {
        let (json, damage) = match encryption.open(&key, &stored) {
            Ok(opened) => soundness::examine(&key, revision, opened.map_or(stored, Bytes::from)),
            Err(reason) => {
                let (json, damage) = soundness::unreadable(&key, revision, stored, reason);
                (json, Some(damage))
            }
        };
        Self { key, revision, json, damage: damage.map(Box::new), parsed: Mutex::default() }
    }

    /// The bytes on disk, as they are before they are encrypted. Of what no key opened, as they are.
    pub(crate) fn stored(&self) -> &Bytes {
        self.damage.as_ref().map_or(&self.json, |damage| &damage.stored)
    }

    /// What is wrong with the stored bytes, if not all of them can be shown.
    pub(crate) fn damage(&self) -> Option<&soundness::Damage> {
        self.damage.as_deref()
    }

    /// Why nothing is known of the stored object but its key, if that is so. It is in no list and no watch tells of it; what is
    /// shown of it has the metadata that the key gives. It can be deleted, and replaced.
    pub fn unreadable(&self) -> Option<&str> {
        self.damage().filter(|damage| damage.is_unreadable).map(|damage| damage.reason.as_str())
    }

    /// Whether it cannot be read because no key opens it. It is whole, and is read again when the key is there.
    pub fn lacks_key(&self) -> bool {
        self.damage().is_some_and(|damage| damage.is_unreadable && is_sealed(&damage.stored))
    }

    /// The parsed form, if anybody still holds it.
    pub fn parsed(&self) -> Option<Arc<Value>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// The parsed form: whoever asks shares it with everybody who still holds it, else it is read from the bytes.
    pub fn value(&self) -> Arc<Value> {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        parsed.upgrade().unwrap_or_else(|| {
            let value = serde_json::from_slice(&self.json).expect("the bytes were made from a value, or examined");
            let value = Arc::new(value);
            *parsed = Arc::downgrade(&value);
            value
        })
    }

    /// The parsed form to be changed.
    pub fn to_value(&self) -> Value {
        Arc::unwrap_or_clone(self.value())
    }

    /// Whether storing `value` would change anything but the revision.
    pub(crate) fn differs_from(&self, value: &mut Value) -> bool {
        stamp(value, self.revision);
        // What is damaged is written anew even if nothing changes in what is shown.
        self.damage.is_some() || *self.value() != *value
    }

    /// Roughly what the object occupies in memory.
    pub(crate) fn weight(&self) -> usize {
        256 + self.json.len() + self.damage().map_or(0, |damage| damage.stored.len())
    }

    /// Roughly what its parsed form occupies besides: every map and every list has room for more than it holds.
    pub(crate) fn parsed_weight(&self) -> usize {
        8 * self.json.len()
    }
}

fn stamp(value: &mut Value, revision: Revision) {
    let Some(object) = value.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
}
