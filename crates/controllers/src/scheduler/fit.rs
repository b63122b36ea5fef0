//! What keeps a pod off a node, in the words that people are told.

use api::placement::NOT_WANTED;
use api::pod::{self, Taint};
use k8s_openapi::api::core::v1 as core;

use super::affinity;
use super::resources::Amounts;
use super::spread::Spread;
use super::volumes;
use super::world::{NodeFacts, NodeState, Nominees, Resident, World};
use crate::pod::PodView;

/// What keeps the pod off the node whoever is there.
pub(super) fn refusal(pod: &PodView, node: &NodeFacts) -> Option<String> {
    if node.unschedulable && !pod::tolerates(pod, UNSCHEDULABLE) {
        return Some("node(s) were unschedulable".to_owned());
    }
    if let Some(taint) = untolerated(pod, node) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
    }
    if !node.ready {
        return Some("node(s) were not ready".to_owned());
    }
    let wanted = affinity::wants_node(pod, node);
    (!wanted).then(|| NOT_WANTED.to_owned())
}

/// A taint that keeps the pod away.
pub(super) fn untolerated<'a>(pod: &PodView, node: &'a NodeFacts) -> Option<&'a core::Taint> {
    node.taints.iter().find(|taint| taint.effect != PREFER && !pod::tolerates(pod, *taint))
}

/// Everything that keeps the pod off the node that the first of the checks to fail knows of; nothing if it fits. Room and
/// ports of `nominees` are taken, though nobody is there yet.
pub(super) fn obstacles(
    pod: &PodView,
    asked: &Amounts,
    place: &NodeState,
    world: &World,
    nominees: &Nominees,
    spread: &Spread<'_>,
) -> Vec<String> {
    let node = &place.node;
    let one = |words: &str| vec![words.to_owned()];
    if let Some(refusal) = refusal(pod, node) {
        return vec![refusal];
    }
    let expected = nominees.get(&node.name).map(Vec::as_slice).unwrap_or_default();
    let taken = place.ports.iter().map(|(_, port)| port).chain(expected.iter().flat_map(Resident::ports));
    if pod::host_ports(pod).any(|port| taken.clone().any(|other| port.collides(other))) {
        return one("node(s) didn't have free ports for the requested pod ports");
    }
    let missing = if expected.is_empty() {
        node.room.missing(&place.used, asked)
    } else {
        let mut used = place.used.clone();
        expected.iter().for_each(|nominee| used.add(nominee.asked()));
        node.room.missing(&used, asked)
    };
    if !missing.is_empty() {
        return missing;
    }
    if let Some(why) = volumes::obstacle(pod, node, world) {
        return one(why);
    }
    if let Some(why) = spread.obstacle(node) {
        return one(why);
    }
    affinity::neighbours(pod, node, world).map_or_else(Vec::new, one)
}

const PREFER: &str = "PreferNoSchedule";

/// How many taints of the node only ask the pod to stay away, and are not tolerated.
pub(super) fn reluctance(pod: &PodView, node: &NodeFacts) -> i64 {
    let asking = node.taints.iter().filter(|taint| taint.effect == PREFER && !pod::tolerates(pod, *taint));
    i64::try_from(asking.count()).unwrap_or(i64::MAX)
}

/// The taint that goes with `spec.unschedulable`; whoever tolerates it may come all the same.
const UNSCHEDULABLE: Taint<'_> = Taint { key: "node.kubernetes.io/unschedulable", value: "", effect: "NoSchedule" };
