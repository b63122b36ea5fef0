//! How long to wait before trying again: a crashed container, and an errand that failed.

use core::time::Duration;

use crate::reboot::Shift;
use crate::wake::Soonest;
use crate::{Moment, WakeReason};

/// How long an error is shown as itself before it is shown as a back-off, so that watchers see both.
pub(crate) const ERROR_SHOWN: Duration = Duration::from_secs(1);

/// The crash back-off of one container: at once, then 10 s doubling to 300 s, forgotten after 600 s of running.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct BackOff {
    pub(crate) next: Duration,
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

/// Something asked for until it is done: 200 ms after the first failure, doubling to 5 s; and again if nobody answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RetriedRequest {
    failures: u32,
    next: Next,
}

/// What comes next of an errand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Next {
    /// An answer, until then at the latest: it may have been lost.
    Answer { until: Moment },
    /// Another try, then.
    Try { at: Moment },
}

impl RetriedRequest {
    const FIRST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(5);
    /// How long an answer is waited for. Whoever is asked has shorter limits of its own and answers that they were
    /// passed; this one is for answers that never come.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Asked for the first time.
    pub(crate) fn asked(now: Moment) -> Self {
        Self { failures: 0, next: Next::Answer { until: now + Self::PATIENCE } }
    }

    /// Whether a try has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// The latest try failed.
    pub(crate) fn failed(&mut self, now: Moment) {
        self.next = Next::Try { at: now + Self::delay_after(self.failures) };
        self.failures = self.failures.saturating_add(1);
    }

    /// How long to wait after a failure that so many came before.
    pub(crate) fn delay_after(failures: u32) -> Duration {
        (Self::FIRST * (1 << failures.min(5))).min(Self::MOST)
    }

    /// True once when the time for another try has come, because the latest failed or was never answered; the caller
    /// asks.
    pub(crate) fn take_due(&mut self, now: Moment) -> bool {
        let due = now >= self.due_at();
        if due {
            self.asked_anew(now);
        }
        due
    }

    /// The answer to the latest try will never come, because whoever was asked is gone; the caller asks again.
    pub(crate) fn asked_anew(&mut self, now: Moment) {
        self.next = Next::Answer { until: now + Self::PATIENCE };
    }

    /// An answer is awaited.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.next, Next::Answer { .. })
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        let (Next::Answer { until: at } | Next::Try { at }) = &mut self.next;
        shift.apply(at);
    }

    /// When there is something to do about it; `retry` and `unanswered` say what.
    pub(crate) fn wakes(&self, wakes: &mut Soonest, retry: WakeReason, unanswered: WakeReason) {
        wakes.consider(self.due_at(), || if self.is_under_way() { unanswered } else { retry });
    }

    fn due_at(&self) -> Moment {
        let (Next::Answer { until: at } | Next::Try { at }) = self.next;
        at
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
    fn failed_request_is_retried_from_200_ms_up_to_5_s() {
        let mut now = Moment::from_millis(0);
        let mut errand = RetriedRequest::asked(now);
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..7 {
            errand.failed(now);
            let at = errand.due_at();
            assert!(!errand.take_due(now) && !errand.is_under_way());
            waits.push((at - now).as_millis());
            now = at;
            assert!(errand.take_due(now) && !errand.take_due(now) && errand.is_under_way());
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn unanswered_request_is_sent_again() {
        let (begin, later) = (Moment::from_millis(1000), Moment::from_millis(121_000));
        let mut errand = RetriedRequest::asked(begin);
        assert!(!errand.take_due(Moment::from_millis(120_999)));
        assert!(errand.take_due(later) && !errand.take_due(later));
        assert_eq!(errand.due_at(), later + RetriedRequest::PATIENCE);
    }
}
