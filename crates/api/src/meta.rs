//! `metadata` of an object that is a JSON value: typed questions, typed answers.
//!
//! Readers never fail: an absent or mistyped field reads as absent, because what is stored has been through
//! [`crate::decode`]. Writers create `metadata` when it is missing.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::time;

fn meta(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// `metadata`, made if it is missing.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The object below `key`, made if it is missing or not an object.
pub(crate) fn child_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let map = object.as_object_mut().expect("made an object above");
    let child = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut().expect("made an object above")
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    meta(object).and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
}

fn set_text(object: &mut Value, key: &str, value: &str) {
    let meta = meta_mut(object);
    if value.is_empty() {
        meta.remove(key);
    } else {
        meta.insert(key.to_owned(), Value::from(value));
    }
}

/// The name, or `""`.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// The prefix a name is to be made from, or `""`.
pub fn generate_name(object: &Value) -> &str {
    text(object, "generateName")
}

/// The namespace, or `""`.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// The uid, or `""`.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// The resource version, or `""`.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// The generation; 0 when the kind has none.
pub fn generation(object: &Value) -> i64 {
    meta(object).and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or_default()
}

/// When the object was created.
pub fn creation_timestamp(object: &Value) -> Option<Timestamp> {
    time::parse(text(object, "creationTimestamp"))
}

/// The moment by which a deleted object is expected to be gone. `Some` means: deletion was asked for.
pub fn deletion_timestamp(object: &Value) -> Option<Timestamp> {
    time::parse(text(object, "deletionTimestamp"))
}

/// The grace that deletion was given.
pub fn deletion_grace_seconds(object: &Value) -> Option<i64> {
    meta(object)?.get("deletionGracePeriodSeconds")?.as_i64()
}

/// Labels in key order.
pub fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    pairs(object, "labels")
}

/// One label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object)?.get("labels")?.get(key)?.as_str()
}

/// Annotations in key order.
pub fn annotations(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    pairs(object, "annotations")
}

fn pairs<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    meta(object)
        .and_then(|m| m.get(key))
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))))
}

/// Finalizers in stored order.
pub fn finalizers(object: &Value) -> Vec<&str> {
    meta(object)
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Sets the name.
pub fn set_name(object: &mut Value, name: &str) {
    set_text(object, "name", name);
}

/// Sets the namespace; `""` removes it.
pub(crate) fn set_namespace(object: &mut Value, namespace: &str) {
    set_text(object, "namespace", namespace);
}

/// Sets the uid.
pub(crate) fn set_uid(object: &mut Value, uid: &str) {
    set_text(object, "uid", uid);
}

/// Sets the resource version; `""` removes it.
pub fn set_resource_version(object: &mut Value, version: &str) {
    set_text(object, "resourceVersion", version);
}

/// Sets the generation; 0 removes it.
pub(crate) fn set_generation(object: &mut Value, generation: i64) {
    let meta = meta_mut(object);
    if generation == 0 {
        meta.remove("generation");
    } else {
        meta.insert("generation".to_owned(), Value::from(generation));
    }
}

/// Sets the creation time, cut to the second.
pub(crate) fn set_creation_timestamp(object: &mut Value, at: Timestamp) {
    set_text(object, "creationTimestamp", &time::seconds(at));
}

/// Sets the deletion time, cut to the second.
pub(crate) fn set_deletion_timestamp(object: &mut Value, at: Timestamp) {
    set_text(object, "deletionTimestamp", &time::seconds(at));
}

/// Sets the grace of a deletion.
pub(crate) fn set_deletion_grace_seconds(object: &mut Value, seconds: i64) {
    meta_mut(object).insert("deletionGracePeriodSeconds".to_owned(), Value::from(seconds));
}

/// Replaces the finalizers; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let meta = meta_mut(object);
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".to_owned(), Value::from(finalizers.to_vec()));
    }
}

/// Sets one label.
pub(crate) fn set_label(object: &mut Value, key: &str, value: &str) {
    let labels = meta_mut(object).entry("labels").or_insert_with(|| Value::Object(Map::new()));
    if !labels.is_object() {
        *labels = Value::Object(Map::new());
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(key.to_owned(), Value::from(value));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_read_as_absent() {
        let object = json!({});
        assert_eq!((name(&object), uid(&object), generation(&object)), ("", "", 0));
        assert!(deletion_timestamp(&object).is_none() && finalizers(&object).is_empty());
        assert_eq!(labels(&object).count(), 0);
    }

    #[test]
    fn metadata_setters_read_back_and_an_empty_value_removes_the_field() {
        let mut object = json!({});
        let at = time::parse("2026-11-15T18:00:44.9Z").unwrap();
        set_name(&mut object, "a");
        set_deletion_timestamp(&mut object, at);
        set_deletion_grace_seconds(&mut object, 30);
        set_label(&mut object, "k", "v");
        set_finalizers(&mut object, &["x/y".to_owned()]);
        assert_eq!(deletion_timestamp(&object), Some(time::truncated(at)));
        assert_eq!(deletion_grace_seconds(&object), Some(30));
        assert_eq!(labels(&object).collect::<Vec<_>>(), [("k", "v")]);
        assert_eq!(finalizers(&object), ["x/y"]);
        set_finalizers(&mut object, &[]);
        assert!(object["metadata"].get("finalizers").is_none());
    }
}
