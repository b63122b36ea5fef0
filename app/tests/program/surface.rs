//! Everything that the shipped server announces in its own OpenAPI, asked by chance over HTTPS: nothing breaks it.
//!
//! Chance is the same every time, and another with `SEED`; `ASK_SECONDS` says for how long it is asked.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

#[path = "../../../crates/server/tests/api/surface/chance.rs"]
mod chance;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

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

fn start(dir: &Path) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adieu"));
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
async fn nothing_that_can_be_asked_over_https_breaks_the_program() {
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
    assert!(server.0.try_wait().unwrap().is_none(), "it still runs");
    assert_eq!(read(&client, "/version").await["major"], "1");
    let mut log = String::new();
    std::fs::File::open(dir.path().join("stderr")).unwrap().read_to_string(&mut log).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
