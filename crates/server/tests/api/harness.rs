//! A server on a fresh store, and the few words the tests speak to it with.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use server::{ApiService, Body, Dialing, Identity, NodeDialer, Server, ServerConfig, Stream};
use tempfile::TempDir;
use tower::ServiceExt as _;

pub const VERSION: &str = "v1.36.4+adieu.0.1.0";
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a fresh store.
pub struct Api {
    pub server: Server,
    pub store: store::Store,
    _dir: TempDir,
}

/// Collection, namespace, name, and whatever is stored there.
pub type Row<'a> = ((&'a str, &'a str, &'a str), &'a [u8]);

/// One answer, read whole.
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The JSON body of an answer that must have `code`.
    #[track_caller]
    pub fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text);
        self.json()
    }

    pub fn warnings(&self) -> Vec<String> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }
}

impl Api {
    pub async fn start() -> Self {
        Self::with_nodes(Arc::new(server::NoNodes)).await
    }

    pub async fn with_nodes(nodes: Arc<dyn NodeDialer>) -> Self {
        Self::with(nodes, store::Window::default()).await
    }

    pub async fn with_window(window: store::Window) -> Self {
        Self::with(Arc::new(server::NoNodes), window).await
    }

    pub async fn with_service_range(range: server::ServiceRange) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store::Store::open(&dir.path().join("store")).await.unwrap();
        let config = ServerConfig { service_range: range, ..config(store.clone(), Arc::new(server::NoNodes)) };
        Self { server: Server::new(config).await.unwrap(), store, _dir: dir }
    }

    async fn with(nodes: Arc<dyn NodeDialer>, window: store::Window) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store::Store::open_with(&dir.path().join("store"), window).await.unwrap();
        let server = Server::new(config(store.clone(), nodes)).await.unwrap();
        Self { server, store, _dir: dir }
    }

    /// Another server on what this one has stored.
    pub async fn restart(self) -> Self {
        let Self { server, store, _dir } = self;
        drop(server);
        let server = Server::new(config(store.clone(), Arc::new(server::NoNodes))).await.unwrap();
        Self { server, store, _dir }
    }

    /// The same, with these rows in the log besides.
    pub async fn restart_with_rows(self, rows: &[Row<'_>]) -> Self {
        let Self { server, store, _dir } = self;
        let path = _dir.path().join("store");
        drop((server, store));
        // Whoever still works for the old server holds its store for a moment.
        let closed = async {
            while store::Store::open(&path).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.expect("the old server ends");
        for (key, bytes) in rows {
            testkit::rows::append_row(&path, *key, bytes).unwrap();
        }
        let store = store::Store::open(&path).await.unwrap();
        let server = Server::new(config(store.clone(), Arc::new(server::NoNodes))).await.unwrap();
        Self { server, store, _dir }
    }

    pub fn service(&self) -> ApiService {
        self.server.service_as(Identity::admin())
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.json(Method::POST, path, body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.json(Method::PUT, path, body).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    pub async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.json(Method::DELETE, path, options).await
    }

    /// A merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/merge-patch+json")];
        self.send(Method::PATCH, path, &headers, body.to_string()).await
    }

    async fn json(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.send(method, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        self.send_as(self.service(), method, path, headers, body).await
    }

    pub async fn send_as(
        &self,
        service: ApiService,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", "tester/1.0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = service.oneshot(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// Opens a watch; `path` carries its query.
    pub async fn watch(&self, path: &str) -> Events {
        self.watch_as(path, "application/json").await
    }

    pub async fn watch_as(&self, path: &str, accept: &str) -> Events {
        let request = Request::get(path).header("accept", accept).body(Full::new(Bytes::new())).unwrap();
        let response = self.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Events { body: Some(response.into_body()), buffer: Vec::new() }
    }

    /// A running pod on node `n1`, as the node would have reported it. Answers the pod.
    pub async fn running_pod(&self, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = pod(name);
        change(&mut pod);
        self.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": "n1" } });
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.post(&format!("{path}/binding"), &binding).await.expect(201);
        self.set_phase(name, "Running").await
    }

    /// Writes a pod's status the way a node does. Answers the pod.
    pub async fn set_phase(&self, name: &str, phase: &str) -> Value {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let mut pod = self.get(&path).await.expect(200);
        pod["status"]["phase"] = json!(phase);
        self.put(&format!("{path}/status"), &pod).await.expect(200)
    }
}

pub fn config(store: store::Store, nodes: Arc<dyn NodeDialer>) -> ServerConfig {
    ServerConfig {
        store,
        advertise: SocketAddr::from(([127, 0, 0, 1], 6443)),
        version: VERSION.to_owned(),
        nodes,
        service_range: server::ServiceRange::default(),
        token_key: server::TokenKey::fresh(),
    }
}

/// A pod manifest with one container.
pub fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "app", "image": "busybox" }] } })
}

pub fn configmap(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "1" } })
}

/// An open watch, read line by line.
pub struct Events {
    body: Option<Body>,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.as_mut()?.frame()).await.expect("an event in time");
            match frame {
                Some(frame) => self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => self.body = None,
            }
        }
    }

    /// `TYPE name` of the next event.
    pub async fn next_line(&mut self) -> String {
        let event = self.next().await.expect("another event");
        let object = &event["object"];
        format!("{} {}", event["type"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap_or("-"))
    }
}

/// The resourceVersion of an object or list.
pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A node whose HTTP side is a function over one end of a pipe.
pub struct PipeNode<F>(pub F);

impl<F> NodeDialer for PipeNode<F>
where
    F: Fn(tokio::io::DuplexStream) + Send + Sync,
{
    fn dial<'a>(&'a self, node: &'a str, _at: Option<SocketAddr>) -> Dialing<'a> {
        let known = node == "n1";
        Box::pin(async move {
            if !known {
                return Err(io::Error::other("no such node"));
            }
            let (near, far) = tokio::io::duplex(1024);
            (self.0)(far);
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}
