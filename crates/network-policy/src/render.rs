//! What policies become in the kernel: names, sets and rules. Pure: the same policy is always the same text.
//!
//! Chains and sets are called by what is in them. Two policies that allow the same share a chain, and a chain of that name never
//! changes, so that only elements and what leads where are ever compared.
//!
//! ```text
//! base chain ─ jump: local pod ──▶ pods_HASH ── jump ──▶ rules_HASH   accept …
//!                                        │                    peers_HASH     addresses of pods, elements come and go
//!                                        │                    doors_HASH     the same of who shares an address, with ports
//!                                        │                    names_HASH     pods' ports of those names, come and go
//!                                        │                    blocks_HASH, ports_HASH     never change
//!                                        └ goto refused: remember, drop
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nft::{
    Element, Expression, Family, Field, Header, Inverted, MetaKey, Register, Relation, Rule, Set, Side, Verdict,
    concatenated,
};
use sha2::{Digest as _, Sha256};

use crate::facts::Protocol;
use crate::policy::{Allowed, Peers, Ports, Way};
use crate::ranges::{Ranges, bytes_of, last_number};
use crate::selector::PeerSelector;

/// Where packets end that no policy allows.
pub(crate) const REFUSED: &str = "refused";
pub(crate) const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// A chain or set of one family's table.
pub(crate) type Name = (Family, String);

/// A set whose elements come and go with pods.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Dynamic {
    /// Addresses of pods that a peer means.
    Peers(BTreeSet<PeerSelector>),
    /// The same of those of whom only some ports may be reached: address, protocol and port.
    Doors(BTreeSet<PeerSelector>),
    /// Ports of pods by their names: address, protocol and number.
    Names(BTreeSet<(Protocol, String)>),
}

impl Dynamic {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Peers(_) => named("peers", self),
            Self::Doors(_) => named("doors", self),
            Self::Names(_) => named("names", self),
        }
    }

    pub(crate) fn set(&self, family: Family) -> Set {
        match self {
            Self::Peers(_) => Set::of(self.name(), &[address_field(family)]),
            Self::Doors(_) | Self::Names(_) => {
                Set::of(self.name(), &[address_field(family), Field::Protocol, Field::Port])
            }
        }
    }
}

/// What one policy needs that way.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Rendered {
    /// The chain of it, of either family.
    pub(crate) chains: BTreeMap<Name, Vec<Rule>>,
    pub(crate) constant: BTreeMap<Name, (Set, Vec<Element>)>,
    pub(crate) dynamic: BTreeMap<String, Dynamic>,
}

fn named(kind: &str, of: &impl std::fmt::Debug) -> String {
    let digest = Sha256::digest(format!("{of:?}"));
    let hash: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}_{hash}")
}

pub(crate) fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::Ip } else { Family::Ip6 }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn address_field(family: Family) -> Field {
    if family == Family::Ip6 { Field::Ipv6Address } else { Field::Ipv4Address }
}

pub(crate) fn door_key(address: IpAddr, protocol: Protocol, port: u16) -> Vec<u8> {
    concatenated(&[&octets(address), &[protocol.number()], &port.to_be_bytes()])
}

/// How many bytes an address has, and where it is in the header.
pub(crate) fn load_address(family: Family, side: Side, to: Register) -> Expression {
    let (at, bytes) = match (family == Family::Ip6, side) {
        (false, Side::Source) => (12, 4),
        (false, Side::Destination) => (16, 4),
        (true, Side::Source) => (8, 16),
        (true, Side::Destination) => (24, 16),
    };
    Expression::Payload { header: Header::Network, at, bytes, to }
}

pub(crate) fn in_set(set: impl Into<String>) -> Expression {
    Expression::InSet { set: set.into(), key: Register::FIRST, inverted: Inverted::No }
}

pub(crate) fn protocol_is(rule: Rule, protocol: u8) -> Rule {
    rule.with(Expression::Meta { key: MetaKey::Protocol, to: Register::FIRST }).with(Expression::Compare {
        register: Register::FIRST,
        relation: Relation::Equal,
        value: vec![protocol],
    })
}

/// The name of the chain that has a pod's policies that way, and its rules: whoever none of them lets through is refused.
pub(crate) fn profile(chains: &BTreeSet<String>) -> (String, Vec<Rule>) {
    let mut rules: Vec<_> = chains.iter().map(|chain| Rule::new().verdict(Verdict::Jump(chain.clone()))).collect();
    rules.push(Rule::new().verdict(Verdict::Goto(REFUSED.to_owned())));
    (named("pods", chains), rules)
}

/// Renders what a policy allows; answers the name of its chain, too.
pub(crate) fn render(way: Way, allowed: &[Allowed]) -> (String, Rendered) {
    let chain = named("rules", &(way, allowed));
    let mut rendered = Rendered::default();
    for family in FAMILIES {
        let mut rules = Vec::new();
        for one in allowed {
            let ports = ports(&mut rendered, family, &one.ports);
            for peers in peers(&mut rendered, family, way, &one.peers) {
                for ports in &ports {
                    let mut rule = Rule::new();
                    rule.expressions.extend(peers.iter().chain(ports).cloned());
                    rules.push(rule.verdict(Verdict::Accept));
                }
            }
        }
        rendered.chains.insert((family, chain.clone()), rules);
    }
    (chain, rendered)
}

/// Steps of which one list has to be met.
type Either = Vec<Vec<Expression>>;

fn peers(rendered: &mut Rendered, family: Family, way: Way, peers: &Peers) -> Either {
    let (pods, blocks) = match peers {
        Peers::Everybody => return vec![Vec::new()],
        Peers::Only { pods, blocks } => (pods, &blocks[usize::from(family == Family::Ip6)]),
    };
    let side = match way {
        Way::Ingress => Side::Source,
        Way::Egress => Side::Destination,
    };
    let load = || load_address(family, side, Register::FIRST);
    let mut either = Vec::new();
    let mut dynamic = |set: Dynamic| {
        let name = set.name();
        rendered.dynamic.insert(name.clone(), set);
        in_set(name)
    };
    if !pods.is_empty() {
        either.push(vec![load(), dynamic(Dynamic::Peers(pods.clone()))]);
        if way == Way::Egress {
            let doors = dynamic(Dynamic::Doors(pods.clone()));
            let mut steps = Rule::new().load_destination(family).expressions;
            steps.push(doors);
            either.push(steps);
        }
    }
    let bytes = if family == Family::Ip6 { 16 } else { 4 };
    match blocks.as_slice() {
        [] => {}
        // Whoever has an address of this family.
        [(0, last)] if *last == last_number(bytes) => either.push(Vec::new()),
        _ => {
            either.push(vec![load(), in_set(ranges(rendered, family, "blocks", address_field(family), bytes, blocks))])
        }
    }
    either
}

fn ports(rendered: &mut Rendered, family: Family, ports: &Ports) -> Either {
    let (numbers, names) = match ports {
        Ports::All => return vec![Vec::new()],
        Ports::Only { numbers, names } => (numbers, names),
    };
    let mut either = Vec::new();
    for (protocol, of_protocol) in numbers {
        let mut steps = protocol_is(Rule::new(), protocol.number()).expressions;
        if of_protocol.as_slice() != [(0, last_number(2))] {
            steps.push(Expression::Payload { header: Header::Transport, at: 2, bytes: 2, to: Register::FIRST });
            steps.push(in_set(ranges(rendered, family, "ports", Field::Port, 2, of_protocol)));
        }
        either.push(steps);
    }
    if !names.is_empty() {
        let set = Dynamic::Names(names.clone());
        let mut steps = Rule::new().load_destination(family).expressions;
        steps.push(in_set(set.name()));
        rendered.dynamic.insert(set.name(), set);
        either.push(steps);
    }
    either
}

/// A set of ranges that never changes; answers its name.
fn ranges(rendered: &mut Rendered, family: Family, kind: &str, field: Field, bytes: usize, of: &Ranges) -> String {
    let name = named(kind, of);
    let elements = of.iter().flat_map(|(first, last)| {
        let end = (*last < last_number(bytes)).then(|| Element::range_end(bytes_of(last + 1, bytes)));
        [Some(Element::key(bytes_of(*first, bytes))), end].into_iter().flatten()
    });
    let set = Set::of(name.clone(), &[field]).with_ranges();
    rendered.constant.insert((family, name.clone()), (set, elements.collect()));
    name
}
