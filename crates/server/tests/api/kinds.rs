//! Kinds beyond pods: what the server adds to them that their rules alone cannot know.

use serde_json::{Value, json};

use crate::harness::{Api, pod};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

fn deployment(name: &str) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": {
        "selector": { "matchLabels": { "app": name } },
        "template": { "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "c", "image": "i:1" }] } } } })
}

#[tokio::test]
async fn the_api_has_a_service_of_its_own() {
    let api = Api::start().await;
    let own = api.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200);
    assert_eq!(own["spec"]["clusterIP"], "10.87.0.1");
    assert_eq!(own["spec"]["ports"][0]["targetPort"], 6443);
    let endpoints = api.get("/api/v1/namespaces/default/endpoints/kubernetes").await.expect(200);
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], "127.0.0.1");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slices = api.get(&format!("{slices}?labelSelector=kubernetes.io/service-name=kubernetes")).await.expect(200);
    assert_eq!(slices["items"][0]["endpoints"][0]["addresses"], json!(["127.0.0.1"]));
    let class = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    assert_eq!(api.get(class).await.expect(200)["value"], 2_000_001_000);
}

#[tokio::test]
async fn services_made_at_once_have_addresses_of_their_own() {
    let api = Api::start().await;
    let spec = || json!({ "type": "NodePort", "ports": [{ "port": 80 }] });
    let bodies: Vec<Value> = (0..20).map(|n| service(&format!("s{n}"), spec())).collect();
    let made = futures::future::join_all(bodies.iter().map(|body| api.post(SERVICES, body))).await;
    let mut addresses = std::collections::BTreeSet::new();
    let mut ports = std::collections::BTreeSet::new();
    for made in made {
        let made = made.expect(201);
        addresses.insert(made["spec"]["clusterIP"].as_str().unwrap().to_owned());
        ports.insert(made["spec"]["ports"][0]["nodePort"].as_i64().unwrap());
    }
    assert_eq!((addresses.len(), ports.len()), (20, 20));
}

#[tokio::test]
async fn a_service_keeps_its_address_and_gives_back_what_it_no_longer_needs() {
    let api = Api::start().await;
    let made = api.post(SERVICES, &service("s", json!({ "ports": [{ "port": 80 }] }))).await.expect(201);
    let path = format!("{SERVICES}/s");
    // A manifest written again without the address.
    let again =
        api.put(&path, &service("s", json!({ "type": "NodePort", "ports": [{ "port": 80 }] }))).await.expect(200);
    assert_eq!(again["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    let port = again["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let taken = json!({ "type": "NodePort", "ports": [{ "port": 81, "nodePort": port }] });
    assert_eq!(api.post(SERVICES, &service("t", taken.clone())).await.code, 422);
    let back = api.patch(&path, &json!({ "spec": { "type": "ClusterIP" } })).await.expect(200);
    assert!(back["spec"]["ports"][0].get("nodePort").is_none(), "{back}");
    api.post(SERVICES, &service("t", taken)).await.expect(201);
    let error = api.patch(&path, &json!({ "spec": { "clusterIP": "10.87.9.9" } })).await.expect(422);
    assert!(error["message"].as_str().unwrap().contains("may not change once set"), "{error}");
}

#[tokio::test]
async fn a_workload_is_scaled_through_its_own_small_object() {
    let api = Api::start().await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    api.post(all, &deployment("d")).await.expect(201);
    let path = format!("{all}/d/scale");
    let scale = api.get(&path).await.expect(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["status"]["selector"], "app=d");
    let patched = api.patch(&path, &json!({ "spec": { "replicas": 3 } })).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 3);
    let stored = api.get(&format!("{all}/d")).await.expect(200);
    assert_eq!((&stored["spec"]["replicas"], &stored["metadata"]["generation"]), (&json!(3), &json!(2)));
    // A scale that was read before somebody else scaled.
    let mut stale = scale.clone();
    stale["spec"]["replicas"] = json!(9);
    assert_eq!(api.put(&path, &stale).await.code, 409);
    let mut fresh = api.get(&path).await.expect(200);
    fresh["spec"]["replicas"] = json!(0);
    api.put(&path, &fresh).await.expect(200);
    assert_eq!(api.get(&format!("{all}/d")).await.expect(200)["spec"]["replicas"], 0);
}

#[tokio::test]
async fn events_are_one_collection_under_two_names() {
    let api = Api::start().await;
    let new = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "action": "A", "reason": "R", "type": "Normal", "note": "hello",
        "regarding": { "kind": "Pod", "name": "p", "namespace": "default" } });
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut watch = api.watch(&format!("{newer}?watch=1")).await;
    let made = api.post(newer, &new).await.expect(201);
    assert_eq!((&made["note"], &made["apiVersion"]), (&json!("hello"), &json!("events.k8s.io/v1")));
    assert_eq!(watch.next().await.unwrap()["object"]["note"], "hello");
    let old = api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=p").await.expect(200);
    assert_eq!(old["items"][0]["message"], "hello");
    let listed = api.get(&format!("{newer}?fieldSelector=regarding.name=p")).await.expect(200);
    assert_eq!(listed["items"][0]["note"], "hello");
    let patched = api.patch(&format!("{newer}/e"), &json!({ "note": "again" })).await.expect(200);
    assert_eq!(patched["note"], "again");
    assert_eq!(api.get("/api/v1/namespaces/default/events/e").await.expect(200)["message"], "again");
}

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class_and_an_account_that_exists() {
    let api = Api::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let class = json!({ "metadata": { "name": "gold" }, "value": 1000 });
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect(201);
    let mut golden = pod("golden");
    golden["spec"]["priorityClassName"] = json!("gold");
    assert_eq!(api.post(pods, &golden).await.expect(201)["spec"]["priority"], 1000);
    let mut unknown = pod("unknown");
    unknown["spec"]["priorityClassName"] = json!("platinum");
    let refused = api.post(pods, &unknown).await.expect(403);
    assert_eq!(refused["message"], "pods \"unknown\" is forbidden: no PriorityClass with name platinum was found");
    let mut stranger = pod("stranger");
    stranger["spec"]["serviceAccountName"] = json!("nobody");
    let refused = api.post(pods, &stranger).await.expect(403);
    assert!(refused["message"].as_str().unwrap().ends_with("serviceaccount \"nobody\" not found"), "{refused}");
}
