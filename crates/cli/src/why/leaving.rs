//! A pod that was asked to leave and is still there: which step holds it up?
//!
//! Its node knows best. Where that does not tell, the object, its conditions and its events do, and what they cannot show is said.

use api::termination::{ProcessSignals, TerminationProgress, requests};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Answer, PodState, Reason, condition, container_statuses, containers, from_now, newest_event, quoted, span,
};
use crate::plan::pause;
use crate::pod_end::{PodFacts, time, word};

/// So long after the deadline an end is late, whoever ends it.
const LATE: SignedDuration = SignedDuration::from_secs(3);

pub(super) fn answer(facts: &PodFacts, pod: &Value, now: Timestamp) -> Answer {
    let deadline = time(&pod["metadata"]["deletionTimestamp"]);
    let mut answer = blocker(facts, pod, deadline, now);
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    answer.deadline = deadline.map(|at| {
        let grace = grace.map(|grace| format!(" (grace {grace} s)")).unwrap_or_default();
        format!("{at}, {}{grace}", from_now(at, now))
    });
    let asked = requests::of_object(pod);
    for request in &asked {
        let how = if request.via == "Eviction" { "evicted" } else { "deleted" };
        answer
            .details
            .push(format!("{how} by {} at {} with grace {} s", request.by, request.at, request.grace_period_seconds));
    }
    if asked.is_empty() {
        answer.unknown.push("who asked for it: this cluster does not note that on the pod".to_owned());
    }
    if !facts.successors.is_empty() {
        let names: Vec<&str> = facts.successors.iter().map(|pod| word(&pod["metadata"], "name")).take(3).collect();
        answer.details.push(format!("its controller has other pods: {}", names.join(", ")));
    }
    answer
}

fn of(reason: Reason, because: impl Into<String>) -> Answer {
    Answer::new(PodState::Terminating, reason, because)
}

fn blocker(facts: &PodFacts, pod: &Value, deadline: Option<Timestamp>, now: Timestamp) -> Answer {
    let node = word(&pod["spec"], "nodeName");
    let is_over = matches!(word(&pod["status"], "phase"), "Succeeded" | "Failed");
    let runs = container_statuses(pod).any(|status| status["state"]["running"].is_object());
    let finalizers: Vec<&str> =
        pod["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let node_is_done = pod["metadata"]["deletionGracePeriodSeconds"].as_i64() == Some(0) || node.is_empty();
    if !finalizers.is_empty() && (node_is_done || (is_over && !runs)) {
        return finalizer(facts, &finalizers, is_over || node.is_empty());
    }
    if let Some(answer) = away(facts, node) {
        return answer;
    }
    let late = deadline.is_some_and(|at| now.duration_since(at) > LATE);
    if let Some(blocked) = condition(pod, "adieu.dev/TerminationBlocked").filter(|blocked| blocked["status"] == "True")
    {
        return stuck(&quoted(word(blocked, "message")), deadline, now);
    }
    if let Some(progress) = &facts.progress {
        return told_by_node(progress, pod, late);
    }
    if late {
        let said = newest_event(facts, &["FailedKillPod", "TerminationOverdue", "FailedUnMount", "FailedUnmount"]);
        if let Some(event) = said {
            return stuck(&quoted(word(event, "message")), deadline, now);
        }
    }
    if let Some(answer) = held_by_traffic(pod) {
        return answer;
    }
    told_by_the_api_alone(facts, pod, late)
}

fn finalizer(facts: &PodFacts, finalizers: &[&str], is_over: bool) -> Answer {
    let (list, one) = (finalizers.join(", "), finalizers.len() == 1);
    let word = if one { "finalizer" } else { "finalizers" };
    let nothing = if is_over { "nothing of it runs any more; " } else { "" };
    let mut answer = of(Reason::Finalizer, format!("{nothing}its object waits for the {word} {list}")).next(format!(
        "whoever set {} takes {} away when it is done, and the object goes at once",
        if one { "it" } else { "them" },
        if one { "it" } else { "them" }
    ));
    for own in finalizers {
        answer = match *own {
            "foregroundDeletion" => answer.advise("the objects that name this pod as owner go first: see who they are"),
            "orphan" => {
                answer.advise("the garbage collector takes it away when dependents are let go: see that it runs")
            }
            "batch.kubernetes.io/job-tracking" => {
                answer.advise("the Job controller takes it away when it has counted the pod: see that it runs")
            }
            other => answer.advise(format!("see whether the controller of {other} runs, and what it waits for")),
        };
    }
    answer.advise(format!(
        "only if that controller is gone for good: kubectl patch pod {} -n {} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
        facts.name, facts.namespace
    ))
}

/// Nobody is there who could end it.
fn away(facts: &PodFacts, node: &str) -> Option<Answer> {
    if node.is_empty() {
        return None;
    }
    let force = format!("kubectl delete pod {} -n {} --grace-period=0 --force", facts.name, facts.namespace);
    let Some(object) = &facts.node else {
        if facts.unknown.iter().any(|unknown| unknown.contains("the state of node")) {
            return None;
        }
        let because = format!("its node {node} does not exist any more, so nobody ends it");
        return Some(of(Reason::NodeGone, because).next("the pod garbage collector removes it by force").advise(force));
    };
    let ready = condition(object, "Ready");
    if ready.is_some_and(|ready| ready["status"] == "True") {
        return None;
    }
    let since = ready.map_or("", |ready| word(ready, "lastTransitionTime"));
    let since = if since.is_empty() { String::new() } else { format!(" since {since}") };
    let because = format!(
        "its node {node} is not ready{since}: what it does about the pod cannot be seen, and the object waits for its word"
    );
    Some(
        of(Reason::NodeNotReady, because)
            .next("the node says so and removes the object when it is back")
            .advise(format!("bring node {node} back, or delete its object if the machine is gone for good"))
            .advise(format!("{force}: only when you know that the pod does not run any more")),
    )
}

fn stuck(message: &str, deadline: Option<Timestamp>, now: Timestamp) -> Answer {
    let late = deadline.map(|at| now.duration_since(at)).filter(|late| late.is_positive());
    let late = late.map(|late| format!(", {} past its deadline", span(late))).unwrap_or_default();
    let because = format!("its node cannot finish{late}: {message}");
    let busy = ["busy", "mount", "volume"].iter().any(|word| message.to_lowercase().contains(word));
    let reason = if busy { Reason::VolumeBusy } else { Reason::StuckOnNode };
    let answer = of(reason, because).next("the node tries again, again and again");
    if busy {
        answer.advise("see on the node who still uses the mount (fuser -vm PATH, a process outside the pod)")
    } else {
        answer.advise("see the node's log; a process in state D waits for a disk or a network file system")
    }
}

/// What holds hooks and stop signals back: the condition of the barrier, if it says that something does. Connections that are
/// still open are told of in its message, also when new ones go elsewhere already.
fn held_by_traffic(pod: &Value) -> Option<Answer> {
    let drained = condition(pod, "adieu.dev/TrafficDrained")?;
    let (reason, message) = (word(drained, "reason"), quoted(word(drained, "message")));
    if message.contains("connections open") {
        let because = format!("its open connections are waited for ({message})");
        let answer = of(Reason::ConnectionsDraining, because);
        return Some(
            answer
                .next("hooks and stop signals begin when they have closed, or when the drain budget is spent")
                .advise("nothing; to end it sooner delete it again with a shorter --grace-period"),
        );
    }
    if drained["status"] != "False" {
        return None;
    }
    let because = match (reason, message.as_str()) {
        ("WaitingForReplacement", _) => "nobody else can take its traffic yet: another pod is waited for".to_owned(),
        (_, "") => "it is still waited for evidence that new connections go elsewhere".to_owned(),
        (_, message) => format!("it is still waited for evidence that new connections go elsewhere: {message}"),
    };
    let answer = of(Reason::Withdrawing, because);
    Some(
        answer
            .next("hooks and stop signals begin as soon as that is so, at the latest when the barrier's time is over")
            .advise("nothing"),
    )
}

fn told_by_node(progress: &TerminationProgress, pod: &Value, late: bool) -> Answer {
    let waits = progress.waits_for.as_str();
    let next = match (progress.next.as_str(), progress.next_in_milliseconds) {
        ("", _) | (_, None) => "what it waits for".to_owned(),
        (what, Some(millis)) => format!("{what}, {}", in_millis(millis)),
    };
    let open = progress.record.iter().flat_map(|record| &record.steps).rev().find_map(|step| step.connections);
    if waits.contains("held until its traffic")
        && let Some(mut answer) = held_by_traffic(pod)
    {
        if let Some(open) = open.filter(|_| answer.reason == Reason::ConnectionsDraining) {
            answer.details.push(format!("{open} connections are open"));
        }
        return answer.next(next);
    }
    if waits.contains("hook") {
        let output = progress.record.iter().flat_map(|record| &record.steps).rev().find(|step| !step.output.is_empty());
        let mut answer = of(Reason::HookRunning, waits.to_owned())
            .next(format!("{next}; the stop signal comes when the hook has ended, at the deadline in any case"));
        if containers(pod).any(|own| is_sleep(&own["lifecycle"]["preStop"])) {
            answer = answer.advise("a hook that only sleeps can be left out: the barrier does what it was for");
        }
        for hook in containers(pod).filter(|own| own["lifecycle"]["preStop"].is_object()) {
            answer.details.push(format!(
                "preStop of {}: {}",
                word(hook, "name"),
                quoted(&hook["lifecycle"]["preStop"].to_string())
            ));
        }
        if let Some(step) = output {
            answer.details.push(format!("it wrote: {}", quoted(&step.output)));
        }
        return answer;
    }
    let signalled = progress
        .record
        .iter()
        .flat_map(|record| &record.steps)
        .any(|step| step.type_ == api::termination::step::SIGNAL_DELIVERED);
    let deaf: Vec<&ProcessSignals> = progress.processes.iter().filter(|own| is_deaf(own)).collect();
    if signalled && !deaf.is_empty() {
        let told: Vec<String> = deaf.iter().map(|own| deafness(own)).collect();
        return of(Reason::SignalIgnored, told.join("; ")).next(next).advise(cure(deaf[0]));
    }
    if late || waits.contains("killed") {
        return stuck(waits, None, Timestamp::UNIX_EPOCH);
    }
    if signalled && !progress.processes.is_empty() {
        let names: Vec<String> = progress
            .processes
            .iter()
            .map(|own| format!("{} (process {} of container {})", own.name, own.pid, own.container))
            .collect();
        return of(
            Reason::Stopping,
            format!("{} has its stop signal, has a handler for it, and has not ended yet", names.join(", ")),
        )
        .next(next)
        .advise("see in its log what it still does: kubectl logs");
    }
    let because = if waits.is_empty() { "its node is about to end it".to_owned() } else { waits.to_owned() };
    of(Reason::Leaving, because).next(next)
}

/// Whether the process does not hear its stop signal.
pub(crate) fn is_deaf(process: &ProcessSignals) -> bool {
    match process.disposition.as_str() {
        "Blocked" | "Ignored" => true,
        "Default" => process.pid == 1,
        _ => false,
    }
}

pub(crate) fn deafness(process: &ProcessSignals) -> String {
    let ProcessSignals { container, name, pid, signal, disposition } = process;
    let why = match disposition.as_str() {
        "Blocked" => format!("blocks {signal}"),
        "Ignored" => format!("ignores {signal}"),
        _ => format!(
            "has no handler for {signal}, and the kernel protects the first process of a namespace from signals without one"
        ),
    };
    format!("{name} (process {pid} of container {container}) {why}")
}

pub(crate) fn cure(process: &ProcessSignals) -> String {
    let signal = process.signal.strip_prefix("SIG").unwrap_or(&process.signal);
    match process.disposition.as_str() {
        "Default" => format!(
            "give it a handler, start it with `exec` behind a shell trap, or put an init in front (shareProcessNamespace, tini); for a shell: trap 'exit' {signal}"
        ),
        _ => format!("have the program handle {signal}, or name another one: lifecycle.stopSignal"),
    }
}

fn in_millis(millis: i64) -> String {
    let span = span(SignedDuration::from_millis(millis));
    if millis < 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// What can be read from the object and its events, and what cannot.
fn told_by_the_api_alone(facts: &PodFacts, pod: &Value, late: bool) -> Answer {
    let running: Vec<&str> = container_statuses(pod)
        .filter(|status| status["state"]["running"].is_object())
        .map(|status| word(status, "name"))
        .collect();
    if word(&pod["spec"], "nodeName").is_empty() {
        return of(Reason::Leaving, "it has no node, and its object is about to go");
    }
    if running.is_empty() {
        return of(Reason::Leaving, "no container of it runs any more; its node is clearing up")
            .next("the node removes its object");
    }
    let names = running.join(", ");
    let failed = newest_event(facts, &["FailedPreStopHook"]).map(|event| quoted(word(event, "message")));
    let hooks: Vec<&str> = containers(pod)
        .filter(|own| own["lifecycle"]["preStop"].is_object() && running.contains(&word(own, "name")))
        .map(|own| word(own, "name"))
        .collect();
    let next = "KILL at the deadline (two seconds later for who had its signal late)";
    let mut answer = match (hooks.is_empty(), late) {
        (_, true) => {
            of(Reason::StuckOnNode, format!("its time is over, and {names} still runs by the word of its node"))
                .advise("see the node's log")
        }
        (true, false) => of(Reason::Stopping, format!("{names} was asked to stop and has not ended yet")).next(next),
        (false, false) => {
            let of_hooks = hooks.join(", ");
            of(
                Reason::HookRunning,
                format!(
                    "either the preStop hook of {of_hooks} runs, or {names} has its stop signal and has not ended yet"
                ),
            )
            .next(next)
        }
    };
    if let Some(failed) = failed {
        answer = answer.detail(format!("a preStop hook failed: {failed}"));
    }
    answer.unknown.push(
        "whether a hook runs, a signal was sent, and what the process makes of it: the API does not show that"
            .to_owned(),
    );
    answer
}

/// Whether a hook does nothing but let time pass.
fn is_sleep(hook: &Value) -> bool {
    let words = hook["exec"]["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let command: Vec<String> = words.map(str::to_owned).collect();
    hook["sleep"].is_object() || pause::only_sleeps(&command)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hook_that_does_more_than_sleep_is_no_mere_sleep() {
        for hook in [
            json!({ "sleep": { "seconds": 5 } }),
            json!({ "exec": { "command": ["sleep", "5"] } }),
            json!({ "exec": { "command": ["sh", "-c", "exec sleep 5"] } }),
        ] {
            assert!(is_sleep(&hook), "{hook}");
        }
        for hook in [
            Value::Null,
            json!({ "exec": { "command": [] } }),
            json!({ "exec": { "command": ["sh", "-c", "echo hook; sleep 4; exit 3"] } }),
            json!({ "httpGet": { "port": 80 } }),
        ] {
            assert!(!is_sleep(&hook), "{hook}");
        }
    }
}
