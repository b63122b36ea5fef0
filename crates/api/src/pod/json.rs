//! A pod as a JSON value: what the server stores.

use serde_json::Value;

use super::tolerations::Toleration;
use super::view::{Condition, Container, ContainerStatus, Ports, ResourceList, Resources, View};
use crate::meta;
use crate::rules::value::{list, word};

impl View for Value {
    fn annotation(&self, key: &str) -> Option<&str> {
        self["metadata"]["annotations"][key].as_str()
    }

    fn has_resource_version(&self) -> bool {
        self["metadata"]["resourceVersion"].is_string()
    }

    fn has_deletion_timestamp(&self) -> bool {
        meta::deletion_timestamp(self).is_some()
    }

    fn priority(&self) -> Option<i32> {
        i32::try_from(self["spec"]["priority"].as_i64()?).ok()
    }

    fn init_containers(&self) -> impl Iterator<Item = Container<'_>> {
        list(&self["spec"], "initContainers").iter().map(container)
    }

    fn containers(&self) -> impl Iterator<Item = Container<'_>> {
        list(&self["spec"], "containers").iter().map(container)
    }

    fn tolerations(&self) -> impl Iterator<Item = Toleration<'_>> {
        list(&self["spec"], "tolerations").iter().map(|toleration| Toleration {
            key: word(toleration, "key"),
            operator: word(toleration, "operator"),
            value: word(toleration, "value"),
            effect: word(toleration, "effect"),
            seconds: toleration["tolerationSeconds"].as_i64(),
        })
    }

    fn resources(&self) -> Resources<'_> {
        Resources::from(&self["spec"]["resources"])
    }

    fn overhead(&self) -> ResourceList<'_> {
        ResourceList::from(&self["spec"]["overhead"])
    }

    fn phase(&self) -> Option<&str> {
        self["status"]["phase"].as_str()
    }

    fn qos_class(&self) -> Option<&str> {
        self["status"]["qosClass"].as_str()
    }

    fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        list(&self["status"], "conditions").iter().map(|condition| Condition {
            kind: word(condition, "type"),
            status: word(condition, "status"),
            reason: word(condition, "reason"),
        })
    }

    fn container_statuses(&self) -> impl Iterator<Item = ContainerStatus<'_>> {
        let status = &self["status"];
        list(status, "containerStatuses").iter().chain(list(status, "initContainerStatuses")).map(container_status)
    }
}

fn container(container: &Value) -> Container<'_> {
    Container {
        name: word(container, "name"),
        restart_policy: word(container, "restartPolicy"),
        resources: Resources::from(&container["resources"]),
        ports: Ports::Json(list(container, "ports")),
    }
}

fn container_status(status: &Value) -> ContainerStatus<'_> {
    fn said(list: &Value) -> Option<ResourceList<'_>> {
        list.is_object().then(|| ResourceList::from(list))
    }
    ContainerStatus {
        name: word(status, "name"),
        allocated: said(&status["allocatedResources"]),
        requests: said(&status["resources"]["requests"]),
        limits: said(&status["resources"]["limits"]),
    }
}
