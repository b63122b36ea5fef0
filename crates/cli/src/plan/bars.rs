//! Where each container's share of the grace went: spans of time for a drawing or a program.

use lifecycle::Signal;
use serde::Serialize;

use super::story::{Fact, FactKind, HookName, written};

/// One container's way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bar {
    /// Which container.
    pub(super) name: String,
    /// What it spent its time on, in order.
    pub(super) spans: Vec<Span>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<End>,
}

/// A stretch of time, in milliseconds from the delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    /// Spent on what.
    pub(super) on: On,
    /// From.
    pub(super) from_millis: i64,
    /// To.
    pub(super) to_millis: i64,
}

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum On {
    /// It goes on as before while its traffic moves away.
    Barrier,
    /// Its preStop hook runs.
    PreStop,
    /// It waits for the containers it serves.
    Turn,
    /// It was asked to exit.
    Stopping,
}

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct End {
    /// When, in milliseconds from the delete.
    pub(super) at_millis: i64,
    /// Its exit code.
    pub(super) code: u8,
    /// It had to be killed.
    pub(super) killed: bool,
    /// The signal it died of, KILL included; nothing if it exited.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "written")]
    pub(super) signal: Option<Signal>,
}

/// The way out of each of `names`, as told by what happened from the delete on.
pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>, facts: &[Fact]) -> Vec<Bar> {
    names.map(|name| bar(name, facts)).filter(|bar| bar.end.is_some() || !bar.spans.is_empty()).collect()
}

/// When the pod's barrier shut, if it did.
fn shut(facts: &[Fact]) -> Option<i64> {
    let shuts = |fact: &&Fact| {
        matches!(fact.what, FactKind::TrafficCut { .. } | FactKind::ServesOn | FactKind::DrainAnnounced { .. })
    };
    facts.iter().find(shuts).map(|fact| fact.at_millis)
}

fn bar(name: &str, facts: &[Fact]) -> Bar {
    let mut bar = Bar { name: name.to_owned(), spans: Vec::new(), end: None };
    let mut open = shut(facts).map(|at| (On::Barrier, at));
    let own = facts.iter().filter(|fact| fact.container.as_deref() == Some(name));
    for fact in own {
        let at = fact.at_millis;
        let next = match &fact.what {
            FactKind::HookStarted { hook: HookName::PreStop } => Some(On::PreStop),
            FactKind::WaitsForTurn => Some(On::Turn),
            FactKind::Signalled { .. } => Some(On::Stopping),
            FactKind::HookFinished { hook: HookName::PreStop, .. }
            | FactKind::HookAbandoned { hook: HookName::PreStop, .. } => None,
            FactKind::Exited { code, by_kill, by_signal, .. } => {
                bar.end = Some(End { at_millis: at, code: *code, killed: *by_kill, signal: *by_signal });
                None
            }
            FactKind::HookStarted { .. }
            | FactKind::HookFinished { .. }
            | FactKind::HookAbandoned { .. }
            | FactKind::Begun
            | FactKind::Started
            | FactKind::Ready
            | FactKind::CannotStart { .. }
            | FactKind::DeleteRequested { .. }
            | FactKind::RemovedAtOnce
            | FactKind::TrafficCut { .. }
            | FactKind::ServesOn
            | FactKind::StandInReady
            | FactKind::BarrierOpened { .. }
            | FactKind::DrainAnnounced { .. }
            | FactKind::DrainSignalled { .. }
            | FactKind::ConnectionsEnded
            | FactKind::SleepLeftOut
            | FactKind::GraceSpent
            | FactKind::NoticeSpent
            | FactKind::Killed
            | FactKind::SandboxRemoved
            | FactKind::Gone => continue,
        };
        if let Some((on, from)) = open.take() {
            bar.spans.push(Span { on, from_millis: from, to_millis: at });
        }
        open = next.map(|on| (on, at));
    }
    bar
}
