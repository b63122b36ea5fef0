//! Logs and exec: what the server decides, and what it passes on to the node byte by byte.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::harness::{Api, PipeNode, pod};
use crate::transport::{Tls, connect};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// What the node was asked: method, path and query, and the upgrade it was offered.
type RecordedRequests = Arc<Mutex<Vec<String>>>;

/// A node that answers logs with a line, and exec with an echo of whatever it is sent.
fn node(asked: RecordedRequests) -> Arc<PipeNode<impl Fn(DuplexStream) + Send + Sync>> {
    Arc::new(PipeNode(move |stream: DuplexStream| {
        let asked = Arc::clone(&asked);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let upgrade = request.headers().get("upgrade").map_or("", |value| value.to_str().unwrap()).to_owned();
            let protocol = request.headers().get("x-stream-protocol-version").cloned();
            asked.lock().unwrap().push(format!("{} {} {upgrade}", request.method(), request.uri()));
            async move {
                let path = request.uri().path().to_owned();
                let mut response = Response::new(Full::new(Bytes::from("hello\n")));
                if path.ends_with("/broken") {
                    *response.status_mut() = http::StatusCode::NOT_FOUND;
                    *response.body_mut() = Full::new(Bytes::from("container not found"));
                } else if path.starts_with("/exec") {
                    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
                    *response.body_mut() = Full::default();
                    response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
                    response.headers_mut().insert("upgrade", upgrade.parse().unwrap());
                    response.headers_mut().insert("x-stream-protocol-version", protocol.unwrap());
                    tokio::spawn(echo(request));
                }
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = connection.with_upgrades().await;
        });
    }))
}

async fn echo(request: Request<Incoming>) {
    let upgraded = hyper::upgrade::on(request).await.unwrap();
    let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
    tokio::io::copy(&mut read, &mut write).await.unwrap();
    write.shutdown().await.unwrap();
}

async fn running(api: &Api, name: &str, containers: &[&str]) {
    api.running_pod(name, |pod| {
        let list: Vec<Value> = containers.iter().map(|c| json!({ "name": c, "image": "busybox" })).collect();
        pod["spec"]["containers"] = json!(list);
    })
    .await;
    let path = format!("{PODS}/{name}");
    let mut pod = api.get(&path).await.expect(200);
    let statuses: Vec<Value> = containers
        .iter()
        .map(|c| {
            json!({ "name": c, "ready": true, "restartCount": 0, "image": "busybox", "imageID": "",
                "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } })
        })
        .collect();
    pod["status"]["containerStatuses"] = json!(statuses);
    api.put(&format!("{path}/status"), &pod).await.expect(200);
}

#[tokio::test]
async fn logs_come_from_the_node_with_the_clients_wishes() {
    let asked = RecordedRequests::default();
    let api = Api::with_nodes(node(Arc::clone(&asked))).await;
    running(&api, "p", &["app"]).await;
    let answer = api.get(&format!("{PODS}/p/log?follow=true&tailLines=5&nonsense=1")).await;
    assert_eq!((answer.code, answer.text.as_str()), (200, "hello\n"));
    assert_eq!(answer.headers["content-type"], "text/plain");
    assert_eq!(*asked.lock().unwrap(), ["GET /containerLogs/default/p/app?follow=true&tailLines=5 "]);
}

/// Section 17.3.
#[tokio::test]
async fn logs_that_cannot_be_are_refused_with_a_reason() {
    let api = Api::with_nodes(node(RecordedRequests::default())).await;
    running(&api, "two", &["a", "b"]).await;
    let message = |path: String, code: u16| {
        let api = &api;
        async move { api.get(&format!("{PODS}/{path}")).await.expect(code)["message"].as_str().unwrap().to_owned() }
    };
    assert_eq!(
        message("two/log".to_owned(), 400).await,
        "a container name must be specified for pod two, choose one of: [a b]"
    );
    assert_eq!(message("two/log?container=c".to_owned(), 400).await, "container c is not valid for pod two");
    assert_eq!(
        message("two/log?container=a&previous=true".to_owned(), 400).await,
        "previous terminated container \"a\" in pod \"two\" not found"
    );
    assert_eq!(message("none/log".to_owned(), 404).await, "pods \"none\" not found");
    api.get(&format!("{PODS}/two/log?container=a&tailLines=-1")).await.expect(422);
    api.post(PODS, &pod("unscheduled")).await.expect(201);
    let empty = api.get(&format!("{PODS}/unscheduled/log")).await;
    assert_eq!((empty.code, empty.text.as_str()), (204, ""));
    api.running_pod("starting", |_| {}).await;
    assert_eq!(
        message("starting/log".to_owned(), 400).await,
        "container \"app\" in pod \"starting\" is waiting to start: ContainerCreating"
    );
    running(&api, "odd", &["broken"]).await;
    assert_eq!(message("odd/log".to_owned(), 404).await, "container not found");
}

#[tokio::test]
async fn a_node_that_is_not_there_is_an_internal_error() {
    let api = Api::start().await;
    running(&api, "p", &["app"]).await;
    let status = api.get(&format!("{PODS}/p/log")).await.expect(500);
    assert!(status["message"].as_str().unwrap().contains("cannot reach node \"n1\""), "{status}");
}

#[tokio::test]
async fn a_handler_that_breaks_answers_500_and_the_server_goes_on() {
    let api = Api::with_nodes(Arc::new(PipeNode(|_| panic!("a bug on the way to the node")))).await;
    running(&api, "p", &["app"]).await;
    let status = api.get(&format!("{PODS}/p/log")).await.expect(500);
    assert_eq!(status["reason"], "InternalError");
    api.get(&format!("{PODS}/p")).await.expect(200);
}

/// [SE-90] What is longer when it is encoded than a URI may be is passed on as it was written.
#[tokio::test]
async fn queries_of_commas_reach_the_node_as_they_came() {
    let asked = RecordedRequests::default();
    let api = Api::with_nodes(node(Arc::clone(&asked))).await;
    running(&api, "p", &["app"]).await;
    let commas = ",".repeat(30_000);
    assert_eq!(api.get(&format!("{PODS}/p/log?stream={commas}")).await.code, 200);
    for path in ["exec?command", "attach?stdout=true&command", "portforward?ports"] {
        let status = api.send(Method::POST, &format!("{PODS}/p/{path}={commas}"), &[], "").await.expect(400);
        assert_eq!(status["message"], "Upgrade request required");
    }
    assert_eq!(*asked.lock().unwrap(), [format!("GET /containerLogs/default/p/app?stream={commas} ")]);
}

/// [SE-90] A time that cannot be read is refused here, in few words.
#[tokio::test]
async fn a_long_since_time_is_refused_in_few_words() {
    let asked = RecordedRequests::default();
    let api = Api::with_nodes(node(Arc::clone(&asked))).await;
    running(&api, "p", &["app"]).await;
    for time in ["yesterday".to_owned(), ":".repeat(30_000), "%C3%A4".repeat(10_000)] {
        let status = api.get(&format!("{PODS}/p/log?sinceTime={time}")).await.expect(400);
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("sinceTime: cannot read") && message.len() < 300, "{message}");
    }
    assert_eq!(api.get(&format!("{PODS}/p/log?sinceTime=2026-01-01T00:00:00Z")).await.code, 200);
    assert_eq!(*asked.lock().unwrap(), ["GET /containerLogs/default/p/app?sinceTime=2026-01-01T00:00:00Z "]);
}

/// [SE-90] What fits into a URI on its way to us reaches the node; what does not fit into one to the node is 414.
#[tokio::test]
async fn an_exec_as_long_as_a_uri_reaches_the_node_or_is_414() {
    const URI_MAX: usize = 65_534;
    let asked = RecordedRequests::default();
    let api = Api::with_nodes(node(Arc::clone(&asked))).await;
    running(&api, "p", &["app"]).await;
    let tls = Tls::serve(&api).await;
    let exec = |uri: String| {
        let tls = &tls;
        async move {
            let stream = connect(tls, Some(tls.admin()), b"http/1.1").await;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection.with_upgrades());
            let request = Request::post(uri)
                .header("host", "localhost")
                .header("connection", "Upgrade")
                .header("upgrade", "SPDY/3.1")
                .header("x-stream-protocol-version", "v4.channel.k8s.io")
                .body(Full::<Bytes>::default())
                .unwrap();
            let response = sender.send_request(request).await.unwrap();
            let code = response.status().as_u16();
            let text = if code == 101 { Bytes::new() } else { response.collect().await.unwrap().to_bytes() };
            (code, text)
        }
    };
    let filled = |start: String| start.clone() + &",".repeat(URI_MAX - start.len());
    let uri = filled(format!("{PODS}/p/exec?stdout=true&stderr=true&container=app&command="));
    assert_eq!(exec(uri).await.0, 101);
    assert!(asked.lock().unwrap()[0].len() > 65_000);
    // Nobody says which streams, and no container: the node has to be told more than we were.
    running(&api, "q", &["a-container-with-a-long-name"]).await;
    let (code, text) = exec(filled(format!("{PODS}/q/exec?command="))).await;
    let status: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((code, &status["reason"], &status["code"]), (414, &json!("URITooLong"), &json!(414)));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn exec_needs_a_command_a_node_a_living_pod_and_an_upgrade() {
    let api = Api::with_nodes(node(RecordedRequests::default())).await;
    running(&api, "p", &["app"]).await;
    let message = |path: &'static str| {
        let api = &api;
        async move {
            let status = api.send(Method::POST, &format!("{PODS}/{path}"), &[], "").await.expect(400);
            status["message"].as_str().unwrap().to_owned()
        }
    };
    assert_eq!(message("p/exec").await, "you must specify at least 1 command for execution");
    assert_eq!(message("p/exec?command=ls").await, "Upgrade request required");
    api.post(PODS, &pod("unscheduled")).await.expect(201);
    assert_eq!(message("unscheduled/exec?command=ls").await, "pod unscheduled does not have a host assigned");
    api.set_phase("p", "Succeeded").await;
    assert_eq!(
        message("p/exec?command=ls").await,
        "cannot exec into a container in a completed pod; current phase is Succeeded"
    );
}

/// The whole way: TLS client, upgrade, node, and bytes in both directions until both ends are closed.
#[tokio::test]
async fn exec_carries_bytes_both_ways_over_tls() {
    let asked = RecordedRequests::default();
    let api = Api::with_nodes(node(Arc::clone(&asked))).await;
    running(&api, "p", &["app"]).await;
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let uri = format!("{PODS}/p/exec?command=sh&command=-c&command=echo+a&stdin=true&stdout=true&stderr=true&tty=true");
    let request = Request::post(uri)
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"ping");
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "the node closed after us");
    assert_eq!(
        *asked.lock().unwrap(),
        ["POST /exec/default/p/app?command=sh&command=-c&command=echo+a&input=1&output=1&tty=1 SPDY/3.1"]
    );
}

/// Opens `path` as a WebSocket; `protocols` are offered.
async fn socket(
    tls: &Tls,
    path: &str,
    protocols: Option<&str>,
) -> (Option<String>, WebSocketStream<TokioIo<Upgraded>>) {
    let stream = connect(tls, Some(tls.admin()), b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::get(path)
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    if let Some(protocols) = protocols {
        request = request.header("sec-websocket-protocol", protocols);
    }
    let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 101, "{path}");
    assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let chosen = response.headers().get("sec-websocket-protocol").map(|name| name.to_str().unwrap().to_owned());
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    (chosen, WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
}

#[tokio::test]
async fn a_log_is_read_as_messages_by_whoever_asks_for_a_websocket() {
    let api = Api::with_nodes(node(RecordedRequests::default())).await;
    let tls = Tls::serve(&api).await;
    running(&api, "p", &["app"]).await;
    for (offered, chosen, message) in [
        (Some("binary.k8s.io"), Some("binary.k8s.io"), Message::binary("hello\n")),
        (Some("base64.binary.k8s.io"), Some("base64.binary.k8s.io"), Message::text("aGVsbG8K")),
        (None, None, Message::binary("hello\n")),
    ] {
        let (protocol, mut socket) = socket(&tls, &format!("{PODS}/p/log"), offered).await;
        assert_eq!(protocol.as_deref(), chosen);
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
        assert!(matches!(socket.next().await.unwrap().unwrap(), Message::Close(_)), "all was said");
    }
}

#[tokio::test]
async fn a_watch_is_read_as_one_message_an_event_by_whoever_asks_for_a_websocket() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let (_, mut socket) =
        socket(&tls, &format!("{maps}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dx"), None).await;
    for (data, kind) in [("a", "ADDED"), ("b", "MODIFIED")] {
        let map = json!({ "metadata": { "name": "x" }, "data": { "is": data } });
        match kind {
            "ADDED" => api.post(maps, &map).await.expect(201),
            _ => api.put(&format!("{maps}/x"), &map).await.expect(200),
        };
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("not a text") };
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&event["type"], &event["object"]["data"]["is"]), (&json!(kind), &json!(data)));
    }
    socket.close(None).await.unwrap();
}
