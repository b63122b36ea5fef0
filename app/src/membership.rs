//! How a node is let in by a server elsewhere: its kubeconfig, kept in its folder, and the client made of it.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::middleware::BaseUriLayer;
use runtime::image::Resolver;
use serde_json::Value;
use server::pki::{self, NodeCertificates, NodeKeys};
use tower::Layer as _;

/// Where it is kept: a node that is started again needs nobody who brings it.
const KEPT: &str = "kubeconfig";

/// How long the server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A server that has said nothing for so long is asked whether it is still there, and may take so long to say so. Without
/// this a watch on a server whose machine is gone would wait for ever.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(10);
/// A port that nobody listens on; a datagram socket only asks the kernel for the way there.
const ANY_PORT: u16 = 9;

/// Who a node is to its server, and where that is.
#[derive(Clone)]
pub(crate) struct Membership {
    /// What the node is called, as its certificate says.
    pub node: String,
    /// Where the API server is.
    pub server: Uri,
    /// From when until when its certificate is good, in seconds since 1970.
    pub life: (i64, i64),
    /// What proves it.
    pub keys: NodeKeys,
    /// What of that connections show now.
    pub shown: NodeCertificates,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("node", &self.node).field("server", &self.server).finish_non_exhaustive()
    }
}

impl Membership {
    /// What `kubeconfig` says, or what was kept below `dir`; `server` counts more than either.
    pub(crate) fn resolve(dir: &Path, kubeconfig: Option<&Path>, server: Option<&str>) -> Result<Self> {
        let kept = Self::place(dir);
        let path = match kubeconfig {
            Some(path) => path,
            None if kept.exists() => &kept,
            None => bail!(
                "--kubeconfig: how is this node let in? Run `adieu server add-node NAME` where the server runs, and bring the \
                 file that it makes"
            ),
        };
        let mut membership = Self::read(path).with_context(|| format!("cannot use {}", path.display()))?;
        // The node may have renewed its certificate since this was brought.
        if kubeconfig.is_some()
            && let Ok(mut renewed) = Self::read(&kept)
            && (&renewed.node, &renewed.keys.ca) == (&membership.node, &membership.keys.ca)
            && renewed.life.0 > membership.life.0
        {
            renewed.server = membership.server;
            membership = renewed;
        }
        if let Some(server) = server {
            membership.server = address(server).context("--server")?;
        }
        Ok(membership)
    }

    /// What an earlier start on `dir` kept.
    pub(crate) fn kept(dir: &Path) -> Result<Self> {
        let path = Self::place(dir);
        Self::read(&path).with_context(|| format!("cannot use {}", path.display()))
    }

    /// Where it is kept below `dir`.
    pub(crate) fn place(dir: &Path) -> PathBuf {
        dir.join(KEPT)
    }

    /// Keeps it below `dir`, readable for its owner only, whole or not at all.
    pub(crate) fn keep(&self, dir: &Path) -> Result<()> {
        let path = Self::place(dir);
        let user = format!("system:node:{}", self.node);
        let NodeKeys { ca, certificate, key } = &self.keys;
        let text = pki::kubeconfig(&self.server.to_string(), &user, ca, certificate, key);
        pki::write_kubeconfig(&path, &text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let config: Value = serde_saphyr::from_str(&text).context("it is not YAML")?;
        let named = |list: &str, name: &Value, what: &str| {
            let entries = config[list].as_array().into_iter().flatten();
            let found = entries.into_iter().find(|entry| entry["name"] == *name).map(|entry| entry[what].clone());
            found.with_context(|| format!("it has no {what} {name}"))
        };
        let context = named("contexts", &config["current-context"], "context")?;
        let cluster = named("clusters", &context["cluster"], "cluster")?;
        let user = named("users", &context["user"], "user")?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let keys = NodeKeys {
            ca: pem(&cluster, "certificate-authority", folder)?,
            certificate: pem(&user, "client-certificate", folder)?,
            key: pem(&user, "client-key", folder)?,
        };
        let (node, life) = keys.node().context(
            "its certificate is not a node's (system:node:NAME in system:nodes); make one with `adieu server add-node`",
        )?;
        let shown = NodeCertificates::new(&keys, None).context("cannot use the node's certificate")?;
        Ok(Self { node, server: address(cluster["server"].as_str().unwrap_or_default())?, life, keys, shown })
    }

    /// A client of the server, as this node: one connection for everything, and a server that is gone is noticed.
    pub(crate) fn client(&self) -> Result<kube::Client> {
        let mut plain = HttpConnector::new_with_resolver(Resolver::default());
        plain.enforce_http(false);
        plain.set_nodelay(true);
        plain.set_connect_timeout(Some(CONNECT));
        let secure = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(self.keys.client_config(&self.shown).context("cannot use the node's certificate")?)
            .https_only()
            .enable_all_versions()
            .wrap_connector(plain);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .build::<_, kube::client::Body>(secure);
        Ok(kube::Client::new(BaseUriLayer::new(self.server.clone()).layer(client), "default"))
    }

    /// This machine's address on the way to the server; nothing is sent.
    pub(crate) fn way_to_server(&self) -> io::Result<IpAddr> {
        let host = self.server.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let server: IpAddr = host.parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{host} is a name; say the node's address with --node-api"),
            )
        })?;
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(SocketAddr::new(server, ANY_PORT))?;
        Ok(socket.local_addr()?.ip())
    }
}

/// A PEM that is in the file itself, or in another one that it names.
fn pem(entry: &Value, field: &str, folder: &Path) -> Result<String> {
    let bytes = if let Some(data) = entry[format!("{field}-data")].as_str() {
        STANDARD.decode(data).with_context(|| format!("its {field}-data is not base64"))?
    } else {
        let path = entry[field].as_str().with_context(|| format!("it has no {field}, which a node needs"))?;
        let path = folder.join(path);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?
    };
    String::from_utf8(bytes).with_context(|| format!("its {field} is not PEM"))
}

fn address(text: &str) -> Result<Uri> {
    let uri: Uri = text.parse().with_context(|| format!("{text:?} is not an address like https://10.0.0.1:6443"))?;
    if uri.scheme_str() != Some("https") || uri.host().is_none() {
        bail!("{text:?} is not an address like https://10.0.0.1:6443");
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn kubeconfig(dir: &Path, node: &str) -> PathBuf {
        let keys = pki::ensure(&dir.join("pki"), &[]).unwrap();
        let path = dir.join("of-the-node");
        pki::write_kubeconfig(&path, &keys.node_kubeconfig(node, "https://127.0.0.1:7443").unwrap()).unwrap();
        path
    }

    #[test]
    fn a_node_is_let_in_by_what_was_kept_of_its_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let brought = kubeconfig(dir.path(), "n1");
        assert!(Membership::resolve(dir.path(), None, None).unwrap_err().to_string().contains("add-node"));
        let moved = Membership::resolve(dir.path(), Some(&brought), Some("https://127.0.0.1:7444")).unwrap();
        moved.keep(dir.path()).unwrap();
        fs::remove_file(brought).unwrap();
        let kept = Membership::resolve(dir.path(), None, None).unwrap();
        assert_eq!((kept.node.as_str(), kept.server.to_string().as_str()), ("n1", "https://127.0.0.1:7444/"));
        assert_eq!(kept.way_to_server().unwrap(), IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn the_administrators_kubeconfig_makes_no_node() {
        let dir = tempfile::tempdir().unwrap();
        let keys = pki::ensure(dir.path(), &[]).unwrap();
        let path = dir.path().join("admin");
        keys.write_admin_kubeconfig(&path, "https://127.0.0.1:7443").unwrap();
        let refusal = format!("{:#}", Membership::resolve(dir.path(), Some(&path), None).unwrap_err());
        assert!(refusal.contains("is not a node's"), "{refusal}");
    }
}
