//! Connections: TLS, HTTP/1.1 and HTTP/2, and a good end.
//!
//! When the server stops it first stops accepting, then ends watches and tells every connection to finish what it has
//! begun; whatever is left after the deadline is dropped. What a client may hold that does nothing is bounded: connections
//! ([`crate::connections`]), streams, headers, and bytes that are not read.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::connections::{Connections, Limits, OpenConnection};
use crate::identity::Identity;
use crate::inflight;
use crate::proxy::Peer;
use crate::request::Stopping;
use crate::service::ApiService;
use crate::ui::CertificateEnds;

/// A client must finish its TLS handshake within this.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first byte of every TLS handshake.
const TLS: u8 = 22;
/// How HTTP begins.
const METHODS: [&[u8]; 7] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO"];
/// As much is read of what somebody says who does not speak TLS.
const HEARD_MAX: usize = 16 * 1024;
/// How long a connection may be without a request, the headers of the next one included.
const IDLE: Duration = Duration::from_secs(90);
/// How often a silent HTTP/2 client is asked whether it is still there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// How long connections may take to finish once the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which usually means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Requests at once on one connection: of a user as many as upstream allows, of a node one for each of its informers.
const STREAMS_MAX: u32 = 100;
const SYSTEM_STREAMS_MAX: u32 = 1000;
/// So much of a request's body may arrive before it is read, on a stream and on all of a connection: one body that waits does not stop
/// the others.
const UPLOAD_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * UPLOAD_WINDOW;
/// So much of an answer waits for a client that does not read, on one stream.
const SEND_BUFFER: usize = 64 * 1024;
/// Most bytes of headers (HTTP/2), and of headers or an unread answer (HTTP/1.1: an address alone may have 64 KiB).
const HEADERS_MAX: u32 = 64 * 1024;
const HTTP1_BUFFER: usize = 96 * 1024;
/// How long a connection may take to close that has no request.
const CLOSE: Duration = Duration::from_secs(5);
/// Idle connections that are closed at once when the process has no descriptors left.
const SHED_AT_ONCE: usize = 64;

pub(crate) async fn serve(
    service: ApiService,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let stopping = CancellationToken::new();
    // However this future ends, its watches and connections end with it.
    let _guard = stopping.clone().drop_guard();
    let worked = Arc::clone(&service.state.worked);
    // All addresses share one limit.
    let new = || Connections::new(Limits::with_descriptors(descriptors()));
    let open = service.state.connections.get_or_init(new).clone();
    let mut tasks = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => worked.notify_one(),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let Some(place) = open.accept(peer.ip()) else {
                        tracing::debug!(%peer, "a connection was refused: too many are busy");
                        continue;
                    };
                    // A token of its own: a thousand connections that wake together would wait for each other at one.
                    let (service, acceptor, stopping) = (service.clone(), acceptor.clone(), stopping.child_token());
                    tasks.spawn(supervision::within(
                        "connection",
                        connection(service, acceptor, stream, peer, stopping, Arc::new(place)),
                    ));
                }
                Err(error) => {
                    let closed = open.shed_idle(SHED_AT_ONCE);
                    tracing::warn!(%error, closed, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    stopping.cancel();
    let drained = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(left = tasks.len(), "connections did not finish in time");
        tasks.shutdown().await;
    }
    Ok(())
}

/// How many descriptors this process may have.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Answers somebody who speaks something else than TLS: who speaks HTTP is told so, as upstream tells, and others are let go.
async fn refuse_plain_http(mut stream: TcpStream) -> io::Result<()> {
    let mut said = Vec::with_capacity(HEARD_MAX);
    while said.len() < 5 && stream.read_buf(&mut said).await? > 0 {}
    let speaks_http = METHODS.iter().any(|method| said.starts_with(method));
    if speaks_http {
        stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n").await?;
        stream.shutdown().await?;
        // With something unread, closing would take the answer back.
        let _ = tokio::io::copy(&mut stream.take(HEARD_MAX as u64), &mut tokio::io::sink()).await;
    }
    Ok(())
}

async fn connection(
    service: ApiService,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    stopping: CancellationToken,
    place: Arc<OpenConnection>,
) {
    // An event is one small write; waiting for more to send with it would only delay it.
    let _ = stream.set_nodelay(true);
    let greeted = async {
        let mut first = [0];
        stream.peek(&mut first).await?;
        match first {
            [TLS] => acceptor.accept(stream).await.map(Some),
            _ => refuse_plain_http(stream).await.map(|()| None),
        }
    };
    let handshake = tokio::select! {
        done = tokio::time::timeout(HANDSHAKE, greeted) => done,
        () = place.shed.cancelled() => return tracing::debug!(%peer, "a connection without a handshake made room for another"),
        () = stopping.cancelled() => return,
    };
    let stream = match handshake {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return tracing::debug!(%peer, "a client did not speak TLS"),
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let identity =
        certificate.and_then(|certificate| Some(Identity::from_certificate(certificate)?.shown_by(certificate)));
    let ends = certificate.and_then(certificate_end);
    let good_for = ends.map(|end| good_for(end, service.state.now()));
    let is_system = identity.as_ref().is_some_and(inflight::is_exempt);
    if !place.shown(is_system) {
        return tracing::debug!(%peer, "a connection was refused: all connections of users are busy");
    }
    let (token, requests, worked) = (stopping.clone(), Arc::clone(&place), Arc::clone(&service.state.worked));
    let service = service_fn(move |mut request: Request<Incoming>| {
        // Nothing from the network arrives as an extension; this is the only place that says who the client is.
        if let Some(identity) = &identity {
            request.extensions_mut().insert(identity.clone());
        }
        if let Some(ends) = ends {
            request.extensions_mut().insert(CertificateEnds(ends));
        }
        request.extensions_mut().insert(Stopping(token.clone()));
        request.extensions_mut().insert(Peer(peer.ip()));
        request.extensions_mut().insert(requests.asker());
        let (busy, answer) = (requests.begin(), service.clone().oneshot(request));
        let (worked, place, ends) = (Arc::clone(&worked), Arc::clone(&requests), token.clone());
        async move {
            let mut answer = answer.await?;
            worked.notify_one();
            match answer.status() {
                StatusCode::SWITCHING_PROTOCOLS => place.upgraded(busy, ends),
                _ => answer.body_mut().send_for(busy),
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let builder = protocols(is_system);
    let stream = Placed { stream: TokioIo::new(stream), _place: Arc::clone(&place) };
    let connection = builder.serve_connection_with_upgrades(stream, service);
    tokio::pin!(connection);
    let ends = async {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = place.shed.cancelled() => {}
            () = idle(&place) => {}
            // Whoever has a newer one comes back with it.
            () = over(good_for) => {}
        }
    };
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = place.unread() => return tracing::debug!(%peer, "a client did not take its answer"),
        () = ends => {
            connection.as_mut().graceful_shutdown();
            match stopping.is_cancelled() {
                true => connection.await,
                // It has no request, or its user has too many: what it has begun to send is not waited for.
                false => tokio::time::timeout(CLOSE, connection).await.unwrap_or(Ok(())),
            }
        }
    };
    if let Err(error) = result {
        tracing::trace!(%peer, %error, "connection ended early");
    }
}

/// When a client's certificate ends.
fn certificate_end(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(Timestamp::from_second(certificate.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX))
}

/// For how long something is good that ends then.
fn good_for(end: Timestamp, now: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(end.as_second().saturating_sub(now.as_second())).unwrap_or_default())
}

/// Until that time is over; for ever if nothing ends.
async fn over(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// How HTTP is spoken with users, and with nodes and administrators.
fn protocols(is_system: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HTTP1_BUFFER);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PONG);
    http2.max_header_list_size(HEADERS_MAX).max_send_buf_size(SEND_BUFFER);
    http2.initial_stream_window_size(UPLOAD_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    http2.max_concurrent_streams(if is_system { SYSTEM_STREAMS_MAX } else { STREAMS_MAX });
    builder
}

/// Until the connection has had no request for too long.
async fn idle(place: &OpenConnection) {
    loop {
        let idle = place.idle_for().unwrap_or_default();
        if idle >= IDLE {
            return;
        }
        tokio::time::sleep(IDLE - idle).await;
    }
}

/// A stream that keeps its place for as long as it is open, also when it has become another protocol's.
struct Placed<S> {
    stream: S,
    _place: Arc<OpenConnection>,
}

impl<S: hyper::rt::Read + Unpin> hyper::rt::Read for Placed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: hyper::rt::Write + Unpin> hyper::rt::Write for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }
}
