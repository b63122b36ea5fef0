//! What a pod may be given more or less of while it runs: cpu and memory of its containers, through an endpoint of its own.

use serde_json::{Map, Value, json};

use super::{list, word};
use crate::quantity::Quantity;
use crate::status::Cause;
use crate::{meta, pod};

const LISTS: [&str; 2] = ["containers", "initContainers"];
const SIDES: [&str; 2] = ["requests", "limits"];

/// A change through this endpoint changes resources and what a container thinks of their change, and nothing else but the record
/// of who wrote what.
pub(super) fn keep_all_else(old: &Value, new: &mut Value) {
    let sent = std::mem::replace(new, old.clone());
    for key in LISTS {
        let Some(kept) = new["spec"].get_mut(key).and_then(Value::as_array_mut) else { continue };
        // Where they stand in another order the names tell; that is refused later.
        for container in list(&sent["spec"], key) {
            let name = word(container, "name");
            let Some(kept) = kept.iter_mut().filter(|kept| word(kept, "name") == name).find_map(Value::as_object_mut)
            else {
                continue;
            };
            for part in ["resources", "resizePolicy"] {
                match container.get(part) {
                    Some(value) => kept.insert(part.to_owned(), value.clone()),
                    None => kept.remove(part),
                };
            }
        }
    }
    // Who stands where is the sender's word; validation looks at it.
    for key in LISTS {
        let order: Vec<&str> = list(&sent["spec"], key).iter().map(|container| word(container, "name")).collect();
        let Some(kept) = new["spec"].get_mut(key).and_then(Value::as_array_mut) else { continue };
        let known = kept.iter().map(|container| word(container, "name"));
        if order.len() != kept.len() || !known.eq(order.iter().copied()) {
            let renamed = order.iter().map(|name| {
                kept.iter().find(|kept| word(kept, "name") == *name).cloned().unwrap_or_else(|| json!({ "name": name }))
            });
            *kept = renamed.collect();
        }
    }
    let metadata = meta::meta_mut(new);
    match sent["metadata"].get("managedFields") {
        Some(managed) => metadata.insert("managedFields".to_owned(), managed.clone()),
        None => metadata.remove("managedFields"),
    };
}

/// What is wrong with a change through this endpoint.
pub(super) fn validate_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if pod::is_mirror(old) {
        causes.push(Cause::forbidden("spec", "static pods cannot be resized"));
        return;
    }
    if pod::is_terminal(old) {
        causes.push(Cause::forbidden("spec", "pods that have ended cannot be resized"));
        return;
    }
    for key in LISTS {
        let names =
            |pod: &Value| list(&pod["spec"], key).iter().map(|c| word(c, "name").to_owned()).collect::<Vec<_>>();
        let (before, after) = (names(old), names(new));
        if before != after {
            let unknown: Vec<_> = after.iter().filter(|name| !before.contains(name)).map(String::as_str).collect();
            let text = match unknown.as_slice() {
                [] if before.len() == after.len() => format!("{key} may not be renamed or reordered on resize"),
                [] => format!("{key} may not be removed on resize"),
                unknown => {
                    format!("{key} may not be added or renamed on resize: the pod has no {}", unknown.join(", "))
                }
            };
            causes.push(Cause::forbidden(format!("spec.{key}"), &text));
        }
    }
    let class = pod::computed_qos_class(new).as_str();
    if old["status"]["qosClass"].is_string() && old["status"]["qosClass"] != class {
        let text = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid("spec", class, text));
    }
    for key in LISTS {
        for (index, (was, is)) in list(&old["spec"], key).iter().zip(list(&new["spec"], key)).enumerate() {
            let field = format!("spec.{key}[{index}].resources");
            container(&was["resources"], &is["resources"], &field, causes);
            let runs_once = key == "initContainers" && word(was, "restartPolicy") != "Always";
            if runs_once && !same(&was["resources"], &is["resources"]) {
                causes.push(Cause::forbidden(field, "cannot be changed for an init container that ends"));
            }
        }
    }
}

fn container(was: &Value, is: &Value, field: &str, causes: &mut Vec<Cause>) {
    let empty = Map::new();
    for side in SIDES {
        let (before, after) = (was[side].as_object().unwrap_or(&empty), is[side].as_object().unwrap_or(&empty));
        if before.keys().any(|name| matches!(name.as_str(), "cpu" | "memory") && !after.contains_key(name)) {
            causes.push(Cause::forbidden(format!("{field}.{side}"), &format!("resource {side} cannot be removed")));
        }
        let others = before.keys().chain(after.keys()).filter(|name| !matches!(name.as_str(), "cpu" | "memory"));
        if let Some(name) = others.into_iter().find(|name| !same_amount(before.get(*name), after.get(*name))) {
            let text = "only cpu and memory resources are mutable";
            causes.push(Cause::forbidden(format!("{field}.{side}.{name}"), text));
        }
    }
    if was.get("claims") != is.get("claims") {
        causes.push(Cause::forbidden(format!("{field}.claims"), "only cpu and memory resources are mutable"));
    }
}

fn same(was: &Value, is: &Value) -> bool {
    SIDES
        .iter()
        .all(|side| ["cpu", "memory"].iter().all(|name| same_amount(was[*side].get(*name), is[*side].get(*name))))
}

/// `1` and `1000m` are the same.
fn same_amount(was: Option<&Value>, is: Option<&Value>) -> bool {
    let amount = |value: Option<&Value>| value.and_then(Value::as_str)?.parse::<Quantity>().ok();
    was == is || (amount(was).is_some() && amount(was) == amount(is))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: Value) -> Value {
        let app = json!({ "name": "app", "image": "i:1", "resources": resources });
        let side = json!({ "name": "side", "image": "i:1", "resources": {} });
        json!({ "metadata": { "name": "p", "labels": { "a": "b" } }, "spec": { "containers": [app, side] },
            "status": { "phase": "Running", "qosClass": "Burstable" } })
    }

    fn cpu(request: &str, limit: &str) -> Value {
        json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } })
    }

    fn refused(old: &Value, new: &Value) -> Vec<String> {
        let mut new = new.clone();
        keep_all_else(old, &mut new);
        let mut causes = Vec::new();
        validate_update(old, &new, &mut causes);
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn resources_change_and_nothing_else() {
        let old = pod(cpu("1", "2"));
        let mut new = pod(cpu("500m", "3"));
        new["metadata"]["labels"]["a"] = "c".into();
        new["spec"]["containers"][0]["image"] = "i:2".into();
        new["spec"]["nodeName"] = "n".into();
        new["status"]["phase"] = "Failed".into();
        keep_all_else(&old, &mut new);
        assert_eq!(new, pod(cpu("500m", "3")));
        assert_eq!(refused(&old, &new), Vec::<String>::new());
        let policy = json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
        new["spec"]["containers"][1]["resizePolicy"] = policy.clone();
        keep_all_else(&old, &mut new);
        assert_eq!(new["spec"]["containers"][1]["resizePolicy"], policy);
    }

    #[test]
    fn resize_that_is_not_supported_is_refused() {
        let old = pod(cpu("1", "2"));
        assert_eq!(
            refused(&old, &pod(json!({ "requests": { "cpu": "1" } }))),
            ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]
        );
        let mut more = cpu("1", "2");
        more["limits"]["ephemeral-storage"] = "1Gi".into();
        assert_eq!(
            refused(&old, &pod(more)),
            [
                "spec.containers[0].resources.limits.ephemeral-storage: Forbidden: only cpu and memory resources are mutable"
            ]
        );
        assert_eq!(
            refused(&old, &pod(json!({}))).last().map(String::as_str),
            Some("spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed")
        );
        let best = "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing";
        assert_eq!(refused(&old, &pod(json!({})))[0], best);
        let mut reordered = old.clone();
        reordered["spec"]["containers"] = json!([old["spec"]["containers"][1], old["spec"]["containers"][0]]);
        assert_eq!(
            refused(&old, &reordered)[0],
            "spec.containers: Forbidden: containers may not be renamed or reordered on resize"
        );
        let mut unknown = old.clone();
        unknown["spec"]["containers"].as_array_mut().expect("a list").push(json!({ "name": "apq" }));
        assert_eq!(
            refused(&old, &unknown)[0],
            "spec.containers: Forbidden: containers may not be added or renamed on resize: the pod has no apq"
        );
        let mut fewer = old.clone();
        fewer["spec"]["containers"].as_array_mut().expect("a list").pop();
        assert_eq!(refused(&old, &fewer)[0], "spec.containers: Forbidden: containers may not be removed on resize");
        let mut mirror = old.clone();
        mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        assert_eq!(refused(&mirror, &old), ["spec: Forbidden: static pods cannot be resized"]);
    }
}
