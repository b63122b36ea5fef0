//! Several servers over one store: what is decided from sums is decided once. And what a server that died left half done
//! is finished by whoever comes next.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use server::{Identity, NoNodes, Server, ServiceRange};
use store::{Expect, Key, Step};

use crate::harness::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// `count` servers over the store of `api`, which is one more.
async fn servers(api: &Api, count: usize, range: ServiceRange) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        let config = server::ServerConfig { service_range: range, ..config(api.store.clone(), Arc::new(NoNodes)) };
        servers.push(Server::new(config).await.unwrap());
    }
    servers
}

/// Posts every object to one of the servers, all at once; answers status code and body.
async fn post_all(api: &Arc<Api>, servers: &[Server], path: &str, objects: Vec<Value>) -> Vec<(u16, Value)> {
    let mut posts = tokio::task::JoinSet::new();
    for (at, object) in objects.into_iter().enumerate() {
        let service = servers[at % servers.len()].service_as(Identity::admin());
        let (api, path) = (Arc::clone(api), path.to_owned());
        posts.spawn(async move {
            let headers = [("content-type", "application/json")];
            let answer = api.send_as(service, Method::POST, &path, &headers, object.to_string()).await;
            (answer.code, answer.json())
        });
    }
    posts.join_all().await
}

fn service(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } })
}

/// [CL-39] [CL-41] Two servers that would each give out the last addresses give out every one once, and then none.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn service_addresses_and_ports_are_unique_among_servers() {
    let range = ServiceRange::new([10, 43, 0, 0].into(), 26).unwrap();
    let api = Arc::new(Api::with_service_range(range).await);
    let servers = servers(&api, 3, range).await;
    let answers = post_all(&api, &servers, SERVICES, (0..90).map(|n| service(&format!("s{n}"))).collect()).await;
    let made: Vec<&Value> = answers.iter().filter(|(code, _)| *code == 201).map(|(_, body)| body).collect();
    let addresses: BTreeSet<&str> = made.iter().map(|s| s["spec"]["clusterIP"].as_str().unwrap()).collect();
    let ports: BTreeSet<i64> = made.iter().map(|s| s["spec"]["ports"][0]["nodePort"].as_i64().unwrap()).collect();
    assert_eq!((addresses.len(), ports.len()), (made.len(), made.len()), "none is given out twice");
    // All but the network, the broadcast address and the API's own.
    assert_eq!(made.len(), 61, "and all of them are");
    for (code, body) in answers.iter().filter(|(code, _)| *code != 201) {
        assert_eq!(*code, 422, "{body}");
        assert!(body["message"].as_str().unwrap().contains("range is full"), "{body}");
    }
}

/// [CL-40] Three servers let in as much as the quota has room for, together.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quota_is_never_exceeded_by_creates_at_several_servers() {
    let api = Arc::new(Api::start().await);
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
        "spec": { "hard": { "count/configmaps": "30" } } });
    api.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    let servers = servers(&api, 3, ServiceRange::default()).await;
    let answers = post_all(&api, &servers, CONFIGMAPS, (0..90).map(|n| configmap(&format!("m{n}"))).collect()).await;
    assert!(answers.iter().all(|(code, _)| [201, 403].contains(code)), "{answers:?}");
    assert_eq!(api.store.list("configmaps", "default", None).unwrap().items.len(), 30);
    // What one server lets go another can give out.
    let name = answers.iter().find(|(code, _)| *code == 201).unwrap().1["metadata"]["name"].as_str().unwrap();
    api.delete(&format!("{CONFIGMAPS}/{name}")).await.expect(200);
    assert_eq!(post_all(&api, &servers[1..2], CONFIGMAPS, vec![configmap("again")]).await[0].0, 201);
    assert_eq!(post_all(&api, &servers[2..], CONFIGMAPS, vec![configmap("more")]).await[0].0, 403);
}

/// The ticket of a namespace costs nothing while one server decides, is no object of the API, and goes with the quotas.
#[tokio::test]
async fn ticket_is_written_once_hidden_and_discarded_with_the_last_quota() {
    let api = Api::start().await;
    let ticket = Key::new("/adieu/ticket", "", "quota/default");
    api.post(CONFIGMAPS, &configmap("free")).await.expect(201);
    assert!(api.store.get(&ticket).is_none(), "who has no quotas needs none");
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
        "spec": { "hard": { "count/configmaps": "30" } } });
    api.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    let mut watch = api.store.watch("/adieu/ticket", "", None).unwrap();
    for n in 0..5 {
        api.post(CONFIGMAPS, &configmap(&format!("m{n}"))).await.expect(201);
    }
    let taken = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert_eq!(api.store.get(&ticket).unwrap().revision, taken.revision(), "taken once for all of them");
    for path in ["/api/v1", "/apis", "/metrics"] {
        assert!(!api.get(path).await.text.contains("ticket"), "{path}");
    }
    api.delete("/api/v1/namespaces/default/resourcequotas/q").await.expect(200);
    let gone = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert!(matches!(gone, store::Change::Deleted { .. }));
}

/// [CL-3] A server that dies between the mark and the removal leaves a pod that the next delete removes, whatever grace it
/// asks for: there is none left to give.
#[tokio::test]
async fn removal_interrupted_after_its_mark_is_finished_by_the_next_delete() {
    let api = Api::start().await;
    for (name, path) in [("a", ""), ("b", "?gracePeriodSeconds=30"), ("c", "?gracePeriodSeconds=0")] {
        let made = api.post(PODS, &pod(name)).await.expect(201);
        let key = Key::new("pods", "default", name);
        let mut marked = api.store.get(&key).unwrap().to_value();
        marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        let mark = Step::Mark { key: key.clone(), value: marked };
        api.store.write(&key, Expect::Revision(store::Revision(version(&made))), vec![mark]).await.unwrap();
        let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", api.store.revision().0)).await;
        api.delete(&format!("{PODS}/{name}{path}")).await.expect(200);
        assert_eq!(events.next_line().await, format!("DELETED {name}"));
        api.get(&format!("{PODS}/{name}")).await.expect(404);
    }
}
