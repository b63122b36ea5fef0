//! The scheduler against a real server, with the rights that it has.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, pod};

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let mut all = pod["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn asking(name: &str, cpus: u32, class: Option<&str>) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpus.to_string() } });
    if let Some(class) = class {
        pod["spec"]["priorityClassName"] = json!(class);
    }
    pod
}

async fn roomy_node(cluster: &Cluster, name: &str, cpus: u32) {
    cluster.node(name).await;
    let status = json!({ "status": { "allocatable": { "cpu": cpus.to_string(), "memory": "1Gi", "pods": "10" } } });
    cluster.patch(&format!("/api/v1/nodes/{name}/status"), status).await.expect(200);
}

#[tokio::test]
async fn pod_is_bound_and_one_that_fits_nowhere_is_told_why_until_a_node_comes() {
    let mut cluster = Cluster::without_controllers().await;
    cluster.start_scheduler();
    let from = cluster.now().await;
    roomy_node(&cluster, "n1", 2).await;
    cluster.post(PODS, asking("small", 1, None)).await.expect(201);
    cluster.until(&format!("{PODS}/small"), |pod| pod["spec"]["nodeName"] == "n1").await;
    let message = "Successfully assigned default/small to n1";
    cluster.until_seen(EVENTS, &from, |_, event| event["message"] == message).await;

    cluster.post(PODS, asking("large", 4, None)).await.expect(201);
    let waits = |pod: &Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
    let large = cluster.until(&format!("{PODS}/large"), waits).await;
    let why = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(condition(&large, "PodScheduled")["message"], why);
    let told = |_: &str, event: &Value| event["reason"] == "FailedScheduling" && event["message"] == why;
    cluster.until_seen(EVENTS, &from, told).await;
    roomy_node(&cluster, "n2", 4).await;
    cluster.until(&format!("{PODS}/large"), |pod| pod["spec"]["nodeName"] == "n2").await;
}

#[tokio::test]
async fn pod_that_matters_less_is_preempted_with_its_own_grace() {
    let mut cluster = Cluster::without_controllers().await;
    cluster.start_scheduler();
    let from = cluster.now().await;
    roomy_node(&cluster, "n1", 2).await;
    let class = json!({ "metadata": { "name": "vital" }, "value": 1000 });
    cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", class).await.expect(201);
    cluster.post(PODS, asking("lesser", 2, None)).await.expect(201);
    cluster.until(&format!("{PODS}/lesser"), |pod| pod["spec"]["nodeName"] == "n1").await;

    cluster.post(PODS, asking("vital", 2, Some("vital"))).await.expect(201);
    let leaving = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    let lesser = cluster.until(&format!("{PODS}/lesser"), leaving).await;
    assert_eq!(condition(&lesser, "DisruptionTarget")["reason"], "PreemptionByScheduler");
    assert_eq!(lesser["metadata"]["deletionGracePeriodSeconds"], 30);
    cluster.until(&format!("{PODS}/vital"), |pod| pod["status"]["nominatedNodeName"] == "n1").await;
    cluster.until_seen(EVENTS, &from, |_, event| event["reason"] == "Preempted").await;
    cluster.finish("lesser").await;
    cluster.until(&format!("{PODS}/vital"), |pod| pod["spec"]["nodeName"] == "n1").await;
}
