//! One thing that may happen next, and what becomes of the news of it.

use lifecycle::HookKind;

use crate::traffic::{Reach, Siblings};

/// The position of a container in its pod's spec.
pub type Index = u8;

/// One step of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What happens.
    pub what: StepKind,
    /// What the worker hears of it.
    pub how: Hearing,
}

/// What happens.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// Somebody deletes the pod.
    Delete,
    /// Somebody deletes it again, with a shorter grace.
    Shrink,
    /// The object vanishes.
    Force,
    /// The node stops.
    Shutdown,
    /// The node evicts the pod.
    Evict,
    /// The sandbox is made.
    SandboxMade,
    /// It could not be made.
    SandboxRefused,
    /// An image is there.
    Pulled(Index),
    /// It could not be had.
    PullRefused(Index),
    /// A container starts.
    Starts(Index),
    /// It cannot be started.
    StartRefused(Index),
    /// A container's first process ends.
    Exits(Index, u8),
    /// A hook ends; well or not.
    HookEnds(Index, HookKind, bool),
    /// A liveness probe fails.
    ProbeFails(Index),
    /// The sandbox is removed.
    Removed,
    /// It could not be removed.
    RemovalRefused,
    /// The final DELETE is done.
    ObjectDeleted,
    /// The API refused it.
    DeleteRefused,
    /// New connections are kept away.
    CutDone,
    /// They cannot be kept away.
    CutRefused,
    /// One more proxy let go.
    Acked,
    /// Nobody came for a while.
    Quiet,
    /// No connection waits to be accepted.
    Settled,
    /// No connection is open any more.
    Drained,
    /// A connection is open.
    Connected,
    /// The application has nothing left to wait for.
    AppDone,
    /// Others can take the connections from here on, or cannot any more.
    Rerouted(Siblings),
    /// The pod is reached in another way.
    Reached(Reach),
    /// The file that asked for the pod is gone.
    ConfigRemoved,
    /// Nobody claims the pod.
    Orphaned,
    /// Somebody else writes that it is over.
    Declared,
    /// The node will not have it any more.
    Rejected,
    /// The machine is booted anew while the agent is away.
    Reboot,
    /// News that was late arrives.
    Arrives(Index),
    /// The agent looks at the API again after it was away.
    Looks,
    /// Time passes until something is due.
    Wake,
    /// A second passes.
    Pause,
    /// The agent dies.
    Crash,
    /// The sandbox and all in it vanish, and nobody is told.
    SandboxLost,
    /// They vanish under a living agent, which learns it from that start.
    SandboxDies(Index),
    /// The agent comes back.
    Returns,
}

/// What the worker hears of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hearing {
    /// It is told at once, and what it asks for is done.
    Told,
    /// It will be told later.
    Late,
    /// It is told at once, and later again.
    Twice,
    /// It is never told, although its agent lives.
    Lost,
    /// It is told, but the agent dies when only so many of its asks were carried out.
    Cut(u8),
    /// There is nobody to tell, or nothing to be told.
    Unheard,
}
