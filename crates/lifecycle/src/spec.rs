//! What a pod asks for, reduced to what the rules need. Commands, mounts and ports stay with the node.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;

use crate::{ContainerRestart, DrainSpec};

/// The name of a container inside its pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContainerName(pub String);

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run of a container: its name and how often it was started before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instance {
    /// Which container.
    pub name: ContainerName,
    /// 0 for the first run, 1 after the first restart, and so on.
    pub attempt: u32,
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attempt == 0 { write!(f, "{}", self.name) } else { write!(f, "{}#{}", self.name, self.attempt) }
    }
}

/// A signal by its Linux number, real-time signals included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Signal(pub u8);

impl Signal {
    /// The polite default.
    pub const TERM: Self = Self(15);
    /// The one nobody can refuse.
    pub const KILL: Self = Self(9);
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 31] = [
            "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
            "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
            "WINCH", "IO", "PWR", "SYS",
        ];
        // The first two real-time signals belong to the C library, hence its minimum of 34.
        const RTMIN: u8 = 34;
        let name = usize::from(self.0).checked_sub(1).and_then(|index| NAMES.get(index));
        match (name, self.0.checked_sub(RTMIN)) {
            (Some(name), _) => write!(f, "SIG{name}"),
            (None, Some(0)) => f.write_str("SIGRTMIN"),
            (None, Some(above)) => write!(f, "SIGRTMIN+{above}"),
            (None, None) => write!(f, "signal {}", self.0),
        }
    }
}

/// Which pod it is, for the words that people read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodIdentity {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

impl fmt::Display for PodIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// It never changes and decides nothing, so a fingerprint of what it belongs to need not look at it.
impl Hash for PodIdentity {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// What a pod is made of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PodSpec {
    /// Whose spec it is.
    pub identity: PodIdentity,
    /// Init containers and sidecars in declaration order, then main containers in declaration order.
    pub containers: Vec<ContainerSpec>,
    /// What becomes of containers that end.
    pub restart: RestartPolicy,
    /// `terminationGracePeriodSeconds`.
    pub grace: Duration,
    /// `activeDeadlineSeconds`: how long it may be active at all.
    pub active_deadline: Option<Duration>,
    /// What it asks for about traffic at its end.
    pub drain: DrainSpec,
}

impl PodSpec {
    /// A pod of these containers that asks for nothing special: always restarted, 30 s of grace.
    pub fn new(containers: Vec<ContainerSpec>) -> Self {
        Self {
            identity: PodIdentity::default(),
            containers,
            restart: RestartPolicy::Always,
            grace: Duration::from_secs(30),
            active_deadline: None,
            drain: DrainSpec::default(),
        }
    }
}

/// One container of a pod.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContainerSpec {
    /// Its name, unique in the pod.
    pub name: ContainerName,
    /// Its part in the pod.
    pub role: Role,
    /// User code run before the stop signal, on the grace budget.
    pub pre_stop: Option<Hook>,
    /// User code run after the start, beside the main process.
    pub post_start: Option<Hook>,
    /// `lifecycle.stopSignal`; wins over the image's.
    pub stop_signal: Option<Signal>,
    /// What makes it ready.
    pub readiness: Readiness,
    /// What its other probes ask for.
    pub probes: ProbeSpec,
    /// What becomes of it when it ends, if that is not what its pod says.
    pub restart: Option<ContainerRestart>,
}

impl ContainerSpec {
    /// A container without hooks and probes.
    pub fn new(name: &str, role: Role) -> Self {
        Self {
            name: ContainerName(name.into()),
            role,
            pre_stop: None,
            post_start: None,
            stop_signal: None,
            readiness: Readiness::WhileRunning,
            probes: ProbeSpec::default(),
            restart: None,
        }
    }
}

/// What the startup and liveness probes of a container ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ProbeSpec {
    /// There is a startup probe: the container counts as started once it has passed.
    pub startup: bool,
    /// The grace of a container that failed its startup probe, if it is not the pod's.
    pub startup_grace: Option<Duration>,
    /// The grace of a container that failed its liveness probe, if it is not the pod's.
    pub liveness_grace: Option<Duration>,
}

/// The part a container plays in its pod.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Runs to completion before the next starts.
    Init,
    /// A restartable init container: starts in init order, leaves after the mains.
    Sidecar,
    /// The pod's purpose.
    Main,
    /// Added by hand to a running pod; never restarted, never ordered.
    Ephemeral,
}

/// What becomes of a container that ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RestartPolicy {
    /// Start it again, whatever its exit code.
    Always,
    /// Start it again if it failed.
    OnFailure,
    /// Leave it.
    Never,
}

/// The kind of a lifecycle hook. What exactly to run is the node's to know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hook {
    /// A command inside the container.
    Exec,
    /// A command inside the container that only sleeps for so long.
    ExecSleep(Duration),
    /// A request to the container.
    HttpGet,
    /// A wait, ended early by the container's exit.
    Sleep(Duration),
}

/// What makes a container ready.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Readiness {
    /// No readiness probe: ready while running.
    WhileRunning,
    /// Ready once its probe says so.
    WhenProbed,
}
