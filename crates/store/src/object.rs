//! The small behaviour of the words in `lib.rs`: how a change names itself, how an object gets its revision.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{Change, Key, Object, Revision, Step};

impl Revision {
    /// The revision of a store that was never written to. Nothing happened at it; the first write comes after.
    pub const FIRST: Self = Self(1);

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

impl Step {
    /// The key the step concerns.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

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
    /// `value` as stored under `key` at `revision`: stamped, then serialised this one time.
    pub(crate) fn stamped(key: Key, revision: Revision, mut value: Value) -> Self {
        stamp(&mut value, revision);
        let json = serde_json::to_vec(&value).expect("a JSON value serialises: its keys are strings");
        Self { key, revision, value, json: Bytes::from(json) }
    }

    /// Whether storing `value` would change anything but the revision.
    pub(crate) fn differs_from(&self, value: &mut Value) -> bool {
        stamp(value, self.revision);
        self.value != *value
    }

    /// Roughly what the object occupies in memory: its bytes, and the parsed form at about three times that.
    pub(crate) fn weight(&self) -> usize {
        256 + 4 * self.json.len()
    }
}

fn stamp(value: &mut Value, revision: Revision) {
    let Some(object) = value.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
}
