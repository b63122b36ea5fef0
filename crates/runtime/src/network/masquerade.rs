//! The way out: what pods send beyond their own range leaves under the node's address.
//!
//! One nftables table per instance. Its chain has no word of the `nft` program for a name: a ruleset that was saved must load again.
//!
//! ```text
//! table ip adXXXX {
//!     chain outgoing {
//!         type nat hook postrouting priority srcnat;
//!         ip saddr RANGE ip daddr != RANGE oifname != "ad*" masquerade
//!     }
//! }
//! ```

use nft::{Chain, ChainKind, Hook, Relation, Rule, Side, Table, TableSpec};

use super::cidr::PodCidr;
use super::host::LINK_PREFIX;

/// Behind routing, where sources are changed.
pub(super) const SOURCE_NAT_PRIORITY: i32 = 100;

/// The table for pods of `range`.
pub(super) fn spec(table: Table, range: PodCidr) -> TableSpec {
    let network = range.network().into();
    let out = Rule::new()
        .address_in(Side::Source, Relation::Equal, network, range.prefix_length())
        .address_in(Side::Destination, Relation::NotEqual, network, range.prefix_length())
        // Pods of another instance on this machine are not outside.
        .output_name_begins(Relation::NotEqual, LINK_PREFIX)
        .masquerade();
    let chain = Chain::at("outgoing", ChainKind::Nat, Hook::Postrouting, SOURCE_NAT_PRIORITY);
    TableSpec { chains: vec![(chain, vec![out])], ..TableSpec::new(table) }
}
