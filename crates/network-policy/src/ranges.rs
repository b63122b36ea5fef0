//! Addresses and ports as ranges that do not meet: the kernel refuses those that do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Disjoint ranges in their order, both ends within. No two of them could be one.
pub(crate) type Ranges = Vec<(u128, u128)>;

/// A network: of which family, and its first and last address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Network {
    pub(crate) is_ipv6: bool,
    pub(crate) first: u128,
    pub(crate) last: u128,
}

/// The address as a number within its family.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The bytes of an address or, with `bytes` 2, of a port.
pub(crate) fn bytes_of(number: u128, bytes: usize) -> Vec<u8> {
    number.to_be_bytes()[16 - bytes..].to_vec()
}

pub(crate) fn last_number(bytes: usize) -> u128 {
    u128::MAX >> (128 - 8 * bytes)
}

impl Network {
    /// A network in CIDR notation. Bits behind the prefix do not matter.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.trim().split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length: u32 = length.parse().ok()?;
        let bits = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let host = bits.checked_sub(length)?;
        let mask = if host == 0 { 0 } else { u128::MAX >> (u128::BITS - host) };
        let first = number(address) & !mask;
        Some(Self { is_ipv6: address.is_ipv6(), first, last: first | mask })
    }
}

/// All numbers that are in one of the ranges.
pub(crate) fn union(ranges: impl IntoIterator<Item = (u128, u128)>) -> Ranges {
    let mut all: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
    all.sort_unstable();
    let mut merged: Ranges = Vec::new();
    for (first, last) in all {
        match merged.last_mut() {
            Some(before) if before.1 == u128::MAX || first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// What is in `of` and in none of `except`, which are of the same family.
pub(crate) fn without(of: (u128, u128), except: impl IntoIterator<Item = (u128, u128)>) -> Ranges {
    let mut left = Vec::new();
    let mut from = Some(of.0);
    for (first, last) in union(except) {
        let Some(begin) = from.filter(|begin| *begin <= of.1) else { break };
        if last < begin {
            continue;
        }
        if first > begin {
            left.push((begin, of.1.min(first - 1)));
        }
        from = last.checked_add(1);
    }
    if let Some(begin) = from.filter(|begin| *begin <= of.1) {
        left.push((begin, of.1));
    }
    left
}

/// Whether one of the ranges, which are in their order, has the number.
pub(crate) fn has(ranges: &Ranges, number: u128) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= number);
    behind.checked_sub(1).is_some_and(|at| ranges[at].1 >= number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn network(text: &str) -> (u128, u128) {
        let network = Network::parse(text).unwrap();
        (network.first, network.last)
    }

    #[test]
    fn network_is_read_with_its_first_and_last_address() {
        let read = Network::parse("10.1.2.3/16").unwrap();
        assert_eq!((read.is_ipv6, read.first, read.last), (false, 0x0a01_0000, 0x0a01_ffff));
        assert_eq!(network("0.0.0.0/0"), (0, u32::MAX.into()));
        assert_eq!(network("::/0"), (0, u128::MAX));
        assert_eq!(network("fd00::1/128").0, network("fd00::1/128").1);
        for wrong in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "x/1", "", "10.0.0.0/-1"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }

    /// [NP-17] [NP-22] Ranges that overlap or touch become one.
    #[test]
    fn overlapping_ranges_become_one() {
        assert_eq!(union([(85, 95), (80, 90), (97, 97), (96, 96), (1, 1)]), [(1, 1), (80, 97)]);
        assert_eq!(union([network("10.0.0.0/8"), network("10.1.0.0/16")]), [network("10.0.0.0/8")]);
        assert_eq!(union([(0, u128::MAX), (5, 6)]), [(0, u128::MAX)]);
        assert_eq!(union([(6, 5)]), []);
    }

    #[test]
    fn exceptions_are_carved_out_whatever_their_order() {
        assert_eq!(without((10, 20), [(15, 16), (12, 12)]), [(10, 11), (13, 14), (17, 20)]);
        assert_eq!(without((10, 20), [(0, 12), (18, 30)]), [(13, 17)]);
        assert_eq!(without((10, 20), [(10, 20)]), []);
        assert_eq!(without((10, 20), [(0, 5), (25, 30)]), [(10, 20)]);
        assert_eq!(without((0, u128::MAX), [(1, u128::MAX)]), [(0, 0)]);
        assert_eq!(without((0, u128::MAX), [(0, u128::MAX)]), []);
    }

    #[test]
    fn number_is_found_in_the_range_that_has_it() {
        let ranges = union([(10, 20), (30, 30)]);
        for (number, expected) in [(9, false), (10, true), (20, true), (21, false), (30, true), (31, false)] {
            assert_eq!(has(&ranges, number), expected, "{number}");
        }
        assert!(!has(&Vec::new(), 0));
    }
}
