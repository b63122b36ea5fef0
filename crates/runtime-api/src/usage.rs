//! What pods use of the machine.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::ContainerId;

/// What a running container uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerStats {
    /// Which run.
    pub id: ContainerId,
    /// Processor time since it was started, nanoseconds.
    pub cpu_nanos: u64,
    /// Memory that cannot be taken back without harm.
    pub memory_bytes: u64,
    /// Processes.
    pub processes: u64,
}

/// The first process of a running container, and what it makes of signals. Bit `n - 1` of a set is signal `n`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirstProcess {
    /// Which run.
    pub id: ContainerId,
    /// Its name, as the kernel tells it.
    pub name: String,
    /// Its number in its own namespace; the kernel protects the first from signals that it has no handler for.
    pub pid: u32,
    /// Signals that it lets wait.
    pub blocked: u64,
    /// Signals that it ignores.
    pub ignored: u64,
    /// Signals that it has a handler for.
    pub caught: u64,
}

/// TCP connections of a pod at one moment, as its kernel counts them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Connections {
    /// Open, or closing with data still owed.
    pub established: usize,
    /// Being opened: the last packet of the handshake is not in yet.
    pub opening: usize,
    /// Opened, and not yet accepted by the program, over all listening sockets.
    pub unaccepted: usize,
}

/// Which TCP connections of a pod count.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ConnectionFilter {
    /// To these local ports; to all if there are none.
    pub ports: Vec<u16>,
    /// Not those from here.
    pub ignored_peers: Vec<AddressRange>,
    /// Not those over which nothing went either way for so long.
    pub idle_after: Option<Duration>,
}

/// Addresses that begin alike: `10.0.0.0/8`, or one alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRange {
    base: IpAddr,
    prefix: u8,
}

/// A text that names no range of addresses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no address or range such as 10.0.0.0/8")]
pub struct InvalidAddressRange(String);

impl AddressRange {
    /// One address.
    pub fn only(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { base: address, prefix: bits(address) }
    }

    /// Whether the address is in it. An IPv4 address that is written as IPv6 is an IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let number = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let address = address.to_canonical();
        let below = u32::from(bits(self.base) - self.prefix);
        let shifted = |address: IpAddr| number(address).checked_shr(below).unwrap_or(0);
        address.is_ipv4() == self.base.is_ipv4() && shifted(address) == shifted(self.base)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for AddressRange {
    type Err = InvalidAddressRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidAddressRange(text.to_owned());
        let (base, prefix) = match text.trim().split_once('/') {
            Some((base, prefix)) => (base, Some(prefix.parse::<u8>().map_err(|_| wrong())?)),
            None => (text.trim(), None),
        };
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let prefix = prefix.unwrap_or(bits(base));
        if prefix > bits(base) {
            return Err(wrong());
        }
        Ok(Self { base, prefix })
    }
}

/// What one run of a container uses of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerUsage {
    /// Which run.
    pub id: ContainerId,
    /// Bytes of memory, what is shared counted in part.
    pub memory: u64,
    /// Processes.
    pub processes: u64,
    /// Bytes on disk: what it wrote to its root, and its log.
    pub disk: u64,
    /// Files and directories there.
    pub inodes: u64,
}

/// What a run of a container has on disk: what it wrote to its root, and its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerStored {
    /// Which run.
    pub id: ContainerId,
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn address_range_contains_what_begins_like_it() {
        for (range, address, within) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "::ffff:10.0.0.7", true),
            ("10.0.0.7/32", "10.0.0.8", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), within, "{range:?} {address}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/x", "10.0.0.0/-1"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
    }
}
