//! What the directives do, on pods, nodes and their metadata.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::schema::message_of;

fn patched(kind: &str, mut document: Value, change: &Value) -> Result<Value, Status> {
    patch(message_of("", "v1", kind), &mut document, change.to_string().as_bytes())?;
    Ok(document)
}

fn containers(original: &Value, change: &Value) -> Value {
    let result = patched("Pod", json!({"spec": {"containers": original}}), &json!({"spec": change})).unwrap();
    result["spec"]["containers"].clone()
}

#[test]
fn containers_merge_by_name_and_their_env_too() {
    let original = json!([{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "args": ["one"]}]);
    let change = json!({"containers": [
        {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}], "args": ["two"]},
        {"name": "b", "image": "b:1"},
    ]});
    assert_eq!(
        containers(&original, &change),
        json!([
            {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}], "args": ["two"]},
            {"name": "b", "image": "b:1"},
        ])
    );
}

#[test]
fn elements_are_deleted_by_key_and_lists_replaced_by_directive() {
    let original = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    assert_eq!(
        containers(&original, &json!({"containers": [{"$patch": "delete", "name": "b"}]})),
        json!([{"name": "a"}, {"name": "c"}])
    );
    assert_eq!(
        containers(&original, &json!({"containers": [{"$patch": "replace"}, {"name": "z"}]})),
        json!([{"name": "z"}])
    );
    assert_eq!(
        containers(&original, &json!({"containers": [{"name": "a", "image": "i"}, {"$patch": "delete", "name": "a"}]}))
            [0],
        json!({"name": "a", "image": "i"}),
        "a deletion is of what was there"
    );
}

#[test]
fn the_patch_decides_the_order_of_what_it_names_and_the_original_of_the_rest() {
    let original = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    let names = |change: Value| -> String {
        let list = containers(&original, &change);
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
    };
    assert_eq!(names(json!({"containers": [{"name": "d"}]})), "dabc", "a new element has no place to keep");
    assert_eq!(names(json!({"containers": [{"name": "c"}, {"name": "a"}]})), "bca");
    assert_eq!(names(json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]})), "cba");
    assert_eq!(
        names(json!({
            "$setElementOrder/containers": [{"name": "a"}, {"name": "d"}, {"name": "b"}],
            "containers": [{"name": "d"}],
        })),
        "adbc"
    );
}

#[test]
fn an_order_that_contradicts_its_patch_is_refused() {
    let refuse = |change: Value| patched("Pod", json!({}), &json!({"spec": change})).unwrap_err();
    let unnamed = refuse(json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}));
    assert_eq!(unnamed.code, 400);
    assert!(unnamed.message.contains("doesn't match $setElementOrder list"));
    let order = json!([{"name": "a"}, {"name": "b"}]);
    let swapped = refuse(json!({"$setElementOrder/containers": order, "containers": [{"name": "b"}, {"name": "a"}]}));
    assert_eq!(swapped.code, 400);
}

#[test]
fn finalizers_are_a_set_with_its_own_delete_directive() {
    let pod = json!({"metadata": {"finalizers": ["a", "b"]}});
    let merged = patched("Pod", pod.clone(), &json!({"metadata": {"finalizers": ["c", "a"]}})).unwrap();
    assert_eq!(merged["metadata"]["finalizers"], json!(["c", "a", "b"]));
    let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(patched("Pod", pod.clone(), &change).unwrap()["metadata"]["finalizers"], json!(["b"]));
    let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}});
    assert_eq!(patched("Pod", pod.clone(), &change).unwrap()["metadata"]["finalizers"], json!(["c", "b"]));
    let change = json!({"metadata": {"$setElementOrder/finalizers": ["b", "a"]}});
    assert_eq!(patched("Pod", pod, &change).unwrap()["metadata"]["finalizers"], json!(["b", "a"]));
}

#[test]
fn atomic_lists_are_replaced_and_other_keys_are_used_where_published() {
    let spec = json!({"spec": {
        "tolerations": [{"key": "a"}],
        "containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}],
                        "volumeMounts": [{"mountPath": "/a", "name": "v"}]}],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x"]}],
    }});
    let change = json!({"spec": {
        "tolerations": [{"key": "b"}],
        "containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "volumeMounts": [{"mountPath": "/b", "name": "v"}]}],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["y"]}],
    }});
    let merged = patched("Pod", spec, &change).unwrap();
    assert_eq!(merged["spec"]["tolerations"], json!([{"key": "b"}]));
    assert_eq!(merged["spec"]["hostAliases"], json!([{"ip": "1.2.3.4", "hostnames": ["y"]}]));
    let container = &merged["spec"]["containers"][0];
    assert_eq!(container["ports"], json!([{"containerPort": 80, "name": "web", "protocol": "TCP"}]));
    assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 2);
}

#[test]
fn null_deletes_and_objects_obey_their_directive() {
    let node = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"unschedulable": true, "taints": [{"key": "t"}]}});
    let cordon = json!({"metadata": {"labels": {"a": null}}, "spec": {"unschedulable": null, "taints": null}});
    let merged = patched("Node", node.clone(), &cordon).unwrap();
    assert_eq!(merged, json!({"metadata": {"labels": {"b": "2"}}, "spec": {}}));
    let replace = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}});
    assert_eq!(patched("Node", node.clone(), &replace).unwrap()["metadata"]["labels"], json!({"c": "3"}));
    let delete = json!({"metadata": {"labels": {"$patch": "delete"}}});
    assert_eq!(patched("Node", node.clone(), &delete).unwrap()["metadata"]["labels"], json!({}));
    let unknown = json!({"metadata": {"$patch": "fold"}});
    assert_eq!(patched("Node", node, &unknown).unwrap_err().code, 422);
}

#[test]
fn conditions_and_addresses_of_a_status_merge_by_type() {
    let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}});
    let change = json!({"status": {
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DiskPressure"}],
        "conditions": [{"type": "Ready", "status": "False"}],
    }});
    assert_eq!(
        patched("Node", node, &change).unwrap()["status"]["conditions"],
        json!([{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}])
    );
}

#[test]
fn retain_keys_drops_the_other_members_of_a_union() {
    let pod = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let change =
        json!({"spec": {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/"}}]}});
    let merged = patched("Pod", pod.clone(), &change).unwrap();
    assert_eq!(merged["spec"]["volumes"], json!([{"name": "v", "hostPath": {"path": "/"}}]));
    let stray = json!({"spec": {"volumes": [{"$retainKeys": ["name"], "name": "v", "hostPath": {}}]}});
    assert_eq!(patched("Pod", pod.clone(), &stray).unwrap_err().message, "patch content doesn't match retainKeys list");
    let malformed = json!({"spec": {"volumes": [{"$retainKeys": "name", "name": "v"}]}});
    assert_eq!(patched("Pod", pod, &malformed).unwrap_err().message, "invalid patch format of retainKeys");
}

#[test]
fn malformed_directives_and_missing_keys_are_refused() {
    let refuse = |change: Value| patched("Pod", json!({"spec": {"containers": [{"name": "a"}]}}), &change).unwrap_err();
    assert_eq!(
        refuse(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}})).message,
        "invalid patch format of primitive list"
    );
    assert_eq!(
        refuse(json!({"spec": {"$setElementOrder/containers": "a"}})).message,
        "invalid patch format of setElementOrder list"
    );
    assert_eq!(
        refuse(json!({"spec": {"containers": [{"image": "x"}]}})).message,
        "map: map[image:x] does not contain declared merge key: name"
    );
    assert_eq!(refuse(json!({"spec": {"containers": ["a"]}})).code, 422);
    assert_eq!(refuse(json!({"spec": {"containers": [["a"]]}})).code, 422);
}

#[test]
fn directives_leave_no_trace_where_nothing_was_there_before() {
    let change = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}],
        "containers": [{"name": "a", "image": null, "env": [{"$patch": "delete", "name": "X"}, {"name": "Y", "value": null}]}],
        "securityContext": {"$patch": "replace", "runAsUser": 1, "runAsGroup": null},
    }});
    assert_eq!(
        patched("Pod", json!({}), &change).unwrap(),
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y"}]}], "securityContext": {"runAsUser": 1}}})
    );
}
