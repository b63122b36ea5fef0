//! Batches, lists and the monitor against a real kernel, each test in a network namespace of its own.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs, reason = "tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use nft::{
    Action, Batch, Chain, ChainKind, Change, Direction, Element, Error, Expression, Family, Field, Hook, Monitor,
    Nftables, Notification, ObjectKind, Register, RejectWith, Relation, Rule, Set, Side, Table, TableSpec, Transaction,
    Value, Verdict, concatenated,
};

/// Runs a test in a network namespace of its own, which ends with its thread.
fn in_a_namespace(test: impl FnOnce(Nftables) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        test(Nftables::open().unwrap());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Asks the `nft` program, so that the tests do not look with the eyes of what they test.
fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn table() -> Table {
    Table::new(Family::Ip, "t")
}

fn endpoints() -> Set {
    let key = [Field::Ipv4Address, Field::Protocol, Field::Port, Field::Number];
    Set::map("endpoints", &key, &[Field::Ipv4Address, Field::Port])
}

fn services() -> Set {
    Set::verdict_map("services", &[Field::Ipv4Address, Field::Protocol, Field::Port])
}

fn endpoint(number: u32) -> Element {
    let address = Ipv4Addr::from_bits(0x0a57_0000 + number);
    let key = concatenated(&[&address.octets(), &[6], &80u16.to_be_bytes(), &0u32.to_ne_bytes()]);
    Element::value(key, concatenated(&[&address.octets(), &8080u16.to_be_bytes()]))
}

/// The shape that a service proxy has: nothing of it depends on how many services there are.
fn proxy() -> TableSpec {
    let service = concatenated(&[&[10, 87, 0, 1], &[6], &80u16.to_be_bytes()]);
    let pick = Rule::new()
        .load_destination(Family::Ip)
        .with(Expression::Random { modulus: 1, to: Register::word(3) })
        .destination_from_map(Family::Ip, "endpoints");
    let refuse = Rule::new().reject(RejectWith::PortUnreachable(Family::Ip));
    let dispatch = Rule::new()
        .load_destination(Family::Ip)
        .with(Expression::VerdictMap { map: "services".into(), key: Register::FIRST });
    TableSpec {
        chains: vec![
            (Chain::inner("pick1"), vec![pick]),
            (Chain::inner("none"), vec![refuse]),
            (Chain::at("pre", ChainKind::Nat, Hook::Prerouting, -105), vec![dispatch]),
        ],
        sets: vec![
            (services(), vec![Element::verdict(service, Verdict::Goto("pick1".into()))]),
            (endpoints(), vec![endpoint(1)]),
        ],
        comment: Some("made by a test".into()),
        ..TableSpec::new(table())
    }
}

fn write(nftables: &mut Nftables, spec: &TableSpec) {
    let mut batch = Batch::new();
    batch.replace_table(spec);
    nftables.commit(batch).unwrap();
}

#[test]
fn table_reads_in_the_nft_program_as_it_was_written() {
    in_a_namespace(|mut nftables| {
        write(&mut nftables, &proxy());
        let listed = nft(&["list", "ruleset"]);
        for part in [
            "table ip t {",
            "comment \"made by a test\"",
            "type ipv4_addr . inet_proto . inet_service : verdict",
            "10.87.0.1 . tcp . 80 : goto pick1",
            "10.87.0.1 . tcp . 80 . 0x00000000 : 10.87.0.1 . 8080",
            "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @endpoints",
            "type nat hook prerouting priority dstnat - 5; policy accept;",
            "ip daddr . meta l4proto . th dport vmap @services",
            "reject",
        ] {
            assert!(listed.contains(part), "{part}\n{listed}");
        }
    });
}

#[test]
fn rules_of_both_families_are_taken() {
    in_a_namespace(|mut nftables| {
        for (family, network, length, node) in
            [(Family::Ip, "10.86.0.0", 16, "10.86.0.1"), (Family::Ip6, "fd00:86::", 64, "fd00:86::1")]
        {
            let (network, node): (IpAddr, IpAddr) = (network.parse().unwrap(), node.parse().unwrap());
            let key = if family == Family::Ip { Field::Ipv4Address } else { Field::Ipv6Address };
            let own = Set::of("own", &[key, key]);
            let ports = Set::map("ports", &[Field::Protocol, Field::Port], &[key, Field::Port]);
            let at = Set::map("at", &[key, Field::Protocol, Field::Port], &[key, Field::Port]);
            let octets = match node {
                IpAddr::V4(node) => node.octets().to_vec(),
                IpAddr::V6(node) => node.octets().to_vec(),
            };
            let value = concatenated(&[&octets, &[0, 80]]);
            let post = vec![
                Rule::new()
                    .address_in(Side::Source, Relation::Equal, network, length)
                    .address_in(Side::Destination, Relation::NotEqual, network, length)
                    .output_name_begins(Relation::NotEqual, "ad")
                    .masquerade(),
                Rule::new().addresses_in_set(family, "own").source_nat(node),
            ];
            let pre = vec![
                Rule::new().load_destination(family).destination_from_map(family, "at"),
                Rule::new().destination_is_local().load_protocol_and_port().destination_from_map(family, "ports"),
            ];
            let forward = vec![
                Rule::new()
                    .address_is(Side::Destination, node)
                    .direction_is(Direction::Original)
                    .reject(RejectWith::PortUnreachable(family)),
                Rule::new().input_name_begins(Relation::Equal, "ad").verdict(Verdict::Drop),
            ];
            let spec = TableSpec {
                chains: vec![
                    (Chain::at("post", ChainKind::Nat, Hook::Postrouting, 100), post),
                    (Chain::at("pre", ChainKind::Nat, Hook::Prerouting, -100), pre),
                    (Chain::at("forward", ChainKind::Filter, Hook::Forward, -10), forward),
                ],
                sets: vec![
                    (own, vec![Element::key(concatenated(&[&octets, &octets]))]),
                    (ports, vec![Element::value(concatenated(&[&[6], &[0, 80]]), value.clone())]),
                    (at, vec![Element::value(concatenated(&[&octets, &[6], &[0, 80]]), value)]),
                ],
                ..TableSpec::new(Table::new(family, "t"))
            };
            write(&mut nftables, &spec);
            let listed = nft(&["list", "table", &family.to_string(), "t"]);
            let ip = family.to_string();
            for part in [
                format!("{ip} saddr {network}/{length} {ip} daddr != {network}/{length} oifname != \"ad*\" masquerade"),
                format!("{ip} saddr . {ip} daddr @own snat to {node}"),
                format!("dnat {ip} to {ip} daddr . meta l4proto . th dport map @at"),
                format!("fib daddr type local dnat {ip} to meta l4proto . th dport map @ports"),
                format!("{ip} daddr {node} ct direction original reject"),
                "iifname \"ad*\" drop".to_owned(),
            ] {
                assert!(listed.contains(&part), "{part}\n{listed}");
            }
        }
        assert_eq!(nftables.tables().unwrap().len(), 2);
    });
}

#[test]
fn nft_ruleset_read_back_equals_the_one_written() {
    in_a_namespace(|mut nftables| {
        assert!(nftables.tables().unwrap().is_empty());
        write(&mut nftables, &proxy());
        let tables = nftables.tables().unwrap();
        assert_eq!((&tables[0].table, tables[0].comment.as_deref()), (&table(), Some("made by a test")));
        let chains: Vec<_> =
            nftables.chains(&table()).unwrap().iter().map(|it| (it.name.clone(), it.is_base)).collect();
        assert_eq!(chains, [("pick1".to_owned(), false), ("none".to_owned(), false), ("pre".to_owned(), true)]);
        let rules = nftables.rules(&table()).unwrap();
        assert_eq!(rules.len(), 3);
        let dispatch = rules.iter().find(|rule| rule.chain == "pre").unwrap();
        assert_eq!(dispatch.expressions, ["payload", "meta", "payload", "lookup"]);
        let sets: Vec<_> = nftables.sets(&table()).unwrap().iter().map(|it| (it.name.clone(), it.is_map)).collect();
        assert_eq!(sets, [("services".to_owned(), true), ("endpoints".to_owned(), true)]);
        assert_eq!(nftables.elements(&table(), "endpoints").unwrap(), [endpoint(1)]);
        let verdicts = nftables.elements(&table(), "services").unwrap();
        assert_eq!(verdicts[0].value, Some(Value::Verdict(Verdict::Goto("pick1".into()))));
        // Written again, it is another table with the same in it.
        write(&mut nftables, &proxy());
        let again = nftables.tables().unwrap();
        assert!(again.len() == 1 && again[0].handle != tables[0].handle);

        let missing = nftables.elements(&Table::new(Family::Ip6, "t"), "endpoints").unwrap_err();
        assert_eq!(missing.errno(), Some(2), "{missing}");
        let mut batch = Batch::new();
        batch.remove_table(&table());
        batch.remove_table(&table());
        nftables.commit(batch).unwrap();
        assert!(nftables.tables().unwrap().is_empty());
    });
}

#[test]
fn pieces_of_a_table_come_and_go() {
    in_a_namespace(|mut nftables| {
        write(&mut nftables, &proxy());
        let handle = nftables.rules(&table()).unwrap().iter().find(|rule| rule.chain == "none").unwrap().handle;
        let networks = Set::of("networks", &[Field::Ipv4Address]).with_ranges();
        let mut batch = Batch::new();
        batch.delete_rule(&table(), "none", handle);
        batch.delete_chain(&table(), "none");
        batch.delete_elements(&table(), &endpoints(), &[Element::key(endpoint(1).key)]);
        batch.add_elements(&table(), &endpoints(), &[endpoint(2), endpoint(3)]);
        batch.add_set(&table(), &networks);
        let range = [Element::key(vec![10, 0, 0, 0]), Element::range_end(vec![11, 0, 0, 0])];
        batch.add_elements(&table(), &networks, &range);
        nftables.commit(batch).unwrap();
        let mut found = nftables.elements(&table(), "endpoints").unwrap();
        found.sort();
        assert_eq!(found, [endpoint(2), endpoint(3)]);
        assert!(nft(&["list", "set", "ip", "t", "networks"]).contains("10.0.0.0/8"));
        assert!(nftables.elements(&table(), "networks").unwrap().contains(&range[1]));
        let mut batch = Batch::new();
        batch.flush_set(&table(), "endpoints");
        batch.flush_chain(&table(), "pre");
        batch.delete_set(&table(), "networks");
        nftables.commit(batch).unwrap();
        assert!(nftables.elements(&table(), "endpoints").unwrap().is_empty());
        let left: Vec<_> = nftables.rules(&table()).unwrap().into_iter().map(|rule| rule.chain).collect();
        assert_eq!(left, ["pick1"]);
    });
}

/// A batch is larger than any usual send buffer, and still one commit: nothing of it is there before all of it is.
#[test]
fn batch_of_a_hundred_thousand_elements_is_one_commit() {
    in_a_namespace(|mut nftables| {
        let mut monitor = Monitor::open().unwrap();
        let elements: Vec<_> = (0..100_000).map(endpoint).collect();
        let mut batch = Batch::new();
        batch.add_table(&table());
        batch.add_set(&table(), &endpoints());
        batch.add_elements(&table(), &endpoints(), &elements);
        let before = nftables.generation().unwrap();
        nftables.commit(batch).unwrap();
        assert_eq!(nftables.generation().unwrap(), before + 1);
        let mut found = nftables.elements(&table(), "endpoints").unwrap();
        found.sort();
        assert!(found == elements);
        // A wrong one at the end takes all others with it.
        let others: Vec<_> = (100_000..150_000)
            .map(endpoint)
            .chain([endpoint(0).key].map(|key| Element::value(key, vec![9; 8])))
            .collect();
        let mut batch = Batch::new();
        batch.add_elements(&table(), &endpoints(), &others);
        let error = nftables.commit(batch).unwrap_err();
        let key: String = endpoint(0).key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(error.to_string(), format!("the kernel refused to add element {key} of endpoints in table ip t"));
        assert_eq!(nftables.elements(&table(), "endpoints").unwrap().len(), 100_000);
        // Whoever reads in time hears of it in one piece; whoever does not is told that they did not.
        let mut told = Vec::new();
        while let Some(more) = monitor.read().unwrap() {
            told.extend(more);
        }
        assert!(
            told.iter().all(|it| match it {
                Notification::Lost => true,
                Notification::Committed(it) => it.changes.iter().map(|change| change.count).sum::<usize>() <= 100_002,
            }) && !told.is_empty(),
            "{told:?}"
        );
    });
}

#[test]
fn refusal_names_what_was_refused_and_changes_nothing() {
    in_a_namespace(|mut nftables| {
        write(&mut nftables, &proxy());
        let before = nft(&["list", "ruleset"]);
        let refused = |nftables: &mut Nftables, fill: &dyn Fn(&mut Batch)| {
            let mut batch = Batch::new();
            batch.add_chain(&table(), &Chain::inner("good"));
            fill(&mut batch);
            nftables.commit(batch).unwrap_err()
        };
        let error = refused(&mut nftables, &|batch| {
            batch.add_chain(&Table::new(Family::Ip, "elsewhere"), &Chain::inner("c"));
            batch.add_rule(&Table::new(Family::Ip, "elsewhere"), "c", &Rule::new());
        });
        let words = "the kernel refused to add chain c in table ip elsewhere, and 1 more of the batch";
        assert_eq!((error.to_string().as_str(), error.errno()), (words, Some(2)));
        let error = refused(&mut nftables, &|batch| {
            batch.add_rule(&table(), "good", &Rule::new().verdict(Verdict::Goto("nowhere".into())));
        });
        assert_eq!(error.to_string(), "the kernel refused to add a rule of chain good in table ip t");
        let error = refused(&mut nftables, &|batch| batch.delete_elements(&table(), &endpoints(), &[endpoint(9)]));
        assert!(error.to_string().starts_with("the kernel refused to remove element 0a570009"), "{error}");
        // Thousands of refusals do not fit into what the kernel keeps for us; the first is told all the same.
        let error = refused(&mut nftables, &|batch| {
            for number in 0..5000 {
                batch.add_rule(&table(), &format!("missing-{number}"), &Rule::new());
            }
        });
        assert!(error.to_string().contains("rule of chain missing-0 in table ip t, and "), "{error}");
        assert_eq!(nft(&["list", "ruleset"]), before);
        let mut batch = Batch::new();
        batch.add_chain(&table(), &Chain::inner("good"));
        nftables.commit(batch).unwrap();
    });
}

#[test]
fn commit_for_a_generation_that_is_over_changes_nothing() {
    in_a_namespace(|mut nftables| {
        let mut stranger = Nftables::open().unwrap();
        let generation = nftables.generation().unwrap();
        write(&mut stranger, &proxy());
        let mut batch = Batch::new();
        batch.at_generation(generation);
        batch.remove_table(&table());
        let error = nftables.commit(batch).unwrap_err();
        assert!(matches!(error, Error::GenerationChanged), "{error}");
        assert_eq!(nftables.tables().unwrap().len(), 1);

        // Asked again with what is there by then; not for ever.
        let mut looks = 0;
        let updated = nftables.update(|nftables| {
            looks += 1;
            let known = nftables.elements(&table(), "endpoints")?.len();
            if looks < 3 {
                let mut batch = Batch::new();
                batch.add_elements(&table(), &endpoints(), &[endpoint(100 + looks)]);
                stranger.commit(batch)?;
            }
            let mut batch = Batch::new();
            batch.add_elements(&table(), &endpoints(), &[endpoint(1000 + u32::try_from(known).unwrap())]);
            Ok(batch)
        });
        updated.unwrap();
        assert_eq!((looks, nftables.elements(&table(), "endpoints").unwrap().len()), (3, 4));
        let mut looks = 0;
        let contested = nftables.update(|_| {
            looks += 1;
            write(&mut stranger, &proxy());
            let mut batch = Batch::new();
            batch.remove_table(&table());
            Ok(batch)
        });
        assert!(matches!(contested, Err(Error::Contested { .. })), "{contested:?}");
        assert_eq!(looks, nft::TRIES_MAX);
    });
}

#[test]
fn monitor_tells_who_changed_what() {
    in_a_namespace(|mut nftables| {
        let mut monitor = Monitor::open().unwrap();
        assert_eq!(monitor.read().unwrap(), None);
        write(&mut nftables, &proxy());
        let made = next(&mut monitor);
        assert_eq!((made.port, made.generation), (nftables.port(), nftables.generation().unwrap()));
        let added = |change: &&Change| change.action == Action::Added && change.kind == ObjectKind::Table;
        let comment = made.changes.iter().rfind(added).and_then(|change| change.comment.clone());
        assert_eq!(comment.as_deref(), Some("made by a test"));

        let add: Vec<_> = (10..30).map(endpoint).collect();
        let mut batch = Batch::new();
        batch.add_elements(&table(), &endpoints(), &add);
        nftables.commit(batch).unwrap();
        let what = |action, kind, name: Option<&str>, count| Change {
            action,
            kind,
            table: table(),
            name: name.map(str::to_owned),
            count,
            comment: None,
        };
        let elements = what(Action::Added, ObjectKind::Element, Some("endpoints"), 20);
        assert_eq!(next(&mut monitor).changes, [elements]);
        nft(&["flush", "chain", "ip", "t", "pre"]);
        let flushed = next(&mut monitor);
        assert_ne!(flushed.port, nftables.port());
        assert_eq!(flushed.process.unwrap().name, "nft");
        assert_eq!(flushed.changes, [what(Action::Removed, ObjectKind::Rule, Some("pre"), 1)]);
        nft(&["flush", "ruleset"]);
        let gone = next(&mut monitor).changes;
        assert!(gone.iter().all(|change| change.action == Action::Removed), "{gone:?}");
        assert!(gone.iter().any(|change| change.kind == ObjectKind::Table && change.table == table()), "{gone:?}");
        assert_eq!(monitor.read().unwrap(), None);
    });
}

#[test]
fn monitor_that_nobody_reads_says_that_it_lost_something() {
    in_a_namespace(|mut nftables| {
        let mut monitor = Monitor::open().unwrap();
        let elements: Vec<_> = (0..100_000).map(endpoint).collect();
        write(&mut nftables, &proxy());
        for _ in 0..3 {
            let mut batch = Batch::new();
            batch.flush_set(&table(), "endpoints");
            batch.add_elements(&table(), &endpoints(), &elements);
            nftables.commit(batch).unwrap();
        }
        let mut told = Vec::new();
        while let Some(more) = monitor.read().unwrap() {
            told.extend(more);
        }
        assert!(told.contains(&Notification::Lost), "{} told", told.len());
        nft(&["flush", "ruleset"]);
        assert!(next(&mut monitor).changes.iter().any(|change| change.kind == ObjectKind::Table));
    });
}

/// What a node with many services does all the time. The figure is for people; only what was done is checked.
#[test]
fn one_element_among_ten_thousand_changes_in_one_small_commit() {
    in_a_namespace(|mut nftables| {
        let mut spec = proxy();
        spec.sets[1].1 = (0..10_000).map(endpoint).collect();
        let start = Instant::now();
        write(&mut nftables, &spec);
        println!("10,000 elements: {:?}", start.elapsed());
        let mut took: Vec<Duration> = (0..200)
            .map(|number| {
                let start = Instant::now();
                let mut batch = Batch::new();
                batch.delete_elements(&table(), &endpoints(), &[endpoint(number)]);
                batch.add_elements(&table(), &endpoints(), &[endpoint(20_000 + number)]);
                nftables.commit(batch).unwrap();
                start.elapsed()
            })
            .collect();
        took.sort();
        println!("one element replaced: median {:?}, 99th percentile {:?}", took[100], took[198]);
        let found = nftables.elements(&table(), "endpoints").unwrap();
        assert_eq!(found.len(), 10_000);
        assert!(found.contains(&endpoint(20_199)) && !found.contains(&endpoint(199)));
    });
}

/// The next commit that is told. They are told within the call that makes them, so there is nothing to wait for.
fn next(monitor: &mut Monitor) -> Transaction {
    while let Some(told) = monitor.read().unwrap() {
        if let Some(Notification::Committed(transaction)) = told.into_iter().next() {
            return transaction;
        }
    }
    panic!("nothing was told");
}
