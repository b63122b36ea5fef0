//! What a drill found, and what to do about each finding, in plain words. Knows what `adieu why` knows of signals, and what
//! `adieu plan` knows of manifests.

use std::collections::BTreeMap;

use api::termination::{ProcessSignals, step};
use serde::Serialize;

use super::ends::{self, PodVerdict};
use super::observations::{Ending, LoadSeen, Observations, PodSeen, Way};
use crate::load::{ConnectionKind, Counts, Loss};
use crate::plan::PodAdvice;
use crate::why::{cure, deafness, is_deaf};

/// So many pods are named in a sentence.
const NAMES_MOST: usize = 3;
/// A loss is told together with a pod that was asked to leave so shortly before.
const SHORTLY_MS: i64 = 10_000;
/// What `adieu plan` calls what keeps a program from its stop signal.
const SIGNAL_CODES: [&str; 14] = [
    "command-without-shell",
    "no-handler",
    "runner-in-front",
    "shell-dies-first",
    "shell-does-not-wait",
    "shell-may-swallow-signal",
    "shell-swallows-signal",
    "signal-ignored",
    "signal-name-refused",
    "stop-signal-kill",
    "trap-goes-on",
    "trap-waits",
    "cannot-tell",
    "killed",
];

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// One word for programs.
    pub code: &'static str,
    /// Which pods it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// In one sentence, without the pods.
    pub finding: String,
    /// What to do.
    pub advice: Vec<String>,
}

impl Finding {
    /// In one sentence, with the pods: `web-a and web-b: app ignored SIGTERM …`.
    pub(super) fn sentence(&self) -> String {
        if self.pods.is_empty() { self.finding.clone() } else { format!("{}: {}", names(&self.pods), self.finding) }
    }
}

/// Everything that is wrong, the worst first.
pub(super) fn of(seen: &Observations) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(load) = &seen.load {
        found.extend(lost_requests(seen, load));
    }
    found.extend(gathered(seen.pods.iter().flat_map(of_pod)));
    match &seen.ending {
        Ending::TimedOut(what) => found.push(unfinished(format!("{what}: not within the time limit"), seen)),
        Ending::Broken(why) => found.push(unfinished(why.clone(), seen)),
        Ending::Done | Ending::Interrupted(_) => {}
    }
    found
}

fn unfinished(finding: String, seen: &Observations) -> Finding {
    let mut advice = Vec::new();
    let leaving = seen.pods.iter().find(|pod| ends::verdict(pod) == PodVerdict::Leaving);
    if let Some(pod) = leaving {
        advice.push(format!("see what holds it up: adieu why pod/{} -n {}", pod.name(), seen.namespace));
    }
    match seen.way {
        Way::Restart => advice.push(format!(
            "the rollout goes on: adieu rollout status {} -n {}",
            short(&seen.workload),
            seen.namespace
        )),
        Way::Kill => advice.push(format!("see how the others are: adieu get pods -n {}", seen.namespace)),
    }
    advice.push("give it more time with --timeout".to_owned());
    Finding { code: "unfinished", pods: Vec::new(), finding, advice }
}

/// Requests that were not answered.
fn lost_requests(seen: &Observations, load: &LoadSeen) -> Option<Finding> {
    let counts = &load.counts;
    if counts.lost() == 0 {
        return None;
    }
    let lost = |loss: Loss| counts.kinds.values().filter_map(|kind| kind.lost.get(&loss)).sum::<u64>();
    let ways: Vec<String> = Loss::ALL
        .into_iter()
        .filter(|loss| lost(*loss) > 0)
        .map(|loss| format!("{} {}", lost(loss), loss.text()))
        .collect();
    let first = first_loss(seen, load).map(|told| format!("; {told}")).unwrap_or_default();
    let finding = format!("{} of {} requests were lost: {}{first}", counts.lost(), counts.asked(), ways.join(", "));
    let mut advice = Vec::new();
    let pod = seen.pods.first().map(|seen| &seen.pod);
    let containers = || pod.into_iter().flat_map(|pod| &pod.spec).flat_map(|spec| &spec.containers);
    if seen.ready < 2 {
        advice.push(
            "there was only one pod, so nobody answers from the end of one to the readiness of the next: run two or more"
                .to_owned(),
        );
    }
    if containers().any(|container| container.readiness_probe.is_none()) {
        advice.push(
            "a container has no readinessProbe, so a new pod is sent requests before it can answer them: give it one"
                .to_owned(),
        );
    }
    if lost(Loss::Refused) > 0 || lost_by(counts, ConnectionKind::New, Loss::Reset) > 0 {
        advice.push(match seen.keeps_records {
            true => "new connections came to a pod that takes none any more: see that its annotation \
                     adieu.dev/drain-barrier is not off, and the evidence in `kubectl get tr -o wide`"
                .to_owned(),
            false => {
                "new connections came to a pod that had closed its listener: keep accepting for some seconds after \
                      the stop signal (lifecycle.preStop.sleep), longer than endpoints take to get around"
                    .to_owned()
            }
        });
    }
    if lost_by(counts, ConnectionKind::Kept, Loss::Reset) > 0 {
        advice.push(
            "kept connections were closed under a request: after the stop signal finish what was begun, answer with \
             `Connection: close`, and keep idle connections for some seconds"
                .to_owned(),
        );
    }
    if lost(Loss::ServerError) > 0 {
        advice.push(
            "the application answered with a 5xx while it was leaving or coming: let it finish requests before it closes \
             what they need, and be ready only when it can answer"
                .to_owned(),
        );
    }
    if lost(Loss::TimedOut) > 0 {
        advice.push(
            "requests were not answered in time: a pod that hangs is asked until it is not ready any more".to_owned(),
        );
    }
    if lost(Loss::WrongAnswer) > 0 {
        advice.push("some answers had another status than the first: see the reasons in -o json".to_owned());
    }
    if seen.pods.iter().any(|pod| ends::verdict(pod) == PodVerdict::Forced) {
        advice.push("what a killed process was answering is lost with it: see below".to_owned());
    }
    Some(Finding { code: "requests-lost", pods: Vec::new(), finding, advice })
}

fn lost_by(counts: &Counts, kind: ConnectionKind, loss: Loss) -> u64 {
    counts.kinds.get(&kind).and_then(|kind| kind.lost.get(&loss)).copied().unwrap_or(0)
}

/// `the first 40 ms after web-a was asked to leave (connection reset)`.
fn first_loss(seen: &Observations, load: &LoadSeen) -> Option<String> {
    let first = load.counts.first_lost.first()?;
    let at = i64::try_from(first.at_ms).ok()?.checked_sub(load.clock_ms)?;
    let after = |pod: &PodSeen| Some(at - i64::try_from(pod.asked_ms?).ok()?);
    let asked = seen.pods.iter().filter_map(|pod| Some((after(pod)?, pod.name())));
    let near = asked.filter(|(after, _)| (0..SHORTLY_MS).contains(after)).min();
    Some(match near {
        Some((after, pod)) => format!("the first {after} ms after {pod} was asked to leave ({})", first.reason),
        None => format!("the first was: {}", first.reason),
    })
}

/// What is wrong with the end of one pod.
fn of_pod(seen: &PodSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |code, finding: String, advice: Vec<String>| {
        found.push(Finding { code, pods: vec![seen.name().to_owned()], finding, advice });
    };
    let summary = seen.record.as_ref().map(|record| record.summary.as_str()).unwrap_or_default();
    match ends::verdict(seen) {
        PodVerdict::Forced => {
            let killed = ends::killed(seen);
            for (container, after) in &killed {
                let (finding, advice) = killed_container(seen, container, *after);
                add("forced", finding, advice);
            }
            if killed.is_empty() {
                add("forced", or(summary, "it was ended by force"), Vec::new());
            }
        }
        PodVerdict::Hurried => {
            let cut = steps(seen, step::HOOK_CANCELLED).next();
            let advice = match cut {
                Some(_) => "make its preStop hook shorter, or raise terminationGracePeriodSeconds".to_owned(),
                None => "raise terminationGracePeriodSeconds, or make what takes the time faster".to_owned(),
            };
            add("hurried", or(summary, "something of its end was cut short"), vec![advice, timeline(seen)]);
        }
        PodVerdict::Lost => {
            add(
                "lost",
                or(summary, "it is not known how it ended"),
                vec!["see whether its node was restarted or out of reach".to_owned(), timeline(seen)],
            );
        }
        PodVerdict::Clean | PodVerdict::Exited | PodVerdict::Unknown | PodVerdict::Leaving | PodVerdict::Untouched => {}
    }
    let late = ends::late_connections(seen);
    if late > 0 {
        add(
            "late-connections",
            format!("{late} connections came after it was told to stop"),
            vec![
                "raise adieu.dev/drain-barrier-seconds, and see which evidence released the stop signal: kubectl get tr -o \
                 wide"
                    .to_owned(),
            ],
        );
    }
    for failed in steps(seen, step::HOOK_ENDED).filter(|ended| ended.result == "Failed") {
        let said = if failed.output.is_empty() { &failed.message } else { &failed.output };
        add(
            "hook-failed",
            format!("the {} hook of {} failed: {}", failed.hook, failed.container, said.trim()),
            vec!["run it by hand in a running pod: adieu exec".to_owned()],
        );
    }
    let statuses = seen.pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    for status in statuses {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        if ended.is_some_and(|ended| ended.reason.as_deref() == Some("OOMKilled")) {
            add(
                "oom-killed",
                format!("{} was killed for want of memory while it was leaving", status.name),
                vec!["raise its memory limit, or let it need less at its end".to_owned()],
            );
        }
    }
    found
}

/// What a container was killed for, and what helps: from the kernel's word on its first process, else from the manifest.
fn killed_container(seen: &PodSeen, container: &str, after: Option<i64>) -> (String, Vec<String>) {
    let grace = seen.grace_seconds();
    let when = after.map_or_else(|| "at the end of its grace".to_owned(), |ms| format!("after {}", length(ms)));
    let process = seen.processes.iter().find(|process| process.container == container);
    if let Some(deaf) = process.filter(|process| is_deaf(process)) {
        let ProcessSignals { signal, .. } = deaf;
        let written = written(seen, container, &SIGNAL_CODES).map(|written| written.remedy.clone());
        let advice = [written, Some(cure(deaf))].into_iter().flatten().collect();
        return (format!("{container} ignored {signal} and was killed {when}: {}", deafness(deaf)), advice);
    }
    if let Some(written) = written(seen, container, &SIGNAL_CODES) {
        return (
            format!("{container} did not exit and was killed {when}: {}", written.finding),
            vec![written.remedy.clone()],
        );
    }
    let handler = if process.is_some() { "it has a handler for its stop signal, and " } else { "" };
    (
        format!("{container} was killed {when}: {handler}it had not exited when its grace of {grace} s was spent"),
        vec![
            "see in its log what it still did after its stop signal".to_owned(),
            format!("let it exit sooner, or raise terminationGracePeriodSeconds above {grace}"),
        ],
    )
}

fn written<'a>(seen: &'a PodSeen, container: &str, codes: &[&str]) -> Option<&'a PodAdvice> {
    seen.written.iter().find(|written| codes.contains(&written.code) && written.container.as_deref() == Some(container))
}

fn steps<'a>(seen: &'a PodSeen, kind: &'a str) -> impl Iterator<Item = &'a api::termination::TerminationStep> {
    seen.record.iter().flat_map(|record| &record.steps).filter(move |step| step.type_ == kind)
}

fn timeline(seen: &PodSeen) -> String {
    let namespace = seen.pod.metadata.namespace.as_deref().unwrap_or("default");
    format!("see what took the time: adieu timeline pod/{} -n {namespace}", seen.name())
}

/// Pods of which the same is to be said are told together.
fn gathered(found: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in found {
        // What differs is when, to a fraction of a second.
        let like = |other: &&mut Finding| other.code == finding.code && other.advice == finding.advice;
        match all.iter_mut().find(like) {
            Some(other) => other.pods.extend(finding.pods),
            None => all.push(finding),
        }
    }
    all
}

/// What is worth knowing and not wrong.
pub(super) fn notes(seen: &Observations) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(load) = &seen.load {
        let closes = super::report::idle_closes(&load.counts);
        if closes > 0 {
            notes.push(format!(
                "{closes} kept connections were closed by the server while nothing was asked on them; that lost nothing"
            ));
        }
        if !load.counts.is_final {
            notes.push(super::report::CLIENT_ENDED.to_owned());
        }
        if let Some(status @ 300..) = load.counts.status {
            notes.push(format!("every answer had the status {status}: a --path that answers with 200 shows more"));
        }
    } else {
        notes.push("no requests were sent, so none could be lost".to_owned());
    }
    let mut died: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in seen.pods.iter().filter(|pod| ends::verdict(pod) != PodVerdict::Forced) {
        for (container, code) in ends::exit_codes(pod) {
            if code == Some(143) {
                died.entry(container).or_default().push(pod.name().to_owned());
            }
        }
    }
    for (container, pods) in died {
        notes.push(format!(
            "{}: {container} died of SIGTERM, for which it has no handler: what it was doing was cut off",
            names(&pods)
        ));
    }
    let untouched = seen.pods.iter().filter(|pod| ends::verdict(pod) == PodVerdict::Untouched).count();
    if untouched > 0 {
        notes.push(format!("{untouched} pods were not asked to leave"));
    }
    if let Ending::Interrupted(_) = seen.ending {
        notes.push(match seen.way {
            Way::Restart => format!(
                "the drill was called off; the rollout goes on: adieu rollout status {} -n {}",
                short(&seen.workload),
                seen.namespace
            ),
            Way::Kill => "the drill was called off; a pod that was asked to leave still does".to_owned(),
        });
    }
    notes
}

/// `web-a, web-b, web-c and 2 more`.
fn names(pods: &[String]) -> String {
    let (first, more) = (&pods[..pods.len().min(NAMES_MOST)], pods.len().saturating_sub(NAMES_MOST));
    if more > 0 { format!("{} and {more} more", first.join(", ")) } else { first.join(", ") }
}

fn or(said: &str, otherwise: &str) -> String {
    let said = said.trim().trim_end_matches('.');
    if said.is_empty() { otherwise.to_owned() } else { said.to_owned() }
}

/// `deployment/web` of `deployment.apps/web`.
fn short(workload: &str) -> String {
    let (kind, name) = workload.split_once('/').unwrap_or(("", workload));
    format!("{}/{name}", kind.split('.').next().unwrap_or_default())
}

/// `30 s`, `0.4 s`.
fn length(ms: i64) -> String {
    let seconds = ms.max(0) / 100;
    if seconds >= 100 { format!("{} s", seconds / 10) } else { format!("{}.{} s", seconds / 10, seconds % 10) }
}
