//! Mistakes in what a pod wants to be told about itself.

use serde_json::Value;

use super::word;
use crate::rules::names;
use crate::status::Cause;

/// What a variable may show.
const FOR_ENV: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What a file may show.
const FOR_FILES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields that exist, but are for neither.
const KNOWN: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];

/// What is wrong with the `fieldRef` of a variable.
pub(super) fn env(reference: &Value, field: &str, causes: &mut Vec<Cause>) {
    field_ref(reference, &FOR_ENV, field, causes);
}

/// What is wrong with the `fieldRef` of a file.
pub(super) fn file(reference: &Value, field: &str, causes: &mut Vec<Cause>) {
    field_ref(reference, &FOR_FILES, field, causes);
}

fn field_ref(reference: &Value, allowed: &[&str], field: &str, causes: &mut Vec<Cause>) {
    if !reference.is_object() {
        return;
    }
    let path = word(reference, "fieldPath");
    let at = format!("{field}.fieldPath");
    if path.is_empty() {
        causes.push(Cause::required(at, ""));
        return;
    }
    // `metadata.labels['key']`: one of many.
    if let Some((map, key)) = path.strip_suffix("']").and_then(|rest| rest.split_once("['")) {
        let complaint = match map {
            "metadata.annotations" => names::qualified(&key.to_ascii_lowercase()),
            "metadata.labels" => names::qualified(key),
            _ => Some(format!("error converting fieldPath: field label does not support subscript: {path}")),
        };
        if let Some(text) = complaint {
            causes.push(Cause::invalid(if map.starts_with("metadata.") { field } else { &at }, key, &text));
        }
        return;
    }
    if allowed.contains(&path) {
        return;
    }
    let exists = FOR_ENV.iter().chain(&FOR_FILES).chain(&KNOWN).any(|known| *known == path);
    causes.push(if exists {
        Cause::not_supported(at, path, allowed)
    } else {
        Cause::invalid(at, path, &format!("error converting fieldPath: field label not supported: {path}"))
    });
}
