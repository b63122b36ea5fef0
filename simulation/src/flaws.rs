//! Bugs planted in the agent: each must be caught, and says by which laws.

pub use node::flaws::Flaw;

use crate::laws::Law;

/// Every flaw, with the laws that it breaks: one of them at least.
pub const ALL: [(Flaw, &[Law]); 15] = [
    (Flaw::ActsBeforeRecord, &[Law::NobodyIsStoppedUnasked]),
    (Flaw::AsksNobody, &[Law::StatusIsTrue]),
    (Flaw::DeletesWithoutStatus, &[Law::ExitsAreShown]),
    (Flaw::DropsHeldExit, &[Law::AllEndsWell, Law::GoneAtOnce]),
    (Flaw::HearsOneDeletion, &[Law::NobodyOutlivesItsDeadline]),
    (Flaw::DropsExitOfLeaving, &[Law::AllEndsWell, Law::GoneAtOnce]),
    (Flaw::IgnoresPriority, &[Law::CriticalLast]),
    (Flaw::StaticsAtOnce, &[Law::StaticsDoNotOverlap]),
    (Flaw::FoundIsOver, &[Law::KillAtTheDeadline]),
    (Flaw::GivesUpOnStatus, &[Law::ExitsAreShown, Law::AllEndsWell]),
    (Flaw::DropsDeleteFailure, &[Law::AllEndsWell]),
    (Flaw::KeepsNoManifest, &[Law::NobodyIsStoppedUnasked]),
    (Flaw::SkipsListed, &[Law::AllEndsWell, Law::NobodyOutlivesItsDeadline]),
    (Flaw::ForgetsImageSignal, &[Law::RightSignal]),
    (Flaw::LeavesHookRunning, &[Law::HookEndsWithItsTime]),
];
