//! The models: which pods, under which bounds. The small ones are for every push, the large ones for a quiet hour.

use std::time::Duration;

use lifecycle::{
    ContainerRestart, ContainerSpec, ExitCodes, Hook, LastEndpoint, PodSpec, PodWorker, RestartAction, RestartPolicy,
    RestartRule, Role,
};

use crate::bounds::Bounds;
use crate::model::PodModel;
use crate::traffic::Reach;
use crate::worker::{Make, Worker};

/// A container that runs until it is told to stop, or longer.
pub fn container(name: &str, role: Role) -> ContainerSpec {
    ContainerSpec::new(name, role)
}

/// The same with a preStop hook.
pub fn hooked(name: &str, role: Role, hook: Hook) -> ContainerSpec {
    ContainerSpec { pre_stop: Some(hook), ..container(name, role) }
}

/// A main container after whose failure all containers of its pod run again.
pub fn restarts_all(name: &str) -> ContainerSpec {
    let rule = RestartRule { codes: ExitCodes::In(vec![1]), action: RestartAction::RestartAllContainers };
    let restart = ContainerRestart { policy: RestartPolicy::Never, rules: vec![rule] };
    ContainerSpec { restart: Some(restart), ..container(name, Role::Main) }
}

/// A pod of those containers that does not restart them.
pub fn pod(containers: Vec<ContainerSpec>) -> PodSpec {
    PodSpec { restart: RestartPolicy::Never, grace: Duration::from_secs(5), ..PodSpec::new(containers) }
}

/// A model of a pod that is up.
pub fn warm<W: Worker>(
    name: &'static str,
    containers: Vec<ContainerSpec>,
    bounds: Bounds,
    make: Make<W>,
) -> PodModel<W> {
    PodModel { name, spec: pod(containers), bounds, cold: false, reach: None, make }
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

/// A model of a pod that is up and gets connections.
pub fn routed<W: Worker>(
    name: &'static str,
    containers: Vec<ContainerSpec>,
    bounds: Bounds,
    make: Make<W>,
) -> PodModel<W> {
    let mut model = PodModel { reach: Some(Reach::Divert), ..warm(name, containers, bounds, make) };
    // Small numbers: caps and graces should meet.
    model.spec.drain.barrier_cap = Some(Duration::from_secs(1));
    model.spec.drain.reserve = Some(Duration::from_secs(2));
    model
}

/// Every kind of request once, a crash, and a little of what makes time and order interesting.
const REQUESTS: Bounds =
    Bounds { shrinks: 1, forces: 1, shutdowns: 1, evictions: 1, crashes: 1, pauses: 1, ..Bounds::CALM };

/// What goes wrong around a deletion.
const TROUBLES: Bounds =
    Bounds { shrinks: 1, exits: 1, hook_failures: 1, refusals: 1, crashes: 1, late: 1, pauses: 1, ..Bounds::CALM };

/// Everything at once.
const EVERYTHING: Bounds = Bounds { exits: 1, hook_failures: 1, refusals: 1, late: 1, ..REQUESTS };

/// A shorter deletion, a force, a crash.
const fn few_requests() -> Bounds {
    Bounds { shrinks: 1, forces: 1, crashes: 1, ..Bounds::CALM }
}

/// Models for every push.
pub fn small() -> Vec<PodModel<PodWorker>> {
    use Role::{Init, Main, Sidecar};
    let make: Make<PodWorker> = PodWorker::new;
    let a = || container("a", Main);
    let sleep = Hook::Sleep(Duration::from_secs(3));
    let post_start = ContainerSpec { post_start: Some(Hook::Exec), ..a() };
    let mut restarts = warm(
        "restarts, probes",
        vec![a()],
        Bounds { probes: 1, pauses: 0, hook_failures: 0, refusals: 0, ..TROUBLES },
        make,
    );
    restarts.spec.restart = RestartPolicy::Always;
    let mut acks =
        routed("barrier of acks", vec![a()], Bounds { traffic: 1, crashes: 1, late: 1, ..Bounds::CALM }, make);
    acks.reach = Some(Reach::Acks);
    let calls = Bounds { traffic: 2, exits: 1, crashes: 1, ..Bounds::CALM };
    let mut called = routed("drain, calls", vec![hooked("a", Main, Hook::Exec)], calls, make);
    called.spec.drain.budget = Some(Duration::from_secs(1));
    let lost = Bounds { lost: 1, late: 0, pauses: 0, hook_failures: 0, ..TROUBLES };
    let dies = Bounds { losses: 1, refusals: 1, crashes: 1, ..Bounds::CALM };
    let mut drained = routed("barrier and drain", vec![a()], Bounds { refusals: 0, ..TROUBLES }, make);
    drained.spec.drain.budget = Some(Duration::from_secs(1));
    let comings = Bounds { traffic: 3, crashes: 1, ..Bounds::CALM };
    let few_comings = Bounds { traffic: 2, pauses: 1, ..comings };
    let mut held = routed("last endpoint, hold", vec![a()], few_comings, make);
    held.spec.drain.last_endpoint = LastEndpoint::Hold;
    let mut refused = routed("last endpoint, reject", vec![a()], few_comings, make);
    refused.spec.drain.last_endpoint = LastEndpoint::Reject;
    let boots = Bounds { exits: 2, crashes: 1, reboots: 1, late: 1, pauses: 1, ..Bounds::CALM };
    let mut booted = warm("machine boots", vec![container("i", Init), hooked("a", Main, Hook::Exec)], boots, make);
    booted.spec.restart = RestartPolicy::Always;
    let mut timed =
        warm("active deadline", vec![hooked("a", Main, Hook::Exec)], Bounds { pauses: 1, ..few_requests() }, make);
    timed.spec.active_deadline = Some(Duration::from_secs(3));
    let again = warm(
        "all run again",
        vec![container("i", Init), restarts_all("a"), hooked("b", Main, Hook::Exec)],
        Bounds { exits: 2, crashes: 1, ..Bounds::CALM },
        make,
    );
    let sidecar = || vec![container("s", Sidecar), a()];
    let two_sidecars = vec![hooked("s", Sidecar, Hook::Exec), container("t", Sidecar), a()];
    let few = Bounds { refusals: 0, hook_failures: 0, ..TROUBLES };
    vec![
        warm("one container, all requests", vec![a()], REQUESTS, make),
        warm("one container, all troubles", vec![a()], Bounds { crashes: 2, losses: 1, ..TROUBLES }, make),
        warm("exec hook, all requests", vec![hooked("a", Main, Hook::Exec)], REQUESTS, make),
        warm("exec hook, all troubles", vec![hooked("a", Main, Hook::Exec)], TROUBLES, make),
        warm("request hook", vec![hooked("a", Main, Hook::HttpGet)], TROUBLES, make),
        warm("sleep hook", vec![hooked("a", Main, sleep)], TROUBLES, make),
        warm("two mains, one hook", vec![a(), hooked("b", Main, Hook::Exec)], Bounds { exits: 0, ..few }, make),
        warm("main and sidecar", sidecar(), few, make),
        warm("main and two sidecars", two_sidecars, Bounds { late: 0, exits: 0, ..few }, make),
        cold("comes up", vec![container("i", Init), post_start], Bounds { pauses: 0, ..TROUBLES }, make),
        restarts,
        routed(
            "barrier, all requests",
            vec![hooked("a", Main, Hook::Exec)],
            Bounds { evictions: 0, shutdowns: 0, pauses: 0, late: 1, ..REQUESTS },
            make,
        ),
        routed("barrier and sidecar", sidecar(), Bounds { late: 0, crashes: 0, ..few }, make),
        drained,
        acks,
        routed("siblings come and go", vec![a()], comings, make),
        held,
        refused,
        called,
        warm("answers lost", vec![hooked("a", Main, Hook::Exec)], Bounds { forces: 1, lost: 2, ..lost }, make),
        cold("comes up, sandbox dies", vec![container("i", Init), a()], dies, make),
        cold("comes up, answers lost", vec![container("s", Sidecar), a()], Bounds { crashes: 0, ..lost }, make),
        warm(
            "dismissed",
            vec![hooked("a", Main, Hook::Exec)],
            Bounds { dismissals: 2, late: 1, pauses: 1, ..few_requests() },
            make,
        ),
        booted,
        timed,
        again,
    ]
}

/// Models for a quiet hour.
pub fn large() -> Vec<PodModel<PodWorker>> {
    use Role::{Main, Sidecar};
    let make: Make<PodWorker> = PodWorker::new;
    let a = || container("a", Main);
    let exec = |name, role| hooked(name, role, Hook::Exec);
    let lost = Bounds { shrinks: 1, refusals: 1, crashes: 1, ..Bounds::CALM };
    let traffic = Bounds { traffic: 3, refusals: 1, exits: 1, crashes: 1, ..Bounds::CALM };
    vec![
        warm("one container, everything, two crashes", vec![a()], Bounds { crashes: 2, ..EVERYTHING }, make),
        warm("exec hook, everything", vec![exec("a", Main)], EVERYTHING, make),
        warm("request hook, everything", vec![hooked("a", Main, Hook::HttpGet)], EVERYTHING, make),
        warm("main and sidecar, troubles", vec![exec("s", Sidecar), a()], TROUBLES, make),
        warm("main and sidecar, requests", vec![exec("s", Sidecar), a()], REQUESTS, make),
        warm(
            "main and two sidecars, troubles",
            vec![container("s", Sidecar), container("t", Sidecar), a()],
            Bounds { refusals: 0, late: 0, ..TROUBLES },
            make,
        ),
        routed("barrier, everything", vec![exec("a", Main)], Bounds { refusals: 0, pauses: 0, ..EVERYTHING }, make),
        routed("barrier and sidecar, traffic", vec![container("s", Sidecar), a()], traffic, make),
        cold("comes up, everything lost", vec![exec("s", Sidecar), a()], Bounds { lost: 2, ..lost }, make),
    ]
}
