//! The cluster DNS of this node: where it listens, what the cluster calls it, and what pods are told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dns::{Dns, PodRecords, Zone};
use node::translate::resolv_conf::CLUSTER_DOMAIN;
use server::Server;
use tracing::warn;

use crate::config::{Config, address_to_the_world};

/// Where DNS is.
const PORT: u16 = 53;
/// Where the machine's resolvers are named.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// What pods of this node find names by.
#[derive(Default)]
pub(crate) struct ClusterDns {
    /// None if another serves it, or nobody.
    pub dns: Option<Dns>,
    /// What pods are told; nothing if they get the machine's resolvers.
    pub addresses: Vec<IpAddr>,
}

impl ClusterDns {
    /// Begins to listen. `server` is the API of this process, whose service for it is then made to lead there; if Services are routed
    /// pods are told the address of that.
    pub(crate) async fn start(config: &Config, server: Option<&Server>, is_routed: bool) -> Self {
        if !config.serves {
            return Self::default();
        }
        if !config.cluster_dns.is_empty() {
            return Self { dns: None, addresses: config.cluster_dns.clone() };
        }
        let listen = SocketAddr::new(config.inside_address(), PORT);
        let dns = match Dns::open(settings(config, listen, server.is_some())).await {
            Ok(dns) => dns,
            Err(error) => {
                warn!(%listen, %error, "the cluster DNS cannot listen there: pods get the machine's resolvers and find no Services by name");
                return Self::default();
            }
        };
        let mut address = None;
        if let Some(server) = server {
            server.add_metrics(dns.metrics());
            address = server.publish_dns(listen).await;
        }
        // One that stands in for the usual address will not stay.
        let usual = IpAddr::from(config.service_range.dns());
        let told = address.filter(|address| is_routed && *address == usual).unwrap_or(listen.ip());
        Self { dns: Some(dns), addresses: vec![told] }
    }

    /// Follows the cluster as `client` tells of it.
    pub(crate) fn follow(&self, client: kube::Client) {
        if let Some(dns) = &self.dns {
            dns.follow(client);
        }
    }
}

/// A node that joins a server elsewhere may not know of all pods.
fn settings(config: &Config, listen: SocketAddr, knows_all_pods: bool) -> dns::Settings {
    let pods = (IpAddr::from(config.pod_cidr.network()), config.pod_cidr.prefix_length());
    let services = config.service_range;
    let ranges = vec![pods, (services.first().into(), services.prefix_length())];
    let of_machine = [Some(config.node_address()), address_to_the_world()].into_iter().flatten();
    let mut clients = vec![pods, (Ipv4Addr::LOCALHOST.into(), 8)];
    clients.extend(of_machine.map(|address| (address, if address.is_ipv4() { 32 } else { 128 })));
    dns::Settings {
        zone: Zone::new(CLUSTER_DOMAIN, ranges).expect("the domain is a name"),
        listen,
        clients,
        own: vec![services.dns().into()],
        resolv_conf: RESOLV_CONF.into(),
        upstream_port: PORT,
        pod_records: if knows_all_pods { PodRecords::Verified } else { PodRecords::Insecure },
    }
}
