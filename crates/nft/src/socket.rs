//! The socket: batches go out, answers and lists come in.
//!
//! The kernel works on a request within the call that sends it, so that every answer is there when that call returns; nothing
//! here waits. Lists come in parts, each made when the one before is read.

use std::io;
use std::os::fd::AsFd;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::batch::{Encoded, REQUEST, SUBSYSTEM, kind};
use crate::wire::{self, HEADER_BYTES, Message, write_message};
use crate::{BATCH_BYTES_MAX, Batch, Error, Family};

/// How often something is tried that others can disturb.
pub const TRIES_MAX: u32 = 16;

/// Lists come in parts of at most 32 KiB.
const ANSWER_BYTES: usize = 64 << 10;
/// What the kernel keeps back of a send buffer.
const SEND_BUFFER_KEPT: usize = 32;
const DUMP: u16 = 0x300;
const DUMP_INTERRUPTED: u16 = 0x10;
const MULTIPART: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// An answer without a copy of what it answers, and with what the kernel has to say about it.
const ANSWER_HAS_NO_COPY: u16 = 0x100;
const ANSWER_HAS_ATTRIBUTES: u16 = 0x200;

/// The number by which the kernel knows a socket. It stands on what the monitor tells of changes that were made through it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub u32);

/// The packet rules of one network namespace: that of the thread which opens this.
#[derive(Debug)]
pub struct Nftables {
    socket: Socket,
    port: Port,
    answer: Vec<u8>,
}

/// What the kernel answered to a batch.
#[derive(Default)]
struct Answer {
    done: bool,
    refused: Option<Refusal>,
    others: usize,
}

pub(crate) struct Refusal {
    sequence: u32,
    pub(crate) code: i32,
    message: Option<String>,
    at: Option<u32>,
}

impl Nftables {
    /// Opens a socket to the rules of this thread's network namespace.
    pub fn open() -> Result<Self, Error> {
        let (socket, port) = open(0)?;
        // Both are comforts: without them an answer says less, and takes more room.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, port, answer: vec![0; ANSWER_BYTES] })
    }

    /// What this socket is called on changes that it makes.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Makes all changes of a batch, or none of them. When this returns, packets meet the new rules.
    pub fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let encoded = batch.encode()?;
        self.make_room(encoded.bytes.len())?;
        for _ in 1..TRIES_MAX {
            match self.try_commit(&encoded) {
                // Nothing was changed, for a reason that passes.
                Err(error) if passes(&error) => {}
                answered => return answered,
            }
        }
        self.try_commit(&encoded)
    }

    /// Makes changes that depend on what is there: `plan` looks, and says what to change. If somebody else changes anything
    /// between the look and the change, nothing is changed, and it is asked again.
    pub fn update(&mut self, mut plan: impl FnMut(&mut Self) -> Result<Batch, Error>) -> Result<(), Error> {
        for _ in 0..TRIES_MAX {
            let generation = self.generation()?;
            let mut batch = plan(self)?;
            batch.at_generation(generation);
            match self.commit(batch) {
                Err(Error::GenerationChanged) => {}
                committed => return committed,
            }
        }
        Err(Error::Contested { tries: TRIES_MAX })
    }

    /// Which generation of the ruleset this is. Every commit, whoever makes it, begins another.
    pub fn generation(&mut self) -> Result<u32, Error> {
        let mut generation = None;
        self.ask(kind::GET_GENERATION, 0, Family::Other(0), &[], |message| {
            let (_, attributes) = message.nftables()?;
            generation = wire::find(attributes, 1)?.number();
            Some(())
        })?;
        generation.ok_or(Error::Malformed { what: "a generation without a number" })
    }

    /// Asks for all that there is of a kind, and tells each; from the start again if it changed in between.
    pub(crate) fn list<T>(
        &mut self,
        kind: u16,
        family: Family,
        attributes: &[u8],
        mut read: impl FnMut(Family, &[u8], &mut Vec<T>) -> Option<()>,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..TRIES_MAX {
            let mut found = Vec::new();
            let is_whole = self.ask(kind, DUMP, family, attributes, |message| {
                let (family, attributes) = message.nftables()?;
                read(Family::read(family), attributes, &mut found)
            })?;
            if is_whole {
                return Ok(found);
            }
        }
        Err(Error::Contested { tries: TRIES_MAX })
    }

    /// Sends one question and reads its answer; false if what was listed changed meanwhile.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        attributes: &[u8],
        mut read: impl FnMut(&Message<'_>) -> Option<()>,
    ) -> Result<bool, Error> {
        const SEQUENCE: u32 = 1;
        self.forget_answers()?;
        let mut question = Vec::new();
        let about = (family.number(), 0);
        write_message(&mut question, SUBSYSTEM << 8 | kind, REQUEST | flags, SEQUENCE, about, attributes)?;
        self.send(&question)?;
        let mut is_whole = true;
        loop {
            let length = self.receive()?.ok_or(Error::NoAnswer)?;
            for message in wire::messages(&self.answer[..length]) {
                let message = message?;
                is_whole &= message.flags & DUMP_INTERRUPTED == 0;
                match message.kind {
                    NLMSG_DONE => return Ok(is_whole),
                    NLMSG_ERROR => match refusal(&message)? {
                        Some(refusal) => {
                            let source = io::Error::from_raw_os_error(refusal.code);
                            return Err(Error::Socket { doing: "list packet rules", source });
                        }
                        None => return Ok(is_whole),
                    },
                    _ => {
                        read(&message).ok_or(Error::Malformed { what: "something listed lacks its name" })?;
                        if message.flags & MULTIPART == 0 {
                            return Ok(is_whole);
                        }
                    }
                }
            }
        }
    }

    fn try_commit(&mut self, encoded: &Encoded) -> Result<(), Error> {
        self.forget_answers()?;
        self.send(&encoded.bytes)?;
        let mut answer = Answer::default();
        // The one answer that was asked for, and every refusal.
        while let Some(length) = self.receive()? {
            for message in wire::messages(&self.answer[..length]) {
                let message = message?;
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                match refusal(&message)? {
                    None => answer.done |= message.sequence == encoded.last(),
                    Some(refusal) if answer.refused.is_none() => answer.refused = Some(refusal),
                    Some(_) => answer.others += 1,
                }
            }
        }
        match answer.refused {
            Some(refusal) if refusal.code == Errno::RESTART.raw_os_error() => Err(Error::GenerationChanged),
            Some(refusal) => Err(Error::Refused {
                object: encoded.describe(refusal.sequence, refusal.at),
                message: refusal.message,
                others: answer.others,
                source: io::Error::from_raw_os_error(refusal.code),
            }),
            None if answer.done => Ok(()),
            None => Err(Error::NoAnswer),
        }
    }

    /// Makes the send buffer as large as a batch. The kernel takes a message only if all of it fits (`EMSGSIZE` otherwise), and
    /// the usual buffer is that of `net.core.wmem_default`, 208 KiB.
    fn make_room(&self, bytes: usize) -> Result<(), Error> {
        let size = || {
            let size = sockopt::socket_send_buffer_size(&self.socket);
            size.map_err(|error| socket("read the size of a send buffer")(error.into()))
        };
        let fits = |size: usize| bytes <= size.saturating_sub(SEND_BUFFER_KEPT);
        if fits(size()?) {
            return Ok(());
        }
        let wanted = bytes + SEND_BUFFER_KEPT;
        // The kernel doubles what it is given. Who may not exceed the machine's limit gets as much as that allows.
        if sockopt::set_socket_send_buffer_size_force(&self.socket, wanted).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&self.socket, wanted);
        }
        match size()? {
            size if fits(size) => Ok(()),
            size => Err(Error::BatchTooLong { bytes, max: size.saturating_sub(SEND_BUFFER_KEPT).min(BATCH_BYTES_MAX) }),
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut sent = rustix::net::send(&self.socket, bytes, SendFlags::empty());
        for _ in 1..TRIES_MAX {
            // The kernel had no memory for it, or a signal came first; it has not looked at it.
            if !matches!(sent, Err(Errno::INTR | Errno::NOBUFS | Errno::AGAIN)) {
                break;
            }
            sent = rustix::net::send(&self.socket, bytes, SendFlags::empty());
        }
        sent.map(drop).map_err(|error| socket("send to the kernel")(error.into()))
    }

    /// Reads one part of an answer; `None` if there is no more.
    fn receive(&mut self) -> Result<Option<usize>, Error> {
        receive(&self.socket, &mut self.answer, |_| {})
    }

    /// Whoever gave up in the middle of an answer left the rest of it.
    fn forget_answers(&mut self) -> Result<(), Error> {
        while self.receive()?.is_some() {}
        Ok(())
    }
}

/// Opens a socket that hears of these groups.
pub(crate) fn open(groups: u32) -> Result<(Socket, Port), Error> {
    let opened = Socket::new(NETLINK_NETFILTER).map_err(socket("open a netlink socket"))?;
    let bind = socket("bind a netlink socket");
    if let Err(error) = rustix::net::bind(&opened, &SocketAddrNetlink::new(0, groups)) {
        return Err(bind(error.into()));
    }
    let address = rustix::net::getsockname(&opened).and_then(SocketAddrNetlink::try_from);
    let address = address.map_err(|error| bind(error.into()))?;
    Ok((opened, Port(address.pid())))
}

/// Reads one answer or notification without waiting; `None` if there is none. What was lost because nobody read in time is
/// told once; what came before it is still there.
pub(crate) fn receive(
    socket_: impl AsFd,
    buffer: &mut [u8],
    mut lost: impl FnMut(&io::Error),
) -> Result<Option<usize>, Error> {
    for _ in 0..TRIES_MAX {
        let (_, length) = match rustix::net::recv(&socket_, &mut *buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(error @ Errno::NOBUFS) => {
                lost(&error.into());
                continue;
            }
            Err(error) => return Err(socket("read the kernel's answer")(error.into())),
        };
        return match length <= buffer.len() {
            true => Ok(Some(length)),
            false => Err(Error::Malformed { what: "it is longer than any that was announced" }),
        };
    }
    Err(Error::NoAnswer)
}

/// What the kernel refused, if this answer says that it did.
pub(crate) fn refusal(message: &Message<'_>) -> Result<Option<Refusal>, Error> {
    const TEXT: u16 = 1;
    const OFFSET: u16 = 2;
    let short = Error::Malformed { what: "an answer without a result" };
    let Some(code) = message.payload.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) else { return Err(short) };
    if code == 0 {
        return Ok(None);
    }
    // Behind the code comes what is answered: its header, and the rest of it unless that is left out.
    let answered = message.payload.get(4..).unwrap_or_default();
    let copied = answered.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize);
    let copied = if message.flags & ANSWER_HAS_NO_COPY != 0 { HEADER_BYTES } else { copied.next_multiple_of(4) };
    let attributes = match message.flags & ANSWER_HAS_ATTRIBUTES {
        0 => &[],
        _ => answered.get(copied..).unwrap_or_default(),
    };
    Ok(Some(Refusal {
        sequence: message.sequence,
        code: code.saturating_neg(),
        message: wire::find(attributes, TEXT).and_then(|found| found.text()).map(str::to_owned),
        // In the machine's order, as everything in an answer.
        at: wire::find(attributes, OFFSET).and_then(|found| found.value.try_into().ok()).map(u32::from_ne_bytes),
    }))
}

/// Whether nothing is wrong with what was asked, and the same may go well the next time.
fn passes(error: &Error) -> bool {
    let Error::Refused { source, .. } = error else { return false };
    let code = source.raw_os_error();
    [Errno::INTR, Errno::AGAIN, Errno::NOBUFS].iter().any(|errno| code == Some(errno.raw_os_error()))
}

fn socket(doing: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Socket { doing, source }
}
