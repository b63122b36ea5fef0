//! How long to wait before trying again: a crashed container, and an errand that failed.

use core::time::Duration;

use crate::Moment;
use crate::reboot::Shift;

/// The crash back-off of one container: at once, then 10 s doubling to 300 s, forgotten after 600 s of running.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct BackOff {
    next: Duration,
}

impl BackOff {
    pub(crate) const FIRST: Duration = Duration::from_secs(10);
    pub(crate) const MOST: Duration = Duration::from_secs(300);
    const STEADY: Duration = Duration::from_secs(600);

    /// How long to wait after a run that lasted `ran_for`.
    pub(crate) fn after_run(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= Self::STEADY {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.next = Self::following(delay);
        delay
    }

    /// How long to wait after a start that did not succeed. Never at once: whatever refused is likely to refuse again.
    pub(crate) fn after_failed_start(&mut self) -> Duration {
        self.next = self.next.max(Self::FIRST);
        self.after_run(Duration::ZERO)
    }

    /// The wait that follows a wait of `delay`.
    pub(crate) fn following(delay: Duration) -> Duration {
        (delay * 2).clamp(Self::FIRST, Self::MOST)
    }
}

/// Something asked for until it is done: 200 ms after the first failure, doubling to 5 s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Errand {
    failures: u32,
    /// Set between a failure and the next try; `None` while an answer is awaited.
    again_at: Option<Moment>,
}

impl Errand {
    const FIRST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(5);

    /// The latest try failed.
    pub(crate) fn failed(&mut self, now: Moment) {
        let delay = (Self::FIRST * (1 << self.failures.min(5))).min(Self::MOST);
        self.failures = self.failures.saturating_add(1);
        self.again_at = Some(now + delay);
    }

    /// True once when the time for another try has come; the caller asks.
    pub(crate) fn take_due(&mut self, now: Moment) -> bool {
        let due = self.again_at.is_some_and(|at| now >= at);
        if due {
            self.again_at = None;
        }
        due
    }

    /// The answer to the latest try will never come, because whoever was asked is gone; the caller asks again.
    pub(crate) fn asked_anew(&mut self) {
        self.again_at = None;
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        self.again_at.iter_mut().for_each(|again_at| shift.apply(again_at));
    }

    /// When the next try is due, if the latest one failed.
    pub(crate) fn again_at(&self) -> Option<Moment> {
        self.again_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_wait_longer_each_time_and_a_steady_run_is_forgiven() {
        let mut back_off = BackOff::default();
        let waits: alloc::vec::Vec<u64> =
            (0..8).map(|_| back_off.after_run(Duration::from_secs(1)).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(back_off.after_run(Duration::from_secs(600)), Duration::ZERO);
        assert_eq!(back_off.after_run(Duration::from_secs(599)), BackOff::FIRST);
    }

    #[test]
    fn a_failed_errand_is_retried_from_200_ms_up_to_5_s() {
        let mut errand = Errand::default();
        let mut now = Moment::from_millis(0);
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..7 {
            errand.failed(now);
            let at = errand.again_at().expect("a failed errand has a next try");
            assert!(!errand.take_due(now));
            waits.push((at - now).as_millis());
            now = at;
            assert!(errand.take_due(now) && !errand.take_due(now));
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
