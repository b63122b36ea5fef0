//! So much of each resource: what a container asks for, what a pod comes to, what a quota counts.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::quantity::Quantity;
use crate::rules::value::{list, word};

/// Amounts by the name of their resource. A name that is not there is not the same as none of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    /// The amounts in a JSON map; what is no quantity is left out.
    pub fn of(map: &Value) -> Self {
        let fields = map.as_object().into_iter().flatten();
        Self(fields.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect())
    }

    /// What the pod of `spec` asks for.
    pub fn requested_by(spec: &Value) -> Self {
        Self::of_pod(spec, "requests")
    }

    /// What the pod of `spec` may use at most, as far as it says.
    pub fn limits_of(spec: &Value) -> Self {
        Self::of_pod(spec, "limits")
    }

    /// Containers and sidecars together, or an init container beside the sidecars before it if that is more. What the pod
    /// says as a whole comes in place of its containers' sum, and what its runtime needs comes on top.
    fn of_pod(spec: &Value, side: &str) -> Self {
        let mut total = Self::of_containers(spec, side);
        total.0.extend(Self::of(&spec["resources"][side]).0);
        for (name, amount) in Self::of(&spec["overhead"]).0 {
            // A limit that nobody has set is not made by an overhead.
            if side == "requests" || total.0.contains_key(&name) {
                total.add_one(&name, amount);
            }
        }
        total
    }

    /// What the containers of `spec` ask for, whatever the pod says as a whole.
    pub(crate) fn requested_by_containers(spec: &Value) -> Self {
        Self::of_containers(spec, "requests")
    }

    fn of_containers(spec: &Value, side: &str) -> Self {
        let own = |container: &Value| Self::of(&container["resources"][side]);
        let (mut sidecars, mut most) = (Self::default(), Self::default());
        for container in list(spec, "initContainers") {
            if word(container, "restartPolicy") == "Always" {
                sidecars.add(&own(container));
                most.raise(&sidecars);
            } else {
                let mut beside = sidecars.clone();
                beside.add(&own(container));
                most.raise(&beside);
            }
        }
        let mut total = sidecars;
        list(spec, "containers").iter().for_each(|container| total.add(&own(container)));
        total.raise(&most);
        total
    }

    /// The amount of `name`, if it is there.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Only those that `keep` wants.
    #[must_use]
    pub fn only(&self, mut keep: impl FnMut(&str, Quantity) -> bool) -> Self {
        Self(self.iter().filter(|(name, amount)| keep(name, *amount)).map(|(n, a)| (n.to_owned(), a)).collect())
    }

    /// Sets one amount.
    pub fn put(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_owned(), amount);
    }

    /// Adds to one amount.
    pub(crate) fn add_one(&mut self, name: &str, amount: Quantity) {
        match self.0.get_mut(name) {
            Some(own) => *own = own.plus(amount),
            None => self.put(name, amount),
        }
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.add_one(name, amount));
    }

    /// Takes all of `other` away.
    pub fn subtract(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.add_one(name, Quantity::ZERO.minus(amount)));
    }

    /// Brings every amount up to that of `other`.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if self.get(name).is_none_or(|own| own < amount) {
                self.put(name, amount);
            }
        }
    }

    /// As a JSON map.
    pub fn to_json(&self) -> Value {
        Value::Object(
            self.iter().map(|(name, amount)| (name.to_owned(), json!(amount.to_string()))).collect::<Map<_, _>>(),
        )
    }
}

impl fmt::Display for Amounts {
    /// `cpu=1,memory=2Gi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            write!(f, "{}{name}={amount}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_requests_are_the_peak_of_init_and_main_containers() {
        let container = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = json!("Always");
        let mut spec = json!({ "initContainers": [container("300m"), sidecar, container("700m")],
            "containers": [container("200m"), container("200m")] });
        assert_eq!(Amounts::requested_by(&spec).to_string(), "cpu=800m");
        spec["containers"][0] = container("2");
        assert_eq!(Amounts::requested_by(&spec).to_string(), "cpu=2300m");
        spec["overhead"] = json!({ "cpu": "50m", "memory": "10Mi" });
        assert_eq!(Amounts::requested_by(&spec).to_string(), "cpu=2350m,memory=10Mi");
        assert!(Amounts::limits_of(&spec).is_empty());
        spec["resources"] = json!({ "requests": { "cpu": "4" } });
        assert_eq!(Amounts::requested_by(&spec).to_string(), "cpu=4050m,memory=10Mi");
    }
}
