//! The quality-of-service class: who gives way first when memory is short.

use std::fmt;

use super::resources::is_pod_level_resource;
use super::view::{Resources, View};
use crate::quantity::Quantity;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// The QoS class of a pod; the first give way first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QosClass {
    /// No requests and no limits.
    BestEffort,
    /// Some requests or limits.
    Burstable,
    /// Requests equal to limits.
    Guaranteed,
}

impl QosClass {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The class that the pod was given; the computed one if it was given none.
pub fn qos_class(pod: &impl View) -> QosClass {
    match pod.qos_class() {
        Some("BestEffort") => QosClass::BestEffort,
        Some("Burstable") => QosClass::Burstable,
        Some("Guaranteed") => QosClass::Guaranteed,
        _ => computed_qos_class(pod),
    }
}

/// `Guaranteed` when every container has limits for cpu and memory and requests as much; `BestEffort` when none says anything;
/// `Burstable` otherwise. What the pod says as a whole, where it does, speaks for the containers.
pub fn computed_qos_class(pod: &impl View) -> QosClass {
    let own = pod.resources();
    if own.requests.names().chain(own.limits.names()).any(is_pod_level_resource) {
        return class_of(own);
    }
    let containers = pod.init_containers().chain(pod.containers());
    common(containers.map(|container| class_of(container.resources)))
}

fn class_of(resources: Resources<'_>) -> QosClass {
    common(COMPUTE.into_iter().map(|name| {
        let request = resources.requests.get(name).unwrap_or(Quantity::ZERO);
        let limit = resources.limits.get(name).unwrap_or(Quantity::ZERO);
        if request != limit {
            QosClass::Burstable
        } else if request.is_zero() {
            QosClass::BestEffort
        } else {
            QosClass::Guaranteed
        }
    }))
}

/// The class of all, if all are of one.
fn common(mut classes: impl Iterator<Item = QosClass>) -> QosClass {
    let Some(first) = classes.next() else { return QosClass::BestEffort };
    if classes.all(|class| class == first) { first } else { QosClass::Burstable }
}
