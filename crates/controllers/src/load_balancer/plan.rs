//! Which addresses a Service of type LoadBalancer has, from what is known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use client::WatchUpdate;
use frame::{Controller, Now, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Nodes with this label take no connections from outside.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// True on a Service that has no address because an older one has its port.
const PORT_TAKEN: &str = "adieu.dev/PortTaken";

/// A Service: namespace and name.
pub(super) type Key = (String, String);

/// A port and its protocol.
type Port = (i32, String);

/// In the order in which Services get a port: who was made first.
type Turn = (Option<Timestamp>, Key);

#[derive(Debug)]
pub(super) enum Input {
    Nodes(WatchUpdate<Arc<Node>>),
    Services(WatchUpdate<Arc<Service>>),
    Slices(WatchUpdate<Arc<EndpointSlice>>),
}

/// What the status of a Service is to say.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct WriteStatus {
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) conditions: Vec<Condition>,
}

/// The nodes that connections can come to, Services of the type, and where their ready endpoints are.
#[derive(Default)]
pub(super) struct LoadBalancers {
    nodes: BTreeMap<String, Vec<IpAddr>>,
    services: BTreeMap<Key, Arc<Service>>,
    /// Who wants which port.
    ports: BTreeMap<Port, BTreeSet<Turn>>,
    /// By slice: the Service it belongs to, and the nodes with a ready endpoint.
    slices: BTreeMap<Key, (Key, BTreeSet<String>)>,
    /// The slices of each Service.
    slices_of: BTreeMap<Key, BTreeSet<Key>>,
}

impl Controller for LoadBalancers {
    type Input = Input;
    type Key = Key;
    type Action = WriteStatus;
    type Answer = ();

    fn observe(&mut self, _: Now, input: Input) -> Vec<Key> {
        match input {
            Input::Nodes(update) => self.observe_nodes(update),
            Input::Services(update) => self.observe_services(update),
            Input::Slices(update) => self.observe_slices(update),
        }
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<WriteStatus> {
        let Some(service) = self.services.get(key) else { return Plan::default() };
        if service.metadata.deletion_timestamp.is_some() {
            return Plan::default();
        }
        let taken_by = self.older_with_a_port_of(key, service);
        let is_ours = is_balanced(service);
        let addresses = if is_ours && taken_by.is_none() { self.addresses(key, service) } else { Vec::new() };
        let status = service.status.as_ref();
        let said = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        let said: Option<Vec<IpAddr>> =
            said.into_iter().flatten().map(|entry| entry.ip.as_ref().and_then(|ip| ip.parse().ok())).collect();
        let conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        let message = taken_by.map(|(namespace, name)| format!("Service {namespace}/{name} is older and has the port"));
        let told = conditions.iter().find(|condition| condition.type_ == PORT_TAKEN);
        let is_told = told.filter(|told| told.status == "True").map(|told| &told.message) == message.as_ref();
        if said.as_ref() == Some(&addresses) && is_told {
            return Plan::default();
        }
        let mut conditions: Vec<_> = conditions.into_iter().filter(|condition| condition.type_ != PORT_TAKEN).collect();
        conditions.extend(message.map(|message| Condition {
            type_: PORT_TAKEN.to_owned(),
            status: "True".to_owned(),
            reason: "PortTaken".to_owned(),
            message,
            last_transition_time: Time(now.timestamp),
            observed_generation: None,
        }));
        let (uid, resource_version) = (service.uid(), service.resource_version());
        Plan::act(WriteStatus { uid, resource_version, addresses, conditions })
    }
}

impl LoadBalancers {
    fn observe_nodes(&mut self, update: WatchUpdate<Arc<Node>>) -> Vec<Key> {
        let before = self.nodes.clone();
        match update {
            WatchUpdate::Listed(all) => {
                self.nodes = all.iter().filter_map(|node| Some((node.name_any(), reached_at(node)?))).collect();
            }
            WatchUpdate::Changed(node) => match reached_at(&node) {
                Some(addresses) => drop(self.nodes.insert(node.name_any(), addresses)),
                None => drop(self.nodes.remove(&node.name_any())),
            },
            WatchUpdate::Removed(node) => drop(self.nodes.remove(&node.name_any())),
        }
        if before == self.nodes { Vec::new() } else { self.services.keys().cloned().collect() }
    }

    fn observe_services(&mut self, update: WatchUpdate<Arc<Service>>) -> Vec<Key> {
        match update {
            WatchUpdate::Listed(all) => {
                (self.services, self.ports) = (BTreeMap::new(), BTreeMap::new());
                for service in all {
                    self.put(service);
                }
                self.services.keys().cloned().collect()
            }
            WatchUpdate::Changed(service) => {
                let key = key(&*service);
                // Most changes are of a status, of ours before all: who has which port is as it was.
                let same =
                    |old: &Arc<Service>| turn(&key, old) == turn(&key, &service) && wanted(old) == wanted(&service);
                if concerns(&service) && self.services.get(&key).is_some_and(same) {
                    self.services.insert(key.clone(), service);
                    return vec![key];
                }
                let mut woken = self.take(&key);
                woken.extend(self.put(service));
                woken.into_iter().collect()
            }
            WatchUpdate::Removed(service) => self.take(&key(&*service)).into_iter().collect(),
        }
    }

    /// Takes in a Service. Answers for whom that matters: itself, and who wants a port that it has before them.
    fn put(&mut self, service: Arc<Service>) -> BTreeSet<Key> {
        if !concerns(&service) {
            return BTreeSet::new();
        }
        let key = key(&*service);
        for port in wanted(&service) {
            self.ports.entry(port).or_default().insert(turn(&key, &service));
        }
        let rivals = self.rivals(&service);
        self.services.insert(key.clone(), service);
        rivals.into_iter().chain([key]).collect()
    }

    /// A Service is gone, or another by now. Answers for whom that matters.
    fn take(&mut self, key: &Key) -> BTreeSet<Key> {
        let Some(service) = self.services.remove(key) else { return BTreeSet::new() };
        for port in wanted(&service) {
            if let Some(turns) = self.ports.get_mut(&port) {
                turns.remove(&turn(key, &service));
                if turns.is_empty() {
                    self.ports.remove(&port);
                }
            }
        }
        self.rivals(&service)
    }

    /// Who wants one of the ports that this one wants, if it is before all of them: whoever comes first has the port, and what is said to
    /// the others is who that is.
    fn rivals(&self, service: &Service) -> BTreeSet<Key> {
        let own = turn(&key(service), service);
        let waiting = |port| {
            let turns = self.ports.get(&port).filter(|turns| turns.first().is_some_and(|first| own <= *first));
            turns.into_iter().flatten().map(|(_, key)| key.clone()).collect::<Vec<_>>()
        };
        wanted(service).into_iter().flat_map(waiting).collect()
    }

    fn observe_slices(&mut self, update: WatchUpdate<Arc<EndpointSlice>>) -> Vec<Key> {
        let (slices, is_gone) = match update {
            WatchUpdate::Listed(all) => {
                (self.slices, self.slices_of) = (BTreeMap::new(), BTreeMap::new());
                for slice in all {
                    self.put_slice(key(&*slice), ready_nodes(&slice));
                }
                return self.services.keys().cloned().collect();
            }
            WatchUpdate::Changed(slice) => (slice, false),
            WatchUpdate::Removed(slice) => (slice, true),
        };
        let new = ready_nodes(&slices).filter(|_| !is_gone);
        let before = self.put_slice(key(&*slices), new.clone());
        let is_same = before == new;
        let touched = before.into_iter().chain(new).map(|(service, _)| service);
        touched.filter(|service| !is_same && self.services.contains_key(service)).collect()
    }

    /// A slice is this by now, or nothing. Answers what it was.
    fn put_slice(&mut self, slice: Key, new: Option<(Key, BTreeSet<String>)>) -> Option<(Key, BTreeSet<String>)> {
        let before = self.slices.remove(&slice);
        if let Some((service, _)) = &before
            && let Some(slices) = self.slices_of.get_mut(service)
        {
            slices.remove(&slice);
            if slices.is_empty() {
                self.slices_of.remove(service);
            }
        }
        if let Some(new) = new {
            self.slices_of.entry(new.0.clone()).or_default().insert(slice.clone());
            self.slices.insert(slice, new);
        }
        before
    }

    fn addresses(&self, key: &Key, service: &Service) -> Vec<IpAddr> {
        let Some(spec) = service.spec.as_ref() else { return Vec::new() };
        let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
        let own = self.slices_of.get(key).into_iter().flatten().filter_map(|slice| self.slices.get(slice));
        let own = own.flat_map(|(_, nodes)| nodes);
        let with_endpoints: BTreeSet<&String> = own.collect();
        let nodes = self.nodes.iter().filter(|(name, _)| !is_local || with_endpoints.contains(name));
        let families: BTreeSet<bool> = spec.cluster_ips.iter().flatten().map(|ip| ip.contains(':')).collect();
        let addresses = nodes.flat_map(|(_, addresses)| addresses).filter(|ip| families.contains(&ip.is_ipv6()));
        let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
        addresses.into_iter().collect()
    }

    /// The Service that came first, of those that want the same port of the same nodes.
    fn older_with_a_port_of(&self, key: &Key, service: &Service) -> Option<&Key> {
        let firsts = wanted(service).into_iter().filter_map(|port| self.ports.get(&port)?.first());
        firsts.min().map(|(_, first)| first).filter(|first| *first != key)
    }
}

fn key(object: &impl kube::ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether a Service is ours to give addresses to.
fn is_balanced(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

/// The same, or one that was: it has addresses to lose.
fn concerns(service: &Service) -> bool {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    let is_of_another_class = service.spec.as_ref().is_some_and(|spec| spec.load_balancer_class.is_some());
    is_balanced(service) || !is_of_another_class && ingress.is_some_and(|ingress| !ingress.is_empty())
}

fn turn(key: &Key, service: &Service) -> Turn {
    (service.metadata.creation_timestamp.as_ref().map(|time| time.0), key.clone())
}

/// The ports of the nodes that a Service wants: none if it is somebody else's, or leaves.
fn wanted(service: &Service) -> BTreeSet<Port> {
    if !is_balanced(service) || service.metadata.deletion_timestamp.is_some() {
        return BTreeSet::new();
    }
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| (port.port, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()))).collect()
}

/// Where a node is reached from outside; nothing if it is not to be.
fn reached_at(node: &Node) -> Option<Vec<IpAddr>> {
    let status = node.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !is_ready || node.metadata.deletion_timestamp.is_some() || node.labels().contains_key(EXCLUDED) {
        return None;
    }
    let of_kind = |kind: &str| -> Vec<IpAddr> {
        let addresses = status.addresses.iter().flatten().filter(|address| address.type_ == kind);
        addresses.filter_map(|address| address.address.parse().ok()).collect()
    };
    let (external, internal) = (of_kind("ExternalIP"), of_kind("InternalIP"));
    let has = |is_ipv6| external.iter().any(|ip| ip.is_ipv6() == is_ipv6);
    let internal = internal.into_iter().filter(|ip| !has(ip.is_ipv6()));
    Some(external.iter().copied().chain(internal).collect())
}

/// The Service that a slice belongs to, and the nodes with an endpoint that is ready and stays.
fn ready_nodes(slice: &EndpointSlice) -> Option<(Key, BTreeSet<String>)> {
    let service = slice.labels().get(SERVICE_NAME)?.clone();
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
    });
    let nodes = ready.filter_map(|endpoint| endpoint.node_name.clone()).collect();
    Some(((slice.namespace().unwrap_or_default(), service), nodes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn node(name: &str, address: &str, change: Value) -> Arc<Node> {
        let mut node = json!({ "metadata": { "name": name, "labels": {} }, "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }] } });
        json_patch::merge(&mut node, &change);
        read(node)
    }

    fn service(name: &str, change: Value) -> Arc<Service> {
        let mut service = json!({
            "metadata": { "namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "type": "LoadBalancer", "clusterIPs": ["10.87.0.9"], "ports": [{ "port": 80 }] } });
        json_patch::merge(&mut service, &change);
        read(service)
    }

    fn slice(service: &str, endpoints: Value) -> Arc<EndpointSlice> {
        read(json!({ "addressType": "IPv4", "endpoints": endpoints,
            "metadata": { "namespace": "shop", "name": format!("{service}-1"), "labels": { SERVICE_NAME: service } } }))
    }

    fn now() -> Now {
        frame::Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap()).now()
    }

    fn observe(balancers: &mut LoadBalancers, input: Input) {
        balancers.observe(now(), input);
    }

    fn planned(balancers: &LoadBalancers, name: &str) -> Option<Vec<String>> {
        let plan = balancers.plan(&("shop".to_owned(), name.to_owned()), now());
        plan.actions.first().map(|action| action.addresses.iter().map(ToString::to_string).collect())
    }

    fn with_two_nodes() -> LoadBalancers {
        let mut balancers = LoadBalancers::default();
        let nodes = vec![node("a", "192.0.2.1", json!({})), node("b", "192.0.2.2", json!({}))];
        observe(&mut balancers, Input::Nodes(WatchUpdate::Listed(nodes)));
        observe(&mut balancers, Input::Services(WatchUpdate::Listed(vec![service("web", json!({}))])));
        balancers
    }

    /// [LB-1] [LB-4] [LB-15]
    #[tokio::test]
    async fn load_balancer_has_the_addresses_of_ready_nodes_that_are_not_excluded() {
        let mut balancers = with_two_nodes();
        assert_eq!(planned(&balancers, "web").unwrap(), ["192.0.2.1", "192.0.2.2"]);
        let label = json!({ "metadata": { "labels": { EXCLUDED: "" } } });
        observe(&mut balancers, Input::Nodes(WatchUpdate::Changed(node("a", "192.0.2.1", label))));
        assert_eq!(planned(&balancers, "web").unwrap(), ["192.0.2.2"]);
        let silent = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        observe(&mut balancers, Input::Nodes(WatchUpdate::Changed(node("b", "192.0.2.2", silent))));
        assert_eq!(planned(&balancers, "web"), None, "no address is what its status says");
        let external = json!({ "status": { "addresses": [
            { "type": "InternalIP", "address": "192.0.2.2" }, { "type": "ExternalIP", "address": "203.0.113.2" },
            { "type": "InternalIP", "address": "fd00::2" }] } });
        observe(&mut balancers, Input::Nodes(WatchUpdate::Changed(node("b", "192.0.2.2", external))));
        assert_eq!(planned(&balancers, "web").unwrap(), ["203.0.113.2"], "of the Service's families, outside first");
    }

    /// [LB-5] [LB-6]
    #[tokio::test]
    async fn load_balancer_with_local_policy_has_the_nodes_with_endpoints_that_stay() {
        let mut balancers = with_two_nodes();
        let local = service("web", json!({ "spec": { "externalTrafficPolicy": "Local" } }));
        observe(&mut balancers, Input::Services(WatchUpdate::Changed(local)));
        assert_eq!(planned(&balancers, "web"), None);
        let at = |node: &str, ready: bool| json!({ "addresses": ["10.0.0.1"], "nodeName": node, "conditions": { "ready": ready } });
        let slices = slice("web", json!([at("a", false), at("b", true)]));
        observe(&mut balancers, Input::Slices(WatchUpdate::Changed(slices)));
        assert_eq!(planned(&balancers, "web").unwrap(), ["192.0.2.2"]);
        let moved = slice("web", json!([at("a", true), at("b", false)]));
        let touched = balancers.observe(now(), Input::Slices(WatchUpdate::Changed(moved.clone())));
        assert_eq!(touched.len(), 2, "before and after: {touched:?}");
        assert_eq!(planned(&balancers, "web").unwrap(), ["192.0.2.1"]);
        assert!(balancers.observe(now(), Input::Slices(WatchUpdate::Changed(moved))).is_empty(), "nothing changed");
    }

    /// [LB-12]
    #[tokio::test]
    async fn load_balancer_of_another_class_is_left_alone_and_addresses_end_with_the_type() {
        let mut balancers = with_two_nodes();
        let status = json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.9" }] } });
        let foreign = service("web", json!({ "spec": { "loadBalancerClass": "x.io/y" }, "status": status }));
        observe(&mut balancers, Input::Services(WatchUpdate::Changed(foreign)));
        assert_eq!(planned(&balancers, "web"), None);
        let former = service("web", json!({ "spec": { "type": "ClusterIP" }, "status": status }));
        observe(&mut balancers, Input::Services(WatchUpdate::Changed(former)));
        assert_eq!(planned(&balancers, "web").unwrap(), [""; 0]);
        let right = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }, { "ip": "192.0.2.2" }] } });
        observe(&mut balancers, Input::Services(WatchUpdate::Changed(service("web", json!({ "status": right })))));
        assert_eq!(planned(&balancers, "web"), None, "it says so already");
    }

    /// [LB-3]
    #[tokio::test]
    async fn load_balancer_whose_port_an_older_one_has_waits_and_says_so() {
        let mut balancers = with_two_nodes();
        let younger = json!({ "metadata": { "creationTimestamp": "2026-01-02T00:00:00Z" } });
        observe(&mut balancers, Input::Services(WatchUpdate::Changed(service("also", younger.clone()))));
        let plan = balancers.plan(&("shop".into(), "also".into()), now());
        let action = &plan.actions[0];
        assert!(action.addresses.is_empty() && action.conditions[0].message.contains("shop/web"), "{action:?}");
        assert_eq!(planned(&balancers, "web").unwrap().len(), 2);
        let touched = balancers.observe(now(), Input::Services(WatchUpdate::Removed(service("web", json!({})))));
        assert!(touched.contains(&("shop".into(), "also".into())));
        assert_eq!(planned(&balancers, "also").unwrap().len(), 2);
        let udp = json!({ "metadata": younger["metadata"], "spec": { "ports": [{ "port": 80, "protocol": "UDP" }] } });
        observe(&mut balancers, Input::Services(WatchUpdate::Changed(service("third", udp))));
        assert_eq!(planned(&balancers, "third").unwrap().len(), 2, "another protocol is another port");
    }

    #[tokio::test]
    async fn load_balancer_wakes_only_those_who_want_its_ports() {
        let mut balancers = with_two_nodes();
        let on = |port: u16, day: u8| {
            json!({ "metadata": { "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z") },
                "spec": { "ports": [{ "port": port }] } })
        };
        let told = |balancers: &mut LoadBalancers, service| -> Vec<String> {
            let woken = balancers.observe(now(), Input::Services(WatchUpdate::Changed(service)));
            woken.into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(told(&mut balancers, service("third", on(80, 3))), ["third"], "who is older has it anyway");
        assert_eq!(told(&mut balancers, service("other", on(81, 1))), ["other"]);
        assert_eq!(told(&mut balancers, service("second", on(80, 2))), ["second"], "the oldest of all is the same");
        let mut with_status = on(80, 1);
        with_status["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
        assert_eq!(told(&mut balancers, service("web", with_status)), ["web"], "what it says changes no port");
        assert_eq!(told(&mut balancers, service("web", on(82, 1))), ["second", "third", "web"], "it gives up a port");
        let message = |name: &str| {
            let plan = balancers.plan(&("shop".to_owned(), name.to_owned()), now());
            plan.actions[0].conditions.first().map(|told| told.message.clone())
        };
        assert_eq!(message("second"), None);
        assert!(message("third").unwrap().contains("shop/second"));
        assert_eq!(told(&mut balancers, service("second", json!({ "spec": { "type": "ClusterIP" } }))), ["third"]);
    }
}
