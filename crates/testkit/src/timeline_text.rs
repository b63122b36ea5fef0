//! How inputs and effects are printed in a timeline.

use std::time::Duration;

use lifecycle::{
    BestEvidence, Cut, DeleteSighting, Delivery, Effect, EventKind, HookKind, HookOutcome, Input, KillCause,
    KillOutcome, Probe, Routes, RuntimeReport, SpecChange, TrafficNews,
};

/// What happened.
pub fn of_input(input: &Input) -> String {
    match input {
        Input::Begin => "pod is to be run".into(),
        Input::ImageReady { container, .. } => format!("image of {container} ready"),
        Input::ImageFailed { container, reason, .. } => format!("image of {container} failed: {reason}"),
        Input::SandboxReady => "sandbox ready".into(),
        Input::SandboxFailed { message } => format!("sandbox failed: {message}"),
        Input::VolumeFailed { message } => format!("volume failed: {message}"),
        Input::Started { instance, .. } => format!("{instance} started"),
        Input::StartFailed { instance, reason, .. } => format!("{instance} could not start: {reason}"),
        Input::Exited { instance, exit } => format!("{instance} exited {}", exit.code),
        Input::HookFinished { instance, kind, outcome } => format!("{} of {instance} {}", hook(*kind), ended(outcome)),
        Input::SignalAnswered { instance, signal, delivery: Delivery::Delivered } => {
            format!("{signal} delivered to {instance}")
        }
        Input::SignalAnswered { instance, signal, delivery: Delivery::DeliveredBefore { at } } => {
            format!("{signal} had been delivered to {instance} at {at}")
        }
        Input::SignalAnswered { instance, signal, delivery: Delivery::AlreadyGone } => {
            format!("{signal} found {instance} gone")
        }
        Input::KillFailed { instance, .. } => format!("{instance} not killed"),
        Input::SandboxLost { instance } => format!("{instance} has no sandbox"),
        Input::ProbeChanged { instance, probe, passing } => {
            let probe = match probe {
                Probe::Readiness => "readiness",
                Probe::Liveness => "liveness",
                Probe::Startup => "startup",
            };
            format!("{probe} of {instance} {}", if *passing { "passes" } else { "fails" })
        }
        Input::DeleteRequested { grace, sighting: DeleteSighting::Live } => {
            format!("delete requested, grace {}", length(*grace))
        }
        Input::DeleteRequested { grace, sighting: DeleteSighting::Found { left } } => {
            format!("delete found, grace {}, {} left", length(*grace), length(*left))
        }
        Input::ObjectGone => "object gone".into(),
        Input::KillRequested { cause, grace } => {
            let cause = match cause {
                KillCause::Evicted { .. } => "evicted",
                KillCause::Preempted => "preempted",
                KillCause::NodeShutdown => "node shuts down",
                KillCause::ConfigRemoved => "manifest removed",
                KillCause::Orphaned => "orphaned",
                KillCause::OverLimit { .. } => "over its limit",
            };
            grace.map_or_else(|| cause.into(), |grace| format!("{cause}, grace {}", length(grace)))
        }
        Input::SandboxRemoved => "sandbox removed".into(),
        Input::SandboxRemovalFailed { message } => format!("sandbox not removed: {message}"),
        Input::ObjectDeleted => "object deleted".into(),
        Input::ObjectDeleteFailed { message } => format!("object not deleted: {message}"),
        Input::AgentRestarted { report: RuntimeReport { sandbox, .. } } => {
            format!("agent is back{}", if *sandbox { "" } else { ", sandbox lost" })
        }
        Input::TimePassed => "time passed".into(),
        Input::SpecChanged { change } => match change {
            SpecChange::Image { container } => format!("image of {container} changed"),
            SpecChange::Resources { container } => format!("resources of {container} changed"),
            SpecChange::Ephemeral { spec } => format!("ephemeral container {} added", spec.name),
            SpecChange::ActiveDeadline { deadline: Some(deadline) } => {
                format!("active deadline is {}", length(*deadline))
            }
            SpecChange::ActiveDeadline { deadline: None } => "active deadline lifted".into(),
        },
        Input::GenerationSeen { generation } => format!("generation {generation} seen"),
        Input::TerminalPhaseSeen { succeeded: true } => "phase Succeeded seen".into(),
        Input::TerminalPhaseSeen { succeeded: false } => "phase Failed seen".into(),
        Input::Rejected { reason, .. } => format!("rejected: {reason}"),
        Input::KillAwaited { ticket } => format!("kill awaited by {ticket}"),
        Input::Traffic(news) => of_traffic(news),
        Input::Rebooted { .. } => "machine booted anew".into(),
    }
}

fn of_traffic(news: &TrafficNews) -> String {
    match news {
        TrafficNews::Routed(Routes { best: BestEvidence::Unrouted, .. }) => "not routed to".into(),
        TrafficNews::Routed(Routes { last: true, .. }) => "last endpoint".into(),
        TrafficNews::Routed(_) => "others can take its traffic".into(),
        TrafficNews::CutDone { revision, .. } => format!("cut done at revision {revision}"),
        TrafficNews::Acked { acked, required } => format!("{acked} of {required} proxies let go"),
        TrafficNews::Quiet => "no new connections".into(),
        TrafficNews::Settled => "accept queues empty".into(),
        TrafficNews::Connections { open } => format!("{open} connections open"),
        TrafficNews::AppDone => "application says done".into(),
        TrafficNews::Late { count } => format!("{count} late connections"),
        TrafficNews::Failed { message } => format!("traffic layer failed: {message}"),
    }
}

/// What is asked for.
pub fn of_effect(effect: &Effect) -> String {
    match effect {
        Effect::PullImage { container, .. } => format!("pull image of {container}"),
        Effect::CancelPull { container } => format!("cancel pull of {container}"),
        Effect::CreateSandbox => "create sandbox".into(),
        Effect::StartContainer { instance } => format!("start {instance}"),
        Effect::RunHook { instance, kind } => format!("run {} of {instance}", hook(*kind)),
        Effect::CancelHook { instance, kind } => format!("cancel {} of {instance}", hook(*kind)),
        Effect::SendSignal { instance, signal } => {
            format!("{} to {instance}", signal.to_string().trim_start_matches("SIG"))
        }
        Effect::KillContainer { instance } => format!("KILL to {instance}"),
        Effect::RemoveSandbox => "remove sandbox".into(),
        Effect::PublishStatus => "publish status".into(),
        Effect::Emit(event) => {
            let kind = match event.kind {
                EventKind::Normal => "event",
                EventKind::Warning => "warning",
            };
            format!("{kind} {}: {}", event.reason, event.message)
        }
        Effect::DeleteObject => "delete object".into(),
        Effect::Finish => "finish".into(),
        Effect::CutTraffic { how: Cut::Divert } => "divert new connections".into(),
        Effect::CutTraffic { how: Cut::Withdraw } => "withdraw from traffic".into(),
        Effect::CutTraffic { how: Cut::Refuse } => "refuse new connections".into(),
        Effect::AwaitSettled => "await empty accept queues".into(),
        Effect::NotifyDrain { .. } => "tell the application to drain".into(),
        Effect::WatchConnections => "count connections".into(),
        Effect::RestoreTraffic => "restore traffic".into(),
        Effect::KillAnswered { ticket, outcome } => {
            let outcome = match outcome {
                KillOutcome::Stopped => "stopped",
                KillOutcome::Overran => "overran",
                KillOutcome::NotAsked => "nobody asked",
            };
            format!("answer {ticket}: {outcome}")
        }
    }
}

fn hook(kind: HookKind) -> &'static str {
    match kind {
        HookKind::PreStop => "preStop",
        HookKind::PostStart => "postStart",
    }
}

fn ended(outcome: &HookOutcome) -> &'static str {
    match outcome {
        HookOutcome::Succeeded => "done",
        HookOutcome::Failed { .. } => "failed",
        HookOutcome::Cancelled => "cancelled",
    }
}

/// A duration as a person would write it: `30s`, `10.7s`, `0.2s`.
fn length(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}
