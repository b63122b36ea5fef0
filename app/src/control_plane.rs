//! The part of an instance that needs no node: store, API server, controllers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use server::{AuditLog, Identity, NodeDialer, Server, ServerConfig, TokenKey};
use store::{OpenError, Store};
use tokio::task::JoinSet;

use crate::config::VERSION;
use crate::instance::{PATIENCE, RETRY};

/// Store, server and controllers, not yet serving anyone outside this process.
pub(crate) struct ControlPlane {
    /// The API.
    pub server: Server,
    controllers: JoinSet<()>,
}

impl ControlPlane {
    /// Opens the store below `dir` and starts the server on it. Nobody looks after anything yet.
    pub(crate) async fn start(
        dir: &Path,
        advertise: SocketAddr,
        nodes: Arc<dyn NodeDialer>,
        root_ca: Option<&str>,
    ) -> Result<Self> {
        let store = open_store(&dir.join("store")).await.context("cannot open the store")?;
        let server = Server::new(ServerConfig {
            store,
            advertise,
            version: VERSION.to_owned(),
            nodes,
            service_range: server::ServiceRange::default(),
            token_key: TokenKey::ensure(&dir.join("pki")).context("cannot make the key of service account tokens")?,
        })
        .await
        .context("cannot start the API server")?;
        if let Some(pem) = root_ca {
            server.publish_root_ca(pem);
        }
        Ok(Self { server, controllers: JoinSet::new() })
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
