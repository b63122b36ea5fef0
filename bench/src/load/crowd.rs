//! What the greedy user does, each kind in tasks of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::clients::{Clients, MAPS};

const STREAMS_PER_CONNECTION: usize = 100;
const BODY: usize = 3 * 1024 * 1024;
/// Before something is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Forms a list is asked for in.
const FORMS: [&str; 4] = [
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
];
/// Lists of each form at once.
const LISTS_OF_A_FORM: usize = 2;

/// Zeros, all but the last.
struct Unfinished {
    left: usize,
}

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];
        let size = (self.left - 1).min(ZEROS.len());
        if size == 0 {
            return Poll::Pending;
        }
        self.left -= size;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&ZEROS[..size])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// Bodies that never end, so many at once; one that is refused begins again.
pub(super) fn unfinished_bodies(clients: &Arc<Clients>, streams: usize, crowd: &mut JoinSet<()>) {
    for _ in 0..streams.div_ceil(STREAMS_PER_CONNECTION) {
        let clients = Arc::clone(clients);
        crowd.spawn(async move {
            loop {
                if let Err(error) = unfinished_on_one_connection(&clients).await {
                    eprintln!("a connection with unfinished bodies ended: {error:#}");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}

async fn unfinished_on_one_connection(clients: &Arc<Clients>) -> Result<()> {
    let stream = TokioIo::new(clients.connect(b"h2").await?);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS_PER_CONNECTION {
        let (mut sender, clients) = (sender.clone(), Arc::clone(clients));
        streams.spawn(async move {
            loop {
                let request = http::Request::post(format!("https://{}{MAPS}", clients.address))
                    .header("authorization", format!("Bearer {}", clients.greedy))
                    .body(Unfinished { left: BODY });
                let Ok(request) = request else { return };
                let answer = sender.send_request(request).await;
                clients.refused.fetch_add(1, Ordering::Relaxed);
                if answer.is_err() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    Ok(connection.await?)
}

/// Connections without a request, every other one without a handshake.
pub(super) fn idle_connections(clients: &Arc<Clients>, many: usize, crowd: &mut JoinSet<()>) {
    for number in 0..many {
        let clients = Arc::clone(clients);
        crowd.spawn(async move {
            let mut one = [0];
            let ended = if number % 2 == 0 {
                match TcpStream::connect(&clients.address).await {
                    Ok(mut stream) => stream.read(&mut one).await,
                    Err(error) => Err(error),
                }
            } else {
                match clients.connect(b"http/1.1").await {
                    Ok(mut stream) => stream.read(&mut one).await,
                    Err(_) => Ok(0),
                }
            };
            drop(ended);
            clients.closed.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// Watchers that read how the answer begins, and nothing else.
pub(super) fn silent_watchers(clients: &Arc<Clients>, many: usize, crowd: &mut JoinSet<()>) {
    for _ in 0..many {
        let clients = Arc::clone(clients);
        crowd.spawn(async move {
            if let Err(error) = watch_in_silence(&clients).await {
                eprintln!("a watch did not begin: {error:#}");
            }
        });
    }
}

async fn watch_in_silence(clients: &Clients) -> Result<()> {
    let mut stream = clients.connect(b"http/1.1").await?;
    let (host, token) = (&clients.address, &clients.greedy);
    let request = format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    ensure!(&status == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
    clients.watching.fetch_add(1, Ordering::Relaxed);
    std::future::pending().await
}

/// Lists of everything, one after the other.
pub(super) fn lists(clients: &Arc<Clients>, crowd: &mut JoinSet<()>) {
    for form in FORMS.iter().cycle().take(FORMS.len() * LISTS_OF_A_FORM) {
        let clients = Arc::clone(clients);
        crowd.spawn(async move {
            loop {
                match list(&clients, form).await {
                    Ok(()) => clients.listed.fetch_add(1, Ordering::Relaxed),
                    Err(_) => {
                        tokio::time::sleep(AGAIN).await;
                        clients.not_listed.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
        });
    }
}

async fn list(clients: &Clients, form: &str) -> Result<()> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(clients.connect(b"http/1.1").await?)).await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::get(MAPS).header("host", &clients.address).header("accept", form);
    let request =
        request.header("authorization", format!("Bearer {}", clients.greedy)).body(Full::<Bytes>::default())?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    connection.abort();
    Ok(())
}
