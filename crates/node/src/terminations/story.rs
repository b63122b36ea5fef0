//! What a pod's end comes to, told step by step from what its worker hears and asks for.
//!
//! The same steps give the same story: after a restart it is told again from the journal. It decides nothing and looks at nothing
//! but the steps, the worker's state after each, and (at the end) the pod's object.

use std::collections::BTreeSet;
use std::time::Duration;

use api::TerminationRecord;
use api::termination::{
    self, EndedContainer, EndedPod, REQUESTS_MAX, STEPS_MAX, TerminationPhases, TerminationRequest, TerminationStep,
    record_name, requests, step,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use lifecycle::{
    ContainerReport, ContainerState, DeleteSighting, Delivery, Effect, EventKind, Exit, HookKind, HookOutcome, Input,
    Instance, KillCause, Moment, PodStatus, PodWorker, RuntimeReport, SeenContainer, TerminationVerdict, TrafficNews,
    Wall,
};
use timeline::Life;
use timeline::render::{effect_text, input_text};

/// So many counts of connections are told one by one; later ones only with what else happens.
const COUNTS_MAX: usize = 32;
/// Of what a hook wrote, so much is kept.
const OUTPUT_BYTES_MAX: usize = 2048;
/// The longest sentence about a step.
const SENTENCE_BYTES_MAX: usize = 512;

/// An end that goes on.
#[derive(Clone, PartialEq, Debug)]
pub struct TerminationStory {
    /// The moment that `before` had passed since the first request.
    origin: Moment,
    before: Duration,
    began: Wall,
    steps: Vec<TerminationStep>,
    omitted: i64,
    counts: usize,
    requests: Vec<Asked>,
    deadline: Option<i64>,
    ended_after: i64,
    connections: Option<i64>,
    drained: Option<(i64, String)>,
    hooks: Option<(i64, i64)>,
    cut_short: BTreeSet<&'static str>,
    first_signal: Option<i64>,
    last_exit: Option<i64>,
    killed: BTreeSet<String>,
    cause: &'static str,
    verdict: Option<TerminationVerdict>,
    containers: Vec<EndedContainer>,
    /// The node's work is done although the object stays: what comes later is no part of the end.
    is_told: bool,
}

/// A request as the node heard it.
#[derive(Clone, PartialEq, Debug)]
struct Asked {
    after: i64,
    grace: Option<i64>,
    deadline: i64,
    /// The node's reason, if it was not a delete.
    node: Option<&'static str>,
}

impl TerminationStory {
    /// Tells one more step. `story` is there from the first step after which the worker is terminating.
    pub fn observe(
        story: &mut Option<Self>,
        (at, wall): (Moment, Wall),
        input: &Input,
        effects: &[Effect],
        worker: &PodWorker,
    ) {
        if !worker.is_terminating() {
            return;
        }
        let story = story.get_or_insert_with(|| Self::begin(at, wall, input));
        if !story.is_told {
            story.tell(at, input, effects, worker);
        }
    }

    /// The worker of a life, and the story of its end as far as it went.
    pub fn of_life(life: &Life) -> (PodWorker, Option<Self>) {
        let (mut worker, mut story) = (life.begin(), None);
        for (at, wall, input, effects) in &life.steps {
            worker.handle(*at, input.clone());
            Self::observe(&mut story, (*at, *wall), input, effects, &worker);
        }
        (worker, story)
    }

    fn begin(at: Moment, wall: Wall, input: &Input) -> Self {
        // A deletion that was found had begun before.
        let before = if let Input::DeleteRequested { grace, sighting: DeleteSighting::Found { left } } = input {
            grace.saturating_sub(*left)
        } else {
            Duration::ZERO
        };
        Self {
            origin: at,
            before,
            began: Wall(wall.0.saturating_sub(millis(before))),
            steps: Vec::new(),
            omitted: 0,
            counts: 0,
            requests: Vec::new(),
            deadline: None,
            ended_after: millis(before),
            connections: None,
            drained: None,
            hooks: None,
            cut_short: BTreeSet::new(),
            first_signal: None,
            last_exit: None,
            killed: BTreeSet::new(),
            cause: "",
            verdict: None,
            containers: Vec::new(),
            is_told: false,
        }
    }

    fn tell(&mut self, at: Moment, input: &Input, effects: &[Effect], worker: &PodWorker) {
        if let Input::Rebooted { was } = input {
            self.before += was.since(self.origin);
            self.origin = at;
        }
        let after = millis(self.before + at.since(self.origin));
        self.cause = worker.leaving_because().unwrap_or_default();
        self.asked(after, at, input, worker);
        self.heard(after, input);
        for effect in effects {
            self.answered(after, effect);
        }
        let status = worker.status();
        self.drained(after, &status);
        self.verdict = status.verdict.or(self.verdict);
        self.containers(&status);
        self.ended_after = after;
        self.is_told = worker.is_resting();
    }

    /// Whether the first request, or one that brought the deadline forward.
    fn asked(&mut self, after: i64, at: Moment, input: &Input, worker: &PodWorker) {
        let deadline = worker.deadline().map_or(after, |deadline| after + millis(deadline.since(at)));
        // Nothing but requests and reboots moves it; what is past stays where it was.
        let is_sooner = self.deadline.is_none_or(|before| deadline < before && after < before);
        let (grace, node) = if let Input::DeleteRequested { grace, .. } = input {
            (Some(*grace), None)
        } else if let Input::ObjectGone = input {
            (Some(Duration::ZERO), None)
        } else if let Input::KillRequested { cause, grace } = input {
            (*grace, Some(reason(cause)))
        } else if self.deadline.is_none() {
            (None, Some(self.cause))
        } else {
            return;
        };
        let is_first = self.requests.is_empty();
        if (is_first || is_sooner) && self.requests.len() < REQUESTS_MAX {
            let grace = grace.map(|grace| i64::try_from(grace.as_secs()).unwrap_or(i64::MAX));
            self.requests.push(Asked { after, grace, deadline, node });
            if !is_first {
                self.cut_short.insert("its grace");
            }
            self.add(TerminationStep { message: sentence(&input_text(input)), ..at_step(after, step::REQUESTED) });
        }
        if is_first || is_sooner {
            self.deadline = Some(deadline);
        }
    }

    fn exited(&mut self, after: i64, instance: &Instance, exit: &Exit) {
        self.last_exit = Some(after);
        let signal = exit.signal.map(|signal| signal.to_string()).unwrap_or_default();
        let message = sentence(&input_text(&Input::Exited { instance: instance.clone(), exit: *exit }));
        let exit_code = Some(i64::from(exit.code));
        self.add(TerminationStep { signal, exit_code, message, ..of(after, step::EXITED, instance) });
    }

    /// What ended while the agent was away is told of at its own time: after the first request, and after what is known since.
    fn exited_meanwhile(&mut self, now: i64, report: &RuntimeReport) {
        for ContainerReport { instance, seen } in &report.containers {
            let SeenContainer::Exited { exit } = seen else { continue };
            let is_told = self.steps.iter().any(|own| own.type_ == step::EXITED && own.container == instance.name.0);
            let after = exit.wall.0.saturating_sub(self.began.0);
            if after >= 0 && !is_told {
                let last = self.steps.last().map_or(0, |own| own.after_milliseconds);
                self.exited(after.min(now).max(last), instance, exit);
            }
        }
    }

    fn heard(&mut self, after: i64, input: &Input) {
        let text = || sentence(&input_text(input));
        match input {
            Input::Traffic(news) => self.traffic(after, news),
            Input::HookFinished { instance, kind, outcome } => {
                self.hooks = self.hooks.map(|(begun, _)| (begun, after));
                let (result, (message, output)) = match outcome {
                    HookOutcome::Succeeded => ("Succeeded", Default::default()),
                    HookOutcome::Failed { message, output } => {
                        let output = termination::bounded(output.as_deref().unwrap_or_default(), OUTPUT_BYTES_MAX);
                        ("Failed", (sentence(message), output.to_owned()))
                    }
                    HookOutcome::Cancelled => ("Cancelled", Default::default()),
                };
                let (hook, result) = (hook_word(*kind), result.to_owned());
                self.add(TerminationStep { hook, result, message, output, ..of(after, step::HOOK_ENDED, instance) });
            }
            Input::SignalAnswered { instance, signal, delivery } => {
                let result = match delivery {
                    Delivery::Delivered => "Delivered",
                    Delivery::DeliveredBefore { .. } => "DeliveredBefore",
                    Delivery::AlreadyGone => "AlreadyGone",
                };
                let (signal, result) = (signal.to_string(), result.to_owned());
                self.add(TerminationStep { signal, result, ..of(after, step::SIGNAL_DELIVERED, instance) });
            }
            Input::KillFailed { instance, .. } => {
                self.add(TerminationStep { message: text(), ..of(after, step::KILL_FAILED, instance) });
            }
            Input::Exited { instance, exit } => self.exited(after, instance, exit),
            Input::SandboxRemoved => self.add(at_step(after, step::SANDBOX_REMOVED)),
            Input::SandboxRemovalFailed { .. } => {
                self.add(TerminationStep { message: text(), ..at_step(after, step::SANDBOX_REMOVAL_FAILED) });
            }
            Input::ObjectDeleted | Input::ObjectGone => self.add(at_step(after, step::DELETED)),
            Input::ObjectDeleteFailed { .. } => {
                self.add(TerminationStep { message: text(), ..at_step(after, step::DELETE_FAILED) });
            }
            Input::AgentRestarted { report } => {
                self.exited_meanwhile(after, report);
                self.add(TerminationStep { message: text(), ..at_step(after, step::AGENT_RESTARTED) });
            }
            Input::Rebooted { .. } => self.add(at_step(after, step::REBOOTED)),
            // What is told of a pod that lives, and what was told as a request.
            Input::Begin
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxReady
            | Input::SandboxFailed { .. }
            | Input::VolumeFailed { .. }
            | Input::Started { .. }
            | Input::StartFailed { .. }
            | Input::SandboxLost { .. }
            | Input::ProbeChanged { .. }
            | Input::DeleteRequested { .. }
            | Input::KillRequested { .. }
            | Input::TimePassed
            | Input::SpecChanged { .. }
            | Input::GenerationSeen { .. }
            | Input::TerminalPhaseSeen { .. }
            | Input::Rejected { .. }
            | Input::KillAwaited { .. } => {}
        }
    }

    fn traffic(&mut self, after: i64, news: &TrafficNews) {
        let text = sentence(&input_text(&Input::Traffic(news.clone())));
        match news {
            TrafficNews::Connections { open } => {
                let open = Some(i64::from(*open));
                if self.connections != open && self.counts < COUNTS_MAX {
                    self.counts += 1;
                    self.connections = open;
                    self.add(TerminationStep { connections: open, ..at_step(after, step::CONNECTIONS) });
                }
                self.connections = open;
            }
            TrafficNews::CutDone { .. } => self.add(TerminationStep { message: text, ..at_step(after, step::CUT) }),
            // How it is reached says nothing of its end.
            TrafficNews::Routed(_) => {}
            TrafficNews::Acked { .. }
            | TrafficNews::Quiet
            | TrafficNews::Settled
            | TrafficNews::AppDone
            | TrafficNews::Late { .. }
            | TrafficNews::Failed { .. } => {
                self.add(TerminationStep { message: text, ..at_step(after, step::TRAFFIC) });
            }
        }
    }

    fn answered(&mut self, after: i64, effect: &Effect) {
        let text = || sentence(&effect_text(effect));
        let connections = self.connections;
        match effect {
            Effect::RunHook { instance, kind } => {
                self.hooks = Some(self.hooks.unwrap_or((after, after)));
                self.add(TerminationStep { hook: hook_word(*kind), ..of(after, step::HOOK_STARTED, instance) });
            }
            Effect::CancelHook { instance, kind } => {
                self.cut_short.insert("a hook");
                self.add(TerminationStep { hook: hook_word(*kind), ..of(after, step::HOOK_CANCELLED, instance) });
            }
            Effect::SendSignal { instance, signal } => {
                self.first_signal.get_or_insert(after);
                let signal = signal.to_string();
                self.add(TerminationStep { signal, connections, ..of(after, step::SIGNAL_ASKED, instance) });
            }
            Effect::KillContainer { instance } => {
                self.killed.insert(instance.name.0.clone());
                let signal = "SIGKILL".to_owned();
                self.add(TerminationStep { signal, connections, ..of(after, step::KILL_ASKED, instance) });
            }
            Effect::RemoveSandbox => self.add(at_step(after, step::SANDBOX_REMOVAL_ASKED)),
            Effect::CutTraffic { .. } => {
                self.add(TerminationStep { message: text(), connections, ..at_step(after, step::CUT_ASKED) });
            }
            Effect::DeleteObject => self.add(at_step(after, step::DELETE_ASKED)),
            Effect::Emit(event) if event.kind == EventKind::Warning => {
                let container = event.container.as_ref().map(|name| name.0.clone()).unwrap_or_default();
                let message = sentence(&format!("{}: {}", event.reason, event.message));
                self.add(TerminationStep { container, message, ..at_step(after, step::WARNING) });
            }
            Effect::Emit(_)
            | Effect::PullImage { .. }
            | Effect::CancelPull { .. }
            | Effect::CreateSandbox
            | Effect::StartContainer { .. }
            | Effect::PublishStatus
            | Effect::Finish
            | Effect::AwaitSettled
            | Effect::NotifyDrain { .. }
            | Effect::WatchConnections
            | Effect::RestoreTraffic
            | Effect::KillAnswered { .. } => {}
        }
    }

    /// The barrier was opened, if it was not open before.
    fn drained(&mut self, after: i64, status: &PodStatus) {
        let Some(condition) = status.traffic_drained.as_ref().filter(|drained| drained.holds) else { return };
        if self.drained.is_none() {
            let reason = condition.reason.clone().unwrap_or_default();
            let (message, connections) = (condition.message.clone().unwrap_or_default(), self.connections);
            let message = sentence(&message);
            // Before whatever it allowed, which was asked for in the same step.
            let place = self.steps.iter().rposition(|step| step.after_milliseconds < after || !is_after_drain(step));
            let drained =
                TerminationStep { result: reason.clone(), message, connections, ..at_step(after, step::DRAINED) };
            if self.steps.len() < STEPS_MAX {
                self.steps.insert(place.map_or(0, |place| place + 1), drained);
            } else {
                self.omitted += 1;
            }
            self.drained = Some((after, reason));
        }
    }

    fn containers(&mut self, status: &PodStatus) {
        let ended = |container: &lifecycle::ContainerStatus| match &container.state {
            ContainerState::Terminated(ended) => Some(EndedContainer {
                name: container.name.0.clone(),
                exit_code: ended.exit.as_ref().map(|_| i64::from(ended.exit_code)),
                signal: ended.exit.and_then(|exit| exit.signal).map(|signal| signal.to_string()).unwrap_or_default(),
                reason: ended.reason.clone(),
            }),
            ContainerState::Waiting(_) | ContainerState::Running { .. } => None,
        };
        self.containers = status.containers.iter().filter_map(ended).take(termination::CONTAINERS_MAX).collect();
    }

    fn add(&mut self, step: TerminationStep) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        } else {
            self.omitted += 1;
        }
    }

    /// The record of this end, of the pod as its object was last seen.
    pub fn record(&self, pod: &Pod, node: &str) -> TerminationRecord {
        let metadata = &pod.metadata;
        let (name, uid) = (metadata.name.clone().unwrap_or_default(), metadata.uid.clone().unwrap_or_default());
        let owners = metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let requests = self.requests_of(pod, node);
        let asked_by = requests.first().map(|first| first.by.clone()).unwrap_or_default();
        let verdict = self.verdict.unwrap_or(TerminationVerdict::Lost);
        let ended = self.ended_after;
        TerminationRecord {
            metadata: ObjectMeta {
                name: Some(record_name(&name, &uid)),
                namespace: metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            pod: EndedPod {
                name,
                uid,
                owner: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)).unwrap_or_default(),
            },
            node_name: node.to_owned(),
            verdict: verdict.to_string(),
            cause: self.cause.to_owned(),
            summary: self.summary(verdict, &asked_by),
            asked_by,
            grace_period_seconds: self.grace(),
            requests,
            start_time: self.time(0),
            deadline: self.deadline.and_then(|deadline| self.time(deadline)),
            end_time: self.time(ended),
            took_milliseconds: Some(ended),
            phases: Some(self.phases()),
            barrier: self.drained.as_ref().map(|(_, reason)| reason.clone()).unwrap_or_default(),
            steps: self.steps.clone(),
            omitted_steps: self.omitted,
            containers: self.containers.clone(),
        }
    }

    /// The grace of the first request, in seconds: what it said, else what it came to.
    fn grace(&self) -> Option<i64> {
        let first = self.requests.first()?;
        first.grace.or_else(|| (self.cause != "Completed").then(|| (first.deadline - first.after + 999) / 1000))
    }

    fn time(&self, after: i64) -> Option<MicroTime> {
        Timestamp::from_millisecond(self.began.0.saturating_add(after)).ok().map(MicroTime)
    }

    fn phases(&self) -> TerminationPhases {
        let hooks = self.hooks.map(|(begun, ended)| ended - begun);
        let exit = self.first_signal.zip(self.last_exit).map(|(signal, exit)| (exit - signal).max(0));
        TerminationPhases {
            drain_milliseconds: self.drained.as_ref().map(|(after, _)| *after),
            hooks_milliseconds: hooks,
            to_signal_milliseconds: self.first_signal,
            exit_milliseconds: exit,
            cleanup_milliseconds: self.last_exit.map(|exit| self.ended_after - exit),
        }
    }

    /// Who sent each request: deletes are noted on the pod by the server, in their order, with the grace that they came to.
    fn requests_of(&self, pod: &Pod, node: &str) -> Vec<TerminationRequest> {
        let note = pod.metadata.annotations.as_ref().and_then(|all| all.get(termination::DELETION_REQUESTS));
        let noted = requests::read(note.map(String::as_str));
        let mut next = 0;
        let mut told = Vec::new();
        for asked in &self.requests {
            let is_same = |noted: &requests::DeletionRequest| Some(noted.grace_period_seconds) == asked.grace;
            let (by, via) = match asked.node {
                Some("Completed" | "DeadlineExceeded" | "Declared") => {
                    (String::new(), asked.node.unwrap_or_default().to_owned())
                }
                Some(reason) => (format!("system:node:{node}"), reason.to_owned()),
                None => match noted.iter().skip(next).position(is_same) {
                    Some(place) => {
                        next += place + 1;
                        let noted = &noted[next - 1];
                        (noted.by.clone(), noted.via.clone())
                    }
                    None => (String::new(), "Delete".to_owned()),
                },
            };
            told.push(TerminationRequest {
                by,
                via,
                after_milliseconds: asked.after,
                grace_period_seconds: asked.grace,
                deadline_milliseconds: Some(asked.deadline),
            });
        }
        told
    }

    fn summary(&self, verdict: TerminationVerdict, asked_by: &str) -> String {
        let by = if asked_by.is_empty() { String::new() } else { format!(" by {asked_by}") };
        let why = match self.cause {
            "Deleted" => format!("deleted{by}"),
            "Completed" => "completed".to_owned(),
            "Evicted" | "Preempted" => format!("{}{by}", self.cause.to_lowercase()),
            "NodeShutdown" => "ended by a shutdown of its node".to_owned(),
            "DeadlineExceeded" => "ended by its active deadline".to_owned(),
            "Rejected" => "rejected by its node".to_owned(),
            "ConfigRemoved" => "ended because its manifest is gone".to_owned(),
            other => format!("ended ({other})"),
        };
        let grace = self.grace().map(|grace| format!(" with {grace} s")).unwrap_or_default();
        let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        let how = match verdict {
            TerminationVerdict::Clean if self.containers.is_empty() => "nothing of it ran".to_owned(),
            TerminationVerdict::Clean => "every container left by itself".to_owned(),
            TerminationVerdict::Hurried if self.cut_short.is_empty() => "something was cut short".to_owned(),
            TerminationVerdict::Hurried => {
                format!("{} was cut short", self.cut_short.iter().copied().collect::<Vec<_>>().join(" and "))
            }
            TerminationVerdict::Forced if self.killed.is_empty() => "its object was removed by force".to_owned(),
            TerminationVerdict::Forced => format!("{} had to be killed", names(&self.killed)),
            TerminationVerdict::Lost => "how it ended is not known".to_owned(),
        };
        let took = self.ended_after;
        let text = format!("{why}{grace}; {how}; over after {}.{:03} s", took / 1000, took % 1000);
        let mut letters = text.chars();
        let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        sentence(&format!("{first}{}", letters.as_str()))
    }
}

/// What only happens once the barrier is open.
fn is_after_drain(step: &TerminationStep) -> bool {
    [step::HOOK_STARTED, step::SIGNAL_ASKED, step::KILL_ASKED, step::SANDBOX_REMOVAL_ASKED]
        .contains(&step.type_.as_str())
}

fn at_step(after: i64, kind: &str) -> TerminationStep {
    TerminationStep { after_milliseconds: after, type_: kind.to_owned(), ..TerminationStep::default() }
}

fn of(after: i64, kind: &str, instance: &Instance) -> TerminationStep {
    TerminationStep { container: instance.name.0.clone(), ..at_step(after, kind) }
}

fn hook_word(kind: HookKind) -> String {
    match kind {
        HookKind::PreStop => "preStop".to_owned(),
        HookKind::PostStart => "postStart".to_owned(),
    }
}

fn reason(cause: &KillCause) -> &'static str {
    match cause {
        KillCause::Evicted { .. } | KillCause::OverLimit { .. } => "Evicted",
        KillCause::Preempted => "Preempted",
        KillCause::NodeShutdown => "NodeShutdown",
        KillCause::ConfigRemoved => "ConfigRemoved",
        KillCause::Orphaned => "Orphaned",
    }
}

fn sentence(text: &str) -> String {
    termination::bounded(text, SENTENCE_BYTES_MAX).to_owned()
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
