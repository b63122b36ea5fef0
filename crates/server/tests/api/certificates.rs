//! Certificates that are asked for, approved and signed over the API: who gets one, and who may give it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use server::Identity;
use server::pki::{NodeCertificate, NodeRequest};

use crate::harness::{Api, PATIENCE};
use crate::transport::{Tls, connect};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

fn wanted(name: &str, request: &str, signer: &str, purpose: &str) -> Value {
    json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": { "request": STANDARD.encode(request), "signerName": signer, "usages": ["digital signature", purpose],
            "username": "kubernetes-admin", "groups": ["system:masters"] } })
}

fn approval(mut request: Value, kind: &str) -> Value {
    request["status"]["conditions"] = json!([{ "type": kind, "status": "True", "reason": "Test", "message": "" }]);
    request
}

/// Asks over TLS, as the certificate says.
async fn ask(tls: &Tls, client: &NodeCertificate, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let stream = connect(tls, Some((client.certificate.clone(), client.key.clone())), b"http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("content-type", "application/json").body(Full::new(body)).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn certificate(tls: &Tls, user: &str, group: Option<&str>) -> NodeCertificate {
    let (certificate, key) = tls.pki.client_certificate(user, group).unwrap();
    NodeCertificate { certificate, key }
}

/// The request once `done` says so.
async fn until(api: &Api, name: &str, done: impl Fn(&Value) -> bool) -> Value {
    let mut watch = api.watch(&format!("{CSRS}?watch=1&fieldSelector=metadata.name%3D{name}")).await;
    let found = async {
        loop {
            let event = watch.next().await.expect("the watch goes on");
            if done(&event["object"]) {
                return event["object"].clone();
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the request is worked on")
}

async fn issued(api: &Api, name: &str) -> String {
    let request = until(api, name, |request| request["status"]["certificate"].is_string()).await;
    let pem = STANDARD.decode(request["status"]["certificate"].as_str().unwrap()).unwrap();
    String::from_utf8(pem).unwrap()
}

/// Everything that is decided by itself was decided when a request that came later is.
async fn all_is_decided(api: &Api, tls: &Tls, node: &NodeCertificate) {
    let name = format!("later-{}", uuid());
    let request = NodeRequest::new(&node.node().unwrap().0, None).unwrap();
    let later = wanted(&name, &request.pem, NODE_CLIENT, "client auth");
    assert_eq!(ask(tls, node, Method::POST, CSRS, &later).await.0, 201);
    issued(api, &name).await;
}

fn uuid() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

async fn conditions(api: &Api, name: &str) -> Vec<String> {
    let request = api.get(&format!("{CSRS}/{name}")).await.expect(200);
    let all = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
}

/// [CL-62] A node that is let in renews its own certificate without anybody, and nobody else's.
#[tokio::test]
async fn node_gets_its_own_certificates_and_no_others_without_approval() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let node = certificate(&tls, "system:node:n1", Some("system:nodes"));
    let stored = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    assert_eq!(ask(&tls, &node, Method::POST, "/api/v1/nodes", &stored).await.0, 201);
    let own = NodeRequest::new("n1", None).unwrap();
    let asked = wanted("own", &own.pem, NODE_CLIENT, "client auth");
    let (code, made) = ask(&tls, &node, Method::POST, CSRS, &asked).await;
    assert_eq!((code, &made["spec"]["username"]), (201, &json!("system:node:n1")), "whoever asks is written in");
    assert!(!made["spec"]["groups"].to_string().contains("masters"), "{made}");
    let next = own.answered(issued(&api, "own").await).expect("of the key that asked");
    assert_eq!(next.node().unwrap().0, "n1");
    assert_eq!(ask(&tls, &next, Method::GET, "/api/v1/nodes/n1", &Value::Null).await.0, 200);
    let shown = api.get(&format!("{CSRS}/own")).await.expect(200);
    assert_eq!(shown["status"]["conditions"][0]["reason"], "AutoApproved");

    // Serving: what its Node object says that it is called, asked for from there.
    for (name, address) in [("served", "127.0.0.1"), ("stolen", "192.0.2.7")] {
        let request = NodeRequest::new("n1", Some(address.parse().unwrap())).unwrap();
        let asked = wanted(name, &request.pem, SERVING, "server auth");
        assert_eq!(ask(&tls, &node, Method::POST, CSRS, &asked).await.0, 201);
    }
    all_is_decided(&api, &tls, &node).await;
    assert_eq!(conditions(&api, "served").await, Vec::<String>::new(), "the node has no addresses yet");
    let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }] } });
    api.patch("/api/v1/nodes/n1/status", &status).await.expect(200);
    issued(&api, "served").await;

    // Another node's, and the same asked for by somebody who is no node.
    let other = NodeRequest::new("n2", None).unwrap();
    let other = wanted("other", &other.pem, NODE_CLIENT, "client auth");
    assert_eq!(ask(&tls, &node, Method::POST, CSRS, &other).await.0, 201);
    let mine = NodeRequest::new("n1", None).unwrap();
    api.post(CSRS, &wanted("mine", &mine.pem, NODE_CLIENT, "client auth")).await.expect(201);
    all_is_decided(&api, &tls, &node).await;
    for name in ["other", "mine", "stolen"] {
        assert_eq!(conditions(&api, name).await, Vec::<String>::new(), "{name}");
    }
    // The right to approve is not the node's.
    let (code, _) =
        ask(&tls, &node, Method::PUT, &format!("{CSRS}/other/approval"), &approval(other, "Approved")).await;
    assert_eq!(code, 403);
}

/// A person is let in after somebody approved, and who approves or signs needs the right to do that for the signer.
#[tokio::test]
async fn certificate_of_a_person_needs_somebody_who_may_approve_for_its_signer() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let request = NodeRequest::new("n9", None).unwrap();
    let asked = wanted("jane", &request.pem, CLIENT, "client auth");
    api.post(CSRS, &asked).await.expect(201);
    let rule = json!([{ "apiGroups": ["certificates.k8s.io"], "verbs": ["get", "list", "watch", "update", "patch"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
            "certificatesigningrequests/status"] }]);
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "writer" }, "rules": rule });
    api.post(&format!("{ROLES}/clusterroles"), &role).await.expect(201);
    let bind = async |name: &str, role: &str| {
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": name }, "subjects": [{ "kind": "User", "name": "carol" }],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role } });
        api.post(&format!("{ROLES}/clusterrolebindings"), &binding).await.expect(201);
    };
    bind("writes", "writer").await;
    let carol = || api.server.service_as(Identity::new("carol", &[]));
    let write = async |part: &str, body: &Value| {
        let headers = [("content-type", "application/json")];
        api.send_as(carol(), Method::PUT, &format!("{CSRS}/jane/{part}"), &headers, body.to_string()).await
    };
    let stored = api.get(&format!("{CSRS}/jane")).await.expect(200);
    assert!(stored["status"].as_object().is_none_or(serde_json::Map::is_empty), "{stored}");
    let refused = write("approval", &approval(stored.clone(), "Approved")).await;
    assert_eq!(refused.code, 403);
    assert!(refused.text.contains("not permitted to approve requests with signerName"), "{}", refused.text);
    let mut forged = stored.clone();
    forged["status"]["certificate"] = json!(STANDARD.encode(tls.admin().0));
    let refused = write("status", &forged).await;
    assert!(refused.code == 403 && refused.text.contains("not permitted to sign"), "{}", refused.text);

    bind("approves", "system:certificates.k8s.io:kube-apiserver-client-approver").await;
    let approved = write("approval", &approval(stored, "Approved")).await.expect(200);
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string(), "{approved}");
    let found = request.answered(issued(&api, "jane").await).unwrap();
    let (code, status) = ask(&tls, &found, Method::GET, "/api/v1/namespaces/default/pods", &Value::Null).await;
    assert!(code == 403 && status["message"].as_str().unwrap().contains("spec.nodeName=n9"), "{status}");

    // What was decided stays decided.
    let current = api.get(&format!("{CSRS}/jane")).await.expect(200);
    let mut undone = current.clone();
    undone["status"]["conditions"] = json!([]);
    assert_eq!(write("approval", &undone).await.code, 422);
    assert_eq!(write("approval", &approval(current.clone(), "Denied")).await.code, 422);
    let mut other = current;
    other["status"]["certificate"] = json!(STANDARD.encode(tls.admin().0));
    let admin = api.put(&format!("{CSRS}/jane/status"), &other).await;
    assert_eq!(admin.code, 422, "{}", admin.text);
    let table = api.send(Method::GET, CSRS, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")], "").await;
    let cells = table.expect(200)["rows"][0]["cells"].clone();
    assert_eq!([&cells[0], &cells[2], &cells[5]], ["jane", CLIENT, "Approved,Issued"]);
}

/// What nobody may have is refused, before it is stored or by the signer.
#[tokio::test]
async fn request_that_asks_for_too_much_is_refused_or_fails() {
    let api = Api::start().await;
    let _tls = Tls::serve(&api).await;
    let sound = NodeRequest::new("n1", None).unwrap();
    let mut unreadable = wanted("a", "not PEM", CLIENT, "client auth");
    let refused = api.post(CSRS, &unreadable).await;
    assert!(refused.code == 422 && refused.text.contains("spec.request"), "{}", refused.text);
    unreadable = wanted("a", &sound.pem, CLIENT, "client auth");
    for (field, value, word) in [
        ("signerName", json!("plain"), "fully qualified"),
        ("signerName", json!("kubernetes.io/legacy-unknown"), "legacy"),
        ("usages", json!(["sign everything"]), "usages[0]"),
        ("usages", json!([]), "usages"),
        ("expirationSeconds", json!(599), "600 seconds"),
    ] {
        let mut asked = unreadable.clone();
        asked["spec"][field] = value;
        let refused = api.post(CSRS, &asked).await;
        assert!(refused.code == 422 && refused.text.contains(word), "{field}: {}", refused.text);
    }
    // An approved request that its signer cannot sign fails, and is told why.
    api.post(CSRS, &wanted("serving", &sound.pem, SERVING, "server auth")).await.expect(201);
    let stored = api.get(&format!("{CSRS}/serving")).await.expect(200);
    api.put(&format!("{CSRS}/serving/approval"), &approval(stored, "Approved")).await.expect(200);
    let failed = |request: &Value| request["status"]["conditions"].to_string().contains("SignerValidationFailure");
    let request = until(&api, "serving", failed).await;
    assert!(request["status"]["conditions"].to_string().contains("subjectAltName is required"), "{request}");
    assert!(request["status"]["certificate"].is_null());
}

/// A connection ends with the certificate that it was opened by.
#[tokio::test]
async fn connection_ends_when_its_certificate_does() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let asked = NodeRequest::new("n1", None).unwrap();
    let mut request = wanted("short", &asked.pem, CLIENT, "client auth");
    request["spec"]["expirationSeconds"] = json!(600);
    api.post(CSRS, &request).await.expect(201);
    let stored = api.get(&format!("{CSRS}/short")).await.expect(200);
    api.put(&format!("{CSRS}/short/approval"), &approval(stored, "Approved")).await.expect(200);
    let short = asked.answered(issued(&api, "short").await).unwrap();
    let stream = connect(&tls, Some((short.certificate, short.key)), b"h2").await;
    let builder = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    let (mut sender, connection) = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
    let ended = tokio::spawn(connection);
    let uri = format!("https://{}/version", tls.address);
    let watch = Request::get(uri).body(Full::default()).unwrap();
    assert_eq!(sender.send_request(watch).await.unwrap().status(), 200);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    tokio::time::timeout(PATIENCE, ended).await.expect("the server ends the connection").unwrap().ok();
}
