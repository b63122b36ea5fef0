//! Messages for probes that got no answer. They are upstream's, because programs match them in events.

use std::io;
use std::time::Duration;

use super::{HttpGet, HttpGetError, ProbeAction, tls};

/// An attempt took too long.
pub(super) fn out_of_time(action: &ProbeAction, timeout: Duration) -> String {
    match action {
        ProbeAction::Exec(command) => format!("command timed out: {:?} timed out after {timeout:?}", command.join(" ")),
        ProbeAction::HttpGet(get) => {
            format!("Get {:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)", url(get))
        }
        ProbeAction::TcpSocket { host, port } => format!("dial tcp {}: i/o timeout", authority(host, *port)),
        ProbeAction::Grpc(asked) => {
            let to = authority(&asked.host, asked.port);
            format!("timeout: health rpc to {to:?} did not complete within {timeout:?}")
        }
    }
}

/// A request got no answer.
pub(super) fn unanswered(get: &HttpGet, error: &HttpGetError) -> String {
    let why = match error {
        HttpGetError::Connect { host, port, source } => no_connection(host, *port, source),
        HttpGetError::Tls { source, .. } if tls::is_plain_http(source) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        HttpGetError::Answer { source, .. } if source.is_incomplete_message() => "EOF".to_owned(),
        HttpGetError::Tls { .. } | HttpGetError::Answer { .. } | HttpGetError::Invalid { .. } => {
            supervision::error_chain(error)
        }
    };
    format!("Get {:?}: {why}", url(get))
}

/// The connection was refused, or the host is unreachable.
pub(super) fn no_connection(host: &str, port: u16, error: &io::Error) -> String {
    let text = error.to_string();
    let why = match text.split_once(" (os error") {
        Some((system, _)) => format!("connect: {}", system.to_lowercase()),
        None => text,
    };
    format!("dial tcp {}: {why}", authority(host, port))
}

fn url(get: &HttpGet) -> String {
    let scheme = if get.scheme.eq_ignore_ascii_case("https") { "https" } else { "http" };
    let path = get.path.strip_prefix('/').unwrap_or(&get.path);
    format!("{scheme}://{}/{path}", authority(&get.host, get.port))
}

/// An address as it is written in a URL.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
