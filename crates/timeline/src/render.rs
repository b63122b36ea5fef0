//! What people read: a life as lines of time and words.
//!
//! ```text
//!      0.000  delete requested, grace 30s
//!      0.000    -> run the preStop hook of app
//!      0.040  the preStop hook of app succeeded
//!      0.040    -> TERM to app
//! ```
//!
//! Times count from the moment the node took the pod on.

use std::fmt::Write as _;
use std::time::Duration;

use lifecycle::{
    BestEvidence, ContainerReport, Cut, DeleteSighting, Delivery, Effect, Event, EventKind, Exit, HookKind,
    HookOutcome, HookReport, Input, KillCause, KillOutcome, Moment, Probe, Routes, RuntimeReport, SeenContainer,
    Signal, SpecChange, TrafficNews,
};

use crate::Life;

/// All lines of a life.
pub fn render(life: &Life) -> String {
    let mut lines = String::new();
    for (at, _, input, effects) in &life.steps {
        lines.push_str(&render_step(life.adopted_at, *at, input, effects));
    }
    lines
}

/// The lines of one step: what was told, then what was answered. Times count from `start`.
pub(crate) fn render_step(start: Moment, at: Moment, input: &Input, effects: &[Effect]) -> String {
    let time = Moment::default() + at.since(start);
    let mut lines = format!("{:>10}  {}\n", time.to_string(), input_text(input));
    for effect in effects {
        let _ = writeln!(lines, "{:>10}    -> {}", time.to_string(), effect_text(effect));
    }
    lines
}

/// What the worker was told, as part of a sentence.
pub fn input_text(input: &Input) -> String {
    match input {
        Input::Begin => "taken on".to_owned(),
        Input::ImageReady { container, stop_signal: None, .. } => format!("image of {container} is here"),
        Input::ImageReady { container, stop_signal: Some(signal), .. } => {
            format!("image of {container} is here, its stop signal is {}", signal_word(*signal))
        }
        Input::ImageFailed { container, reason, message, .. } => {
            format!("image of {container} cannot be had, {reason}: {message}")
        }
        Input::SandboxReady => "sandbox is ready".to_owned(),
        Input::SandboxFailed { message } => format!("sandbox cannot be made: {message}"),
        Input::VolumeFailed { message } => format!("a volume cannot be made: {message}"),
        Input::Started { instance, wall: _ } => format!("{instance} started"),
        Input::StartFailed { instance, reason, message } => {
            format!("{instance} cannot be started, {reason}: {message}")
        }
        Input::Exited { instance, exit } => format!("{instance} {}", exit_text(exit)),
        Input::HookFinished { instance, kind, outcome } => {
            format!("{} hook of {instance} {}", hook_word(*kind), outcome_text(outcome))
        }
        Input::SignalAnswered { instance, signal, delivery: Delivery::Delivered } => {
            format!("{} delivered to {instance}", signal_word(*signal))
        }
        Input::SignalAnswered { instance, signal, delivery: Delivery::DeliveredBefore { at: _ } } => {
            format!("{} had been delivered to {instance} before", signal_word(*signal))
        }
        Input::SignalAnswered { instance, signal, delivery: Delivery::AlreadyGone } => {
            format!("{} found {instance} already gone", signal_word(*signal))
        }
        Input::KillFailed { instance, message } => format!("{instance} cannot be killed: {message}"),
        Input::SandboxLost { instance } => format!("{instance} has no sandbox to be started in"),
        Input::ProbeChanged { instance, probe, passing } => {
            format!("{} probe of {instance} {}", probe_word(*probe), if *passing { "passes" } else { "fails" })
        }
        Input::DeleteRequested { grace, sighting: DeleteSighting::Live } => {
            format!("delete requested, grace {}", span(*grace))
        }
        Input::DeleteRequested { grace, sighting: DeleteSighting::Found { left } } => {
            format!("delete found, grace {}, {} left", span(*grace), span(*left))
        }
        Input::ObjectGone => "object is gone, deleted by force".to_owned(),
        Input::KillRequested { cause, grace } => {
            let grace = grace.map(|grace| format!(", grace {}", span(grace))).unwrap_or_default();
            format!("{}{grace}", cause_text(cause))
        }
        Input::SandboxRemoved => "sandbox is gone".to_owned(),
        Input::SandboxRemovalFailed { message } => format!("sandbox cannot be removed: {message}"),
        Input::ObjectDeleted => "object is deleted".to_owned(),
        Input::ObjectDeleteFailed { message } => format!("object cannot be deleted: {message}"),
        Input::AgentRestarted { report } => format!("agent came back, {}", report_text(report)),
        Input::TimePassed => "time passed".to_owned(),
        Input::SpecChanged { change } => match change {
            SpecChange::Image { container } => format!("{container} is to run another image"),
            SpecChange::Resources { container } => format!("{container} is to have other resources"),
            SpecChange::Ephemeral { spec } => format!("ephemeral container {} was added", spec.name),
            SpecChange::ActiveDeadline { deadline: Some(deadline) } => {
                format!("may be active for {}", span(*deadline))
            }
            SpecChange::ActiveDeadline { deadline: None } => "may be active for ever".to_owned(),
        },
        Input::GenerationSeen { generation } => format!("generation {generation} seen"),
        Input::TerminalPhaseSeen { succeeded } => {
            format!("somebody wrote that it {}", if *succeeded { "succeeded" } else { "failed" })
        }
        Input::Rejected { reason, message } => format!("refused by the node, {reason}: {message}"),
        Input::KillAwaited { ticket } => format!("somebody (ticket {ticket}) waits for its end"),
        Input::Traffic(news) => traffic_text(news),
        Input::Rebooted { was: _ } => "machine was booted anew".to_owned(),
    }
}

/// What the worker asked for, as part of a sentence.
pub fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::PullImage { container, .. } => format!("pull the image of {container}"),
        Effect::CancelPull { container } => format!("stop waiting for the image of {container}"),
        Effect::CreateSandbox => "make the sandbox".to_owned(),
        Effect::StartContainer { instance } => format!("start {instance}"),
        Effect::RunHook { instance, kind } => format!("run the {} hook of {instance}", hook_word(*kind)),
        Effect::CancelHook { instance, kind } => format!("end the {} hook of {instance}", hook_word(*kind)),
        Effect::SendSignal { instance, signal } => format!("{} to {instance}", signal_word(*signal)),
        Effect::KillContainer { instance } => format!("KILL to {instance}"),
        Effect::RemoveSandbox => "remove the sandbox".to_owned(),
        Effect::PublishStatus => "publish the status".to_owned(),
        Effect::Emit(event) => event_text(event),
        Effect::DeleteObject => "delete the object".to_owned(),
        Effect::Finish => "the end".to_owned(),
        Effect::CutTraffic { how: Cut::Divert } => "send new connections elsewhere".to_owned(),
        Effect::CutTraffic { how: Cut::Withdraw } => "take it off every list of endpoints".to_owned(),
        Effect::CutTraffic { how: Cut::Refuse } => "refuse new connections".to_owned(),
        Effect::AwaitSettled => "wait for connections that nobody accepted yet".to_owned(),
        Effect::NotifyDrain { until: _ } => "tell the application that its connections are waited for".to_owned(),
        Effect::WatchConnections => "count open connections".to_owned(),
        Effect::RestoreTraffic => "let new connections come again".to_owned(),
        Effect::KillAnswered { ticket, outcome } => {
            let outcome = match outcome {
                KillOutcome::Stopped => "no process remains",
                KillOutcome::Overran => "it takes longer than it may",
                KillOutcome::NotAsked => "nobody asked it to leave",
            };
            format!("tell ticket {ticket} that {outcome}")
        }
    }
}

/// `TERM` rather than `SIGTERM`, as people say it.
fn signal_word(signal: Signal) -> String {
    let name = signal.to_string();
    name.strip_prefix("SIG").map(str::to_owned).unwrap_or(name)
}

fn exit_text(exit: &Exit) -> String {
    let Exit { code, signal, oom, wall: _, seen } = exit;
    let mut words = match signal {
        Some(signal) => format!("ended by {}, exit code {code}", signal_word(*signal)),
        None => format!("exited with code {code}"),
    };
    if *oom {
        words.push_str(", out of memory");
    }
    if !seen {
        words.push_str(", inferred");
    }
    words
}

fn hook_word(kind: HookKind) -> &'static str {
    match kind {
        HookKind::PreStop => "preStop",
        HookKind::PostStart => "postStart",
    }
}

fn outcome_text(outcome: &HookOutcome) -> String {
    match outcome {
        HookOutcome::Succeeded => "succeeded".to_owned(),
        HookOutcome::Failed { message, output: None } => format!("failed: {message}"),
        HookOutcome::Failed { message, output: Some(output) } => format!("failed: {message}: {output}"),
        HookOutcome::Cancelled => "was ended".to_owned(),
    }
}

fn probe_word(probe: Probe) -> &'static str {
    match probe {
        Probe::Readiness => "readiness",
        Probe::Liveness => "liveness",
        Probe::Startup => "startup",
    }
}

fn cause_text(cause: &KillCause) -> String {
    match cause {
        KillCause::Evicted { message } => format!("evicted: {message}"),
        KillCause::Preempted => "preempted by a critical pod".to_owned(),
        KillCause::NodeShutdown => "node shuts down".to_owned(),
        KillCause::ConfigRemoved => "manifest is gone".to_owned(),
        KillCause::Orphaned => "nobody claims it".to_owned(),
        KillCause::OverLimit { message } => format!("evicted for using too much: {message}"),
    }
}

fn traffic_text(news: &TrafficNews) -> String {
    match news {
        TrafficNews::Routed(Routes { best: BestEvidence::Unrouted, .. }) => "no traffic is routed to it".to_owned(),
        TrafficNews::Routed(Routes { last: true, .. }) => "nobody else can take its traffic".to_owned(),
        TrafficNews::Routed(Routes { best: BestEvidence::Settled, .. }) => "its listeners can be watched".to_owned(),
        TrafficNews::Routed(Routes { best: BestEvidence::Acks, .. }) => "every proxy can let go of it".to_owned(),
        TrafficNews::Routed(Routes { best: BestEvidence::Divert, .. }) => "others can take its traffic".to_owned(),
        TrafficNews::CutDone { how: _, revision } => format!("new connections go elsewhere, revision {revision}"),
        TrafficNews::Acked { acked, required } => format!("{acked} of {required} proxies let go"),
        TrafficNews::Quiet => "no new connection came for a while".to_owned(),
        TrafficNews::Settled => "no connection waits to be accepted".to_owned(),
        TrafficNews::Connections { open } => format!("{open} connections are open"),
        TrafficNews::AppDone => "application has nothing left to wait for".to_owned(),
        TrafficNews::Late { count } => format!("{count} connections came late"),
        TrafficNews::Failed { message } => format!("traffic cannot be steered: {message}"),
    }
}

fn event_text(event: &Event) -> String {
    let Event { container, kind, reason, message } = event;
    let kind = match kind {
        EventKind::Normal => "say",
        EventKind::Warning => "warn",
    };
    let about = container.as_ref().map(|container| format!(" about {container}")).unwrap_or_default();
    format!("{kind}{about}, {reason}: {message}")
}

fn report_text(report: &RuntimeReport) -> String {
    let RuntimeReport { sandbox, containers, hooks } = report;
    let mut words = vec![if *sandbox { "sandbox is there".to_owned() } else { "sandbox is not there".to_owned() }];
    for ContainerReport { instance, seen } in containers {
        words.push(match seen {
            SeenContainer::Running { wall: _ } => format!("{instance} runs"),
            SeenContainer::Exited { exit } => format!("{instance} {}", exit_text(exit)),
        });
    }
    for HookReport { instance, kind, outcome } in hooks {
        let outcome = outcome.as_ref().map_or("runs".to_owned(), outcome_text);
        words.push(format!("{} hook of {instance} {outcome}", hook_word(*kind)));
    }
    words.join(", ")
}

/// `30s`, `1.500s`.
fn span(span: Duration) -> String {
    match span.subsec_millis() {
        0 => format!("{}s", span.as_secs()),
        millis => format!("{}.{millis:03}s", span.as_secs()),
    }
}
