//! Single flight: concurrent work with the same key runs once, and its result is left for those who waited.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// One slot per key. A slot lives as long as someone holds it.
#[derive(Debug)]
pub(super) struct SingleFlight<K, T> {
    slots: Mutex<HashMap<K, Weak<Slot<T>>>>,
}

/// The holder of the lock does the work and leaves the result in the slot for the next holder.
pub(super) type Slot<T> = tokio::sync::Mutex<T>;

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<K: Eq + Hash, T: Default> SingleFlight<K, T> {
    /// The slot of `key`, shared with its other holders.
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

    /// Later callers for `key` get a new slot.
    pub(super) fn close(&self, key: &K, slot: &Arc<Slot<T>>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.get(key).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(slot))) {
            slots.remove(key);
        }
    }
}
