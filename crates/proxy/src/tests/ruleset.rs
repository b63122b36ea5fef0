//! What changes in the kernel when something changes in the API, without a kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::Protocol;
use crate::kernel_tables;
use crate::rules::{Diff, Ruleset};
use crate::skeleton::table;
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

/// [TR-62]
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
        assert!(diff.len() <= 4 && !diff.is_empty(), "{}", diff.len());
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
    ruleset.remove_leftovers(&BTreeSet::new(), &mut diff);
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

/// One whose rules cannot be written costs nobody else theirs, and gets them when they can.
#[test]
fn owner_whom_the_kernel_refuses_costs_nobody_else() {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let settings = super::settings();
        let mut nftables = nft::Nftables::open().unwrap();
        kernel_tables::replace(&mut nftables, &settings, BTreeMap::new()).unwrap();
        let mut ruleset = kernel_tables::read(&mut nftables, &settings).unwrap().unwrap();
        let mut changes: BTreeMap<String, Wanted> =
            (0..200).map(|number| (format!("service {number}"), wanted(number, 0..3, None))).collect();
        // An address of the other family does not fit.
        let mut bad = wanted(77, 0..3, None);
        let list = bad.lists.pop_first().unwrap();
        bad.lists.insert(Frontend { address: Some("fd00::7".parse().unwrap()), ..list.0 }, list.1);
        changes.insert("service 77".into(), bad);
        let written =
            kernel_tables::apply(&mut nftables, &mut ruleset, &settings, changes.clone(), &BTreeSet::new()).unwrap();
        assert_eq!(written.refused.keys().collect::<Vec<_>>(), ["service 77"]);
        let count = |nftables: &mut nft::Nftables, set| {
            nftables.elements(&table(&settings, nft::Family::Ip), set).unwrap().len()
        };
        assert_eq!(count(&mut nftables, "svc"), 199);
        assert_eq!(count(&mut nftables, "svc_eps"), 199 * 3);
        // The next change of somebody else is a small one again.
        let one = BTreeMap::from([("service 5".to_owned(), wanted(5, 0..2, None))]);
        assert!(
            kernel_tables::apply(&mut nftables, &mut ruleset, &settings, one, &BTreeSet::new()).unwrap().elements <= 4
        );
        changes.insert("service 5".into(), wanted(5, 0..2, None));
        changes.insert("service 77".into(), wanted(77, 0..3, None));
        let written =
            kernel_tables::reconcile(&mut nftables, &mut ruleset, &settings, changes.clone(), &BTreeSet::new())
                .unwrap();
        assert!(written.refused.is_empty() && written.elements <= 6, "only what differs: {written:?}");
        assert_eq!(count(&mut nftables, "svc"), 200);
        let again = kernel_tables::reconcile(&mut nftables, &mut ruleset, &settings, changes.clone(), &BTreeSet::new())
            .unwrap();
        assert_eq!(again.elements, 0, "all is as it should be");
        // Whatever nobody wants goes.
        changes.retain(|owner, _| owner == "service 3");
        kernel_tables::reconcile(&mut nftables, &mut ruleset, &settings, changes, &BTreeSet::new()).unwrap();
        assert_eq!(
            (count(&mut nftables, "svc"), count(&mut nftables, "svc_eps"), count(&mut nftables, "vips")),
            (1, 3, 1)
        );
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
