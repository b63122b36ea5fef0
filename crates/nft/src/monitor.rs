//! Who changes the ruleset, told as it happens.
//!
//! The kernel tells each change of a commit, and at its end who made it and which generation began. Here a commit is told whole.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::Socket;
use rustix::net::sockopt;

use crate::batch::{SUBSYSTEM, kind, read_comment, subject};
use crate::object::{Family, ObjectKind, Table};
use crate::socket::{self, Port};
use crate::wire::{self, Message};
use crate::{Error, Port as SocketPort};

/// The group that the kernel tells of changes of the ruleset, as a bit: the seventh.
const GROUP: u32 = 1 << 6;
/// What the kernel keeps for a reader that is slow. A ruleset of thousands of rules that is flushed fits in it.
const BUFFER_BYTES: usize = 8 << 20;
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// How many different things of one commit are told. What has more counts as lost: look for yourself.
const CHANGES_MAX: usize = 4096;

/// Whether something came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is there, new or changed.
    Added,
    /// It is gone.
    Removed,
}

/// What happened to things of one kind in one place: rules of a chain, elements of a set, or a table, chain or set itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Whether they came or went.
    pub action: Action,
    /// What they are.
    pub kind: ObjectKind,
    /// The table they are in.
    pub table: Table,
    /// The name of the chain or set; the one they are in for rules and elements; none for a table.
    pub name: Option<String>,
    /// How many.
    pub count: usize,
    /// What a table tells people and programs.
    pub comment: Option<String>,
}

/// The process behind a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// The number of its thread.
    pub id: u32,
    /// What it is called.
    pub name: String,
}

/// A commit that somebody made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The generation that it began.
    pub generation: u32,
    /// The socket through which it was made.
    pub port: SocketPort,
    /// Who made it, where the kernel says so.
    pub process: Option<Process>,
    /// What changed.
    pub changes: Vec<Change>,
}

/// What a monitor tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notification {
    /// Somebody made a commit.
    Committed(Transaction),
    /// Some were made that cannot be told: nobody read in time, or they are too large. What is there has to be looked at.
    Lost,
}

/// Hears of every change of the ruleset of one network namespace: that of the thread which opens this. It never blocks; its
/// descriptor can be read when there is something to tell.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
    /// Of the commit whose end is not told yet.
    changes: Vec<Change>,
    is_too_large: bool,
}

impl Monitor {
    /// Hears of everything from now on.
    pub fn open() -> Result<Self, Error> {
        let (socket, _) = socket::open(GROUP)?;
        socket.set_non_blocking(true).map_err(|source| Error::Socket { doing: "open a monitor", source })?;
        // Who may not exceed the machine's limit loses sooner, and is told so.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        Ok(Self { socket, buffer: vec![0; MESSAGE_BYTES_MAX], changes: Vec::new(), is_too_large: false })
    }

    /// What happened, in its order; `None` if nothing is to be read. Empty in the middle of a commit.
    pub fn read(&mut self) -> Result<Option<Vec<Notification>>, Error> {
        let mut is_lost = false;
        let received = socket::receive(&self.socket, &mut self.buffer, |_| is_lost = true)?;
        let mut told = Vec::new();
        if is_lost {
            self.changes.clear();
            told.push(Notification::Lost);
        }
        let Some(length) = received else { return Ok(is_lost.then_some(told)) };
        let buffer = std::mem::take(&mut self.buffer);
        let read = wire::messages(&buffer[..length]).try_for_each(|message| {
            self.hear(&message?, &mut told);
            Ok(())
        });
        self.buffer = buffer;
        read.map(|()| Some(told))
    }

    fn hear(&mut self, message: &Message<'_>, told: &mut Vec<Notification>) {
        if message.kind >> 8 != SUBSYSTEM {
            return;
        }
        let Some((family, attributes)) = message.nftables() else { return };
        let number = message.kind & 0xff;
        if number == kind::NEW_GENERATION {
            let changes = std::mem::take(&mut self.changes);
            told.push(match std::mem::take(&mut self.is_too_large) {
                true => Notification::Lost,
                false => Notification::Committed(transaction(message.port, attributes, changes)),
            });
            return;
        }
        let Some(change) = change(number, Family::read(family), attributes) else { return };
        if let Some(last) = self.changes.last_mut().filter(|last| last.is_like(&change)) {
            last.count = last.count.saturating_add(change.count);
        } else if self.changes.len() < CHANGES_MAX {
            self.changes.push(change);
        } else {
            self.is_too_large = true;
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Change {
    /// Whether both are the same but for how many.
    fn is_like(&self, other: &Self) -> bool {
        self.action == other.action
            && self.kind == other.kind
            && matches!(self.kind, ObjectKind::Rule | ObjectKind::Element)
            && self.table == other.table
            && self.name == other.name
    }
}

fn change(number: u16, family: Family, attributes: &[u8]) -> Option<Change> {
    let (is_added, kind, name) = subject(number)?;
    let table = Table::new(family, wire::find(attributes, 1)?.text()?);
    let count = match kind {
        ObjectKind::Element => wire::find(attributes, 3).map_or(1, |list| wire::attributes(list.value).count()),
        ObjectKind::Table | ObjectKind::Chain | ObjectKind::Rule | ObjectKind::Set | ObjectKind::Other => 1,
    };
    let comment = (kind == ObjectKind::Table).then(|| read_comment(wire::find(attributes, 6)?.value)).flatten();
    let name = name.and_then(|name| wire::find(attributes, name)?.text().map(str::to_owned));
    let action = if is_added { Action::Added } else { Action::Removed };
    Some(Change { action, kind, table, name, count, comment })
}

fn transaction(port: u32, attributes: &[u8], changes: Vec<Change>) -> Transaction {
    let number = |kind| wire::find(attributes, kind).and_then(|found| found.number());
    let name = wire::find(attributes, 3).and_then(|found| found.text());
    let process = number(2).map(|id| Process { id, name: name.unwrap_or_default().to_owned() });
    Transaction { generation: number(1).unwrap_or(0), port: Port(port), process, changes }
}
