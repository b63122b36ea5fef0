//! Pods that nobody is left to finish.

use std::time::Duration;

use controllers::Settings;
use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, patient};

fn leaving(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

/// [AD-76] With a short quarantine; that it is kept is the keeper's own test.
#[tokio::test]
async fn pods_of_a_node_that_is_gone_fail_and_go() {
    let settings = Settings { quarantine: Duration::from_millis(200), ..patient() };
    let cluster = Cluster::with(settings).await;
    cluster.node("n1").await;
    cluster.running_pod("p", json!({})).await;
    // A finalizer lets us see the last state that others would have seen.
    cluster.patch(&format!("{PODS}/p"), json!({ "metadata": { "finalizers": ["x.io/y"] } })).await.expect(200);
    cluster.delete("/api/v1/nodes/n1", json!({})).await.expect(200);
    let failed = cluster.until(&format!("{PODS}/p"), leaving).await;
    assert_eq!(failed["status"]["phase"], "Failed");
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    let why = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!((why["status"].as_str(), why["reason"].as_str()), (Some("True"), Some("DeletionByPodGC")));
    assert_eq!(why["message"], "PodGC: node no longer exists");
    assert_eq!(failed["metadata"]["deletionGracePeriodSeconds"], 0);
    cluster.patch(&format!("{PODS}/p"), json!({ "metadata": { "finalizers": null } })).await.expect(200);
    cluster.until_gone(&format!("{PODS}/p")).await;
}

/// [AD-77]
#[tokio::test]
async fn a_leaving_pod_on_a_node_out_of_service_is_removed() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.running_pod("leaves", json!({})).await;
    let tolerant = json!([{ "key": "node.kubernetes.io/out-of-service", "operator": "Exists" }]);
    cluster.running_pod_with("stays", json!({}), json!({ "tolerations": tolerant })).await;
    cluster.delete(&format!("{PODS}/leaves"), json!({})).await.expect(200);
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    cluster.patch("/api/v1/nodes/n1/status", status).await.expect(200);
    let taint = json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
    cluster.patch("/api/v1/nodes/n1", json!({ "spec": { "taints": [taint] } })).await.expect(200);
    cluster.until_gone(&format!("{PODS}/leaves")).await;
    assert!(!leaving(&cluster.get(&format!("{PODS}/stays")).await.expect(200)));
    // One that is asked to leave later goes as well.
    cluster.delete(&format!("{PODS}/stays"), json!({})).await.expect(200);
    cluster.until_gone(&format!("{PODS}/stays")).await;
}

#[tokio::test]
async fn ended_pods_over_the_limit_are_deleted() {
    let cluster = Cluster::with(Settings { ended_max: 2, ..patient() }).await;
    cluster.node("n1").await;
    let from = cluster.now().await;
    for name in ["a", "b", "c"] {
        cluster.running_pod(name, json!({})).await;
        cluster.report(name, "Succeeded", false).await;
    }
    cluster.until_seen(PODS, &from, |kind, _| kind == "DELETED").await;
    let left = cluster.get(PODS).await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 2);
}
