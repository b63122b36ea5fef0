//! When to try again what a full disk refused.
//!
//! An end is told once it is on disk, never before, so one that cannot be written is kept in memory. The shim tries again,
//! ever less often, for as long as it takes: room is made by others, who do not say so.

use std::time::{Duration, Instant};

use rustix::event::Timespec;
use supervision::BackoffPolicy;

const PAUSE: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(50), Duration::from_secs(2));

/// One clock for all that waits for the same disk.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// The next attempt, and how many have failed.
    next: Option<(Instant, u32)>,
}

impl Retry {
    /// Something could not be written. Counts once per attempt, however much was tried.
    pub(super) fn failed(&mut self) {
        if self.is_due() {
            let failures = self.next.map_or(1, |(_, failures)| failures.saturating_add(1));
            self.next = Some((Instant::now() + PAUSE.pause(failures), failures));
        }
    }

    /// Nothing is left to be tried.
    pub(super) fn all_written(&mut self) {
        self.next = None;
    }

    /// Whether to try now.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_none_or(|(at, _)| at <= Instant::now())
    }

    /// How long until the next attempt; `None` if nothing waits for one.
    pub(super) fn wait(&self) -> Option<Timespec> {
        let left = self.next?.0.saturating_duration_since(Instant::now());
        Timespec::try_from(left).ok()
    }
}
