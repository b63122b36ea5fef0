//! What a worker is told: facts about the world, each of which may arrive late or twice.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::{ContainerName, ContainerSpec, Instance, Moment, Signal, TrafficNews, Wall};

/// One fact.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// The node was told to run this pod. The first input of every life.
    Begin,
    /// The image of a container is present; its own stop signal, if it names one. `edition` is that of the ask.
    ImageReady { container: ContainerName, edition: u32, stop_signal: Option<Signal> },
    /// The image could not be had. `reason` is the API's word (`ErrImagePull`, `ErrImageNeverPull`).
    ImageFailed { container: ContainerName, edition: u32, reason: String, message: String },
    /// The pod's namespaces, network and cgroup exist.
    SandboxReady,
    /// They could not be made.
    SandboxFailed { message: String },
    /// A volume could not be made, without which nothing starts in the sandbox: that was not made, either.
    VolumeFailed { message: String },
    /// The container's process runs.
    Started { instance: Instance, wall: Wall },
    /// The container could not be created or started (`CreateContainerError`, `StartError`, …).
    StartFailed { instance: Instance, reason: String, message: String },
    /// The container was not started, for there is no sandbox any more: it died under its pod.
    SandboxLost { instance: Instance },
    /// The kernel told us that the container's first process ended; everything else in it is dead too.
    Exited { instance: Instance, exit: Exit },
    /// A hook ended, in whatever way.
    HookFinished { instance: Instance, kind: HookKind, outcome: HookOutcome },
    /// What became of a signal we asked for.
    SignalAnswered { instance: Instance, signal: Signal, delivery: Delivery },
    /// A KILL could not be sent; the worker decides when to try again.
    KillFailed { instance: Instance, message: String },
    /// A probe changed its mind.
    ProbeChanged { instance: Instance, probe: Probe, passing: bool },
    /// The API object carries a deletion timestamp. Told again whenever its grace changes.
    DeleteRequested { grace: Duration, sighting: DeleteSighting },
    /// The API object is gone although we did not delete it: a force delete.
    ObjectGone,
    /// The node itself wants the pod to end.
    KillRequested { cause: KillCause, grace: Option<Duration> },
    /// The sandbox and all it held are gone.
    SandboxRemoved,
    /// It could not be removed; the worker decides when to try again.
    SandboxRemovalFailed { message: String },
    /// Our final DELETE was answered (gone, or already gone, or now someone else's).
    ObjectDeleted,
    /// It was not; the worker decides when to try again.
    ObjectDeleteFailed { message: String },
    /// The agent came back after a crash or an upgrade; this is what the runtime still knows.
    AgentRestarted { report: RuntimeReport },
    /// Nothing happened, but a wake was asked for.
    TimePassed,
    /// The pod's spec was changed in one of the few ways that it may be.
    SpecChanged { change: SpecChange },
    /// The newest `metadata.generation` that was seen.
    GenerationSeen { generation: i64 },
    /// Somebody else wrote a terminal phase: `Succeeded`, or `Failed`.
    TerminalPhaseSeen { succeeded: bool },
    /// The node will not have this pod. `reason` is the API's word (`NodeShutdown`, `OutOfcpu`, …).
    Rejected { reason: String, message: String },
    /// Somebody waits for the kill of this pod to be over; `KillAnswered` tells them.
    KillAwaited { ticket: u64 },
    /// Something about the pod's traffic.
    Traffic(TrafficNews),
    /// The machine was booted anew. What was `was` on the old clock is now on the new one. `AgentRestarted` follows, and
    /// until it does nothing is done about a pod that had processes.
    Rebooted { was: Moment },
}

/// What may change in the spec of a pod that was begun.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SpecChange {
    /// A container is to run another image.
    Image { container: ContainerName },
    /// A container is to have other resources, and gets them only by being run again.
    Resources { container: ContainerName },
    /// An ephemeral container was added.
    Ephemeral { spec: ContainerSpec },
    /// `activeDeadlineSeconds`.
    ActiveDeadline { deadline: Option<Duration> },
}

/// How a container's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Exit {
    /// 0..=255, or 128 + signal.
    pub code: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<Signal>,
    /// The kernel killed something in it for want of memory.
    pub oom: bool,
    /// When, for people.
    pub wall: Wall,
    /// False when the exit was inferred (its reaper died) rather than seen.
    pub seen: bool,
}

/// Which hook of a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HookKind {
    /// Before the stop signal.
    PreStop,
    /// After the start.
    PostStart,
}

/// How a hook ended.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HookOutcome {
    /// It did what it was for.
    Succeeded,
    /// It could not be run, or said no: why, in words that anybody may read, and the end of what it wrote, which may hold
    /// secrets.
    Failed { message: String, output: Option<String> },
    /// We ended it, because its time or its container was over.
    Cancelled,
}

impl HookOutcome {
    /// A failure of a hook that wrote nothing.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), output: None }
    }
}

/// What became of a signal.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Delivery {
    /// The kernel took it.
    Delivered,
    /// The kernel took it then: whoever asked for it first did not live to hear so, and it was not sent again.
    DeliveredBefore { at: Moment },
    /// There was nobody left to take it. An answer, not an error.
    AlreadyGone,
}

/// Which probe of a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Probe {
    /// May traffic come?
    Readiness,
    /// Is it alive?
    Liveness,
    /// Has it come up?
    Startup,
}

/// How a deletion came to our notice.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeleteSighting {
    /// On the watch, as it happened: the grace counts from now.
    Live,
    /// Found in a list after we were away: `left` is what remains until its timestamp, plus a second for
    /// the truncation of stored times. Ignored if the journal knows this deletion already.
    Found { left: Duration },
}

/// Why the node itself ends a pod.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KillCause {
    /// The node is short of something.
    Evicted { message: String },
    /// Room is needed for a critical pod.
    Preempted,
    /// The node stops.
    NodeShutdown,
    /// The manifest of a static pod is gone.
    ConfigRemoved,
    /// Nobody claims it.
    Orphaned,
    /// It used more than it was allowed to; its own fault, so no disruption of it.
    OverLimit { message: String },
}

/// What the runtime knows of a pod when the agent returns.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RuntimeReport {
    /// The sandbox exists and its shim answers.
    pub sandbox: bool,
    /// Every container instance the runtime still knows.
    pub containers: Vec<ContainerReport>,
    /// Every hook the runtime was asked to run and still knows.
    pub hooks: Vec<HookReport>,
}

/// One container in a [`RuntimeReport`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContainerReport {
    /// Which run.
    pub instance: Instance,
    /// What is known of it.
    pub seen: SeenContainer,
}

/// What is known of a container after a restart of the agent.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeenContainer {
    /// Its process runs since then.
    Running { wall: Wall },
    /// It ended; the record was on disk.
    Exited { exit: Exit },
}

/// One hook in a [`RuntimeReport`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HookReport {
    /// Of which run.
    pub instance: Instance,
    /// Which hook.
    pub kind: HookKind,
    /// How it ended, or `None` while it runs.
    pub outcome: Option<HookOutcome>,
}
