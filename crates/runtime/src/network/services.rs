//! Addresses of services that nothing routes: what a pod sends there is refused at once.
//!
//! ```text
//! table ip adXXXX-services {
//!     chain refuse {
//!         type filter hook forward priority filter - 10;
//!         ip saddr PODS ip daddr SERVICES ct direction original oifname != "ad*" reject with icmp port-unreachable
//!     }
//! }
//! ```
//!
//! Without it such a packet leaves by the default route, and a stranger who has the address out there may answer. A route would
//! do for the whole machine, and take a network of the same numbers from its other users; this sees only what this instance's
//! pods send. Whoever has services lead somewhere changes the destination before a packet is routed, and it is none of theirs
//! by then. Ahead of other filters, which may drop in silence.

use nft::{Chain, ChainKind, Direction, Family, Hook, RejectWith, Relation, Rule, Side, Table, TableSpec};

use super::cidr::PodCidr;
use super::host::LINK_PREFIX;

/// The table that refuses what `pods` send to `services`.
pub(super) fn spec(table: Table, pods: PodCidr, services: PodCidr) -> TableSpec {
    let refused = Rule::new()
        .address_in(Side::Source, Relation::Equal, pods.network().into(), pods.prefix_length())
        .address_in(Side::Destination, Relation::Equal, services.network().into(), services.prefix_length())
        // Whoever has such an address elsewhere and asks a pod is answered.
        .direction_is(Direction::Original)
        // Who is here has the address: a pod of another instance.
        .output_name_begins(Relation::NotEqual, LINK_PREFIX)
        .reject(RejectWith::PortUnreachable(Family::Ip));
    let chain = Chain::at("refuse", ChainKind::Filter, Hook::Forward, -10);
    TableSpec { chains: vec![(chain, vec![refused])], ..TableSpec::new(table) }
}
