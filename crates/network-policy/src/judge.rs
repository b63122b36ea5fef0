//! Says who may reach whom, from the objects alone. What the kernel does is compared with this, and connections that are
//! there already are judged by it when policies change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::facts::{PodFacts, Protocol};
use crate::policy::{Allowed, Peers, Policy, PolicyKey, Ports, Way};
use crate::ranges::{has, number};
use crate::selector::{Labels, PeerSelector};

/// A packet as policies see it: behind the translation of its destination, ahead of that of its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The number of its protocol above IP.
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

/// Everything that policies look at.
pub(crate) struct World<'a> {
    pub(crate) namespaces: &'a BTreeMap<String, Labels>,
    pub(crate) policies: &'a BTreeMap<PolicyKey, Policy>,
    /// Whoever is not over, by address.
    pub(crate) peers: BTreeMap<IpAddr, Vec<&'a PodFacts>>,
    /// The pods of this node, by their addresses.
    pub(crate) subjects: BTreeMap<IpAddr, &'a PodFacts>,
}

impl World<'_> {
    /// Whether the packet may pass this node.
    pub(crate) fn lets_pass(&self, packet: Packet) -> bool {
        self.refuses(packet).is_none()
    }

    /// Whose policies refuse the packet, if it may not pass.
    pub(crate) fn refuses(&self, packet: Packet) -> Option<(IpAddr, Way)> {
        if packet.source == packet.destination {
            return None;
        }
        let ends = [(packet.source, Way::Egress), (packet.destination, Way::Ingress)];
        ends.into_iter().find(|(of, way)| self.subjects.get(of).is_some_and(|pod| !self.passes(pod, *way, packet)))
    }

    fn passes(&self, subject: &PodFacts, way: Way, packet: Packet) -> bool {
        let selecting = self.policies.values().filter(|it| it.selects(&subject.namespace, &subject.labels));
        let mut isolating = selecting.filter_map(|policy| policy.allowed(way)).peekable();
        isolating.peek().is_none() || isolating.any(|rules| rules.iter().any(|rule| self.meets(rule, way, packet)))
    }

    fn meets(&self, rule: &Allowed, way: Way, packet: Packet) -> bool {
        let peer = match way {
            Way::Ingress => packet.source,
            Way::Egress => packet.destination,
        };
        let is_peer = match &rule.peers {
            Peers::Everybody => true,
            Peers::Only { pods, blocks } => {
                let pod_is_meant = |selector: &PeerSelector| {
                    self.at(peer).any(|pod| {
                        let takes = selector.takes(&pod.namespace, self.namespaces.get(&pod.namespace), &pod.labels);
                        takes && Self::is_open(pod, way, packet)
                    })
                };
                has(&blocks[usize::from(peer.is_ipv6())], number(peer)) || pods.iter().any(pod_is_meant)
            }
        };
        is_peer && self.meets_ports(&rule.ports, packet)
    }

    /// Of whom only some ports may be reached, nothing else is meant, and none of what it sends.
    fn is_open(pod: &PodFacts, way: Way, packet: Packet) -> bool {
        pod.only.as_ref().is_none_or(|only| {
            let protocol = Protocol::of_number(packet.protocol);
            way == Way::Egress && protocol.is_some_and(|protocol| only.contains(&(protocol, packet.port)))
        })
    }

    fn meets_ports(&self, ports: &Ports, packet: Packet) -> bool {
        let Ports::Only { numbers, names } = ports else { return true };
        let Some(protocol) = Protocol::of_number(packet.protocol) else { return false };
        let is_named = || {
            self.at(packet.destination).flat_map(|pod| &pod.ports).any(|it| {
                (it.protocol, it.number) == (protocol, packet.port) && names.contains(&(protocol, it.name.clone()))
            })
        };
        numbers.get(&protocol).is_some_and(|ranges| has(ranges, packet.port.into())) || is_named()
    }

    fn at(&self, address: IpAddr) -> impl Iterator<Item = &PodFacts> {
        self.peers.get(&address).into_iter().flatten().copied()
    }
}
