//! `adieu demo-app`: what runs in the pods of `adieu demo`, and in that of `adieu drill`. A web server that is naive on purpose, and
//! the clients that send requests.
//!
//! The server knows nothing of Kubernetes: it closes its listener the moment TERM arrives, and finishes what it has begun. It
//! has no hooks and no endpoint that tells whether it is ready. Whether requests are lost is up to the platform alone.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::{Args, Subcommand};
use futures::stream;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::load::{self, LoadPlan, PIECE_BYTES, PIECE_EVERY, PIECES, SERVED_BY};

/// Where the server listens.
pub(super) const PORT: u16 = 8080;
/// How long a client that is silent when the server leaves may stay: its next request may be on its way.
const IDLE_MOST: Duration = Duration::from_secs(5);

/// `adieu demo-app`.
#[derive(Args, Clone, Debug)]
pub struct DemoAppArgs {
    /// Which part it plays.
    #[command(subcommand)]
    pub role: Role,
}

/// What a pod of the demo does.
#[derive(Subcommand, Clone, Debug)]
pub enum Role {
    /// Answers requests.
    Serve {
        /// Hear TERM, and go on
        #[arg(long)]
        ignore_term: bool,
    },
    /// Sends requests until TERM comes, and counts.
    Load {
        /// Where the requests go.
        address: SocketAddr,
        /// The folder in which the counts are kept.
        report: PathBuf,
    },
    /// Sends the requests of `adieu drill` until TERM comes, and prints the counts.
    Drill(crate::drill::client::ClientArgs),
}

/// Does what the pod is for. `pod` is its name.
pub fn run(args: &DemoAppArgs, pod: &str) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.role {
            Role::Serve { ignore_term: true } => serve(pod, std::future::pending()).await,
            Role::Serve { ignore_term: false } => serve(pod, term()?).await,
            Role::Load { address, report } => {
                let tell = |counts: &load::Counts| {
                    counts.write(report).with_context(|| format!("cannot write to {}", report.display()))
                };
                load::run(LoadPlan::of_demo(*address), term()?, tell).await
            }
            Role::Drill(args) => crate::drill::client::run(args, term()?).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Resolves when TERM comes. As the first process of its namespace this one is not ended by a TERM that nobody listens for.
fn term() -> Result<impl Future<Output = ()>> {
    let mut heard = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    Ok(async move {
        heard.recv().await;
    })
}

/// What the connections know of their server.
#[derive(Default)]
struct Server {
    is_leaving: AtomicBool,
    leaving: Notify,
    open: AtomicUsize,
    closed: Notify,
}

async fn serve(pod: &str, term: impl Future<Output = ()>) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {PORT}"))?;
    let name = HeaderValue::from_str(pod).context("the pod has no name")?;
    let server = Arc::new(Server::default());
    let mut term = std::pin::pin!(term);
    loop {
        tokio::select! {
            biased;
            () = &mut term => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => take(stream, &server, &name),
                // Of a client that has gone again, or for want of descriptors.
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            },
        }
    }
    drop(listener);
    server.is_leaving.store(true, Ordering::SeqCst);
    server.leaving.notify_waiters();
    loop {
        let closed = server.closed.notified();
        let mut closed = std::pin::pin!(closed);
        closed.as_mut().enable();
        if server.open.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        closed.await;
    }
}

/// Answers on one connection, in a task of its own, until its client hangs up or the server leaves.
fn take(stream: TcpStream, server: &Arc<Server>, pod: &HeaderValue) {
    let (server, pod) = (Arc::clone(server), pod.clone());
    server.open.fetch_add(1, Ordering::SeqCst);
    tokio::spawn(async move {
        {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = answer(&request, &pod, server.is_leaving.load(Ordering::SeqCst));
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            let mut connection = std::pin::pin!(connection);
            let until_idle = async {
                let leaving = server.leaving.notified();
                let mut leaving = std::pin::pin!(leaving);
                leaving.as_mut().enable();
                if !server.is_leaving.load(Ordering::SeqCst) {
                    leaving.await;
                }
                tokio::time::sleep(IDLE_MOST).await;
            };
            tokio::select! {
                _ = &mut connection => {}
                () = until_idle => {
                    // What has been asked is answered, however long that takes; then it ends.
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        }
        server.open.fetch_sub(1, Ordering::SeqCst);
        server.closed.notify_waiters();
    });
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn answer(request: &Request<Incoming>, pod: &HeaderValue, is_leaving: bool) -> Response<Body> {
    let body = match request.uri().path() {
        "/download" => download(),
        _ => Full::new(Bytes::from_static(b"hello\n")).boxed_unsync(),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(SERVED_BY, pod.clone());
    if is_leaving {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An answer that takes three seconds.
fn download() -> Body {
    let pieces = stream::unfold(0, |sent| async move {
        if sent == PIECES {
            return None;
        }
        tokio::time::sleep(PIECE_EVERY).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'.'; PIECE_BYTES]))), sent + 1))
    });
    BodyExt::boxed_unsync(StreamBody::new(pieces))
}
