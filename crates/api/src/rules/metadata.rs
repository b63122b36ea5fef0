//! Rules that every object's `metadata` obeys.

use serde_json::Value;

use super::names;
use crate::meta;
use crate::status::Cause;

const ANNOTATIONS_MAX: usize = 256 * 1024;
/// Finalizers without a domain that are older than the rule.
const BARE_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// What is wrong with the metadata.
pub(crate) fn validate(object: &Value, rule: names::Rule, causes: &mut Vec<Cause>) {
    let name = meta::name(object);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(text) = rule.complaint(name) {
        causes.push(Cause::invalid("metadata.name", name, &text));
    }
    for (key, value) in meta::labels(object) {
        if let Some(text) = names::qualified(key) {
            causes.push(Cause::invalid("metadata.labels", key, &text));
        }
        if let Some(text) = names::label_value(value) {
            causes.push(Cause::invalid("metadata.labels", value, &text));
        }
    }
    let mut size = 0;
    for (key, value) in meta::annotations(object) {
        size += key.len() + value.len();
        if let Some(text) = names::qualified(&key.to_ascii_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", key, &text));
        }
    }
    if size > ANNOTATIONS_MAX {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_MAX));
    }
    validate_finalizers(object, causes);
    validate_owners(object, causes);
}

fn validate_finalizers(object: &Value, causes: &mut Vec<Cause>) {
    let finalizers = meta::finalizers(object);
    for finalizer in &finalizers {
        if let Some(text) = names::qualified(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", *finalizer, &text));
        } else if !finalizer.contains('/') && !BARE_FINALIZERS.contains(finalizer) {
            let text = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid("metadata.finalizers", *finalizer, text));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let text = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", Value::from(finalizers), text));
    }
}

fn validate_owners(object: &Value, causes: &mut Vec<Cause>) {
    let owners = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, owner) in owners.iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner[key].as_str().unwrap_or_default().is_empty() {
                let field = format!("metadata.ownerReferences[{index}].{key}");
                causes.push(Cause::invalid(field, "", &format!("{key} must not be empty")));
            }
        }
    }
    for (index, owner) in owners.iter().enumerate() {
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            let text = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid(format!("metadata.ownerReferences[{index}]"), owner.clone(), text));
        }
    }
    if owners.iter().filter(|o| o["controller"] == Value::Bool(true)).count() > 1 {
        let text = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", Value::from(owners), text));
    }
}

/// Takes out references to an owner that is named already; answers what to say about it.
pub(crate) fn without_repeated_owners(object: &mut Value) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    let mut kept: Vec<Value> = Vec::new();
    let mut repeated = Vec::new();
    for owner in owners.iter() {
        if kept.contains(owner) {
            repeated.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            kept.push(owner.clone());
        }
    }
    if repeated.is_empty() {
        return None;
    }
    *owners = kept;
    repeated.sort();
    repeated.dedup();
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ))
}

/// Puts back what only the server writes. A grace period that differs is left for [`validate_update`] to refuse.
pub(crate) fn restore(old: &Value, new: &mut Value) {
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion"] {
        super::keep_meta(new, old, key);
    }
    let map = meta::meta_mut(new);
    map.remove("selfLink");
    if !map.contains_key("deletionGracePeriodSeconds")
        && let Some(seconds) = meta::deletion_grace_seconds(old)
    {
        map.insert("deletionGracePeriodSeconds".to_owned(), Value::from(seconds));
    }
    if !map.contains_key("generateName") {
        super::keep_meta(new, old, "generateName");
    }
}

/// What must not change. There is no undelete, and nobody may join the queue of finalizers once it moves.
pub(crate) fn validate_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (was, is) = (meta::deletion_grace_seconds(old), meta::deletion_grace_seconds(new));
    if let Some(seconds) = is.filter(|_| is != was) {
        let text = "field is immutable; may only be changed via deletion";
        causes.push(Cause::invalid("metadata.deletionGracePeriodSeconds", seconds, text));
    }
    if meta::deletion_timestamp(old).is_some() {
        let before = meta::finalizers(old);
        let added: Vec<String> =
            meta::finalizers(new).iter().filter(|f| !before.contains(f)).map(|f| format!("{f:?}")).collect();
        if !added.is_empty() {
            let text = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &text));
        }
    }
}
