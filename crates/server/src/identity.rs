//! Who is asking.

use std::collections::BTreeMap;

use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The caller of a request. It travels as a typed extension of the request, so no header can forge it: the network
/// side puts in what the client's certificate says, the process puts in the user each of its parts acts as.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// `kubernetes-admin`, `system:node:NAME`, `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// `system:masters`, `system:nodes`; `system:authenticated` is implied for everyone but the anonymous user.
    pub groups: Vec<String>,
    /// What tells this user from an earlier one of the same name; empty when nothing does.
    pub uid: String,
    /// What else the credential says, such as the pod a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A known user.
    pub fn new(user: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Self { user: user.into(), groups, ..Self::default() }
    }

    /// The node agent of `node`.
    pub fn node(node: &str) -> Self {
        Self::new(format!("system:node:{node}"), &["system:nodes"])
    }

    /// The service account `name` of `namespace`.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
        Self::new(format!("system:serviceaccount:{namespace}:{name}"), &groups)
    }

    /// The administrator.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// Nobody in particular.
    pub(crate) fn anonymous() -> Self {
        Self {
            user: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// What a verified client certificate says: the common name is the user, the organisations are the groups.
    pub(crate) fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next()?.as_str().ok()?;
        let groups: Vec<&str> = subject.iter_organization().filter_map(|group| group.as_str().ok()).collect();
        Some(Self::new(user, &groups))
    }

    /// The same, saying by which certificate it was shown.
    pub(crate) fn shown_by(mut self, der: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, der);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let credential = "authentication.kubernetes.io/credential-id".to_owned();
        self.extra.insert(credential, vec![format!("X509SHA256={hex}")]);
        self
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}
