//! The same API over real TLS connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use server::pki::{self, Pki};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{Api, PATIENCE, configmap};

/// A server behind TLS on a free port.
pub struct Tls {
    pub address: SocketAddr,
    pub pki: Pki,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
    _dir: TempDir,
}

impl Tls {
    pub async fn serve(api: &Api) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki::ensure(&dir.path().join("pki"), &["127.0.0.1".to_owned()]).unwrap();
        api.server.sign_certificates_by(&pki);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (server, tls) = (api.server.clone(), pki.server_config().unwrap());
        let serving = tokio::spawn(async move { server.serve(listener, tls, async { drop(stopped.await) }).await });
        Self { address, pki, stop: Some(stop), serving, _dir: dir }
    }

    /// Asks the server to stop, and does not wait for it.
    pub fn ask_to_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until the server has stopped.
    pub async fn stopped(self) {
        self.serving.await.unwrap().unwrap();
    }

    pub fn admin(&self) -> (String, String) {
        let (certificate, key) = self.pki.admin_pem();
        (certificate.to_owned(), key.to_owned())
    }
}

/// A TLS connection with the given client certificate, speaking `protocol`.
pub async fn connect(tls: &Tls, client: Option<(String, String)>, protocol: &[u8]) -> TlsStream<TcpStream> {
    try_connect(tls, client, protocol).await.unwrap()
}

async fn try_connect(
    tls: &Tls,
    client: Option<(String, String)>,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls.pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(tls.address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("kubernetes.default.svc").unwrap(), stream).await
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "localhost").body(Full::default()).unwrap()
}

async fn json(response: http::Response<Incoming>) -> (u16, Value) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes))))
}

async fn http1(tls: &Tls, client: Option<(String, String)>, path: &str) -> (u16, Value) {
    let stream = connect(tls, client, b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    json(sender.send_request(get(path)).await.unwrap()).await
}

#[tokio::test]
async fn the_certificate_says_who_is_asking() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(http1(&tls, Some(tls.admin()), pods).await.0, 200);
    assert_eq!(http1(&tls, None, "/readyz").await, (200, Value::from("ok")));
    let (code, status) = http1(&tls, None, pods).await;
    assert_eq!(code, 403);
    assert!(status["message"].as_str().unwrap().contains("User \"system:anonymous\""), "{status}");
    let node = tls.pki.client_certificate("system:node:n1", Some("system:nodes")).unwrap();
    let own = format!("{pods}?fieldSelector=spec.nodeName%3Dn1");
    assert_eq!(http1(&tls, Some(node.clone()), &own).await.0, 200);
    let (code, status) = http1(&tls, Some(node), "/metrics").await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (403, "forbidden: User \"system:node:n1\" cannot get path \"/metrics\"")
    );
}

#[tokio::test]
async fn a_certificate_of_another_authority_does_not_get_in() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let other = tempfile::tempdir().unwrap();
    let other = pki::ensure(other.path(), &[]).unwrap();
    let (certificate, key) = other.admin_pem();
    let forged = Some((certificate.to_owned(), key.to_owned()));
    let refused = match try_connect(&tls, forged, b"http/1.1").await {
        Err(_) => true,
        // TLS 1.3 clients learn of the refusal with the first read.
        Ok(stream) => {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(get("/api/v1/pods")).await.is_err()
        }
    };
    assert!(refused);
}

/// HTTP/2: many requests and a watch share a connection; events arrive while it stays open.
#[tokio::test]
async fn events_are_sent_at_once_over_http2_and_end_with_the_server() {
    let api = Api::start().await;
    let mut tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let base = format!("https://{}", tls.address);
    let maps = "/api/v1/namespaces/default/configmaps";
    let from = api.store.revision().0;
    let watch = Request::get(format!("{base}{maps}?watch=1&resourceVersion={from}")).body(Full::<Bytes>::default());
    let response = tokio::time::timeout(PATIENCE, sender.send_request(watch.unwrap()))
        .await
        .expect("the answer begins before the first event")
        .unwrap();
    let mut body = response.into_body();
    for name in ["x", "y"] {
        let create = Request::post(format!("{base}{maps}")).body(Full::new(Bytes::from(configmap(name).to_string())));
        assert_eq!(json(sender.send_request(create.unwrap()).await.unwrap()).await.0, 201);
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
        let event: Value = serde_json::from_slice(&frame.into_data().unwrap()).unwrap();
        assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some(name)));
    }
    tls.ask_to_stop();
    // A clean end: no more data, and no error.
    let rest = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap();
    assert_eq!(rest.to_bytes(), "");
    (&mut tls.serving).await.unwrap().unwrap();
    connection.await.unwrap().expect("an idle connection is ended, not waited for until it is cut");
    // Whoever has the port by now does not have its key.
    assert!(try_connect(&tls, None, b"h2").await.is_err());
}

/// Who forgets the `s` of https is told so in the words that people search for.
#[tokio::test]
async fn plain_http_is_told_to_use_tls() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    for (said, heard) in [
        ("GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n", true),
        ("POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", true),
        ("EHLO localhost\r\n", false),
    ] {
        let mut stream = TcpStream::connect(tls.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        // The rest of a request may come later; the answer does not wait for it.
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await.unwrap();
        let expected = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        assert_eq!((read.is_ok() && answer == expected, answer.is_empty()), (heard, !heard), "{said}: {answer}");
    }
    assert_eq!(http1(&tls, None, "/readyz").await.0, 200);
}

#[tokio::test]
async fn answers_come_as_yaml_or_packed_for_those_who_ask() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    api.post(maps, &configmap("small")).await.expect(201);
    let yaml = api.send(http::Method::GET, &format!("{maps}/small"), &[("accept", "application/yaml")], "").await;
    assert_eq!((yaml.code, yaml.headers["content-type"].to_str().unwrap()), (200, "application/yaml"));
    assert!(yaml.text.contains("kind: ConfigMap\n") && yaml.text.contains("name: small\n"), "{}", yaml.text);
    let both = [("accept", "application/json, application/yaml;q=0.5")];
    assert_eq!(api.send(http::Method::GET, &format!("{maps}/small"), &both, "").await.json()["kind"], "ConfigMap");
    let watch = api.send(http::Method::GET, &format!("{maps}?watch=1"), &[("accept", "application/yaml")], "").await;
    assert_eq!(watch.code, 406);

    let mut big = configmap("big");
    big["data"]["text"] = serde_json::json!("all the same ".repeat(20_000));
    api.post(maps, &big).await.expect(201);
    let request = Request::get(maps).header("accept-encoding", "gzip, deflate").body(Full::new(Bytes::new())).unwrap();
    let response = tower::ServiceExt::oneshot(api.service(), request).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert!(bytes.len() < 64 * 1024, "{}", bytes.len());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["items"][0]["data"]["text"], big["data"]["text"]);
    let small = api.send(http::Method::GET, &format!("{maps}/small"), &[("accept-encoding", "gzip")], "").await;
    assert!(small.headers.get("content-encoding").is_none());
}

#[tokio::test]
async fn a_client_may_say_how_long_it_waits() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(api.get(&format!("{maps}?timeout=10s")).await.code, 200);
    assert_eq!(api.get(&format!("{maps}?timeout=soon")).await.code, 400);
    assert_eq!(api.get("/version/?timeout=1s").await.code, 200);
    let refused = api.get("/version?timeout=soon").await.expect(400);
    assert_eq!(refused["message"], "invalid timeout specified in the request URL: \"soon\"");
    // A body that never ends is not waited for longer than was said.
    let endless =
        http_body_util::StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let request = Request::post(format!("{maps}?timeout=50ms")).body(endless).unwrap();
    let response = tower::ServiceExt::oneshot(api.service(), request).await.unwrap();
    assert_eq!(response.status(), 504);
}

/// A line for everyone who came, with who it was, as whom, and what was answered; bodies are nobody's business.
#[tokio::test]
async fn audit_log_names_user_impersonation_and_answer() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    api.server.audit_to(server::AuditLog::open(&path, server::AuditPolicy::default()).unwrap());
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let secret = serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
        "stringData": { "key": "very secret" } });
    let request = Request::post("/api/v1/namespaces/default/secrets")
        .header("host", "localhost")
        .header("user-agent", "tester/1.0")
        .body(Full::new(Bytes::from(secret.to_string())))
        .unwrap();
    let made = sender.send_request(request).await.unwrap();
    let id = made.headers()["audit-id"].to_str().unwrap().to_owned();
    assert_eq!(json(made).await.0, 201);
    let as_bob = Request::get("/api/v1/namespaces/default/secrets/s?pretty=true").header("impersonate-user", "bob");
    let as_bob = as_bob.header("host", "localhost").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(json(sender.send_request(as_bob).await.unwrap()).await.0, 403);
    // What our own parts do is not written down, and this is not, either.
    api.get("/api/v1/namespaces/default/secrets/s").await.expect(200);
    assert_eq!(http1(&tls, None, "/readyz").await.0, 200);
    let written = async {
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok());
            let whole: Vec<Value> = lines.collect();
            if whole.iter().any(|event| event["requestURI"] == "/readyz") {
                assert!(!text.contains("very secret"), "{text}");
                return whole;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let events = tokio::time::timeout(Duration::from_secs(60), written).await.expect("it is written down soon");
    assert_eq!(events.len(), 3, "{events:?}");
    let (made, refused, healthy) = (&events[0], &events[1], &events[2]);
    assert_eq!((made["auditID"].as_str(), made["verb"].as_str()), (Some(id.as_str()), Some("create")));
    assert_eq!(made["responseStatus"]["code"], 201);
    assert_eq!(made["user"]["username"], "kubernetes-admin");
    let about = serde_json::json!({ "resource": "secrets", "namespace": "default", "apiVersion": "v1" });
    assert_eq!((&made["objectRef"], made["userAgent"].as_str()), (&about, Some("tester/1.0")));
    assert_eq!((&made["sourceIPs"][0], &made["stage"]), (&Value::from("127.0.0.1"), &Value::from("ResponseComplete")));
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(
        (&refused["impersonatedUser"]["username"], &refused["verb"]),
        (&Value::from("bob"), &Value::from("get"))
    );
    assert_eq!(refused["requestURI"], "/api/v1/namespaces/default/secrets/s?pretty=true");
    assert_eq!(healthy["user"]["username"], "system:anonymous");
    let page = api.get("/metrics").await.text;
    assert!(page.contains("apiserver_audit_event_total 3"), "{page}");
}

/// By the first rule of the policy: bodies, none of a Secret that no rule names, nothing of what is not wanted, and no body that is too
/// long.
#[tokio::test]
async fn audit_policy_decides_what_is_written_down_of_a_request() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let policy = serde_json::json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitManagedFields": true, "rules": [
        { "level": "None", "nonResourceURLs": ["/version"] },
        { "level": "Request", "verbs": ["patch"] },
        { "level": "RequestResponse" },
    ] });
    api.server.audit_to(server::AuditLog::open(&path, server::AuditPolicy::read(&policy).unwrap()).unwrap());
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let of = |kind: &str, field: &str, text: &str| {
        serde_json::json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "s" }, field: { "key": text } })
            .to_string()
    };
    let all = "/api/v1/namespaces/default";
    let merge = "application/merge-patch+json";
    let requests = [
        ("POST", format!("{all}/secrets"), "", of("Secret", "stringData", "very secret"), 201),
        ("POST", format!("{all}/configmaps"), "application/json", of("ConfigMap", "data", "plain"), 201),
        ("PATCH", format!("{all}/configmaps/s"), merge, r#"{"data":{"key":"other"}}"#.to_owned(), 200),
        ("PATCH", format!("{all}/configmaps/s"), merge, of("ConfigMap", "data", &"x".repeat(200 << 10)), 200),
        ("GET", format!("{all}/configmaps?fieldSelector=metadata.name=s"), "", String::new(), 200),
        ("GET", format!("{all}/secrets"), "", String::new(), 200),
        ("GET", "/version".to_owned(), "", String::new(), 200),
        ("GET", "/readyz".to_owned(), "", String::new(), 200),
    ];
    for (method, uri, media, body, code) in requests {
        let request = Request::builder().method(method).uri(&uri).header("host", "localhost");
        let request = if media.is_empty() { request } else { request.header("content-type", media) };
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        assert_eq!(answer.status(), code, "{method} {uri}");
        answer.into_body().collect().await.unwrap();
    }
    let written = async {
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok());
            let whole: Vec<Value> = lines.collect();
            if whole.iter().any(|event| event["requestURI"] == "/readyz") {
                assert!(!text.contains("very secret") && !text.contains("managedFields"), "{text}");
                return whole;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let events = tokio::time::timeout(Duration::from_secs(60), written).await.expect("it is written down soon");
    let told = |event: &Value| {
        let has = |field: &str| !event[field].is_null();
        let level = event["level"].as_str().unwrap_or_default().to_owned();
        (level, has("requestObject"), has("responseObject"), event["annotations"]["audit.k8s.io/truncated"] == "true")
    };
    let told: Vec<_> = events.iter().map(told).collect();
    let as_told = |level: &str, sent, answered, is_cut| (level.to_owned(), sent, answered, is_cut);
    let expected = [
        as_told("Metadata", false, false, false),
        as_told("RequestResponse", true, true, false),
        as_told("Request", true, false, false),
        as_told("Request", false, false, true),
        as_told("RequestResponse", false, false, true),
        as_told("Metadata", false, false, false),
        as_told("RequestResponse", false, false, false),
    ];
    assert_eq!(told, expected);
    assert_eq!(events[1]["requestObject"]["data"]["key"], "plain");
    assert_eq!(events[1]["responseObject"]["metadata"]["namespace"], "default");
    assert_eq!(events[2]["requestObject"]["data"]["key"], "other");
}

/// Health checkers ask by HEAD, and over HTTP/2 a body would break their stream.
#[tokio::test]
async fn a_head_has_no_body_in_http2_either() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for path in ["/healthz", "/version", "/metrics"] {
        let uri = format!("https://{}{path}", tls.address);
        let request = Request::head(&uri).body(Full::<Bytes>::default()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty(), "{path}");
    }
}
