//! Answers: objects, lists' frames and refusals as HTTP responses.

use std::sync::Arc;

use api::{Kind, Status};
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use serde_json::Value;

use crate::body::Body;
use crate::negotiate::Form;
use crate::request::Request;
use crate::table;

/// An object to be shown: its value and the same as JSON, both without kind and apiVersion.
pub(crate) enum Shown {
    /// From the store.
    Stored(Arc<store::Object>),
    /// Never stored (dry run), or no longer.
    Made(Arc<Value>),
}

impl Shown {
    pub(crate) fn made(value: Value) -> Self {
        Self::Made(Arc::new(value))
    }

    pub(crate) fn value(&self) -> Arc<Value> {
        match self {
            Self::Stored(object) => object.value(),
            Self::Made(value) => Arc::clone(value),
        }
    }

    /// The object's JSON with `kind` and `apiVersion` put in front, without parsing it again.
    pub(crate) fn framed(&self, kind: &Kind) -> Vec<u8> {
        match self {
            Self::Stored(object) if kind.face.is_none() => framed(kind, &object.json),
            Self::Stored(_) | Self::Made(_) => {
                let value = self.value();
                framed(kind, &to_bytes(kind.to_shown(&value).as_ref().unwrap_or(&value)))
            }
        }
    }
}

/// `{"kind":..,"apiVersion":..,` and the rest of `json`, which must be an object.
pub(crate) fn framed(kind: &Kind, json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() + 64);
    write_framed(&mut out, &kind.kind, kind.api_version(), json);
    out
}

/// As [`framed`], into `out`.
pub(crate) fn write_framed(out: &mut Vec<u8>, kind: &str, api_version: &str, json: &[u8]) {
    out.extend_from_slice(br#"{"kind":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","apiVersion":""#);
    out.extend_from_slice(api_version.as_bytes());
    out.push(b'"');
    let rest = json.strip_prefix(b"{").unwrap_or(json);
    if rest != b"}" {
        out.push(b',');
    }
    out.extend_from_slice(rest);
}

/// One object, in the form the client asked for.
pub(crate) fn object(request: &Request, code: StatusCode, shown: &Shown) -> Result<Response<Body>, Status> {
    object_of(request, &request.kind, code, shown)
}

/// The same for an object of another kind than the path names, such as a scale.
pub(crate) fn object_of(
    request: &Request,
    kind: &Kind,
    code: StatusCode,
    shown: &Shown,
) -> Result<Response<Body>, Status> {
    let bytes = match request.accept.for_objects()? {
        Form::Table { version } => {
            let listed = std::iter::once(shown.value());
            let metadata = serde_json::json!({ "resourceVersion": api::meta::resource_version(&shown.value()) });
            to_bytes(&table::table(
                kind,
                version,
                listed,
                metadata,
                table::Include::parse(&request.query)?,
                request.now,
            ))
        }
        Form::Partial => to_bytes(&table::partial(&shown.value())),
        Form::Object | Form::Discovery { .. } => shown.framed(kind),
    };
    Ok(json(code, prettied(request.pretty, bytes)))
}

/// Serialises a value we made ourselves.
pub(crate) fn to_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value with string keys serialises")
}

/// The same bytes, indented if a person is likely to read them.
pub(crate) fn prettied(pretty: bool, bytes: Vec<u8>) -> Vec<u8> {
    if !pretty {
        return bytes;
    }
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    let mut out = serde_json::to_vec_pretty(&value).expect("a JSON value with string keys serialises");
    out.push(b'\n');
    out
}

/// A JSON answer.
pub(crate) fn json(code: StatusCode, body: impl Into<Body>) -> Response<Body> {
    with_type(code, "application/json", body)
}

/// Plain text.
pub(crate) fn plain(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    with_type(code, "text/plain; charset=utf-8", text.into())
}

/// An answer of some media type.
pub(crate) fn with_type(code: StatusCode, media: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A refusal, or a `Status` that is the answer.
pub(crate) fn status(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, to_bytes(&status.to_json()));
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The answer, with warnings: also a refusal is to say what else was wrong.
pub(crate) fn warned(answer: Result<Response<Body>, Status>, warnings: &[String]) -> Result<Response<Body>, Status> {
    if warnings.is_empty() {
        return answer;
    }
    let mut response = answer.unwrap_or_else(|refusal| status(&refusal));
    // A retried change may have warned more than once.
    let mut seen = std::collections::BTreeSet::new();
    let once: Vec<String> = warnings.iter().filter(|warning| seen.insert(*warning)).cloned().collect();
    warn(&mut response, &once);
    Ok(response)
}

/// Longest warning, and longest sum of them, in characters; beyond the second everyone is cut to the first, as upstream does.
const WARNING_MAX: usize = 256;
const WARNINGS_MAX: usize = 4096;

/// Adds `Warning` headers, which kubectl shows to people. Long ones are cut: clients refuse answers whose headers are too long.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let total: usize = warnings.iter().map(|warning| warning.chars().count()).sum();
    let longest = if total > WARNINGS_MAX { WARNING_MAX } else { WARNINGS_MAX };
    let mut left = WARNINGS_MAX;
    for warning in warnings {
        let length = warning.chars().count().min(longest);
        if length > left {
            return;
        }
        left -= length;
        let escaped: String = warning
            .chars()
            .take(length)
            .filter(|c| !c.is_control())
            .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn lengths(warnings: &[String]) -> Vec<usize> {
        let mut response = Response::new(Body::empty());
        warn(&mut response, warnings);
        response.headers().get_all(header::WARNING).iter().map(|value| value.len() - "299 - \"\"".len()).collect()
    }

    #[test]
    fn warnings_are_whole_as_long_as_there_are_few() {
        assert_eq!(lengths(&["a".repeat(300), "b".repeat(3000)]), [300, 3000]);
        assert_eq!(lengths(&["a".repeat(5000)]), [256]);
        let many: Vec<String> = (0..40).map(|n| format!("{n:0300}")).collect();
        assert_eq!(lengths(&many), vec![256; 16]);
        // Characters are counted, not bytes.
        assert_eq!(lengths(&["\u{e4}".repeat(4096)]), [8192]);
    }
}
