//! A rule, put together from conditions and what is done about packets that meet them all.

use std::net::IpAddr;

use crate::expression::{
    Direction, Expression, Header, Inverted, MetaKey, NatKind, Register, RejectWith, Relation, Side,
};
use crate::{Family, Verdict};

const FIRST: Register = Register::FIRST;
const SECOND: Register = Register::word(1);
/// Behind the longest address.
const BEHIND_ADDRESS: Register = Register::word(4);

/// A rule: its steps are taken in their order until one finds what it does not look for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rule {
    /// Its steps.
    pub expressions: Vec<Expression>,
}

impl Rule {
    /// A rule for every packet, that does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more step.
    pub fn with(mut self, expression: Expression) -> Self {
        self.expressions.push(expression);
        self
    }

    /// For packets whose address is, or is not, in that network. In a table of both families the address of a packet of the
    /// other kind is read wrong; say first which are meant.
    pub fn address_in(self, side: Side, relation: Relation, network: IpAddr, prefix_length: u8) -> Self {
        let (bytes, mask) = match network {
            IpAddr::V4(network) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix_length.into())).unwrap_or(0);
                (network.octets().to_vec(), mask.to_be_bytes().to_vec())
            }
            IpAddr::V6(network) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix_length.into())).unwrap_or(0);
                (network.octets().to_vec(), mask.to_be_bytes().to_vec())
            }
        };
        self.with(address(side, network, FIRST))
            .with(Expression::Mask { register: FIRST, mask })
            .compare(relation, &bytes)
    }

    /// For packets with that address.
    pub fn address_is(self, side: Side, is: IpAddr) -> Self {
        let bytes = match is {
            IpAddr::V4(is) => is.octets().to_vec(),
            IpAddr::V6(is) => is.octets().to_vec(),
        };
        self.with(address(side, is, FIRST)).compare(Relation::Equal, &bytes)
    }

    /// For packets that come, or do not come, by a link whose name begins so.
    pub fn input_name_begins(self, relation: Relation, name: &str) -> Self {
        self.with(Expression::Meta { key: MetaKey::InputName, to: FIRST }).compare(relation, name.as_bytes())
    }

    /// For packets that leave, or do not leave, by a link whose name begins so.
    pub fn output_name_begins(self, relation: Relation, name: &str) -> Self {
        self.with(Expression::Meta { key: MetaKey::OutputName, to: FIRST }).compare(relation, name.as_bytes())
    }

    /// For packets to an address of this machine.
    pub fn destination_is_local(self) -> Self {
        const LOCAL: u32 = 2;
        self.with(Expression::DestinationKind { to: FIRST }).compare(Relation::Equal, &LOCAL.to_ne_bytes())
    }

    /// For packets that go that way of their connection.
    pub fn direction_is(self, direction: Direction) -> Self {
        self.with(Expression::ConnectionDirection { to: FIRST }).compare(Relation::Equal, &[direction.number()])
    }

    /// For packets from an address to an address that are together in a set of both.
    pub fn addresses_in_set(self, family: Family, set: &str) -> Self {
        let second = if family == Family::Ip6 { BEHIND_ADDRESS } else { SECOND };
        self.with(family_address(Side::Source, family, FIRST))
            .with(family_address(Side::Destination, family, second))
            .with(Expression::InSet { set: set.to_owned(), key: FIRST, inverted: Inverted::No })
    }

    /// Leaves protocol and destination port as a key.
    pub fn load_protocol_and_port(self) -> Self {
        self.with(Expression::Meta { key: MetaKey::Protocol, to: FIRST }).with(destination_port(SECOND))
    }

    /// Leaves destination, protocol and destination port as a key.
    pub fn load_destination(self, family: Family) -> Self {
        let next = if family == Family::Ip6 { 4 } else { 1 };
        self.with(family_address(Side::Destination, family, FIRST))
            .with(Expression::Meta { key: MetaKey::Protocol, to: Register::word(next) })
            .with(destination_port(Register::word(next + 1)))
    }

    /// Sends packets on to the address and port that the key leads to.
    pub fn destination_from_map(self, family: Family, map: &str) -> Self {
        let port = if family == Family::Ip6 { BEHIND_ADDRESS } else { SECOND };
        self.with(Expression::Lookup { map: map.to_owned(), key: FIRST, to: FIRST }).with(Expression::Nat {
            kind: NatKind::Destination,
            family,
            address: FIRST,
            port: Some(port),
        })
    }

    /// Makes packets come from that address.
    pub fn source_nat(self, to: IpAddr) -> Self {
        let (family, value) = match to {
            IpAddr::V4(to) => (Family::Ip, to.octets().to_vec()),
            IpAddr::V6(to) => (Family::Ip6, to.octets().to_vec()),
        };
        self.with(Expression::Immediate { value, to: FIRST }).with(Expression::Nat {
            kind: NatKind::Source,
            family,
            address: FIRST,
            port: None,
        })
    }

    /// Makes packets come from the address of the link that they leave by.
    pub fn masquerade(self) -> Self {
        self.with(Expression::Masquerade)
    }

    /// Refuses packets.
    pub fn reject(self, with: RejectWith) -> Self {
        self.with(Expression::Reject(with))
    }

    /// Decides.
    pub fn verdict(self, verdict: Verdict) -> Self {
        self.with(Expression::Verdict(verdict))
    }

    fn compare(self, relation: Relation, value: &[u8]) -> Self {
        self.with(Expression::Compare { register: FIRST, relation, value: value.to_vec() })
    }
}

fn address(side: Side, of: IpAddr, to: Register) -> Expression {
    family_address(side, if of.is_ipv4() { Family::Ip } else { Family::Ip6 }, to)
}

/// Loads an address: of IPv6 only in that family, of IPv4 otherwise.
fn family_address(side: Side, family: Family, to: Register) -> Expression {
    let (at, bytes) = match (family == Family::Ip6, side) {
        (false, Side::Source) => (12, 4),
        (false, Side::Destination) => (16, 4),
        (true, Side::Source) => (8, 16),
        (true, Side::Destination) => (24, 16),
    };
    Expression::Payload { header: Header::Network, at, bytes, to }
}

fn destination_port(to: Register) -> Expression {
    Expression::Payload { header: Header::Transport, at: 2, bytes: 2, to }
}
