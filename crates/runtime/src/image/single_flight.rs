//! One at a time for each key, with what the last one found left for those who waited.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A slot per key that those who want the same thing take turns at. A slot lives as long as someone holds it.
#[derive(Debug)]
pub(super) struct SingleFlight<K, T> {
    slots: Mutex<HashMap<K, Weak<Slot<T>>>>,
}

/// Whoever has it locked does the work; what they leave in it saves the next one the same work.
pub(super) type Slot<T> = tokio::sync::Mutex<T>;

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<K: Eq + Hash, T: Default> SingleFlight<K, T> {
    /// The slot of `key`, shared with everyone who holds it.
    pub(super) fn of(&self, key: K) -> Arc<Slot<T>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Slots nobody holds any more are let go of, so that the map stays as small as the work at hand.
        slots.retain(|_, slot| slot.strong_count() > 0);
        if let Some(slot) = slots.get(&key).and_then(Weak::upgrade) {
            return slot;
        }
        let slot = Arc::new(Slot::default());
        slots.insert(key, Arc::downgrade(&slot));
        slot
    }

    /// Whoever comes for `key` from now on gets another slot than this one.
    pub(super) fn close(&self, key: &K, slot: &Arc<Slot<T>>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.get(key).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(slot))) {
            slots.remove(key);
        }
    }
}
