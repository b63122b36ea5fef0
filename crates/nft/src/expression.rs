//! What rules are made of: each expression loads, compares, looks up or decides, by way of registers.

use crate::wire::Attributes;
use crate::{Error, Family, Verdict};

/// One of sixteen places of four bytes where expressions leave values for each other. Longer values take several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(u8);

impl Register {
    /// The first one.
    pub const FIRST: Self = Self(0);

    /// The one with that number, from 0 to 15; the kernel refuses others.
    pub const fn word(number: u8) -> Self {
        Self(number)
    }

    /// Which of the sixteen it is.
    pub const fn index(self) -> u8 {
        self.0
    }

    fn number(self) -> u32 {
        const FIRST_OF_FOUR_BYTES: u32 = 8;
        FIRST_OF_FOUR_BYTES + u32::from(self.0)
    }
}

/// Whether two values have to be the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// They have.
    Equal,
    /// They must not be.
    NotEqual,
}

/// Whether a key has to be in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inverted {
    /// It has.
    No,
    /// It must not be.
    Yes,
}

/// Which of two addresses, or ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Where the packet comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// A header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Of IP.
    Network,
    /// Of the protocol above it.
    Transport,
}

/// What the kernel knows of a packet beside what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaKey {
    /// The mark that rules gave it.
    Mark,
    /// The name of the link it came by.
    InputName,
    /// The name of the link it leaves by.
    OutputName,
    /// Its protocol above IP.
    Protocol,
}

impl MetaKey {
    fn number(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::InputName => 6,
            Self::OutputName => 7,
            Self::Protocol => 16,
        }
    }
}

/// Which way of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// That of its first packet.
    Original,
    /// That of the answers.
    Reply,
}

impl Direction {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Original => 0,
            Self::Reply => 1,
        }
    }
}

/// What the kernel knows of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionKey {
    /// Whether it is new, established, related.
    State,
    /// Whether it was confirmed, and how its addresses were changed.
    Status,
}

impl ConnectionKey {
    fn number(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Status => 2,
        }
    }
}

/// Which address a rule changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatKind {
    /// Where packets come from.
    Source,
    /// Where they go.
    Destination,
}

/// How somebody is told that their packet was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectWith {
    /// Nobody is at the port; said in the way of the table's family.
    PortUnreachable(Family),
    /// The connection is over; for TCP.
    TcpReset,
}

/// One step of a rule. A step that finds what it does not look for ends the rule.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named for what they are")]
pub enum Expression {
    /// Loads bytes of a packet.
    Payload { header: Header, at: u32, bytes: u32, to: Register },
    /// Loads what the kernel knows of it.
    Meta { key: MetaKey, to: Register },
    /// Loads which way of its connection it goes: one byte.
    ConnectionDirection { to: Register },
    /// Loads what the kernel knows of its connection: a bit mask in the machine's order.
    Connection { key: ConnectionKey, to: Register },
    /// Loads where its connection was first sent: the address, as long as one of the family.
    OriginalDestination { family: Family, to: Register },
    /// Loads the protocol of its connection: one byte.
    OriginalProtocol { to: Register },
    /// Loads the port that its connection was first sent to.
    OriginalPort { to: Register },
    /// Remembers the key in a set that packets may change, for that many milliseconds; a key that is there begins anew. In a map, with
    /// what it leads to; a key that is there keeps what it has.
    Remember { set: String, key: Register, value: Option<Register>, milliseconds: u64 },
    /// Forgets the key in a map that packets may change. The kernel wants a value beside it, and does not look at it.
    Forget { map: String, key: Register, value: Register },
    /// Loads what kind of address its destination is: a number in the machine's order.
    DestinationKind { to: Register },
    /// Puts a value into registers.
    Immediate { value: Vec<u8>, to: Register },
    /// Goes on if the value is there.
    Compare { register: Register, relation: Relation, value: Vec<u8> },
    /// Keeps the bits of a mask.
    Mask { register: Register, mask: Vec<u8> },
    /// Goes on if the key is in a set.
    InSet { set: String, key: Register, inverted: Inverted },
    /// Goes on if the key is in a map, and loads what it leads to.
    Lookup { map: String, key: Register, to: Register },
    /// Does what the key leads to in a verdict map.
    VerdictMap { map: String, key: Register },
    /// Loads a random number below the modulus, in the machine's order.
    Random { modulus: u32, to: Register },
    /// Decides.
    Verdict(Verdict),
    /// Changes an address, and the port if one is given.
    Nat { kind: NatKind, family: Family, address: Register, port: Option<Register> },
    /// Changes the source to the address of the link that the packet leaves by.
    Masquerade,
    /// Refuses.
    Reject(RejectWith),
    /// Counts.
    Counter,
}

/// Where the kernel keeps the verdict.
const VERDICT_REGISTER: u32 = 0;

impl Expression {
    pub(crate) fn write(&self, attributes: &mut Attributes) -> Result<(), Error> {
        attributes.nest(1, |expression| {
            expression.put_name(1, self.name())?;
            expression.nest(2, |data| self.write_data(data))
        })
    }

    /// What the kernel calls it: as [`ListedRule`](crate::ListedRule) tells of it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta { .. } => "meta",
            Self::ConnectionDirection { .. }
            | Self::Connection { .. }
            | Self::OriginalDestination { .. }
            | Self::OriginalProtocol { .. }
            | Self::OriginalPort { .. } => "ct",
            Self::Remember { .. } | Self::Forget { .. } => "dynset",
            Self::DestinationKind { .. } => "fib",
            Self::Immediate { .. } | Self::Verdict(_) => "immediate",
            Self::Compare { .. } => "cmp",
            Self::Mask { .. } => "bitwise",
            Self::InSet { .. } | Self::Lookup { .. } | Self::VerdictMap { .. } => "lookup",
            Self::Random { .. } => "numgen",
            Self::Nat { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Reject(_) => "reject",
            Self::Counter => "counter",
        }
    }

    fn write_data(&self, data: &mut Attributes) -> Result<(), Error> {
        match self {
            Self::Payload { header, at, bytes, to } => {
                data.put_number(1, to.number())?;
                data.put_number(2, if *header == Header::Network { 1 } else { 2 })?;
                data.put_number(3, *at)?;
                data.put_number(4, *bytes)
            }
            Self::Meta { key, to } => {
                data.put_number(1, to.number())?;
                data.put_number(2, key.number())
            }
            Self::ConnectionDirection { to } => {
                const DIRECTION: u32 = 1;
                data.put_number(1, to.number())?;
                data.put_number(2, DIRECTION)
            }
            Self::Connection { key, to } => {
                data.put_number(1, to.number())?;
                data.put_number(2, key.number())
            }
            Self::OriginalDestination { family, to } => {
                const DESTINATION_IPV4: u32 = 20;
                const DESTINATION_IPV6: u32 = 22;
                let key = if *family == Family::Ip6 { DESTINATION_IPV6 } else { DESTINATION_IPV4 };
                original(data, *to, key)
            }
            Self::OriginalProtocol { to } => {
                const PROTOCOL: u32 = 10;
                original(data, *to, PROTOCOL)
            }
            Self::OriginalPort { to } => {
                const DESTINATION_PORT: u32 = 12;
                original(data, *to, DESTINATION_PORT)
            }
            Self::Remember { set, key, value, milliseconds } => {
                const UPDATE: u32 = 1;
                data.put_name(1, set)?;
                data.put_number(3, UPDATE)?;
                data.put_number(4, key.number())?;
                value.map_or(Ok(()), |value| data.put_number(5, value.number()))?;
                data.put(6, &milliseconds.to_be_bytes())
            }
            Self::Forget { map, key, value } => {
                const DELETE: u32 = 2;
                data.put_name(1, map)?;
                data.put_number(3, DELETE)?;
                data.put_number(4, key.number())?;
                data.put_number(5, value.number())
            }
            Self::DestinationKind { to } => {
                const KIND_OF_ADDRESS: u32 = 3;
                const OF_DESTINATION: u32 = 2;
                data.put_number(1, to.number())?;
                data.put_number(2, KIND_OF_ADDRESS)?;
                data.put_number(3, OF_DESTINATION)
            }
            Self::Immediate { value, to } => {
                data.put_number(1, to.number())?;
                data.nest(2, |inner| inner.put(1, value))
            }
            Self::Verdict(verdict) => {
                data.put_number(1, VERDICT_REGISTER)?;
                data.nest(2, |inner| verdict.write(inner))
            }
            Self::Compare { register, relation, value } => {
                data.put_number(1, register.number())?;
                data.put_number(2, if *relation == Relation::Equal { 0 } else { 1 })?;
                data.nest(3, |inner| inner.put(1, value))
            }
            Self::Mask { register, mask } => {
                let bytes = mask.len();
                data.put_number(1, register.number())?;
                data.put_number(2, register.number())?;
                data.put_number(3, u32::try_from(bytes).map_err(|_| Error::AttributeTooLong { bytes })?)?;
                data.nest(4, |inner| inner.put(1, mask))?;
                data.nest(5, |inner| inner.put(1, &vec![0; bytes]))
            }
            Self::InSet { set, key, inverted } => {
                data.put_name(1, set)?;
                data.put_number(2, key.number())?;
                data.put_number(5, if *inverted == Inverted::Yes { 1 } else { 0 })
            }
            Self::Lookup { map, key, to } => {
                data.put_name(1, map)?;
                data.put_number(2, key.number())?;
                data.put_number(3, to.number())
            }
            Self::VerdictMap { map, key } => {
                data.put_name(1, map)?;
                data.put_number(2, key.number())?;
                data.put_number(3, VERDICT_REGISTER)
            }
            Self::Random { modulus, to } => {
                const RANDOM: u32 = 1;
                data.put_number(1, to.number())?;
                data.put_number(2, *modulus)?;
                data.put_number(3, RANDOM)?;
                data.put_number(4, 0)
            }
            Self::Nat { kind, family, address, port } => {
                data.put_number(1, if *kind == NatKind::Source { 0 } else { 1 })?;
                data.put_number(2, u32::from(family.number()))?;
                data.put_number(3, address.number())?;
                port.map_or(Ok(()), |port| data.put_number(5, port.number()))
            }
            Self::Reject(with) => {
                const ICMP: u32 = 0;
                const RESET: u32 = 1;
                const EITHER_ICMP: u32 = 2;
                match with {
                    RejectWith::PortUnreachable(family) => {
                        let (by, code) = match family {
                            Family::Ip => (ICMP, 3),
                            Family::Ip6 => (ICMP, 4),
                            Family::Inet | Family::Other(_) => (EITHER_ICMP, 1),
                        };
                        data.put_number(1, by)?;
                        data.put(2, &[code])
                    }
                    RejectWith::TcpReset => data.put_number(1, RESET),
                }
            }
            Self::Masquerade | Self::Counter => Ok(()),
        }
    }
}

/// Asks for something of the first direction of a connection.
fn original(data: &mut Attributes, to: Register, key: u32) -> Result<(), Error> {
    data.put_number(1, to.number())?;
    data.put_number(2, key)?;
    data.put(3, &[Direction::Original.number()])
}
