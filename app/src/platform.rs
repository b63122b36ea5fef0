//! The parts of one instance, wired: control plane and machine.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use node::containers::NodeContainers;
use runtime::embedded::Embedded;
use server::pki::Pki;
use server::{Identity, NodeDialer, RemoteNodes};

use crate::config::Config;
use crate::control_plane::{ControlPlane, Records};
use crate::instance::Instance;
use crate::local_node::LocalNode;
use crate::machine::Machine;

/// An instance whose node does not run yet.
pub(crate) struct StartedPlane {
    plane: ControlPlane,
    dialer: Arc<LocalNode<NodeContainers<Embedded>>>,
}

impl StartedPlane {
    /// Starts the node.
    pub(crate) async fn start_machine(self, config: &Config, instance: &Instance) -> Result<Platform> {
        let Self { mut plane, dialer } = self;
        let client = plane.client_as(Identity::node(&config.node_name));
        let mut machine = Machine::start(config, instance, client, None, Some(&plane.server)).await?;
        dialer.set(machine.node.containers());
        if let Some(traffic) = machine.traffic() {
            plane.server.add_metrics(move || traffic.metrics());
        }
        if config.serves {
            machine.route_services(plane.client_as(Identity::new("system:kube-proxy", &[])), true);
            machine.enforce_policies(plane.client_as(Identity::service_account("kube-system", "network-policy")), true);
            machine.dns.follow(plane.client_as(Identity::service_account("kube-system", "kube-dns")));
            plane.start_controllers(config.controllers);
        }
        Ok(Platform { plane, machine })
    }
}

/// A running instance, not yet serving anyone outside this process.
pub(crate) struct Platform {
    /// Store, API server, controllers.
    pub plane: ControlPlane,
    /// The node of this process.
    pub machine: Machine,
}

impl Platform {
    /// Starts every part, in the order in which they need each other. `keys` are what pods are to trust, and what other
    /// nodes are known by; none if nobody is served.
    pub(crate) async fn start(
        config: &Config,
        instance: &Instance,
        keys: Option<&Pki>,
        records: &Records,
    ) -> Result<Self> {
        Self::start_plane(config, instance, keys, records).await?.start_machine(config, instance).await
    }

    /// Starts the part that needs no node.
    pub(crate) async fn start_plane(
        config: &Config,
        instance: &Instance,
        keys: Option<&Pki>,
        records: &Records,
    ) -> Result<StartedPlane> {
        let dir = &instance.dir;
        let others: Option<Box<dyn NodeDialer>> = keys.map(|keys| Box::new(RemoteNodes::new(keys.clone())) as _);
        let dialer = Arc::new(LocalNode::<NodeContainers<Embedded>>::new(config.node_name.clone(), others));
        let api = config.api.unwrap_or_else(|| SocketAddr::from((config.inside_address(), 6443)));
        let advertise = config.advertised(api);
        let root_ca = keys.map(Pki::ca_pem);
        let plane = ControlPlane::start(dir, advertise, dialer.clone(), root_ca, config.service_range, records).await?;
        Ok(StartedPlane { plane, dialer })
    }

    /// Stops every part and leaves the pods as they are.
    pub(crate) async fn stop(self) {
        self.plane.stop().await;
        self.machine.node.stop().await;
    }
}
