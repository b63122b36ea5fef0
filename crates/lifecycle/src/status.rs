//! What others may see of a pod: computed from the worker's state by one exhaustive function, never stored.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::{ContainerName, Exit, Role, Signal, Wall};

/// The public status of a pod, in the rules' own words; the node puts it on the wire.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PodStatus {
    /// `status.phase`.
    pub phase: PodPhase,
    /// `status.reason`, for ends that the node caused.
    pub reason: Option<String>,
    /// `status.message`.
    pub message: Option<String>,
    /// Sandbox and network exist.
    pub ready_to_start_containers: Condition,
    /// All init containers are done.
    pub initialized: Condition,
    /// All containers are ready.
    pub containers_ready: Condition,
    /// Traffic may come.
    pub ready: Condition,
    /// The node ended the pod for reasons that are not the pod's (`DisruptionTarget`); once no process remains.
    pub disruption: Option<Condition>,
    /// New connections go elsewhere, or why they were not waited for; once the pod is leaving.
    pub traffic_drained: Option<Condition>,
    /// Something keeps the pod from being gone although it should be: what. Does not hold any more once it is at rest.
    pub blocked: Option<Condition>,
    /// All containers are being run again; of a pod whose rules can ask for that.
    pub all_restarting: Option<Condition>,
    /// One entry per container of the spec, in its order.
    pub containers: Vec<ContainerStatus>,
    /// The newest generation of the object that was taken in.
    pub observed_generation: Option<i64>,
    /// How well it left, once no process remains.
    pub verdict: Option<TerminationVerdict>,
}

/// How well a pod left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TerminationVerdict {
    /// Everything it asked for was given, and everyone left by themselves.
    Clean,
    /// Everyone left by themselves, but something was cut short: the grace, a hook, an order, a drain.
    Hurried,
    /// Somebody had to be killed, or the object was deleted by force.
    Forced,
    /// Of somebody it is not known how they ended.
    Lost,
}

impl fmt::Display for TerminationVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Hurried => "hurried",
            Self::Forced => "forced",
            Self::Lost => "lost",
        })
    }
}

/// A condition without its times: those are the node's to keep.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Condition {
    /// `status: "True"` or `"False"`.
    pub holds: bool,
    /// The API's word for why not.
    pub reason: Option<String>,
    /// One sentence.
    pub message: Option<String>,
}

/// `status.phase`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PodPhase {
    /// Not everything has started.
    Pending,
    /// At least one container runs, or will again.
    Running,
    /// Every main container ended well.
    Succeeded,
    /// At least one did not.
    Failed,
}

impl PodPhase {
    /// Whether a pod in this phase never leaves it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// One entry of `containerStatuses` or `initContainerStatuses`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContainerStatus {
    /// Which container.
    pub name: ContainerName,
    /// Its part in the pod.
    pub role: Role,
    /// Where it stands.
    pub state: ContainerState,
    /// How its previous run ended.
    pub last: Option<Terminated>,
    /// Which run `state` speaks of; equals `restartCount`.
    pub attempt: u32,
    /// Traffic may come.
    pub ready: bool,
    /// Running, and its postStart hook and startup probe are through.
    pub started: bool,
    /// The stop signal in force, once the image is known.
    pub stop_signal: Option<Signal>,
}

/// Where a container stands.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ContainerState {
    /// Not running, and why.
    Waiting(Waiting),
    /// Running since.
    Running { since: Wall },
    /// Ended.
    Terminated(Terminated),
}

/// Why a container does not run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiting {
    /// The API's word (`ContainerCreating`, `CrashLoopBackOff`, `ErrImagePull`, …).
    pub reason: String,
    /// One sentence, if there is more to say.
    pub message: Option<String>,
}

/// How a run of a container ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Terminated {
    /// Which run.
    pub attempt: u32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// One sentence, if there is more to say.
    pub message: Option<String>,
    /// Exit code and times; code 137 and no times for a container that could not be located.
    pub exit_code: i32,
    /// When the run began, if it did.
    pub started: Option<Wall>,
    /// When it ended, if that is known.
    pub exit: Option<Exit>,
}
