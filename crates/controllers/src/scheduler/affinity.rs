//! Which nodes a pod wants, and whom it wants to be near to or away from.

use api::placement::{self, NodeLabels};
use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::world::{NodeFacts, Resident, World};
use crate::pod::PodView;
use crate::selector::{is_empty, takes};

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
    let means = |term: &PodAffinityTerm, other: &Resident| selects(term, own.namespace(), Who::There(other));
    let there = |term: &PodAffinityTerm| {
        world.residents().any(|(other, place)| means(term, other) && same_place(term, node, place))
    };
    let anywhere = |term: &PodAffinityTerm| world.residents().any(|(other, _)| means(term, other));
    // The first of a group that wants to be together has nobody to join, and begins.
    let joins = |term: &PodAffinityTerm| {
        there(term)
            || (!anywhere(term) && selects(term, own.namespace(), own) && node.labels.contains_key(&term.topology_key))
    };
    if !required(pod, true).iter().all(joins) {
        return Some("node(s) didn't match pod affinity rules");
    }
    if required(pod, false).iter().any(there) {
        return Some("node(s) didn't match pod anti-affinity rules");
    }
    let refused = |(other, place): (&Resident, &NodeFacts)| {
        other.avoids.iter().any(|term| selects(term, &other.namespace, own) && same_place(term, node, place))
    };
    if world.with_anti_affinity().any(refused) {
        return Some("node(s) didn't satisfy existing pods anti-affinity rules");
    }
    None
}

/// Whom the pod must be near to, or must not.
pub(super) fn required(pod: &PodView, near: bool) -> &[PodAffinityTerm] {
    let Some(affinity) = &pod.spec.affinity else { return &[] };
    let terms = if near {
        affinity.pod_affinity.as_ref().and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
    } else {
        affinity
            .pod_anti_affinity
            .as_ref()
            .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
    };
    terms.map(Vec::as_slice).unwrap_or_default()
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

/// Whether the term, written in a pod of `namespace`, speaks of `other`. Of namespaces it knows names, and "all of them".
fn selects(term: &PodAffinityTerm, namespace: &str, other: Who<'_>) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    let all = term.namespace_selector.as_ref().is_some_and(is_empty);
    let own = named.is_empty() && term.namespace_selector.is_none() && namespace == other.namespace();
    (all || own || named.iter().any(|name| *name == *other.namespace()))
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
