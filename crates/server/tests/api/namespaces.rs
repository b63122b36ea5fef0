//! Namespaces: what they hold, and how they leave.

use serde_json::{Value, json};

use crate::harness::{Api, Events, configmap, pod, version};

async fn until(events: &mut Events, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = events.next().await.expect("the watch goes on");
        if wanted(&event) {
            return event;
        }
    }
}

fn named(event: &Value, kind: &str, name: &str) -> bool {
    event["type"] == kind && event["object"]["metadata"]["name"] == name
}

async fn namespace(api: &Api, name: &str) -> Value {
    api.post("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await.expect(201)
}

/// Appendix 19.
#[tokio::test]
async fn every_namespace_has_its_account_and_the_ca() {
    let api = Api::start().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        api.get(&format!("/api/v1/namespaces/{name}")).await.expect(200);
        api.get(&format!("/api/v1/namespaces/{name}/serviceaccounts/default")).await.expect(200);
    }
    let mut accounts = api.watch("/api/v1/serviceaccounts?watch=1").await;
    let mut maps = api.watch("/api/v1/configmaps?watch=1").await;
    namespace(&api, "team").await;
    until(&mut accounts, |event| event["object"]["metadata"]["namespace"] == "team").await;
    api.server.publish_root_ca("PEM");
    for _ in 0..5 {
        let event = maps.next().await.unwrap();
        assert_eq!(event["object"]["data"]["ca.crt"], "PEM");
    }
    // Both are put back.
    api.delete("/api/v1/namespaces/team/serviceaccounts/default").await.expect(200);
    until(&mut accounts, |event| event["type"] == "DELETED").await;
    until(&mut accounts, |event| named(event, "ADDED", "default")).await;
    let path = "/api/v1/namespaces/team/configmaps/kube-root-ca.crt";
    let mut map = api.get(path).await.expect(200);
    map["data"] = json!({ "ca.crt": "forged" });
    api.put(path, &map).await.expect(200);
    until(&mut maps, |event| event["object"]["data"]["ca.crt"] == "forged").await;
    until(&mut maps, |event| event["object"]["data"]["ca.crt"] == "PEM").await;
}

/// [AD-62] [AD-70] [AD-71]
#[tokio::test]
async fn a_namespace_waits_for_its_pods_and_then_takes_everything_along() {
    let api = Api::start().await;
    let made = namespace(&api, "team").await;
    let base = "/api/v1/namespaces/team";
    api.post(&format!("{base}/configmaps"), &configmap("settings")).await.expect(201);
    api.post(&format!("{base}/pods"), &pod("p")).await.expect(201);
    let binding = json!({ "target": { "kind": "Node", "name": "n1" } });
    api.post(&format!("{base}/pods/p/binding"), &binding).await.expect(201);

    let mut events = api.watch(&format!("/api/v1/namespaces?watch=1&resourceVersion={}", version(&made))).await;
    let mut pods = api.watch(&format!("/api/v1/pods?watch=1&resourceVersion={}", api.store.revision().0)).await;
    let answer = api.delete(base).await.expect(200);
    assert_eq!((answer["kind"].as_str(), answer["status"]["phase"].as_str()), (Some("Namespace"), Some("Terminating")));
    assert!(answer["metadata"].get("deletionGracePeriodSeconds").is_none());
    let leaving = until(&mut pods, |event| event["type"] == "MODIFIED").await;
    assert_eq!(leaving["object"]["metadata"]["deletionGracePeriodSeconds"], 30, "pods go with their own grace");
    // The namespace says what it waits for.
    let waiting = until(&mut events, |event| !event["object"]["status"]["conditions"].is_null()).await;
    let conditions = waiting["object"]["status"]["conditions"].as_array().unwrap();
    let content = conditions.iter().find(|c| c["type"] == "NamespaceContentRemaining").unwrap();
    assert_eq!((content["status"].as_str(), content["reason"].as_str()), (Some("True"), Some("SomeResourcesRemain")));
    api.get(&format!("{base}/configmaps/settings")).await.expect(200);
    // Nothing new comes in, except news about the pods that are leaving; what is there can still be changed.
    let refused = api.post(&format!("{base}/configmaps"), &configmap("late")).await.expect(403);
    assert_eq!(
        refused["message"],
        "configmaps \"late\" is forbidden: unable to create new content in namespace team because it is being \
         terminated"
    );
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut changed = configmap("settings");
    changed["data"] = json!({ "a": "2" });
    api.put(&format!("{base}/configmaps/settings"), &changed).await.expect(200);
    let event = json!({ "metadata": { "name": "p.1", "namespace": "team" }, "reason": "Killing", "type": "Normal",
        "involvedObject": { "kind": "Pod", "name": "p", "namespace": "team" } });
    api.post(&format!("{base}/events"), &event).await.expect(201);
    let eviction = json!({ "metadata": { "name": "p" } });
    let refused = api.post(&format!("{base}/pods/p/eviction"), &eviction).await.expect(403);
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let refused = api.post(&format!("{base}/serviceaccounts/default/token"), &json!({})).await.expect(403);
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(api.delete(base).await.expect(200)["status"]["phase"], "Terminating");

    // Something that does not go by itself keeps the namespace after its last pod, and the others do not wait for it.
    let hold = json!({ "metadata": { "finalizers": ["x.io/y"] } });
    api.patch(&format!("{base}/configmaps/settings"), &hold).await.expect(200);
    let last = json!({ "gracePeriodSeconds": 0 });
    api.delete_with(&format!("{base}/pods/p"), &last).await.expect(200);
    let held = until(&mut events, |event| {
        let conditions = event["object"]["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
    })
    .await;
    let conditions = held["object"]["status"]["conditions"].as_array().unwrap();
    let content = conditions.iter().find(|c| c["type"] == "NamespaceContentRemaining").unwrap();
    let text = "Some resources are remaining: configmaps. has 1 resource instances";
    assert_eq!(content["message"], text, "secrets and accounts did not wait for it");
    let mut late = event.clone();
    late["metadata"]["name"] = json!("p.2");
    api.post(&format!("{base}/events"), &late).await.expect(403);
    api.patch(&format!("{base}/configmaps/settings"), &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    let gone = until(&mut events, |event| named(event, "DELETED", "team")).await;
    assert_eq!(gone["object"]["spec"]["finalizers"], json!(["kubernetes"]), "the last stored state");
    api.get(base).await.expect(404);
    for resource in ["pods", "configmaps", "events", "serviceaccounts"] {
        let list = api.get(&format!("{base}/{resource}")).await.expect(200);
        assert_eq!(list["items"], json!([]), "{resource}");
    }
    // The name is free again.
    namespace(&api, "team").await;
}

/// [AD-72]
#[tokio::test]
async fn system_namespaces_are_not_deleted() {
    let api = Api::start().await;
    for name in ["default", "kube-system", "kube-public"] {
        let status = api.delete(&format!("/api/v1/namespaces/{name}")).await.expect(403);
        assert_eq!(status["message"], format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"));
    }
}

/// The one that may be deleted comes back, because nodes count on it.
#[tokio::test]
async fn the_namespace_of_the_nodes_comes_back() {
    let api = Api::start().await;
    let mut events = api.watch("/api/v1/namespaces?watch=1").await;
    let old = api.get("/api/v1/namespaces/kube-node-lease").await.expect(200);
    api.delete("/api/v1/namespaces/kube-node-lease").await.expect(200);
    let is_new = |event: &Value| {
        named(event, "ADDED", "kube-node-lease") && event["object"]["metadata"]["uid"] != old["metadata"]["uid"]
    };
    until(&mut events, is_new).await;
}

/// [AD-73]
#[tokio::test]
async fn a_namespace_with_another_finalizer_waits_for_it() {
    let api = Api::start().await;
    let mut sent = json!({ "metadata": { "name": "held" } });
    sent["spec"] = json!({ "finalizers": ["x.io/y"] });
    let made = api.post("/api/v1/namespaces", &sent).await.expect(201);
    let mut events = api.watch(&format!("/api/v1/namespaces?watch=1&resourceVersion={}", version(&made))).await;
    api.delete("/api/v1/namespaces/held").await.expect(200);
    let emptied = until(&mut events, |event| event["object"]["spec"]["finalizers"] == json!(["x.io/y"])).await;
    let mut free = emptied["object"].clone();
    free["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/held/finalize", &free).await.expect(200);
    until(&mut events, |event| named(event, "DELETED", "held")).await;
}

/// A namespace that was leaving when the server stopped leaves when it starts again.
#[tokio::test]
async fn a_new_server_finishes_what_the_old_one_began() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let start = || async {
        let store = store::Store::open(&path).await.unwrap();
        let config = server::ServerConfig {
            store: store.clone(),
            advertise: ([127, 0, 0, 1], 6443).into(),
            version: crate::harness::VERSION.to_owned(),
            nodes: std::sync::Arc::new(server::NoNodes),
            service_range: server::ServiceRange::default(),
            token_key: server::TokenKey::fresh(),
        };
        (server::Server::new(config).await.unwrap(), store)
    };
    let key = |name: &str| store::Key { collection: "namespaces".into(), namespace: "".into(), name: name.into() };
    {
        let (server, store) = start().await;
        let value = json!({ "metadata": { "name": "team", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Terminating" } });
        // As a crash would leave it: stored, and nobody told.
        drop(server);
        let step = store::Step::Put { key: key("team"), value };
        store.write(&key("team"), store::Expect::Absent, vec![step]).await.unwrap();
    }
    let (_server, store) = start().await;
    let (page, mut watch) = store.list_and_watch("namespaces", "");
    if page.items.iter().any(|namespace| &*namespace.key.name == "team") {
        loop {
            let change = watch.next().await.unwrap();
            if matches!(&change, store::Change::Deleted { last, .. } if &*last.key.name == "team") {
                break;
            }
        }
    }
    assert!(store.get(&key("team")).is_none());
}

/// The finalizer of a namespace can be taken away by hand while something in it still waits. Then it is gone, and what
/// comes later under its name is not its own.
#[tokio::test]
async fn a_namespace_that_was_given_up_takes_nothing_of_its_successor() {
    let api = Api::start().await;
    let mut namespaces = api.watch("/api/v1/namespaces?watch=1").await;
    let base = "/api/v1/namespaces/team";
    namespace(&api, "team").await;
    let mut held = configmap("held");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    let held = api.post(&format!("{base}/configmaps"), &held).await.expect(201);
    api.delete(base).await.expect(200);
    // It has looked at all of its content when it says what it waits for.
    until(&mut namespaces, |event| {
        let conditions = event["object"]["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["reason"] == "SomeFinalizersRemain"))
    })
    .await;
    let mut given_up = api.get(base).await.expect(200);
    given_up["spec"]["finalizers"] = json!([]);
    api.put(&format!("{base}/finalize"), &given_up).await.expect(200);
    until(&mut namespaces, |event| named(event, "DELETED", "team")).await;

    namespace(&api, "team").await;
    let mut maps = api.watch(&format!("{base}/configmaps?watch=1")).await;
    let mut new = Vec::new();
    for name in ["a", "b", "c"] {
        new.push(api.post(&format!("{base}/configmaps"), &configmap(name)).await.expect(201));
    }
    // The last word of the former one's content: by then whoever still followed it would have seen the new ones.
    let freed = json!({ "metadata": { "finalizers": null } });
    api.patch(&format!("{base}/configmaps/held"), &freed).await.expect(200);
    let gone = until(&mut maps, |event| event["type"] == "DELETED").await;
    assert_eq!(gone["object"]["metadata"]["uid"], held["metadata"]["uid"], "{gone:#}");
    namespace(&api, "another").await;
    api.delete("/api/v1/namespaces/another").await.expect(200);
    until(&mut namespaces, |event| named(event, "DELETED", "another")).await;
    for made in new {
        let name = made["metadata"]["name"].as_str().unwrap();
        let found = api.get(&format!("{base}/configmaps/{name}")).await.expect(200);
        assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"]);
    }
}
