//! What happened, in sentences that need no other page.

use std::time::Duration;

use k8s_openapi::api::core::v1::{LifecycleHandler, PodSpec};
use lifecycle::Signal;

use super::Plan;
use super::behaviour::{HookRun, brief};
use super::duration_text::{about, length};
use super::paint::Ink;
use super::story::{Fact, FactKind, HookName, Story};
use super::traffic::Traffic;

/// Who sends connections to the pod, and who could take them over.
pub(super) fn reached(traffic: &Traffic) -> String {
    let services = traffic.services.join(", ");
    let (plural, sends) = if traffic.services.len() == 1 { ("", "sends") } else { ("s", "send") };
    let others = match (traffic.others, traffic.replaced) {
        (None, _) => "pods on other nodes can take them over".to_owned(),
        (Some(0), true) => "nobody else can take them over until a replacement is Ready".to_owned(),
        (Some(0), false) => "nobody else can take them over, and no replacement comes before it is gone".to_owned(),
        (Some(1), _) => "1 other pod can take them over".to_owned(),
        (Some(others), _) => format!("{others} other pods can take them over"),
    };
    format!("Service{plural} {services} {sends} connections to it; {others}")
}

/// On which cluster the timeline holds.
pub(super) fn steering(traffic: &Traffic, plan: &Plan<'_>) -> String {
    let Some(elsewhere) = &plan.unsteered else {
        return match traffic.flow.steered {
            true => String::new(),
            false => {
                "shown as on most clusters: nobody steers them, so hooks and stop signals go out at once, whoever still \
                      connects; --traffic steered shows it as on Adieu, with the drain barrier"
                    .to_owned()
            }
        };
    };
    let (then, now) = (gone_at(&plan.story), gone_at(elsewhere));
    let gone = match then.abs_diff(now) {
        0..100 => String::new(),
        _ => format!(", and the pod is gone after {}", about(Duration::from_millis(now.unsigned_abs()))),
    };
    format!(
        "shown as on Adieu, with the drain barrier; where nobody steers this traffic, hooks and stop signals go out at \
         once, whoever still connects{gone}"
    )
}

fn gone_at(story: &Story) -> i64 {
    story.facts.last().map_or(0, |fact| fact.at_millis)
}

/// A fact in words; none for what only programs want to know.
pub(super) fn sentence(fact: &Fact, plan: &Plan<'_>) -> Option<(String, Option<Ink>)> {
    let name = fact.container.as_deref().unwrap_or_default();
    let millis = Duration::from_millis;
    let plain = |text: String| Some((text, None));
    let inked = |text: String, ink: Ink| Some((text, Some(ink)));
    match &fact.what {
        FactKind::Begun => plain("the node begins to run the pod".to_owned()),
        FactKind::Started => plain(format!("{name} starts")),
        FactKind::Ready => plain("everything is Ready".to_owned()),
        FactKind::CannotStart { why } => inked(format!("{name} cannot start: {why}"), Ink::Bad),
        FactKind::DeleteRequested { grace_millis } => inked(
            format!("the pod is deleted: it has {} to leave, its grace", length(millis(*grace_millis))),
            Ink::Strong,
        ),
        FactKind::RemovedAtOnce if plan.story.grace.is_zero() => {
            inked("deleted with grace 0: the object goes at once".to_owned(), Ink::Strong)
        }
        FactKind::RemovedAtOnce => inked("the pod is deleted: it was over already".to_owned(), Ink::Strong),
        FactKind::TrafficCut { how } => inked(
            match *how {
                "divert" => "  -> barrier: send its new connections to other pods",
                "refuse" => "  -> barrier: refuse new connections",
                _ => "  -> barrier: take it off every list of endpoints",
            }
            .to_owned(),
            Ink::Hook,
        ),
        FactKind::ServesOn => plain("  -- barrier: it serves on, nobody else can yet".to_owned()),
        FactKind::StandInReady => plain("its replacement is Ready".to_owned()),
        FactKind::BarrierOpened { reason, after_millis } => plain(opened(reason, millis(*after_millis))),
        FactKind::DrainAnnounced { most_millis } => {
            inked(format!("  -> wait for its open connections, {} at most", about(millis(*most_millis))), Ink::Hook)
        }
        FactKind::DrainSignalled { signal } => {
            inked(format!("  -> {signal} to {name}: its connections are waited for"), Ink::Hook)
        }
        FactKind::ConnectionsEnded => plain("nobody is connected any more".to_owned()),
        FactKind::SleepLeftOut => plain(format!("  -- the sleep of {name} is left out: its traffic has moved")),
        FactKind::HookStarted { hook } => {
            let text = plan.pod.pod.spec.as_ref().and_then(|spec| hook_text(spec, name, *hook)).unwrap_or_default();
            inked(format!("  -> run {} hook of {name}: {text}", hook_name(*hook)), Ink::Hook)
        }
        FactKind::HookFinished { hook, succeeded, took_millis } => {
            let hook = hook_name(*hook);
            match succeeded {
                true => plain(format!("{hook} hook of {name} finished after {}", about(millis(*took_millis)))),
                false if *took_millis < 50 => inked(format!("{hook} hook of {name} fails at once"), Ink::Bad),
                false => inked(format!("{hook} hook of {name} fails after {}", about(millis(*took_millis))), Ink::Bad),
            }
        }
        FactKind::HookAbandoned { hook, after_millis } => inked(
            format!(
                "  -> give up {} hook of {name}, unfinished after {}",
                hook_name(*hook),
                about(millis(*after_millis))
            ),
            Ink::Bad,
        ),
        FactKind::WaitsForTurn => plain(format!("  -- {name} waits: a sidecar outlives what it serves")),
        FactKind::Signalled { signal, left_millis: 0 } => {
            inked(format!("  -> {signal} to {name}: its stop signal"), Ink::Bad)
        }
        FactKind::Signalled { signal, left_millis } => inked(
            format!("  -> {signal} to {name}: please exit, SIGKILL in {}", about(millis(*left_millis))),
            Ink::Good,
        ),
        FactKind::GraceSpent if plan.story.grace.is_zero() => {
            inked("the 1s that hooks have even at grace 0 is over".to_owned(), Ink::Doubtful)
        }
        FactKind::GraceSpent => inked("the grace is spent".to_owned(), Ink::Doubtful),
        FactKind::NoticeSpent => plain(format!("the 2s that {name} had after its stop signal are over")),
        FactKind::Killed => inked(format!("  -> SIGKILL to {name}: it did not exit in time"), Ink::Bad),
        FactKind::Exited { .. } => Some(exited(fact, plan)),
        FactKind::SandboxRemoved if fact.kubectl.ready.is_empty() => {
            plain("nothing of it is left on the node".to_owned())
        }
        FactKind::SandboxRemoved => None,
        FactKind::Gone => inked(format!("the pod is gone; its last phase was {:?}", plan.story.phase), Ink::Strong),
    }
}

/// How a program ended, as far as possible in words that say why.
fn exited(fact: &Fact, plan: &Plan<'_>) -> (String, Option<Ink>) {
    let FactKind::Exited { code, by_kill, by_signal, after_signal_millis } = &fact.what else {
        return Default::default();
    };
    let name = fact.container.as_deref().unwrap_or_default();
    let behaviour = plan.behaviours.get(name);
    let Some(after) = after_signal_millis.map(Duration::from_millis) else {
        return match by_kill {
            true => (format!("{name} is dead, exit code {code}: 128 + 9 for SIGKILL"), None),
            false
                if behaviour.is_some_and(|b| matches!(b.pre_stop, HookRun::EndsProgram { .. }))
                    && fact.at_millis > 0 =>
            {
                (format!("{name} exits, ended by its hook, exit code {code}"), None)
            }
            false => (format!("{name} is over by itself, exit code {code}"), None),
        };
    };
    let when = match after < Duration::from_millis(50) {
        true => "at once".to_owned(),
        false => format!("{} after its stop signal", about(after)),
    };
    match by_signal {
        Some(Signal::KILL) => (format!("{name} is dead, exit code {code}: 128 + 9 for SIGKILL"), None),
        Some(signal) if behaviour.is_some_and(|b| b.abandons) => {
            (format!("{name} dies of {signal}; what it started is killed"), Some(Ink::Bad))
        }
        Some(signal) => (format!("{name} dies of {signal}, exit code {code}: 128 + {}", signal.0), None),
        None if behaviour.is_some_and(|b| b.abandons) => {
            (format!("{name} exits, code {code}; what it started is killed"), Some(Ink::Bad))
        }
        None if behaviour.is_some_and(|b| b.unheard) => (format!("{name} is over by itself, exit code {code}"), None),
        // A long name leaves no room for more.
        None if name.len() > 8 && after > Duration::ZERO => {
            (format!("{name} exits after {}, exit code {code}", about(after)), None)
        }
        None => (format!("{name} exits {when}, exit code {code}"), None),
    }
}

/// Why hooks and signals may go out.
fn opened(reason: &str, after: Duration) -> String {
    match reason {
        "LocalCut" => "barrier open: no new connection can reach it".to_owned(),
        "AllAcked" => "barrier open: every proxy has let go of it".to_owned(),
        "Quiet" => "barrier open: nobody connected for a while".to_owned(),
        "LastEndpoint" => "no barrier: nobody else could take its connections".to_owned(),
        "Deadline" => format!("barrier open after {}, without evidence: some may still come", about(after)),
        "Off" => "no barrier: the pod wants none".to_owned(),
        "ShortGrace" => "no barrier: the grace is too short to wait".to_owned(),
        "Forced" => "no barrier: deleted by force".to_owned(),
        other => format!("barrier open: {other}"),
    }
}

fn hook_name(hook: HookName) -> &'static str {
    match hook {
        HookName::PreStop => "preStop",
        HookName::PostStart => "postStart",
    }
}

/// What a hook does, in a few words.
fn hook_text(spec: &PodSpec, name: &str, hook: HookName) -> Option<String> {
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let lifecycle = containers.find(|container| container.name == name)?.lifecycle.as_ref()?;
    let handler = match hook {
        HookName::PreStop => lifecycle.pre_stop.as_ref(),
        HookName::PostStart => lifecycle.post_start.as_ref(),
    };
    handler.map(handler_text)
}

fn handler_text(handler: &LifecycleHandler) -> String {
    if let Some(sleep) = &handler.sleep {
        return format!("sleep {}", length(reading::seconds(sleep.seconds)));
    }
    if let Some(get) = &handler.http_get {
        return format!("GET {}", get.path.as_deref().unwrap_or("/"));
    }
    if handler.tcp_socket.is_some() {
        return "tcpSocket, which does nothing".to_owned();
    }
    let words = handler.exec.as_ref().and_then(|exec| exec.command.as_deref()).unwrap_or_default();
    // Of `sh -c SCRIPT`, the script is what matters.
    let words = match words {
        [_, flag, script] if flag.starts_with('-') && flag.ends_with('c') => std::slice::from_ref(script),
        words => words,
    };
    brief(&words.join(" "))
}
