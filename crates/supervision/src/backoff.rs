//! How long work rests that failed or broke.

use std::time::{Duration, Instant};

/// For work that broke.
const AFTER_PANIC: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(30));
/// Work that went on for so long is well again: the next panic is a first one.
const CALM: Duration = Duration::from_secs(120);

/// A pause that doubles with every failure in a row, up to the longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackoffPolicy {
    /// After the first failure.
    pub first: Duration,
    /// Never longer.
    pub most: Duration,
}

impl BackoffPolicy {
    /// Between the two.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most }
    }

    /// The pause after so many failures in a row.
    pub fn pause(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(31)).min(self.most)
    }

    /// Nothing has failed yet.
    pub const fn start(self) -> Backoff {
        Backoff { policy: self, in_a_row: 0, started: None }
    }
}

/// How often work failed in a row, and how long it rests therefore.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    in_a_row: u32,
    /// When it was to start last.
    started: Option<Instant>,
}

impl Default for Backoff {
    /// For work that must not panic: see [`after_panic`](Self::after_panic).
    fn default() -> Self {
        AFTER_PANIC.start()
    }
}

impl Backoff {
    /// The work failed once more: how long it rests before it is tried again.
    pub fn after_failure(&mut self) -> Duration {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.policy.pause(self.in_a_row)
    }

    /// The work went well: the next failure is a first one.
    pub fn reset(&mut self) {
        self.in_a_row = 0;
    }

    /// The work broke at `now`: how long it rests before it is started again.
    pub fn after_panic(&mut self, now: Instant) -> Duration {
        if self.started.is_some_and(|started| now.saturating_duration_since(started) >= CALM) {
            self.reset();
        }
        let wait = self.after_failure();
        self.started = now.checked_add(wait);
        wait
    }

    /// How often it failed in a row.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}
