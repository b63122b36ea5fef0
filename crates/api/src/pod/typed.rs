//! A pod as `k8s-openapi` types it: what nodes and clients hold. Excerpts are made of the same parts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::tolerations::{Taint, Toleration};
use super::view::{Condition, Container, ContainerStatus, Ports, ResourceList, Resources, View};

impl View for core::Pod {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn has_resource_version(&self) -> bool {
        self.metadata.resource_version.is_some()
    }

    fn has_deletion_timestamp(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn priority(&self) -> Option<i32> {
        self.spec.as_ref()?.priority
    }

    fn init_containers(&self) -> impl Iterator<Item = Container<'_>> {
        self.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).map(Container::from)
    }

    fn containers(&self) -> impl Iterator<Item = Container<'_>> {
        self.spec.iter().flat_map(|spec| &spec.containers).map(Container::from)
    }

    fn tolerations(&self) -> impl Iterator<Item = Toleration<'_>> {
        self.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).map(Toleration::from)
    }

    fn resources(&self) -> Resources<'_> {
        self.spec.as_ref().and_then(|spec| spec.resources.as_ref()).into()
    }

    fn overhead(&self) -> ResourceList<'_> {
        self.spec.as_ref().and_then(|spec| spec.overhead.as_ref()).map(ResourceList::from).unwrap_or_default()
    }

    fn phase(&self) -> Option<&str> {
        self.status.as_ref()?.phase.as_deref()
    }

    fn qos_class(&self) -> Option<&str> {
        self.status.as_ref()?.qos_class.as_deref()
    }

    fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        self.status.iter().flat_map(|status| status.conditions.iter().flatten()).map(Condition::from)
    }

    fn container_statuses(&self) -> impl Iterator<Item = ContainerStatus<'_>> {
        let main = self.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let init = self.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
        main.chain(init).map(ContainerStatus::from)
    }
}

impl<'a> From<&'a core::Container> for Container<'a> {
    fn from(container: &'a core::Container) -> Self {
        Self {
            name: &container.name,
            restart_policy: container.restart_policy.as_deref().unwrap_or_default(),
            resources: container.resources.as_ref().into(),
            ports: Ports::Typed(container.ports.as_deref().unwrap_or_default()),
        }
    }
}

impl<'a> From<&'a core::Toleration> for Toleration<'a> {
    fn from(toleration: &'a core::Toleration) -> Self {
        Self {
            key: toleration.key.as_deref().unwrap_or_default(),
            operator: toleration.operator.as_deref().unwrap_or_default(),
            value: toleration.value.as_deref().unwrap_or_default(),
            effect: toleration.effect.as_deref().unwrap_or_default(),
            seconds: toleration.toleration_seconds,
        }
    }
}

impl<'a> From<&'a core::Taint> for Taint<'a> {
    fn from(taint: &'a core::Taint) -> Self {
        Self { key: &taint.key, value: taint.value.as_deref().unwrap_or_default(), effect: &taint.effect }
    }
}

impl<'a> From<&'a core::PodCondition> for Condition<'a> {
    fn from(condition: &'a core::PodCondition) -> Self {
        Self {
            kind: &condition.type_,
            status: &condition.status,
            reason: condition.reason.as_deref().unwrap_or_default(),
        }
    }
}

impl<'a> From<&'a core::ContainerStatus> for ContainerStatus<'a> {
    fn from(status: &'a core::ContainerStatus) -> Self {
        fn said(list: Option<&BTreeMap<String, Quantity>>) -> Option<ResourceList<'_>> {
            list.map(ResourceList::from)
        }
        let own = status.resources.as_ref();
        Self {
            name: &status.name,
            allocated: said(status.allocated_resources.as_ref()),
            requests: said(own.and_then(|own| own.requests.as_ref())),
            limits: said(own.and_then(|own| own.limits.as_ref())),
        }
    }
}
