//! Where the API is reached: its address, its certificates, the kubeconfig, and the task that serves it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use server::Server;
use server::pki::{self, Pki};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long an address may be in use by what a killed process left behind, and how often to try.
const IN_USE_WAIT_MAX: Duration = Duration::from_secs(2);
const IN_USE_RETRY: Duration = Duration::from_millis(20);

/// An address that is ours, with certificates for it; nobody is answered yet.
pub(crate) struct Endpoint {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it is known by.
    pub keys: Pki,
    /// What clients are told to call.
    host: String,
}

impl Endpoint {
    /// Takes `api` and makes sure of the certificates below `dir`; `names` are further names of this machine.
    pub(crate) async fn bind(api: SocketAddr, dir: &Path, names: &[String]) -> Result<Self> {
        let listener = listen(api).await.with_context(|| {
            format!("cannot listen on {api}; is another API server there? choose another with --api")
        })?;
        let address = listener.local_addr()?;
        // Nobody can call an address that stands for all of a machine's.
        let named = names.first().filter(|_| address.ip().is_unspecified()).cloned();
        let host = named.map_or_else(|| address.to_string(), |name| host(&name, address.port()));
        let mut all = names.to_vec();
        all.push(address.ip().to_string());
        let keys = pki::ensure(&dir.join("pki"), &all).context("cannot make the certificates")?;
        Ok(Self { listener, address, keys, host })
    }

    /// Writes the administrator's kubeconfig below `dir`, and answers where.
    pub(crate) fn write_kubeconfig(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join("admin.kubeconfig");
        let url = format!("https://{}", self.host);
        self.keys.write_admin_kubeconfig(&path, &url).context("cannot write the kubeconfig")?;
        Ok(path)
    }

    /// Begins to answer.
    pub(crate) fn serve(self, server: Server) -> Result<Serving> {
        let tls = self.keys.server_config().context("cannot use the certificates")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move { server.serve(self.listener, tls, async { drop(stopped.await) }).await });
        Ok(Serving { stop, task })
    }
}

/// Takes an address. One that is in use may be so by what a killed process left behind: a child between its birth and its own
/// program has all that its parent had open, and a connection on its way may hold the port. That is over in a moment.
async fn listen(api: SocketAddr) -> io::Result<TcpListener> {
    let deadline = tokio::time::Instant::now() + IN_USE_WAIT_MAX;
    loop {
        match TcpListener::bind(api).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(IN_USE_RETRY).await;
            }
            bound => return bound,
        }
    }
}

fn host(name: &str, port: u16) -> String {
    match name.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{name}:{port}"),
    }
}

/// An API that is served.
pub(crate) struct Serving {
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Serving {
    /// Stops accepting, ends watches, and lets requests finish within their deadline.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn address_that_is_in_use_for_a_moment_is_waited_for() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let waiting = tokio::spawn(listen(address));
        // Long enough for the first attempts to be refused.
        tokio::time::sleep(IN_USE_RETRY * 5).await;
        assert!(!waiting.is_finished(), "it waits");
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap().local_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn address_that_stays_in_use_is_told_in_the_end() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = listen(held.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
