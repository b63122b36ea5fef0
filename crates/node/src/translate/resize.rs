//! Resources that were changed while a container runs (`pods/resize`): what it has, and that it has not got the rest yet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use lifecycle::Condition;

use super::container::quantity_millis;
use super::find_container;

/// The condition's name.
pub const PENDING: &str = "PodResizePending";
const MESSAGE: &str = "the node does not change what a running container has; it gets it when it is started again";

/// Whether a container that runs has something else than the pod asks for by now. `None`: there is nothing to say about it.
pub fn pending<'a>(
    pod: &Pod,
    statuses: impl Iterator<Item = &'a ContainerStatus>,
    stored: Option<&Vec<PodCondition>>,
) -> Option<Condition> {
    let mut behind: Vec<&str> = statuses
        .filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
        .filter(|status| {
            let asked = find_container(pod, &status.name).and_then(|container| container.resources.clone());
            status.resources.as_ref().is_some_and(|given| !same(given, &asked.unwrap_or_default()))
        })
        .map(|status| status.name.as_str())
        .collect();
    behind.sort_unstable();
    if !behind.is_empty() {
        let message = format!("{} ({MESSAGE})", behind.join(", "));
        return Some(Condition { holds: true, reason: Some("Infeasible".to_owned()), message: Some(message) });
    }
    // Once said, it has to be taken back.
    let said = stored.is_some_and(|list| list.iter().any(|condition| condition.type_ == PENDING));
    said.then_some(Condition { holds: false, reason: None, message: None })
}

/// `1` and `1000m` are the same.
fn same(given: &ResourceRequirements, asked: &ResourceRequirements) -> bool {
    let amounts = |map: &Option<BTreeMap<String, Quantity>>| -> [Option<u128>; 2] {
        ["cpu", "memory"].map(|name| map.as_ref().and_then(|map| map.get(name)).and_then(quantity_millis))
    };
    amounts(&given.limits) == amounts(&asked.limits) && amounts(&given.requests) == amounts(&asked.requests)
}
