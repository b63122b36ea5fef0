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

use std::io;

use super::cidr::PodCidr;
use super::nft::{
    Batch, DESTINATION_AT, EQUAL, LINK_PREFIX, NOT_EQUAL, OUTPUT_NAME, Place, REGISTER, SOURCE_AT, address_in, compare,
    expression, meta, number, octet,
};

const CHAIN: &str = "refuse";
const FORWARDED: Place = Place("filter", 2, -10);
const BY_ICMP: u32 = 0;
const PORT_UNREACHABLE: u8 = 3;
const CT_DIRECTION: u32 = 1;
const ORIGINAL: u8 = 0;

/// Replaces this instance's table by one that refuses what `pods` send to `services`, at once.
pub(super) fn refuse(table: &str, pods: PodCidr, services: PodCidr) -> io::Result<()> {
    let within = |at, range: PodCidr| address_in(at, EQUAL, range.network(), range.prefix_length());
    let mut batch = Batch::replacing(table);
    batch.table(table);
    batch.chain(table, CHAIN, &FORWARDED);
    let rule = [
        within(SOURCE_AT, pods),
        within(DESTINATION_AT, services),
        // Whoever has such an address elsewhere and asks a pod is answered.
        first_way(),
        // Who is here has the address: a pod of another instance.
        meta(OUTPUT_NAME, NOT_EQUAL, LINK_PREFIX.as_bytes()),
        expression("reject", &[number(1, BY_ICMP), octet(2, PORT_UNREACHABLE)].concat()),
    ];
    batch.rule(table, CHAIN, &rule);
    batch.commit()
}

/// Whether a packet goes the way of the first of its connection, and is no answer.
fn first_way() -> Vec<u8> {
    let load = [number(1, REGISTER), number(2, CT_DIRECTION)].concat();
    [expression("ct", &load), compare(EQUAL, &[ORIGINAL])].concat()
}

/// Removes this instance's table, if it is there.
pub(super) fn remove(table: &str) -> io::Result<()> {
    Batch::replacing(table).commit()
}
