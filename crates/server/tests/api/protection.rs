//! Claims and volumes that somebody uses: deleted, they stay until nobody does.

use serde_json::{Value, json};

use crate::harness::{Api, Events, version};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } })
}

/// Waits until the object is gone from the collection that `events` watch.
async fn gone(events: &mut Events, name: &str) {
    while events.next_line().await != format!("DELETED {name}") {}
}

async fn watch_since(api: &Api, collection: &str, object: &Value) -> Events {
    api.watch(&format!("{collection}?watch=true&resourceVersion={}", version(object))).await
}

async fn with_claim(api: &Api, pod: &str, claim: &str) {
    api.running_pod(pod, |pod| {
        pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    })
    .await;
}

#[tokio::test]
async fn a_claim_outlives_the_pods_that_use_it() {
    let api = Api::start().await;
    let made = api.post(CLAIMS, &claim("data")).await.expect(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    with_claim(&api, "one", "data").await;
    with_claim(&api, "two", "data").await;
    let mut events = watch_since(&api, CLAIMS, &made).await;
    let leaving = api.delete(&format!("{CLAIMS}/data")).await.expect(200);
    assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    // One that nobody uses goes at once, after the other was looked at: it was deleted later.
    api.post(CLAIMS, &claim("other")).await.expect(201);
    api.delete(&format!("{CLAIMS}/other")).await.expect(200);
    gone(&mut events, "other").await;
    api.get(&format!("{CLAIMS}/data")).await.expect(200);
    // A pod that has ended may not be unmounted yet; one that is gone uses nothing.
    let now = json!({ "gracePeriodSeconds": 0 });
    api.set_phase("one", "Succeeded").await;
    api.delete_with("/api/v1/namespaces/default/pods/two", &now).await.expect(200);
    // It is looked at after the other pod was gone: it is deleted later.
    api.post(CLAIMS, &claim("third")).await.expect(201);
    api.delete(&format!("{CLAIMS}/third")).await.expect(200);
    gone(&mut events, "third").await;
    api.get(&format!("{CLAIMS}/data")).await.expect(200);
    api.delete_with("/api/v1/namespaces/default/pods/one", &now).await.expect(200);
    gone(&mut events, "data").await;
}

#[tokio::test]
async fn a_volume_outlives_the_claim_that_has_it() {
    let api = Api::start().await;
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "disk" },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "hostPath": { "path": "/data" } } });
    let made = api.post(VOLUMES, &volume).await.expect(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    let path = format!("{VOLUMES}/disk");
    let bound = json!({ "status": { "phase": "Bound" } });
    let mut events = watch_since(&api, VOLUMES, &made).await;
    api.patch(&format!("{path}/status"), &bound).await.expect(200);
    api.delete(&path).await.expect(200);
    api.get(&path).await.expect(200);
    api.patch(&format!("{path}/status"), &json!({ "status": { "phase": "Released" } })).await.expect(200);
    gone(&mut events, "disk").await;
}

/// The protection comes back where it was taken away, and a server that was away finishes what it finds.
#[tokio::test]
async fn protection_is_the_servers_to_give_and_to_take() {
    let api = Api::start().await;
    let made = api.post(CLAIMS, &claim("data")).await.expect(201);
    let mut events = watch_since(&api, CLAIMS, &made).await;
    api.patch(&format!("{CLAIMS}/data"), &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    loop {
        let event = events.next().await.expect("another event");
        if event["object"]["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"]) {
            break;
        }
    }
    with_claim(&api, "one", "data").await;
    let leaving = api.delete(&format!("{CLAIMS}/data")).await.expect(200);
    let api = api.restart().await;
    let mut events = watch_since(&api, CLAIMS, &leaving).await;
    api.delete_with("/api/v1/namespaces/default/pods/one", &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    gone(&mut events, "data").await;
}
