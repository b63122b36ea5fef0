//! Versioned objects and watches: an in-memory view over a durable log.
//!
//! Reads, lists and watches never touch disk. A write is acknowledged after its group commit.
//! The contract (types and the [`Store`] handle) is what `server` builds on.
//!
//! ```text
//!  write ──▶ queue ──▶ log (one thread): judge, stamp, one durable commit per group ──▶ view ──▶ watches
//!  get, list ───────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Reading order: this file (the words), `store` (the handle), `view` (what is true, and what was), `watch` (a cursor
//! into it), `log` (the seam behind which revisions are made; `conformance` is what its tests ask of it), `embedded` (the log in a folder of this machine) over
//! `segment`, `snapshot` and `load`, whose bytes are `frame`'s, `files`' and `row`'s; `encryption` is how some values are written; `soundness` is what becomes of those
//! that are no object. `maintenance` is for a store that is not open: `mark` says that it was cut, `salvage` what is left,
//! `backup` how it is copied.

mod age;
mod backup;
#[cfg(test)]
mod conformance;
mod directory;
mod embedded;
mod encryption;
mod files;
mod frame;
mod load;
mod log;
mod maintenance;
mod mark;
mod object;
mod open;
mod row;
mod salvage;
mod segment;
mod snapshot;
mod soundness;
mod store;
mod view;
mod watch;

use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use serde_json::Value;

pub use backup::{Backup, BackupError};
pub use encryption::{Encryption, EncryptionConfigError};
pub use log::{Pause, Serving};
pub use maintenance::{RebuildError, Rebuilt, Report, check, repair, restore};
pub use open::OpenError;
pub use salvage::Lost;
pub use store::{Store, Window};
pub use watch::{Watch, WatchEnd};

/// A point in the one global order of writes. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

/// `pods/default/web`; cluster-scoped kinds have an empty namespace. Orders by collection, namespace, name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The collection, `pods` or `leases.coordination.k8s.io`.
    pub collection: Arc<str>,
    /// Empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// A stored object at one revision. Serialised once; the bytes are shared by disk, lists and watches. The parsed form,
/// several times as large, is only there while somebody uses it or is likely to: [`Object::value`].
/// Neither form carries `kind` or `apiVersion` (the frame adds them); both carry `metadata.resourceVersion`.
#[derive(Debug)]
pub struct Object {
    /// Where it lives.
    pub key: Key,
    /// Its resourceVersion.
    pub revision: Revision,
    /// Compact JSON, always `{…}` with `metadata`, whatever is stored.
    pub json: Bytes,
    /// What is wrong with the stored bytes, if they are not `json`.
    damage: Option<Box<soundness::Damage>>,
    /// The parsed form, for as long as anybody holds it.
    parsed: Mutex<Weak<Value>>,
}

/// What must be true of the stored object for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Nothing is stored there.
    Absent,
    /// Exactly this revision is stored there.
    Revision(Revision),
}

/// Most expectations of a transaction, and most steps: what etcd takes.
pub const OPERATIONS_MAX: usize = 128;

/// One step of a write. A transaction has at most one per key, and at most one per collection. Whether its steps share a
/// revision or have one each is up to the log.
#[derive(Clone, Debug)]
pub enum Step {
    /// Store this value (the store stamps `metadata.resourceVersion`).
    Put {
        /// Where.
        key: Key,
        /// What; a JSON object.
        value: Value,
    },
    /// Store this value, which says that the object is to go. It may be somewhat larger than what was stored, however large
    /// that was: everything can be deleted.
    Mark {
        /// Where.
        key: Key,
        /// What; a JSON object.
        value: Value,
    },
    /// Remove the object.
    Delete {
        /// Where.
        key: Key,
    },
}

/// What happened to one key.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was not there before.
    Added(Arc<Object>),
    /// It was, as `before`.
    Modified {
        /// As it was.
        before: Arc<Object>,
        /// As it is.
        after: Arc<Object>,
    },
    /// It is gone. `last` is the last stored state with the revision of the deletion stamped on it.
    Deleted {
        /// As it was, with its own last revision.
        before: Arc<Object>,
        /// The same with the revision of the deletion.
        last: Arc<Object>,
    },
}

/// Why a value is not stored, whoever sends it. Nothing changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It nests too deeply.
    #[error("{key} is nested deeper than {limit} levels at {path}")]
    TooDeep {
        /// Where it was to be stored.
        key: Key,
        /// The beginning of the way there.
        path: String,
        /// How deep it may be.
        limit: usize,
    },
    /// It is too large.
    #[error("{key} would be stored as {size} bytes, and the limit is {limit}")]
    TooLarge {
        /// Where it was to be stored.
        key: Key,
        /// How large it is, with its key and with whatever else is written in the same transaction.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
    /// Two steps of one transaction concern one key.
    #[error("a transaction has two steps for {key}")]
    SameKey {
        /// Which.
        key: Key,
    },
    /// Two steps of one transaction concern one collection.
    #[error("a transaction writes {key} and {other}, which are of one collection")]
    SameCollection {
        /// One of them.
        key: Key,
        /// The other.
        other: Key,
    },
    /// A transaction has too many parts.
    #[error("a transaction has {count} operations, and the limit is {limit}")]
    TooManyOperations {
        /// How many expectations, or steps, it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// It is no JSON object, or has metadata that are none.
    #[error("{key} is no object")]
    NotAnObject {
        /// Where it was to be stored.
        key: Key,
    },
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The expectation did not hold; this is what is stored (or `None`).
    #[error("the stored object is not the expected one")]
    Conflict(Option<Arc<Object>>),
    /// It would be stored by nobody.
    #[error("the store does not take it")]
    Refused(#[source] Refusal),
    /// The log could not take it; nothing was acknowledged and nothing changed.
    #[error("cannot write to the store")]
    Log(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

/// Why a transaction did not happen.
#[derive(Debug, thiserror::Error)]
pub enum TransactError {
    /// An expectation did not hold.
    #[error("{key} is not stored as expected")]
    Conflict {
        /// Where.
        key: Key,
        /// What is stored there.
        found: Option<Arc<Object>>,
    },
    /// It would be stored by nobody.
    #[error("the store does not take it")]
    Refused(#[source] Refusal),
    /// The log could not take it; nothing was acknowledged and nothing changed.
    #[error("cannot write to the store")]
    Log(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

/// Why a list or a watch cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The revision is older than the history kept.
    #[error("revision {asked} is compacted; the oldest kept is {oldest}")]
    Compacted {
        /// What was asked for.
        asked: Revision,
        /// The oldest that could be answered.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// The newest there is.
        newest: Revision,
    },
}

/// A consistent part of a collection.
#[derive(Debug)]
pub struct Page {
    /// The objects, in key order.
    pub items: Vec<Arc<Object>>,
    /// The revision the page is true at.
    pub revision: Revision,
}
