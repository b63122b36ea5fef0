//! What the frame counts on, checked for any order of facts: whoever has something to do was woken, or wakes by itself in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use frame::{Controller, Now};
use jiff::Timestamp;
use tokio::time::Instant;

/// The same numbers every time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed))
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap_or(1)).unwrap_or(0)
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.roll(2) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

/// A controller in a frame that does nothing but plan.
pub(crate) struct Watched<C: Controller> {
    pub(crate) controller: C,
    pub(crate) now: Now,
    /// Woken, with something to do.
    pending: BTreeSet<C::Key>,
    waits: BTreeMap<C::Key, Instant>,
}

impl<C: Controller> Watched<C> {
    pub(crate) fn new(controller: C) -> Self {
        let now = Now { instant: Instant::now(), timestamp: Timestamp::from_second(1_800_000_000).expect("a time") };
        Self { controller, now, pending: BTreeSet::new(), waits: BTreeMap::new() }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.timestamp += time;
        let due = self.waits.extract_if(.., |_, at| *at <= self.now.instant);
        self.pending.extend(due.map(|(key, _)| key));
    }

    /// Tells the controller something, and checks that none of `keys` is forgotten.
    pub(crate) fn tell(&mut self, input: C::Input, keys: impl IntoIterator<Item = C::Key>, seed: u64) {
        self.pending.extend(self.controller.observe(self.now, input));
        for key in keys {
            let plan = self.controller.plan(&key, self.now);
            let woken = self.pending.contains(&key);
            if !plan.actions.is_empty() {
                assert!(woken, "seed {seed}: {key:?} has something to do, and nobody woke it");
                continue;
            }
            let waits = self.waits.get(&key);
            match plan.wake {
                Some(wake) if !woken => {
                    assert!(
                        waits.is_some_and(|at| *at <= wake.at),
                        "seed {seed}: {key:?} sleeps beyond its deadline: {}",
                        wake.why
                    );
                }
                Some(wake) => drop(self.waits.insert(key.clone(), wake.at)),
                None if woken => drop(self.waits.remove(&key)),
                None => {}
            }
            self.pending.remove(&key);
        }
    }

    /// How many have something to do.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }
}
