//! Kinds served as data, whose controllers live elsewhere: autoscalers, ingresses.

use k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler as OldAutoscaler;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use serde_json::{Value, json};

use super::served::stored_only;
use super::value::{list, put, word};
use super::{Rules, names, typed_as};
use crate::kinds::Face;
use crate::meta;
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
