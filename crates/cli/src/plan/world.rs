//! The world a plan happens in: does what the worker asks, in no time unless somebody said how long it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lifecycle::{
    ContainerName, Cut, Delivery, Effect, Exit, HookKind, HookOutcome, Input, Instance, Moment, Probe, Readiness, Role,
    Routes, Signal, TrafficNews, Wall,
};

use super::behaviour::{Behaviour, Exits, HookRun};
use super::traffic::{Flow, Moves};

/// How long the kernel takes to end a killed process, and the node to remove a sandbox or an object.
const SOON: Duration = Duration::from_millis(1);
/// How long nobody must have connected to call it quiet.
const QUIET: Duration = Duration::from_secs(1);
/// How long it takes to see that no connection waits to be accepted.
const SETTLES: Duration = Duration::from_millis(5);
/// What the kernel makes of a KILL.
const KILLED: u8 = 128 + Signal::KILL.0;
const SIGSTOP: Signal = Signal(19);

/// One container and how it behaves.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its part in the pod.
    pub(super) role: Role,
    /// What makes it ready.
    pub(super) readiness: Readiness,
    /// How long after its start its probes pass.
    pub(super) probes_pass_after: Duration,
    /// How its program and hooks behave.
    pub(super) behaviour: Behaviour,
    /// Its preStop hook is a plain sleep, which may be left out.
    pub(super) sleeps: bool,
}

/// Everything outside the worker.
#[derive(Debug)]
pub(super) struct World {
    now: Moment,
    parts: BTreeMap<ContainerName, Part>,
    flow: Flow,
    scheduled: u64,
    queue: BTreeMap<(Moment, u64), Happening>,
    running: BTreeSet<Instance>,
    hooks: BTreeSet<(Instance, HookKind)>,
}

#[derive(Debug)]
enum Happening {
    Told(Input),
    Starts(Instance),
    Exits(Instance, u8, Option<Signal>),
    HookEnds(Instance, HookKind, HookOutcome),
}

impl World {
    pub(super) fn new(now: Moment, parts: BTreeMap<ContainerName, Part>, flow: Flow) -> Self {
        let (queue, running, hooks) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { now, parts, flow, scheduled: 0, queue, running, hooks }
    }

    pub(super) fn now(&self) -> Moment {
        self.now
    }

    pub(super) fn parts(&self) -> &BTreeMap<ContainerName, Part> {
        &self.parts
    }

    pub(super) fn is_running(&self, instance: &Instance) -> bool {
        self.running.contains(instance)
    }

    pub(super) fn is_in_hook(&self, instance: &Instance) -> bool {
        self.hooks.contains(&(instance.clone(), HookKind::PreStop))
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<Moment> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Lets time pass.
    pub(super) fn pass_to(&mut self, at: Moment) {
        self.now = self.now.max(at);
    }

    /// Lets time pass until the next thing happens; what the worker is told of it, if anything.
    pub(super) fn next(&mut self) -> Option<Input> {
        let ((at, _), happening) = self.queue.pop_first()?;
        self.now = at;
        match happening {
            Happening::Told(input) => Some(input),
            Happening::Starts(instance) => Some(self.starts(instance)),
            Happening::Exits(instance, code, signal) => self.exits(instance, code, signal),
            Happening::HookEnds(instance, kind, outcome) => {
                let ran = self.hooks.remove(&(instance.clone(), kind));
                ran.then_some(Input::HookFinished { instance, kind, outcome })
            }
        }
    }

    /// Does what the worker asked for. The only place that knows every effect.
    pub(super) fn perform(&mut self, effect: &Effect) {
        match effect {
            Effect::PullImage { container, .. } => {
                let stop_signal = self.parts.get(container).and_then(|part| part.behaviour.image_signal);
                let ready = Input::ImageReady { container: container.clone(), edition: 0, stop_signal };
                self.schedule(Duration::ZERO, Happening::Told(ready));
            }
            Effect::CancelPull { .. } => {}
            Effect::CreateSandbox => self.schedule(Duration::ZERO, Happening::Told(Input::SandboxReady)),
            Effect::StartContainer { instance } => self.schedule(Duration::ZERO, Happening::Starts(instance.clone())),
            Effect::RunHook { instance, kind } => self.run_hook(instance, *kind),
            Effect::CancelHook { instance, kind } => {
                let ended = Happening::HookEnds(instance.clone(), *kind, HookOutcome::Cancelled);
                self.schedule(Duration::ZERO, ended);
            }
            Effect::SendSignal { instance, signal } => self.signal(instance, *signal),
            Effect::KillContainer { instance } => {
                self.schedule(SOON, Happening::Exits(instance.clone(), KILLED, Some(Signal::KILL)));
            }
            Effect::RemoveSandbox => self.schedule(SOON, Happening::Told(Input::SandboxRemoved)),
            Effect::DeleteObject => self.schedule(SOON, Happening::Told(Input::ObjectDeleted)),
            Effect::CutTraffic { .. } | Effect::AwaitSettled | Effect::WatchConnections if !self.flow.steered => {
                // What the node answers as long as nobody steers traffic.
                self.news(SOON, TrafficNews::Failed { message: "nobody steers traffic".to_owned() });
            }
            Effect::CutTraffic { how } => self.cut(*how),
            Effect::AwaitSettled => self.news(SETTLES, TrafficNews::Settled),
            Effect::WatchConnections => {
                if !self.flow.connections.is_zero() {
                    self.news(SOON, TrafficNews::Connections { open: 1 });
                }
                self.news(self.flow.connections.max(SOON), TrafficNews::Connections { open: 0 });
            }
            Effect::NotifyDrain { .. } | Effect::RestoreTraffic | Effect::KillAnswered { .. } => {}
            Effect::PublishStatus | Effect::Emit(_) | Effect::Finish => {}
        }
    }

    /// All evidence comes at about the same time; which of it counts is the rules' to decide.
    fn cut(&mut self, how: Cut) {
        let Moves::After(after) = self.flow.moves else { return };
        self.news(after + SOON, TrafficNews::CutDone { how, revision: 1 });
        self.news(after + SOON, TrafficNews::Acked { acked: 1, required: 1 });
        self.news(after + QUIET, TrafficNews::Quiet);
    }

    fn news(&mut self, after: Duration, news: TrafficNews) {
        self.schedule(after, Happening::Told(Input::Traffic(news)));
    }

    /// Somebody else is about to be able to take the traffic.
    pub(super) fn expect_replacement(&mut self, after: Duration, routes: Routes) {
        self.news(after, TrafficNews::Routed(Routes { last: false, ..routes }));
    }

    fn schedule(&mut self, after: Duration, happening: Happening) {
        self.scheduled += 1;
        self.queue.insert((self.now + after, self.scheduled), happening);
    }

    fn part(&self, instance: &Instance) -> &Part {
        self.parts.get(&instance.name).expect("the worker knows only containers of the manifest")
    }

    fn starts(&mut self, instance: Instance) -> Input {
        let part = self.part(&instance);
        if let Some(message) = part.behaviour.cannot_start.clone() {
            return Input::StartFailed { instance, reason: "StartError".to_owned(), message };
        }
        let (role, readiness, after) = (part.role, part.readiness, part.probes_pass_after);
        let (takes, over) = (part.behaviour.runs_for.unwrap_or_default(), part.behaviour.over);
        self.running.insert(instance.clone());
        match role {
            // An init container does its work and is done: at once, unless it sleeps.
            Role::Init => self.schedule(takes, Happening::Exits(instance.clone(), over.unwrap_or(0), None)),
            Role::Sidecar | Role::Main | Role::Ephemeral => {
                let passes = |probe| Input::ProbeChanged { instance: instance.clone(), probe, passing: true };
                let (startup, ready) = (passes(Probe::Startup), passes(Probe::Readiness));
                self.schedule(after, Happening::Told(startup));
                if readiness == Readiness::WhenProbed {
                    self.schedule(after, Happening::Told(ready));
                }
                if let Some(code) = over {
                    self.schedule(SOON, Happening::Exits(instance.clone(), code, None));
                }
            }
        }
        Input::Started { instance, wall: self.wall() }
    }

    fn exits(&mut self, instance: Instance, code: u8, signal: Option<Signal>) -> Option<Input> {
        if !self.running.remove(&instance) {
            return None;
        }
        // Its hooks die with it.
        self.hooks.retain(|(other, _)| *other != instance);
        let exit = Exit { code, signal, oom: false, wall: self.wall(), seen: true };
        Some(Input::Exited { instance, exit })
    }

    fn run_hook(&mut self, instance: &Instance, kind: HookKind) {
        self.hooks.insert((instance.clone(), kind));
        let behaviour = &self.part(instance).behaviour;
        let run = match kind {
            HookKind::PreStop => behaviour.pre_stop,
            HookKind::PostStart => behaviour.post_start,
        };
        let (after, outcome) = match run {
            HookRun::Takes(length) => (length, HookOutcome::Succeeded),
            HookRun::Fails => (Duration::ZERO, HookOutcome::failed("")),
            HookRun::Hangs => return,
            // It goes down with its container.
            HookRun::EndsProgram { exits, .. } => {
                let over = Happening::Exits(instance.clone(), behaviour.code.unwrap_or(0), None);
                return self.schedule(exits.max(SOON), over);
            }
        };
        self.schedule(after, Happening::HookEnds(instance.clone(), kind, outcome));
    }

    fn signal(&mut self, instance: &Instance, signal: Signal) {
        let delivery = if self.is_running(instance) { Delivery::Delivered } else { Delivery::AlreadyGone };
        let answer = Input::SignalAnswered { instance: instance.clone(), signal, delivery };
        self.schedule(Duration::ZERO, Happening::Told(answer));
    }

    /// The program takes its stop signal as it does; two signals nobody can take otherwise than the kernel says.
    pub(super) fn stop(&mut self, instance: &Instance, signal: Signal) {
        let Behaviour { exits, code, .. } = self.part(instance).behaviour;
        match exits {
            _ if signal == Signal::KILL => {
                self.schedule(SOON, Happening::Exits(instance.clone(), KILLED, Some(Signal::KILL)));
            }
            _ if signal == SIGSTOP => {}
            Exits::After(after) => {
                // Without a code of its own it is the signal that ends it.
                let of = code.is_none().then_some(signal);
                let code = code.unwrap_or(128_u8.saturating_add(signal.0));
                self.schedule(after.max(SOON), Happening::Exits(instance.clone(), code, of));
            }
            Exits::Never => {}
        }
    }

    fn wall(&self) -> Wall {
        Wall(i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX))
    }
}
