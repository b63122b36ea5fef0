//! Watches: order, resume, selections, bookmarks, and the ways they end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Api, configmap, pod, version};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const INITIAL: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

fn labelled(name: &str, value: &str) -> Value {
    let mut map = configmap(name);
    map["metadata"]["labels"] = json!({ "a": value });
    map
}

/// [AD-46] Appendix 14: revisions grow across kinds, and a resumed watch misses and repeats nothing.
#[tokio::test]
async fn a_watch_resumes_from_any_event_it_has_seen() {
    let api = Api::start().await;
    let start = api.store.revision().0;
    for name in ["x", "y", "z"] {
        api.post(MAPS, &configmap(name)).await.expect(201);
    }
    api.delete(&format!("{MAPS}/y")).await.expect(200);
    let mut whole = api.watch(&format!("{MAPS}?watch=1&resourceVersion={start}")).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(whole.next().await.unwrap());
    }
    let lines: Vec<String> = seen
        .iter()
        .map(|e| format!("{} {}", e["type"].as_str().unwrap(), e["object"]["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(lines, ["ADDED x", "ADDED y", "ADDED z", "DELETED y"]);
    assert!(seen.windows(2).all(|pair| version(&pair[0]["object"]) < version(&pair[1]["object"])));
    let mut resumed = Vec::new();
    for event in &seen {
        let object = &event["object"];
        assert_eq!((object["kind"].as_str(), object["apiVersion"].as_str()), (Some("ConfigMap"), Some("v1")));
        let from = version(object);
        resumed.push(api.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=1")).await);
    }
    for (at, mut events) in resumed.into_iter().enumerate() {
        for expected in &seen[at + 1..] {
            assert_eq!(events.next().await.as_ref(), Some(expected));
        }
        assert_eq!(events.next().await, None, "nothing is repeated");
    }
}

/// Without a version everything there is comes first.
#[tokio::test]
async fn a_watch_without_a_version_starts_with_what_is_there() {
    let api = Api::start().await;
    api.post(MAPS, &configmap("x")).await.expect(201);
    for query in ["watch=true", "watch=1&resourceVersion=0"] {
        let mut events = api.watch(&format!("{MAPS}?{query}")).await;
        assert_eq!(events.next_line().await, "ADDED x");
    }
}

/// [AD-44]
#[tokio::test]
async fn leaving_a_selection_is_a_deletion_and_entering_it_an_addition() {
    let api = Api::start().await;
    let made = api.post(MAPS, &labelled("x", "b")).await.expect(201);
    let from = version(&made);
    let mut events = api.watch(&format!("{MAPS}?watch=1&labelSelector=a%3Db&resourceVersion={from}")).await;
    let out = api.put(&format!("{MAPS}/x"), &labelled("x", "c")).await.expect(200);
    api.post(MAPS, &labelled("unseen", "c")).await.expect(201);
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({ "a": "b" }), "as it last matched");
    assert_eq!(version(&event["object"]), version(&out), "at the version that made it leave");
    api.put(&format!("{MAPS}/x"), &labelled("x", "b")).await.expect(200);
    assert_eq!(events.next_line().await, "ADDED x");
    let mut changed = labelled("x", "b");
    changed["data"] = json!({ "a": "2" });
    api.put(&format!("{MAPS}/x"), &changed).await.expect(200);
    assert_eq!(events.next_line().await, "MODIFIED x");
}

/// [AD-45]
#[tokio::test]
async fn a_pod_that_ends_leaves_the_selection_of_running_pods() {
    let api = Api::start().await;
    let made = api.running_pod("p", |_| {}).await;
    let path = format!("{PODS}?watch=1&fieldSelector=status.phase%3DRunning&resourceVersion={}", version(&made));
    let mut events = api.watch(&path).await;
    api.set_phase("p", "Succeeded").await;
    assert_eq!(events.next_line().await, "DELETED p");
    api.get(&format!("{PODS}/p")).await.expect(200);
}

/// A node sees the pods that are bound to it, from the moment they are.
#[tokio::test]
async fn a_node_sees_only_its_own_pods() {
    let api = Api::start().await;
    let from = api.store.revision().0;
    let mut events =
        api.watch(&format!("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1&resourceVersion={from}")).await;
    api.post(PODS, &pod("elsewhere")).await.expect(201);
    api.running_pod("here", |_| {}).await;
    assert_eq!(events.next_line().await, "ADDED here");
    assert_eq!(events.next_line().await, "MODIFIED here");
}

/// Section 11.1: everything, then the bookmark that ends it, then live events on the same stream.
#[tokio::test]
async fn a_streamed_list_ends_with_its_bookmark() {
    let api = Api::start().await;
    api.post(MAPS, &configmap("x")).await.expect(201);
    let newest = api.post(MAPS, &configmap("y")).await.expect(201);
    let mut events = api.watch(&format!("{MAPS}?{INITIAL}&timeoutSeconds=300")).await;
    assert_eq!(events.next_line().await, "ADDED x");
    assert_eq!(events.next_line().await, "ADDED y");
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let object = &bookmark["object"];
    assert_eq!((object["kind"].as_str(), object["apiVersion"].as_str()), (Some("ConfigMap"), Some("v1")));
    assert_eq!(object["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    assert_eq!(version(object), version(&newest));
    api.post(MAPS, &configmap("z")).await.expect(201);
    assert_eq!(events.next_line().await, "ADDED z");

    let mut empty = api.watch(&format!("{MAPS}?{INITIAL}&labelSelector=no%3Dthing")).await;
    assert_eq!(empty.next().await.unwrap()["type"], "BOOKMARK", "also when nothing is selected");
}

#[tokio::test]
async fn combinations_that_mean_nothing_are_422() {
    let api = Api::start().await;
    for query in [
        "watch=1&sendInitialEvents=true",
        "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
        "watch=1&resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=true",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Nope&resourceVersion=1",
    ] {
        let status = api.get(&format!("{MAPS}?{query}")).await.expect(422);
        assert_eq!(status["reason"], "Invalid", "{query}");
    }
    api.get(&format!("{MAPS}?watch=1&resourceVersion=abc")).await.expect(400);
    api.get(&format!("{MAPS}?watch=1&labelSelector=a%3D%3D%3D")).await.expect(400);
    let field = api.get(&format!("{MAPS}?fieldSelector=data.a%3Db")).await.expect(400);
    assert!(field["message"].as_str().unwrap().contains("\"data.a\" is not a known field selector"), "{field}");
}

/// Appendix 11: a compacted version yields one ERROR event on a 200 answer.
#[tokio::test]
async fn a_watch_from_a_forgotten_version_is_one_error_event() {
    let api = Api::with_window(store::Window { changes: 4, ..store::Window::default() }).await;
    for round in 0..10 {
        api.post(MAPS, &configmap(&format!("m{round}"))).await.expect(201);
    }
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion=2")).await;
    let event = events.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_i64()), (Some("ERROR"), Some(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(event["object"]["message"].as_str().unwrap().starts_with("too old resource version: 2 ("), "{event}");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_watch_from_the_future_is_told_so() {
    let api = Api::start().await;
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion=900000")).await;
    let event = events.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_i64()), (Some("ERROR"), Some(504)));
    assert_eq!(event["object"]["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let path = format!("{MAPS}?{INITIAL}&resourceVersion=900000");
    assert_eq!(api.get(&path).await.expect(504)["reason"], "Timeout");
}

#[tokio::test]
async fn a_watch_ends_on_time_with_a_last_bookmark() {
    let api = Api::start().await;
    let last = api.post(MAPS, &configmap("x")).await.expect(201);
    let asked = Instant::now();
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={}", version(&last));
    let mut events = api.watch(&path).await;
    // Another kind moves the store on; the promise moves with it.
    let newer = api.post(PODS, &pod("p")).await.expect(201);
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(version(&bookmark["object"]) >= version(&last) && version(&bookmark["object"]) <= version(&newer));
    assert_eq!(events.next().await, None);
    assert!(asked.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_table_watch_sends_its_columns_once() {
    let api = Api::start().await;
    api.post(PODS, &pod("p")).await.expect(201);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut events = api.watch_as(&format!("{PODS}?watch=1"), accept).await;
    api.post(PODS, &pod("q")).await.expect(201);
    let first = events.next().await.unwrap()["object"].clone();
    let second = events.next().await.unwrap()["object"].clone();
    assert_eq!((first["kind"].as_str(), first["rows"][0]["cells"][0].as_str()), (Some("Table"), Some("p")));
    assert_eq!(first["columnDefinitions"][0]["name"], "Name");
    assert!(second["columnDefinitions"].is_null());
    assert_eq!(second["rows"][0]["object"]["metadata"]["name"], "q");
}

#[tokio::test]
async fn a_metadata_watch_sends_metadata_only() {
    let api = Api::start().await;
    api.post(MAPS, &configmap("x")).await.expect(201);
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let event = api.watch_as(&format!("{MAPS}?watch=1"), accept).await.next().await.unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(event["object"]["metadata"]["name"], "x");
    assert!(event["object"].get("data").is_none());
}

/// A reader that does not keep up costs nothing: it is told that what it has not read is gone, and lists again.
#[tokio::test]
async fn a_watch_that_does_not_keep_up_ends_with_410() {
    let api = Api::with_window(store::Window { changes: 8, bytes: usize::MAX, age: std::time::Duration::MAX }).await;
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={}", api.store.revision().0)).await;
    for n in 0..30 {
        api.post(MAPS, &configmap(&format!("m{n}"))).await.expect(201);
    }
    let end = events.next().await.unwrap();
    assert_eq!((&end["type"], &end["object"]["code"]), (&json!("ERROR"), &json!(410)), "{end}");
    assert_eq!(end["object"]["reason"], "Expired");
    assert_eq!(events.next().await, None);
}
