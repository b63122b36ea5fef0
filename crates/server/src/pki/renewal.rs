//! Certificates that are renewed while the server runs: new connections get the new one, and nobody is cut off.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::pair::Pair;
use super::{Pki, PkiError, certificate, ensure_at, today};

/// How often it is looked whether something is about to expire: often within the two months before it does.
const LOOK: Duration = Duration::from_secs(12 * 60 * 60);

/// The certificate that new connections are shown.
#[derive(Debug)]
pub(super) struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    pub(super) fn new(server: &Pair, provider: &CryptoProvider) -> Result<Self, PkiError> {
        Ok(Self(RwLock::new(certified(server, provider)?)))
    }

    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let shown = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        shown.end_entity_cert().ok().map(|certificate| certificate.clone().into_owned())
    }

    fn replace(&self, server: &Pair) -> Result<(), PkiError> {
        let next = certified(server, &rustls::crypto::ring::default_provider())?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn certified(server: &Pair, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, PkiError> {
    let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes())
        .map_err(|source| PkiError::Pem { what: "the server's key", source })?;
    let chain = vec![certificate(server, "the server's certificate")?];
    let key = CertifiedKey::from_der(chain, key, provider).map_err(PkiError::Tls)?;
    Ok(Arc::new(key))
}

/// Renews the certificates of a running server.
#[derive(Debug)]
pub struct Renewal {
    dir: PathBuf,
    names: Vec<String>,
    pki: Pki,
}

impl Renewal {
    /// For the certificates in `dir`, which name these and are used by `pki`.
    pub fn new(dir: PathBuf, names: Vec<String>, pki: Pki) -> Self {
        Self { dir, names, pki }
    }

    /// Renews for ever. `renewed` is told of certificates that were made anew, after new connections get them.
    pub async fn run(mut self, renewed: impl Fn(&Pki)) {
        loop {
            tokio::time::sleep(LOOK).await;
            match self.look(today()) {
                Ok(true) => {
                    tracing::info!("the certificates were renewed");
                    renewed(&self.pki);
                }
                Ok(false) => {}
                Err(error) => {
                    let error = supervision::error_chain(&error);
                    tracing::error!(error, "the certificates cannot be renewed; trying again in twelve hours");
                }
            }
        }
    }

    /// Makes anew what is about to expire; tells whether anything was.
    fn look(&mut self, now: std::time::SystemTime) -> Result<bool, PkiError> {
        let found = ensure_at(&self.dir, &self.names, now)?;
        if found.server == self.pki.server && found.admin == self.pki.admin {
            return Ok(false);
        }
        self.pki.shown.replace(&found.server)?;
        self.pki = Pki { shown: Arc::clone(&self.pki.shown), ..found };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn shown(pki: &Pki) -> Vec<u8> {
        pki.shown.0.read().unwrap().end_entity_cert().unwrap().to_vec()
    }

    #[test]
    fn running_server_shows_the_renewed_certificate_and_keeps_its_ca() {
        let dir = tempfile::tempdir().unwrap();
        let names = vec!["node-1".to_owned()];
        let pki = super::super::ensure(dir.path(), &names).unwrap();
        let config = pki.server_config().unwrap();
        let before = shown(&pki);
        let mut renewal = Renewal::new(dir.path().to_owned(), names, pki.clone());
        assert!(!renewal.look(today()).unwrap(), "it is good for a year");
        let days = |days: u64| today() + Duration::from_secs(days * 24 * 60 * 60);
        assert!(!renewal.look(days(300)).unwrap());
        assert!(renewal.look(days(310)).unwrap(), "two months are left");
        assert_ne!(shown(&pki), before, "those who had the certificates before show the new one");
        assert_eq!(renewal.pki.ca_pem(), pki.ca_pem());
        assert_ne!(renewal.pki.admin_pem(), pki.admin_pem());
        assert!(!renewal.look(days(310)).unwrap(), "once");
        drop(config);
    }
}
