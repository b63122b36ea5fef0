//! Exec over a WebSocket: every message names its channel in its first byte.
//!
//! | channel | way | carries |
//! |---|---|---|
//! | 0 | in | standard input |
//! | 1, 2 | out | standard output, standard error |
//! | 3 | out | how it ended: a `Status`, or in v1 a text if it ended badly |
//! | 4 | in | sizes of the terminal |
//! | 255 | in | v5 only: the channel named by the next byte is closed |

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, StatusCode, header};
use runtime_api::ExecSpec;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::Error as WebSocketError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::StreamError;
use super::exec::{Channels, Ending, Received, ResizeParser, Source};
use super::http::listed;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// How long a client may take to answer our close. It has everything by then; this is only politeness.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// The largest message taken. Some clients put a whole archive into one, so it is as large as upstream's.
const MESSAGE_MAX: usize = 32 << 20;

/// A subprotocol of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocol {
    /// Channel 255 exists.
    half_close: bool,
    /// The error channel carries a `Status`.
    status: bool,
    /// Text messages: the channel as a digit, then base64.
    base64: bool,
}

impl Protocol {
    fn named(name: &str) -> Option<Self> {
        let (half_close, status, base64) = match name {
            "v5.channel.k8s.io" => (true, true, false),
            "v4.channel.k8s.io" => (false, true, false),
            "v4.base64.channel.k8s.io" => (false, true, true),
            "channel.k8s.io" => (false, false, false),
            "base64.channel.k8s.io" => (false, false, true),
            _ => return None,
        };
        Some(Self { half_close, status, base64 })
    }
}

/// True if the request asks for a WebSocket.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    listed(headers, header::UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
}

/// Chooses the first offered subprotocol that we speak, and says so.
pub(super) fn accept(headers: &HeaderMap) -> Result<(Protocol, Response), StreamError> {
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|_| headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13"))
        .ok_or_else(|| StreamError::bad_request("not a WebSocket handshake of version 13"))?;
    let mut response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()));
    let mut offered = listed(headers, header::SEC_WEBSOCKET_PROTOCOL).peekable();
    // A client that offers nothing gets the oldest protocol, and no header, because it asked for none.
    let protocol = if offered.peek().is_none() {
        Protocol { half_close: false, status: false, base64: false }
    } else {
        let (name, protocol) = offered
            .find_map(|name| Protocol::named(name).map(|protocol| (name, protocol)))
            .ok_or_else(|| StreamError::bad_request("none of the offered WebSocket protocols is spoken here"))?;
        response = response.header(header::SEC_WEBSOCKET_PROTOCOL, name);
        protocol
    };
    let response = response.body(Body::empty()).expect("every header above is valid");
    Ok((protocol, response))
}

/// The channels of one exec on one WebSocket.
pub(super) struct WebSocketChannels<S> {
    socket: WebSocketStream<S>,
    protocol: Protocol,
    resize: ResizeParser,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> WebSocketChannels<S> {
    /// Takes over an upgraded connection and tells the client that it is open.
    pub(super) async fn open(stream: S, protocol: Protocol, spec: &ExecSpec) -> io::Result<Self> {
        let config = WebSocketConfig::default()
            .read_buffer_size(16 * 1024)
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let mut channels = Self { socket, protocol, resize: ResizeParser::default() };
        // An empty message on the lowest channel we write to: some clients wait for it. Not those of v5, and kubectl among
        // them complains aloud if it comes before it has made its channels.
        if !protocol.half_close {
            let first = match spec {
                ExecSpec { stdout: true, .. } => STDOUT,
                ExecSpec { stderr: true, .. } => STDERR,
                ExecSpec { .. } => ERROR,
            };
            channels.write(first, &[]).await?;
        }
        Ok(channels)
    }

    async fn write(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        self.socket.send(message(channel, bytes, self.protocol.base64)).await.map_err(into_io)
    }

    fn understand(&mut self, message: Bytes) -> Received {
        let Some((&first, rest)) = message.split_first() else { return Received::Nothing };
        let (channel, bytes) = if self.protocol.base64 {
            match BASE64.decode(rest) {
                Ok(bytes) => (first.wrapping_sub(b'0'), Bytes::from(bytes)),
                Err(_) => return Received::Nothing,
            }
        } else {
            (first, message.slice(1..))
        };
        match channel {
            STDIN => Received::Stdin(bytes),
            RESIZE => self.resize.push(&bytes),
            CLOSE if self.protocol.half_close && bytes.first() == Some(&STDIN) => Received::StdinClosed,
            _ => Received::Nothing,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Channels for WebSocketChannels<S> {
    async fn receive(&mut self) -> io::Result<Received> {
        Ok(match self.socket.next().await {
            Some(Ok(Message::Binary(bytes))) => self.understand(bytes),
            Some(Ok(Message::Text(text))) => self.understand(text.into()),
            // Pings are answered by the framing below us as it reads on.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Received::Nothing,
            Some(Ok(Message::Close(_)) | Err(_)) | None => Received::Gone,
        })
    }

    async fn send(&mut self, source: Source, chunk: &[u8]) -> io::Result<()> {
        let channel = match source {
            Source::Stdout => STDOUT,
            Source::Stderr => STDERR,
        };
        self.write(channel, chunk).await
    }

    async fn keep_alive(&mut self) -> io::Result<()> {
        self.socket.send(Message::Ping(Bytes::new())).await.map_err(into_io)
    }

    async fn finish(mut self, ending: Ending) -> io::Result<()> {
        if self.protocol.status {
            self.write(ERROR, ending.status().to_string().as_bytes()).await?;
        } else if let Some(sentence) = ending.sentence() {
            self.write(ERROR, sentence.as_bytes()).await?;
        }
        // Without the code `kubectl` reports the close itself as a failure.
        let close = CloseFrame { code: CloseCode::Normal, reason: Default::default() };
        self.socket.close(Some(close)).await.map_err(into_io)?;
        let answered = async { while let Some(Ok(_)) = self.socket.next().await {} };
        let _ = tokio::time::timeout(CLOSE_WAIT, answered).await;
        Ok(())
    }
}

/// The message of a channel: its number in the first byte, or for those that read text in the first digit.
pub(super) fn message(channel: u8, bytes: &[u8], base64: bool) -> Message {
    if base64 {
        return Message::text(format!("{channel}{}", BASE64.encode(bytes)));
    }
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(channel);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

fn into_io(error: WebSocketError) -> io::Error {
    if let WebSocketError::Io(error) = error { error } else { io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn headers(protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, "websocket".parse().unwrap());
        headers.insert(header::SEC_WEBSOCKET_VERSION, "13".parse().unwrap());
        headers.insert(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==".parse().unwrap());
        for protocol in protocols {
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        }
        headers
    }

    fn chosen(protocols: &[&str]) -> Option<String> {
        let (_, response) = accept(&headers(protocols)).ok()?;
        let values: Vec<_> = response.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().collect();
        assert!(values.len() <= 1, "exactly one protocol is answered");
        Some(values.first().map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default())
    }

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        let (_, response) = accept(&headers(&["v5.channel.k8s.io"])).unwrap();
        assert_eq!(response.headers()[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn the_first_known_protocol_in_the_clients_order_is_chosen() {
        assert_eq!(chosen(&["v5.channel.k8s.io, v4.channel.k8s.io"]).as_deref(), Some("v5.channel.k8s.io"));
        assert_eq!(chosen(&["v4.channel.k8s.io", "v5.channel.k8s.io"]).as_deref(), Some("v4.channel.k8s.io"));
        assert_eq!(chosen(&["v9.channel.k8s.io,channel.k8s.io"]).as_deref(), Some("channel.k8s.io"));
        assert_eq!(chosen(&[]).as_deref(), Some(""));
        assert_eq!(chosen(&["v9.channel.k8s.io"]), None);
    }

    #[test]
    fn only_v5_can_close_the_input() {
        for (name, closes) in [("v5.channel.k8s.io", true), ("v4.channel.k8s.io", false), ("channel.k8s.io", false)] {
            assert_eq!(Protocol::named(name).unwrap().half_close, closes, "{name}");
        }
    }
}
