//! `adieu why pod/NAME`: what keeps a pod where it is, until when, what happens next, and what to do.
//!
//! [`answer`] is a pure function of what the cluster tells ([`PodFacts`]); everything here besides asks and prints.

mod alive;
mod ended;
mod leaving;

pub(crate) use leaving::{cure, deafness, is_deaf};

use std::io::Write;

use anyhow::Result;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::Output;
use crate::cluster::{Cluster, ClusterArgs, PodName};
use crate::pod_end::{PodFacts, word};

/// `adieu why`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu why pod/web-5d8-x2x            why it is there, Terminating, or gone
  adieu why web-0 -n shop -o json      the same for programs
  adieu why pod/x --kubeconfig FILE    on any Kubernetes cluster; it says what the API alone cannot tell")]
pub struct WhyArgs {
    /// Which pod: pod/NAME, or its bare name
    #[arg(value_name = "POD")]
    pub pod: PodName,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// `json` for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

/// How the pod is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum PodState {
    /// It is there, and nobody asked it to leave.
    Alive,
    /// It was asked to leave.
    Terminating,
    /// It ended, and its object is there.
    Ended,
    /// It is not there any more.
    Gone,
    /// Nobody knows it.
    Unknown,
}

/// What the answer is about: one word for each cause, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Reason {
    /// It runs, and nothing is wrong.
    Running,
    /// No node takes it.
    Unschedulable,
    /// An image cannot be had.
    ImagePull,
    /// A volume cannot be had.
    VolumeBusy,
    /// A container ends again and again.
    CrashLoop,
    /// It is to be evicted, and a disruption budget does not allow it.
    BudgetBlocksEviction,
    /// It is coming up.
    Starting,
    /// It runs and is not ready.
    NotReady,
    /// Its node is gone.
    NodeGone,
    /// Its node says nothing.
    NodeNotReady,
    /// A finalizer keeps its object.
    Finalizer,
    /// New connections are still on their way to it.
    Withdrawing,
    /// Its open connections are waited for.
    ConnectionsDraining,
    /// A hook runs.
    HookRunning,
    /// A process was asked to stop and has not.
    SignalIgnored,
    /// A process was asked to stop a moment ago.
    Stopping,
    /// Its end is stuck on its node.
    StuckOnNode,
    /// It ends, and the API does not tell which part of that takes its time.
    Leaving,
    /// It ended by itself or by its node; nobody deleted the object.
    Completed,
    /// It is gone, and there is a record.
    Recorded,
    /// It is gone, and its owner made another.
    Recreated,
    /// There is no such pod, and no record of one.
    NotFound,
}

/// What is told of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// How it is.
    pub state: PodState,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, in one sentence: the blocker.
    pub because: String,
    /// By when it has to be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// What happens next, and when.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// What can be done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// More that is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// What could not be known here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

impl Answer {
    fn new(state: PodState, reason: Reason, because: impl Into<String>) -> Self {
        Self {
            state,
            reason,
            because: because.into(),
            deadline: None,
            next: String::new(),
            advice: Vec::new(),
            details: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }
}

/// Asks, answers and prints.
pub async fn run(cluster: &Cluster, args: &WhyArgs, now: Timestamp, out: &mut impl Write) -> Result<()> {
    let facts = PodFacts::gather(cluster, &args.pod).await?;
    let answer = answer(&facts, now);
    match args.output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
        Output::Table => write!(out, "{}", text(&facts, &answer))?,
    }
    Ok(())
}

/// Why the pod is as it is. The same facts at the same time give the same answer.
pub fn answer(facts: &PodFacts, now: Timestamp) -> Answer {
    let mut answer = match &facts.pod {
        None => ended::gone(facts, now),
        Some(pod) if word(&pod["metadata"], "deletionTimestamp").is_empty() => match word(&pod["status"], "phase") {
            "Succeeded" | "Failed" => ended::there(facts, pod),
            _ => alive::answer(facts, pod, now),
        },
        Some(pod) => leaving::answer(facts, pod, now),
    };
    answer.unknown.extend(facts.unknown.iter().cloned());
    answer
}

/// For people.
fn text(facts: &PodFacts, answer: &Answer) -> String {
    let state = match answer.state {
        PodState::Alive => "is there",
        PodState::Terminating => "is Terminating",
        PodState::Ended => "has ended",
        PodState::Gone => "is gone",
        PodState::Unknown => "is not there",
    };
    let mut lines = format!("pod/{} in namespace {} {state}: {}\n", facts.name, facts.namespace, answer.because);
    let mut add = |title: &str, said: &str| lines.push_str(&format!("  {title:<9} {said}\n"));
    if let Some(deadline) = &answer.deadline {
        add("deadline", deadline);
    }
    if !answer.next.is_empty() {
        add("next", &answer.next);
    }
    for (index, advice) in answer.advice.iter().enumerate() {
        add(if index == 0 { "to do" } else { "" }, advice);
    }
    for (index, detail) in answer.details.iter().enumerate() {
        add(if index == 0 { "known" } else { "" }, detail);
    }
    for (index, unknown) in answer.unknown.iter().enumerate() {
        add(if index == 0 { "unknown" } else { "" }, unknown);
    }
    lines
}

/// `12 s`, `3 m 7 s`.
fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().unsigned_abs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// `in 12 s`, or `12 s ago`.
fn from_now(at: Timestamp, now: Timestamp) -> String {
    let left = at.duration_since(now);
    if left.is_negative() { format!("{} ago", span(left)) } else { format!("in {}", span(left)) }
}

/// What somebody else wrote, as a part of a sentence: one line, no stop at its end, not too long.
fn quoted(message: &str) -> String {
    const LETTERS_MAX: usize = 300;
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(LETTERS_MAX) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.to_owned(),
    }
}

/// A condition of an object, by its type.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Every container status of a pod, init containers first.
fn container_statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
}

/// Every container of a pod's spec.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

/// The newest event with one of these reasons that is about this very pod.
fn newest_event<'a>(facts: &'a PodFacts, reasons: &[&str]) -> Option<&'a Value> {
    let uid = facts.pod.as_ref().map_or("", |pod| word(&pod["metadata"], "uid"));
    let is_its = |event: &Value| {
        uid.is_empty() || matches!(word(&event["involvedObject"], "uid"), own if own == uid || own.is_empty())
    };
    facts.events.iter().rev().find(|event| reasons.contains(&word(event, "reason")) && is_its(event))
}

#[cfg(test)]
mod tests;
