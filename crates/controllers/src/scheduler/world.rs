//! The nodes, and who is where: no more of each pod than others need to know who want to be beside it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod::{self, HostPort};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PodAffinityTerm, Taint};
use kube::ResourceExt as _;

use super::resources::Amounts;
use super::{affinity, volumes};
use crate::pod::PodView;
use crate::volume_objects::{Name, VolumeObjects};

/// A pod's UID.
pub(super) type Uid = Arc<str>;

/// A node, as far as it matters to pods that look for one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NodeFacts {
    pub(super) name: Arc<str>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) ready: bool,
    pub(super) room: Amounts,
}

impl NodeFacts {
    fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        Self {
            name: node.name_any().into(),
            labels: node.labels().clone(),
            taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            ready: conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"),
            room: Amounts::of_node(node),
        }
    }
}

/// Labels in the least room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| **own == *key).map(|(_, value)| &**value)
    }
}

/// A pod that has a node, as far as others care.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Resident {
    pub(super) node: Arc<str>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) priority: i32,
    /// Since when it exists.
    pub(super) since: Option<Timestamp>,
    /// It was asked to leave.
    pub(super) leaving: bool,
    pub(super) labels: Labels,
    asked: Amounts,
    ports: Box<[HostPort]>,
    /// Whom it does not want beside it.
    pub(super) avoids: Box<[PodAffinityTerm]>,
    /// The claims that it uses.
    claims: Box<[Name]>,
}

impl Resident {
    pub(super) fn of(pod: &PodView, node: Arc<str>) -> Self {
        let labels = pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        Self {
            node,
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            // Nothing comes of asking a mirror to leave: its node runs the pod by itself.
            priority: if pod::is_mirror(pod) { i32::MAX } else { pod::priority(pod) },
            since: pod.creation_timestamp().map(|time| time.0),
            leaving: pod::is_terminating(pod),
            labels: Labels(labels.collect()),
            asked: Amounts::of_pod(pod),
            ports: pod::host_ports(pod).collect(),
            avoids: affinity::required(pod, false).to_vec().into(),
            claims: volumes::claim_keys(pod).collect(),
        }
    }

    /// What it asks of its node.
    pub(super) fn asked(&self) -> &Amounts {
        &self.asked
    }

    /// The ports of the node that it has.
    pub(super) fn ports(&self) -> impl Iterator<Item = &HostPort> + Clone {
        self.ports.iter()
    }
}

/// Those for whom room was made on a node, by the node, and who are not there yet.
pub(super) type Nominees = BTreeMap<Arc<str>, Vec<Resident>>;

/// A node, and what is taken of it.
#[derive(Clone)]
pub(super) struct NodeState {
    pub(super) node: NodeFacts,
    pub(super) used: Amounts,
    /// How many pods are there.
    pub(super) crowd: usize,
    /// Ports of the node that pods there have, and whose they are.
    pub(super) ports: Vec<(Uid, HostPort)>,
}

impl NodeState {
    /// How much of the node's CPU and memory would be left with `asked` on it, in hundredths, on average.
    pub(super) fn left_with(&self, asked: &Amounts) -> i64 {
        let left = |name: &str| {
            let room = self.node.room.get(name);
            let free = room - self.used.get(name).saturating_add(asked.get(name));
            if room <= 0 { 0 } else { free.max(0).saturating_mul(100) / room }
        };
        i64::midpoint(left("cpu"), left("memory"))
    }

    fn take_in(&mut self, uid: &Uid, resident: &Resident) {
        self.used.add(&resident.asked);
        self.crowd += 1;
        self.ports.extend(resident.ports.iter().map(|port| (Arc::clone(uid), *port)));
    }

    fn let_out(&mut self, uid: &str, resident: &Resident) {
        self.used.subtract(&resident.asked);
        self.crowd -= 1;
        self.ports.retain(|(whose, _)| **whose != *uid);
    }
}

/// The nodes, and who is where.
#[derive(Clone, Default)]
pub(super) struct World {
    places: BTreeMap<Arc<str>, NodeState>,
    residents: BTreeMap<Uid, Resident>,
    /// Those who do not want everybody beside them.
    with_anti_affinity: BTreeSet<Uid>,
    /// Claims, volumes and classes.
    pub(super) volumes: Arc<VolumeObjects>,
}

impl World {
    pub(super) fn places(&self) -> impl Iterator<Item = &NodeState> {
        self.places.values()
    }

    /// A node of that name.
    pub(super) fn place(&self, name: &str) -> Option<&NodeState> {
        self.places.get(name)
    }

    /// Who is on a node.
    pub(super) fn residents_on(&self, node: &str) -> Vec<Uid> {
        let here = self.residents.iter().filter(|(_, resident)| *resident.node == *node);
        here.map(|(uid, _)| Arc::clone(uid)).collect()
    }

    /// Every pod whose node is known, and the node.
    pub(super) fn residents(&self) -> impl Iterator<Item = (&Resident, &NodeFacts)> {
        self.residents.values().filter_map(|resident| Some((resident, &self.places.get(&resident.node)?.node)))
    }

    /// Whether a pod that has a node uses the claim.
    pub(super) fn uses_claim(&self, claim: &str) -> bool {
        self.residents.values().any(|resident| resident.claims.iter().any(|own| **own == *claim))
    }

    /// Those of them who do not want everybody beside them.
    pub(super) fn with_anti_affinity(&self) -> impl Iterator<Item = (&Resident, &NodeFacts)> {
        let residents = self.with_anti_affinity.iter().filter_map(|uid| self.residents.get(uid));
        residents.filter_map(|resident| Some((resident, &self.places.get(&resident.node)?.node)))
    }

    pub(super) fn resident(&self, uid: &str) -> Option<&Resident> {
        self.residents.get(uid)
    }

    pub(super) fn residents_but(&self, here: &BTreeSet<Uid>) -> Vec<Uid> {
        self.residents.keys().filter(|uid| !here.contains(*uid)).cloned().collect()
    }

    /// A pod is, or will be, on its node.
    pub(super) fn put(&mut self, uid: &Uid, resident: Resident) {
        self.remove(uid);
        if let Some(place) = self.places.get_mut(&resident.node) {
            place.take_in(uid, &resident);
        }
        if !resident.avoids.is_empty() {
            self.with_anti_affinity.insert(Arc::clone(uid));
        }
        self.residents.insert(Arc::clone(uid), resident);
    }

    /// A pod needs its node no more. Whether it was there.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        self.take(uid).is_some()
    }

    /// The same, and who it was.
    pub(super) fn take(&mut self, uid: &str) -> Option<Resident> {
        let resident = self.residents.remove(uid)?;
        self.with_anti_affinity.remove(uid);
        if let Some(place) = self.places.get_mut(&resident.node) {
            place.let_out(uid, &resident);
        }
        Some(resident)
    }

    /// A node is there, or has changed. Whether that matters to anybody.
    pub(super) fn node_seen(&mut self, node: &Node) -> bool {
        let facts = NodeFacts::of(node);
        if let Some(place) = self.places.get_mut(&facts.name) {
            let changed = place.node != facts;
            place.node = facts;
            return changed;
        }
        let name = Arc::clone(&facts.name);
        let mut place = NodeState { node: facts, used: Amounts::default(), crowd: 0, ports: Vec::new() };
        for (uid, resident) in self.residents.iter().filter(|(_, resident)| resident.node == name) {
            place.take_in(uid, resident);
        }
        self.places.insert(name, place);
        true
    }

    pub(super) fn node_gone(&mut self, name: &str) -> bool {
        self.places.remove(name).is_some()
    }

    /// These nodes and no others. Whether that matters to anybody.
    pub(super) fn all_nodes<N: Borrow<Node>>(&mut self, nodes: &[N]) -> bool {
        let names: BTreeSet<String> = nodes.iter().map(|node| node.borrow().name_any()).collect();
        let before = self.places.len();
        self.places.retain(|name, _| names.contains(&**name));
        let mut changed = self.places.len() < before;
        for node in nodes {
            changed |= self.node_seen(node.borrow());
        }
        changed
    }

    /// The name of a node, shared with everybody who has it.
    pub(super) fn node_name(&self, name: &str) -> Arc<str> {
        self.places.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }
}
