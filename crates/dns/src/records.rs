//! What answers are made from: the services and pods of a cluster at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hickory_resolver::proto::rr::Name;

/// The labels of a name in small letters, the first one first; those that are no text match nothing.
pub(crate) fn labels(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
}

/// Where the cluster's own names are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    name: Name,
    labels: Vec<String>,
    ranges: Vec<(IpAddr, u8)>,
}

impl Zone {
    /// The zone of that domain, such as `cluster.local`, whose names of addresses are those of `ranges`; `None` if it is no domain.
    pub fn new(domain: &str, ranges: Vec<(IpAddr, u8)>) -> Option<Self> {
        let mut name = Name::from_ascii(domain).ok()?;
        name.set_fqdn(true);
        let labels = labels(&name);
        (!labels.is_empty()).then_some(Self { name, labels, ranges })
    }

    /// What stands before the domain in a name; `None` if it is another's.
    pub(crate) fn within<'a>(&self, labels: &'a [String]) -> Option<&'a [String]> {
        labels.strip_suffix(self.labels.as_slice())
    }

    /// Whether all names of that address are ours to know.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| is_within(address, *range))
    }

    /// The name of the zone itself.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// A name in it; the zone's own if these are no labels of a name.
    pub(crate) fn below(&self, labels: &[&str]) -> Name {
        let all = labels.iter().map(|label| label.as_bytes()).chain(self.name.iter());
        Name::from_labels(all).unwrap_or_else(|_| self.name.clone())
    }
}

/// Whether an address is in a network of that many bits.
pub(crate) fn is_within(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(length))).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(length))).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

/// A protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// Streams.
    Tcp,
    /// Packets.
    Udp,
    /// Both.
    Sctp,
}

impl Protocol {
    /// As it is called in a name.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Tcp => "_tcp",
            Self::Udp => "_udp",
            Self::Sctp => "_sctp",
        }
    }
}

/// A port that has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// What it is called; those without a name are not found by any.
    pub name: String,
    /// Above IP.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

/// Somebody behind a headless service who may be told of: ready, or told of whatever it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Where.
    pub address: IpAddr,
    /// What it is called below the service, if it has a name.
    pub hostname: Option<String>,
    /// Its own ports.
    pub ports: Vec<Port>,
    /// Whether it leaves and is told of to who asks for it by name, not by its service.
    pub by_name_only: bool,
}

impl Endpoint {
    /// What it is called below its service: its name, else its address.
    pub(crate) fn label(&self) -> String {
        self.hostname.clone().unwrap_or_else(|| dashed(self.address))
    }
}

/// An address as one label.
pub(crate) fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// The address that a label is made of.
fn undashed(label: &str) -> Option<IpAddr> {
    let read = |separator: &str| label.replace('-', separator).parse().ok();
    // Each address has one such label.
    read(".").or_else(|| read(":")).filter(|address| dashed(*address) == label)
}

/// What a service leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// Addresses of its own, one of each family at most.
    Addresses(Vec<IpAddr>),
    /// Whoever is behind it.
    Headless(Vec<Endpoint>),
    /// A name elsewhere.
    External(String),
}

/// A service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// What it leads to.
    pub kind: ServiceKind,
    /// Its ports that have a name.
    pub ports: Vec<Port>,
}

/// Which names of the form `10-86-0-7.shop.pod.cluster.local` lead somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PodRecords {
    /// Those of pods that are there.
    #[default]
    Verified,
    /// Any address of the cluster, for who cannot know of all pods.
    Insecure,
}

/// Namespace and name.
pub(crate) type Key = (String, String);

/// The names of a cluster at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    namespaces: BTreeSet<String>,
    services: BTreeMap<String, BTreeMap<String, Service>>,
    /// With how many have it: an address may have a new owner before the former is gone.
    pods: BTreeMap<String, BTreeMap<IpAddr, usize>>,
    /// Of several services that have an address the first one gives it its name, and one with an address of its own before all.
    reverse: BTreeMap<IpAddr, BTreeSet<(Option<String>, Key)>>,
    /// Counts up with the changes of the cluster.
    pub serial: u32,
    pod_records: PodRecords,
}

impl Snapshot {
    /// One without any names, where these pods have some.
    pub fn new(pod_records: PodRecords) -> Self {
        Self { pod_records, ..Self::default() }
    }

    /// Adds a namespace, which may have no services.
    pub fn add_namespace(&mut self, namespace: &str) {
        self.namespaces.insert(namespace.to_owned());
    }

    /// Forgets a namespace; what is in it is forgotten by itself.
    pub fn remove_namespace(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
    }

    /// Adds a service, in place of a former one of that name.
    pub fn add_service(&mut self, namespace: &str, name: &str, service: Service) {
        self.remove_service(namespace, name);
        for (address, host) in addresses(&service) {
            let named = (host, (namespace.to_owned(), name.to_owned()));
            self.reverse.entry(address).or_default().insert(named);
        }
        self.services.entry(namespace.to_owned()).or_default().insert(name.to_owned(), service);
    }

    /// Forgets a service.
    pub fn remove_service(&mut self, namespace: &str, name: &str) {
        let Some(services) = self.services.get_mut(namespace) else { return };
        let Some(service) = services.remove(name) else { return };
        if services.is_empty() {
            self.services.remove(namespace);
        }
        for (address, host) in addresses(&service) {
            let Some(names) = self.reverse.get_mut(&address) else { continue };
            names.remove(&(host, (namespace.to_owned(), name.to_owned())));
            if names.is_empty() {
                self.reverse.remove(&address);
            }
        }
    }

    /// Adds a pod that has that address.
    pub fn add_pod(&mut self, namespace: &str, address: IpAddr) {
        *self.pods.entry(namespace.to_owned()).or_default().entry(address).or_default() += 1;
    }

    /// Forgets a pod that had that address.
    pub fn remove_pod(&mut self, namespace: &str, address: IpAddr) {
        let Some(pods) = self.pods.get_mut(namespace) else { return };
        if let Some(count) = pods.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                pods.remove(&address);
            }
        }
        if pods.is_empty() {
            self.pods.remove(namespace);
        }
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
            || self.services.contains_key(namespace)
            || self.pods.contains_key(namespace)
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.services.get(namespace)?.get(name)
    }

    pub(crate) fn pod_called(&self, zone: &Zone, namespace: &str, label: &str) -> Option<IpAddr> {
        let address = undashed(label)?;
        let is_known = match self.pod_records {
            PodRecords::Verified => self.pods.get(namespace)?.contains_key(&address),
            PodRecords::Insecure => self.has_namespace(namespace) && zone.has_address(address),
        };
        is_known.then_some(address)
    }

    /// Namespace, service, and host below it.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<(&str, &str, Option<&str>)> {
        let (host, (namespace, service)) = self.reverse.get(&address)?.first()?;
        Some((namespace, service, host.as_deref()))
    }
}

/// The addresses that have a name by this service, and the host below it.
fn addresses(service: &Service) -> Vec<(IpAddr, Option<String>)> {
    match &service.kind {
        ServiceKind::Addresses(addresses) => addresses.iter().map(|address| (*address, None)).collect(),
        ServiceKind::Headless(endpoints) => {
            let named = endpoints.iter().filter(|endpoint| endpoint.hostname.is_some());
            named.map(|endpoint| (endpoint.address, endpoint.hostname.clone())).collect()
        }
        ServiceKind::External(_) => Vec::new(),
    }
}
