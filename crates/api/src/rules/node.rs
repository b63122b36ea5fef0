//! Nodes: status through its own endpoint, what can be allocated defaults to what there is.

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
