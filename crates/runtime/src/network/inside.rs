//! The node's own address in the pod range is for its pods: what others send there is dropped.
//!
//! ```text
//! table ip adXXXX-inside {
//!     chain guard {
//!         type filter hook input priority raw;
//!         ip daddr NODE iifname != "adXXXX*" iifname != "lo" drop
//!     }
//! }
//! ```
//!
//! Pods find the API and the cluster DNS there. The kernel takes packets for an address of `lo` by any link, so a neighbour who sends
//! them to this machine would find both, whatever the API is told to listen on. What they send to an address or port that a Service
//! leads there would, too: so it is judged behind all translation, by where it arrives.

use std::net::Ipv4Addr;

use nft::{Chain, ChainKind, Hook, Relation, Rule, Side, Table, TableSpec, Verdict};

use super::ports::RAW_PRIORITY;

/// The whole name: those of links are filled up with zeros.
const LOOPBACK: &str = "lo\0";

/// The table that keeps `node` for pods whose links begin with `prefix`, and for the machine itself.
pub(super) fn spec(table: Table, prefix: &str, node: Ipv4Addr) -> TableSpec {
    let foreign = Rule::new()
        .address_is(Side::Destination, node.into())
        .input_name_begins(Relation::NotEqual, prefix)
        .input_name_begins(Relation::NotEqual, LOOPBACK)
        .verdict(Verdict::Drop);
    let chain = Chain::at("guard", ChainKind::Filter, Hook::Input, RAW_PRIORITY);
    TableSpec { chains: vec![(chain, vec![foreign])], ..TableSpec::new(table) }
}
