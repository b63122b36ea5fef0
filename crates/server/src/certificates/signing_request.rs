//! What somebody asks for who sends a signing request (PKCS #10), and what each signer takes.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::FromDer as _;

/// The signers that are served here.
pub(crate) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(crate) const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(crate) const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";

/// Longer ones are not looked at.
const REQUEST_MAX: usize = 64 * 1024;
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";
const SIGNATURE: &str = "digital signature";
const ENCIPHERMENT: &str = "key encipherment";

/// A request that was read, and is signed by the key it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SigningRequest {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    pub(crate) dns_names: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
    /// Alternative names of other kinds: mail addresses, URIs.
    pub(crate) has_other_names: bool,
    /// As they were sent, in DER: the subject, the key, the alternative names.
    pub(crate) subject: Vec<u8>,
    pub(crate) public_key: Vec<u8>,
    pub(crate) alternative_names: Option<Vec<u8>>,
}

impl SigningRequest {
    /// Reads `spec.request`: PEM in base64.
    pub(crate) fn parse(encoded: &str) -> Result<Self, String> {
        if encoded.len() > REQUEST_MAX {
            return Err(format!("must have at most {REQUEST_MAX} bytes"));
        }
        let pem = STANDARD.decode(encoded).map_err(|_| "must be base64".to_owned())?;
        let der = CertificateSigningRequestDer::from_pem_slice(&pem)
            .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|error| format!("cannot be read: {error}"))?;
        if !rest.is_empty() {
            return Err("has bytes after its end".to_owned());
        }
        request.verify_signature().map_err(|_| "is not signed by the key that it is for".to_owned())?;
        let info = &request.certification_request_info;
        let read = |words: &mut dyn Iterator<Item = Option<String>>, what: &str| {
            words.collect::<Option<Vec<String>>>().ok_or_else(|| format!("has a subject whose {what} is no text"))
        };
        let subject = &info.subject;
        let mut names = subject.iter_common_name().map(|name| name.as_str().ok().map(ToOwned::to_owned));
        let mut names = read(&mut names, "common name")?;
        let mut groups = subject.iter_organization().map(|name| name.as_str().ok().map(ToOwned::to_owned));
        let organizations = read(&mut groups, "organization")?;
        // Of several, programs disagree which one counts.
        let common_name = names.pop().unwrap_or_default();
        if !names.is_empty() {
            return Err("has a subject with more than one common name".to_owned());
        }
        let mut read = Self {
            common_name,
            organizations,
            dns_names: Vec::new(),
            addresses: Vec::new(),
            has_other_names: false,
            subject: subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            alternative_names: None,
        };
        for attribute in info.iter_attributes() {
            let ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute() else { continue };
            for extension in asked.extensions.iter().filter(|own| own.oid == OID_X509_EXT_SUBJECT_ALT_NAME) {
                let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                    return Err("has alternative names that cannot be read".to_owned());
                };
                if read.alternative_names.replace(extension.value.to_vec()).is_some() {
                    return Err("has alternative names twice".to_owned());
                }
                names.general_names.iter().for_each(|name| read.take_name(name));
            }
        }
        Ok(read)
    }

    fn take_name(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
                (Ok(four), _) => self.addresses.push(four.into()),
                (_, Ok(sixteen)) => self.addresses.push(sixteen.into()),
                _ => self.has_other_names = true,
            },
            GeneralName::OtherName(..)
            | GeneralName::RFC822Name(_)
            | GeneralName::X400Address(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EDIPartyName(_)
            | GeneralName::URI(_)
            | GeneralName::RegisteredID(_)
            | GeneralName::Invalid(..) => self.has_other_names = true,
        }
    }

    /// The node that this would be a certificate of.
    pub(crate) fn node(&self) -> Option<&str> {
        let name = self.common_name.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty());
        name.filter(|_| self.organizations == [NODES])
    }

    /// Why `signer` does not sign this, in upstream's words; `None` if it does, or is not one of ours.
    pub(crate) fn complaint(&self, signer: &str, usages: &[&str]) -> Option<String> {
        match signer {
            NODE_CLIENT | NODE_SERVING if self.organizations != [NODES] => {
                Some("subject organization is not system:nodes".to_owned())
            }
            NODE_CLIENT | NODE_SERVING if self.node().is_none() => {
                Some(format!("subject common name does not begin with {NODE_PREFIX}"))
            }
            NODE_CLIENT if self.alternative_names.is_some() => Some("subjectAltNames are not allowed".to_owned()),
            NODE_CLIENT => wrong_usages(usages, CLIENT_AUTH),
            NODE_SERVING if self.has_other_names => Some("only DNS and IP subjectAltNames are allowed".to_owned()),
            NODE_SERVING if self.dns_names.is_empty() && self.addresses.is_empty() => {
                Some("DNS or IP subjectAltName is required".to_owned())
            }
            NODE_SERVING => wrong_usages(usages, SERVER_AUTH),
            CLIENT => {
                let odd = usages.iter().find(|usage| ![CLIENT_AUTH, SIGNATURE, ENCIPHERMENT].contains(usage));
                match odd {
                    Some(odd) => Some(format!("invalid usage for client certificate: {odd}")),
                    None if usages.contains(&CLIENT_AUTH) => None,
                    None => Some(format!("missing required usage for client certificate: {CLIENT_AUTH}")),
                }
            }
            _ => None,
        }
    }
}

/// Exactly a signature and `purpose`, with or without encipherment.
fn wrong_usages(usages: &[&str], purpose: &str) -> Option<String> {
    let fits = usages.contains(&purpose)
        && usages.contains(&SIGNATURE)
        && usages.iter().all(|usage| [purpose, SIGNATURE, ENCIPHERMENT].contains(usage));
    (!fits).then(|| format!("usages did not match [{SIGNATURE} {purpose}], with or without {ENCIPHERMENT}"))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    /// A request as it is written into `spec.request`, with its key.
    pub(crate) fn asked(name: &str, organization: &str, alternatives: &[&str]) -> (String, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        (STANDARD.encode(pem), key)
    }

    fn parsed(name: &str, organization: &str, alternatives: &[&str]) -> SigningRequest {
        SigningRequest::parse(&asked(name, organization, alternatives).0).unwrap()
    }

    #[test]
    fn request_is_refused_unless_it_is_one_and_is_signed_by_its_own_key() {
        let (sound, _) = asked("system:node:n1", NODES, &["n1", "10.0.0.1"]);
        let read = SigningRequest::parse(&sound).unwrap();
        assert_eq!((read.node(), read.dns_names.as_slice()), (Some("n1"), ["n1".to_owned()].as_slice()));
        assert_eq!(read.addresses, [IpAddr::from([10, 0, 0, 1])]);
        let pem = String::from_utf8(STANDARD.decode(&sound).unwrap()).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(body).unwrap();
        let again = |der: &[u8]| {
            let body = STANDARD.encode(der);
            let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
            SigningRequest::parse(&STANDARD.encode(pem))
        };
        assert_eq!(again(&der).unwrap(), read);
        assert!(again(&[&der[..], b"x"].concat()).unwrap_err().contains("after its end"));
        // Whatever is changed on the way: it is refused, or says the same.
        for at in 0..der.len() {
            let mut bent = der.clone();
            bent[at] ^= 1;
            assert!(again(&bent).is_ok_and(|other| other == read) || again(&bent).is_err(), "byte {at}");
        }
        for wrong in ["", "%", &STANDARD.encode("x"), &"A".repeat(REQUEST_MAX + 4)] {
            assert!(SigningRequest::parse(wrong).is_err());
        }
    }

    #[test]
    fn signer_takes_what_it_is_for_and_says_why_not() {
        let node = parsed("system:node:n1", NODES, &[]);
        let serving = parsed("system:node:n1", NODES, &["10.0.0.1"]);
        let jane = parsed("jane", "dev", &[]);
        let complaint = |request: &SigningRequest, signer: &str, usages: &[&str]| {
            request.complaint(signer, usages).unwrap_or_default()
        };
        let (client, server) = ([SIGNATURE, CLIENT_AUTH], [SIGNATURE, SERVER_AUTH]);
        assert_eq!(complaint(&node, NODE_CLIENT, &client), "");
        assert_eq!(complaint(&node, NODE_CLIENT, &[SIGNATURE, CLIENT_AUTH, ENCIPHERMENT]), "");
        assert!(complaint(&node, NODE_CLIENT, &server).contains("usages did not match"));
        assert!(complaint(&serving, NODE_CLIENT, &client).contains("not allowed"));
        assert!(complaint(&jane, NODE_CLIENT, &client).contains("organization"));
        assert!(complaint(&parsed("n1", NODES, &[]), NODE_CLIENT, &client).contains("common name"));
        assert_eq!(complaint(&serving, NODE_SERVING, &server), "");
        assert!(complaint(&node, NODE_SERVING, &server).contains("required"));
        assert!(complaint(&serving, NODE_SERVING, &[SERVER_AUTH]).contains("usages"));
        assert_eq!(complaint(&jane, CLIENT, &[CLIENT_AUTH]), "");
        assert!(complaint(&jane, CLIENT, &[CLIENT_AUTH, "cert sign"]).contains("invalid usage"));
        assert!(complaint(&jane, CLIENT, &[SIGNATURE]).contains("missing"));
    }
}
