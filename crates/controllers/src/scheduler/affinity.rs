//! Which nodes a pod wants, and whom it wants to be near to or away from.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use api::placement::{self, NodeLabels};
use k8s_openapi::api::core::v1::{PodAffinityTerm, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::world::{NodeFacts, NodeState, Resident, World};
use crate::pod::PodView;
use crate::selector::{is_empty, takes, with_label_keys};

/// What a pod that must be near others counts for where nodes are compared for one of those others.
const REQUIRED_WEIGHT: i64 = 1;

/// Whether the node is among those that the pod wants.
pub(super) fn wants_node(pod: &PodView, node: &NodeFacts) -> bool {
    placement::wants(&pod.spec.node_selector, pod.spec.affinity.as_deref(), place(node))
}

/// How much the pod would like the node: the weights of the preferences that it meets.
pub(super) fn preference(pod: &PodView, node: &NodeFacts) -> i64 {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let met = preferred.into_iter().flatten().filter(|it| placement::meets(&it.preference, place(node)));
    met.map(|preferred| i64::from(preferred.weight)).sum()
}

fn place(node: &NodeFacts) -> NodeLabels<'_> {
    NodeLabels { name: &node.name, labels: &node.labels }
}

/// What keeps the pod off the node because of the pods that are there, or not there.
pub(super) fn neighbours(pod: &PodView, node: &NodeFacts, world: &World) -> Option<&'static str> {
    let own = Who::Waiting(pod);
    let means = |term: &PodAffinityTerm, other: &Resident| selects(term, own.namespace(), Who::There(other), world);
    let there = |term: &PodAffinityTerm| {
        world.residents().any(|(other, place)| means(term, other) && same_place(term, node, place))
    };
    let anywhere = |term: &PodAffinityTerm| world.residents().any(|(other, _)| means(term, other));
    // The first of a group that wants to be together has nobody to join, and begins.
    let joins = |term: &PodAffinityTerm| {
        there(term)
            || (!anywhere(term)
                && selects(term, own.namespace(), own, world)
                && node.labels.contains_key(&term.topology_key))
    };
    if !required(pod, true).iter().all(joins) {
        return Some("node(s) didn't match pod affinity rules");
    }
    if required(pod, false).iter().any(there) {
        return Some("node(s) didn't match pod anti-affinity rules");
    }
    let refused = |(other, place): (&Resident, &NodeFacts)| {
        other.avoids.iter().any(|term| selects(term, &other.namespace, own, world) && same_place(term, node, place))
    };
    if world.with_anti_affinity().any(refused) {
        return Some("node(s) didn't satisfy existing pods anti-affinity rules");
    }
    None
}

/// Whom the pod must be near to, or must not.
pub(super) fn required(pod: &PodView, near: bool) -> Cow<'_, [PodAffinityTerm]> {
    let Some(affinity) = &pod.spec.affinity else { return Cow::Borrowed(&[]) };
    let terms = if near {
        affinity.pod_affinity.as_ref().and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
    } else {
        affinity
            .pod_anti_affinity
            .as_ref()
            .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
    };
    let terms = terms.map(Vec::as_slice).unwrap_or_default();
    match terms.iter().any(has_label_keys) {
        true => terms.iter().map(|term| with_own_labels(term, pod)).collect(),
        false => Cow::Borrowed(terms),
    }
}

fn has_label_keys(term: &PodAffinityTerm) -> bool {
    [&term.match_label_keys, &term.mismatch_label_keys].into_iter().flatten().any(|keys| !keys.is_empty())
}

/// The term with what it says of the pod's own labels as part of its selector.
fn with_own_labels(term: &PodAffinityTerm, pod: &PodView) -> PodAffinityTerm {
    let keys = |keys: &Option<Vec<String>>| keys.clone().unwrap_or_default();
    let (same, other) = (keys(&term.match_label_keys), keys(&term.mismatch_label_keys));
    let selector = term.label_selector.as_ref().map(|it| with_label_keys(it, pod.labels(), &same, &other));
    PodAffinityTerm { label_selector: selector, ..term.clone() }
}

/// Whom a pod would rather have in its place, or, with a weight below nothing, elsewhere.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Preference {
    weight: i64,
    term: PodAffinityTerm,
}

/// The preferences of a pod; `with_required`, whom it must be near to is among them, as it is when others are compared for.
pub(super) fn preferences(pod: &PodView, with_required: bool) -> Vec<Preference> {
    let Some(affinity) = &pod.spec.affinity else { return Vec::new() };
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let far = affinity.pod_anti_affinity.as_ref();
    let far = far.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let weighted = |sign: i64| {
        move |it: &WeightedPodAffinityTerm| Preference {
            weight: sign * i64::from(it.weight),
            term: with_own_labels(&it.pod_affinity_term, pod),
        }
    };
    let must = required(pod, true);
    let must = must.iter().filter(|_| with_required);
    let must = must.map(|term| Preference { weight: REQUIRED_WEIGHT, term: term.clone() });
    let near = near.into_iter().flatten().map(weighted(1));
    near.chain(far.into_iter().flatten().map(weighted(-1))).chain(must).collect()
}

fn add<'a>(places: &mut BTreeMap<(&'a str, &'a str), i64>, preference: &'a Preference, value: &'a str) {
    let sum = places.entry((&preference.term.topology_key, value)).or_default();
    *sum = sum.saturating_add(preference.weight);
}

/// How much the pod would like the company on each of these nodes, and the company it; nothing, if nobody cares.
pub(super) fn scores(pod: &PodView, fitting: &[&NodeState], world: &World) -> Option<Vec<i64>> {
    let own = Who::Waiting(pod);
    let preferences = preferences(pod, false);
    let mut places: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    if !preferences.is_empty() {
        for (other, place) in world.residents() {
            for it in &preferences {
                if let Some(value) = place.labels.get(&it.term.topology_key)
                    && selects(&it.term, own.namespace(), Who::There(other), world)
                {
                    add(&mut places, it, value);
                }
            }
        }
    }
    for (other, place) in world.with_preferences() {
        for it in &other.prefers {
            if let Some(value) = place.labels.get(&it.term.topology_key)
                && selects(&it.term, &other.namespace, own, world)
            {
                add(&mut places, it, value);
            }
        }
    }
    if places.is_empty() {
        return None;
    }
    let keys: BTreeSet<&str> = places.keys().map(|(key, _)| *key).collect();
    let at = |node: &NodeFacts| {
        let values = keys.iter().filter_map(|key| Some((*key, node.labels.get(*key)?.as_str())));
        values.filter_map(|place| places.get(&place)).fold(0, |sum: i64, weight| sum.saturating_add(*weight))
    };
    Some(fitting.iter().map(|place| at(&place.node)).collect())
}

/// A pod, as terms speak of it.
#[derive(Clone, Copy)]
enum Who<'a> {
    Waiting(&'a PodView),
    There(&'a Resident),
}

impl<'a> Who<'a> {
    fn namespace(self) -> &'a str {
        match self {
            Self::Waiting(pod) => pod.metadata.namespace.as_deref().unwrap_or_default(),
            Self::There(resident) => &resident.namespace,
        }
    }

    fn label(self, key: &str) -> Option<&'a str> {
        match self {
            Self::Waiting(pod) => pod.labels().get(key).map(String::as_str),
            Self::There(resident) => resident.labels.get(key),
        }
    }
}

/// Whether the term, written in a pod of `namespace`, speaks of `other`.
fn selects(term: &PodAffinityTerm, namespace: &str, other: Who<'_>, world: &World) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    let is_selected = |selector: &LabelSelector| {
        let labels = || world.namespace(other.namespace());
        is_empty(selector) || labels().is_some_and(|own| takes(selector, |key| own.get(key).map(String::as_str)))
    };
    let selected = || term.namespace_selector.as_ref().is_some_and(is_selected);
    let own = named.is_empty() && term.namespace_selector.is_none() && namespace == other.namespace();
    (own || selected() || named.iter().any(|name| *name == *other.namespace()))
        && term.label_selector.as_ref().is_some_and(|selector| takes(selector, |key| other.label(key)))
}

fn same_place(term: &PodAffinityTerm, node: &NodeFacts, place: &NodeFacts) -> bool {
    let value = node.labels.get(&term.topology_key);
    value.is_some() && value == place.labels.get(&term.topology_key)
}

/// Whether the selector speaks of a pod that has a node.
pub(super) fn speaks_of(selector: &LabelSelector, resident: &Resident) -> bool {
    takes(selector, |key| Who::There(resident).label(key))
}
