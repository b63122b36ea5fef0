//! Where the API is reached: its address, its certificates, the kubeconfig, and the task that serves it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use server::pki::{self, Pki};
use server::{Server, ServiceRange};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How long an address may be in use by what a killed process left behind, and how often to try.
const IN_USE_WAIT_MAX: Duration = Duration::from_secs(2);
const IN_USE_RETRY: Duration = Duration::from_millis(20);

const KUBECONFIG: &str = "admin.kubeconfig";

/// An address that is ours, with certificates for it; nobody is answered yet.
pub(crate) struct Endpoint {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it is known by.
    pub keys: Pki,
    /// What clients are told to call.
    host: String,
    /// Where the certificates are, and what they name.
    dir: PathBuf,
    names: Vec<String>,
}

impl Endpoint {
    /// Takes `api` and makes sure of the certificates below `dir`; `names` are further names of this machine.
    pub(crate) async fn bind(api: SocketAddr, dir: &Path, names: &[String], services: ServiceRange) -> Result<Self> {
        let listener = listen(api).await.with_context(|| {
            format!("cannot listen on {api}; is another API server there? choose another with --api")
        })?;
        let address = listener.local_addr()?;
        // Nobody can call an address that stands for all of a machine's.
        let named = names.first().filter(|_| address.ip().is_unspecified()).cloned();
        let host = named.map_or_else(|| address.to_string(), |name| host(&name, address.port()));
        let mut all = names.to_vec();
        all.push(address.ip().to_string());
        // By which pods call it.
        all.push(services.first().to_string());
        let keys = pki::ensure(&dir.join("pki"), &all).context("cannot make the certificates")?;
        Ok(Self { listener, address, keys, host, dir: dir.to_owned(), names: all })
    }

    /// Writes the administrator's kubeconfig below `dir`, and answers where.
    pub(crate) fn write_kubeconfig(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join(KUBECONFIG);
        self.keys.write_admin_kubeconfig(&path, &self.url()).context("cannot write the kubeconfig")?;
        Ok(path)
    }

    fn url(&self) -> String {
        format!("https://{}", self.host)
    }

    /// Begins to answer; at `inside`, too, where pods reach this machine if there are any.
    pub(crate) async fn serve(self, server: Server, inside: Option<IpAddr>) -> Result<Serving> {
        let tls = self.keys.server_config().context("cannot use the certificates")?;
        server.sign_certificates_by(&self.keys);
        let mut serving = Serving { stop: CancellationToken::new(), tasks: JoinSet::new() };
        serving.renew(&self);
        // One that stands for all addresses of the machine has that one already.
        if let Some(inside) =
            inside.filter(|inside| !self.address.ip().is_unspecified() && *inside != self.address.ip())
        {
            let inside = SocketAddr::new(inside, self.address.port());
            match listen(inside).await {
                Ok(listener) => serving.accept(listener, server.clone(), tls.clone()),
                Err(error) => warn!(%inside, %error, "cannot listen there: pods do not reach the API"),
            }
        }
        serving.accept(self.listener, server, tls);
        Ok(serving)
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
    stop: CancellationToken,
    tasks: JoinSet<io::Result<()>>,
}

impl Serving {
    /// Renews the certificates while they are served, and the kubeconfig with them.
    fn renew(&mut self, endpoint: &Endpoint) {
        let (dir, url, stop) = (endpoint.dir.clone(), endpoint.url(), self.stop.clone());
        let renewal = pki::Renewal::new(dir.join("pki"), endpoint.names.clone(), endpoint.keys.clone());
        self.tasks.spawn(async move {
            let renewing = renewal.run(|keys| {
                if let Err(error) = keys.write_admin_kubeconfig(&dir.join(KUBECONFIG), &url) {
                    warn!(%error, "the renewed certificate could not be written into the kubeconfig");
                }
            });
            let _ = stop.run_until_cancelled(renewing).await;
            Ok(())
        });
    }

    fn accept(&mut self, listener: TcpListener, server: Server, tls: Arc<rustls::ServerConfig>) {
        let stopped = self.stop.clone().cancelled_owned();
        self.tasks.spawn(async move { server.serve(listener, tls, stopped).await });
    }

    /// Stops accepting, ends watches, and lets requests finish within their deadline.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
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
