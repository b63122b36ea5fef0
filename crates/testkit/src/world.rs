//! The simulated world: does what the worker asks, and behaves as scripted.
//!
//! It keeps apart what lives in the runtime (sandbox, containers, exec hooks: these go on while the agent is away)
//! and what the agent does with its own hands (pulls, sleeps, requests, answers: these die with it).

use std::collections::BTreeMap;
use std::time::Duration;

use lifecycle::{
    ContainerName, ContainerReport, ContainerSpec, Delivery, Effect, Exit, Hook, HookKind, HookOutcome, HookReport,
    Input, Instance, Moment, RuntimeReport, SeenContainer, Signal, TrafficNews, Wall,
};

use crate::given::{Actor, Given, OutsideEvent};
use crate::script::{HookScript, ImageScript, Script};
use crate::timeline_text;

/// How long the kernel takes to end a killed process, and the node to remove a sandbox or an object.
const SOON: Duration = Duration::from_millis(1);

/// Everything outside the worker.
#[derive(Clone, Debug)]
pub struct World {
    given: Given,
    now: Moment,
    scheduled: u64,
    queue: BTreeMap<(Moment, u64), Happening>,
    sandbox: bool,
    containers: BTreeMap<Instance, SeenContainer>,
    hooks: BTreeMap<(Instance, HookKind), Option<HookOutcome>>,
    removal_failures: u32,
    delete_failures: u32,
    runtime_answers: bool,
    /// Signals that wait for the runtime to answer.
    held_back: Vec<(Instance, Signal)>,
    /// Signals that were sent, and when.
    sent: BTreeMap<(Instance, Signal), Moment>,
}

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// The agent learns something from its own hands.
    Answer(Input),
    /// The runtime has made the sandbox.
    SandboxMade,
    /// The runtime has started a container.
    Starts(Instance),
    /// A process ends, with that code and by that signal.
    Exits(Instance, u8, Option<Signal>),
    /// A hook ends.
    HookEnds(Instance, HookKind, HookOutcome),
    /// Something happens to the pod from outside.
    Turn(OutsideEvent),
    /// The agent comes back.
    AgentBack,
}

impl World {
    pub(crate) fn new(given: Given, now: Moment) -> Self {
        Self {
            removal_failures: given.removal_failures,
            delete_failures: given.delete_failures,
            given,
            now,
            scheduled: 0,
            queue: BTreeMap::new(),
            sandbox: false,
            containers: BTreeMap::new(),
            hooks: BTreeMap::new(),
            runtime_answers: true,
            held_back: Vec::new(),
            sent: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Moment> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Lets time pass until the next thing happens.
    pub(crate) fn next(&mut self) -> Option<Happening> {
        let ((at, _), happening) = self.queue.pop_first()?;
        self.now = at;
        Some(happening)
    }

    /// Lets time pass.
    pub(crate) fn pass_to(&mut self, at: Moment) {
        self.now = at;
    }

    pub(crate) fn schedule(&mut self, after: Duration, happening: Happening) {
        self.scheduled += 1;
        self.queue.insert((self.now + after, self.scheduled), happening);
    }

    /// Does what the worker asked for.
    pub(crate) fn perform(&mut self, effect: &Effect) {
        let text = timeline_text::of_effect(effect);
        if let Some(lost) = self.given.unanswered.iter().position(|lost| *lost == text) {
            self.given.unanswered.remove(lost);
            return;
        }
        match effect {
            Effect::PullImage { container, edition } => self.pull(container, *edition),
            Effect::CancelPull { container } => self.queue.retain(|_, happening| {
                !matches!(
                    happening,
                    Happening::Answer(
                        Input::ImageReady { container: other, .. } | Input::ImageFailed { container: other, .. }
                    ) if other == container
                )
            }),
            Effect::CreateSandbox => self.schedule(self.given.sandbox_takes, Happening::SandboxMade),
            Effect::StartContainer { instance } => self.start(instance),
            Effect::RunHook { instance, kind } => self.run_hook(instance, *kind),
            Effect::CancelHook { instance, kind } => self.cancel_hook(instance, *kind),
            Effect::SendSignal { instance, signal } => self.signal(instance, *signal),
            Effect::KillContainer { instance } if !self.runtime_answers => {
                let answer = Input::KillFailed { instance: instance.clone(), message: "no answer".into() };
                self.schedule(SOON, Happening::Answer(answer));
            }
            Effect::KillContainer { instance } => {
                self.schedule(SOON, Happening::Exits(instance.clone(), 137, Some(Signal::KILL)));
            }
            Effect::RemoveSandbox => self.remove_sandbox(),
            Effect::DeleteObject => {
                let answer = if self.delete_failures > 0 {
                    self.delete_failures -= 1;
                    Input::ObjectDeleteFailed { message: "the API does not answer".into() }
                } else {
                    Input::ObjectDeleted
                };
                self.schedule(SOON, Happening::Answer(answer));
            }
            Effect::CutTraffic { how } => {
                let (after, news) = match self.given.traffic.cut_takes {
                    Some(after) => (after, TrafficNews::CutDone { how: *how, revision: 7 }),
                    None => (SOON, TrafficNews::Failed { message: "the kernel said no".into() }),
                };
                self.schedule(after, Happening::Answer(Input::Traffic(news)));
            }
            Effect::AwaitSettled => {
                let news = Input::Traffic(TrafficNews::Settled);
                self.schedule(self.given.traffic.settle_takes, Happening::Answer(news));
            }
            Effect::WatchConnections => {
                let news = match self.given.traffic.open {
                    Some(open) => TrafficNews::Connections { open },
                    None => TrafficNews::Failed { message: "no sockets to be seen".into() },
                };
                self.schedule(SOON, Happening::Answer(Input::Traffic(news)));
            }
            Effect::NotifyDrain { .. }
            | Effect::RestoreTraffic
            | Effect::KillAnswered { .. }
            | Effect::PublishStatus
            | Effect::Emit(_)
            | Effect::Finish => {}
        }
    }

    /// The runtime's side of something that happens; what the agent is told of it, if it is there to be told.
    pub(crate) fn sandbox_made(&mut self) -> Input {
        self.sandbox = true;
        Input::SandboxReady
    }

    pub(crate) fn starts(&mut self, instance: Instance) -> Input {
        let wall = self.wall();
        self.containers.insert(instance.clone(), SeenContainer::Running { wall });
        match self.actor(&instance.name).script {
            Script::ExitsByItself { after, code } | Script::ExitsAnyway { after, code, .. } => {
                self.schedule(after, Happening::Exits(instance.clone(), code, None));
            }
            Script::IgnoresTerm | Script::ExitsOnTerm { .. } | Script::CannotStart { .. } | Script::StartUnanswered => {
            }
        }
        Input::Started { instance, wall }
    }

    pub(crate) fn exits(&mut self, instance: Instance, code: u8, signal: Option<Signal>) -> Option<Input> {
        if !self.is_running(&instance) {
            return None;
        }
        let exit = Exit { code, signal, oom: false, wall: self.wall(), seen: true };
        self.containers.insert(instance.clone(), SeenContainer::Exited { exit });
        for kind in [HookKind::PreStop, HookKind::PostStart] {
            if let Some(outcome @ None) = self.hooks.get_mut(&(instance.clone(), kind)) {
                // It dies with its container, and says so a little too late for anybody to care.
                let died = HookOutcome::failed("killed");
                *outcome = Some(died.clone());
                self.schedule(Duration::ZERO, Happening::Answer(hook_finished(&instance, kind, died)));
            }
        }
        Some(Input::Exited { instance, exit })
    }

    pub(crate) fn hook_ends(&mut self, instance: &Instance, kind: HookKind, outcome: HookOutcome) -> Option<Input> {
        let running = self.hooks.get_mut(&(instance.clone(), kind)).filter(|known| known.is_none())?;
        *running = Some(outcome.clone());
        Some(hook_finished(instance, kind, outcome))
    }

    /// The agent dies, and with it all that only it was doing.
    pub(crate) fn agent_dies(&mut self) {
        self.queue.retain(|_, happening| !matches!(happening, Happening::Answer(_)));
        let given = &self.given;
        self.hooks.retain(|(instance, kind), _| {
            let spec = &given.actors.iter().find(|actor| actor.spec.name == instance.name).expect("known").spec;
            let hook = match kind {
                HookKind::PreStop => spec.pre_stop,
                HookKind::PostStart => spec.post_start,
            };
            matches!(hook, Some(Hook::Exec | Hook::ExecSleep(_)))
        });
    }

    /// The sandbox and everything in it vanish.
    pub(crate) fn lose_sandbox(&mut self) {
        self.sandbox = false;
        self.containers.retain(|_, seen| matches!(seen, SeenContainer::Exited { .. }));
        self.hooks.clear();
        self.queue.retain(|_, happening| !matches!(happening, Happening::Starts(_)));
    }

    /// What the runtime knows.
    pub(crate) fn report(&self) -> RuntimeReport {
        RuntimeReport {
            sandbox: self.sandbox,
            containers: self
                .containers
                .iter()
                .map(|(instance, seen)| ContainerReport { instance: instance.clone(), seen: seen.clone() })
                .collect(),
            hooks: self
                .hooks
                .iter()
                .map(|((instance, kind), outcome)| HookReport {
                    instance: instance.clone(),
                    kind: *kind,
                    outcome: outcome.clone(),
                })
                .collect(),
        }
    }

    /// Whether any process of the pod is alive.
    pub(crate) fn anyone_alive(&self) -> bool {
        self.containers.keys().any(|instance| self.is_running(instance))
    }

    fn is_running(&self, instance: &Instance) -> bool {
        matches!(self.containers.get(instance), Some(SeenContainer::Running { .. }))
    }

    fn wall(&self) -> Wall {
        Wall(1_800_000_000_000 + i64::try_from(self.now.as_millis()).expect("a story is short"))
    }

    /// That many connections are open from here on.
    pub(crate) fn connected(&mut self, open: u32) {
        self.given.traffic.open = Some(open);
    }

    /// A container joins the pod; it behaves well.
    pub(crate) fn join(&mut self, spec: &ContainerSpec) {
        if !self.given.actors.iter().any(|actor| actor.spec.name == spec.name) {
            self.given.actors.push(Actor::well_behaved(spec.clone()));
        }
    }

    fn actor(&self, name: &ContainerName) -> &Actor {
        self.given.actors.iter().find(|actor| actor.spec.name == *name).expect("the worker knows only given containers")
    }

    fn pull(&mut self, container: &ContainerName, edition: u32) {
        let actor = self.actor(container);
        let (container, stop_signal) = (container.clone(), actor.image_stop_signal);
        let (after, answer) = match actor.image {
            ImageScript::Present => (Duration::ZERO, Input::ImageReady { container, edition, stop_signal }),
            ImageScript::Takes(after) => (after, Input::ImageReady { container, edition, stop_signal }),
            ImageScript::Fails { reason } => {
                let message = "Failed to pull image \"app\": not found".into();
                (Duration::ZERO, Input::ImageFailed { container, edition, reason: reason.into(), message })
            }
        };
        self.schedule(after, Happening::Answer(answer));
    }

    fn start(&mut self, instance: &Instance) {
        assert!(!self.is_running(instance), "{instance} was started twice");
        // The runtime goes on with a start although the agent that asked is gone; the next one asks for the same.
        if self.queue.values().any(|happening| matches!(happening, Happening::Starts(other) if other == instance)) {
            return;
        }
        let takes = self.given.start_takes;
        match self.actor(&instance.name).script {
            Script::CannotStart { reason } => {
                let message = "no such file".into();
                let answer = Input::StartFailed { instance: instance.clone(), reason: reason.into(), message };
                self.schedule(takes, Happening::Answer(answer));
            }
            Script::StartUnanswered => {}
            Script::IgnoresTerm
            | Script::ExitsOnTerm { .. }
            | Script::ExitsByItself { .. }
            | Script::ExitsAnyway { .. } => self.schedule(takes, Happening::Starts(instance.clone())),
        }
    }

    fn run_hook(&mut self, instance: &Instance, kind: HookKind) {
        let before = self.hooks.insert((instance.clone(), kind), None);
        assert!(before.is_none(), "a hook of {instance} was run twice");
        let actor = self.actor(&instance.name);
        let script = match kind {
            HookKind::PreStop => actor.pre_stop,
            HookKind::PostStart => actor.post_start,
        };
        let failed = HookOutcome::Failed { message: "exit 1".into(), output: Some("secret".into()) };
        let ends = |outcome| Happening::HookEnds(instance.clone(), kind, outcome);
        match script {
            HookScript::Takes(after) => self.schedule(after, ends(HookOutcome::Succeeded)),
            HookScript::FailsAfter(after) => self.schedule(after, ends(failed)),
            HookScript::EndsItsContainer(after) => self.schedule(after, Happening::Exits(instance.clone(), 0, None)),
            HookScript::NeverEnds => {}
        }
    }

    fn cancel_hook(&mut self, instance: &Instance, kind: HookKind) {
        if let Some(input) = self.hook_ends(instance, kind, HookOutcome::Cancelled) {
            self.schedule(Duration::ZERO, Happening::Answer(input));
        }
    }

    /// The runtime stops answering, or answers again.
    pub(crate) fn runtime_answers(&mut self, answers: bool) {
        self.runtime_answers = answers;
        if answers {
            for (instance, signal) in std::mem::take(&mut self.held_back) {
                self.signal(&instance, signal);
            }
        }
    }

    fn signal(&mut self, instance: &Instance, signal: Signal) {
        if !self.runtime_answers {
            self.held_back.push((instance.clone(), signal));
            return;
        }
        let (instance, running) = (instance.clone(), self.is_running(instance));
        let before = self.sent.get(&(instance.clone(), signal)).copied();
        let delivery = match (running, before) {
            (true, Some(at)) => Delivery::DeliveredBefore { at },
            (true, None) => Delivery::Delivered,
            (false, _) => Delivery::AlreadyGone,
        };
        let answer = Input::SignalAnswered { instance: instance.clone(), signal, delivery };
        self.schedule(Duration::ZERO, Happening::Answer(answer));
        if delivery != Delivery::Delivered {
            return;
        }
        self.sent.insert((instance.clone(), signal), self.now);
        if signal == Signal::KILL {
            self.schedule(SOON, Happening::Exits(instance, 137, Some(Signal::KILL)));
            return;
        }
        let actor = self.actor(&instance.name);
        if signal != actor.spec.stop_signal.or(actor.image_stop_signal).unwrap_or(Signal::TERM) {
            return;
        }
        match actor.script {
            Script::ExitsOnTerm { after, code } => self.schedule(after, Happening::Exits(instance, code, None)),
            Script::ExitsAnyway { on_term, .. } => self.schedule(SOON, Happening::Exits(instance, on_term, None)),
            Script::IgnoresTerm
            | Script::ExitsByItself { .. }
            | Script::CannotStart { .. }
            | Script::StartUnanswered => {}
        }
    }

    fn remove_sandbox(&mut self) {
        let answer = if self.removal_failures > 0 || !self.runtime_answers {
            self.removal_failures = self.removal_failures.saturating_sub(1);
            Input::SandboxRemovalFailed { message: "device busy".into() }
        } else {
            self.lose_sandbox();
            Input::SandboxRemoved
        };
        self.schedule(SOON, Happening::Answer(answer));
    }
}

fn hook_finished(instance: &Instance, kind: HookKind, outcome: HookOutcome) -> Input {
    Input::HookFinished { instance: instance.clone(), kind, outcome }
}
