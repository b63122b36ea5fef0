//! Connections: TLS, HTTP/1.1 and HTTP/2, and a good end.
//!
//! When the server stops it first stops accepting, then ends watches and tells every connection to finish what it has
//! begun; whatever is left after the deadline is dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::identity::Identity;
use crate::proxy::Peer;
use crate::request::Stopping;
use crate::service::ApiService;

/// A client must finish its TLS handshake within this.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first byte of every TLS handshake.
const TLS: u8 = 22;
/// How HTTP begins.
const METHODS: [&[u8]; 7] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO"];
/// As much is read of what somebody says who does not speak TLS.
const HEARD_MAX: usize = 16 * 1024;
/// How long an HTTP/1.1 connection may wait for the headers of its next request.
const IDLE: Duration = Duration::from_secs(90);
/// How often a silent HTTP/2 client is asked whether it is still there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// How long connections may take to finish once the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which usually means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Informers of one client share one connection, one stream each.
const STREAMS_MAX: u32 = 1000;

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
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // A token of its own: a thousand connections that wake together would wait for each other at one.
                    let (service, acceptor, stopping) = (service.clone(), acceptor.clone(), stopping.child_token());
                    connections.spawn(supervision::within(
                        "connection",
                        connection(service, acceptor, stream, peer, stopping),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    stopping.cancel();
    let drained = tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(left = connections.len(), "connections did not finish in time");
        connections.shutdown().await;
    }
    Ok(())
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
    let token = stopping.clone();
    let service = service.map_request(move |mut request: Request<Incoming>| {
        // Nothing from the network arrives as an extension; this is the only place that says who the client is.
        if let Some(identity) = &identity {
            request.extensions_mut().insert(identity.clone());
        }
        request.extensions_mut().insert(Stopping(token.clone()));
        request.extensions_mut().insert(Peer(peer.ip()));
        request
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    http2.keep_alive_interval(PING).keep_alive_timeout(PONG);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::trace!(%peer, %error, "connection ended early");
    }
}
