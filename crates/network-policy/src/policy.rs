//! A NetworkPolicy, read once into a form that cannot be wrong.
//!
//! Whatever cannot be read allows nothing. A policy with more than is looked at here isolates the pods that it selects, and allows
//! nothing at all: half of its rules would be others than were written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::facts::Protocol;
use crate::ranges::{Network, Ranges, union, without};
use crate::selector::{Labels, Namespaces, PeerSelector, Selector};

/// How much one policy may say: peers, exceptions, ports, labels and values together. The largest lists of networks that clouds
/// publish have a third of it.
pub const ITEMS_MAX: usize = 20_000;

/// How many rules one policy may have. Each becomes up to a dozen steps that a packet may have to take.
pub const RULES_MAX: usize = 1_000;

/// Namespace and name.
pub(crate) type PolicyKey = (String, String);

/// Which way connections go, seen from the pod that a policy selects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Way {
    Ingress,
    Egress,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];
}

/// What a policy says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) namespace: String,
    subjects: Selector,
    /// What it allows; `None` if it does not isolate that way.
    ingress: Option<Vec<Allowed>>,
    egress: Option<Vec<Allowed>>,
    /// Why it allows nothing, if it says more than is looked at.
    pub(crate) problem: Option<String>,
}

/// One rule: who, and at which ports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Allowed {
    pub(crate) peers: Peers,
    pub(crate) ports: Ports,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Peers {
    Everybody,
    Only {
        pods: BTreeSet<PeerSelector>,
        /// Of IPv4, and of IPv6.
        blocks: [Ranges; 2],
    },
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ports {
    /// And whatever has no ports.
    All,
    Only {
        numbers: BTreeMap<Protocol, Ranges>,
        names: BTreeSet<(Protocol, String)>,
    },
}

impl Policy {
    pub(crate) fn key(policy: &NetworkPolicy) -> PolicyKey {
        let metadata = &policy.metadata;
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }

    pub(crate) fn read(policy: &NetworkPolicy) -> Self {
        let (namespace, _) = Self::key(policy);
        let Some(spec) = &policy.spec else {
            // It selects everybody and says nothing, as an empty one does.
            let subjects = Selector::default();
            return Self { namespace, subjects, ingress: Some(Vec::new()), egress: None, problem: None };
        };
        let types = spec.policy_types.as_deref().unwrap_or_default();
        let has = |way: &str| types.iter().any(|it| it == way);
        let is_egress = has("Egress") || (types.is_empty() && spec.egress.as_ref().is_some_and(|it| !it.is_empty()));
        let is_ingress = has("Ingress") || types.is_empty();
        let none = (None, None);
        let ingress = spec.ingress.iter().flatten().map(|rule| (rule.from.as_deref(), rule.ports.as_deref()));
        let egress = spec.egress.iter().flatten().map(|rule| (rule.to.as_deref(), rule.ports.as_deref()));
        let subjects = spec.pod_selector.as_ref().map(Selector::of).unwrap_or_default();
        let problem = problem(subjects.size(), ingress.clone().chain(egress.clone()).chain([none]));
        let allowed = |rules: Vec<_>| -> Vec<Allowed> {
            let is_read = problem.is_none();
            rules.into_iter().filter(|_| is_read).filter_map(|rule| Allowed::read(&namespace, rule)).collect()
        };
        let ingress = is_ingress.then(|| allowed(ingress.collect()));
        let egress = is_egress.then(|| allowed(egress.collect()));
        Self { subjects, ingress, egress, problem, namespace }
    }

    /// The same policy, allowing nothing.
    pub(crate) fn closed(&self, problem: String) -> Self {
        let nothing = |rules: &Option<_>| rules.as_ref().map(|_| Vec::new());
        let (ingress, egress) = (nothing(&self.ingress), nothing(&self.egress));
        Self { ingress, egress, problem: Some(problem), ..self.clone() }
    }

    pub(crate) fn selects(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespace == namespace && self.subjects.takes(labels)
    }

    /// What it allows that way; `None` if it does not isolate.
    pub(crate) fn allowed(&self, way: Way) -> Option<&[Allowed]> {
        match way {
            Way::Ingress => self.ingress.as_deref(),
            Way::Egress => self.egress.as_deref(),
        }
    }
}

type Written<'a> = (Option<&'a [NetworkPolicyPeer]>, Option<&'a [NetworkPolicyPort]>);

fn problem<'a>(subjects: usize, rules: impl Iterator<Item = Written<'a>>) -> Option<String> {
    let (mut items, mut count) = (subjects, 0);
    for (peers, ports) in rules {
        count += 1;
        items += ports.map_or(0, <[_]>::len);
        for peer in peers.unwrap_or_default() {
            let selectors = [&peer.pod_selector, &peer.namespace_selector];
            let size: usize = selectors.into_iter().flatten().map(|it| Selector::of(it).size()).sum();
            let except = peer.ip_block.as_ref().and_then(|block| block.except.as_ref()).map_or(0, Vec::len);
            items += 1 + size + except;
        }
    }
    // One more was counted to tell an empty list.
    match (count - 1, items) {
        (rules, _) if rules > RULES_MAX => Some(format!("it has {rules} rules, and at most {RULES_MAX} are looked at")),
        (_, items) if items > ITEMS_MAX => {
            Some(format!("it has {items} peers, ports and labels, and at most {ITEMS_MAX} are looked at"))
        }
        _ => None,
    }
}

impl Allowed {
    /// `None` if nobody can meet it.
    fn read(namespace: &str, (peers, ports): Written<'_>) -> Option<Self> {
        let peers = match peers.unwrap_or_default() {
            [] => Peers::Everybody,
            some => Peers::read(namespace, some)?,
        };
        let ports = match ports.unwrap_or_default() {
            [] => Ports::All,
            some => Ports::read(some)?,
        };
        Some(Self { peers, ports })
    }
}

impl Peers {
    fn read(namespace: &str, peers: &[NetworkPolicyPeer]) -> Option<Self> {
        let mut pods = BTreeSet::new();
        let mut blocks = [Vec::new(), Vec::new()];
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                if let Some((is_ipv6, ranges)) = carve(block) {
                    blocks[usize::from(is_ipv6)].extend(ranges);
                }
                continue;
            }
            let namespaces = match (&peer.namespace_selector, &peer.pod_selector) {
                (Some(selector), _) => Namespaces::Matching(Selector::of(selector)),
                (None, Some(_)) => Namespaces::Named(namespace.to_owned()),
                (None, None) => continue,
            };
            let selected = peer.pod_selector.as_ref().map(Selector::of).unwrap_or_default();
            pods.insert(PeerSelector { namespaces, pods: selected });
        }
        let blocks = blocks.map(union);
        (!pods.is_empty() || blocks.iter().any(|it| !it.is_empty())).then_some(Self::Only { pods, blocks })
    }
}

fn carve(block: &IPBlock) -> Option<(bool, Ranges)> {
    let network = Network::parse(&block.cidr)?;
    let mut except = Vec::new();
    for text in block.except.iter().flatten() {
        // An exception that nobody understands might be anything.
        let one = Network::parse(text)?;
        if one.is_ipv6 == network.is_ipv6 {
            except.push((one.first, one.last));
        }
    }
    Some((network.is_ipv6, without((network.first, network.last), except)))
}

impl Ports {
    fn read(ports: &[NetworkPolicyPort]) -> Option<Self> {
        let mut numbers: BTreeMap<Protocol, Vec<_>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for port in ports {
            let Some(protocol) = Protocol::of_name(port.protocol.as_deref()) else { continue };
            match &port.port {
                None => numbers.entry(protocol).or_default().push((0, u128::from(u16::MAX))),
                Some(IntOrString::String(name)) => drop(names.insert((protocol, name.clone()))),
                Some(IntOrString::Int(first)) => {
                    let last = port.end_port.unwrap_or(*first);
                    if let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(last)) {
                        numbers.entry(protocol).or_default().push((first.into(), last.into()));
                    }
                }
            }
        }
        let numbers: BTreeMap<_, _> = numbers.into_iter().map(|(protocol, ranges)| (protocol, union(ranges))).collect();
        (!numbers.is_empty() || !names.is_empty()).then_some(Self::Only { numbers, names })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Policy {
        let policy = json!({"metadata": {"namespace": "x", "name": "p"}, "spec": spec});
        Policy::read(&serde_json::from_value(policy).unwrap())
    }

    fn only(policy: &Policy, way: Way) -> (BTreeSet<PeerSelector>, [Ranges; 2]) {
        match &policy.allowed(way).unwrap()[0].peers {
            Peers::Only { pods, blocks } => (pods.clone(), blocks.clone()),
            Peers::Everybody => panic!("everybody"),
        }
    }

    fn ports(written: Value) -> Ports {
        read(json!({"podSelector": {}, "ingress": [{"ports": written}]})).ingress.unwrap().remove(0).ports
    }

    /// [NP-6] [NP-7] Which ways are isolated follows from the types, and without them from what is there.
    #[test]
    fn policy_isolates_the_ways_that_its_types_name() {
        let rule = json!([{}]);
        for (spec, ingress, egress) in [
            (json!({"podSelector": {}}), true, false),
            (json!({"podSelector": {}, "egress": rule}), true, true),
            (json!({"podSelector": {}, "egress": []}), true, false),
            (json!({"podSelector": {}, "policyTypes": ["Egress"]}), false, true),
            (json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": rule}), false, true),
            (json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": rule}), true, false),
            (json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}), true, true),
        ] {
            let policy = read(spec.clone());
            let isolates = Way::BOTH.map(|way| policy.allowed(way).is_some());
            assert_eq!(isolates, [ingress, egress], "{spec}");
        }
    }

    /// [NP-10] Both selectors in one item mean pods that meet both, two items mean either.
    #[test]
    fn selectors_of_one_item_are_met_together_and_items_each_for_itself() {
        let (pod, namespace) = (json!({"matchLabels": {"p": "b"}}), json!({"matchLabels": {"n": "y"}}));
        let peers = |from: Value| only(&read(json!({"podSelector": {}, "ingress": [{"from": from}]})), Way::Ingress).0;
        let both = peers(json!([{"podSelector": pod, "namespaceSelector": namespace}]));
        let either = peers(json!([{"podSelector": pod}, {"namespaceSelector": namespace}]));
        let labels = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
        let takes = |peers: &BTreeSet<PeerSelector>, at: &str, of: &str, pod: &str| {
            peers.iter().any(|peer| peer.takes(at, Some(&labels("n", of)), &labels("p", pod)))
        };
        for (at, of, pod, by_both, by_either) in [
            ("y", "y", "b", true, true),
            ("y", "y", "a", false, true),
            ("x", "x", "b", false, true),
            ("x", "x", "a", false, false),
            ("z", "z", "b", false, false),
        ] {
            assert_eq!(takes(&both, at, of, pod), by_both, "{at}/{pod}, both");
            assert_eq!(takes(&either, at, of, pod), by_either, "{at}/{pod}, either");
        }
    }

    /// [NP-17] [NP-18] Blocks of a rule are one list of ranges for each family, without what is excepted.
    #[test]
    fn blocks_of_a_rule_are_merged_and_exceptions_taken_out() {
        let to = json!([
            {"ipBlock": {"cidr": "10.0.0.0/16", "except": ["10.0.1.0/24"]}},
            {"ipBlock": {"cidr": "10.0.0.0/24"}},
            {"ipBlock": {"cidr": "10.1.0.0/16"}},
            {"ipBlock": {"cidr": "fd00::/8"}},
            {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["nonsense"]}},
            {"ipBlock": {"cidr": "nonsense"}},
        ]);
        let policy = read(json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": to}]}));
        let (pods, blocks) = only(&policy, Way::Egress);
        assert!(pods.is_empty());
        assert_eq!(blocks[0], [(0x0a00_0000, 0x0a00_00ff), (0x0a00_0200, 0x0a01_ffff)]);
        assert_eq!(blocks[1].len(), 1);
        let all = json!([{"ipBlock": {"cidr": "0.0.0.0/0"}}]);
        let policy = read(json!({"podSelector": {}, "ingress": [{"from": all}]}));
        let (_, blocks) = only(&policy, Way::Ingress);
        assert_eq!(blocks, [vec![(0, u128::from(u32::MAX))], vec![]], "nothing of the other family");
    }

    /// [NP-21] [NP-22] [NP-25] Ports are numbers, ranges, names or all of a protocol.
    #[test]
    fn ports_are_read_as_ranges_of_each_protocol_and_names() {
        let read = ports(json!([
            {"port": 85, "endPort": 95},
            {"port": 80, "endPort": 90, "protocol": "TCP"},
            {"protocol": "UDP"},
            {"port": "dns", "protocol": "UDP"},
            {"port": 7, "protocol": "SCTP"},
            {"port": 9, "protocol": "ICMP"},
        ]));
        let Ports::Only { numbers, names } = read else { panic!("all") };
        assert_eq!(numbers[&Protocol::Tcp], [(80, 95)]);
        assert_eq!(numbers[&Protocol::Udp], [(0, 65_535)]);
        assert_eq!(numbers[&Protocol::Sctp], [(7, 7)]);
        assert_eq!(names, [(Protocol::Udp, "dns".to_owned())].into());
    }

    /// Rules that nobody can meet are none, and never everybody's.
    #[test]
    fn rule_whose_peers_or_ports_cannot_be_read_allows_nobody() {
        for rule in [
            json!({"from": [{}]}),
            json!({"from": [{"ipBlock": {"cidr": "x"}}]}),
            json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.0.0.0/24"]}}]}),
            json!({"ports": [{"protocol": "ICMP"}]}),
        ] {
            let policy = read(json!({"podSelector": {}, "ingress": [rule]}));
            assert_eq!(policy.allowed(Way::Ingress), Some(&[][..]), "{rule}");
        }
        for rule in [json!({}), json!({"from": [], "ports": []})] {
            let policy = read(json!({"podSelector": {}, "ingress": [rule]}));
            let all = Allowed { peers: Peers::Everybody, ports: Ports::All };
            assert_eq!(policy.allowed(Way::Ingress), Some(&[all][..]), "{rule}");
        }
    }

    /// A policy that says too much isolates and allows nothing, and says why.
    #[test]
    fn policy_beyond_its_bounds_allows_nothing_and_tells_why() {
        let rules: Vec<_> = (0..=RULES_MAX).map(|_| json!({})).collect();
        let policy = read(json!({"podSelector": {}, "ingress": rules}));
        assert_eq!(policy.allowed(Way::Ingress), Some(&[][..]));
        assert_eq!(policy.problem.unwrap(), "it has 1001 rules, and at most 1000 are looked at");
        let peers: Vec<_> = (0..=ITEMS_MAX).map(|_| json!({"podSelector": {}})).collect();
        let policy = read(json!({"podSelector": {}, "ingress": [{"from": peers}]}));
        assert_eq!(policy.allowed(Way::Ingress), Some(&[][..]));
        assert!(policy.problem.is_some());
        let rules: Vec<_> = (0..RULES_MAX).map(|_| json!({})).collect();
        assert_eq!(read(json!({"podSelector": {}, "ingress": rules})).problem, None);
    }
}
