//! Nodes that say nothing any more, taints, and the pods that have to leave because of either.

use std::sync::Arc;
use std::time::Duration;

use controllers::Settings;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, patient};

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// The effects and keys of a node's taints, sorted.
fn taints(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut all: Vec<String> = all
        .map(|taint| {
            let key = taint["key"].as_str().unwrap().trim_start_matches("node.kubernetes.io/");
            format!("{key}:{}", taint["effect"].as_str().unwrap())
        })
        .collect();
    all.sort();
    all
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn leaving(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn for_seconds(key: &str, seconds: u64) -> Value {
    json!({ "tolerations": [
        { "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds }] })
}

/// Posts the status of a node that is well.
async fn post_status(cluster: &Cluster, name: &str) {
    let status = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": Timestamp::now() }] } });
    cluster.patch(&format!("/api/v1/nodes/{name}/status"), status).await.expect(200);
}

/// Plays a node that is alive, for as long as the answer lives.
fn keep_posting(cluster: &Arc<Cluster>, name: &'static str) -> tokio::task::JoinSet<()> {
    let mut player = tokio::task::JoinSet::new();
    let cluster = Arc::clone(cluster);
    player.spawn(async move {
        loop {
            post_status(&cluster, name).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    player
}

#[tokio::test]
async fn taints_follow_what_a_node_says_in_the_same_write() {
    let cluster = Cluster::without_controllers().await;
    let made = cluster.post("/api/v1/nodes", json!({ "metadata": { "name": "n1" } })).await.expect(201);
    assert_eq!(taints(&made), ["not-ready:NoSchedule"]);
    let says = |ready: &str, memory: &str| {
        json!({ "status": { "conditions": [
            { "type": "Ready", "status": ready }, { "type": "MemoryPressure", "status": memory }] } })
    };
    let status = "/api/v1/nodes/n1/status";
    assert_eq!(taints(&cluster.patch(status, says("True", "False")).await.expect(200)), [""; 0]);
    assert_eq!(taints(&cluster.patch(status, says("True", "True")).await.expect(200)), ["memory-pressure:NoSchedule"]);
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let cordoned = cluster.patch("/api/v1/nodes/n1", cordoned).await.expect(200);
    assert_eq!(taints(&cordoned), ["memory-pressure:NoSchedule", "unschedulable:NoSchedule"]);
    let stripped = cluster.patch("/api/v1/nodes/n1", json!({ "spec": { "taints": null } })).await.expect(200);
    assert_eq!(taints(&stripped), taints(&cordoned), "they follow what is so, not what is wished");
    let back = cluster.patch("/api/v1/nodes/n1", json!({ "spec": { "unschedulable": null } })).await.expect(200);
    assert_eq!(taints(&back), ["memory-pressure:NoSchedule"]);
}

#[tokio::test]
async fn a_silent_node_is_unknown_and_its_pods_leave_when_their_time_is_up() {
    let cluster = Arc::new(Cluster::with(Settings { node_grace: Duration::from_secs(1), ..patient() }).await);
    let from = cluster.now().await;
    cluster.node("n2").await;
    // Somebody must be well: nobody is given up while everybody is silent.
    let _alive = keep_posting(&cluster, "n2");
    cluster.node("n1").await;
    // It speaks until its pods are there, however long that takes.
    let speaks = keep_posting(&cluster, "n1");
    cluster.running_pod_with("leaves", json!({}), for_seconds("node.kubernetes.io/unreachable", 1)).await;
    cluster.running_pod("stays", json!({})).await;
    drop(speaks);

    let node = "/api/v1/nodes/n1";
    let silent = cluster.until(node, |node| condition(node, "Ready")["status"] == "Unknown").await;
    let ready = condition(&silent, "Ready");
    assert_eq!(ready["reason"], "NodeStatusUnknown");
    assert_eq!(ready["message"], "Kubelet stopped posting node status.");
    assert_eq!(condition(&silent, "DiskPressure")["reason"], "NodeStatusNeverUpdated");
    assert!(taints(&silent).contains(&"unreachable:NoSchedule".to_owned()), "in the same write");

    let denied = cluster.until(&format!("{PODS}/stays"), |pod| condition(pod, "Ready")["status"] == "False").await;
    assert_eq!(condition(&denied, "Ready")["reason"], "NodeNotReady");
    cluster.until(node, |node| taints(node).contains(&"unreachable:NoExecute".to_owned())).await;
    let left = cluster.until(&format!("{PODS}/leaves"), leaving).await;
    let why = condition(&left, "DisruptionTarget");
    assert_eq!((why["status"].as_str(), why["reason"].as_str()), (Some("True"), Some("DeletionByTaintManager")));
    assert_eq!(why["message"], "Taint manager: deleting due to NoExecute taint");
    assert_eq!(left["metadata"]["deletionGracePeriodSeconds"], 30, "with its own grace");
    cluster
        .until_seen(EVENTS, &from, |_, event| {
            event["reason"] == "TaintManagerEviction" && event["message"] == "Marking for deletion Pod default/leaves"
        })
        .await;
    assert!(!leaving(&cluster.get(&format!("{PODS}/stays")).await.expect(200)), "it has five minutes");

    // It comes back: everything is as it was.
    let _back = keep_posting(&cluster, "n1");
    cluster.until(node, |node| taints(node).is_empty()).await;
    cluster.until_seen(EVENTS, &from, |_, event| event["message"] == "Cancelling deletion of Pod default/stays").await;
    assert!(!leaving(&cluster.get(&format!("{PODS}/stays")).await.expect(200)));
}

#[tokio::test]
async fn no_pod_is_evicted_while_every_node_is_silent() {
    let cluster = Cluster::with(Settings { node_grace: Duration::from_millis(300), ..patient() }).await;
    cluster.node("n1").await;
    cluster.running_pod("p", json!({})).await;
    // What an earlier silence left behind.
    let taint = json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" });
    cluster.patch("/api/v1/nodes/n1", json!({ "spec": { "taints": [taint] } })).await.expect(200);
    let wanted = |node: &Value| condition(node, "Ready")["status"] == "Unknown" && taints(node).len() == 1;
    let node = cluster.until("/api/v1/nodes/n1", wanted).await;
    assert_eq!(taints(&node), ["unreachable:NoSchedule"]);
    assert!(!leaving(&cluster.get(&format!("{PODS}/p")).await.expect(200)));
}

#[tokio::test]
async fn a_taint_ends_those_who_do_not_tolerate_it_and_its_removal_spares_the_rest() {
    let cluster = Cluster::start().await;
    let from = cluster.now().await;
    cluster.node("n1").await;
    cluster.running_pod("intolerant", json!({})).await;
    cluster.running_pod_with("patient", json!({}), for_seconds("maintenance", 3600)).await;
    let always = json!({ "tolerations": [{ "key": "maintenance", "operator": "Exists", "effect": "NoExecute" }] });
    cluster.running_pod_with("unmoved", json!({}), always).await;

    let taint = json!({ "key": "maintenance", "effect": "NoExecute" });
    let tainted = cluster.patch("/api/v1/nodes/n1", json!({ "spec": { "taints": [taint] } })).await.expect(200);
    assert!(tainted["spec"]["taints"][0]["timeAdded"].is_string(), "from when on it counts is written down");
    let left = cluster.until(&format!("{PODS}/intolerant"), leaving).await;
    assert_eq!(condition(&left, "DisruptionTarget")["reason"], "DeletionByTaintManager");
    cluster.patch("/api/v1/nodes/n1", json!({ "spec": { "taints": null } })).await.expect(200);
    cluster
        .until_seen(EVENTS, &from, |_, event| event["message"] == "Cancelling deletion of Pod default/patient")
        .await;
    for name in ["patient", "unmoved"] {
        assert!(!leaving(&cluster.get(&format!("{PODS}/{name}")).await.expect(200)), "{name}");
    }
}
