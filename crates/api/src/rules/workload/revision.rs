//! What workloads keep besides themselves: ControllerRevisions, and PodTemplates nobody runs.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplate;
use serde_json::Value;

use super::{default_template, immutable, validate_template};
use crate::rules::{Rules, typed_as};
use crate::status::Cause;

pub(crate) struct ControllerRevisionRules;

impl Rules for ControllerRevisionRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ControllerRevision>(object)
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        if object["data"].is_null() {
            causes.push(Cause::required("data", "data is mandatory"));
        }
        if let Some(revision) = object["revision"].as_i64().filter(|revision| *revision < 0) {
            causes.push(Cause::invalid("revision", revision, "must be greater than or equal to 0"));
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        immutable(old, new, "data", causes);
    }
}

pub(crate) struct PodTemplateRules;

impl Rules for PodTemplateRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<PodTemplate>(object)
    }

    fn default(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            default_template(map);
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_template(&object["template"], "template", &["Always", "OnFailure", "Never"], causes);
    }
}
