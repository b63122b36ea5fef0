//! TCP sockets of the network namespace this thread is in, counted by the kernel's own listing (`sock_diag`).
//!
//! A pod on the host's network shares its namespace with everybody, so of its sockets only those count that its own
//! processes have open, and what has come to them and was not accepted yet.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};

use crate::contract::{ConnectionFilter, Connections};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// `struct inet_diag_msg`.
const ENTRY_BYTES: usize = 72;
/// The attribute that is a `struct tcp_info`, and where that says how many milliseconds ago data was last sent and received.
const INET_DIAG_INFO: u8 = 2;
const LAST_DATA_SENT: usize = 44;
const LAST_DATA_RECEIVED: usize = 52;
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

/// The kernel's numbers of TCP states.
mod state {
    pub(super) const ESTABLISHED: u8 = 1;
    pub(super) const SYN_RECV: u8 = 3;
    pub(super) const FIN_WAIT1: u8 = 4;
    pub(super) const CLOSE_WAIT: u8 = 8;
    pub(super) const LAST_ACK: u8 = 9;
    pub(super) const LISTEN: u8 = 10;
    pub(super) const CLOSING: u8 = 11;
}

/// In these states data may still be owed.
const OPEN: [u8; 4] = [state::ESTABLISHED, state::FIN_WAIT1, state::CLOSE_WAIT, state::LAST_ACK];

/// What is listed to count connections.
const COUNTED: [u8; 6] =
    [state::ESTABLISHED, state::FIN_WAIT1, state::CLOSE_WAIT, state::LAST_ACK, state::SYN_RECV, state::LISTEN];

/// In these states the other side has not acknowledged all that was sent to it, the end among it. A process that ended well leaves
/// such sockets behind, and the kernel sees to them as long as their network is there.
const OWED: [u8; 3] = [state::FIN_WAIT1, state::LAST_ACK, state::CLOSING];

/// A way to ask about the sockets of the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Listing {
    socket: OwnedFd,
}

impl Listing {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WAIT_MAX))?;
        Ok(Self { socket })
    }

    /// How many connections were closed here and have data on their way to somebody else.
    pub(crate) fn owed(&self) -> io::Result<usize> {
        self.owed_where(|entry| !entry.peer.is_loopback())
    }

    fn owed_where(&self, counts: impl Fn(&Entry) -> bool) -> io::Result<usize> {
        let mut owed = 0;
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            list(&self.socket, family, &OWED, false, |entry| owed += usize::from(counts(&entry)))?;
        }
        Ok(owed)
    }

    /// Counts connections: of all sockets there are, or of those whose inodes are given.
    pub(crate) fn count(&self, filter: &ConnectionFilter, own: Option<&HashSet<u32>>) -> io::Result<Connections> {
        let mut entries = Vec::new();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            list(&self.socket, family, &COUNTED, filter.idle_after.is_some(), |entry| {
                if filter.ports.is_empty() || filter.ports.contains(&entry.port) {
                    entries.push(entry);
                }
            })?;
        }
        let listening =
            |entry: &&Entry| entry.state == state::LISTEN && own.is_some_and(|own| own.contains(&entry.inode));
        let listened: HashSet<u16> = entries.iter().filter(listening).map(|entry| entry.port).collect();
        // Nobody has a connection open that was not accepted yet: it belongs to whoever listens.
        let is_own = |entry: &&Entry| match (own, entry.inode) {
            (None, _) => true,
            (Some(_), 0) => listened.contains(&entry.port),
            (Some(own), inode) => own.contains(&inode),
        };
        let mut connections = Connections::default();
        for entry in entries.iter().filter(is_own) {
            match entry.state {
                // Of a listening socket the queue is not of bytes, but of connections nobody has accepted.
                state::LISTEN => connections.unaccepted += entry.receive_queue as usize,
                _ if filter.ignored_peers.iter().any(|range| range.contains(entry.peer)) => {}
                state::SYN_RECV => connections.opening += 1,
                open if OPEN.contains(&open) && !entry.is_idle(filter.idle_after) => connections.established += 1,
                _ => {}
            }
        }
        Ok(connections)
    }
}

/// The inodes of the sockets that these processes have open. Whoever ends meanwhile has none.
pub(crate) fn open_in(processes: &[u32]) -> HashSet<u32> {
    let descriptors =
        processes.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
    let inode = |fd: fs::DirEntry| {
        let link = fs::read_link(fd.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    descriptors.filter_map(inode).collect()
}

/// One socket of the listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    state: u8,
    port: u16,
    peer: IpAddr,
    receive_queue: u32,
    /// 0 of one that no process has open.
    inode: u32,
    /// For how long nothing went either way, where that was asked for.
    idle: Option<Duration>,
}

impl Entry {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (bytes, attributes) = bytes.split_at_checked(ENTRY_BYTES)?;
        let number = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let peer = match i32::from(bytes[0]) {
            libc::AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(bytes.get(24..40)?).ok()?),
            _ => IpAddr::from(<[u8; 4]>::try_from(bytes.get(24..28)?).ok()?),
        };
        Some(Self {
            state: bytes[1],
            port: u16::from_be_bytes([bytes[4], bytes[5]]),
            peer,
            receive_queue: number(56),
            inode: number(68),
            idle: idle_in(attributes),
        })
    }

    fn is_idle(&self, after: Option<Duration>) -> bool {
        matches!((self.idle, after), (Some(idle), Some(after)) if idle >= after)
    }
}

/// How long ago the last byte went either way, as `struct tcp_info` among the attributes says.
fn idle_in(mut attributes: &[u8]) -> Option<Duration> {
    while let Some((head, _)) = attributes.split_at_checked(4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let body = attributes.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) == u16::from(INET_DIAG_INFO) {
            let millis = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
            let last = millis(LAST_DATA_SENT)?.min(millis(LAST_DATA_RECEIVED)?);
            return Some(Duration::from_millis(last.into()));
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn list(
    socket: &OwnedFd,
    family: AddressFamily,
    states: &[u8],
    with_idle: bool,
    mut each: impl FnMut(Entry),
) -> io::Result<()> {
    rustix::net::send(socket, &request(family, states, with_idle), SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    loop {
        let (_, length) = rustix::net::recv(socket, &mut answer, RecvFlags::empty())?;
        let mut rest = answer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
        while let Some((kind, body, after)) = message(rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = body.first_chunk().map_or(libc::EPROTO, |bytes| -i32::from_ne_bytes(*bytes));
                    return Err(io::Error::from_raw_os_error(code));
                }
                SOCK_DIAG_BY_FAMILY => Entry::read(body).into_iter().for_each(&mut each),
                _ => {}
            }
            rest = after;
        }
    }
}

/// Splits off the first message: its kind, its body, and what follows.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(HEADER_BYTES..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn request(family: AddressFamily, states: &[u8], with_idle: bool) -> Vec<u8> {
    let extensions = if with_idle { 1 << (INET_DIAG_INFO - 1) } else { 0 };
    let states = states.iter().fold(0u32, |set, state| set | 1 << state);
    let length = HEADER_BYTES + REQUEST_BYTES;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).expect("small").to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([u8::try_from(family.as_raw()).expect("small"), IPPROTO_TCP, extensions, 0]);
    bytes.extend(states.to_ne_bytes());
    // Any addresses, ports, link and cookie.
    bytes.resize(length, 0);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn to_port(port: u16) -> ConnectionFilter {
        ConnectionFilter { ports: vec![port], ..ConnectionFilter::default() }
    }

    fn count(filter: &ConnectionFilter) -> Connections {
        Listing::open().unwrap().count(filter, None).unwrap()
    }

    #[test]
    fn connections_are_counted_from_the_handshake_to_the_last_byte_owed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let counted = || count(&to_port(port));
        assert_eq!(counted(), Connections::default());
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        assert_eq!(counted(), Connections { established: 3, opening: 0, unaccepted: 3 });
        let (mut served, _) = listener.accept().unwrap();
        assert_eq!(counted().unaccepted, 2);
        drop(clients);
        // The others are closed by their clients and still owe an answer to nobody's question.
        assert_eq!(served.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(counted(), Connections { established: 3, opening: 0, unaccepted: 2 });
        drop(served);
        assert_eq!(counted().established, 2);
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(count(&to_port(elsewhere.local_addr().unwrap().port())), Connections::default());
    }

    /// What was written and closed is owed until the other side has it: a reader that takes nothing keeps it so.
    #[test]
    fn closed_connection_is_owed_until_its_last_byte_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let owed = || Listing::open().unwrap().owed_where(|entry| entry.port == port).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        served.set_nonblocking(true).unwrap();
        while served.write(&[0; 1 << 16]).is_ok() {}
        assert_eq!(owed(), 0, "it is open");
        drop(served);
        assert_eq!(owed(), 1);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert_eq!(owed(), 0, "all of it arrived");
    }

    /// [TR-55] A metrics scraper among the ignored peers does not count; what it has not been accepted for does: it is in the
    /// listener's queue.
    #[test]
    fn connections_from_ignored_peers_do_not_count() {
        for address in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let _client = TcpStream::connect((address, port)).unwrap();
            let _served = listener.accept().unwrap();
            let ignoring =
                |range: &str| ConnectionFilter { ignored_peers: vec![range.parse().unwrap()], ..to_port(port) };
            assert_eq!(count(&ignoring("10.0.0.0/8")).established, 1, "{address}");
            assert_eq!(count(&ignoring(address)).established, 0, "{address}");
        }
    }

    /// [TR-56]
    #[test]
    fn connections_without_data_for_a_while_do_not_count_under_the_idle_rule() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut busy = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _served = listener.accept().unwrap();
        let _idle = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _other = listener.accept().unwrap();
        let idle_after = |millis| ConnectionFilter { idle_after: Some(Duration::from_millis(millis)), ..to_port(port) };
        assert_eq!(count(&idle_after(3_600_000)).established, 2);
        std::thread::sleep(Duration::from_millis(1_100));
        busy.write_all(b"x").unwrap();
        assert_eq!(count(&idle_after(1_000)).established, 1);
    }
}
