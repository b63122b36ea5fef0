//! The one deadline that every step of a termination draws on.
//!
//! All of node-termination 3.3 to 3.5 that concerns a pod as a whole lives here: a grace of at least a second,
//! counted from the first request, which later requests may shorten and never lengthen. The second floor, two
//! seconds between a container's stop signal and its KILL, belongs to a single container and lives in `stop`.

use core::time::Duration;

use crate::Moment;
use crate::reboot::Shift;

/// No pod is given less than this, however it is asked to leave.
pub const LEAST_GRACE: Duration = Duration::from_secs(1);

/// A grace period pinned to the moment of its first request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GraceBudget {
    asked_at: Moment,
    /// How long before the boot it was asked for, if it was: `asked_at` is the boot itself then.
    before_boot: Duration,
    deadline: Moment,
}

impl GraceBudget {
    /// A budget that starts now.
    pub fn starting(asked_at: Moment, grace: Duration) -> Self {
        Self { asked_at, before_boot: Duration::ZERO, deadline: asked_at + grace.max(LEAST_GRACE) }
    }

    /// A budget for a deletion that was made while we were away: `left` of its `grace` remains.
    ///
    /// The request is dated back accordingly, so that a later, shorter grace still counts from it as the API does.
    pub fn found(now: Moment, left: Duration, grace: Duration) -> Self {
        let grace = grace.max(LEAST_GRACE);
        let left = left.clamp(LEAST_GRACE, grace);
        let ago = grace - left;
        let before_boot = ago.saturating_sub(now.since(Moment::default()));
        Self { asked_at: now.before(ago), before_boot, deadline: now + left }
    }

    /// How long ago it was first asked for.
    pub(crate) fn age(&self, now: Moment) -> Duration {
        now.since(self.asked_at) + self.before_boot
    }

    /// The whole of it.
    pub fn grace(&self) -> Duration {
        self.deadline.since(self.asked_at) + self.before_boot
    }

    /// When it is spent.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether nothing of it is left.
    pub fn is_spent(&self, now: Moment) -> bool {
        now >= self.deadline
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        self.before_boot += shift.lost(self.asked_at);
        shift.apply(&mut self.asked_at);
        shift.apply(&mut self.deadline);
    }

    /// What is left of it.
    pub fn left(&self, now: Moment) -> Duration {
        self.deadline.since(now)
    }

    /// The same user asks again. Counts from the first request, but a second is always left.
    #[must_use]
    pub(crate) fn shortened_to(self, now: Moment, grace: Duration) -> Self {
        let wanted = self.after(grace).max(now + LEAST_GRACE);
        Self { deadline: self.deadline.min(wanted), ..self }
    }

    /// The node itself needs the pod to leave sooner. Counts from now.
    #[must_use]
    pub(crate) fn overridden(self, now: Moment, grace: Duration) -> Self {
        Self { deadline: self.deadline.min(now + grace.max(LEAST_GRACE)), ..self }
    }

    /// Another party asks for the first time, with a budget of its own: the earlier deadline holds, and later
    /// requests of that party count from its own first one.
    #[must_use]
    pub(crate) fn joined_by(self, other: Self) -> Self {
        Self { deadline: self.deadline.min(other.deadline), ..other }
    }

    /// So long after it was first asked for, or the boot if that is past already.
    pub(crate) fn after(&self, by: Duration) -> Moment {
        self.asked_at + by.saturating_sub(self.before_boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }
    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_found_deletion_has_what_is_left_but_a_second_at_least_and_its_grace_at_most() {
        let left = |left, grace| GraceBudget::found(at(100), secs(left), secs(grace)).left(at(100));
        assert_eq!(left(12, 30), secs(12));
        assert_eq!(left(0, 30), secs(1));
        assert_eq!(left(31, 30), secs(30));
        assert_eq!(left(5, 0), secs(1));
    }

    #[test]
    fn a_found_deletion_is_shortened_from_its_own_request() {
        // Asked at 82 for 30 s; a grace of 20 s therefore ends at 102.
        let budget = GraceBudget::found(at(100), secs(12), secs(30));
        assert_eq!(budget.shortened_to(at(100), secs(20)).deadline(), at(102));
        assert_eq!(budget.shortened_to(at(100), secs(30)).deadline(), at(112));
    }

    #[test]
    fn grace_budget_from_before_a_boot_counts_from_its_request() {
        // Found five seconds after the boot; asked for thirteen seconds before it.
        let budget = GraceBudget::found(at(5), secs(12), secs(30));
        assert_eq!((budget.grace(), budget.age(at(6))), (secs(30), secs(19)));
        assert_eq!(budget.shortened_to(at(5), secs(20)).deadline(), at(7));
        // Asked for at 100 on the old clock; the machine was off until 400, and is up for 20 s.
        let mut budget = GraceBudget::starting(at(100), secs(600));
        budget.rebase(Shift { was: at(400), is: at(20) });
        assert_eq!((budget.grace(), budget.deadline(), budget.age(at(20))), (secs(600), at(320), secs(300)));
        assert_eq!(budget.shortened_to(at(20), secs(400)).deadline(), at(120));
        assert_eq!(budget.shortened_to(at(20), secs(60)).deadline(), at(21), "long spent, but for a second");
        // And once more, with nothing before that boot but the first one's.
        budget.rebase(Shift { was: at(50), is: at(40) });
        assert_eq!((budget.age(at(40)), budget.deadline()), (secs(330), at(310)));
    }

    #[test]
    fn a_budget_only_shrinks_and_always_leaves_a_second() {
        let budget = GraceBudget::starting(at(100), secs(300));
        assert_eq!(budget.shortened_to(at(120), secs(10)).deadline(), at(121));
        assert_eq!(budget.shortened_to(at(120), secs(600)), budget);
        assert_eq!(budget.overridden(at(120), secs(10)).deadline(), at(130));
        assert_eq!(budget.overridden(at(120), secs(0)).deadline(), at(121));
        assert!(budget.is_spent(at(400)) && !budget.is_spent(at(399)));
    }
}
