//! Kinds served as data, whose controllers live elsewhere: autoscalers, ingresses.

use k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler as OldAutoscaler;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use serde_json::{Map, Value, json};

use super::served::stored_only;
use super::value::{list, put, word};
use super::{Rules, names, typed_as};
use crate::kinds::Face;
use crate::meta;
use crate::quantity::Quantity;
use crate::status::Cause;

pub(crate) struct AutoscalerRules;

impl Rules for AutoscalerRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<HorizontalPodAutoscaler>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::Subdomain
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "minReplicas", 1);
        default_behavior(spec);
        if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            let cpu = json!({ "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } });
            spec.insert("metrics".to_owned(), json!([{ "type": "Resource", "resource": cpu }]));
        }
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "desiredReplicas": 0 });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        let (low, high) = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(0));
        if low < 1 {
            causes.push(Cause::invalid("spec.minReplicas", low, "must be greater than or equal to 1"));
        }
        if high < 1 {
            causes.push(Cause::invalid("spec.maxReplicas", high, "must be greater than 0"));
        } else if high < low {
            causes.push(Cause::invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"));
        }
        for key in ["kind", "name"] {
            if word(&spec["scaleTargetRef"], key).is_empty() {
                causes.push(Cause::required(format!("spec.scaleTargetRef.{key}"), ""));
            }
        }
        for key in ["scaleUp", "scaleDown"] {
            validate_scaling_rules(&spec["behavior"][key], &format!("spec.behavior.{key}"), causes);
        }
    }
}

/// The longest time in seconds that recommendations are remembered for, and that a policy speaks of.
const WINDOW_MAX: i64 = 3600;
const PERIOD_MAX: i64 = 1800;

/// Whoever says something of the behaviour has the usual values for what is not said.
fn default_behavior(spec: &mut Map<String, Value>) {
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let policy = |kind: &str, value: i64| json!({ "type": kind, "value": value, "periodSeconds": 15 });
    let usual = [
        ("scaleUp", json!([policy("Pods", 4), policy("Percent", 100)])),
        ("scaleDown", json!([policy("Percent", 100)])),
    ];
    for (key, policies) in usual {
        let rules = behavior.entry(key).or_insert(Value::Null);
        if rules.is_null() {
            *rules = json!({});
        }
        let Some(rules) = rules.as_object_mut() else { continue };
        put(rules, "selectPolicy", "Max");
        put(rules, "policies", policies);
        if key == "scaleUp" {
            put(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

fn validate_scaling_rules(rules: &Value, field: &str, causes: &mut Vec<Cause>) {
    if rules.is_null() {
        return;
    }
    let mut at_most = |field: String, value: &Value, most: i64| match value.as_i64() {
        Some(seconds) if seconds > most => {
            causes.push(Cause::invalid(field, seconds, &format!("must be less than or equal to {most}")));
        }
        _ => {}
    };
    let window = &rules["stabilizationWindowSeconds"];
    at_most(format!("{field}.stabilizationWindowSeconds"), window, WINDOW_MAX);
    for (at, policy) in list(rules, "policies").iter().enumerate() {
        at_most(format!("{field}.policies[{at}].periodSeconds"), &policy["periodSeconds"], PERIOD_MAX);
    }
    if let Some(seconds) = window.as_i64().filter(|seconds| *seconds < 0) {
        let field = format!("{field}.stabilizationWindowSeconds");
        causes.push(Cause::invalid(field, seconds, "must be greater than or equal to zero"));
    }
    let select = word(rules, "selectPolicy");
    if !["Max", "Min", "Disabled"].contains(&select) {
        causes.push(Cause::not_supported(format!("{field}.selectPolicy"), select, &["Disabled", "Max", "Min"]));
    }
    let policies = list(rules, "policies");
    if policies.is_empty() {
        causes.push(Cause::required(format!("{field}.policies"), "must specify at least one Policy"));
    }
    for (at, policy) in policies.iter().enumerate() {
        let kind = word(policy, "type");
        if !["Pods", "Percent"].contains(&kind) {
            causes.push(Cause::not_supported(format!("{field}.policies[{at}].type"), kind, &["Percent", "Pods"]));
        }
        for key in ["value", "periodSeconds"] {
            let number = policy[key].as_i64().unwrap_or(0);
            if number <= 0 {
                let field = format!("{field}.policies[{at}].{key}");
                causes.push(Cause::invalid(field, number, "must be greater than zero"));
            }
        }
    }
    let tolerance = word(rules, "tolerance");
    if !tolerance.is_empty() && tolerance.parse::<Quantity>().is_ok_and(|tolerance| tolerance.milli_ceil() < 0) {
        let field = format!("{field}.tolerance");
        causes.push(Cause::invalid(field, tolerance, "must be greater than or equal to 0"));
    }
}

/// Autoscalers of `autoscaling/v1`, which know one metric.
pub(crate) struct OldAutoscalerRules;

impl Rules for OldAutoscalerRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<OldAutoscaler>(object)
    }
}

/// How they are read from and written to what is stored. Other metrics than the processor's have no place in the older
/// shape, nor has the behaviour: whoever writes through it leaves them as they are.
pub(crate) static OLD_FACE: Face = Face {
    of: ("autoscaling", "v2", "horizontalpodautoscalers"),
    shown: |stored| {
        let mut shown = stored.clone();
        let spec = meta::child_mut(&mut shown, "spec");
        let metrics = spec.remove("metrics").unwrap_or_default();
        let cpu = metrics.as_array().into_iter().flatten().find(|metric| metric["resource"]["name"] == "cpu");
        if let Some(percent) = cpu.and_then(|cpu| cpu["resource"]["target"]["averageUtilization"].as_i64()) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), json!(percent));
        }
        spec.remove("behavior");
        let status = meta::child_mut(&mut shown, "status");
        status.retain(|key, _| !matches!(key.as_str(), "currentMetrics" | "conditions"));
        status.entry("currentReplicas").or_insert(json!(0));
        shown
    },
    stored: |mut sent| {
        let spec = meta::child_mut(&mut sent, "spec");
        if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
            let target = json!({ "type": "Utilization", "averageUtilization": percent });
            let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
            spec.insert("metrics".to_owned(), json!([metric]));
        }
        sent
    },
    keep: |old, new| {
        let is_shown = |metric: &&Value| metric["resource"]["name"] == "cpu";
        let others = list(&old["spec"], "metrics").iter().filter(|metric| !is_shown(metric)).cloned();
        let own: Vec<Value> = list(&new["spec"], "metrics").to_vec();
        let metrics: Vec<Value> = own.into_iter().chain(others).collect();
        let spec = meta::child_mut(new, "spec");
        if !metrics.is_empty() {
            spec.insert("metrics".to_owned(), Value::from(metrics));
        }
        if let Some(behavior) = old["spec"].get("behavior") {
            spec.insert("behavior".to_owned(), behavior.clone());
        }
        let status = meta::child_mut(new, "status");
        for key in ["currentMetrics", "conditions"] {
            if let Some(value) = old["status"].get(key) {
                status.insert(key.to_owned(), value.clone());
            }
        }
    },
};

pub(crate) struct IngressRules;

impl Rules for IngressRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Ingress>(object)
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "loadBalancer": {} });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        if list(spec, "rules").is_empty() && !spec["defaultBackend"].is_object() {
            let text = "either `defaultBackend` or `rules` must be specified";
            causes.push(Cause::invalid("spec", spec.clone(), text));
        }
        for (index, rule) in list(spec, "rules").iter().enumerate() {
            for (at, path) in list(&rule["http"], "paths").iter().enumerate() {
                let field = |key: &str| format!("spec.rules[{index}].http.paths[{at}].{key}");
                let types = ["Exact", "ImplementationSpecific", "Prefix"];
                match word(path, "pathType") {
                    "" => causes.push(Cause::required(field("pathType"), "pathType must be specified")),
                    kind if !types.contains(&kind) => {
                        causes.push(Cause::not_supported(field("pathType"), kind, &types));
                    }
                    "ImplementationSpecific" => {}
                    _ if !word(path, "path").starts_with('/') => {
                        causes.push(Cause::invalid(field("path"), word(path, "path"), "must be an absolute path"));
                    }
                    _ => {}
                }
            }
        }
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        stored_only("Ingress")
    }
}

pub(crate) struct IngressClassRules;

impl Rules for IngressClassRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<IngressClass>(object)
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        if word(&object["spec"], "controller").is_empty() {
            causes.push(Cause::required("spec.controller", ""));
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        super::workload::immutable(old, new, "spec.controller", causes);
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        stored_only("IngressClass")
    }
}
