//! TLS of probes and hooks: spoken, but nobody's certificate is looked at.
//!
//! They ask a pod at its address, for which nobody signs certificates; whoever could answer in its place could do so
//! without TLS as well. Nothing else in the node may use this.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tls::{AcceptAnyCertificate, Signatures};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Shakes hands with whoever is there.
pub(super) async fn connect(host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(config()?).connect(name, stream).await
}

/// Whether the other end answered something that is not TLS at all, as an HTTP server does.
pub(super) fn is_plain_http(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

fn config() -> io::Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    // A probe asks how a server is, not who: certificates too old or too weak to be read will do.
    let config = AcceptAnyCertificate::client_config(Signatures::Ignored).map_err(io::Error::other)?;
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

#[cfg(test)]
pub(super) mod testing {
    use rustls::ServerConfig;
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server with a certificate for somebody else that nobody signed. Answers once; tells what it was asked.
    pub(crate) async fn server(answer: &'static str) -> (u16, JoinHandle<String>) {
        let signed = rcgen::generate_simple_self_signed(vec!["somebody.else".to_owned()]).expect("a test server works");
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("a test server works");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("a test server works")
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .expect("a test server works");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a test server works");
        let port = listener.local_addr().expect("a test server works").port();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a test server works");
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("a test server works");
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.expect("a test server works"));
            }
            stream.write_all(answer.as_bytes()).await.expect("a test server works");
            let _ = stream.shutdown().await;
            String::from_utf8(asked).expect("a test server works")
        });
        (port, served)
    }
}
