//! Namespaces: always labelled with their own name, born `Active`, held by `spec.finalizers`.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::{Rules, names, typed_as};
use crate::meta;
use crate::pod_security;
use crate::status::Cause;

pub(crate) struct NamespaceRules;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Rules for NamespaceRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Namespace>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::Label
    }

    fn default(&self, object: &mut Value) {
        let name = meta::name(object).to_owned();
        if !name.is_empty() {
            meta::set_label(object, NAME_LABEL, &name);
        }
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "phase": "Active" });
        let spec = meta::child_mut(object, "spec");
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == "kubernetes")
        {
            list.push(json!("kubernetes"));
        }
        Ok(())
    }

    fn validate_create(&self, object: &Value, causes: &mut Vec<Cause>) {
        pod_security::validate_labels(object, causes);
    }

    /// Labels that were wrong before may stay so; they must not keep the rest from being changed.
    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        pod_security::validate_labels(old, &mut before);
        pod_security::validate_labels(new, &mut after);
        if before != after {
            causes.extend(after);
        }
    }

    /// The list has its own endpoint, `finalize`.
    fn before_update(&self, old: &Value, new: &mut Value) {
        super::keep(new, old, "spec");
    }
}
