//! What answers are made from: the services and pods of a cluster at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::wire::Name;

/// Where the cluster's own names are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    labels: Vec<String>,
    ranges: Vec<(IpAddr, u8)>,
}

impl Zone {
    /// The zone of that domain, such as `cluster.local`, whose names of addresses are those of `ranges`; `None` if it is no domain.
    pub fn new(domain: &str, ranges: Vec<(IpAddr, u8)>) -> Option<Self> {
        let labels = Name::parse(domain)?.labels();
        (!labels.is_empty()).then_some(Self { labels, ranges })
    }

    /// What stands before the domain in a name; `None` if it is another's.
    pub(crate) fn within<'a>(&self, labels: &'a [String]) -> Option<&'a [String]> {
        labels.strip_suffix(self.labels.as_slice())
    }

    /// Whether all names of that address are ours to know.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|(network, length)| match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(*length))).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(*length))).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        })
    }

    /// The name of the zone itself.
    pub(crate) fn name(&self) -> Name {
        self.below(&[])
    }

    /// A name in it.
    pub(crate) fn below(&self, labels: &[&str]) -> Name {
        let all: Vec<&str> = labels.iter().copied().chain(self.labels.iter().map(String::as_str)).collect();
        Name::parse(&all.join(".")).unwrap_or_default()
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

/// The names of a cluster at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    services: BTreeMap<String, BTreeMap<String, Service>>,
    pods: BTreeMap<String, BTreeSet<IpAddr>>,
    reverse: BTreeMap<IpAddr, (String, String, Option<String>)>,
    /// Counts up with the changes of the cluster.
    pub serial: u32,
}

impl Snapshot {
    /// Adds a namespace, which may have no services.
    pub fn add_namespace(&mut self, namespace: &str) {
        self.services.entry(namespace.to_owned()).or_default();
    }

    /// Adds a service.
    pub fn add_service(&mut self, namespace: &str, name: &str, service: Service) {
        let known = |host: Option<&String>| (namespace.to_owned(), name.to_owned(), host.cloned());
        match &service.kind {
            ServiceKind::Addresses(addresses) => {
                self.reverse.extend(addresses.iter().map(|address| (*address, known(None))));
            }
            ServiceKind::Headless(endpoints) => {
                for endpoint in endpoints.iter().filter(|endpoint| endpoint.hostname.is_some()) {
                    // Of several services that have it the first one gives it its name.
                    self.reverse.entry(endpoint.address).or_insert_with(|| known(endpoint.hostname.as_ref()));
                }
            }
            ServiceKind::External(_) => {}
        }
        self.services.entry(namespace.to_owned()).or_default().insert(name.to_owned(), service);
    }

    /// Adds a pod that has that address.
    pub fn add_pod(&mut self, namespace: &str, address: IpAddr) {
        self.pods.entry(namespace.to_owned()).or_default().insert(address);
        self.add_namespace(namespace);
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.services.contains_key(namespace)
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.services.get(namespace)?.get(name)
    }

    pub(crate) fn pod_called(&self, namespace: &str, label: &str) -> Option<IpAddr> {
        self.pods.get(namespace)?.iter().copied().find(|address| dashed(*address) == label)
    }

    /// Namespace, service, and host below it.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<&(String, String, Option<String>)> {
        self.reverse.get(&address)
    }
}
