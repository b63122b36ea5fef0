//! How long work rests that broke.

use std::time::{Duration, Instant};

/// The first rest; it doubles with every panic in a row, up to the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// Work that went on for so long is well again: the next panic is a first one.
const CALM: Duration = Duration::from_secs(120);

/// How often work broke in a row, and how long it rests therefore.
#[derive(Clone, Default, Debug)]
pub struct Backoff {
    in_a_row: u32,
    /// When it was to start last.
    started: Option<Instant>,
}

impl Backoff {
    /// The work broke at `now`: how long it rests before it is started again.
    pub fn after_panic(&mut self, now: Instant) -> Duration {
        if self.started.is_some_and(|started| now.saturating_duration_since(started) >= CALM) {
            self.in_a_row = 0;
        }
        let wait = FIRST.saturating_mul(1 << self.in_a_row.min(16)).min(LONGEST);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.started = now.checked_add(wait);
        wait
    }

    /// How often it broke in a row.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}
