//! What the API alone tells of an end: the object's times, its container states, and the events about it. To the second.

use api::TerminationRecord;
use api::termination::{EndedContainer, EndedPod, TerminationRequest, TerminationStep, requests, step};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::Value;

use crate::pod_end::{PodFacts, event_time, owner_of, time, word};

/// Reasons of events that tell of an end.
const TELLING: [&str; 11] = [
    "Killing",
    "FailedPreStopHook",
    "FailedKillPod",
    "ExceededGracePeriod",
    "Evicted",
    "Preempting",
    "Preempted",
    "TaintManagerEviction",
    "NodeShutdown",
    "TerminationOverdue",
    "Unhealthy",
];

/// The record as far as it can be told; nothing of a pod that does not leave.
pub(super) fn record(facts: &PodFacts) -> Option<TerminationRecord> {
    match &facts.pod {
        Some(pod) => of_object(facts, pod),
        None => of_events(facts),
    }
}

fn of_object(facts: &PodFacts, pod: &Value) -> Option<TerminationRecord> {
    let meta = &pod["metadata"];
    let deadline = time(&meta["deletionTimestamp"])?;
    let grace = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let start = deadline.saturating_sub(SignedDuration::from_secs(grace)).ok()?;
    let noted = requests::of_object(pod);
    let by = noted.first().map(|first| first.by.clone()).unwrap_or_default();
    let asked = TerminationRequest {
        by: by.clone(),
        via: noted.first().map_or("Delete", |first| first.via.as_str()).to_owned(),
        grace_period_seconds: Some(grace),
        deadline_milliseconds: Some(grace.saturating_mul(1000)),
        ..TerminationRequest::default()
    };
    let request = TerminationStep {
        type_: step::REQUESTED.to_owned(),
        message: format!(
            "delete requested{}, grace {grace} s",
            if by.is_empty() { String::new() } else { format!(" by {by}") }
        ),
        ..TerminationStep::default()
    };
    let mut steps = vec![request];
    let mut containers = Vec::new();
    let lists = ["initContainerStatuses", "containerStatuses"];
    for status in lists.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten()) {
        let ended = &status["state"]["terminated"];
        let Some(at) = time(&ended["finishedAt"]) else { continue };
        let (name, code) = (word(status, "name").to_owned(), ended["exitCode"].as_i64());
        containers.push(EndedContainer {
            name: name.clone(),
            exit_code: code,
            signal: String::new(),
            reason: word(ended, "reason").to_owned(),
        });
        if at < start {
            continue;
        }
        let message = code.map(|code| format!("{name} exited with code {code}")).unwrap_or_default();
        steps.push(TerminationStep { container: name, exit_code: code, message, ..at_step(at, start, step::EXITED) });
    }
    steps.extend(told(facts, start));
    steps.sort_by_key(|own| own.after_milliseconds);
    Some(TerminationRecord {
        pod: EndedPod { name: facts.name.clone(), uid: word(meta, "uid").to_owned(), owner: owner_of(pod) },
        node_name: word(&pod["spec"], "nodeName").to_owned(),
        cause: "Deleted".to_owned(),
        asked_by: by,
        requests: vec![asked],
        grace_period_seconds: Some(grace),
        start_time: Some(MicroTime(start)),
        deadline: Some(MicroTime(deadline)),
        steps,
        containers,
        ..TerminationRecord::default()
    })
}

/// Of one that is gone only its events are left, for an hour.
fn of_events(facts: &PodFacts) -> Option<TerminationRecord> {
    let is_telling = |event: &&Value| TELLING.contains(&word(event, "reason"));
    let last = facts.events.iter().rev().find(is_telling)?;
    let uid = word(&last["involvedObject"], "uid");
    let of_it = |event: &&Value| word(&event["involvedObject"], "uid") == uid;
    let start = facts.events.iter().filter(is_telling).filter(of_it).filter_map(event_time).min()?;
    let steps: Vec<TerminationStep> = told(facts, start).collect();
    Some(TerminationRecord {
        pod: EndedPod { name: facts.name.clone(), uid: uid.to_owned(), ..EndedPod::default() },
        node_name: word(&last["source"], "host").to_owned(),
        start_time: Some(MicroTime(start)),
        steps,
        ..TerminationRecord::default()
    })
}

fn told(facts: &PodFacts, start: Timestamp) -> impl Iterator<Item = TerminationStep> {
    let telling = facts.events.iter().filter(|event| TELLING.contains(&word(event, "reason")));
    telling.filter_map(move |event| {
        let at = event_time(event).filter(|at| *at >= start)?;
        let message = format!("{}: {}", word(event, "reason"), word(event, "message"));
        Some(TerminationStep { message, ..at_step(at, start, step::WARNING) })
    })
}

fn at_step(at: Timestamp, start: Timestamp, kind: &str) -> TerminationStep {
    let after = at.duration_since(start).as_millis();
    let after = i64::try_from(after).unwrap_or(i64::MAX).max(0);
    TerminationStep { after_milliseconds: after, type_: kind.to_owned(), ..TerminationStep::default() }
}
