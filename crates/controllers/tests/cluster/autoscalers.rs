//! HorizontalPodAutoscalers against a real server.

use serde_json::{Value, json};

use crate::harness::Cluster;

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

async fn set(cluster: &Cluster, name: &str, replicas: usize) {
    let containers = json!([{ "name": "app", "image": "busybox" }]);
    let template = json!({ "metadata": { "labels": { "app": name } }, "spec": { "containers": containers } });
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template });
    cluster.post(SETS, json!({ "metadata": { "name": name }, "spec": spec })).await.expect(201);
}

async fn scaler(cluster: &Cluster, name: &str) {
    let target = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name });
    let spec = json!({ "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3 });
    cluster.post(SCALERS, json!({ "metadata": { "name": name }, "spec": spec })).await.expect(201);
}

fn reason(scaler: &Value, kind: &str) -> Option<String> {
    let found = scaler["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind)?;
    Some(format!("{}={}", found["status"].as_str()?, found["reason"].as_str()?))
}

/// Without metrics the bounds are kept all the same, and the conditions say what is missing.
#[tokio::test]
async fn autoscaler_scales_a_replica_set_into_its_bounds_and_says_what_it_cannot_measure() {
    let cluster = Cluster::start().await;
    set(&cluster, "many", 5).await;
    set(&cluster, "right", 2).await;
    for name in ["many", "right", "absent"] {
        scaler(&cluster, name).await;
    }
    cluster.until(&format!("{SETS}/many"), |set| set["spec"]["replicas"] == 3).await;
    let said = |wanted: &'static str, kind: &'static str| move |it: &Value| reason(it, kind).as_deref() == Some(wanted);
    let many = cluster.until(&format!("{SCALERS}/many"), said("True=SucceededRescale", "AbleToScale")).await;
    assert_eq!((&many["status"]["desiredReplicas"], many["status"]["lastScaleTime"].is_string()), (&json!(3), true));
    cluster.until(&format!("{SCALERS}/right"), said("False=FailedGetResourceMetric", "ScalingActive")).await;
    assert_eq!(cluster.get(&format!("{SETS}/right")).await.expect(200)["spec"]["replicas"], 2);
    cluster.until(&format!("{SCALERS}/absent"), said("False=FailedGetScale", "AbleToScale")).await;
}
