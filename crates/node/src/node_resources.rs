//! The resources of a node, the requests of pods, and the choice of pods that a critical pod preempts.
//! Pure; [`crate::pods`] knows which pods are here and which are leaving.

use std::collections::BTreeMap;

use api::pod::{self, QosClass, ResourceOptions};
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use lifecycle::eviction::CRITICAL;

/// The counted resources, in the order in which a shortage is reported.
const NAMES: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];

/// The least priority of a static pod: that of the class `system-node-critical`.
const STATIC: i32 = CRITICAL + 1000;

/// Amounts of each resource: pods, milli-CPUs, bytes of memory and of disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeResources([i64; NAMES.len()]);

impl NodeResources {
    /// The amounts of a node's capacity.
    pub fn of_node(capacity: &BTreeMap<String, ApiQuantity>) -> Self {
        Self::read(|name| capacity.get(name)?.0.parse().ok())
    }

    /// The requests of a pod: one pod, and the requests of its containers.
    pub fn of_pod(pod: &Pod) -> Self {
        let asked = pod::requests(pod, ResourceOptions::SPEC);
        let mut resources = Self::read(|name| asked.get(name));
        resources.0[0] = 1;
        resources
    }

    fn read(amount: impl Fn(&str) -> Option<Quantity>) -> Self {
        let whole = |name: &str, amount: Quantity| if name == "cpu" { amount.milli_ceil() } else { amount.ceil() };
        Self(NAMES.map(|name| amount(name).map_or(0, |amount| whole(name, amount))))
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_add(other.0[at])))
    }

    /// As much as either of both.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].max(other.0[at])))
    }

    /// The difference, never below 0.
    #[must_use]
    fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(other.0[at]).max(0)))
    }

    fn is_nothing(self) -> bool {
        self.0.iter().all(|amount| *amount == 0)
    }

    /// What this capacity lacks for `asked` beside what is `used`. A resource that is not requested is never short.
    pub fn missing(self, used: Self, asked: Self) -> ResourceShortage {
        let short = used.plus(asked).without(self);
        let amounts = Self(std::array::from_fn(|at| if asked.0[at] > 0 { short.0[at] } else { 0 }));
        ResourceShortage { capacity: self, used, asked, amounts }
    }

    /// Whether no amount exceeds that of `other`.
    pub fn is_within(self, other: Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own <= other)
    }

    /// How far these amounts are from what is missing; 0 if they cover it.
    fn distance(self, missing: Self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "only the order counts")]
        let part = |(has, wants): (&i64, &i64)| match *wants {
            0 => 0.0,
            wants => ((wants - has).max(0) as f64 / wants as f64).powi(2),
        };
        self.0.iter().zip(&missing.0).map(part).sum()
    }
}

/// The resources that a node lacks for a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceShortage {
    capacity: NodeResources,
    used: NodeResources,
    asked: NodeResources,
    amounts: NodeResources,
}

impl ResourceShortage {
    /// The pod fits.
    pub fn is_nothing(&self) -> bool {
        self.amounts.is_nothing()
    }

    /// Reason and message for a rejected pod: the first missing resource.
    pub fn reason_and_message(&self) -> (String, String) {
        let at = self.amounts.0.iter().position(|amount| *amount > 0).unwrap_or(0);
        let of = |resources: NodeResources| resources.0[at];
        let message = format!(
            "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}",
            NAMES[at],
            of(self.asked),
            of(self.used),
            of(self.capacity)
        );
        (format!("OutOf{}", NAMES[at]), message)
    }
}

/// The priority of a pod on its node.
pub fn importance(pod: &Pod) -> i32 {
    let own = pod::priority(pod);
    if pod::is_static(pod) { own.max(STATIC) } else { own }
}

/// Whether a pod of this priority may preempt others on its node.
pub fn is_critical(importance: i32) -> bool {
    importance >= CRITICAL
}

/// A pod that could be preempted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreemptionCandidate {
    /// Its UID.
    pub uid: String,
    /// Its QoS class.
    pub qos_class: QosClass,
    /// Its requests, which its end frees.
    pub asks: NodeResources,
}

/// The pods to preempt so that nothing is missing: as few as possible of the higher QoS classes, and within a class those whose
/// requests come nearest to what is missing, the smallest first. `None` if all together are not enough.
pub fn victims(missing: &ResourceShortage, candidates: Vec<PreemptionCandidate>) -> Option<Vec<PreemptionCandidate>> {
    let mut rest = candidates;
    let mut chosen: Vec<PreemptionCandidate> = Vec::new();
    for qos_class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        let (mut these, lower): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|candidate| candidate.qos_class == qos_class);
        // Those to whom less was promised go first; these only for what is missing even then.
        let gives = |candidates: &[PreemptionCandidate]| {
            candidates.iter().fold(NodeResources::default(), |sum, candidate| sum.plus(candidate.asks))
        };
        let mut needed = missing.amounts.without(gives(&lower)).without(gives(&chosen));
        while !needed.is_nothing() {
            let nearest = (0..these.len()).min_by(|a, b| {
                let (a, b) = (&these[*a], &these[*b]);
                let distance = a.asks.distance(needed).total_cmp(&b.asks.distance(needed));
                distance.then_with(|| a.asks.0.cmp(&b.asks.0)).then_with(|| a.uid.cmp(&b.uid))
            })?;
            let candidate = these.swap_remove(nearest);
            needed = needed.without(candidate.asks);
            chosen.push(candidate);
        }
        rest = lower;
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(pods: i64, cpu: i64, memory: i64) -> NodeResources {
        NodeResources([pods, cpu, memory, 0])
    }

    fn candidate(uid: &str, qos_class: QosClass, cpu: i64, memory: i64) -> PreemptionCandidate {
        PreemptionCandidate { uid: uid.to_owned(), qos_class, asks: resources(1, cpu, memory) }
    }

    /// The words are upstream's, the first of what is missing first; what a pod does not ask for it cannot lack.
    #[test]
    fn shortage_message_names_the_first_missing_resource() {
        let node = resources(3, 2000, 4096);
        let words = |used, asked| {
            let missing = node.missing(used, asked);
            if missing.is_nothing() { Default::default() } else { missing.reason_and_message() }
        };
        let lacks = |name: &str, requested: i64, used: i64, capacity: i64| {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            (format!("OutOf{name}"), message)
        };
        assert_eq!(words(resources(0, 0, 0), resources(1, 2000, 4096)), Default::default());
        assert_eq!(words(resources(1, 1500, 0), resources(1, 600, 0)), lacks("cpu", 600, 1500, 2000));
        assert_eq!(words(resources(1, 2000, 4000), resources(1, 1, 97)), lacks("cpu", 1, 2000, 2000));
        assert_eq!(words(resources(1, 0, 4000), resources(1, 1, 97)), lacks("memory", 97, 4000, 4096));
        assert_eq!(words(resources(3, 2000, 4096), resources(1, 1, 1)), lacks("pods", 1, 3, 3));
        assert_eq!(words(resources(1, 9000, 0), resources(1, 0, 1)), Default::default());
    }

    #[test]
    fn a_pod_asks_for_itself_and_its_requests() {
        let pod = json!({ "metadata": {}, "spec": {
            "containers": [
                { "name": "a", "resources": { "requests": { "cpu": "100m", "memory": "1Ki", "example.com/gpu": "1" } } },
                { "name": "b", "resources": { "requests": { "cpu": "1", "ephemeral-storage": "2Ki" } } },
            ] } });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(NodeResources::of_pod(&pod), NodeResources([1, 1100, 1024, 2048]));
        assert_eq!(NodeResources::of_pod(&Pod::default()), resources(1, 0, 0));
    }

    fn chosen(missing: NodeResources, candidates: &[PreemptionCandidate]) -> Option<String> {
        let missing = NodeResources::default().missing(NodeResources::default(), missing);
        let victims = victims(&missing, candidates.to_vec())?;
        Some(victims.into_iter().map(|candidate| candidate.uid).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn preemption_takes_the_lowest_qos_class_first_and_no_more_than_needed() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let all = [
            candidate("nothing", BestEffort, 0, 0),
            candidate("some", Burstable, 300, 50),
            candidate("more", Burstable, 600, 50),
            candidate("all", Guaranteed, 1000, 100),
        ];
        let wants = |cpu: i64| chosen(NodeResources([0, cpu, 0, 0]), &all);
        assert_eq!(wants(200).as_deref(), Some("some"), "the smallest that will do");
        assert_eq!(wants(400).as_deref(), Some("more"));
        assert_eq!(wants(800).as_deref(), Some("more some"));
        assert_eq!(wants(1000).as_deref(), Some("all"), "the others are not enough, and then not needed");
        assert_eq!(wants(1200).as_deref(), Some("all some"));
        assert_eq!(wants(1900).as_deref(), Some("all more some"));
        assert_eq!(wants(2000), None, "nobody leaves for nothing");
        assert_eq!(chosen(NodeResources([1, 0, 0, 0]), &all).as_deref(), Some("nothing"), "a place for a pod");
        assert_eq!(chosen(NodeResources::default(), &all).as_deref(), Some(""));
    }

    #[test]
    fn a_static_pod_is_critical_whatever_it_says() {
        let mut pod = Pod::default();
        assert!(!is_critical(importance(&pod)));
        pod.metadata.annotations = Some([(pod::SOURCE_ANNOTATION.to_owned(), "file".to_owned())].into());
        assert_eq!(importance(&pod), 2_000_001_000);
        assert!(is_critical(importance(&pod)));
    }
}
