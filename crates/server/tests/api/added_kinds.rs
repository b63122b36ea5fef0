//! Kinds that come and go while the server runs.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, Events};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/team/widgets";

fn widgets() -> api::Kind {
    let names = api::Names {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        short_names: vec!["wd".into()],
        categories: vec!["all".into()],
    };
    api::CustomKind { names, namespaced: true, has_status: true }.into_kind().unwrap()
}

fn widget(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name },
        "spec": { "size": 3, "free": { "form": [1, null] } }, "status": { "phase": "Forged" } })
}

async fn team(api: &Api) {
    api.post("/api/v1/namespaces", &json!({ "metadata": { "name": "team" } })).await.expect(201);
}

async fn until(events: &mut Events, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = events.next().await.expect("the watch goes on");
        if wanted(&event) {
            return event;
        }
    }
}

#[tokio::test]
async fn added_kind_is_served_until_it_is_removed() {
    let api = Api::start().await;
    team(&api).await;
    api.get(WIDGETS).await.expect(404);
    api.get("/apis/example.com/v1").await.expect(404);

    api.server.add_kind(widgets()).unwrap();
    let made = api.post(WIDGETS, &widget("w")).await.expect(201);
    assert_eq!(made["kind"], "Widget");
    assert_eq!(made["spec"], json!({ "size": 3, "free": { "form": [1, null] } }));
    assert_eq!((made.get("status"), made["metadata"]["generation"].as_i64()), (None, Some(1)));
    let list = api.get("/apis/example.com/v1/widgets").await.expect(200);
    assert_eq!((list["kind"].as_str(), list["items"].as_array().unwrap().len()), (Some("WidgetList"), 1));

    let mut events = api.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(events.next().await.unwrap()["object"]["apiVersion"], "example.com/v1");
    let path = format!("{WIDGETS}/w");
    let patched =
        api.patch(&path, &json!({ "spec": { "size": 4 }, "status": { "phase": "Forged" } })).await.expect(200);
    assert_eq!((&patched["spec"]["size"], patched.get("status")), (&json!(4), None));
    assert_eq!(patched["metadata"]["generation"], 2);
    let status = api.patch(&format!("{path}/status"), &json!({ "status": { "phase": "Ready" }, "spec": null })).await;
    let status = status.expect(200);
    assert_eq!((&status["spec"]["size"], &status["status"]["phase"]), (&json!(4), &json!("Ready")));
    assert_eq!(status["metadata"]["generation"], 2);
    for (media, body) in [("application/strategic-merge-patch+json", "{}"), ("application/apply-patch+yaml", "{}")] {
        api.send(Method::PATCH, &format!("{path}?fieldManager=m"), &[("content-type", media)], body).await.expect(415);
    }
    let unseen = api.put(&path, &widget("w")).await.expect(422);
    assert_eq!(unseen["details"]["causes"][0]["field"], "metadata.resourceVersion");
    api.delete(&path).await.expect(200);
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(events.next().await.unwrap()["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, ["MODIFIED", "MODIFIED", "DELETED"]);

    assert!(api.server.remove_kind("example.com", "widgets"));
    assert_eq!(events.next().await, None, "watches of the kind end");
    api.get(WIDGETS).await.expect(404);
    api.get(&format!("{WIDGETS}?watch=1")).await.expect(404);
    api.post(WIDGETS, &widget("late")).await.expect(404);
    assert!(!api.server.remove_kind("example.com", "widgets"));
    assert!(!api.server.remove_kind("", "pods"), "built-in kinds stay");
}

#[tokio::test]
async fn watch_of_a_built_in_kind_outlives_the_removal_of_another() {
    let api = Api::start().await;
    team(&api).await;
    let mut maps = api.watch("/api/v1/namespaces/team/configmaps?watch=1").await;
    api.server.add_kind(widgets()).unwrap();
    assert!(api.server.remove_kind("example.com", "widgets"));
    api.post("/api/v1/namespaces/team/configmaps", &json!({ "metadata": { "name": "m" } })).await.expect(201);
    until(&mut maps, |event| event["object"]["metadata"]["name"] == "m").await;
}

#[tokio::test]
async fn added_kind_is_in_every_document_of_discovery_until_it_is_removed() {
    let api = Api::start().await;
    let aggregated = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let document = "/openapi/v3/apis/example.com/v1";
    let index = api.get("/openapi/v3").await.expect(200);
    assert!(index["paths"].get("apis/example.com/v1").is_none());

    api.server.add_kind(widgets()).unwrap();
    let list = api.get("/apis/example.com/v1").await.expect(200);
    assert_eq!(list["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(list["resources"][1]["name"], "widgets/status");
    assert_eq!(api.get("/apis/example.com").await.expect(200)["preferredVersion"]["version"], "v1");
    let groups = api.get("/apis").await.expect(200);
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    let groups = api.send(Method::GET, "/apis", &aggregated, "").await.expect(200);
    let group = groups["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "example.com");
    assert_eq!(group.unwrap()["versions"][0]["resources"][0]["categories"], json!(["all"]));
    let index = api.get("/openapi/v3").await.expect(200);
    assert!(index["paths"].get("apis/example.com/v1").is_some());
    let schemas = &api.get(document).await.expect(200)["components"]["schemas"];
    let schema = &schemas["com.example.v1.Widget"];
    assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    let old = api.get("/openapi/v2").await.expect(200);
    assert!(old["definitions"].get("com.example.v1.WidgetList").is_some());
    assert!(old["definitions"].get("io.k8s.api.core.v1.Pod").is_some());

    assert!(api.server.remove_kind("example.com", "widgets"));
    api.get("/apis/example.com").await.expect(404);
    api.get(document).await.expect(404);
    let groups = api.send(Method::GET, "/apis", &aggregated, "").await;
    assert!(!groups.text.contains("example.com"));
    assert!(!api.get("/openapi/v2").await.text.contains("com.example.v1.Widget"));
}

#[tokio::test]
async fn added_kind_is_shown_as_table_and_metadata_and_never_as_protobuf() {
    let api = Api::start().await;
    team(&api).await;
    api.server.add_kind(widgets()).unwrap();
    api.post(WIDGETS, &widget("w")).await.expect(201);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = api.send(Method::GET, WIDGETS, &table, "").await.expect(200);
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Age"]);
    assert_eq!(table["rows"][0]["cells"][0], "w");
    let partial = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let partial = api.send(Method::GET, WIDGETS, &partial, "").await.expect(200);
    assert_eq!(partial["items"][0]["metadata"]["name"], "w");
    let protobuf = "application/vnd.kubernetes.protobuf";
    assert_eq!(api.send(Method::GET, WIDGETS, &[("accept", protobuf)], "").await.code, 406);
    let body = widget("x").to_string();
    let headers = [("accept", protobuf), ("content-type", "application/json")];
    assert_eq!(api.send(Method::POST, WIDGETS, &headers, body).await.code, 406);
    api.get(&format!("{WIDGETS}/x")).await.expect(404);
    let either = format!("{protobuf},application/json");
    api.send(Method::GET, WIDGETS, &[("accept", &either)], "").await.expect(200);
}

#[tokio::test]
async fn namespace_takes_objects_of_added_kinds_along() {
    let api = Api::start().await;
    team(&api).await;
    api.server.add_kind(widgets()).unwrap();
    let mut kept = widget("kept");
    kept["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(WIDGETS, &kept).await.expect(201);
    let mut events = api.watch("/api/v1/namespaces?watch=1").await;
    api.delete("/api/v1/namespaces/team").await.expect(200);
    until(&mut events, |event| event["object"].to_string().contains("widgets.example.com has 1 resource instances"))
        .await;
    api.patch(&format!("{WIDGETS}/kept"), &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    until(&mut events, |event| event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "team").await;
}

/// Objects outlive their kind. When it comes back, a namespace that is already leaving takes them along.
#[tokio::test]
async fn namespace_that_is_leaving_sees_a_kind_that_comes_back_and_forgets_one_that_goes() {
    let api = Api::start().await;
    team(&api).await;
    api.server.add_kind(widgets()).unwrap();
    let mut kept = widget("kept");
    kept["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(WIDGETS, &kept).await.expect(201);
    assert!(api.server.remove_kind("example.com", "widgets"));
    let mut map = json!({ "metadata": { "name": "m", "finalizers": ["example.com/hold"] } });
    let maps = "/api/v1/namespaces/team/configmaps";
    api.post(maps, &map).await.expect(201);
    let mut events = api.watch("/api/v1/namespaces?watch=1").await;
    api.delete("/api/v1/namespaces/team").await.expect(200);
    let said = |text: &'static str| move |event: &Value| event["object"].to_string().contains(text);
    until(&mut events, said("configmaps. has 1 resource instances")).await;

    api.server.add_kind(widgets()).unwrap();
    until(&mut events, said("widgets.example.com has 1 resource instances")).await;
    let leaving = api.get(&format!("{WIDGETS}/kept")).await.expect(200);
    assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    map["metadata"]["finalizers"] = json!([]);
    api.put(&format!("{maps}/m"), &map).await.expect(200);
    assert!(api.server.remove_kind("example.com", "widgets"));
    until(&mut events, |event| event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "team").await;
}

#[tokio::test]
async fn quota_counts_objects_of_added_kinds() {
    let api = Api::start().await;
    team(&api).await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/widgets.example.com": "1" } } });
    api.post("/api/v1/namespaces/team/resourcequotas", &quota).await.expect(201);
    let mut events = api.watch("/api/v1/namespaces/team/resourcequotas?watch=1").await;
    api.server.add_kind(widgets()).unwrap();
    let used = |amount: &'static str| {
        move |event: &Value| event["object"]["status"]["used"]["count/widgets.example.com"] == amount
    };
    until(&mut events, used("0")).await;
    api.post(WIDGETS, &widget("one")).await.expect(201);
    let refused = api.post(WIDGETS, &widget("two")).await.expect(403);
    assert!(refused["message"].as_str().unwrap().contains("exceeded quota: q"), "{refused}");
    until(&mut events, used("1")).await;
    assert!(api.server.remove_kind("example.com", "widgets"));
    until(&mut events, |event| event["object"]["status"]["used"] == json!({})).await;
}

#[tokio::test]
async fn metrics_count_an_added_kind_until_it_is_removed() {
    let api = Api::start().await;
    team(&api).await;
    api.server.add_kind(widgets()).unwrap();
    api.post(WIDGETS, &widget("w")).await.expect(201);
    let page = api.get("/metrics").await.text;
    assert!(
        page.contains(r#"apiserver_request_total{verb="create",resource="widgets",group="example.com",code="201"} 1"#)
    );
    assert!(page.contains(r#"apiserver_storage_objects{resource="widgets.example.com"} 1"#));
    assert!(api.server.remove_kind("example.com", "widgets"));
    assert!(!api.get("/metrics").await.text.contains("widgets"));
}

/// A role names resources, whether they are served or not.
#[tokio::test]
async fn rights_to_an_added_kind_are_those_of_the_roles() {
    let api = Api::start().await;
    team(&api).await;
    api.server.add_kind(widgets()).unwrap();
    let role = json!({ "metadata": { "name": "r" },
        "rules": [{ "apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"] }] });
    api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles", &role).await.expect(201);
    let binding = json!({ "metadata": { "name": "r" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" }] });
    api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings", &binding).await.expect(201);
    let ann = || api.server.service_as(server::Identity::new("ann", &[]));
    api.send_as(ann(), Method::GET, WIDGETS, &[], "").await.expect(200);
    let json_body = [("content-type", "application/json")];
    api.send_as(ann(), Method::POST, WIDGETS, &json_body, widget("w").to_string()).await.expect(403);
}
