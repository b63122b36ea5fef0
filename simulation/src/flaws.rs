//! Bugs planted in the agent, in the controllers and around them: each must be caught, and says by which laws.

use std::cell::Cell;

pub use controllers::flaws::Flaw as ControllerFlaw;
pub use node::flaws::Flaw;

use crate::laws::Law;

/// A bug in what the agent and the store stand on, in the place of one in them: a write that is never synced is, to the disk, a
/// product that does not ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorldFlaw {
    /// The store syncs nothing.
    SyncsNoStore,
    /// The agent syncs nothing.
    SyncsNoJournal,
    /// No folder is synced, so that names are not durable.
    SyncsNoFolder,
    /// What a watch says a second time is taken for the end of the object.
    TakesEchoForEnd,
    /// Every agent is told of the pods of all nodes.
    HearsEverybody,
}

thread_local! {
    static PLANTED: Cell<Option<WorldFlaw>> = const { Cell::new(None) };
}

/// Plants a bug around every agent of this thread, or takes it away.
pub fn plant(flaw: Option<WorldFlaw>) {
    PLANTED.set(flaw);
}

/// Whether this bug was planted.
pub fn has(flaw: WorldFlaw) -> bool {
    PLANTED.get() == Some(flaw)
}

/// Any of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// In the agent's wiring.
    InAgent(Flaw),
    /// In the controllers.
    InControllers(ControllerFlaw),
    /// Around them.
    InWorld(WorldFlaw),
}

impl Planted {
    /// What it is called.
    pub fn name(self) -> String {
        match self {
            Self::InAgent(flaw) => format!("{flaw:?}"),
            Self::InControllers(flaw) => format!("{flaw:?}"),
            Self::InWorld(flaw) => format!("{flaw:?}"),
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().map(|(flaw, _)| *flaw).find(|flaw| flaw.name() == name)
    }

    /// If it is in the agent.
    pub fn in_agent(self) -> Option<Flaw> {
        match self {
            Self::InAgent(flaw) => Some(flaw),
            Self::InControllers(_) | Self::InWorld(_) => None,
        }
    }

    /// If it is in the controllers.
    pub fn in_controllers(self) -> Option<ControllerFlaw> {
        match self {
            Self::InControllers(flaw) => Some(flaw),
            Self::InAgent(_) | Self::InWorld(_) => None,
        }
    }

    /// If it is around them.
    pub fn in_world(self) -> Option<WorldFlaw> {
        match self {
            Self::InAgent(_) | Self::InControllers(_) => None,
            Self::InWorld(flaw) => Some(flaw),
        }
    }
}

const fn agent(flaw: Flaw) -> Planted {
    Planted::InAgent(flaw)
}

const fn controllers(flaw: ControllerFlaw) -> Planted {
    Planted::InControllers(flaw)
}

const fn world(flaw: WorldFlaw) -> Planted {
    Planted::InWorld(flaw)
}

/// Every flaw, with the laws that it breaks: one of them at least.
pub const ALL: [(Planted, &[Law]); 33] = [
    (agent(Flaw::ActsBeforeRecord), &[Law::NobodyIsStoppedUnasked]),
    (agent(Flaw::AsksNobody), &[Law::StatusIsTrue]),
    (agent(Flaw::DeletesWithoutStatus), &[Law::ExitsAreShown]),
    (agent(Flaw::DropsHeldExit), &[Law::AllEndsWell, Law::GoneAtOnce]),
    (agent(Flaw::HearsOneDeletion), &[Law::NobodyOutlivesItsDeadline]),
    (agent(Flaw::DropsExitOfLeaving), &[Law::AllEndsWell, Law::GoneAtOnce]),
    (agent(Flaw::IgnoresPriority), &[Law::CriticalLast]),
    (agent(Flaw::StaticsAtOnce), &[Law::StaticsDoNotOverlap]),
    (agent(Flaw::FoundIsOver), &[Law::KillAtTheDeadline]),
    (agent(Flaw::GivesUpOnStatus), &[Law::ExitsAreShown, Law::AllEndsWell]),
    (agent(Flaw::DropsDeleteFailure), &[Law::AllEndsWell]),
    (agent(Flaw::KeepsNoManifest), &[Law::NobodyIsStoppedUnasked]),
    (agent(Flaw::SkipsListed), &[Law::AllEndsWell, Law::NobodyOutlivesItsDeadline]),
    (agent(Flaw::ForgetsImageSignal), &[Law::RightSignal]),
    (agent(Flaw::LeavesHookRunning), &[Law::HookEndsWithItsTime]),
    (agent(Flaw::DropsKillFailure), &[Law::AllEndsWell, Law::NobodyOutlivesItsDeadline]),
    (agent(Flaw::ForgetsRecord), &[Law::OneRecordPerEnd]),
    (agent(Flaw::TakesSilenceForNo), &[Law::HookBeforeSignal, Law::RemovedWhenEmpty, Law::ExitsAreShown]),
    (agent(Flaw::CancelsHookOnce), &[Law::HookEndsWithItsTime]),
    (world(WorldFlaw::SyncsNoStore), &[Law::NoWriteIsLost, Law::TheNodeWorks]),
    (world(WorldFlaw::SyncsNoJournal), &[Law::ExitsAreShown, Law::StatusIsTrue, Law::TheNodeWorks]),
    (world(WorldFlaw::SyncsNoFolder), &[Law::NoWriteIsLost]),
    (world(WorldFlaw::TakesEchoForEnd), &[Law::NobodyIsStoppedUnasked, Law::AllEndsWell]),
    (world(WorldFlaw::HearsEverybody), &[Law::OnItsNode]),
    (controllers(ControllerFlaw::CountsLeaving), &[Law::LeavingAreReplaced]),
    (controllers(ControllerFlaw::ForgetsCreated), &[Law::SurgeIsKept]),
    (controllers(ControllerFlaw::CountsWishes), &[Law::SurgeIsKept]),
    (controllers(ControllerFlaw::TakesPodsForAvailable), &[Law::AvailabilityIsKept]),
    (controllers(ControllerFlaw::ForcesLeaving), &[Law::OneOfAnIdentity]),
    (controllers(ControllerFlaw::SkipsReadiness), &[Law::SetsGoInOrder]),
    (controllers(ControllerFlaw::ForgetsIndexes), &[Law::JobCountsOnce]),
    (controllers(ControllerFlaw::CountsTwice), &[Law::JobCountsOnce]),
    (controllers(ControllerFlaw::KeepsGarbage), &[Law::WorkloadsConverge]),
];
