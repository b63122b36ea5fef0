//! The model: the worker and its world, every step that may come next, and what each step leads to.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use lifecycle::{Effect, Hook, HookKind, Input, Moment, PodSpec, PodStatus, Role, TrafficNews};
use stateright::{Model, Property};

use crate::bounds::Bounds;
use crate::laws::{Broken, Law, judge_ask, judge_start, judge_state, judge_status, judge_telling};
use crate::passage::{barrier_is_open, drain_is_over};
use crate::process::{HookLife, Image, Life};
use crate::promised_deadline::PromisedDeadline;
use crate::step::{Hearing, Step, StepKind};
use crate::traffic::Reach;
use crate::worker::{Make, Worker};
use crate::world::{Object, Outcome, RunEvent, SHRUNK_GRACE, Sandbox, World};

/// A pod, the bounds of what may happen to it, and a worker to look after it.
#[derive(Clone, Debug)]
pub struct PodModel<W> {
    /// What to call it.
    pub name: &'static str,
    /// The pod.
    pub spec: PodSpec,
    /// How often each kind of thing may happen.
    pub bounds: Bounds,
    /// Whether the pod's coming up is played in every order, or once and quickly.
    pub cold: bool,
    /// How connections reach the pod, if they do. At first a sibling can take them.
    pub reach: Option<Reach>,
    /// How a worker is made.
    pub make: Make<W>,
}

/// The worker and its world.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<W> {
    /// The worker as it stands, which is also what its journal would give.
    pub worker: W,
    /// Everything else.
    pub world: World,
    /// What may still happen.
    pub left: Bounds,
    /// The deadline as it should be.
    pub promise: Option<PromisedDeadline>,
    /// The status that others could see last; it follows from the worker.
    pub shown: u64,
    /// Laws broken on the way here.
    pub broken: Broken,
}

/// A run that is not over by then never will be.
const HORIZON: Moment = Moment::from_millis(10_000_000);
/// A pod that lives for longer than this learns nothing new; where answers are lost, they were asked for again by then, but
/// for pulls and starts, whose patience is told by scenarios.
const LONG_LIFE: Moment = Moment::from_millis(90_000);
const LONG_LIFE_OF_SILENCE: Moment = Moment::from_millis(130_000);
const SECOND: Duration = Duration::from_secs(1);
/// When every life begins.
const BEGIN: Moment = Moment::from_millis(0);
/// After how many performed asks an agent may die over one input.
const CUTS: [u8; 4] = [0, 1, 2, 3];

impl<W: Worker> PodModel<W> {
    /// The state in which every container runs, reached in the quickest way.
    fn come_up(&self, state: &mut State<W>) {
        while let Some(what) = self.next_on_the_way_up(&state.world) {
            *state = self.step(state, Step { what, how: Hearing::Told }).expect("coming up is always possible");
        }
        while !state.world.news.is_empty() {
            *state = self.step(state, Step { what: StepKind::Arrives(0), how: Hearing::Told }).expect("there is news");
        }
    }

    fn next_on_the_way_up(&self, world: &World) -> Option<StepKind> {
        if world.sandbox == Sandbox::Making {
            return Some(StepKind::SandboxMade);
        }
        (0..).zip(world.processes.iter().zip(&self.spec.containers)).find_map(|(index, (process, container))| {
            match (process.image, process.life, process.post_start) {
                (Image::Pulling, _, _) => Some(StepKind::Pulled(index)),
                (_, Life::Starting, _) => Some(StepKind::Starts(index)),
                (_, Life::Running, HookLife::Running(_)) => Some(StepKind::HookEnds(index, HookKind::PostStart, true)),
                (_, Life::Running, _) if container.role == Role::Init => Some(StepKind::Exits(index, 0)),
                _ => None,
            }
        })
    }

    /// What may happen next, apart from what becomes of the news.
    fn happenings(&self, state: &State<W>) -> Vec<StepKind> {
        let State { world, left, .. } = state;
        let mut all = Vec::new();
        let mut may = |possible: bool, what: StepKind| {
            if possible {
                all.push(what);
            }
        };
        let refusal = left.refusals > 0;
        let shrinkable = matches!(world.object, Object::Leaving { grace, .. } if grace > SHRUNK_GRACE);
        may(left.deletes > 0 && world.object == Object::Stays, StepKind::Delete);
        may(left.shrinks > 0 && shrinkable, StepKind::Shrink);
        may(left.forces > 0 && world.object != Object::Gone, StepKind::Force);
        may(left.shutdowns > 0 && world.agent, StepKind::Shutdown);
        may(left.evictions > 0 && world.agent, StepKind::Evict);
        // A pod of a file, one that nobody claims, one that others call over: each is asked to leave in its own way.
        let dismissed = left.dismissals > 0 && world.agent;
        let rests = state.worker.inner().is_at_rest();
        may(dismissed && world.object == Object::Stays, StepKind::ConfigRemoved);
        may(dismissed && world.object == Object::Stays && !rests, StepKind::Orphaned);
        may(dismissed && state.promise.is_none(), StepKind::Declared);
        may(dismissed && state.promise.is_none(), StepKind::Rejected);
        may(!world.agent && left.reboots > 0, StepKind::Reboot);
        may(world.sandbox == Sandbox::Making, StepKind::SandboxMade);
        may(world.sandbox == Sandbox::Making && refusal && world.agent, StepKind::SandboxRefused);
        may(world.sandbox == Sandbox::Going, StepKind::Removed);
        may(world.sandbox == Sandbox::Going && refusal && world.agent, StepKind::RemovalRefused);
        may(world.deleting, StepKind::ObjectDeleted);
        may(world.deleting && refusal && world.agent, StepKind::DeleteRefused);
        may(world.agent && world.object != world.heard, StepKind::Looks);
        may(world.agent && left.crashes > 0, StepKind::Crash);
        may(!world.agent && left.losses > 0 && world.sandbox == Sandbox::There, StepKind::SandboxLost);
        may(!world.agent, StepKind::Returns);
        if world.agent {
            world.traffic.answers(refusal, left.traffic > 0).into_iter().for_each(|answer| may(true, answer));
        }
        for arrived in (0..).take(world.news.len()) {
            may(true, StepKind::Arrives(arrived));
        }
        for (index, (process, container)) in (0..).zip(world.processes.iter().zip(&self.spec.containers)) {
            let running = process.life == Life::Running;
            may(process.image == Image::Pulling && world.agent, StepKind::Pulled(index));
            may(process.image == Image::Pulling && world.agent && refusal, StepKind::PullRefused(index));
            // Whoever removes a sandbox may come too late for a start that is under way in it.
            let in_sandbox = matches!(world.sandbox, Sandbox::There | Sandbox::Going);
            may(process.life == Life::Starting && in_sandbox, StepKind::Starts(index));
            let dies = world.agent && left.losses > 0 && world.sandbox == Sandbox::There;
            may(process.life == Life::Starting && dies, StepKind::SandboxDies(index));
            may(process.life == Life::Starting && world.agent && refusal, StepKind::StartRefused(index));
            let living = state.promise.is_none() && world.agent && process.own_deadline.is_none();
            may(running && process.start_told && left.probes > 0 && living, StepKind::ProbeFails(index));
            match (running, process.killed, process.signalled_at) {
                (true, true, _) => may(true, StepKind::Exits(index, 137)),
                (true, false, Some(_)) => may(true, StepKind::Exits(index, 0)),
                (true, false, None) => {
                    let init = container.role == Role::Init;
                    may(init || left.exits > 0, StepKind::Exits(index, 0));
                    may(left.exits > 0, StepKind::Exits(index, 1));
                }
                (false, _, _) => {}
            }
            for (kind, hook) in [(HookKind::PreStop, container.pre_stop), (HookKind::PostStart, container.post_start)] {
                let HookLife::Running(since) = process.hook(kind) else { continue };
                match hook {
                    Some(Hook::Sleep(length)) => {
                        may(world.now >= since + length, StepKind::HookEnds(index, kind, true))
                    }
                    Some(Hook::Exec | Hook::ExecSleep(_) | Hook::HttpGet) | None => {
                        may(true, StepKind::HookEnds(index, kind, true));
                        may(left.hook_failures > 0, StepKind::HookEnds(index, kind, false));
                    }
                }
            }
        }
        let moves = |to: Moment| to <= world.now || !world.is_pressed() || left.late > 0;
        let horizon = match state.promise {
            Some(_) => HORIZON,
            None if self.bounds.lost > 0 => LONG_LIFE_OF_SILENCE,
            None => LONG_LIFE,
        };
        let due = self.next_due(state);
        may(due.is_some_and(|due| due <= horizon && moves(due) && (world.agent || due > world.now)), StepKind::Wake);
        let later = world.now + SECOND;
        // A busy agent comes late to what is due.
        let may_pass = |due: Moment| due > later || (left.late > 0 && world.agent);
        may(left.pauses > 0 && later <= horizon && due.is_some_and(may_pass) && moves(later), StepKind::Pause);
        all
    }

    /// When something is due: the worker wants to be woken, or a sleep ends.
    fn next_due(&self, state: &State<W>) -> Option<Moment> {
        let wake = state.worker.inner().next_wake().map(|wake| wake.at);
        wake.into_iter().chain(state.world.sleep_ends(&self.spec).filter(|at| *at > state.world.now)).min()
    }

    /// Where a step leads, if it is possible.
    pub fn step(&self, from: &State<W>, Step { what, how }: Step) -> Option<State<W>> {
        let mut state = from.clone();
        let overslept =
            what == StepKind::Pause && self.next_due(from).is_some_and(|due| due <= from.world.now + SECOND);
        state.pay(what, how, overslept);
        #[allow(clippy::wildcard_enum_match_arm, reason = "everything else simply happens")]
        match what {
            StepKind::Starts(index) => judge_start(&mut state.broken, &from.world, from.promise, index),
            StepKind::Crash => {
                state.crash(&self.spec);
                return Some(state);
            }
            StepKind::Returns => {
                let report = state.world.agent_returns(&self.spec, from.promise.is_none());
                if std::mem::take(&mut state.world.rebooted) {
                    // The clock goes on as it was: what a boot does to moments is told by scenarios.
                    state.tell(&self.spec, Input::Rebooted { was: from.world.now }, None);
                }
                state.tell(&self.spec, Input::AgentRestarted { report }, cut(how));
                return (!matches!(how, Hearing::Cut(_)) || !state.world.agent).then_some(state);
            }
            StepKind::Pause => state.pass_to(from.world.now + SECOND),
            StepKind::Wake => {
                let due = self.next_due(from)?;
                state.pass_to(due.max(from.world.now));
                if from.worker.inner().next_wake().is_none_or(|wake| wake.at > state.world.now) {
                    // A sleep ended; its end is a step of its own.
                    return matches!(how, Hearing::Told | Hearing::Unheard).then_some(state);
                }
            }
            _ => {}
        }
        let outcome = state.world.happen(&self.spec, what, how == Hearing::Lost);
        match (outcome, how) {
            (Outcome::Silence, Hearing::Lost) => return None,
            (Outcome::Silence, _) | (_, Hearing::Unheard | Hearing::Lost) => {}
            (Outcome::News(news), Hearing::Late) => state.world.send(news),
            (Outcome::Input(_), Hearing::Late | Hearing::Twice) => return None,
            (Outcome::News(news), Hearing::Told | Hearing::Twice | Hearing::Cut(_)) => {
                if how == Hearing::Twice {
                    state.world.send(news);
                }
                let input = state.world.told(&self.spec, news, from.promise.is_none());
                state.tell(&self.spec, input, cut(how));
            }
            (Outcome::Input(input), Hearing::Told | Hearing::Cut(_)) => {
                if matches!(
                    what,
                    StepKind::Delete | StepKind::Shrink | StepKind::Force | StepKind::Looks | StepKind::ObjectDeleted
                ) {
                    state.world.heard = state.world.object;
                }
                state.tell(&self.spec, input, cut(how));
            }
        }
        // An agent that had nothing left to do when it was to die did not die of it.
        (!matches!(how, Hearing::Cut(_)) || !state.world.agent).then_some(state)
    }

    /// Whether a life goes on from here, if it is not over. A pod that somebody deleted needs nobody's good will for that:
    /// whoever is asked may never answer, and every process may ignore everything but KILL. Together with the absence
    /// of circles (`cycle`) this means that every run reaches its end.
    pub fn goes_on(&self, state: &State<W>) -> bool {
        if self.is_over(state) {
            return true;
        }
        let deleted = state.world.object != Object::Stays;
        let how = |what: StepKind| {
            if state.world.agent || what == StepKind::Returns { Hearing::Told } else { Hearing::Unheard }
        };
        let leads_on = |what: StepKind| {
            let next = self.step(state, Step { what, how: how(what) });
            next.is_some_and(|next| next != *state)
        };
        self.happenings(state).into_iter().any(|what| (!deleted || is_inevitable(what)) && leads_on(what))
    }

    /// The worker finished, its agent lived to forget it, and nobody has anything left to say.
    pub fn is_over(&self, state: &State<W>) -> bool {
        state.worker.inner().is_finished() && state.world.forgotten && state.world.news.is_empty()
    }
}

/// Whether it happens sooner or later, whatever the pod's processes and those around it do: time passes, news arrives, an
/// agent that died comes back, a killed process dies, the sandbox and the object go when that is asked for.
fn is_inevitable(what: StepKind) -> bool {
    #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else is")]
    match what {
        StepKind::Wake
        | StepKind::Arrives(_)
        | StepKind::Looks
        | StepKind::Returns
        | StepKind::Removed
        | StepKind::ObjectDeleted => true,
        StepKind::Exits(_, code) => code == 137,
        _ => false,
    }
}

/// Whether the worker may never hear of it, although its agent lives. Exits are not lost: whoever reaps writes them
/// down before anybody is told, and tells them again.
fn is_losable(world: &World, what: StepKind) -> bool {
    match what {
        StepKind::Arrives(at) => !matches!(world.news[usize::from(at)], RunEvent::Exited(..)),
        StepKind::Delete
        | StepKind::Shrink
        | StepKind::Force
        | StepKind::SandboxMade
        | StepKind::SandboxRefused
        | StepKind::Pulled(_)
        | StepKind::PullRefused(_)
        | StepKind::Starts(_)
        | StepKind::StartRefused(_)
        | StepKind::HookEnds(..)
        | StepKind::Removed
        | StepKind::RemovalRefused
        | StepKind::ObjectDeleted
        | StepKind::DeleteRefused
        | StepKind::CutDone
        | StepKind::CutRefused
        | StepKind::Acked
        | StepKind::Quiet
        | StepKind::Settled
        | StepKind::Drained => true,
        StepKind::Exits(..)
        | StepKind::Shutdown
        | StepKind::Evict
        | StepKind::ProbeFails(_)
        | StepKind::Connected
        | StepKind::AppDone
        | StepKind::Rerouted(_)
        | StepKind::Reached(_)
        | StepKind::ConfigRemoved
        | StepKind::Orphaned
        | StepKind::Declared
        | StepKind::Rejected
        | StepKind::Reboot
        | StepKind::Looks
        | StepKind::Wake
        | StepKind::Pause
        | StepKind::Crash
        | StepKind::SandboxLost
        | StepKind::SandboxDies(_)
        | StepKind::Returns => false,
    }
}

/// A status in a number. The same everywhere, so that counts of states are.
fn fingerprint(status: &PodStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    status.hash(&mut hasher);
    hasher.finish()
}

fn cut(how: Hearing) -> Option<u8> {
    match how {
        Hearing::Cut(performed) => Some(performed),
        Hearing::Told | Hearing::Late | Hearing::Twice | Hearing::Lost | Hearing::Unheard => None,
    }
}

impl<W: Worker> State<W> {
    fn crash(&mut self, spec: &PodSpec) {
        self.world.agent_dies(spec);
        self.worker = self.worker.clone().rebuilt();
    }

    fn pass_to(&mut self, at: Moment) {
        self.world.now = at;
    }

    /// Tells the worker, and does what it asks for; only the first `cut` asks if the agent dies over it.
    fn tell(&mut self, spec: &PodSpec, input: Input, cut: Option<u8>) {
        let (now, deadline) = (self.world.now, self.worker.inner().deadline());
        let finished = self.worker.inner().is_finished();
        let before = self.promise;
        self.promise = PromisedDeadline::after(before, now, &input, spec.grace);
        let boots = matches!(input, Input::Rebooted { .. });
        let again = matches!(input, Input::AgentRestarted { .. });
        let asks = self.worker.handle(now, input);
        if before.is_none() && self.promise.is_some() {
            self.world.traffic.guarded = self.world.traffic.reach.is_some() && self.world.serves(spec);
        }
        if self.promise.is_none() && self.worker.inner().is_terminating() {
            self.promise = Some(PromisedDeadline::of_completion(now, spec.grace));
        }
        // Nobody wakes a worker that does not ask for it.
        let looks_up_by = |until| self.worker.inner().next_wake().is_some_and(|wake| wake.at <= until && now < until);
        let in_time = spec.active_deadline.is_none_or(|most| looks_up_by(BEGIN + most));
        self.broken.demand(Law::ActiveInTime, in_time || self.promise.is_some() || boots);
        let is_quiet = asks.iter().all(|ask| again && matches!(ask, Effect::Finish));
        self.broken.demand(Law::QuietEnd, !finished || is_quiet);
        let status = self.worker.inner().status();
        let shown = fingerprint(&status);
        judge_telling(&mut self.broken, &self.world, self.shown != shown, self.worker.inner(), &asks);
        self.shown = shown;
        let (mut performed, mut cut_off) = (0, false);
        for ask in &asks {
            judge_ask(&mut self.broken, spec, &self.world, self.promise, ask);
            self.world.traffic.asked(now, ask, before.is_none());
            if matches!(ask, Effect::Emit(_) | Effect::PublishStatus) {
                continue;
            }
            if cut.is_some_and(|most| performed >= most) {
                self.world.fail_to_perform(spec, ask);
                cut_off = true;
            } else {
                self.world.perform(spec, ask, self.promise.is_some());
                performed += 1;
            }
            if self.promise.is_some() && matches!(ask, Effect::RemoveSandbox) {
                self.world.clearing = true;
            }
        }
        let traffic = &self.world.traffic;
        if traffic.guarded && traffic.opened_at.is_none() && barrier_is_open(spec, &self.world, self.promise) {
            self.world.traffic.opened_at = Some(now);
        }
        if self.world.traffic.opened_at.is_some() && drain_is_over(spec, &self.world, self.promise) {
            self.world.traffic.drained = true;
        }
        if cut_off {
            self.crash(spec);
        } else {
            let worker = self.worker.inner();
            judge_state(&mut self.broken, spec, &self.world, self.promise, deadline, worker);
            judge_status(&mut self.broken, spec, &self.world, self.promise, worker, &status);
        }
    }

    fn pay(&mut self, what: StepKind, how: Hearing, overslept: bool) {
        let left = &mut self.left;
        let spent: Option<&mut u8> = match what {
            StepKind::Delete => Some(&mut left.deletes),
            StepKind::Shrink => Some(&mut left.shrinks),
            StepKind::Force => Some(&mut left.forces),
            StepKind::Shutdown => Some(&mut left.shutdowns),
            StepKind::Evict => Some(&mut left.evictions),
            StepKind::SandboxRefused
            | StepKind::PullRefused(_)
            | StepKind::StartRefused(_)
            | StepKind::RemovalRefused
            | StepKind::DeleteRefused
            | StepKind::CutRefused => Some(&mut left.refusals),
            StepKind::Quiet
            | StepKind::Connected
            | StepKind::AppDone
            | StepKind::Rerouted(_)
            | StepKind::Reached(_) => Some(&mut left.traffic),
            StepKind::ConfigRemoved | StepKind::Orphaned | StepKind::Declared | StepKind::Rejected => {
                Some(&mut left.dismissals)
            }
            StepKind::Reboot => Some(&mut left.reboots),
            StepKind::Exits(index, _) if self.world.process(index).signalled_at.is_none() => Some(&mut left.exits),
            StepKind::HookEnds(_, _, false) => Some(&mut left.hook_failures),
            StepKind::ProbeFails(_) => Some(&mut left.probes),
            StepKind::Crash => Some(&mut left.crashes),
            StepKind::SandboxLost | StepKind::SandboxDies(_) => Some(&mut left.losses),
            StepKind::Pause => Some(&mut left.pauses),
            StepKind::SandboxMade
            | StepKind::Pulled(_)
            | StepKind::Starts(_)
            | StepKind::Exits(..)
            | StepKind::HookEnds(..)
            | StepKind::Removed
            | StepKind::ObjectDeleted
            | StepKind::CutDone
            | StepKind::Acked
            | StepKind::Settled
            | StepKind::Drained
            | StepKind::Arrives(_)
            | StepKind::Looks
            | StepKind::Wake
            | StepKind::Returns => None,
        };
        if let Some(spent) = spent {
            // An init container's exit is free.
            *spent = spent.saturating_sub(1);
        }
        if how == Hearing::Lost {
            self.left.lost = self.left.lost.saturating_sub(1);
        }
        if let Hearing::Cut(_) = how {
            self.left.crashes = self.left.crashes.saturating_sub(1);
        }
        let waits = matches!(what, StepKind::Wake | StepKind::Pause) && self.world.is_pressed();
        if matches!(how, Hearing::Late | Hearing::Twice) || waits || overslept {
            self.left.late = self.left.late.saturating_sub(1);
        }
    }
}

impl<W: Worker> Model for PodModel<W> {
    type State = State<W>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<W>> {
        let mut state = State {
            worker: (self.make)(self.spec.clone()),
            world: World::new(&self.spec, self.reach),
            left: self.bounds,
            promise: None,
            shown: 0,
            broken: Broken::default(),
        };
        state.shown = fingerprint(&state.worker.inner().status());
        state.tell(&self.spec, Input::Begin, None);
        if self.reach.is_some() {
            let routes = state.world.traffic.routes();
            state.tell(&self.spec, Input::Traffic(TrafficNews::Routed(routes)), None);
        }
        if !self.cold {
            self.come_up(&mut state);
        }
        vec![state]
    }

    fn actions(&self, state: &State<W>, steps: &mut Vec<Step>) {
        if self.is_over(state) {
            return;
        }
        let finished = state.worker.inner().is_finished() && state.world.forgotten;
        for what in self.happenings(state) {
            // The end is the end; only late news may still come.
            if finished && !matches!(what, StepKind::Arrives(_)) {
                continue;
            }
            let mut add = |how| steps.push(Step { what, how });
            if !state.world.agent && what != StepKind::Returns {
                add(Hearing::Unheard);
                continue;
            }
            add(Hearing::Told);
            let is_news = matches!(what, StepKind::Starts(_) | StepKind::Exits(..) | StepKind::HookEnds(..));
            if is_news && state.left.late > 0 {
                add(Hearing::Late);
            }
            if (is_news || matches!(what, StepKind::Arrives(_))) && state.left.late > 0 {
                add(Hearing::Twice);
            }
            if state.left.lost > 0 && is_losable(&state.world, what) {
                add(Hearing::Lost);
            }
            let is_quiet = matches!(what, StepKind::Crash | StepKind::Pause);
            if state.left.crashes > 0 && !is_quiet {
                CUTS.into_iter().for_each(|performed| add(Hearing::Cut(performed)));
            }
        }
    }

    fn next_state(&self, from: &State<W>, step: Step) -> Option<State<W>> {
        self.step(from, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = crate::check::always();
        all.extend(crate::check::sometimes(self));
        all
    }
}
