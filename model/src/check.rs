//! Asking the checker: which sentences hold in every state, which must be reachable, and what it found.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use lifecycle::{Hook, HookKind, Role};
use stateright::{Checker, HasDiscoveries, Model, Path, Property};

use crate::laws::Law;
use crate::model::{PodModel, State};
use crate::process::{Ending, HookLife, Life};
use crate::step::Step;
use crate::worker::Worker;
use crate::world::Object;

/// What the checker found in one model.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Which model.
    pub name: &'static str,
    /// Different states.
    pub states: usize,
    /// Steps taken between them.
    pub transitions: usize,
    /// The longest shortest way to a state.
    pub depth: usize,
    /// Sentences that hold in every state.
    pub always: usize,
    /// Sentences that hold in some state.
    pub sometimes: usize,
    /// How long it took.
    pub took: Duration,
    /// What should hold and does not, each with the shortest way there.
    pub failures: Vec<Failure>,
}

/// A sentence that turned out to be false.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The sentence.
    pub sentence: &'static str,
    /// The way there, one step a line; empty if something should be reachable and is not.
    pub trace: String,
}

/// Explores a model to its last state.
pub fn explore<W: Worker>(model: PodModel<W>, threads: usize) -> Findings {
    run(model, threads, HasDiscoveries::AllFailures)
}

/// Looks for one way to break one law.
pub fn hunt<W: Worker>(model: PodModel<W>, law: Law) -> Option<String> {
    let findings = run(model, 1, HasDiscoveries::AnyOf([law.sentence()].into()));
    findings.failures.into_iter().find(|failure| failure.sentence == law.sentence()).map(|failure| failure.trace)
}

fn run<W: Worker>(model: PodModel<W>, threads: usize, until: HasDiscoveries) -> Findings {
    let (name, begin) = (model.name, Instant::now());
    let properties = model.properties();
    let checker = model.clone().checker().threads(threads).finish_when(until).spawn_bfs().join();
    let discoveries = checker.discoveries();
    let mut failures = Vec::new();
    for property in &properties {
        let trace = match (property.expectation.discovery_is_failure(), discoveries.get(property.name)) {
            (true, Some(path)) => told(path.clone(), |state| (property.condition)(&model, state)),
            (false, None) => String::new(),
            (true, None) | (false, Some(_)) => continue,
        };
        failures.push(Failure { sentence: property.name, trace });
    }
    let always = properties.iter().filter(|property| property.expectation.discovery_is_failure()).count();
    Findings {
        name,
        states: checker.unique_state_count(),
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        always,
        sometimes: properties.len() - always,
        took: begin.elapsed(),
        failures,
    }
}

/// The way to the first state in which the sentence does not hold.
fn told<W: Worker>(path: Path<State<W>, Step>, holds: impl Fn(&State<W>) -> bool) -> String {
    let mut trace = String::new();
    let states = path.into_vec();
    for ((state, step), (next, _)) in states.iter().zip(states.iter().skip(1)) {
        if let Some(Step { what, how }) = step {
            let _ = writeln!(trace, "{:>8}  {what:?}, {how:?}", state.world.now.to_string());
        }
        if !holds(next) {
            break;
        }
    }
    trace
}

/// What holds in every state.
pub fn always<W: Worker>() -> Vec<Property<PodModel<W>>> {
    macro_rules! never_broken {
        ($($law:ident),*) => {
            vec![$(Property::always(Law::$law.sentence(), |_, state: &State<W>| !state.broken.has(Law::$law))),*]
        };
    }
    let mut all = never_broken!(
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
        BarrierFirst,
        DrainFirst,
        LastServes,
        NoIdleWait,
        InitFirst,
        ActiveInTime
    );
    all.push(Property::always(Law::NoDeadEnd.sentence(), PodModel::goes_on));
    all
}

/// What must be reachable, or the model does not play what it is for.
pub fn sometimes<W: Worker>(model: &PodModel<W>) -> Vec<Property<PodModel<W>>> {
    let (containers, bounds) = (&model.spec.containers, model.bounds);
    let has_hook = containers.iter().any(|container| matches!(container.pre_stop, Some(Hook::Exec | Hook::HttpGet)));
    let sidecars = containers.iter().filter(|container| container.role == Role::Sidecar).count();
    let mut all: Vec<Property<PodModel<W>>> = vec![
        Property::sometimes("a pod goes without a KILL", |_, state| is_gone(state) && !killed(state)),
        Property::sometimes("a pod goes after a KILL", |_, state| is_gone(state) && killed(state)),
    ];
    if has_hook {
        all.push(Property::sometimes("a stop signal follows a hook that ended well", |_, state: &State<W>| {
            state.world.processes.iter().any(|process| {
                matches!(process.hook(HookKind::PreStop), HookLife::Ended(Ending::Well, _))
                    && process.signalled_at.is_some()
            })
        }));
        all.push(Property::sometimes("a hook is cut off", |_, state: &State<W>| {
            let cut_off = HookLife::Ended(Ending::Cancelled, true);
            state.world.processes.iter().any(|process| process.pre_stop == cut_off && process.life == Life::Running)
        }));
    }
    if sidecars > 0 {
        all.push(Property::sometimes("a spent grace ends the order", |model: &PodModel<W>, state: &State<W>| {
            let roles = || state.world.processes.iter().zip(&model.spec.containers);
            let signalled = roles().any(|(it, spec)| spec.role == Role::Sidecar && it.signalled_at.is_some());
            signalled && roles().any(|(it, spec)| spec.role == Role::Main && it.life == Life::Running)
        }));
    }
    if bounds.crashes > 0 {
        all.push(Property::sometimes("a pod goes although its agent died", |_, state| {
            is_gone(state) && state.left.crashes == 0
        }));
    }
    if bounds.forces > 0 {
        all.push(Property::sometimes("a forced pod goes", |_, state| is_gone(state) && state.left.forces == 0));
    }
    if bounds.shutdowns > 0 || bounds.evictions > 0 {
        all.push(Property::sometimes("a killed pod rests while its object stays", |_, state: &State<W>| {
            state.worker.inner().is_at_rest() && state.world.object == Object::Stays
        }));
    }
    if bounds.probes > 0 {
        all.push(Property::sometimes("a container is started again", |_, state: &State<W>| {
            state.world.processes.iter().any(|process| process.attempt > 0 && process.life == Life::Running)
        }));
    }
    if bounds.late > 0 {
        all.push(Property::sometimes("news comes after the end", |_, state: &State<W>| {
            is_gone(state) && !state.world.news.is_empty()
        }));
    }
    all
}

fn is_gone<W: Worker>(state: &State<W>) -> bool {
    state.worker.inner().is_finished()
}

fn killed<W: Worker>(state: &State<W>) -> bool {
    state.world.processes.iter().any(|process| process.killed)
}
