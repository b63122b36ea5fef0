//! The kubeconfig that lets `kubectl` in as the administrator.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Pki, files};

impl Pki {
    /// A kubeconfig for `server_url` (`https://127.0.0.1:6443`) with the administrator's certificate inside.
    pub fn admin_kubeconfig(&self, server_url: &str) -> String {
        // JSON is YAML, and quoting is then never in doubt.
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "adieu", "cluster": {
                "server": server_url,
                "certificate-authority-data": STANDARD.encode(&self.ca.certificate),
            }}],
            "users": [{"name": "kubernetes-admin", "user": {
                "client-certificate-data": STANDARD.encode(&self.admin.certificate),
                "client-key-data": STANDARD.encode(&self.admin.key),
            }}],
            "contexts": [{"name": "adieu", "context": {"cluster": "adieu", "user": "kubernetes-admin"}}],
            "current-context": "adieu",
            "preferences": {},
        });
        let mut text = serde_json::to_string_pretty(&config).expect("a JSON value always serialises");
        text.push('\n');
        text
    }

    /// Writes [`Self::admin_kubeconfig`] to `path`, mode 0600, whole or not at all.
    pub fn write_admin_kubeconfig(&self, path: &Path, server_url: &str) -> io::Result<()> {
        files::write_private(path, self.admin_kubeconfig(server_url).as_bytes())
    }
}

/// Writes an already rendered kubeconfig to `path`, mode 0600, whole or not at all.
pub fn write_kubeconfig(path: &Path, kubeconfig: &str) -> io::Result<()> {
    files::write_private(path, kubeconfig.as_bytes())
}
