//! DaemonSets: one pod per node.

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use super::{
    default_template, immutable, int_or_percent, not_above_all, not_negative, template_warnings, validate_selector,
    validate_template,
};
use crate::meta;
use crate::rules::value::{child, list, put, word};
use crate::rules::{Rules, typed_as};
use crate::status::Cause;

pub(crate) struct DaemonSetRules;

impl Rules for DaemonSetRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<DaemonSet>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "revisionHistoryLimit", 10);
        let strategy = child(spec, "updateStrategy");
        put(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = child(strategy, "rollingUpdate");
            put(rolling, "maxUnavailable", 1);
            put(rolling, "maxSurge", 0);
        }
        default_template(spec);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        validate_selector(spec, "daemonset", causes);
        not_negative(spec, "spec", &["minReadySeconds", "revisionHistoryLimit"], causes);
        validate_template(&spec["template"], "spec.template", &["Always"], causes);
        match word(&spec["updateStrategy"], "type") {
            "OnDelete" => {}
            "RollingUpdate" => {
                let rolling = &spec["updateStrategy"]["rollingUpdate"];
                one_of_the_two(rolling, "spec.updateStrategy.rollingUpdate", causes);
            }
            other => {
                let words = ["RollingUpdate", "OnDelete"];
                causes.push(Cause::not_supported("spec.updateStrategy.type", other, &words));
            }
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut warnings = template_warnings(&object["spec"]["template"], "spec.template");
        warnings.extend(port_warning(&object["spec"]));
        warnings
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        immutable(old, new, "spec.selector", causes);
    }
}

/// Two pods of one node cannot have the same port of the node, so the new one would wait for the old one for ever.
fn port_warning(spec: &Value) -> Option<String> {
    let surge = &spec["updateStrategy"]["rollingUpdate"]["maxSurge"];
    let surges = surge.as_i64().is_some_and(|surge| surge > 0) || surge.as_str().is_some_and(|surge| surge != "0%");
    let template = &spec["template"]["spec"];
    let containers = ["containers", "initContainers"].into_iter().flat_map(|key| list(template, key));
    let mut ports = containers.flat_map(|container| list(container, "ports"));
    let has_port = ports.any(|port| port["hostPort"].as_i64().is_some_and(|port| port > 0));
    (surges && has_port).then(|| {
        "spec.updateStrategy.rollingUpdate.maxSurge: the pods have host ports, so a new one cannot run beside the old one of \
         its node and an update will not go on"
            .to_owned()
    })
}

/// A node's pod is replaced by stopping it first or by starting the next one first, not both.
fn one_of_the_two(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|key| {
        let field = format!("{field}.{key}");
        not_above_all(&value[key], &field, causes);
        int_or_percent(&value[key], &field, causes)
    });
    match (unavailable.unwrap_or(0), surge.unwrap_or(0)) {
        (0, 0) => causes.push(Cause::required(format!("{field}.maxUnavailable"), "cannot be 0 when maxSurge is 0")),
        (_, 0) | (0, _) => {}
        (_, _) => {
            let text = "may not be set when maxUnavailable is non-zero";
            causes.push(Cause::invalid(format!("{field}.maxSurge"), value["maxSurge"].clone(), text));
        }
    }
}
