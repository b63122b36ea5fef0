//! What is always in the tables: where packets meet them, and the sets that say which pods are whose.
//!
//! ```text
//! prerouting -290  check_source     a pod sends from its own link under its own address, or not at all
//! forward      +9  check_pod        a pod whose policies are not in force receives nothing
//!             +10  leave_pod        the policies of the source, as the destination is behind translation
//!             +11  enter_pod        the policies of the destination
//! input       +10  leave_to_node    the policies of pods that speak to their own node
//! ```
//!
//! What the node itself sends meets none of this: probes and `kubectl exec` always reach a pod. Each packet in the direction of a
//! connection's first is judged, so that a connection ends when it is no longer allowed; answers pass. Two chains judge what goes
//! from pod to pod: to be accepted by the first is not to be accepted by the second.
//!
//! A packet may be on its way while a transaction is committed. Each of its lookups then sees the elements of its own moment, and a
//! chain of the transaction is empty to a packet that was in a base chain before. So whether a pod is here and what its policies are
//! is one lookup, and whoever is not accepted is dropped, as the last rule of the base chain: a packet in between is lost, and never
//! passes. For the same reason verdicts jump and do not go: a chain that is empty comes back.
//!
//! The table's comment names the version of all this: a table of another version is replaced whole.

use std::net::IpAddr;

use nft::{
    Batch, Chain, ChainKind, ConnectionKey, Direction, Element, Expression, Family, Field, Header, Hook, MetaKey,
    Register, Relation, Rule, Set, Side, Table, TableSpec, Verdict,
};
use sha2::{Digest as _, Sha256};

use crate::facts::{PodFacts, Protocol, cluster_dns};
use crate::model::{FROM_PODS, LINK_BYTES, MAY_ENTER, MAY_LEAVE, TO_ITSELF, TO_PODS};
use crate::render::{FAMILIES, REFUSED, address_field, load_address, protocol_is};

/// What is the same for all rules of an instance.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the names of this instance's links begin with, and its tables.
    pub prefix: String,
    /// Where the cluster DNS of this node is reached, behind translation.
    pub cluster_dns: Vec<IpAddr>,
}

impl Settings {
    /// The cluster DNS among the pods.
    pub(crate) fn dns_facts(&self) -> Option<PodFacts> {
        (!self.cluster_dns.is_empty()).then(|| cluster_dns(self.cluster_dns.iter().copied()))
    }
}

/// Who was refused: source, destination, protocol and port.
pub(crate) const DENIED: &str = "denied";
const DENIED_MILLISECONDS: u64 = 300_000;
const DENIED_MAX: u32 = 4_096;
const ICMP: u8 = 1;
const ICMP_OF_IPV6: u8 = 58;
/// What neighbours and routers say to each other: queries of listeners and their reports, solicitations, advertisements.
const NEIGHBOUR_TYPES: [u8; 8] = [130, 131, 132, 133, 134, 135, 136, 143];

pub(crate) fn table(settings: &Settings, family: Family) -> Table {
    Table::new(family, format!("{}-policy", settings.prefix))
}

/// The tables of an instance.
pub(crate) fn own_tables(settings: &Settings) -> [Table; 2] {
    FAMILIES.map(|family| table(settings, family))
}

/// Takes them away.
pub(crate) fn removal(settings: &Settings) -> Batch {
    let mut batch = Batch::new();
    own_tables(settings).iter().for_each(|table| batch.remove_table(table));
    batch
}

pub(crate) fn is_fixed(set: &str) -> bool {
    [FROM_PODS, TO_PODS, TO_ITSELF, MAY_ENTER, MAY_LEAVE, DENIED].contains(&set)
}

/// What the tables of an instance say about themselves.
pub(crate) fn comment(settings: &Settings, family: Family) -> String {
    let digest = Sha256::digest(format!("{:?}", skeleton(settings, family)));
    let version: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("adieu policies {version}")
}

pub(crate) fn fixed_set(family: Family, name: &str) -> Set {
    let address = address_field(family);
    match name {
        FROM_PODS => Set::of(name, &[Field::LinkName, address]),
        TO_ITSELF => Set::of(name, &[address, address]),
        MAY_ENTER | MAY_LEAVE => Set::verdict_map(name, &[address]),
        DENIED => Set::of(name, &[address, address, Field::Protocol, Field::Port])
            .with_counters()
            .remembering(DENIED_MILLISECONDS, DENIED_MAX),
        _ => Set::of(name, &[address]),
    }
}

/// The tables without any pod, and without a comment.
pub(crate) fn skeleton(settings: &Settings, family: Family) -> TableSpec {
    let from_pod = || Rule::new().input_name_begins(Relation::Equal, &settings.prefix);
    let to_pod = || Rule::new().output_name_begins(Relation::Equal, &settings.prefix);
    let drop_all = |rule: Rule| rule.with(Expression::Counter).verdict(Verdict::Drop);
    let not_in = |set: &str| Expression::InSet { set: set.into(), key: Register::FIRST, inverted: nft::Inverted::Yes };
    // From addresses of the link, which are in no list. Nobody tracks them, and no policy is about them.
    let neighbours: Vec<_> = match family {
        Family::Ip6 => NEIGHBOUR_TYPES
            .into_iter()
            .map(|kind| {
                let at_kind = Expression::Payload { header: Header::Transport, at: 0, bytes: 1, to: Register::FIRST };
                let is_kind =
                    Expression::Compare { register: Register::FIRST, relation: Relation::Equal, value: vec![kind] };
                protocol_is(from_pod(), ICMP_OF_IPV6).with(at_kind).with(is_kind).verdict(Verdict::Accept)
            })
            .collect(),
        Family::Inet | Family::Ip | Family::Other(_) => Vec::new(),
    };
    let mut check_source = neighbours.clone();
    let words = u8::try_from(LINK_BYTES / 4).unwrap_or(u8::MAX);
    let spoofed = from_pod()
        .with(Expression::Meta { key: MetaKey::InputName, to: Register::FIRST })
        .with(load_address(family, Side::Source, Register::word(words)))
        .with(not_in(FROM_PODS));
    check_source.push(drop_all(spoofed));
    let unknown = to_pod().with(load_address(family, Side::Destination, Register::FIRST)).with(not_in(TO_PODS));
    let check_pod = vec![drop_all(unknown)];

    // A packet that nobody tracks goes neither way, and is judged.
    let answers = |rule: Rule| rule.direction_is(Direction::Reply).verdict(Verdict::Accept);
    let errors = |rule: Rule| {
        const RELATED: u32 = 1 << 2;
        let protocol = if family == Family::Ip6 { ICMP_OF_IPV6 } else { ICMP };
        protocol_is(rule, protocol)
            .with(Expression::Connection { key: ConnectionKey::State, to: Register::FIRST })
            .with(Expression::Mask { register: Register::FIRST, mask: RELATED.to_ne_bytes().to_vec() })
            .with(Expression::Compare {
                register: Register::FIRST,
                relation: Relation::NotEqual,
                value: 0_u32.to_ne_bytes().to_vec(),
            })
            .verdict(Verdict::Accept)
    };
    let itself = |rule: Rule| rule.addresses_in_set(family, TO_ITSELF).verdict(Verdict::Accept);
    let decide = |rule: Rule, side, map: &str| {
        rule.with(load_address(family, side, Register::FIRST))
            .with(Expression::VerdictMap { map: map.into(), key: Register::FIRST })
    };
    let judge = |at: &dyn Fn() -> Rule, side, map| {
        vec![answers(at()), errors(at()), itself(at()), decide(at(), side, map), drop_all(at())]
    };

    let next = if family == Family::Ip6 { 4 } else { 1 };
    let mut refused: Vec<_> = Protocol::ALL
        .map(|protocol| protocol.number())
        .into_iter()
        .map(|protocol| {
            // In a rule of its own: where no more can be remembered, the rule ends, and packets must not pass by that.
            protocol_is(Rule::new(), protocol)
                .with(load_address(family, Side::Source, Register::FIRST))
                .with(load_address(family, Side::Destination, Register::word(next)))
                .with(Expression::Meta { key: MetaKey::Protocol, to: Register::word(2 * next) })
                .with(Expression::Payload {
                    header: Header::Transport,
                    at: 2,
                    bytes: 2,
                    to: Register::word(2 * next + 1),
                })
                .with(Expression::Remember {
                    set: DENIED.into(),
                    key: Register::FIRST,
                    value: None,
                    milliseconds: DENIED_MILLISECONDS,
                })
        })
        .collect();
    refused.push(drop_all(Rule::new()));
    let at = |name, hook, priority| Chain::at(name, ChainKind::Filter, hook, priority);
    TableSpec {
        chains: vec![
            (Chain::inner(REFUSED), refused),
            (at("check_source", Hook::Prerouting, -290), check_source),
            (at("check_pod", Hook::Forward, 9), check_pod),
            (at("leave_pod", Hook::Forward, 10), judge(&from_pod, Side::Source, MAY_LEAVE)),
            (at("enter_pod", Hook::Forward, 11), judge(&to_pod, Side::Destination, MAY_ENTER)),
            (at("leave_to_node", Hook::Input, 10), [neighbours, judge(&from_pod, Side::Source, MAY_LEAVE)].concat()),
        ],
        sets: [FROM_PODS, TO_PODS, TO_ITSELF, MAY_ENTER, MAY_LEAVE, DENIED]
            .into_iter()
            .map(|name| (fixed_set(family, name), Vec::<Element>::new()))
            .collect(),
        ..TableSpec::new(table(settings, family))
    }
}
