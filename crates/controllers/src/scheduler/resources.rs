//! What pods ask for, and what nodes have left of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::pod::{self, ResourceOptions};
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::pod::{ContainerView, PodView};

const CPU: &str = "cpu";
const PODS: &str = "pods";

/// The name of a resource; those that everybody has cost nothing to keep.
type Name = Cow<'static, str>;

fn name_of(word: &str) -> Name {
    let known = [CPU, "memory", PODS, "ephemeral-storage"].into_iter().find(|known| *known == word);
    known.map_or_else(|| Cow::Owned(word.to_owned()), Cow::Borrowed)
}

fn counted(name: Name, amount: Quantity) -> (Name, i64) {
    let amount = if name == CPU { amount.milli_ceil() } else { amount.ceil() };
    (name, amount)
}

/// So much of each resource: thousandths of CPUs, bytes, pieces. In the order of names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Amounts(Vec<(Name, i64)>);

impl Amounts {
    fn of(quantities: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let amounts = quantities
            .into_iter()
            .flatten()
            .filter_map(|(name, quantity)| Some(counted(name_of(name), quantity.0.parse().ok()?)));
        Self(amounts.collect())
    }

    /// What a pod occupies, and itself, as one pod.
    pub(super) fn of_pod(pod: &PodView) -> Self {
        let requests = pod::requests(pod, ResourceOptions::WITH_STATUS).into_iter();
        let mut total = Self(requests.map(|(name, amount)| counted(name, amount)).collect());
        *total.entry(&Cow::Borrowed(PODS)) += 1;
        total.0.shrink_to_fit();
        total
    }

    /// What a node has to give.
    pub(super) fn of_node(node: &Node) -> Self {
        Self::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.as_ref().cmp(name))
    }

    fn entry(&mut self, name: &Name) -> &mut i64 {
        let at = self.place(name).unwrap_or_else(|at| {
            self.0.insert(at, (name.clone(), 0));
            at
        });
        &mut self.0[at].1
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.entry(name);
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Takes back what was added.
    pub(super) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let left = self.entry(name);
            *left = left.saturating_sub(*amount);
        }
    }

    /// How many there are of that.
    pub(super) fn get(&self, name: &str) -> i64 {
        self.place(name).map_or(0, |at| self.0[at].1)
    }

    /// What is missing for `asked` besides what is `used`, in the words that people are told.
    pub(super) fn missing(&self, used: &Self, asked: &Self) -> Vec<String> {
        let short = |(name, amount): &(Name, i64)| {
            let left = self.get(name).saturating_sub(used.get(name));
            let counts = *amount > 0 && (name != PODS || self.place(PODS).is_ok());
            let words = || if name == PODS { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
            (counts && *amount > left).then(words)
        };
        asked.0.iter().filter_map(short).collect()
    }
}

/// What a pod is taken to use where nodes are compared: one that asks for nothing uses something all the same.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct NonZeroRequest {
    /// Thousandths of CPUs.
    pub(super) cpu: i64,
    /// Bytes.
    pub(super) memory: i64,
}

impl NonZeroRequest {
    /// For each container that asks for none.
    const USUAL: Self = Self { cpu: 100, memory: 200 << 20 };

    pub(super) fn of(pod: &PodView, asked: &Amounts) -> Self {
        let spec = &pod.spec;
        let as_a_whole = |name: &str| {
            let own = spec.resources.as_ref().and_then(|own| own.requests.as_ref());
            own.is_some_and(|own| own.contains_key(name))
        };
        let sidecars = spec.init_containers.iter().filter(|it| it.restart_policy.as_deref() == Some("Always"));
        let silent = |name: &str| {
            let says = |it: &&ContainerView| {
                let requests = it.resources.as_ref().and_then(|own| own.requests.as_ref());
                !requests.is_some_and(|own| own.contains_key(name))
            };
            let number = spec.containers.iter().chain(sidecars.clone()).filter(says).count();
            if as_a_whole(name) { 0 } else { i64::try_from(number).unwrap_or(i64::MAX) }
        };
        let with = |name: &str, usual: i64| asked.get(name).saturating_add(silent(name).saturating_mul(usual));
        Self { cpu: with(CPU, Self::USUAL.cpu), memory: with("memory", Self::USUAL.memory) }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }

    /// Takes back what was added.
    pub(super) fn subtract(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_that_asks_for_nothing_is_taken_to_use_a_little() {
        let request = |spec: serde_json::Value| {
            let pod: PodView = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            let NonZeroRequest { cpu, memory } = NonZeroRequest::of(&pod, &Amounts::of_pod(&pod));
            (cpu, memory >> 20)
        };
        let silent = json!({ "name": "a" });
        let asks = json!({ "name": "b", "resources": { "requests": { "cpu": "1" } } });
        let sidecar = json!({ "name": "s", "restartPolicy": "Always" });
        assert_eq!(request(json!({ "containers": [silent, asks] })), (1100, 400));
        assert_eq!(request(json!({ "containers": [silent], "initContainers": [sidecar, silent] })), (200, 400));
        let whole = json!({ "requests": { "cpu": "2", "memory": "1Gi" } });
        assert_eq!(request(json!({ "containers": [silent], "resources": whole })), (2000, 1024));
    }

    #[test]
    fn resized_pod_counts_its_actual_resources_and_not_infeasible_ones() {
        let cpus = |granted: &str, reason: &str| {
            let pod = serde_json::from_value::<PodView>(json!({
                "metadata": { "name": "p" },
                "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "2" } } }] },
                "status": {
                    "containerStatuses": [{ "name": "app", "allocatedResources": { "cpu": granted } }],
                    "conditions": [{ "type": "PodResizePending", "status": "True", "reason": reason }],
                },
            }));
            Amounts::of_pod(&pod.unwrap()).get(CPU)
        };
        assert_eq!(cpus("3", "Deferred"), 3000, "it is to have less, and has not yet");
        assert_eq!(cpus("1", "Deferred"), 2000, "it is to have more as soon as that can be");
        assert_eq!(cpus("1", "Infeasible"), 1000, "it will never have more");
    }
}
