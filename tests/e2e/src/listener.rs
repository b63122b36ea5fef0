//! A server of the test's own, for hooks to speak to: remembers every request, and answers as it is told.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::stage::PATIENCE;

/// Listens until it is dropped.
pub struct Listener {
    /// Where, on loopback.
    pub port: u16,
    requests: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Answers every request with this status.
    pub async fn answering(status: &'static str) -> Result<Self> {
        Self::start(status, None).await
    }

    /// The same over TLS, with the certificate and the key that are in this folder.
    pub async fn secure(pki: &Path) -> Result<Self> {
        let chain = vec![CertificateDer::from_pem_file(pki.join("server.crt"))?];
        let key = PrivateKeyDer::from_pem_file(pki.join("server.key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Self::start("200 OK", Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(status: &'static str, tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (told, requests) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (told, tls) = (told.clone(), tls.clone());
                // Whoever breaks off is heard of by whoever waits for a request.
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => serve(tls.accept(stream).await?, status, &told).await,
                        None => serve(stream, status, &told).await,
                    }
                });
            }
        });
        Ok(Self { port, requests, task })
    }

    /// The next request: its line and its headers, in small letters but for the line.
    pub async fn hears(&mut self) -> Result<String> {
        let request = tokio::time::timeout(PATIENCE, self.requests.recv()).await.context("nobody asks")?;
        request.context("nobody listens")
    }

    /// A request that has come already.
    pub fn heard(&mut self) -> Option<String> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    status: &str,
    told: &mpsc::UnboundedSender<String>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        // Whoever speaks TLS to a server without it is told so in plain text, as Go's server does.
        if request.first() == Some(&0x16) {
            stream
                .write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.")
                .await?;
            return stream.shutdown().await;
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let (line, headers) = text.split_once("\r\n").unwrap_or((&text, ""));
    let _ = told.send(format!("{line}\r\n{}", headers.to_ascii_lowercase()));
    stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    stream.shutdown().await
}
