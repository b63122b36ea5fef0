//! What a kernel does not promise of a commit, and what `skeleton` is built on instead. By hand:
//! `cargo test -p network-policy commits -- --ignored --nocapture`.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nft::{Batch, Chain, Element, Family, Field, Nftables, Rule, Set, Table, Verdict};

use super::beside_others::nft;
use super::data_path::{Node, on_a_node};

/// x/a, whose packets go to x/b.
const SOURCE: [u8; 4] = [10, 86, 0, 11];
const CYCLES: usize = 3_000;

/// How many packets pass while the source is made known and forgotten again and again, each time under a policy that drops all.
fn passed(node: &Node, chains: &str, known: bool, verdict: &Verdict, new_chain: bool) -> usize {
    nft(&format!(
        "table ip race {{
            set known {{ type ipv4_addr; }}
            map verdicts {{ type ipv4_addr : verdict; }}
            chain no {{ drop; }}
            {chains}
        }}"
    ));
    let table = Table::new(Family::Ip, "race");
    let (known_set, map) =
        (Set::of("known", &[Field::Ipv4Address]), Set::verdict_map("verdicts", &[Field::Ipv4Address]));
    let (key, element) = ([Element::key(SOURCE.into())], [Element::verdict(SOURCE.into(), verdict.clone())]);
    let mut nftables = Nftables::open().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let socket = node.pods["x/a"].namespace.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    let until = is_over.clone();
    let flood = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            let _ = socket.send_to(&[0; 4], "10.86.0.12:90");
        }
    });
    for _ in 0..CYCLES {
        let mut batch = Batch::new();
        if new_chain {
            batch.add_chain(&table, &Chain::inner("new"));
            batch.add_rule(&table, "new", &Rule::new().verdict(Verdict::Drop));
        }
        if known {
            batch.add_elements(&table, &known_set, &key);
        }
        batch.add_elements(&table, &map, &element);
        nftables.commit(batch).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        let mut batch = Batch::new();
        if known {
            batch.delete_elements(&table, &known_set, &key);
        }
        batch.delete_elements(&table, &map, &element);
        if new_chain {
            batch.delete_chain(&table, "new");
        }
        nftables.commit(batch).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    is_over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let mut passed = 0;
    while node.pods["x/b"].heard.recv_timeout(Duration::from_millis(100)).is_ok() {
        passed += 1;
    }
    nft("delete table ip race");
    passed
}

/// Each lookup sees the elements of its own moment, and a chain is empty to a packet that came to its base chain before the commit that
/// made it. One lookup, which leads back where nothing is dropped, lets nothing pass.
#[ignore = "shows a race of the kernel: it takes half a minute and two processors"]
#[test]
fn packet_sees_a_commit_between_two_lookups_and_never_within_one() {
    const KNOWN: &str = "iifname adtest11 ip saddr != @known drop;";
    const POLICY: &str = "iifname adtest11 ip saddr vmap @verdicts;";
    const LAST: &str = "iifname adtest11 drop;";
    on_a_node(async |node| {
        let early = |rules: &str| format!("chain early {{ type filter hook prerouting priority -290; {rules} }}\n");
        let late = |rules: &str| format!("chain late {{ type filter hook forward priority 10; {rules} }}\n");
        let no = Verdict::Goto("no".into());
        let two_hooks = early(KNOWN) + &late(POLICY);
        let count = [
            passed(&node, &two_hooks, true, &no, false),
            passed(&node, &late(&format!("{KNOWN} {POLICY}")), true, &no, false),
            passed(&node, &late(&format!("{POLICY} {KNOWN}")), true, &no, false),
            passed(&node, &late(&format!("{POLICY} {LAST}")), false, &Verdict::Goto("new".into()), true),
            passed(&node, &late(&format!("{POLICY} {LAST}")), false, &no, false),
            passed(&node, &late(&format!("{POLICY} {LAST}")), false, &Verdict::Jump("new".into()), true),
        ];
        println!("passed: {count:?}");
        assert!(count[..4].iter().any(|passed| *passed > 0), "{count:?}");
        assert_eq!(count[4..], [0, 0]);
    });
}
