//! A pod as far as controllers read it: what they leave out is skipped while it is read, which is most of it.

use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, PodCondition, PodSchedulingGate, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// A pod, read and never written back.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct PodView {
    /// Without annotations and managed fields.
    #[serde(deserialize_with = "client::trimmed_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: SpecView,
    #[serde(default)]
    pub(crate) status: StatusView,
}

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpecView {
    pub(crate) node_name: Option<String>,
    pub(crate) scheduler_name: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) preemption_policy: Option<String>,
    pub(crate) scheduling_gates: Vec<PodSchedulingGate>,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) affinity: Option<Box<Affinity>>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) init_containers: Vec<ContainerView>,
    pub(crate) containers: Vec<ContainerView>,
    pub(crate) resources: Option<ResourceRequirements>,
    pub(crate) overhead: Option<BTreeMap<String, Quantity>>,
}

/// What one container asks for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) restart_policy: Option<String>,
    pub(crate) ports: Vec<ContainerPort>,
    pub(crate) resources: Option<ResourceRequirements>,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusView {
    pub(crate) phase: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) nominated_node_name: Option<String>,
    pub(crate) conditions: Vec<PodCondition>,
    pub(crate) init_container_statuses: Vec<ContainerStatusView>,
    pub(crate) container_statuses: Vec<ContainerStatusView>,
}

/// What one container was granted.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatusView {
    pub(crate) name: String,
    pub(crate) allocated_resources: Option<BTreeMap<String, Quantity>>,
}

impl StatusView {
    /// What its node has granted to a container.
    pub(crate) fn granted(&self, container: &str) -> Option<&BTreeMap<String, Quantity>> {
        let mut all = self.init_container_statuses.iter().chain(&self.container_statuses);
        all.find(|status| status.name == container)?.allocated_resources.as_ref()
    }

    /// Whether what it asks for now was refused for good.
    pub(crate) fn is_resize_infeasible(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| it.type_ == "PodResizePending" && it.reason.as_deref() == Some("Infeasible"))
    }
}

impl PodView {
    /// The node it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Done: it needs nothing any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl k8s_openapi::Resource for PodView {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Pod";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "pods";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for PodView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
