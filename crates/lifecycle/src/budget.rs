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
    deadline: Moment,
}

impl GraceBudget {
    /// A budget that starts now.
    pub fn starting(asked_at: Moment, grace: Duration) -> Self {
        Self { asked_at, deadline: asked_at + grace.max(LEAST_GRACE) }
    }

    /// A budget for a deletion that was made while we were away: `left` of its `grace` remains.
    ///
    /// The request is dated back accordingly, so that a later, shorter grace still counts from it as the API does.
    pub fn found(now: Moment, left: Duration, grace: Duration) -> Self {
        let grace = grace.max(LEAST_GRACE);
        let left = left.clamp(LEAST_GRACE, grace);
        Self { asked_at: now.before(grace - left), deadline: now + left }
    }

    /// When it was first asked for; what later requests of the same user count from.
    pub fn asked_at(&self) -> Moment {
        self.asked_at
    }

    /// The whole of it.
    pub fn grace(&self) -> Duration {
        self.deadline.since(self.asked_at)
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
        shift.apply(&mut self.asked_at);
        shift.apply(&mut self.deadline);
    }

    /// What is left of it.
    pub fn left(&self, now: Moment) -> Duration {
        self.deadline.since(now)
    }

    /// The same user asks again. Counts from the first request, but a second is always left.
    #[must_use]
    pub fn shortened_to(self, now: Moment, grace: Duration) -> Self {
        let wanted = (self.asked_at + grace).max(now + LEAST_GRACE);
        Self { deadline: self.deadline.min(wanted), ..self }
    }

    /// The node itself needs the pod to leave sooner. Counts from now.
    #[must_use]
    pub fn overridden(self, now: Moment, grace: Duration) -> Self {
        Self { deadline: self.deadline.min(now + grace.max(LEAST_GRACE)), ..self }
    }

    /// Another party asks for the first time, with a budget of its own: the earlier deadline holds, and later
    /// requests of that party count from its own first one.
    #[must_use]
    pub fn joined_by(self, other: Self) -> Self {
        Self { deadline: self.deadline.min(other.deadline), asked_at: other.asked_at }
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
    fn a_budget_only_shrinks_and_always_leaves_a_second() {
        let budget = GraceBudget::starting(at(100), secs(300));
        assert_eq!(budget.shortened_to(at(120), secs(10)).deadline(), at(121));
        assert_eq!(budget.shortened_to(at(120), secs(600)), budget);
        assert_eq!(budget.overridden(at(120), secs(10)).deadline(), at(130));
        assert_eq!(budget.overridden(at(120), secs(0)).deadline(), at(121));
        assert!(budget.is_spent(at(400)) && !budget.is_spent(at(399)));
    }
}
