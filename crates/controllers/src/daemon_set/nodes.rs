//! Nodes and pods as far as DaemonSets care.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::pod;
use frame::Now;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Node, Taint};
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::availability::{Since, available_at, ready_since};
use crate::controller_history::REVISION_LABEL;
use crate::controller_ref::controller_of;
use crate::pod::PodView;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// What a node says while it shuts down.
const SHUTTING_DOWN: &str = "node is shutting down";

#[derive(Clone, PartialEq, Debug)]
pub(super) struct NodeFacts {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) is_ready: bool,
    /// What starts there now would be ended at once.
    pub(super) is_closing: bool,
}

impl NodeFacts {
    pub(super) fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().find(|it| it.type_ == "Ready");
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let is_ready = ready.is_some_and(|it| it.status == "True");
        let says = ready.and_then(|it| it.message.as_deref()).unwrap_or_default();
        Self {
            labels: node.labels().clone(),
            is_closing: !is_ready && says == SHUTTING_DOWN || taints.iter().any(|it| it.key == OUT_OF_SERVICE),
            taints,
            is_ready,
        }
    }
}

/// How a pod ended, if it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Failed,
    Succeeded,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct PodFacts {
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    pub(super) controller: Option<Arc<str>>,
    /// The node that it is on, or is meant for.
    pub(super) node: Option<Arc<str>>,
    pub(super) is_bound: bool,
    pub(super) leaves: bool,
    pub(super) end: Option<End>,
    ready: Option<Since>,
    pub(super) created: Option<Timestamp>,
}

impl PodFacts {
    pub(super) fn of(pod: &PodView, known: Option<&Self>, now: Now) -> Self {
        let node = pod.node().or_else(|| aimed_at(pod.spec.affinity.as_deref()?));
        Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            labels: pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            controller: controller_of(&pod.metadata).map(|owner| owner.uid.as_str().into()),
            node: node.map(Arc::from),
            is_bound: pod.node().is_some(),
            leaves: pod::is_terminating(pod),
            end: match pod.status.phase.as_deref() {
                Some("Failed") => Some(End::Failed),
                Some("Succeeded") => Some(End::Succeeded),
                _ => None,
            },
            ready: ready_since(pod, known.and_then(|known| known.ready), now),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// The hash of the template that it was made of.
    pub(super) fn hash(&self) -> &str {
        self.label(REVISION_LABEL).unwrap_or_default()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    pub(super) fn available_at(&self, min_ready_seconds: i32) -> Option<Instant> {
        self.ready.map(|since| available_at(since, min_ready_seconds))
    }

    pub(super) fn is_available(&self, min_ready_seconds: i32, now: Now) -> bool {
        self.available_at(min_ready_seconds).is_some_and(|at| at <= now.instant)
    }
}

/// The one node that an affinity names.
fn aimed_at(affinity: &Affinity) -> Option<&str> {
    let required = affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let named = fields.find(|it| it.key == "metadata.name" && it.operator == "In")?;
    match named.values.as_deref() {
        Some([node]) => Some(node),
        _ => None,
    }
}
