//! Several managers and one object: who gets what, who conflicts with whom, what goes when nobody wants it.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::kinds::Registry;
use crate::managed_fields::track_update;

fn options(manager: &str) -> ApplyOptions<'_> {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    ApplyOptions { manager, force: false, api_version: "v1", subresource: None, now }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"}, "data": data})
}

fn applied(current: Option<&Value>, document: &Value, options: &ApplyOptions<'_>) -> Result<Value, Status> {
    let kind = Registry::built_in().by_kind("", "v1", document["kind"].as_str().unwrap()).unwrap();
    apply(kind, current, document.to_string().as_bytes(), options)
}

fn data(current: Option<&Value>, data: &Value, manager: &str) -> Result<Value, Status> {
    applied(current, &config_map(data), &options(manager))
}

fn updated(current: &Value, change: impl FnOnce(&mut Value), manager: &str) -> Value {
    let mut new = current.clone();
    change(&mut new);
    let now = Timestamp::from_second(1_800_000_009).unwrap();
    track_update(
        Registry::built_in().by_kind("", "v1", "ConfigMap").unwrap(),
        Some(current),
        &mut new,
        manager,
        "v1",
        None,
        now,
    );
    new
}

#[test]
fn applying_to_nothing_creates_and_owns_what_the_document_says() {
    let object = data(None, &json!({"a": "1"}), "m1").unwrap();
    assert_eq!(object["data"], json!({"a": "1"}));
    assert_eq!(object["metadata"]["name"], "c");
    assert!(object.get("kind").is_none());
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{"manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": "2027-01-15T08:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}])
    );
}

/// [Wire fact 15] for apply.
#[test]
fn applying_the_same_again_changes_nothing() {
    let object = data(None, &json!({"a": "1"}), "m1").unwrap();
    let mut later = options("m1");
    later.now = Timestamp::from_second(1_900_000_000).unwrap();
    let again = applied(Some(&object), &config_map(&json!({"a": "1"})), &later).unwrap();
    assert_eq!(again, object);
}

#[test]
fn a_zero_or_a_quantity_spelt_differently_is_the_same() {
    let document = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
        "spec": {"hostNetwork": false, "containers": [{"name": "a", "image": "i",
            "resources": {"requests": {"cpu": "1000m"}}}]}});
    let kind = Registry::built_in().by_kind("", "v1", "Pod").unwrap();
    let first = applied(None, &document, &options("m1")).unwrap();
    let stored = decode::normalise(kind, &first, FieldValidation::Ignore).unwrap().value;
    assert_eq!(stored["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    let mut later = options("m1");
    later.now = Timestamp::from_second(1_900_000_000).unwrap();
    let again = applied(Some(&stored), &document, &later).unwrap();
    assert_eq!(decode::normalise(kind, &again, FieldValidation::Ignore).unwrap().value, stored);
}

#[test]
fn another_managers_field_is_a_conflict_unless_forced() {
    let object = data(None, &json!({"a": "1", "b": "1"}), "m1").unwrap();
    let conflict = data(Some(&object), &json!({"a": "2"}), "m2").unwrap_err();
    assert_eq!((conflict.code, conflict.reason), (409, "Conflict"));
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"m1\": .data.a");
    let cause = &conflict.details.as_ref().unwrap().causes[0];
    assert_eq!((cause.reason, cause.field.as_str()), ("FieldManagerConflict", ".data.a"));
    assert_eq!(cause.message, "conflict with \"m1\"");

    let two = data(Some(&object), &json!({"a": "2", "b": "2"}), "m2").unwrap_err();
    assert_eq!(two.message, "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b");

    let forced = ApplyOptions { force: true, ..options("m2") };
    let taken = applied(Some(&object), &config_map(&json!({"a": "2"})), &forced).unwrap();
    assert_eq!(taken["data"], json!({"a": "2", "b": "1"}));
    let entries = &taken["metadata"]["managedFields"];
    assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {"f:b": {}}}));
    assert_eq!(entries[1]["fieldsV1"], json!({"f:data": {"f:a": {}}}));
}

#[test]
fn a_conflict_with_a_plain_writer_names_its_version() {
    let object = data(None, &json!({"a": "1"}), "m1").unwrap();
    let object = updated(&object, |object| object["data"]["a"] = json!("2"), "kubectl-edit");
    let conflict = data(Some(&object), &json!({"a": "1"}), "m1").unwrap_err();
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using v1: .data.a");
}

#[test]
fn equal_values_are_owned_together_and_stay_until_the_last_lets_go() {
    let object = data(None, &json!({"a": "1", "b": "1"}), "m1").unwrap();
    let shared = data(Some(&object), &json!({"a": "1"}), "m2").unwrap();
    assert_eq!(shared["metadata"]["managedFields"].as_array().unwrap().len(), 2);
    let one_left = data(Some(&shared), &json!({"b": "1"}), "m1").unwrap();
    assert_eq!(one_left["data"], json!({"a": "1", "b": "1"}), "m2 still wants a");
    let none_left = data(Some(&one_left), &json!({}), "m2").unwrap();
    assert_eq!(none_left["data"], json!({"b": "1"}));
}

#[test]
fn field_dropped_by_its_only_manager_is_removed_and_other_fields_stay() {
    let object = data(None, &json!({"a": "1", "b": "1"}), "m1").unwrap();
    let object = updated(&object, |object| object["data"]["c"] = json!("3"), "someone");
    let object = data(Some(&object), &json!({"a": "1"}), "m1").unwrap();
    assert_eq!(object["data"], json!({"a": "1", "c": "3"}));
    let mut bare = config_map(&Value::Null);
    bare.as_object_mut().unwrap().remove("data");
    let object = applied(Some(&object), &bare, &options("m1")).unwrap();
    assert_eq!(object["data"], json!({"c": "3"}));
    let owners: Vec<_> =
        object["metadata"]["managedFields"].as_array().unwrap().iter().map(|e| &e["manager"]).collect();
    assert_eq!(owners, ["someone"], "a manager without fields is forgotten");
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": spec})
}

#[test]
fn keyed_lists_merge_by_element_and_lose_elements_by_owner() {
    let first = pod(&json!({"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]}));
    let object = applied(None, &first, &options("m1")).unwrap();
    let sidecar = pod(&json!({"containers": [{"name": "side", "image": "s"}]}));
    let object = applied(Some(&object), &sidecar, &options("m2")).unwrap();
    assert_eq!(names(&object), ["a", "b", "side"]);
    let fewer = pod(&json!({"containers": [{"name": "b", "image": "b"}]}));
    let object = applied(Some(&object), &fewer, &options("m1")).unwrap();
    assert_eq!(names(&object), ["b", "side"]);
}

fn names(pod: &Value) -> Vec<&str> {
    pod["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect()
}

#[test]
fn ports_are_told_apart_by_protocol_too_and_tcp_goes_without_saying() {
    let ports = |ports: Value| pod(&json!({"containers": [{"name": "a", "image": "a", "ports": ports}]}));
    let object = applied(None, &ports(json!([{"containerPort": 53, "protocol": "UDP"}])), &options("m1")).unwrap();
    let object = applied(Some(&object), &ports(json!([{"containerPort": 53, "name": "dns"}])), &options("m2")).unwrap();
    let held = object["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert_eq!(held.len(), 2);
    let conflict = applied(
        Some(&object),
        &ports(json!([{"containerPort": 53, "protocol": "TCP", "name": "other"}])),
        &options("m1"),
    )
    .unwrap_err();
    assert_eq!(
        conflict.details.unwrap().causes[0].field,
        ".spec.containers[name=\"a\"].ports[containerPort=53,protocol=\"TCP\"].name"
    );
}

#[test]
fn an_object_whose_last_owned_part_goes_goes_with_it() {
    let with = pod(&json!({"containers": [{"name": "a", "image": "a"}], "securityContext": {"runAsUser": 1}}));
    let object = applied(None, &with, &options("m1")).unwrap();
    let without = pod(&json!({"containers": [{"name": "a", "image": "a"}]}));
    let object = applied(Some(&object), &without, &options("m1")).unwrap();
    assert!(object["spec"].get("securityContext").is_none());
}

#[test]
fn atomic_values_are_owned_whole() {
    let spec = |selector: Value| pod(&json!({"containers": [{"name": "a", "image": "a"}], "nodeSelector": selector}));
    let object = applied(None, &spec(json!({"x": "1"})), &options("m1")).unwrap();
    let conflict = applied(Some(&object), &spec(json!({"y": "1"})), &options("m2")).unwrap_err();
    assert_eq!(conflict.details.unwrap().causes[0].field, ".spec.nodeSelector");
    let forced = ApplyOptions { force: true, ..options("m2") };
    let object = applied(Some(&object), &spec(json!({"y": "1"})), &forced).unwrap();
    assert_eq!(object["spec"]["nodeSelector"], json!({"y": "1"}));
}

#[test]
fn sets_merge_by_value() {
    let with = |finalizers: Value| {
        let mut document = config_map(&json!({}));
        document["metadata"]["finalizers"] = finalizers;
        document
    };
    let object = applied(None, &with(json!(["a/1"])), &options("m1")).unwrap();
    let object = applied(Some(&object), &with(json!(["b/2"])), &options("m2")).unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["a/1", "b/2"]));
    let object = applied(Some(&object), &with(json!([])), &options("m1")).unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["b/2"]));
}

#[test]
fn an_untracked_object_belongs_to_whoever_was_before() {
    let mut object = config_map(&json!({"a": "1", "b": "1"}));
    object.as_object_mut().unwrap().retain(|key, _| key == "metadata" || key == "data");
    let conflict = data(Some(&object), &json!({"a": "2"}), "m1").unwrap_err();
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
}

#[test]
fn the_status_is_applied_only_where_it_belongs() {
    let mut document = pod(&json!({"containers": [{"name": "a", "image": "a"}]}));
    document["status"] = json!({"phase": "Running"});
    let object = applied(None, &document, &options("m1")).unwrap();
    assert!(object.get("status").is_none());
    let status = ApplyOptions { subresource: Some("status"), ..options("m2") };
    let object = applied(Some(&object), &document, &status).unwrap();
    assert_eq!(object["status"], json!({"phase": "Running"}));
    assert_eq!(object["metadata"]["managedFields"][1]["subresource"], "status");
    assert_eq!(object["metadata"]["managedFields"][1]["fieldsV1"], json!({"f:status": {"f:phase": {}}}));
}

#[test]
fn yaml_is_read_and_null_says_nothing() {
    let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  creationTimestamp: null\ndata:\n  a: '1'\n";
    let object =
        apply(Registry::built_in().by_kind("", "v1", "ConfigMap").unwrap(), None, yaml, &options("m1")).unwrap();
    assert_eq!(object["data"], json!({"a": "1"}));
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:data": {"f:a": {}}}));
}

#[test]
fn documents_that_do_not_fit_are_refused() {
    let refuse = |document: Value| applied(None, &document, &options("m1")).unwrap_err();
    let mut owned = config_map(&json!({}));
    owned["metadata"]["managedFields"] = json!([]);
    assert_eq!(
        (refuse(owned.clone()).code, refuse(owned).message.as_str()),
        (400, "metadata.managedFields must be nil")
    );

    let mut other = config_map(&json!({}));
    other["apiVersion"] = json!("v2");
    assert_eq!(
        refuse(other).message,
        "incorrect version specified in apply patch. Specified patch version: v2, expected: v1"
    );

    let unknown = refuse(pod(&json!({"containers": [{"name": "a", "imag": "i"}]})));
    assert_eq!(
        unknown.message,
        "failed to create typed patch object (d/p; /v1, Kind=Pod): .spec.containers[name=\"a\"].imag: field not declared in schema"
    );
    assert_eq!((unknown.code, unknown.reason), (400, "BadRequest"));
    let twice = refuse(pod(&json!({"containers": [{"name": "a"}, {"name": "a"}]})));
    assert!(twice.message.ends_with(".spec.containers: duplicate entries for key [name=\"a\"]"), "{twice}");
    assert!(refuse(pod(&json!({"containers": [{"image": "a"}]}))).message.contains("omits"));
    assert!(refuse(pod(&json!({"containers": {"name": "a"}}))).message.contains("expected list"));
    let kind = Registry::built_in().by_kind("", "v1", "ConfigMap").unwrap();
    assert_eq!(apply(kind, None, b"a: [", &options("m1")).unwrap_err().code, 400);
}

/// Three managers applying at random: nobody can lose what they said, nothing ownerless stays, and saying it again
/// changes nothing.
#[test]
fn random_wishes_of_several_managers_settle() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) % bound
    };
    let mut current: Option<Value> = None;
    let mut wishes: [Vec<u64>; 3] = Default::default();
    for round in 0..600 {
        let who = usize::try_from(random(3)).unwrap();
        let wish: Vec<u64> = (0..6).filter(|_| random(2) == 0).collect();
        let env: Vec<Value> =
            wish.iter().map(|key| json!({"name": format!("K{key}"), "value": random(2).to_string()})).collect();
        let document = pod(&json!({"containers": [{"name": "a", "image": "a", "env": env}]}));
        let options = ApplyOptions { force: true, ..options(["m0", "m1", "m2"][who]) };
        let object = applied(current.as_ref(), &document, &options).unwrap();
        assert_eq!(applied(Some(&object), &document, &options).unwrap(), object, "round {round}");
        for wished in &env {
            assert!(held(&object).contains(wished), "round {round}: {wished}");
        }
        // A forced apply may have taken the value from the others, never the element.
        wishes[who] = wish;
        let expected: std::collections::BTreeSet<String> =
            wishes.iter().flatten().map(|key| format!("K{key}")).collect();
        let names = held(&object).iter().map(|env| env["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(expected, names, "round {round}");
        current = Some(object);
    }
}

fn held(pod: &Value) -> &[Value] {
    pod["spec"]["containers"][0]["env"].as_array().map(Vec::as_slice).unwrap_or_default()
}
