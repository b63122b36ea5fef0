//! What holds in every reachable state, each law in one sentence.

use std::time::Duration;

use lifecycle::{
    ContainerState, Effect, Hook, HookKind, LastEndpoint, Moment, PodPhase, PodSpec, PodStatus, PodWorker, Role,
};

use crate::passage::{barrier_is_open, drain_is_over};
use crate::process::{HookLife, Life, Process, SignalAsked};
use crate::promised_deadline::PromisedDeadline;
use crate::step::Index;
use crate::traffic::Siblings;
use crate::world::{Object, Sandbox, World, position};

/// A law; its sentence is its documentation.
#[allow(missing_docs, reason = "`Law::sentence` says it")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Law {
    NoEarlyKill,
    Notice,
    DeadlineFalls,
    DeadlineKept,
    KillRemembered,
    NoStart,
    RemovalLast,
    HookOnce,
    HookFirst,
    HookEnds,
    SignalOnce,
    SidecarsLast,
    KillInTime,
    TrueStatus,
    QuietEnd,
    NoDeadEnd,
    BarrierFirst,
    DrainFirst,
    LastServes,
    NoIdleWait,
    InitFirst,
    ActiveInTime,
}

impl Law {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::NoEarlyKill,
        Self::Notice,
        Self::DeadlineFalls,
        Self::DeadlineKept,
        Self::KillRemembered,
        Self::NoStart,
        Self::RemovalLast,
        Self::HookOnce,
        Self::HookFirst,
        Self::HookEnds,
        Self::SignalOnce,
        Self::SidecarsLast,
        Self::KillInTime,
        Self::TrueStatus,
        Self::QuietEnd,
        Self::NoDeadEnd,
        Self::BarrierFirst,
        Self::DrainFirst,
        Self::LastServes,
        Self::NoIdleWait,
        Self::InitFirst,
        Self::ActiveInTime,
    ];

    /// The law in one sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoEarlyKill => "no KILL before the deadline, unless grace was shrunk, forced or spent",
            Self::Notice => {
                "no KILL sooner than 2 s after the stop signal was asked for, nor after it was told to be delivered"
            }
            Self::DeadlineFalls => "the deadline never moves later",
            Self::DeadlineKept => "the deadline is the one that was promised, at once after every request",
            Self::KillRemembered => "a kill is never forgotten",
            Self::NoStart => {
                "nothing is asked to start once termination was requested; what was asked before starts only while it is \
                 waited for, or after deadline and notice; nobody runs twice; if all are to run again, all end first"
            }
            Self::RemovalLast => "the object goes only after every container is dead and the sandbox removed",
            Self::HookOnce => {
                "a hook that finished, or runs, is never run again, but a request whose answer died with the agent"
            }
            Self::HookFirst => "no stop signal while the preStop hook has time and runs",
            Self::HookEnds => "no hook outlives the deadline",
            Self::SignalOnce => "a stop signal is asked for once, unless its answer was lost",
            Self::SidecarsLast => "sidecars outlive mains and later sidecars, until the deadline",
            Self::KillInTime => "whoever outstays deadline and notice was sent KILL",
            Self::TrueStatus => {
                "the status shows what was told, at once and to everybody, and no end before it is true"
            }
            Self::QuietEnd => "nothing is asked for after the end",
            Self::NoDeadEnd => "every run reaches Gone, and is forgotten",
            Self::BarrierFirst => "no hook and no stop signal before the barrier has its evidence, or its cap",
            Self::DrainFirst => "no hook and no stop signal while connections are open and the drain has budget",
            Self::LastServes => "new connections are not kept from a pod that nobody can stand in for",
            Self::NoIdleWait => "whoever has nothing left to wait for was sent its stop signal",
            Self::InitFirst => "no main starts before every init container did its part in the same sandbox",
            Self::ActiveInTime => "whoever was active for as long as it may be is asked to leave",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// The laws that were broken on the way to a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Broken(u32);

impl Broken {
    /// Whether this one was.
    pub const fn has(self, law: Law) -> bool {
        self.0 & law.bit() != 0
    }

    /// Unless `holds`, the law is broken.
    pub fn demand(&mut self, law: Law, holds: bool) {
        if !holds {
            self.0 |= law.bit();
        }
    }
}

const NOTICE: Duration = Duration::from_secs(2);

/// A container starts, really.
pub fn judge_start(broken: &mut Broken, world: &World, promise: Option<PromisedDeadline>, index: Index) {
    let given_up = |promise: PromisedDeadline| world.now >= promise.deadline + NOTICE;
    broken.demand(Law::NoStart, !world.process(index).asked_too_late);
    broken.demand(Law::NoStart, !world.clearing || promise.is_none_or(given_up));
}

/// The worker was told something, and its status `changed` or did not.
pub fn judge_telling(broken: &mut Broken, world: &World, changed: bool, worker: &PodWorker, asks: &[Effect]) {
    let somebody_looks = match world.heard {
        Object::Stays => true,
        // The final DELETE stores the final status itself.
        Object::Leaving { .. } => !worker.is_at_rest(),
        Object::Gone => false,
    };
    let told = asks.iter().any(|ask| matches!(ask, Effect::PublishStatus));
    broken.demand(Law::TrueStatus, told || !changed || !somebody_looks);
}

/// An ask is looked at before it is carried out.
pub fn judge_ask(broken: &mut Broken, spec: &PodSpec, world: &World, promise: Option<PromisedDeadline>, ask: &Effect) {
    let now = world.now;
    let spent = |index: Index| due(world, promise, index).is_some_and(|deadline| now >= deadline);
    #[allow(clippy::wildcard_enum_match_arm, reason = "laws speak of the asks they name")]
    match ask {
        Effect::KillContainer { instance } => {
            let index = position(spec, &instance.name.0);
            let process = world.process(index);
            if process.attempt == instance.attempt && process.life == Life::Running {
                broken.demand(Law::NoEarlyKill, spent(index));
                broken.demand(Law::Notice, process.had_notice_since().is_some_and(|at| now >= at + NOTICE));
            }
        }
        Effect::SendSignal { instance, .. } => {
            let index = position(spec, &instance.name.0);
            let process = world.process(index);
            broken.demand(Law::SignalOnce, matches!(process.signal, SignalAsked::No | SignalAsked::Doubtful));
            let in_hook = process.life == Life::Running
                && match (process.pre_stop, spec.containers[usize::from(index)].pre_stop) {
                    (HookLife::Running(_), _) => true,
                    (HookLife::Alone(since), Some(Hook::Sleep(length))) => now < since + length,
                    (HookLife::Alone(_) | HookLife::Idle | HookLife::Ended(..), _) => false,
                };
            broken.demand(Law::HookFirst, !in_hook || spent(index));
            broken.demand(Law::BarrierFirst, barrier_is_open(spec, world, promise));
            broken.demand(Law::DrainFirst, drain_is_over(spec, world, promise));
            if promise.is_some() && spec.containers[usize::from(index)].role == Role::Sidecar {
                broken.demand(Law::SidecarsLast, spent(index) || !must_wait(spec, world, index));
            }
        }
        Effect::RunHook { instance, kind } => {
            let index = position(spec, &instance.name.0);
            let process = world.process(index);
            broken.demand(Law::HookOnce, process.hook(*kind) == HookLife::Idle);
            let pre_stop = *kind == HookKind::PreStop;
            broken.demand(Law::BarrierFirst, !pre_stop || barrier_is_open(spec, world, promise));
            broken.demand(Law::DrainFirst, !pre_stop || drain_is_over(spec, world, promise));
            broken.demand(Law::HookEnds, *kind == HookKind::PostStart || !spent(index));
            broken.demand(Law::NoStart, *kind == HookKind::PreStop || promise.is_none());
        }
        Effect::StartContainer { instance } => {
            let process = world.process(position(spec, &instance.name.0));
            broken.demand(Law::NoStart, promise.is_none());
            broken.demand(Law::NoStart, !process.may_be_alive() || process.attempt == instance.attempt);
            broken.demand(Law::NoStart, !world.restarting_all || !world.anyone_alive());
            let index = position(spec, &instance.name.0);
            if spec.containers[usize::from(index)].role == Role::Main {
                let mut all = world.processes.iter().zip(&spec.containers);
                let done = all.all(|(it, container)| container.role != Role::Init || it.did_its_part);
                broken.demand(Law::InitFirst, done && world.sandbox == Sandbox::There);
            }
        }
        Effect::PullImage { .. } | Effect::CreateSandbox => broken.demand(Law::NoStart, promise.is_none()),
        Effect::DeleteObject => {
            broken.demand(Law::RemovalLast, !world.anyone_alive() && world.sandbox == Sandbox::Absent);
        }
        Effect::Finish => {
            broken.demand(Law::RemovalLast, !world.anyone_alive() && world.sandbox == Sandbox::Absent);
            broken.demand(Law::RemovalLast, world.object == Object::Gone);
        }
        _ => {}
    }
}

/// The worker was told something and all it asked for was done.
pub fn judge_state(
    broken: &mut Broken,
    spec: &PodSpec,
    world: &World,
    promise: Option<PromisedDeadline>,
    before: Option<Moment>,
    worker: &PodWorker,
) {
    broken.demand(Law::KillRemembered, promise.is_none() || worker.is_terminating());
    if let (Some(before), Some(after)) = (before, worker.deadline()) {
        broken.demand(Law::DeadlineFalls, after <= before);
    }
    if !worker.is_at_rest() {
        broken.demand(Law::DeadlineKept, worker.deadline() == promise.map(|promise| promise.deadline));
    }
    for (index, process) in (0..).zip(&world.processes) {
        if process.life != Life::Running || !process.start_told || world.clearing {
            continue;
        }
        let Some(deadline) = due(world, promise, index).filter(|deadline| world.now >= *deadline) else { continue };
        let killed_in_time = match process.had_notice_since() {
            None => false,
            Some(at) => process.killed || world.now < deadline.max(at + NOTICE),
        };
        broken.demand(Law::KillInTime, killed_in_time);
        broken.demand(Law::HookEnds, !matches!(process.pre_stop, HookLife::Running(_)));
    }
    for index in (0..).take(world.processes.len()) {
        let waits = promise.is_none() || world.clearing || may_wait(spec, world, promise, index);
        broken.demand(Law::NoIdleWait, waits || world.process(index).signal != SignalAsked::No);
    }
    let traffic = &world.traffic;
    let taken = traffic.in_force && spec.drain.last_endpoint != LastEndpoint::Reject;
    let is_last = traffic.guarded && traffic.siblings != Siblings::There && world.serves(spec);
    broken.demand(Law::LastServes, !taken || !is_last);
}

/// What others may see, against what really is and what the worker was told.
pub fn judge_status(
    broken: &mut Broken,
    spec: &PodSpec,
    world: &World,
    promise: Option<PromisedDeadline>,
    worker: &PodWorker,
    status: &PodStatus,
) {
    let mains = || world.processes.iter().zip(&spec.containers).filter(|(_, container)| container.role == Role::Main);
    let over = matches!(status.phase, PodPhase::Succeeded | PodPhase::Failed);
    // Whoever else calls it over need not wait for its containers.
    broken.demand(Law::TrueStatus, !over || !world.anyone_alive() || world.declared);
    broken.demand(Law::TrueStatus, !over || !status.ready.holds);
    let well = mains().all(|(process, _)| process.last_exit == Some(0) && process.life != Life::Lost);
    broken.demand(Law::TrueStatus, status.phase != PodPhase::Succeeded || well);
    let all_told = mains().all(|(process, _)| process.life == Life::Running && process.start_told);
    broken.demand(Law::TrueStatus, !status.containers_ready.holds || all_told || mains().any(|(it, _)| !is_told(it)));
    // A pod at rest has told its last.
    let shown = status.containers.iter().filter(|_| !worker.is_at_rest());
    for (process, shown) in world.processes.iter().zip(shown) {
        let fits = match (process.life, &shown.state) {
            // Nobody looks any more at who came up after the sandbox was given up.
            (Life::Running, _) if world.clearing => true,
            _ if !is_told(process) => true,
            (Life::Running, state) => {
                matches!(state, ContainerState::Running { .. }) && shown.attempt == process.attempt
            }
            // Once its pod leaves, an exit is the last that is to be told of it.
            (Life::Exited(code), ContainerState::Terminated(ended)) => {
                // But nobody can tell a run that died with its sandbox from one that its agent did not live to ask for.
                let unknown = ended.attempt > process.attempt && ended.reason == "ContainerStatusUnknown";
                promise.is_none() || ended.exit_code == i32::from(code) || unknown
            }
            (Life::Exited(_), ContainerState::Waiting(_)) => promise.is_none(),
            (Life::Exited(_) | Life::Lost | Life::Absent, ContainerState::Running { .. }) => false,
            (Life::Starting | Life::Lost | Life::Absent, _) => true,
        };
        broken.demand(Law::TrueStatus, fits);
    }
}

/// The worker was told where this run stands.
fn is_told(process: &Process) -> bool {
    match process.life {
        Life::Running => process.start_told,
        Life::Exited(_) => process.exit_told,
        // Nobody tells of a sandbox that vanished, until the next agent looks.
        Life::Starting | Life::Lost => false,
        Life::Absent => true,
    }
}

/// When a container's time is over: its own, or its pod's if that is sooner.
fn due(world: &World, promise: Option<PromisedDeadline>, index: Index) -> Option<Moment> {
    let own = world.process(index).own_deadline;
    own.into_iter().chain(promise.map(|promise| promise.deadline)).min()
}

/// Whether a container of a leaving pod has a reason not to have its stop signal yet, as far as its worker can know.
fn may_wait(spec: &PodSpec, world: &World, promise: Option<PromisedDeadline>, index: Index) -> bool {
    let (process, container) = (world.process(index), &spec.containers[usize::from(index)]);
    let in_hook = container.pre_stop.is_some() && !matches!(process.pre_stop, HookLife::Ended(_, true));
    let is_known_dead =
        |other: &Process| !other.may_be_alive() && !other.unanswered && (other.exit_told || other.life == Life::Absent);
    let in_order = container.role == Role::Sidecar
        && (0..).zip(&spec.containers).any(|(other, container)| {
            !is_known_dead(world.process(other))
                && (matches!(container.role, Role::Init | Role::Main)
                    || (container.role == Role::Sidecar && other > index))
        });
    let is_known_to_run = process.life == Life::Running && process.start_told;
    let in_traffic = !barrier_is_open(spec, world, promise) || !drain_is_over(spec, world, promise);
    !is_known_to_run || in_hook || in_order || in_traffic
}

/// Whether somebody is alive whom that sidecar serves.
fn must_wait(spec: &PodSpec, world: &World, index: Index) -> bool {
    (0..).zip(&spec.containers).any(|(other, container)| {
        world.process(other).may_be_alive()
            && match container.role {
                Role::Init | Role::Main => true,
                Role::Sidecar => other > index,
                Role::Ephemeral => false,
            }
    })
}
