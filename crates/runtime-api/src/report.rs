//! What a runtime knows of its pods, asked and unasked.

use serde::{Deserialize, Serialize};

use crate::{ContainerId, ExitRecord, PodUid, Resources, Sandbox, SandboxSpec};

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
