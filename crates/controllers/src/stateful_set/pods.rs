//! A pod as far as StatefulSets care.

use std::sync::Arc;

use api::pod;
use frame::Now;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::availability::{Since, available_at, ready_since};
use crate::controller_history::REVISION_LABEL;
use crate::controller_ref::controller_of;
use crate::pod::PodView;

/// The first report of a pod comes with its start; dates have whole seconds.
const FIRST_REPORT: SignedDuration = SignedDuration::from_secs(2);

/// How far a pod has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Pending,
    Running,
    /// Succeeded or failed: it will not go on by itself.
    Ended,
    Unknown,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct PodFacts {
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    pub(super) controller: Option<Arc<str>>,
    pub(super) leaves: bool,
    pub(super) phase: Phase,
    ready: Option<Since>,
    /// It has not been ready since it started.
    pub(super) is_never_ready: bool,
}

impl PodFacts {
    pub(super) fn of(pod: &PodView, known: Option<&Self>, now: Now) -> Self {
        let ready = ready_since(pod, known.and_then(|known| known.ready), now);
        Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            labels: pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            controller: controller_of(&pod.metadata).map(|owner| owner.uid.as_str().into()),
            leaves: pod::is_terminating(pod),
            phase: match pod.status.phase.as_deref() {
                Some("Running") => Phase::Running,
                Some("Succeeded" | "Failed") => Phase::Ended,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            is_never_ready: ready.is_none() && !was_ready(pod),
            ready,
        }
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// The revision that it was made of.
    pub(super) fn revision(&self) -> &str {
        self.label(REVISION_LABEL).unwrap_or_default()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// It runs and is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.is_some()
    }

    /// From when on it is available, if it stays ready.
    pub(super) fn available_at(&self, min_ready_seconds: i32) -> Option<Instant> {
        self.ready.filter(|_| self.is_ready()).map(|since| available_at(since, min_ready_seconds))
    }

    pub(super) fn is_available(&self, min_ready_seconds: i32, now: Now) -> bool {
        self.available_at(min_ready_seconds).is_some_and(|at| at <= now.instant)
    }
}

/// Whether a pod that is not ready was so before: the condition changed after the pod had started.
fn was_ready(pod: &PodView) -> bool {
    let condition = pod.status.conditions.iter().find(|it| it.type_ == "Ready");
    let changed: Option<Timestamp> = condition.and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0);
    let started = pod.status.start_time.as_ref().map(|time| time.0);
    changed.zip(started).is_some_and(|(changed, started)| changed.duration_since(started) > FIRST_REPORT)
}
