//! Both ends of the traffic that tests send through Services, run inside pods.
//!
//! `traffic-actor serve PORT LATE_MS` is a naive HTTP server: at TERM it closes its listener, LATE_MS later, and what it has accepted is
//! answered to the end. What it accepts after TERM and answers is late. `traffic-actor load ADDRESS NEW KEPT SLOW` asks it again and
//! again: NEW clients with a connection for each request, KEPT with one for as many as it lasts, SLOW with one for each request that takes
//! 200 ms, until its standard input ends. Both tell what came of it in one line of JSON, at `/shared`; every failure is told at once.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a tool of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// How long a request may take: a stall is a loss.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long a slow request takes.
const SLOW_MS: u64 = 200;
/// How long an idle connection is kept after TERM.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", port, late] => serve(port.parse().unwrap(), Duration::from_millis(late.parse().unwrap())).await,
        ["load", address, new, kept, slow] => {
            let [new, kept, slow] = [new, kept, slow].map(|count| count.parse().unwrap());
            load(address, [(new, Kind::New), (kept, Kind::Kept), (slow, Kind::Slow)]).await;
        }
        _ => panic!("serve PORT LATE_MS | load ADDRESS NEW KEPT SLOW"),
    }
}

fn tell(file: &str, line: &serde_json::Value) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(format!("/shared/{file}")).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The wall clock, for people who compare what several processes tell.
fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// What a server has seen.
#[derive(Default)]
struct Seen {
    is_leaving: AtomicBool,
    served: AtomicU64,
    late: AtomicU64,
    open: AtomicU64,
}

async fn serve(port: u16, late: Duration) {
    let mut term = signal(SignalKind::terminate()).unwrap();
    let listener = TcpListener::bind(("0.0.0.0", port)).await.unwrap();
    let seen = Arc::new(Seen::default());
    let name = std::env::var("HOSTNAME").unwrap_or_default();
    loop {
        tokio::select! {
            biased;
            _ = term.recv() => break,
            accepted = listener.accept() => take(accepted.unwrap().0, &seen, false),
        }
    }
    seen.is_leaving.store(true, Ordering::Relaxed);
    tell("told-to-leave", &json!({ "pod": name, "at_ms": now_ms() }));
    if !late.is_zero() {
        let lingering = async {
            loop {
                take(listener.accept().await.unwrap().0, &seen, true);
            }
        };
        let _ = tokio::time::timeout(late, lingering).await;
    }
    drop(listener);
    while seen.open.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    tell(
        "served",
        &json!({ "pod": name, "served": count(&seen.served), "late": count(&seen.late), "at_ms": now_ms() }),
    );
}

fn take(stream: TcpStream, seen: &Arc<Seen>, is_late: bool) {
    let seen = Arc::clone(seen);
    seen.open.fetch_add(1, Ordering::Relaxed);
    tokio::spawn(async move {
        answer(stream, &seen, is_late).await;
        seen.open.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Answers requests on one connection until its client hangs up.
async fn answer(mut stream: TcpStream, seen: &Seen, is_late: bool) {
    let mut heard = Vec::new();
    loop {
        let mut part = [0; 1024];
        let read = stream.read(&mut part);
        // Whoever is idle when we leave is kept for a while: its next request may be on its way.
        let leaving = async {
            while !seen.is_leaving.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            tokio::time::sleep(PATIENCE).await;
        };
        let read = tokio::select! { read = read => read, () = leaving => return };
        match read {
            Ok(0) | Err(_) => return,
            Ok(count) => heard.extend_from_slice(&part[..count]),
        }
        if !heard.ends_with(b"\r\n\r\n") {
            continue;
        }
        let path = heard.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let takes_ms = String::from_utf8_lossy(path).trim_start_matches('/').parse().unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(takes_ms)).await;
        let wants_close = heard.windows(17).any(|it| it == b"Connection: close");
        heard.clear();
        // A probe that only connects is nobody's request.
        seen.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
        let closes = wants_close || seen.is_leaving.load(Ordering::Relaxed);
        let connection = if closes { "close" } else { "keep-alive" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: {connection}\r\n\r\nok");
        seen.served.fetch_add(1, Ordering::Relaxed);
        if stream.write_all(answer.as_bytes()).await.is_err() || closes {
            return;
        }
    }
}

/// How a client asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    New,
    Kept,
    Slow,
}

#[derive(Default)]
struct Fates {
    answered: u64,
    connections: u64,
    failed: BTreeMap<String, u64>,
}

async fn load(address: &str, clients: [(usize, Kind); 3]) {
    let fates = Arc::new(Mutex::new(Fates::default()));
    let is_over = Arc::new(AtomicBool::new(false));
    let kinds = clients.into_iter().flat_map(|(count, kind)| std::iter::repeat_n(kind, count));
    let clients: Vec<_> = kinds
        .map(|kind| {
            let (address, fates, is_over) = (address.to_owned(), fates.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let (began_ms, mut from) = (now_ms(), 0);
                    let asking = connection(&address, kind, &fates, &is_over, &mut from);
                    let outcome = tokio::time::timeout(REQUEST_PATIENCE, asking).await;
                    if let Err(failure) = outcome.unwrap_or(Err("timeout".to_owned())) {
                        let line = json!({ "failed": failure, "kind": format!("{kind:?}"), "from_port": from, "began_ms": began_ms, "at_ms": now_ms() });
                        tell("failed", &line);
                        *fates.lock().unwrap().failed.entry(failure).or_default() += 1;
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    tell("load-began", &json!({}));
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let Fates { answered, connections, failed } = &*fates.lock().unwrap();
    println!("{}", json!({ "answered": answered, "connections": connections, "failed": failed }));
}

/// One connection, with one request or with many of them for a few seconds; `from` is its port on this side.
async fn connection(
    address: &str,
    kind: Kind,
    fates: &Mutex<Fates>,
    is_over: &AtomicBool,
    from: &mut u16,
) -> Result<(), String> {
    let failed = |what: &str, error: std::io::Error| format!("{what}: {}", error.kind());
    let mut stream = TcpStream::connect(address).await.map_err(|error| failed("connect", error))?;
    *from = stream.local_addr().map_or(0, |local| local.port());
    fates.lock().unwrap().connections += 1;
    let began = std::time::Instant::now();
    let connection = if kind == Kind::Kept { "keep-alive" } else { "close" };
    let path = if kind == Kind::Slow { format!("/{SLOW_MS}") } else { "/".to_owned() };
    let request = format!("GET {path} HTTP/1.1\r\nHost: web\r\nConnection: {connection}\r\n\r\n");
    loop {
        stream.write_all(request.as_bytes()).await.map_err(|error| failed("send", error))?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let mut part = [0; 1024];
            match stream.read(&mut part).await.map_err(|error| failed("receive", error))? {
                0 => return Err("closed before the answer was whole".to_owned()),
                count => answer.extend_from_slice(&part[..count]),
            }
        }
        fates.lock().unwrap().answered += 1;
        let is_last = answer.windows(17).any(|it| it == b"Connection: close");
        if is_last || is_over.load(Ordering::Relaxed) || began.elapsed() > PATIENCE / 2 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
