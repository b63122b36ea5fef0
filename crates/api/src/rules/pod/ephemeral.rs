//! Ephemeral containers: added to a pod that runs, through an endpoint of their own, to look around in it.
//!
//! They come and are never changed or taken back: what ran stays in the pod's record.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{list, word};
use crate::meta;
use crate::status::Cause;

/// What they may not have, besides probes, hooks and a restart policy. Upstream's words for all of it.
const FORBIDDEN: &str = "cannot be set for an Ephemeral Container";

/// A change through their endpoint changes nothing else but the record of who wrote what.
pub(super) fn keep_all_else(old: &Value, new: &mut Value) {
    let wanted = new["spec"].get("ephemeralContainers").cloned();
    let managed = new["metadata"].get("managedFields").cloned();
    *new = old.clone();
    replace(meta::child_mut(new, "spec"), "ephemeralContainers", wanted);
    replace(meta::meta_mut(new), "managedFields", managed);
}

fn replace(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

/// What is wrong with those of a spec, beyond what can be wrong with any container.
pub(super) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    let others: BTreeSet<&str> =
        ["initContainers", "containers"].iter().flat_map(|key| list(spec, key)).map(|c| word(c, "name")).collect();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let field = format!("spec.ephemeralContainers[{index}]");
        let target = word(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            causes.push(Cause {
                reason: "FieldValueNotFound",
                message: format!("Not found: {target:?}"),
                field: format!("{field}.targetContainerName"),
            });
        }
        for key in ["ports", "resizePolicy"] {
            if !list(container, key).is_empty() {
                causes.push(Cause::forbidden(format!("{field}.{key}"), FORBIDDEN));
            }
        }
        if container.get("resources").is_some_and(|resources| *resources != json!({})) {
            causes.push(Cause::forbidden(format!("{field}.resources"), FORBIDDEN));
        }
        for (at, mount) in list(container, "volumeMounts").iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !word(mount, key).is_empty() {
                    causes.push(Cause::forbidden(format!("{field}.volumeMounts[{at}].{key}"), FORBIDDEN));
                }
            }
        }
    }
}

/// What is wrong with a change through their endpoint. A patch may reorder them, so each is looked for by its name.
pub(super) fn validate_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if crate::pod::is_mirror(old) {
        causes.push(Cause::forbidden("", "static pods do not support ephemeral containers"));
        return;
    }
    for was in list(&old["spec"], "ephemeralContainers") {
        let name = word(was, "name");
        let kept = list(&new["spec"], "ephemeralContainers").iter().find(|is| word(is, "name") == name);
        let complaint = match kept {
            None => "removed",
            Some(is) if is != was => "changed",
            Some(_) => continue,
        };
        let text = format!("existing ephemeral containers {name:?} may not be {complaint}\n");
        causes.push(Cause::forbidden("spec.ephemeralContainers", &text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ephemeral: Value) -> Value {
        let containers = json!([{ "name": "app", "image": "i:1" }]);
        let spec = json!({ "containers": containers, "ephemeralContainers": ephemeral });
        json!({ "metadata": { "name": "p", "labels": { "a": "b" } }, "spec": spec, "status": { "phase": "Running" } })
    }

    fn refused(old: &Value, new: &Value) -> Vec<String> {
        let mut causes = Vec::new();
        validate(&new["spec"], &mut causes);
        validate_update(old, new, &mut causes);
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message.trim_end())).collect()
    }

    #[test]
    fn ephemeral_containers_update_changes_only_their_list() {
        let old = pod(json!([]));
        let mut new = pod(json!([{ "name": "debug", "image": "i:2" }]));
        new["metadata"]["labels"]["a"] = "c".into();
        new["spec"]["containers"][0]["image"] = "i:3".into();
        new["status"]["phase"] = "Failed".into();
        keep_all_else(&old, &mut new);
        assert_eq!(new, pod(json!([{ "name": "debug", "image": "i:2" }])));
        assert_eq!(refused(&old, &new), Vec::<String>::new());
    }

    #[test]
    fn ephemeral_container_cannot_be_changed_or_removed() {
        let (one, two) = (json!({ "name": "one", "image": "i:1" }), json!({ "name": "two", "image": "i:1" }));
        let old = pod(json!([one, two]));
        assert_eq!(refused(&old, &pod(json!([two, { "name": "three", "image": "i:1" }, one]))), Vec::<String>::new());
        let complaint = |name: &str, how: &str| {
            format!("spec.ephemeralContainers: Forbidden: existing ephemeral containers {name:?} may not be {how}")
        };
        assert_eq!(refused(&old, &pod(json!([one]))), [complaint("two", "removed")]);
        let changed = json!([one, { "name": "two", "image": "i:2" }]);
        assert_eq!(refused(&old, &pod(changed)), [complaint("two", "changed")]);
    }

    #[test]
    fn ephemeral_container_must_not_have_ports_probes_or_resources() {
        let debug = json!({ "name": "debug", "image": "i:1", "targetContainerName": "nobody",
            "ports": [{ "containerPort": 1 }], "resources": { "limits": { "cpu": "1" } },
            "volumeMounts": [{ "name": "v", "mountPath": "/v", "subPath": "x" }] });
        let field = |key: &str| format!("spec.ephemeralContainers[0].{key}");
        let forbidden = |key: &str| format!("{}: Forbidden: {FORBIDDEN}", field(key));
        let expected = [
            format!("{}: Not found: \"nobody\"", field("targetContainerName")),
            forbidden("ports"),
            forbidden("resources"),
            forbidden("volumeMounts[0].subPath"),
        ];
        assert_eq!(refused(&pod(json!([])), &pod(json!([debug]))), expected);
        let app = json!([{ "name": "debug", "image": "i:1", "targetContainerName": "app", "resources": {} }]);
        assert_eq!(refused(&pod(json!([])), &pod(app.clone())), Vec::<String>::new());
        let mut mirror = pod(json!([]));
        mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        assert_eq!(refused(&mirror, &pod(app)), [": Forbidden: static pods do not support ephemeral containers"]);
    }
}
