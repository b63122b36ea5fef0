//! The nodes, and who is where: no more of each pod than others need to know who want to be beside it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod::{self, HostPort};
use api::volume::VOLUMES_DIRECTORY;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, PodAffinityTerm, Taint};
use kube::ResourceExt as _;

use super::affinity::{self, Preference};
use super::resources::{Amounts, NonZeroRequest};
use super::volumes;
use crate::controller_ref::controller_of;
use crate::objects::{Objects, owner_word};
use crate::pod::PodView;
use crate::pod_names::fnv1a;
use crate::volume_objects::{Name, VolumeObjects};

/// So many names of images are kept of a node. What a node says is bounded by the size of its object, and it says no more than this
/// of what it has.
const IMAGE_NAMES_MAX: usize = 1000;

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
    /// Its agent makes directories of volumes.
    pub(super) makes_volumes: bool,
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
            makes_volumes: node.annotations().contains_key(VOLUMES_DIRECTORY),
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
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    /// The UID of the set that it is a replica of, if it is one.
    pub(super) owner: Option<Arc<str>>,
    pub(super) priority: i32,
    /// Since when it exists.
    pub(super) since: Option<Timestamp>,
    /// It was asked to leave.
    pub(super) leaving: bool,
    pub(super) labels: Labels,
    asked: Amounts,
    nonzero: NonZeroRequest,
    ports: Box<[HostPort]>,
    /// Whom it does not want beside it.
    pub(super) avoids: Box<[PodAffinityTerm]>,
    /// Whom it would rather have beside it, or not.
    pub(super) prefers: Box<[Preference]>,
    /// The claims that it uses.
    claims: Box<[Name]>,
}

impl Resident {
    pub(super) fn of(pod: &PodView, node: Arc<str>) -> Self {
        let asked = Amounts::of_pod(pod);
        let labels = pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        Self {
            node,
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            owner: owner_of(pod),
            // Nothing comes of asking a mirror to leave: its node runs the pod by itself.
            priority: if pod::is_mirror(pod) { i32::MAX } else { pod::priority(pod) },
            since: pod.creation_timestamp().map(|time| time.0),
            leaving: pod::is_terminating(pod),
            labels: Labels(labels.collect()),
            nonzero: NonZeroRequest::of(pod, &asked),
            asked,
            ports: pod::host_ports(pod).collect(),
            avoids: affinity::required(pod, false).into(),
            prefers: affinity::preferences(pod, true).into(),
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

/// The UID of the set that a pod is a replica of: pods of a set are spread though they say nothing about it.
pub(super) fn owner_of(pod: &PodView) -> Option<Arc<str>> {
    let owner = controller_of(&pod.metadata)?;
    let is_set = matches!(owner.kind.as_str(), "ReplicaSet" | "ReplicationController" | "StatefulSet");
    is_set.then(|| owner.uid.as_str().into())
}

/// What an image is known by: its name without what is the same for all, as a number.
pub(super) fn image_key(name: &str) -> u64 {
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    match last.contains([':', '@']) {
        true => fnv1a(name.as_bytes()),
        false => fnv1a(format!("{name}:latest").as_bytes()),
    }
}

/// Those for whom room was made on a node, by the node, and who are not there yet.
pub(super) type Nominees = BTreeMap<Arc<str>, Vec<Resident>>;

/// A node, and what is taken of it.
#[derive(Clone)]
pub(super) struct NodeState {
    pub(super) node: NodeFacts,
    pub(super) used: Amounts,
    /// The same as nodes are compared by.
    pub(super) nonzero: NonZeroRequest,
    /// How many pods are there.
    pub(super) crowd: usize,
    /// Ports of the node that pods there have, and whose they are.
    pub(super) ports: Vec<(Uid, HostPort)>,
    /// Its images by [`image_key`], in order, and how large they are.
    images: Box<[(u64, i64)]>,
}

impl NodeState {
    fn new(node: NodeFacts, images: Box<[(u64, i64)]>) -> Self {
        let (used, nonzero) = (Amounts::default(), NonZeroRequest::default());
        Self { node, used, nonzero, crowd: 0, ports: Vec::new(), images }
    }

    /// How large an image is that the node has.
    pub(super) fn image_size(&self, image: u64) -> Option<i64> {
        let at = self.images.binary_search_by_key(&image, |(own, _)| *own).ok()?;
        self.images.get(at).map(|(_, size)| *size)
    }

    fn take_in(&mut self, uid: &Uid, resident: &Resident) {
        self.used.add(&resident.asked);
        self.nonzero.add(resident.nonzero);
        self.crowd += 1;
        self.ports.extend(resident.ports.iter().map(|port| (Arc::clone(uid), *port)));
    }

    fn let_out(&mut self, uid: &str, resident: &Resident) {
        self.used.subtract(&resident.asked);
        self.nonzero.subtract(resident.nonzero);
        self.crowd -= 1;
        self.ports.retain(|(whose, _)| **whose != *uid);
    }
}

/// Indices of residents: by their node, by their namespace, and by the set that they are replicas of.
const BY_NODE: usize = 0;
const BY_NAMESPACE: usize = 1;
const BY_OWNER: usize = 2;

/// The nodes, and who is where.
#[derive(Clone)]
pub(super) struct World {
    places: BTreeMap<Arc<str>, NodeState>,
    residents: Objects<Resident, 3>,
    /// Those who do not want everybody beside them.
    with_anti_affinity: BTreeSet<Uid>,
    /// Those who would rather have some beside them than others.
    with_preferences: BTreeSet<Uid>,
    /// The labels of namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Claims, volumes and classes.
    pub(super) volumes: Arc<VolumeObjects>,
}

impl Default for World {
    fn default() -> Self {
        let residents = Objects::new([
            |it: &Resident| Some(Arc::clone(&it.node)),
            |it: &Resident| Some(Arc::clone(&it.namespace)),
            |it: &Resident| it.owner.as_ref().map(|owner| owner_word(&it.namespace, owner)),
        ]);
        Self {
            places: BTreeMap::new(),
            residents,
            with_anti_affinity: BTreeSet::new(),
            with_preferences: BTreeSet::new(),
            namespaces: BTreeMap::new(),
            volumes: Arc::default(),
        }
    }
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
        self.residents.under(BY_NODE, node).map(|(uid, _)| Arc::clone(uid)).collect()
    }

    /// The pods of a namespace that have a node.
    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Resident> {
        self.residents.under(BY_NAMESPACE, namespace).map(|(_, resident)| resident)
    }

    /// The replicas of a set that have a node.
    pub(super) fn owned(&self, namespace: &str, owner: &str) -> impl Iterator<Item = &Resident> {
        self.residents.owned(BY_OWNER, namespace, owner).map(|(_, resident)| resident)
    }

    /// The labels of a namespace.
    pub(super) fn namespace(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(name)
    }

    /// A namespace is there, or has changed. Whether that matters to anybody.
    pub(super) fn namespace_seen(&mut self, namespace: &Namespace) -> bool {
        let old = self.namespaces.insert(namespace.name_any(), namespace.labels().clone());
        old.as_ref() != Some(namespace.labels())
    }

    pub(super) fn namespace_gone(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Forgets all namespaces but these.
    pub(super) fn keep_namespaces(&mut self, names: &BTreeSet<String>) {
        self.namespaces.retain(|name, _| names.contains(name));
    }

    /// Every pod whose node is known, and the node.
    pub(super) fn residents(&self) -> impl Iterator<Item = (&Resident, &NodeFacts)> {
        self.residents.iter().filter_map(|(_, resident)| Some((resident, &self.places.get(&resident.node)?.node)))
    }

    /// Whether a pod that has a node uses the claim.
    pub(super) fn uses_claim(&self, claim: &str) -> bool {
        self.residents.iter().any(|(_, resident)| resident.claims.iter().any(|own| **own == *claim))
    }

    /// Those of them who do not want everybody beside them.
    pub(super) fn with_anti_affinity(&self) -> impl Iterator<Item = (&Resident, &NodeFacts)> {
        let residents = self.with_anti_affinity.iter().filter_map(|uid| self.residents.get(uid));
        residents.filter_map(|resident| Some((resident, &self.places.get(&resident.node)?.node)))
    }

    /// Those of them who would rather have some beside them than others.
    pub(super) fn with_preferences(&self) -> impl Iterator<Item = (&Resident, &NodeFacts)> {
        let residents = self.with_preferences.iter().filter_map(|uid| self.residents.get(uid));
        residents.filter_map(|resident| Some((resident, &self.places.get(&resident.node)?.node)))
    }

    pub(super) fn resident(&self, uid: &str) -> Option<&Resident> {
        self.residents.get(uid)
    }

    pub(super) fn residents_but(&self, here: &BTreeSet<Uid>) -> Vec<Uid> {
        self.residents.missing_from(here)
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
        if !resident.prefers.is_empty() {
            self.with_preferences.insert(Arc::clone(uid));
        }
        self.residents.put(Arc::clone(uid), resident);
    }

    /// A pod needs its node no more. Whether it was there.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        self.take(uid).is_some()
    }

    /// The same, and who it was.
    pub(super) fn take(&mut self, uid: &str) -> Option<Resident> {
        let resident = self.residents.remove(uid)?;
        self.with_anti_affinity.remove(uid);
        self.with_preferences.remove(uid);
        if let Some(place) = self.places.get_mut(&resident.node) {
            place.let_out(uid, &resident);
        }
        Some(resident)
    }

    /// A node is there, or has changed. Whether that matters to anybody.
    pub(super) fn node_seen(&mut self, node: &Node) -> bool {
        let (facts, images) = (NodeFacts::of(node), images_of(node));
        if let Some(place) = self.places.get_mut(&facts.name) {
            let changed = place.node != facts;
            place.images = images;
            place.node = facts;
            return changed;
        }
        let name = Arc::clone(&facts.name);
        let mut place = NodeState::new(facts, images);
        for (uid, resident) in self.residents.under(BY_NODE, &name) {
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

/// The images that a node says it has, by each of their names.
fn images_of(node: &Node) -> Box<[(u64, i64)]> {
    let images = node.status.iter().flat_map(|status| status.images.iter().flatten());
    let named = images.flat_map(|image| {
        let size = image.size_bytes.unwrap_or(0).max(0);
        image.names.iter().flatten().map(move |name| (image_key(name), size))
    });
    let mut images: Vec<(u64, i64)> = named.take(IMAGE_NAMES_MAX).collect();
    images.sort_unstable();
    images.dedup_by_key(|(image, _)| *image);
    images.into()
}
