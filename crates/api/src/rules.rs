//! What the server does to an object before it is stored: defaults, strategy, validation.
//!
//! [`prepare_create`] and [`prepare_update`] are the two doors; behind them every kind has one `Rules`. Order is
//! upstream's: system fields, defaults, strategy (and what upstream leaves to admission), validation of everything
//! at once.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kinds::Kind;
use crate::meta;
use crate::status::{Cause, Status};

pub(crate) mod account;
pub(crate) mod certificates;
pub(crate) mod custom;
pub(crate) mod data;
pub(crate) mod endpoints;
pub(crate) mod event;
pub(crate) mod lease;
pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod namespace;
pub(crate) mod network_policy;
pub(crate) mod node;
pub(crate) mod plain;
pub(crate) mod pod;
pub(crate) mod policy;
pub(crate) mod rbac;
pub(crate) mod review;
pub(crate) mod served;
pub(crate) mod service;
pub(crate) mod storage;
pub(crate) mod termination_record;
pub(crate) mod value;
pub(crate) mod workload;

pub use node::taint_by_condition;
pub use pod::admission::{prioritise, take_runtime_class};
pub use pod::binding::bind;
pub use pod::budget::{Budget, decide_eviction};
pub use pod::disruption::{delete_options_of_eviction, mark_evicted};
pub use pod::surge::{
    EVICT_SURGE, SURGE_ASKED_AT, Surge, SurgeOwners, decide_surge, mark_surge, surge_in_progress, surges_until,
};
pub use policy::SYSTEM_CLASSES;
pub use service::allocation;
pub use storage::{CLAIM_PROTECTION, VOLUME_PROTECTION, protect};
pub use workload::default_pod_template;

/// What is particular to one kind. Every method has the behaviour of a kind without particulars.
pub(crate) trait Rules: Send + Sync {
    /// The object through its typed view: unknown fields gone, times in their one spelling.
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error>;

    /// What a name of this kind may look like.
    fn name_rule(&self) -> names::Rule {
        names::Rule::Subdomain
    }

    /// Fills in what was left out; also runs on updates.
    fn default(&self, _object: &mut Value) {}

    /// What only a create does: initial status, and what upstream's admission adds. What admission refuses comes
    /// back as the sentence of a 403.
    fn before_create(&self, _object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// What only an update of the main resource does: fields that have their own endpoint are put back.
    fn before_update(&self, _old: &Value, _new: &mut Value) {}

    /// What only an update of the status does.
    fn before_status_update(&self, _old: &Value, _new: &mut Value) {}

    /// Whether an update asks for something new, which `metadata.generation` counts.
    fn counts_as_change(&self, old: &Value, new: &Value) -> bool {
        old.get("spec") != new.get("spec")
    }

    /// Mistakes in the object itself.
    fn validate(&self, _object: &Value, _causes: &mut Vec<Cause>) {}

    /// Mistakes that only a new object can have.
    fn validate_create(&self, _object: &Value, _causes: &mut Vec<Cause>) {}

    /// Mistakes in the change.
    fn validate_update(&self, _old: &Value, _new: &Value, _causes: &mut Vec<Cause>) {}

    /// What only an update through the endpoint of a part (`ephemeralcontainers`) does: all else is put back.
    fn before_part_update(&self, _part: &str, _old: &Value, _new: &mut Value) {}

    /// Mistakes in the change of a part.
    fn validate_part_update(&self, _part: &str, _old: &Value, _new: &Value, _causes: &mut Vec<Cause>) {}

    /// Mistakes in a change of the status.
    fn validate_status_update(&self, _old: &Value, _new: &Value, _causes: &mut Vec<Cause>) {}

    /// What is allowed, but probably not meant.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }
}

/// The typed view of `T`.
pub(crate) fn typed_as<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(object)?)
}

/// The same for kinds whose conditions must have a time here: Go's clients send `null` for a time that nobody set, and some leave
/// it out. Both are stored as the moment that Go takes for no time, which every reader can read.
pub(crate) fn typed_with_conditions<T: DeserializeOwned + Serialize>(
    object: &Value,
) -> Result<Value, serde_json::Error> {
    const TIME: &str = "lastTransitionTime";
    let is_untimed = |condition: &Value| condition.is_object() && condition[TIME].is_null();
    let conditions = object["status"]["conditions"].as_array();
    if !conditions.is_some_and(|conditions| conditions.iter().any(is_untimed)) {
        return typed_as::<T>(object);
    }
    let mut timed = object.clone();
    let conditions = timed["status"]["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten().filter(|condition| is_untimed(condition)) {
        condition[TIME] = Value::from("0001-01-01T00:00:00Z");
    }
    typed_as::<T>(&timed)
}

/// Prepares a new object for the store: names and system fields, defaults, initial status, validation. `suffix`
/// gives the random end of a generated name. Answers warnings.
pub fn prepare_create(
    kind: &Kind,
    object: &mut Value,
    namespace: &str,
    now: Timestamp,
    uid: String,
    mut suffix: impl FnMut() -> String,
) -> Result<Vec<String>, Status> {
    if !matches!(meta::resource_version(object), "" | "0") {
        return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    if kind.namespaced && !matches!(meta::namespace(object), "") && meta::namespace(object) != namespace {
        return Err(Status::bad_request(WRONG_NAMESPACE));
    }
    meta::set_namespace(object, if kind.namespaced { namespace } else { "" });
    let system = ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"];
    meta::meta_mut(object).retain(|key, _| !system.contains(&key.as_str()));
    if meta::name(object).is_empty() && !meta::generate_name(object).is_empty() {
        let base: String = meta::generate_name(object).chars().take(names::GENERATED_BASE_MAX).collect();
        meta::set_name(object, &format!("{base}{}", suffix()));
    }
    meta::set_uid(object, &uid);
    meta::set_creation_timestamp(object, now);
    if kind.has_generation {
        meta::set_generation(object, 1);
    }
    let mut warnings: Vec<String> = metadata::without_repeated_owners(object).into_iter().collect();
    kind.rules.default(object);
    kind.rules.before_create(object).map_err(|text| Status::forbidden(kind, meta::name(object), &text))?;

    let mut causes = Vec::new();
    metadata::validate(object, kind.rules.name_rule(), &mut causes);
    kind.rules.validate(object, &mut causes);
    kind.rules.validate_create(object, &mut causes);
    refuse(kind, meta::name(object), causes)?;
    warnings.extend(kind.rules.warnings(object));
    Ok(warnings)
}

/// Prepares a changed object for the store: what a client may not change is put back from `old`, what it must not
/// change is refused. `subresource` is the endpoint the change came through. Answers warnings.
pub fn prepare_update(
    kind: &Kind,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
) -> Result<Vec<String>, Status> {
    check_identity(kind, old, new)?;
    metadata::restore(old, new);
    match subresource {
        Some("status") => {
            keep(new, old, "spec");
            keep_meta(new, old, "ownerReferences");
            kind.rules.before_status_update(old, new);
        }
        None | Some("finalize") => {
            if kind.subresource("status").is_some() {
                keep(new, old, "status");
            }
            if subresource.is_none() {
                kind.rules.before_update(old, new);
            }
        }
        Some(part) => kind.rules.before_part_update(part, old, new),
    }
    let mut warnings: Vec<String> = metadata::without_repeated_owners(new).into_iter().collect();
    kind.rules.default(new);
    if kind.has_generation {
        // What is written as status asks for nothing: the revision of a Deployment, an annotation, is written with it.
        let changed = subresource != Some("status") && kind.rules.counts_as_change(old, new);
        meta::set_generation(new, meta::generation(old) + i64::from(changed));
    }

    let mut causes = Vec::new();
    metadata::validate(new, kind.rules.name_rule(), &mut causes);
    metadata::validate_update(old, new, &mut causes);
    if subresource == Some("status") {
        kind.rules.validate_status_update(old, new, &mut causes);
    } else {
        kind.rules.validate(new, &mut causes);
        match subresource {
            None | Some("finalize") => kind.rules.validate_update(old, new, &mut causes),
            Some(part) => kind.rules.validate_part_update(part, old, new, &mut causes),
        }
    }
    refuse(kind, meta::name(new), causes)?;
    if subresource != Some("status") {
        warnings.extend(kind.rules.warnings(new));
    }
    Ok(warnings)
}

/// What is wrong with an object as it was sent through another face of its stored kind, whose rules may ask for more
/// than what is stored does.
pub fn check_sent(kind: &Kind, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    if kind.face.is_some() {
        kind.rules.validate(object, &mut causes);
    }
    refuse(kind, meta::name(object), causes)
}

/// A patch that names another uid asks for another object: 422, where a PUT of one is a conflict.
pub fn check_patched_uid(kind: &Kind, old: &Value, new: &Value) -> Result<(), Status> {
    let (uid, stored) = (meta::uid(new), meta::uid(old));
    if uid.is_empty() || uid == stored {
        return Ok(());
    }
    Err(Status::invalid(kind, meta::name(old), vec![Cause::invalid("metadata.uid", uid, "field is immutable")]))
}

const WRONG_NAMESPACE: &str = "the namespace of the provided object does not match the namespace sent on the request";

/// The object must be the one that is stored, in the version the client has seen.
fn check_identity(kind: &Kind, old: &Value, new: &Value) -> Result<(), Status> {
    let (name, stored) = (meta::name(new), meta::name(old));
    if !name.is_empty() && name != stored {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({stored})");
        return Err(Status::bad_request(message));
    }
    if kind.namespaced && !meta::namespace(new).is_empty() && meta::namespace(new) != meta::namespace(old) {
        return Err(Status::bad_request(WRONG_NAMESPACE));
    }
    let (uid, stored_uid) = (meta::uid(new), meta::uid(old));
    if !uid.is_empty() && uid != stored_uid {
        let message = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}");
        return Err(Status::conflict(&kind.resource(), stored, &message));
    }
    let version = meta::resource_version(new);
    if version.is_empty() && kind.update_needs_version {
        let cause = Cause::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(Status::invalid(kind, stored, vec![cause]));
    }
    if !matches!(version, "" | "0") && version != meta::resource_version(old) {
        return Err(Status::conflict_modified(kind, stored));
    }
    Ok(())
}

fn refuse(kind: &Kind, name: &str, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(kind, name, causes)) }
}

/// Puts a top-level field back.
fn keep(new: &mut Value, old: &Value, key: &str) {
    if let Some(map) = new.as_object_mut() {
        match old.get(key) {
            Some(value) => map.insert(key.to_owned(), value.clone()),
            None => map.remove(key),
        };
    }
}

/// Puts a field of the metadata back.
fn keep_meta(new: &mut Value, old: &Value, key: &str) {
    let stored = old.get("metadata").and_then(|m| m.get(key)).cloned();
    let map = meta::meta_mut(new);
    match stored {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

#[cfg(test)]
mod untimed_conditions_tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::typed_with_conditions;

    /// Go's clients send `null` for a time that nobody set.
    #[test]
    fn condition_without_a_time_is_taken_and_gets_the_zero_time_of_go() {
        let condition = |more: serde_json::Value| {
            let mut own = json!({ "type": "A", "status": "True", "reason": "R", "message": "" });
            own.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            own
        };
        let time = "2026-01-01T00:00:00Z";
        let conditions =
            [json!({ "lastTransitionTime": null }), json!({}), json!({ "lastTransitionTime": time })].map(condition);
        let typed =
            typed_with_conditions::<Service>(&json!({ "metadata": {}, "status": { "conditions": conditions } }));
        let typed = typed.expect("a service");
        let times = [0, 1, 2].map(|at| typed["status"]["conditions"][at]["lastTransitionTime"].clone());
        assert_eq!(times, [json!("0001-01-01T00:00:00Z"), json!("0001-01-01T00:00:00Z"), json!(time)]);
        let wrong =
            json!({ "metadata": {}, "status": { "conditions": [condition(json!({ "lastTransitionTime": 5 }))] } });
        assert!(typed_with_conditions::<Service>(&wrong).is_err());
        let no_object = json!({ "metadata": {}, "status": { "conditions": [5, null] } });
        assert!(typed_with_conditions::<Service>(&no_object).is_err());
    }
}

#[cfg(test)]
mod kind_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
