//! The range that pods get their addresses from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of IPv4 addresses such as `10.86.0.0/16`, large enough for at least one pod.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PodCidr {
    network: Ipv4Addr,
    prefix_length: u8,
}

impl PodCidr {
    /// The network address, which nobody holds.
    pub fn network(&self) -> Ipv4Addr {
        self.network
    }

    /// How many leading bits all addresses share.
    pub fn prefix_length(&self) -> u8 {
        self.prefix_length
    }

    /// The first address: the node's own, where pods reach it and where probes come from.
    pub fn node_address(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() + 1)
    }

    /// The addresses that pods may have: neither network, node nor broadcast.
    pub fn pod_addresses(&self) -> RangeInclusive<IpAddr> {
        let at = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
        at(self.network.to_bits() + 2)..=at(self.last() - 1)
    }

    /// Whether the address lies in the range.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.network.to_bits()..=self.last()).contains(&address.to_bits())
    }

    fn last(&self) -> u32 {
        self.network.to_bits() | (u32::MAX >> self.prefix_length)
    }
}

impl fmt::Display for PodCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_length)
    }
}

/// A text that names no usable range of pod addresses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("pod range {text:?} is not valid: {why}; write it like \"10.86.0.0/16\"")]
pub struct InvalidPodCidr {
    text: String,
    why: String,
}

impl FromStr for PodCidr {
    type Err = InvalidPodCidr;

    fn from_str(text: &str) -> Result<Self, InvalidPodCidr> {
        parse(text).map_err(|why| InvalidPodCidr { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<PodCidr, String> {
    let (address, length) = text.split_once('/').ok_or("it has no prefix length")?;
    let address: Ipv4Addr = address.parse().map_err(|_| format!("{address:?} is not an IPv4 address"))?;
    let prefix_length: u8 = length.parse().map_err(|_| format!("{length:?} is not a prefix length"))?;
    if !(8..=30).contains(&prefix_length) {
        return Err("its prefix length must be from 8 to 30".into());
    }
    let network = Ipv4Addr::from_bits(address.to_bits() & !(u32::MAX >> prefix_length));
    if network != address {
        return Err(format!("it does not start at {address}, but at {network}"));
    }
    if address.is_loopback() || address.is_link_local() || address.is_multicast() || address.octets()[0] >= 240 {
        return Err("it is reserved for other uses".into());
    }
    Ok(PodCidr { network, prefix_length })
}

impl From<PodCidr> for String {
    fn from(cidr: PodCidr) -> Self {
        cidr.to_string()
    }
}

impl TryFrom<String> for PodCidr {
    type Error = InvalidPodCidr;

    fn try_from(text: String) -> Result<Self, InvalidPodCidr> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_ends_of_the_range_are_for_nobody_and_the_first_address_is_the_nodes() {
        let cidr: PodCidr = "10.86.0.0/16".parse().unwrap();
        assert_eq!(cidr.to_string(), "10.86.0.0/16");
        assert_eq!(cidr.node_address(), Ipv4Addr::new(10, 86, 0, 1));
        assert_eq!(cidr.pod_addresses(), [10, 86, 0, 2].into()..=[10, 86, 255, 254].into());
        assert!(cidr.contains(Ipv4Addr::new(10, 86, 255, 255)) && !cidr.contains(Ipv4Addr::new(10, 87, 0, 0)));
        let smallest: PodCidr = "192.168.7.4/30".parse().unwrap();
        assert_eq!(smallest.pod_addresses(), [192, 168, 7, 6].into()..=[192, 168, 7, 6].into());
    }

    #[test]
    fn a_range_that_cannot_work_is_refused_with_a_reason() {
        for text in [
            "",
            "10.86.0.0",
            "10.86.0.0/",
            "10.86.0.0/x",
            "10.86.0.0/31",
            "10.0.0.0/7",
            "10.86.0.1/16",
            "fd00::/64",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "224.0.0.0/8",
            "300.0.0.0/8",
        ] {
            let error = text.parse::<PodCidr>().unwrap_err().to_string();
            assert!(error.starts_with("pod range ") && error.contains("10.86.0.0/16"), "{text}: {error}");
        }
    }
}
