//! Certificates for the keys of others, signed by our CA.
//!
//! The certificate is written here byte by byte (DER): its subject, key and alternative names are the very bytes that were asked for
//! and judged. rcgen would keep only one organization of several, and so drop groups.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{KeyPair, SigningKey as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Pki, PkiError, subject_key};
use crate::certificates::SigningRequest;

/// A certificate is good a little before it is made, for clocks that are behind.
const BACKDATE: Duration = Duration::from_secs(5 * 60);

const SEQUENCE: u8 = 0x30;
const SET_OF_BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const TRUE: [u8; 3] = [0x01, 0x01, 0xff];

/// Below 2.5.29.
const KEY_USAGE: u8 = 15;
const ALTERNATIVE_NAMES: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const AUTHORITY_KEY: u8 = 35;
const EXTENDED_KEY_USAGE: u8 = 37;

/// How a key signs, as certificates say it.
const ALGORITHMS: [(&rcgen::SignatureAlgorithm, &[u8]); 4] = [
    (&rcgen::PKCS_ECDSA_P256_SHA256, &[0x30, 10, OID, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]),
    (&rcgen::PKCS_ECDSA_P384_SHA384, &[0x30, 10, OID, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3]),
    (&rcgen::PKCS_ED25519, &[0x30, 5, OID, 3, 0x2b, 0x65, 0x70]),
    (&rcgen::PKCS_RSA_SHA256, &[0x30, 13, OID, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, 5, 0]),
];

impl Pki {
    /// A certificate for `request` that is good for `life` from `now`, but never longer than our own: PEM. `usages` are those of
    /// `spec.usages` that the signers of [`SigningRequest`] know.
    pub(crate) fn issue(
        &self,
        request: &SigningRequest,
        usages: &[&str],
        life: Duration,
        now: SystemTime,
    ) -> Result<String, PkiError> {
        let wrap = |source| PkiError::Certificate { what: "a client", source };
        let key = KeyPair::from_pem(&self.ca.key).map_err(wrap)?;
        let ca = CertificateDer::from_pem_slice(self.ca.certificate.as_bytes())
            .map_err(|source| PkiError::Pem { what: "the CA", source })?;
        let (_, ca) = X509Certificate::from_der(&ca).map_err(|_| wrap(rcgen::Error::CouldNotParseCertificate))?;
        let algorithm = ALGORITHMS.iter().find(|(known, _)| **known == *key.algorithm());
        let (_, algorithm) = algorithm.ok_or_else(|| wrap(rcgen::Error::UnsupportedSignatureAlgorithm))?;
        let end = ca.validity().not_after.timestamp().min(seconds(now + life));
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| wrap(rcgen::Error::RingUnspecified))?;
        // Positive, and never shorter.
        serial[0] = serial[0] & 0x3f | 0x40;
        let body = tlv(
            SEQUENCE,
            &[
                // Version 3.
                &[0xa0, 3, 2, 1, 2],
                &tlv(0x02, &[&serial]),
                algorithm,
                ca.subject().as_raw(),
                &tlv(SEQUENCE, &[&moment(seconds(now - BACKDATE)), &moment(end)]),
                &request.subject,
                &request.public_key,
                &tlv(0xa3, &[&extensions(request, usages, subject_key(&ca))]),
            ],
        );
        let signature = key.sign(&body).map_err(wrap)?;
        Ok(pem(&tlv(SEQUENCE, &[&body, algorithm, &tlv(SET_OF_BITS, &[&[0], &signature])])))
    }
}

fn extensions(request: &SigningRequest, usages: &[&str], authority: Option<Vec<u8>>) -> Vec<u8> {
    let extension = |number: u8, critical: bool, value: &[u8]| {
        let critical: &[u8] = if critical { &TRUE } else { &[] };
        tlv(SEQUENCE, &[&tlv(OID, &[&[0x55, 0x1d, number]]), critical, &tlv(OCTETS, &[value])])
    };
    let bit = |usage: &str, bit: u8| if usages.contains(&usage) { bit } else { 0 };
    let bits = bit("digital signature", 0x80) | bit("key encipherment", 0x20);
    let purposes: Vec<u8> = [("server auth", 1), ("client auth", 2)]
        .iter()
        .filter(|(usage, _)| usages.contains(usage))
        .flat_map(|(_, number)| tlv(OID, &[&[0x2b, 6, 1, 5, 5, 7, 3, *number]]))
        .collect();
    let mut all = Vec::new();
    if bits != 0 {
        let unused = if bits & 0x20 == 0 { 7 } else { 5 };
        all.push(extension(KEY_USAGE, true, &tlv(SET_OF_BITS, &[&[unused, bits]])));
    }
    if !purposes.is_empty() {
        all.push(extension(EXTENDED_KEY_USAGE, false, &tlv(SEQUENCE, &[&purposes])));
    }
    all.push(extension(BASIC_CONSTRAINTS, true, &tlv(SEQUENCE, &[])));
    if let Some(key) = authority {
        all.push(extension(AUTHORITY_KEY, false, &tlv(SEQUENCE, &[&tlv(0x80, &[&key])])));
    }
    if let Some(names) = &request.alternative_names {
        all.push(extension(ALTERNATIVE_NAMES, false, names));
    }
    tlv(SEQUENCE, &all.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A value in DER: what it is, how long, and its parts.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..=0x7f) => out.push(short),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(u8::try_from(0x80 | bytes.len()).expect("a length has eight bytes at most"));
            out.extend(bytes);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A moment as certificates write it: two digits for the year up to 2049.
fn moment(seconds: i64) -> Vec<u8> {
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    let short = time.to_zoned(jiff::tz::TimeZone::UTC).year() < 2050;
    let (tag, form) = if short { (0x17, "%y%m%d%H%M%SZ") } else { (0x18, "%Y%m%d%H%M%SZ") };
    tlv(tag, &[time.strftime(form).to_string().as_bytes()])
}

fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rustls::RootCertStore;
    use rustls::pki_types::UnixTime;
    use rustls::server::WebPkiClientVerifier;

    use super::*;
    use crate::certificates::tests::asked;
    use crate::identity::Identity;
    use crate::pki::{ensure, today};

    /// Another program reads the certificate, believes our CA's signature, and finds who was asked for.
    #[test]
    fn issued_certificate_is_believed_for_its_time_and_says_what_was_asked() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure(dir.path(), &[]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let asked = asked("jane", "dev", &["jane.example.com", "10.0.0.7"]).0;
        let request = SigningRequest::parse(&asked).unwrap();
        let now = today();
        let hour = Duration::from_secs(3600);
        let issued = pki.issue(&request, &["digital signature", "client auth"], hour, now).unwrap();
        let der = CertificateDer::from_pem_slice(issued.as_bytes()).unwrap();
        let identity = Identity::from_certificate(&der).unwrap();
        assert_eq!((identity.user.as_str(), identity.is_in("dev")), ("jane", true));
        let good = |after: Duration| {
            let at = now.duration_since(SystemTime::UNIX_EPOCH).unwrap() + after;
            verifier.verify_client_cert(&der, &[], UnixTime::since_unix_epoch(at)).is_ok()
        };
        assert_eq!(
            [Duration::ZERO, hour - Duration::from_secs(2), hour + Duration::from_secs(2)].map(good),
            [true, true, false]
        );
        let (_, read) = X509Certificate::from_der(&der).unwrap();
        assert!(!read.is_ca());
        assert_eq!(read.key_usage().unwrap().unwrap().value.flags, 1, "a signature and nothing else");
        let names = crate::pki::subject_names(&read);
        assert!(names.contains("jane.example.com") && names.contains("10.0.0.7"), "{names:?}");
        let server = pki.issue(&request, &["digital signature", "server auth"], hour, now).unwrap();
        let server = CertificateDer::from_pem_slice(server.as_bytes()).unwrap();
        let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap());
        assert!(verifier.verify_client_cert(&server, &[], now).is_err(), "it lets nobody in");
    }

    #[test]
    fn certificate_never_outlives_the_authority() {
        let dir = tempfile::tempdir().unwrap();
        let pki = ensure(dir.path(), &[]).unwrap();
        let request = SigningRequest::parse(&asked("jane", "dev", &[]).0).unwrap();
        let long = Duration::from_secs(60 * 365 * 24 * 3600);
        let issued = pki.issue(&request, &["client auth"], long, today()).unwrap();
        let der = CertificateDer::from_pem_slice(issued.as_bytes()).unwrap();
        let ca = CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap();
        let end = |der: &CertificateDer<'_>| X509Certificate::from_der(der).unwrap().1.validity().not_after.timestamp();
        assert_eq!(end(&der), end(&ca));
        assert_eq!(moment(2_524_608_000), b"\x18\x0f20500101000000Z");
        assert_eq!(moment(2_524_607_999), b"\x17\x0d491231235959Z");
    }
}
