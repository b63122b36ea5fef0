//! How connections reach a pod, in the words of the rules: what its Services, its owner and its annotations say together.
//!
//! Nothing here waits or asks anybody.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use lifecycle::{BestEvidence, Routes};
use proxy::{Protocol, Reach};
use runtime_api::{AddressRange, ConnectionFilter};

/// How long a pod that is gone is stood in for if it says nothing else.
const LINGER: Duration = Duration::from_secs(60);
/// The longest time that it can ask for.
const LINGER_MOST: Duration = Duration::from_secs(60 * 60);

/// The value of one of our annotations.
pub(super) fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(&format!("adieu.dev/{name}")).map(String::as_str)
}

fn seconds(pod: &Pod, name: &str) -> Option<Duration> {
    annotation(pod, name).and_then(|text| text.parse().ok()).map(Duration::from_secs)
}

/// The kind of workload that controls the pod, and its name.
pub(super) fn controller(pod: &Pod) -> Option<(&str, &str)> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true))?;
    Some((owner.kind.as_str(), owner.name.as_str()))
}

/// Whether the pod was asked to leave, by its deletion or otherwise: then its worker says that its traffic is not drained yet.
pub(super) fn is_leaving(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_draining = |it: &PodCondition| it.type_ == "adieu.dev/TrafficDrained" && it.status == "False";
    pod.metadata.deletion_timestamp.is_some() || conditions.into_iter().any(is_draining)
}

/// Whether its owner makes a replacement while it is leaving, as far as the kind of owner tells.
pub(super) fn may_be_replaced(pod: &Pod) -> bool {
    matches!(controller(pod), Some(("ReplicaSet" | "ReplicationController", _)))
}

/// How the pod is reached. `busy` is whether it got a new connection within the last minute, `replaced` whether its owner makes
/// another meanwhile: both are of meaning only for the last endpoint of a Service.
pub(super) fn routes(pod: &Pod, reach: &Reach, busy: bool, replaced: bool) -> Routes {
    let best = best_evidence(pod, reach);
    let last = reach.last && best != BestEvidence::Unrouted;
    Routes { best, last, busy: last && busy, replaced: last && replaced }
}

/// The best evidence for its kind of pod (traffic-and-rollouts 3.4).
fn best_evidence(pod: &Pod, reach: &Reach) -> BestEvidence {
    if !reach.by_vip && !reach.by_headless {
        return if has_host_port(pod) { BestEvidence::Settled } else { BestEvidence::Unrouted };
    }
    let spec = pod.spec.as_ref();
    let is_interchangeable = match controller(pod) {
        Some(("ReplicaSet" | "ReplicationController", _)) => true,
        // Of a Service that is node-local, nobody else on the node takes over.
        Some(("DaemonSet", _)) => !reach.node_local,
        // A connection to db-0 must not land on db-1; of others nobody said that they are alike.
        Some(_) | None => false,
    };
    let is_divertible = reach.by_vip
        && is_interchangeable
        && reach.siblings > 0
        && reach.target_ports.iter().any(|(protocol, _)| *protocol == Protocol::Tcp)
        && !spec.and_then(|spec| spec.host_network).unwrap_or(false)
        && annotation(pod, "redirect") != Some("off");
    if is_divertible { BestEvidence::Divert } else { BestEvidence::Acks }
}

fn has_host_port(pod: &Pod) -> bool {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    containers
        .flat_map(|container| container.ports.iter().flatten())
        .any(|port| port.host_port.is_some_and(|it| it > 0))
}

/// How long whoever still dials the pod is sent to a sibling after it is gone.
pub(super) fn linger(pod: &Pod) -> Duration {
    seconds(pod, "redirect-linger-seconds").unwrap_or(LINGER).min(LINGER_MOST)
}

/// Which connections are waited for (traffic-and-rollouts 3.9).
pub(super) fn drained_connections(pod: &Pod, reach: Option<&Reach>) -> ConnectionFilter {
    let listed = |text: &str| text.split(',').filter_map(|it| it.trim().parse().ok()).collect::<Vec<u16>>();
    let asked = annotation(pod, "drain-ports").map(listed).filter(|ports| !ports.is_empty());
    let of_services = || {
        let tcp = reach.iter().flat_map(|it| &it.target_ports).filter(|(protocol, _)| *protocol == Protocol::Tcp);
        Some(tcp.map(|(_, port)| *port).collect::<Vec<_>>()).filter(|ports| !ports.is_empty())
    };
    let declared = || {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
        tcp.filter_map(|port| u16::try_from(port.container_port).ok()).collect()
    };
    let loopback = ["127.0.0.0/8", "::1"].into_iter().filter_map(|range| range.parse::<AddressRange>().ok());
    let ignored = annotation(pod, "drain-ignore-peers").into_iter().flat_map(|text| text.split(','));
    ConnectionFilter {
        ports: asked.or_else(of_services).unwrap_or_else(declared),
        ignored_peers: loopback.chain(ignored.filter_map(|range| range.parse().ok())).collect(),
        idle_after: seconds(pod, "drain-idle-seconds"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn pod(owner: Option<&str>, annotations: Value, spec: Value) -> Pod {
        let owners: Vec<_> = owner
            .map(|kind| json!({ "apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "1", "controller": true }))
            .into_iter()
            .collect();
        let metadata = json!({ "name": "web-1", "uid": "u", "ownerReferences": owners, "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn shared() -> Reach {
        let target_ports = [(Protocol::Tcp, 8080)].into();
        Reach { by_vip: true, siblings: 2, target_ports, ..Reach::default() }
    }

    /// The table of traffic-and-rollouts 3.4.
    #[test]
    fn best_evidence_follows_owner_services_and_annotations() {
        let plain = || json!({ "containers": [] });
        let headless = Reach { by_vip: false, by_headless: true, ..shared() };
        let udp = Reach { target_ports: [(Protocol::Udp, 53)].into(), ..shared() };
        let mapped = json!({ "containers": [{ "name": "a", "ports": [{ "containerPort": 1, "hostPort": 2 }] }] });
        let off = json!({ "adieu.dev/redirect": "off" });
        let host = json!({ "containers": [], "hostNetwork": true });
        use BestEvidence::{Acks, Divert, Settled, Unrouted};
        for (what, pod, reach, best) in [
            ("ReplicaSet", pod(Some("ReplicaSet"), json!({}), plain()), shared(), Divert),
            ("ReplicaSet, alone", pod(Some("ReplicaSet"), json!({}), plain()), Reach { siblings: 0, ..shared() }, Acks),
            ("ReplicaSet, headless", pod(Some("ReplicaSet"), json!({}), plain()), headless, Acks),
            ("ReplicaSet, UDP", pod(Some("ReplicaSet"), json!({}), plain()), udp, Acks),
            ("ReplicaSet, redirect off", pod(Some("ReplicaSet"), off, plain()), shared(), Acks),
            ("ReplicaSet, host network", pod(Some("ReplicaSet"), json!({}), host), shared(), Acks),
            ("DaemonSet", pod(Some("DaemonSet"), json!({}), plain()), shared(), Divert),
            (
                "DaemonSet, local",
                pod(Some("DaemonSet"), json!({}), plain()),
                Reach { node_local: true, ..shared() },
                Acks,
            ),
            ("StatefulSet", pod(Some("StatefulSet"), json!({}), plain()), shared(), Acks),
            ("bare", pod(None, json!({}), plain()), shared(), Acks),
            ("not selected", pod(Some("ReplicaSet"), json!({}), plain()), Reach::default(), Unrouted),
            ("host port", pod(None, json!({}), mapped), Reach::default(), Settled),
        ] {
            assert_eq!(routes(&pod, &reach, true, true).best, best, "{what}");
        }
    }

    #[test]
    fn busy_and_replaced_count_for_the_last_endpoint_only() {
        let of = |reach| routes(&pod(Some("ReplicaSet"), json!({}), json!({ "containers": [] })), &reach, true, true);
        let Routes { last, busy, replaced, .. } = of(shared());
        assert_eq!((last, busy, replaced), (false, false, false));
        let Routes { last, busy, replaced, .. } = of(Reach { last: true, ..shared() });
        assert_eq!((last, busy, replaced), (true, true, true));
    }

    #[test]
    fn drained_connections_are_those_of_services_unless_the_pod_says_otherwise() {
        let spec = json!({ "containers": [{ "name": "a", "ports": [{ "containerPort": 90 }, { "containerPort": 53, "protocol": "UDP" }] }] });
        let plain = pod(None, json!({}), spec.clone());
        assert_eq!(drained_connections(&plain, Some(&shared())).ports, [8080]);
        assert_eq!(drained_connections(&plain, None).ports, [90]);
        let said = json!({
            "adieu.dev/drain-ports": "1, 2", "adieu.dev/drain-ignore-peers": "10.1.0.0/16,nonsense",
            "adieu.dev/drain-idle-seconds": "30", "adieu.dev/redirect-linger-seconds": "150",
        });
        let said = pod(None, said, spec);
        let filter = drained_connections(&said, Some(&shared()));
        assert_eq!((filter.ports, filter.idle_after), (vec![1, 2], Some(Duration::from_secs(30))));
        assert!(filter.ignored_peers.iter().any(|range| range.contains("10.1.2.3".parse().unwrap())));
        assert_eq!((linger(&plain), linger(&said)), (LINGER, Duration::from_secs(150)));
    }
}
