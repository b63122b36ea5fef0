//! Scenarios of deletion that only a server with its store, its watches and more than one client can tell whole.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Api, Events, pod, version};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn grace(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

async fn watch_after(api: &Api, object: &Value) -> Events {
    api.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(object))).await
}

/// Moves a stored pod as if it had been asked to leave `ago` seconds earlier.
async fn asked_earlier(api: &Api, name: &str, ago: i64, change: impl Fn(&mut Value)) -> Value {
    let key = store::Key::new("pods", "default", name);
    let stored = api.store.get(&key).unwrap();
    let mut value = stored.to_value();
    if let Some(deadline) = value["metadata"]["deletionTimestamp"].as_str() {
        let deadline: jiff::Timestamp = deadline.parse().unwrap();
        let earlier = deadline - jiff::SignedDuration::from_secs(ago);
        value["metadata"]["deletionTimestamp"] = json!(earlier.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    change(&mut value);
    let step = store::Step::Put { key: key.clone(), value };
    api.store.write(&key, store::Expect::Revision(stored.revision), vec![step]).await.unwrap();
    api.get(&format!("{PODS}/{name}")).await.expect(200)
}

/// The last request of a node for a pod that it has stopped.
async fn node_deletes(api: &Api, name: &str, uid: &Value) -> crate::harness::Answer {
    let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
    api.ask_as(&Identity::node("n1"), Method::DELETE, &format!("{PODS}/{name}"), &options).await
}

/// [AD-3]
#[tokio::test]
async fn a_running_pod_without_grace_is_marked_and_gone() {
    let api = Api::start().await;
    let running = api.running_pod("p", |_| {}).await;
    let mut events = watch_after(&api, &running).await;
    let answer = api.delete_with(&format!("{PODS}/p"), &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    let [marked, gone] = [events.next().await.unwrap(), events.next().await.unwrap()];
    assert_eq!((&marked["type"], grace(&marked["object"])), (&json!("MODIFIED"), Some(0)));
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(answer["kind"], "Pod");
    assert!(version(&running) < version(&marked["object"]) && version(&marked["object"]) < version(&gone["object"]));
    assert_eq!(version(&answer), version(&gone["object"]), "the answer carries the version of the deletion");
    api.get(&format!("{PODS}/p")).await.expect(404);
}

/// [AD-8]
#[tokio::test]
async fn a_pod_that_is_bound_and_not_yet_running_has_its_grace() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    let pending = api.set_phase("p", "Pending").await;
    let mut events = watch_after(&api, &pending).await;
    let answer = api.delete(&format!("{PODS}/p")).await.expect(200);
    assert_eq!((grace(&answer), answer["status"]["phase"].as_str()), (Some(30), Some("Pending")));
    assert_eq!(events.next_line().await, "MODIFIED p");
    assert_eq!(grace(&api.get(&format!("{PODS}/p")).await.expect(200)), Some(30), "it is the node's to finish");
}

/// [AD-20] [AD-75] The uid is that of a pod that really had the name.
#[tokio::test]
async fn delete_with_the_uid_of_an_earlier_pod_is_a_conflict() {
    let api = Api::start().await;
    let first = api.running_pod("p", |_| {}).await;
    api.delete_with(&format!("{PODS}/p"), &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    let second = api.running_pod("p", |_| {}).await;
    let (old, new) = (&first["metadata"]["uid"], &second["metadata"]["uid"]);
    assert_ne!(old, new);
    let status = node_deletes(&api, "p", old).await.expect(409);
    let text = format!("({}) does not match the UID in record ({})", old.as_str().unwrap(), new.as_str().unwrap());
    assert!(status["message"].as_str().unwrap().contains(&text), "{status}");
    assert_eq!(api.get(&format!("{PODS}/p")).await.expect(200), second, "nothing was written");
    node_deletes(&api, "p", new).await.expect(200);
    api.get(&format!("{PODS}/p")).await.expect(404);
}

/// [AD-26] Time is moved by moving the stored deadline.
#[tokio::test]
async fn a_shorter_grace_that_is_over_already_ends_a_second_from_the_start() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    api.delete(&format!("{PODS}/p")).await.expect(200);
    asked_earlier(&api, "p", 12, |_| {}).await;
    let before = jiff::Timestamp::now();
    let answer = api.delete_with(&format!("{PODS}/p"), &json!({ "gracePeriodSeconds": 10 })).await.expect(200);
    let after = jiff::Timestamp::now();
    assert_eq!(grace(&answer), Some(1));
    let deadline: jiff::Timestamp = answer["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
    // Whole seconds on the wire.
    assert!((before.as_second()..=after.as_second()).contains(&deadline.as_second()), "{before} {deadline} {after}");
    assert_eq!(grace(&api.get(&format!("{PODS}/p")).await.expect(200)), Some(1));
}

/// [AD-28]
#[tokio::test]
async fn another_policy_alone_changes_nothing_about_a_pod_that_leaves() {
    let api = Api::start().await;
    let running = api.running_pod("p", |_| {}).await;
    let mut events = watch_after(&api, &running).await;
    let path = format!("{PODS}/p");
    let first = api.delete_with(&path, &json!({ "propagationPolicy": "Background" })).await.expect(200);
    let again = api.delete_with(&path, &json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    assert_eq!(again, first);
    assert!(again["metadata"].get("finalizers").is_none());
    assert_eq!(events.next_line().await, "MODIFIED p");
    // The next event is the next write.
    let shorter = api.delete_with(&path, &json!({ "gracePeriodSeconds": 5 })).await.expect(200);
    assert_eq!(version(&events.next().await.unwrap()["object"]), version(&shorter));
}

/// [AD-29]
#[tokio::test]
async fn half_deleted_pod_is_removed_by_a_repeated_delete_request() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    api.delete(&format!("{PODS}/p")).await.expect(200);
    let left = asked_earlier(&api, "p", 0, |pod| pod["metadata"]["deletionGracePeriodSeconds"] = json!(0)).await;
    assert_eq!(grace(&left), Some(0));
    let mut events = watch_after(&api, &left).await;
    api.delete_with(&format!("{PODS}/p"), &json!({ "gracePeriodSeconds": 30 })).await.expect(200);
    assert_eq!(events.next_line().await, "DELETED p");
    api.get(&format!("{PODS}/p")).await.expect(404);
}

/// [AD-31]
#[tokio::test]
async fn a_finalizer_outlasts_the_last_word_of_the_node() {
    let api = Api::start().await;
    let running = api.running_pod("p", |pod| pod["metadata"]["finalizers"] = json!(["x.io/y"])).await;
    api.delete(&format!("{PODS}/p")).await.expect(200);
    node_deletes(&api, "p", &running["metadata"]["uid"]).await.expect(200);
    let held = api.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!((grace(&held), &held["metadata"]["finalizers"]), (Some(0), &json!(["x.io/y"])));
}

/// [AD-33]
#[tokio::test]
async fn a_pod_that_loses_its_finalizer_still_has_its_grace() {
    let api = Api::start().await;
    api.running_pod("p", |pod| pod["metadata"]["finalizers"] = json!(["x.io/y"])).await;
    let path = format!("{PODS}/p");
    let leaving = api.delete(&path).await.expect(200);
    let mut events = watch_after(&api, &leaving).await;
    let freed = api.patch(&path, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], grace(&event["object"])), (&json!("MODIFIED"), Some(30)));
    assert_eq!(version(&event["object"]), version(&freed));
    assert_eq!(grace(&api.get(&path).await.expect(200)), Some(30), "it is not gone");
    node_deletes(&api, "p", &freed["metadata"]["uid"]).await.expect(200);
    assert_eq!(events.next_line().await, "MODIFIED p");
    assert_eq!(events.next_line().await, "DELETED p");
    api.get(&path).await.expect(404);
    api.post(PODS, &pod("p")).await.expect(201);
}
