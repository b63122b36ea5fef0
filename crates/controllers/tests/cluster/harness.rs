//! A server behind TLS with its controllers, and the few words the tests speak to it with.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use controllers::Settings;
use futures::future::join_all;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use server::{Identity, Server, ServerConfig, pki};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server, its controllers, and an administrator who speaks to it over HTTPS.
pub(crate) struct Cluster {
    client: kube::Client,
    pub(crate) server: Server,
    controllers: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
    dir: TempDir,
}

/// Nodes of most tests say something once, and nobody is to mind that for as long as a test takes.
pub(crate) fn patient() -> Settings {
    Settings { node_grace: Duration::from_secs(3600), ..Settings::default() }
}

/// One answer, read whole.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that must have `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }
}

impl Cluster {
    /// Everything runs.
    pub(crate) async fn start() -> Self {
        Self::with(patient()).await
    }

    /// Everything but what makes pods: the test says which there are.
    pub(crate) async fn without_workloads() -> Self {
        Self::with(Settings { workloads: false, ..patient() }).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let mut cluster = Self::without_controllers().await;
        cluster.start_controllers(settings);
        cluster
    }

    /// Nobody looks after anything yet.
    pub(crate) async fn without_controllers() -> Self {
        Self::on(tempfile::tempdir().unwrap()).await
    }

    async fn on(dir: TempDir) -> Self {
        let store = store::Store::open(&dir.path().join("store")).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let config = ServerConfig {
            store,
            advertise: address,
            version: "v1.36.4+adieu.0.1.0".to_owned(),
            nodes: std::sync::Arc::new(server::NoNodes),
            service_range: server::ServiceRange::default(),
            token_key: server::TokenKey::ensure(&dir.path().join("pki")).unwrap(),
        };
        let server = Server::new(config).await.unwrap();
        let keys = pki::ensure(&dir.path().join("pki"), &["127.0.0.1".to_owned()]).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (serving, tls) = (server.clone(), keys.server_config().unwrap());
        let serving = tokio::spawn(async move { serving.serve(listener, tls, async { drop(stopped.await) }).await });
        let kubeconfig = serde_json::from_str(&keys.admin_kubeconfig(&format!("https://{address}"))).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        // Refusals are what some tests are about.
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        Self { client, server, controllers: None, stop: Some(stop), serving, dir }
    }

    pub(crate) fn start_controllers(&mut self, settings: Settings) {
        let manager = Identity::new("system:kube-controller-manager", &[]);
        let read = kube::Client::new(self.server.service_as(manager), "default");
        let server = self.server.clone();
        let act = move |account: &str| {
            let identity = Identity::service_account("kube-system", account);
            kube::Client::new(server.service_as(identity), "default")
        };
        let clients = controllers::Clients::new(read, act);
        self.controllers = Some(tokio::spawn(controllers::run(clients, self.server.kinds(), settings)));
    }

    /// In place of the other controllers.
    pub(crate) fn start_scheduler(&mut self) {
        let scheduler = Identity::new("system:kube-scheduler", &[]);
        let client = kube::Client::new(self.server.service_as(scheduler), "default");
        self.controllers = Some(tokio::spawn(controllers::scheduler::run(client, patient())));
    }

    pub(crate) async fn stop_controllers(&mut self) {
        if let Some(controllers) = self.controllers.take() {
            controllers.abort();
            let _ = controllers.await;
        }
    }

    /// Ends the server and everything in it, and starts another on the same store, without controllers.
    pub(crate) async fn restart(mut self) -> Self {
        self.stop_controllers().await;
        drop(self.stop.take());
        self.serving.await.unwrap().unwrap();
        drop((self.client, self.server));
        wait_for_release(self.dir.path()).await;
        Self::on(self.dir).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, "application/json", Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, "application/json", Some(body)).await
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        self.send(Method::DELETE, path, "application/json", Some(options)).await
    }

    async fn send(&self, method: Method, path: &str, media: &str, body: Option<Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap();
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// The newest revision of the store, as a list tells it.
    pub(crate) async fn now(&self) -> String {
        let list = self.get("/api/v1/namespaces?limit=1").await.expect(200);
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// Waits until the object at `path` is as `wanted`, and answers it.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait(path, |object| object.is_some_and(&wanted)).await.unwrap()
    }

    /// Waits until there is nothing at `path`.
    pub(crate) async fn until_gone(&self, path: &str) {
        self.wait(path, |object| object.is_none()).await;
    }

    /// Looks, then follows the watch of the one name until `wanted`.
    async fn wait(&self, path: &str, wanted: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let (collection, name) = path.rsplit_once('/').unwrap();
        let selector = format!("{collection}?fieldSelector=metadata.name%3D{name}");
        let list = self.get(&selector).await.expect(200);
        let found = list["items"].get(0).cloned();
        if wanted(found.as_ref()) {
            return found;
        }
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        let request = Request::get(format!("{selector}&watch=1&resourceVersion={from}"));
        let mut body = self.client.send(request.body(Body::empty()).unwrap()).await.unwrap().into_body();
        let mut buffer = Vec::new();
        let last = std::cell::RefCell::new(found);
        let following = async {
            loop {
                let frame = body.frame().await.expect("the watch goes on").unwrap();
                buffer.extend_from_slice(&frame.into_data().unwrap());
                for event in take_lines(&mut buffer) {
                    let object = (event["type"] != "DELETED").then(|| event["object"].clone());
                    *last.borrow_mut() = object.clone();
                    if wanted(object.as_ref()) {
                        return object;
                    }
                }
            }
        };
        match tokio::time::timeout(PATIENCE, following).await {
            Ok(found) => found,
            Err(_) => panic!("{path} stays as it is: {:?}", last.borrow()),
        }
    }

    /// Waits until an event of `collection` after `from` is as `wanted`: `(type, object)`.
    pub(crate) async fn until_seen(&self, collection: &str, from: &str, wanted: impl Fn(&str, &Value) -> bool) {
        let path = format!("{collection}?watch=1&resourceVersion={from}");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let mut body = self.client.send(request).await.unwrap().into_body();
        let mut buffer = Vec::new();
        let following = async {
            loop {
                let frame = body.frame().await.expect("the watch goes on").unwrap();
                buffer.extend_from_slice(&frame.into_data().unwrap());
                let events = take_lines(&mut buffer);
                if events.iter().any(|event| wanted(event["type"].as_str().unwrap(), &event["object"])) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, following).await.expect("it happens");
    }

    /// Everything that happened in `collections` after `from`, in order: `TYPE plural/name`.
    pub(crate) async fn history(&self, collections: &[&str], from: &str) -> Vec<String> {
        let read = |collection: &str| {
            let path = format!("{collection}?watch=1&resourceVersion={from}&timeoutSeconds=1");
            let plural = collection.rsplit('/').next().unwrap().to_owned();
            async move {
                let request = Request::get(path).body(Body::empty()).unwrap();
                let body = self.client.send(request).await.unwrap().into_body();
                let mut bytes = body.collect().await.unwrap().to_bytes().to_vec();
                let events = take_lines(&mut bytes).into_iter().map(|event| {
                    let metadata = &event["object"]["metadata"];
                    let version: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
                    let name = metadata["name"].as_str().unwrap();
                    (version, format!("{} {plural}/{name}", event["type"].as_str().unwrap()))
                });
                events.collect::<Vec<_>>()
            }
        };
        let mut all: Vec<(u64, String)> =
            join_all(collections.iter().map(|collection| read(collection))).await.into_iter().flatten().collect();
        all.sort();
        all.into_iter().map(|(_, line)| line).collect()
    }

    /// A node that is ready.
    pub(crate) async fn node(&self, name: &str) {
        self.post("/api/v1/nodes", json!({ "metadata": { "name": name } })).await.expect(201);
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        self.patch(&format!("/api/v1/nodes/{name}/status"), status).await.expect(200);
    }

    /// A pod that runs on `n1` and is ready.
    pub(crate) async fn running_pod(&self, name: &str, metadata: Value) -> Value {
        self.running_pod_with(name, metadata, json!({})).await
    }

    /// The same, of which more is asked.
    pub(crate) async fn running_pod_with(&self, name: &str, metadata: Value, spec: Value) -> Value {
        let mut pod = pod(name);
        for (part, wanted) in [("metadata", metadata), ("spec", spec)] {
            for (key, value) in wanted.as_object().unwrap() {
                pod[part][key] = value.clone();
            }
        }
        self.post(PODS, pod).await.expect(201);
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": "n1" } });
        self.post(&format!("{PODS}/{name}/binding"), binding).await.expect(201);
        self.report(name, "Running", true).await
    }

    /// What a node says of a pod.
    pub(crate) async fn report(&self, name: &str, phase: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        let status = json!({ "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] } });
        self.patch(&format!("{PODS}/{name}/status"), status).await.expect(200)
    }

    /// What a node does at the end of a pod that was asked to leave.
    pub(crate) async fn finish(&self, name: &str) {
        let pod = self.report(name, "Succeeded", false).await;
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": pod["metadata"]["uid"] } });
        self.delete(&format!("{PODS}/{name}"), options).await.expect(200);
    }
}

/// A reference to `owner` for `metadata.ownerReferences`.
pub(crate) fn owned_by(owner: &Value, blocks: bool) -> Value {
    json!({ "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": blocks, "blockOwnerDeletion": blocks })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "app", "image": "busybox" }] } })
}

fn take_lines(buffer: &mut Vec<u8>) -> Vec<Value> {
    let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = buffer.drain(..=end).collect();
    let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// The store's file is free once the last handle is dropped; connections may hold one for a moment longer.
async fn wait_for_release(dir: &Path) {
    let free = async {
        while store::Store::open(&dir.join("store")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, free).await.expect("the store is free again");
}
