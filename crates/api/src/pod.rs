//! What a pod is, asks for and tolerates: one answer to each question, for whoever asks.
//!
//! A [`View`] is a pod borrowed from wherever it is: a stored JSON value, a typed [`Pod`](k8s_openapi::api::core::v1::Pod), or an
//! excerpt that somebody else keeps. The questions are functions of this module; their answers are upstream's. Nothing is written
//! out or copied to ask them.

mod host_ports;
mod json;
mod qos;
mod resources;
mod tolerations;
mod typed;
mod view;

pub use host_ports::{HostIp, HostPort, Protocol, host_ports};
pub use qos::{QosClass, computed_qos_class, qos_class};
pub(crate) use resources::is_pod_level_resource;
pub use resources::{ResourceOptions, limits, requests};
pub use tolerations::{Taint, Toleration, tolerates, toleration};
pub use view::{Condition, Container, ContainerStatus, Ports, ResourceList, Resources, View};

/// On a mirror pod: the hash of the static pod that it shows.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Where a pod comes from: `file` for static pods.
pub const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

/// Whether a pod in this phase never leaves it.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Whether the pod has ended for good.
pub fn is_terminal(pod: &impl View) -> bool {
    pod.phase().is_some_and(is_terminal_phase)
}

/// Whether the pod was asked to leave: its object is deleted, and still there.
pub fn is_terminating(pod: &impl View) -> bool {
    pod.has_deletion_timestamp()
}

/// Whether the pod says that it is ready.
pub fn is_ready(pod: &impl View) -> bool {
    has_condition(pod, "Ready")
}

/// Whether the pod's condition of this type is true.
pub fn has_condition(pod: &impl View, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| condition.status == "True")
}

/// The pod's condition of this type: the first, if there are several.
pub fn condition<'a>(pod: &'a impl View, kind: &str) -> Option<Condition<'a>> {
    pod.conditions().find(|condition| condition.kind == kind)
}

/// The priority of the pod; 0 if it was given none.
pub fn priority(pod: &impl View) -> i32 {
    pod.priority().unwrap_or(0)
}

/// Whether this object only shows a static pod.
pub fn is_mirror(pod: &impl View) -> bool {
    pod.annotation(MIRROR_ANNOTATION).is_some()
}

/// Whether the pod comes from a file of its node. What comes from the API has a version there, whatever its annotations say.
pub fn is_static(pod: &impl View) -> bool {
    !pod.has_resource_version() && pod.annotation(SOURCE_ANNOTATION) == Some("file") && !is_mirror(pod)
}

#[cfg(test)]
mod tests;
