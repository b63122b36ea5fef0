//! One pod as an endpoint of one service: pure.
//!
//! ```text
//!                                     ready  serving  terminating
//!  no address, or ended                     (not listed)
//!  not Ready                            0       0        0
//!  Ready                                1       1        0
//!  asked to leave, still Ready          0       1        1
//!  asked to leave, no longer Ready      0       0        1          `publishNotReadyAddresses` makes `ready` 1 in every row
//! ```

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::views::{Family, PodFacts, ServiceView};

/// An endpoint as it should be listed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub(super) endpoint: Endpoint,
    /// When the pod became ready, or ceased to be. The end of a pod says nothing here, as upstream has it.
    pub(super) trigger: Option<Timestamp>,
}

/// What is known of the node of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeOf<'a> {
    /// There is such a node, in this zone.
    Known(Option<&'a str>),
    /// The pod names one that does not exist.
    Missing,
    /// It has none yet.
    Unbound,
}

/// The endpoint that `service` has in `pod` for addresses of one family, if it has one.
pub(super) fn endpoint(
    service: &ServiceView,
    uid: &str,
    pod: &PodFacts,
    node: NodeOf<'_>,
    family: Family,
) -> Option<Candidate> {
    let publishes_all = service.spec.publish_not_ready_addresses;
    // A pod of a node that nobody knows cannot be reached, unless the user knows better.
    if pod.terminal || (node == NodeOf::Missing && !publishes_all) {
        return None;
    }
    let addresses: Vec<String> =
        pod.addresses.iter().filter(|own| Family::of(**own) == family).map(ToString::to_string).collect();
    if addresses.is_empty() {
        return None;
    }
    let ready = publishes_all || (pod.ready && !pod.terminating);
    let zone = match node {
        NodeOf::Known(zone) => zone,
        NodeOf::Missing | NodeOf::Unbound => None,
    };
    let endpoint = Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(pod.ready),
            terminating: Some(pod.terminating),
        }),
        hints: hints(service, zone, pod.node.as_deref()).filter(|_| ready),
        hostname: hostname(service, pod).map(ToOwned::to_owned),
        node_name: pod.node.as_deref().map(ToOwned::to_owned),
        target_ref: Some(target(uid, pod)),
        zone: zone.map(ToOwned::to_owned),
        ..Endpoint::default()
    };
    Some(Candidate { endpoint, trigger: pod.ready_changed.filter(|_| !pod.terminating) })
}

/// The pod, as endpoints refer to it.
pub(super) fn target(uid: &str, pod: &PodFacts) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.to_string()),
        name: Some(pod.name.to_string()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// The name that a pod has within a headless service.
pub(super) fn hostname<'a>(service: &ServiceView, pod: &'a PodFacts) -> Option<&'a str> {
    let is_its_own = pod.subdomain.as_deref() == service.metadata.name.as_deref();
    pod.hostname.as_deref().filter(|_| is_its_own)
}

/// The ports of `service` on `pod`. One that the pod does not have is left out.
pub(super) fn ports(service: &ServiceView, pod: &PodFacts) -> Vec<EndpointPort> {
    let found = service.spec.ports.iter().filter_map(|port| {
        Some(EndpointPort {
            app_protocol: port.app_protocol.clone(),
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(target_port(port, pod)?),
            protocol: Some(protocol(port).to_owned()),
        })
    });
    found.collect()
}

pub(super) fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The number that a port of a service has on `pod`.
pub(super) fn target_port(port: &ServicePort, pod: &PodFacts) -> Option<i32> {
    match &port.target_port {
        // Zero is what an absent number looks like when it is written out.
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let is_it = |own: &&super::views::NamedPort| *own.name == **name && *own.protocol == *protocol(port);
            pod.ports.iter().find(is_it).map(|own| own.number)
        }
    }
}

/// Who should use a ready endpoint, by the service's `trafficDistribution`.
fn hints(service: &ServiceView, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let same_node = match service.spec.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => false,
        "PreferSameNode" => true,
        _ => return None,
    };
    let for_zones = zone.map(|zone| vec![ForZone { name: zone.to_owned() }]);
    let for_nodes = node.filter(|_| same_node).map(|node| vec![ForNode { name: node.to_owned() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}
