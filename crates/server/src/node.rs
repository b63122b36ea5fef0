//! How the server reaches a node: a byte stream that speaks HTTP/1.1 with upstream's kubelet paths.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::body::BoxError;
use crate::pki::Pki;
use crate::request::key;
use crate::state::{State, core_kind};

/// A byte stream to a node.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What [`NodeDialer::dial`] answers.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// How the server reaches a node's kubelet-style HTTP API (logs, exec): a pipe in memory for a node in the same process,
/// [`RemoteNodes`] for others.
pub trait NodeDialer: Send + Sync {
    /// Opens a stream to the node called `node`, which says of itself that it listens `at`.
    fn dial<'a>(&'a self, node: &'a str, at: Option<SocketAddr>) -> Dialing<'a>;
}

/// For servers without nodes of their own: every dial fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNodes;

impl NodeDialer for NoNodes {
    fn dial<'a>(&'a self, _node: &'a str, _at: Option<SocketAddr>) -> Dialing<'a> {
        Box::pin(std::future::ready(Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "this server knows no way to nodes",
        ))))
    }
}

/// How long a node may take to accept a connection and to prove who it is.
const CONNECT: Duration = Duration::from_secs(10);
/// Our own certificate for nodes is made anew this often, long before it expires.
const RENEW: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many nodes' settings are kept at once.
const KEPT_MOST: usize = 1024;

/// Nodes that run elsewhere, reached by TLS; both ends prove who they are ([`crate::pki`]).
pub struct RemoteNodes {
    keys: Pki,
    /// TLS settings by node, and when they were made.
    settings: Mutex<HashMap<String, (Instant, Arc<rustls::ClientConfig>)>>,
}

impl std::fmt::Debug for RemoteNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteNodes").finish_non_exhaustive()
    }
}

impl RemoteNodes {
    /// Nodes whose certificates the authority in `keys` has signed.
    pub fn new(keys: Pki) -> Self {
        Self { keys, settings: Mutex::default() }
    }

    fn settings(&self, node: &str) -> io::Result<Arc<rustls::ClientConfig>> {
        let mut all = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (made, _)| made.elapsed() < RENEW);
        if let Some((_, settings)) = all.get(node) {
            return Ok(Arc::clone(settings));
        }
        if all.len() >= KEPT_MOST {
            all.clear();
        }
        let settings = Arc::new(self.keys.node_client_config(node).map_err(io::Error::other)?);
        all.insert(node.to_owned(), (Instant::now(), Arc::clone(&settings)));
        Ok(settings)
    }
}

impl NodeDialer for RemoteNodes {
    fn dial<'a>(&'a self, node: &'a str, at: Option<SocketAddr>) -> Dialing<'a> {
        Box::pin(async move {
            let says_nothing = || io::Error::new(io::ErrorKind::NotConnected, "it does not say where it listens");
            let at = at.ok_or_else(says_nothing)?;
            let connecting = async {
                let stream = TcpStream::connect(at).await?;
                stream.set_nodelay(true)?;
                let connector = TlsConnector::from(self.settings(node)?);
                connector.connect(ServerName::IpAddress(at.ip().into()), stream).await
            };
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("nobody answers at {at}"));
            let stream = tokio::time::timeout(CONNECT, connecting).await.map_err(late)??;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// The address that a node has by its own word.
pub(crate) fn internal_ip(node: &Value) -> Option<IpAddr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()?.parse().ok()
}

/// Where a node says that it listens, in its own object.
pub(crate) fn listens_at(node: &Value) -> Option<SocketAddr> {
    let ip = internal_ip(node)?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().filter(|port| *port > 0)?;
    Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
}

/// Why a node gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("cannot reach node {node:?}")]
    Dial { node: String, source: io::Error },
    #[error("node {node:?} does not answer")]
    Http { node: String, source: hyper::Error },
}

/// Sends one request on a stream of its own. The answer may be an upgrade.
pub(crate) async fn ask<B>(state: &State, node: &str, request: Request<B>) -> Result<Response<Incoming>, AskError>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let at = state.store.get(&key(core_kind("nodes"), "", node)).and_then(|object| listens_at(&object.value()));
    let stream = state.nodes.dial(node, at).await.map_err(|source| AskError::Dial { node: node.to_owned(), source })?;
    converse(stream, request).await.map_err(|source| AskError::Http { node: node.to_owned(), source })
}

/// Sends one request on `stream`, which is used for nothing else.
pub(crate) async fn converse<B>(
    stream: Box<dyn Stream>,
    request: Request<B>,
) -> Result<Response<Incoming>, hyper::Error>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends by itself: with the answer's last byte, or when the upgraded stream is handed over.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a stream to a node or a backend broke");
        }
    });
    sender.send_request(request).await
}
