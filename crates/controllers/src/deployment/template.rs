//! When two templates of pods mean the same, and the hash that names the ReplicaSet of a template.
//!
//! Equality decides which set is the new one, never the hash. Both sides are compared after the same defaulting, so that a version
//! that fills in more than the one before starts no rollout.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use crate::pod_control::PodTemplate;
use crate::pod_names::fnv1a;

/// The label by which the pods of one template are told from those of another.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Without vowels and look-alikes, so that no name is a word.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The longest name of an object.
const NAME_MAX: usize = 253;

/// Maps that mean the same whether they are empty or not there. Other empty objects say something: `emptyDir: {}`.
const MAPS: [&str; 9] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "limits",
    "requests",
    "overhead",
    "securityContext",
    "resources",
];

/// What templates that mean the same have in common: 128 bits of their canonical text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fingerprint(u64, u64);

impl Fingerprint {
    pub(crate) fn of(template: &PodTemplate) -> Self {
        let text = canonical(template);
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(fnv1a(text.as_bytes()), hasher.finish())
    }
}

/// The template as text: defaults filled in, keys in order, nothing that says nothing, without the label that its hash becomes.
pub(crate) fn canonical(template: &PodTemplate) -> String {
    let mut value = template.value();
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    api::rules::default_pod_template(&mut value);
    let mut text = String::new();
    write(&value, &mut text);
    text
}

fn says_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => MAPS.contains(&key) && fields.iter().all(|(inner, value)| says_nothing(inner, value)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut said: Vec<_> = fields.iter().filter(|(key, value)| !says_nothing(key, value)).collect();
            said.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in said {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

/// The hash of a template, another one for every number of collisions before.
pub(crate) fn hash(template: &PodTemplate, collisions: Option<i32>) -> String {
    let fnv1a_32 = |hash: u32, bytes: &[u8]| {
        bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    };
    let mut hash = fnv1a_32(0x811c_9dc5, canonical(template).as_bytes());
    if let Some(collisions) = collisions {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&collisions.to_le_bytes());
        hash = fnv1a_32(hash, &bytes);
    }
    let letter = |byte: u8| LETTERS.get(usize::from(byte) % LETTERS.len()).copied().unwrap_or(b'b');
    hash.to_string().bytes().map(|byte| char::from(letter(byte))).collect()
}

/// What the set of the Deployment called `deployment` is called whose template has this hash.
pub(crate) fn set_name(deployment: &str, hash: &str) -> String {
    let room = NAME_MAX.saturating_sub(hash.len() + 1);
    let cut: String = deployment.chars().take(room).collect();
    format!("{}-{hash}", cut.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(metadata: Value, container: Value) -> PodTemplate {
        PodTemplate::of(&json!({ "metadata": metadata, "spec": { "containers": [container] } }))
    }

    fn web() -> PodTemplate {
        template(json!({ "labels": { "app": "web" } }), json!({ "name": "app", "image": "busybox:1" }))
    }

    /// [WL-32]
    #[test]
    fn templates_are_equal_whatever_was_filled_in_and_left_empty() {
        let stored = template(
            json!({ "labels": { "app": "web", POD_TEMPLATE_HASH: "abc" }, "annotations": {}, "creationTimestamp": null }),
            json!({ "name": "app", "image": "busybox:1", "env": [], "terminationMessagePath": "/dev/termination-log",
                "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File", "resources": { "limits": {} } }),
        );
        assert_eq!(Fingerprint::of(&stored), Fingerprint::of(&web()), "{}\n{}", canonical(&stored), canonical(&web()));
        let other = template(json!({ "labels": { "app": "web" } }), json!({ "name": "app", "image": "busybox:2" }));
        assert_ne!(Fingerprint::of(&other), Fingerprint::of(&web()));
        let bare = PodTemplate::of(&json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }));
        assert!(canonical(&bare).contains("emptyDir"), "an empty object that says something stays");
        Fingerprint::of(&PodTemplate::default());
    }

    /// Names of sets that are stored must be found again by later versions.
    #[test]
    fn template_hash_stays_the_same() {
        assert_eq!(hash(&web(), None), "6644c54d6b");
        let hashes = [hash(&web(), None), hash(&web(), Some(0)), hash(&web(), Some(1))];
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2], "{hashes:?}");
        assert_eq!(set_name(&"d".repeat(253), "hash").len(), 253);
        assert_eq!(set_name("web", "hash"), "web-hash");
    }
}
