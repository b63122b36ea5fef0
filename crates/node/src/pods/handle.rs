//! A pod in the routing table: where its driver is told, and where the pod stands at this node's door.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{ContainerState, ContainerStatus, Input, PodPhase};
use tokio::sync::mpsc;

use super::PodEntry;
use super::admission::Claim;
use super::placement::Placed;
use crate::effects::lock;
use crate::statics::{full_name, is_static};

/// One driver, as the table knows it.
pub(super) struct Handle {
    pub(super) inbox: mpsc::Sender<Input>,
    pub(super) entry: PodEntry,
    pub(super) source: Source,
    pub(super) stage: Stage,
    /// What it takes of the node.
    pub(super) claim: Claim,
    /// The deletion last told to the worker: grace and timestamp.
    pub(super) told: Option<(i64, Timestamp)>,
    /// The generation last told to the worker, or first seen. What an earlier agent told may not have been written down.
    pub(super) generation: Option<i64>,
}

/// Where a pod comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The API has an object of it.
    Api,
    /// A file. Its successors wait for its name.
    File { full_name: String },
}

/// How far a pod is in being let in and let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not begun. Leaves when it is admitted, rejected or asked to leave.
    Waiting {
        /// Whether it may be on this node.
        placed: Placed,
        /// The event about its waiting was recorded.
        is_recorded: bool,
    },
    /// It was told to begin, or that it never will, in this life of the agent or an earlier one.
    Begun,
    /// It was asked to leave.
    Leaving(LeaveReason),
}

/// Why the table knows that a pod leaves. A later one outweighs those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LeaveReason {
    /// Its object is being deleted.
    Deleted,
    /// A critical pod preempted it.
    Preempted,
    /// No file asks for it any more, or nobody ever knew it.
    Unwanted,
    /// Its object was seen to go: the API will not speak of it again.
    ObjectGone,
}

impl Source {
    pub(super) fn of(pod: &Pod) -> Self {
        if is_static(pod) { Self::File { full_name: full_name(pod) } } else { Self::Api }
    }
}

impl Handle {
    /// The newest sight of it.
    pub(super) fn pod(&self) -> Arc<Pod> {
        lock(&self.entry.facts).pod.clone()
    }

    /// The name that its successors wait for, if it comes from a file.
    pub(super) fn full_name(&self) -> Option<&str> {
        match &self.source {
            Source::File { full_name } => Some(full_name),
            Source::Api => None,
        }
    }

    /// It leaves, if it did not before.
    pub(super) fn leave(&mut self, reason: LeaveReason) {
        self.stage = match self.stage {
            Stage::Leaving(before) => Stage::Leaving(before.max(reason)),
            Stage::Waiting { .. } | Stage::Begun => Stage::Leaving(reason),
        };
    }

    /// Whether somebody still asks for it, of a static pod.
    pub(super) fn is_wanted(&self) -> bool {
        self.stage != Stage::Leaving(LeaveReason::Unwanted)
    }

    /// Whether it holds resources: it has begun, and something of it may still run. What was never begun but only has to go
    /// may have left something running, too.
    pub(super) fn holds_resources(&self) -> bool {
        let may_run = self.stage == Stage::Begun || self.is_leaving();
        may_run && !self.entry.progress.borrow().has_freed_resources()
    }

    /// Whether it may still begin.
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. }) && !self.is_leaving()
    }

    /// Whether its object is being deleted, or is gone.
    pub(super) fn is_deleted(&self) -> bool {
        matches!(self.stage, Stage::Leaving(LeaveReason::Deleted | LeaveReason::ObjectGone))
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving(_)) || self.entry.progress.borrow().deadline.is_some()
    }
}

impl crate::driver::Progress {
    /// No process of the pod remains, and none will start: its resources are free.
    pub(super) fn has_freed_resources(&self) -> bool {
        // A phase that somebody else has written says nothing of what still runs.
        let runs = |container: &ContainerStatus| matches!(container.state, ContainerState::Running { .. });
        let is_over = matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed);
        self.at_rest || (is_over && !self.status.containers.iter().any(runs))
    }
}
