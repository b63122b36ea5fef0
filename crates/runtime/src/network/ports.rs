//! Host ports: what comes to a port of the node is sent on to a pod.
//!
//! ```text
//! table ip adXXXX-ports {
//!     chain guard { type filter hook prerouting priority raw;  iifname "ad*" ip daddr 127.0.0.0/8 drop }
//!     chain in    { type nat hook prerouting priority dstnat;  fib daddr type local tcp dport 8080 dnat to POD:80 }
//!     chain here  { type nat hook output priority dstnat;      the same, for what this machine itself sends }
//!     chain back  { type nat hook postrouting priority srcnat;
//!         ip saddr 127.0.0.0/8 oifname "ad*" snat to NODE         a pod cannot answer to 127.0.0.1
//!         ip saddr POD ip daddr POD snat to NODE                  nor to itself, by way of the node
//!     }
//! }
//! ```
//!
//! Few pods have any, so the table is written anew, in one batch, whenever one comes or goes; connections that are open
//! stay open. What stands in it follows from the records of pods, so a restart writes the same again.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use super::error::NetworkError;
use super::masquerade::POST_ROUTING;
use super::nft::{
    Batch, DESTINATION_AT, EQUAL, INPUT_NAME, LINK_PREFIX, NETWORK_HEADER, OUTPUT_NAME, Place, REGISTER,
    SECOND_REGISTER, SOURCE_AT, TRANSPORT_HEADER, address_in, compare, expression, immediate, meta, number, payload_is,
};
use crate::contract::{HostPort, PodUid, Protocol};

const GUARD: Place = Place("filter", 0, -300);
const INCOMING: Place = Place("nat", 0, -100);
const LOCAL: Place = Place("nat", 3, -100);
const PROTOCOL: u32 = 16;
const DESTINATION_PORT_AT: u32 = 2;
const LOOPBACK: (Ipv4Addr, u8) = (Ipv4Addr::new(127, 0, 0, 0), 8);
const SOURCE_NAT: u32 = 0;
const DESTINATION_NAT: u32 = 1;
const IPV4: u32 = 2;
/// The kernel's word for an address of this machine.
const LOCAL_ADDRESS: u32 = 2;
const DROP: u32 = 0;

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

/// Replaces the table by one for these ports, at once; by none if there are none.
pub(super) fn write(table: &str, node: Ipv4Addr, published: &Published) -> io::Result<()> {
    let mut batch = Batch::replacing(table);
    if published.is_empty() {
        return batch.commit();
    }
    batch.table(table);
    for (chain, place) in [("guard", &GUARD), ("in", &INCOMING), ("here", &LOCAL), ("back", &POST_ROUTING)] {
        batch.chain(table, chain, place);
    }
    let loopback = |at| address_in(at, EQUAL, LOOPBACK.0, LOOPBACK.1);
    let drop = expression("immediate", &[number(1, 0), super::nft::verdict(DROP)].concat());
    let from_pods = meta(INPUT_NAME, EQUAL, LINK_PREFIX.as_bytes());
    batch.rule(table, "guard", &[from_pods, loopback(DESTINATION_AT), drop]);
    let to_node = [immediate(REGISTER, &node.octets()), translate(SOURCE_NAT, false)].concat();
    let to_pods = meta(OUTPUT_NAME, EQUAL, LINK_PREFIX.as_bytes());
    batch.rule(table, "back", &[loopback(SOURCE_AT), to_pods, to_node.clone()]);
    for (address, ports) in published.values() {
        let is_pod = |at| payload_is(NETWORK_HEADER, at, &address.octets());
        batch.rule(table, "back", &[is_pod(SOURCE_AT), is_pod(DESTINATION_AT), to_node.clone()]);
        for port in ports {
            let rule = [
                to_this_machine(port.host_ip),
                meta(PROTOCOL, EQUAL, &[port.protocol.number()]),
                payload_is(TRANSPORT_HEADER, DESTINATION_PORT_AT, &port.host_port.to_be_bytes()),
                immediate(REGISTER, &address.octets()),
                immediate(SECOND_REGISTER, &port.container_port.to_be_bytes()),
                translate(DESTINATION_NAT, true),
            ];
            batch.rule(table, "in", &rule);
            batch.rule(table, "here", &rule);
        }
    }
    batch.commit()
}

/// Looks whether a packet is for this machine: for the address that was asked for, or any.
fn to_this_machine(address: IpAddr) -> Vec<u8> {
    // Those of the other kind are refused when they are asked for: this table sees none of their packets.
    if let IpAddr::V4(address) = address
        && !address.is_unspecified()
    {
        return payload_is(NETWORK_HEADER, DESTINATION_AT, &address.octets());
    }
    const KIND_OF_ADDRESS: u32 = 3;
    const OF_DESTINATION: u32 = 2;
    let look = [number(1, REGISTER), number(2, KIND_OF_ADDRESS), number(3, OF_DESTINATION)].concat();
    [expression("fib", &look), compare(EQUAL, &LOCAL_ADDRESS.to_ne_bytes())].concat()
}

/// Changes an address to the one in the first register, and the port to the one in the second.
fn translate(kind: u32, with_port: bool) -> Vec<u8> {
    let mut data = [number(1, kind), number(2, IPV4), number(3, REGISTER)].concat();
    if with_port {
        data.extend(number(5, SECOND_REGISTER));
    }
    expression("nat", &data)
}
