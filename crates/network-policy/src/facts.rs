//! What is known of a pod, as far as policies look at it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::selector::Labels;

/// A protocol above IP that policies have ports of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its number in IP packets.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.number() == number)
    }

    /// What the API calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// The one that the API calls so; TCP if it says nothing.
    pub(crate) fn of_name(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// A port of a container that has a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NamedPort {
    pub(crate) protocol: Protocol,
    pub(crate) name: String,
    pub(crate) number: u16,
}

/// A pod, as far as policies look at it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PodFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) ports: BTreeSet<NamedPort>,
    /// Succeeded or failed: its address may be another's.
    pub(crate) is_over: bool,
    /// It is where its node is, and no pod to policies.
    pub(crate) is_on_host_network: bool,
    /// What may be reached of it; everything if nothing is said. For who shares an address with others.
    pub(crate) only: Option<BTreeSet<(Protocol, u16)>>,
}

impl fmt::Display for PodFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PodFacts {
    /// The facts of a pod.
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let listed = status.into_iter().flat_map(|status| status.pod_ips.iter().flatten()).map(|ip| &ip.ip);
        let first = status.and_then(|status| status.pod_ip.as_ref());
        let addresses = listed.chain(first).filter_map(|ip| ip.parse().ok());
        let phase = status.and_then(|status| status.phase.as_deref());
        let spec = pod.spec.as_ref();
        // An init container that is not restarted is over when somebody could ask for it.
        let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten()).filter(stays);
        let containers = spec.into_iter().flat_map(|spec| &spec.containers).chain(init);
        let ports = containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
            Some(NamedPort {
                protocol: Protocol::of_name(port.protocol.as_deref())?,
                name: port.name.clone()?,
                number: u16::try_from(port.container_port).ok()?,
            })
        });
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            addresses: addresses.collect(),
            ports: ports.collect(),
            is_over: matches!(phase, Some("Succeeded" | "Failed")),
            is_on_host_network: spec.and_then(|spec| spec.host_network) == Some(true),
            only: None,
        }
    }
}

/// The cluster DNS of a node is no pod, but policies that let pods ask it name it as one.
pub fn cluster_dns(addresses: impl IntoIterator<Item = IpAddr>) -> PodFacts {
    const DNS: u16 = 53;
    let port = |protocol, name: &str| NamedPort { protocol, name: name.to_owned(), number: DNS };
    PodFacts {
        namespace: "kube-system".to_owned(),
        name: "kube-dns".to_owned(),
        labels: [("k8s-app".to_owned(), "kube-dns".to_owned())].into(),
        addresses: addresses.into_iter().collect(),
        ports: [port(Protocol::Udp, "dns"), port(Protocol::Tcp, "dns-tcp")].into(),
        only: Some([(Protocol::Udp, DNS), (Protocol::Tcp, DNS)].into()),
        ..PodFacts::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_of_containers_that_stay_are_known_by_name_and_protocol() {
        let pod = serde_json::from_value(json!({
            "metadata": {"namespace": "x", "name": "a", "labels": {"pod": "a"}},
            "spec": {
                "initContainers": [
                    {"name": "once", "ports": [{"name": "gone", "containerPort": 1}]},
                    {"name": "side", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 2}]},
                ],
                "containers": [{"name": "app", "ports": [
                    {"name": "http", "containerPort": 80},
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"containerPort": 81},
                ]}],
            },
            "status": {"phase": "Running", "podIP": "10.86.0.9", "podIPs": [{"ip": "10.86.0.9"}, {"ip": "fd00::9"}]},
        }));
        let facts = PodFacts::of(&pod.unwrap());
        let found: Vec<_> = facts.ports.iter().map(|it| (it.protocol, it.name.as_str(), it.number)).collect();
        assert_eq!(found, [(Protocol::Tcp, "http", 80), (Protocol::Tcp, "side", 2), (Protocol::Udp, "dns", 53)]);
        assert_eq!(facts.addresses.len(), 2);
        assert!(!facts.is_over && !facts.is_on_host_network);
        assert_eq!(facts.to_string(), "x/a");
    }
}
