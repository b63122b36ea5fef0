//! A pod's life and death in virtual time: the same rules that run real pods, told of a world that does as assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lifecycle::{
    ContainerName, DeleteSighting, Effect, HookKind, Input, Instance, LEAST_GRACE, Moment, PodPhase, PodSpec,
    PodWorker, Role, Signal, Wake, WakeReason,
};
use serde::Serialize;

use super::world::{Part, World};

/// The moment a pod begins on the clock of its world. Not zero, so that nothing works by luck.
const BEGIN: Moment = Moment::from_millis(1_000_000);
/// A pod that is not Ready by then never will be, and is deleted as it is.
const PATIENCE: Duration = Duration::from_secs(600);
/// No story goes on for longer than this after the delete.
const HORIZON: Duration = Duration::from_secs(7 * 24 * 3600);

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
}

impl Story {
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
    pub(super) what: What,
    /// What `kubectl get pod` shows from then on.
    pub(super) kubectl: Seen,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum What {
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
    /// A hook began.
    HookStarted { hook: HookName },
    /// A hook ended by itself.
    HookFinished { hook: HookName, succeeded: bool, took_millis: u64 },
    /// A hook was ended, because its time or its container was over.
    HookAbandoned { hook: HookName, after_millis: u64 },
    /// A sidecar waits for the containers it serves.
    WaitsForTurn,
    /// The stop signal was sent; that much time until KILL.
    Signalled { signal: String, left_millis: u64 },
    /// The deadline.
    GraceSpent,
    /// The two seconds that every program has between its stop signal and KILL are over.
    NoticeSpent,
    /// KILL was sent.
    Killed,
    /// A container's program ended.
    Exited { code: u8, by_kill: bool, after_signal_millis: Option<u64> },
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

/// A row of `kubectl get pod`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    /// `1/2`.
    pub(super) ready: String,
    /// `Terminating`.
    pub(super) status: &'static str,
}

/// A story while it happens.
struct Telling {
    world: World,
    worker: PodWorker,
    facts: Vec<(Moment, Option<String>, What, Seen)>,
    hooks_since: BTreeMap<(Instance, HookKind), Moment>,
    signalled: BTreeMap<Instance, Moment>,
    waiting: BTreeSet<Instance>,
    living: BTreeSet<Instance>,
    deleted: bool,
    was_ready: bool,
    gone: bool,
    spent: bool,
}

/// Lets a pod come up, deletes it (once it is Ready, or `delete_at` after its beginning) and watches it leave.
pub(super) fn tell(
    spec: PodSpec,
    parts: BTreeMap<ContainerName, Part>,
    grace: Duration,
    delete_at: Option<Duration>,
) -> Story {
    let mut telling = Telling {
        world: World::new(BEGIN, parts),
        worker: PodWorker::new(spec),
        facts: Vec::new(),
        hooks_since: BTreeMap::new(),
        signalled: BTreeMap::new(),
        waiting: BTreeSet::new(),
        living: BTreeSet::new(),
        deleted: false,
        was_ready: false,
        gone: false,
        spent: false,
    };
    telling.live(delete_at);
    let zero = telling.world.now();
    telling.leave(zero, grace);
    let phase = telling.worker.status().phase;
    let from_zero = |at: Moment| signed(at.since(zero)) - signed(zero.since(at));
    let facts = telling.facts.into_iter().map(|(at, container, what, kubectl)| Fact {
        at_millis: from_zero(at),
        container,
        what,
        kubectl,
    });
    Story { facts: facts.collect(), grace, was_ready: telling.was_ready, phase }
}

impl Telling {
    /// From the beginning to the moment of the delete.
    fn live(&mut self, delete_at: Option<Duration>) {
        self.handle(Input::Begin, None);
        let end = BEGIN + delete_at.unwrap_or(PATIENCE);
        let enough = |telling: &Self| delete_at.is_none() && telling.was_ready;
        while !enough(self) && self.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        if let Some(after) = delete_at {
            self.world.pass_to(BEGIN + after);
        }
        self.was_ready = self.worker.status().ready.holds;
    }

    /// From the delete to the end.
    fn leave(&mut self, zero: Moment, grace: Duration) {
        self.deleted = true;
        let over = matches!(self.worker.status().phase, PodPhase::Succeeded | PodPhase::Failed);
        if grace.is_zero() || over {
            self.gone = true;
            self.handle(Input::ObjectGone, None);
        } else {
            self.handle(Input::DeleteRequested { grace, sighting: DeleteSighting::Live }, None);
        }
        while !self.worker.is_finished() && self.next_at().is_some_and(|at| at <= zero + HORIZON) {
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
        self.note_deadline(wake, &effects);
        for effect in &effects {
            self.note_effect(effect);
            self.world.perform(effect);
        }
        self.note_waiting();
        if !self.was_ready && !self.deleted && self.worker.status().ready.holds {
            self.was_ready = true;
            self.note(None, What::Ready);
        }
    }

    /// What is worth telling of a fact. Whatever is not named here has no words in a plan.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a plan tells what a person asks about, not everything")]
    fn note_input(&mut self, input: &Input) {
        match input {
            Input::Begin => self.note(None, What::Begun),
            Input::Started { instance, .. } => {
                self.living.insert(instance.clone());
                self.note(Some(instance), What::Started);
            }
            Input::DeleteRequested { grace, .. } => {
                self.note(None, What::DeleteRequested { grace_millis: millis(*grace) });
            }
            Input::ObjectGone => self.note(None, What::RemovedAtOnce),
            Input::HookFinished { instance, kind, outcome } => {
                let began = self.hooks_since.remove(&(instance.clone(), *kind));
                let took_millis = began.map_or(0, |began| millis(self.world.now() - began));
                let succeeded = matches!(outcome, lifecycle::HookOutcome::Succeeded);
                if !matches!(outcome, lifecycle::HookOutcome::Cancelled) {
                    self.note(Some(instance), What::HookFinished { hook: name_of(*kind), succeeded, took_millis });
                }
            }
            Input::Exited { instance, exit } => {
                self.living.remove(instance);
                let after = self.signalled.get(instance).map(|at| millis(self.world.now() - *at));
                let by_kill = exit.signal == Some(Signal::KILL);
                self.note(Some(instance), What::Exited { code: exit.code, by_kill, after_signal_millis: after });
            }
            Input::SandboxRemoved => self.note(None, What::SandboxRemoved),
            Input::ObjectDeleted => {
                self.gone = true;
                self.note(None, What::Gone);
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
            self.note_named(Some(name.0), What::NoticeSpent);
        } else if acts && passed && !self.spent {
            self.spent = true;
            self.note(None, What::GraceSpent);
        }
    }

    /// What is worth telling of what the worker asked for.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a plan tells what a person asks about, not everything")]
    fn note_effect(&mut self, effect: &Effect) {
        let now = self.world.now();
        match effect {
            Effect::RunHook { instance, kind } => {
                self.hooks_since.insert((instance.clone(), *kind), now);
                self.note(Some(instance), What::HookStarted { hook: name_of(*kind) });
            }
            Effect::CancelHook { instance, kind } => {
                let began = self.hooks_since.get(&(instance.clone(), *kind)).copied().unwrap_or(now);
                let what = What::HookAbandoned { hook: name_of(*kind), after_millis: millis(now - began) };
                self.note(Some(instance), what);
            }
            Effect::SendSignal { instance, signal } => {
                self.signalled.insert(instance.clone(), now);
                let deadline = self.worker.deadline().unwrap_or(now);
                let left = deadline.since(now).max(lifecycle::LEAST_NOTICE);
                self.note(Some(instance), What::Signalled { signal: signal.to_string(), left_millis: millis(left) });
            }
            Effect::KillContainer { instance } => self.note(Some(instance), What::Killed),
            _ => {}
        }
    }

    /// A sidecar that is neither in its hook nor signalled yet waits for the containers it serves.
    fn note_waiting(&mut self) {
        if !self.worker.is_terminating() {
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
            self.note(Some(&instance), What::WaitsForTurn);
            self.waiting.insert(instance);
        }
    }

    fn note(&mut self, instance: Option<&Instance>, what: What) {
        self.note_named(instance.map(|instance| instance.name.0.clone()), what);
    }

    fn note_named(&mut self, container: Option<String>, what: What) {
        let seen = self.seen();
        self.facts.push((self.world.now(), container, what, seen));
    }

    /// The row `kubectl get pod` would print.
    fn seen(&self) -> Seen {
        if self.gone {
            return Seen { ready: String::new(), status: "NotFound" };
        }
        let status = self.worker.status();
        let counted = |role: Role| matches!(role, Role::Main | Role::Sidecar);
        let total = status.containers.iter().filter(|container| counted(container.role)).count();
        let ready = status.containers.iter().filter(|container| counted(container.role) && container.ready).count();
        let word = match status.phase {
            PodPhase::Succeeded => "Completed",
            PodPhase::Failed => "Error",
            PodPhase::Pending | PodPhase::Running if self.deleted => "Terminating",
            PodPhase::Pending => "Pending",
            PodPhase::Running => "Running",
        };
        Seen { ready: format!("{ready}/{total}"), status: word }
    }
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
