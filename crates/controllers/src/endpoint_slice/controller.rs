//! Which services have to be looked at, and what is to be written for them: pure, told facts and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Rank};
use k8s_openapi::api::core::v1::{Endpoints, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::endpoint::{NodeOf, endpoint, ports};
use super::packing::{Group, PortSet, SliceOwner, SliceWrites, port_set};
use super::views::{Family, MANAGED_BY, Name, PodFacts, SERVICE_NAME, ServiceView, Uid, full_name, zone_of};
use super::{legacy, mirroring};
use crate::objects::Objects;
use crate::pod::PodView;

pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// How many endpoints a slice has at most.
const SLICE_MAX: usize = 100;
/// Whoever becomes ready so soon after the last write of its service waits for others who do. A withdrawal never waits.
const BATCH: Duration = Duration::from_millis(10);
/// The server keeps the endpoints of its own service.
const OWN_SERVICE: &str = "default/kubernetes";

const BY_NODE: usize = 0;
const BY_NAMESPACE: usize = 1;

#[derive(Debug)]
pub(super) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Nodes(WatchUpdate<Arc<Node>>),
    Services(WatchUpdate<Arc<ServiceView>>),
    Slices(WatchUpdate<Arc<EndpointSlice>>),
    Endpoints(WatchUpdate<Arc<Endpoints>>),
}

/// What is planned for, by the name of a service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    Slices(Name),
    Endpoints(Name),
    /// The slices that are made from Endpoints that somebody keeps by hand.
    Mirrored(Name),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Action {
    /// Written at the same time.
    Slices {
        creates: Vec<EndpointSlice>,
        updates: Vec<EndpointSlice>,
        deletes: Vec<EndpointSlice>,
    },
    WriteEndpoints(Box<Endpoints>),
    DeleteEndpoints(Arc<Endpoints>),
}

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(super) struct EndpointController {
    services: BTreeMap<Name, Arc<ServiceView>>,
    /// Services by their namespace and one label that they select, so that a pod finds them.
    selecting: BTreeMap<(String, String, String), BTreeSet<Name>>,
    pods: Objects<PodFacts, 2>,
    /// The pods that a service selects, whatever their state.
    members: BTreeMap<Name, BTreeSet<Uid>>,
    nodes: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Slices by their service: those made from pods and those made from Endpoints.
    slices: BTreeMap<Name, BTreeMap<String, Arc<EndpointSlice>>>,
    mirrored: BTreeMap<Name, BTreeMap<String, Arc<EndpointSlice>>>,
    /// Where each slice is kept: whether among the mirrored ones, and under which service.
    homes: BTreeMap<Name, (bool, Name)>,
    endpoints: BTreeMap<Name, Arc<Endpoints>>,
    /// The UID of Endpoints whose service was seen to go.
    left_over: BTreeMap<Name, String>,
    /// Services of which somebody has to be withdrawn: they come first.
    urgent: BTreeSet<Name>,
    written: BTreeMap<Key, Instant>,
    pub(super) slice_max: usize,
}

impl Default for EndpointController {
    fn default() -> Self {
        Self {
            services: BTreeMap::new(),
            selecting: BTreeMap::new(),
            pods: Objects::new([|pod: &PodFacts| pod.node.clone(), |pod: &PodFacts| Some(Arc::clone(&pod.namespace))]),
            members: BTreeMap::new(),
            nodes: BTreeMap::new(),
            slices: BTreeMap::new(),
            mirrored: BTreeMap::new(),
            homes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            left_over: BTreeMap::new(),
            urgent: BTreeSet::new(),
            written: BTreeMap::new(),
            slice_max: SLICE_MAX,
        }
    }
}

fn name_of(object: &impl kube::Resource) -> Name {
    let metadata = object.meta();
    full_name(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Which service a slice is of, by which controller.
fn home(slice: &EndpointSlice) -> Option<(bool, Name)> {
    let label = |key: &str| slice.labels().get(key).map(String::as_str);
    let mirrored = match label(MANAGED_BY)? {
        MANAGER => false,
        mirroring::MANAGER => true,
        _ => return None,
    };
    Some((mirrored, full_name(&slice.namespace().unwrap_or_default(), label(SERVICE_NAME)?)))
}

impl EndpointController {
    /// The services that select a pod.
    fn selecting(&self, pod: &PodFacts) -> Vec<Name> {
        let word =
            |(key, value): &(Box<str>, Box<str>)| (pod.namespace.to_string(), key.to_string(), value.to_string());
        let found = pod.labels.iter().filter_map(|label| self.selecting.get(&word(label))).flatten();
        found.filter(|name| self.services.get(*name).is_some_and(|own| own.takes(&pod.labels))).cloned().collect()
    }

    fn pod_seen(&mut self, pod: &PodView) -> Vec<Name> {
        let Some(uid) = pod.uid().map(Uid::from) else { return Vec::new() };
        let facts = PodFacts::of(pod);
        if self.pods.get(&uid) == Some(&facts) {
            return Vec::new();
        }
        let (new, loses) = (self.selecting(&facts), !facts.takes_connections());
        let old = self.pods.put(Arc::clone(&uid), facts);
        let mut concerned = Vec::new();
        if let Some(old) = old {
            let was = self.selecting(&old);
            for name in was {
                let leaves = !new.contains(&name);
                if leaves && let Some(members) = self.members.get_mut(&name) {
                    members.remove(&uid);
                }
                if old.takes_connections() && (leaves || loses) {
                    self.urgent.insert(Arc::clone(&name));
                }
                concerned.push(name);
            }
        }
        for name in &new {
            self.members.entry(Arc::clone(name)).or_default().insert(Arc::clone(&uid));
        }
        concerned.extend(new);
        concerned
    }

    fn pod_gone(&mut self, uid: &str) -> Vec<Name> {
        let Some(old) = self.pods.remove(uid) else { return Vec::new() };
        let concerned = self.selecting(&old);
        for name in &concerned {
            if let Some(members) = self.members.get_mut(name) {
                members.remove(uid);
            }
            self.urgent.insert(Arc::clone(name));
        }
        concerned
    }

    fn service_gone(&mut self, name: &Name) {
        let Some(old) = self.services.remove(name) else { return };
        if let Some((key, value)) = old.spec.selector.first_key_value() {
            let word = (old.namespace().unwrap_or_default(), key.clone(), value.clone());
            if let Some(names) = self.selecting.get_mut(&word) {
                names.remove(name);
                if names.is_empty() {
                    self.selecting.remove(&word);
                }
            }
        }
        self.members.remove(name);
    }

    fn service_seen(&mut self, service: Arc<ServiceView>) -> Name {
        let name = name_of(&*service);
        self.service_gone(&name);
        self.left_over.remove(&name);
        if let Some((key, value)) = service.spec.selector.first_key_value() {
            let namespace = service.namespace().unwrap_or_default();
            let word = (namespace.clone(), key.clone(), value.clone());
            self.selecting.entry(word).or_default().insert(Arc::clone(&name));
            let here = self.pods.under(BY_NAMESPACE, &namespace);
            let taken = here.filter(|(_, pod)| service.takes(&pod.labels)).map(|(uid, _)| Arc::clone(uid));
            self.members.insert(Arc::clone(&name), taken.collect());
        }
        self.services.insert(Arc::clone(&name), service);
        name
    }

    /// A service was seen to go: its Endpoints go too, whoever made them.
    fn service_removed(&mut self, name: &Name) {
        self.service_gone(name);
        self.urgent.remove(name);
        self.written.retain(|key, _| !matches!(key, Key::Slices(own) | Key::Endpoints(own) if own == name));
        if let Some(uid) = self.endpoints.get(name).and_then(|own| own.uid()).filter(|_| **name != *OWN_SERVICE) {
            self.left_over.insert(Arc::clone(name), uid);
        }
    }

    fn node_changed(&mut self, name: &str, zone: Option<Option<Arc<str>>>) -> Vec<Name> {
        let old = match zone.clone() {
            Some(zone) => self.nodes.insert(name.into(), zone),
            None => self.nodes.remove(name),
        };
        if old == zone {
            return Vec::new();
        }
        self.pods.under(BY_NODE, name).flat_map(|(_, pod)| self.selecting(pod)).collect()
    }

    fn slice_gone(&mut self, slice: &EndpointSlice) -> Vec<Key> {
        // Its labels may have been others when it was kept.
        let Some((mirrored, service)) = self.homes.remove(&name_of(slice)) else { return Vec::new() };
        let kept = if mirrored { &mut self.mirrored } else { &mut self.slices };
        if let Some(slices) = kept.get_mut(&service) {
            slices.remove(&slice.name_any());
            if slices.is_empty() {
                kept.remove(&service);
            }
        }
        vec![key_of(mirrored, &service)]
    }

    fn slice_seen(&mut self, slice: Arc<EndpointSlice>) -> Vec<Key> {
        let mut keys = self.slice_gone(&slice);
        let Some((mirrored, service)) = home(&slice) else { return keys };
        let mut slice = Arc::unwrap_or_clone(slice);
        slice.metadata.managed_fields = None;
        keys.push(key_of(mirrored, &service));
        self.homes.insert(name_of(&slice), (mirrored, Arc::clone(&service)));
        let kept = if mirrored { &mut self.mirrored } else { &mut self.slices };
        kept.entry(service).or_default().insert(slice.name_any(), Arc::new(slice));
        keys
    }

    fn endpoints_seen(&mut self, endpoints: Arc<Endpoints>) -> Name {
        let name = name_of(&*endpoints);
        let mut endpoints = Arc::unwrap_or_clone(endpoints);
        endpoints.metadata.managed_fields = None;
        self.endpoints.insert(Arc::clone(&name), Arc::new(endpoints));
        name
    }

    /// The pods of a service, in the order of their UIDs.
    fn pods_of(&self, name: &Name) -> impl Iterator<Item = (&Uid, &PodFacts)> {
        let uids = self.members.get(name).into_iter().flatten();
        uids.filter_map(|uid| Some((uid, self.pods.get(uid)?)))
    }

    fn node_of(&self, pod: &PodFacts) -> NodeOf<'_> {
        match pod.node.as_ref().map(|name| self.nodes.get(name)) {
            None => NodeOf::Unbound,
            Some(None) => NodeOf::Missing,
            Some(Some(zone)) => NodeOf::Known(zone.as_deref()),
        }
    }

    fn slice_writes(&self, name: &Name) -> SliceWrites {
        let mut writes = SliceWrites::default();
        let Some(service) = self.services.get(name).filter(|service| service.selects_pods()) else { return writes };
        let existing: Vec<&EndpointSlice> = leaving_aside(self.slices.get(name));
        let owner = slice_owner(service, self.slice_max);
        let families = service.families();
        for family in &families {
            let mut groups: BTreeMap<PortSet, Group> = BTreeMap::new();
            for (uid, pod) in self.pods_of(name) {
                let Some(candidate) = endpoint(service, uid, pod, self.node_of(pod), *family) else { continue };
                let ports = ports(service, pod);
                let group = groups.entry(port_set(&ports)).or_default();
                group.ports = ports;
                group.candidates.push(candidate);
            }
            let here: Vec<&EndpointSlice> =
                existing.iter().copied().filter(|slice| slice.address_type == family.name()).collect();
            writes.extend(owner.pack(*family, &here, groups));
        }
        let unwanted = existing
            .into_iter()
            .filter(|slice| Family::named(&slice.address_type).is_none_or(|family| !families.contains(&family)));
        writes.deletes.extend(unwanted.cloned());
        writes
    }

    fn plan_slices(&self, key: &Key, writes: SliceWrites, now: Now) -> Plan<Action> {
        if writes.is_empty() {
            return Plan::default();
        }
        let due = self.written.get(key).map(|at| *at + BATCH).filter(|due| *due > now.instant && !writes.withdraws);
        if let Some(due) = due {
            return Plan::wait(due, "others may become ready by then");
        }
        let SliceWrites { creates, updates, deletes, moves, .. } = writes;
        let slices = |creates, updates, deletes| Action::Slices { creates, updates, deletes };
        let actions = match moves {
            true => vec![slices(creates, vec![], vec![]), slices(vec![], updates, deletes)],
            false => vec![slices(creates, updates, deletes)],
        };
        Plan { actions, wake: None }
    }

    fn plan_endpoints(&self, name: &Name) -> Plan<Action> {
        let found = self.endpoints.get(name);
        match self.services.get(name) {
            Some(service) if service.selects_pods() => {
                let next = legacy::plan(service, self.pods_of(name), found.map(|own| &**own));
                next.map_or_else(Plan::default, |next| Plan::act(Action::WriteEndpoints(Box::new(next))))
            }
            Some(_) => Plan::default(),
            None => {
                let left_over = |own: &&Arc<Endpoints>| {
                    legacy::is_ours(own)
                        || self.left_over.get(name).is_some_and(|uid| Some(uid) == own.metadata.uid.as_ref())
                };
                let gone = found.filter(left_over).filter(|own| own.metadata.deletion_timestamp.is_none());
                gone.map_or_else(Plan::default, |own| Plan::act(Action::DeleteEndpoints(Arc::clone(own))))
            }
        }
    }

    fn mirror_writes(&self, name: &Name) -> SliceWrites {
        let service = self.services.get(name).filter(|service| service.spec.selector.is_empty());
        let endpoints = self.endpoints.get(name).filter(|own| service.is_some() && mirroring::is_mirrored(own));
        let endpoints = endpoints.filter(|own| own.metadata.deletion_timestamp.is_none());
        let existing = leaving_aside(self.mirrored.get(name));
        mirroring::plan(endpoints.map(|own| &**own), &existing, self.slice_max).0
    }
}

/// Slices that are there to stay.
fn leaving_aside(slices: Option<&BTreeMap<String, Arc<EndpointSlice>>>) -> Vec<&EndpointSlice> {
    let all = slices.into_iter().flat_map(BTreeMap::values).map(|slice| &**slice);
    all.filter(|slice| slice.metadata.deletion_timestamp.is_none()).collect()
}

fn slice_owner(service: &ServiceView, slice_max: usize) -> SliceOwner {
    let name = service.name_any();
    let mut labels = service.given_labels();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    SliceOwner {
        namespace: service.namespace().unwrap_or_default(),
        reference: OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: name.clone(),
            uid: service.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
        name,
        labels,
        annotations: None,
        slice_max,
        placeholder: true,
    }
}

fn key_of(mirrored: bool, service: &Name) -> Key {
    let service = Arc::clone(service);
    if mirrored { Key::Mirrored(service) } else { Key::Slices(service) }
}

fn by_pods(names: Vec<Name>) -> Vec<Key> {
    names.into_iter().flat_map(|name| [Key::Slices(Arc::clone(&name)), Key::Endpoints(name)]).collect()
}

fn by_service(name: &Name) -> [Key; 3] {
    [Key::Slices(Arc::clone(name)), Key::Endpoints(Arc::clone(name)), Key::Mirrored(Arc::clone(name))]
}

impl Controller for EndpointController {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, _: Now, input: Input) -> Vec<Key> {
        match input {
            Input::Pods(WatchUpdate::Changed(pod)) => by_pods(self.pod_seen(&pod)),
            Input::Pods(WatchUpdate::Removed(pod)) => by_pods(self.pod_gone(&pod.uid().unwrap_or_default())),
            Input::Pods(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|pod| pod.uid().map(Uid::from)).collect();
                let gone = self.pods.missing_from(&here);
                let mut names: Vec<Name> = gone.iter().flat_map(|uid| self.pod_gone(uid)).collect();
                names.extend(all.iter().flat_map(|pod| self.pod_seen(pod)));
                by_pods(names)
            }
            Input::Nodes(WatchUpdate::Changed(node)) => {
                by_pods(self.node_changed(&node.name_any(), Some(zone_of(&node))))
            }
            Input::Nodes(WatchUpdate::Removed(node)) => by_pods(self.node_changed(&node.name_any(), None)),
            Input::Nodes(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<String> = all.iter().map(|node| node.name_any()).collect();
                let gone: Vec<Arc<str>> = self.nodes.keys().filter(|name| !here.contains(&***name)).cloned().collect();
                let mut names: Vec<Name> = gone.iter().flat_map(|name| self.node_changed(name, None)).collect();
                names.extend(all.iter().flat_map(|node| self.node_changed(&node.name_any(), Some(zone_of(node)))));
                by_pods(names)
            }
            Input::Services(WatchUpdate::Changed(service)) => by_service(&self.service_seen(service)).into(),
            Input::Services(WatchUpdate::Removed(service)) => {
                let name = name_of(&*service);
                self.service_removed(&name);
                by_service(&name).into()
            }
            Input::Services(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Name> = all.iter().map(|service| name_of(&**service)).collect();
                let gone: Vec<Name> = self.services.keys().filter(|name| !here.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.service_removed(name));
                let seen: Vec<Name> = all.into_iter().map(|service| self.service_seen(service)).collect();
                gone.iter().chain(&seen).flat_map(by_service).collect()
            }
            Input::Slices(WatchUpdate::Changed(slice)) => self.slice_seen(slice),
            Input::Slices(WatchUpdate::Removed(slice)) => self.slice_gone(&slice),
            Input::Slices(WatchUpdate::Listed(all)) => {
                self.homes.clear();
                let old = std::mem::take(&mut self.slices).into_keys().map(Key::Slices);
                let mut keys: Vec<Key> =
                    old.chain(std::mem::take(&mut self.mirrored).into_keys().map(Key::Mirrored)).collect();
                keys.extend(all.into_iter().flat_map(|slice| self.slice_seen(slice)));
                keys
            }
            Input::Endpoints(WatchUpdate::Changed(one)) => {
                let name = self.endpoints_seen(one);
                vec![Key::Endpoints(Arc::clone(&name)), Key::Mirrored(name)]
            }
            Input::Endpoints(WatchUpdate::Removed(one)) => {
                let name = name_of(&*one);
                self.endpoints.remove(&name);
                self.left_over.remove(&name);
                vec![Key::Endpoints(Arc::clone(&name)), Key::Mirrored(name)]
            }
            Input::Endpoints(WatchUpdate::Listed(all)) => {
                let mut names: BTreeSet<Name> = std::mem::take(&mut self.endpoints).into_keys().collect();
                names.extend(all.into_iter().map(|one| self.endpoints_seen(one)));
                self.left_over.retain(|name, _| self.endpoints.contains_key(name));
                names.into_iter().flat_map(|name| [Key::Endpoints(Arc::clone(&name)), Key::Mirrored(name)]).collect()
            }
        }
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Slices(name) => self.plan_slices(key, self.slice_writes(name), now),
            Key::Mirrored(name) => self.plan_slices(key, self.mirror_writes(name), now),
            Key::Endpoints(name) => self.plan_endpoints(name),
        }
    }

    /// Withdrawals come first, then slices, then those who read Endpoints.
    fn rank(&self, key: &Key) -> Rank {
        match key {
            Key::Slices(name) if self.urgent.contains(name) => (0, 0),
            Key::Slices(_) => (1, 0),
            Key::Endpoints(_) | Key::Mirrored(_) => (2, 0),
        }
    }

    fn begun(&mut self, now: Now, key: &Key, _: &[Action]) {
        match key {
            Key::Slices(name) => {
                self.urgent.remove(name);
                self.written.insert(key.clone(), now.instant);
            }
            Key::Mirrored(_) => drop(self.written.insert(key.clone(), now.instant)),
            Key::Endpoints(_) => {}
        }
    }

    fn ended(&mut self, _: Now, _: &Key, _: Action, _: Outcome<()>) -> Vec<Key> {
        Vec::new()
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
