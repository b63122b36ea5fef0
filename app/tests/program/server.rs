//! `adieu server` as it ships: a process of its own, spoken to over HTTPS, killed and started again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server that ends with the test, or when it is dropped.
pub(crate) struct Server {
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
    command.args(["server", "--api", "127.0.0.1:0", "--data-dir"]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a server and waits until it says that it is ready.
pub(crate) fn start(dir: &Path) -> Server {
    start_with(&mut command(dir))
}

pub(crate) fn start_with(command: &mut Command) -> Server {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("adieu server is ready: https://127.0.0.1:"), "{line:?}");
    Server { child }
}

pub(crate) async fn client(dir: &Path) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(dir.join("admin.kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// The answer's code and body.
pub(crate) async fn send(client: &kube::Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = client.send(request.body(Body::from(body.to_string().into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

/// The token that the server puts into a secret, as soon as it does.
async fn filled(client: &kube::Client, name: &str) -> String {
    use base64::Engine as _;
    let path = format!("{SECRETS}?watch=1&fieldSelector=metadata.name={name}&timeoutSeconds=60");
    let watch = client.send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let (mut body, mut said) = (watch.into_body(), Vec::new());
    loop {
        let frame = body.frame().await.expect("it is filled while somebody watches").unwrap();
        said.extend_from_slice(&frame.into_data().unwrap());
        let mut events =
            said.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        if let Some(token) = events.find_map(|event| event["object"]["data"]["token"].as_str().map(ToOwned::to_owned)) {
            let token = base64::engine::general_purpose::STANDARD.decode(token).unwrap();
            return String::from_utf8(token).unwrap();
        }
    }
}

async fn make(client: &kube::Client, name: &str, owner: Option<&Value>) -> Value {
    let owners: Vec<Value> = owner
        .map(|owner| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true })
        })
        .into_iter()
        .collect();
    let map = json!({ "metadata": { "name": name, "ownerReferences": owners } });
    let (code, made) = send(client, "POST", MAPS, map).await;
    assert_eq!(code, 201, "{made}");
    made
}

/// Follows the collection until the name is gone.
async fn until_gone(client: &kube::Client, name: &str) {
    let selector = format!("{MAPS}?fieldSelector=metadata.name%3D{name}");
    let (_, list) = send(client, "GET", &selector, Value::Null).await;
    if list["items"].as_array().unwrap().is_empty() {
        return;
    }
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let request = http::Request::get(format!("{selector}&watch=1&resourceVersion={from}")).body(Body::empty()).unwrap();
    let mut body = client.send(request).await.unwrap().into_body();
    let gone = async {
        let mut text = String::new();
        while !text.contains("\"DELETED\"") {
            let frame = body.frame().await.expect("the watch goes on").unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{name} is still there"));
}

#[tokio::test]
async fn a_killed_server_comes_back_with_everything_and_goes_on_collecting() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(dir.path());
    let mode = std::fs::metadata(dir.path().join("admin.kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let admin = client(dir.path()).await;
    let owner = make(&admin, "owner", None).await;
    let held = make(&admin, "held", Some(&owner)).await;
    let patch = json!([{ "op": "add", "path": "/metadata/finalizers", "value": ["x.io/y"] }]);
    let request = http::Request::patch(format!("{MAPS}/held")).header("content-type", "application/json-patch+json");
    admin.send(request.body(Body::from(patch.to_string().into_bytes())).unwrap()).await.unwrap();
    let (code, _) =
        send(&admin, "DELETE", &format!("{MAPS}/owner"), json!({ "propagationPolicy": "Foreground" })).await;
    assert_eq!(code, 200);

    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let mut server = start(dir.path());
    let admin = client(dir.path()).await;
    let (code, again) = send(&admin, "GET", &format!("{MAPS}/held"), Value::Null).await;
    assert_eq!((code, &again["metadata"]["uid"]), (200, &held["metadata"]["uid"]));
    let request = http::Request::patch(format!("{MAPS}/held")).header("content-type", "application/merge-patch+json");
    let patch = json!({ "metadata": { "finalizers": null } });
    admin.send(request.body(Body::from(patch.to_string().into_bytes())).unwrap()).await.unwrap();
    until_gone(&admin, "held").await;
    until_gone(&admin, "owner").await;

    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let since = Instant::now();
    let status = loop {
        match server.child.try_wait().unwrap() {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        assert!(since.elapsed() < PATIENCE, "TERM is heard");
    };
    assert!(status.success(), "{status}");
}

/// Makes secrets until there is no room for more, or no server to ask; tells the name of each that it is told it has made.
async fn fill(admin: kube::Client, prefix: String, told: mpsc::UnboundedSender<String>) {
    for at in 0.. {
        let name = format!("{prefix}-{at}");
        let body = json!({ "metadata": { "name": name } }).to_string().into_bytes();
        let request = http::Request::post(SECRETS).header("content-type", "application/json");
        let Ok(answer) = admin.send(request.body(Body::from(body)).unwrap()).await else { return };
        match answer.status().as_u16() {
            201 => drop(told.send(name)),
            403 => return,
            code => panic!("{code} for {name}"),
        }
    }
}

/// However often the server dies while many want in at once, there are never more than there is room for, and nobody is
/// missing who was told to be in.
#[tokio::test(flavor = "multi_thread")]
async fn quota_is_never_exceeded_across_server_crashes() {
    const ROOM: usize = 24;
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(dir.path());
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/secrets": ROOM.to_string() } } });
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let (code, answer) = send(&client(dir.path()).await, "POST", quotas, quota).await;
    assert_eq!(code, 201, "{answer}");
    let mut made = BTreeSet::new();
    for kill_at in [Some(5), Some(10), Some(15), None] {
        let admin = client(dir.path()).await;
        let (told, mut heard) = mpsc::unbounded_channel();
        for asker in 0..6 {
            let prefix = format!("s{}-{asker}", kill_at.unwrap_or_default());
            tokio::spawn(fill(admin.clone(), prefix, told.clone()));
        }
        drop(told);
        while let Some(name) = heard.recv().await {
            made.insert(name);
            if kill_at.is_some_and(|at| made.len() >= at) {
                let _ = server.child.kill();
            }
        }
        if kill_at.is_some() {
            // Unless it is dead already: there may have been no room before so many were told.
            let _ = server.child.kill();
            server.child.wait().unwrap();
            server = start(dir.path());
        }
    }
    let admin = client(dir.path()).await;
    let (_, list) = send(&admin, "GET", SECRETS, Value::Null).await;
    let there: BTreeSet<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|secret| secret["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(there.len(), ROOM);
    assert!(made.is_subset(&there), "{:?}", made.difference(&there));
}

#[test]
fn a_folder_or_an_address_that_is_taken_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let _server = start(dir.path());
    let refused = command(dir.path()).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("another adieu runs on"), "{text}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
    command.args(["server", "--api", &taken.local_addr().unwrap().to_string(), "--data-dir"]).arg(other.path());
    let refused = command.output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("is another API server there?"), "{text}");
}

#[test]
fn a_folder_of_a_node_is_left_to_its_node() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), r#"{"podCidr":"10.86.0.0/16","nodeName":"n"}"#).unwrap();
    let refused = command(dir.path()).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("belongs to a node"), "{text}");
}

/// What OpenSSL makes of the server when it speaks nothing but one version: the version agreed on, or why there is none.
const ONE_VERSION: &str = r#"
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
# Debian's own policy would keep the client from asking at all.
context.set_ciphers("ALL:@SECLEVEL=0")
context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, sys.argv[2])
host, port = sys.argv[1].removeprefix("https://").rsplit(":", 1)
try:
    print(context.wrap_socket(socket.create_connection((host, int(port)))).version())
except ssl.SSLError as error:
    print(error.reason)
"#;

#[test]
fn tls_before_1_2_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _server = start(dir.path());
    let kubeconfig = kube::config::Kubeconfig::read_from(dir.path().join("admin.kubeconfig")).unwrap();
    let address = kubeconfig.clusters[0].cluster.clone().unwrap().server.unwrap();
    let heard = |version: &str| {
        let mut python = Command::new("/usr/bin/python3");
        let output = python.args(["-W", "ignore", "-c", ONE_VERSION, &address, version]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(heard("TLSv1_3"), "TLSv1.3");
    assert_eq!(heard("TLSv1_2"), "TLSv1.2");
    for old in ["TLSv1_1", "TLSv1"] {
        // An alert is the server's own word; what the client will not ask has other names.
        assert!(heard(old).contains("_ALERT_"), "{old}: {}", heard(old));
    }
}

#[tokio::test]
async fn a_server_that_says_everything_says_no_secret() {
    use base64::Engine as _;
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let out = std::fs::File::create(&log).unwrap();
    let mut server = start_with(command(dir.path()).arg("-vv").stderr(out));
    let admin = client(dir.path()).await;
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let mut secrets = vec!["s3cr3t-made".to_owned(), "s3cr3t-patched".to_owned(), "s3cr3t-refused".to_owned()];
    let made = json!({ "metadata": { "name": "s" }, "stringData": { "a": secrets[0] } });
    assert_eq!(send(&admin, "POST", SECRETS, made).await.0, 201);
    let changed = json!({ "metadata": { "name": "s" }, "data": { "a": encoded(&secrets[1]) } });
    assert_eq!(send(&admin, "PUT", &format!("{SECRETS}/s"), changed).await.0, 200);
    let refused = json!({ "metadata": { "name": "bad name" }, "data": { "a": encoded(&secrets[2]) } });
    assert_eq!(send(&admin, "POST", SECRETS, refused).await.0, 422);
    let broken = json!({ "metadata": { "name": "x" }, "data": { "a": secrets[2] } });
    assert_eq!(send(&admin, "POST", SECRETS, broken).await.0, 400);
    let nonsense = json!({ "metadata": { "name": "x" }, "data": secrets[2] });
    assert_eq!(send(&admin, "POST", SECRETS, nonsense).await.0, 400);

    let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, given) = send(&admin, "POST", path, asked).await;
    assert_eq!(code, 201, "{given}");
    let token = given["status"]["token"].as_str().unwrap().to_owned();
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let (code, answer) = send(&admin, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!((code, &answer["status"]["authenticated"]), (201, &json!(true)));
    let account = json!({ "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "t", "annotations": { "kubernetes.io/service-account.name": "default" } } });
    let (code, made) = send(&admin, "POST", SECRETS, account).await;
    assert_eq!(code, 201, "{made}");
    let filled = filled(&admin, "t").await;
    // Their bearers are let in, or refused for a letter too many; neither way is a reason to say the token.
    let kubeconfig = kube::config::Kubeconfig::read_from(dir.path().join("admin.kubeconfig")).unwrap();
    for (token, expected) in [(token.clone(), 403), (format!("{token}x"), 401)] {
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &Default::default()).await.unwrap();
        config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
        let bearer = kube::Client::try_from(config).unwrap();
        assert_eq!(send(&bearer, "GET", SECRETS, Value::Null).await.0, expected);
    }
    secrets.push(token);
    secrets.push(filled);

    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("request refused") && said.contains("TRACE"), "it says nothing at all: {said}");
    for secret in secrets {
        assert!(!said.contains(&secret) && !said.contains(&encoded(&secret)), "{secret} is in the log");
        // Of a token its signature alone would be too much.
        let end = secret.rsplit('.').next().unwrap();
        assert!(!said.contains(end), "{end} is in the log");
    }
    for name in ["ca.key", "sa.key"] {
        let key = std::fs::read_to_string(dir.path().join("pki").join(name)).unwrap();
        let line = key.lines().nth(1).unwrap();
        assert!(!said.contains(line), "{name} is in the log");
    }
}
