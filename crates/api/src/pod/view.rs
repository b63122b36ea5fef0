//! The fields of a pod that questions are asked about, borrowed from wherever the pod is.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde_json::{Map, Value};

use super::tolerations::Toleration;
use crate::quantity::Quantity;

/// A pod that can be asked. Lists that are not there are empty.
pub trait View {
    /// `metadata.annotations[key]`.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Whether `metadata.resourceVersion` is set.
    fn has_resource_version(&self) -> bool;
    /// Whether `metadata.deletionTimestamp` is set.
    fn has_deletion_timestamp(&self) -> bool;

    /// `spec.priority`.
    fn priority(&self) -> Option<i32>;
    /// `spec.initContainers`.
    fn init_containers(&self) -> impl Iterator<Item = Container<'_>>;
    /// `spec.containers`.
    fn containers(&self) -> impl Iterator<Item = Container<'_>>;
    /// `spec.tolerations`.
    fn tolerations(&self) -> impl Iterator<Item = Toleration<'_>>;
    /// `spec.resources`: what the pod asks for as a whole.
    fn resources(&self) -> Resources<'_>;
    /// `spec.overhead`: what its runtime needs.
    fn overhead(&self) -> ResourceList<'_>;

    /// `status.phase`.
    fn phase(&self) -> Option<&str>;
    /// `status.qosClass`.
    fn qos_class(&self) -> Option<&str>;
    /// `status.conditions`.
    fn conditions(&self) -> impl Iterator<Item = Condition<'_>>;
    /// `status.containerStatuses` and `status.initContainerStatuses`.
    fn container_statuses(&self) -> impl Iterator<Item = ContainerStatus<'_>>;
}

/// One container of a spec.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its own restart policy; empty if it has none.
    pub restart_policy: &'a str,
    /// What it asks for, and its limits.
    pub resources: Resources<'a>,
    /// The ports that it names.
    pub ports: Ports<'a>,
}

impl Container<'_> {
    /// Whether an init container with this policy runs beside the others until the end.
    pub fn is_restartable(&self) -> bool {
        self.restart_policy == "Always"
    }
}

/// One condition of a status.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    /// `type`.
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// Why; empty if it says nothing.
    pub reason: &'a str,
}

/// What the node says of one container's resources. `None` where it says nothing.
#[derive(Clone, Copy, Debug)]
pub struct ContainerStatus<'a> {
    /// The container's name.
    pub name: &'a str,
    /// The requests that its node has granted.
    pub allocated: Option<ResourceList<'a>>,
    /// The requests that it runs with.
    pub requests: Option<ResourceList<'a>>,
    /// The limits that it runs with.
    pub limits: Option<ResourceList<'a>>,
}

/// Requests and limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources<'a> {
    /// What is asked for.
    pub requests: ResourceList<'a>,
    /// What may be used at most.
    pub limits: ResourceList<'a>,
}

impl<'a> From<Option<&'a ResourceRequirements>> for Resources<'a> {
    fn from(typed: Option<&'a ResourceRequirements>) -> Self {
        let list = |list: Option<&'a BTreeMap<_, _>>| list.map(ResourceList::from).unwrap_or_default();
        typed.map_or_else(Self::default, |typed| Self {
            requests: list(typed.requests.as_ref()),
            limits: list(typed.limits.as_ref()),
        })
    }
}

impl<'a> From<&'a Value> for Resources<'a> {
    fn from(json: &'a Value) -> Self {
        Self { requests: (&json["requests"]).into(), limits: (&json["limits"]).into() }
    }
}

/// Amounts by the name of their resource, as they were written.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceList<'a>(ListSource<'a>);

#[derive(Clone, Copy, Debug, Default)]
enum ListSource<'a> {
    #[default]
    Nothing,
    Json(&'a Map<String, Value>),
    Typed(&'a BTreeMap<String, ApiQuantity>),
}

impl<'a> ResourceList<'a> {
    fn texts(self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let (json, typed) = match self.0 {
            ListSource::Nothing => (None, None),
            ListSource::Json(map) => (Some(map), None),
            ListSource::Typed(map) => (None, Some(map)),
        };
        let json = json.into_iter().flatten().map(|(name, amount)| (name.as_str(), amount.as_str()));
        let typed = typed.into_iter().flatten().map(|(name, amount)| (name.as_str(), Some(amount.0.as_str())));
        json.chain(typed)
    }

    /// Names and amounts; what is no quantity is left out.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Quantity)> {
        self.texts().filter_map(|(name, amount)| Some((name, amount?.parse().ok()?)))
    }

    /// The names, whatever the amounts are.
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        self.texts().map(|(name, _)| name)
    }

    /// The amount of `name`, if it is there.
    pub fn get(self, name: &str) -> Option<Quantity> {
        match self.0 {
            ListSource::Nothing => None,
            ListSource::Json(map) => map.get(name)?.as_str()?.parse().ok(),
            ListSource::Typed(map) => map.get(name)?.0.parse().ok(),
        }
    }
}

impl<'a> From<&'a Value> for ResourceList<'a> {
    fn from(json: &'a Value) -> Self {
        json.as_object().map_or_else(Self::default, |map| Self(ListSource::Json(map)))
    }
}

impl<'a> From<&'a BTreeMap<String, ApiQuantity>> for ResourceList<'a> {
    fn from(typed: &'a BTreeMap<String, ApiQuantity>) -> Self {
        Self(ListSource::Typed(typed))
    }
}

/// The ports that a container names.
#[derive(Clone, Copy, Debug)]
pub enum Ports<'a> {
    /// As JSON.
    Json(&'a [Value]),
    /// Typed.
    Typed(&'a [ContainerPort]),
}
