//! How pods are spread over domains: zones, nodes, whatever a label of nodes tells apart.
//!
//! A hard constraint keeps a pod off nodes where its domain would have too many more pods than the emptiest ([`Spread`]). A soft one,
//! and the usual one of pods that say nothing, makes emptier domains better ([`scores`]), with upstream's arithmetic. What is counted
//! are the pods in the same namespace that the constraint selects and that do not leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::affinity;
use super::fit::untolerated;
use super::score::{as_number, rounded};
use super::world::{NodeFacts, NodeState, Resident, World, owner_of};
use crate::pod::PodView;
use crate::selector::{is_empty, takes, with_label_keys};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What spreads the pods of one owner that say nothing about it, and how much more of them a domain may have before it matters.
const USUAL: [(&str, i32); 2] = [(HOSTNAME, 3), (ZONE, 5)];

const TOO_MANY: &str = "node(s) didn't match pod topology spread constraints";
const NO_DOMAIN: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// Whom a constraint counts.
#[derive(Clone, Debug)]
enum Counted {
    /// Whom the selector takes; nobody, if there is none.
    Selected(Option<LabelSelector>),
    /// The pods of this owner.
    Owned(Arc<str>),
}

/// One constraint of a pod.
#[derive(Clone, Debug)]
struct Constraint<'a> {
    key: &'a str,
    max_skew: i64,
    min_domains: usize,
    /// Nodes that the pod does not want are no domains.
    honors_affinity: bool,
    /// Nor are those whose taints it does not tolerate.
    honors_taints: bool,
    counted: Counted,
}

impl<'a> Constraint<'a> {
    fn of(pod: &PodView, it: &'a TopologySpreadConstraint) -> Self {
        let keys = it.match_label_keys.as_deref().unwrap_or_default();
        let selector = it.label_selector.as_ref();
        Self {
            key: &it.topology_key,
            max_skew: it.max_skew.into(),
            min_domains: it.min_domains.and_then(|number| usize::try_from(number).ok()).unwrap_or(1),
            honors_affinity: it.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: it.node_taints_policy.as_deref() == Some("Honor"),
            counted: Counted::Selected(selector.map(|it| with_label_keys(it, pod.labels(), keys, &[]))),
        }
    }

    fn usual(key: &'a str, max_skew: i32, owner: &Arc<str>) -> Self {
        Self {
            key,
            max_skew: max_skew.into(),
            min_domains: 1,
            honors_affinity: true,
            honors_taints: false,
            counted: Counted::Owned(Arc::clone(owner)),
        }
    }

    /// Whether a pod that is somewhere counts. One without requirements counts nobody, as upstream does.
    fn counts(&self, resident: &Resident) -> bool {
        let selects = |selector: &LabelSelector| !is_empty(selector) && affinity::speaks_of(selector, resident);
        !resident.leaving
            && match &self.counted {
                Counted::Selected(selector) => selector.as_ref().is_some_and(selects),
                Counted::Owned(owner) => resident.owner.as_ref() == Some(owner),
            }
    }

    /// Whether the pod itself would count.
    fn takes_itself(&self, pod: &PodView) -> bool {
        match &self.counted {
            Counted::Selected(selector) => {
                let takes = |it: &LabelSelector| takes(it, |key| pod.labels().get(key).map(String::as_str));
                selector.as_ref().is_some_and(takes)
            }
            Counted::Owned(_) => true,
        }
    }

    fn is_eligible(&self, pod: &PodView, node: &NodeFacts) -> bool {
        (!self.honors_affinity || affinity::wants_node(pod, node))
            && (!self.honors_taints || untolerated(pod, node).is_none())
    }
}

fn asked<'a>(pod: &'a PodView, otherwise: &'a str) -> impl Iterator<Item = Constraint<'a>> {
    let such = move |it: &&TopologySpreadConstraint| it.when_unsatisfiable == otherwise;
    pod.spec.topology_spread_constraints.iter().filter(such).map(move |it| Constraint::of(pod, it))
}

/// Whether something must be kept to, so that other pods that come may let this one in.
pub(super) fn is_bound_to_spread(pod: &PodView) -> bool {
    asked(pod, "DoNotSchedule").next().is_some()
}

fn has_all_keys(node: &NodeFacts, constraints: &[Constraint<'_>]) -> bool {
    constraints.iter().all(|it| node.labels.contains_key(it.key))
}

/// The pods that a constraint may count.
fn countable<'w>(constraint: &Constraint<'_>, pod: &PodView, world: &'w World) -> Vec<&'w Resident> {
    let residents: Vec<&Resident> = match &constraint.counted {
        Counted::Selected(_) => world.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()).collect(),
        Counted::Owned(owner) => world.owned(pod.metadata.namespace.as_deref().unwrap_or_default(), owner).collect(),
    };
    residents.into_iter().filter(|resident| constraint.counts(resident)).collect()
}

/// A constraint that must be kept, and how many pods it counts in each of its domains.
#[derive(Clone, Debug)]
struct Kept<'a> {
    constraint: Constraint<'a>,
    takes_itself: bool,
    domains: BTreeMap<String, i64>,
    /// The fewest that a domain has.
    least: i64,
}

impl Kept<'_> {
    fn recount(&mut self) {
        let is_enough = self.domains.len() >= self.constraint.min_domains;
        self.least = if is_enough { self.domains.values().min().copied().unwrap_or(0) } else { 0 };
    }
}

/// The constraints of a pod that must be kept, in the world as it is or as it is tried out.
#[derive(Clone, Debug)]
pub(super) struct Spread<'a> {
    pod: &'a PodView,
    kept: Vec<Kept<'a>>,
}

impl<'a> Spread<'a> {
    pub(super) fn of(pod: &'a PodView, world: &World) -> Self {
        let constraints: Vec<Constraint<'a>> = asked(pod, "DoNotSchedule").collect();
        let nodes: Vec<&NodeFacts> =
            world.places().map(|place| &place.node).filter(|node| has_all_keys(node, &constraints)).collect();
        let kept = constraints.into_iter().map(|constraint| {
            let eligible: BTreeMap<&str, &String> = nodes
                .iter()
                .filter(|node| constraint.is_eligible(pod, node))
                .filter_map(|node| Some((&*node.name, node.labels.get(constraint.key)?)))
                .collect();
            let mut domains: BTreeMap<String, i64> = BTreeMap::new();
            for domain in eligible.values() {
                if !domains.contains_key(*domain) {
                    domains.insert((*domain).clone(), 0);
                }
            }
            for resident in countable(&constraint, pod, world) {
                let domain = eligible.get(&*resident.node);
                domain.and_then(|domain| domains.get_mut(*domain)).into_iter().for_each(|count| *count += 1);
            }
            let mut kept = Kept { takes_itself: constraint.takes_itself(pod), constraint, domains, least: 0 };
            kept.recount();
            kept
        });
        Self { pod, kept: kept.collect() }
    }

    /// What keeps the pod off the node.
    pub(super) fn obstacle(&self, node: &NodeFacts) -> Option<&'static str> {
        self.kept.iter().find_map(|kept| {
            let Some(domain) = node.labels.get(kept.constraint.key) else { return Some(NO_DOMAIN) };
            let there = kept.domains.get(domain).copied().unwrap_or(0);
            let skew = there + i64::from(kept.takes_itself) - kept.least;
            (skew > kept.constraint.max_skew).then_some(TOO_MANY)
        })
    }

    /// A pod is thought to come to the node, or (`false`) to leave it.
    pub(super) fn think(&mut self, resident: &Resident, node: &NodeFacts, comes: bool) {
        let Self { pod, kept } = self;
        if *resident.namespace != *pod.metadata.namespace.as_deref().unwrap_or_default()
            || !kept.iter().all(|it| node.labels.contains_key(it.constraint.key))
        {
            return;
        }
        for kept in kept {
            if !kept.constraint.counts(resident) || !kept.constraint.is_eligible(pod, node) {
                continue;
            }
            if let Some(count) = node.labels.get(kept.constraint.key).and_then(|it| kept.domains.get_mut(it)) {
                *count += if comes { 1 } else { -1 };
                kept.recount();
            }
        }
    }
}

/// How well each of these nodes spreads the pod, out of a hundred; nothing, if nobody asks for that.
pub(super) fn scores(pod: &PodView, fitting: &[&NodeState], world: &World) -> Option<Vec<i64>> {
    let is_usual = pod.spec.topology_spread_constraints.is_empty();
    let constraints: Vec<Constraint<'_>> = match is_usual {
        false => asked(pod, "ScheduleAnyway").collect(),
        true => {
            let owner = owner_of(pod);
            owner.iter().flat_map(|owner| USUAL.map(|(key, skew)| Constraint::usual(key, skew, owner))).collect()
        }
    };
    if constraints.is_empty() {
        return None;
    }
    // A node without a zone is not left out by what nobody has asked for.
    let counts = |node: &NodeFacts| is_usual || has_all_keys(node, &constraints);
    let mut costs: Vec<Option<f64>> = fitting.iter().map(|place| counts(&place.node).then_some(0.0)).collect();
    for constraint in &constraints {
        let mut on_node: BTreeMap<&str, i64> = BTreeMap::new();
        for resident in countable(constraint, pod, world) {
            *on_node.entry(&*resident.node).or_default() += 1;
        }
        let is_hostname = constraint.key == HOSTNAME;
        let mut in_domain: BTreeMap<&str, i64> = BTreeMap::new();
        if !is_hostname {
            for (name, count) in &on_node {
                let Some(place) = world.place(name) else { continue };
                if counts(&place.node) && constraint.is_eligible(pod, &place.node) {
                    *in_domain.entry(domain(&place.node, constraint.key)).or_default() += count;
                }
            }
        }
        let candidates = fitting.iter().zip(&costs).filter(|(_, cost)| cost.is_some()).map(|(place, _)| &place.node);
        let domains = match is_hostname {
            true => candidates.count(),
            false => candidates.map(|node| domain(node, constraint.key)).collect::<BTreeSet<_>>().len(),
        };
        let weight = as_number(i64::try_from(domains).unwrap_or(i64::MAX).saturating_add(2)).ln();
        for (place, cost) in fitting.iter().zip(&mut costs) {
            let Some(cost) = cost.as_mut().filter(|_| place.node.labels.contains_key(constraint.key)) else { continue };
            let there = match is_hostname {
                true => on_node.get(&*place.node.name),
                false => in_domain.get(domain(&place.node, constraint.key)),
            };
            *cost += as_number(there.copied().unwrap_or(0)) * weight + as_number(constraint.max_skew - 1);
        }
    }
    let costs: Vec<Option<i64>> = costs.into_iter().map(|cost| cost.map(rounded)).collect();
    let (least, most) = (costs.iter().flatten().min().copied(), costs.iter().flatten().max().copied());
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let score = |cost: Option<i64>| match cost {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(cost) => (most + least).saturating_sub(cost).saturating_mul(100) / most,
    };
    Some(costs.into_iter().map(score).collect())
}

fn domain<'a>(node: &'a NodeFacts, key: &str) -> &'a str {
    node.labels.get(key).map(String::as_str).unwrap_or_default()
}
