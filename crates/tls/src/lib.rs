//! TLS to somebody whose certificate nobody can check: a pod at its address, or a registry that is to be believed.
//!
//! Everything that is known by a certificate is checked by rustls itself, or by the server's `pki`. This is the one place where
//! nothing is.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

/// Whether whoever answers must hold the key of the certificate they show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signatures {
    /// They must, and the certificate must be one that can be read.
    Checked,
    /// No: certificates too old or too weak to be read are taken as well.
    Ignored,
}

/// Takes every certificate.
#[derive(Debug)]
pub struct AcceptAnyCertificate {
    signatures: Signatures,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AcceptAnyCertificate {
    /// With the algorithms of ring.
    pub fn new(signatures: Signatures) -> Self {
        Self { signatures, algorithms: ring::default_provider().signature_verification_algorithms }
    }

    /// TLS that takes every certificate and shows none.
    pub fn client_config(signatures: Signatures) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.dangerous();
        Ok(builder.with_custom_certificate_verifier(Arc::new(Self::new(signatures))).with_no_client_auth())
    }
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.signatures {
            Signatures::Checked => verify_tls12_signature(message, certificate, signed, &self.algorithms),
            Signatures::Ignored => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.signatures {
            Signatures::Checked => verify_tls13_signature(message, certificate, signed, &self.algorithms),
            Signatures::Ignored => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
