//! The deadline as the specification has it (node-termination 3.3 to 3.5), reckoned apart from the worker.

use std::time::Duration;

use lifecycle::{DeleteSighting, Input, KillCause, Moment};

const SECOND: Duration = Duration::from_secs(1);

/// The deadline before which a pod must not be killed, and the request from which a user's shorter grace counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PromisedDeadline {
    asked_at: Moment,
    /// No KILL before this.
    pub deadline: Moment,
    /// A user asked, not only the node or the end of its work.
    by_user: bool,
}

impl PromisedDeadline {
    /// A pod that is done takes the time its spec gives it.
    pub fn of_completion(now: Moment, grace: Duration) -> Self {
        Self { asked_at: now, deadline: now + grace.max(SECOND), by_user: false }
    }

    /// What is promised after `input`.
    pub fn after(before: Option<Self>, now: Moment, input: &Input, spec_grace: Duration) -> Option<Self> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "no other input asks a pod to leave")]
        match input {
            Input::DeleteRequested { grace, sighting } => Some(match before {
                None => Self::by_user(now, *grace, *sighting),
                Some(known) if known.by_user => known.shortened(now, *grace),
                Some(known) => {
                    let theirs = Self::by_user(now, *grace, *sighting);
                    Self { deadline: known.deadline.min(theirs.deadline), ..theirs }
                }
            }),
            Input::ObjectGone => Some(match before {
                None => Self::by_user(now, Duration::ZERO, DeleteSighting::Live),
                Some(known) => Self { by_user: true, ..known.shortened(now, Duration::ZERO) },
            }),
            Input::TerminalPhaseSeen { .. } | Input::Rejected { .. } => {
                Some(before.unwrap_or_else(|| Self::of_completion(now, spec_grace)))
            }
            Input::KillRequested { cause, grace } => Some(match (before, grace) {
                // A pod that nobody claims has the least there is.
                (None, None) if *cause == KillCause::Orphaned => Self::of_completion(now, SECOND),
                (None, grace) => Self::of_completion(now, grace.unwrap_or(spec_grace)),
                (Some(known), None) => known,
                (Some(known), Some(grace)) => {
                    Self { deadline: known.deadline.min(now + (*grace).max(SECOND)), ..known }
                }
            }),
            _ => before,
        }
    }

    /// Until when evidence about traffic may be waited for at most, if that began then (traffic-and-rollouts 3.3).
    pub fn barrier_cap(&self, cap: Duration, reserve: Duration, since: Option<Moment>) -> Moment {
        let room = (self.deadline - self.asked_at).saturating_sub(reserve);
        (since.unwrap_or(self.asked_at) + cap.min(room)).min(self.latest(reserve))
    }

    /// Until when anything about traffic may be waited for.
    pub fn latest(&self, reserve: Duration) -> Moment {
        self.deadline.before(reserve.min(self.deadline - self.asked_at))
    }

    fn by_user(now: Moment, grace: Duration, sighting: DeleteSighting) -> Self {
        let grace = grace.max(SECOND);
        let left = match sighting {
            DeleteSighting::Live => grace,
            DeleteSighting::Found { left } => left.max(SECOND).min(grace),
        };
        Self { asked_at: now.before(grace - left), deadline: now + left, by_user: true }
    }

    fn shortened(self, now: Moment, grace: Duration) -> Self {
        let wanted = (self.asked_at + grace).max(now + SECOND);
        Self { deadline: self.deadline.min(wanted), ..self }
    }
}
