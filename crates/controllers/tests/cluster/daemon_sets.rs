//! DaemonSets against a real server, with the rights that their controller and the scheduler have.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS};

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "log" } }, "spec": { "containers": [{ "name": "app", "image": image }] } })
}

async fn set(cluster: &Cluster) -> Value {
    let spec = json!({ "selector": { "matchLabels": { "app": "log" } }, "template": template("i:1") });
    cluster.post(SETS, json!({ "metadata": { "name": "log" }, "spec": spec })).await.expect(201)
}

async fn reports(cluster: &Cluster, wanted: Value) -> Value {
    let is_so = |set: &Value| {
        let current = set["status"]["observedGeneration"] == set["metadata"]["generation"];
        current && wanted.as_object().unwrap().iter().all(|(key, value)| set["status"][key] == *value)
    };
    cluster.until(&format!("{SETS}/log"), is_so).await
}

/// The pod of each node that is not asked to leave, by node.
async fn pods(cluster: &Cluster) -> Vec<(String, String)> {
    let all = cluster.get(PODS).await.expect(200)["items"].as_array().unwrap().clone();
    let staying = all.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut named: Vec<(String, String)> = staying
        .map(|pod| {
            let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            let node = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().unwrap();
            (node.to_owned(), pod["metadata"]["name"].as_str().unwrap().to_owned())
        })
        .collect();
    named.sort();
    named
}

/// Nodes start whatever is meant for them.
async fn start_all(cluster: &Cluster) {
    for (node, name) in pods(cluster).await {
        let path = format!("{PODS}/{name}");
        if cluster.get(&path).await.expect(200)["spec"]["nodeName"].is_null() {
            let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } });
            cluster.post(&format!("{path}/binding"), binding).await.expect(201);
        }
        cluster.report(&name, "Running", true).await;
    }
}

/// [WL-84] [WL-87] [WL-94] [WL-101]
#[tokio::test]
async fn daemon_set_has_a_pod_on_every_node_updates_them_and_replaces_what_failed() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let from = cluster.now().await;
    set(&cluster).await;
    reports(&cluster, json!({ "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberReady": 0 })).await;
    cluster.node("n2").await;
    reports(&cluster, json!({ "desiredNumberScheduled": 2, "currentNumberScheduled": 2 })).await;
    start_all(&cluster).await;
    reports(
        &cluster,
        json!({ "numberReady": 2, "numberAvailable": 2, "updatedNumberScheduled": 2, "numberUnavailable": null }),
    )
    .await;
    let first = pods(&cluster).await;
    assert_eq!(first.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);

    // Somebody else's condition is kept.
    let condition = json!([{ "type": "Seen", "status": "True" }]);
    cluster.patch(&format!("{SETS}/log/status"), json!({ "status": { "conditions": condition } })).await.expect(200);
    cluster.patch(&format!("{SETS}/log"), json!({ "spec": { "template": template("i:2") } })).await.expect(200);
    for node in ["n1", "n2"] {
        let old = first.iter().find(|(own, _)| own == node).unwrap().1.clone();
        cluster.until(&format!("{PODS}/{old}"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
        assert_eq!(pods(&cluster).await.len(), 1, "one at a time, and its successor waits");
        cluster.finish(&old).await;
        reports(&cluster, json!({ "currentNumberScheduled": 2, "numberUnavailable": 1 })).await;
        start_all(&cluster).await;
    }
    let done = reports(&cluster, json!({ "numberAvailable": 2, "updatedNumberScheduled": 2 })).await;
    assert_eq!(done["status"]["conditions"][0]["type"], "Seen");
    let revisions = cluster.get(REVISIONS).await.expect(200)["items"].as_array().unwrap().clone();
    let mut numbers: Vec<i64> = revisions.iter().map(|it| it["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);

    let (_, failed) = pods(&cluster).await.remove(0);
    cluster.report(&failed, "Failed", false).await;
    let message = format!("Found failed daemon pod default/{failed} on node n1, will try to kill it");
    cluster
        .until_seen(EVENTS, &from, |_, event| event["message"] == *message && event["reason"] == "FailedDaemonPod")
        .await;
    cluster.until_gone(&format!("{PODS}/{failed}")).await;
    while pods(&cluster).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    start_all(&cluster).await;
    reports(&cluster, json!({ "currentNumberScheduled": 2, "numberReady": 2 })).await;
}

/// [WL-84] [WL-100] The scheduler puts such a pod on its node and on no other, also if that is cordoned.
#[tokio::test]
async fn daemon_set_pod_is_bound_to_the_node_that_its_affinity_names() {
    let mut cluster = Cluster::without_controllers().await;
    let room = json!({ "status": { "allocatable": { "cpu": "2", "memory": "1Gi", "pods": "10" } } });
    for node in ["n1", "n2", "n3"] {
        cluster.node(node).await;
        cluster.patch(&format!("/api/v1/nodes/{node}/status"), room.clone()).await.expect(200);
    }
    cluster.patch("/api/v1/nodes/n3", json!({ "spec": { "unschedulable": true } })).await.expect(200);
    set(&cluster).await;
    cluster.start_controllers(crate::harness::patient());
    reports(&cluster, json!({ "desiredNumberScheduled": 3, "currentNumberScheduled": 3 })).await;
    cluster.stop_controllers().await;
    cluster.start_scheduler();
    for (node, name) in pods(&cluster).await {
        cluster.until(&format!("{PODS}/{name}"), |pod| pod["spec"]["nodeName"] == *node).await;
    }
}
