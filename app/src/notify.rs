//! What whoever started us is told: systemd, or anyone else who set `NOTIFY_SOCKET`.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tracing::warn;

/// Everyone can be served.
pub(crate) fn ready(status: &str) {
    say(&format!("READY=1\nSTATUS={status}"));
}

/// How things stand, while we go on.
pub(crate) fn status(status: &str) {
    say(&format!("STATUS={status}"));
}

/// The end has begun, and takes up to so much longer than usual.
pub(crate) fn stopping(status: &str, longer: Duration) {
    let more = if longer.is_zero() { String::new() } else { format!("\nEXTEND_TIMEOUT_USEC={}", longer.as_micros()) };
    say(&format!("STOPPING=1\nSTATUS={status}{more}"));
}

fn say(words: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    // Nobody is served worse because nobody hears it.
    if let Err(error) = send(socket.as_bytes(), words) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn send(socket: &[u8], words: &str) -> io::Result<()> {
    let address = match socket {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address).map(drop)
}
