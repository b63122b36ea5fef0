//! What may change about a pod after it was made: images, a deadline that comes closer, more tolerations.

use serde_json::{Value, json};

use super::restart::may_run_again;
use super::{list, scheduling, word};
use crate::status::Cause;

const ONLY: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Refuses every other change of the spec.
pub(super) fn validate(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (was, is) = (&old["spec"], &new["spec"]);
    if was == is {
        return;
    }
    for key in ["containers", "initContainers"] {
        if list(was, key).len() != list(is, key).len() {
            causes.push(Cause::forbidden(format!("spec.{key}"), "pod updates may not add or remove containers"));
            return;
        }
    }
    deadline(was, is, causes);
    for toleration in list(was, "tolerations") {
        if !list(is, "tolerations").iter().any(|t| same_toleration(t, toleration)) {
            let text = "existing toleration can not be modified except its tolerationSeconds";
            causes.push(Cause::forbidden("spec.tolerations", text));
            break;
        }
    }
    gates(was, is, causes);
    if is_gated(was) {
        scheduling::validate_tightening(was, is, causes);
    }
    if with_changes_allowed(was, is) != *is {
        let text = format!("{ONLY}\n{}", difference(was, is));
        causes.push(Cause::forbidden("spec", &text));
    }
}

/// `was`, with everything that may change taken from `is`.
fn with_changes_allowed(was: &Value, is: &Value) -> Value {
    let mut allowed = was.clone();
    for key in ["containers", "initContainers"] {
        for (index, container) in allowed[key].as_array_mut().into_iter().flatten().enumerate() {
            container["image"] = is[key][index]["image"].clone();
        }
        // Indexing must not leave a null where there was nothing.
        if was.get(key).is_none()
            && let Some(map) = allowed.as_object_mut()
        {
            map.remove(key);
        }
    }
    let grace_was_negative = was["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0);
    let mut free = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    if grace_was_negative && is["terminationGracePeriodSeconds"] == json!(1) {
        free.push("terminationGracePeriodSeconds");
    }
    if is_gated(was) {
        free.push("nodeSelector");
        allow_node_affinity(is, &mut allowed);
    }
    if let Some(map) = allowed.as_object_mut() {
        for key in free {
            match is.get(key) {
                Some(value) => map.insert(key.to_owned(), value.clone()),
                None => map.remove(key),
            };
        }
    }
    allowed
}

/// Nobody has looked for a node for it yet.
fn is_gated(spec: &Value) -> bool {
    !list(spec, "schedulingGates").is_empty()
}

/// Puts the node affinity of `is` in the place of the one that is `allowed` so far.
fn allow_node_affinity(is: &Value, allowed: &mut Value) {
    let Some(spec) = allowed.as_object_mut() else { return };
    let wanted = is["affinity"].get("nodeAffinity").cloned();
    let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
    if let Some(affinity) = affinity.as_object_mut() {
        match wanted {
            Some(wanted) => affinity.insert("nodeAffinity".to_owned(), wanted),
            None => affinity.remove("nodeAffinity"),
        };
        if affinity.is_empty() && is.get("affinity").is_none() {
            spec.remove("affinity");
        }
    }
}

fn deadline(was: &Value, is: &Value, causes: &mut Vec<Cause>) {
    let field = "spec.activeDeadlineSeconds";
    match (was[field_name(field)].as_i64(), is[field_name(field)].as_i64()) {
        (Some(before), Some(after)) if after > before => {
            causes.push(Cause::invalid(field, after, "must be less than or equal to previous value"));
        }
        (Some(_), None) => {
            causes.push(Cause::invalid(field, Value::Null, "must not update from a positive integer to nil value"));
        }
        _ => {}
    }
}

fn field_name(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

fn same_toleration(a: &Value, b: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|key| word(a, key) == word(b, key))
}

/// Gates may open, none may be added.
fn gates(was: &Value, is: &Value, causes: &mut Vec<Cause>) {
    let known: Vec<&str> = list(was, "schedulingGates").iter().map(|gate| word(gate, "name")).collect();
    for (index, gate) in list(is, "schedulingGates").iter().enumerate() {
        if !known.contains(&word(gate, "name")) {
            let text = "only deletion is allowed, but found new scheduling gate";
            causes.push(Cause::forbidden(format!("spec.schedulingGates[{index}]"), text));
        }
    }
}

/// The fields that differ, one per line: enough to see which change was refused.
fn difference(was: &Value, is: &Value) -> String {
    let mut lines = Vec::new();
    collect(was, is, "spec", &mut lines);
    lines.join("\n")
}

fn collect(was: &Value, is: &Value, path: &str, lines: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let get = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                collect(&get(a), &get(b), &format!("{path}.{key}"), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                collect(a, b, &format!("{path}[{index}]"), lines);
            }
        }
        (a, b) if a != b => lines.push(format!("  {path}: {a} -> {b}")),
        _ => {}
    }
}

/// The class is decided at birth; a container that has ended for good does not come back.
pub(super) fn validate_status(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["status"]["qosClass"].is_string() && old["status"]["qosClass"] != new["status"]["qosClass"] {
        causes.push(Cause::invalid("status.qosClass", new["status"]["qosClass"].clone(), "field is immutable"));
    }
    if list(&new["status"], "podIPs").len() > 2 {
        causes.push(Cause::invalid(
            "status.podIPs",
            new["status"]["podIPs"].clone(),
            "may specify no more than one IP for each IP family",
        ));
    }
    for before in list(&old["status"], "containerStatuses") {
        let Some(code) = before["state"]["terminated"]["exitCode"].as_i64() else { continue };
        if may_run_again(&old["spec"], word(before, "name"), code) {
            continue;
        }
        let after = list(&new["status"], "containerStatuses").iter().find(|s| word(s, "name") == word(before, "name"));
        if after.is_some_and(|status| !status["state"]["terminated"].is_object()) {
            let text = "may not be transitioned to non-terminated state";
            let name = word(before, "name");
            causes.push(Cause::forbidden(format!("status.containerStatuses[{name}].state"), text));
        }
    }
}
