//! Certificates that nobody but the tests trusts.

use std::fs;
use std::path::{Path, PathBuf};

/// An authority of its own and a certificate for loopback; returns the files of authority, certificate and key.
pub fn certificates(dir: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "an authority of the tests");
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::from_params(&authority, &authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let files = (dir.join("authority.pem"), dir.join("certificate.pem"), dir.join("key.pem"));
    fs::write(&files.0, authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    fs::write(&files.1, certificate.pem()).unwrap();
    fs::write(&files.2, key.serialize_pem()).unwrap();
    files
}
