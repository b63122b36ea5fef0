//! HTTP as bytes, so that nothing helps the server by being clever.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Asks once; returns the status code and the whole body.
pub(crate) async fn get(mut client: DuplexStream, path: &str) -> (u16, String) {
    // An answer of HTTP/1.0 ends with its connection.
    client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let (code, _) = head(&mut client).await;
    let mut body = String::new();
    client.read_to_string(&mut body).await.unwrap();
    (code, body)
}

/// Sends a request with these headers; returns the status code and the answer's head.
pub(crate) async fn upgrade(client: &mut DuplexStream, request: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut text = format!("{request} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    client.write_all((text + "\r\n").as_bytes()).await.unwrap();
    head(client).await
}

/// Reads up to the empty line and not a byte further.
pub(crate) async fn head(client: &mut DuplexStream) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head)
}

/// A body that should be a `Status`.
pub(crate) fn status_of(body: &str) -> Value {
    let status: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body:?}"));
    assert_eq!(status["kind"], "Status");
    status
}

/// Waits until a process of this machine has ended.
pub(crate) async fn ended(pid: i32) {
    let wait = move || {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        // A process that cannot be opened is gone already.
        let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return true };
        let mut poll = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut poll, Some(&rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap() > 0
    };
    assert!(tokio::task::spawn_blocking(wait).await.unwrap(), "process {pid} still runs");
}
