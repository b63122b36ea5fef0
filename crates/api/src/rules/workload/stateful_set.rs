//! StatefulSets: pods with names and volumes of their own, in order.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

use super::{
    default_template, int_or_percent, not_above_all, not_negative, template_warnings, validate_selector,
    validate_template_with,
};
use crate::meta;
use crate::rules::storage;
use crate::rules::value::{child, each_mut, list, put, word};
use crate::rules::{Rules, typed_as};
use crate::status::Cause;

pub(crate) struct StatefulSetRules;

/// What may still change after creation.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

impl Rules for StatefulSetRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<StatefulSet>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "replicas", 1);
        put(spec, "podManagementPolicy", "OrderedReady");
        put(spec, "revisionHistoryLimit", 10);
        let strategy = child(spec, "updateStrategy");
        put(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            put(child(strategy, "rollingUpdate"), "partition", 0);
        }
        let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
        put(retention, "whenDeleted", "Retain");
        put(retention, "whenScaled", "Retain");
        for claim in each_mut(spec, "volumeClaimTemplates") {
            put(claim, "kind", "PersistentVolumeClaim");
            put(claim, "apiVersion", "v1");
            storage::claim_defaults(claim);
            child(claim, "status").insert("phase".to_owned(), json!("Pending"));
        }
        default_template(spec);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "replicas": 0, "availableReplicas": 0 });
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        validate_selector(spec, "statefulset", causes);
        not_negative(spec, "spec", &["replicas", "minReadySeconds", "revisionHistoryLimit"], causes);
        let claims: Vec<&str> = list(spec, "volumeClaimTemplates").iter().map(meta::name).collect();
        validate_template_with(&spec["template"], &claims, "spec.template", &["Always"], causes);
        let policies = ["OrderedReady", "Parallel"];
        let policy = word(spec, "podManagementPolicy");
        if !policies.contains(&policy) {
            causes.push(Cause::not_supported("spec.podManagementPolicy", policy, &policies));
        }
        let strategies = ["RollingUpdate", "OnDelete"];
        let strategy = word(&spec["updateStrategy"], "type");
        if !strategies.contains(&strategy) {
            causes.push(Cause::not_supported("spec.updateStrategy.type", strategy, &strategies));
        }
        let rolling = &spec["updateStrategy"]["rollingUpdate"];
        not_negative(rolling, "spec.updateStrategy.rollingUpdate", &["partition"], causes);
        let field = "spec.updateStrategy.rollingUpdate.maxUnavailable";
        not_above_all(&rolling["maxUnavailable"], field, causes);
        if int_or_percent(&rolling["maxUnavailable"], field, causes) == Some(0) {
            causes.push(Cause::invalid(field, rolling["maxUnavailable"].clone(), "cannot be 0"));
        }
        not_negative(&spec["ordinals"], "spec.ordinals", &["start"], causes);
        for when in ["whenDeleted", "whenScaled"] {
            let said = word(&spec["persistentVolumeClaimRetentionPolicy"], when);
            if !["Delete", "Retain"].contains(&said) {
                let field = format!("spec.persistentVolumeClaimRetentionPolicy.{when}");
                causes.push(Cause::not_supported(field, said, &["Delete", "Retain"]));
            }
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(&object["spec"]["template"], "spec.template")
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let fixed = |object: &Value| {
            let mut spec = object["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.retain(|key, _| !CHANGEABLE.contains(&key.as_str()));
            }
            spec
        };
        if fixed(old) != fixed(new) {
            let text = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                        'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                        'minReadySeconds' are forbidden";
            causes.push(Cause::forbidden("spec", text));
        }
    }
}
