//! One request, its redirects followed, every wait with an end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::Patience;
use super::error::FetchError;
use super::resolver::Resolver;
use super::settings::Settings;
use super::tls::TlsSettings;

const REDIRECTS_MOST: usize = 5;
/// Of an error's body this much is read to tell people what it says.
const REMARK_BYTES_MAX: usize = 16 * 1024;

/// Settings, and when the files they name last changed.
type Trust = (TlsSettings, Vec<Option<SystemTime>>);
type Connections = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// Connections to registries, kept open for the next request.
#[derive(Clone, Default)]
pub(in crate::image) struct Transport {
    pub(in crate::image) patience: Patience,
    resolver: Resolver,
    connections: Arc<Mutex<HashMap<Trust, Connections>>>,
}

/// What is asked. May hold secrets, hence no `Debug`.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// For the first host alone.
    pub(super) authorization: Option<HeaderValue>,
    /// Where it redirects to must be reached by TLS too.
    pub(super) stays_secure: bool,
}

impl Ask {
    pub(super) fn get(url: String) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        let stays_secure = url.starts_with("https://");
        Self { method: Method::GET, url, headers, body, authorization: None, stays_secure }
    }
}

/// An answer whose body is still to come.
pub(in crate::image) struct Answer {
    pub(in crate::image) status: StatusCode,
    pub(in crate::image) headers: HeaderMap,
    url: String,
    body: Incoming,
    stall: Duration,
}

impl Transport {
    pub(in crate::image) fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Asks, and follows where the answer leads.
    pub(super) async fn send(&self, settings: &Settings, ask: Ask) -> Result<Answer, FetchError> {
        let mut url = ask.url.clone();
        let first = origin(&url)?;
        for _ in 0..=REDIRECTS_MOST {
            let here = origin(&url)?;
            // Storage behind a registry gets a signed address, never our credentials.
            let authorization = ask.authorization.clone().filter(|_| here == first);
            let answer = self.send_one(settings, &ask, &url, &here.1, authorization).await?;
            let location = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok());
            let Some(location) = location.filter(|_| answer.status.is_redirection()) else { return Ok(answer) };
            let next = join(&url, location)?;
            if !ask.body.is_empty() && origin(&next)? != first {
                return Err(FetchError::Redirect {
                    url: public(&url),
                    why: "with what was meant for itself".to_owned(),
                });
            }
            if ask.stays_secure && !next.starts_with("https://") {
                return Err(FetchError::Redirect { url: public(&url), why: "away from TLS".to_owned() });
            }
            url = next;
        }
        Err(FetchError::Redirect { url: public(&ask.url), why: format!("more than {REDIRECTS_MOST} times") })
    }

    async fn send_one(
        &self,
        settings: &Settings,
        ask: &Ask,
        url: &str,
        host: &str,
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, FetchError> {
        let connections = self.connections(host, settings.tls(host))?;
        let answer = |why: String| FetchError::Answer { url: public(url), why };
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(url)
            .body(Full::new(ask.body.clone()))
            .map_err(|error| answer(error.to_string()))?;
        *request.headers_mut() = ask.headers.clone();
        request
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(concat!("adieu/", env!("CARGO_PKG_VERSION"))));
        if let Some(value) = authorization {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let after = self.patience.answer;
        let response = match tokio::time::timeout(after, connections.request(request)).await {
            Err(_) => return Err(FetchError::TooLate { url: public(url), what: "an answer", after }),
            Ok(Err(source)) => {
                return Err(FetchError::Connect { method: verb(&ask.method), url: public(url), source });
            }
            Ok(Ok(response)) => response,
        };
        let (parts, body) = response.into_parts();
        let stall = self.patience.stall;
        Ok(Answer { status: parts.status, headers: parts.headers, url: public(url), body, stall })
    }

    fn connections(&self, host: &str, tls: TlsSettings) -> Result<Connections, FetchError> {
        // A file that was changed since makes new connections.
        let key = (tls.clone(), tls.changed());
        let mut all = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&key) {
            return Ok(known.clone());
        }
        let config = tls.config().map_err(|why| FetchError::Tls { host: host.to_owned(), why })?;
        let mut plain = HttpConnector::new_with_resolver(self.resolver.clone());
        plain.enforce_http(false);
        plain.set_connect_timeout(Some(self.patience.connect));
        plain.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(plain);
        let made = Client::builder(TokioExecutor::new())
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Ok(all.entry(key).or_insert(made).clone())
    }
}

impl Answer {
    /// The next piece of the body; `None` at its end.
    pub(in crate::image) async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let frame = match tokio::time::timeout(self.stall, self.body.frame()).await {
                Err(_) => {
                    let what = "the next piece of its answer";
                    return Err(FetchError::TooLate { url: self.url.clone(), what, after: self.stall });
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(source))) => return Err(FetchError::Broken { url: self.url.clone(), source }),
                Ok(Some(Ok(frame))) => frame,
            };
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// The whole body, if it is no longer than that.
    pub(in crate::image) async fn all(mut self, bytes_max: u64) -> Result<Vec<u8>, FetchError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            all.extend_from_slice(&bytes);
            if all.len() as u64 > bytes_max {
                return Err(self.unusable(format!("it is longer than {bytes_max} bytes")));
            }
        }
        Ok(all)
    }

    pub(in crate::image) fn unusable(&self, why: String) -> FetchError {
        FetchError::Answer { url: self.url.clone(), why }
    }

    pub(in crate::image) fn short(&self, got: u64, expected: u64) -> FetchError {
        FetchError::Short { url: self.url.clone(), got, expected }
    }

    /// The error that an answer with this status is.
    pub(super) async fn into_error(mut self, method: &Method) -> FetchError {
        let retry_after = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let mut raw = Vec::new();
        while let Ok(Some(bytes)) = self.next().await {
            raw.extend_from_slice(&bytes[..bytes.len().min(REMARK_BYTES_MAX - raw.len())]);
            if raw.len() == REMARK_BYTES_MAX {
                break;
            }
        }
        let detail = remark(&raw);
        match self.status {
            StatusCode::NOT_FOUND => FetchError::NotFound,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let why = if detail.is_empty() { self.status.to_string() } else { format!("server message: {detail}") };
                FetchError::Denied { why }
            }
            status => FetchError::Status {
                method: verb(method),
                url: self.url,
                status,
                detail,
                retry_after: retry_after.map(Duration::from_secs),
            },
        }
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        _ => "GET",
    }
}

/// What the registry says went wrong, in its own words and in one short line.
fn remark(raw: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Errors {
        errors: Vec<Detail>,
    }
    #[derive(serde::Deserialize)]
    struct Detail {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    const LONGEST: usize = 256;
    let Ok(parsed) = serde_json::from_slice::<Errors>(raw) else { return String::new() };
    let words = parsed.errors.into_iter().map(|error| format!("{}: {}", error.code.to_lowercase(), error.message));
    let line = words.collect::<Vec<_>>().join("; ");
    line.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

/// Scheme, and host with port: who is spoken to.
fn origin(url: &str) -> Result<(String, String), FetchError> {
    let wrong = || FetchError::Answer { url: public(url), why: "it is not an address of the web".to_owned() };
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    match (uri.scheme_str(), uri.authority()) {
        (Some(scheme @ ("http" | "https")), Some(host)) => Ok((scheme.to_owned(), host.to_string())),
        _ => Err(wrong()),
    }
}

/// An address without its query, which may hold a signature.
pub(super) fn public(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// The address that `location` means at `url`.
fn join(url: &str, location: &str) -> Result<String, FetchError> {
    let (scheme, host) = origin(url)?;
    let location = location.split('#').next().unwrap_or_default();
    if location.starts_with("http://") || location.starts_with("https://") {
        return Ok(location.to_owned());
    }
    if let Some(elsewhere) = location.strip_prefix("//") {
        return Ok(format!("{scheme}://{elsewhere}"));
    }
    if location.starts_with('/') {
        return Ok(format!("{scheme}://{host}{location}"));
    }
    let folder = public(url);
    let folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
    Ok(format!("{folder}/{location}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_location_is_understood_as_a_browser_would() {
        let at = "https://r.io:5000/v2/a/blobs/x?q=1";
        for (location, expected) in [
            ("https://cdn.io/y?s=1", "https://cdn.io/y?s=1"),
            ("//cdn.io/y", "https://cdn.io/y"),
            ("/y", "https://r.io:5000/y"),
            ("y?z", "https://r.io:5000/v2/a/blobs/y?z"),
        ] {
            assert_eq!(join(at, location).unwrap(), expected, "{location}");
        }
    }

    #[test]
    fn registry_error_body_becomes_one_short_line() {
        assert_eq!(
            remark(br#"{"errors":[{"code":"DENIED","message":"no\u0007 \n way","detail":{}}]}"#),
            "denied: no  way"
        );
        assert_eq!(remark(b"<html>"), "");
        assert_eq!(remark(format!(r#"{{"errors":[{{"message":"{}"}}]}}"#, "x".repeat(999)).as_bytes()).len(), 256);
    }
}
