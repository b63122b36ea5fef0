//! Claims, volumes and the pods that wait for them, with the real server, binder and scheduler; a test stands for the node.

use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Cluster, PODS, patient, pod};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn claim_spec() -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } })
}

fn with_volume(name: &str, source: Value) -> Value {
    let mut pod = pod(name);
    let mut volume = source;
    volume["name"] = json!("data");
    pod["spec"]["volumes"] = json!([volume]);
    pod
}

fn with_claim(name: &str, claim: &str) -> Value {
    with_volume(name, json!({ "persistentVolumeClaim": { "claimName": claim } }))
}

/// Binder, scheduler and the rest, and a node that makes directories.
async fn cluster() -> (Cluster, tokio::task::JoinHandle<()>) {
    let cluster = Cluster::without_workloads().await;
    let scheduler = Identity::new("system:kube-scheduler", &[]);
    let client = kube::Client::new(cluster.server.service_as(scheduler), "default");
    let scheduling = tokio::spawn(controllers::scheduler::run(client, patient()));
    cluster.node("n1").await;
    let told = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "n1" },
        "annotations": { "adieu.dev/volumes-directory": "/data/volumes" } } });
    cluster.patch("/api/v1/nodes/n1", told).await.expect(200);
    (cluster, scheduling)
}

/// Waits for an event with this reason; answers its message.
async fn told(cluster: &Cluster, reason: &str, words: &str) {
    let list = cluster.get(EVENTS).await.expect(200);
    let is_it =
        |event: &Value| event["reason"] == reason && event["message"].as_str().is_some_and(|it| it.contains(words));
    if !list["items"].as_array().unwrap().iter().any(is_it) {
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        cluster.until_seen(EVENTS, from, |_, event| is_it(event)).await;
    }
}

/// [WL-155] [WL-158] From the claim to the pod on its node, and back until nothing is left.
#[tokio::test]
async fn claim_gets_its_volume_with_the_first_pod_and_gives_it_back_after_the_last() {
    let (cluster, scheduling) = cluster().await;
    let (claim, volumes) = (format!("{CLAIMS}/c"), VOLUMES);
    cluster.post(PODS, with_claim("p", "c")).await.expect(201);
    told(&cluster, "FailedScheduling", "0/1 nodes are available: persistentvolumeclaim \"c\" not found.").await;
    let made = cluster.post(CLAIMS, json!({ "metadata": { "name": "c" }, "spec": claim_spec() })).await.expect(201);
    assert_eq!(made["spec"]["storageClassName"], "local-path");
    cluster.until(&format!("{PODS}/p"), |pod| pod["spec"]["nodeName"] == "n1").await;
    let bound = cluster.until(&claim, |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let name = format!("pvc-{}", bound["metadata"]["uid"].as_str().unwrap());
    assert_eq!(bound["spec"]["volumeName"], name);
    let volume = cluster.get(&format!("{volumes}/{name}")).await.expect(200);
    assert_eq!(volume["spec"]["local"]["path"], format!("/data/volumes/{name}_default_c"));
    assert_eq!(volume["status"]["phase"], "Bound");
    // More is given where the class says so.
    let more = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    cluster.patch(&claim, more).await.expect(200);
    cluster.until(&claim, |claim| claim["status"]["capacity"]["storage"] == "2Gi").await;
    // The claim stays while the pod is there; then it goes, and its volume waits for the node.
    cluster.delete(&claim, json!({})).await.expect(200);
    assert_eq!(cluster.get(&claim).await.expect(200)["status"]["phase"], "Bound");
    cluster.delete(&format!("{PODS}/p"), json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    cluster.until_gone(&claim).await;
    let volume = format!("{volumes}/{name}");
    let leaving = cluster
        .until(&volume, |volume| {
            let finalizers = &volume["metadata"]["finalizers"];
            volume["metadata"]["deletionTimestamp"].is_string()
                && finalizers.as_array().is_some_and(|all| all.len() == 1)
        })
        .await;
    assert_eq!(leaving["status"]["phase"], "Released");
    cluster.patch(&volume, json!({ "metadata": { "finalizers": [] } })).await.expect(200);
    cluster.until_gone(&volume).await;
    scheduling.abort();
}

/// [WL-170] The claim of an ephemeral volume is made for the pod and goes with it; a claim of somebody else is not taken.
#[tokio::test]
async fn ephemeral_volume_gets_a_claim_that_goes_with_its_pod() {
    let (cluster, scheduling) = cluster().await;
    let template = json!({ "metadata": { "labels": { "of": "p" } }, "spec": claim_spec() });
    let source = json!({ "ephemeral": { "volumeClaimTemplate": template } });
    let made = cluster.post(PODS, with_volume("p", source.clone())).await.expect(201);
    cluster.until(&format!("{PODS}/p"), |pod| pod["spec"]["nodeName"] == "n1").await;
    let claim = cluster.get(&format!("{CLAIMS}/p-data")).await.expect(200);
    let owner = &claim["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &claim["metadata"]["labels"]["of"]), (&made["metadata"]["uid"], &json!("p")));
    cluster.delete(&format!("{PODS}/p"), json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    cluster.until_gone(&format!("{CLAIMS}/p-data")).await;

    let foreign = json!({ "metadata": { "name": "q-data" }, "spec": claim_spec() });
    cluster.post(CLAIMS, foreign).await.expect(201);
    cluster.post(PODS, with_volume("q", source)).await.expect(201);
    let words = "ephemeral volume data: PVC default/q-data was not created for pod default/q (pod is not owner)";
    told(&cluster, "FailedBinding", words).await;
    cluster.delete(&format!("{CLAIMS}/q-data"), json!({})).await.expect(200);
    cluster.until(&format!("{PODS}/q"), |pod| pod["spec"]["nodeName"] == "n1").await;
    scheduling.abort();
}

/// [WL-154] A claim from before there was a default class takes it, and one that wants none never does.
#[tokio::test]
async fn default_class_that_comes_later_is_taken_by_claims_that_name_none() {
    let cluster = Cluster::without_workloads().await;
    cluster.delete(&format!("{CLASSES}/local-path"), json!({})).await.expect(200);
    for (name, class) in [("nil", json!(null)), ("none", json!(""))] {
        let mut spec = claim_spec();
        spec["storageClassName"] = class;
        let made = cluster.post(CLAIMS, json!({ "metadata": { "name": name }, "spec": spec })).await.expect(201);
        assert!(made["spec"]["storageClassName"].as_str().is_none_or(str::is_empty));
    }
    let class = json!({ "metadata": { "name": "mine",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "kubernetes.io/no-provisioner" });
    cluster.post(CLASSES, class).await.expect(201);
    cluster.until(&format!("{CLAIMS}/nil"), |claim| claim["spec"]["storageClassName"] == "mine").await;
    // What people make by hand is bound by its class, in one direction and the other.
    let volume = json!({ "metadata": { "name": "v" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "5Gi" }, "storageClassName": "mine", "hostPath": { "path": "/x" } } });
    cluster.post(VOLUMES, volume).await.expect(201);
    let bound = cluster.until(&format!("{CLAIMS}/nil"), |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!((&bound["spec"]["volumeName"], &bound["status"]["capacity"]["storage"]), (&json!("v"), &json!("5Gi")));
    assert_eq!(cluster.get(&format!("{CLAIMS}/none")).await.expect(200)["status"]["phase"], "Pending");
    // Nobody makes it larger.
    let more = json!({ "spec": { "resources": { "requests": { "storage": "7Gi" } } } });
    let refused = cluster.patch(&format!("{CLAIMS}/nil"), more).await.expect(403);
    assert!(refused["message"].as_str().unwrap().contains("only dynamically provisioned pvc can be resized"));
    // [WL-161] Kept after its claim, and free again when somebody says so.
    cluster.delete(&format!("{CLAIMS}/nil"), json!({})).await.expect(200);
    cluster.until(&format!("{VOLUMES}/v"), |volume| volume["status"]["phase"] == "Released").await;
    cluster.patch(&format!("{VOLUMES}/v"), json!({ "spec": { "claimRef": null } })).await.expect(200);
    cluster.until(&format!("{VOLUMES}/v"), |volume| volume["status"]["phase"] == "Available").await;
}
