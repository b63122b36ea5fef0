//! Why a registry did not give what it was asked for.

use std::io;
use std::time::Duration;

use http::StatusCode;

/// Why a registry did not give what it was asked for. No message holds a credential.
#[derive(Debug, thiserror::Error)]
pub(in crate::image) enum FetchError {
    #[error("not found")]
    NotFound,
    #[error("pull access denied, repository does not exist or may require authorization: {why}")]
    Denied { why: String },
    #[error("unexpected status from {method} request to {url}: {status}{}", Remark(.detail))]
    Status { method: &'static str, url: String, status: StatusCode, detail: String, retry_after: Option<Duration> },
    #[error("failed to do request: {method} {url}")]
    Connect { method: &'static str, url: String, source: hyper_util::client::legacy::Error },
    #[error("{url} does not answer: {what} takes longer than {}s", .after.as_secs_f32())]
    TooLate { url: String, what: &'static str, after: Duration },
    #[error("the answer of {url} broke off")]
    Broken { url: String, source: hyper::Error },
    #[error("the answer of {url} ended after {got} of {expected} bytes")]
    Short { url: String, got: u64, expected: u64 },
    #[error("the answer of {url} cannot be used: {why}")]
    Answer { url: String, why: String },
    #[error("{url} redirects to where it must not: {why}")]
    Redirect { url: String, why: String },
    #[error("failed to fetch token from {realm}")]
    Token { realm: String, source: Box<FetchError> },
    #[error("TLS settings for {host} cannot be used: {why}")]
    Tls { host: String, why: String },
}

struct Remark<'a>(&'a str);

impl std::fmt::Display for Remark<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

impl FetchError {
    /// Whether the same request may do better in a moment. `under_way`: the registry already gave part of the image, so
    /// that one that cannot be reached has most likely just gone away for a moment.
    pub(in crate::image) fn is_transient(&self, under_way: bool) -> bool {
        match self {
            Self::NotFound | Self::Denied { .. } | Self::Answer { .. } | Self::Redirect { .. } | Self::Tls { .. } => {
                false
            }
            Self::Status { status, .. } => {
                matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
            }
            Self::Connect { source, .. } if is_about_tls(source) => false,
            // A connection that stood and was cut is worth another try; one that could not be made only mid-way.
            Self::Connect { source, .. } => under_way || !source.is_connect(),
            Self::TooLate { .. } | Self::Broken { .. } | Self::Short { .. } => true,
            Self::Token { source, .. } => source.is_transient(under_way),
        }
    }

    /// How long the registry asks us to stay away.
    pub(in crate::image) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Token { source, .. } => source.retry_after(),
            Self::NotFound
            | Self::Denied { .. }
            | Self::Connect { .. }
            | Self::TooLate { .. }
            | Self::Broken { .. }
            | Self::Short { .. }
            | Self::Answer { .. }
            | Self::Redirect { .. }
            | Self::Tls { .. } => None,
        }
    }

    /// Whether other credentials might be let in.
    pub(in crate::image) fn is_refusal(&self) -> bool {
        match self {
            Self::Denied { .. } => true,
            Self::Token { source, .. } => source.is_refusal(),
            Self::NotFound
            | Self::Status { .. }
            | Self::Connect { .. }
            | Self::TooLate { .. }
            | Self::Broken { .. }
            | Self::Short { .. }
            | Self::Answer { .. }
            | Self::Redirect { .. }
            | Self::Tls { .. } => false,
        }
    }
}

/// Whether the connection stands but the two sides could not agree on TLS: no repetition changes that.
fn is_about_tls(error: &hyper_util::client::legacy::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if cause.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        source = cause.source();
    }
    false
}
