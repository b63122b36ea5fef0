//! The packet rules: a skeleton that never changes, and elements that do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nft::{
    Batch, Chain, ChainKind, ConnectionKey, Element, Expression, Family, Field, Header, Hook, MetaKey, Register,
    RejectWith, Relation, Rule, Set, Side, Table, TableSpec, Value, Verdict, concatenated,
};

use crate::Protocol;
use crate::model::{Backend, Frontend, Mark, Nobody, Space, Wanted};

/// What is the same for all rules of an instance.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the names of this instance's links begin with, and its tables.
    pub prefix: String,
    /// Where its pods have their addresses: network, length of the prefix, and the node's own address there.
    pub pods: (IpAddr, u8, IpAddr),
    /// At which addresses node ports are served.
    pub node_addresses: Vec<IpAddr>,
}

const LINKS: &str = "ad";
const REFUSE: &str = "refuse_new";

type Key = (Family, &'static str, Vec<u8>);
/// Of an element: nothing if it is not there, and what it leads to if it is and leads somewhere.
type State = Option<Option<Value>>;

/// Everything that should be in the kernel, and where.
#[derive(Default, Debug)]
pub(crate) struct Ruleset {
    wanted: BTreeMap<String, Wanted>,
    lists: BTreeMap<Frontend, BTreeMap<String, BTreeSet<Backend>>>,
    nobody: BTreeMap<(IpAddr, Protocol, u16), BTreeMap<String, Nobody>>,
    marks: BTreeMap<Mark, BTreeSet<String>>,
    slots: BTreeMap<Frontend, Vec<Backend>>,
    elements: BTreeMap<Key, Option<Value>>,
    /// How many backends lists have for which there are chains.
    chains: BTreeSet<(Family, Space, usize)>,
}

/// What one transaction changes.
#[derive(Default, Debug)]
pub(crate) struct Diff {
    chains: BTreeSet<(Family, Space, usize)>,
    /// What each element was and is to be.
    changes: BTreeMap<Key, (State, State)>,
}

impl Diff {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.values().all(|(before, after)| before == after)
    }

    pub(crate) fn batch(&self, settings: &Settings) -> Batch {
        let mut batch = Batch::new();
        for (family, space, count) in &self.chains {
            let table = table(settings, *family);
            let name = chain(*space, *count);
            batch.add_chain(&table, &Chain::inner(&name));
            batch.add_rule(&table, &name, &pick(*family, *space, *count));
        }
        for ((family, set, key), (before, after)) in self.changes.iter().filter(|(_, (before, after))| before != after)
        {
            let set = set_named(*family, set);
            let table = table(settings, *family);
            if before.is_some() {
                batch.delete_elements(&table, &set, &[Element::key(key.clone())]);
            }
            if let Some(value) = after {
                batch.add_elements(&table, &set, &[element(key, value)]);
            }
        }
        batch
    }
}

fn element(key: &[u8], value: &Option<Value>) -> Element {
    Element { key: key.to_vec(), value: value.clone(), ends_range: false }
}

impl Ruleset {
    /// Makes an owner want this and nothing else; tells what changes.
    pub(crate) fn set(&mut self, owner: &str, new: Wanted, diff: &mut Diff) {
        let old = self.wanted.remove(owner).unwrap_or_default();
        for frontend in old.lists.keys() {
            if let Some(claims) = self.lists.get_mut(frontend) {
                claims.remove(owner);
            }
        }
        for (frontend, backends) in &new.lists {
            self.lists.entry(*frontend).or_default().insert(owner.to_owned(), backends.clone());
        }
        for frontend in old.lists.keys().chain(new.lists.keys()) {
            self.refresh_list(frontend, diff);
        }
        for at in old.nobody.keys() {
            if let Some(claims) = self.nobody.get_mut(at) {
                claims.remove(owner);
            }
        }
        for (at, what) in &new.nobody {
            self.nobody.entry(*at).or_default().insert(owner.to_owned(), *what);
        }
        for at in old.nobody.keys().chain(new.nobody.keys()) {
            let verdict = self.nobody.get(at).and_then(|claims| claims.values().next()).map(|what| match what {
                Nobody::Reject => Verdict::Goto(REFUSE.to_owned()),
                Nobody::Drop => Verdict::Drop,
            });
            if verdict.is_none() {
                self.nobody.remove(at);
            }
            let key = (family_of(at.0), "none", address_key(at.0, at.1, at.2));
            self.put(key, verdict.map(|verdict| Some(Value::Verdict(verdict))), diff);
        }
        for mark in &old.marks {
            if let Some(claims) = self.marks.get_mut(mark) {
                claims.remove(owner);
            }
        }
        for mark in &new.marks {
            self.marks.entry(*mark).or_default().insert(owner.to_owned());
        }
        for mark in old.marks.union(&new.marks) {
            let is_there = self.marks.get(mark).is_some_and(|claims| !claims.is_empty());
            if !is_there {
                self.marks.remove(mark);
            }
            self.put(mark_key(mark), is_there.then_some(None), diff);
        }
        if new != Wanted::default() {
            self.wanted.insert(owner.to_owned(), new);
        }
    }

    /// Keeps every backend where it is; the place of one that left goes to a new one, or to the last.
    fn refresh_list(&mut self, frontend: &Frontend, diff: &mut Diff) {
        let wanted = self.lists.get(frontend).and_then(|claims| claims.values().next()).cloned().unwrap_or_default();
        if wanted.is_empty() {
            self.lists.remove(frontend);
        }
        let old = self.slots.remove(frontend).unwrap_or_default();
        let mut new = old.clone();
        let mut fresh: Vec<_> = wanted.iter().filter(|backend| !old.contains(backend)).copied().collect();
        let mut place = 0;
        while place < new.len() {
            if wanted.contains(&new[place]) {
                place += 1;
            } else if let Some(backend) = fresh.pop() {
                new[place] = backend;
                place += 1;
            } else {
                new.swap_remove(place);
            }
        }
        new.extend(fresh);
        let family = if frontend.is_ipv6 { Family::Ip6 } else { Family::Ip };
        let (verdicts, backends) = names(frontend.space);
        for slot in 0..old.len().max(new.len()) {
            let value = new
                .get(slot)
                .map(|it| Some(Value::Bytes(concatenated(&[&octets(it.address), &it.port.to_be_bytes()]))));
            self.put((family, backends, slot_key(frontend, slot)), value, diff);
        }
        let verdict = (!new.is_empty()).then(|| Some(Value::Verdict(Verdict::Goto(chain(frontend.space, new.len())))));
        self.put((family, verdicts, frontend_key(frontend)), verdict, diff);
        if !new.is_empty() {
            if self.chains.insert((family, frontend.space, new.len())) {
                diff.chains.insert((family, frontend.space, new.len()));
            }
            self.slots.insert(*frontend, new);
        }
    }

    /// Those whose name begins so, by what comes behind.
    pub(crate) fn owners<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
        self.wanted.keys().filter_map(move |owner| owner.strip_prefix(prefix).map(str::to_owned))
    }

    fn put(&mut self, key: Key, value: Option<Option<Value>>, diff: &mut Diff) {
        let before = match &value {
            Some(value) => self.elements.insert(key.clone(), value.clone()),
            None => self.elements.remove(&key),
        };
        let change = diff.changes.entry(key).or_insert_with(|| (before, None));
        change.1 = value;
    }

    /// Both tables, whole.
    pub(crate) fn tables(&self, settings: &Settings) -> Vec<TableSpec> {
        [Family::Ip, Family::Ip6].map(|family| self.table(settings, family)).to_vec()
    }

    fn table(&self, settings: &Settings, family: Family) -> TableSpec {
        let mut spec = skeleton(settings, family);
        let inner = self.chains.iter().filter(|it| it.0 == family);
        let inner =
            inner.map(|(_, space, count)| (Chain::inner(chain(*space, *count)), vec![pick(family, *space, *count)]));
        spec.chains.extend(inner);
        for (set, elements) in &mut spec.sets {
            let own = self.elements.iter().filter(|((of, name, _), _)| *of == family && *name == set.name);
            elements.extend(own.map(|((_, _, key), value)| element(key, value)));
        }
        spec
    }
}

pub(crate) fn table(settings: &Settings, family: Family) -> Table {
    Table::new(family, format!("{}-proxy", settings.prefix))
}

/// The key of the counter of a pod's port.
pub(crate) fn address_key(address: IpAddr, protocol: Protocol, port: u16) -> Vec<u8> {
    concatenated(&[&octets(address), &[protocol.number()], &port.to_be_bytes()])
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn family_of(address: IpAddr) -> Family {
    if address.is_ipv6() { Family::Ip6 } else { Family::Ip }
}

fn names(space: Space) -> (&'static str, &'static str) {
    match space {
        Space::Service => ("svc", "svc_eps"),
        Space::Short => ("sh", "sh_eps"),
        Space::NodePort => ("np", "np_eps"),
        Space::ShortNodePort => ("sh_np", "sh_np_eps"),
        Space::Cut => ("cut", "cut_eps"),
    }
}

fn chain(space: Space, count: usize) -> String {
    format!("{}_{count}", names(space).0)
}

fn frontend_key(frontend: &Frontend) -> Vec<u8> {
    match frontend.address {
        Some(address) => address_key(address, frontend.protocol, frontend.port),
        None => concatenated(&[&[frontend.protocol.number()], &frontend.port.to_be_bytes()]),
    }
}

fn slot_key(frontend: &Frontend, slot: usize) -> Vec<u8> {
    let mut key = frontend_key(frontend);
    key.extend(u32::try_from(slot).unwrap_or(u32::MAX).to_ne_bytes());
    key
}

fn mark_key(mark: &Mark) -> Key {
    match *mark {
        Mark::Vip(address) => (family_of(address), "vips", octets(address)),
        Mark::Watch(address, protocol, port) => (family_of(address), "watch", address_key(address, protocol, port)),
        Mark::Hairpin(address) => (family_of(address), "hairpin", concatenated(&[&octets(address), &octets(address)])),
        Mark::Masquerade(address, protocol, port) => (family_of(address), "masq", address_key(address, protocol, port)),
    }
}

fn set_named(family: Family, name: &str) -> Set {
    let address = if family == Family::Ip6 { Field::Ipv6Address } else { Field::Ipv4Address };
    let at = [address, Field::Protocol, Field::Port];
    let slot = [address, Field::Protocol, Field::Port, Field::Number];
    let backend = [address, Field::Port];
    match name {
        "svc" | "sh" | "cut" | "none" => Set::verdict_map(name, &at),
        "np" | "sh_np" => Set::verdict_map(name, &at[1..]),
        "svc_eps" | "sh_eps" | "cut_eps" => Set::map(name, &slot, &backend),
        "np_eps" | "sh_np_eps" => Set::map(name, &slot[1..], &backend),
        "watch" => Set::of(name, &at).with_counters(),
        "hairpin" => Set::of(name, &[address, address]),
        "masq" => Set::of(name, &at),
        _ => Set::of(name, &[address]),
    }
}

const SETS: [&str; 16] = [
    "svc",
    "svc_eps",
    "sh",
    "sh_eps",
    "np",
    "np_eps",
    "sh_np",
    "sh_np_eps",
    "cut",
    "cut_eps",
    "none",
    "vips",
    "watch",
    "hairpin",
    "masq",
    "node_ips",
];

/// Picks one of so many, each as often as any other.
fn pick(family: Family, space: Space, count: usize) -> Rule {
    let words = if family == Family::Ip6 { 6 } else { 3 };
    let (key, slot) = match space.is_of_node() {
        true => (Rule::new().load_protocol_and_port(), 2),
        false => (Rule::new().load_destination(family), words),
    };
    let modulus = u32::try_from(count).unwrap_or(1);
    key.with(Expression::Random { modulus, to: Register::word(slot) }).destination_from_map(family, names(space).1)
}

fn compare(relation: Relation, value: Vec<u8>) -> Expression {
    Expression::Compare { register: Register::FIRST, relation, value }
}

/// Everything that is there before the first Service is.
fn skeleton(settings: &Settings, family: Family) -> TableSpec {
    let vmap = |rule: Rule, map: &str| rule.with(Expression::VerdictMap { map: map.into(), key: Register::FIRST });
    let at = |map: &str| vmap(Rule::new().load_destination(family), map);
    let side = |side| {
        if family == Family::Ip6 {
            if side == Side::Source { (8, 16) } else { (24, 16) }
        } else if side == Side::Source {
            (12, 4)
        } else {
            (16, 4)
        }
    };
    let (offset, bytes) = side(Side::Destination);
    let destination = Expression::Payload { header: Header::Network, at: offset, bytes, to: Register::FIRST };
    let to_node = Rule::new().with(destination.clone()).with(Expression::InSet {
        set: "node_ips".into(),
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
    let pre = vec![
        foreign.clone(),
        midstream.clone(),
        at("cut"),
        vmap(from_pods(Rule::new(), Relation::Equal).load_destination(family), "sh"),
        vmap(from_pods(to_node.clone(), Relation::Equal).load_protocol_and_port(), "sh_np"),
        at("svc"),
        at_node("np"),
    ];
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
    let check_out: Vec<_> = check.clone().into_iter().chain([counted(if_new(translated()))]).collect();
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
        comment: Some("adieu services".into()),
        chains: vec![
            (Chain::inner(REFUSE), refuse),
            (Chain::at("pre", ChainKind::Nat, Hook::Prerouting, -105), pre),
            (Chain::at("out", ChainKind::Nat, Hook::Output, -105), out),
            (Chain::at("post", ChainKind::Nat, Hook::Postrouting, 95), post),
            (Chain::at("check_in", ChainKind::Filter, Hook::Input, -15), check_input.clone()),
            (Chain::at("check_through", ChainKind::Filter, Hook::Forward, -15), check_input),
            (Chain::at("check_out", ChainKind::Filter, Hook::Output, -15), check_out),
        ],
        sets: SETS
            .map(|name| (set_named(family, name), if name == "node_ips" { nodes.clone() } else { Vec::new() }))
            .to_vec(),
        ..TableSpec::new(table(settings, family))
    }
}
