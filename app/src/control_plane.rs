//! The part of an instance that needs no node: store, API server, controllers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use server::{AuditLog, Identity, NodeDialer, Server, ServerConfig, ServiceRange, TokenKey};
use store::{OpenError, Store};
use tokio::task::JoinSet;

use crate::config::{VERSION, keep_service_range};
use crate::instance::{PATIENCE, RETRY};

/// Store, server and controllers, not yet serving anyone outside this process.
pub(crate) struct ControlPlane {
    /// The API.
    pub server: Server,
    /// What it serves.
    pub store: Store,
    controllers: JoinSet<()>,
}

impl ControlPlane {
    /// Opens the store below `dir` and starts the server on it. Nobody looks after anything yet.
    pub(crate) async fn start(
        dir: &Path,
        advertise: SocketAddr,
        nodes: Arc<dyn NodeDialer>,
        root_ca: Option<&str>,
        service_range: ServiceRange,
    ) -> Result<Self> {
        let store = open_store(&dir.join("store")).await.context("cannot open the store")?;
        ensure_services_fit(&store, service_range)?;
        let server = Server::new(ServerConfig {
            store: store.clone(),
            advertise,
            version: VERSION.to_owned(),
            nodes,
            service_range,
            token_key: TokenKey::ensure(&dir.join("pki")).context("cannot make the key of service account tokens")?,
        })
        .await
        .context("cannot start the API server")?;
        keep_service_range(dir, service_range)?;
        if let Some(pem) = root_ca {
            server.publish_root_ca(pem);
        }
        Ok(Self { server, store, controllers: JoinSet::new() })
    }

    /// Writes down who asks for what from now on, if there is a file to write it to.
    pub(crate) fn audit_to(&self, path: Option<&Path>) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        let log = AuditLog::open(path).with_context(|| format!("cannot open the audit log {}", path.display()))?;
        self.server.audit_to(log);
        Ok(())
    }

    /// Starts every controller.
    pub(crate) fn start_controllers(&mut self, settings: ::controllers::Settings) {
        let scheduler = self.client_as(Identity::new("system:kube-scheduler", &[]));
        let schedule = move || ::controllers::scheduler::run(scheduler.clone(), settings);
        self.controllers.spawn(supervision::keep("scheduler", schedule));
        let read = self.client_as(Identity::new("system:kube-controller-manager", &[]));
        let server = self.server.clone();
        let act = move |account: &str| {
            let identity = Identity::service_account("kube-system", account);
            kube::Client::new(server.service_as(identity), "default")
        };
        let clients = ::controllers::Clients::new(read, act);
        let kinds = self.server.kinds();
        let run = move || ::controllers::run(clients.clone(), kinds.clone(), settings);
        self.controllers.spawn(supervision::keep("controllers", run));
    }

    /// A client of our own server, over memory, that speaks as `identity`: put where no header can forge it.
    pub(crate) fn client_as(&self, identity: Identity) -> kube::Client {
        kube::Client::new(self.server.service_as(identity), "default")
    }

    /// Stops the controllers.
    pub(crate) async fn stop(mut self) {
        self.controllers.shutdown().await;
    }
}

/// Services keep their addresses for as long as they are stored, and only those of the range are routed. Those of the server itself move
/// with the range.
fn ensure_services_fit(store: &Store, range: ServiceRange) -> Result<()> {
    const OWN: [(&str, &str); 2] = [("default", "kubernetes"), ("kube-system", "kube-dns")];
    let stored = store.list("services", "", None).map(|page| page.items).unwrap_or_default();
    let foreign = stored.iter().find_map(|service| {
        let is_own = OWN.contains(&(&*service.key.namespace, &*service.key.name));
        let address: Ipv4Addr = service.value()["spec"]["clusterIP"].as_str()?.parse().ok()?;
        (!is_own && !range.holds(address))
            .then(|| format!("{}/{} has {address}", service.key.namespace, service.key.name))
    });
    match foreign {
        None => Ok(()),
        Some(foreign) => bail!(
            "Services are stored with addresses outside of {range} ({foreign}); give the --service-cidr that they are from, or delete them first"
        ),
    }
}

/// Opens the store; what a killed process left behind may hold it for a moment longer than the folder.
async fn open_store(path: &Path) -> Result<Store, OpenError> {
    let since = Instant::now();
    loop {
        match Store::open(path).await {
            Err(OpenError::InUse { .. }) if since.elapsed() < PATIENCE => tokio::time::sleep(RETRY).await,
            outcome => return outcome,
        }
    }
}
