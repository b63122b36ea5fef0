//! Objects of a cluster as manifests: without what only the server writes.

use serde_json::{Map, Value};

/// What people write into `metadata`.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// The manifest that an object may have been made from.
pub(super) fn manifest(object: &Value) -> Value {
    let mut manifest = Map::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match key.as_str() {
            "status" => {}
            "metadata" => {
                let kept = value.as_object().into_iter().flatten().filter(|(key, _)| METADATA.contains(&key.as_str()));
                manifest.insert(key.clone(), kept.map(|(key, value)| (key.clone(), value.clone())).collect());
            }
            _ => {
                manifest.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(manifest)
}
