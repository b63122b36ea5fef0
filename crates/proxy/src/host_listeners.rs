//! Which ports programs of this machine listen on: an address of a Service never takes one of them away.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Protocol;

/// Ports that are taken, by address; of every address if that is none.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct HostListeners(BTreeSet<(Option<IpAddr>, Protocol, u16)>);

impl HostListeners {
    /// Reads them, for the network namespace of this thread. What cannot be read is not known.
    pub(crate) fn read() -> Self {
        let mut found = Self::default();
        for (file, protocol) in
            [("tcp", Protocol::Tcp), ("tcp6", Protocol::Tcp), ("udp", Protocol::Udp), ("udp6", Protocol::Udp)]
        {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
            found.0.extend(text.lines().filter_map(|line| listener(line, protocol)));
        }
        found
    }

    /// Whether somebody listens at that address, or at all of them.
    pub(crate) fn has(&self, address: IpAddr, protocol: Protocol, port: u16) -> bool {
        self.0.contains(&(None, protocol, port)) || self.0.contains(&(Some(address), protocol, port))
    }
}

/// Reads a line of `/proc/net/tcp` or one of its kind.
fn listener(line: &str, protocol: Protocol) -> Option<(Option<IpAddr>, Protocol, u16)> {
    const TCP_LISTEN: &str = "0A";
    const UDP_UNCONNECTED: &str = "07";
    let mut words = line.split_whitespace();
    let (address, port) = words.nth(1)?.rsplit_once(':')?;
    let state = words.nth(1)?;
    if state != if protocol == Protocol::Tcp { TCP_LISTEN } else { UDP_UNCONNECTED } {
        return None;
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        _ => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            let address = Ipv6Addr::from(octets);
            address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
        }
    };
    Some((Some(address).filter(|address| !address.is_unspecified()), protocol, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_read_and_a_connection_is_none() {
        let line = "  0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        let read = listener(line, Protocol::Tcp);
        let is_little = cfg!(target_endian = "little");
        assert!(!is_little || read == Some((Some(Ipv4Addr::LOCALHOST.into()), Protocol::Tcp, 6443)), "{read:?}");
        assert_eq!(listener(&line.replace(" 0A ", " 01 "), Protocol::Tcp), None);
        let any = "  0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0";
        assert_eq!(listener(any, Protocol::Tcp), Some((None, Protocol::Tcp, 22)));
        for wrong in ["", "sl local_address", "0: zz:zz 0 0A", "0: 00:0016 0 0A"] {
            assert_eq!(listener(wrong, Protocol::Tcp), None, "{wrong}");
        }
    }
}
