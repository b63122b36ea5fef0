//! When to try again what a full disk refused.
//!
//! An end is told once it is on disk, never before, so one that cannot be written is kept in memory. The shim tries again,
//! ever less often, for as long as it takes: room is made by others, who do not say so.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// One clock for all that waits for the same disk.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// The next attempt, and how long it was waited for.
    next: Option<(Instant, Duration)>,
}

impl Retry {
    /// Something could not be written. Counts once per attempt, however much was tried.
    pub(super) fn failed(&mut self) {
        if self.is_due() {
            let wait = self.next.map_or(FIRST, |(_, wait)| (wait * 2).min(LONGEST));
            self.next = Some((Instant::now() + wait, wait));
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
