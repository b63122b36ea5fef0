//! Single requests to a cluster, by path: what people ask for is any kind, known to this program or not.

use std::io;

use anyhow::{Result, anyhow, bail};
use futures::TryStreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use tokio::io::AsyncBufRead;
use tokio_util::io::StreamReader;

use crate::cluster::Cluster;

/// Larger answers are no use to anybody who reads them.
const ANSWER_BYTES_MOST: usize = 512 << 20;
/// So many warnings of one answer are shown.
const WARNINGS_MOST: usize = 64;

/// What an answer says.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether something was made.
    pub status: StatusCode,
    /// The object, list or status.
    pub value: Value,
    /// What the server warns of.
    pub warnings: Vec<String>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    accept: &'static str,
    body: Option<(&'static str, Vec<u8>)>,
    doing: String,
}

/// Answers as they are.
const JSON: &str = "application/json";
/// Answers as rows for people, from whoever can.
pub(crate) const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// A change of some fields.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
/// The fields that are wanted to be as they are written.
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Call {
    /// Asks for what is at `path`. `doing` says it in words: `get pod web`.
    pub(crate) fn get(path: impl Into<String>, doing: impl Into<String>) -> Self {
        Self::new(Method::GET, path, doing)
    }

    pub(crate) fn new(method: Method, path: impl Into<String>, doing: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: Vec::new(), accept: JSON, body: None, doing: doing.into() }
    }

    /// With a parameter.
    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// With a parameter, if there is a value for it.
    pub(crate) fn maybe(self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: &Value) -> Self {
        self.body = Some((content_type, body.to_string().into_bytes()));
        self
    }

    /// A request for the client, which knows where the cluster is.
    pub(crate) fn request(&self) -> Result<Request<Vec<u8>>> {
        let mut target = self.path.clone();
        for (number, (name, value)) in self.query.iter().enumerate() {
            target.push(if number == 0 { '?' } else { '&' });
            target.push_str(&format!("{name}={}", escaped(value)));
        }
        let mut request = Request::builder().method(&self.method).uri(target).header(ACCEPT, self.accept);
        if let Some((content_type, _)) = &self.body {
            request = request.header(CONTENT_TYPE, *content_type);
        }
        Ok(request.body(self.body.clone().map_or_else(Vec::new, |(_, body)| body))?)
    }
}

/// A part of a path or a parameter, with everything written out that has a meaning there.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => shown.push(char::from(byte)),
            byte => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

impl Cluster {
    /// Asks, and answers what came; a refusal is an error in words.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Answer> {
        match self.try_ask(call).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error, &call.doing)),
        }
    }

    /// The same; nothing if it is not there.
    pub(crate) async fn find(&self, call: &Call) -> Result<Option<Answer>> {
        match self.try_ask(call).await {
            Ok(answer) => Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.explain(error, &call.doing)),
        }
    }

    pub(crate) async fn try_ask(&self, call: &Call) -> kube::Result<Answer> {
        let request = call.request().map_err(|error| kube::Error::Service(error.into()))?;
        let answer = self.client.send(request.map(Body::from)).await?;
        let status = answer.status();
        let warnings = warnings(&answer);
        let whole = Limited::new(answer.into_body(), ANSWER_BYTES_MOST).collect().await;
        let bytes = whole.map_err(kube::Error::Service)?.to_bytes();
        if !status.is_success() {
            return Err(kube::Error::Api(refusal(status, &bytes).into()));
        }
        let value = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
        Ok(Answer { status, value, warnings })
    }

    /// Asks for something that comes bit by bit.
    pub(crate) async fn stream(&self, call: &Call) -> Result<impl AsyncBufRead + Unpin + use<>> {
        let answer = self.client.send(call.request()?.map(Body::from)).await;
        let answer = answer.map_err(|error| self.explain(error, &call.doing))?;
        let status = answer.status();
        if !status.is_success() {
            let whole = Limited::new(answer.into_body(), ANSWER_BYTES_MOST).collect().await;
            let bytes = whole.map_err(|error| anyhow!("cannot {}: {error}", call.doing))?.to_bytes();
            return Err(self.explain(kube::Error::Api(refusal(status, &bytes).into()), &call.doing));
        }
        Ok(StreamReader::new(Box::pin(answer.into_body().into_data_stream().map_err(io::Error::other))))
    }
}

/// Why the server refuses, as it says.
fn refusal(code: StatusCode, body: &[u8]) -> Status {
    let said = serde_json::from_slice::<Status>(body).ok().filter(|status| !status.message.is_empty());
    let mut status = said.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&body[..body.len().min(1000)]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = code.canonical_reason().unwrap_or("unknown");
        Status::failure(if text.is_empty() { reason } else { &text }, reason)
    });
    status.code = code.as_u16();
    status
}

/// The warnings of an answer: `299 - "text"`.
fn warnings<B>(answer: &Response<B>) -> Vec<String> {
    let all = answer.headers().get_all("warning").iter().filter_map(|value| value.to_str().ok());
    all.filter_map(warning).take(WARNINGS_MOST).collect()
}

fn warning(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1.rsplit_once('"')?.0;
    let mut text = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        // What would end the text, or change how a terminal shows it.
        match letter {
            '\\' => text.extend(letters.next()),
            letter if letter.is_control() => text.push(' '),
            letter => text.push(letter),
        }
    }
    Some(text)
}

/// A name that may become part of a path: kinds differ in what they allow, and none allows these.
pub(crate) fn path_segment(name: &str) -> Result<String> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') || name.contains('%') {
        bail!("{name:?} cannot be the name of an object");
    }
    Ok(escaped(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn request_escapes_what_has_a_meaning_in_its_target() {
        let call =
            Call::get("/api/v1/pods", "get pods").query("labelSelector", "app in (a,b)").maybe("x", None::<String>);
        let request = call.request().unwrap();
        assert_eq!(request.uri(), "/api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29");
        assert_eq!(path_segment("system:node").unwrap(), "system%3Anode");
        for name in ["", ".", "..", "a/b", "a%2f"] {
            assert!(path_segment(name).is_err(), "{name}");
        }
    }

    #[test]
    fn warning_is_shown_without_its_quotes_and_without_what_moves_the_cursor() {
        assert_eq!(warning(r#"299 - "grace of \"0\" is short""#).unwrap(), r#"grace of "0" is short"#);
        assert_eq!(warning("299 - \"a\u{1b}[2Jb\"").unwrap(), "a [2Jb");
        assert_eq!(warning("299"), None);
    }

    #[test]
    fn refusal_without_a_status_says_what_the_server_said() {
        let status = refusal(StatusCode::BAD_GATEWAY, b"<html>no\n upstream</html>");
        assert_eq!((status.code, status.message.as_str()), (502, "<html>no upstream</html>"));
        let status =
            refusal(StatusCode::NOT_FOUND, br#"{"kind":"Status","message":"pods \"x\" not found","code":404}"#);
        assert_eq!(status.message, "pods \"x\" not found");
    }
}
