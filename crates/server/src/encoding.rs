//! Answers in another dress: YAML and protobuf for those who ask for nothing else, gzip for long ones.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use api::Status;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::body::{Body, BoxError};
use crate::negotiate::{Accept, Media};
use crate::respond;

/// Shorter answers are not worth the work.
const WORTH_IT: u64 = 128 * 1024;

/// What the answer is to be written in.
pub(crate) fn wanted(headers: &HeaderMap) -> Media {
    // Most requests name nothing but JSON: one look spares them the parsing.
    let named = |text: &str| text.contains("yaml") || text.contains("protobuf");
    let any = headers.get_all(header::ACCEPT).iter().any(|value| value.to_str().is_ok_and(named));
    if any { Accept::parse(headers).media() } else { Media::Json }
}

/// Whether the client can unpack gzip and wants to.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|part| {
        let mut words = part.split(';').map(str::trim);
        let named = words.next().is_some_and(|word| word.eq_ignore_ascii_case("gzip"));
        named && !words.any(|word| matches!(word, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// The answer, packed if it is long. Streams of unknown length are left alone: each of their lines is awaited.
pub(crate) fn packed(mut response: Response<Body>) -> Response<Body> {
    if !response.body().is_longer_than(WORTH_IT) || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.remove(header::CONTENT_LENGTH);
    response.map(|body| {
        let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        body.rewritten_by_frame(|body| Packed { body, encoder })
    })
}

/// A body that is packed frame by frame, so that memory stays bounded however long it is.
struct Packed {
    body: Body,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl http_body::Body for Packed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if self.encoder.is_none() {
                return Poll::Ready(None);
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            let Some(mut encoder) = self.encoder.take() else { return Poll::Ready(None) };
            let packed = match frame {
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    let written = encoder.write_all(&data).map(|()| std::mem::take(encoder.get_mut()));
                    self.encoder = Some(encoder);
                    written
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => encoder.finish(),
            };
            match packed {
                Ok(packed) if packed.is_empty() => {}
                Ok(packed) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from(packed))))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}

fn is_json(response: &Response<Body>) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json")
}

/// Marks the answer to a watch, whose body is lines of events and not one object.
#[derive(Clone, Copy)]
pub(crate) struct Watched;

/// The media type of protobuf, and of a watch in it.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// A JSON answer as protobuf. What has no message (`/version`, discovery) stays as it is.
pub(crate) async fn as_protobuf(response: Response<Body>) -> Response<Body> {
    if !is_json(&response) {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    if parts.extensions.get::<Watched>().is_some() {
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_WATCH));
        let events = body.rewritten_by_frame(|body| body.map_frame(|frame| frame.map_data(|lines| as_events(&lines))));
        return Response::from_parts(parts, events);
    }
    let guards = body.take_guards();
    let Ok(whole) = body.collect().await else {
        return respond::status(&Status::internal("the answer broke off"));
    };
    let whole = whole.to_bytes();
    let written = serde_json::from_slice(&whole).map(|object| api::protobuf::encode_envelope(&object));
    match written {
        Ok(Ok(Some(written))) => {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::rewritten(guards, Body::from(written)))
        }
        Ok(Ok(None)) | Err(_) => Response::from_parts(parts, Body::rewritten(guards, Body::from(whole))),
        Ok(Err(unwritable)) => respond::status(&Status::internal(&unwritable.to_string())),
    }
}

/// Lines of a watch, whole as they are sent, as frames.
fn as_events(lines: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(lines.len());
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
        let kind = event["type"].as_str().unwrap_or_default();
        match api::protobuf::encode_envelope(&event["object"]) {
            Ok(Some(object)) => out.extend(api::protobuf::encode_event(kind, &object)),
            // The client lists again, and is told there what is wrong.
            Ok(None) | Err(_) => {
                let told = Status::internal("an event cannot be written as protobuf").to_json();
                if let Ok(Some(object)) = api::protobuf::encode_envelope(&told) {
                    out.extend(api::protobuf::encode_event("ERROR", &object));
                }
            }
        }
    }
    out.into()
}

/// A JSON answer as YAML.
pub(crate) async fn as_yaml(response: Response<Body>) -> Response<Body> {
    if !is_json(&response) || response.body().size_hint().exact().is_none() {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    let guards = body.take_guards();
    let text = match body.collect().await {
        Ok(whole) => {
            serde_json::from_slice::<Value>(&whole.to_bytes()).ok().and_then(|value| api::decode::to_yaml(&value))
        }
        Err(_) => None,
    };
    match text {
        Some(text) => {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::rewritten(guards, Body::from(text)))
        }
        None => {
            parts.status = StatusCode::INTERNAL_SERVER_ERROR;
            Response::from_parts(parts, Body::empty())
        }
    }
}
