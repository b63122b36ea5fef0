//! The two halves of discovery agree, and both say what clients look for.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn built_in() -> &'static Registry {
    Registry::built_in()
}

/// `group/version/resource[/subresource]` of a legacy list.
fn legacy() -> BTreeSet<String> {
    group_versions(built_in())
        .into_iter()
        .chain([METRICS])
        .flat_map(|(group, version)| {
            let list = api_resource_list(built_in(), group, version).unwrap();
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
    for document in [aggregated_core(built_in()), aggregated_groups(built_in())] {
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
fn discovery_forms_agree() {
    assert_eq!(legacy(), aggregated_names());
    assert!(legacy().contains("v1/pods/log") && legacy().contains("coordination.k8s.io/v1/leases"));
}

/// Wire fact 20 of api-surface: drain evicts only if it finds both.
#[test]
fn eviction_names_its_group_and_version() {
    let list = api_resource_list(built_in(), "", "v1").unwrap();
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
    let groups = api_group_list(built_in());
    let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"apps") && names.contains(&"events.k8s.io") && !names.contains(&""), "{names:?}");
    assert_eq!(
        api_group(built_in(), "coordination.k8s.io").unwrap()["preferredVersion"],
        json!({"groupVersion": "coordination.k8s.io/v1", "version": "v1"})
    );
    assert!(api_group(built_in(), "nope").is_none() && api_resource_list(built_in(), "nope", "v1").is_none());
    assert_eq!(api_versions("127.0.0.1:6443")["versions"], json!(["v1"]));
}

/// The documents, made once for all tests.
fn documents() -> &'static [Document] {
    static MADE: std::sync::OnceLock<Vec<Document>> = std::sync::OnceLock::new();
    MADE.get_or_init(|| openapi_v3(built_in()).collect())
}

fn document(group: &str, version: &str) -> &'static Value {
    &documents().iter().find(|document| (&*document.group, &*document.version) == (group, version)).unwrap().value
}

#[test]
fn every_kind_that_can_be_patched_says_that_the_server_validates() {
    let index = openapi_v3_index(&documents().iter().map(|each| (each.path(), 7)).collect::<Vec<_>>());
    for kind in built_in().kinds() {
        let path = if kind.group.is_empty() { "api/v1".to_owned() } else { format!("apis/{}", kind.api_version()) };
        let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=0000000000000007")), "{url}");
        let paths = document(&kind.group, &kind.version)["paths"].as_object().unwrap();
        let operation = paths
            .values()
            .flat_map(|path| [&path["patch"], &path["post"]])
            .find(|operation| operation["x-kubernetes-group-version-kind"]["kind"] == kind.kind)
            .unwrap();
        let parameters = operation["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"), "{kind:?}");
    }
}

#[test]
fn every_verb_of_every_kind_has_its_operation_and_no_two_share_a_name() {
    let mut ids = BTreeSet::new();
    for kind in built_in().kinds() {
        let paths = document(&kind.group, &kind.version)["paths"].as_object().unwrap();
        let words: Vec<&str> = paths
            .iter()
            .filter(|(path, _)| path.split('/').any(|word| word == kind.plural) && !path.ends_with("/status"))
            .flat_map(|(_, item)| item.as_object().unwrap().values())
            .filter(|operation| operation["x-kubernetes-group-version-kind"]["kind"] == kind.kind)
            .filter_map(|operation| operation["x-kubernetes-action"].as_str())
            .collect();
        for verb in kind.verbs.iter().filter(|verb| **verb != "watch") {
            let word = match *verb {
                "create" => "post",
                "update" => "put",
                verb => verb,
            };
            assert!(words.contains(&word), "{kind:?} {verb}: {words:?}");
        }
    }
    for document in documents() {
        for (path, item) in document.value["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values().filter_map(|o| o["operationId"].as_str()) {
                assert!(ids.insert(operation), "{path}: {operation}");
            }
        }
    }
}

#[test]
fn schemas_reach_every_field_and_name_nothing_that_is_not_there() {
    let schemas = document("", "v1")["components"]["schemas"].as_object().unwrap();
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "version": "v1", "kind": "Pod"}]));
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(spec["required"], json!(["containers"]));
    let grace = &spec["properties"]["terminationGracePeriodSeconds"];
    assert_eq!((&grace["type"], &grace["format"]), (&json!("integer"), &json!("int64")));
    assert!(grace["description"].as_str().unwrap().contains("gracefully"), "{grace}");
    let containers = &spec["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["items"]["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.Container");
    for document in documents() {
        let schemas = document.value["components"]["schemas"].as_object().unwrap();
        let text = document.value.to_string();
        for reference in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(schemas.get(reference).is_some_and(Value::is_object), "{reference}");
        }
        let (group, version) = (&document.group, &document.version);
        for kind in built_in().kinds().iter().filter(|kind| (&kind.group, &kind.version) == (group, version)) {
            let named = json!([{"group": group, "version": version, "kind": kind.kind}]);
            assert!(schemas.values().any(|s| s["x-kubernetes-group-version-kind"] == named), "{kind:?}");
        }
    }
}

#[test]
fn openapi_describes_nearly_every_field() {
    let (mut all, mut silent) = (0, Vec::new());
    for document in documents() {
        for (name, schema) in document.value["components"]["schemas"].as_object().unwrap() {
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                all += 1;
                if property.get("description").is_none() {
                    silent.push(format!("{name}.{field}"));
                }
            }
        }
    }
    silent.retain(|name| !name.contains("List."));
    assert!(all > 1000 && silent.len() * 50 < all, "{} of {all}: {silent:?}", silent.len());
}

#[test]
fn openapi_v2_document_uses_v2_forms() {
    let mut old = OpenApiV2::default();
    documents().iter().for_each(|document| old.add(document));
    let old = old.finish();
    let text = old.to_string();
    assert!(!text.contains("allOf") && !text.contains("oneOf") && !text.contains("components/schemas"));
    let definitions = old["definitions"].as_object().unwrap();
    for reference in text.split("#/definitions/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(definitions.get(reference).is_some_and(Value::is_object), "{reference}");
    }
    let spec = &definitions["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
    assert_eq!(spec["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    let patch = &old["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|p| p["name"] == "dryRun" && p["type"] == "string"), "{patch}");
    assert!(openapi_v2_protobuf(&old).len() > 100_000);
}

/// A client that reads a document and writes it again leaves out what is empty, and would find another document.
#[test]
fn openapi_v3_documents_have_no_empty_parameters() {
    for document in documents() {
        let items = document.value["paths"].as_object().unwrap().iter();
        let empty: Vec<&String> = items
            .filter(|(_, item)| {
                let operations = item.as_object().unwrap().values().map(|operation| &operation["parameters"]);
                operations.chain([&item["parameters"]]).any(|parameters| *parameters == json!([]))
            })
            .map(|(path, _)| path)
            .collect();
        assert!(empty.is_empty(), "{}: {empty:?}", document.path());
    }
}

/// What is in no table is described all the same: `kubectl explain podmetrics` finds its way by these.
#[test]
fn metrics_api_has_an_openapi_document() {
    let document = document("metrics.k8s.io", "v1beta1");
    let package = "io.k8s.metrics.pkg.apis.metrics.v1beta1";
    for (path, kind) in [
        ("/apis/metrics.k8s.io/v1beta1/nodes", "NodeMetrics"),
        ("/apis/metrics.k8s.io/v1beta1/nodes/{name}", "NodeMetrics"),
        ("/apis/metrics.k8s.io/v1beta1/pods", "PodMetrics"),
        ("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", "PodMetrics"),
        ("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}", "PodMetrics"),
    ] {
        let named = json!({ "group": "metrics.k8s.io", "version": "v1beta1", "kind": kind });
        assert_eq!(document["paths"][path]["get"]["x-kubernetes-group-version-kind"], named, "{path}");
    }
    let schemas = &document["components"]["schemas"];
    let of_pod = &schemas[format!("{package}.PodMetrics")]["properties"];
    let fields: Vec<&str> = of_pod.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["apiVersion", "containers", "kind", "metadata", "timestamp", "window"]);
    assert!(of_pod["metadata"].to_string().contains("meta.v1.ObjectMeta"), "{of_pod}");
    assert!(schemas[format!("{package}.NodeMetrics")]["properties"]["usage"]["additionalProperties"].is_object());
}
