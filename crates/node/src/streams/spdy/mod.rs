//! SPDY/3.1, the server's side of it: the stream protocol of `kubectl` before 1.30, and its fallback since.
//!
//! Only what Kubernetes clients use is here: streams that the client opens, headers, data, half-closing, resets and
//! pings. There is no push, no priority, and nothing is held back for the peer's window, because no client of
//! Kubernetes ever widens it: one that was obeyed would stall for good after 64 KiB.

pub(super) mod connection;
pub(super) mod exec;
pub(super) mod frame;
pub(super) mod headers;

use http::{HeaderMap, header};

use super::http::listed;

/// The name in the `Upgrade` header.
pub(super) const PROTOCOL: &str = "SPDY/3.1";

/// True if the request asks for SPDY.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    listed(headers, header::UPGRADE).any(|name| name.eq_ignore_ascii_case(PROTOCOL))
}
