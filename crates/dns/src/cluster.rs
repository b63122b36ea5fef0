//! The objects of the API as names: what changes in Services, EndpointSlices, pods and namespaces changes the [`Snapshot`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use client::Change;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service as ApiService};
use k8s_openapi::api::discovery::v1::{Endpoint as ApiEndpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;

use crate::records::{Endpoint, Key, PodRecords, Port, Protocol, Service, ServiceKind, Snapshot};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// On a pod: `true` keeps its own name, not its place in the Service's, until it is gone.
const KEEP_POD_RECORD: &str = "adieu.dev/keep-pod-record";

/// One thing that was told.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a queue of a thousand at most")]
pub(crate) enum Event {
    Service(Change<ApiService>),
    Slice(Change<EndpointSlice>),
    Pod(Change<Pod>),
    Namespace(Change<PartialObjectMeta<Namespace>>),
}

/// What is not yet listed of what is followed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Collection {
    Services,
    Slices,
    Pods,
    Namespaces,
}

/// What a Service says of itself.
#[derive(Debug)]
struct Facts {
    leads_to: LeadsTo,
    ports: Vec<Port>,
    publishes_not_ready: bool,
}

#[derive(Debug)]
enum LeadsTo {
    Addresses(Vec<IpAddr>),
    Endpoints,
    Name(String),
}

/// Somebody behind a Service, whether or not it is told of.
#[derive(Debug)]
struct Listed {
    is_ready: bool,
    /// Its pod, if it leaves.
    leaving: Option<Key>,
    endpoint: Endpoint,
}

/// What is known of the API's objects.
#[derive(Debug)]
pub(crate) struct Cluster {
    services: HashMap<Key, Facts>,
    /// By Service, then by the name of the slice.
    slices: HashMap<Key, BTreeMap<String, Vec<Listed>>>,
    slice_owners: HashMap<Key, Key>,
    pods: HashMap<Key, Vec<IpAddr>>,
    /// Pods that keep their record while they leave.
    keeping: BTreeSet<Key>,
    namespaces: BTreeSet<String>,
    unlisted: BTreeSet<Collection>,
    snapshot: Snapshot,
}

impl Cluster {
    /// One of which nothing is known. Who cannot know of all pods follows neither them nor namespaces.
    pub(crate) fn new(pod_records: PodRecords) -> Self {
        let mut unlisted = BTreeSet::from([Collection::Services, Collection::Slices]);
        if pod_records == PodRecords::Verified {
            unlisted.extend([Collection::Pods, Collection::Namespaces]);
        }
        Self {
            services: HashMap::new(),
            slices: HashMap::new(),
            slice_owners: HashMap::new(),
            pods: HashMap::new(),
            keeping: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            unlisted,
            snapshot: Snapshot::new(pod_records),
        }
    }

    /// The names, once everything was listed.
    pub(crate) fn known(&self) -> Option<&Snapshot> {
        self.unlisted.is_empty().then_some(&self.snapshot)
    }

    /// Takes what was told.
    pub(crate) fn hear(&mut self, event: Event) {
        self.snapshot.serial = self.snapshot.serial.wrapping_add(1);
        match event {
            Event::Service(change) => self.hear_service(change),
            Event::Slice(change) => self.hear_slice(change),
            Event::Pod(change) => self.hear_pod(change),
            Event::Namespace(change) => self.hear_namespace(change),
        }
    }

    fn hear_service(&mut self, change: Change<ApiService>) {
        match change {
            Change::Listed(all, _) => {
                let mut touched: BTreeSet<Key> = self.services.drain().map(|(key, _)| key).collect();
                for service in all {
                    let key = key_of(&service.metadata);
                    self.services.insert(key.clone(), facts(&service));
                    touched.insert(key);
                }
                touched.iter().for_each(|key| self.refresh(key));
                self.unlisted.remove(&Collection::Services);
            }
            Change::Changed(service) => {
                let key = key_of(&service.metadata);
                self.services.insert(key.clone(), facts(&service));
                self.refresh(&key);
            }
            Change::Removed(service) => {
                let key = key_of(&service.metadata);
                self.services.remove(&key);
                self.refresh(&key);
            }
            Change::Reached(_) => {}
        }
    }

    fn hear_slice(&mut self, change: Change<EndpointSlice>) {
        let mut touched = BTreeSet::new();
        match change {
            Change::Listed(all, _) => {
                touched.extend(self.slices.drain().map(|(key, _)| key));
                self.slice_owners.clear();
                for slice in &all {
                    self.put_slice(slice, &mut touched);
                }
                self.unlisted.remove(&Collection::Slices);
            }
            Change::Changed(slice) => {
                self.remove_slice(&key_of(&slice.metadata), &mut touched);
                self.put_slice(&slice, &mut touched);
            }
            Change::Removed(slice) => self.remove_slice(&key_of(&slice.metadata), &mut touched),
            Change::Reached(_) => {}
        }
        touched.iter().for_each(|key| self.refresh(key));
    }

    fn put_slice(&mut self, slice: &EndpointSlice, touched: &mut BTreeSet<Key>) {
        let (namespace, name) = key_of(&slice.metadata);
        let Some(service) = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)) else { return };
        let owner = (namespace.clone(), service.clone());
        self.slices.entry(owner.clone()).or_default().insert(name.clone(), endpoints(slice));
        self.slice_owners.insert((namespace, name), owner.clone());
        touched.insert(owner);
    }

    fn remove_slice(&mut self, slice: &Key, touched: &mut BTreeSet<Key>) {
        let Some(owner) = self.slice_owners.remove(slice) else { return };
        if let Some(slices) = self.slices.get_mut(&owner) {
            slices.remove(&slice.1);
            if slices.is_empty() {
                self.slices.remove(&owner);
            }
        }
        touched.insert(owner);
    }

    fn hear_pod(&mut self, change: Change<Pod>) {
        match change {
            Change::Listed(all, _) => {
                for ((namespace, _), addresses) in std::mem::take(&mut self.pods) {
                    addresses.into_iter().for_each(|address| self.snapshot.remove_pod(&namespace, address));
                }
                let kept = std::mem::take(&mut self.keeping);
                all.iter().for_each(|pod| self.put_pod(pod));
                kept.iter().for_each(|pod| self.refresh_services_of(pod));
                self.unlisted.remove(&Collection::Pods);
            }
            Change::Changed(pod) => self.put_pod(&pod),
            Change::Removed(pod) => {
                let key = key_of(&pod.metadata);
                self.remove_pod(&key);
                if self.keeping.remove(&key) {
                    self.refresh_services_of(&key);
                }
            }
            Change::Reached(_) => {}
        }
    }

    fn put_pod(&mut self, pod: &Pod) {
        let key = key_of(&pod.metadata);
        let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(KEEP_POD_RECORD));
        if (annotation.map(String::as_str) == Some("true")) != self.keeping.contains(&key) {
            if !self.keeping.remove(&key) {
                self.keeping.insert(key.clone());
            }
            self.refresh_services_of(&key);
        }
        let addresses = pod_addresses(pod);
        if self.pods.get(&key).map_or(&[][..], Vec::as_slice) == addresses {
            return;
        }
        self.remove_pod(&key);
        addresses.iter().for_each(|address| self.snapshot.add_pod(&key.0, *address));
        self.pods.insert(key, addresses);
    }

    fn remove_pod(&mut self, key: &Key) {
        for address in self.pods.remove(key).into_iter().flatten() {
            self.snapshot.remove_pod(&key.0, address);
        }
    }

    fn hear_namespace(&mut self, change: Change<PartialObjectMeta<Namespace>>) {
        match change {
            Change::Listed(all, _) => {
                for namespace in std::mem::take(&mut self.namespaces) {
                    self.snapshot.remove_namespace(&namespace);
                }
                for namespace in all {
                    self.put_namespace(namespace.metadata.name.unwrap_or_default());
                }
                self.unlisted.remove(&Collection::Namespaces);
            }
            Change::Changed(namespace) => self.put_namespace(namespace.metadata.name.unwrap_or_default()),
            Change::Removed(namespace) => {
                let name = namespace.metadata.name.unwrap_or_default();
                self.snapshot.remove_namespace(&name);
                self.namespaces.remove(&name);
            }
            Change::Reached(_) => {}
        }
    }

    fn put_namespace(&mut self, name: String) {
        self.snapshot.add_namespace(&name);
        self.namespaces.insert(name);
    }

    /// Seldom: what a pod keeps is said when it is made.
    fn refresh_services_of(&mut self, pod: &Key) {
        let lists = |slices: &BTreeMap<String, Vec<Listed>>| {
            slices.values().flatten().any(|listed| listed.leaving.as_ref() == Some(pod))
        };
        let of_pod = self.slices.iter().filter(|(key, slices)| key.0 == pod.0 && lists(slices));
        let touched: Vec<Key> = of_pod.map(|(key, _)| key.clone()).collect();
        touched.iter().for_each(|key| self.refresh(key));
    }

    /// Computes what a Service leads to from what is known of it.
    fn refresh(&mut self, key: &Key) {
        let (namespace, name) = key;
        let Some(facts) = self.services.get(key) else { return self.snapshot.remove_service(namespace, name) };
        let kind = match &facts.leads_to {
            LeadsTo::Addresses(addresses) => ServiceKind::Addresses(addresses.clone()),
            LeadsTo::Name(name) => ServiceKind::External(name.clone()),
            LeadsTo::Endpoints => {
                let listed = self.slices.get(key).into_iter().flat_map(|slices| slices.values().flatten());
                let told = listed.filter_map(|listed| {
                    let is_told = listed.is_ready || facts.publishes_not_ready;
                    let is_kept = || listed.leaving.as_ref().is_some_and(|pod| self.keeping.contains(pod));
                    (is_told || is_kept()).then(|| Endpoint { by_name_only: !is_told, ..listed.endpoint.clone() })
                });
                ServiceKind::Headless(told.collect())
            }
        };
        let service = Service { kind, ports: facts.ports.clone() };
        if self.snapshot.service(namespace, name) != Some(&service) {
            self.snapshot.add_service(namespace, name, service);
        }
    }
}

fn key_of(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn facts(service: &ApiService) -> Facts {
    let spec = service.spec.clone().unwrap_or_default();
    let first = spec.cluster_ip.into_iter();
    let addresses: BTreeSet<String> = first.chain(spec.cluster_ips.into_iter().flatten()).collect();
    let leads_to = if spec.type_.as_deref() == Some("ExternalName") {
        LeadsTo::Name(spec.external_name.unwrap_or_default())
    } else if addresses.contains("None") {
        LeadsTo::Endpoints
    } else {
        LeadsTo::Addresses(addresses.iter().filter_map(|address| address.parse().ok()).collect())
    };
    let ports = spec.ports.into_iter().flatten();
    let ports = ports.filter_map(|it| port(it.name, it.protocol.as_deref(), Some(it.port))).collect();
    Facts { leads_to, ports, publishes_not_ready: spec.publish_not_ready_addresses.unwrap_or(false) }
}

/// A port with a name; the others are not found by any.
fn port(name: Option<String>, protocol: Option<&str>, number: Option<i32>) -> Option<Port> {
    let protocol = match protocol {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => return None,
    };
    let name = name.filter(|name| !name.is_empty())?.to_ascii_lowercase();
    Some(Port { name, protocol, number: u16::try_from(number?).ok()? })
}

/// Whoever a slice lists, once for each of its addresses. Those that are names have none.
fn endpoints(slice: &EndpointSlice) -> Vec<Listed> {
    let ports = slice.ports.iter().flatten();
    let ports: Vec<Port> = ports.filter_map(|it| port(it.name.clone(), it.protocol.as_deref(), it.port)).collect();
    let read = |endpoint: &ApiEndpoint| {
        let conditions = endpoint.conditions.as_ref();
        let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
        let is_leaving = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
        let pod = endpoint.target_ref.as_ref().filter(|target| is_leaving && target.kind.as_deref() == Some("Pod"));
        let pod = pod.map(|pod| {
            let namespace = pod.namespace.clone().or_else(|| slice.metadata.namespace.clone());
            (namespace.unwrap_or_default(), pod.name.clone().unwrap_or_default())
        });
        let hostname = endpoint.hostname.clone().filter(|hostname| !hostname.is_empty());
        let (hostname, ports) = (hostname.map(|name| name.to_ascii_lowercase()), ports.clone());
        let addresses: Vec<IpAddr> = endpoint.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        addresses.into_iter().map(move |address| {
            let (hostname, ports) = (hostname.clone(), ports.clone());
            let endpoint = Endpoint { address, hostname, ports, by_name_only: false };
            Listed { is_ready, leaving: pod.clone(), endpoint }
        })
    };
    slice.endpoints.iter().flatten().flat_map(read).collect()
}

/// Where a pod is; one that is over is nowhere.
fn pod_addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Vec::new();
    }
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let all: BTreeSet<&str> = status.pod_ip.as_deref().into_iter().chain(all).collect();
    all.into_iter().filter_map(|address| address.parse().ok()).collect()
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
