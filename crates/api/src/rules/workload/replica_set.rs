//! ReplicaSets and their elder, ReplicationControllers: so many pods of one template.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use serde_json::{Value, json};

use super::{default_template, immutable, not_negative, template_warnings, validate_selector, validate_template};
use crate::meta;
use crate::rules::value::put;
use crate::rules::{Rules, typed_as};
use crate::status::Cause;

pub(crate) struct ReplicaSetRules;

impl Rules for ReplicaSetRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ReplicaSet>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "replicas", 1);
        default_template(spec);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "replicas": 0 });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        // Upstream says this word here.
        validate_selector(spec, "deployment", causes);
        not_negative(spec, "spec", &["replicas", "minReadySeconds"], causes);
        validate_template(&spec["template"], "spec.template", &["Always"], causes);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(&object["spec"]["template"], "spec.template")
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        immutable(old, new, "spec.selector", causes);
    }
}

pub(crate) struct ReplicationControllerRules;

impl Rules for ReplicationControllerRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ReplicationController>(object)
    }

    /// Selector and labels come from the template where they are not said.
    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "replicas", 1);
        default_template(spec);
        let labels = spec["template"]["metadata"]["labels"].clone();
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            if spec.get("selector").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty) {
                spec.insert("selector".to_owned(), labels.clone());
            }
            if meta::labels(object).next().is_none() {
                meta::meta_mut(object).insert("labels".to_owned(), labels);
            }
        }
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "replicas": 0 });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        let selector = spec["selector"].as_object();
        if selector.is_none_or(serde_json::Map::is_empty) {
            causes.push(Cause::required("spec.selector", ""));
        }
        let labels = &spec["template"]["metadata"]["labels"];
        if selector.into_iter().flatten().any(|(key, value)| labels[key] != *value) {
            let text = "`selector` does not match template `labels`";
            causes.push(Cause::invalid("spec.template.metadata.labels", labels.clone(), text));
        }
        not_negative(spec, "spec", &["replicas", "minReadySeconds"], causes);
        validate_template(&spec["template"], "spec.template", &["Always"], causes);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(&object["spec"]["template"], "spec.template")
    }
}
