//! Exec over SPDY: one stream for each channel, told apart by the `streamType` header the client opens it with.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, header};
use runtime_api::ExecSpec;
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::exec::{Channels, Ending, Received, ResizeParser, Source};
use super::super::http::listed;
use super::connection::{Connection, Event};

/// How long a client may take to open all streams of a session; upstream's limit.
const OPEN_WAIT: Duration = Duration::from_secs(30);
/// How long a client may take to hang up once it has been told everything. It has nothing to wait for, so this
/// bounds only a client that forgot us.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// How much a client may say before all its streams are open. None says anything.
const EARLY_MAX: usize = 64;

const VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED: HeaderName = HeaderName::from_static("x-accept-stream-protocol-version");

/// A version of the exec protocol. Each adds to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// Named `channel.k8s.io`.
    V1,
    V2,
    /// Terminals can be resized.
    V3,
    /// The error stream carries a `Status`.
    V4,
}

const NAMES: [(&str, Protocol); 4] = [
    ("v4.channel.k8s.io", Protocol::V4),
    ("v3.channel.k8s.io", Protocol::V3),
    ("v2.channel.k8s.io", Protocol::V2),
    ("channel.k8s.io", Protocol::V1),
];

/// Chooses the first offered version that we speak and answers with it, or says which ones we do speak.
pub(crate) fn accept(headers: &HeaderMap) -> Result<(Protocol, Response), Box<Response>> {
    let switching = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, super::PROTOCOL);
    let mut offered = listed(headers, VERSION).peekable();
    if offered.peek().is_none() {
        return Ok((Protocol::V1, switching.body(Body::empty()).expect("every header above is valid")));
    }
    let chosen = offered.find_map(|name| NAMES.into_iter().find(|(known, _)| *known == name));
    if let Some((name, protocol)) = chosen {
        let response = switching.header(VERSION, name).body(Body::empty()).expect("every header above is valid");
        return Ok((protocol, response));
    }
    let refusal = NAMES.iter().fold(Response::builder(), |response, (name, _)| response.header(ACCEPTED, *name));
    let text = "none of the offered stream protocols is spoken here";
    Err(Box::new(refusal.status(StatusCode::FORBIDDEN).body(Body::from(text)).expect("every header above is valid")))
}

/// The streams of a session, by what they carry.
#[derive(Debug, Default, PartialEq, Eq)]
struct Streams {
    error: Option<u32>,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Streams {
    fn slot(&mut self, name: &str) -> Option<&mut Option<u32>> {
        Some(match name {
            "error" => &mut self.error,
            "stdin" => &mut self.stdin,
            "stdout" => &mut self.stdout,
            "stderr" => &mut self.stderr,
            "resize" => &mut self.resize,
            _ => return None,
        })
    }

    fn complete(&self, protocol: Protocol, spec: &ExecSpec) -> bool {
        self.error.is_some()
            && (self.stdin.is_some() || !spec.stdin)
            && (self.stdout.is_some() || !spec.stdout)
            && (self.stderr.is_some() || !spec.stderr)
            && (self.resize.is_some() || !spec.tty || protocol < Protocol::V3)
    }
}

/// The channels of one exec on one SPDY connection.
pub(crate) struct SpdyChannels<S> {
    connection: Connection<S>,
    protocol: Protocol,
    streams: Streams,
    resize: ResizeParser,
    /// What happened before all streams were open.
    early: VecDeque<Event>,
    /// The input ended together with its last bytes.
    stdin_ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> SpdyChannels<S> {
    /// Takes over an upgraded connection and waits until the client has opened every stream it needs.
    pub(crate) async fn open(stream: S, protocol: Protocol, spec: &ExecSpec) -> io::Result<Self> {
        let mut channels = Self {
            connection: Connection::new(stream),
            protocol,
            streams: Streams::default(),
            resize: ResizeParser::default(),
            early: VecDeque::new(),
            stdin_ended: false,
        };
        tokio::time::timeout(OPEN_WAIT, channels.open_streams(spec)).await??;
        Ok(channels)
    }

    async fn open_streams(&mut self, spec: &ExecSpec) -> io::Result<()> {
        while !self.streams.complete(self.protocol, spec) {
            match self.connection.next().await? {
                Event::Opened { id, headers, fin } => {
                    self.opened(id, &headers).await?;
                    if fin {
                        self.early.push_back(Event::Data { id, bytes: Bytes::new(), fin });
                    }
                }
                Event::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                event @ (Event::Data { .. } | Event::Reset { .. }) => self.early.push_back(event),
            }
            if self.early.len() > EARLY_MAX {
                return Err(io::Error::other("the client talks before it has opened its streams"));
            }
        }
        Ok(())
    }

    /// Gives a new stream its place, or sends it away if there is none for it.
    async fn opened(&mut self, id: u32, headers: &[(String, String)]) -> io::Result<()> {
        let name = headers.iter().find(|(name, _)| name == "streamtype").map_or("", |(_, value)| value.as_str());
        match self.streams.slot(name) {
            Some(slot @ None) => {
                *slot = Some(id);
                self.connection.reply(id).await
            }
            Some(Some(_)) | None => self.connection.reset(id).await,
        }
    }

    async fn say_last(&mut self, id: Option<u32>, bytes: &[u8]) -> io::Result<()> {
        match id {
            Some(id) => self.connection.send(id, bytes, true).await,
            None => Ok(()),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Channels for SpdyChannels<S> {
    async fn receive(&mut self) -> io::Result<Received> {
        if self.stdin_ended {
            self.stdin_ended = false;
            return Ok(Received::StdinClosed);
        }
        let event = match self.early.pop_front() {
            Some(event) => event,
            None => self.connection.next().await?,
        };
        Ok(match event {
            Event::Data { id, bytes, fin } if Some(id) == self.streams.stdin => match (bytes.is_empty(), fin) {
                (true, true) => Received::StdinClosed,
                (true, false) => Received::Nothing,
                (false, fin) => {
                    self.stdin_ended = fin;
                    Received::Stdin(bytes)
                }
            },
            Event::Data { id, bytes, .. } if Some(id) == self.streams.resize => self.resize.push(&bytes),
            Event::Reset { id } if Some(id) == self.streams.stdin => Received::StdinClosed,
            Event::Opened { id, headers, .. } => {
                self.opened(id, &headers).await?;
                Received::Nothing
            }
            Event::Data { .. } | Event::Reset { .. } => Received::Nothing,
            Event::Closed => Received::Gone,
        })
    }

    async fn send(&mut self, source: Source, chunk: &[u8]) -> io::Result<()> {
        let id = match source {
            Source::Stdout => self.streams.stdout,
            Source::Stderr => self.streams.stderr,
        };
        match id {
            Some(id) => self.connection.send(id, chunk, false).await,
            None => Ok(()),
        }
    }

    async fn keep_alive(&mut self) -> io::Result<()> {
        self.connection.ping().await
    }

    async fn finish(mut self, ending: Ending) -> io::Result<()> {
        let final_status = match self.protocol {
            Protocol::V4 => ending.status().to_string(),
            Protocol::V1 | Protocol::V2 | Protocol::V3 => ending.sentence().unwrap_or_default(),
        };
        self.say_last(self.streams.stdout, &[]).await?;
        self.say_last(self.streams.stderr, &[]).await?;
        self.say_last(self.streams.error, final_status.as_bytes()).await?;
        // The client hangs up when it has read all of this. To close first might take it out of its hands.
        let gone = async { while !matches!(self.connection.next().await, Ok(Event::Closed) | Err(_)) {} };
        let _ = tokio::time::timeout(CLOSE_WAIT, gone).await;
        // It is gone already in all but the oddest cases, and then this cannot succeed.
        let _ = self.connection.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn offering(names: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(VERSION, name.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_best_version_that_both_speak_is_chosen() {
        let names = ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "channel.k8s.io"];
        let (protocol, response) = accept(&offering(&names)).unwrap();
        assert_eq!(protocol, Protocol::V4);
        assert_eq!(response.headers()[VERSION], "v4.channel.k8s.io");
        assert_eq!(response.headers()[header::UPGRADE], "SPDY/3.1");
        assert_eq!(accept(&offering(&[])).unwrap().0, Protocol::V1);
    }

    #[test]
    fn a_client_from_the_future_is_told_what_is_spoken_here() {
        let refusal = accept(&offering(&["v9.channel.k8s.io"])).unwrap_err();
        assert_eq!(refusal.status(), StatusCode::FORBIDDEN);
        assert_eq!(refusal.headers().get_all(ACCEPTED).iter().count(), NAMES.len());
    }
}
