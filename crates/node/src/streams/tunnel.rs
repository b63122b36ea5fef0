//! SPDY inside WebSocket messages, as kubectl since 1.31 asks for port-forward: one byte stream, cut into messages
//! wherever it likes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, Bytes};
use futures::{Sink, Stream};
use http::{HeaderMap, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::Error as WebSocketError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::StreamError;
use super::http::listed;

/// The subprotocol.
const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

/// Answers the handshake.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response, StreamError> {
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|_| headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13"))
        .ok_or_else(|| StreamError::bad_request("not a WebSocket handshake of version 13"))?;
    if !listed(headers, header::SEC_WEBSOCKET_PROTOCOL).any(|name| name == PROTOCOL) {
        return Err(StreamError::bad_request("none of the offered WebSocket protocols is spoken here"));
    }
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()))
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    Ok(response.body(Body::empty()).expect("every header above is valid"))
}

/// The bytes inside the messages.
pub(super) struct Tunnel<S> {
    socket: WebSocketStream<S>,
    /// What is left of the last message.
    unread: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Tunnel<S> {
    /// Takes over an upgraded connection.
    pub(super) async fn open(stream: S) -> Self {
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        Self { socket, unread: Bytes::new() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                None | Some(Ok(Message::Close(_)) | Err(WebSocketError::ConnectionClosed)) => {
                    return Poll::Ready(Ok(()));
                }
                Some(Ok(Message::Binary(bytes))) => self.unread = bytes,
                // Pings are answered by the library; text has no meaning here.
                Some(Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(error)) => return Poll::Ready(Err(into_io(error))),
            }
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(into_io)?;
        Pin::new(&mut self.socket).start_send(Message::Binary(Bytes::copy_from_slice(bytes))).map_err(into_io)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(into_io)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(into_io)
    }
}

fn into_io(error: WebSocketError) -> io::Error {
    if let WebSocketError::Io(error) = error { error } else { io::Error::other(error) }
}
