//! A pod as far as controllers read it: what they leave out is skipped while it is read, which is most of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::pod::{Condition, Container, ContainerStatus, Ports, ResourceList, Resources, View};
use api::volume::ephemeral_claim;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, EphemeralVolumeSource, PersistentVolumeClaimVolumeSource, PodCondition, PodIP,
    PodSchedulingGate, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};

/// A pod, read and never written back.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct PodView {
    /// Without managed fields, and of the annotations only those that `client::trimmed_metadata` keeps.
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
    pub(crate) topology_spread_constraints: Vec<TopologySpreadConstraint>,
    pub(crate) init_containers: Vec<ContainerView>,
    pub(crate) containers: Vec<ContainerView>,
    pub(crate) resources: Option<ResourceRequirements>,
    pub(crate) overhead: Option<BTreeMap<String, Quantity>>,
    pub(crate) hostname: Option<String>,
    pub(crate) subdomain: Option<String>,
    /// Only those that are a claim's.
    #[serde(deserialize_with = "claim_volumes")]
    pub(crate) volumes: Vec<ClaimVolumeView>,
}

/// A volume that is a claim's: one that the pod names, or one that is made for it.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimVolumeView {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    pub(crate) ephemeral: Option<Box<EphemeralVolumeSource>>,
}

fn claim_volumes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ClaimVolumeView>, D::Error> {
    let mut volumes = Option::<Vec<ClaimVolumeView>>::deserialize(deserializer)?.unwrap_or_default();
    volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    volumes.shrink_to_fit();
    Ok(volumes)
}

/// What one container asks for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) image: String,
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
    /// When its node took it up.
    pub(crate) start_time: Option<Time>,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Vec<PodIP>,
    pub(crate) conditions: Vec<PodCondition>,
    pub(crate) init_container_statuses: Vec<ContainerStatusView>,
    pub(crate) container_statuses: Vec<ContainerStatusView>,
}

/// How often one container was restarted and how it ended, what it was granted, and what it runs with where that is something else.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(from = "ContainerStatusFields")]
pub(crate) struct ContainerStatusView {
    pub(crate) name: String,
    pub(crate) restart_count: i32,
    /// How it ended, unless it runs or waits.
    pub(crate) terminated: Option<TerminatedView>,
    allocated: Option<BTreeMap<String, Quantity>>,
    requests: Option<BTreeMap<String, Quantity>>,
}

/// The end of a container.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TerminatedView {
    pub(crate) exit_code: i32,
    pub(crate) finished_at: Option<Time>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StateField {
    terminated: Option<TerminatedView>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatusFields {
    name: String,
    restart_count: i32,
    state: StateField,
    allocated_resources: Option<BTreeMap<String, Quantity>>,
    resources: Option<RequestsField>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestsField {
    requests: Option<BTreeMap<String, Quantity>>,
}

impl From<ContainerStatusFields> for ContainerStatusView {
    fn from(fields: ContainerStatusFields) -> Self {
        let ContainerStatusFields { name, restart_count, state, allocated_resources: allocated, resources } = fields;
        // Almost always the same, and then kept once.
        let requests = resources.and_then(|own| own.requests).filter(|own| Some(own) != allocated.as_ref());
        Self { name, restart_count, terminated: state.terminated, allocated, requests }
    }
}

impl PodView {
    /// The node it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The claims of its volumes by name, and whether each is made for this pod.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (Cow<'_, str>, bool)> {
        let own = self.metadata.name.as_deref().unwrap_or_default();
        self.spec.volumes.iter().map(move |volume| match &volume.persistent_volume_claim {
            Some(source) => (Cow::Borrowed(source.claim_name.as_str()), false),
            None => (Cow::Owned(ephemeral_claim(own, &volume.name)), true),
        })
    }
}

impl View for PodView {
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
        self.spec.priority
    }

    fn init_containers(&self) -> impl Iterator<Item = Container<'_>> {
        self.spec.init_containers.iter().map(ContainerView::borrowed)
    }

    fn containers(&self) -> impl Iterator<Item = Container<'_>> {
        self.spec.containers.iter().map(ContainerView::borrowed)
    }

    fn tolerations(&self) -> impl Iterator<Item = api::pod::Toleration<'_>> {
        self.spec.tolerations.iter().map(Into::into)
    }

    fn resources(&self) -> Resources<'_> {
        self.spec.resources.as_ref().into()
    }

    fn overhead(&self) -> ResourceList<'_> {
        self.spec.overhead.as_ref().map(ResourceList::from).unwrap_or_default()
    }

    fn phase(&self) -> Option<&str> {
        self.status.phase.as_deref()
    }

    /// Is not read: controllers do not ask for it.
    fn qos_class(&self) -> Option<&str> {
        None
    }

    fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        self.status.conditions.iter().map(Condition::from)
    }

    /// Without limits, which controllers do not ask for.
    fn container_statuses(&self) -> impl Iterator<Item = ContainerStatus<'_>> {
        let all = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        all.map(|status| ContainerStatus {
            name: &status.name,
            allocated: status.allocated.as_ref().map(ResourceList::from),
            requests: status.requests.as_ref().map(ResourceList::from),
            limits: None,
        })
    }
}

impl ContainerView {
    fn borrowed(&self) -> Container<'_> {
        Container {
            name: &self.name,
            restart_policy: self.restart_policy.as_deref().unwrap_or_default(),
            resources: self.resources.as_ref().into(),
            ports: Ports::Typed(&self.ports),
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use api::pod::{self, ResourceOptions, Taint};
    use serde_json::json;

    use super::*;

    /// What is left out here is nothing that is asked for: the excerpt answers as the whole pod does.
    #[test]
    fn pod_excerpt_answers_as_the_stored_pod_does() {
        let own = |cpu: &str| json!({ "requests": { "cpu": cpu }, "limits": { "memory": "1Gi" } });
        let status = |name: &str, allocated: &str, cpu: &str| {
            json!({ "name": name, "ready": true,
            "allocatedResources": { "cpu": allocated }, "resources": own(cpu) })
        };
        let port = json!({ "containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.1", "protocol": "UDP" });
        let whole = json!({
            "metadata": { "name": "p", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "kubernetes.io/config.mirror": "hash", "other": "x" } },
            "spec": {
                "priority": 7, "overhead": { "memory": "1Mi" }, "resources": { "requests": { "memory": "9Mi" } },
                "initContainers": [{ "name": "s", "restartPolicy": "Always", "resources": own("1"), "ports": [port] },
                    { "name": "i", "resources": own("5") }],
                "containers": [{ "name": "a", "resources": own("2") }, { "name": "b", "resources": own("3") }],
                "tolerations": [{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 }],
            },
            "status": {
                "phase": "Failed", "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [status("a", "1", "4"), status("b", "3", "3")],
                "initContainerStatuses": [status("s", "2", "1")],
            },
        });
        let excerpt: PodView = serde_json::from_value(whole.clone()).unwrap();
        for options in [ResourceOptions::SPEC, ResourceOptions::WITH_STATUS] {
            assert_eq!(pod::requests(&excerpt, options), pod::requests(&whole, options));
        }
        assert_eq!(pod::requests(&excerpt, ResourceOptions::WITH_STATUS).to_string(), "cpu=8,memory=10Mi");
        assert!(excerpt.status.container_statuses[1].requests.is_none(), "what is the same is kept once");
        let taint = Taint { key: "k", value: "", effect: "NoExecute" };
        assert_eq!(pod::toleration(&excerpt, taint), pod::toleration(&whole, taint));
        assert!(pod::host_ports(&excerpt).eq(pod::host_ports(&whole)) && pod::host_ports(&excerpt).count() == 1);
        assert!(pod::is_mirror(&excerpt) && pod::is_terminating(&excerpt) && pod::is_terminal(&excerpt));
        assert!(pod::is_ready(&excerpt) && !pod::is_static(&excerpt));
        assert_eq!(pod::priority(&excerpt), 7);
    }
}
