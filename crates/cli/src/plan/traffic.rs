//! How Services reach a pod, and how its traffic moves when it leaves: what the manifests say, what is assumed, and what
//! `--traffic` says instead.
//!
//! Which evidence a pod's kind and Services allow follows traffic-and-rollouts 3.4 and 3.5. What is made of it is the
//! rules' to decide.

use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lifecycle::{BestEvidence, Routes};
use serde::Serialize;

use super::manifest::{Manifests, PlannedPod};
use super::options::duration;
use super::workload;

/// A replacement that says nothing about itself is assumed to be Ready so long after the delete, beyond its probes.
const USUAL_START: Duration = Duration::from_secs(2);

/// `--traffic WORD[,WORD]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficOption {
    steered: Option<bool>,
    moves: Option<Moves>,
    replacement: Option<Replacement>,
    connections: Option<Duration>,
}

/// When the evidence comes that new connections go elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    /// So long after it was asked for.
    After(Duration),
    /// Never.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    After(Duration),
    Never,
}

/// How a pod is reached, and how that ends.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Traffic {
    /// The Services that send connections to it.
    pub(super) services: Vec<String>,
    /// The ports they send them to, by number or name.
    #[serde(skip)]
    pub(super) targets: Vec<String>,
    /// How many pods beside it they can send them to; nothing if that does not show.
    pub(super) others: Option<i64>,
    /// Its owner makes a new pod while it is leaving.
    pub(super) replaced: bool,
    /// What whoever routes would tell of it.
    #[serde(skip)]
    pub(super) routes: Routes,
    /// How its traffic behaves.
    #[serde(skip)]
    pub(super) flow: Flow,
}

/// How traffic behaves in a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Whether anybody steers it at all.
    pub(super) steered: bool,
    /// When it is known to go elsewhere.
    pub(super) moves: Moves,
    /// When somebody is ready to take it, if nobody is yet.
    pub(super) replacement: Option<Duration>,
    /// When the connections that are open have ended, after the pod began to wait for that.
    pub(super) connections: Duration,
}

impl Flow {
    /// As on most clusters: nobody answers.
    pub(super) fn unsteered(self) -> Self {
        Self { steered: false, ..self }
    }
}

/// How `pod` is reached, with what of it nobody told us in words; nothing if no Service selects it.
pub(super) fn of(
    pod: &PlannedPod,
    ready_after: Duration,
    manifests: &Manifests,
    options: &[TrafficOption],
) -> (Option<Traffic>, Flow, Vec<String>) {
    let said = TrafficOption::merged(options);
    let mut flow = Flow {
        steered: said.is_steered(),
        moves: said.moves.unwrap_or(Moves::After(Duration::ZERO)),
        replacement: None,
        connections: said.connections.unwrap_or(Duration::ZERO),
    };
    let services = manifests.services.iter().map(|(_, service)| service);
    let services: Vec<&Service> = services.filter(|service| selects(service, &pod.pod)).collect();
    if services.is_empty() {
        return (None, flow, Vec::new());
    }
    let (own, siblings, last) = neighbours(pod, &services, manifests);
    let replaced = is_replaced(pod);
    let mut assumed = Vec::new();
    if last && replaced && flow.steered {
        let after = match said.replacement {
            Some(Replacement::After(after)) => Some(after),
            Some(Replacement::Never) => None,
            None => {
                let after = ready_after + USUAL_START;
                let length = super::duration_text::length(after);
                assumed.push(format!("clients keep connecting, and a replacement is Ready {length} after the delete"));
                Some(after)
            }
        };
        flow.replacement = after;
    }
    if own.is_none() && flow.steered {
        assumed.push("other nodes have a pod of it, too".to_owned());
    }
    let routes = Routes { best: best(pod, &services, siblings), last, replaced, busy: true };
    let names = services.iter().map(|service| service.metadata.name.clone().unwrap_or_default()).collect();
    (
        Some(Traffic {
            targets: targets(&services),
            services: names,
            others: own.map(|own| own - 1 + siblings),
            replaced,
            routes,
            flow,
        }),
        flow,
        assumed,
    )
}

/// The ports of pods that Services send connections to.
fn targets(services: &[&Service]) -> Vec<String> {
    let ports =
        services.iter().filter_map(|service| service.spec.as_ref()).flat_map(|spec| spec.ports.iter().flatten());
    ports
        .map(|port| match &port.target_port {
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(name)) => name.clone(),
            None => port.port.to_string(),
        })
        .collect()
}

/// Whether a Service sends traffic to that pod.
fn selects(service: &Service, pod: &Pod) -> bool {
    wants(service, pod) && place(&service.metadata) == place(&pod.metadata)
}

/// The same, wherever the pod is.
fn wants(service: &Service, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let mut wanted = selector(service).peekable();
    wanted.peek().is_some() && wanted.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// The labels a Service looks for; none if it is not for pods.
fn selector(service: &Service) -> impl Iterator<Item = (&String, &String)> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"));
    spec.into_iter().flat_map(|spec| spec.selector.iter().flatten())
}

/// The namespace of an object.
fn place(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or(workload::DEFAULT_NAMESPACE)
}

/// What is odd about Services: those that no pod of these files is meant for.
pub(super) fn notes(manifests: &Manifests) -> Vec<String> {
    let pods = || manifests.pods.iter().map(|pod| &pod.pod);
    let lonely = manifests
        .services
        .iter()
        .filter(|(_, service)| selector(service).next().is_some() && !pods().any(|pod| selects(service, pod)));
    lonely
        .map(|(place_of, service)| {
            let name = service.metadata.name.as_deref().unwrap_or_default();
            let wanted: Vec<String> = selector(service).map(|(key, value)| format!("{key}={value}")).collect();
            let elsewhere = pods().find(|pod| wants(service, pod)).map(|pod| place(&pod.metadata));
            let hint = match elsewhere {
                Some(namespace) => format!(
                    "; there are such pods in namespace {namespace}, the Service is in {}",
                    place(&service.metadata)
                ),
                None => "; none of them is shown with its traffic".to_owned(),
            };
            format!("Service {name} ({place_of}) selects no pod of these files: {}{hint}", wanted.join(", "))
        })
        .collect()
}

/// How many pods its owner has (unknown for one per node), how many of other owners could stand in for it everywhere,
/// and whether some Service has nobody else.
fn neighbours(pod: &PlannedPod, services: &[&Service], manifests: &Manifests) -> (Option<i64>, i64, bool) {
    let own = match pod.kind.as_str() {
        "DaemonSet" => None,
        _ => Some(pod.replicas.unwrap_or(1).max(1)),
    };
    let others = || manifests.pods.iter().filter(|other| !std::ptr::eq(*other, pod));
    let count = |other: &PlannedPod| other.replicas.unwrap_or(1).max(0);
    let everywhere = others().filter(|other| services.iter().all(|service| selects(service, &other.pod)));
    let siblings = everywhere.map(count).fold(0, i64::saturating_add);
    let alone =
        |service: &&Service| others().filter(|other| selects(service, &other.pod)).all(|other| count(other) == 0);
    (own, siblings, own == Some(1) && services.iter().any(alone))
}

/// The best evidence that its kind and its Services allow.
fn best(pod: &PlannedPod, services: &[&Service], siblings: i64) -> BestEvidence {
    let specs: Vec<&ServiceSpec> = services.iter().filter_map(|service| service.spec.as_ref()).collect();
    let spec = pod.pod.spec.as_ref();
    let host_port = spec.is_some_and(|spec| {
        spec.containers
            .iter()
            .flat_map(|container| container.ports.iter().flatten())
            .any(|port| port.host_port.is_some())
    });
    let host_network = spec.is_some_and(|spec| spec.host_network == Some(true));
    if host_port && !host_network {
        return BestEvidence::Settled;
    }
    let headless = specs.iter().all(|spec| spec.cluster_ip.as_deref() == Some("None"));
    let not_tcp =
        specs.iter().flat_map(|spec| spec.ports.iter().flatten()).any(|port| port.protocol.as_deref() != Some("TCP"));
    let local = specs.iter().any(|spec| {
        spec.internal_traffic_policy.as_deref() == Some("Local")
            || spec.external_traffic_policy.as_deref() == Some("Local")
    });
    let redirect = pod.pod.metadata.annotations.as_ref().and_then(|said| said.get("adieu.dev/redirect"));
    let interchangeable = match pod.kind.as_str() {
        "Deployment" | "ReplicaSet" | "ReplicationController" => true,
        "DaemonSet" => !local,
        _ => false,
    };
    let somebody = siblings > 0 || pod.replicas.is_none_or(|replicas| replicas > 1) || is_replaced(pod);
    let divert = interchangeable && somebody && !headless && !not_tcp && !host_network;
    if divert && redirect.is_none_or(|said| said != "off") { BestEvidence::Divert } else { BestEvidence::Acks }
}

/// Whether its owner makes a new pod while the old one is still leaving.
fn is_replaced(pod: &PlannedPod) -> bool {
    let spec = &pod.owner["spec"];
    match pod.kind.as_str() {
        "Deployment" => spec["strategy"]["type"] != "Recreate",
        "ReplicaSet" | "ReplicationController" => true,
        "DaemonSet" => {
            let surge = &spec["updateStrategy"]["rollingUpdate"]["maxSurge"];
            surge.as_i64().is_some_and(|surge| surge > 0) || surge.as_str().is_some_and(|surge| !surge.starts_with('0'))
        }
        _ => false,
    }
}

impl TrafficOption {
    /// Today nobody steers it, unless somebody wants to see how it goes then.
    fn is_steered(&self) -> bool {
        self.steered.unwrap_or(self.moves.is_some() || self.replacement.is_some() || self.connections.is_some())
    }

    /// Later words win.
    fn merged(options: &[Self]) -> Self {
        options.iter().fold(Self::default(), |all, option| Self {
            steered: option.steered.or(all.steered),
            moves: option.moves.or(all.moves),
            replacement: option.replacement.or(all.replacement),
            connections: option.connections.or(all.connections),
        })
    }
}

impl FromStr for TrafficOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut option = Self::default();
        for word in text.split(',') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("unsteered", "") => option.steered = Some(false),
                ("steered", "") => option.steered = Some(true),
                ("moves-after", value) => option.moves = Some(Moves::After(duration(value)?)),
                ("stays", "") => option.moves = Some(Moves::Never),
                ("replacement-after", value) => option.replacement = Some(Replacement::After(duration(value)?)),
                ("no-replacement", "") => option.replacement = Some(Replacement::Never),
                ("connections-end-after", value) => option.connections = Some(duration(value)?),
                _ => {
                    return Err(format!(
                        "{word:?} is not one of: unsteered, steered, moves-after=2s, stays, replacement-after=5s, \
                         no-replacement, connections-end-after=10m"
                    ));
                }
            }
        }
        Ok(option)
    }
}
