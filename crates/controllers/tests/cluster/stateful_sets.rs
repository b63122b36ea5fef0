//! StatefulSets against a real server, with the rights that their controller has.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, pod};

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "app", "image": image }] } })
}

async fn set(cluster: &Cluster, extra: Value) -> Value {
    let mut spec = json!({ "replicas": 3, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
        "template": template("i:1") });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    cluster.post(SETS, json!({ "metadata": { "name": "web" }, "spec": spec })).await.expect(201)
}

async fn reports(cluster: &Cluster, wanted: Value) -> Value {
    let is_so = |set: &Value| {
        let current = set["status"]["observedGeneration"] == set["metadata"]["generation"];
        current && wanted.as_object().unwrap().iter().all(|(key, value)| set["status"][key] == *value)
    };
    cluster.until(&format!("{SETS}/web"), is_so).await
}

/// Its node starts the pod of this name, if it is not asked to leave.
async fn start(cluster: &Cluster, name: &str) -> Value {
    let path = format!("{PODS}/{name}");
    cluster.until(&path, |pod| pod["metadata"]["deletionTimestamp"].is_null()).await;
    let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": "n1" } });
    cluster.post(&format!("{path}/binding"), binding).await.expect(201);
    cluster.report(name, "Running", true).await
}

/// Its node ends the pod of this name when it is asked to leave, and starts the next one.
async fn replaced(cluster: &Cluster, name: &str) -> Value {
    let path = format!("{PODS}/{name}");
    let old = cluster.until(&path, |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    cluster.finish(name).await;
    cluster.until(&path, |pod| pod["metadata"]["uid"] != old["metadata"]["uid"]).await;
    start(cluster, name).await
}

async fn names(cluster: &Cluster, collection: &str) -> Vec<String> {
    let all = cluster.get(collection).await.expect(200)["items"].as_array().unwrap().clone();
    all.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// [WL-53] [WL-57] [WL-65] [TR-79]
#[tokio::test]
async fn stateful_set_creates_updates_rolls_back_and_scales_down_in_order() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let from = cluster.now().await;
    set(&cluster, json!({})).await;
    let first = start(&cluster, "web-0").await;
    let labels = &first["metadata"]["labels"];
    assert_eq!(
        (&labels["statefulset.kubernetes.io/pod-name"], &labels["apps.kubernetes.io/pod-index"]),
        (&json!("web-0"), &json!("0"))
    );
    assert_eq!((&first["spec"]["hostname"], &first["spec"]["subdomain"]), (&json!("web-0"), &json!("web")));
    start(&cluster, "web-1").await;
    start(&cluster, "web-2").await;
    let made = reports(&cluster, json!({ "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3 })).await;
    let revision = made["status"]["currentRevision"].as_str().unwrap().to_owned();
    assert_eq!(
        (&made["status"]["updateRevision"], &labels["controller-revision-hash"]),
        (&json!(revision), &json!(revision))
    );
    let order: Vec<String> =
        cluster.history(&[PODS], &from).await.into_iter().filter(|it| it.starts_with("ADDED")).collect();
    assert_eq!(order, ["ADDED pods/web-0", "ADDED pods/web-1", "ADDED pods/web-2"]);
    let message = "create Pod web-0 in StatefulSet web successful";
    cluster
        .until_seen(EVENTS, &from, |_, event| event["message"] == message && event["reason"] == "SuccessfulCreate")
        .await;

    cluster.patch(&format!("{SETS}/web"), json!({ "spec": { "template": template("i:2") } })).await.expect(200);
    for name in ["web-2", "web-1", "web-0"] {
        let pod = replaced(&cluster, name).await;
        assert_eq!(pod["spec"]["containers"][0]["image"], "i:2");
    }
    let updated = reports(&cluster, json!({ "updatedReplicas": 3, "readyReplicas": 3, "currentReplicas": 3 })).await;
    assert_eq!(updated["status"]["currentRevision"], updated["status"]["updateRevision"]);
    assert_ne!(updated["status"]["currentRevision"], revision);

    // What `kubectl rollout undo` sends is what is kept.
    let kept = cluster.get(&format!("{REVISIONS}/{revision}")).await.expect(200);
    assert_eq!((&kept["revision"], &kept["data"]["spec"]["template"]["$patch"]), (&json!(1), &json!("replace")));
    cluster.patch(&format!("{SETS}/web"), json!({ "spec": { "template": template("i:1") } })).await.expect(200);
    for name in ["web-2", "web-1", "web-0"] {
        replaced(&cluster, name).await;
    }
    reports(&cluster, json!({ "currentRevision": revision, "updateRevision": revision })).await;
    assert_eq!(names(&cluster, REVISIONS).await.len(), 2, "the same object");
    assert_eq!(cluster.get(&format!("{REVISIONS}/{revision}")).await.expect(200)["revision"], 3);

    let from = cluster.now().await;
    cluster.patch(&format!("{SETS}/web/scale"), json!({ "spec": { "replicas": 0 } })).await.expect(200);
    for name in ["web-2", "web-1", "web-0"] {
        cluster.until(&format!("{PODS}/{name}"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
        let others = cluster.get(PODS).await.expect(200)["items"].as_array().unwrap().clone();
        let leaving = others.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count();
        assert_eq!(leaving, 1, "the others wait for {name}");
        cluster.finish(name).await;
    }
    reports(&cluster, json!({ "replicas": 0 })).await;
    let order: Vec<String> =
        cluster.history(&[PODS], &from).await.into_iter().filter(|it| it.starts_with("DELETED")).collect();
    assert_eq!(order, ["DELETED pods/web-2", "DELETED pods/web-1", "DELETED pods/web-0"]);
}

/// [WL-53] [WL-72] [WL-73] [WL-76] [WL-77] [WL-82]
#[tokio::test]
async fn stateful_set_makes_claims_before_pods_and_they_go_as_the_policy_says() {
    let mut cluster = Cluster::start().await;
    cluster.node("n1").await;
    let from = cluster.now().await;
    let claim = json!({ "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } } });
    let retention = json!({ "whenScaled": "Delete", "whenDeleted": "Retain" });
    let extra =
        json!({ "replicas": 2, "volumeClaimTemplates": [claim], "persistentVolumeClaimRetentionPolicy": retention });
    let made = set(&cluster, extra).await;
    let first = start(&cluster, "web-0").await;
    assert_eq!(first["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-web-0");
    // Whoever begins anew finds the claims and uses them.
    cluster.stop_controllers().await;
    cluster.start_controllers(crate::harness::patient());
    start(&cluster, "web-1").await;
    let order: Vec<String> =
        cluster.history(&[CLAIMS, PODS], &from).await.into_iter().filter(|it| it.starts_with("ADDED")).collect();
    let claimed =
        ["persistentvolumeclaims/data-web-0", "pods/web-0", "persistentvolumeclaims/data-web-1", "pods/web-1"];
    assert_eq!(order, claimed.map(|it| format!("ADDED {it}")));
    reports(&cluster, json!({ "readyReplicas": 2 })).await;

    cluster.patch(&format!("{SETS}/web/scale"), json!({ "spec": { "replicas": 1 } })).await.expect(200);
    let leaving = cluster.until(&format!("{PODS}/web-1"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    let claim = cluster.get(&format!("{CLAIMS}/data-web-1")).await.expect(200);
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], leaving["metadata"]["uid"], "before it was deleted");
    cluster.finish("web-1").await;
    cluster.until_gone(&format!("{CLAIMS}/data-web-1")).await;

    let retention = json!({ "whenScaled": "Retain", "whenDeleted": "Delete" });
    cluster
        .patch(&format!("{SETS}/web"), json!({ "spec": { "persistentVolumeClaimRetentionPolicy": retention } }))
        .await
        .expect(200);
    let owned = |claim: &Value| claim["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"];
    cluster.until(&format!("{CLAIMS}/data-web-0"), owned).await;
    cluster.delete(&format!("{SETS}/web"), json!({ "propagationPolicy": "Background" })).await.expect(200);
    cluster.until(&format!("{PODS}/web-0"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    cluster.finish("web-0").await;
    cluster.until_gone(&format!("{CLAIMS}/data-web-0")).await;
    if let Some(left) = names(&cluster, REVISIONS).await.first() {
        cluster.until_gone(&format!("{REVISIONS}/{left}")).await;
    }
}

/// [WL-70] [WL-80] [WL-83]
#[tokio::test]
async fn stateful_set_that_is_made_anew_adopts_pods_and_revisions_and_replaces_what_failed() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let mut other = pod("web-1");
    other["metadata"]["labels"] = json!({ "app": "web", "owner": "somebody" });
    other["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": true }]);
    cluster.post("/api/v1/namespaces/default/configmaps", json!({ "metadata": { "name": "c" } })).await.expect(201);
    let map = cluster.get("/api/v1/namespaces/default/configmaps/c").await.expect(200);
    other["metadata"]["ownerReferences"][0]["uid"] = map["metadata"]["uid"].clone();
    cluster.post(PODS, other).await.expect(201);
    set(&cluster, json!({ "replicas": 2 })).await;
    let first = start(&cluster, "web-0").await;
    let status = reports(&cluster, json!({ "replicas": 1, "readyReplicas": 1 })).await["status"].clone();
    // The name is somebody else's until that pod is gone.
    cluster.delete(&format!("{PODS}/web-1"), json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    start(&cluster, "web-1").await;
    reports(&cluster, json!({ "replicas": 2, "readyReplicas": 2 })).await;

    cluster.delete(&format!("{SETS}/web"), json!({ "propagationPolicy": "Orphan" })).await.expect(200);
    cluster.until_gone(&format!("{SETS}/web")).await;
    cluster.until(&format!("{PODS}/web-0"), |pod| pod["metadata"]["ownerReferences"].is_null()).await;
    let again = set(&cluster, json!({ "replicas": 2 })).await;
    let now =
        reports(&cluster, json!({ "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2 })).await["status"].clone();
    assert_eq!(now["currentRevision"], status["currentRevision"]);
    assert_eq!(names(&cluster, REVISIONS).await.len(), 1);
    let adopted = cluster.get(&format!("{PODS}/web-0")).await.expect(200);
    assert_eq!(adopted["metadata"]["uid"], first["metadata"]["uid"], "nobody was restarted");
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["uid"], again["metadata"]["uid"]);

    // It has ended: it goes at once, and its successor comes.
    cluster.report("web-0", "Failed", false).await;
    cluster.until(&format!("{PODS}/web-0"), |pod| pod["metadata"]["uid"] != first["metadata"]["uid"]).await;
    start(&cluster, "web-0").await;
    reports(&cluster, json!({ "replicas": 2, "readyReplicas": 2 })).await;
    assert_eq!(cluster.get(&format!("{PODS}/web-1")).await.expect(200)["metadata"]["deletionTimestamp"], Value::Null);
}
