//! The parts of one instance, wired: control plane, runtime, node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use node::containers::NodeContainers;
use node::{Node, NodeConfig};
use runtime::embedded::{Embedded, EmbeddedConfig};
use server::Identity;

use crate::config::{Config, VERSION};
use crate::control_plane::ControlPlane;
use crate::instance::Instance;
use crate::local_node::LocalNode;

/// A running instance, not yet serving anyone outside this process.
pub(crate) struct Platform {
    /// Store, API server, controllers.
    pub plane: ControlPlane,
    /// The node.
    pub node: Node<Embedded>,
    /// What the node runs containers with.
    pub runtime: Arc<Embedded>,
    /// The folder that holds all it owns.
    pub(crate) data_dir: PathBuf,
}

impl Platform {
    /// Starts every part, in the order in which they need each other. `root_ca` is what pods are to trust.
    pub(crate) async fn start(config: &Config, instance: &Instance, root_ca: Option<&str>) -> Result<Self> {
        let dir = &instance.dir;
        let dialer = Arc::new(LocalNode::<NodeContainers<Embedded>>::new(config.node_name.clone()));
        let advertise = config.api.unwrap_or_else(|| SocketAddr::from((config.node_address(), 6443)));
        let mut plane = ControlPlane::start(dir, advertise, dialer.clone(), root_ca).await?;
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
                images: dir.join("images"),
                eviction: config.eviction.clone(),
                images_kept: config.images_kept,
                static_pods: Some(dir.join("manifests")),
                version: VERSION.to_owned(),
                takes_on_pods: config.api.is_some(),
            },
            runtime.clone(),
            plane.client_as(Identity::node(&config.node_name)),
        )
        .await
        .context("cannot start the node")?;
        dialer.set(node.containers());
        if config.api.is_some() {
            plane.start_controllers();
        }
        Ok(Self { plane, node, runtime, data_dir: dir.clone() })
    }

    /// Stops every part and leaves the pods as they are.
    pub(crate) async fn stop(self) {
        self.plane.stop().await;
        self.node.stop().await;
    }
}
