//! How the server reaches a node: a byte stream that speaks HTTP/1.1 with upstream's kubelet paths.

use std::io;
use std::pin::Pin;

use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to a node.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What [`NodeDialer::dial`] answers.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// How the server reaches a node's kubelet-style HTTP API (logs, exec). In `adieu up` it is an in-memory pipe.
pub trait NodeDialer: Send + Sync {
    /// Opens a stream to the node called `node`.
    fn dial<'a>(&'a self, node: &'a str) -> Dialing<'a>;
}

/// For servers without nodes of their own: every dial fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNodes;

impl NodeDialer for NoNodes {
    fn dial<'a>(&'a self, _node: &'a str) -> Dialing<'a> {
        Box::pin(std::future::ready(Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "this server knows no way to nodes",
        ))))
    }
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
pub(crate) async fn ask(
    dialer: &dyn NodeDialer,
    node: &str,
    request: Request<Empty<bytes::Bytes>>,
) -> Result<Response<Incoming>, AskError> {
    let stream = dialer.dial(node).await.map_err(|source| AskError::Dial { node: node.to_owned(), source })?;
    let http = |source| AskError::Http { node: node.to_owned(), source };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let name = node.to_owned();
    // Ends by itself: with the answer's last byte, or when the upgraded stream is handed over.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(node = name, %error, "the stream to the node broke");
        }
    });
    sender.send_request(request).await.map_err(http)
}
