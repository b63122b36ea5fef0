//! The clients of the demo, and the counts they keep: how many requests were answered, and how many were not.
//!
//! No client asks twice for the same thing: whatever is not answered whole is lost. The counts are written to a file that the
//! demo reads, so that they are known while no API server answers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::app::{PIECE_BYTES, PIECES, SERVED_BY};

/// Clients with a connection for every request.
pub(super) const NEW: usize = 6;
/// Clients that keep their connection.
pub(super) const KEPT: usize = 4;
/// Clients that ask for something that takes seconds.
pub(super) const DOWNLOADING: usize = 4;
/// How long a client waits before it asks again.
const PAUSE: Duration = Duration::from_millis(3);
/// How long a connection is kept.
const KEPT_FOR: Duration = Duration::from_secs(3);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the counts are written.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// What they are called.
const COUNTS: &str = "counts.json";
/// So many reasons are told apart.
const REASONS_MOST: usize = 16;

/// What became of the requests so far.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    /// Answered whole.
    pub answered: u64,
    /// Not answered, or not whole, for which reason.
    pub lost: BTreeMap<String, u64>,
    /// How long the slowest answer took to begin.
    pub slowest_ms: u64,
    /// Downloads under way: when they began by the client's clock, by the pod that serves them.
    pub downloads: BTreeMap<String, Vec<u64>>,
    /// That clock.
    pub now_ms: u64,
    /// True once nothing is asked any more and nothing is waited for.
    pub is_final: bool,
}

impl Counts {
    /// How many were lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Every request whose fate is known.
    pub(super) fn asked(&self) -> u64 {
        self.answered + self.lost()
    }

    /// The pod whose last download ends last, if that is at least so far away.
    pub(super) fn busiest(&self, at_least: Duration) -> Option<&str> {
        let takes = u64::try_from(PIECES).unwrap_or(0) * 100;
        let latest = self.downloads.iter().filter_map(|(pod, began)| Some((began.iter().max()?, pod))).max()?;
        let left = (latest.0 + takes).saturating_sub(self.now_ms);
        (u128::from(left) >= at_least.as_millis()).then_some(latest.1.as_str())
    }

    /// What is known by now; nothing if nobody has begun to ask.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(COUNTS)).ok()?).ok()
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        let part = folder.join(".counts.json");
        fs::write(&part, serde_json::to_vec(self)?)?;
        fs::rename(part, folder.join(COUNTS))
    }
}

/// What all clients share.
struct Load {
    address: SocketAddr,
    counts: Mutex<Counts>,
    is_over: AtomicBool,
    began: Instant,
}

impl Load {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn note_answered(&self, began: Instant) {
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut counts = self.counts();
        counts.answered += 1;
        counts.slowest_ms = counts.slowest_ms.max(took);
    }

    fn note_lost(&self, reason: String) {
        let mut counts = self.counts();
        let known = counts.lost.contains_key(&reason) || counts.lost.len() < REASONS_MOST;
        *counts.lost.entry(if known { reason } else { "for other reasons".to_owned() }).or_default() += 1;
    }

    fn write(&self, folder: &Path, is_final: bool) -> Result<()> {
        let counts = Counts { now_ms: self.now_ms(), is_final, ..self.counts().clone() };
        counts.write(folder).with_context(|| format!("cannot write to {}", folder.display()))
    }
}

/// Asks until told to stop, then waits for what is under way.
pub(super) async fn run(address: SocketAddr, report: &Path, told_to_stop: impl Future<Output = ()>) -> Result<()> {
    let load =
        Arc::new(Load { address, counts: Mutex::default(), is_over: AtomicBool::new(false), began: Instant::now() });
    let mut clients = JoinSet::new();
    for _ in 0..NEW {
        clients.spawn(ask(load.clone(), Duration::ZERO));
    }
    for _ in 0..KEPT {
        clients.spawn(ask(load.clone(), KEPT_FOR));
    }
    for number in 0..DOWNLOADING {
        clients.spawn(download(load.clone(), number));
    }
    let mut told_to_stop = std::pin::pin!(told_to_stop);
    let mut ticks = tokio::time::interval(TOLD_EVERY);
    loop {
        tokio::select! {
            () = &mut told_to_stop => break,
            _ = ticks.tick() => load.write(report, false)?,
        }
    }
    load.is_over.store(true, Ordering::Relaxed);
    while clients.join_next().await.is_some() {
        load.write(report, false)?;
    }
    load.write(report, true)
}

/// A client that asks for something small, again and again, on connections that it keeps for so long.
async fn ask(load: Arc<Load>, kept_for: Duration) {
    while !load.is_over() {
        let began = Instant::now();
        match tokio::time::timeout(PATIENCE, connect(load.address)).await {
            Ok(Ok(mut connection)) => {
                while !load.is_over() {
                    let last = began.elapsed() >= kept_for;
                    match small(&mut connection, &load, last).await {
                        Next::Again if !last => tokio::time::sleep(PAUSE).await,
                        Next::Again | Next::Connect => break,
                    }
                }
            }
            Ok(Err(error)) => load.note_lost(format!("connect: {}", error.kind())),
            Err(_) => load.note_lost("connect: timed out".to_owned()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a client does after a request.
enum Next {
    Again,
    Connect,
}

async fn small(connection: &mut SendRequest<Empty<Bytes>>, load: &Load, last: bool) -> Next {
    // A connection that the server has closed while nothing was asked on it has lost nothing.
    if connection.ready().await.is_err() {
        return Next::Connect;
    }
    let began = Instant::now();
    let asking = async {
        let answer = connection.send_request(request("/", load.address, last)).await?;
        let closes = closes(answer.headers());
        answer.into_body().collect().await?;
        Ok::<_, hyper::Error>(closes)
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(closes)) => {
            load.note_answered(began);
            if closes { Next::Connect } else { Next::Again }
        }
        Ok(Err(error)) => {
            load.note_lost(reason(&error));
            Next::Connect
        }
        Err(_) => {
            load.note_lost("no answer in time".to_owned());
            Next::Connect
        }
    }
}

/// A client that asks for something that takes three seconds. They begin one after the other.
async fn download(load: Arc<Load>, number: usize) {
    let apart = Duration::from_millis(700);
    tokio::time::sleep(apart * u32::try_from(number).unwrap_or(0)).await;
    while !load.is_over() {
        match tokio::time::timeout(PATIENCE, download_once(&load)).await {
            Ok(Ok(began)) => load.note_answered(began),
            Ok(Err(reason)) => load.note_lost(format!("download: {reason}")),
            Err(_) => load.note_lost("download: not whole in time".to_owned()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Answers when it would have begun if it had taken no time to come.
async fn download_once(load: &Load) -> Result<Instant, String> {
    let asked = Instant::now();
    let mut connection = connect(load.address).await.map_err(|error| format!("connect: {}", error.kind()))?;
    let answer = connection.send_request(request("/download", load.address, true)).await;
    let answer = answer.map_err(|error| reason(&error))?;
    let waited = asked.elapsed();
    let pod = answer.headers().get(SERVED_BY).and_then(|pod| pod.to_str().ok()).unwrap_or_default().to_owned();
    let began_ms = load.now_ms();
    load.counts().downloads.entry(pod.clone()).or_default().push(began_ms);
    let whole = answer.into_body().collect().await;
    {
        let mut counts = load.counts();
        let of_pod = counts.downloads.entry(pod.clone()).or_default();
        if let Some(at) = of_pod.iter().position(|began| *began == began_ms) {
            of_pod.remove(at);
        }
        if of_pod.is_empty() {
            counts.downloads.remove(&pod);
        }
    }
    let bytes = whole.map_err(|error| reason(&error))?.to_bytes().len();
    match bytes == PIECES * PIECE_BYTES {
        true => Ok(Instant::now() - waited),
        false => Err("it ended too early".to_owned()),
    }
}

async fn connect(address: SocketAddr) -> io::Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn request(path: &str, address: SocketAddr, last: bool) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    if let Ok(path) = path.parse() {
        *request.uri_mut() = path;
    }
    if let Ok(host) = HeaderValue::from_str(&address.to_string()) {
        request.headers_mut().insert(HOST, host);
    }
    if last {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    request
}

fn closes(headers: &HeaderMap) -> bool {
    headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

/// Why a request was lost, without what is different each time.
fn reason(error: &hyper::Error) -> String {
    use std::error::Error as _;
    match error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        Some(cause) => cause.kind().to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn pod_with_the_longest_download_left_is_the_busiest_unless_it_is_nearly_done() {
        let downloads = [("a", vec![500, 100]), ("b", vec![900]), ("c", vec![])];
        let downloads = downloads.map(|(pod, began)| (pod.to_owned(), began));
        let mut counts = Counts { downloads: downloads.into(), now_ms: 1000, ..Counts::default() };
        assert_eq!(counts.busiest(Duration::from_secs(2)), Some("b"), "2.9 s are left");
        counts.now_ms = 2000;
        assert_eq!(counts.busiest(Duration::from_secs(2)), None, "1.9 s are left");
        assert_eq!(Counts::default().busiest(Duration::ZERO), None);
    }

    #[tokio::test]
    async fn request_to_a_server_that_hangs_up_is_lost_once_and_has_a_reason() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let report = tempfile::tempdir().unwrap();
        // Each is counted when it is seen here, so that none can be counted twice.
        let (seen, hung_up) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(async move {
            for _ in 0..20 {
                drop(listener.accept().await.unwrap());
            }
            drop(listener);
            seen.send(()).unwrap();
        });
        run(address, report.path(), async { drop(hung_up.await) }).await.unwrap();
        server.await.unwrap();
        let counts = Counts::read(report.path()).unwrap();
        assert!(counts.is_final && counts.answered == 0 && counts.lost() > 0, "{counts:?}");
        assert!(counts.lost.len() <= REASONS_MOST, "{counts:?}");
    }
}
