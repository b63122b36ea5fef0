//! Bugs planted in the agent: each must be caught, and says by which law.

pub use node::flaws::Flaw;

use crate::laws::Law;

/// Every flaw, with a law that it breaks.
pub const ALL: [(Flaw, Law); 15] = [
    (Flaw::ActsBeforeRecord, Law::NobodyIsStoppedUnasked),
    (Flaw::AsksNobody, Law::AllEndsWell),
    (Flaw::DeletesWithoutStatus, Law::ExitsAreShown),
    (Flaw::DropsHeldExit, Law::AllEndsWell),
    (Flaw::StartsThoughLeaving, Law::NoStartAfterTheAsk),
    (Flaw::DropsExitOfLeaving, Law::AllEndsWell),
    (Flaw::IgnoresPriority, Law::CriticalLast),
    (Flaw::StaticsAtOnce, Law::StaticsDoNotOverlap),
    (Flaw::FoundIsOver, Law::KillAtTheDeadline),
    (Flaw::GivesUpOnStatus, Law::ExitsAreShown),
    (Flaw::DropsDeleteFailure, Law::AllEndsWell),
    (Flaw::KeepsNoManifest, Law::NobodyIsStoppedUnasked),
    (Flaw::SkipsListed, Law::AllEndsWell),
    (Flaw::ForgetsImageSignal, Law::RightSignal),
    (Flaw::LeavesHookRunning, Law::HookBeforeSignal),
];
