//! `scale`: how many replicas a workload is to have, and has, in one shape for all workloads.

use serde_json::{Value, json};

use crate::kinds::{self, Kind};
use crate::meta;
use crate::selector::object as selector;
use crate::status::{Cause, Status};

/// The kind that `scale` speaks.
pub fn kind() -> &'static Kind {
    kinds::scale()
}

/// The scale of `workload`.
pub fn of(workload: &Value) -> Value {
    let fields = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: serde_json::Map<String, Value> =
        fields.iter().filter_map(|key| Some(((*key).to_owned(), workload["metadata"].get(*key)?.clone()))).collect();
    let own = &workload["spec"]["selector"];
    // A replication controller's selector is bare labels.
    let bare = own.get("matchLabels").is_none() && own.get("matchExpressions").is_none();
    let text = if bare { selector::to_text(&json!({ "matchLabels": own })) } else { selector::to_text(own) };
    let mut status = json!({ "replicas": workload["status"]["replicas"].as_i64().unwrap_or(0) });
    if !text.is_empty() {
        status["selector"] = json!(text);
    }
    let mut spec = json!({});
    if let Some(replicas) = workload["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    json!({ "metadata": metadata, "spec": spec, "status": status })
}

/// The workload with the replicas that `scale` asks for. The version and uid it names must be the stored ones.
pub fn apply(kind: &Kind, workload: &Value, scale: &Value) -> Result<Value, Status> {
    let name = meta::name(workload);
    let version = meta::resource_version(scale);
    if !matches!(version, "" | "0") && version != meta::resource_version(workload) {
        return Err(Status::conflict_modified(kind, name));
    }
    let (uid, stored) = (meta::uid(scale), meta::uid(workload));
    if !uid.is_empty() && uid != stored {
        let message = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}");
        return Err(Status::conflict(&kind.resource(), name, &message));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Status::invalid_of("Scale", "autoscaling", name, vec![cause]));
    }
    let mut workload = workload.clone();
    workload["spec"]["replicas"] = json!(replicas);
    Ok(workload)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_scale_shows_what_is_asked_for_and_what_is_there() {
        let deployment = json!({"metadata": {"name": "d", "resourceVersion": "7", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}}, "status": {"replicas": 2}});
        assert_eq!(
            of(&deployment),
            json!({"metadata": {"name": "d", "resourceVersion": "7"}, "spec": {"replicas": 3},
                   "status": {"replicas": 2, "selector": "app=d"}})
        );
        let rc = json!({"metadata": {}, "spec": {"selector": {"b": "2", "a": "1"}}});
        assert_eq!(of(&rc)["status"]["selector"], "a=1,b=2");
    }

    #[test]
    fn only_the_replicas_change_and_only_of_the_version_that_was_seen() {
        let kind = crate::built_in("apps", "v1", "deployments").unwrap();
        let stored =
            json!({"metadata": {"name": "d", "resourceVersion": "7"}, "spec": {"replicas": 3, "paused": true}});
        let asked = |version: &str, n: i64| json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": n}});
        assert_eq!(apply(kind, &stored, &asked("", 5)).unwrap()["spec"], json!({"replicas": 5, "paused": true}));
        assert_eq!(apply(kind, &stored, &asked("6", 5)).unwrap_err().code, 409);
        assert_eq!(apply(kind, &stored, &asked("7", -1)).unwrap_err().code, 422);
    }
}
