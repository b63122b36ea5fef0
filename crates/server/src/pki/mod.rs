//! Our own certificate authority: one CA, the server's certificate, the administrator's, those of nodes ([`nodes`]).
//!
//! Everything lives in one directory, is made on first start and reused afterwards. A leaf is made anew when it is
//! about to expire, also while the server runs ([`renewal`]), when it was signed by another CA, or (the server's) when it does not name
//! an address we serve. The CA's key is made once: without it, or with one that does not fit, the server does not start, because all
//! that trust this CA would trust nothing of another. Signing other people's requests is not done here.

pub(crate) mod files;
mod issue;
mod kubeconfig;
mod node_certificates;
mod nodes;
mod pair;
mod renewal;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

pub use kubeconfig::{kubeconfig, write_kubeconfig};
pub use node_certificates::{NodeCertificate, NodeCertificates, NodeRequest};
pub use nodes::NodeKeys;
use pair::{Found, Pair, load, store};
pub use renewal::Renewal;
use renewal::Shown;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A leaf with less than this left is replaced at start.
const RENEW_BEFORE: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// Names under which pods and people may call the server besides those the caller gives.
const WELL_KNOWN_NAMES: [&str; 6] = [
    "localhost",
    "127.0.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why the certificates cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory of ours cannot be used.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate cannot be made or a key of ours cannot be read.
    #[error("cannot make or read the certificate of {what}")]
    Certificate {
        /// Whose.
        what: &'static str,
        /// Why.
        source: rcgen::Error,
    },
    /// A file does not hold the PEM it should.
    #[error("{what} is not valid PEM")]
    Pem {
        /// Whose certificate or key.
        what: &'static str,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// The CA's certificate is there and its key is not.
    #[error(
        "{} is there and its key is not; put ca.key back from a backup, or remove the certificate to begin with another CA: nodes must then join anew and clients need a new kubeconfig",
        path.display()
    )]
    NoKey {
        /// The certificate.
        path: PathBuf,
    },
    /// The CA's certificate and key cannot be read, or belong to different CAs.
    #[error(
        "the key and the certificate in {} cannot be used together; put both back from one backup, or remove ca.key and ca.crt to begin with another CA",
        path.display()
    )]
    Mismatch {
        /// The key.
        path: PathBuf,
    },
    /// The TLS configuration is refused.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// Client certificates cannot be checked against our CA.
    #[error("cannot set up the check of client certificates")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// The certificates of one installation.
#[derive(Clone)]
pub struct Pki {
    ca: Pair,
    server: Pair,
    admin: Pair,
    /// What connections are shown, by whoever serves with these.
    shown: Arc<Shown>,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki").finish_non_exhaustive()
    }
}

/// What certificates begin and end by, on every machine that checks them.
#[expect(clippy::disallowed_methods, reason = "other programs compare certificates with the machine's own clock")]
fn today() -> SystemTime {
    SystemTime::now()
}

/// Reads the certificates in `dir`, making what is missing, unfit or about to expire. `names` are the further DNS
/// names and addresses the server must be reachable by (its advertised address, the node's name).
pub fn ensure(dir: &Path, names: &[String]) -> Result<Pki, PkiError> {
    ensure_at(dir, names, today())
}

fn ensure_at(dir: &Path, names: &[String], now: SystemTime) -> Result<Pki, PkiError> {
    files::private_dir(dir).map_err(|source| PkiError::File { path: dir.to_owned(), source })?;
    let ca = match load(dir, "ca")? {
        Found::Nothing => store(dir, "ca", make_ca(now, None)?)?,
        Found::Certificate => return Err(PkiError::NoKey { path: dir.join("ca.crt") }),
        // Who trusts its former certificate trusts this one, too.
        Found::Key(key) => store(dir, "ca", make_ca(now, Some(&key))?)?,
        Found::Pair(pair) if !pair.belongs_together() => {
            return Err(PkiError::Mismatch { path: dir.join("ca.key") });
        }
        Found::Pair(pair) if !still_good(&pair, now, None, &BTreeSet::new()) => {
            store(dir, "ca", make_ca(now, Some(&pair.key))?)?
        }
        Found::Pair(pair) => pair,
    };
    let mut wanted: BTreeSet<String> = WELL_KNOWN_NAMES.iter().map(ToString::to_string).collect();
    wanted.extend(names.iter().filter(|name| !name.is_empty()).cloned());
    let server = match load(dir, "server")?.pair() {
        Some(pair) if still_good(&pair, now, Some(&ca), &wanted) => pair,
        Some(_) | None => {
            let mut params = leaf("kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth, now);
            params.subject_alt_names = CertificateParams::new(wanted.into_iter().collect::<Vec<_>>())
                .map_err(|source| PkiError::Certificate { what: "the server", source })?
                .subject_alt_names;
            store(dir, "server", sign(&ca, params, "the server")?)?
        }
    };
    let admin = match load(dir, "admin")?.pair() {
        Some(pair) if still_good(&pair, now, Some(&ca), &BTreeSet::new()) => pair,
        Some(_) | None => {
            let params = leaf("kubernetes-admin", Some("system:masters"), ExtendedKeyUsagePurpose::ClientAuth, now);
            store(dir, "admin", sign(&ca, params, "the administrator")?)?
        }
    };
    Pki::new(ca, server, admin)
}

/// Reads the certificates in `dir`, which must be there; nothing is made. `None` if no server has made them yet.
pub fn read(dir: &Path) -> Result<Option<Pki>, PkiError> {
    let parts = (load(dir, "ca")?.pair(), load(dir, "server")?.pair(), load(dir, "admin")?.pair());
    let (Some(ca), Some(server), Some(admin)) = parts else { return Ok(None) };
    Pki::new(ca, server, admin).map(Some)
}

impl Pki {
    fn new(ca: Pair, server: Pair, admin: Pair) -> Result<Self, PkiError> {
        let shown = Arc::new(Shown::new(&server, &rustls::crypto::ring::default_provider())?);
        Ok(Self { ca, server, admin, shown })
    }

    /// The CA's certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca.certificate
    }

    /// The administrator's certificate and key, PEM.
    pub fn admin_pem(&self) -> (&str, &str) {
        (&self.admin.certificate, &self.admin.key)
    }

    /// TLS for the API: 1.2 and later, HTTP/2 and HTTP/1.1, client certificates optional and checked against our CA.
    pub fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.ca, "the CA")?).map_err(PkiError::Tls)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(PkiError::Verifier)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(PkiError::Tls)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::clone(&self.shown) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The SHA-256 of the certificate that connections are shown, as browsers write it; none if it cannot be read.
    pub fn fingerprint(&self) -> Option<String> {
        let shown = self.shown.certificate()?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &shown);
        Some(digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
    }

    /// A client certificate of `user` in `group`, signed by our CA: certificate and key, PEM. It is not kept.
    pub fn client_certificate(&self, user: &str, group: Option<&str>) -> Result<(String, String), PkiError> {
        let params = leaf(user, group, ExtendedKeyUsagePurpose::ClientAuth, today());
        let pair = sign(&self.ca, params, "a client")?;
        Ok((pair.certificate, pair.key))
    }
}

/// Keeps a certificate with its key in `path`, readable for its owner only, whole or not at all.
pub fn write_pair(path: &Path, pair: &NodeCertificate) -> io::Result<()> {
    files::write_private(path, format!("{}\n{}", pair.key.trim_end(), pair.certificate).as_bytes())
}

/// What [`write_pair`] kept; `None` if there is nothing, or nothing that fits together.
pub fn read_pair(path: &Path) -> io::Result<Option<NodeCertificate>> {
    let Some(text) = files::read(path)? else { return Ok(None) };
    let Some(at) = text.find("-----BEGIN CERTIFICATE-----") else { return Ok(None) };
    let (key, certificate) = text.split_at(at);
    let pair = NodeCertificate { certificate: certificate.to_owned(), key: key.to_owned() };
    Ok(Some(pair).filter(NodeCertificate::belongs_together))
}

fn certificate(pair: &Pair, what: &'static str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).map_err(|source| PkiError::Pem { what, source })
}

fn make_ca(now: SystemTime, key: Option<&str>) -> Result<Pair, PkiError> {
    let wrap = |source| PkiError::Certificate { what: "the CA", source };
    let key = key.map_or_else(KeyPair::generate, KeyPair::from_pem).map_err(wrap)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "adieu-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = (now - DAY).into();
    params.not_after = (now + CA_LIFE).into();
    let certificate = params.self_signed(&key).map_err(wrap)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn leaf(
    common_name: &str,
    organization: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
    now: SystemTime,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    // A day of tolerance for clients whose clock is behind ours.
    params.not_before = (now - DAY).into();
    params.not_after = (now + LEAF_LIFE).into();
    params
}

fn sign(ca: &Pair, params: CertificateParams, what: &'static str) -> Result<Pair, PkiError> {
    let wrap = |source| PkiError::Certificate { what, source };
    let ca_key = KeyPair::from_pem(&ca.key).map_err(wrap)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, ca_key).map_err(wrap)?;
    let key = KeyPair::generate().map_err(wrap)?;
    let certificate = params.signed_by(&key, &issuer).map_err(wrap)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Whether a certificate found on disk may be used: readable, not about to expire, signed by `ca`, naming all `names`.
fn still_good(pair: &Pair, now: SystemTime, ca: Option<&Pair>, names: &BTreeSet<String>) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pair.certificate.as_bytes()) else { return false };
    let Ok((_, found)) = X509Certificate::from_der(&der) else { return false };
    let limit = (now + RENEW_BEFORE).duration_since(SystemTime::UNIX_EPOCH).map_or(i64::MAX, |d| d.as_secs() as i64);
    if found.validity().not_after.timestamp() < limit || !pair.belongs_together() {
        return false;
    }
    // rcgen derives key identifiers from the key, so a CA made anew has another one.
    if let Some(ca) = ca {
        let Ok(ca_der) = CertificateDer::from_pem_slice(ca.certificate.as_bytes()) else { return false };
        let Ok((_, issuer)) = X509Certificate::from_der(&ca_der) else { return false };
        if authority_key(&found) != subject_key(&issuer) {
            return false;
        }
    }
    let present = subject_names(&found);
    names.iter().all(|name| present.contains(name))
}

fn authority_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.iter_extensions().find_map(|extension| {
        let ParsedExtension::AuthorityKeyIdentifier(id) = extension.parsed_extension() else { return None };
        id.key_identifier.as_ref().map(|key| key.0.to_vec())
    })
}

fn subject_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.iter_extensions().find_map(|extension| {
        let ParsedExtension::SubjectKeyIdentifier(id) = extension.parsed_extension() else { return None };
        Some(id.0.to_vec())
    })
}

fn subject_names(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    names
        .value
        .general_names
        .iter()
        .filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                return Some((*name).to_owned());
            }
            let GeneralName::IPAddress(bytes) = name else { return None };
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn certificates_are_made_once_and_reused() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure(dir.path(), &names(&["node-1", "10.0.0.1"])).unwrap();
        let second = ensure(dir.path(), &names(&["node-1", "10.0.0.1"])).unwrap();
        assert_eq!(first.ca.certificate, second.ca.certificate);
        assert_eq!(first.server.certificate, second.server.certificate);
        assert_eq!(first.admin.certificate, second.admin.certificate);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
        first.server_config().unwrap();
    }

    #[test]
    fn a_new_address_makes_a_new_server_certificate_under_the_same_ca() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure(dir.path(), &names(&["node-1"])).unwrap();
        let second = ensure(dir.path(), &names(&["node-1", "192.0.2.7"])).unwrap();
        assert_eq!(first.ca.certificate, second.ca.certificate);
        assert_ne!(first.server.certificate, second.server.certificate);
        assert_eq!(first.admin.certificate, second.admin.certificate);
    }

    #[test]
    fn leaves_of_another_ca_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure(dir.path(), &[]).unwrap();
        std::fs::remove_file(dir.path().join("ca.key")).unwrap();
        std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
        let second = ensure(dir.path(), &[]).unwrap();
        assert_ne!(first.ca.certificate, second.ca.certificate);
        assert_ne!(first.server.certificate, second.server.certificate);
        assert_ne!(first.admin.certificate, second.admin.certificate);
    }

    #[test]
    fn ca_without_its_key_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        ensure(dir.path(), &[]).unwrap();
        let certificate = std::fs::read(dir.path().join("ca.crt")).unwrap();
        std::fs::remove_file(dir.path().join("ca.key")).unwrap();
        let error = ensure(dir.path(), &[]).unwrap_err();
        assert!(matches!(error, PkiError::NoKey { .. }), "{error}");
        assert_eq!(std::fs::read(dir.path().join("ca.crt")).unwrap(), certificate);
        assert!(!dir.path().join("ca.key").exists());
    }

    #[test]
    fn ca_with_the_key_of_another_is_refused() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_, another) = (ensure(dir.path(), &[]).unwrap(), ensure(other.path(), &[]).unwrap());
        // As an earlier version wrote it: the key alone, its certificate beside it.
        std::fs::write(dir.path().join("ca.key"), &another.ca.key).unwrap();
        let error = ensure(dir.path(), &[]).unwrap_err();
        assert!(matches!(error, PkiError::Mismatch { .. }), "{error}");
    }

    #[test]
    fn ca_whose_certificate_is_lost_or_old_gets_another_for_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure(dir.path(), &[]).unwrap();
        std::fs::write(dir.path().join("ca.key"), &first.ca.key).unwrap();
        std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
        let second = ensure(dir.path(), &[]).unwrap();
        assert_eq!((&first.ca.key, &first.server, &first.admin), (&second.ca.key, &second.server, &second.admin));
        let later = ensure_at(dir.path(), &[], today() + CA_LIFE - DAY).unwrap();
        assert_eq!(later.ca.key, second.ca.key);
        assert_ne!(later.ca.certificate, second.ca.certificate);
    }

    /// A crash between two writes leaves the old pair or the new one: the copy of the certificate counts for nothing.
    #[test]
    fn pair_is_read_from_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure(dir.path(), &[]).unwrap();
        std::fs::write(dir.path().join("server.crt"), &first.admin.certificate).unwrap();
        std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
        let second = ensure(dir.path(), &[]).unwrap();
        assert!(first.server == second.server && first.ca == second.ca);
    }

    #[test]
    fn the_kubeconfig_is_private_and_complete() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure(&dir.path().join("pki"), &[]).unwrap();
        let path = dir.path().join("admin.kubeconfig");
        pki.write_admin_kubeconfig(&path, "https://127.0.0.1:6443").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
        assert!(config["users"][0]["user"]["client-key-data"].as_str().unwrap().len() > 100);
    }
}
