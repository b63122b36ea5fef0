//! Cluster policy: disruption budgets, priorities, runtimes, quotas and limits.

use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};

use super::value::{each_mut, list, put, word};
use super::workload::{immutable, int_or_percent};
use super::{Rules, names, typed_as, typed_with_conditions};
use crate::meta;
use crate::quantity::Quantity;
use crate::quota;
use crate::selector::object as selector;
use crate::status::Cause;

/// Priorities above this are the system's.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;
/// The classes that exist from the first start.
pub const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

pub(crate) struct BudgetRules;

impl Rules for BudgetRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_with_conditions::<PodDisruptionBudget>(object)
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] =
            json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            causes.push(Cause::invalid("spec", spec.clone(), "minAvailable and maxUnavailable cannot be both set"));
        }
        for key in ["minAvailable", "maxUnavailable"] {
            let field = format!("spec.{key}");
            let found = int_or_percent(&spec[key], &field, causes);
            if spec[key].is_string() && found.is_some_and(|percent| percent > 100) {
                causes.push(Cause::invalid(field, spec[key].clone(), "must not be greater than 100%"));
            }
        }
        selector::validate(&spec["selector"], "spec.selector", causes);
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        let policy = word(spec, "unhealthyPodEvictionPolicy");
        if !policy.is_empty() && !policies.contains(&policy) {
            causes.push(Cause::not_supported("spec.unhealthyPodEvictionPolicy", policy, &policies));
        }
    }
}

pub(crate) struct PriorityClassRules;

impl Rules for PriorityClassRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<PriorityClass>(object)
    }

    fn default(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            put(map, "preemptionPolicy", "PreemptLowerPriority");
            if map.get("globalDefault") == Some(&json!(false)) {
                map.remove("globalDefault");
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let (name, value) = (meta::name(object), object["value"].as_i64().unwrap_or(0));
        if name.starts_with("system-") {
            let is_default = object["globalDefault"] == Value::Bool(true);
            if is_default || !SYSTEM_CLASSES.iter().any(|(class, at, _)| *class == name && *at == value) {
                let text = "priority class names with 'system-' prefix are reserved for system use only. error: only \
                            the known system classes may have it";
                causes.push(Cause::forbidden("metadata.name", text));
            }
        } else if value > HIGHEST_PRIORITY {
            let text = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
            causes.push(Cause::forbidden("value", &text));
        }
        let policies = ["PreemptLowerPriority", "Never"];
        if !policies.contains(&word(object, "preemptionPolicy")) {
            causes.push(Cause::not_supported("preemptionPolicy", word(object, "preemptionPolicy"), &policies));
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        if old["value"] != new["value"] {
            causes.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        immutable(old, new, "preemptionPolicy", causes);
    }
}

pub(crate) struct RuntimeClassRules;

impl Rules for RuntimeClassRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<RuntimeClass>(object)
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let handler = word(object, "handler");
        if let Some(text) = names::label(handler) {
            causes.push(Cause::invalid("handler", handler, &text));
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        immutable(old, new, "handler", causes);
    }
}

/// What pods may be chosen by.
const SCOPES: [&str; 6] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"];

pub(crate) struct QuotaRules;

impl Rules for QuotaRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ResourceQuota>(object)
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({});
        meta::child_mut(object, "spec");
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        for (name, amount) in object["spec"]["hard"].as_object().into_iter().flatten() {
            if let Some(text) = names::qualified(name) {
                causes.push(Cause::invalid("spec.hard", name.as_str(), &text));
            } else if !quota::is_known(name) {
                let text = "must be a standard resource for quota";
                causes.push(Cause::invalid(format!("spec.hard[{name}]"), name.as_str(), text));
            }
            let amount = amount.as_str().and_then(|amount| amount.parse::<Quantity>().ok());
            if let Some(amount) = amount.filter(|amount| amount.is_negative()) {
                let text = "must be greater than or equal to 0";
                causes.push(Cause::invalid(format!("spec.hard[{name}]"), amount.to_string(), text));
            }
        }
        let scopes: Vec<&str> = list(&object["spec"], "scopes").iter().filter_map(Value::as_str).collect();
        let selected = list(&object["spec"]["scopeSelector"], "matchExpressions").iter();
        let selected: Vec<&str> = selected.map(|expression| word(expression, "scopeName")).collect();
        for (field, scopes) in [("spec.scopes", &scopes), ("spec.scopeSelector.matchExpressions.scopeName", &selected)]
        {
            if scopes.iter().any(|scope| !SCOPES.contains(scope)) {
                causes.push(Cause::invalid(field, json!(scopes), "unsupported scope"));
            }
            let both = |a: &str, b: &str| scopes.contains(&a) && scopes.contains(&b);
            if both("BestEffort", "NotBestEffort") || both("Terminating", "NotTerminating") {
                causes.push(Cause::invalid(field, json!(scopes), "conflicting scopes"));
            }
        }
        for (index, expression) in list(&object["spec"]["scopeSelector"], "matchExpressions").iter().enumerate() {
            let field = |key: &str| format!("spec.scopeSelector.matchExpressions[{index}].{key}");
            let (operator, operators) = (word(expression, "operator"), ["DoesNotExist", "Exists", "In", "NotIn"]);
            let empty = list(expression, "values").is_empty();
            match operator {
                "In" | "NotIn" if empty => {
                    let text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    causes.push(Cause::required(field("values"), text));
                }
                "Exists" | "DoesNotExist" if !empty => {
                    let text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    causes.push(Cause::invalid(field("values"), expression["values"].clone(), text));
                }
                _ if !operators.contains(&operator) => {
                    causes.push(Cause::invalid(field("operator"), operator, "not a valid selector operator"));
                }
                _ => {}
            }
        }
    }

    /// Another scope would count other pods than those that are there.
    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        if old["spec"]["scopes"] != new["spec"]["scopes"] {
            causes.push(Cause::invalid("spec.scopes", new["spec"]["scopes"].clone(), "field is immutable"));
        }
        immutable(old, new, "spec.scopeSelector", causes);
    }
}

pub(crate) struct LimitRangeRules;

impl Rules for LimitRangeRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<LimitRange>(object)
    }

    /// A container's default is its maximum, and what it asks for by default is what it gets, unless said otherwise.
    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        for limit in each_mut(spec, "limits").filter(|limit| limit.get("type") == Some(&json!("Container"))) {
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                let Some(source) = limit.get(from).and_then(Value::as_object).cloned() else { continue };
                let target = super::value::child(limit, to);
                for (name, amount) in source {
                    target.entry(name).or_insert(amount);
                }
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let mut seen = std::collections::BTreeSet::new();
        for (index, limit) in list(&object["spec"], "limits").iter().enumerate() {
            let field = |key: &str| format!("spec.limits[{index}].{key}");
            let kind = word(limit, "type");
            if kind.is_empty() {
                causes.push(Cause::required(field("type"), ""));
            } else if !seen.insert(kind) {
                causes.push(Cause::duplicate(field("type"), kind));
            }
            let amount = |key: &str, name: &str| limit[key][name].as_str()?.parse::<Quantity>().ok();
            for name in limit["min"].as_object().into_iter().flat_map(|map| map.keys()) {
                if let (Some(low), Some(high)) = (amount("min", name), amount("max", name))
                    && low > high
                {
                    let text = format!("min value {low} is greater than max value {high}");
                    causes.push(Cause::invalid(field(&format!("min[{name}]")), low.to_string(), &text));
                }
            }
        }
    }
}
