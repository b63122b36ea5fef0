//! The part of an instance that has pods: runtime and node.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use node::{Files, MemoryVolumes, Node, NodeConfig};
use proxy::Proxy;
use runtime::embedded::{Embedded, EmbeddedConfig};
use server::Server;
use timeline::Clock;
use tokio::sync::watch;

use crate::cluster_dns::ClusterDns;
use crate::config::{Config, VERSION};
use crate::data_dir;
use crate::instance::Instance;
use crate::network_policy::NetworkPolicies;
use crate::status::Leaving;
use crate::traffic::{NodeTraffic, other_proxies};

/// A running node and what it runs containers with.
pub(crate) struct Machine {
    /// The node.
    pub node: Node<Embedded>,
    /// What it runs containers with.
    pub runtime: Arc<Embedded>,
    /// Where Services lead; none if this kernel cannot route them.
    pub proxy: Option<Proxy>,
    /// Who may reach whom.
    policies: NetworkPolicies,
    /// Who steers the traffic of pods, with the place where the number of other proxies is told.
    steering: Option<(NodeTraffic, watch::Sender<Option<u32>>)>,
    node_name: String,
    /// By what its pods find names.
    pub dns: ClusterDns,
    /// The folder that holds all it owns.
    pub data_dir: PathBuf,
}

impl Machine {
    /// Who of this node's pods is on its way out.
    pub(crate) fn leaving(&self) -> Leaving {
        let containers = self.node.containers();
        Arc::new(move || containers.leaving())
    }

    /// Routes Services as `client` tells of them. One that may read nodes also tells how many others do so.
    pub(crate) fn route_services(&mut self, client: kube::Client, reads_nodes: bool) {
        if let Some(proxy) = &self.proxy {
            proxy.follow(client.clone());
        }
        if let Some((_, told)) = self.steering.as_mut().filter(|_| reads_nodes) {
            let told = std::mem::replace(told, watch::Sender::new(None));
            tokio::spawn(other_proxies::follow(client, self.node_name.clone(), told));
        }
    }

    /// Enforces NetworkPolicies as `client` tells of them. `sees_all_pods` unless it may read those of this node only.
    pub(crate) fn enforce_policies(&self, client: kube::Client, sees_all_pods: bool) {
        self.policies.follow(client, &self.node_name, sees_all_pods);
    }

    /// Who steers the traffic of pods, if anybody does.
    pub(crate) fn traffic(&self) -> Option<NodeTraffic> {
        self.steering.as_ref().map(|(traffic, _)| traffic.clone())
    }

    /// No pod is taken on any more (or again), so that a replacement can only come elsewhere.
    pub(crate) fn leaves(&self, leaves: bool) {
        if let Some((traffic, _)) = &self.steering {
            traffic.node_leaves(leaves);
        }
    }

    /// Takes the rules of Services and NetworkPolicies away, for good.
    pub(crate) async fn remove_services(&self) -> Result<()> {
        self.policies.remove().await?;
        match &self.proxy {
            Some(proxy) => {
                let closed = proxy.close().await;
                closed.or_else(|_| Proxy::remove(proxy.settings())).context("cannot remove the rules of services")
            }
            None => Ok(()),
        }
    }

    /// Starts the runtime, then the node, which speaks through `client`. `api_port` is where the node itself is reached, `server` the
    /// API if it is in this process.
    pub(crate) async fn start(
        config: &Config,
        instance: &Instance,
        client: kube::Client,
        api_port: Option<u16>,
        server: Option<&Server>,
    ) -> Result<Self> {
        let dir = &instance.dir;
        data_dir::make_node_directories(dir)?;
        let runtime = Embedded::open(EmbeddedConfig {
            data_dir: dir.clone(),
            instance: instance.id.clone(),
            pod_cidr: config.pod_cidr,
            service_cidr: config.service_range.to_string().parse()?,
            shim_program: "/proc/self/exe".into(),
        })
        .await
        .context("cannot start the container runtime")?;
        let runtime = Arc::new(runtime);
        let proxy = open_proxy(config, runtime.network().link_prefix());
        let dns = ClusterDns::start(config, server, proxy.is_some()).await;
        let policies = NetworkPolicies::open(config, &runtime, &dns);
        let data_dir = dir.join("node");
        let memory =
            MemoryVolumes::open(&data_dir.join("memory")).context("cannot mount the memory that volumes are in")?;
        // Where nobody is served, nobody tells of Services either.
        let steering = proxy.as_ref().filter(|_| config.serves).map(|proxy| {
            let (told, other_proxies) = watch::channel(None);
            let steering = Box::new(proxy.handle());
            let owners = Box::new(client.clone());
            let traffic = NodeTraffic::start(steering, runtime.clone(), owners, other_proxies, Clock::of_machine());
            (traffic, told)
        });
        let traffic: Arc<dyn node::Traffic> = match &steering {
            Some((traffic, _)) => Arc::new(traffic.clone()),
            None => Arc::new(node::NoTraffic),
        };
        let traffic = policies.guard(traffic, &runtime);
        let settings = NodeConfig {
            name: config.node_name.clone(),
            address: config.node_address(),
            data_dir,
            images: dir.join("images"),
            volumes: dir.join("volumes"),
            eviction: config.eviction.clone(),
            images_kept: config.images_kept,
            pods_max: config.pods_max,
            pod_pids_max: config.pod_pids_max,
            allowed_sysctls: config.allowed_sysctls.clone(),
            cluster_dns: dns.addresses.clone(),
            traffic,
            static_pods: Some(dir.join("manifests")),
            version: VERSION.to_owned(),
            api_port,
            clock: Clock::of_machine(),
            machine: node::Machine::read().context("cannot read what this machine is")?,
            memory,
            files: Files::Threads,
            joins_later: config.member.is_some(),
            takes_on_pods: config.serves,
        };
        let node = Node::start(settings, runtime.clone(), client).await.context("cannot start the node")?;
        Ok(Self {
            node,
            runtime,
            proxy,
            policies,
            steering,
            dns,
            node_name: config.node_name.clone(),
            data_dir: dir.clone(),
        })
    }
}

/// Before the first pod starts: the kernel is to track connections from their beginning.
fn open_proxy(config: &Config, prefix: &str) -> Option<Proxy> {
    let pods = config.pod_cidr;
    let node = std::net::IpAddr::from(pods.node_address());
    let mut node_addresses = vec![config.node_address(), node];
    node_addresses.sort();
    node_addresses.dedup();
    let settings = proxy::Settings {
        prefix: prefix.to_owned(),
        pods: (pods.network().into(), pods.prefix_length(), node),
        services: proxy::parse_network(&config.service_range.to_string()),
        node_addresses,
        external_ips: config.external_ips.clone(),
    };
    Proxy::open(&config.node_name, settings)
        .inspect_err(|error| tracing::warn!(%error, "Services are not routed on this node"))
        .ok()
}
