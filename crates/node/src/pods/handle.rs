//! A pod in the routing table: where its driver is told, and where the pod stands at this node's door.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::Input;
use tokio::sync::mpsc;

use super::PodReader;
use super::admission::Claim;
use super::placement::Placed;
use crate::driver::Told;
use crate::node_resources::NodeResources;
use crate::statics::full_name;

/// One driver, as the table knows it.
pub(super) struct Handle {
    pub(super) inbox: mpsc::Sender<Told>,
    pub(super) reader: PodReader,
    /// The newest sight that the driver was told.
    pub(super) newest: Arc<Pod>,
    pub(super) source: Source,
    pub(super) stage: Stage,
    /// What it takes of the node.
    pub(super) claim: Claim,
    /// Other resources that it was granted, while its driver keeps that.
    pub(super) granting: Option<Granting>,
}

/// A grant that is being kept. Until then the pod takes as much as before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granting {
    pub(super) had: NodeResources,
    pub(super) asks: NodeResources,
    /// Of the object that asks for it.
    pub(super) generation: i64,
    /// It had to wait for it.
    pub(super) was_deferred: bool,
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
        if api::pod::is_static(pod) { Self::File { full_name: full_name(pod) } } else { Self::Api }
    }
}

impl Handle {
    /// The newest sight of it.
    pub(super) fn pod(&self) -> Arc<Pod> {
        Arc::clone(&self.newest)
    }

    /// Tells its driver something. One that is gone needs nothing.
    pub(super) async fn send(&self, told: Told) {
        let _ = self.inbox.send(told).await;
    }

    /// Tells its worker something.
    pub(super) async fn tell(&self, input: Input) {
        self.send(Told::Input(input)).await;
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
        may_run && !self.reader.record.get().has_freed_resources()
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
        matches!(self.stage, Stage::Leaving(_)) || self.reader.record.get().is_leaving()
    }
}
