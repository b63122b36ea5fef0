//! Which nodes a pod wants, and whom it wants to be near to or away from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::fit::World;

/// Whether the node is among those that the pod wants.
pub(super) fn wants_node(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = node.labels();
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// How much the pod would like the node: the weights of the preferences that it meets.
pub(super) fn preference(pod: &Pod, node: &Node) -> i64 {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let met = preferred.into_iter().flatten().filter(|preferred| matches(&preferred.preference, node));
    met.map(|preferred| i64::from(preferred.weight)).sum()
}

/// A term without any requirement fits nobody.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.labels();
    let expressions = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    if expressions.clone().next().is_none() && fields.clone().next().is_none() {
        return false;
    }
    let name = node.name_any();
    let field = |key: &str| (key == "metadata.name").then_some(name.as_str());
    expressions.into_iter().all(|it| holds(it, labels.get(&it.key).map(String::as_str)))
        && fields.into_iter().all(|it| holds(it, field(&it.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().flatten().any(|one| one == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = requirement.values.as_ref().and_then(|values| number(values.first()?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number).zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => value.and_then(number).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// What keeps the pod off the node because of the pods that are there, or not there.
pub(super) fn neighbours(pod: &Pod, node: &Node, world: &World<'_>) -> Option<&'static str> {
    let near = required(pod, true);
    // The first of a group that wants to be together has nobody to join, and begins.
    let joins = |term: &&PodAffinityTerm| {
        world.pods().any(|(other, place)| selects(term, pod, other) && same_place(term, node, place))
            || (!world.pods().any(|(other, _)| selects(term, pod, other))
                && selects(term, pod, pod)
                && node.labels().contains_key(&term.topology_key))
    };
    if !near.iter().all(joins) {
        return Some("node(s) didn't match pod affinity rules");
    }
    let meets = |term: &&PodAffinityTerm| {
        world.pods().any(|(other, place)| selects(term, pod, other) && same_place(term, node, place))
    };
    if required(pod, false).iter().any(meets) {
        return Some("node(s) didn't match pod anti-affinity rules");
    }
    let refused = |(other, place): (&Pod, &Node)| {
        required(other, false).iter().any(|term| selects(term, other, pod) && same_place(term, node, place))
    };
    if world.pods().any(refused) {
        return Some("node(s) didn't satisfy existing pods anti-affinity rules");
    }
    None
}

fn required(pod: &Pod, near: bool) -> Vec<&PodAffinityTerm> {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else { return Vec::new() };
    let terms = if near {
        affinity.pod_affinity.as_ref().and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
    } else {
        affinity
            .pod_anti_affinity
            .as_ref()
            .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
    };
    terms.into_iter().flatten().collect()
}

/// Whether the term, written in `owner`, speaks of `other`. Of namespaces it knows names, and "all of them".
fn selects(term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let named: Vec<&String> = term.namespaces.iter().flatten().collect();
    let all = term.namespace_selector.as_ref().is_some_and(is_empty);
    let own = named.is_empty() && term.namespace_selector.is_none() && owner.namespace() == other.namespace();
    let there = other.namespace();
    (all || own || named.iter().any(|name| Some(*name) == there.as_ref()))
        && term.label_selector.as_ref().is_some_and(|selector| takes(selector, other.labels()))
}

fn same_place(term: &PodAffinityTerm, node: &Node, place: &Node) -> bool {
    let value = node.labels().get(&term.topology_key);
    value.is_some() && value == place.labels().get(&term.topology_key)
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

fn takes(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let named = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    named
        && selector.match_expressions.iter().flatten().all(|it| {
            let value = labels.get(&it.key);
            let listed = || value.is_some_and(|value| it.values.iter().flatten().any(|one| one == value));
            match it.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
