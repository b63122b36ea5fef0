//! The kinds that are served, which may change while the server runs.
//!
//! A request takes the registry once and keeps it: it sees the same kinds from begin to end. Whoever works on longer than
//! that follows the changes. Nobody waits for a lock that is held longer than it takes to copy a pointer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::{Kind, RefusedKind, Registry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The registry of this moment, and how it changes.
pub(crate) struct Kinds {
    now: watch::Sender<Arc<Registry>>,
    /// The kinds that were added, by collection. Cancelled when one is removed. Held while the registry changes.
    added: Mutex<HashMap<Arc<str>, CancellationToken>>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { now: watch::Sender::new(Arc::clone(Registry::built_in())), added: Mutex::default() }
    }
}

impl Kinds {
    /// The kinds of this moment.
    pub(crate) fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.now.borrow())
    }

    /// The same, and what they become.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Registry>> {
        self.now.subscribe()
    }

    pub(crate) fn add(&self, kind: Kind) -> Result<(), RefusedKind> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let collection = kind.shared_collection();
        let with = self.now().with(kind)?;
        added.insert(collection, CancellationToken::new());
        self.now.send_replace(Arc::new(with));
        Ok(())
    }

    /// Answers the kind, if it was there.
    pub(crate) fn remove(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let (without, gone) = self.now().without(group, plural)?;
        self.now.send_replace(Arc::new(without));
        if let Some(removed) = added.remove(gone.collection()) {
            removed.cancel();
        }
        Some(gone)
    }

    /// Cancelled when `kind` is removed; `None` for a built-in one, which never is.
    pub(crate) fn removal(&self, kind: &Kind) -> Option<CancellationToken> {
        if !kind.is_added() {
            return None;
        }
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        Some(added.get(kind.collection()).cloned().unwrap_or_else(|| {
            let removed = CancellationToken::new();
            removed.cancel();
            removed
        }))
    }
}
