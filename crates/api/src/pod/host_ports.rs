//! The ports of its node that a pod has, and whose collide.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::ContainerPort;
use serde_json::Value;

use super::view::{Container, Ports, View};
use crate::rules::value::word;

/// A port of the node that leads to a port of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// The node's port.
    pub port: u16,
    /// At which address of the node.
    pub ip: HostIp,
    /// Of which protocol.
    pub protocol: Protocol,
    /// The pod's port.
    pub container_port: u16,
}

/// An address of a node, or all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostIp {
    /// Every address: it is left out, `0.0.0.0` or `::`.
    All,
    /// This one.
    At(IpAddr),
    /// What was written is no address.
    Invalid,
}

/// What a port belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// The default.
    Tcp,
    /// Datagrams.
    Udp,
    /// Streams of messages.
    Sctp,
}

impl HostPort {
    /// Whether a node can have only one of them. `::` stands for every address, as `0.0.0.0` does: a node gives a pod that asks for it
    /// the port at every address it has.
    pub fn collides(&self, other: &Self) -> bool {
        let everywhere =
            matches!(self.ip, HostIp::All | HostIp::Invalid) || matches!(other.ip, HostIp::All | HostIp::Invalid);
        self.port == other.port && self.protocol == other.protocol && (everywhere || self.ip == other.ip)
    }

    fn read(host_port: Option<i64>, host_ip: &str, protocol: &str, container_port: i64) -> Option<Self> {
        let ip = match host_ip.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => HostIp::All,
            Ok(address) => HostIp::At(address),
            Err(_) if host_ip.is_empty() => HostIp::All,
            Err(_) => HostIp::Invalid,
        };
        let protocol = match protocol {
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => Protocol::Tcp,
        };
        let port = u16::try_from(host_port?).ok().filter(|port| *port > 0)?;
        Some(Self { port, ip, protocol, container_port: u16::try_from(container_port).ok()? })
    }

    fn of_typed(port: &ContainerPort) -> Option<Self> {
        let host_ip = port.host_ip.as_deref().unwrap_or_default();
        let protocol = port.protocol.as_deref().unwrap_or_default();
        Self::read(port.host_port.map(i64::from), host_ip, protocol, port.container_port.into())
    }

    fn of_json(port: &Value) -> Option<Self> {
        let container_port = port["containerPort"].as_i64().unwrap_or_default();
        Self::read(port["hostPort"].as_i64(), word(port, "hostIP"), word(port, "protocol"), container_port)
    }
}

/// The host ports of all containers that run side by side: init containers that end have none.
pub fn host_ports(pod: &impl View) -> impl Iterator<Item = HostPort> {
    let sidecars = pod.init_containers().filter(Container::is_restartable);
    pod.containers().chain(sidecars).flat_map(|container| {
        let (json, typed): (&[Value], &[ContainerPort]) = match container.ports {
            Ports::Json(ports) => (ports, &[]),
            Ports::Typed(ports) => (&[], ports),
        };
        json.iter().filter_map(HostPort::of_json).chain(typed.iter().filter_map(HostPort::of_typed))
    })
}
