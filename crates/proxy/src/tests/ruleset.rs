//! What changes in the kernel when something changes in the API, without a kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::Protocol;
use crate::rules::{Diff, Ruleset};
use crate::wanted::{Backend, Frontend, Mark, Space, Targets, Wanted};

fn vip(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    [10, 87, high, low].into()
}

fn backend(number: u16) -> Backend {
    let [high, low] = number.to_be_bytes();
    Backend { address: [10, 86, high, low].into(), port: 8080 }
}

fn frontend(number: u16) -> Frontend {
    let address = Some(vip(number));
    Frontend { space: Space::Service, is_ipv6: false, address, protocol: Protocol::Tcp, port: 80 }
}

fn wanted(number: u16, backends: impl IntoIterator<Item = u16>, affinity_seconds: Option<u32>) -> Wanted {
    let backends: BTreeSet<_> = backends.into_iter().map(backend).collect();
    Wanted {
        lists: BTreeMap::from([(frontend(number), Targets { backends, affinity_seconds })]),
        marks: BTreeSet::from([Mark::Vip(vip(number))]),
        ..Wanted::default()
    }
}

/// [TR-62] [TR-63]
#[test]
fn endpoint_that_leaves_changes_at_most_four_elements_and_none_of_others() {
    let mut ruleset = Ruleset::default();
    for number in 0..1000 {
        ruleset.set(&format!("service {number}"), wanted(number, 0..50, None), &mut Diff::default());
    }
    for left in [0, 17, 48, 49] {
        let mut diff = Diff::default();
        let all = (0..50).filter(|it| *it != left);
        ruleset.set("service 7", wanted(7, all, None), &mut diff);
        assert!(diff.len() <= 4 && diff.len() > 0, "{}", diff.len());
        let mut diff = Diff::default();
        ruleset.set("service 7", wanted(7, 0..50, None), &mut diff);
        assert_eq!(diff.len(), 2, "one comes back: its slot and the count");
    }
    // One for one: nothing but the slot.
    let mut diff = Diff::default();
    ruleset.set("service 7", wanted(7, 1..51, None), &mut diff);
    assert_eq!(diff.len(), 1);
    let mut diff = Diff::default();
    ruleset.set("service 7", wanted(7, 1..51, None), &mut diff);
    assert!(diff.is_empty(), "the same again is nothing");
}

#[test]
fn affinity_of_who_stays_survives_changes_of_slots() {
    let mut ruleset = Ruleset::default();
    ruleset.set("service 7", wanted(7, 0..5, Some(60)), &mut Diff::default());
    let mut diff = Diff::default();
    ruleset.set("service 7", wanted(7, [1, 2, 3, 4], Some(60)), &mut diff);
    // The slot of the one that left, the last one, their numbers, where the number led, and the count.
    assert_eq!(diff.len(), 6);
    let mut diff = Diff::default();
    ruleset.set("service 7", wanted(7, [1, 2, 3, 4], None), &mut diff);
    assert_eq!(diff.len(), 9, "numbers go, both ways, and the chain is another");
    let mut diff = Diff::default();
    ruleset.set("service 7", Wanted::default(), &mut diff);
    assert_eq!(diff.len(), 6, "slots, chain and address");
    let mut diff = Diff::default();
    ruleset.remove_leftovers(&mut diff);
    assert!(diff.is_empty(), "nothing is left: {diff:?}");
}

#[test]
fn chains_that_nothing_leads_to_do_not_grow_without_end() {
    let mut ruleset = Ruleset::default();
    let mut removed = 0;
    for seconds in 1..2000 {
        ruleset.set("service 7", wanted(7, 0..3, Some(seconds)), &mut Diff::default());
        removed += ruleset.take_idle_chains().len();
    }
    assert!(removed > 1500, "{removed}");
}
