//! Clients that send requests and count what becomes of them: those of `adieu demo` and of `adieu drill`.
//!
//! No client asks twice for the same thing: whatever is not answered whole is lost. What is told of the counts goes to whoever runs
//! the load, every moment, so that they are known while no API server answers.

mod counts;

#[cfg(test)]
pub(crate) use counts::LostRequest;
pub(crate) use counts::{ConnectionKind, Counts, KindCounts, Loss};

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// Which pod answered, if it says so.
pub(crate) const SERVED_BY: &str = "x-served-by";
/// A download is so many pieces, which come one by one.
pub(crate) const PIECES: usize = 30;
/// How large each of them is.
pub(crate) const PIECE_BYTES: usize = 4096;
/// How long after one the next comes.
pub(crate) const PIECE_EVERY: Duration = Duration::from_millis(100);
/// How long a download takes.
const DOWNLOAD_TAKES: Duration = Duration::from_secs(3);
/// How long a client without a pace waits before it asks again.
const PAUSE: Duration = Duration::from_millis(3);
/// How often the counts are told.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// What is asked for, by how many clients.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    /// Where the requests go.
    pub address: SocketAddr,
    /// What they are for: the `Host` of a request.
    pub host: String,
    /// Which path they ask for.
    pub path: String,
    /// Clients with a connection for every request.
    pub new: usize,
    /// Clients that keep their connection.
    pub kept: usize,
    /// Clients that ask for something that takes seconds. Only the server of the demo has that.
    pub downloading: usize,
    /// How long each of `new` and `kept` waits from one request to the next; without it, a moment after each answer.
    pub every: Option<Duration>,
    /// How long a connection is kept.
    pub kept_for: Duration,
    /// How long an answer may take.
    pub patience: Duration,
}

impl LoadPlan {
    /// The load of the demo: as much as its servers can answer.
    pub(crate) fn of_demo(address: SocketAddr) -> Self {
        Self {
            address,
            host: address.to_string(),
            path: "/".to_owned(),
            new: 6,
            kept: 4,
            downloading: 4,
            every: None,
            kept_for: Duration::from_secs(3),
            patience: Duration::from_secs(15),
        }
    }
}

/// What all clients share.
struct Load {
    plan: LoadPlan,
    counts: Mutex<Counts>,
    is_over: AtomicBool,
    began: Instant,
}

/// Why a request is lost.
type Lost = (Loss, String);

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

    fn note_answered(&self, kind: ConnectionKind, began: Instant) {
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.counts().note_answered(kind, took);
    }

    fn note_lost(&self, kind: ConnectionKind, (loss, reason): Lost) {
        let now = self.now_ms();
        self.counts().note_lost(now, kind, loss, reason);
    }

    fn note_idle_close(&self, kind: ConnectionKind) {
        self.counts().kinds.entry(kind).or_default().idle_closes += 1;
    }

    /// The first answer says what every other has to be.
    fn judge(&self, status: u16) -> Result<(), Lost> {
        if (500..600).contains(&status) {
            return Err((Loss::ServerError, format!("status {status}")));
        }
        let expected = *self.counts().status.get_or_insert(status);
        if expected == status {
            return Ok(());
        }
        Err((Loss::WrongAnswer, format!("status {status}, {expected} before")))
    }

    fn told(&self, is_final: bool) -> Counts {
        Counts { now_ms: self.now_ms(), is_final, ..self.counts().clone() }
    }
}

/// Asks until told to stop, then waits for what is under way. Tells the counts again and again, and at the end the last.
pub(crate) async fn run(
    plan: LoadPlan,
    told_to_stop: impl Future<Output = ()>,
    mut tell: impl FnMut(&Counts) -> Result<()>,
) -> Result<()> {
    let load =
        Arc::new(Load { plan, counts: Mutex::default(), is_over: AtomicBool::new(false), began: Instant::now() });
    let mut clients = JoinSet::new();
    for number in 0..load.plan.new {
        clients.spawn(ask(load.clone(), ConnectionKind::New, number));
    }
    for number in 0..load.plan.kept {
        clients.spawn(ask(load.clone(), ConnectionKind::Kept, number));
    }
    for number in 0..load.plan.downloading {
        clients.spawn(download(load.clone(), number));
    }
    let mut told_to_stop = std::pin::pin!(told_to_stop);
    let mut ticks = tokio::time::interval(TOLD_EVERY);
    loop {
        tokio::select! {
            () = &mut told_to_stop => break,
            _ = ticks.tick() => tell(&load.told(false))?,
        }
    }
    load.is_over.store(true, Ordering::Relaxed);
    while clients.join_next().await.is_some() {
        tell(&load.told(false))?;
    }
    tell(&load.told(true))
}

/// When a client may ask next.
struct Pace(Option<Interval>);

impl Pace {
    /// Clients of a pace do not begin all at once.
    fn of(plan: &LoadPlan, number: usize, clients: usize) -> Self {
        Self(plan.every.filter(|every| !every.is_zero()).map(|every| {
            let share = |part: usize| u32::try_from(part).unwrap_or(u32::MAX);
            let first = every * share(number) / share(clients.max(1));
            let mut ticks = tokio::time::interval_at(Instant::now() + first, every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    async fn wait(&mut self) {
        match &mut self.0 {
            Some(ticks) => {
                ticks.tick().await;
            }
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// A client that asks for something small, again and again, on connections of that kind.
async fn ask(load: Arc<Load>, kind: ConnectionKind, number: usize) {
    let (plan, is_kept) = (&load.plan, kind == ConnectionKind::Kept);
    let (kept_for, clients) = if is_kept { (plan.kept_for, plan.kept) } else { (Duration::ZERO, plan.new) };
    let mut pace = Pace::of(plan, number, clients);
    pace.wait().await;
    while !load.is_over() {
        let began = Instant::now();
        match tokio::time::timeout(plan.patience, connect(plan.address)).await {
            Ok(Ok(mut connection)) => {
                let mut is_first = true;
                while !load.is_over() {
                    let last = began.elapsed() >= kept_for;
                    let next = small(&mut connection, &load, kind, is_first, last).await;
                    is_first = false;
                    match next {
                        Next::Again if !last => pace.wait().await,
                        Next::Again | Next::Connect => break,
                    }
                }
            }
            Ok(Err(error)) => load.note_lost(kind, of_connect(&error)),
            Err(_) => load.note_lost(kind, (Loss::TimedOut, "connect: timed out".to_owned())),
        }
        pace.wait().await;
    }
}

/// What a client does after a request.
enum Next {
    Again,
    Connect,
}

async fn small(
    connection: &mut SendRequest<Empty<Bytes>>,
    load: &Load,
    kind: ConnectionKind,
    is_first: bool,
    last: bool,
) -> Next {
    // A connection that the server has closed while nothing was asked on it has lost nothing, if it was of any use before.
    let closed = |why: &str| match is_first {
        true => load.note_lost(kind, (Loss::Reset, format!("connection closed before its first request{why}"))),
        false => load.note_idle_close(kind),
    };
    if connection.ready().await.is_err() {
        closed("");
        return Next::Connect;
    }
    let began = Instant::now();
    let asking = async {
        let answer = connection.send_request(request(&load.plan, &load.plan.path, last)).await?;
        let (status, closes) = (answer.status().as_u16(), closes(answer.headers()));
        whole(answer).await?;
        Ok::<_, hyper::Error>((status, closes))
    };
    match tokio::time::timeout(load.plan.patience, asking).await {
        Ok(Ok((status, closes))) => {
            match load.judge(status) {
                Ok(()) => load.note_answered(kind, began),
                Err(lost) => load.note_lost(kind, lost),
            }
            if closes { Next::Connect } else { Next::Again }
        }
        // The request was never sent.
        Ok(Err(error)) if error.is_canceled() => {
            closed(", which was not sent");
            Next::Connect
        }
        Ok(Err(error)) => {
            load.note_lost(kind, lost(&error));
            Next::Connect
        }
        Err(_) => {
            load.note_lost(kind, (Loss::TimedOut, "no answer in time".to_owned()));
            Next::Connect
        }
    }
}

/// Reads an answer to its end, however long it is, and keeps nothing of it. Answers its length.
async fn whole(answer: Response<Incoming>) -> hyper::Result<usize> {
    let (mut body, mut bytes) = (answer.into_body(), 0);
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(bytes)
}

/// A client that asks for something that takes three seconds. They begin one after the other.
async fn download(load: Arc<Load>, number: usize) {
    let (kind, apart) = (ConnectionKind::Download, Duration::from_millis(700));
    tokio::time::sleep(apart * u32::try_from(number).unwrap_or(0)).await;
    while !load.is_over() {
        match tokio::time::timeout(load.plan.patience, download_once(&load)).await {
            Ok(Ok(began)) => load.note_answered(kind, began),
            Ok(Err((loss, reason))) => load.note_lost(kind, (loss, format!("download: {reason}"))),
            Err(_) => load.note_lost(kind, (Loss::TimedOut, "download: not whole in time".to_owned())),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Answers when it would have begun if it had taken no time to come.
async fn download_once(load: &Load) -> Result<Instant, Lost> {
    let asked = Instant::now();
    let mut connection = connect(load.plan.address).await.map_err(|error| of_connect(&error))?;
    let answer = connection.send_request(request(&load.plan, "/download", true)).await;
    let answer = answer.map_err(|error| lost(&error))?;
    let waited = asked.elapsed();
    let pod = answer.headers().get(SERVED_BY).and_then(|pod| pod.to_str().ok()).unwrap_or_default().to_owned();
    let began_ms = load.now_ms();
    load.counts().downloads.entry(pod.clone()).or_default().push(began_ms);
    let read = whole(answer).await;
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
    match read.map_err(|error| lost(&error))? == PIECES * PIECE_BYTES {
        true => Ok(Instant::now() - waited),
        false => Err((Loss::Reset, "it ended too early".to_owned())),
    }
}

async fn connect(address: SocketAddr) -> io::Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn request(plan: &LoadPlan, path: &str, last: bool) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    if let Ok(path) = path.parse() {
        *request.uri_mut() = path;
    }
    if let Ok(host) = HeaderValue::from_str(&plan.host) {
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

fn of_connect(error: &io::Error) -> Lost {
    (of_kind(error.kind()), format!("connect: {}", error.kind()))
}

fn of_kind(kind: io::ErrorKind) -> Loss {
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever else systems say has no word of its own here")]
    match kind {
        io::ErrorKind::ConnectionRefused => Loss::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Loss::Reset,
        io::ErrorKind::TimedOut => Loss::TimedOut,
        _ => Loss::Other,
    }
}

/// Why a request was lost, without what is different each time.
fn lost(error: &hyper::Error) -> Lost {
    use std::error::Error as _;
    match error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        Some(cause) => (of_kind(cause.kind()), cause.kind().to_string()),
        None if error.is_parse() => (Loss::WrongAnswer, error.to_string()),
        None if error.is_incomplete_message() || error.is_canceled() => (Loss::Reset, error.to_string()),
        None => (Loss::Other, error.to_string()),
    }
}

#[cfg(test)]
mod tests;
