//! The first two thirds of a story: what the pod is like, and what happens to it.

use std::time::Duration;

use lifecycle::{
    ContainerName, ContainerRestart, ContainerSpec, DeleteSighting, DrainSpec, Hook, Input, Instance, KillCause,
    PodIdentity, PodSpec, Probe, Readiness, RestartPolicy, RestartRule, Role, Routes, Signal, TrafficNews,
};

use crate::script::{HookScript, ImageScript, Script, TrafficScript, exits_on_term};
use crate::story::Story;

/// A pod and how its parts behave.
#[derive(Clone, Debug)]
pub struct Given {
    pub(crate) restart: RestartPolicy,
    pub(crate) grace: Duration,
    pub(crate) actors: Vec<Actor>,
    pub(crate) removal_failures: u32,
    pub(crate) delete_failures: u32,
    pub(crate) sandbox_takes: Duration,
    pub(crate) start_takes: Duration,
    pub(crate) active_deadline: Option<Duration>,
    pub(crate) drain: DrainSpec,
    pub(crate) traffic: TrafficScript,
    pub(crate) unanswered: Vec<String>,
}

/// One container and how it behaves.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) spec: ContainerSpec,
    pub(crate) script: Script,
    pub(crate) pre_stop: HookScript,
    pub(crate) post_start: HookScript,
    pub(crate) image: ImageScript,
    pub(crate) image_stop_signal: Option<Signal>,
}

impl Actor {
    pub(crate) fn well_behaved(spec: ContainerSpec) -> Self {
        Self {
            spec,
            script: exits_on_term(Duration::from_millis(1)),
            pre_stop: HookScript::NeverEnds,
            post_start: HookScript::NeverEnds,
            image: ImageScript::Present,
            image_stop_signal: None,
        }
    }
}

/// A pod with a grace of 30 s, `restartPolicy: Always` and no containers yet.
pub fn given_pod() -> Given {
    Given {
        restart: RestartPolicy::Always,
        grace: Duration::from_secs(30),
        actors: Vec::new(),
        removal_failures: 0,
        delete_failures: 0,
        sandbox_takes: Duration::ZERO,
        start_takes: Duration::ZERO,
        active_deadline: None,
        drain: DrainSpec::default(),
        traffic: TrafficScript::default(),
        unanswered: Vec::new(),
    }
}

impl Given {
    /// With this `terminationGracePeriodSeconds`.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
    /// With this restart policy.
    #[must_use]
    pub fn restart(mut self, restart: RestartPolicy) -> Self {
        self.restart = restart;
        self
    }
    /// With a main container.
    #[must_use]
    pub fn container(self, name: &str, script: Script) -> Self {
        self.actor(name, Role::Main, script)
    }
    /// With a sidecar.
    #[must_use]
    pub fn sidecar(self, name: &str, script: Script) -> Self {
        self.actor(name, Role::Sidecar, script)
    }
    /// With an init container.
    #[must_use]
    pub fn init(self, name: &str, script: Script) -> Self {
        self.actor(name, Role::Init, script)
    }
    /// With an ephemeral container.
    #[must_use]
    pub fn ephemeral(self, name: &str, script: Script) -> Self {
        self.actor(name, Role::Ephemeral, script)
    }
    /// The latest container has a preStop hook. A sleep takes its time, whatever `script` says.
    #[must_use]
    pub fn pre_stop(self, hook: Hook, script: HookScript) -> Self {
        self.change(|actor| {
            actor.spec.pre_stop = Some(hook);
            actor.pre_stop = own_time(hook, script);
        })
    }
    /// The latest container sleeps before its stop signal.
    #[must_use]
    pub fn pre_stop_sleep(self, length: Duration) -> Self {
        self.pre_stop(Hook::Sleep(length), HookScript::Takes(length))
    }
    /// The latest container has a postStart hook.
    #[must_use]
    pub fn post_start(self, hook: Hook, script: HookScript) -> Self {
        self.change(|actor| {
            actor.spec.post_start = Some(hook);
            actor.post_start = own_time(hook, script);
        })
    }
    /// The latest container's image comes like this.
    #[must_use]
    pub fn image(self, script: ImageScript) -> Self {
        self.change(|actor| actor.image = script)
    }
    /// The latest container's image names a stop signal.
    #[must_use]
    pub fn image_stop_signal(self, signal: Signal) -> Self {
        self.change(|actor| actor.image_stop_signal = Some(signal))
    }
    /// The latest container's spec names a stop signal.
    #[must_use]
    pub fn stop_signal(self, signal: Signal) -> Self {
        self.change(|actor| actor.spec.stop_signal = Some(signal))
    }
    /// The latest container has a readiness probe.
    #[must_use]
    pub fn readiness_probe(self) -> Self {
        self.change(|actor| actor.spec.readiness = Readiness::WhenProbed)
    }
    /// The latest container has a startup probe, with a grace of its own or not.
    #[must_use]
    pub fn startup_probe(self, grace: Option<Duration>) -> Self {
        self.change(|actor| {
            actor.spec.probes.startup = true;
            actor.spec.probes.startup_grace = grace;
        })
    }
    /// The latest container's liveness probe has a grace of its own.
    #[must_use]
    pub fn liveness_grace(self, grace: Duration) -> Self {
        self.change(|actor| actor.spec.probes.liveness_grace = Some(grace))
    }
    /// The latest container is restarted by a policy and rules of its own.
    #[must_use]
    pub fn restarts(self, policy: RestartPolicy, rules: Vec<RestartRule>) -> Self {
        self.change(|actor| actor.spec.restart = Some(ContainerRestart { policy, rules }))
    }
    /// With `activeDeadlineSeconds`.
    #[must_use]
    pub fn active_deadline(mut self, deadline: Duration) -> Self {
        self.active_deadline = Some(deadline);
        self
    }
    /// Asking this about traffic.
    #[must_use]
    pub fn drain(mut self, drain: DrainSpec) -> Self {
        self.drain = drain;
        self
    }
    /// Reached by traffic like this, which behaves as scripted.
    #[must_use]
    pub fn routed(mut self, routes: Routes, traffic: TrafficScript) -> Self {
        self.traffic = TrafficScript { routes: Some(routes), ..traffic };
        self
    }
    /// Removing the sandbox fails that often.
    #[must_use]
    pub fn sandbox_removal_fails(mut self, times: u32) -> Self {
        self.removal_failures = times;
        self
    }
    /// The final DELETE fails that often.
    #[must_use]
    pub fn final_delete_fails(mut self, times: u32) -> Self {
        self.delete_failures = times;
        self
    }
    /// The first time this is asked for (in the words of the timeline), the ask is lost and nobody answers.
    #[must_use]
    pub fn unanswered_at_first(mut self, text: &str) -> Self {
        self.unanswered.push(text.into());
        self
    }
    /// Making the sandbox takes that long.
    #[must_use]
    pub fn sandbox_takes(mut self, length: Duration) -> Self {
        self.sandbox_takes = length;
        self
    }
    /// Starting a container takes that long.
    #[must_use]
    pub fn start_takes(mut self, length: Duration) -> Self {
        self.start_takes = length;
        self
    }

    /// Somebody deletes the pod as soon as it runs. That moment is the zero of the story.
    pub fn when_deleted(self, grace: Duration) -> When {
        self.when(delete(grace))
    }
    /// Its object vanishes as soon as it runs.
    pub fn when_forced(self) -> When {
        self.when(Input::ObjectGone)
    }
    /// The node ends it as soon as it runs.
    pub fn when_killed(self, cause: KillCause, grace: Option<Duration>) -> When {
        self.when(Input::KillRequested { cause, grace })
    }
    /// Nothing is done to it, except what is said further on. The story is told from its very beginning.
    pub fn when_left_alone(self) -> When {
        When { given: self, turns: Vec::new(), from_the_start: true, with_events: false, crash: None }
    }

    /// What the rules see of it.
    pub fn spec(&self) -> PodSpec {
        PodSpec {
            identity: PodIdentity { namespace: "default".into(), name: "web".into(), uid: "uid-1".into() },
            containers: self.actors.iter().map(|actor| actor.spec.clone()).collect(),
            restart: self.restart,
            grace: self.grace,
            active_deadline: self.active_deadline,
            drain: self.drain.clone(),
        }
    }

    fn when(self, input: Input) -> When {
        let turns = vec![Turn { at: Duration::ZERO, what: OutsideEvent::Told(input) }];
        When { given: self, turns, from_the_start: false, with_events: false, crash: None }
    }

    fn actor(mut self, name: &str, role: Role, script: Script) -> Self {
        self.actors.push(Actor { script, ..Actor::well_behaved(ContainerSpec::new(name, role)) });
        self
    }

    fn change(mut self, change: impl FnOnce(&mut Actor)) -> Self {
        change(self.actors.last_mut().expect("a container was given before its details"));
        self
    }
}

/// A pod and what happens to it.
#[derive(Clone, Debug)]
pub struct When {
    pub(crate) given: Given,
    pub(crate) turns: Vec<Turn>,
    pub(crate) from_the_start: bool,
    pub(crate) with_events: bool,
    pub(crate) crash: Option<Crash>,
}

/// The agent dies over something it is about to do.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    /// What that is, in the words of the timeline.
    text: String,
    /// Whether it still does it.
    pub(crate) is_done: bool,
    pub(crate) back_after: Duration,
}

/// Something that happens at a certain time of the story.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) at: Duration,
    pub(crate) what: OutsideEvent,
}

/// What may happen to a pod from outside.
#[derive(Clone, Debug)]
pub(crate) enum OutsideEvent {
    /// The worker is told something.
    Told(Input),
    /// The agent dies and comes back so much later.
    AgentDies { back_after: Duration },
    /// The sandbox and everything in it vanish without a word.
    SandboxLost,
    /// The runtime stops answering, or answers again.
    Runtime { answers: bool },
}

impl When {
    /// It is deleted, perhaps again.
    #[must_use]
    pub fn deleted_at(self, at: Duration, grace: Duration) -> Self {
        self.told_at(at, delete(grace))
    }
    /// Its object vanishes.
    #[must_use]
    pub fn forced_at(self, at: Duration) -> Self {
        self.told_at(at, Input::ObjectGone)
    }
    /// The node ends it.
    #[must_use]
    pub fn killed_at(self, at: Duration, cause: KillCause, grace: Option<Duration>) -> Self {
        self.told_at(at, Input::KillRequested { cause, grace })
    }
    /// A probe changes its mind about the first run of a container.
    #[must_use]
    pub fn probe_at(self, at: Duration, name: &str, probe: Probe, passing: bool) -> Self {
        let instance = Instance { name: ContainerName(name.into()), attempt: 0 };
        self.told_at(at, Input::ProbeChanged { instance, probe, passing })
    }
    /// The worker is told something about traffic.
    #[must_use]
    pub fn traffic_at(self, at: Duration, news: TrafficNews) -> Self {
        self.told_at(at, Input::Traffic(news))
    }
    /// Somebody begins to wait for the kill to be over.
    #[must_use]
    pub fn awaited_at(self, at: Duration, ticket: u64) -> Self {
        self.told_at(at, Input::KillAwaited { ticket })
    }
    /// The worker is told something else.
    #[must_use]
    pub fn told_at(self, at: Duration, input: Input) -> Self {
        self.turn(at, OutsideEvent::Told(input))
    }
    /// The agent dies, and comes back at another time. The runtime goes on without it.
    #[must_use]
    pub fn agent_away(self, from: Duration, to: Duration) -> Self {
        self.turn(from, OutsideEvent::AgentDies { back_after: to - from })
    }
    /// The agent writes down that it is about to do this (in the words of the timeline), and dies instead; nothing
    /// after it is done either. It comes back so much later.
    #[must_use]
    pub fn agent_dies_before(mut self, text: &str, back_after: Duration) -> Self {
        self.crash = Some(Crash { text: text.into(), is_done: false, back_after });
        self
    }
    /// The agent does this, and dies before it hears what became of it.
    #[must_use]
    pub fn agent_dies_after(mut self, text: &str, back_after: Duration) -> Self {
        self.crash = Some(Crash { text: text.into(), is_done: true, back_after });
        self
    }
    /// The runtime does not answer meanwhile, though the agent lives. Signals are held back until it does, a KILL is lost,
    /// and a removal fails.
    #[must_use]
    pub fn runtime_away(self, from: Duration, to: Duration) -> Self {
        self.turn(from, OutsideEvent::Runtime { answers: false }).turn(to, OutsideEvent::Runtime { answers: true })
    }
    /// The sandbox and everything in it vanish; only an agent that comes back notices.
    #[must_use]
    pub fn sandbox_lost_at(self, at: Duration) -> Self {
        self.turn(at, OutsideEvent::SandboxLost)
    }
    /// The timeline is told from `Begin` on.
    #[must_use]
    pub fn from_the_start(mut self) -> Self {
        self.from_the_start = true;
        self
    }
    /// The timeline shows events and status writes too.
    #[must_use]
    pub fn with_events(mut self) -> Self {
        self.with_events = true;
        self
    }
    /// Lets the story happen.
    pub fn told(self) -> Story {
        Story::of(self)
    }
    /// Lets the story happen and checks every line of it.
    #[track_caller]
    pub fn then_timeline(self, expected: &str) -> Story {
        self.told().then_timeline(expected)
    }
    /// Lets the story happen and checks every line of it against a golden file below `dir`.
    #[track_caller]
    pub fn then_golden(self, dir: &str, name: &str) -> Story {
        self.told().then_golden(dir, name)
    }

    /// How it dies over this, if it does; once.
    pub(crate) fn dies_over(&mut self, text: &str) -> Option<Crash> {
        self.crash.take_if(|crash| crash.text == text)
    }

    fn turn(mut self, at: Duration, what: OutsideEvent) -> Self {
        self.turns.push(Turn { at, what });
        self
    }
}

fn delete(grace: Duration) -> Input {
    Input::DeleteRequested { grace, sighting: DeleteSighting::Live }
}

fn own_time(hook: Hook, script: HookScript) -> HookScript {
    match hook {
        Hook::Sleep(length) => HookScript::Takes(length),
        Hook::Exec | Hook::ExecSleep(_) | Hook::HttpGet => script,
    }
}
