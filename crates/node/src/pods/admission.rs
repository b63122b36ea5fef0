//! Whether a pod may begin on this node: admitted, waiting, rejected, or admitted when less important pods have been preempted
//! (node-termination 9.6).
//!
//! Pure: [`decide`] is given what is known of the node and of the pod. Who asks, who waits and who is told is in
//! [`super::admission_queue`].

use api::placement::{self, NOT_WANTED};
use api::pod::{self, HostPort, QosClass, Taint};
use k8s_openapi::api::core::v1::Pod;
use lifecycle::Pressure;
use lifecycle::shutdown::REJECTION;

use super::Mode;
use super::placement::Placed;
use crate::heartbeat::Health;
use crate::node_resources::{self, NodeResources, PreemptionCandidate, ResourceShortage};
use crate::sysctls::{AllowedSysctls, FORBIDDEN};

/// Why a pod cannot have the ports that it asks for, in the scheduler's words.
const PORT_TAKEN: &str = "node(s) didn't have free ports for the requested pod ports";

/// What a pod takes of the node, and how much it matters there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// Its resource requests.
    pub(super) asks: NodeResources,
    /// Its priority on the node.
    pub(super) importance: i32,
    pub(super) qos_class: QosClass,
}

impl Claim {
    pub(super) fn of(pod: &Pod) -> Self {
        Self {
            asks: NodeResources::of_pod(pod),
            importance: node_resources::importance(pod),
            qos_class: pod::qos_class(pod),
        }
    }
}

/// A pod that holds resources of the node.
#[derive(Clone, Debug)]
pub(super) struct Holder<'a> {
    pub(super) uid: &'a str,
    pub(super) claim: Claim,
    /// The ports of the node that are its own.
    pub(super) host_ports: Vec<HostPort>,
    /// It is on its way out: what it holds will be free.
    pub(super) is_leaving: bool,
}

/// The node, as it is when a pod wants to begin.
#[derive(Debug)]
pub(super) struct NodeSnapshot<'a> {
    pub(super) mode: Mode,
    /// What the node has to give.
    pub(super) capacity: NodeResources,
    pub(super) health: Health,
    pub(super) allowed_sysctls: &'a AllowedSysctls,
    /// What the pods ask for that wait before this one.
    pub(super) reserved: NodeResources,
    /// All others that hold something.
    pub(super) holders: Vec<Holder<'a>>,
}

/// A pod that wants to begin.
#[derive(Debug)]
pub(super) struct Applicant<'a> {
    pub(super) pod: &'a Pod,
    pub(super) claim: Claim,
    pub(super) placed: Placed,
    /// It was let in before and waits for resources: nothing else is decided again.
    pub(super) is_queued: bool,
}

/// What becomes of a pod that wants to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// It begins.
    Admit,
    /// It waits.
    Wait(WaitFor),
    /// It never begins here.
    Reject { reason: String, message: String },
    /// It fits when these have left, too.
    Preempt { missing: ResourceShortage, victims: Vec<PreemptionCandidate> },
}

/// What a pod waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WaitFor {
    /// The node's labels, which decide whether the pod may be here.
    Placement,
    /// Terminating pods: it fits when they are gone.
    Resources(ResourceShortage),
    /// A terminating pod that has this port of the node.
    HostPort(u16),
}

impl WaitFor {
    /// What it lacks until then, for people; nothing of a wait that is about to end.
    pub(super) fn message(&self) -> Option<String> {
        match self {
            Self::Placement => None,
            Self::Resources(missing) => Some(missing.reason_and_message().1),
            Self::HostPort(port) => Some(format!("host port {port} is another pod's")),
        }
    }
}

/// Decides about a pod that has not begun.
pub(super) fn decide(node: &NodeSnapshot<'_>, applicant: &Applicant<'_>) -> Decision {
    match node.mode {
        Mode::ShuttingDown => return reject(REJECTION.0, REJECTION.1.to_owned()),
        // It is ended at once, like everybody who was here before.
        Mode::Closed => return Decision::Admit,
        Mode::Open => {}
    }
    let refused = if applicant.is_queued { None } else { check_conditions(node, applicant) };
    refused.or_else(|| check_host_ports(node, applicant.pod)).unwrap_or_else(|| check_resources(node, applicant))
}

fn reject(reason: &str, message: String) -> Decision {
    Decision::Reject { reason: reason.to_owned(), message }
}

/// Everything but resources: where the pod wants to be, what it may set, and what the node is short of.
fn check_conditions(node: &NodeSnapshot<'_>, Applicant { pod, placed, .. }: &Applicant<'_>) -> Option<Decision> {
    // What a file asks for is for this node.
    let is_static = pod::is_static(*pod);
    let is_particular = !is_static && pod.spec.as_ref().is_some_and(placement::is_particular);
    match placed {
        Placed::Unasked if is_particular => return Some(Decision::Wait(WaitFor::Placement)),
        Placed::Asked => return Some(Decision::Wait(WaitFor::Placement)),
        Placed::Elsewhere => {
            return Some(reject("NodeAffinity", format!("Predicate NodeAffinity failed: {NOT_WANTED}")));
        }
        Placed::Unasked | Placed::Here => {}
    }
    if let Some(message) = node.allowed_sysctls.refusal(pod) {
        return Some(reject(FORBIDDEN, message));
    }
    if is_static { None } else { check_pressure(node.health, pod) }
}

/// Rejects a pod that would make worse what the node is short of.
fn check_pressure(health: Health, pod: &Pod) -> Option<Decision> {
    if !Pressure::may_evict(false, pod::priority(pod)) {
        return None;
    }
    // Who asked for memory may have what it asked for; of the rest there is nothing to be promised.
    let best_effort = pod::qos_class(pod) == QosClass::BestEffort;
    let short_of_memory = Taint { key: "node.kubernetes.io/memory-pressure", value: "", effect: "NoSchedule" };
    let conditions = [
        ("DiskPressure", health.disk_pressure),
        ("MemoryPressure", health.memory_pressure && best_effort && !pod::tolerates(pod, short_of_memory)),
        ("PIDPressure", health.pid_pressure),
    ];
    let named: Vec<&str> = conditions.iter().filter(|(_, holds)| *holds).map(|(name, _)| *name).collect();
    let message = || format!("The node had condition: [{}]. ", named.join(" "));
    (!named.is_empty()).then(|| reject("Evicted", message()))
}

/// Rejects a pod that asks for a port of the node that a pod has that stays; one that leaves is waited for. The scheduler asks the same
/// beforehand, but not of pods that name their node, and not of files.
fn check_host_ports(node: &NodeSnapshot<'_>, pod: &Pod) -> Option<Decision> {
    let taken_from = |holder: &Holder<'_>| {
        pod::host_ports(pod).find(|own| holder.host_ports.iter().any(|other| own.collides(other))).map(|own| own.port)
    };
    let mut waits = None;
    for holder in &node.holders {
        match taken_from(holder) {
            Some(port) if holder.is_leaving => waits = Some(Decision::Wait(WaitFor::HostPort(port))),
            Some(_) => return Some(reject("NodePorts", format!("Predicate NodePorts failed: {PORT_TAKEN}"))),
            None => {}
        }
    }
    waits
}

/// Whether it fits: at once, when terminating pods are gone, or when a critical pod has preempted others.
fn check_resources(node: &NodeSnapshot<'_>, applicant: &Applicant<'_>) -> Decision {
    let own = applicant.claim;
    let (leaving, staying): (Vec<&Holder<'_>>, Vec<_>) = node.holders.iter().partition(|holder| holder.is_leaving);
    let sum = |holders: &[&Holder<'_>]| {
        holders.iter().fold(NodeResources::default(), |sum, holder| sum.plus(holder.claim.asks))
    };
    let (staying_hold, leaving_hold) = (node.reserved.plus(sum(&staying)), sum(&leaving));
    let missing = node.capacity.missing(staying_hold.plus(leaving_hold), own.asks);
    if missing.is_nothing() {
        return Decision::Admit;
    }
    let for_good = node.capacity.missing(staying_hold, own.asks);
    if for_good.is_nothing() {
        return Decision::Wait(WaitFor::Resources(missing));
    }
    let less_important = staying.iter().filter(|holder| holder.claim.importance < own.importance);
    let candidates = less_important.map(|Holder { uid, claim, .. }| PreemptionCandidate {
        uid: (*uid).to_owned(),
        qos_class: claim.qos_class,
        asks: claim.asks,
    });
    let victims = node_resources::is_critical(own.importance)
        .then(|| node_resources::victims(&for_good, candidates.collect()))
        .flatten();
    match victims {
        Some(victims) => Decision::Preempt { missing, victims },
        None => {
            let (reason, message) = for_good.reason_and_message();
            Decision::Reject { reason, message }
        }
    }
}

#[cfg(test)]
mod tests;
