//! What a worker asks for. Each effect is performed by the node; its result comes back as an input.
//!
//! After a restart of the agent, what was not answered and is not known to the runtime is asked for again. An effect
//! may therefore be asked for twice, and doing it twice must come to the same as doing it once.

use alloc::format;
use alloc::string::String;

use crate::{ContainerName, Cut, HookKind, Instance, Moment, Signal};

/// One act asked for.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Make the image present. Answered by `ImageReady` or `ImageFailed`, with the same `edition`: how many other images
    /// the container was to run before this one.
    PullImage { container: ContainerName, edition: u32 },
    /// Nobody waits for that image any more.
    CancelPull { container: ContainerName },
    /// Make namespaces, network, cgroup. Answered by `SandboxReady`, `SandboxFailed` or `VolumeFailed`.
    CreateSandbox,
    /// Create and start. Answered by `Started` or `StartFailed`.
    StartContainer { instance: Instance },
    /// Run a hook. Answered by `HookFinished`.
    RunHook { instance: Instance, kind: HookKind },
    /// End a hook that still runs. Answered by `HookFinished` with `Cancelled`, or by its real end if that came first.
    CancelHook { instance: Instance, kind: HookKind },
    /// Send a signal to the container's first process. Answered by `SignalAnswered`.
    SendSignal { instance: Instance, signal: Signal },
    /// Kill everything in the container. Answered by `Exited`.
    KillContainer { instance: Instance },
    /// Remove the sandbox and all it holds. Answered by `SandboxRemoved` or `SandboxRemovalFailed`.
    RemoveSandbox,
    /// The status changed: let others see it. Never answered; the newest one wins.
    PublishStatus,
    /// Tell people.
    Emit(Event),
    /// Store the final status, then delete the API object (grace 0, our UID). Answered by `ObjectDeleted` or
    /// `ObjectDeleteFailed`.
    DeleteObject,
    /// The life is over; nothing more will be asked. The worker may be forgotten.
    Finish,
    /// Keep new connections away. Answered by `TrafficNews::CutDone`, and by further evidence as it comes.
    CutTraffic { how: Cut },
    /// Tell when no connection waits to be accepted. Answered by `TrafficNews::Settled`.
    AwaitSettled,
    /// Tell the application that its connections are waited for, and until when.
    NotifyDrain { until: Moment },
    /// Tell how many connections are open, now and whenever that changes. Answered by `TrafficNews::Connections`.
    WatchConnections,
    /// Let new connections come again.
    RestoreTraffic,
    /// Tell whoever holds this ticket how the kill went.
    KillAnswered { ticket: u64, outcome: KillOutcome },
}

/// How a kill that somebody waited for went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KillOutcome {
    /// No process remains.
    Stopped,
    /// It takes longer than it may; it goes on.
    Overran,
    /// Nobody asked this pod to leave.
    NotAsked,
}

/// Something worth telling people, as a Kubernetes Event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// Which container it concerns, or `None` for the pod.
    pub container: Option<ContainerName>,
    /// Normal or Warning.
    pub kind: EventKind,
    /// The API's word for it (`Killing`, `BackOff`, …).
    pub reason: String,
    /// One sentence.
    pub message: String,
}

impl Event {
    /// Something about a container that is as it should be.
    pub(crate) fn normal(container: &ContainerName, reason: &str, message: String) -> Self {
        Self { container: Some(container.clone()), kind: EventKind::Normal, reason: reason.into(), message }
    }
    /// Something about a container that someone may want to look at.
    pub(crate) fn warning(container: &ContainerName, reason: &str, message: String) -> Self {
        Self { container: Some(container.clone()), kind: EventKind::Warning, reason: reason.into(), message }
    }
    /// A hook failed: why, without anything that it wrote, for events are read by many.
    pub(crate) fn hook_failed(container: &ContainerName, kind: HookKind, why: &str) -> Self {
        let (reason, hook) = match kind {
            HookKind::PreStop => ("FailedPreStopHook", "PreStopHook"),
            HookKind::PostStart => ("FailedPostStartHook", "PostStartHook"),
        };
        let message = if why.is_empty() { format!("{hook} failed") } else { format!("{hook} failed: {why}") };
        Self::warning(container, reason, message)
    }
    /// Something about the whole pod that is as it should be.
    pub fn pod_normal(reason: &str, message: String) -> Self {
        Self { container: None, kind: EventKind::Normal, reason: reason.into(), message }
    }
    /// Something about the whole pod that someone may want to look at.
    pub fn pod_warning(reason: &str, message: String) -> Self {
        Self { container: None, kind: EventKind::Warning, reason: reason.into(), message }
    }
}

/// How loud an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Someone may want to look.
    Warning,
}
