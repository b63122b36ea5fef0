//! A pod's life and death in virtual time: the same rules that run real pods, told of a world that does as assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lifecycle::{
    ContainerName, ContainerState, ContainerStatus, Cut, DeleteSighting, Effect, HookKind, Input, Instance,
    LEAST_GRACE, Moment, PodPhase, PodSpec, PodWorker, RestartPolicy, Role, Routes, Signal, TerminationVerdict,
    TrafficNews, Wake, WakeReason,
};
use serde::{Serialize, Serializer};

use super::seen::Seen;
use super::traffic::Flow;
use super::world::{Part, World};

/// The moment a pod begins on the clock of its world. Not zero, so that nothing works by luck.
const BEGIN: Moment = Moment::from_millis(1_000_000);
/// A pod that is not Ready by then never will be, and is deleted as it is.
const PATIENCE: Duration = Duration::from_secs(600);
/// No story has more steps than this, before the delete or after it.
const MOST_STEPS: usize = 100_000;

/// A story that has happened.
#[derive(Debug)]
pub(super) struct Story {
    /// What happened, in order.
    pub(super) facts: Vec<Fact>,
    /// The grace that was asked for.
    pub(super) grace: Duration,
    /// Everything was Ready when the delete came.
    pub(super) was_ready: bool,
    /// `status.phase` in the end.
    pub(super) phase: PodPhase,
    /// What the pod's record would say of its end.
    pub(super) verdict: Option<TerminationVerdict>,
}

impl Story {
    /// What happened from the delete on.
    pub(super) fn departure(&self) -> &[Fact] {
        let is_delete = |what: &FactKind| matches!(what, FactKind::DeleteRequested { .. } | FactKind::RemovedAtOnce);
        let delete = self.facts.iter().position(|fact| is_delete(&fact.what)).unwrap_or(0);
        &self.facts[delete..]
    }

    /// What the grace came to: nobody gets less than a second.
    pub(super) fn budget(&self) -> Duration {
        self.grace.max(LEAST_GRACE)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fact {
    /// When, in milliseconds from the delete.
    pub(super) at_millis: i64,
    /// To which container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<String>,
    /// What.
    #[serde(flatten)]
    pub(super) what: FactKind,
    /// What `kubectl get pod` shows from then on.
    pub(super) kubectl: Seen,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum FactKind {
    /// The node was told to run the pod.
    Begun,
    /// A container runs.
    Started,
    /// Everything is Ready.
    Ready,
    /// Somebody deleted the pod with that grace.
    DeleteRequested { grace_millis: u64 },
    /// The object went at once: grace 0, or nothing left to wait for.
    RemovedAtOnce,
    /// New connections are being kept away: sent to siblings, withdrawn from lists, or refused.
    TrafficCut { how: &'static str },
    /// Nobody else can take its connections: it serves on until somebody can.
    ServesOn,
    /// Somebody else can take its connections now.
    StandInReady,
    /// Hooks and signals may go out, for that reason.
    BarrierOpened { reason: String, after_millis: u64 },
    /// The program is told that its open connections are waited for, for at most that long.
    DrainAnnounced { most_millis: u64 },
    /// It is told so by a signal, too.
    DrainSignalled { signal: String },
    /// Nobody is connected any more.
    ConnectionsEnded,
    /// A sleep before the stop signal was left out: traffic is known to have moved.
    SleepLeftOut,
    /// A hook began.
    HookStarted { hook: HookName },
    /// A hook ended by itself.
    HookFinished { hook: HookName, succeeded: bool, took_millis: u64 },
    /// A hook was ended, because its time or its container was over.
    HookAbandoned { hook: HookName, after_millis: u64 },
    /// A sidecar waits for the containers it serves.
    WaitsForTurn,
    /// The stop signal was sent; that much time until KILL, and none if the signal is KILL.
    Signalled { signal: String, left_millis: u64 },
    /// The deadline.
    GraceSpent,
    /// The two seconds that every program has between its stop signal and KILL are over.
    NoticeSpent,
    /// KILL was sent.
    Killed,
    /// A container could not be started, for that reason.
    CannotStart { why: String },
    /// A container's program ended; by a signal, if it did not handle it or could not.
    Exited {
        code: u8,
        by_kill: bool,
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "written")]
        by_signal: Option<Signal>,
        after_signal_millis: Option<u64>,
    },
    /// Nothing of the pod is left on the node.
    SandboxRemoved,
    /// Nothing of the pod is left in the API.
    Gone,
}

/// Which hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HookName {
    PreStop,
    PostStart,
}

/// A story while it happens.
struct Telling {
    world: World,
    worker: PodWorker,
    facts: Vec<(Moment, Option<String>, FactKind, Seen)>,
    hooks_since: BTreeMap<(Instance, HookKind), Moment>,
    signalled: BTreeMap<Instance, Moment>,
    waiting: BTreeSet<Instance>,
    living: BTreeSet<Instance>,
    /// Who could not start, and who was over by itself, before the delete.
    failed: BTreeSet<ContainerName>,
    ended: BTreeSet<ContainerName>,
    with_hook: BTreeSet<Instance>,
    routes: Option<Routes>,
    /// A main container that ends is started again, however it does.
    restarts: bool,
    deleted_at: Option<Moment>,
    opened: bool,
    deleted: bool,
    was_ready: bool,
    gone: bool,
    spent: bool,
}

/// What a story begins with.
#[derive(Clone, Debug)]
pub(super) struct Cast {
    /// The pod for the rules.
    pub(super) spec: PodSpec,
    /// Its containers and how they behave.
    pub(super) parts: BTreeMap<ContainerName, Part>,
    /// How it is reached, once it is Ready; nothing if nobody routes to it.
    pub(super) routes: Option<Routes>,
    /// How its traffic behaves.
    pub(super) flow: Flow,
}

/// Lets a pod come up, deletes it (once it is Ready, or `delete_at` after its beginning) and watches it leave.
pub(super) fn tell(cast: Cast, grace: Duration, delete_at: Option<Duration>) -> Story {
    let Cast { spec, parts, routes, flow } = cast;
    let mut telling = Telling {
        restarts: spec.containers.iter().any(|container| {
            let policy = container.restart.as_ref().map_or(spec.restart, |own| own.policy);
            container.role == Role::Main && policy == RestartPolicy::Always
        }),
        world: World::new(BEGIN, parts, flow),
        worker: PodWorker::new(spec),
        facts: Vec::new(),
        hooks_since: BTreeMap::new(),
        signalled: BTreeMap::new(),
        waiting: BTreeSet::new(),
        living: BTreeSet::new(),
        failed: BTreeSet::new(),
        ended: BTreeSet::new(),
        with_hook: BTreeSet::new(),
        routes: routes.filter(|_| flow.steered),
        deleted_at: None,
        opened: false,
        deleted: false,
        was_ready: false,
        gone: false,
        spent: false,
    };
    telling.live(delete_at);
    let zero = telling.world.now();
    telling.leave(zero, grace, flow);
    let status = telling.worker.status();
    let from_zero = |at: Moment| signed(at.since(zero)) - signed(zero.since(at));
    let facts = telling.facts.into_iter().map(|(at, container, what, kubectl)| Fact {
        at_millis: from_zero(at),
        container,
        what,
        kubectl,
    });
    let facts = facts.collect();
    Story { facts, grace, was_ready: telling.was_ready, phase: status.phase, verdict: status.verdict }
}

impl Telling {
    /// From the beginning to the moment of the delete.
    fn live(&mut self, delete_at: Option<Duration>) {
        self.handle(Input::Begin, None);
        let end = BEGIN + delete_at.unwrap_or(PATIENCE);
        for _ in 0..MOST_STEPS {
            if (delete_at.is_none() && self.is_settled()) || self.next_at().is_none_or(|at| at > end) {
                break;
            }
            self.step();
        }
        if let Some(after) = delete_at {
            self.world.pass_to(BEGIN + after);
        }
        self.was_ready = self.worker.status().ready.holds;
        // Only a pod that is Ready is routed to.
        if let Some(routes) = self.routes.filter(|_| self.was_ready) {
            self.handle(Input::Traffic(TrafficNews::Routed(routes)), None);
        }
    }

    /// Nothing is to be waited for any more: everything is Ready, over, or will never be.
    fn is_settled(&self) -> bool {
        let status = self.worker.status();
        if matches!(status.phase, PodPhase::Succeeded | PodPhase::Failed) {
            return true;
        }
        let parts = || self.world.parts().iter();
        let soon_over = |(name, part): (&ContainerName, &Part)| {
            part.role == Role::Main && part.behaviour.over.is_some() && !self.ended.contains(name)
        };
        let all_over = || parts().all(|(name, part)| part.role != Role::Main || self.ended.contains(name));
        let crashes = |container: &ContainerStatus| matches!(&container.state, ContainerState::Waiting(waiting) if waiting.reason == "CrashLoopBackOff");
        let stuck = !self.failed.is_empty() || status.containers.iter().any(crashes);
        let quiet = self.world.next_at().is_none();
        match () {
            () if stuck => quiet,
            () if parts().any(soon_over) => false,
            // The sidecars are on their way out.
            () if !self.restarts && all_over() => false,
            () => quiet && (self.was_ready || !self.ended.is_empty()),
        }
    }

    /// From the delete to the end.
    fn leave(&mut self, zero: Moment, grace: Duration, flow: Flow) {
        (self.deleted, self.deleted_at) = (true, Some(zero));
        let over = matches!(self.worker.status().phase, PodPhase::Succeeded | PodPhase::Failed);
        if let (Some(routes), Some(after)) = (self.routes.filter(|routes| routes.last), flow.replacement) {
            self.world.expect_replacement(after, routes);
        }
        if grace.is_zero() || over {
            self.gone = true;
            self.handle(Input::ObjectGone, None);
        } else {
            self.handle(Input::DeleteRequested { grace, sighting: DeleteSighting::Live }, None);
        }
        for _ in 0..MOST_STEPS {
            if self.worker.is_finished() || self.next_at().is_none() {
                break;
            }
            self.step();
        }
    }

    fn next_at(&self) -> Option<Moment> {
        let wake = self.worker.next_wake().map(|wake| wake.at);
        [self.world.next_at(), wake].into_iter().flatten().min()
    }

    /// Lets the next thing happen.
    fn step(&mut self) {
        let wake = self.worker.next_wake();
        match (self.world.next_at(), wake) {
            (happens, Some(wake)) if happens.is_none_or(|at| wake.at < at) => {
                self.world.pass_to(wake.at);
                self.handle(Input::TimePassed, Some(wake));
            }
            (Some(_), _) => {
                if let Some(input) = self.world.next() {
                    self.handle(input, None);
                }
            }
            (None, _) => {}
        }
    }

    fn handle(&mut self, input: Input, wake: Option<Wake>) {
        let effects = self.worker.handle(self.world.now(), input.clone());
        self.note_input(&input);
        self.note_barrier(&effects);
        self.note_deadline(wake, &effects);
        // A signal between these two tells of the wait, it asks nobody to exit.
        let mut announcing = false;
        for effect in &effects {
            announcing |= matches!(effect, Effect::NotifyDrain { .. });
            announcing &= !matches!(effect, Effect::WatchConnections);
            self.note_effect(effect, announcing);
            self.world.perform(effect);
            if let Effect::SendSignal { instance, signal } = effect
                && !announcing
            {
                self.world.stop(instance, *signal);
            }
        }
        self.note_waiting();
        if !self.was_ready && !self.deleted && self.worker.status().ready.holds {
            self.was_ready = true;
            self.note(None, FactKind::Ready);
        }
    }

    /// What is worth telling of a fact. Whatever is not named here has no words in a plan.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a plan tells what a person asks about, not everything")]
    fn note_input(&mut self, input: &Input) {
        match input {
            Input::Begin => self.note(None, FactKind::Begun),
            Input::Started { instance, .. } => {
                self.living.insert(instance.clone());
                self.note(Some(instance), FactKind::Started);
            }
            // It is tried again and again; once is enough to know.
            Input::StartFailed { instance, message, .. } if self.failed.insert(instance.name.clone()) => {
                self.note(Some(instance), FactKind::CannotStart { why: message.clone() });
            }
            Input::DeleteRequested { grace, .. } => {
                self.note(None, FactKind::DeleteRequested { grace_millis: millis(*grace) });
            }
            Input::ObjectGone => self.note(None, FactKind::RemovedAtOnce),
            Input::HookFinished { instance, kind, outcome } => {
                let began = self.hooks_since.remove(&(instance.clone(), *kind));
                let took_millis = began.map_or(0, |began| millis(self.world.now() - began));
                let succeeded = matches!(outcome, lifecycle::HookOutcome::Succeeded);
                if !matches!(outcome, lifecycle::HookOutcome::Cancelled) {
                    self.note(Some(instance), FactKind::HookFinished { hook: name_of(*kind), succeeded, took_millis });
                }
            }
            Input::Exited { instance, exit } => {
                self.living.remove(instance);
                let after = self.signalled.get(instance).map(|at| millis(self.world.now() - *at));
                let main = self.world.parts().get(&instance.name).is_some_and(|part| part.role == Role::Main);
                if !self.deleted && main {
                    self.ended.insert(instance.name.clone());
                }
                self.note(
                    Some(instance),
                    FactKind::Exited {
                        code: exit.code,
                        by_kill: exit.signal == Some(Signal::KILL),
                        by_signal: exit.signal,
                        after_signal_millis: after,
                    },
                );
            }
            Input::Traffic(TrafficNews::Routed(Routes { last: false, .. })) if self.deleted => {
                self.note(None, FactKind::StandInReady);
            }
            Input::Traffic(TrafficNews::Connections { open: 0 }) => self.note(None, FactKind::ConnectionsEnded),
            Input::SandboxRemoved => self.note(None, FactKind::SandboxRemoved),
            Input::ObjectDeleted => {
                self.gone = true;
                self.note(None, FactKind::Gone);
            }
            _ => {}
        }
    }

    /// A deadline is worth telling when it makes the worker do something.
    fn note_deadline(&mut self, wake: Option<Wake>, effects: &[Effect]) {
        let acts = effects.iter().any(|effect| {
            matches!(effect, Effect::CancelHook { .. } | Effect::SendSignal { .. } | Effect::KillContainer { .. })
        });
        let passed = self.worker.deadline().is_some_and(|deadline| self.world.now() >= deadline);
        if let Some(Wake { reason: WakeReason::FloorSpent(name), .. }) = wake {
            self.note_named(Some(name.0), FactKind::NoticeSpent);
        } else if acts && passed && !self.spent {
            self.spent = true;
            self.note(None, FactKind::GraceSpent);
        }
    }

    /// The barrier of a pod that is routed to, or would like to know: it shuts, and it opens for a reason.
    fn note_barrier(&mut self, effects: &[Effect]) {
        let asked = |effect: &Effect| matches!(effect, Effect::CutTraffic { .. });
        if self.opened || self.worker.status().traffic_drained.is_none() {
            return;
        }
        let condition = self.worker.status().traffic_drained;
        let (holds, reason) = condition.map(|it| (it.holds, it.reason.unwrap_or_default())).unwrap_or_default();
        if holds && reason != "NotSelected" {
            let now = self.world.now();
            let after_millis = self.deleted_at.map_or(0, |at| millis(now - at));
            // What was cut and let go in one breath was cut first.
            for effect in effects.iter().filter(|effect| asked(effect)) {
                self.note_cut(effect);
            }
            self.note(None, FactKind::BarrierOpened { reason, after_millis });
        } else if reason == "WaitingForReplacement" && !effects.iter().any(asked) {
            self.note_once(FactKind::ServesOn);
        }
        self.opened |= holds;
    }

    fn note_cut(&mut self, effect: &Effect) {
        if let Effect::CutTraffic { how } = effect {
            let how = match how {
                Cut::Divert => "divert",
                Cut::Withdraw => "withdraw",
                Cut::Refuse => "refuse",
            };
            self.note_once(FactKind::TrafficCut { how });
        }
    }

    fn note_once(&mut self, what: FactKind) {
        if !self.facts.iter().any(|(_, _, told, _)| *told == what) {
            self.note(None, what);
        }
    }

    /// What is worth telling of what the worker asked for.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a plan tells what a person asks about, not everything")]
    fn note_effect(&mut self, effect: &Effect, announcing: bool) {
        let now = self.world.now();
        match effect {
            Effect::CutTraffic { .. } => self.note_cut(effect),
            Effect::NotifyDrain { until } => {
                self.note(None, FactKind::DrainAnnounced { most_millis: millis(until.since(now)) });
            }
            Effect::SendSignal { instance, signal } if announcing => {
                self.note(Some(instance), FactKind::DrainSignalled { signal: signal.to_string() });
            }
            Effect::RunHook { instance, kind } => {
                if *kind == HookKind::PreStop {
                    self.with_hook.insert(instance.clone());
                }
                self.hooks_since.insert((instance.clone(), *kind), now);
                self.note(Some(instance), FactKind::HookStarted { hook: name_of(*kind) });
            }
            // One whose container is gone has gone with it.
            Effect::CancelHook { instance, .. } if !self.living.contains(instance) => {}
            Effect::CancelHook { instance, kind } => {
                let began = self.hooks_since.get(&(instance.clone(), *kind)).copied().unwrap_or(now);
                let what = FactKind::HookAbandoned { hook: name_of(*kind), after_millis: millis(now - began) };
                self.note(Some(instance), what);
            }
            Effect::SendSignal { instance, signal } => {
                self.signalled.insert(instance.clone(), now);
                let sleeps = self.world.parts().get(&instance.name).is_some_and(|part| part.sleeps);
                if sleeps && !self.with_hook.contains(instance) {
                    self.note(Some(instance), FactKind::SleepLeftOut);
                }
                let deadline = self.worker.deadline().unwrap_or(now);
                let left = match *signal {
                    Signal::KILL => Duration::ZERO,
                    _ => deadline.since(now).max(lifecycle::LEAST_NOTICE),
                };
                self.note(
                    Some(instance),
                    FactKind::Signalled { signal: signal.to_string(), left_millis: millis(left) },
                );
            }
            Effect::KillContainer { instance } => self.note(Some(instance), FactKind::Killed),
            _ => {}
        }
    }

    /// A sidecar that is neither in its hook nor signalled yet waits for the containers it serves.
    fn note_waiting(&mut self) {
        if !self.worker.is_terminating() || self.is_held() {
            return;
        }
        let waiting: Vec<Instance> = self
            .living
            .iter()
            .filter(|instance| self.world.parts().get(&instance.name).is_some_and(|part| part.role == Role::Sidecar))
            .filter(|instance| self.world.is_running(instance) && !self.world.is_in_hook(instance))
            .filter(|instance| !self.signalled.contains_key(instance) && !self.waiting.contains(instance))
            .cloned()
            .collect();
        for instance in waiting {
            self.note(Some(&instance), FactKind::WaitsForTurn);
            self.waiting.insert(instance);
        }
    }

    /// Nobody was asked anything yet: all wait for the barrier, not for their turn.
    fn is_held(&self) -> bool {
        self.with_hook.is_empty() && self.signalled.is_empty()
    }

    fn note(&mut self, instance: Option<&Instance>, what: FactKind) {
        self.note_named(instance.map(|instance| instance.name.0.clone()), what);
    }

    fn note_named(&mut self, container: Option<String>, what: FactKind) {
        let seen = match self.gone {
            true => Seen::nothing(),
            false => Seen::of(&self.worker.status(), self.deleted),
        };
        self.facts.push((self.world.now(), container, what, seen));
    }
}

/// A signal by its name.
pub(super) fn written<S: Serializer>(signal: &Option<Signal>, out: S) -> Result<S::Ok, S::Error> {
    signal.map(|signal| signal.to_string()).serialize(out)
}

fn name_of(kind: HookKind) -> HookName {
    match kind {
        HookKind::PreStop => HookName::PreStop,
        HookKind::PostStart => HookName::PostStart,
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn signed(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
