//! The two halves of discovery agree, and both say what clients look for.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// `group/version/resource[/subresource]` of a legacy list.
fn legacy() -> BTreeSet<String> {
    group_versions()
        .into_iter()
        .flat_map(|(group, version)| {
            let list = api_resource_list(group, version).unwrap();
            let names: Vec<String> = list["resources"]
                .as_array()
                .unwrap()
                .iter()
                .map(|r| format!("{}/{}", list["groupVersion"].as_str().unwrap(), r["name"].as_str().unwrap()))
                .collect();
            names
        })
        .collect()
}

fn aggregated_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for document in [aggregated_core(), aggregated_groups()] {
        for item in document["items"].as_array().unwrap() {
            let group = item["metadata"]["name"].as_str().unwrap_or_default();
            for version in item["versions"].as_array().unwrap() {
                let prefix = group_version(group, version["version"].as_str().unwrap());
                for resource in version["resources"].as_array().unwrap() {
                    let name = format!("{prefix}/{}", resource["resource"].as_str().unwrap());
                    for sub in resource["subresources"].as_array().into_iter().flatten() {
                        names.insert(format!("{name}/{}", sub["subresource"].as_str().unwrap()));
                    }
                    names.insert(name);
                }
            }
        }
    }
    names
}

/// Wire fact 13 of api-surface.
#[test]
fn the_two_halves_agree() {
    assert_eq!(legacy(), aggregated_names());
    assert!(legacy().contains("v1/pods/log") && legacy().contains("coordination.k8s.io/v1/leases"));
}

/// Wire fact 20 of api-surface: drain evicts only if it finds both.
#[test]
fn eviction_names_its_group_and_version() {
    let list = api_resource_list("", "v1").unwrap();
    let find = |name: &str| list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone();
    assert_eq!(
        find("pods/eviction"),
        json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
               "kind": "Eviction", "verbs": ["create"]})
    );
    assert!(find("pods/status").get("group").is_none());
    assert_eq!(find("pods")["shortNames"], json!(["po"]));
    assert!(!find("namespaces")["verbs"].as_array().unwrap().contains(&json!("deletecollection")));
}

#[test]
fn groups_are_listed_without_the_core_group() {
    let groups = api_group_list();
    let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"apps") && names.contains(&"events.k8s.io") && !names.contains(&""), "{names:?}");
    assert_eq!(
        api_group("coordination.k8s.io").unwrap()["preferredVersion"],
        json!({"groupVersion": "coordination.k8s.io/v1", "version": "v1"})
    );
    assert!(api_group("nope").is_none() && api_resource_list("nope", "v1").is_none());
    assert_eq!(api_versions("127.0.0.1:6443")["versions"], json!(["v1"]));
}

#[test]
fn every_kind_has_one_patch_operation_with_field_validation() {
    let index = openapi_v3_index();
    for kind in KINDS {
        let path = if kind.group.is_empty() { "api/v1".to_owned() } else { format!("apis/{}", kind.api_version()) };
        let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = openapi_v3(kind.group, kind.version).unwrap();
        let operation = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .map(|path| &path["patch"])
            .find(|operation| operation["x-kubernetes-group-version-kind"]["kind"] == kind.kind)
            .unwrap();
        let parameters = operation["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"));
        assert!(operation.get("requestBody").is_none(), "a strategic merge body would ask for schemas");
    }
    assert!(openapi_v3("nope", "v1").is_none());
}

#[test]
fn the_old_document_is_empty_in_both_spellings() {
    assert_eq!(openapi_v2_empty()["swagger"], "2.0");
    let bytes = openapi_v2_empty_protobuf();
    assert_eq!(bytes[..5], [0x0a, 3, b'2', b'.', b'0']);
    assert_eq!(bytes[bytes.len() - 4..], [0x42, 0, 0x4a, 0]);
    assert_eq!(bytes.len(), 5 + 2 + usize::from(bytes[6]) + 4);
}

#[test]
fn schemas_reach_every_field_and_name_nothing_that_is_not_there() {
    let document = openapi_v3("", "v1").unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "version": "v1", "kind": "Pod"}]));
    let grace = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["terminationGracePeriodSeconds"];
    assert_eq!(grace["type"], "integer");
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["items"]["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.Container");
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(schemas.get(reference).is_some_and(Value::is_object), "{reference}");
    }
    for (group, version) in group_versions() {
        let document = openapi_v3(group, version).unwrap();
        for kind in KINDS.iter().filter(|kind| (kind.group, kind.version) == (group, version)) {
            let named = json!([{"group": group, "version": version, "kind": kind.kind}]);
            let schemas = document["components"]["schemas"].as_object().unwrap();
            assert!(schemas.values().any(|s| s["x-kubernetes-group-version-kind"] == named), "{kind:?}");
        }
    }
}
