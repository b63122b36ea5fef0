//! What Services, EndpointSlices and cuts say together: for each address and port of a Service, who takes new connections.
//!
//! Nothing here waits or speaks to anybody. A Service that is touched is computed anew, alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::addresses::{Network, is_endpoint_address};
use crate::host_listeners::HostListeners;
use crate::wanted::{Backend, Frontend, Mark, Nobody, Space, Wanted};
use crate::{CutMode, PodEndpoint, Protocol, Reach};

mod service;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A Service, by namespace and name.
pub(crate) type ServiceKey = (String, String);

/// What a Service wants of the node itself: node ports with the ports they are of, and addresses.
type Claims = (BTreeSet<(Option<i32>, i32)>, BTreeSet<IpAddr>);

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
    services: BTreeMap<ServiceKey, Service>,
    slices: BTreeMap<ServiceKey, BTreeMap<String, Vec<Endpoint>>>,
    /// Which Service a slice belongs to, by namespace and name of the slice.
    slice_owners: BTreeMap<(String, String), ServiceKey>,
    /// Which Services list a pod.
    pods: BTreeMap<String, BTreeMap<ServiceKey, usize>>,
    cuts: BTreeMap<String, Cut>,
    touched: BTreeSet<ServiceKey>,
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
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            slice_owners: BTreeMap::new(),
            pods: BTreeMap::new(),
            cuts: BTreeMap::new(),
            touched: BTreeSet::new(),
            listeners: HostListeners::default(),
            judged: BTreeMap::new(),
            listed: (false, false),
        }
    }

    /// What the API said is forgotten, and listed anew; which pods that are still here are cut is not.
    pub(crate) fn begin_again(&mut self) {
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.retain(|_, cut| !cut.departed);
        *self = Self { cuts, ..Self::new(self.node.clone()) };
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
        self.touched.insert(key.clone());
        self.services.insert(key, service);
    }

    pub(crate) fn remove_service(&mut self, key: &ServiceKey) {
        self.touched.insert(key.clone());
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
        let endpoints = endpoints(slice);
        for uid in endpoints.iter().filter_map(|endpoint| endpoint.uid.as_ref()) {
            *self.pods.entry(uid.clone()).or_default().entry(key.clone()).or_default() += 1;
        }
        for endpoint in &endpoints {
            let cut = endpoint.uid.as_ref().and_then(|uid| self.cuts.get_mut(uid));
            if let Some(cut) = cut.filter(|cut| cut.pod.namespace == key.0) {
                cut.ports.entry(key.clone()).or_default().extend(endpoint.numbers());
            }
        }
        self.slices.entry(key.clone()).or_default().insert(name.clone(), endpoints);
        self.slice_owners.insert((namespace, name), key.clone());
        self.touched.insert(key);
    }

    pub(crate) fn remove_slice(&mut self, slice: &(String, String)) {
        let Some(key) = self.slice_owners.remove(slice) else { return };
        let Some(slices) = self.slices.get_mut(&key) else { return };
        for uid in slices.remove(&slice.1).into_iter().flatten().filter_map(|endpoint| endpoint.uid) {
            let Some(services) = self.pods.get_mut(&uid) else { continue };
            if let Some(count) = services.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    services.remove(&key);
                }
            }
            if services.is_empty() {
                self.pods.remove(&uid);
            }
        }
        if slices.is_empty() {
            self.slices.remove(&key);
        }
        self.touched.insert(key);
    }

    pub(crate) fn cut(&mut self, pod: PodEndpoint, mode: CutMode) {
        let uid = pod.uid.clone();
        let mut ports = self.cuts.remove(&uid).map(|cut| cut.ports).unwrap_or_default();
        for key in self.services_of(&uid).filter(|key| key.0 == pod.namespace) {
            let own = self.raw_endpoints_of(key).filter(|endpoint| endpoint.uid.as_deref() == Some(&uid));
            ports.entry(key.clone()).or_default().extend(own.flat_map(Endpoint::numbers));
        }
        self.cuts.insert(uid.clone(), Cut { pod, mode, departed: false, ports });
        self.touch_pod(&uid);
    }

    /// Whether there was a cut.
    pub(crate) fn restore(&mut self, uid: &str) -> bool {
        self.touch_pod(uid);
        self.cuts.remove(uid).is_some()
    }

    /// Whether there is a cut that has to linger.
    pub(crate) fn departed(&mut self, uid: &str) -> bool {
        self.touch_pod(uid);
        self.cuts.get_mut(uid).map(|cut| cut.departed = true).is_some()
    }

    fn touch_pod(&mut self, uid: &str) {
        let services = self.pods.get(uid).into_iter().flat_map(|services| services.keys().cloned());
        self.touched.extend(services);
    }

    /// Which Services have to be computed anew.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn cut_uids(&self) -> Vec<String> {
        self.cuts.keys().cloned().collect()
    }

    /// The addresses that a cut pod has for itself, as its node says: whatever slices say, and without those of the node, which
    /// others use too.
    pub(crate) fn addresses_of_cut(&self, uid: &str) -> BTreeSet<IpAddr> {
        let addresses = self.cuts.get(uid).into_iter().flat_map(|cut| &cut.pod.addresses);
        addresses.filter(|address| !self.node.addresses.contains(address)).copied().collect()
    }

    /// Whose new connections are counted here, by where they arrive.
    pub(crate) fn watched(&self) -> BTreeMap<(IpAddr, Protocol, u16), String> {
        let endpoints = self.slices.values().flat_map(|slices| slices.values().flatten());
        let here = endpoints.filter(|endpoint| self.is_here(endpoint));
        here.flat_map(|endpoint| {
            let uid = endpoint.uid.clone();
            endpoint
                .numbers()
                .filter_map(move |(protocol, port)| Some(((endpoint.address, protocol, port), uid.clone()?)))
        })
        .collect()
    }

    fn raw_endpoints_of(&self, key: &ServiceKey) -> impl Iterator<Item = &Endpoint> {
        self.slices.get(key).into_iter().flat_map(|slices| slices.values().flatten())
    }

    pub(crate) fn services_of(&self, uid: &str) -> impl Iterator<Item = &ServiceKey> {
        // A pod is behind Services of its own namespace, whatever slices of others say.
        let namespace = self.cuts.get(uid).map(|cut| &cut.pod.namespace);
        let services = self.pods.get(uid).into_iter().flat_map(|services| services.keys());
        services.filter(move |key| namespace.is_none_or(|namespace| *namespace == key.0))
    }

    /// The endpoints of a Service as the cuts leave them, each address once: of two, the one that stays.
    fn endpoints_of(&self, key: &ServiceKey) -> Vec<Endpoint> {
        let mut found: BTreeMap<(IpAddr, Arc<[TargetPort]>), Endpoint> = BTreeMap::new();
        for endpoint in self.raw_endpoints_of(key) {
            let mut endpoint = endpoint.clone();
            let cut = endpoint.uid.as_ref().and_then(|uid| self.cuts.get(uid));
            if let Some(cut) = cut.filter(|cut| cut.pod.namespace == key.0) {
                endpoint.ready = false;
                endpoint.terminating = true;
                endpoint.serving &= cut.mode != CutMode::Refuse && !cut.departed;
            }
            let identity = (endpoint.address, endpoint.ports.clone());
            let stays = found.get(&identity).is_some_and(|known| !known.terminating || endpoint.terminating);
            if !stays {
                found.insert(identity, endpoint);
            }
        }
        found.into_values().collect()
    }

    /// What a cut wants to have in the kernel.
    pub(crate) fn wanted_by_cut(&self, uid: &str) -> Wanted {
        let mut wanted = Wanted::default();
        let Some(cut) = self.cuts.get(uid) else { return wanted };
        let addresses = self.addresses_of_cut(uid);
        let remembered = cut.ports.values().flatten().copied();
        for (protocol, port) in self.target_ports(uid).into_iter().chain(remembered).collect::<BTreeSet<_>>() {
            for address in &addresses {
                let siblings = self.siblings(uid, protocol, port, address.is_ipv6());
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
        let endpoints = self.services_of(uid).flat_map(|key| self.endpoints_of(key));
        let own = endpoints.filter(|endpoint| endpoint.uid.as_deref() == Some(uid));
        own.flat_map(|endpoint| endpoint.numbers().collect::<Vec<_>>()).collect()
    }

    /// Who can stand in for a pod on one of its ports: ready, and there in every Service that lists the pod on it.
    fn siblings(&self, uid: &str, protocol: Protocol, port: u16, is_ipv6: bool) -> BTreeSet<Backend> {
        let mut common: Option<BTreeSet<(bool, Backend)>> = None;
        let remembered = self.cuts.get(uid).map(|cut| &cut.ports);
        let keys = self.services_of(uid).chain(remembered.into_iter().flat_map(BTreeMap::keys));
        for key in keys.collect::<BTreeSet<_>>() {
            let endpoints = self.endpoints_of(key);
            let has = |endpoint: &Endpoint| endpoint.ports.iter().any(|it| (it.1, it.2) == (protocol, port));
            let had = remembered.and_then(|ports| ports.get(key)).is_some_and(|had| had.contains(&(protocol, port)));
            // A Service that is gone leads nobody to anybody.
            if !self.services.contains_key(key)
                || !had && !endpoints.iter().any(|it| it.uid.as_deref() == Some(uid) && has(it))
            {
                continue;
            }
            let others = endpoints.iter().filter(|it| it.uid.as_deref() != Some(uid) && it.takes_new() && has(it));
            let others = others.filter(|it| it.address.is_ipv6() == is_ipv6);
            let others = others.map(|it| (self.is_here(it), Backend { address: it.address, port })).collect();
            common = Some(match common {
                None => others,
                Some(common) => &common & &others,
            });
        }
        let common = common.unwrap_or_default();
        let here = common.iter().any(|(here, _)| *here);
        common.into_iter().filter(|(is_here, _)| *is_here || !here).map(|(_, backend)| backend).collect()
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
            let serves =
                self.raw_endpoints_of(key).any(|it| it.uid.as_deref() == Some(uid) && (it.ready || it.serving));
            let endpoints = self.endpoints_of(key);
            let mut others = endpoints.iter().filter(|it| !node_local || self.is_here(it));
            let is_alone = !others.any(|it| it.uid.as_deref() != Some(uid) && it.takes_new());
            reach.last |= !is_headless && serves && is_alone;
        }
        let counts = reach.target_ports.iter().map(|(protocol, port)| {
            self.siblings(uid, *protocol, *port, false).len() + self.siblings(uid, *protocol, *port, true).len()
        });
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

fn endpoints(slice: &EndpointSlice) -> Vec<Endpoint> {
    let ports = slice.ports.iter().flatten().filter_map(|port| {
        let number = u16::try_from(port.port?).ok()?;
        Some((port.name.clone().unwrap_or_default(), Protocol::of_name(port.protocol.as_deref())?, number))
    });
    let ports: Arc<[_]> = ports.collect();
    let read = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        Some(Endpoint {
            address: endpoint.addresses.first()?.parse().ok().filter(|address| is_endpoint_address(*address))?,
            uid: endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()),
            node: endpoint.node_name.clone(),
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
            ports: ports.clone(),
        })
    };
    slice.endpoints.iter().flatten().filter_map(read).collect()
}
