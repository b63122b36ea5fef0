//! The parts of one instance, wired: store, API server, runtime, scheduler, node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use node::containers::NodeContainers;
use node::{Node, NodeConfig};
use runtime::embedded::{Embedded, EmbeddedConfig};
use server::{Identity, Server, ServerConfig, TokenKey};
use store::{OpenError, Store};
use tokio::task::JoinSet;

use crate::config::{Config, VERSION};
use crate::instance::{Instance, PATIENCE, RETRY};
use crate::local_node::LocalNode;

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

/// A client of our own server, over memory, that speaks as `identity`: put where no header can forge it.
fn client_as(server: &Server, identity: Identity) -> kube::Client {
    kube::Client::new(server.service_as(identity), "default")
}

/// A running instance, not yet serving anyone outside this process.
pub(crate) struct Platform {
    /// The API.
    pub server: Server,
    /// The node.
    pub node: Node<Embedded>,
    /// What the node runs containers with.
    pub runtime: Arc<Embedded>,
    /// The folder that holds all it owns.
    pub(crate) data_dir: PathBuf,
    controllers: JoinSet<()>,
}

impl Platform {
    /// Starts every part, in the order in which they need each other. `root_ca` is what pods are to trust.
    pub(crate) async fn start(config: &Config, instance: &Instance, root_ca: Option<&str>) -> Result<Self> {
        let dir = &instance.dir;
        let store = open_store(&dir.join("store")).await.context("cannot open the store")?;
        let dialer = Arc::new(LocalNode::<NodeContainers<Embedded>>::new(config.node_name.clone()));
        let advertise = config.api.unwrap_or_else(|| SocketAddr::from((config.node_address(), 6443)));
        let server = Server::new(ServerConfig {
            store,
            advertise,
            version: VERSION.to_owned(),
            nodes: dialer.clone(),
            service_range: server::ServiceRange::default(),
            token_key: TokenKey::ensure(&dir.join("pki")).context("cannot make the key of service account tokens")?,
        })
        .await
        .context("cannot start the API server")?;
        if let Some(pem) = root_ca {
            server.publish_root_ca(pem);
        }
        let runtime = Embedded::open(EmbeddedConfig {
            data_dir: dir.clone(),
            instance: instance.id.clone(),
            pod_cidr: config.pod_cidr,
            shim_program: "/proc/self/exe".into(),
        })
        .await
        .context("cannot start the container runtime")?;
        let runtime = Arc::new(runtime);
        let node = Node::start(
            NodeConfig {
                name: config.node_name.clone(),
                address: config.node_address(),
                data_dir: dir.join("node"),
                static_pods: Some(dir.join("manifests")),
                version: VERSION.to_owned(),
                takes_on_pods: config.api.is_some(),
            },
            runtime.clone(),
            client_as(&server, Identity::node(&config.node_name)),
        )
        .await
        .context("cannot start the node")?;
        dialer.set(node.containers());
        let mut controllers = JoinSet::new();
        if config.api.is_some() {
            let scheduler = client_as(&server, Identity::new("system:kube-scheduler", &[]));
            controllers.spawn(::controllers::scheduler::run(scheduler));
            let others = client_as(&server, Identity::new("system:kube-controller-manager", &[]));
            controllers.spawn(::controllers::run(others, ::controllers::Settings::default()));
        }
        Ok(Self { server, node, runtime, data_dir: dir.clone(), controllers })
    }

    /// Stops every part and leaves the pods as they are.
    pub(crate) async fn stop(mut self) {
        self.controllers.shutdown().await;
        self.node.stop().await;
    }
}
