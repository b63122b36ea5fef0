//! TLS to registries: the authorities this machine trusts, more by file, or none at all if someone insists.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tls::{AcceptAnyCertificate, Signatures};

/// How a host is to be trusted.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::image) struct TlsSettings {
    /// More authorities, beside those of the machine.
    pub(in crate::image) ca_file: Option<PathBuf>,
    /// Who we are, if the host wants to know.
    pub(in crate::image) cert_file: Option<PathBuf>,
    pub(in crate::image) key_file: Option<PathBuf>,
    /// Whoever answers is believed. Digests still hold.
    pub(in crate::image) insecure_skip_verify: bool,
}

impl TlsSettings {
    /// Reads the files. The error says which one and why.
    pub(super) fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.insecure_skip_verify {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate::new(Signatures::Checked)))
        } else {
            let mut roots = machine_roots().clone();
            for certificate in
                self.ca_file.iter().map(|path| certificates(path)).collect::<Result<Vec<_>, _>>()?.concat()
            {
                roots.add(certificate).map_err(|error| format!("{}: {error}", self.ca_file_name()))?;
            }
            builder.with_root_certificates(roots)
        };
        match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
                builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| error.to_string())
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            _ => Err("cert_file and key_file go together".to_owned()),
        }
    }

    /// When its files last changed.
    pub(super) fn changed(&self) -> Vec<Option<SystemTime>> {
        let files = [&self.ca_file, &self.cert_file, &self.key_file].into_iter().flatten();
        files.map(|path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok()).collect()
    }

    fn ca_file_name(&self) -> String {
        self.ca_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    if all.is_empty() { Err(wrong(&"it holds no certificate")) } else { Ok(all) }
}

/// The authorities of this machine, read once.
fn machine_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (taken, _) = roots.add_parsable_certificates(found.certs);
        if taken == 0 {
            tracing::warn!("this machine trusts no certificate authority; install its ca-certificates to pull by TLS");
        }
        roots
    })
}
