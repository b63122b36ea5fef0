//! Resources that are changed while a pod runs (`pods/resize`): what was granted, what each run has of it, and what people are
//! told meanwhile.
//!
//! What a pod asks for is in its spec. What it was granted is kept with its manifest, and is what its containers are started
//! with; `crate::pods` grants, and `crate::effects` sees to it that those that run get it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use lifecycle::{Condition, Instance};
use runtime_api::Resources;
use serde_json::{Value, json};

use super::container::resources;
use super::sandbox::pod_resources;
use crate::record::{PodRecord, RunRecord};

/// The condition of a pod that waits for the resources it asks for.
pub const PENDING: &str = "PodResizePending";
/// The condition of a pod that was granted what its containers have not got yet.
pub const IN_PROGRESS: &str = "PodResizeInProgress";

/// How far the change of a pod's resources is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resize {
    /// It was not granted.
    pub pending: Option<Pending>,
    /// It was granted, to a pod of this generation, and some container has not got it yet.
    pub granted: Option<i64>,
    /// What kept a container from getting it.
    pub error: Option<String>,
    /// Runs that end because their containers get it by their next one.
    pub restarting: BTreeMap<String, u32>,
}

/// Why a pod does not get what it asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pending {
    /// `Deferred` until others leave, or `Infeasible`.
    pub reason: &'static str,
    /// What is missing.
    pub message: String,
    /// What asked for it.
    pub generation: i64,
}

impl Resize {
    /// What is told of it; nothing if there is nothing to tell.
    pub fn conditions(&self) -> Vec<(&'static str, Condition)> {
        let holds = |reason: Option<&str>, message: Option<String>| Condition {
            holds: true,
            reason: reason.map(str::to_owned),
            message,
        };
        let pending = self.pending.as_ref();
        let pending = pending.map(|pending| (PENDING, holds(Some(pending.reason), Some(pending.message.clone()))));
        let error = self.error.clone();
        let granted = self.granted.map(|_| (IN_PROGRESS, holds(error.as_ref().map(|_| "Error"), error)));
        pending.into_iter().chain(granted).collect()
    }
}

/// What `pod` asks for, by container.
pub fn granted_by(pod: &Pod) -> BTreeMap<String, ResourceRequirements> {
    resizable(pod).map(|own| (own.name.clone(), own.resources.clone().unwrap_or_default())).collect()
}

/// A pod with what was granted to it instead of what it asks for.
pub fn with_granted(pod: &Pod, granted: &BTreeMap<String, ResourceRequirements>) -> Pod {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.spec else { return pod };
    for own in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(granted) = granted.get(&own.name) {
            own.resources = Some(granted.clone());
        }
    }
    pod
}

impl PodRecord {
    /// Whether the newest object asks for something else than was granted.
    pub fn asks_for_other_resources(&self) -> bool {
        self.grants_other_resources_than(&self.pod)
    }

    /// Whether `pod` asks for something else than was granted.
    pub fn grants_other_resources_than(&self, pod: &Pod) -> bool {
        resizable(pod).any(|own| {
            let granted = self.granted.get(&own.name);
            granted != own.resources.as_ref() && amounts(granted) != amounts(own.resources.as_ref())
        })
    }

    /// A pod with what was granted to it instead of what it asks for.
    pub fn as_granted(&self, pod: &Pod) -> Pod {
        with_granted(pod, &self.granted)
    }

    /// Has a container ask for what was granted to it.
    pub fn give_granted(&self, container: &mut Container) {
        if let Some(granted) = self.granted.get(&container.name) {
            container.resources = Some(granted.clone());
        }
    }

    /// Runs that have something else than was granted to their containers.
    pub fn behind(&self) -> Vec<OutdatedRun> {
        let behind = |(run, known): (&Instance, &RunRecord)| {
            let has = known.has.as_ref()?;
            let granted = self.granted.get(&run.name.0)?;
            let wants = amounts(Some(granted));
            if *has == wants {
                return None;
            }
            let is_restarted = needs_restart(&self.pod, &run.name.0, has, &wants);
            Some(OutdatedRun { run: run.clone(), granted: granted.clone(), wants, is_restarted })
        };
        self.runs.iter().filter_map(behind).collect()
    }

    /// What the pod has as a whole, and what it should have by what was granted; `None` before its sandbox is made.
    pub fn has_and_wants(&self) -> Option<(Resources, Resources)> {
        Some((self.whole.clone()?, pod_resources(&self.as_granted(&self.pod))))
    }
}

/// Enough for both: what a pod has while some of its containers have the one and some the other.
pub fn enough_for_both(one: &Resources, other: &Resources) -> Resources {
    let no_less = |read: fn(&Resources) -> Option<u64>| read(one).zip(read(other)).map(|(one, other)| one.max(other));
    Resources {
        memory_bytes: no_less(|it| it.memory_bytes),
        cpu_limit_millis: no_less(|it| it.cpu_limit_millis),
        cpu_request_millis: one.cpu_request_millis.max(other.cpu_request_millis),
        ..other.clone()
    }
}

/// A run that has something else than it should.
#[derive(Clone, PartialEq, Debug)]
pub struct OutdatedRun {
    /// Which one.
    pub run: Instance,
    /// What was granted to its container.
    pub granted: ResourceRequirements,
    /// The same, as the runtime takes it.
    pub wants: Resources,
    /// The container gets it by being run again (`resizePolicy: RestartContainer`).
    pub is_restarted: bool,
}

/// What the runtime makes of it.
pub fn amounts(of: Option<&ResourceRequirements>) -> Resources {
    resources(of)
}

fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
}

/// Whether a change of what a container has asks for another run of it. A run to completion is never begun anew.
fn needs_restart(pod: &Pod, name: &str, has: &Resources, wants: &Resources) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let sidecars = spec.init_containers.iter().flatten().filter(|own| own.restart_policy.as_deref() == Some("Always"));
    let Some(container) = spec.containers.iter().chain(sidecars).find(|own| own.name == name) else { return false };
    let cpu = |of: &Resources| (of.cpu_limit_millis, of.cpu_request_millis);
    let memory = |of: &Resources| (of.memory_bytes, of.memory_request_bytes);
    container.resize_policy.iter().flatten().any(|policy| {
        let changes = match policy.resource_name.as_str() {
            "cpu" => cpu(has) != cpu(wants),
            "memory" => memory(has) != memory(wants),
            _ => false,
        };
        changes && policy.restart_policy == "RestartContainer"
    })
}

/// What people are told of a resize: upstream's words, with what the pod asks for.
pub fn message(words: &str, pod: &Pod, generation: i64, error: Option<&str>) -> String {
    let of = |list: &[Container]| -> Value {
        let own = |own: &Container| json!({ "name": own.name, "resources": own.resources.clone().unwrap_or_default() });
        list.iter().map(own).collect()
    };
    let spec = pod.spec.as_ref();
    let mut summary = json!({ "containers": spec.map(|spec| of(&spec.containers)), "generation": generation });
    if let Some(init) = spec.and_then(|spec| spec.init_containers.as_deref()).filter(|init| !init.is_empty()) {
        summary["initContainers"] = of(init);
    }
    if let Some(error) = error {
        summary["error"] = json!(error);
    }
    format!("{words}: {summary}")
}
