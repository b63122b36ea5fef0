//! The part of an instance that needs no node: store, API server, controllers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use cli::RecordSettings;
use serde_json::Value;
use server::{AuditLog, AuditPolicy, Identity, NodeDialer, Server, ServerConfig, TokenKey};
use store::{Encryption, OpenError, Store, Window};
use tokio::task::JoinSet;

use crate::config::VERSION;
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
        records: &Records,
    ) -> Result<Self> {
        let store = open_store(&dir.join("store"), &records.encryption).await.context("cannot open the store")?;
        let server = Server::new(ServerConfig {
            store: store.clone(),
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
        if let Some((path, policy)) = &records.audit {
            let log = AuditLog::open(path, policy.clone());
            server.audit_to(log.with_context(|| format!("cannot open the audit log {}", path.display()))?);
        }
        Ok(Self { server, store, controllers: JoinSet::new() })
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

/// What of requests is written down, and how objects are kept: read before anything else is done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    audit: Option<(PathBuf, AuditPolicy)>,
    encryption: Encryption,
}

impl Records {
    /// Reads the files that were named.
    pub(crate) fn read(settings: &RecordSettings) -> Result<Self> {
        let policy = match &settings.audit_policy_file {
            Some(path) => {
                let cannot = || format!("--audit-policy-file {}", path.display());
                AuditPolicy::read(&yaml(path).with_context(cannot)?).with_context(cannot)?
            }
            None => AuditPolicy::default(),
        };
        let audit = settings.audit_log.clone().map(|path| (path, policy));
        Ok(Self { audit, encryption: encryption(settings.encryption_config.as_deref())? })
    }
}

/// How values are encrypted, by the file that was named; not at all without one.
pub(crate) fn encryption(path: Option<&Path>) -> Result<Encryption> {
    let Some(path) = path else { return Ok(Encryption::default()) };
    let cannot = || format!("--encryption-config {}", path.display());
    Encryption::from_config(&yaml(path).with_context(cannot)?).with_context(cannot)
}

fn yaml(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).context("cannot read it")?;
    // All that the parser says of a mistake shows the lines around it, and a key may be in them.
    serde_saphyr::from_str(&text).map_err(|error| {
        let said = error.to_string();
        let place = said.split_once("line ").and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
        anyhow::anyhow!("it is not YAML: look at line {}", place.unwrap_or("1"))
    })
}

/// Opens the store; what a killed process left behind may hold it for a moment longer than the folder.
async fn open_store(path: &Path, encryption: &Encryption) -> Result<Store, OpenError> {
    let since = Instant::now();
    loop {
        match Store::open_encrypted(path, Window::default(), encryption.clone()).await {
            Err(OpenError::InUse { .. }) if since.elapsed() < PATIENCE => tokio::time::sleep(RETRY).await,
            outcome => return outcome,
        }
    }
}
