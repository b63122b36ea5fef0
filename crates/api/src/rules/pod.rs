//! Pods: defaults, validation, what may change later, and how they are bound and evicted.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

pub(super) use super::value::{list, word};
use super::{Rules, names, typed_as};
use crate::status::Cause;
use crate::{meta, pod};

pub(crate) mod admission;
pub(crate) mod binding;
pub(crate) mod budget;
mod container;
pub(crate) mod defaults;
pub(crate) mod disruption;
mod dns;
mod downward;
mod ephemeral;
mod handler;
mod resize;
mod restart;
mod scheduling;
mod security;
mod update;
pub(crate) mod validate;
mod volume;

pub(crate) struct PodRules;

impl Rules for PodRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Pod>(object)
    }

    fn default(&self, object: &mut Value) {
        defaults::apply(object);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        admission::admit(object);
        object["status"] = json!({ "phase": "Pending", "qosClass": pod::computed_qos_class(object).as_str() });
        if !list(&object["spec"], "schedulingGates").is_empty() {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            object["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
                "reason": "SchedulingGated", "message": message, "lastProbeTime": null,
                "lastTransitionTime": object["metadata"]["creationTimestamp"].clone() }]);
        }
        Ok(())
    }

    /// Set once by admission; a client that leaves them out does not mean to remove them.
    fn before_update(&self, old: &Value, new: &mut Value) {
        let spec = meta::child_mut(new, "spec");
        for key in ["priority", "preemptionPolicy"] {
            if !spec.contains_key(key)
                && let Some(value) = old["spec"].get(key)
            {
                spec.insert(key.to_owned(), value.clone());
            }
        }
        admission::tolerate(spec);
    }

    fn before_status_update(&self, old: &Value, new: &mut Value) {
        let status = meta::child_mut(new, "status");
        if !status.contains_key("qosClass")
            && let Some(class) = old["status"].get("qosClass")
        {
            status.insert("qosClass".to_owned(), class.clone());
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate::spec(&object["spec"], causes);
    }

    /// They are added to a pod that runs, through their own endpoint.
    fn validate_create(&self, object: &Value, causes: &mut Vec<Cause>) {
        if !list(&object["spec"], "ephemeralContainers").is_empty() {
            causes.push(Cause::forbidden("spec.ephemeralContainers", "cannot be set on create"));
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        update::validate(old, new, causes);
    }

    fn before_part_update(&self, part: &str, old: &Value, new: &mut Value) {
        match part {
            "resize" => resize::keep_all_else(old, new),
            _ => ephemeral::keep_all_else(old, new),
        }
    }

    fn validate_part_update(&self, part: &str, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        match part {
            "resize" => resize::validate_update(old, new, causes),
            _ => ephemeral::validate_update(old, new, causes),
        }
    }

    fn validate_status_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        update::validate_status(old, new, causes);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        if names::label(meta::name(object)).is_some() {
            warnings.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS \
                 label is recommended: [{}]",
                names::label(meta::name(object)).unwrap_or_default()
            ));
        }
        warnings
    }
}

/// Every container list of a pod's spec that can hold containers.
pub(super) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
