//! Disruption budgets, counted and spent.

use serde_json::{Value, json};

use crate::harness::{Answer, Cluster, PODS, owned_by, patient};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn budget(cluster: &Cluster, spec: Value) {
    let mut budget = json!({ "metadata": { "name": "b" }, "spec": spec });
    budget["spec"]["selector"] = json!({ "matchLabels": { "app": "web" } });
    cluster.post(BUDGETS, budget).await.expect(201);
}

/// Waits until the budget has been counted as `wanted`.
async fn counted(cluster: &Cluster, wanted: Value) -> Value {
    cluster
        .until(&format!("{BUDGETS}/b"), |budget| {
            let current = budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
            current && wanted.as_object().unwrap().iter().all(|(key, value)| budget["status"][key] == *value)
        })
        .await
}

fn condition(budget: &Value) -> (&str, &str) {
    let condition = &budget["status"]["conditions"][0];
    assert_eq!(condition["type"], "DisruptionAllowed");
    (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
}

async fn web(cluster: &Cluster, name: &str) {
    if cluster.get("/api/v1/nodes/n1").await.code == 404 {
        cluster.node("n1").await;
    }
    cluster.running_pod(name, json!({ "labels": { "app": "web" } })).await;
}

async fn evict(cluster: &Cluster, name: &str, query: &str) -> Answer {
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    cluster.post(&format!("{PODS}/{name}/eviction{query}"), eviction).await
}

/// [AD-52] [AD-54] [AD-61]
#[tokio::test]
async fn a_budget_lets_go_what_it_can_spare_and_no_more() {
    let cluster = Cluster::start().await;
    web(&cluster, "a").await;
    web(&cluster, "b").await;
    budget(&cluster, json!({ "minAvailable": 1 })).await;
    let spare = json!({ "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 2 });
    let before = counted(&cluster, spare).await;
    assert_eq!(condition(&before), ("True", "SufficientPods"));

    evict(&cluster, "a", "?dryRun=All").await.expect(201);
    let after = cluster.get(&format!("{BUDGETS}/b")).await.expect(200);
    assert_eq!(
        (&after["metadata"], &after["status"]),
        (&before["metadata"], &before["status"]),
        "a dry run takes nothing"
    );
    assert!(cluster.get(&format!("{PODS}/a")).await.expect(200)["metadata"]["deletionTimestamp"].is_null());

    evict(&cluster, "a", "").await.expect(201);
    // The eviction itself has taken its one; what it left is healthy is told by who counts next.
    let spent = counted(&cluster, json!({ "currentHealthy": 1, "disruptionsAllowed": 0 })).await;
    assert_eq!(condition(&spent), ("False", "InsufficientPods"));
    let leaving = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30);

    let refused = evict(&cluster, "b", "").await;
    assert!(refused.headers.get("retry-after").is_none(), "clients would wait in silence");
    let refused = refused.expect(429);
    assert_eq!(refused["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    assert_eq!(cause["message"], "The disruption budget b needs 1 healthy pods and has 1 currently");
    assert_eq!(evict(&cluster, "b", "?dryRun=All").await.code, 429);

    // Another pod, another chance.
    web(&cluster, "c").await;
    counted(&cluster, json!({ "disruptionsAllowed": 1 })).await;
    evict(&cluster, "b", "").await.expect(201);
}

/// [AD-54] What the eviction itself writes, before anyone counts again.
#[tokio::test]
async fn an_eviction_is_taken_from_the_budget_at_once() {
    let mut cluster = Cluster::start().await;
    web(&cluster, "a").await;
    web(&cluster, "b").await;
    budget(&cluster, json!({ "minAvailable": 1 })).await;
    counted(&cluster, json!({ "disruptionsAllowed": 1 })).await;
    cluster.stop_controllers().await;
    evict(&cluster, "a", "").await.expect(201);
    let budget = cluster.get(&format!("{BUDGETS}/b")).await.expect(200);
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string(), "{budget}");
    assert_eq!(condition(&budget), ("False", "InsufficientPods"));
    // Whoever counts next finds the pod leaving, and forgets it.
    cluster.start_controllers(patient());
    let counted = counted(&cluster, json!({ "currentHealthy": 1, "disruptedPods": null })).await;
    assert_eq!(counted["status"]["disruptionsAllowed"], 0);
}

/// [AD-53]
#[tokio::test]
async fn a_budget_that_has_not_been_counted_yet_asks_for_patience() {
    let cluster = Cluster::without_controllers().await;
    web(&cluster, "a").await;
    budget(&cluster, json!({ "minAvailable": 1 })).await;
    let refused = evict(&cluster, "a", "").await;
    assert_eq!(refused.headers["retry-after"], "10");
    let refused = refused.expect(429);
    assert_eq!(refused["details"]["retryAfterSeconds"], 10);
    let text = "The disruption budget b is still being processed by the server.";
    assert_eq!(refused["details"]["causes"][0]["message"], text);
}

/// [TR-89] [AD-55] [AD-56] [AD-57]
#[tokio::test]
async fn unready_pods_may_be_evicted_if_the_budget_allows() {
    let cluster = Cluster::start().await;
    for name in ["pending", "sick", "well"] {
        web(&cluster, name).await;
    }
    cluster.report("pending", "Pending", false).await;
    cluster.report("sick", "Running", false).await;
    budget(&cluster, json!({ "minAvailable": 1 })).await;
    let none = json!({ "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0 });
    let before = counted(&cluster, none).await;
    evict(&cluster, "pending", "").await.expect(201);
    // Not ready, and enough others are.
    evict(&cluster, "sick", "").await.expect(201);
    let after = counted(&cluster, json!({ "disruptionsAllowed": 0 })).await;
    assert_eq!(after["status"]["currentHealthy"], before["status"]["currentHealthy"], "nothing was spent");
    assert!(after["status"]["disruptedPods"].is_null());

    // Not ready, and too few others are: only by policy.
    cluster.report("well", "Running", false).await;
    counted(&cluster, json!({ "currentHealthy": 0 })).await;
    evict(&cluster, "well", "").await.expect(429);
    let policy = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    cluster.patch(&format!("{BUDGETS}/b"), policy).await.expect(200);
    counted(&cluster, json!({ "currentHealthy": 0 })).await;
    evict(&cluster, "well", "").await.expect(201);
}

/// [TR-88] [AD-58]
#[tokio::test]
async fn two_budgets_for_one_pod_are_an_error_that_names_them() {
    let cluster = Cluster::start().await;
    web(&cluster, "a").await;
    budget(&cluster, json!({ "minAvailable": 0 })).await;
    let second = json!({ "metadata": { "name": "second" }, "spec": { "minAvailable": 0, "selector": {} } });
    cluster.post(BUDGETS, second).await.expect(201);
    let refused = evict(&cluster, "a", "").await.expect(500);
    let message = refused["message"].as_str().unwrap();
    let known = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert!(message.starts_with(known), "{message}");
    assert!(message.contains("b, second"), "{message}");
}

/// A share is a share of what the pods' controllers are asked for, whatever runs at the moment.
#[tokio::test]
async fn shares_are_counted_from_what_the_owners_want() {
    let cluster = Cluster::without_workloads().await;
    let spec = json!({ "replicas": 4, "selector": { "matchLabels": { "app": "web" } }, "template": {
        "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "a", "image": "b" }] } } });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({ "metadata": { "name": "web" }, "spec": spec });
    let deployment = cluster.post(deployments, body).await.expect(201);
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let mut spec = spec.clone();
    spec["replicas"] = json!(2);
    let body =
        json!({ "metadata": { "name": "web-1", "ownerReferences": [owned_by(&deployment, true)] }, "spec": spec });
    let set = cluster.post(sets, body).await.expect(201);
    cluster.node("n1").await;
    for name in ["a", "b"] {
        let owners = json!([owned_by(&set, true)]);
        cluster.running_pod(name, json!({ "labels": { "app": "web" }, "ownerReferences": owners })).await;
    }
    budget(&cluster, json!({ "maxUnavailable": "50%" })).await;
    let four = json!({ "expectedPods": 4, "desiredHealthy": 2, "currentHealthy": 2, "disruptionsAllowed": 0 });
    counted(&cluster, four).await;
    cluster.patch(&format!("{deployments}/web/scale"), json!({ "spec": { "replicas": 2 } })).await.expect(200);
    counted(&cluster, json!({ "expectedPods": 2, "desiredHealthy": 1, "disruptionsAllowed": 1 })).await;

    // An owner that cannot say how many it wants makes the budget allow nothing, and say why.
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({ "metadata": { "name": "j" }, "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "a", "image": "b" }] } } } });
    let job = cluster.post(jobs, job).await.expect(201);
    let owners = json!([owned_by(&job, true)]);
    cluster.running_pod("j-1", json!({ "labels": { "app": "web" }, "ownerReferences": owners })).await;
    let failed = cluster
        .until(&format!("{BUDGETS}/b"), |budget| budget["status"]["conditions"][0]["reason"] == "SyncFailed")
        .await;
    assert_eq!(failed["status"]["disruptionsAllowed"], 0);
    let message = failed["status"]["conditions"][0]["message"].as_str().unwrap();
    assert_eq!(message, "jobs.batch does not implement the scale subresource");
}

/// A budget's own status can be written by those who may, as the conformance suite does.
#[tokio::test]
async fn the_status_of_a_budget_is_its_own() {
    let cluster = Cluster::without_controllers().await;
    budget(&cluster, json!({ "minAvailable": 1 })).await;
    let mut shown = cluster.get(&format!("{BUDGETS}/b")).await.expect(200);
    shown["status"]["disruptionsAllowed"] = json!(7);
    shown["spec"]["minAvailable"] = json!(5);
    let written = cluster.put(&format!("{BUDGETS}/b/status"), shown).await.expect(200);
    assert_eq!((&written["status"]["disruptionsAllowed"], &written["spec"]["minAvailable"]), (&json!(7), &json!(1)));
}
