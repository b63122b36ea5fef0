//! From what was seen to what is said: a pure function, for people and programs alike.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ends::{self, PodVerdict};
use super::findings::{self, Finding};
use super::observations::{Ending, Observations, PodSeen, Way};
use crate::load::{ConnectionKind, Counts, KindCounts, Loss};

/// How a drill went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// What was drilled.
    pub workload: String,
    /// Where.
    pub namespace: String,
    /// `restart` or `kill`.
    pub way: &'static str,
    /// `passed`, `failed`, or `incomplete` if it or its client came to no end and nothing was found.
    pub result: DrillResult,
    /// Why it is incomplete, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_because: Option<&'static str>,
    /// The requests, if any were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// The pods that were to leave.
    pub pods: Vec<PodReport>,
    /// From the delete to the first stop signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_stop_signal: Option<Spread>,
    /// From the delete until nothing was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_gone: Option<Spread>,
    /// How many pods a process of which had to be killed.
    pub forced_kills: usize,
    /// How many connections came to a pod after its stop signal; nothing if nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_connections: Option<u64>,
    /// What is wrong, and what to do about it.
    pub findings: Vec<Finding>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
    /// What could not be known, and why.
    pub unknown: Vec<String>,
}

/// The verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DrillResult {
    /// Everything was done, and nothing was found.
    Passed,
    /// Something was found.
    Failed,
    /// Nothing was found, and not everything was done.
    Incomplete,
}

/// The requests of a drill.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Requests {
    pub from: String,
    pub to: String,
    pub rate_per_second: u32,
    pub total: u64,
    pub lost: u64,
    /// The status that every answer had.
    pub status: Option<u16>,
    pub slowest_ms: u64,
    /// Whether the fate of every request is known.
    pub is_complete: bool,
    pub by_connection: BTreeMap<ConnectionKind, KindCounts>,
    /// In the words of the system.
    pub reasons: BTreeMap<String, u64>,
}

/// The end of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodReport {
    pub name: String,
    pub node: String,
    pub verdict: PodVerdict,
    pub grace_seconds: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_stop_signal_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_gone_ms: Option<u64>,
    /// How its containers ended.
    pub ended: String,
}

/// Times of several pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spread {
    pub p50_ms: u64,
    pub max_ms: u64,
    /// Of how many pods.
    pub pods: usize,
}

/// Why nobody knows whether a request was lost at the end.
pub(super) const CLIENT_ENDED: &str =
    "the client ended before the drill did: its last requests are not counted; run it again";

/// Judges a drill.
pub(super) fn of(seen: &Observations) -> Report {
    let findings = findings::of(seen);
    let is_counted = seen.load.as_ref().is_none_or(|load| load.counts.is_final);
    let incomplete_because = match (&seen.ending, is_counted) {
        (Ending::Done, true) => None,
        (Ending::Done, false) => Some(CLIENT_ENDED),
        (Ending::TimedOut(_) | Ending::Interrupted(_) | Ending::Broken(_), _) => Some("it was called off"),
    };
    let incomplete_because = incomplete_because.filter(|_| findings.is_empty());
    let result = match (findings.is_empty(), incomplete_because) {
        (false, _) => DrillResult::Failed,
        (true, None) => DrillResult::Passed,
        (true, Some(_)) => DrillResult::Incomplete,
    };
    let verdicts: Vec<PodVerdict> = seen.pods.iter().map(ends::verdict).collect();
    let mut unknown = seen.unknown.clone();
    if !seen.keeps_records && !seen.pods.is_empty() {
        unknown.push(
            "when stop signals were sent, whether hooks or drains were cut short, and who came late: this cluster keeps no \
             termination records. Kills are judged by exit code 137"
                .to_owned(),
        );
    }
    Report {
        workload: seen.workload.clone(),
        namespace: seen.namespace.clone(),
        way: match seen.way {
            Way::Restart => "restart",
            Way::Kill => "kill",
        },
        result,
        incomplete_because,
        requests: seen.load.as_ref().map(|load| Requests {
            from: load.from.clone(),
            to: load.to.clone(),
            rate_per_second: load.rate,
            total: load.counts.asked(),
            lost: load.counts.lost(),
            status: load.counts.status,
            slowest_ms: load.counts.slowest_ms,
            is_complete: load.counts.is_final,
            by_connection: load.counts.kinds.clone(),
            reasons: load.counts.lost.clone(),
        }),
        pods: seen.pods.iter().zip(&verdicts).map(|(pod, verdict)| pod_report(pod, *verdict)).collect(),
        to_stop_signal: spread(seen.pods.iter().filter_map(PodSeen::to_signal_ms)),
        to_gone: spread(seen.pods.iter().filter(|pod| pod.gone_ms.is_some()).filter_map(PodSeen::took_ms)),
        forced_kills: verdicts.iter().filter(|verdict| **verdict == PodVerdict::Forced).count(),
        late_connections: seen.keeps_records.then(|| seen.pods.iter().map(ends::late_connections).sum()),
        findings,
        notes: findings::notes(seen),
        unknown,
    }
}

fn pod_report(pod: &PodSeen, verdict: PodVerdict) -> PodReport {
    PodReport {
        name: pod.name().to_owned(),
        node: pod.pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        verdict,
        grace_seconds: pod.grace_seconds(),
        to_stop_signal_ms: pod.to_signal_ms(),
        to_gone_ms: pod.took_ms(),
        ended: ends::how(pod),
    }
}

/// The middle one and the largest.
fn spread(times: impl Iterator<Item = u64>) -> Option<Spread> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    let max_ms = *times.last()?;
    Some(Spread { p50_ms: times[(times.len() - 1) / 2], max_ms, pods: times.len() })
}

impl Requests {
    /// How many were lost in that way.
    pub(super) fn lost_by(&self, loss: Loss) -> u64 {
        self.by_connection.values().filter_map(|kind| kind.lost.get(&loss)).sum()
    }
}

/// Connections that the server closed while nothing was asked on them.
pub(super) fn idle_closes(counts: &Counts) -> u64 {
    counts.kinds.values().map(|kind| kind.idle_closes).sum()
}
