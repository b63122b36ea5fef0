//! What the node may ask of a container runtime, and what it is told unasked.
//!
//! Every verb is idempotent: asking twice is answered like asking once, so that a driver which crashed
//! between asking and hearing may simply ask again.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::image::{Keyring, Origin, Prune, PullError, Pulled, Removed};

/// The UID of a pod: the name of its sandbox.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PodUid(pub String);

/// One run of one container: `NAME.ATTEMPT` inside its pod.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ContainerId {
    /// Container name.
    pub name: String,
    /// 0 for the first run.
    pub attempt: u32,
}

impl ContainerId {
    /// The stable, globally unique text form used in `containerID: adieu://…`.
    pub fn global(&self, pod: &PodUid) -> String {
        format!("{}.{}.{}", pod.0, self.name, self.attempt)
    }
}

/// A pod's shared part: namespaces, network, cgroup, files all its containers see.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxSpec {
    /// Pod UID.
    pub uid: PodUid,
    /// Pod name (labels, log directory).
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Host name inside the pod.
    pub hostname: String,
    /// Its full name, if it has one; `/etc/hosts` knows it.
    pub fqdn: Option<String>,
    /// Use the host's network namespace instead of a pod address.
    pub host_network: bool,
    /// Lines of `/etc/resolv.conf`; `None` copies the host's.
    pub resolv_conf: Option<String>,
    /// See and be seen by the host's processes.
    pub host_pid: bool,
    /// Use the host's System V IPC, message queues and shared memory.
    pub host_ipc: bool,
    /// All containers see each other's processes, under a first process that belongs to none of them.
    pub share_pids: bool,
    /// Kernel settings of the pod's own namespaces, by name and value.
    pub sysctls: Vec<(String, String)>,
    /// Further lines of `/etc/hosts`: an address and its names.
    pub host_aliases: Vec<(String, Vec<String>)>,
    /// Volumes in memory that its containers share; they last as long as the sandbox.
    pub memory_volumes: Vec<MemoryVolume>,
    /// Ports of the node that lead to the pod. None of a pod on the host's network, whose ports are the node's anyway.
    pub host_ports: Vec<HostPort>,
    /// How many processes and threads all its containers may have together.
    pub pids_max: Option<u64>,
    /// What all its containers are given together: its weight among pods, and limits that they share.
    pub resources: Resources,
    /// None of its containers asks for anything: it gets what all others leave.
    pub best_effort: bool,
}

/// A port of the node that leads to a port of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostPort {
    /// Of which protocol.
    pub protocol: Protocol,
    /// At which address of the node; `0.0.0.0` or `::` for all of its kind.
    pub host_ip: IpAddr,
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
}

impl HostPort {
    /// Whether a packet could be for both.
    pub fn collides(&self, other: &Self) -> bool {
        let any = self.host_ip.is_unspecified() || other.host_ip.is_unspecified();
        let same_kind = self.host_ip.is_ipv4() == other.host_ip.is_ipv4();
        let same_port = self.protocol == other.protocol && self.host_port == other.host_port;
        same_port && (self.host_ip == other.host_ip || (any && same_kind))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.host_ip, self.host_port), self.protocol.name())
    }
}

/// What ports belong to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Protocol {
    /// The usual one.
    #[default]
    Tcp,
    /// Single packets.
    Udp,
    /// Streams of messages.
    Sctp,
}

impl Protocol {
    /// As IP numbers it.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// As Kubernetes names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// A volume in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryVolume {
    /// What mounts call it.
    pub name: String,
    /// The most it may hold; `None` leaves it to the kernel.
    pub size_bytes: Option<u64>,
    /// Whose group it is, besides root's; new files in it belong to that group.
    pub group: Option<u32>,
}

/// What a sandbox turned out to be.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(from = "SandboxRead")]
pub struct Sandbox {
    /// The pod's addresses, at most one of each kind, the one that counts first; none on the host's network.
    pub ips: Vec<IpAddr>,
}

impl Sandbox {
    /// The address that counts; `None` on the host's network.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ips.first().copied()
    }
}

/// A sandbox as it was written by this runtime, or by one that knew of one address only.
#[derive(Deserialize)]
#[serde(untagged)]
enum SandboxRead {
    Many { ips: Vec<IpAddr> },
    One { ip: Option<IpAddr> },
}

impl From<SandboxRead> for Sandbox {
    fn from(read: SandboxRead) -> Self {
        Self {
            ips: match read {
                SandboxRead::Many { ips } => ips,
                SandboxRead::One { ip } => ip.into_iter().collect(),
            },
        }
    }
}

/// One container to run. Everything is resolved: no Kubernetes words left.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSpec {
    /// Which container, which run.
    pub id: ContainerId,
    /// The image, as [`Image::id`] of an earlier `ensure_image`.
    pub image_id: String,
    /// Replaces the image's entrypoint (and drops its command) if not empty.
    pub command: Vec<String>,
    /// Replaces the image's command if not empty.
    pub args: Vec<String>,
    /// Set on top of the image's environment, in order, already expanded.
    pub env: Vec<(String, String)>,
    /// Replaces the image's working directory.
    pub working_dir: Option<String>,
    /// A terminal instead of pipes.
    pub tty: bool,
    /// Keep standard input open.
    pub stdin: bool,
    /// The first that attaches to standard input is the last: when it leaves, the input ends.
    pub stdin_once: bool,
    /// Mounts on top of the root file system.
    pub mounts: Vec<Mount>,
    /// Who to be; `None` means the image's user.
    pub user: Option<u32>,
    /// Primary group.
    pub group: Option<u32>,
    /// Extra groups.
    pub groups: Vec<u32>,
    /// None but those: what the image's `/etc/group` says of the user does not count (`supplementalGroupsPolicy: Strict`).
    pub strict_groups: bool,
    /// Read-only root file system.
    pub read_only_root: bool,
    /// All capabilities, all devices, no seccomp, nothing masked.
    pub privileged: bool,
    /// Forbid gaining privileges by exec (`allowPrivilegeEscalation: false`).
    pub no_new_privileges: bool,
    /// Capabilities to add, with or without `CAP_`.
    pub cap_add: Vec<String>,
    /// Capabilities to drop; `ALL` drops all.
    pub cap_drop: Vec<String>,
    /// Limits, applied where this kernel can.
    pub resources: Resources,
    /// Where the container may leave its last words (`terminationMessagePath`).
    pub termination_message_path: Option<String>,
    /// How readily the kernel kills it for want of memory, -1000 (never) to 1000 (first).
    pub oom_score_adj: Option<i32>,
    /// Nothing of `/proc` is hidden or read-only (`procMount: Unmasked`).
    pub unmasked_proc: bool,
    /// What it may ask of the kernel.
    pub seccomp: Seccomp,
    /// How much of its output is kept.
    pub log: LogLimits,
    /// Refuse to run as user 0, whoever says so (`runAsNonRoot`).
    pub must_not_be_root: bool,
    /// Sees, and ends with, the processes of this container of the pod, which must run (`targetContainerName`).
    pub beside: Option<String>,
}

/// How much output of one run is kept: a file is set aside when it is full, and the oldest goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLimits {
    /// When a file is full.
    pub file_bytes_max: u64,
    /// How many files there are at most, the one being written among them.
    pub files_max: usize,
}

impl Default for LogLimits {
    /// As much as upstream keeps.
    fn default() -> Self {
        Self { file_bytes_max: 10 << 20, files_max: 5 }
    }
}

/// A filter of system calls. A privileged container has none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Seccomp {
    /// The runtime's own profile.
    #[default]
    Default,
    /// None.
    Unconfined,
}

/// Something mounted into a container.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// What is shown.
    pub source: MountSource,
    /// A path below the source, made if it is missing; links may not lead out of the source.
    #[serde(default)]
    pub sub_path: Option<String>,
    /// Path inside the container.
    pub target: String,
    /// Read-only.
    pub read_only: bool,
    /// Which later mounts pass between host and container.
    #[serde(default)]
    pub propagation: Propagation,
}

/// What a mount shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MountSource {
    /// A file or directory of the host.
    Host(PathBuf),
    /// One of the pod's [`MemoryVolume`]s.
    Memory(String),
}

/// Which mounts made later pass between host and container.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Propagation {
    /// None.
    #[default]
    None,
    /// Those of the host become visible in the container.
    HostToContainer,
    /// As above, and those of the container become visible on the host.
    Bidirectional,
}

/// A container that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Started {
    /// Since when, wall clock, milliseconds.
    pub wall_ms: i64,
    /// What was asked for and this machine could not apply, in words.
    pub warnings: Vec<String>,
}

/// Resource limits.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resources {
    /// Hard memory limit.
    pub memory_bytes: Option<u64>,
    /// CPU limit in thousandths of a core.
    pub cpu_limit_millis: Option<u64>,
    /// CPU request in thousandths of a core (weight).
    pub cpu_request_millis: Option<u64>,
    /// Memory request: kept with the rest, nothing is made of it.
    pub memory_request_bytes: Option<u64>,
    /// Most processes.
    pub pids: Option<u64>,
}

/// How a container's first process ended, as its shim wrote it to disk before telling anyone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExitRecord {
    /// 0..=255, or 128 + signal.
    pub code: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<u8>,
    /// The kernel killed something in it for want of memory.
    pub oom: bool,
    /// Wall clock, milliseconds.
    pub wall_ms: i64,
    /// False when inferred because the shim itself died.
    pub seen: bool,
}

/// How an exec that outlives the agent (a hook) ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum HookRecord {
    /// It ran and ended with this code (128 + signal for signals).
    Exited {
        /// Zero if it did well.
        code: u8,
        /// The end of what it wrote, if it failed: at most 2 KiB. It may hold secrets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
    },
    /// It could not be run.
    Failed { message: String },
    /// It was ended by `cancel_hook`, or died with its container.
    Cancelled,
}

/// An image that is present.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Image {
    /// `sha256:…` of its configuration.
    pub id: String,
    /// Names it can be asked for by, fully qualified (`docker.io/library/busybox:latest`).
    pub names: Vec<String>,
    /// Unpacked size.
    pub size_bytes: u64,
    /// `StopSignal` of its configuration, as a number.
    pub stop_signal: Option<u8>,
    /// `User` of its configuration, unparsed.
    pub user: Option<String>,
    /// Environment of its configuration.
    pub env: BTreeMap<String, String>,
}

impl Image {
    /// How the API names the image that a container runs: the repository `wanted` is of, pinned to its digest there; by
    /// its id if no registry ever told a digest.
    pub fn reference(&self, wanted: &str) -> String {
        let wanted = wanted.parse::<crate::image::ImageName>().ok();
        let same = |name: &&String| match (&wanted, name.parse::<crate::image::ImageName>()) {
            (Some(wanted), Ok(name)) => name.is_same_repository(wanted),
            _ => false,
        };
        let mut pinned = self.names.iter().filter(|name| name.contains('@'));
        pinned.clone().find(same).or_else(|| pinned.next()).unwrap_or(&self.id).clone()
    }
}

/// Something to run inside a running container.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// With a terminal (then there is no stderr).
    pub tty: bool,
    /// With standard input.
    pub stdin: bool,
    /// With standard output.
    pub stdout: bool,
    /// With standard error.
    pub stderr: bool,
    /// Everything it starts ends when the session is dropped, or the one who asked dies; see [`Tether`].
    #[serde(default)]
    pub tethered: bool,
}

/// A running exec (or attach). Dropping the ends hangs up; the process is then left to its container, unless it is
/// tethered.
#[derive(Debug)]
pub struct ExecSession {
    /// Write end of its standard input; the terminal's master when there is a terminal.
    pub stdin: Option<OwnedFd>,
    /// Read end of its standard output; the terminal's master when there is a terminal.
    pub stdout: Option<OwnedFd>,
    /// Read end of its standard error.
    pub stderr: Option<OwnedFd>,
    /// Its exit code, once; an error if the runtime lost it.
    pub exit: oneshot::Receiver<u8>,
    /// What holds all it started, if that was asked for.
    pub tether: Option<Tether>,
}

/// Holds a program and everything it started. Dropped, by whatever cause, it kills all of them and nothing else.
#[derive(Debug)]
pub struct Tether(pub(crate) OwnedFd);

impl Tether {
    /// The program ended by itself: what it left running is its container's to keep.
    pub fn let_go(self) {
        // A shim that is gone holds nothing.
        let _ = rustix::io::write(&self.0, &[0]);
    }
}

/// What became of a signal.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Delivery {
    /// The kernel took it.
    Delivered,
    /// The kernel took it then, milliseconds of the boot clock, when it was asked for the first time.
    DeliveredBefore { boot_ms: u64 },
    /// There was nobody left to take it.
    AlreadyGone,
}

/// Everything the runtime knows of one pod.
#[derive(Clone, PartialEq, Debug)]
pub struct PodReport {
    /// The sandbox as it was asked for.
    pub spec: SandboxSpec,
    /// Its sandbox was completed and its shim answers. If not, `create_sandbox` makes or completes it.
    pub alive: bool,
    /// What it turned out to be.
    pub sandbox: Sandbox,
    /// Every run that was started and not yet forgotten.
    pub containers: Vec<ContainerReport>,
    /// Every hook that was asked for.
    pub hooks: Vec<HookReport>,
}

/// One container of a [`PodReport`].
#[derive(Clone, PartialEq, Debug)]
pub struct ContainerReport {
    /// Which run.
    pub id: ContainerId,
    /// The image it runs.
    pub image_id: String,
    /// What it was given, by its start or since.
    pub resources: Resources,
    /// When it was started, wall clock, milliseconds.
    pub started_wall_ms: i64,
    /// How it ended; `None` while it runs.
    pub exit: Option<ExitRecord>,
}

/// One hook of a [`PodReport`].
#[derive(Clone, PartialEq, Debug)]
pub struct HookReport {
    /// Of which run.
    pub id: ContainerId,
    /// The name it was given.
    pub hook: String,
    /// How it ended; `None` while it runs.
    pub outcome: Option<HookRecord>,
}

/// What the runtime tells unasked. Told again after a reattach if nobody heard it: readers must not count.
#[derive(Clone, PartialEq, Debug)]
pub enum RuntimeEvent {
    /// A container's first process ended, its exit is on disk and nothing of it runs any more.
    Exited { pod: PodUid, id: ContainerId, exit: ExitRecord },
    /// A hook ended and its outcome is on disk.
    HookEnded { pod: PodUid, id: ContainerId, hook: String, outcome: HookRecord },
}

/// What a running container uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerStats {
    /// Which run.
    pub id: ContainerId,
    /// Processor time since it was started, nanoseconds.
    pub cpu_nanos: u64,
    /// Memory that cannot be taken back without harm.
    pub memory_bytes: u64,
    /// Processes.
    pub processes: u64,
}

/// TCP connections of a pod at one moment, as its kernel counts them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Connections {
    /// Open, or closing with data still owed.
    pub established: usize,
    /// Being opened: the last packet of the handshake is not in yet.
    pub opening: usize,
    /// Opened, and not yet accepted by the program, over all listening sockets.
    pub unaccepted: usize,
}

/// Why the runtime could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No such image here.
    #[error("image {name:?} is not present")]
    ImageAbsent { name: String },
    /// The image name cannot be read.
    #[error("image name {name:?} is not valid: {why}")]
    ImageName { name: String, why: String },
    /// The registry did not give the image, or it is not one that can be run here.
    #[error(transparent)]
    Pull(Box<PullError>),
    /// No such sandbox, or its shim does not answer.
    #[error("pod {pod} has no sandbox")]
    NoSandbox { pod: String },
    /// No such container.
    #[error("container {container} is not running")]
    NoContainer { container: String },
    /// The program could not be started: the kernel's answer, in words that name the program.
    #[error("{message}")]
    Start { message: String },
    /// Anything else that the system refused.
    #[error("{doing}")]
    System { doing: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// What one run of a container uses of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerUsage {
    /// Which run.
    pub id: ContainerId,
    /// Bytes of memory, what is shared counted in part.
    pub memory: u64,
    /// Processes.
    pub processes: u64,
    /// Bytes on disk: what it wrote to its root, and its log.
    pub disk: u64,
    /// Files and directories there.
    pub inodes: u64,
}

/// What a run of a container has on disk: what it wrote to its root, and its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerStored {
    /// Which run.
    pub id: ContainerId,
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

type Result<T> = std::result::Result<T, RuntimeError>;

/// A container runtime.
pub trait Runtime: Send + Sync + 'static {
    /// The events, once: the first caller gets the receiver.
    fn events(&self) -> Option<mpsc::UnboundedReceiver<RuntimeEvent>>;
    /// All pods the runtime knows, after it has reattached to every shim.
    fn inventory(&self) -> impl Future<Output = Result<Vec<PodReport>>> + Send;
    /// Finds an image that is present, by any of its names, its id, or a name without registry and tag.
    fn ensure_image(&self, name: &str) -> impl Future<Output = Result<Image>> + Send;
    /// Finds an image as `ensure_image` does, and who may use it without asking its registry.
    fn find_image(&self, name: &str) -> impl Future<Output = Result<(Image, Origin)>> + Send;
    /// Asks the image's registry and makes present what the name stands for there. Dropping the future ends it at once.
    fn pull_image(&self, name: &str, keyring: &Keyring) -> impl Future<Output = Result<Pulled>> + Send;
    /// Removes images that may go; never one that a container uses.
    fn prune_images(&self, which: Prune) -> impl Future<Output = Result<Removed>> + Send;
    /// All images that are present.
    fn images(&self) -> impl Future<Output = Result<Vec<Image>>> + Send;
    /// Makes the pod's sandbox.
    fn create_sandbox(&self, spec: &SandboxSpec) -> impl Future<Output = Result<Sandbox>> + Send;
    /// Creates and starts a container; returns when its program runs (or was refused by exec).
    fn start_container(&self, pod: &PodUid, spec: &ContainerSpec) -> impl Future<Output = Result<Started>> + Send;
    /// Gives a running container other resources, and remembers that. Returns what this machine could not apply, in words;
    /// less memory than it uses is refused.
    fn set_resources(
        &self,
        pod: &PodUid,
        id: &ContainerId,
        resources: &Resources,
    ) -> impl Future<Output = Result<Vec<String>>> + Send;
    /// Gives a pod other resources as a whole, and remembers that; less memory than it uses is refused. What its containers have
    /// must fit: more is given to the pod first, and less to the pod last.
    fn set_pod_resources(&self, pod: &PodUid, resources: &Resources) -> impl Future<Output = Result<()>> + Send;
    /// Sends a signal to the container's first process, by pidfd; the same signal a second time is not sent again.
    fn signal(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> impl Future<Output = Result<Delivery>> + Send;
    /// Kills everything in the container, what escaped its first process included.
    fn kill(&self, pod: &PodUid, id: &ContainerId) -> impl Future<Output = Result<()>> + Send;
    /// Runs a program in a running container, with its streams.
    fn exec(&self, pod: &PodUid, id: &ContainerId, spec: &ExecSpec)
    -> impl Future<Output = Result<ExecSession>> + Send;
    /// Joins the streams of a container's first process, from now on; `command` is of no meaning. The session ends with
    /// the container, or when its reader falls too far behind.
    fn attach(
        &self,
        pod: &PodUid,
        id: &ContainerId,
        spec: &ExecSpec,
    ) -> impl Future<Output = Result<ExecSession>> + Send;
    /// Connects to a TCP port on the pod's own loopback.
    fn connect(&self, pod: &PodUid, port: u16) -> impl Future<Output = Result<OwnedFd>> + Send;
    /// Counts the pod's TCP connections to these local ports; to all if there are none. Of a pod on the host's network those
    /// that its own processes have open, and what has come to the ports they listen on and is not accepted yet.
    fn connections(&self, pod: &PodUid, ports: &[u16]) -> impl Future<Output = Result<Connections>> + Send;
    /// What each running container of the pod uses.
    fn stats(&self, pod: &PodUid) -> impl Future<Output = Result<Vec<ContainerStats>>> + Send;
    /// Sets the size of an exec's terminal.
    fn resize(&self, session: &ExecSession, columns: u16, rows: u16) -> Result<()>;
    /// Starts a program as a hook: a child of the shim, never started twice under one name, its outcome recorded.
    fn run_hook(
        &self,
        pod: &PodUid,
        id: &ContainerId,
        hook: &str,
        command: &[String],
    ) -> impl Future<Output = Result<()>> + Send;
    /// Ends a hook that still runs.
    fn cancel_hook(&self, pod: &PodUid, id: &ContainerId, hook: &str) -> impl Future<Output = Result<()>> + Send;
    /// The log file of a run (CRI format: `TIME STREAM F|P LINE`); may not exist yet. Full ones are beside it, by the
    /// same name with a growing number behind.
    fn log_path(&self, pod: &PodUid, id: &ContainerId) -> PathBuf;
    /// The container's last words, at most the last 4096 bytes; `None` if it left none.
    fn termination_message(&self, pod: &PodUid, id: &ContainerId) -> impl Future<Output = Option<String>> + Send;
    /// Kills and removes everything of the pod: processes, mounts, namespaces, cgroups, addresses, and all files but
    /// its logs, which can be read until the pod is forgotten.
    /// Returns when no process of it is left; slow kernel work behind that goes on in the background.
    fn remove_sandbox(&self, pod: &PodUid) -> impl Future<Output = Result<()>> + Send;
    /// What each run of the pod's containers uses of the machine, looked up now.
    fn usage(&self, pod: &PodUid) -> impl Future<Output = Result<Vec<ContainerUsage>>> + Send;
    /// What each run of the pod's containers has on disk: part of its usage, without a look at its processes.
    fn stored(&self, pod: &PodUid) -> impl Future<Output = Result<Vec<ContainerStored>>> + Send;
    /// Resolves when the files of all sandboxes removed before are deleted, or cannot be: what they took is free again.
    fn tidied(&self) -> impl Future<Output = ()> + Send;
    /// Deletes the logs of a pod whose sandbox is gone.
    fn forget_logs(&self, pod: &PodUid) -> impl Future<Output = Result<()>> + Send;
    /// Removes what the runtime keeps between pods (links, rules, routes, cgroup roots). For `adieu down`.
    fn tear_down(&self) -> impl Future<Output = Result<()>> + Send;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_sandbox_written_before_pods_could_have_two_addresses_is_read() {
        let read = |text: &str| serde_json::from_str::<Sandbox>(text).unwrap();
        assert_eq!(read(r#"{"ip":"10.86.0.2"}"#).ip(), Some([10, 86, 0, 2].into()));
        assert_eq!(read(r#"{"ip":null}"#), Sandbox::default());
        let both = Sandbox { ips: vec!["10.86.0.2".parse().unwrap(), "fd00::2".parse().unwrap()] };
        assert_eq!(read(&serde_json::to_string(&both).unwrap()), both);
    }

    #[test]
    fn ports_collide_within_a_kind_of_address() {
        let port = |ip: &str| HostPort {
            protocol: Protocol::Tcp,
            host_ip: ip.parse().unwrap(),
            host_port: 80,
            container_port: 8080,
        };
        for (one, other, collide) in [
            ("0.0.0.0", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("::", "2001:db8::1", true),
            ("::", "192.0.2.1", false),
        ] {
            assert_eq!(port(one).collides(&port(other)), collide, "{one} {other}");
            assert_eq!(port(other).collides(&port(one)), collide, "{other} {one}");
        }
        assert_eq!(
            (port("::").to_string(), port("0.0.0.0").to_string()),
            ("[::]:80/TCP".into(), "0.0.0.0:80/TCP".into())
        );
    }
}
