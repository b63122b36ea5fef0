//! Services, pods and nodes as far as endpoints depend on them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::pod;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde::Deserialize;

use crate::pod::PodView;

/// A service is found by `namespace/name`; so are the Endpoints of the same name.
pub(super) type Name = Arc<str>;

/// The UID of a pod.
pub(super) type Uid = Arc<str>;

/// The name of an object in its namespace, as services are found by it.
pub(super) fn full_name(namespace: &str, name: &str) -> Name {
    format!("{namespace}/{name}").into()
}

/// The labels that nobody may choose for the slices of a service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

/// A service, read and never written back.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
pub(super) struct ServiceView {
    /// Without managed fields and annotations.
    #[serde(deserialize_with = "client::trimmed_metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: ServiceSpecView,
}

/// What is asked for.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServiceSpecView {
    #[serde(rename = "type")]
    pub(super) type_: Option<String>,
    pub(super) selector: BTreeMap<String, String>,
    pub(super) ports: Vec<ServicePort>,
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<String>,
    pub(super) ip_families: Vec<String>,
    pub(super) publish_not_ready_addresses: bool,
    pub(super) traffic_distribution: Option<String>,
}

impl ServiceView {
    /// Whether its endpoints are the pods it selects. Those of any other service are somebody else's matter.
    pub(super) fn selects_pods(&self) -> bool {
        !self.spec.selector.is_empty() && self.spec.type_.as_deref() != Some("ExternalName")
    }

    /// Whether it has no address of its own.
    pub(super) fn is_headless(&self) -> bool {
        matches!(self.spec.cluster_ip.as_deref(), None | Some("" | "None"))
    }

    /// Whether it takes a pod with these labels.
    pub(super) fn takes(&self, labels: &[(Box<str>, Box<str>)]) -> bool {
        let found = |key: &str| labels.iter().find(|(own, _)| **own == *key).map(|(_, value)| &**value);
        self.spec.selector.iter().all(|(key, value)| found(key) == Some(value.as_str()))
    }

    /// The families of addresses it has slices for, the main one first.
    pub(super) fn families(&self) -> Vec<Family> {
        let mut families: Vec<Family> = self.spec.ip_families.iter().filter_map(|name| Family::named(name)).collect();
        families.dedup();
        if families.is_empty() {
            let own = self.spec.cluster_ip.as_deref().and_then(|address| address.parse().ok());
            families = own.map_or_else(|| vec![Family::V4, Family::V6], |address| vec![Family::of(address)]);
        }
        families
    }

    /// Its labels as its slices have them: without those that are ours to give.
    pub(super) fn given_labels(&self) -> BTreeMap<String, String> {
        let reserved = |key: &str| matches!(key, SERVICE_NAME | MANAGED_BY | HEADLESS);
        let given = self.metadata.labels.iter().flatten().filter(|(key, _)| !reserved(key));
        let mut labels: BTreeMap<String, String> = given.map(|(key, value)| (key.clone(), value.clone())).collect();
        if self.is_headless() {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        labels
    }
}

impl k8s_openapi::Resource for ServiceView {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Service";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "services";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for ServiceView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A family of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// As services and slices call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// A port that a service can ask for by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedPort {
    pub(super) name: Box<str>,
    pub(super) protocol: Box<str>,
    pub(super) number: i32,
}

/// A pod, as far as endpoints depend on it. A change of anything else changes no endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PodFacts {
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) labels: Box<[(Box<str>, Box<str>)]>,
    pub(super) node: Option<Arc<str>>,
    pub(super) addresses: Box<[IpAddr]>,
    pub(super) hostname: Option<Box<str>>,
    pub(super) subdomain: Option<Box<str>>,
    pub(super) ports: Box<[NamedPort]>,
    pub(super) ready: bool,
    /// Since when it is ready, or is not.
    pub(super) ready_changed: Option<Timestamp>,
    pub(super) terminating: bool,
    /// It has ended: its address is nobody's.
    pub(super) terminal: bool,
}

impl PodFacts {
    pub(super) fn of(pod: &PodView) -> Self {
        let status = &pod.status;
        let listed = status.pod_ips.iter().map(|own| own.ip.as_str());
        let main = status.pod_ip.as_deref().filter(|_| status.pod_ips.is_empty());
        let addresses = listed.chain(main).filter_map(|text| Some(text.parse::<IpAddr>().ok()?.to_canonical()));
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let sidecars = pod.spec.init_containers.iter();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        let named = ports.filter_map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP").into();
            Some(NamedPort { name: port.name.as_deref()?.into(), protocol, number: port.container_port })
        });
        let word = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        Self {
            namespace: pod.namespace().unwrap_or_default().into(),
            name: pod.name_any().into(),
            labels: pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            node: pod.node().map(Arc::from),
            addresses: addresses.collect(),
            hostname: word(&pod.spec.hostname),
            subdomain: word(&pod.spec.subdomain),
            ports: named.collect(),
            ready: pod::is_ready(pod),
            ready_changed: ready.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0),
            terminating: pod::is_terminating(pod),
            terminal: pod::is_terminal(pod),
        }
    }

    /// Whether new connections may be meant for it.
    pub(super) fn takes_connections(&self) -> bool {
        self.ready && !self.terminating && !self.terminal
    }
}

/// The zone of a node, if it has one.
pub(super) fn zone_of(node: &Node) -> Option<Arc<str>> {
    let zone = node.labels().get("topology.kubernetes.io/zone")?;
    (!zone.is_empty()).then(|| zone.as_str().into())
}
