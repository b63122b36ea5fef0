//! ReplicaSets and ReplicationControllers against a real server.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, pod};

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";

fn template() -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "app", "image": "busybox" }] } })
}

async fn set(cluster: &Cluster, replicas: usize) -> Value {
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template() });
    cluster.post(SETS, json!({ "metadata": { "name": "web" }, "spec": spec })).await.expect(201)
}

/// The set, when it has observed its present generation and its status is as `wanted`.
async fn reports(cluster: &Cluster, path: &str, wanted: Value) -> Value {
    let is_so = |set: &Value| {
        let current = set["status"]["observedGeneration"] == set["metadata"]["generation"];
        current && wanted.as_object().unwrap().iter().all(|(key, value)| set["status"][key] == *value)
    };
    cluster.until(path, is_so).await
}

async fn pods(cluster: &Cluster) -> Vec<Value> {
    let pods = cluster.get(PODS).await.expect(200)["items"].as_array().unwrap().clone();
    pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect()
}

/// [WL-1] [WL-5] [WL-14] [WL-16]
#[tokio::test]
async fn replica_set_creates_replaces_releases_and_scales_its_pods() {
    let cluster = Cluster::start().await;
    let made = set(&cluster, 3).await;
    let path = format!("{SETS}/web");
    reports(&cluster, &path, json!({ "replicas": 3, "fullyLabeledReplicas": 3, "terminatingReplicas": 0 })).await;
    let all = pods(&cluster).await;
    assert_eq!(all.len(), 3);
    for pod in &all {
        let owners = &pod["metadata"]["ownerReferences"];
        assert_eq!(owners.as_array().unwrap().len(), 1);
        assert_eq!((&owners[0]["uid"], &owners[0]["controller"]), (&made["metadata"]["uid"], &json!(true)));
    }
    cluster.node("n1").await;
    for pod in &all {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": "n1" } });
        cluster.post(&format!("{PODS}/{name}/binding"), binding).await.expect(201);
        cluster.report(name, "Running", true).await;
    }
    reports(&cluster, &path, json!({ "readyReplicas": 3, "availableReplicas": 3 })).await;

    // A pod that leaves no longer counts, and its successor is there before it has gone.
    let leaving = all[0]["metadata"]["name"].as_str().unwrap();
    cluster.delete(&format!("{PODS}/{leaving}"), json!({})).await.expect(200);
    reports(&cluster, &path, json!({ "replicas": 3, "terminatingReplicas": 1, "readyReplicas": 2 })).await;
    cluster.finish(leaving).await;
    reports(&cluster, &path, json!({ "replicas": 3, "terminatingReplicas": 0 })).await;

    // One that is no longer selected is let go, and replaced.
    let released = all[1]["metadata"]["name"].as_str().unwrap();
    let relabel = json!({ "metadata": { "labels": { "app": "other" } } });
    cluster.patch(&format!("{PODS}/{released}"), relabel).await.expect(200);
    cluster.until(&format!("{PODS}/{released}"), |pod| pod["metadata"]["ownerReferences"].is_null()).await;
    reports(&cluster, &path, json!({ "replicas": 3, "readyReplicas": 1 })).await;

    // The ready one is the last to go.
    cluster.patch(&format!("{path}/scale"), json!({ "spec": { "replicas": 1 } })).await.expect(200);
    reports(&cluster, &path, json!({ "replicas": 1, "readyReplicas": 1 })).await;
    let events = cluster.get("/api/v1/namespaces/default/events").await.expect(200);
    let told = |reason: &str| events["items"].as_array().unwrap().iter().any(|event| event["reason"] == reason);
    assert!(told("SuccessfulCreate"));

    cluster.delete(&path, json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    let last = all[2]["metadata"]["name"].as_str().unwrap();
    cluster.until(&format!("{PODS}/{last}"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    cluster.finish(last).await;
    cluster.until_gone(&path).await;
    assert_eq!(pods(&cluster).await.len(), 1, "but for the one that was let go");
}

/// [WL-2] [WL-26]
#[tokio::test]
async fn replication_controller_reports_what_a_quota_refuses() {
    let cluster = Cluster::start().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "2" } } });
    cluster.post(quotas, quota).await.expect(201);
    let spec = json!({ "replicas": 3, "template": template() });
    cluster.post(CONTROLLERS, json!({ "metadata": { "name": "web" }, "spec": spec })).await.expect(201);
    let path = format!("{CONTROLLERS}/web");
    let refused = reports(&cluster, &path, json!({ "replicas": 2 })).await;
    let refused = match refused["status"]["conditions"].is_array() {
        true => refused,
        false => cluster.until(&path, |it| it["status"]["conditions"].is_array()).await,
    };
    let condition = &refused["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("FailedCreate")));
    assert!(condition["message"].as_str().unwrap().contains("exceeded quota: q"), "{condition}");
    assert!(refused["status"]["terminatingReplicas"].is_null());
    cluster.patch(&format!("{path}/scale"), json!({ "spec": { "replicas": 2 } })).await.expect(200);
    reports(&cluster, &path, json!({ "replicas": 2, "conditions": null })).await;
}

/// [WL-11] [WL-17] [WL-18]
#[tokio::test]
async fn replica_set_adopts_what_it_selects_and_replaces_what_has_failed() {
    let mut cluster = Cluster::without_controllers().await;
    let mut orphan = pod("stray");
    orphan["metadata"]["labels"] = json!({ "app": "web" });
    let orphan = cluster.post(PODS, orphan).await.expect(201);
    let made = set(&cluster, 2).await;
    cluster.start_controllers(crate::harness::patient());
    let path = format!("{SETS}/web");
    reports(&cluster, &path, json!({ "replicas": 2 })).await;
    let adopted = cluster.get(&format!("{PODS}/stray")).await.expect(200);
    assert_eq!(adopted["metadata"]["uid"], orphan["metadata"]["uid"]);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    cluster.report("stray", "Failed", false).await;
    let all = format!("{PODS}?labelSelector=app%3Dweb");
    reports(&cluster, &path, json!({ "replicas": 2 })).await;
    while cluster.get(&all).await.expect(200)["items"].as_array().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(cluster.get(&format!("{PODS}/stray")).await.expect(200)["status"]["phase"], "Failed", "it is kept");
}
