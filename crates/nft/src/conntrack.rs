//! The kernel's table of connections: which there are, and forgetting one.
//!
//! A packet of a connection that is in the table meets no rule that changes addresses again: it goes where the first one went. So
//! whoever changes where packets go may have to forget connections, and always after the rules were changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_sys::Socket;
use rustix::net::SendFlags;

use crate::batch::REQUEST;
use crate::socket::{TRIES_MAX, open, receive, refusal};
use crate::wire::{self, Attributes, find, write_message};
use crate::{Error, Family};

const SUBSYSTEM: u16 = 1;
const GET: u16 = 1;
const DELETE: u16 = 2;
const DUMP: u16 = 0x300;
const ACKNOWLEDGE: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const ANSWER_BYTES: usize = 64 << 10;
const NO_SUCH_CONNECTION: i32 = 2;

/// One way of a connection, as the header of its packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowEnd {
    /// Where packets come from.
    pub source: (IpAddr, u16),
    /// Where they go.
    pub destination: (IpAddr, u16),
}

/// A connection that the kernel tracks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The number of its protocol above IP.
    pub protocol: u8,
    /// As its first packet was sent.
    pub original: FlowEnd,
    /// As its answers are sent: by whoever really has it.
    pub reply: FlowEnd,
    /// The kernel's own words for it, by which it is found again.
    tuple: Vec<u8>,
    id: Option<[u8; 4]>,
    zone: Option<[u8; 2]>,
}

/// The connections of one network namespace: that of the thread which opens this.
#[derive(Debug)]
pub struct Conntrack {
    socket: Socket,
    answer: Vec<u8>,
}

impl Conntrack {
    /// Opens a socket to the connections of this thread's network namespace.
    pub fn open() -> Result<Self, Error> {
        let (socket, _) = open(0)?;
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, answer: vec![0; ANSWER_BYTES] })
    }

    /// The connections of a family that `keep` says yes to. Connections come and go meanwhile; one that was there all the time is told.
    pub fn flows(&mut self, family: Family, mut keep: impl FnMut(&Flow) -> bool) -> Result<Vec<Flow>, Error> {
        let mut found = Vec::new();
        self.ask(GET, DUMP, family, &[], |attributes| {
            // Protocols without ports are none of ours.
            if let Some(flow) = read(attributes).filter(|flow| keep(flow)) {
                found.push(flow);
            }
        })?;
        Ok(found)
    }

    /// Forgets a connection; false if it is gone already. Its next packet begins a new one.
    pub fn forget(&mut self, flow: &Flow) -> Result<bool, Error> {
        const TUPLE: u16 = 1;
        const ID: u16 = 12;
        const ZONE: u16 = 18;
        let family = if flow.original.source.0.is_ipv6() { Family::Ip6 } else { Family::Ip };
        let mut attributes = Attributes::default();
        attributes.nest(TUPLE, |tuple| {
            wire::attributes(&flow.tuple).try_for_each(|part| tuple.nest(part.kind, |inner| inner.extend(part.value)))
        })?;
        if let Some(zone) = flow.zone {
            attributes.put(ZONE, &zone)?;
        }
        // Another one with the same addresses is not meant.
        if let Some(id) = flow.id {
            attributes.put(ID, &id)?;
        }
        match self.ask(DELETE, ACKNOWLEDGE, family, attributes.bytes(), |_| {}) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Some(NO_SUCH_CONNECTION) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        attributes: &[u8],
        mut tell: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        while receive(&self.socket, &mut self.answer, |_| {})?.is_some() {}
        let mut question = Vec::new();
        let about = (family.number(), 0);
        write_message(&mut question, SUBSYSTEM << 8 | kind, REQUEST | flags, 1, about, attributes)?;
        self.send(&question)?;
        loop {
            let length = receive(&self.socket, &mut self.answer, |_| {})?.ok_or(Error::NoAnswer)?;
            for message in wire::messages(&self.answer[..length]) {
                let message = message?;
                match message.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        return match refusal(&message)? {
                            None => Ok(()),
                            Some(refusal) => {
                                let source = io::Error::from_raw_os_error(refusal.code);
                                Err(Error::Socket { doing: "look at tracked connections", source })
                            }
                        };
                    }
                    _ => message.nftables().map(|(_, attributes)| tell(attributes)).unwrap_or_default(),
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        use rustix::io::Errno;
        for _ in 1..TRIES_MAX {
            match rustix::net::send(&self.socket, bytes, SendFlags::empty()) {
                Err(Errno::INTR | Errno::NOBUFS | Errno::AGAIN) => {}
                Err(error) => return Err(Error::Socket { doing: "ask for tracked connections", source: error.into() }),
                Ok(_) => return Ok(()),
            }
        }
        Err(Error::NoAnswer)
    }
}

fn read(attributes: &[u8]) -> Option<Flow> {
    let original = find(attributes, 1)?.value;
    let reply = find(attributes, 2)?.value;
    let protocol = *find(find(original, 2)?.value, 1)?.value.first()?;
    let fixed = |kind| find(attributes, kind).map(|found| found.value);
    Some(Flow {
        protocol,
        original: end(original)?,
        reply: end(reply)?,
        tuple: original.to_vec(),
        id: fixed(12).and_then(|id| id.try_into().ok()),
        zone: fixed(18).and_then(|zone| zone.try_into().ok()),
    })
}

fn end(tuple: &[u8]) -> Option<FlowEnd> {
    let addresses = find(tuple, 1)?.value;
    let ports = find(tuple, 2)?.value;
    let port = |kind| Some(u16::from_be_bytes(find(ports, kind)?.value.try_into().ok()?));
    let address = |ipv4, ipv6| -> Option<IpAddr> {
        if let Some(found) = find(addresses, ipv4) {
            let octets: [u8; 4] = found.value.try_into().ok()?;
            return Some(Ipv4Addr::from(octets).into());
        }
        let octets: [u8; 16] = find(addresses, ipv6)?.value.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    Some(FlowEnd { source: (address(1, 3)?, port(2)?), destination: (address(2, 4)?, port(3)?) })
}
