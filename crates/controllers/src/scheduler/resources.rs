//! What pods ask for, and what nodes have left of it.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

const CPU: &str = "cpu";
const PODS: &str = "pods";

/// So much of each resource: thousandths of CPUs, bytes, pieces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    fn of(quantities: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let amounts = quantities.into_iter().flatten().filter_map(|(name, quantity)| {
            let quantity: Quantity = quantity.0.parse().ok()?;
            Some((name.clone(), if name == CPU { quantity.milli_ceil() } else { quantity.ceil() }))
        });
        Self(amounts.collect())
    }

    /// What one container asks for.
    fn of_container(container: &Container) -> Self {
        Self::of(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    }

    /// What a pod asks for: its containers and sidecars together, or an init container beside the sidecars before it
    /// if that is more; and itself, as one pod.
    pub(super) fn of_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let (mut sidecars, mut most) = (Self::default(), Self::default());
        for container in spec.init_containers.iter().flatten() {
            let own = Self::of_container(container);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&own);
                most.raise(&sidecars);
            } else {
                let mut beside = sidecars.clone();
                beside.add(&own);
                most.raise(&beside);
            }
        }
        let mut total = sidecars;
        spec.containers.iter().for_each(|container| total.add(&Self::of_container(container)));
        total.raise(&most);
        // What is asked for the pod as a whole comes in place of its containers' sum.
        let whole = Self::of(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        total.0.extend(whole.0);
        total.add(&Self::of(spec.overhead.as_ref()));
        total.add(&Self([(PODS.to_owned(), 1)].into()));
        total
    }

    /// What a node has to give.
    pub(super) fn of_node(node: &Node) -> Self {
        Self::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    /// How many there are of that.
    pub(super) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// What is missing for `asked` besides what is `used`, in the words that people are told.
    pub(super) fn missing(&self, used: &Self, asked: &Self) -> Vec<String> {
        let short = |(name, amount): (&String, &i64)| {
            let left = self.get(name).saturating_sub(used.get(name));
            let counts = *amount > 0 && (name != PODS || self.0.contains_key(PODS));
            let words = || if name == PODS { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
            (counts && *amount > left).then(words)
        };
        asked.0.iter().filter_map(short).collect()
    }
}
