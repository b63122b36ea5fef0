//! Everything that the shipped server announces in its own OpenAPI, asked by chance over HTTPS: nothing breaks it.
//!
//! Chance is the same every time, and another with `SEED`; `ASK_SECONDS` says for how long it is asked. What chance would find
//! too rarely is asked for one by one: sizes around every limit, depths, every verb of every subresource, odd streams.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

#[path = "../../../crates/server/tests/api/surface/chance.rs"]
mod chance;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube::client::{Body, ConfigExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use chance::{ACCEPTS, Dice, Operation, complaint};

/// Who ask at the same time.
const ASKERS: u64 = 3;
/// What each of them asks at least, however slow the machine is: some of it can be done.
const AT_LEAST: usize = 100;
/// How long an answer may take on a busy machine; the server itself gives up after 60 seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program as it ships, as for every test of the whole: what a panic does is another thing in another build.
fn program() -> PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bin/adieu");
    let program = std::env::var_os("ADIEU").map_or(shipped, PathBuf::from);
    assert!(program.exists(), "{} is missing; run scripts/build", program.display());
    program
}

fn start(dir: &Path) -> Server {
    let mut command = Command::new(program());
    command.args(["server", "--api", "127.0.0.1:0", "--data-dir"]).arg(dir).stdin(Stdio::null());
    let log = std::fs::File::create(dir.join("stderr")).unwrap();
    let mut server = Server(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("adieu server is ready"), "{line:?}");
    server
}

async fn client(dir: &Path) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(dir.join("admin.kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn read(client: &kube::Client, path: &str) -> Value {
    let response = client.send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Asks for one thing. Answers whether it was done, or what was wrong with the answer.
async fn ask(client: &kube::Client, dice: &Mutex<Dice>, operations: &[Operation]) -> Result<bool, String> {
    let (operation, (path, watches), (media, body), accept) = {
        let mut dice = dice.lock().unwrap();
        dice.tame = !dice.tame;
        let operation = dice.pick(operations);
        (operation, dice.address(operation), dice.body(operation), *dice.pick(&ACCEPTS))
    };
    let told = format!("{} {path} {media:?} {}", operation.method, String::from_utf8_lossy(&body));
    let mut request = http::Request::builder().method(operation.method.clone()).uri(&path).header("accept", accept);
    if let Some(media) = &media {
        request = request.header("content-type", media);
    }
    let request = request.body(Body::from(body)).map_err(|error| format!("{error}: {told}"))?;
    let answer = tokio::time::timeout(PATIENCE, client.send(request)).await;
    let response = answer.map_err(|_| format!("no answer: {told}"))?.map_err(|error| format!("{error:?}: {told}"))?;
    let (parts, body) = response.into_parts();
    let (code, done) = (parts.status.as_u16(), parts.status.is_success());
    let media = parts.headers.get("content-type").and_then(|media| media.to_str().ok()).unwrap_or("nothing");
    // A watch that began goes on; how it begins is all there is to see.
    let (accept, body) = if watches && done {
        ("watch", b"{}".to_vec())
    } else {
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.map_err(|_| format!("no end: {told}"))?;
        (if watches { "watch" } else { accept }, body.map_err(|error| format!("{error}: {told}"))?.to_bytes().to_vec())
    };
    complaint(operation, accept, code, media, &body).map_or(Ok(done), |problem| Err(format!("{told}\n    {problem}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn random_https_requests_never_break_the_server_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(dir.path());
    let client = client(dir.path()).await;
    let mut operations = Vec::new();
    for entry in read(&client, "/openapi/v3").await["paths"].as_object().unwrap().values() {
        operations.extend(chance::operations(read(&client, entry["serverRelativeURL"].as_str().unwrap()).await));
    }
    assert!(operations.len() > 300, "{}", operations.len());
    let seconds = std::env::var("ASK_SECONDS").ok();
    let seconds = seconds.map_or(15, |seconds| seconds.parse().expect("ASK_SECONDS is a number"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let operations = Arc::new(operations);
    let dice = Arc::new(Mutex::new(Dice::seeded()));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..ASKERS {
        let (client, operations, dice) = (client.clone(), operations.clone(), dice.clone());
        asking.spawn(async move {
            let (mut asked, mut done, mut problems) = (0_usize, 0_usize, Vec::new());
            while (Instant::now() < until || asked < AT_LEAST) && problems.len() < 5 {
                asked += 1;
                match ask(&client, &dice, &operations).await {
                    Ok(success) => done += usize::from(success),
                    Err(problem) => problems.push(problem),
                }
            }
            (asked, done, problems)
        });
    }
    let (mut asked, mut done, mut problems) = (0, 0, Vec::new());
    for (more, successes, found) in asking.join_all().await {
        asked += more;
        done += successes;
        problems.extend(found);
    }
    println!("{done} of {asked} done");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(done > 0, "chance asked for nothing that could be done: {asked}");
    is_whole(&mut server, &client, dir.path()).await;
}

/// The process lives, answers, and nothing in it has panicked.
async fn is_whole(server: &mut Server, client: &kube::Client, dir: &Path) {
    assert!(server.0.try_wait().unwrap().is_none(), "it still runs");
    assert_eq!(read(client, "/version").await["major"], "1");
    let page = client.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    assert!(page.contains("# TYPE adieu_panics_total counter"));
    let panics: Vec<&str> = page.lines().filter(|line| line.starts_with("adieu_panics_total")).collect();
    let mut log = String::new();
    std::fs::File::open(dir.join("stderr")).unwrap().read_to_string(&mut log).unwrap();
    assert!(panics.is_empty() && !log.contains("panicked"), "{panics:?} {log}");
}

/// Somebody who says over TLS what no library lets them say.
struct Rude {
    connector: TlsConnector,
    address: String,
}

/// Asks for an upgrade, as streams need it.
const UPGRADES: [&str; 3] = [
    "",
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
];

impl Rude {
    async fn new(dir: &Path) -> Self {
        let kubeconfig = kube::config::Kubeconfig::read_from(dir.join("admin.kubeconfig")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        let mut tls = config.rustls_client_config().unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let address = config.cluster_url.authority().unwrap().to_string();
        Self { connector: TlsConnector::from(Arc::new(tls)), address }
    }

    /// Sends a request and checks that it is answered: with a code of HTTP, and never because something broke. Answers the code.
    async fn says(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> u16 {
        let shown = format!("{method} {:.100} of {} bytes, {} of body", path, path.len(), body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        let answered = tokio::time::timeout(PATIENCE, self.converse(&head, body)).await;
        let (code, text) = answered.unwrap_or_else(|_| panic!("no answer: {shown}"));
        let code = code.unwrap_or_else(|| panic!("no answer of HTTP but {text:?}: {shown}"));
        // There is no node: whoever asks for one in words that can be read is told so.
        let is_known = text.contains("cannot reach node");
        assert!(code < 500 || code == 504 || is_known, "{code} {text}: {shown}");
        code
    }

    async fn converse(&self, head: &str, body: &[u8]) -> (Option<u16>, String) {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let (mut read, mut write) = tokio::io::split(self.connector.connect(name, stream).await.unwrap());
        let saying = async {
            // Whoever is refused early is not listened to any more.
            if write.write_all(head.as_bytes()).await.is_ok() && write.write_all(body).await.is_ok() {
                let _ = write.flush().await;
            }
            std::future::pending::<()>().await;
        };
        let hearing = async {
            let mut heard = Vec::new();
            let mut buffer = [0; 16 * 1024];
            while !is_complete(&heard, head.starts_with("HEAD "))
                && let Ok(count @ 1..) = read.read(&mut buffer).await
            {
                heard.extend_from_slice(&buffer[..count]);
            }
            heard
        };
        let heard = tokio::select! {
            heard = hearing => heard,
            () = saying => Vec::new(),
        };
        let text = String::from_utf8_lossy(&heard).into_owned();
        let code = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        (code, text)
    }
}

/// Whether a whole answer is there: its head, and as much as that says; of one without a length, its head is enough.
fn is_complete(heard: &[u8], has_no_body: bool) -> bool {
    let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let (head, body) = (String::from_utf8_lossy(&heard[..end]).to_ascii_lowercase(), &heard[end + 4..]);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    has_no_body || length.is_none_or(|length: usize| body.len() >= length)
}

/// A pod on a node that is not there, so that whatever is asked of it goes as far as it can.
async fn place_pod(client: &kube::Client) {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "placed" },
        "spec": { "nodeName": "away", "containers": [{ "name": "app", "image": "busybox" }] } });
    let path = "/api/v1/namespaces/default/pods";
    let send = |method: &str, path: String, body: &Value| {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap())
    };
    let mut pod = send("POST", path.to_owned(), &pod).await.unwrap();
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    pod["status"] = json!({ "phase": "Running", "containerStatuses": [{
        "name": "app", "image": "busybox", "imageID": "", "ready": true, "restartCount": 0, "state": running }] });
    send("PUT", format!("{path}/placed/status"), &pod).await.unwrap();
}

/// [SE-90] Bodies, headers, URLs and queries around every limit, depths beyond what is taken, every verb of every subresource,
/// and odd words for streams are answers of HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_deep_or_malformed_input_never_breaks_the_server_program() {
    const POD: &str = "/api/v1/namespaces/default/pods/placed";
    const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(dir.path());
    let client = client(dir.path()).await;
    place_pod(&client).await;
    let rude = Rude::new(dir.path()).await;

    for length in [60_000, 65_534, 65_535, 65_536, 100_000, 1 << 20] {
        let code = rude.says("GET", &format!("/{}", "a".repeat(length - 1)), "", b"").await;
        assert_eq!(matches!(code, 414 | 431), length > 65_534, "{code} for a URL of {length}");
    }
    for length in [1 << 10, 16 << 10, 64 << 10, 300 << 10, 1 << 20] {
        let code = rude.says("GET", "/version", &format!("X-Long: {}\r\n", "a".repeat(length)), b"").await;
        assert!(matches!(code, 200 | 431), "{code} for a header of {length}");
    }
    for count in [90, 100, 101, 5_000] {
        let headers: String = (0..count).map(|number| format!("X-{number}: a\r\n")).collect();
        let code = rude.says("GET", "/version", &headers, b"").await;
        assert!(matches!(code, 200 | 431), "{code} for {count} headers");
    }
    const BODY_MAX: usize = 3 << 20;
    for length in [BODY_MAX - 1, BODY_MAX, BODY_MAX + 1, BODY_MAX + (1 << 20)] {
        for media in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"] {
            let code = rude.says("POST", CONFIG_MAPS, &format!("Content-Type: {media}\r\n"), &vec![b'['; length]).await;
            assert!(matches!(code, 400 | 413 | 415), "{code} for {length} of {media}");
        }
    }
    for depth in [63, 64, 127, 128, 129, 1_000, 100_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let object = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"data\":{deep}}}");
            for (method, path, media) in [
                ("POST", CONFIG_MAPS.to_owned(), "application/json"),
                ("POST", CONFIG_MAPS.to_owned(), "application/yaml"),
                ("PUT", format!("{POD}/status"), "application/json"),
                ("PATCH", POD.to_owned(), "application/merge-patch+json"),
                ("PATCH", POD.to_owned(), "application/strategic-merge-patch+json"),
                ("PATCH", POD.to_owned(), "application/json-patch+json"),
                ("PATCH", format!("{POD}?fieldManager=a"), "application/apply-patch+yaml"),
                ("DELETE", format!("{CONFIG_MAPS}/absent"), "application/json"),
            ] {
                let code = rude.says(method, &path, &format!("Content-Type: {media}\r\n"), object.as_bytes()).await;
                assert!(matches!(code, 200..=499), "{code} for {depth} levels of {media}");
            }
        }
    }

    let verbs = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];
    let subresources = [
        "status",
        "log",
        "exec",
        "attach",
        "portforward",
        "binding",
        "eviction",
        "ephemeralcontainers",
        "resize",
        "scale",
        "finalize",
        "token",
        "nonsense",
        "log/log",
        "%2e%2e",
    ];
    for method in verbs {
        for subresource in subresources {
            for body in ["", "{}"] {
                let code = rude.says(method, &format!("{POD}/{subresource}"), UPGRADES[0], body.as_bytes()).await;
                assert!(code >= 200, "{code} for {method} of {subresource}");
            }
        }
    }

    let of_logs = ["sinceTime", "tailLines", "limitBytes", "stream", "container"];
    let of_streams: [(&str, &[&str]); 4] = [
        ("log", &of_logs),
        ("exec", &["command", "container", "tty"]),
        ("attach", &["container", "stdin"]),
        ("portforward", &["ports"]),
    ];
    for (subresource, names) in of_streams {
        for name in names {
            for word in [",", "%", "%2C", "+", "%C3%A4", "=", "9"] {
                for bytes in [1, 30_000, 65_000] {
                    let value = word.repeat((bytes / word.len()).max(1));
                    for upgrade in UPGRADES.iter().take(if subresource == "log" { 1 } else { 3 }) {
                        let path = format!("{POD}/{subresource}?command=a&{name}={value}");
                        rude.says("GET", &path, upgrade, b"").await;
                    }
                }
            }
        }
    }
    is_whole(&mut server, &client, dir.path()).await;
}
