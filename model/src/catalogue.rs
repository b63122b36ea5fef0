//! The models: which pods, under which bounds. The small ones are for every push, the large ones for a quiet hour.

use std::time::Duration;

use lifecycle::{ContainerName, ContainerSpec, Hook, PodSpec, PodWorker, Readiness, RestartPolicy, Role};

use crate::bounds::Bounds;
use crate::model::PodModel;
use crate::worker::{Make, Worker};

/// A container that runs until it is told to stop, or longer.
pub fn container(name: &str, role: Role) -> ContainerSpec {
    ContainerSpec {
        name: ContainerName(name.into()),
        role,
        pre_stop: None,
        post_start: None,
        stop_signal: None,
        readiness: Readiness::WhileRunning,
    }
}

/// The same with a preStop hook.
pub fn hooked(name: &str, role: Role, hook: Hook) -> ContainerSpec {
    ContainerSpec { pre_stop: Some(hook), ..container(name, role) }
}

/// A pod of those containers that does not restart them.
pub fn pod(containers: Vec<ContainerSpec>) -> PodSpec {
    PodSpec { containers, restart: RestartPolicy::Never, grace: Duration::from_secs(5) }
}

/// A model of a pod that is up.
pub fn warm<W: Worker>(
    name: &'static str,
    containers: Vec<ContainerSpec>,
    bounds: Bounds,
    make: Make<W>,
) -> PodModel<W> {
    PodModel { name, spec: pod(containers), bounds, cold: false, make }
}

/// A model of a pod that comes up.
pub fn cold<W: Worker>(
    name: &'static str,
    containers: Vec<ContainerSpec>,
    bounds: Bounds,
    make: Make<W>,
) -> PodModel<W> {
    PodModel { cold: true, ..warm(name, containers, bounds, make) }
}

/// Everything once, and a little of what makes time and order interesting.
const EVERYTHING: Bounds = Bounds {
    deletes: 1,
    shrinks: 1,
    forces: 1,
    shutdowns: 1,
    evictions: 1,
    exits: 1,
    hook_failures: 1,
    probes: 0,
    refusals: 1,
    crashes: 1,
    losses: 0,
    late: 1,
    pauses: 1,
};

/// Models for every push.
pub fn small() -> Vec<PodModel<PodWorker>> {
    use Role::{Init, Main, Sidecar};
    let make: Make<PodWorker> = PodWorker::new;
    let post_start = ContainerSpec { post_start: Some(Hook::Exec), ..container("a", Main) };
    vec![
        warm("one container", vec![container("a", Main)], EVERYTHING, make),
        warm("exec hook", vec![hooked("a", Main, Hook::Exec)], EVERYTHING, make),
        warm("request hook", vec![hooked("a", Main, Hook::HttpGet)], EVERYTHING, make),
        warm("sleep hook", vec![hooked("a", Main, Hook::Sleep(Duration::from_secs(3)))], EVERYTHING, make),
    ]
    .into_iter()
    .chain([
        cold(
            "comes up",
            vec![container("i", Init), post_start],
            Bounds { shutdowns: 0, evictions: 0, ..EVERYTHING },
            make,
        ),
        warm(
            "main and sidecar",
            vec![container("s", Sidecar), container("a", Main)],
            Bounds { evictions: 0, refusals: 0, ..EVERYTHING },
            make,
        ),
    ])
    .collect()
}
