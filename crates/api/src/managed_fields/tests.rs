//! What plain writes record. The expected sets are those a stock server records for the same writes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::kinds::Registry;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn kind(name: &str) -> &'static Kind {
    Registry::built_in().by_kind("", "v1", name).unwrap()
}

/// Creates or updates, and answers the recorded entries.
fn track(name: &str, old: Option<&Value>, new: &mut Value, manager: &str, second: i64) -> Value {
    track_update(kind(name), old, new, manager, "v1", None, at(second));
    raw(new).cloned().unwrap_or_default()
}

fn config_map(data: Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": "d", "uid": "u", "resourceVersion": "1"}, "data": data})
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "d", "labels": {"app": "p"}, "creationTimestamp": "2026-11-15T18:00:44Z",
                     "finalizers": ["x/y"]},
        "spec": {
            "containers": [{
                "name": "a", "image": "i", "resources": {}, "args": ["1"],
                "env": [{"name": "X", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            }],
            "nodeSelector": {"disk": "ssd"}, "securityContext": {}, "tolerations": [{"key": "k"}],
            "imagePullSecrets": [{"name": "s"}], "terminationGracePeriodSeconds": 30,
        },
        "status": {"phase": "Pending"},
    })
}

#[test]
fn a_create_owns_everything_the_client_could_say() {
    let mut pod = pod();
    let entries = track("Pod", None, &mut pod, "kubectl-create", 0);
    assert_eq!(
        entries,
        json!([{
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "time": "2027-01-15T08:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:labels": {".": {}, "f:app": {}},
                    "f:finalizers": {".": {}, "v:\"x/y\"": {}},
                },
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"a\"}": {
                        ".": {}, "f:name": {}, "f:image": {}, "f:resources": {}, "f:args": {},
                        "f:env": {".": {}, "k:{\"name\":\"X\"}": {".": {}, "f:name": {}, "f:value": {}}},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:containerPort": {}, "f:protocol": {},
                        }},
                        "f:livenessProbe": {".": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}}},
                    }},
                    "f:nodeSelector": {}, "f:securityContext": {}, "f:tolerations": {},
                    "f:imagePullSecrets": {".": {}, "k:{\"name\":\"s\"}": {}},
                    "f:terminationGracePeriodSeconds": {},
                },
            },
        }])
    );
}

#[test]
fn an_update_takes_what_it_changes_from_everybody_else() {
    let mut created = config_map(json!({"a": "1", "b": "1"}));
    track("ConfigMap", None, &mut created, "one", 0);
    let mut updated = config_map(json!({"a": "2", "b": "1"}));
    let entries = track("ConfigMap", Some(&created), &mut updated, "two", 5);
    assert_eq!(entries[0]["manager"], "one");
    assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!(entries[1]["manager"], "two");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:data": {"f:a": {}}}));
    assert_eq!(entries[0]["time"], "2027-01-15T08:00:00Z", "the first manager did nothing");
    assert_eq!(entries[1]["time"], "2027-01-15T08:00:05Z");
}

#[test]
fn removed_fields_have_no_owner_and_empty_owners_are_forgotten() {
    let mut created = config_map(json!({"a": "1"}));
    track("ConfigMap", None, &mut created, "one", 0);
    let mut updated = json!({"metadata": {"name": "c", "namespace": "d"}});
    assert_eq!(track("ConfigMap", Some(&created), &mut updated, "two", 1), Value::Null);
}

#[test]
fn a_write_that_changes_nothing_leaves_the_record_alone() {
    let mut created = config_map(json!({"a": "1"}));
    let before = track("ConfigMap", None, &mut created, "one", 0);
    let mut same = config_map(json!({"a": "1"}));
    same["metadata"]["resourceVersion"] = json!("2");
    assert_eq!(track("ConfigMap", Some(&created), &mut same, "two", 9), before);
    let mut same = created.clone();
    assert_eq!(track("ConfigMap", Some(&created), &mut same, "two", 9), before);
}

#[test]
fn the_status_has_owners_of_its_own() {
    let mut created = pod();
    track("Pod", None, &mut created, "kubectl", 0);
    let mut running = created.clone();
    running["status"] = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "a"}]});
    track_update(kind("Pod"), Some(&created), &mut running, "node", "v1", Some("status"), at(3));
    let entries = raw(&running).unwrap();
    assert_eq!(entries[0], raw(&created).unwrap()[0]);
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(
        entries[1]["fieldsV1"],
        json!({"f:status": {
            "f:phase": {}, "f:podIP": {}, "f:containerStatuses": {},
            "f:podIPs": {".": {}, "k:{\"ip\":\"10.0.0.1\"}": {".": {}, "f:ip": {}}},
            "f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}},
        }})
    );
}

#[test]
fn clients_may_rewrite_or_reset_the_record_but_not_lose_it_by_accident() {
    let mut created = config_map(json!({"a": "1"}));
    let before = track("ConfigMap", None, &mut created, "one", 0);

    let mut silent = config_map(json!({"a": "1"}));
    silent["metadata"]["managedFields"] = json!([]);
    assert_eq!(track("ConfigMap", Some(&created), &mut silent, "two", 1), before);

    let mut reset = created.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(track("ConfigMap", Some(&created), &mut reset, "two", 1), Value::Null);

    let mut renamed = created.clone();
    renamed["metadata"]["managedFields"][0]["manager"] = json!("three");
    assert_eq!(track("ConfigMap", Some(&created), &mut renamed, "two", 1)[0]["manager"], "three");

    let mut garbage = created.clone();
    garbage["metadata"]["managedFields"] = json!([{"operation": "Guess"}]);
    assert_eq!(track("ConfigMap", Some(&created), &mut garbage, "two", 1), before);

    let mut status = created.clone();
    status["metadata"]["managedFields"] = json!([{}]);
    track_update(kind("ConfigMap"), Some(&created), &mut status, "two", "v1", Some("status"), at(1));
    assert_eq!(raw(&status), Some(&before), "a subresource does not touch the record");
}

#[test]
fn the_oldest_of_many_writers_are_folded_together() {
    let mut object = config_map(json!({}));
    for n in 0..13 {
        let old = object.clone();
        object["data"][format!("k{n:02}")] = json!("v");
        track("ConfigMap", Some(&old), &mut object, &format!("m{n:02}"), n);
    }
    let entries = raw(&object).unwrap().as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {"f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}}}));
    assert_eq!(entries[0]["time"], "2027-01-15T08:00:03Z");
    assert_eq!(entries[9]["manager"], "m12");
}

#[test]
fn writers_of_different_versions_are_not_folded_into_each_other() {
    let fields = || FieldSet::from_json(&json!({"f:data": {"f:a": {}}})).unwrap();
    let entry = |n: usize, api_version: &str| Entry {
        manager: format!("m{n:02}"),
        operation: Operation::Update,
        api_version: api_version.to_owned(),
        subresource: String::new(),
        time: format!("2027-01-01T00:00:{n:02}Z"),
        fields: fields(),
    };
    let mut entries: Vec<Entry> = (0..12).map(|n| entry(n, if n < 2 { ["v1", "v2"][n] } else { "v3" })).collect();
    fold_oldest(&mut entries);
    let managers: Vec<&str> = entries.iter().map(|entry| entry.manager.as_str()).collect();
    assert_eq!(managers[..4], ["m00", "m01", "ancient-changes", "m05"]);
    assert_eq!(entries.len(), 10);
}

#[test]
fn entries_are_sorted_by_operation_time_and_name() {
    let mut object = config_map(json!({"a": "1"}));
    let entry = |manager: &str, operation: &str, time: &str, field: &str| {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
               "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {(field): {}}}})
    };
    object["metadata"]["managedFields"] = json!([
        entry("b", "Update", "2027-01-01T00:00:00Z", "f:a"),
        entry("a", "Update", "2027-01-01T00:00:00Z", "f:b"),
        entry("z", "Apply", "2028-01-01T00:00:00Z", "f:c"),
    ]);
    let old = config_map(json!({"a": "1"}));
    let entries = track("ConfigMap", Some(&old), &mut object, "x", 0);
    let managers: Vec<&str> = entries.as_array().unwrap().iter().map(|e| e["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, ["z", "a", "b"]);
}

#[test]
fn elements_that_share_a_key_are_owned_together() {
    let duplicate = |value: &str| {
        let mut pod = pod();
        pod["spec"]["containers"][0]["env"] = json!([{"name": "X", "value": "1"}, {"name": "X", "value": value}]);
        pod
    };
    let mut created = duplicate("2");
    track("Pod", None, &mut created, "one", 0);
    let mut updated = duplicate("3");
    let entries = track("Pod", Some(&created), &mut updated, "two", 1);
    let container = &entries[1]["fieldsV1"]["f:spec"]["f:containers"]["k:{\"name\":\"a\"}"];
    assert_eq!(container, &json!({"f:env": {"k:{\"name\":\"X\"}": {}}}));
}

#[test]
fn reordering_a_keyed_list_changes_no_owner() {
    let order = |names: [&str; 2]| {
        let mut pod = pod();
        pod["spec"]["containers"] = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        pod
    };
    let mut created = order(["a", "b"]);
    let before = track("Pod", None, &mut created, "one", 0);
    assert_eq!(track("Pod", Some(&created), &mut order(["b", "a"]), "two", 1), before);
}

/// Every write of a status passes here. The bound is generous: a debug build on a busy machine stays far below it.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn tracking_a_status_write_is_fast() {
    let mut created = pod();
    track("Pod", None, &mut created, "kubectl", 0);
    let mut rounds = Vec::new();
    for n in 0..200 {
        let start = Instant::now();
        let mut next = created.clone();
        next["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "message": n}]});
        track_update(kind("Pod"), Some(&created), &mut next, "node", "v1", Some("status"), at(n));
        created = next;
        rounds.push(start.elapsed());
    }
    rounds.sort();
    // Of the middle: whatever the machine does for a moment in between counts for one round only.
    let each = rounds[rounds.len() / 2];
    println!("{each:?} for each");
    assert!(each < Duration::from_millis(5), "{each:?}");
}
