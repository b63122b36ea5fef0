//! Logs and watches over a WebSocket, for clients that would rather read messages than a body: a log comes as it is
//! written, a watch as one text message an event (api-surface 10).

use std::time::Duration;

use api::Status;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::connections::UNREAD_EVENTS;
use crate::request::{Request, Verb};

/// How long a client may take to answer our close. It has everything by then; this is only politeness.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The longest message of a client, of whom nothing is wanted.
const HEARD_MAX: usize = 16 * 1024;

/// How an answer's bytes become messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As they come.
    Binary,
    /// As they come, for clients that can read text alone.
    Base64,
    /// One message a line.
    Lines,
}

/// Whether `request` is for a stream of ours, and by WebSocket.
pub(crate) fn is_asked(request: &Request, headers: &HeaderMap) -> bool {
    let is_stream = request.verb == Verb::Watch || request.subresource_name() == Some("log");
    is_stream && listed(headers, header::UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
}

/// Answers with the messages of a WebSocket what `answer` would have said in its body.
pub(crate) fn answer(answer: Response<Body>, request: &Request, parts: &mut Parts) -> Result<Response<Body>, Status> {
    let key = parts
        .headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|_| parts.headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13"))
        .ok_or_else(|| Status::bad_request("not a WebSocket handshake of version 13"))?;
    let mut response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()));
    let mut form = if request.verb == Verb::Watch { Form::Lines } else { Form::Binary };
    // A client that offers nothing we know gets no header, and the plain form.
    for name in listed(&parts.headers, header::SEC_WEBSOCKET_PROTOCOL).filter(|_| form == Form::Binary) {
        let is_binary = name == "binary.k8s.io";
        if is_binary || name == "base64.binary.k8s.io" {
            form = if is_binary { Form::Binary } else { Form::Base64 };
            response = response.header(header::SEC_WEBSOCKET_PROTOCOL, name);
            break;
        }
    }
    let response = response.body(Body::empty()).map_err(|error| Status::internal(&error.to_string()))?;
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| Status::bad_request("this connection cannot become a WebSocket"))?;
    let stopping = request.stopping.clone();
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => tell(upgraded, answer.into_body(), form, stopping).await,
            Err(error) => tracing::debug!(%error, "a WebSocket did not come about"),
        }
    });
    Ok(response)
}

/// Sends the whole of `body`, unless the client goes first, or takes no event for too long.
async fn tell(upgraded: Upgraded, mut body: Body, form: Form, stopping: CancellationToken) {
    let mut socket = {
        let config = WebSocketConfig::default().max_message_size(Some(HEARD_MAX)).max_frame_size(Some(HEARD_MAX));
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
    };
    let mut begun = BytesMut::new();
    loop {
        tokio::select! {
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { break };
                let Ok(data) = frame.into_data() else { continue };
                for message in messages(form, data, &mut begun) {
                    let limit = if form == Form::Lines { UNREAD_EVENTS } else { Duration::MAX };
                    let sent = async { tokio::time::timeout(limit, socket.send(message)).await };
                    // What ends a body cannot end what waits for the client.
                    match stopping.run_until_cancelled(sent).await {
                        Some(Ok(Ok(()))) => {}
                        Some(Ok(Err(_)) | Err(_)) | None => return,
                    }
                }
            }
            // Nothing that a client says matters, but that it is still there.
            said = socket.next() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    let goodbye = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let _ = tokio::time::timeout(CLOSE_WAIT, async {
        if socket.close(Some(goodbye)).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    })
    .await;
}

/// `begun` keeps a line whose end has not come.
fn messages(form: Form, data: Bytes, begun: &mut BytesMut) -> Vec<Message> {
    match form {
        Form::Binary => vec![Message::Binary(data)],
        Form::Base64 => vec![Message::text(BASE64.encode(&data))],
        Form::Lines => {
            begun.extend_from_slice(&data);
            let mut all = Vec::new();
            while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                let line = begun.split_to(end + 1);
                all.push(Message::text(String::from_utf8_lossy(&line).into_owned()));
            }
            all
        }
    }
}

/// The comma-separated words of a header, however many lines it has.
fn listed(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_a_message_however_its_bytes_come() {
        let mut begun = BytesMut::new();
        assert!(messages(Form::Lines, Bytes::from_static(b"{\"a\""), &mut begun).is_empty());
        let got = messages(Form::Lines, Bytes::from_static(b":1}\n{}\n{\"b"), &mut begun);
        assert_eq!(got, [Message::text("{\"a\":1}\n"), Message::text("{}\n")]);
        assert_eq!(&begun[..], b"{\"b");
        let got = messages(Form::Base64, Bytes::from_static(b"adieu"), &mut begun);
        assert_eq!(got, [Message::text("YWRpZXU=")]);
    }
}
