//! Port-forward over a WebSocket's channels, as most clients but kubectl ask for it: the ports are named in the query,
//! and each has two channels, one for the bytes and one to be told what went wrong.

use std::io;
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::forward::{KEEP_ALIVE, PodOutput, WAITING_MAX, carry};
use super::http::listed;
use super::query::Pairs;
use super::{Containers, StreamError, websocket};

/// How long a client may take to answer our close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// A channel is one byte, and a digit for those that read text.
const PORTS_MAX: usize = 5;

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PortForwardRequest {
    ports: Vec<u16>,
    base64: bool,
}

/// Answers the handshake of a client that speaks channels; `None` if it speaks something else.
pub(super) fn accept(
    headers: &HeaderMap,
    query: &Pairs,
) -> Result<Option<(PortForwardRequest, Response)>, StreamError> {
    let mut offered = listed(headers, header::SEC_WEBSOCKET_PROTOCOL).peekable();
    let base64 = match offered.peek() {
        None => false,
        Some(_) => match offered.find_map(|name| match name {
            "v4.channel.k8s.io" => Some(false),
            "v4.base64.channel.k8s.io" => Some(true),
            _ => None,
        }) {
            None => return Ok(None),
            Some(base64) => base64,
        },
    };
    let ports = ports(query)?;
    let response = websocket::accept(headers)?.1;
    Ok(Some((PortForwardRequest { ports, base64 }, response)))
}

/// `port=80&port=81` and `port=80,81`.
fn ports(query: &Pairs) -> Result<Vec<u16>, StreamError> {
    let texts = query.iter().filter(|(name, _)| name == "port").map(|(_, value)| value);
    let each = texts.flat_map(|text| text.split(','));
    let ports: Vec<u16> = each
        .map(|text| text.parse().ok().filter(|port| *port > 0))
        .collect::<Option<_>>()
        .ok_or_else(|| StreamError::bad_request("a port is a number from 1 to 65535"))?;
    match ports.len() {
        0 => Err(StreamError::bad_request("query parameter \"port\" is required")),
        1..=PORTS_MAX => Ok(ports),
        _ => Err(StreamError::bad_request("more than five ports at once")),
    }
}

/// Carries one connection to each port until all have ended or the client hangs up.
pub(super) async fn run<C, S>(
    containers: &C,
    namespace: &str,
    pod: &str,
    stream: S,
    asked: PortForwardRequest,
) -> io::Result<()>
where
    C: Containers,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let mut channels = Channels { socket, base64: asked.base64 };
    let (said, mut heard) = mpsc::channel::<(String, PodOutput)>(WAITING_MAX);
    let mut to_pods = Vec::new();
    let mut carriers = FuturesUnordered::new();
    for (index, port) in asked.ports.iter().enumerate() {
        let (to_pod, from_client) = mpsc::channel(WAITING_MAX);
        to_pods.push(to_pod);
        // Every channel begins with the port it is for.
        for channel in [data(index), data(index) + 1] {
            channels.write(channel, &port.to_le_bytes()).await?;
        }
        carriers.push(carry(containers, namespace, pod, *port, index.to_string(), from_client, said.clone()));
    }
    let mut open = asked.ports.len();
    let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while open > 0 {
        tokio::select! {
            message = channels.read() => {
                let Some((channel, bytes)) = message? else { return Ok(()) };
                let index = usize::from(channel / 2);
                let Some(to_pod) = to_pods.get(index).filter(|_| channel % 2 == 0 && !bytes.is_empty()) else { continue };
                let sending = to_pod.send(bytes);
                tokio::pin!(sending);
                // Others wait with it while a pod does not read; what it still says is heard meanwhile.
                loop {
                    tokio::select! {
                        _ = &mut sending => break,
                        Some((request, said)) = heard.recv() => open -= channels.pass_on(&request, said).await?,
                        Some(()) = carriers.next(), if !carriers.is_empty() => {}
                    }
                }
            }
            Some((request, said)) = heard.recv() => open -= channels.pass_on(&request, said).await?,
            Some(()) = carriers.next(), if !carriers.is_empty() => {}
            _ = keep_alive.tick() => channels.socket.send(Message::Ping(Bytes::new())).await.map_err(io::Error::other)?,
        }
    }
    channels.socket.close(None).await.map_err(io::Error::other)?;
    let answered = async { while let Some(Ok(_)) = channels.socket.next().await {} };
    let _ = tokio::time::timeout(CLOSE_WAIT, answered).await;
    Ok(())
}

/// The channel of a port's bytes; the next one is for what went wrong.
fn data(index: usize) -> u8 {
    u8::try_from(2 * index).unwrap_or(u8::MAX - 1)
}

struct Channels<S> {
    socket: WebSocketStream<S>,
    base64: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Channels<S> {
    async fn write(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        self.socket.send(websocket::message(channel, bytes, self.base64)).await.map_err(io::Error::other)
    }

    /// The next message that carries something; `None` once the client is gone.
    async fn read(&mut self) -> io::Result<Option<(u8, Bytes)>> {
        loop {
            let message: Bytes = match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(None),
            };
            let Some((&first, rest)) = message.split_first() else { continue };
            if !self.base64 {
                return Ok(Some((first, message.slice(1..))));
            }
            let bytes = BASE64.decode(rest).map_err(io::Error::other)?;
            return Ok(Some((first.wrapping_sub(b'0'), bytes.into())));
        }
    }

    /// Answers how many connections have ended by it.
    async fn pass_on(&mut self, request: &str, said: PodOutput) -> io::Result<usize> {
        let channel = data(request.parse().map_err(io::Error::other)?);
        match said {
            PodOutput::Bytes(bytes) => self.write(channel, &bytes).await.map(|()| 0),
            PodOutput::Ended => Ok(1),
            PodOutput::Failed(message) => self.write(channel + 1, message.as_bytes()).await.map(|()| 1),
        }
    }
}
