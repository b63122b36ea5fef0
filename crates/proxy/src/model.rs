//! What Services, EndpointSlices and cuts say together: for each address and port of a Service, who takes new connections.
//!
//! Nothing here waits or speaks to anybody. A Service that is touched is computed anew, alone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::addresses::{Network, is_endpoint_address};
use crate::host_listeners::HostListeners;
use crate::wanted::{Backend, Frontend, Mark, Nobody, Space, Wanted};
use crate::{CutMode, PodEndpoint, Protocol, Reach};

mod resolved;
mod service;

use resolved::{Resolved, Takers};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// So many siblings stand in for a pod that is cut: each costs an element, and every pod of a large rollout is cut for a while.
const STAND_INS_MAX: usize = 8;

/// The label of a node that says in which zone it is.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Zones that an endpoint is meant for beyond these are left out: upstream's validation allows as many.
const HINTS_MAX: usize = 8;

/// Labels of a Service that another program serves, whatever their values.
const ANOTHERS: [&str; 2] = ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"];

/// Whether a Service is none of this proxy's.
fn is_anothers(service: &Service) -> bool {
    service.metadata.labels.iter().any(|labels| ANOTHERS.iter().any(|label| labels.contains_key(*label)))
}

/// A Service, by namespace and name.
pub(crate) type ServiceKey = (String, String);

/// What a Service wants of the node itself: node ports with the ports they are of, and addresses.
type Claims = (BTreeSet<(Option<i32>, i32)>, BTreeSet<IpAddr>);

/// The Services that list something, and how often each does.
type Listings = BTreeMap<ServiceKey, usize>;

/// The name of a port, its protocol and number.
type TargetPort = (String, Protocol, u16);

/// What is true of this node.
#[derive(Clone, Default, Debug)]
pub(crate) struct NodeFacts {
    /// Its name.
    pub(crate) name: String,
    /// The addresses at which node ports are served.
    pub(crate) addresses: Vec<IpAddr>,
    /// Where its pods and the Services have their addresses: networks that no external address of a Service may be in.
    pub(crate) inside: Vec<Network>,
    /// The networks in which `spec.externalIPs` are served.
    pub(crate) external_ips: Vec<Network>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Endpoint {
    address: IpAddr,
    uid: Option<String>,
    node: Option<String>,
    ready: bool,
    serving: bool,
    terminating: bool,
    /// By the name of the port and its protocol.
    ports: Arc<[TargetPort]>,
    /// Whether its hints name this node; nothing if they name none.
    for_this_node: Option<bool>,
    /// The zones that its hints name.
    for_zones: Box<[String]>,
}

#[derive(Clone, Debug)]
struct Cut {
    pod: PodEndpoint,
    mode: CutMode,
    departed: bool,
    /// On which ports Services led to it: whoever has cached its address dials them when no slice lists it any more.
    ports: BTreeMap<ServiceKey, BTreeSet<(Protocol, u16)>>,
}

/// What is known.
#[derive(Debug)]
pub(crate) struct Model {
    node: NodeFacts,
    /// The zone of this node, if it is in one.
    zone: Option<String>,
    services: BTreeMap<ServiceKey, Service>,
    slices: BTreeMap<ServiceKey, BTreeMap<String, Vec<Endpoint>>>,
    /// Which Service a slice belongs to, by namespace and name of the slice.
    slice_owners: BTreeMap<(String, String), ServiceKey>,
    /// Which Services list a pod, by its UID and by where they lead: who writes slices says both, together or not.
    by_uid: BTreeMap<String, Listings>,
    by_address: BTreeMap<IpAddr, Listings>,
    /// Pods of this node, as it says itself: those that are followed and those that are cut.
    known: BTreeMap<String, PodEndpoint>,
    /// Whose an address is, among those; none of the node's own, which several have.
    holders: BTreeMap<IpAddr, String>,
    cuts: BTreeMap<String, Cut>,
    /// Addresses that were cut before a restart, until somebody says what is to become of them.
    inherited: BTreeSet<IpAddr>,
    /// Somebody said so of one of them: what is left of its cut is nobody's.
    is_disinherited: bool,
    touched: BTreeSet<ServiceKey>,
    /// Pods that a touched Service listed before, and those that were cut or are no longer.
    touched_pods: BTreeSet<String>,
    /// Endpoints of Services as they were last asked for, until they are touched.
    resolved: RefCell<BTreeMap<ServiceKey, Arc<Resolved>>>,
    /// Which ports programs of this machine have, and for whom that was looked up.
    listeners: HostListeners,
    judged: BTreeMap<ServiceKey, Claims>,
    /// Whether Services and slices were listed.
    listed: (bool, bool),
}

impl Model {
    pub(crate) fn new(node: NodeFacts) -> Self {
        Self {
            node,
            zone: None,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            slice_owners: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            by_address: BTreeMap::new(),
            known: BTreeMap::new(),
            holders: BTreeMap::new(),
            cuts: BTreeMap::new(),
            inherited: BTreeSet::new(),
            is_disinherited: false,
            touched: BTreeSet::new(),
            touched_pods: BTreeSet::new(),
            resolved: RefCell::default(),
            listeners: HostListeners::default(),
            judged: BTreeMap::new(),
            listed: (false, false),
        }
    }

    /// What the API said is forgotten, and listed anew; which pods that are still here are cut is not.
    pub(crate) fn begin_again(&mut self) {
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.retain(|_, cut| !cut.departed);
        let touched_pods = cuts.keys().cloned().collect();
        let (known, holders) = (std::mem::take(&mut self.known), std::mem::take(&mut self.holders));
        let (inherited, zone) = (std::mem::take(&mut self.inherited), self.zone.take());
        *self = Self { cuts, known, holders, inherited, touched_pods, zone, ..Self::new(self.node.clone()) };
    }

    /// Takes note of a node: of this one, in which zone it is.
    pub(crate) fn set_node(&mut self, node: &Node) {
        if node.metadata.name.as_ref() != Some(&self.node.name) {
            return;
        }
        let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE)).filter(|zone| !zone.is_empty());
        if self.zone.as_ref() != zone {
            self.zone = zone.cloned();
            let is_hinted = |slices: &BTreeMap<String, Vec<Endpoint>>| {
                slices.values().flatten().any(|endpoint| !endpoint.for_zones.is_empty())
            };
            let hinted = self.slices.iter().filter(|(_, slices)| is_hinted(slices));
            let hinted: Vec<_> = hinted.map(|(key, _)| key.clone()).collect();
            hinted.into_iter().for_each(|key| self.touch(key));
        }
    }

    pub(crate) fn services_listed(&mut self) {
        self.listed.0 = true;
    }

    pub(crate) fn slices_listed(&mut self) {
        self.listed.1 = true;
    }

    /// Whether all Services and slices are known: before, nothing can be said of a pod.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed == (true, true)
    }

    pub(crate) fn set_service(&mut self, service: Service) {
        let key =
            (service.metadata.namespace.clone().unwrap_or_default(), service.metadata.name.clone().unwrap_or_default());
        if is_anothers(&service) {
            return self.remove_service(&key);
        }
        self.touch(key.clone());
        self.services.insert(key, service);
    }

    pub(crate) fn remove_service(&mut self, key: &ServiceKey) {
        self.touch(key.clone());
        self.judged.remove(key);
        self.services.remove(key);
    }

    pub(crate) fn service_keys(&self) -> Vec<ServiceKey> {
        self.services.keys().cloned().collect()
    }

    pub(crate) fn slice_keys(&self) -> Vec<(String, String)> {
        self.slice_owners.keys().cloned().collect()
    }

    pub(crate) fn set_slice(&mut self, slice: &EndpointSlice) {
        let namespace = slice.metadata.namespace.clone().unwrap_or_default();
        let name = slice.metadata.name.clone().unwrap_or_default();
        let owner = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)).cloned();
        self.remove_slice(&(namespace.clone(), name.clone()));
        let Some(owner) = owner.filter(|_| slice.address_type != "FQDN") else { return };
        let key = (namespace.clone(), owner);
        let endpoints = endpoints(slice, &self.node.name);
        for endpoint in &endpoints {
            if let Some(uid) = &endpoint.uid {
                list(&mut self.by_uid, uid.clone(), &key);
            }
            list(&mut self.by_address, endpoint.address, &key);
            let owner = self.owner_of(endpoint, &key).map(str::to_owned);
            if let Some(cut) = owner.and_then(|uid| self.cuts.get_mut(&uid)).filter(|cut| cut.pod.namespace == key.0) {
                cut.ports.entry(key.clone()).or_default().extend(endpoint.numbers());
            }
        }
        self.slices.entry(key.clone()).or_default().insert(name.clone(), endpoints);
        self.slice_owners.insert((namespace, name), key.clone());
        self.touch(key);
    }

    pub(crate) fn remove_slice(&mut self, slice: &(String, String)) {
        let Some(key) = self.slice_owners.remove(slice) else { return };
        let Some(slices) = self.slices.get_mut(&key) else { return };
        let endpoints = slices.remove(&slice.1).unwrap_or_default();
        if slices.is_empty() {
            self.slices.remove(&key);
        }
        for endpoint in endpoints {
            if let Some(uid) = self.owner_of(&endpoint, &key).map(str::to_owned) {
                self.touched_pods.insert(uid);
            }
            unlist(&mut self.by_address, &endpoint.address, &key);
            if let Some(uid) = endpoint.uid {
                unlist(&mut self.by_uid, &uid, &key);
                self.touched_pods.insert(uid);
            }
        }
        self.touch(key);
    }

    /// Takes note of a pod of this node: what is said of it is asked for.
    pub(crate) fn know(&mut self, pod: &PodEndpoint) {
        let known = self.known.get(&pod.uid);
        // One that is gone has no address any more, which is no news: it may be stood in for.
        if known == Some(pod) || known.is_some() && pod.addresses.is_empty() {
            return;
        }
        let former = self.known.get(&pod.uid).cloned();
        self.forget(&pod.uid);
        for address in pod.addresses.iter().filter(|address| !self.node.addresses.contains(address)) {
            self.holders.insert(*address, pod.uid.clone());
        }
        self.known.insert(pod.uid.clone(), pod.clone());
        // One that was there before it had an address is none that was cut before.
        if former.is_some_and(|former| former.addresses.is_empty()) {
            self.disinherit(&pod.uid);
        }
        self.touch_pod(&pod.uid);
    }

    fn forget(&mut self, uid: &str) {
        if self.known.contains_key(uid) {
            self.touch_pod(uid);
            self.known.remove(uid);
            self.holders.retain(|_, holder| holder != uid);
        }
    }

    /// Forgets pods that nobody follows, and that are not cut.
    pub(crate) fn keep_known(&mut self, is_followed: impl Fn(&str) -> bool) {
        let is_idle = |uid: &&String| !is_followed(uid) && !self.cuts.contains_key(*uid);
        let idle: Vec<_> = self.known.keys().filter(is_idle).cloned().collect();
        idle.iter().for_each(|uid| self.forget(uid));
    }

    /// Whose an endpoint is: of the pod that has its address, or of the one that it names, if that is of the Service's namespace and
    /// nobody has the address.
    fn owner_of<'a>(&'a self, endpoint: &'a Endpoint, key: &ServiceKey) -> Option<&'a str> {
        if let Some(holder) = self.holders.get(&endpoint.address) {
            return Some(holder);
        }
        let named = endpoint.uid.as_deref()?;
        let pod = self.known.get(named);
        pod.is_none_or(|pod| pod.namespace == key.0).then_some(named)
    }

    /// These were cut by a former run: they take no new connections while others do, as if they were leaving.
    pub(crate) fn inherit(&mut self, addresses: BTreeSet<IpAddr>) {
        self.inherited = addresses;
    }

    pub(crate) fn inherited(&self) -> &BTreeSet<IpAddr> {
        &self.inherited
    }

    /// Nobody has said anything about those that are left.
    pub(crate) fn end_inheritance(&mut self) {
        for address in std::mem::take(&mut self.inherited) {
            self.is_disinherited = true;
            self.touch_address(address);
        }
    }

    /// Whether there is something in the kernel since this was last asked that is nobody's.
    pub(crate) fn take_disinherited(&mut self) -> bool {
        std::mem::take(&mut self.is_disinherited)
    }

    fn disinherit(&mut self, uid: &str) {
        let addresses = self.known.get(uid).map(|pod| pod.addresses.clone()).unwrap_or_default();
        for address in addresses {
            if self.inherited.remove(&address) {
                self.is_disinherited = true;
                self.touch_address(address);
            }
        }
    }

    fn touch_address(&mut self, address: IpAddr) {
        let listings: Vec<_> = self.by_address.get(&address).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        listings.into_iter().for_each(|key| self.touch(key));
    }

    pub(crate) fn cut(&mut self, pod: PodEndpoint, mode: CutMode) {
        self.know(&pod);
        self.disinherit(&pod.uid);
        let uid = pod.uid.clone();
        let mut ports = self.cuts.remove(&uid).map(|cut| cut.ports).unwrap_or_default();
        for key in self.services_of(&uid) {
            let own = self.raw_endpoints_of(key).filter(|endpoint| self.owner_of(endpoint, key) == Some(&uid));
            ports.entry(key.clone()).or_default().extend(own.flat_map(Endpoint::numbers));
        }
        self.cuts.insert(uid.clone(), Cut { pod, mode, departed: false, ports });
        self.touch_pod(&uid);
    }

    /// Whether there was a cut.
    pub(crate) fn restore(&mut self, uid: &str) -> bool {
        self.disinherit(uid);
        self.touch_pod(uid);
        self.cuts.remove(uid).is_some()
    }

    /// Whether there is a cut that has to linger.
    pub(crate) fn departed(&mut self, uid: &str) -> bool {
        self.touch_pod(uid);
        self.cuts.get_mut(uid).map(|cut| cut.departed = true).is_some()
    }

    fn touch_pod(&mut self, uid: &str) {
        self.touched_pods.insert(uid.to_owned());
        let listings: BTreeSet<_> = self.listings_of(uid).cloned().collect();
        listings.into_iter().for_each(|key| self.touch(key));
    }

    fn touch(&mut self, key: ServiceKey) {
        self.resolved.get_mut().remove(&key);
        self.touched.insert(key);
    }

    /// Which Services have to be computed anew, and what may be said of which pods is not what it was.
    pub(crate) fn take_touched(&mut self) -> (BTreeSet<ServiceKey>, BTreeSet<String>) {
        let (services, mut pods) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.touched_pods));
        for key in &services {
            pods.extend(self.raw_endpoints_of(key).filter_map(|it| self.owner_of(it, key)).map(str::to_owned));
        }
        // A pod that is cut depends on Services that listed it once, too.
        let remembers = |cut: &&Cut| cut.ports.keys().any(|key| services.contains(key));
        pods.extend(self.cuts.values().filter(remembers).map(|cut| cut.pod.uid.clone()));
        (services, pods)
    }

    pub(crate) fn is_cut(&self, uid: &str) -> bool {
        self.cuts.contains_key(uid)
    }

    #[cfg(test)]
    pub(crate) fn cut_uids(&self) -> Vec<String> {
        self.cuts.keys().cloned().collect()
    }

    /// The addresses that a cut pod has for itself, as its node says: whatever slices say, and without those of the node, which
    /// others use too, and those that were given to another pod.
    pub(crate) fn addresses_of_cut(&self, uid: &str) -> BTreeSet<IpAddr> {
        let addresses = self.cuts.get(uid).into_iter().flat_map(|cut| &cut.pod.addresses);
        addresses.filter(|address| self.holders.get(address).is_some_and(|holder| holder == uid)).copied().collect()
    }

    /// The pod whose new connections are counted at that address and port: a Service of its own namespace leads there. A slice elsewhere
    /// that names its address counts nothing for it.
    pub(crate) fn counted_for(&self, address: IpAddr, protocol: Protocol, port: u16) -> Option<String> {
        let is_there = |it: &Endpoint| it.address == address && it.numbers().any(|number| number == (protocol, port));
        let leads_there = |key: &ServiceKey| {
            let resolved = self.resolved(key);
            let uid = match self.holders.get(&address) {
                Some(holder) => resolved.of_pod(holder).any(is_there).then_some(holder),
                // Of the node's own addresses the slices say who is behind which port.
                None => resolved.endpoints.iter().find(|it| is_there(it)).and_then(|it| it.uid.as_ref()),
            };
            let pod = uid.and_then(|uid| self.known.get(uid));
            let is_own = |pod: &&PodEndpoint| pod.namespace == key.0 && pod.addresses.contains(&address);
            pod.filter(is_own).map(|pod| pod.uid.clone())
        };
        // Only Services of the namespace of a pod with that address are looked at: anybody may write slices elsewhere.
        let holder = self.holders.get(&address).and_then(|uid| self.known.get(uid));
        let namespaces: BTreeSet<&str> = match holder {
            Some(pod) => [&*pod.namespace].into(),
            None => {
                let there = self.known.values().filter(|pod| pod.addresses.contains(&address));
                there.map(|pod| &*pod.namespace).collect()
            }
        };
        let mut keys = self.by_address.get(&address)?.keys().filter(|key| namespaces.contains(&*key.0));
        keys.find_map(leads_there)
    }

    fn raw_endpoints_of(&self, key: &ServiceKey) -> impl Iterator<Item = &Endpoint> {
        self.slices.get(key).into_iter().flat_map(|slices| slices.values().flatten())
    }

    /// The Services that list a pod, of whatever namespace.
    fn listings_of(&self, uid: &str) -> impl Iterator<Item = &ServiceKey> {
        let addresses = self.known.get(uid).into_iter().flat_map(|pod| &pod.addresses);
        let own = addresses.filter(move |address| self.holders.get(address).is_some_and(|holder| holder == uid));
        let by_address = own.filter_map(|address| self.by_address.get(address));
        self.by_uid.get(uid).into_iter().chain(by_address).flat_map(BTreeMap::keys)
    }

    /// The Services that a pod is behind: those of its own namespace, whatever slices of others say.
    pub(crate) fn services_of(&self, uid: &str) -> BTreeSet<&ServiceKey> {
        let namespace = self.known.get(uid).map(|pod| &pod.namespace);
        self.listings_of(uid).filter(|key| namespace.is_none_or(|namespace| *namespace == key.0)).collect()
    }

    /// The endpoints of a Service as the cuts leave them.
    fn resolved(&self, key: &ServiceKey) -> Arc<Resolved> {
        if let Some(known) = self.resolved.borrow().get(key) {
            return known.clone();
        }
        let resolved = Arc::new(Resolved::of(self, key));
        self.resolved.borrow_mut().insert(key.clone(), resolved.clone());
        resolved
    }

    /// Nobody asks until something changes again.
    pub(crate) fn forget_resolved(&self) {
        self.resolved.borrow_mut().clear();
    }

    /// What a cut wants to have in the kernel.
    pub(crate) fn wanted_by_cut(&self, uid: &str) -> Wanted {
        let mut wanted = Wanted::default();
        let Some(cut) = self.cuts.get(uid) else { return wanted };
        let addresses = self.addresses_of_cut(uid);
        let remembered = cut.ports.values().flatten().copied();
        for (protocol, port) in self.target_ports(uid).into_iter().chain(remembered).collect::<BTreeSet<_>>() {
            for address in &addresses {
                let siblings = stand_ins(uid, self.siblings(uid, protocol, port, address.is_ipv6()));
                let refused = match cut.mode {
                    CutMode::Refuse => true,
                    CutMode::Divert => cut.departed && siblings.is_empty(),
                    CutMode::Withdraw => false,
                };
                if refused {
                    wanted.nobody.insert((*address, protocol, port), Nobody::Reject);
                } else if cut.mode == CutMode::Divert && protocol == Protocol::Tcp && !siblings.is_empty() {
                    let is_ipv6 = address.is_ipv6();
                    let frontend = Frontend { space: Space::Cut, is_ipv6, address: Some(*address), protocol, port };
                    wanted.lists.insert(frontend, siblings.into());
                    wanted.marks.insert(Mark::Masquerade(*address, protocol, port));
                }
            }
        }
        wanted
    }

    fn target_ports(&self, uid: &str) -> BTreeSet<(Protocol, u16)> {
        let services = self.services_of(uid).into_iter().map(|key| self.resolved(key));
        services.flat_map(|it| it.of_pod(uid).flat_map(Endpoint::numbers).collect::<Vec<_>>()).collect()
    }

    /// The Services that lead to a pod on one of its ports, or did before it was cut. One that is gone leads nobody to anybody.
    fn services_on_port(&self, uid: &str, protocol: Protocol, port: u16) -> Vec<Arc<Resolved>> {
        let remembered = self.cuts.get(uid).map(|cut| &cut.ports);
        let keys = self.services_of(uid).into_iter().chain(remembered.into_iter().flat_map(BTreeMap::keys));
        let keys: BTreeSet<_> = keys.filter(|key| self.services.contains_key(*key)).collect();
        let on_port = keys.into_iter().filter_map(|key| {
            let had = remembered.and_then(|ports| ports.get(key)).is_some_and(|had| had.contains(&(protocol, port)));
            let resolved = self.resolved(key);
            let has = had || resolved.of_pod(uid).any(|it| it.numbers().any(|it| it == (protocol, port)));
            has.then_some(resolved)
        });
        on_port.collect()
    }

    /// Who can stand in for a pod on one of its ports: ready, and there in every Service that lists the pod on it.
    fn siblings(&self, uid: &str, protocol: Protocol, port: u16, is_ipv6: bool) -> BTreeSet<Backend> {
        let services = self.services_on_port(uid, protocol, port);
        let takers = services.iter().map(|it| it.other_takers(uid, (protocol, port, is_ipv6)));
        takers.reduce(|common, others| common.common(&others)).map(Takers::nearest).unwrap_or_default()
    }

    /// How many those are in both families. Most pods are behind one Service: then nothing has to be compared.
    fn count_of_siblings(&self, uid: &str, protocol: Protocol, port: u16) -> usize {
        let count = |is_ipv6| match &*self.services_on_port(uid, protocol, port) {
            [only] => only.count_of_other_takers(uid, (protocol, port, is_ipv6)),
            _ => self.siblings(uid, protocol, port, is_ipv6).len(),
        };
        count(false) + count(true)
    }

    /// How connections reach a pod.
    pub(crate) fn reach(&self, uid: &str) -> Reach {
        let mut reach = Reach { target_ports: self.target_ports(uid), ..Reach::default() };
        for key in self.services_of(uid) {
            let Some(spec) = self.services.get(key).and_then(|service| service.spec.as_ref()) else { continue };
            let is_headless = spec.cluster_ip.as_deref() == Some("None");
            reach.by_headless |= is_headless;
            reach.by_vip |= !is_headless;
            let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
            let node_local =
                !is_headless && (is_local(&spec.internal_traffic_policy) || is_local(&spec.external_traffic_policy));
            reach.node_local |= node_local;
            let resolved = self.resolved(key);
            let is_alone = !resolved.has_other_taker(self, uid, node_local);
            reach.last |= !is_headless && resolved.serves(uid) && is_alone;
        }
        let counts = reach.target_ports.iter().map(|(protocol, port)| self.count_of_siblings(uid, *protocol, *port));
        reach.siblings = counts.min().and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        reach
    }

    fn is_here(&self, endpoint: &Endpoint) -> bool {
        endpoint.node.as_deref() == Some(&self.node.name)
    }
}

impl Endpoint {
    fn takes_new(&self) -> bool {
        self.ready && !self.terminating
    }

    fn numbers(&self) -> impl Iterator<Item = (Protocol, u16)> {
        self.ports.iter().map(|(_, protocol, port)| (*protocol, *port))
    }

    fn at(&self, name: &str, protocol: Protocol) -> Option<u16> {
        self.ports.iter().find(|port| port.0 == name && port.1 == protocol).map(|port| port.2)
    }
}

fn list<K: Ord>(index: &mut BTreeMap<K, Listings>, at: K, key: &ServiceKey) {
    *index.entry(at).or_default().entry(key.clone()).or_default() += 1;
}

fn unlist<K: Ord>(index: &mut BTreeMap<K, Listings>, at: &K, key: &ServiceKey) {
    let Some(listings) = index.get_mut(at) else { return };
    if let Some(count) = listings.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            listings.remove(key);
        }
    }
    if listings.is_empty() {
        index.remove(at);
    }
}

/// A few of the siblings, for each pod others, and the same as long as they are there.
fn stand_ins(uid: &str, mut siblings: BTreeSet<Backend>) -> BTreeSet<Backend> {
    if siblings.len() <= STAND_INS_MAX {
        return siblings;
    }
    let weight = |backend: &Backend| {
        let mut hasher = DefaultHasher::new();
        (uid, backend).hash(&mut hasher);
        hasher.finish()
    };
    let mut weighed: Vec<_> = siblings.iter().map(|backend| (weight(backend), *backend)).collect();
    weighed.select_nth_unstable(STAND_INS_MAX);
    siblings = weighed.into_iter().take(STAND_INS_MAX).map(|(_, backend)| backend).collect();
    siblings
}

fn endpoints(slice: &EndpointSlice, this_node: &str) -> Vec<Endpoint> {
    let ports = slice.ports.iter().flatten().filter_map(|port| {
        let number = u16::try_from(port.port?).ok()?;
        Some((port.name.clone().unwrap_or_default(), Protocol::of_name(port.protocol.as_deref())?, number))
    });
    let ports: Arc<[_]> = ports.collect();
    let read = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let hints = endpoint.hints.as_ref();
        let for_nodes = hints.and_then(|hints| hints.for_nodes.as_ref()).filter(|nodes| !nodes.is_empty());
        let for_zones = hints.into_iter().flat_map(|hints| hints.for_zones.iter().flatten());
        Some(Endpoint {
            address: endpoint.addresses.first()?.parse().ok().filter(|address| is_endpoint_address(*address))?,
            uid: endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()),
            node: endpoint.node_name.clone(),
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
            ports: ports.clone(),
            for_this_node: for_nodes.map(|nodes| nodes.iter().any(|node| node.name == this_node)),
            for_zones: for_zones.take(HINTS_MAX).map(|zone| zone.name.clone()).collect(),
        })
    };
    slice.endpoints.iter().flatten().filter_map(read).collect()
}
