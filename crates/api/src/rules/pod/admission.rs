//! What upstream's admission adds to a new pod: account, priority, tolerations (api-surface 18.1).

use serde_json::{Map, Value, json};

use crate::rules::value::{child, put, text};
use crate::{meta, pod};

/// Adds what a new pod gets whatever else is stored.
pub(super) fn admit(pod: &mut Value) {
    let has_account = !pod::is_mirror(pod);
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

/// Gives a new pod what its runtime costs and where it is to be had. `class` is the one the pod names, if it is there.
pub fn take_runtime_class(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let spec = meta::child_mut(pod, "spec");
    let name = text(spec, "runtimeClassName");
    let has_overhead = spec.get("overhead").and_then(Value::as_object).is_some_and(|overhead| !overhead.is_empty());
    let Some(class) = class else {
        return match (name.is_empty(), has_overhead) {
            (false, _) => Err(format!("pod rejected: RuntimeClass {name:?} not found")),
            (true, true) => {
                Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
            }
            (true, false) => Ok(()),
        };
    };
    match class["overhead"].get("podFixed") {
        None if has_overhead => {
            return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
        }
        Some(fixed) if has_overhead && spec.get("overhead") != Some(fixed) => {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        Some(fixed) => {
            spec.insert("overhead".to_owned(), fixed.clone());
        }
        None => {}
    }
    let scheduling = &class["scheduling"];
    for (key, wanted) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let own = child(spec, "nodeSelector").entry(key.clone()).or_insert_with(|| wanted.clone());
        if own != wanted {
            let (wanted, own) = (wanted.as_str().unwrap_or_default(), own.as_str().unwrap_or_default());
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
    }
    let tolerations = scheduling["tolerations"].as_array().cloned().unwrap_or_default();
    if let (false, Some(own)) =
        (tolerations.is_empty(), spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut())
    {
        let new: Vec<Value> = tolerations.into_iter().filter(|toleration| !own.contains(toleration)).collect();
        own.extend(new);
    }
    Ok(())
}

/// A node that stops answering keeps its pods for five minutes. Whoever writes tolerations anew, as clients that
/// know only their own do, does not take these away.
pub(super) fn tolerate(spec: &mut Map<String, Value>) {
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
