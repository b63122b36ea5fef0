//! What keeps a pod off a node, in the words that people are told.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, Node, Pod, Taint, Toleration};
use kube::ResourceExt;

use super::affinity;
use super::resources::Amounts;

/// The nodes, and who is where.
pub(super) struct World<'a> {
    places: BTreeMap<String, Place<'a>>,
}

struct Place<'a> {
    node: &'a Node,
    room: Amounts,
    used: Amounts,
    pods: Vec<&'a Pod>,
}

impl<'a> World<'a> {
    /// The nodes, without anybody there.
    pub(super) fn of(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let place =
            |node: &'a Node| Place { node, room: Amounts::of_node(node), used: Amounts::default(), pods: Vec::new() };
        Self { places: nodes.map(|node| (node.name_any(), place(node))).collect() }
    }

    /// A pod is, or will be, on that node.
    pub(super) fn put(&mut self, pod: &'a Pod, node: &str) {
        if let Some(place) = self.places.get_mut(node) {
            place.used.add(&Amounts::of_pod(pod));
            place.pods.push(pod);
        }
    }

    /// The nodes' names and objects.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&String, &'a Node)> {
        self.places.iter().map(|(name, place)| (name, place.node))
    }

    /// Every pod that has a node, and the node.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&'a Pod, &'a Node)> {
        self.places.values().flat_map(|place| place.pods.iter().map(|pod| (*pod, place.node)))
    }

    /// How many pods are there.
    pub(super) fn crowd(&self, node: &str) -> usize {
        self.places.get(node).map_or(0, |place| place.pods.len())
    }

    /// How much of a node's CPU and memory would be left with `asked` on it, in hundredths, on average.
    pub(super) fn left_with(&self, node: &str, asked: &Amounts) -> i64 {
        let Some(place) = self.places.get(node) else { return 0 };
        let left = |name: &str| {
            let room = place.room.get(name);
            let free = room - place.used.get(name).saturating_add(asked.get(name));
            if room <= 0 { 0 } else { free.max(0).saturating_mul(100) / room }
        };
        i64::midpoint(left("cpu"), left("memory"))
    }
}

/// Everything that keeps the pod off the node that the first of the checks to fail knows of; nothing if it fits.
pub(super) fn obstacles(pod: &Pod, asked: &Amounts, name: &str, world: &World<'_>) -> Vec<String> {
    let Some(place) = world.places.get(name) else { return vec!["node(s) are not there".to_owned()] };
    let node = place.node;
    let one = |words: &str| vec![words.to_owned()];
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) && !tolerates(pod, &unschedulable()) {
        return one("node(s) were unschedulable");
    }
    if let Some(taint) = taints(node).find(|taint| taint.effect != PREFER && !tolerates(pod, taint)) {
        let value = taint.value.as_deref().unwrap_or_default();
        return vec![format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)];
    }
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    if !conditions.is_some_and(|list| list.iter().any(|it| it.type_ == "Ready" && it.status == "True")) {
        return one("node(s) were not ready");
    }
    if !affinity::wants_node(pod, node) {
        return one("node(s) didn't match Pod's node affinity/selector");
    }
    let taken = || place.pods.iter().flat_map(|other| host_ports(other));
    if host_ports(pod).any(|port| taken().any(|other| collide(port, other))) {
        return one("node(s) didn't have free ports for the requested pod ports");
    }
    let missing = place.room.missing(&place.used, asked);
    if !missing.is_empty() {
        return missing;
    }
    affinity::neighbours(pod, node, world).map_or_else(Vec::new, one)
}

const PREFER: &str = "PreferNoSchedule";

/// How many taints of the node only ask the pod to stay away, and are not tolerated.
pub(super) fn reluctance(pod: &Pod, node: &Node) -> i64 {
    let asking = taints(node).filter(|taint| taint.effect == PREFER && !tolerates(pod, taint));
    i64::try_from(asking.count()).unwrap_or(i64::MAX)
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

/// The taint that goes with `spec.unschedulable`; whoever tolerates it may come all the same.
fn unschedulable() -> Taint {
    Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.into_iter().any(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    fn said(word: Option<&String>) -> Option<&str> {
        word.map(String::as_str).filter(|word| !word.is_empty())
    }
    let effect = said(toleration.effect.as_ref()).is_none_or(|effect| effect == taint.effect);
    let key = said(toleration.key.as_ref()).is_none_or(|key| key == taint.key);
    let value = || said(toleration.value.as_ref()) == said(taint.value.as_ref());
    // Without a key it must be `Exists`, and stands for every taint.
    let exists = toleration.operator.as_deref() == Some("Exists");
    effect && key && (exists || (said(toleration.key.as_ref()).is_some() && value()))
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let containers = pod.spec.iter().flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always")))
    });
    containers.flat_map(|it| it.ports.iter().flatten()).filter(|port| port.host_port.is_some_and(|port| port > 0))
}

fn collide(one: &ContainerPort, other: &ContainerPort) -> bool {
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let every = |port: &ContainerPort| matches!(port.host_ip.as_deref(), None | Some("" | "0.0.0.0" | "::"));
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (every(one) || every(other) || one.host_ip == other.host_ip)
}
