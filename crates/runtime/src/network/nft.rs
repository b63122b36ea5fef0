//! nftables as the kernel reads it: attributes, expressions, and batches that are committed whole. No program is called.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};

const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = SUBSYSTEM << 8 | 2;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const FAMILY_IPV4: u8 = 2;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
const NLMSG_ERROR: u16 = 2;

/// The first register that rules keep values in.
pub(super) const REGISTER: u32 = 1;
/// The one behind it.
pub(super) const SECOND_REGISTER: u32 = 2;
pub(super) const NETWORK_HEADER: u32 = 1;
pub(super) const TRANSPORT_HEADER: u32 = 2;
pub(super) const SOURCE_AT: u32 = 12;
pub(super) const DESTINATION_AT: u32 = 16;
/// The name of the link a packet came by, and of the one it leaves by.
pub(super) const INPUT_NAME: u32 = 6;
pub(super) const OUTPUT_NAME: u32 = 7;
/// What the names of the links of all instances begin with.
pub(super) const LINK_PREFIX: &str = "ad";
pub(super) const EQUAL: u32 = 0;
pub(super) const NOT_EQUAL: u32 = 1;

/// Where in a packet's way a chain stands: what kind it is, which hook, in which order.
pub(super) struct Place(pub(super) &'static str, pub(super) u32, pub(super) i32);

/// What becomes of a packet, as the data of an `immediate`.
pub(super) fn verdict(code: u32) -> Vec<u8> {
    nest(2, &nest(2, &number(1, code)))
}

/// Loads part of a packet and compares it.
pub(super) fn payload_is(header: u32, at: u32, value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).expect("headers are short");
    let load = [number(1, REGISTER), number(2, header), number(3, at), number(4, length)].concat();
    [expression("payload", &load), compare(EQUAL, value)].concat()
}

/// Loads an address of a packet and looks whether it is in a range, or not.
pub(super) fn address_in(at: u32, relation: u32, network: Ipv4Addr, prefix_length: u8) -> Vec<u8> {
    let mask = Ipv4Addr::from_bits(u32::MAX.checked_shl(u32::from(32 - prefix_length)).unwrap_or(0));
    let load = [number(1, REGISTER), number(2, NETWORK_HEADER), number(3, at), number(4, 4)].concat();
    let masked = [
        number(1, REGISTER),
        number(2, REGISTER),
        number(3, 4),
        nest(4, &attribute(1, &mask.octets())),
        nest(5, &attribute(1, &[0; 4])),
    ]
    .concat();
    [expression("payload", &load), expression("bitwise", &masked), compare(relation, &network.octets())].concat()
}

/// Loads what the kernel knows of a packet and compares it.
pub(super) fn meta(key: u32, relation: u32, value: &[u8]) -> Vec<u8> {
    [expression("meta", &[number(1, REGISTER), number(2, key)].concat()), compare(relation, value)].concat()
}

/// Compares the register.
pub(super) fn compare(relation: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, relation), nest(3, &attribute(1, value))].concat())
}

/// Puts a value into a register.
pub(super) fn immediate(register: u32, value: &[u8]) -> Vec<u8> {
    expression("immediate", &[number(1, register), nest(2, &attribute(1, value))].concat())
}

pub(super) fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    nest(1, &[text(1, name), nest(2, data)].concat())
}

fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = 4 + data.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend(u16::try_from(length).expect("attributes are short").to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

fn nest(kind: u16, data: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, data)
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

pub(super) fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

pub(super) fn octet(kind: u16, number: u8) -> Vec<u8> {
    attribute(kind, &[number])
}

/// Changes that are made all together or not at all.
pub(super) struct Batch {
    bytes: Vec<u8>,
    changes: u32,
}

impl Batch {
    /// Begins with the removal of a table, which is made before so that there is one to remove.
    pub(super) fn replacing(table: &str) -> Self {
        let mut batch = Self { bytes: Vec::new(), changes: 0 };
        batch.message(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM, &[]);
        batch.add(NEW_TABLE, CREATE, &text(1, table));
        batch.add(DELETE_TABLE, 0, &text(1, table));
        batch
    }

    /// A table.
    pub(super) fn table(&mut self, table: &str) {
        self.add(NEW_TABLE, CREATE, &text(1, table));
    }

    /// A chain of it that packets pass.
    pub(super) fn chain(&mut self, table: &str, chain: &str, place: &Place) {
        let hook = [number(1, place.1), number(2, place.2.cast_unsigned())].concat();
        let chain = [text(1, table), text(3, chain), nest(4, &hook), text(7, place.0)].concat();
        self.add(NEW_CHAIN, CREATE, &chain);
    }

    /// A rule at the end of a chain.
    pub(super) fn rule(&mut self, table: &str, chain: &str, expressions: &[Vec<u8>]) {
        let rule = [text(1, table), text(2, chain), nest(4, &expressions.concat())].concat();
        self.add(NEW_RULE, CREATE | APPEND, &rule);
    }

    fn add(&mut self, kind: u16, flags: u16, attributes: &[u8]) {
        self.changes += 1;
        self.message(kind, REQUEST | ACKNOWLEDGE | flags, FAMILY_IPV4, 0, attributes);
    }

    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) {
        let length = 20 + attributes.len();
        self.bytes.extend(u32::try_from(length).expect("messages are short").to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.changes.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.bytes.extend(attributes);
    }

    /// Makes the changes.
    pub(super) fn commit(mut self) -> io::Result<()> {
        let changes = self.changes;
        self.message(BATCH_END, REQUEST, 0, SUBSYSTEM, &[]);
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::NETFILTER))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WAIT_MAX))?;
        rustix::net::send(&socket, &self.bytes, SendFlags::empty())?;
        let mut answer = vec![0; 16 * 1024];
        let mut answered = 0;
        while answered < changes {
            let (_, length) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
            let mut rest = answer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            while let Some(size) = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes) as usize) {
                let message =
                    rest.get(..size).filter(|message| message.len() >= 20).ok_or(io::ErrorKind::InvalidData)?;
                if u16::from_ne_bytes([message[4], message[5]]) == NLMSG_ERROR {
                    match i32::from_ne_bytes([message[16], message[17], message[18], message[19]]) {
                        0 => answered += 1,
                        code => return Err(io::Error::from_raw_os_error(-code)),
                    }
                }
                rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
            }
        }
        Ok(())
    }
}
