//! One question by gRPC: `grpc.health.v1.Health/Check`, over HTTP/2 without TLS.
//!
//! ```text
//!  POST /grpc.health.v1.Health/Check        ──>   0 | length (4 bytes) | HealthCheckRequest  { 1: service }
//!  200, application/grpc                    <──   0 | length (4 bytes) | HealthCheckResponse { 1: status }
//!                                           <──   trailers: grpc-status, grpc-message
//! ```
//!
//! One call with two fields of a message each: less than what any gRPC library would bring along.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// The most that an answer may hold; one that says how somebody is takes seven bytes.
const ANSWER_MAX: usize = 4096;

/// Flag and length before every message.
const PREFIX: usize = 5;

/// gRPC's code for a call that went well.
const OK: &str = "0";
/// And for one that nobody knows there.
const UNIMPLEMENTED: &str = "12";

/// Whom to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcCheck {
    /// Address to connect to.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Which of the server's services is meant; empty for the server as a whole.
    pub service: String,
}

/// What the server says of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Serving,
    NotServing,
    ServiceUnknown,
    /// Any other number, zero among them.
    Unknown,
}

impl fmt::Display for Health {
    /// In the protocol's own words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum GrpcError {
    #[error("error: failed to connect service at {address:?}")]
    Connect { address: String, source: std::io::Error },
    #[error("error: failed to connect service at {address:?}")]
    Handshake { address: String, source: hyper::Error },
    #[error("error: health rpc probe failed: {address:?} is not an address")]
    Address { address: String, source: http::Error },
    #[error("error: health rpc probe failed")]
    Call(#[source] hyper::Error),
    #[error("error: health rpc probe failed: the answer could not be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("error: health rpc probe failed: HTTP status {0}")]
    Http(StatusCode),
    #[error("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {0}")]
    Unimplemented(String),
    #[error("error: health rpc probe failed: code {code}: {message}")]
    Refused { code: String, message: String },
    #[error("error: health rpc probe failed: the answer is not a health check's")]
    Malformed,
}

/// Asks once.
pub(super) async fn check(asked: &GrpcCheck) -> Result<Health, GrpcError> {
    let host = if asked.host.contains(':') { format!("[{}]", asked.host) } else { asked.host.clone() };
    let address = format!("{host}:{}", asked.port);
    let request =
        request(&address, &asked.service).map_err(|source| GrpcError::Address { address: address.clone(), source })?;
    let stream = TcpStream::connect((asked.host.as_str(), asked.port))
        .await
        .map_err(|source| GrpcError::Connect { address: address.clone(), source })?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|source| GrpcError::Handshake { address, source })?;
    let call = async {
        let answer = sender.send_request(request).await.map_err(GrpcError::Call)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(GrpcError::Answer)?;
        let trailers = body.trailers().cloned();
        judge(head.status, &head.headers, trailers.as_ref(), body.to_bytes())
    };
    tokio::pin!(call);
    tokio::select! {
        biased;
        answer = &mut call => answer,
        // The connection may be over before the last of the answer has been looked at.
        _ = connection => call.await,
    }
}

fn request(address: &str, service: &str) -> Result<Request<Full<Bytes>>, http::Error> {
    let uri =
        Uri::builder().scheme("http").authority(address).path_and_query("/grpc.health.v1.Health/Check").build()?;
    Request::post(uri)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, "kube-probe/1.36")
        .body(Full::new(question(service)))
}

/// A message with the service's name in its first field; the empty name is the message without one.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8(length.to_le_bytes()[0] | 0x80);
            length >>= 7;
        }
        message.put_u8(length.to_le_bytes()[0]);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put(message);
    framed.freeze()
}

/// What an answer says. A server that has nothing but bad news sends its code with the headers.
fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
    body: Bytes,
) -> Result<Health, GrpcError> {
    let told = |name: &str| {
        let value = trailers.and_then(|trailers| trailers.get(name)).or_else(|| headers.get(name))?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    match told("grpc-status").as_deref() {
        Some(OK) => answer(body).ok_or(GrpcError::Malformed),
        Some(UNIMPLEMENTED) => Err(GrpcError::Unimplemented(told("grpc-message").unwrap_or_default())),
        Some(code) => {
            Err(GrpcError::Refused { code: code.to_owned(), message: told("grpc-message").unwrap_or_default() })
        }
        None if status != StatusCode::OK => Err(GrpcError::Http(status)),
        None => Err(GrpcError::Malformed),
    }
}

/// The status in a framed message: the last of its first fields, unknown fields skipped, as protobuf reads.
fn answer(mut body: Bytes) -> Option<Health> {
    if body.len() < PREFIX || body.get_u8() != 0 {
        return None;
    }
    let length = usize::try_from(body.get_u32()).ok()?;
    if body.len() != length {
        return None;
    }
    let mut status = 0;
    while body.has_remaining() {
        let key = varint(&mut body)?;
        match (key >> 3, key & 7) {
            (1, 0) => status = varint(&mut body)?,
            (_, 0) => _ = varint(&mut body)?,
            (_, 1) => skip(&mut body, 8)?,
            (_, 2) => {
                let length = varint(&mut body)?;
                skip(&mut body, length)?;
            }
            (_, 5) => skip(&mut body, 4)?,
            _ => return None,
        }
    }
    Some(match status {
        1 => Health::Serving,
        2 => Health::NotServing,
        3 => Health::ServiceUnknown,
        _ => Health::Unknown,
    })
}

fn varint(bytes: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn skip(bytes: &mut Bytes, count: u64) -> Option<()> {
    let count = usize::try_from(count).ok().filter(|count| *count <= bytes.len())?;
    bytes.advance(count);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_the_service_in_its_first_field() {
        assert_eq!(question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(question("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = question(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 2]);
    }

    #[test]
    fn an_answer_is_read_as_protobuf_is() {
        let read = |message: &[u8]| {
            let mut framed = vec![0, 0, 0, 0, u8::try_from(message.len()).expect("short")];
            framed.extend(message);
            answer(framed.into())
        };
        assert_eq!(read(&[8, 1]), Some(Health::Serving));
        assert_eq!(read(&[8, 2]), Some(Health::NotServing));
        assert_eq!(read(&[]), Some(Health::Unknown), "zero is not written");
        assert_eq!(read(&[8, 2, 8, 1]), Some(Health::Serving), "the last one counts");
        assert_eq!(read(&[0x12, 1, 7, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 8, 3]), Some(Health::ServiceUnknown));
        for broken in [&[8][..], &[8, 0x80], &[0x12, 9, 1], &[0x0b], &[8, 1, 0x1d, 1]] {
            assert_eq!(read(broken), None, "{broken:?}");
        }
        assert_eq!(answer(Bytes::from_static(&[1, 0, 0, 0, 2, 8, 1])), None, "compressed, which nobody asked for");
        assert_eq!(answer(Bytes::from_static(&[0, 0, 0, 0, 9, 8, 1])), None, "cut");
    }

    #[test]
    fn grpc_error_status_may_come_with_the_headers() {
        let map = |entries: &[(&'static str, &str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &str)| {
                (http::HeaderName::from_static(name), value.parse().expect("a value"))
            };
            entries.iter().map(pair).collect()
        };
        let told = |headers: &[(&'static str, &str)], trailers: Option<&[(&'static str, &str)]>| {
            let (headers, trailers) = (map(headers), trailers.map(map));
            let judged = judge(StatusCode::OK, &headers, trailers.as_ref(), Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1]));
            judged.map_err(|error| error.to_string())
        };
        assert_eq!(told(&[], Some(&[("grpc-status", "0")])), Ok(Health::Serving));
        let refused = told(&[("grpc-status", "5"), ("grpc-message", "unknown service")], None);
        assert_eq!(refused, Err("error: health rpc probe failed: code 5: unknown service".to_owned()));
        assert!(told(&[("grpc-status", "12")], None).is_err_and(|error| error.contains("does not implement")));
        assert!(told(&[], Some(&[("grpc-status", "14")])).is_err(), "an answer that ends badly is none");
        assert!(told(&[], None).is_err());
        let nothing = judge(StatusCode::NOT_FOUND, &HeaderMap::new(), None, Bytes::new());
        assert!(nothing.is_err_and(|error| error.to_string().contains("404")));
    }
}
