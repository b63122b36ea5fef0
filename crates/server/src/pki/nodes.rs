//! Nodes that run elsewhere: one certificate lets a node in here, and proves to us who answers there.
//!
//! ```text
//!  node ── client certificate system:node:NAME ──▶ API server
//!  node ◀── client certificate kube-apiserver-kubelet-client ── API server   (logs, exec: the node shows its own again)
//! ```
//!
//! A node is recognised by the subject of its certificate, not by an address: it names no host at all, so it can neither
//! be taken for another node nor for the API server, and a node may move.

use std::fmt;
use std::sync::Arc;

use rcgen::ExtendedKeyUsagePurpose;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::node_certificates::{NodeCertificate, NodeCertificates};
use super::{Pki, PkiError, certificate, kubeconfig, leaf, sign};
use crate::identity::Identity;

/// Who the API server is when it calls a node; upstream's installers use the same name.
const CALLER: &str = "kube-apiserver-kubelet-client";

impl Pki {
    /// A kubeconfig with which the node called `node` joins the server at `server_url`. It holds a key that is kept
    /// nowhere else.
    pub fn node_kubeconfig(&self, node: &str, server_url: &str) -> Result<String, PkiError> {
        let user = format!("system:node:{node}");
        let mut params = leaf(&user, Some("system:nodes"), ExtendedKeyUsagePurpose::ClientAuth, super::today());
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let pair = sign(&self.ca, params, "a node")?;
        Ok(kubeconfig(server_url, &user, self.ca_pem(), &pair.certificate, &pair.key))
    }

    /// TLS to the node called `node`: nobody else is spoken to.
    pub(crate) fn node_client_config(&self, node: &str) -> Result<rustls::ClientConfig, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.ca, "the CA")?).map_err(PkiError::Tls)?;
        let (own, key) = self.client_certificate(CALLER, None)?;
        let own = CertificateDer::from_pem_slice(own.as_bytes())
            .map_err(|source| PkiError::Pem { what: "our own certificate", source })?;
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(PkiError::Tls)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OnlyNode { wanted: Identity::node(node), roots, provider }))
            .with_client_auth_cert(vec![own], private_key(&key)?)
            .map_err(PkiError::Tls)
    }
}

/// What a node's kubeconfig says, as PEM.
#[derive(Clone)]
pub struct NodeKeys {
    /// The authority of the cluster.
    pub ca: String,
    /// The node's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for NodeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKeys").finish_non_exhaustive()
    }
}

impl NodeKeys {
    /// The node that these are for, and from when until when (seconds since 1970); `None` if they are not a node's.
    pub fn node(&self) -> Option<(String, (i64, i64))> {
        self.as_certificate().node()
    }

    /// The certificate and its key alone.
    pub fn as_certificate(&self) -> NodeCertificate {
        NodeCertificate { certificate: self.certificate.clone(), key: self.key.clone() }
    }

    /// TLS of the node's own endpoint, as `shown`: the API server is let in, and nobody else.
    pub fn endpoint_config(&self, shown: &NodeCertificates) -> Result<Arc<rustls::ServerConfig>, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), Arc::clone(&provider))
            .build()
            .map_err(PkiError::Verifier)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(PkiError::Tls)?
            .with_client_cert_verifier(Arc::new(OnlyApiServer { inner }))
            .with_cert_resolver(Arc::new(shown.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// TLS to the API server, as the node that is `shown`.
    pub fn client_config(&self, shown: &NodeCertificates) -> Result<rustls::ClientConfig, PkiError> {
        Ok(rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(PkiError::Tls)?
            .with_root_certificates(self.roots()?)
            .with_client_cert_resolver(Arc::new(shown.clone())))
    }

    fn roots(&self) -> Result<RootCertStore, PkiError> {
        let mut roots = RootCertStore::empty();
        for ca in certificates(&self.ca, "the authority of the cluster")? {
            roots.add(ca).map_err(PkiError::Tls)?;
        }
        Ok(roots)
    }
}

impl NodeCertificate {
    /// The node that this is for, and from when until when (seconds since 1970); `None` if it is not a node's.
    pub fn node(&self) -> Option<(String, (i64, i64))> {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
        let identity = Identity::from_certificate(&der)?;
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let node = crate::node_rules::node_of(&identity)?.to_owned();
        let validity = parsed.validity();
        Some((node, (validity.not_before.timestamp(), validity.not_after.timestamp())))
    }
}

pub(super) fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found: Result<_, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.map_err(|source| PkiError::Pem { what, source })
}

pub(super) fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, PkiError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|source| PkiError::Pem { what: "a key", source })
}

fn somebody_else() -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

/// Takes the certificate of one node, whatever its address.
#[derive(Debug)]
struct OnlyNode {
    wanted: Identity,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OnlyNode {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if Identity::from_certificate(end_entity).as_ref() != Some(&self.wanted) {
            return Err(somebody_else());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes the certificate of the API server as a caller; other users of the cluster have to ask it.
#[derive(Debug)]
struct OnlyApiServer {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for OnlyApiServer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        match Identity::from_certificate(end_entity) {
            Some(identity) if identity.user == CALLER => Ok(verified),
            Some(_) | None => Err(somebody_else()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::super::ensure;
    use super::super::node_certificates::NodeRequest;
    use super::*;

    fn keys(pki: &Pki, node: &str) -> NodeKeys {
        let config: serde_json::Value =
            serde_json::from_str(&pki.node_kubeconfig(node, "https://127.0.0.1:6443").unwrap()).unwrap();
        let pem =
            |value: &serde_json::Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
        NodeKeys {
            ca: pem(&config["clusters"][0]["cluster"]["certificate-authority-data"]),
            certificate: pem(&config["users"][0]["user"]["client-certificate-data"]),
            key: pem(&config["users"][0]["user"]["client-key-data"]),
        }
    }

    fn shown(keys: &NodeKeys) -> NodeCertificates {
        NodeCertificates::new(keys, None).unwrap()
    }

    /// Whether a word gets through from the caller to whoever answers.
    async fn they_speak(caller: rustls::ClientConfig, answerer: Arc<rustls::ServerConfig>) -> bool {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let answering = tokio::spawn(async move {
            let mut stream = TlsAcceptor::from(answerer).accept(far).await?;
            let heard = stream.read_u8().await?;
            stream.write_u8(heard).await?;
            stream.shutdown().await
        });
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let calling = async {
            let mut stream = TlsConnector::from(Arc::new(caller)).connect(name, near).await?;
            stream.write_u8(7).await?;
            stream.flush().await?;
            stream.read_u8().await
        };
        let heard = calling.await;
        let _ = answering.await.unwrap();
        heard.is_ok_and(|heard| heard == 7)
    }

    #[tokio::test]
    async fn a_node_answers_the_api_server_alone_and_is_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure(&dir.path().join("ours"), &[]).unwrap();
        let (one, two) = (keys(&pki, "one"), keys(&pki, "two"));
        assert_eq!(one.node().unwrap().0, "one");
        let server = |node: &str| pki.node_client_config(node).unwrap();
        assert!(they_speak(server("one"), one.endpoint_config(&shown(&one)).unwrap()).await);
        assert!(
            !they_speak(server("two"), one.endpoint_config(&shown(&one)).unwrap()).await,
            "it cannot be another node"
        );
        // Whoever else has a certificate of the cluster: another node, and the administrator.
        let trusting_anyone = |certificate: &str, key: &str| {
            let mut config = server("one");
            let chain = certificates(certificate, "a test").unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let key = provider.key_provider.load_private_key(private_key(key).unwrap()).unwrap();
            config.client_auth_cert_resolver =
                Arc::new(rustls::sign::SingleCertAndKey::from(rustls::sign::CertifiedKey::new(chain, key)));
            config
        };
        let other = trusting_anyone(&two.certificate, &two.key);
        assert!(!they_speak(other, one.endpoint_config(&shown(&one)).unwrap()).await, "another node may not call");
        let admin = trusting_anyone(pki.admin_pem().0, pki.admin_pem().1);
        assert!(!they_speak(admin, one.endpoint_config(&shown(&one)).unwrap()).await, "people ask the API server");
        let theirs = ensure(&dir.path().join("theirs"), &[]).unwrap();
        let stranger = theirs.node_client_config("one").unwrap();
        assert!(
            !they_speak(stranger, one.endpoint_config(&shown(&one)).unwrap()).await,
            "nor somebody else's API server"
        );
    }

    /// [CL-64] New connections are shown what was renewed, at both ends, and nothing else has to be made anew for it.
    #[tokio::test]
    async fn node_shows_its_renewed_certificates_on_new_connections() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure(dir.path(), &[]).unwrap();
        let mut one = keys(&pki, "one");
        let shown = shown(&one);
        let (client, endpoint) = (one.client_config(&shown).unwrap(), one.endpoint_config(&shown).unwrap());
        let issue = |address: Option<std::net::IpAddr>, purpose: &str| {
            let request = NodeRequest::new("one", address).unwrap();
            let asked = crate::certificates::SigningRequest::parse(&STANDARD.encode(&request.pem)).unwrap();
            let life = std::time::Duration::from_secs(3600);
            let usages = ["digital signature", purpose];
            let issued = pki.issue(&asked, &usages, life, super::super::today()).unwrap();
            assert!(NodeRequest::new("one", None).unwrap().answered(issued.clone()).is_none(), "another key's");
            request.answered(issued).unwrap()
        };
        let serving = issue(Some([127, 0, 0, 1].into()), "server auth");
        NodeCertificate { certificate: one.certificate, key: one.key } = issue(None, "client auth");
        let (_, (_, end)) = one.node().unwrap();
        assert!(end < super::super::today().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64 + 3700);
        shown.replace(&one, None).unwrap();
        assert!(
            !they_speak(pki.node_client_config("one").unwrap(), Arc::clone(&endpoint)).await,
            "a client's certificate serves nobody"
        );
        shown.replace(&one, Some(&serving)).unwrap();
        assert!(they_speak(pki.node_client_config("one").unwrap(), endpoint).await);
        assert!(they_speak(client, pki.server_config().unwrap()).await);
    }

    #[tokio::test]
    async fn a_node_cannot_pass_for_the_api_server() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure(dir.path(), &[]).unwrap();
        let node = keys(&pki, "localhost");
        let server = pki.server_config().unwrap();
        assert!(they_speak(node.client_config(&shown(&node)).unwrap(), server).await, "a node calls the API server");
        let mut posing =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(certificates(&node.certificate, "a test").unwrap(), private_key(&node.key).unwrap())
                .unwrap();
        posing.alpn_protocols = Vec::new();
        assert!(!they_speak(node.client_config(&shown(&node)).unwrap(), Arc::new(posing)).await);
    }
}
