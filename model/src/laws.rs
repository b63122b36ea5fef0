//! What holds in every reachable state, each law in one sentence.

use std::time::Duration;

use lifecycle::{ContainerState, Effect, Hook, HookKind, Moment, PodPhase, PodSpec, PodWorker, Role};

use crate::process::{Asked, HookLife, Life, Process};
use crate::promise::Promise;
use crate::step::Index;
use crate::traffic::{Answer, Traffic};
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
    NoIdleWait,
}

impl Law {
    /// All of them.
    pub const ALL: [Self; 18] = [
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
        Self::NoIdleWait,
    ];

    /// The law in one sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoEarlyKill => "no KILL before the deadline, unless grace was shrunk, forced or spent",
            Self::Notice => "no KILL sooner than 2 s after the stop signal",
            Self::DeadlineFalls => "the deadline never moves later",
            Self::DeadlineKept => "the deadline is the one that was promised, at once after every request",
            Self::KillRemembered => "a kill is never forgotten",
            Self::NoStart => "nothing starts once termination was requested",
            Self::RemovalLast => "the object goes only after every container is dead and the sandbox removed",
            Self::HookOnce => "a hook that finished, or still runs, is never run again",
            Self::HookFirst => "no stop signal while the preStop hook has time and runs",
            Self::HookEnds => "no hook outlives the deadline",
            Self::SignalOnce => "a stop signal is asked for once, unless its answer was lost",
            Self::SidecarsLast => "sidecars outlive mains and later sidecars, until the deadline",
            Self::KillInTime => "whoever outstays deadline and notice was sent KILL",
            Self::TrueStatus => "the status shows every exit at once, and no end before it is true",
            Self::QuietEnd => "nothing is asked for after the end",
            Self::NoDeadEnd => "every run reaches Gone",
            Self::BarrierFirst => "no hook and no stop signal before the barrier has its evidence, or its cap",
            Self::NoIdleWait => "whoever has nothing left to wait for was sent its stop signal",
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
/// How long evidence about traffic is waited for, and what is kept back of the grace, if a pod does not say.
const CAP: Duration = Duration::from_secs(5);
const RESERVE: Duration = Duration::from_secs(2);
const SETTLE_CAP: Duration = Duration::from_secs(1);

/// An ask is looked at before it is carried out.
pub fn judge_ask(broken: &mut Broken, spec: &PodSpec, world: &World, promise: Option<Promise>, ask: &Effect) {
    let now = world.now;
    let spent = |index: Index| due(world, promise, index).is_some_and(|deadline| now >= deadline);
    #[allow(clippy::wildcard_enum_match_arm, reason = "laws speak of the asks they name")]
    match ask {
        Effect::KillContainer { instance } => {
            let index = position(spec, &instance.name.0);
            let process = world.process(index);
            if process.attempt == instance.attempt && process.life == Life::Running {
                broken.demand(Law::NoEarlyKill, spent(index));
                broken.demand(Law::Notice, process.signalled_at.is_some_and(|at| now >= at + NOTICE));
            }
        }
        Effect::SendSignal { instance, .. } => {
            let index = position(spec, &instance.name.0);
            let process = world.process(index);
            broken.demand(Law::SignalOnce, matches!(process.signal, Asked::No | Asked::Doubtful));
            let in_hook = process.life == Life::Running
                && match (process.pre_stop, spec.containers[usize::from(index)].pre_stop) {
                    (HookLife::Running(_), _) => true,
                    (HookLife::Alone(since), Some(Hook::Sleep(length))) => now < since + length,
                    (HookLife::Alone(_) | HookLife::Idle | HookLife::Ended(..), _) => false,
                };
            broken.demand(Law::HookFirst, !in_hook || spent(index));
            broken.demand(Law::BarrierFirst, barrier_is_open(spec, world, promise));
            if promise.is_some() && spec.containers[usize::from(index)].role == Role::Sidecar {
                broken.demand(Law::SidecarsLast, spent(index) || !must_wait(spec, world, index));
            }
        }
        Effect::RunHook { instance, kind } => {
            let index = position(spec, &instance.name.0);
            let process = world.process(index);
            broken.demand(Law::HookOnce, process.hook(*kind) == HookLife::Idle);
            let released = *kind == HookKind::PostStart || barrier_is_open(spec, world, promise);
            broken.demand(Law::BarrierFirst, released);
            broken.demand(Law::HookEnds, *kind == HookKind::PostStart || !spent(index));
            broken.demand(Law::NoStart, *kind == HookKind::PreStop || promise.is_none());
        }
        Effect::StartContainer { .. } | Effect::PullImage { .. } | Effect::CreateSandbox => {
            broken.demand(Law::NoStart, promise.is_none());
        }
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
    promise: Option<Promise>,
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
        let killed_in_time = match process.signalled_at {
            None => false,
            Some(at) => process.killed || world.now < deadline.max(at + NOTICE),
        };
        broken.demand(Law::KillInTime, killed_in_time);
        broken.demand(Law::HookEnds, !matches!(process.pre_stop, HookLife::Running(_)));
    }
    for index in (0..).take(world.processes.len()) {
        let waits = promise.is_none() || world.clearing || may_wait(spec, world, promise, index);
        broken.demand(Law::NoIdleWait, waits || world.process(index).signal != Asked::No);
    }
    let status = worker.status();
    let over = matches!(status.phase, PodPhase::Succeeded | PodPhase::Failed);
    broken.demand(Law::TrueStatus, !over || !world.anyone_alive());
    for (process, shown) in world.processes.iter().zip(&status.containers) {
        if worker.is_at_rest() {
            break;
        }
        if let (Life::Exited(code), true, Some(_)) = (process.life, process.exit_told, promise) {
            let told = matches!(&shown.state, ContainerState::Terminated(ended) if ended.exit_code == i32::from(code));
            broken.demand(Law::TrueStatus, told);
        }
    }
}

/// When a container's time is over: its own, or its pod's if that is sooner.
fn due(world: &World, promise: Option<Promise>, index: Index) -> Option<Moment> {
    let own = world.process(index).own_deadline;
    own.into_iter().chain(promise.map(|promise| promise.deadline)).min()
}

/// Whether the traffic of the pod lets hooks and signals go out.
fn barrier_is_open(spec: &PodSpec, world: &World, promise: Option<Promise>) -> bool {
    let (Some(promise), Traffic { guarded: true, cut, settled, settling_since, .. }) = (promise, world.traffic) else {
        return true;
    };
    let cap = promise.barrier_cap(spec.drain.barrier_cap.unwrap_or(CAP), spec.drain.reserve.unwrap_or(RESERVE));
    let settled = settled == Answer::Told || settling_since.is_some_and(|since| world.now >= since + SETTLE_CAP);
    world.heard == Object::Gone || world.now >= cap || (cut == Answer::Told && settled)
}

/// Whether a container of a leaving pod has a reason not to have its stop signal yet, as far as its worker can know.
fn may_wait(spec: &PodSpec, world: &World, promise: Option<Promise>, index: Index) -> bool {
    let (process, container) = (world.process(index), &spec.containers[usize::from(index)]);
    let in_hook = container.pre_stop.is_some() && !matches!(process.pre_stop, HookLife::Ended(_, true));
    let draining = world.traffic.guarded && spec.drain.budget.is_some();
    let is_known_dead = |other: &Process| !other.may_be_alive() && (other.exit_told || other.life == Life::Absent);
    let in_order = container.role == Role::Sidecar
        && (0..).zip(&spec.containers).any(|(other, container)| {
            !is_known_dead(world.process(other))
                && (matches!(container.role, Role::Init | Role::Main)
                    || (container.role == Role::Sidecar && other > index))
        });
    let is_known_to_run = process.life == Life::Running && process.start_told;
    !is_known_to_run || in_hook || draining || in_order || !barrier_is_open(spec, world, promise)
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
