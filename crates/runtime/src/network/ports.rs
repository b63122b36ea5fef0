//! Host ports: what comes to a port of the node is sent on to a pod.
//!
//! ```text
//! table ip adXXXX-ports {
//!     map any { protocol . port : address . port }            ports at every address of the node
//!     map at  { address . protocol . port : address . port }  ports at one address
//!     set own { address . address }                           each pod, twice
//!     chain guard { type filter hook prerouting priority raw;  iifname "ad*" ip daddr 127.0.0.0/8 drop }
//!     chain in    { type nat hook prerouting priority dstnat;
//!         dnat to ip daddr . l4proto . dport map @at
//!         fib daddr type local dnat to l4proto . dport map @any
//!     }
//!     chain here  { type nat hook output priority dstnat;      the same, for what this machine itself sends }
//!     chain back  { type nat hook postrouting priority srcnat;
//!         ip saddr 127.0.0.0/8 oifname "ad*" snat to NODE      a pod cannot answer to 127.0.0.1
//!         ip saddr . ip daddr @own snat to NODE                nor to itself, by way of the node
//!     }
//! }
//! ```
//!
//! A packet is looked up once, however many ports there are. Few pods have any, so the table is written anew, in one batch,
//! whenever one comes or goes; connections that are open stay open. What stands in it follows from the records of pods, so a
//! restart writes the same again.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use nft::{
    Chain, ChainKind, Element, Family, Field, Hook, Relation, Rule, Set, Side, Table, TableSpec, Verdict, concatenated,
};

use super::error::NetworkError;
use super::host::LINK_PREFIX;
use super::masquerade::SOURCE_NAT_PRIORITY;
use crate::contract::{HostPort, PodUid, Protocol};

pub(super) const RAW_PRIORITY: i32 = -300;
const DESTINATION_NAT_PRIORITY: i32 = -100;
const LOOPBACK: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
const ANY: &str = "any";
const AT: &str = "at";
const OWN: &str = "own";

/// The ports of every pod that has any.
pub(super) type Published = BTreeMap<PodUid, (Ipv4Addr, Vec<HostPort>)>;

/// Why a pod cannot have its ports: somebody else has one of them.
pub(super) fn conflict(published: &Published, pod: &PodUid, ports: &[HostPort]) -> Option<NetworkError> {
    let taken = |port: &HostPort, holder: String| NetworkError::PortTaken { port: port.to_string(), holder };
    for port in ports {
        for (other, (_, theirs)) in published.iter().filter(|(other, _)| *other != pod) {
            if theirs.iter().any(|their| their.collides(port)) {
                return Some(taken(port, format!("pod {}", other.0)));
            }
        }
        // Its connections would silently go to the pod instead.
        if is_listening(port) {
            return Some(taken(port, "a program on this machine".to_owned()));
        }
    }
    None
}

/// Whether a program holds the port. Only a look: nothing is held here.
fn is_listening(port: &HostPort) -> bool {
    let address = SocketAddr::new(port.host_ip, port.host_port);
    let tried = match port.protocol {
        Protocol::Tcp => TcpListener::bind(address).map(drop),
        Protocol::Udp => UdpSocket::bind(address).map(drop),
        Protocol::Sctp => Ok(()),
    };
    tried.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// The table for these ports.
pub(super) fn spec(table: Table, node: Ipv4Addr, published: &Published) -> TableSpec {
    let drop_loopback = Rule::new()
        .input_name_begins(Relation::Equal, LINK_PREFIX)
        .address_in(Side::Destination, Relation::Equal, LOOPBACK.0, LOOPBACK.1)
        .verdict(Verdict::Drop);
    let to_pods = [
        Rule::new().load_destination(Family::Ip).destination_from_map(Family::Ip, AT),
        Rule::new().destination_is_local().load_protocol_and_port().destination_from_map(Family::Ip, ANY),
    ];
    let from_node = [
        Rule::new()
            .address_in(Side::Source, Relation::Equal, LOOPBACK.0, LOOPBACK.1)
            .output_name_begins(Relation::Equal, LINK_PREFIX)
            .source_nat(node.into()),
        Rule::new().addresses_in_set(Family::Ip, OWN).source_nat(node.into()),
    ];
    let nat = |name, hook, priority, rules: &[Rule]| (Chain::at(name, ChainKind::Nat, hook, priority), rules.to_vec());
    let guard = Chain::at("guard", ChainKind::Filter, Hook::Prerouting, RAW_PRIORITY);
    TableSpec {
        chains: vec![
            (guard, vec![drop_loopback]),
            nat("in", Hook::Prerouting, DESTINATION_NAT_PRIORITY, &to_pods),
            nat("here", Hook::Output, DESTINATION_NAT_PRIORITY, &to_pods),
            nat("back", Hook::Postrouting, SOURCE_NAT_PRIORITY, &from_node),
        ],
        sets: sets(published),
        ..TableSpec::new(table)
    }
}

fn sets(published: &Published) -> Vec<(Set, Vec<Element>)> {
    // By their keys: of two for the same port, the first has it.
    let (mut any, mut at, mut own) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (address, ports) in published.values() {
        let address = address.octets();
        own.entry(concatenated(&[&address, &address])).or_insert(None);
        for port in ports {
            let (protocol, number) = ([port.protocol.number()], port.host_port.to_be_bytes());
            let pod = concatenated(&[&address, &port.container_port.to_be_bytes()]);
            match port.host_ip {
                IpAddr::V4(host) if host.is_unspecified() => {
                    any.entry(concatenated(&[&protocol, &number])).or_insert(Some(pod));
                }
                IpAddr::V4(host) => {
                    at.entry(concatenated(&[&host.octets(), &protocol, &number])).or_insert(Some(pod));
                }
                // Refused when it is asked for: this table sees no such packet.
                IpAddr::V6(_) => {}
            }
        }
    }
    let elements = |found: BTreeMap<Vec<u8>, Option<Vec<u8>>>| {
        let element = |(key, value): (Vec<u8>, Option<_>)| match value {
            Some(value) => Element::value(key, value),
            None => Element::key(key),
        };
        found.into_iter().map(element).collect::<Vec<_>>()
    };
    let pod = [Field::Ipv4Address, Field::Port];
    vec![
        (Set::map(ANY, &[Field::Protocol, Field::Port], &pod), elements(any)),
        (Set::map(AT, &[Field::Ipv4Address, Field::Protocol, Field::Port], &pod), elements(at)),
        (Set::of(OWN, &[Field::Ipv4Address, Field::Ipv4Address]), elements(own)),
    ]
}
