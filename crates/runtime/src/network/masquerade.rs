//! The way out: what pods send beyond their own range leaves under the node's address.
//!
//! One nftables table per instance, committed in one batch.
//!
//! ```text
//! table ip adXXXX {
//!     chain masquerade {
//!         type nat hook postrouting priority srcnat;
//!         ip saddr RANGE ip daddr != RANGE oifname != "ad*" masquerade
//!     }
//! }
//! ```

use std::io;

use super::cidr::PodCidr;
use super::nft::{
    Batch, DESTINATION_AT, EQUAL, LINK_PREFIX, NOT_EQUAL, OUTPUT_NAME, Place, SOURCE_AT, address_in, expression, meta,
};

const CHAIN: &str = "masquerade";
/// Behind routing, where sources are changed.
pub(super) const POST_ROUTING: Place = Place("nat", 4, 100);

/// Replaces this instance's table by one for `range`, at once.
pub(super) fn set_up(table: &str, range: PodCidr) -> io::Result<()> {
    let in_range = |at, relation| address_in(at, relation, range.network(), range.prefix_length());
    let mut batch = Batch::replacing(table);
    batch.table(table);
    batch.chain(table, CHAIN, &POST_ROUTING);
    let out = [
        in_range(SOURCE_AT, EQUAL),
        in_range(DESTINATION_AT, NOT_EQUAL),
        // Pods of another instance on this machine are not outside.
        meta(OUTPUT_NAME, NOT_EQUAL, LINK_PREFIX.as_bytes()),
        expression("masq", &[]),
    ];
    batch.rule(table, CHAIN, &out);
    batch.commit()
}

/// Removes this instance's table, if it is there.
pub(super) fn remove(table: &str) -> io::Result<()> {
    Batch::replacing(table).commit()
}
