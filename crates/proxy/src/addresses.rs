//! Which addresses a Service may have outside, and which an endpoint may have. Whoever may write a Service or a slice must not take
//! over addresses of the node by that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address in it and the length of its prefix.
pub type Network = (IpAddr, u8);

/// Whether `address` is in `network`.
pub(crate) fn contains(network: &Network, address: IpAddr) -> bool {
    match (network, address) {
        ((IpAddr::V4(base), length), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub((*length).into())).unwrap_or(0);
            base.to_bits() & mask == address.to_bits() & mask
        }
        ((IpAddr::V6(base), length), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub((*length).into())).unwrap_or(0);
            base.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

/// A network as Services write it: `10.0.0.0/8`, or one address.
pub fn parse_network(text: &str) -> Option<Network> {
    let text = text.trim();
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    Some((address, length.unwrap_or(longest))).filter(|(_, length)| *length <= longest)
}

/// Whether an endpoint may be there: an address that means the same on every machine. Loopback and link-local addresses are the
/// node's own, where programs listen that trust whoever reaches them.
pub(crate) fn is_endpoint_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_ordinary_ipv4(address),
        IpAddr::V6(address) => is_ordinary_ipv6(address),
    }
}

fn is_ordinary_ipv4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    let is_reserved = first == 0 || first >= 240;
    !(is_reserved || address.is_loopback() || address.is_link_local() || address.is_multicast())
}

fn is_ordinary_ipv6(address: Ipv6Addr) -> bool {
    let is_own = address.is_unspecified() || address.is_loopback() || address.is_unicast_link_local();
    // An IPv4 address in disguise.
    !(is_own || address.is_multicast() || address.to_ipv4_mapped().is_some() || address.to_ipv4().is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn endpoint_address_of_the_machine_itself_is_refused() {
        let at = |text: &str| is_endpoint_address(text.parse().unwrap());
        for own in [
            "127.0.0.1",
            "127.255.255.254",
            "169.254.1.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
        ] {
            assert!(!at(own), "{own}");
        }
        for ordinary in ["10.86.0.7", "192.168.1.9", "203.0.113.9", "fd00::7", "2001:db8::1"] {
            assert!(at(ordinary), "{ordinary}");
        }
    }

    #[test]
    fn network_contains_what_shares_its_prefix() {
        let network = parse_network("10.86.0.0/16").unwrap();
        assert!(contains(&network, "10.86.255.255".parse().unwrap()));
        assert!(!contains(&network, "10.87.0.0".parse().unwrap()));
        assert!(!contains(&network, "fd00::1".parse().unwrap()));
        assert!(contains(&parse_network("0.0.0.0/0").unwrap(), "8.8.8.8".parse().unwrap()));
        assert!(contains(&parse_network("fd00::/8").unwrap(), "fd01::1".parse().unwrap()));
        assert_eq!(parse_network(" 192.0.2.1 "), Some(("192.0.2.1".parse().unwrap(), 32)));
        for wrong in ["10.0.0.0/33", "10.0.0.0/", "x/8", "", "::/129"] {
            assert_eq!(parse_network(wrong), None, "{wrong}");
        }
    }
}
