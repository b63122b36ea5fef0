//! What upstream's admission adds to a new pod: account, priority, tolerations (api-surface 18.1).
//!
//! The token volume of the account is not among it: a node that cannot fill it must not be asked to mount it.

use serde_json::{Map, Value, json};

use crate::meta;
use crate::rules::value::{put, text};

/// Adds what a new pod gets whatever else is stored.
pub(super) fn admit(pod: &mut Value) {
    let has_account = !is_mirror(pod);
    let spec = meta::child_mut(pod, "spec");
    if has_account {
        put(spec, "serviceAccountName", "default");
        let account = text(spec, "serviceAccountName");
        spec.insert("serviceAccount".to_owned(), json!(account));
    }
    put(spec, "priority", 0);
    put(spec, "preemptionPolicy", "PreemptLowerPriority");
    tolerate(spec);
}

/// Whether this is a node's word about a pod that it runs without the API: it has no account.
pub fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null()
}

/// Gives a new pod the priority of its `class`: the one it names, or the cluster's default. Refuses a class that is
/// not there and a number that is not the class's.
pub fn prioritise(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let spec = meta::child_mut(pod, "spec");
    let name = text(spec, "priorityClassName");
    let priority = match class {
        Some(class) => class["value"].as_i64().unwrap_or(0),
        None if name.is_empty() => 0,
        None => return Err(format!("no PriorityClass with name {name} was found")),
    };
    if let Some(class) = class {
        put(spec, "priorityClassName", meta::name(class));
        let policy = class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority");
        if let Some(asked) = spec.get("preemptionPolicy").and_then(Value::as_str).filter(|asked| *asked != policy) {
            return Err(format!(
                "the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            ));
        }
        put(spec, "preemptionPolicy", policy);
    }
    if let Some(asked) = spec.get("priority").and_then(Value::as_i64)
        && asked != priority
    {
        return Err(format!(
            "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    put(spec, "priority", priority);
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
