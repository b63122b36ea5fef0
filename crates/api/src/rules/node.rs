//! Nodes: status through its own endpoint, what can be allocated defaults to what there is, and what a node says about itself
//! keeps new pods away in the same breath.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{Rules, names, typed_as};
use crate::meta;
use crate::status::Cause;

pub(crate) struct NodeRules;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl Rules for NodeRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Node>(object)
    }

    fn default(&self, object: &mut Value) {
        // Upstream writes both structs even when they are empty.
        meta::child_mut(object, "spec");
        let status = meta::child_mut(object, "status");
        if let Some(capacity) = status.get("capacity").and_then(Value::as_object).cloned()
            && !capacity.is_empty()
        {
            let allocatable = status.entry("allocatable").or_insert_with(|| json!({}));
            for (name, quantity) in capacity {
                if allocatable.get(&name).is_none() {
                    allocatable[name] = quantity;
                }
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        for (index, taint) in object["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
            let field = |key: &str| format!("spec.taints[{index}].{key}");
            let key = taint["key"].as_str().unwrap_or_default();
            if let Some(text) = names::qualified(key) {
                causes.push(Cause::invalid(field("key"), key, &text));
            }
            match taint["effect"].as_str().unwrap_or_default() {
                "" => causes.push(Cause::required(field("effect"), "")),
                effect if !EFFECTS.contains(&effect) => {
                    causes.push(Cause::not_supported(field("effect"), effect, &EFFECTS));
                }
                _ => {}
            }
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let was = old["spec"]["providerID"].as_str().unwrap_or_default();
        if !was.is_empty() && new["spec"]["providerID"].as_str() != Some(was) {
            let text = "node updates may not change providerID except from \"\" to valid";
            causes.push(Cause::forbidden("spec.providerID", text));
        }
    }
}

/// Which taint keeps new pods away from a node whose condition has this state. A node that never said that it is ready is not.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Makes the taints of `node` follow its conditions and whether it is cordoned, and notes when pods were asked to leave, so
/// that whoever counts their time needs no memory of its own.
pub fn taint_by_condition(old: Option<&Value>, node: &mut Value, now: Timestamp) {
    let state = |kind: &str| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind);
        found.and_then(|condition| condition["status"].as_str())
    };
    let mut wanted: Vec<&str> = Vec::new();
    for (kind, holds, key) in BY_CONDITION {
        if state(kind).or(Some("False").filter(|_| kind == "Ready")) == Some(holds) {
            wanted.push(key);
        }
    }
    if node["spec"]["unschedulable"] == Value::Bool(true) {
        wanted.push(UNSCHEDULABLE);
    }
    let is_ours = |key: &str| key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(.., ours)| *ours == key);
    let spec = meta::child_mut(node, "spec");
    let mut taints = spec.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    taints.retain(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        taint["effect"] != "NoSchedule" || !is_ours(key) || wanted.contains(&key)
    });
    for key in wanted {
        if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule") {
            taints.push(json!({ "key": key, "effect": "NoSchedule", "timeAdded": crate::time::seconds(now) }));
        }
    }
    let before = |taint: &Value| {
        let stored = old.and_then(|old| old["spec"]["taints"].as_array()).into_iter().flatten();
        let same = |key: &str, other: &Value| other.get(key) == taint.get(key);
        stored.into_iter().find(|other| ["key", "value", "effect"].iter().all(|key| same(key, other))).cloned()
    };
    for taint in taints.iter_mut().filter(|taint| taint["effect"] == "NoExecute" && taint["timeAdded"].is_null()) {
        let since = before(taint).map(|before| before["timeAdded"].clone()).filter(Value::is_string);
        taint["timeAdded"] = since.unwrap_or_else(|| json!(crate::time::seconds(now)));
    }
    match taints.is_empty() {
        true => drop(spec.remove("taints")),
        false => drop(spec.insert("taints".to_owned(), Value::Array(taints))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn keys(node: &Value) -> Vec<String> {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints
            .map(|it| {
                let word = |key: &str| it[key].as_str().unwrap_or_default();
                format!("{}:{}", word("key").trim_start_matches("node.kubernetes.io/"), word("effect"))
            })
            .collect()
    }

    fn node(conditions: &[(&str, &str)], spec: Value) -> Value {
        let conditions: Vec<_> = conditions.iter().map(|(kind, is)| json!({ "type": kind, "status": is })).collect();
        json!({ "metadata": { "name": "n" }, "spec": spec, "status": { "conditions": conditions } })
    }

    fn tainted(mut node: Value) -> Value {
        taint_by_condition(None, &mut node, at(0));
        node
    }

    #[test]
    fn taints_follow_conditions() {
        let keys_of = |conditions: &[(&str, &str)]| keys(&tainted(node(conditions, json!({}))));
        assert_eq!(keys_of(&[]), ["not-ready:NoSchedule"], "it never said that it is ready");
        assert_eq!(keys_of(&[("Ready", "True")]), [""; 0]);
        assert_eq!(keys_of(&[("Ready", "False")]), ["not-ready:NoSchedule"]);
        assert_eq!(keys_of(&[("Ready", "Unknown"), ("DiskPressure", "Unknown")]), ["unreachable:NoSchedule"]);
        let short = [("Ready", "True"), ("MemoryPressure", "True"), ("DiskPressure", "True"), ("PIDPressure", "True")];
        let expected = ["memory-pressure:NoSchedule", "disk-pressure:NoSchedule", "pid-pressure:NoSchedule"];
        assert_eq!(keys_of(&short), expected);
        let cordoned = tainted(node(&[("Ready", "True")], json!({ "unschedulable": true })));
        assert_eq!(keys(&cordoned), ["unschedulable:NoSchedule"]);
    }

    #[test]
    fn taints_set_by_users_are_kept() {
        let theirs = json!([{ "key": "dedicated", "effect": "NoSchedule", "value": "x" },
            { "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" },
            { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
        let ready = tainted(node(&[("Ready", "True")], json!({ "taints": theirs })));
        assert_eq!(keys(&ready), ["dedicated:NoSchedule", "unreachable:NoExecute"]);
        assert!(ready["spec"]["taints"][0].get("timeAdded").is_none());
        assert!(tainted(node(&[("Ready", "True")], json!({})))["spec"].get("taints").is_none(), "no empty list");
    }

    #[test]
    fn no_execute_taint_keeps_its_time_added() {
        let evicting = || json!({ "taints": [{ "key": "k", "value": "v", "effect": "NoExecute" }] });
        let first = tainted(node(&[("Ready", "True")], evicting()));
        assert_eq!(first["spec"]["taints"][0]["timeAdded"], crate::time::seconds(at(0)));
        let mut again = node(&[("Ready", "True")], evicting());
        taint_by_condition(Some(&first), &mut again, at(9));
        assert_eq!(again["spec"]["taints"], first["spec"]["taints"]);
    }
}
