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
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server that ends with the test.
struct Server {
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
    command.args(["server", "--api", "127.0.0.1:0", "--data-dir"]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a server and waits until it says that it is ready.
fn start(dir: &Path) -> Server {
    let mut child = command(dir).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("adieu server is ready: https://127.0.0.1:"), "{line:?}");
    Server { child }
}

async fn client(dir: &Path) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(dir.join("admin.kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// The answer's code and body.
async fn send(client: &kube::Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = client.send(request.body(Body::from(body.to_string().into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
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
async fn no_crash_lets_anybody_past_a_quota() {
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
