//! A certificate and its key in a directory.
//!
//! Both are in one file, `NAME.key`, so that no crash leaves the one without the other. `NAME.crt` is a copy of the certificate for whoever
//! wants to read it. A key file of an earlier version holds the key alone; then the copy counts.

use std::path::Path;

use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{PkiError, files};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// What a directory holds under a name.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The certificate is lost, its key is there.
    Key(String),
    /// The key is lost.
    Certificate,
    Pair(Pair),
}

impl Found {
    pub(super) fn pair(self) -> Option<Pair> {
        match self {
            Self::Pair(pair) => Some(pair),
            Self::Nothing | Self::Key(_) | Self::Certificate => None,
        }
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Pair {
    /// Whether both can be read, and belong together.
    pub(super) fn belongs_together(&self) -> bool {
        let Ok(key) = KeyPair::from_pem(&self.key) else { return false };
        let Ok(der) = CertificateDer::from_pem_slice(self.certificate.as_bytes()) else { return false };
        let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return false };
        certificate.public_key().subject_public_key.data.as_ref() == key.der_bytes()
    }
}

/// What is in `dir` under `name`.
pub(super) fn load(dir: &Path, name: &str) -> Result<Found, PkiError> {
    let read = |suffix: &str| {
        let path = dir.join(format!("{name}.{suffix}"));
        files::read(&path).map_err(|source| PkiError::File { path, source })
    };
    let (key, copy) = (read("key")?, read("crt")?);
    let (key, own) = match key.as_ref().and_then(|text| text.find(CERTIFICATE).map(|at| text.split_at(at))) {
        Some((key, certificate)) => (Some(key.to_owned()), Some(certificate.to_owned())),
        None => (key, None),
    };
    Ok(match (own.or(copy), key) {
        (Some(certificate), Some(key)) => Found::Pair(Pair { certificate, key }),
        (Some(_), None) => Found::Certificate,
        (None, Some(key)) => Found::Key(key),
        (None, None) => Found::Nothing,
    })
}

/// Keeps a pair in `dir` under `name`: all of it, or what was there before.
pub(super) fn store(dir: &Path, name: &str, pair: Pair) -> Result<Pair, PkiError> {
    let both = format!("{}\n{}", pair.key.trim_end(), pair.certificate);
    for (suffix, content) in [("key", &both), ("crt", &pair.certificate)] {
        let path = dir.join(format!("{name}.{suffix}"));
        files::write_private(&path, content.as_bytes()).map_err(|source| PkiError::File { path, source })?;
    }
    Ok(pair)
}
