//! Names of runs and hooks: the runtime's and those of the rules.

use lifecycle::{ContainerName, HookKind, Instance};
use runtime_api::ContainerId;

/// The runtime's name for a run.
pub fn container_id(instance: &Instance) -> ContainerId {
    ContainerId { name: instance.name.0.clone(), attempt: instance.attempt }
}

/// The rules' name for a run.
pub fn instance(id: &ContainerId) -> Instance {
    Instance { name: ContainerName(id.name.clone()), attempt: id.attempt }
}

/// The name a hook has in the runtime.
pub fn hook_name(kind: HookKind) -> &'static str {
    match kind {
        HookKind::PreStop => "preStop",
        HookKind::PostStart => "postStart",
    }
}
