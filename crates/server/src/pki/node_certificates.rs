//! What a node shows, to its server and to those who call it: replaced while the node runs, for connections that begin afterwards.
//!
//! A node asks for its certificates itself ([`NodeRequest`]). Its certificate as a client says nothing of how it is reached; the one it
//! serves with names its addresses. One that `adieu server add-node` made does for both until it is renewed.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::nodes::{NodeKeys, certificates, private_key};
use super::{Pair, PkiError};

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for NodeCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCertificate").finish_non_exhaustive()
    }
}

impl NodeCertificate {
    /// Whether both can be read, and belong together.
    pub fn belongs_together(&self) -> bool {
        Pair { certificate: self.certificate.clone(), key: self.key.clone() }.belongs_together()
    }

    fn certified(&self) -> Result<Arc<CertifiedKey>, PkiError> {
        let provider = rustls::crypto::ring::default_provider();
        let chain = certificates(&self.certificate, "the node's certificate")?;
        CertifiedKey::from_der(chain, private_key(&self.key)?, &provider).map(Arc::new).map_err(PkiError::Tls)
    }
}

/// What a node shows now. Clones are the same.
#[derive(Clone, Debug)]
pub struct NodeCertificates(Arc<RwLock<Shown>>);

#[derive(Clone, Debug)]
struct Shown {
    client: Arc<CertifiedKey>,
    serving: Arc<CertifiedKey>,
}

impl NodeCertificates {
    /// These; without one to serve with, the client's.
    pub fn new(keys: &NodeKeys, serving: Option<&NodeCertificate>) -> Result<Self, PkiError> {
        Shown::new(keys, serving).map(|shown| Self(Arc::new(RwLock::new(shown))))
    }

    /// Shows these from now on.
    pub fn replace(&self, keys: &NodeKeys, serving: Option<&NodeCertificate>) -> Result<(), PkiError> {
        let next = Shown::new(keys, serving)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn now(&self) -> Shown {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shown {
    fn new(keys: &NodeKeys, serving: Option<&NodeCertificate>) -> Result<Self, PkiError> {
        let client = keys.as_certificate().certified()?;
        let serving = serving.map_or_else(|| Ok(Arc::clone(&client)), NodeCertificate::certified)?;
        Ok(Self { client, serving })
    }
}

impl ResolvesClientCert for NodeCertificates {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.now().client)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for NodeCertificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now().serving)
    }
}

/// A new key, and the request for a certificate of it.
pub struct NodeRequest {
    key: KeyPair,
    /// What is sent: PEM.
    pub pem: String,
}

impl std::fmt::Debug for NodeRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeRequest").finish_non_exhaustive()
    }
}

impl NodeRequest {
    /// For the node called `node`, as a client; or, to be reached at `address`, for serving.
    pub fn new(node: &str, address: Option<IpAddr>) -> Result<Self, PkiError> {
        let wrap = |source| PkiError::Certificate { what: "a node", source };
        let names: Vec<String> = address.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).map_err(wrap)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        let key = KeyPair::generate().map_err(wrap)?;
        let pem = params.serialize_request(&key).and_then(|request| request.pem()).map_err(wrap)?;
        Ok(Self { key, pem })
    }

    /// What was asked for, with its key; `None` if this is another key's certificate.
    pub fn answered(&self, certificate: String) -> Option<NodeCertificate> {
        let answered = NodeCertificate { certificate, key: self.key.serialize_pem() };
        answered.belongs_together().then_some(answered)
    }
}
