//! Volumes, claims and classes, as data: nothing here binds or mounts.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Map, Value, json};

use super::value::{child, list, put, word};
use super::workload::immutable;
use super::{Rules, typed_as};
use crate::amounts::Amounts;
use crate::meta;
use crate::status::Cause;
use crate::volume::{LOCAL_PATH_PROVISIONER, NO_PROVISIONER};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// What a volume's spec holds besides its source.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Keeps a claim that a pod uses.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume that a claim has.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Adds `finalizer`, unless it is there.
pub fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = meta::meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|own| own == finalizer) => {}
        Some(list) => list.push(json!(finalizer)),
        // What is no list is refused for that.
        None => {}
    }
}

/// What a claim says when it says nothing.
pub(super) fn claim_defaults(claim: &mut Map<String, Value>) {
    put(child(claim, "spec"), "volumeMode", "Filesystem");
}

pub(crate) struct ClaimRules;

impl Rules for ClaimRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<PersistentVolumeClaim>(object)
    }

    fn default(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            claim_defaults(map);
        }
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "phase": "Pending" });
        protect(object, CLAIM_PROTECTION);
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        access_modes(&object["spec"], causes);
        if object["spec"]["resources"]["requests"]["storage"].is_null() {
            causes.push(Cause::required("spec.resources[storage]", ""));
        }
    }

    /// A claim may be bound, and grow once it is; nothing else. One that was asked to grow further than it could be
    /// given may ask for less again, but not for less than it has.
    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let bound = word(&old["status"], "phase") == "Bound" && word(&new["status"], "phase") == "Bound";
        let fixed = |object: &Value| {
            let mut spec = object["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                let requests = spec.get_mut("resources").and_then(|own| own.get_mut("requests"));
                if let Some(requests) = requests.and_then(Value::as_object_mut).filter(|_| bound) {
                    requests.remove("storage");
                }
                if word(&old["spec"], "volumeName").is_empty() {
                    spec.remove("volumeName");
                }
                spec.remove("volumeAttributesClassName");
                // Said once, by whoever made a default class after it.
                if old["spec"]["storageClassName"].is_null() && word(&old["spec"], "volumeName").is_empty() {
                    spec.remove("storageClassName");
                }
            }
            spec
        };
        if fixed(old) != fixed(new) {
            let text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                        bound claims";
            causes.push(Cause::forbidden("spec", text));
        }
        let size = |amounts: &Value| Amounts::of(amounts).get("storage");
        let asked = |object: &Value| size(&object["spec"]["resources"]["requests"]);
        if let (Some(before), Some(after), Some(has)) = (asked(old), asked(new), size(&old["status"]["capacity"]))
            && after < before
            && after <= has
        {
            let text = "field can not be less than status.capacity";
            causes.push(Cause::forbidden("spec.resources.requests.storage", text));
        }
    }
}

pub(crate) struct VolumeRules;

impl Rules for VolumeRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<PersistentVolume>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "persistentVolumeReclaimPolicy", "Retain");
        put(spec, "volumeMode", "Filesystem");
        if let Some(path) = spec.get_mut("hostPath").and_then(Value::as_object_mut)
            && !path.contains_key("type")
        {
            path.insert("type".to_owned(), json!(""));
        }
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        // Nobody has to look at it first: one that is not promised to a claim is there for any.
        let phase = if object["spec"]["claimRef"].is_object() { "Pending" } else { "Available" };
        object["status"] = json!({ "phase": phase });
        protect(object, VOLUME_PROTECTION);
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        access_modes(spec, causes);
        if spec["capacity"]["storage"].is_null() {
            causes.push(Cause::required("spec.capacity", ""));
        }
        let policies = ["Delete", "Recycle", "Retain"];
        let policy = word(spec, "persistentVolumeReclaimPolicy");
        if !policies.contains(&policy) {
            causes.push(Cause::not_supported("spec.persistentVolumeReclaimPolicy", policy, &policies));
        }
        match source(object).len() {
            0 => causes.push(Cause::required("spec", "must specify a volume type")),
            1 => {}
            _ => causes.push(Cause::forbidden("spec", "may not specify more than 1 volume type")),
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        if source(old) != source(new) {
            let text = "spec.persistentvolumesource is immutable after creation";
            causes.push(Cause::forbidden("spec.persistentvolumesource", text));
        }
        immutable(old, new, "spec.volumeMode", causes);
    }
}

/// Where a volume's bytes are: the part of the spec that names it.
fn source(volume: &Value) -> Map<String, Value> {
    let fields = volume["spec"].as_object().into_iter().flatten();
    let sources = fields.filter(|(key, _)| !NOT_SOURCES.contains(&key.as_str()));
    sources.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn access_modes(spec: &Value, causes: &mut Vec<Cause>) {
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    for mode in modes.iter().filter_map(Value::as_str).filter(|mode| !MODES.contains(mode)) {
        causes.push(Cause::not_supported("spec.accessModes", mode, &MODES));
    }
}

pub(crate) struct StorageClassRules;

impl Rules for StorageClassRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<StorageClass>(object)
    }

    fn default(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            put(map, "reclaimPolicy", "Delete");
            put(map, "volumeBindingMode", "Immediate");
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        if word(object, "provisioner").is_empty() {
            causes.push(Cause::required("provisioner", ""));
        }
        for (key, words) in [
            ("reclaimPolicy", &["Delete", "Retain"][..]),
            ("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"][..]),
        ] {
            if !words.contains(&word(object, key)) {
                causes.push(Cause::not_supported(key, word(object, key), words));
            }
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable(old, new, field, causes);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        match word(object, "provisioner") {
            LOCAL_PATH_PROVISIONER | NO_PROVISIONER => Vec::new(),
            other => vec![format!("nothing in this cluster makes volumes as {other:?}; somebody else has to")],
        }
    }
}
