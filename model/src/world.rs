//! Everything outside the worker: the runtime, the API, the clock, and news on its way.

use std::time::Duration;

use lifecycle::{
    DeleteSighting, Delivery, Effect, ExitCodes, Hook, HookKind, Input, Instance, KillCause, Moment, PodSpec, Probe,
    RestartAction, Role, RuntimeReport,
};

use crate::process::{Ending, HookLife, Image, Life, Process, SignalAsked, WALL, exit};
use crate::step::{Index, StepKind};
use crate::traffic::{Reach, Traffic};

/// The grace of the first deletion.
pub const DELETE_GRACE: Duration = Duration::from_secs(4);
/// The grace of a second, more impatient one.
pub const SHRUNK_GRACE: Duration = Duration::from_secs(2);
/// What a node that stops gives its pods.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// The world of one pod.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// The time.
    pub now: Moment,
    /// The agent runs.
    pub agent: bool,
    /// The pod's sandbox.
    pub sandbox: Sandbox,
    /// Its containers, in the order of its spec.
    pub processes: Vec<Process>,
    /// Its object in the API.
    pub object: Object,
    /// The object as the worker last heard of it.
    pub heard: Object,
    /// The final DELETE is on its way.
    pub deleting: bool,
    /// News on its way, in no order.
    pub news: Vec<RunEvent>,
    /// The pod's traffic.
    pub traffic: Traffic,
    /// The worker asked for the sandbox of a leaving pod to be removed, and with it for whoever may still start.
    pub clearing: bool,
    /// The worker was forgotten: its last ask was carried out.
    pub forgotten: bool,
    /// Somebody else wrote that the pod is over.
    pub declared: bool,
    /// The machine was booted anew, and its agent does not know it yet.
    pub rebooted: bool,
    /// A container ended in a way that asks for all of them to be run again, and none was started since.
    pub restarting_all: bool,
}

/// A sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sandbox {
    /// There is none.
    Absent,
    /// It is being made.
    Making,
    /// It is there.
    There,
    /// It is being removed.
    Going,
}

/// An API object.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Object {
    /// Nobody deleted it.
    Stays,
    /// It was deleted then, with that grace.
    Leaving { asked_at: Moment, grace: Duration },
    /// It is gone.
    Gone,
}

/// Something that happened in a run of a container, and that the worker will be told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunEvent {
    /// It runs.
    Started(Index, u32),
    /// It ended.
    Exited(Index, u32, u8),
    /// Its hook ended.
    HookEnded(Index, u32, HookKind, Ending),
    /// Its stop signal was dealt with.
    SignalAnswered(Index, u32, u8, SignalTaken),
}

/// Who took a signal, and when.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SignalTaken {
    /// Nobody was left to take it.
    Nobody,
    /// Whom it was for.
    Now,
    /// The same, then: it was asked for again, and is not sent twice.
    Before(Moment),
}

/// What comes of something that happened.
pub enum Outcome {
    /// The agent would learn it from the runtime, perhaps late.
    News(RunEvent),
    /// The agent knows at once, if it is there.
    Input(Input),
    /// Nobody is told.
    Silence,
}

impl World {
    /// A world in which nothing happened yet.
    pub fn new(spec: &PodSpec, reach: Option<Reach>) -> Self {
        Self {
            now: Moment::from_millis(0),
            agent: true,
            sandbox: Sandbox::Absent,
            processes: vec![Process::ABSENT; spec.containers.len()],
            object: Object::Stays,
            heard: Object::Stays,
            deleting: false,
            news: Vec::new(),
            traffic: Traffic { reach, ..Traffic::default() },
            clearing: false,
            forgotten: false,
            declared: false,
            rebooted: false,
            restarting_all: false,
        }
    }

    /// The container at that position.
    pub fn process(&self, index: Index) -> &Process {
        &self.processes[usize::from(index)]
    }

    fn process_mut(&mut self, index: Index) -> &mut Process {
        &mut self.processes[usize::from(index)]
    }

    /// A process of the pod exists, or is being made.
    pub fn anyone_alive(&self) -> bool {
        self.processes.iter().any(Process::may_be_alive)
    }

    /// A main container runs, and its worker was told.
    pub fn serves(&self, spec: &PodSpec) -> bool {
        let known = |process: &Process| process.life == Life::Running && process.start_told;
        self.processes.iter().zip(&spec.containers).any(|(it, container)| container.role == Role::Main && known(it))
    }

    /// Does what the worker asked for; `leaving` says that the pod was asked to leave by then.
    pub fn perform(&mut self, spec: &PodSpec, effect: &Effect, leaving: bool) {
        let now = self.now;
        #[allow(clippy::wildcard_enum_match_arm, reason = "the rest is about traffic, or changes nothing here")]
        match effect {
            Effect::PullImage { container, edition: _ } => {
                let process = self.process_mut(position(spec, &container.0));
                process.image = Image::Pulling;
            }
            Effect::CancelPull { container } => self.process_mut(position(spec, &container.0)).image = Image::Unasked,
            Effect::CreateSandbox => self.sandbox = Sandbox::Making,
            Effect::StartContainer { instance } => {
                let index = position(spec, &instance.name.0);
                self.restarting_all = false;
                let process = self.process_mut(index);
                process.asked_to_start(instance.attempt);
                process.asked_too_late |= leaving;
                process.unanswered = true;
                // Asked again because nobody answered: this time somebody does.
                if process.life == Life::Running {
                    self.send(RunEvent::Started(index, instance.attempt));
                }
            }
            Effect::RunHook { instance, kind } => {
                if let Some((_, process)) = self.run_of(spec, instance) {
                    *process.hook_mut(*kind) = HookLife::Running(now);
                }
            }
            Effect::CancelHook { instance, kind } => {
                if let Some((index, process)) = self.run_of(spec, instance)
                    && let HookLife::Running(_) = process.hook(*kind)
                {
                    *process.hook_mut(*kind) = HookLife::Ended(Ending::Cancelled, false);
                    self.send(RunEvent::HookEnded(index, instance.attempt, *kind, Ending::Cancelled));
                }
            }
            Effect::SendSignal { instance, signal } => {
                if let Some((index, process)) = self.run_of(spec, instance) {
                    let took = match (process.life, process.signalled_at) {
                        (Life::Running, Some(then)) => SignalTaken::Before(then),
                        (Life::Running, None) => SignalTaken::Now,
                        (Life::Absent | Life::Starting | Life::Exited(_) | Life::Lost, _) => SignalTaken::Nobody,
                    };
                    process.signal = SignalAsked::Yes;
                    if took != SignalTaken::Nobody {
                        process.signalled_at = process.signalled_at.or(Some(now));
                        process.asked_at = Some(now);
                    }
                    self.send(RunEvent::SignalAnswered(index, instance.attempt, signal.0, took));
                }
            }
            Effect::KillContainer { instance } => {
                if let Some((_, process)) = self.run_of(spec, instance) {
                    process.killed |= process.life == Life::Running;
                }
            }
            Effect::RemoveSandbox => self.sandbox = Sandbox::Going,
            Effect::DeleteObject => self.deleting = true,
            Effect::Finish => self.forgotten = true,
            other => self.traffic.perform(other),
        }
    }

    /// An ask of the worker that the agent did not live to carry out.
    pub fn fail_to_perform(&mut self, spec: &PodSpec, effect: &Effect) {
        if let Effect::StartContainer { .. } = effect {
            self.restarting_all = false;
        }
        if let Effect::SendSignal { instance, .. } = effect
            && let Some((_, process)) = self.run_of(spec, instance)
        {
            process.signal = SignalAsked::Doubtful;
        }
    }

    /// Something happens. Time, crashes and returns are the model's to play; `lost` says that the worker will not hear
    /// of it.
    pub fn happen(&mut self, spec: &PodSpec, what: StepKind, lost: bool) -> Outcome {
        let message = String::new;
        let instance = |index: Index, process: &Process| Instance {
            name: spec.containers[usize::from(index)].name.clone(),
            attempt: process.attempt,
        };
        Outcome::Input(match what {
            StepKind::Delete => {
                let (asked_at, grace) = (self.now, DELETE_GRACE);
                self.object = Object::Leaving { asked_at, grace };
                Input::DeleteRequested { grace, sighting: DeleteSighting::Live }
            }
            StepKind::Shrink => {
                let grace = SHRUNK_GRACE;
                if let Object::Leaving { grace: kept, .. } = &mut self.object {
                    *kept = grace;
                }
                Input::DeleteRequested { grace, sighting: DeleteSighting::Live }
            }
            StepKind::Force => {
                self.object = Object::Gone;
                Input::ObjectGone
            }
            StepKind::Shutdown => Input::KillRequested { cause: KillCause::NodeShutdown, grace: Some(SHUTDOWN_GRACE) },
            StepKind::Evict => {
                let cause = KillCause::Evicted { message: message() };
                Input::KillRequested { cause, grace: Some(Duration::ZERO) }
            }
            StepKind::ConfigRemoved => {
                // A pod of a file has no object of its own.
                (self.object, self.heard) = (Object::Gone, Object::Gone);
                Input::KillRequested { cause: KillCause::ConfigRemoved, grace: None }
            }
            StepKind::Orphaned => {
                (self.object, self.heard) = (Object::Gone, Object::Gone);
                Input::KillRequested { cause: KillCause::Orphaned, grace: None }
            }
            StepKind::Declared => {
                self.declared = true;
                Input::TerminalPhaseSeen { succeeded: false }
            }
            StepKind::Rejected => Input::Rejected { reason: "OutOfcpu".into(), message: message() },
            StepKind::Reboot => {
                self.lose_processes();
                (self.sandbox, self.rebooted) = (Sandbox::Absent, true);
                return Outcome::Silence;
            }
            StepKind::SandboxMade => {
                self.sandbox = Sandbox::There;
                Input::SandboxReady
            }
            StepKind::SandboxRefused => {
                self.sandbox = Sandbox::Absent;
                Input::SandboxFailed { message: message() }
            }
            StepKind::Pulled(index) => {
                self.process_mut(index).image = Image::There;
                let container = spec.containers[usize::from(index)].name.clone();
                Input::ImageReady { container, edition: 0, stop_signal: None }
            }
            StepKind::PullRefused(index) => {
                self.process_mut(index).image = Image::Unasked;
                let container = spec.containers[usize::from(index)].name.clone();
                Input::ImageFailed { container, edition: 0, reason: "ErrImagePull".into(), message: message() }
            }
            StepKind::Starts(index) => {
                let process = self.process_mut(index);
                process.life = Life::Running;
                return Outcome::News(RunEvent::Started(index, process.attempt));
            }
            StepKind::StartRefused(index) => {
                let process = self.process_mut(index);
                process.life = Life::Absent;
                process.unanswered &= lost;
                let instance = instance(index, process);
                Input::StartFailed { instance, reason: "StartError".into(), message: message() }
            }
            StepKind::Exits(index, code) => return self.exits(index, code),
            StepKind::HookEnds(index, kind, well) => {
                let ending = if well { Ending::Well } else { Ending::Failed };
                let process = self.process_mut(index);
                *process.hook_mut(kind) = HookLife::Ended(ending, false);
                return Outcome::News(RunEvent::HookEnded(index, process.attempt, kind, ending));
            }
            StepKind::ProbeFails(index) => {
                let deadline = self.now + spec.grace;
                let process = self.process_mut(index);
                process.own_deadline = process.own_deadline.or(Some(deadline));
                let instance = instance(index, process);
                Input::ProbeChanged { instance, probe: Probe::Liveness, passing: false }
            }
            StepKind::Removed => {
                self.lose_processes();
                self.sandbox = Sandbox::Absent;
                Input::SandboxRemoved
            }
            StepKind::RemovalRefused => {
                self.sandbox = Sandbox::There;
                Input::SandboxRemovalFailed { message: message() }
            }
            StepKind::ObjectDeleted => {
                self.deleting = false;
                self.object = Object::Gone;
                Input::ObjectDeleted
            }
            StepKind::DeleteRefused => {
                self.deleting = false;
                Input::ObjectDeleteFailed { message: message() }
            }
            StepKind::CutDone
            | StepKind::CutRefused
            | StepKind::Acked
            | StepKind::Quiet
            | StepKind::Settled
            | StepKind::Drained
            | StepKind::Connected
            | StepKind::AppDone
            | StepKind::Rerouted(_)
            | StepKind::Reached(_) => {
                let news = self.traffic.answer(self.now, what, lost);
                return news.map_or(Outcome::Silence, Outcome::Input);
            }
            StepKind::Arrives(at) => return Outcome::News(self.news.remove(usize::from(at))),
            StepKind::Looks => match self.object {
                Object::Gone => Input::ObjectGone,
                Object::Leaving { asked_at, grace } => {
                    // Stored times are whole seconds, so whoever finds one adds a second.
                    let left = (asked_at + grace).since(self.now) + Duration::from_secs(1);
                    Input::DeleteRequested { grace, sighting: DeleteSighting::Found { left } }
                }
                Object::Stays => return Outcome::Silence,
            },
            StepKind::SandboxLost => {
                self.lose_processes();
                self.sandbox = Sandbox::Absent;
                return Outcome::Silence;
            }
            StepKind::SandboxDies(index) => {
                let instance = instance(index, self.process(index));
                self.lose_processes();
                self.sandbox = Sandbox::Absent;
                Input::SandboxLost { instance }
            }
            StepKind::Wake => Input::TimePassed,
            StepKind::Pause | StepKind::Crash | StepKind::Returns => return Outcome::Silence,
        })
    }

    /// The agent dies, and with it the news, and the hooks it was busy with itself.
    pub fn agent_dies(&mut self, spec: &PodSpec) {
        self.agent = false;
        self.traffic.agent_dies();
        self.news.clear();
        for (process, container) in self.processes.iter_mut().zip(&spec.containers) {
            for (hook, life) in
                [(container.pre_stop, &mut process.pre_stop), (container.post_start, &mut process.post_start)]
            {
                *life = match (hook, *life) {
                    (Some(Hook::Exec), life) => life,
                    (Some(Hook::Sleep(_)), HookLife::Running(since)) => HookLife::Alone(since),
                    (Some(Hook::Sleep(_)), ended @ HookLife::Ended(..)) => ended,
                    (_, HookLife::Running(_) | HookLife::Ended(_, false)) => HookLife::Idle,
                    (_, life @ (HookLife::Idle | HookLife::Alone(_) | HookLife::Ended(_, true))) => life,
                };
            }
            if process.signal == SignalAsked::Yes {
                process.signal = SignalAsked::Doubtful;
            }
            process.asked_at = None;
        }
    }

    /// The agent is back, and asks the runtime what it knows. What was begun and not done by now never will be.
    /// `lives` says that nobody asked the pod to leave.
    pub fn agent_returns(&mut self, spec: &PodSpec, lives: bool) -> RuntimeReport {
        let untold: Vec<bool> = self.processes.iter().map(|process| !process.exit_told).collect();
        self.agent = true;
        self.deleting = false;
        self.sandbox = match self.sandbox {
            Sandbox::Making => Sandbox::Absent,
            Sandbox::Going => Sandbox::There,
            kept @ (Sandbox::Absent | Sandbox::There) => kept,
        };
        let there = self.sandbox == Sandbox::There;
        let mut report = RuntimeReport { sandbox: there, ..RuntimeReport::default() };
        for (process, container) in self.processes.iter_mut().zip(&spec.containers) {
            if process.life == Life::Starting {
                process.life = Life::Absent;
            }
            process.unanswered = false;
            if process.image == Image::Pulling {
                process.image = Image::Unasked;
            }
            if !there {
                continue;
            }
            let instance = Instance { name: container.name.clone(), attempt: process.attempt };
            report.containers.extend(process.report(instance.clone()));
            process.start_told |= process.life == Life::Running;
            let failed = process.life == Life::Running && process.post_start == HookLife::Ended(Ending::Failed, false);
            if failed && container.post_start == Some(Hook::Exec) {
                process.own_deadline = process.own_deadline.or(Some(self.now + spec.grace));
            }
            process.exit_told |= matches!(process.life, Life::Exited(_));
            for (hook, kind) in [(container.pre_stop, HookKind::PreStop), (container.post_start, HookKind::PostStart)] {
                if let Some(Hook::Exec) = hook {
                    report.hooks.extend(process.hook_report(instance.clone(), kind));
                    if let HookLife::Ended(_, told) = process.hook_mut(kind) {
                        *told = true;
                    }
                }
            }
        }
        for (index, untold) in (0..).zip(untold) {
            if let (Life::Exited(code), true) = (self.process(index).life, untold && there && lives) {
                self.ended(spec, index, code);
            }
        }
        if self.restarting_all {
            self.stop_all();
        }
        report
    }

    /// The worker of a living pod is told of an end.
    fn ended(&mut self, spec: &PodSpec, index: Index, code: u8) {
        let rules = spec.containers[usize::from(index)].restart.iter().flat_map(|own| &own.rules);
        let mut all = rules.filter(|rule| rule.action == RestartAction::RestartAllContainers);
        if !self.restarting_all && all.any(|rule| rule.codes == ExitCodes::In(vec![i32::from(code)])) {
            self.restarting_all = true;
            self.processes.iter_mut().for_each(|process| process.did_its_part = false);
            self.stop_all();
        }
    }

    /// Whoever is known to run has no time left.
    fn stop_all(&mut self) {
        let now = self.now;
        for process in self.processes.iter_mut().filter(|it| it.life == Life::Running && it.start_told) {
            process.own_deadline = Some(process.own_deadline.map_or(now, |own| own.min(now)));
        }
    }

    /// The worker is told; `lives` says that nobody asked the pod to leave.
    pub fn told(&mut self, spec: &PodSpec, news: RunEvent, lives: bool) -> Input {
        let instance =
            |index: Index, attempt| Instance { name: spec.containers[usize::from(index)].name.clone(), attempt };
        match news {
            RunEvent::Started(index, attempt) => {
                self.run(index, attempt, |process| (process.start_told, process.unanswered) = (true, false));
                if self.restarting_all && lives {
                    self.stop_all();
                }
                Input::Started { instance: instance(index, attempt), wall: WALL }
            }
            RunEvent::Exited(index, attempt, code) => {
                if lives && self.process(index).attempt == attempt && !self.process(index).exit_told {
                    self.ended(spec, index, code);
                }
                self.run(index, attempt, |process| (process.exit_told, process.unanswered) = (true, false));
                Input::Exited { instance: instance(index, attempt), exit: exit(code) }
            }
            RunEvent::HookEnded(index, attempt, kind, ending) => {
                let own_deadline = self.now + spec.grace;
                self.run(index, attempt, |process| {
                    if let HookLife::Ended(_, told) = process.hook_mut(kind) {
                        *told = true;
                    }
                    if (kind, ending) == (HookKind::PostStart, Ending::Failed) && process.life == Life::Running {
                        process.own_deadline = process.own_deadline.or(Some(own_deadline));
                    }
                });
                Input::HookFinished { instance: instance(index, attempt), kind, outcome: ending.outcome() }
            }
            RunEvent::SignalAnswered(index, attempt, signal, took) => {
                let now = self.now;
                self.run(index, attempt, |process| {
                    if took == SignalTaken::Now && !process.killed && process.signal != SignalAsked::Answered {
                        process.noticed_at = Some(now);
                    }
                    (process.signal, process.asked_at) = (SignalAsked::Answered, None);
                });
                let delivery = match took {
                    SignalTaken::Nobody => Delivery::AlreadyGone,
                    SignalTaken::Now => Delivery::Delivered,
                    SignalTaken::Before(at) => Delivery::DeliveredBefore { at },
                };
                Input::SignalAnswered {
                    instance: instance(index, attempt),
                    signal: lifecycle::Signal(signal),
                    delivery,
                }
            }
        }
    }

    /// News sets out.
    pub fn send(&mut self, news: RunEvent) {
        // In no order: the same news in another order is the same state.
        let at = self.news.partition_point(|other| *other < news);
        self.news.insert(at, news);
    }

    /// When the next sleep hook ends.
    pub fn sleep_ends(&self, spec: &PodSpec) -> Option<Moment> {
        let ends = |(process, container): (&Process, &lifecycle::ContainerSpec)| {
            [(container.pre_stop, process.pre_stop), (container.post_start, process.post_start)]
                .into_iter()
                .filter_map(|(hook, life)| match (hook, life) {
                    (Some(Hook::Sleep(length)), HookLife::Running(since)) => Some(since + length),
                    (Some(Hook::Exec | Hook::ExecSleep(_) | Hook::HttpGet | Hook::Sleep(_)) | None, _) => None,
                })
                .min()
        };
        self.processes.iter().zip(&spec.containers).filter_map(ends).min()
    }

    /// Whether something is on its way that does not take long: only a late world lets time pass over it.
    pub fn is_pressed(&self) -> bool {
        !self.news.is_empty()
            || self.deleting
            || self.sandbox == Sandbox::Going
            || (self.agent && self.object != self.heard)
            || self.processes.iter().any(|process| process.killed && process.life == Life::Running)
    }

    fn exits(&mut self, index: Index, code: u8) -> Outcome {
        let process = self.process_mut(index);
        let attempt = process.attempt;
        process.life = Life::Exited(code);
        process.last_exit = Some(code);
        process.did_its_part = code == 0;
        let mut died = Vec::new();
        for kind in [HookKind::PreStop, HookKind::PostStart] {
            if let HookLife::Running(_) = process.hook(kind) {
                // It dies with its container, and whoever waits for it is told so, a little too late.
                *process.hook_mut(kind) = HookLife::Ended(Ending::Failed, false);
                died.push(RunEvent::HookEnded(index, attempt, kind, Ending::Failed));
            }
        }
        if self.agent {
            died.into_iter().for_each(|news| self.send(news));
        }
        Outcome::News(RunEvent::Exited(index, attempt, code))
    }

    fn lose_processes(&mut self) {
        for process in &mut self.processes {
            process.life = match process.life {
                Life::Running => Life::Lost,
                // It never came to run.
                Life::Starting => Life::Absent,
                over @ (Life::Absent | Life::Exited(_) | Life::Lost) => over,
            };
            process.pre_stop = HookLife::Idle;
            process.post_start = HookLife::Idle;
            process.did_its_part = false;
        }
    }

    fn run(&mut self, index: Index, attempt: u32, change: impl FnOnce(&mut Process)) {
        let process = self.process_mut(index);
        if process.attempt == attempt {
            change(process);
        }
    }

    fn run_of(&mut self, spec: &PodSpec, instance: &Instance) -> Option<(Index, &mut Process)> {
        let index = position(spec, &instance.name.0);
        let process = self.process_mut(index);
        (process.attempt == instance.attempt).then_some((index, process))
    }
}

/// Where a container stands in its pod's spec.
pub fn position(spec: &PodSpec, name: &str) -> Index {
    let at = spec.containers.iter().position(|container| container.name.0 == name);
    at.and_then(|at| Index::try_from(at).ok()).expect("the worker speaks of containers of its spec")
}
