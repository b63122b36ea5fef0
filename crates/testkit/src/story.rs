//! The last third of a story: it happens, and we look at how it went.

use std::fmt::Write as _;
use std::time::Duration;

use lifecycle::{
    ContainerState, ContainerStatus, DeleteSighting, Effect, Event, Input, Moment, PodPhase, PodStatus, PodWorker,
    SpecChange, Terminated, TerminationVerdict, TrafficNews,
};

use crate::given::{OutsideEvent, When};
use crate::golden;
use crate::laws::Laws;
use crate::timeline_text;
use crate::world::{Happening, World};

/// The moment a story begins on the machine's clock. Not zero, so that nothing works by luck.
const BEGIN: Moment = Moment::from_millis(1_000_000);
/// No story goes on for longer than this.
const HORIZON: Duration = Duration::from_secs(24 * 3600);
/// Nor has it more to tell: whoever asks for the same thing for ever is stuck.
const LINES_MOST: usize = 3_000;

/// A story that has happened.
#[derive(Debug)]
pub struct Story {
    lines: Vec<TimelineLine>,
    events: Vec<Event>,
    statuses: Vec<(Duration, PodStatus)>,
    worker: PodWorker,
}

#[derive(Clone, Debug)]
struct TimelineLine {
    at: Duration,
    text: String,
    asked: bool,
    shown: bool,
}

/// A story while it happens.
struct Telling {
    when: When,
    world: World,
    worker: PodWorker,
    laws: Laws,
    journal: Vec<(Moment, Input)>,
    /// What the API said while the agent was away.
    missed: Vec<(Moment, Input)>,
    agent_alive: bool,
    /// `Finish` was asked for, by an agent that lived to do it.
    over: bool,
    shown: bool,
    story: Vec<TimelineLine>,
    events: Vec<Event>,
    statuses: Vec<(Duration, PodStatus)>,
}

impl Story {
    pub(crate) fn of(when: When) -> Self {
        let worker = PodWorker::new(when.given.spec());
        let mut telling = Telling {
            world: World::new(when.given.clone(), BEGIN),
            worker,
            laws: Laws::default(),
            journal: Vec::new(),
            missed: Vec::new(),
            agent_alive: true,
            over: false,
            shown: when.from_the_start,
            story: Vec::new(),
            events: Vec::new(),
            statuses: Vec::new(),
            when,
        };
        telling.happen();
        let Telling { story, events, statuses, worker, .. } = telling;
        Self { lines: story, events, statuses, worker }
    }

    /// Checks every line that is shown.
    #[track_caller]
    pub fn then_timeline(self, expected: &str) -> Self {
        let told: Vec<String> = self.timeline().lines().map(squeezed).collect();
        let expected: Vec<String> = expected.lines().map(squeezed).filter(|line| !line.is_empty()).collect();
        assert!(told == expected, "the story went otherwise:\n{}", self.timeline());
        self
    }

    /// Checks every line that is shown against `dir/name.txt`; `UPDATE_TIMELINES=1` writes it instead.
    #[track_caller]
    pub fn then_golden(self, dir: &str, name: &str) -> Self {
        golden::check(dir, name, &self.timeline());
        self
    }

    /// That line was told at that time, and at no other.
    #[track_caller]
    pub fn then_at(self, at: Duration, text: &str) -> Self {
        let times: Vec<Duration> = self.times_of(text);
        assert_eq!(times, [at], "`{text}` in\n{}", self.timeline());
        self
    }

    /// That line was never told.
    #[track_caller]
    pub fn then_never(self, text: &str) -> Self {
        assert!(self.times_of(text).is_empty(), "`{text}` in\n{}", self.timeline());
        self
    }

    /// The pod was over by then: the worker finished.
    #[track_caller]
    pub fn then_finished_by(self, at: Duration) -> Self {
        assert!(self.finished_at().is_some_and(|end| end <= at), "finished by {at:?}?\n{}", self.timeline());
        self
    }

    /// The last phase others saw.
    #[track_caller]
    pub fn then_phase(self, phase: PodPhase) -> Self {
        assert_eq!(self.status().phase, phase, "in\n{}", self.timeline());
        self
    }

    /// The pod's reason, as others saw it last.
    #[track_caller]
    pub fn then_reason(self, reason: Option<&str>) -> Self {
        assert_eq!(self.status().reason.as_deref(), reason, "in\n{}", self.timeline());
        self
    }

    /// How well the pod left.
    #[track_caller]
    pub fn then_verdict(self, verdict: TerminationVerdict) -> Self {
        assert_eq!(self.status().verdict, Some(verdict), "in\n{}", self.timeline());
        self
    }

    /// What released the barrier, as others saw it last.
    #[track_caller]
    pub fn then_released_by(self, reason: &str) -> Self {
        let drained = self.status().traffic_drained.and_then(|drained| drained.reason.filter(|_| drained.holds));
        assert_eq!(drained.as_deref(), Some(reason), "in\n{}", self.timeline());
        self
    }

    /// That line was told so often.
    #[track_caller]
    pub fn then_times(self, count: usize, text: &str) -> Self {
        assert_eq!(self.times_of(text).len(), count, "`{text}` in\n{}", self.timeline());
        self
    }

    /// How a container ended, as others saw it last.
    #[track_caller]
    pub fn then_exit(self, name: &str, code: i32, reason: &str) -> Self {
        let ended = self.ended(name);
        assert_eq!((ended.exit_code, ended.reason.as_str()), (code, reason), "{name} in\n{}", self.timeline());
        self
    }

    /// How the run before the current one ended, as others saw it last.
    #[track_caller]
    pub fn then_exit_of_last_run(self, name: &str, code: i32) -> Self {
        let last = self.container(name).last.map(|last| last.exit_code);
        assert_eq!(last, Some(code), "{name} in\n{}", self.timeline());
        self
    }

    /// An event was told, and how often.
    #[track_caller]
    pub fn then_events(self, count: usize, reason: &str, message: &str) -> Self {
        let found = self.events.iter().filter(|event| event.reason == reason && event.message == message).count();
        assert_eq!(found, count, "{reason}: {message} among {:#?}", self.events);
        self
    }

    /// No event of that reason was told.
    #[track_caller]
    pub fn then_no_event(self, reason: &str) -> Self {
        assert!(!self.events.iter().any(|event| event.reason == reason), "{reason} among {:#?}", self.events);
        self
    }

    /// Looks at the status others could see at that time.
    #[track_caller]
    pub fn then_status_at(self, at: Duration, look: impl FnOnce(&PodStatus)) -> Self {
        let seen = self.statuses.iter().rev().find(|(when, _)| *when <= at).expect("the story had begun");
        look(&seen.1);
        self
    }

    /// When the worker had nothing more to do, ever.
    pub fn finished_at(&self) -> Option<Duration> {
        self.times_of("finish").first().copied().filter(|_| self.worker.is_finished())
    }

    /// The status in the end.
    pub fn status(&self) -> PodStatus {
        self.worker.status()
    }

    /// One container in the end.
    #[track_caller]
    pub fn container(&self, name: &str) -> ContainerStatus {
        let status = self.status();
        status.containers.into_iter().find(|container| container.name.0 == name).expect("a given container")
    }

    /// The lines that are shown.
    pub fn timeline(&self) -> String {
        let mut text = String::new();
        for line in self.lines.iter().filter(|line| line.shown) {
            let at = format!("{}.{:03}", line.at.as_secs(), line.at.subsec_millis());
            let arrow = if line.asked { "  -> " } else { "" };
            writeln!(text, "{at:>8}  {arrow}{}", line.text).expect("writing to a string does not fail");
        }
        text
    }

    #[track_caller]
    fn ended(&self, name: &str) -> Terminated {
        match self.container(name).state {
            ContainerState::Terminated(ended) => ended,
            other @ (ContainerState::Running { .. } | ContainerState::Waiting(_)) => {
                panic!("{name} has not ended but is {other:?} in\n{}", self.timeline())
            }
        }
    }

    fn times_of(&self, text: &str) -> Vec<Duration> {
        self.lines.iter().filter(|line| line.text == text).map(|line| line.at).collect()
    }
}

impl Telling {
    fn happen(&mut self) {
        self.tell(Input::Begin, None);
        if let Some(routes) = self.when.given.traffic.routes {
            self.tell(Input::Traffic(TrafficNews::Routed(routes)), None);
        }
        // Whatever comes up without taking time is up at the zero of the story.
        while self.world.next_at() == Some(BEGIN) {
            self.step();
        }
        self.shown = true;
        for turn in self.when.turns.clone() {
            self.world.schedule(turn.at, Happening::Turn(turn.what));
        }
        while !self.over && self.step() {}
    }

    /// Lets the next thing happen; false when nothing ever will.
    fn step(&mut self) -> bool {
        assert!(self.story.len() < LINES_MOST, "the story goes round in circles at {}", self.world.now());
        let wake = self.worker.next_wake().filter(|_| self.agent_alive);
        let at = match (self.world.next_at(), &wake) {
            (None, None) => return false,
            (Some(at), None) => at,
            (Some(at), Some(wake)) => at.min(wake.at),
            (None, Some(wake)) => wake.at,
        };
        if at > BEGIN + HORIZON {
            return false;
        }
        if self.world.next_at() == Some(at) {
            let happening = self.world.next().expect("it is due");
            self.live_through(happening);
        } else if let Some(wake) = wake {
            self.world.pass_to(at);
            self.tell(Input::TimePassed, Some(wake.reason.to_string()));
        }
        true
    }

    fn live_through(&mut self, happening: Happening) {
        let input = match happening {
            Happening::Answer(input) => Some(input),
            Happening::SandboxMade => Some(self.world.sandbox_made()),
            Happening::Starts(instance) => Some(self.world.starts(instance)),
            Happening::Exits(instance, code, signal) => self.world.exits(instance, code, signal),
            Happening::HookEnds(instance, kind, outcome) => self.world.hook_ends(&instance, kind, outcome),
            Happening::Turn(OutsideEvent::Told(input)) => {
                if let Input::Traffic(TrafficNews::Connections { open }) = input {
                    self.world.connected(open);
                }
                if !self.agent_alive {
                    self.missed.push((self.world.now(), input.clone()));
                }
                Some(input)
            }
            Happening::Turn(OutsideEvent::AgentDies { back_after }) => {
                self.agent_dies(back_after);
                None
            }
            Happening::Turn(OutsideEvent::SandboxLost) => {
                self.world.lose_sandbox();
                self.note("sandbox vanishes", false, true);
                None
            }
            Happening::Turn(OutsideEvent::Runtime { answers }) => {
                self.note(if answers { "runtime answers again" } else { "runtime stops answering" }, false, true);
                self.world.runtime_answers(answers);
                None
            }
            Happening::AgentBack => {
                self.agent_returns();
                None
            }
        };
        if let Some(input) = input.filter(|_| self.agent_alive) {
            self.tell(input, None);
        }
    }

    fn agent_dies(&mut self, back_after: Duration) {
        self.note("agent dies", false, true);
        self.agent_alive = false;
        self.world.agent_dies();
        self.world.schedule(back_after, Happening::AgentBack);
    }

    /// A new agent reads the journal, and finds in the API what happened meanwhile.
    fn agent_returns(&mut self) {
        self.agent_alive = true;
        let mut rebuilt = PodWorker::new(self.when.given.spec());
        for (at, input) in &self.journal {
            rebuilt.handle(*at, input.clone());
        }
        assert_eq!(rebuilt, self.worker, "the journal tells the same life again");
        self.worker = rebuilt;
        let report = self.world.report();
        self.tell(Input::AgentRestarted { report }, None);
        for (at, input) in std::mem::take(&mut self.missed) {
            let input = if let Input::DeleteRequested { grace, sighting: _ } = input {
                let left = (at + grace).since(self.world.now());
                Input::DeleteRequested { grace, sighting: DeleteSighting::Found { left } }
            } else {
                input
            };
            self.tell(input, None);
        }
    }

    fn tell(&mut self, input: Input, words: Option<String>) {
        if let Input::SpecChanged { change: SpecChange::Ephemeral { spec } } = &input {
            self.world.join(spec);
        }
        let (now, before) = (self.world.now(), self.worker.clone());
        self.journal.push((now, input.clone()));
        let effects = self.worker.handle(now, input.clone());
        self.laws.observe(now, &input, &effects, &self.worker);
        if let Some(snapshot) = self.worker.snapshot() {
            let again = PodWorker::remembered(self.when.given.spec(), snapshot);
            assert_eq!(again, self.worker, "what is put down of a calm pod is the whole of it");
        }
        self.statuses.push((now - BEGIN, self.worker.status()));
        let headline = matches!(
            input,
            Input::DeleteRequested { .. }
                | Input::KillRequested { .. }
                | Input::ObjectGone
                | Input::AgentRestarted { .. }
        );
        let silent = matches!(input, Input::SignalAnswered { .. });
        let changed = before != self.worker || effects.iter().any(|effect| self.is_told(effect));
        self.note(&words.unwrap_or_else(|| timeline_text::of_input(&input)), false, headline || (changed && !silent));
        for effect in effects {
            let crash = self.when.dies_over(&timeline_text::of_effect(&effect));
            if let Some(crash) = crash.as_ref().filter(|crash| !crash.is_done) {
                self.agent_dies(crash.back_after);
                return;
            }
            if let Effect::Emit(event) = &effect {
                self.events.push(event.clone());
            }
            if matches!(effect, Effect::DeleteObject | Effect::Finish) {
                assert!(!self.world.anyone_alive(), "a process outlived its pod");
            }
            let told = self.is_told(&effect);
            self.note(&timeline_text::of_effect(&effect), true, told);
            self.world.perform(&effect);
            self.over |= effect == Effect::Finish;
            if let Some(crash) = crash {
                self.agent_dies(crash.back_after);
                return;
            }
        }
    }

    fn is_told(&self, effect: &Effect) -> bool {
        self.when.with_events || !matches!(effect, Effect::Emit(_) | Effect::PublishStatus)
    }

    fn note(&mut self, text: &str, asked: bool, shown: bool) {
        let at = self.world.now() - BEGIN;
        self.story.push(TimelineLine { at, text: text.into(), asked, shown: shown && self.shown });
    }
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
