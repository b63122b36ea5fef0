//! What the node tells people about its pods and about itself.

use std::sync::Arc;

use client::{Grade, about_node, about_pod};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use lifecycle::{Event, EventKind};
use timeline::Clock;

/// Who events come from, as `kubectl describe` shows it.
const COMPONENT: &str = "kubelet";

/// Takes events; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    recorder: client::Recorder,
    node: String,
}

impl Recorder {
    /// A recorder and the work of storing what it is given, which ends with the last recorder.
    pub fn start(client: kube::Client, node: String, clock: Clock) -> (Self, impl Future<Output = ()> + Send) {
        let wall = Arc::new(move || crate::timestamp(&clock));
        let (recorder, recording) = client::Recorder::start(client, COMPONENT, Some(node.clone()), wall);
        (Self { recorder, node }, recording)
    }

    /// Tells people `event` about `pod`.
    pub fn record(&self, pod: &Pod, event: Event) {
        let field_path = event.container.as_ref().map(|c| field_path(pod, &c.0));
        self.recorder.tell(about_pod(pod, field_path), grade(event.kind), &event.reason, event.message);
    }

    /// Tells people something about another object.
    pub fn record_about(&self, about: ObjectReference, kind: EventKind, reason: &str, message: String) {
        self.recorder.tell(about, grade(kind), reason, message);
    }

    /// Tells people something about the node itself.
    pub fn record_own(&self, kind: EventKind, reason: &str, message: String) {
        self.recorder.tell(about_node(&self.node), grade(kind), reason, message);
    }
}

fn grade(kind: EventKind) -> Grade {
    match kind {
        EventKind::Normal => Grade::Normal,
        EventKind::Warning => Grade::Warning,
    }
}

fn field_path(pod: &Pod, container: &str) -> String {
    let spec = pod.spec.as_ref();
    let is_init = spec.is_some_and(|s| s.init_containers.iter().flatten().any(|c| c.name == container));
    let is_ephemeral = spec.is_some_and(|s| s.ephemeral_containers.iter().flatten().any(|c| c.name == container));
    let list = match (is_init, is_ephemeral) {
        (true, _) => "initContainers",
        (_, true) => "ephemeralContainers",
        (false, false) => "containers",
    };
    format!("spec.{list}{{{container}}}")
}
