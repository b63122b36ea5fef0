//! One run of a container: what is asked for, and how it ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ContainerId;

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
