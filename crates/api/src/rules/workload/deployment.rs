//! Deployments: a template, how many, and how one template replaces another.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::{
    default_template, immutable, int_or_percent, not_above_all, not_negative, template_warnings, validate_selector,
    validate_template,
};
use crate::meta;
use crate::rules::value::{child, put, word};
use crate::rules::{Rules, typed_as};
use crate::status::Cause;

pub(crate) struct DeploymentRules;

impl Rules for DeploymentRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Deployment>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "replicas", 1);
        put(spec, "revisionHistoryLimit", 10);
        put(spec, "progressDeadlineSeconds", 600);
        let strategy = child(spec, "strategy");
        put(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = child(strategy, "rollingUpdate");
            put(rolling, "maxUnavailable", "25%");
            put(rolling, "maxSurge", "25%");
        }
        default_template(spec);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({});
        Ok(())
    }

    /// A new annotation may be meant for the controller, as upstream has it.
    fn counts_as_change(&self, old: &Value, new: &Value) -> bool {
        old["spec"] != new["spec"] || old["metadata"]["annotations"] != new["metadata"]["annotations"]
    }

    /// Annotations pass, because the controller writes the revision there; labels do not.
    fn before_status_update(&self, old: &Value, new: &mut Value) {
        let metadata = meta::meta_mut(new);
        match old["metadata"].get("labels") {
            Some(labels) => drop(metadata.insert("labels".to_owned(), labels.clone())),
            None => drop(metadata.remove("labels")),
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        validate_selector(spec, "deployment", causes);
        not_negative(spec, "spec", &["replicas", "minReadySeconds", "revisionHistoryLimit"], causes);
        validate_template(&spec["template"], "spec.template", &["Always"], causes);
        let strategy = &spec["strategy"];
        match word(strategy, "type") {
            "Recreate" if strategy["rollingUpdate"].is_object() => {
                let text = "may not be specified when strategy `type` is 'Recreate'";
                causes.push(Cause::forbidden("spec.strategy.rollingUpdate", text));
            }
            "Recreate" => {}
            "RollingUpdate" => rolling(&strategy["rollingUpdate"], "spec.strategy.rollingUpdate", causes),
            other => causes.push(Cause::not_supported("spec.strategy.type", other, &["Recreate", "RollingUpdate"])),
        }
        let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
        if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64().filter(|deadline| *deadline <= ready) {
            let text = "must be greater than minReadySeconds";
            causes.push(Cause::invalid("spec.progressDeadlineSeconds", deadline, text));
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(&object["spec"]["template"], "spec.template")
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        immutable(old, new, "spec.selector", causes);
    }

    /// Names of ReplicaSets are made with this number: one that fell would lead to a name that is taken.
    fn validate_status_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let count = |object: &Value| object["status"]["collisionCount"].as_i64();
        if count(new).unwrap_or(0) < count(old).unwrap_or(0) {
            let written = new["status"]["collisionCount"].clone();
            causes.push(Cause::invalid("status.collisionCount", written, "cannot be decremented"));
        }
    }
}

/// Both at 0 would leave a rollout nothing to do.
fn rolling(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    let unavailable = int_or_percent(&value["maxUnavailable"], &format!("{field}.maxUnavailable"), causes);
    let surge = int_or_percent(&value["maxSurge"], &format!("{field}.maxSurge"), causes);
    if unavailable == Some(0) && surge == Some(0) {
        let text = "may not be 0 when `maxSurge` is 0";
        causes.push(Cause::invalid(format!("{field}.maxUnavailable"), value["maxUnavailable"].clone(), text));
    }
    not_above_all(&value["maxUnavailable"], &format!("{field}.maxUnavailable"), causes);
}
