//! A pod that has ended: its object may be there, or only its record, or nothing at all.

use api::TerminationRecord;
use jiff::Timestamp;
use serde_json::Value;

use super::{Answer, PodState, Reason, container_statuses, from_now, quoted};
use crate::pod_end::{PodFacts, event_time, word};

/// It is over, and nobody deleted its object.
pub(super) fn there(facts: &PodFacts, pod: &Value) -> Answer {
    let status = &pod["status"];
    let (phase, reason, message) = (word(status, "phase"), word(status, "reason"), quoted(word(status, "message")));
    let because = match (reason, message.as_str()) {
        ("", _) => {
            let failed = container_statuses(pod).find_map(|own| {
                let ended = &own["state"]["terminated"];
                let code = ended["exitCode"].as_i64().filter(|code| *code != 0)?;
                Some(format!("; {} ended with {code} ({})", word(own, "name"), word(ended, "reason")))
            });
            format!("it is {phase}{}", failed.unwrap_or_default())
        }
        (reason, "") => format!("it is {phase}, {reason}"),
        (reason, message) => format!("it is {phase}, {reason}: {message}"),
    };
    let mut answer = Answer::new(PodState::Ended, Reason::Completed, because)
        .next("nothing: its object stays until somebody deletes it")
        .advise(format!("kubectl delete pod {} -n {}", facts.name, facts.namespace));
    if let Some(record) = facts.record() {
        answer = answer.detail(record.summary.clone());
    }
    answer
}

/// It is not there.
pub(super) fn gone(facts: &PodFacts, now: Timestamp) -> Answer {
    let Some(record) = facts.record() else { return unknown(facts, now) };
    let ended =
        record.end_time.as_ref().map(|end| format!(" It was over {}.", from_now(end.0, now))).unwrap_or_default();
    let verdict = &record.verdict;
    let because = format!("{} ({verdict}).{ended}", record.summary.trim_end_matches('.'));
    let mut answer = Answer::new(PodState::Gone, Reason::Recorded, because);
    if let Some(successor) = facts.successors.first() {
        let (owner, name) = (&record.pod.owner, word(&successor["metadata"], "name"));
        answer.reason = Reason::Recreated;
        answer = answer
            .next(format!("nothing: its owner {owner} keeps others in its place, such as {name}"))
            .advise(format!("to be rid of them too, scale or delete {owner} or what made it"));
    } else {
        answer = answer.next("nothing");
    }
    details(record, answer).advise(format!("adieu timeline pod/{} -n {}", facts.name, facts.namespace))
}

fn details(record: &TerminationRecord, mut answer: Answer) -> Answer {
    for request in &record.requests {
        let by = if request.by.is_empty() { "somebody" } else { &request.by };
        let grace = request.grace_period_seconds.map(|grace| format!(" with grace {grace} s")).unwrap_or_default();
        let after = request.after_milliseconds;
        let when = if after == 0 { String::new() } else { format!(", {} ms later", after) };
        answer = answer.detail(format!("{} by {by}{grace}{when}", request.via));
    }
    for own in &record.containers {
        let code = own.exit_code.map(|code| format!(" with {code}")).unwrap_or_default();
        let signal = if own.signal.is_empty() { String::new() } else { format!(" by {}", own.signal) };
        answer = answer.detail(format!("{} ended{code}{signal} ({})", own.name, own.reason));
    }
    for step in record.steps.iter().filter(|step| step.result == "Failed" || !step.output.is_empty()) {
        let told = if step.output.is_empty() { &step.message } else { &step.output };
        answer = answer.detail(format!("{} hook of {} {}: {}", step.hook, step.container, step.result, quoted(told)));
    }
    answer
}

fn unknown(facts: &PodFacts, now: Timestamp) -> Answer {
    let (name, namespace) = (&facts.name, &facts.namespace);
    let told = match (facts.keeps_records, facts.events.last()) {
        (Some(true), None) => "no pod of this name is or was there (records are kept for a week)".to_owned(),
        (_, None) => "no pod of this name is there, and nothing tells of one".to_owned(),
        (_, Some(event)) => {
            let when = event_time(event).map(|at| format!(", {}", from_now(at, now))).unwrap_or_default();
            format!(
                "no pod of this name is there; the last that was said of one: {} ({}{when})",
                quoted(word(event, "message")),
                word(event, "reason")
            )
        }
    };
    let mut answer = Answer::new(PodState::Unknown, Reason::NotFound, told)
        .advise(format!("see which are: kubectl get pods -n {namespace}; in other namespaces: kubectl get pods -A --field-selector metadata.name={name}"));
    if facts.keeps_records == Some(false) {
        answer.unknown.push("how a pod of this name ended: this cluster keeps no records of that".to_owned());
    }
    answer
}
