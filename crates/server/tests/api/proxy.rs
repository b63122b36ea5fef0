//! `proxy`: what is passed on to a backend, what is kept from it, and what becomes of its answer. The backend is a node here, which
//! is reached through a pipe; pods and services differ from it only in where they are.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use server::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::harness::{Api, PipeNode};
use crate::transport::{Tls, connect};

const NODE: &str = "/api/v1/nodes/n1/proxy";

/// What the backend was asked: method, path and query, headers, body.
type RecordedRequests = Arc<Mutex<Vec<(String, http::HeaderMap, String)>>>;

/// A backend with a page, a way to somewhere else, and an echo.
fn backend(asked: RecordedRequests) -> Arc<PipeNode<impl Fn(DuplexStream) + Send + Sync>> {
    Arc::new(PipeNode(move |stream: DuplexStream| {
        let asked = Arc::clone(&asked);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| answer(Arc::clone(&asked), request));
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = connection.with_upgrades().await;
        });
    }))
}

/// A page, or the first half of one that nobody ever finishes.
type PageBody = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(asked: RecordedRequests, mut request: Request<Incoming>) -> Result<Response<PageBody>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
    let upgrade = hyper::upgrade::on(&mut request);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    asked.lock().unwrap().push((line, headers.clone(), String::from_utf8_lossy(&body).into_owned()));
    let mut response = Response::builder();
    let text = match path.as_str() {
        "/page" => {
            response = response.header("content-type", "text/html; charset=utf-8");
            "<a href=\"/next\">on</a>"
        }
        "/away" => {
            response = response.status(302).header("location", "/next?a=b");
            ""
        }
        "/teapot" => {
            response = response.status(418).header("content-type", "application/json").header("connection", "x-hop");
            response = response.header("x-hop", "1").header("access-control-allow-origin", "*").header("x-own", "1");
            "{\"short\":1}"
        }
        "/half" | "/half-page" => {
            let media = if path == "/half" { "text/plain" } else { "text/html" };
            let half = stream::iter([Ok(Frame::data(Bytes::from("half")))]).chain(stream::pending());
            return Ok(response.header("content-type", media).body(StreamBody::new(half).boxed_unsync()).unwrap());
        }
        "/never" => std::future::pending().await,
        "/long" => {
            response = response.header("content-length", "1234");
            ""
        }
        "/echo" if headers.contains_key("upgrade") => {
            response = response.status(101).header("connection", "Upgrade").header("upgrade", "echo");
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                tokio::io::copy(&mut read, &mut write).await.unwrap();
                write.shutdown().await.unwrap();
            });
            ""
        }
        _ => "plain",
    };
    Ok(response.body(Full::new(Bytes::from(text)).boxed_unsync()).unwrap())
}

async fn with_backend(asked: &RecordedRequests) -> Api {
    let api = Api::with_nodes(backend(Arc::clone(asked))).await;
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    api.post("/api/v1/nodes", &node).await.expect(201);
    api
}

#[tokio::test]
async fn method_path_query_and_body_are_the_backends_and_credentials_are_ours() {
    let asked = RecordedRequests::default();
    let api = with_backend(&asked).await;
    let headers = [("x-own", "1"), ("impersonate-user", "admin"), ("impersonate-group", "system:masters")];
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        let answer = api.send(method.clone(), &format!("{NODE}/a%2Fb//c/?x=1&y"), &headers, "hello").await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "plain"), "{method}");
    }
    let answer = api.send(Method::HEAD, &format!("{NODE}/x"), &[], "").await;
    assert_eq!((answer.code, answer.text.as_str()), (200, ""));
    let asked = asked.lock().unwrap();
    let lines: Vec<&str> = asked.iter().map(|(line, ..)| line.as_str()).collect();
    let to = |method: &str| format!("{method} /a%2Fb//c/?x=1&y");
    assert_eq!(lines, [&to("POST"), &to("PUT"), &to("PATCH"), &to("DELETE"), &to("OPTIONS"), "HEAD /x"]);
    let (_, headers, body) = &asked[0];
    assert_eq!((body.as_str(), headers["x-own"].to_str().unwrap()), ("hello", "1"));
    assert_eq!(headers["x-forwarded-uri"], format!("{NODE}/a%2Fb//c/"));
    assert!(!headers.keys().any(|name| name.as_str().starts_with("impersonate")), "{headers:?}");
}

#[tokio::test]
async fn answers_come_back_as_they_are_with_links_that_lead_back_here() {
    let asked = RecordedRequests::default();
    let api = with_backend(&asked).await;
    let bare = api.get(&format!("{NODE}?a=b")).await;
    assert_eq!((bare.code, bare.headers["location"].to_str().unwrap()), (301, format!("{NODE}/?a=b").as_str()));
    let page = api.get(&format!("{NODE}/page")).await;
    assert_eq!((page.code, page.text), (200, format!("<a href=\"{NODE}/next\">on</a>")));
    let away = api.get(&format!("{NODE}/away")).await;
    assert_eq!((away.code, away.headers["location"].to_str().unwrap()), (302, format!("{NODE}/next?a=b").as_str()));
    // What the client would rather have from us is not ours to give.
    let wish = [("accept", "application/yaml")];
    let teapot = api.send(Method::GET, &format!("{NODE}/teapot"), &wish, "").await;
    assert_eq!((teapot.code, teapot.text.as_str()), (418, "{\"short\":1}"));
    assert_eq!(teapot.headers["x-own"], "1");
    assert!(!teapot.headers.contains_key("x-hop") && !teapot.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn unreachable_proxy_target_says_why() {
    let api = with_backend(&RecordedRequests::default()).await;
    let message = async |path: &str, code: u16| api.get(path).await.expect(code)["message"].clone();
    assert_eq!(message("/api/v1/nodes/none/proxy/", 404).await, "nodes \"none\" not found");
    assert_eq!(message("/api/v1/nodes/ftp:n1:1/proxy/", 400).await, "invalid node request \"ftp:n1:1\"");
    assert_eq!(message("/api/v1/namespaces/default/pods/none/proxy/", 404).await, "pods \"none\" not found");
    api.running_pod("p", |_| {}).await;
    assert_eq!(message("/api/v1/namespaces/default/pods/p/proxy/", 400).await, "address not allowed");
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" },
        "spec": { "ports": [{ "port": 80 }] } });
    api.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(message(&format!("{services}/s/proxy/"), 503).await, "no endpoints available for service \"s\"");
    assert_eq!(message(&format!("{services}/s:81/proxy/"), 503).await, "no service port 81 found for service \"s\"");
    // An address that is no pod's is one that only its writer believes in.
    let endpoints = json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "s" },
        "subsets": [{ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] }] });
    api.post("/api/v1/namespaces/default/endpoints", &endpoints).await.expect(201);
    assert_eq!(message(&format!("{services}/s:80/proxy/"), 503).await, "no endpoints available for service \"s:80\"");
    let gone = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n2" } });
    api.post("/api/v1/nodes", &gone).await.expect(201);
    let refused = message("/api/v1/nodes/n2/proxy/", 503).await;
    assert!(refused.as_str().unwrap().starts_with("error trying to reach service: cannot reach node"), "{refused}");
}

#[tokio::test]
async fn a_right_to_a_proxy_is_one_to_a_method_and_a_name() {
    let api = with_backend(&RecordedRequests::default()).await;
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "r" },
        "rules": [{ "apiGroups": [""], "resources": ["nodes/proxy"], "resourceNames": ["n1"], "verbs": ["get"] }] });
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "r" }, "subjects": [{ "kind": "User", "name": "bob" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r" } });
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    let bob = async |method: Method, path: &str| {
        let service = api.server.service_as(Identity::new("bob", &[]));
        api.send_as(service, method, path, &[], "").await.code
    };
    assert_eq!(bob(Method::GET, &format!("{NODE}/x")).await, 200);
    assert_eq!(bob(Method::GET, "/api/v1/nodes/n1:/proxy/x").await, 403, "a right names the object as the path does");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        assert_eq!(bob(method.clone(), &format!("{NODE}/x")).await, 403, "{method}");
    }
    assert_eq!(bob(Method::GET, "/api/v1/nodes/n2/proxy/x").await, 403);
}

/// A stream of any protocol, over TLS and to its end. To open one to a node is to run something there.
#[tokio::test]
async fn upgraded_connections_go_through() {
    let asked = RecordedRequests::default();
    let api = with_backend(&asked).await;
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get(format!("{NODE}/echo?a=b"))
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "echo")
        .header("sec-websocket-key", "k")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["upgrade"].to_str().unwrap()), (101, "echo"));
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"ping");
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "the backend closed after us");
    let asked = asked.lock().unwrap();
    let (line, headers, _) = &asked[0];
    assert_eq!((line.as_str(), headers["sec-websocket-key"].to_str().unwrap()), ("GET /echo?a=b", "k"));
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1");
}

type Sender2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(tls: &Tls) -> Sender2 {
    let stream = TokioIo::new(connect(tls, Some(tls.admin()), b"h2").await);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Half an answer is no answer: whoever waits for the rest when the server stops is told that it does not come, and nobody holds
/// the server up.
#[tokio::test]
async fn proxied_response_cut_off_by_server_shutdown_ends_as_an_error() {
    let api = with_backend(&RecordedRequests::default()).await;
    let mut tls = Tls::serve(&api).await;
    let mut sender = http2(&tls).await;
    let base = format!("https://{}{NODE}", tls.address);
    let ask = |path: &str| Request::get(format!("{base}{path}")).body(Full::<Bytes>::default()).unwrap();
    let mut halves = Vec::new();
    for path in ["/half", "/half-page"] {
        let mut body = sender.send_request(ask(path)).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half", "{path}");
        halves.push((path, body));
    }
    let stream = connect(&tls, Some(tls.admin()), b"http/1.1").await;
    let (mut old, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let half = Request::get(format!("{NODE}/half")).header("host", "localhost").body(Full::<Bytes>::default());
    let mut body = old.send_request(half.unwrap()).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    halves.push(("HTTP/1", body));
    let unanswered = tokio::spawn(sender.send_request(ask("/never")));
    // One connection is one order: when this is answered, the other has been asked.
    assert_eq!(sender.send_request(ask("/x")).await.unwrap().status(), 200);
    tls.ask_to_stop();
    for (path, body) in halves {
        body.collect().await.expect_err(path);
    }
    let refused = unanswered.await.unwrap().unwrap();
    assert_eq!(refused.status(), 503);
    let status: Value = serde_json::from_slice(&refused.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(status["message"], "error trying to reach service: this server is stopping");
    drop((sender, old));
    tls.stopped().await;
}

/// HTTP/2 has words that HTTP/1 says otherwise; the length of what a HEAD does not send is the backend's to say.
#[tokio::test]
async fn backends_speak_an_older_protocol_than_clients() {
    let asked = RecordedRequests::default();
    let api = with_backend(&asked).await;
    let tls = Tls::serve(&api).await;
    let mut sender = http2(&tls).await;
    let base = format!("https://{}{NODE}", tls.address);
    let crumbs = Request::get(format!("{base}/x")).header("cookie", "a=1").header("cookie", "b=2; c=3");
    let answer = sender.send_request(crumbs.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "plain");
    let head = Request::head(format!("{base}/long")).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(sender.send_request(head).await.unwrap().headers()["content-length"], "1234");
    let stream = connect(&tls, Some(tls.admin()), b"http/1.1").await;
    let (mut old, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let head = Request::head(format!("{NODE}/long")).header("host", "localhost").body(Full::<Bytes>::default());
    assert_eq!(old.send_request(head.unwrap()).await.unwrap().headers()["content-length"], "1234");
    let asked = asked.lock().unwrap();
    let cookies: Vec<&str> = asked[0].1.get_all("cookie").iter().map(|line| line.to_str().unwrap()).collect();
    assert_eq!(cookies, ["a=1; b=2; c=3"]);
}

/// A browser cannot send a header with its WebSocket; its token travels among the protocols, and no further than this server.
#[tokio::test]
async fn a_browsers_token_is_known_and_kept_from_backends() {
    let asked = RecordedRequests::default();
    let api = with_backend(&asked).await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "b" }, "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" } });
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let made = api.post(&format!("{account}/token"), &request).await.expect(201);
    let token = URL_SAFE_NO_PAD.encode(made["status"]["token"].as_str().unwrap());
    let token = format!("base64url.bearer.authorization.k8s.io.{token}");
    let tls = Tls::serve(&api).await;
    let open = async |protocols: &str| {
        let stream = connect(&tls, None, b"http/1.1").await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = Request::get(format!("{NODE}/echo"))
            .header("host", "localhost")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-protocol", protocols)
            .body(Full::<Bytes>::default());
        sender.send_request(request.unwrap()).await.unwrap().status().as_u16()
    };
    assert_eq!(open(&format!("v1.a, {token}, v2.b")).await, 101);
    assert_eq!(asked.lock().unwrap()[0].1["sec-websocket-protocol"], "v1.a, v2.b");
    for wrong in [format!("{token}x, v1.a"), format!("{token}, {token}, v1.a"), token.clone()] {
        assert_eq!(open(&wrong).await, 401, "{wrong}");
    }
    // Without one the caller is nobody, who may do nothing.
    assert_eq!(open("v1.a").await, 403);
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// What a quota or a limit range says of a pod holds for one that is to be given more.
#[tokio::test]
async fn a_pod_is_resized_within_what_its_namespace_allows() {
    let api = Api::start().await;
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
        "spec": { "hard": { "requests.cpu": "1" } } });
    api.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    let range = json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "r" },
        "spec": { "limits": [{ "type": "Container", "max": { "memory": "1Gi" } }] } });
    api.post("/api/v1/namespaces/default/limitranges", &range).await.expect(201);
    let made = api
        .running_pod("p", |pod| {
            pod["spec"]["containers"][0]["resources"] =
                json!({ "requests": { "cpu": "500m", "memory": "64Mi" }, "limits": { "memory": "128Mi" } });
        })
        .await;
    let path = "/api/v1/namespaces/default/pods/p/resize";
    let asked = |cpu: &str, memory: &str| -> Value {
        let resources = json!({ "requests": { "cpu": cpu, "memory": "64Mi" }, "limits": { "memory": memory } });
        json!({ "spec": { "containers": [{ "name": "app", "resources": resources }] } })
    };
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let resize =
        async |cpu: &str, memory: &str| api.send(Method::PATCH, path, &strategic, asked(cpu, memory).to_string()).await;
    let new = resize("800m", "256Mi").await.expect(200);
    assert_eq!(new["spec"]["containers"][0]["resources"]["requests"]["cpu"], "800m");
    assert_eq!(new["metadata"]["generation"].as_i64(), made["metadata"]["generation"].as_i64().map(|g| g + 1));
    assert_eq!(api.get(path).await.expect(200)["metadata"]["uid"], made["metadata"]["uid"]);
    let text = resize("2", "256Mi").await.expect(403)["message"].clone();
    assert!(text.as_str().unwrap().contains("exceeded quota: q, requested: requests.cpu=1200m"), "{text}");
    let text = resize("800m", "2Gi").await.expect(403)["message"].clone();
    assert!(text.as_str().unwrap().contains("maximum memory usage per Container is 1Gi"), "{text}");
    // Only here: the pod itself does not take it.
    let changed =
        api.send(Method::PATCH, "/api/v1/namespaces/default/pods/p", &strategic, asked("700m", "256Mi").to_string());
    assert_eq!(changed.await.code, 422);
}
