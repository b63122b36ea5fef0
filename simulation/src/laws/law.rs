//! The laws by name, and how a breach of one is told. What breaks them is found in [`check`](super::check).

use std::fmt;

/// What must hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Law {
    /// G1, G2.
    KillAtTheDeadline,
    /// G2.
    NoticeBeforeKill,
    /// G2.
    NobodyOutlivesItsDeadline,
    /// G3.
    HookBeforeSignal,
    /// G3.
    HookEndsWithItsTime,
    /// G4.
    SignalOnce,
    /// G4.
    RightSignal,
    /// G5.
    GoneAfterTheLastExit,
    /// G5.
    ExitsAreShown,
    /// G5.
    GoneAtOnce,
    /// Asked is not seen.
    StatusIsTrue,
    /// G6.
    RunsDoNotOverlap,
    /// G6.
    RestartsAsAsked,
    /// G6.
    NobodyIsStoppedUnasked,
    /// Nothing is removed while it runs.
    RemovedWhenEmpty,
    /// Nothing is started for a pod that is to go.
    NoStartAfterTheAsk,
    /// G10.
    StaticsDoNotOverlap,
    /// G9.
    CriticalLast,
    /// Everybody who was asked to go is gone in time, and everybody else is there.
    AllEndsWell,
    /// G7.
    NoWriteIsLost,
    /// The node itself works.
    TheNodeWorks,
    /// A pod is where it was bound to.
    OnItsNode,
    /// G15.
    NobodyIsDeletedUnasked,
    /// Whatever is killed, an end leaves one record.
    OneRecordPerEnd,
    /// G17.
    SurgeIsKept,
    /// G17.
    AvailabilityIsKept,
    /// G17.
    LeavingAreReplaced,
    /// G17.
    WorkloadsConverge,
    /// G17.
    OneOfAnIdentity,
    /// G17.
    SetsGoInOrder,
    /// G17.
    JobCountsOnce,
}

impl Law {
    /// All of them.
    pub const ALL: [Self; 31] = [
        Self::KillAtTheDeadline,
        Self::NoticeBeforeKill,
        Self::NobodyOutlivesItsDeadline,
        Self::HookBeforeSignal,
        Self::HookEndsWithItsTime,
        Self::SignalOnce,
        Self::RightSignal,
        Self::GoneAfterTheLastExit,
        Self::ExitsAreShown,
        Self::GoneAtOnce,
        Self::StatusIsTrue,
        Self::RunsDoNotOverlap,
        Self::RestartsAsAsked,
        Self::NobodyIsStoppedUnasked,
        Self::RemovedWhenEmpty,
        Self::NoStartAfterTheAsk,
        Self::StaticsDoNotOverlap,
        Self::CriticalLast,
        Self::AllEndsWell,
        Self::NoWriteIsLost,
        Self::TheNodeWorks,
        Self::OnItsNode,
        Self::NobodyIsDeletedUnasked,
        Self::OneRecordPerEnd,
        Self::SurgeIsKept,
        Self::AvailabilityIsKept,
        Self::LeavingAreReplaced,
        Self::WorkloadsConverge,
        Self::OneOfAnIdentity,
        Self::SetsGoInOrder,
        Self::JobCountsOnce,
    ];

    /// The law of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|law| format!("{law:?}") == name)
    }

    /// In words.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::KillAtTheDeadline => "KILL comes at the deadline, not before (G1, G2)",
            Self::NoticeBeforeKill => "KILL comes never sooner than two seconds after the stop signal (G2)",
            Self::NobodyOutlivesItsDeadline => "who ignores its stop signal is killed at the deadline (G2)",
            Self::HookBeforeSignal => "preStop runs first (G3)",
            Self::HookEndsWithItsTime => "a hook that overruns is ended before the stop signal (G3)",
            Self::SignalOnce => "the stop signal is sent once (G4)",
            Self::RightSignal => "the stop signal is the one that was asked for (G4)",
            Self::GoneAfterTheLastExit => "the object is removed only when every container is dead (G5)",
            Self::ExitsAreShown => "a watcher sees each exit before the object goes (G5)",
            Self::GoneAtOnce => "the object is removed at once when every container is dead (G5)",
            Self::StatusIsTrue => "what the API shows of a run has happened",
            Self::RunsDoNotOverlap => "no two runs of a container overlap (G6)",
            Self::RestartsAsAsked => "a container is restarted as its pod asks for (G6)",
            Self::NobodyIsStoppedUnasked => "nobody is stopped whom nobody asked to stop (G6)",
            Self::RemovedWhenEmpty => "no sandbox is removed while something runs in it",
            Self::NoStartAfterTheAsk => "nothing is started for a pod that is to go",
            Self::StaticsDoNotOverlap => "static pods of one name never overlap (G10)",
            Self::CriticalLast => "critical pods leave last in a shutdown (G9)",
            Self::AllEndsWell => "who was asked to go is gone in time, and everybody else is there",
            Self::OneRecordPerEnd => "every end leaves exactly one record, whatever is killed",
            Self::SurgeIsKept => "never more pods than replicas + maxSurge, besides those that leave (G17)",
            Self::AvailabilityIsKept => "no pod is taken away below replicas - maxUnavailable available ones (G17)",
            Self::LeavingAreReplaced => "a pod that leaves does not count, and is replaced at once (G17)",
            Self::WorkloadsConverge => "a workload becomes what was asked for, and leaves nothing behind (G17)",
            Self::OneOfAnIdentity => "no two pods of one name run at the same time (G17)",
            Self::SetsGoInOrder => "a StatefulSet makes a pod when those before it are ready (G17)",
            Self::JobCountsOnce => "a Job counts each pod, and runs each index, once (G17)",
            Self::NoWriteIsLost => "an acknowledged write survives a crash (G7)",
            Self::TheNodeWorks => "nothing of the platform fails by itself",
            Self::OnItsNode => "a pod runs on the node it is bound to, and on no other",
            Self::NobodyIsDeletedUnasked => {
                "no pod is deleted that nobody asked to go, while its node is heard of (G15)"
            }
        }
    }
}

/// A law was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Which.
    pub law: Law,
    /// When.
    pub at: u64,
    /// By whom.
    pub who: String,
    /// How.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, who) = (self.at, &self.who);
        write!(f, "{:?} at {}.{:03} by {who}: {} ({})", self.law, at / 1000, at % 1000, self.how, self.law.sentence())
    }
}
