//! Port-forward: for every connection a client accepts it opens two SPDY streams, one for the bytes and one to be told
//! what went wrong, joined by a `requestID`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{HeaderMap, HeaderName, StatusCode, header};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use super::http::listed;
use super::spdy::connection::{Connection, Event};
use super::{Containers, spdy};

/// The one version there is.
pub(super) const PROTOCOL: &str = "portforward.k8s.io";
const VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED: HeaderName = HeaderName::from_static("x-accept-stream-protocol-version");
/// How much is carried at a time.
const CHUNK: usize = 32 * 1024;
/// How much of a client may wait for one pod that does not read, before the client has to.
pub(super) const WAITING_MAX: usize = 16;
/// How often a silent connection is written to, to notice a client that went away without a word.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers the upgrade of a client that speaks SPDY itself.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response, Box<Response>> {
    let mut offered = listed(headers, VERSION).peekable();
    if offered.peek().is_some() && !offered.any(|name| name == PROTOCOL) {
        let refusal = Response::builder().status(StatusCode::FORBIDDEN).header(ACCEPTED, PROTOCOL);
        let text = "none of the offered stream protocols is spoken here";
        return Err(Box::new(refusal.body(Body::from(text)).expect("every header above is valid")));
    }
    let switching = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, spdy::PROTOCOL)
        .header(VERSION, PROTOCOL);
    Ok(switching.body(Body::empty()).expect("every header above is valid"))
}

/// A connection that a client is opening or has open.
#[derive(Debug, Default)]
struct Pair {
    error: Option<u32>,
    data: Option<u32>,
    /// To the pod; gone once the client has said its last.
    to_pod: Option<mpsc::Sender<Bytes>>,
}

/// What a pod's side of a connection says.
#[derive(Debug)]
pub(super) enum PodOutput {
    Bytes(Vec<u8>),
    /// It has said its last.
    Ended,
    /// It could not be reached, or broke.
    Failed(String),
}

/// Carries connections until the client hangs up.
pub(super) async fn run<C, S>(containers: &C, namespace: &str, pod: &str, stream: S) -> io::Result<()>
where
    C: Containers,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut connection = Connection::new(stream);
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut carriers = FuturesUnordered::new();
    let (said, mut heard) = mpsc::channel::<(String, PodOutput)>(WAITING_MAX);
    let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = connection.next() => match event? {
                Event::Opened { id, headers, .. } => {
                    let value = |wanted: &str| {
                        headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
                    };
                    let (Some(kind), Some(port)) = (value("streamtype"), value("port").and_then(|port| port.parse().ok()))
                    else {
                        connection.reset(id).await?;
                        continue;
                    };
                    // Clients of old number no requests: the error stream comes right before its data stream.
                    let request = value("requestid").unwrap_or_else(|| (id - if kind == "data" { 2 } else { 0 }).to_string());
                    connection.reply(id).await?;
                    let pair = pairs.entry(request.clone()).or_default();
                    if kind == "data" {
                        let (to_pod, from_client) = mpsc::channel(WAITING_MAX);
                        (pair.data, pair.to_pod) = (Some(id), Some(to_pod));
                        carriers.push(carry(containers, namespace, pod, port, request, from_client, said.clone()));
                    } else {
                        pair.error = Some(id);
                    }
                }
                Event::Data { id, bytes, fin } => {
                    let Some(pair) = pairs.values_mut().find(|pair| pair.data == Some(id)) else { continue };
                    if let Some(to_pod) = pair.to_pod.as_ref().filter(|_| !bytes.is_empty()) {
                        let to_pod = to_pod.clone();
                        // Others wait with it while a pod does not read; what it still says is heard meanwhile.
                        let sending = to_pod.send(bytes);
                        tokio::pin!(sending);
                        loop {
                            tokio::select! {
                                _ = &mut sending => break,
                                Some((request, said)) = heard.recv() => pass_on(&mut connection, &mut pairs, &request, said).await?,
                                Some(()) = carriers.next(), if !carriers.is_empty() => {}
                            }
                        }
                    }
                    if fin && let Some(pair) = pairs.values_mut().find(|pair| pair.data == Some(id)) {
                        pair.to_pod = None;
                    }
                }
                Event::Reset { id } => pairs.retain(|_, pair| pair.data != Some(id)),
                Event::Closed => return Ok(()),
            },
            Some((request, said)) = heard.recv() => pass_on(&mut connection, &mut pairs, &request, said).await?,
            Some(()) = carriers.next(), if !carriers.is_empty() => {}
            _ = keep_alive.tick() => connection.ping().await?,
        }
    }
}

async fn pass_on<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    pairs: &mut BTreeMap<String, Pair>,
    request: &str,
    said: PodOutput,
) -> io::Result<()> {
    let Some(pair) = pairs.get(request) else { return Ok(()) };
    let (Some(data), error) = (pair.data, pair.error) else { return Ok(()) };
    let complaint = match said {
        PodOutput::Bytes(bytes) => return connection.send(data, &bytes, false).await,
        PodOutput::Ended => String::new(),
        PodOutput::Failed(message) => message,
    };
    // An empty last word on the error stream means that all went well.
    if let Some(error) = error {
        connection.send(error, complaint.as_bytes(), true).await?;
    }
    connection.send(data, &[], true).await?;
    pairs.remove(request);
    Ok(())
}

/// One connection to the pod, from the first byte to the last of both sides.
pub(super) async fn carry<C: Containers>(
    containers: &C,
    namespace: &str,
    pod: &str,
    port: u16,
    request: String,
    from_client: mpsc::Receiver<Bytes>,
    said: mpsc::Sender<(String, PodOutput)>,
) {
    let carried = async {
        let stream = containers.connect(namespace, pod, port).await.map_err(|error| error.sentence())?;
        let broke = |error: io::Error| format!("error forwarding port {port} to pod {pod}: {error}");
        stream.set_nonblocking(true).map_err(broke)?;
        let (from_pod, to_pod) = TcpStream::from_std(stream).map_err(broke)?.into_split();
        let saying = say(from_pod, &request, &said);
        let telling = tell(to_pod, from_client);
        tokio::pin!(saying, telling);
        // The client may say its last long before the pod does. The other way round there is nothing left to say.
        tokio::select! {
            ended = &mut saying => ended.map_err(broke),
            told = &mut telling => {
                told.map_err(broke)?;
                saying.await.map_err(broke)
            }
        }
    };
    let last = match carried.await {
        Ok(()) => PodOutput::Ended,
        Err(message) => PodOutput::Failed(message),
    };
    // Nobody listens any more once the client is gone.
    let _ = said.send((request, last)).await;
}

async fn say(
    mut from_pod: impl AsyncRead + Unpin,
    request: &str,
    said: &mpsc::Sender<(String, PodOutput)>,
) -> io::Result<()> {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        if from_pod.read_buf(&mut chunk).await? == 0 {
            return Ok(());
        }
        if said.send((request.to_owned(), PodOutput::Bytes(chunk))).await.is_err() {
            return Ok(());
        }
    }
}

async fn tell(mut to_pod: impl AsyncWrite + Unpin, mut from_client: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(bytes) = from_client.recv().await {
        to_pod.write_all(&bytes).await?;
    }
    to_pod.shutdown().await
}
