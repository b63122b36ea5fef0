//! `pods/binding`: giving a pod its node.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::word;
use crate::kinds::Kind;
use crate::status::{Cause, Status};
use crate::{meta, time};

/// The pod on its node, scheduled. 409 when it already has one or is leaving.
pub fn bind(kind: &Kind, pod: &Value, binding: &Value, now: Timestamp) -> Result<Value, Status> {
    let name = meta::name(pod);
    let target = &binding["target"];
    let mut causes = Vec::new();
    if !matches!(word(target, "kind"), "" | "Node") {
        causes.push(Cause::not_supported("target.kind", word(target, "kind"), &["Node", "<empty>"]));
    }
    let node = word(target, "name");
    if node.is_empty() {
        causes.push(Cause::required("target.name", ""));
    }
    if !causes.is_empty() {
        return Err(Status::invalid_of("Binding", "", name, causes));
    }
    let conflict = |message: String| Err(Status::conflict(&format!("{}/binding", kind.plural), name, &message));
    if !matches!(meta::uid(binding), "") && meta::uid(binding) != meta::uid(pod) {
        return conflict(format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            meta::uid(binding),
            meta::uid(pod)
        ));
    }
    if crate::pod::is_terminating(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let assigned = word(&pod["spec"], "nodeName");
    if !assigned.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {assigned:?}"));
    }
    if !super::list(&pod["spec"], "schedulingGates").is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    meta::child_mut(&mut bound, "spec").insert("nodeName".to_owned(), json!(node));
    // Where room was made for it matters no more.
    meta::child_mut(&mut bound, "status").remove("nominatedNodeName");
    set_condition(&mut bound, json!({ "type": "PodScheduled", "status": "True" }), now);
    Ok(bound)
}

/// Sets a condition of a pod; the transition time moves only when the status does.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value, now: Timestamp) {
    let status = meta::child_mut(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    condition["lastTransitionTime"] = json!(time::seconds(now));
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(existing) => {
            if existing["status"] == condition["status"] {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
            *existing = condition;
        }
        None => list.push(condition),
    }
}
