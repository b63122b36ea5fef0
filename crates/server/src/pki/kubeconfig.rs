//! Kubeconfigs: the one that lets `kubectl` in as the administrator, and those of nodes.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Pki, files};

impl Pki {
    /// A kubeconfig for `server_url` (`https://127.0.0.1:6443`) with the administrator's certificate inside.
    pub fn admin_kubeconfig(&self, server_url: &str) -> String {
        kubeconfig(server_url, "kubernetes-admin", self.ca_pem(), &self.admin.certificate, &self.admin.key)
    }

    /// Writes [`Self::admin_kubeconfig`] to `path`, mode 0600, whole or not at all.
    pub fn write_admin_kubeconfig(&self, path: &Path, server_url: &str) -> io::Result<()> {
        files::write_private(path, self.admin_kubeconfig(server_url).as_bytes())
    }
}

/// A kubeconfig that lets `user` in at `server_url` with a certificate and its key. All are PEM.
pub fn kubeconfig(server_url: &str, user: &str, ca: &str, certificate: &str, key: &str) -> String {
    // JSON is YAML, and quoting is then never in doubt.
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "adieu", "cluster": {
            "server": server_url,
            "certificate-authority-data": STANDARD.encode(ca),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }}],
        "contexts": [{"name": "adieu", "context": {"cluster": "adieu", "user": user}}],
        "current-context": "adieu",
        "preferences": {},
    });
    let mut text = serde_json::to_string_pretty(&config).expect("a JSON value always serialises");
    text.push('\n');
    text
}

/// Writes an already rendered kubeconfig to `path`, mode 0600, whole or not at all.
pub fn write_kubeconfig(path: &Path, kubeconfig: &str) -> io::Result<()> {
    files::write_private(path, kubeconfig.as_bytes())
}
