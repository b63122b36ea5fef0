//! The way out: what pods send beyond their own range leaves under the node's address.
//!
//! One nftables table per instance, written as the kernel reads it and committed in one batch; no program is called.
//!
//! ```text
//! table ip adXXXX {
//!     chain masquerade {
//!         type nat hook postrouting priority srcnat;
//!         ip saddr RANGE ip daddr != RANGE oifname != "ad*" masquerade
//!     }
//! }
//! ```

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};

use super::cidr::PodCidr;

const CHAIN: &str = "masquerade";
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

const POST_ROUTING: u32 = 4;
const PRIORITY_SRCNAT: u32 = 100;
/// The first register that rules keep values in.
const REGISTER: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const SOURCE_AT: u32 = 12;
const DESTINATION_AT: u32 = 16;
/// The name of the link a packet leaves by.
const OUTPUT_NAME: u32 = 7;
/// What the names of the links of all instances begin with.
const LINK_PREFIX: &str = "ad";
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

/// Replaces this instance's table by one for `range`, at once.
pub(super) fn set_up(table: &str, range: PodCidr) -> io::Result<()> {
    let hook = [number(1, POST_ROUTING), number(2, PRIORITY_SRCNAT)].concat();
    let chain = [text(1, table), text(3, CHAIN), nest(4, &hook), text(7, "nat")].concat();
    let rule = [text(1, table), text(2, CHAIN), nest(4, &expressions(range))].concat();
    let mut batch = Batch::replacing(table);
    batch.add(NEW_TABLE, CREATE, &text(1, table));
    batch.add(NEW_CHAIN, CREATE, &chain);
    batch.add(NEW_RULE, CREATE | APPEND, &rule);
    batch.commit()
}

/// Removes this instance's table, if it is there.
pub(super) fn remove(table: &str) -> io::Result<()> {
    Batch::replacing(table).commit()
}

fn expressions(range: PodCidr) -> Vec<u8> {
    let mask = Ipv4Addr::from_bits(u32::MAX.checked_shl(u32::from(32 - range.prefix_length())).unwrap_or(0));
    let in_range = |at: u32, relation: u32| {
        let load = [number(1, REGISTER), number(2, NETWORK_HEADER), number(3, at), number(4, 4)].concat();
        let masked = [
            number(1, REGISTER),
            number(2, REGISTER),
            number(3, 4),
            nest(4, &attribute(1, &mask.octets())),
            nest(5, &attribute(1, &[0; 4])),
        ]
        .concat();
        let network = nest(3, &attribute(1, &range.network().octets()));
        let compare = [number(1, REGISTER), number(2, relation), network].concat();
        [expression("payload", &load), expression("bitwise", &masked), expression("cmp", &compare)].concat()
    };
    // Pods of another instance on this machine are not outside.
    let link = expression("meta", &[number(1, REGISTER), number(2, OUTPUT_NAME)].concat());
    let pods = [number(1, REGISTER), number(2, NOT_EQUAL), nest(3, &attribute(1, LINK_PREFIX.as_bytes()))].concat();
    let not_to_pods = [link, expression("cmp", &pods)].concat();
    [in_range(SOURCE_AT, EQUAL), in_range(DESTINATION_AT, NOT_EQUAL), not_to_pods, expression("masq", &[])].concat()
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
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

fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

/// Changes that are made all together or not at all.
struct Batch {
    bytes: Vec<u8>,
    changes: u32,
}

impl Batch {
    /// Begins with the removal of a table, which is made before so that there is one to remove.
    fn replacing(table: &str) -> Self {
        let mut batch = Self { bytes: Vec::new(), changes: 0 };
        batch.message(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM, &[]);
        batch.add(NEW_TABLE, CREATE, &text(1, table));
        batch.add(DELETE_TABLE, 0, &text(1, table));
        batch
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

    fn commit(mut self) -> io::Result<()> {
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
