//! Every pod with a driver, as others may ask about it: readers, and no locks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use runtime_api::PodUid;

use crate::effects::lock;
use crate::publisher::Flush;
use crate::record::RecordReader;

/// A pod that has a driver.
#[derive(Clone, Debug)]
pub struct PodReader {
    /// Its UID.
    pub uid: PodUid,
    /// What the node knows of it.
    pub record: RecordReader,
    /// A way to wait until the API shows it.
    pub flush: Flush,
}

/// The pods of this node, by UID. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Directory(Arc<Mutex<BTreeMap<String, PodReader>>>);

impl Directory {
    /// All of them.
    pub fn all(&self) -> Vec<PodReader> {
        lock(&self.0).values().cloned().collect()
    }

    /// The pod of this UID.
    pub fn get(&self, uid: &str) -> Option<PodReader> {
        lock(&self.0).get(uid).cloned()
    }

    /// The pod of this name. One that was force deleted may still be leaving under the name of its successor.
    pub fn find(&self, namespace: &str, name: &str) -> Option<PodReader> {
        let is_meant = |reader: &PodReader| {
            let pod = reader.record.pod();
            let meta = &pod.metadata;
            let is_meant = meta.name.as_deref() == Some(name) && meta.namespace.as_deref() == Some(namespace);
            is_meant.then(|| meta.creation_timestamp.as_ref().map(|time| time.0))
        };
        let found = self.all().into_iter().filter_map(|reader| Some((is_meant(&reader)?, reader)));
        found.max_by_key(|(created, _)| *created).map(|(_, reader)| reader)
    }

    pub(super) fn insert(&self, reader: PodReader) {
        lock(&self.0).insert(reader.uid.0.clone(), reader);
    }

    pub(super) fn remove(&self, uid: &str) {
        lock(&self.0).remove(uid);
    }
}
