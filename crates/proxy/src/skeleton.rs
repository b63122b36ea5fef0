//! The rules that are there before the first Service is, and the sets that they look into.
//!
//! The table's comment names the version of all this: a table of another version is replaced whole, one of the same is kept and
//! corrected.

use std::net::IpAddr;

use nft::{
    Chain, ChainKind, ConnectionKey, Element, Expression, Family, Field, Header, Hook, MetaKey, Register, RejectWith,
    Relation, Rule, Set, Side, Table, TableSpec, Verdict,
};
use sha2::{Digest as _, Sha256};

use crate::Protocol;
use crate::addresses::Network;
use crate::inner_chains::{InnerChain, address};
use crate::rules::{family_of, octets};
use crate::wanted::Space;

/// What is the same for all rules of an instance.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the names of this instance's links begin with, and its tables.
    pub prefix: String,
    /// Where its pods have their addresses: network, length of the prefix, and the node's own address there.
    pub pods: (IpAddr, u8, IpAddr),
    /// Where Services have their addresses.
    pub services: Option<Network>,
    /// At which addresses node ports are served.
    pub node_addresses: Vec<IpAddr>,
    /// The networks in which the `externalIPs` of Services are served; none if that is nobody's business.
    pub external_ips: Vec<Network>,
}

const LINKS: &str = "ad";
/// The whole name: those of links are filled up with zeros.
const LOOPBACK: &str = "lo\0";
pub(crate) const REFUSE: &str = "refuse_new";

pub(crate) fn table(settings: &Settings, family: Family) -> Table {
    Table::new(family, format!("{}-proxy", settings.prefix))
}

/// What the tables of an instance say about themselves.
pub(crate) fn comment(settings: &Settings, family: Family) -> String {
    let chains = [Space::Service, Space::NodePort].map(|space| InnerChain::Affinity { space, count: 1, seconds: 1 });
    let chains = chains.map(|chain| chain.rules(family));
    let digest = Sha256::digest(format!("{:?} {chains:?}", skeleton_without_comment(settings, family)));
    let version: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("adieu services {version}")
}

/// Everything that is there before the first Service is.
pub(crate) fn skeleton(settings: &Settings, family: Family) -> TableSpec {
    TableSpec { comment: Some(comment(settings, family)), ..skeleton_without_comment(settings, family) }
}

/// How many clients are remembered in each map at most: 30 MB of IPv6.
const CLIENTS_MAX: u32 = 1 << 18;
const CLIENT_MILLISECONDS: u64 = 10_800_000;

pub(crate) fn set_named(family: Family, name: &str) -> Set {
    let address = if family == Family::Ip6 { Field::Ipv6Address } else { Field::Ipv4Address };
    let at = [address, Field::Protocol, Field::Port];
    let slot = [address, Field::Protocol, Field::Port, Field::Number];
    let client = [address, address, Field::Protocol, Field::Port];
    let client_of_node = [address, Field::Protocol, Field::Port];
    let backend = [address, Field::Port];
    let number = [Field::Number];
    match name {
        "svc" | "sh" | "cut" | "none" | "sources" => Set::verdict_map(name, &at),
        "np" | "sh_np" => Set::verdict_map(name, &at[1..]),
        "svc_eps" | "sh_eps" | "cut_eps" | "svc_by_id" | "sh_by_id" => Set::map(name, &slot, &backend),
        "np_eps" | "sh_np_eps" | "np_by_id" | "sh_np_by_id" => Set::map(name, &slot[1..], &backend),
        "svc_ids" | "sh_ids" => Set::map(name, &slot, &number),
        "np_ids" | "sh_np_ids" => Set::map(name, &slot[1..], &number),
        "svc_clients" | "sh_clients" => Set::map(name, &client, &number).remembering(CLIENT_MILLISECONDS, CLIENTS_MAX),
        "np_clients" | "sh_np_clients" => {
            Set::map(name, &client_of_node, &number).remembering(CLIENT_MILLISECONDS, CLIENTS_MAX)
        }
        "watch" => Set::of(name, &at).with_counters(),
        "hairpin" => Set::of(name, &[address, address]),
        "masq" => Set::of(name, &at),
        _ => Set::of(name, &[address]),
    }
}

/// The sets whose elements follow from Services and cuts.
pub(crate) const SETS: [&str; 24] = [
    "svc",
    "svc_eps",
    "svc_ids",
    "svc_by_id",
    "sh",
    "sh_eps",
    "sh_ids",
    "sh_by_id",
    "np",
    "np_eps",
    "np_ids",
    "np_by_id",
    "sh_np",
    "sh_np_eps",
    "sh_np_ids",
    "sh_np_by_id",
    "cut",
    "cut_eps",
    "none",
    "sources",
    "vips",
    "watch",
    "hairpin",
    "masq",
];
/// The sets that packets fill, and the one that the settings do.
const OTHER_SETS: [&str; 5] = ["svc_clients", "sh_clients", "np_clients", "sh_np_clients", NODE_IPS];
const NODE_IPS: &str = "node_ips";

fn compare(relation: Relation, value: Vec<u8>) -> Expression {
    Expression::Compare { register: Register::FIRST, relation, value }
}

fn skeleton_without_comment(settings: &Settings, family: Family) -> TableSpec {
    let vmap = |rule: Rule, map: &str| rule.with(Expression::VerdictMap { map: map.into(), key: Register::FIRST });
    let at = |map: &str| vmap(Rule::new().load_destination(family), map);
    let destination = address(family, Side::Destination, Register::FIRST);
    let to_node = Rule::new().with(destination.clone()).with(Expression::InSet {
        set: NODE_IPS.into(),
        key: Register::FIRST,
        inverted: nft::Inverted::No,
    });
    let at_node = |map: &str| vmap(to_node.clone().load_protocol_and_port(), map);
    let is_pods = family_of(settings.pods.0) == family;
    let from_pods = |rule: Rule, relation| match is_pods {
        true => rule.address_in(Side::Source, relation, settings.pods.0, settings.pods.1),
        false => rule,
    };
    // Pods of another instance on this machine have Services of their own.
    let foreign = Rule::new()
        .input_name_begins(Relation::Equal, LINKS)
        .input_name_begins(Relation::NotEqual, &settings.prefix)
        .verdict(Verdict::Accept);
    // The middle of a connection is never sent elsewhere.
    let midstream = Rule::new()
        .with(Expression::Meta { key: MetaKey::Protocol, to: Register::FIRST })
        .with(compare(Relation::Equal, vec![Protocol::Tcp.number()]))
        .with(Expression::Payload { header: Header::Transport, at: 13, bytes: 1, to: Register::FIRST })
        .with(Expression::Mask { register: Register::FIRST, mask: vec![0x17] })
        .with(compare(Relation::NotEqual, vec![0x02]))
        .verdict(Verdict::Accept);
    let mut pre = vec![foreign.clone(), midstream.clone(), at("cut")];
    // A family without pods has no clients among them.
    if is_pods {
        pre.push(vmap(from_pods(Rule::new(), Relation::Equal).load_destination(family), "sh"));
        pre.push(vmap(from_pods(to_node.clone(), Relation::Equal).load_protocol_and_port(), "sh_np"));
    }
    pre.extend([at("svc"), at_node("np")]);
    // Ahead of translation: addresses are as they were sent.
    // A packet of a pod that conntrack takes for no part of its connection (it came out of order on a busy machine) is not translated:
    // whoever gets it knows no such connection and resets it. Lost, it is sent again.
    const INVALID: u32 = 1;
    let untranslated = Rule::new()
        .input_name_begins(Relation::Equal, &settings.prefix)
        .with(Expression::Connection { key: ConnectionKey::State, to: Register::FIRST })
        .with(Expression::Mask { register: Register::FIRST, mask: INVALID.to_ne_bytes().to_vec() })
        .with(compare(Relation::NotEqual, vec![0; 4]))
        .verdict(Verdict::Drop);
    let sources = vec![foreign.clone(), untranslated, at("sources")];
    let sources_out = vec![at("sources")];
    // What the node itself sends to a pod is a probe: it is to tell the truth about that pod.
    let out = vec![midstream, at("sh"), at_node("sh_np"), at("svc"), at_node("np")];
    let translated = || {
        const DESTINATION_CHANGED: u32 = 1 << 5;
        Rule::new()
            .with(Expression::Connection { key: ConnectionKey::Status, to: Register::FIRST })
            .with(Expression::Mask { register: Register::FIRST, mask: DESTINATION_CHANGED.to_ne_bytes().to_vec() })
            .with(compare(Relation::NotEqual, vec![0; 4]))
    };
    let next = if family == Family::Ip6 { 4 } else { 1 };
    let as_first_sent = |rule: Rule, set: &str| {
        rule.with(Expression::OriginalDestination { family, to: Register::FIRST })
            .with(Expression::OriginalProtocol { to: Register::word(next) })
            .with(Expression::OriginalPort { to: Register::word(next + 1) })
            .with(Expression::InSet { set: set.into(), key: Register::FIRST, inverted: nft::Inverted::No })
    };
    let hairpin = translated().addresses_in_set(family, "hairpin");
    let hairpin = if is_pods { hairpin.source_nat(settings.pods.2) } else { hairpin.masquerade() };
    let leaves = from_pods(translated(), Relation::NotEqual).output_name_begins(Relation::NotEqual, &settings.prefix);
    let post = vec![hairpin, as_first_sent(leaves, "masq").masquerade()];
    let if_new = |rule: Rule| {
        const NEW: u32 = 1 << 3;
        rule.with(Expression::Connection { key: ConnectionKey::State, to: Register::FIRST })
            .with(Expression::Mask { register: Register::FIRST, mask: NEW.to_ne_bytes().to_vec() })
            .with(compare(Relation::NotEqual, vec![0; 4]))
    };
    let new = || if_new(Rule::new());
    let in_set = |rule: Rule, set: &str| {
        rule.with(Expression::InSet { set: set.into(), key: Register::FIRST, inverted: nft::Inverted::No })
    };
    let check = [
        vmap(new().load_destination(family), "none"),
        in_set(new().with(destination), "vips").verdict(Verdict::Goto(REFUSE.into())),
    ];
    let counted = |rule: Rule| in_set(rule.load_destination(family), "watch");
    // Of what the node itself sends, only what is addressed to a Service is traffic.
    let mut check_out: Vec<_> = check.clone().into_iter().chain([counted(if_new(translated()))]).collect();
    // On a machine without a way out addresses of Services are routed to `lo`, where those of nobody would go round and round.
    if let Some((network, length)) = settings.services.filter(|(network, _)| family_of(*network) == family) {
        let unallocated = new().address_in(Side::Destination, Relation::Equal, network, length);
        check_out.push(unallocated.output_name_begins(Relation::Equal, LOOPBACK).verdict(Verdict::Goto(REFUSE.into())));
    }
    let check_input: Vec<_> = [foreign].into_iter().chain(check).chain([counted(new())]).collect();
    let refuse = vec![
        Rule::new()
            .with(Expression::Meta { key: MetaKey::Protocol, to: Register::FIRST })
            .with(compare(Relation::Equal, vec![Protocol::Tcp.number()]))
            .reject(RejectWith::TcpReset),
        Rule::new().reject(RejectWith::PortUnreachable(family)),
    ];
    let nodes = settings.node_addresses.iter().filter(|address| family_of(**address) == family);
    let nodes: Vec<_> = nodes.map(|address| Element::key(octets(*address))).collect();
    TableSpec {
        chains: vec![
            (Chain::inner(REFUSE), refuse),
            (Chain::at("pre", ChainKind::Nat, Hook::Prerouting, -105), pre),
            (Chain::at("out", ChainKind::Nat, Hook::Output, -105), out),
            (Chain::at("post", ChainKind::Nat, Hook::Postrouting, 95), post),
            (Chain::at("sources_in", ChainKind::Filter, Hook::Prerouting, -115), sources),
            (Chain::at("sources_out", ChainKind::Filter, Hook::Output, -115), sources_out),
            (Chain::at("check_in", ChainKind::Filter, Hook::Input, -15), check_input.clone()),
            (Chain::at("check_through", ChainKind::Filter, Hook::Forward, -15), check_input),
            (Chain::at("check_out", ChainKind::Filter, Hook::Output, -15), check_out),
        ],
        sets: SETS
            .iter()
            .chain(&OTHER_SETS)
            .map(|name| (set_named(family, name), if *name == NODE_IPS { nodes.clone() } else { Vec::new() }))
            .collect(),
        ..TableSpec::new(table(settings, family))
    }
}
