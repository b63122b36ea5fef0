//! Moments to come back at, each with a reason a person can read.

use core::fmt;

use crate::{ContainerName, Moment};

/// A moment to come back at, and why.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wake {
    /// When.
    pub at: Moment,
    /// Why.
    pub reason: WakeReason,
}

/// The soonest of all wakes that were considered; of two at the same moment, the first.
#[derive(Debug, Default)]
pub(crate) struct Soonest(Option<Wake>);

impl Soonest {
    /// Considers a wake. Its reason is only made if it matters.
    pub(crate) fn consider(&mut self, at: Moment, reason: impl FnOnce() -> WakeReason) {
        if self.0.as_ref().is_none_or(|soonest| at < soonest.at) {
            self.0 = Some(Wake { at, reason: reason() });
        }
    }

    pub(crate) fn into_wake(self) -> Option<Wake> {
        self.0
    }
}

/// Why a worker wants to be woken.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WakeReason {
    /// The pod's deadline: hooks end, everyone is signalled, those already signalled are killed.
    GraceSpent,
    /// The deadline of a container that is stopped on its own while its pod lives on.
    ContainerGraceSpent(ContainerName),
    /// The two seconds that every container has between its stop signal and its KILL.
    FloorSpent(ContainerName),
    /// A KILL was asked for and no exit was seen.
    KillUnanswered(ContainerName),
    /// A sleep hook whose rest the worker times itself, since the agent that timed it is gone.
    SleepEnds(ContainerName),
    /// A container that ended may start again.
    BackOffEnds(ContainerName),
    /// A failed pull turns from an error into a wait.
    PullBackOffShown(ContainerName),
    /// Why a container failed was shown; from here on it is a back-off.
    BackOffShown(ContainerName),
    /// A failed pull is tried again.
    PullRetry(ContainerName),
    /// A sandbox that could not be made is tried again.
    SandboxRetry,
    /// Nobody said whether the sandbox was made; it is asked for again.
    SandboxUnanswered,
    /// A sandbox that could not be removed is tried again.
    RemovalRetry,
    /// Nobody said whether the sandbox was removed; that is asked for again.
    RemovalUnanswered,
    /// A final DELETE that failed is tried again.
    DeleteRetry,
    /// Nobody answered the final DELETE; it is asked for again.
    DeleteUnanswered,
    /// The pod should have been gone by now; people are told what it waits for.
    Overdue,
    /// A start that was never answered is waited for no longer: a living pod asks again, and for a leaving one the
    /// removal of the sandbox settles it.
    StartUnanswered(ContainerName),
    /// A pull that was never answered is asked for again.
    PullUnanswered(ContainerName),
    /// The pod has been active for as long as it may be.
    ActiveDeadline,
    /// Somebody who waits for a kill is told that it takes too long.
    KillWaitEnds,
    /// Evidence about traffic is waited for no longer.
    BarrierCap,
    /// Connections that wait to be accepted are waited for no longer.
    SettleCap,
    /// A stand-in for the last endpoint is waited for no longer.
    ReplacementWait,
    /// No connection was open for long enough to believe it.
    ConnectionsGone,
    /// Open connections are waited for no longer.
    DrainBudgetSpent,
    /// A detour for the restart of one container is waited for no longer.
    DetourCap,
}

impl fmt::Display for WakeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GraceSpent => f.write_str("grace budget spent"),
            Self::ContainerGraceSpent(name) => write!(f, "grace of {name} spent"),
            Self::FloorSpent(name) => write!(f, "{name} had its two seconds"),
            Self::KillUnanswered(name) => write!(f, "KILL to {name} unanswered"),
            Self::SleepEnds(name) => write!(f, "sleep hook of {name} ends"),
            Self::BackOffEnds(name) => write!(f, "back-off of {name} ends"),
            Self::BackOffShown(name) => write!(f, "{name} counts as backing off"),
            Self::PullBackOffShown(name) => write!(f, "image of {name} counts as backing off"),
            Self::PullRetry(name) => write!(f, "pull back-off of {name} ends"),
            Self::SandboxRetry => f.write_str("sandbox is tried again"),
            Self::SandboxUnanswered => f.write_str("sandbox was never answered for"),
            Self::RemovalRetry => f.write_str("sandbox removal is tried again"),
            Self::RemovalUnanswered => f.write_str("sandbox removal was never answered"),
            Self::DeleteRetry => f.write_str("final delete is tried again"),
            Self::DeleteUnanswered => f.write_str("final delete was never answered"),
            Self::Overdue => f.write_str("termination overdue"),
            Self::StartUnanswered(name) => write!(f, "start of {name} was never answered"),
            Self::PullUnanswered(name) => write!(f, "pull for {name} was never answered"),
            Self::ActiveDeadline => f.write_str("active deadline passed"),
            Self::KillWaitEnds => f.write_str("kill takes too long for whoever waits"),
            Self::BarrierCap => f.write_str("barrier cap passed"),
            Self::SettleCap => f.write_str("settle cap passed"),
            Self::ReplacementWait => f.write_str("no replacement came in time"),
            Self::ConnectionsGone => f.write_str("no connection came back"),
            Self::DrainBudgetSpent => f.write_str("drain budget spent"),
            Self::DetourCap => f.write_str("detour cap passed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_wake_gives_the_reason_and_ties_keep_the_first() {
        let mut wakes = Soonest::default();
        wakes.consider(Moment::from_millis(9), || WakeReason::Overdue);
        wakes.consider(Moment::from_millis(5), || WakeReason::GraceSpent);
        wakes.consider(Moment::from_millis(5), || WakeReason::BarrierCap);
        wakes.consider(Moment::from_millis(7), || WakeReason::DeleteRetry);
        let soonest = Wake { at: Moment::from_millis(5), reason: WakeReason::GraceSpent };
        assert_eq!(wakes.into_wake(), Some(soonest));
    }
}
