//! Answers in another dress: YAML for those who ask for nothing else, gzip for long ones.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::body::{Body, BoxError};
use crate::negotiate::Accept;

/// Shorter answers are not worth the work.
const WORTH_IT: u64 = 128 * 1024;

/// Whether the client wants YAML more than anything else.
pub(crate) fn wants_yaml(headers: &HeaderMap) -> bool {
    let named =
        headers.get_all(header::ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains("yaml")));
    named && Accept::parse(headers).prefers_yaml()
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
    let long = response.body().size_hint().exact().is_some_and(|size| size > WORTH_IT);
    if !long || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.remove(header::CONTENT_LENGTH);
    response.map(|body| {
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Body::stream(Packed { body, encoder: Some(encoder) })
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

/// A JSON answer as YAML.
pub(crate) async fn as_yaml(response: Response<Body>) -> Response<Body> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
    if !is_json || response.body().size_hint().exact().is_none() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
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
            Response::from_parts(parts, Body::from(text))
        }
        None => {
            parts.status = StatusCode::INTERNAL_SERVER_ERROR;
            Response::from_parts(parts, Body::empty())
        }
    }
}
