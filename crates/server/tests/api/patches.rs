//! Patches and apply, as a client sends them.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, configmap, version};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn patch(api: &Api, media: &str, path: &str, body: &Value) -> Answer {
    let media = format!("application/{media}");
    api.send(Method::PATCH, path, &[("content-type", &media)], body.to_string()).await
}

#[tokio::test]
async fn each_kind_of_patch_changes_the_object() {
    let api = Api::start().await;
    let made = api.post(MAPS, &configmap("x")).await.expect(201);
    let path = format!("{MAPS}/x");
    let merged = api.patch(&path, &json!({ "data": { "b": "2" } })).await.expect(200);
    assert_eq!(merged["data"], json!({ "a": "1", "b": "2" }));
    assert!(version(&merged) > version(&made));
    let operations = json!([{ "op": "remove", "path": "/data/a" }]);
    let edited = patch(&api, "json-patch+json", &path, &operations).await.expect(200);
    assert_eq!(edited["data"], json!({ "b": "2" }));
    // Appendix 15.
    let same = api.patch(&path, &json!({ "data": { "b": "2" } })).await.expect(200);
    assert_eq!(same, edited);

    api.running_pod("p", |_| {}).await;
    let image = json!({ "spec": { "containers": [{ "name": "app", "image": "nginx" }] } });
    let changed = patch(&api, "strategic-merge-patch+json", &format!("{PODS}/p"), &image).await.expect(200);
    assert_eq!(changed["spec"]["containers"][0]["image"], "nginx");
    assert_eq!(changed["metadata"]["generation"], 2);
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let told = patch(&api, "strategic-merge-patch+json", &format!("{PODS}/p/status"), &status).await.expect(200);
    let types: Vec<&str> =
        told["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert!(types.contains(&"Ready") && types.contains(&"PodScheduled"), "{types:?}");
    assert_eq!(told["metadata"]["generation"], 2);
}

#[tokio::test]
async fn patches_that_make_no_sense_are_refused() {
    let api = Api::start().await;
    api.post(MAPS, &configmap("x")).await.expect(201);
    let path = format!("{MAPS}/x");
    let media = patch(&api, "json", &path, &json!({})).await.expect(415);
    assert_eq!(media["message"], "415: Unsupported Media Type");
    api.patch(&format!("{MAPS}/none"), &json!({})).await.expect(404);
    let stale = api.patch(&path, &json!({ "metadata": { "resourceVersion": "1" } })).await.expect(409);
    assert!(stale["message"].as_str().unwrap().contains("the object has been modified"));
    let renamed = api.patch(&path, &json!({ "metadata": { "name": "y" } })).await.expect(400);
    assert_eq!(renamed["message"], "the name of the object (y) does not match the name on the URL (x)");
    let missing = json!([{ "op": "remove", "path": "/data/nope" }]);
    patch(&api, "json-patch+json", &path, &missing).await.expect(422);
    patch(&api, "merge-patch+json", &format!("{path}?force=true"), &json!({})).await.expect(422);
}

/// [AD-30] [AD-35] [AD-36] [AD-37]
#[tokio::test]
async fn a_patch_cannot_undo_a_delete() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    let path = format!("{PODS}/p");
    let marked = api.delete(&path).await.expect(200);
    let undeleted = api.patch(&path, &json!({ "metadata": { "deletionTimestamp": null } })).await.expect(200);
    assert_eq!(undeleted, marked, "nothing changed, no event");
    let longer = api.patch(&path, &json!({ "metadata": { "deletionGracePeriodSeconds": 99 } })).await.expect(422);
    assert!(longer["message"].as_str().unwrap().contains("field is immutable"), "{longer}");
    let image = json!({ "spec": { "containers": [{ "name": "app", "image": "nginx" }] } });
    let changed = patch(&api, "strategic-merge-patch+json", &path, &image).await.expect(200);
    assert_eq!(changed["metadata"]["generation"], 3);

    // A crash between the two writes of another implementation's grace-0 delete: any update finishes it.
    let key = store::Key { collection: "pods".into(), namespace: "default".into(), name: "p".into() };
    let stored = api.store.get(&key).unwrap();
    let mut zero = stored.to_value();
    zero["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let step = store::Step::Put { key: key.clone(), value: zero };
    api.store.write(&key, store::Expect::Revision(stored.revision), vec![step]).await.unwrap();
    let last = api.patch(&path, &json!({ "metadata": { "labels": { "a": "b" } } })).await.expect(200);
    assert_eq!(last["metadata"]["labels"], json!({ "a": "b" }));
    api.get(&path).await.expect(404);
}

#[tokio::test]
async fn apply_creates_updates_and_finds_conflicts() {
    let api = Api::start().await;
    let path = format!("{MAPS}/x");
    let document = |value: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" }, "data": { "a": value } });
    let apply = |manager: &'static str, value: &'static str, force: bool| {
        let (api, path) = (&api, &path);
        async move {
            let path = format!("{path}?fieldManager={manager}&force={force}");
            patch(api, "apply-patch+yaml", &path, &document(value)).await
        }
    };
    let made = apply("m1", "1", false).await.expect(201);
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "m1");
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Apply");
    // Appendix 4.
    assert_eq!(apply("m1", "1", false).await.expect(200), made);
    let conflict = apply("m2", "2", false).await.expect(409);
    assert!(conflict["message"].as_str().unwrap().contains("conflict with \"m1\""), "{conflict}");
    assert_eq!(conflict["details"]["causes"][0]["field"], ".data.a");
    assert_eq!(apply("m2", "2", true).await.expect(200)["data"]["a"], "2");
    patch(&api, "apply-patch+yaml", &path, &document("3")).await.expect(422);
}

#[tokio::test]
async fn writers_are_remembered_by_their_names() {
    let api = Api::start().await;
    let made = api.post(&format!("{MAPS}?fieldManager=kubectl-create"), &configmap("x")).await.expect(201);
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "kubectl-create");
    let updated = api.patch(&format!("{MAPS}/x"), &json!({ "data": { "b": "2" } })).await.expect(200);
    let managers: Vec<&str> = updated["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["kubectl-create", "tester"], "the program's own name, from its User-Agent");
}

/// What `kubectl apply --server-side` does to an object it first applied the old way: it renames the owner, and applies.
#[tokio::test]
async fn fields_added_by_the_server_survive_an_apply_by_the_creator() {
    let api = Api::start().await;
    let document = crate::harness::pod("p");
    let made = api.post(&format!("{PODS}?fieldManager=kubectl-client-side-apply"), &document).await.expect(201);
    let path = format!("{PODS}/p");
    let renamed = json!([
        { "op": "replace", "path": "/metadata/managedFields/0/manager", "value": "kubectl" },
        { "op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Apply" },
    ]);
    patch(&api, "json-patch+json", &path, &renamed).await.expect(200);
    let applied = patch(&api, "apply-patch+yaml", &format!("{path}?fieldManager=kubectl"), &document).await.expect(200);
    assert_eq!(applied["spec"], made["spec"]);
}

#[tokio::test]
async fn a_dry_run_of_a_patch_stores_nothing() {
    let api = Api::start().await;
    let made = api.post(MAPS, &configmap("x")).await.expect(201);
    let path = format!("{MAPS}/x");
    let imagined = api.patch(&format!("{path}?dryRun=All"), &json!({ "data": { "b": "2" } })).await.expect(200);
    assert_eq!((imagined["data"]["b"].as_str(), version(&imagined)), (Some("2"), version(&made)));
    assert_eq!(api.get(&path).await.expect(200), made);
    api.patch(&format!("{path}?dryRun=Some"), &json!({})).await.expect(422);
}
