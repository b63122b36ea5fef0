//! What upstream's admission adds to a new pod: account, priority, tolerations (api-surface 18.1).
//!
//! The token volume of the account is not among it: a node that cannot fill it must not be asked to mount it.

use serde_json::{Map, Value, json};

use super::defaults::{put, text};
use crate::meta;

/// The classes that exist without anybody making them.
const CLASSES: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// Adds what a new pod gets; refuses a priority nobody defined.
pub(super) fn admit(pod: &mut Value) -> Result<(), String> {
    let spec = meta::child_mut(pod, "spec");
    put(spec, "serviceAccountName", "default");
    let account = text(spec, "serviceAccountName");
    spec.insert("serviceAccount".to_owned(), json!(account));
    prioritise(spec)?;
    tolerate(spec);
    Ok(())
}

fn prioritise(spec: &mut Map<String, Value>) -> Result<(), String> {
    let name = text(spec, "priorityClassName");
    let priority = match CLASSES.iter().find(|(class, _)| *class == name) {
        Some((_, priority)) => *priority,
        None if name.is_empty() => 0,
        None => return Err(format!("no PriorityClass with name {name} was found")),
    };
    if let Some(asked) = spec.get("priority").and_then(Value::as_i64)
        && asked != priority
    {
        return Err(format!(
            "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    put(spec, "priority", priority);
    put(spec, "preemptionPolicy", "PreemptLowerPriority");
    Ok(())
}

/// A node that stops answering keeps its pods for five minutes.
fn tolerate(spec: &mut Map<String, Value>) {
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|toleration| covers(toleration, key)) {
            tolerations
                .push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
}

fn covers(toleration: &Value, key: &str) -> bool {
    let is = |field: &str, word: &str| toleration[field].as_str().is_none_or(|said| said.is_empty() || said == word);
    is("key", key) && is("effect", "NoExecute")
}
