//! The least client that speaks HTTPS: one connection, one request at a time, so that the client costs little.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where the server is, and who we are to it.
#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    tls: TlsConnector,
}

impl Target {
    pub(crate) async fn read(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let address = config.cluster_url.authority().context("an address")?.to_string();
        Ok(Self { address, tls: TlsConnector::from(Arc::new(tls)) })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let (sender, connection) = handshake(TokioIo::new(self.stream().await?)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender, host: self.address.clone() })
    }

    /// Asks for what has no end, and answers all that comes, as it comes: who only looks for something in a watch
    /// needs to know nothing of HTTP.
    pub(crate) async fn follow(&self, path: &str) -> Result<TlsStream<TcpStream>> {
        let mut stream = self.stream().await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nuser-agent: bench\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        ensure!(&status == b"HTTP/1.1 200", "GET {path}: {}", String::from_utf8_lossy(&status));
        Ok(stream)
    }

    async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').context("a port")?.0.to_owned();
        Ok(self.tls.connect(ServerName::try_from(host)?, stream).await?)
    }
}

/// One connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    /// Sends a request; answers the body, to be read.
    pub(crate) async fn open(&mut self, method: &str, path: &str, body: Bytes) -> Result<Incoming> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .header("user-agent", "bench")
            .body(Full::new(body))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let said = response.into_body().collect().await?.to_bytes();
        anyhow::bail!("{method} {path}: {status}: {}", String::from_utf8_lossy(&said))
    }

    /// Sends a request and reads the answer; how long it was.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: Bytes) -> Result<usize> {
        let mut answer = self.open(method, path, body).await?;
        let mut length = 0;
        while let Some(frame) = answer.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        ensure!(length > 0, "an empty answer");
        self.sender.ready().await?;
        Ok(length)
    }
}
