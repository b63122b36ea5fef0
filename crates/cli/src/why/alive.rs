//! A pod that nobody asked to leave: does it run, and if not, what is it waiting for?

use jiff::Timestamp;
use serde_json::Value;

use super::{Answer, PodState, Reason, condition, container_statuses, containers, newest_event, quoted};
use crate::pod_end::{PodFacts, word};

pub(super) fn answer(facts: &PodFacts, pod: &Value, _now: Timestamp) -> Answer {
    let of = |reason, because: String| Answer::new(PodState::Alive, reason, because);
    let node = word(&pod["spec"], "nodeName");
    if node.is_empty() {
        return unscheduled(facts, pod);
    }
    let known = facts.unknown.iter().all(|unknown| !unknown.contains("the state of node"));
    if facts.node.is_none() && known {
        return of(Reason::NodeGone, format!("its node {node} does not exist any more, so nobody runs or ends it"))
            .next("the pod garbage collector deletes it")
            .advise(format!(
                "if it does not: kubectl delete pod {} -n {} --grace-period=0 --force",
                facts.name, facts.namespace
            ));
    }
    if let Some(answer) = facts.node.as_ref().and_then(|object| silent_node(object, node)) {
        return answer;
    }
    if let Some(answer) = waiting(facts, pod) {
        return answer;
    }
    if let Some(answer) = blocked_eviction(facts, pod, node) {
        return answer;
    }
    let running = container_statuses(pod).any(|status| status["state"]["running"].is_object());
    if !running {
        return of(Reason::Starting, format!("node {node} is bringing it up")).next("its containers are started");
    }
    match condition(pod, "Ready") {
        Some(ready) if ready["status"] == "True" => {
            let because = format!("it runs on node {node} and is ready; nobody asked it to leave");
            of(Reason::Running, because).next("nothing, until somebody deletes or evicts it")
        }
        ready => not_ready(pod, ready),
    }
}

fn not_ready(pod: &Value, ready: Option<&Value>) -> Answer {
    let unready: Vec<&str> = container_statuses(pod)
        .filter(|status| status["ready"] == false && status["state"]["running"].is_object())
        .map(|status| word(status, "name"))
        .collect();
    let because = match (unready.as_slice(), ready.map(|ready| quoted(word(ready, "message")))) {
        ([], Some(message)) if !message.is_empty() => format!("it runs and is not ready: {message}"),
        ([], _) => "it runs and is not ready".to_owned(),
        (names, _) => format!("it runs, but {} is not ready: a readiness probe does not pass", names.join(", ")),
    };
    Answer::new(PodState::Alive, Reason::NotReady, because).next("it is sent no traffic until it is ready")
}

fn unscheduled(facts: &PodFacts, pod: &Value) -> Answer {
    let gates = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let said = condition(pod, "PodScheduled").filter(|condition| condition["status"] == "False");
    let said = said.map(|condition| quoted(word(condition, "message"))).filter(|message| !message.is_empty());
    let said = said.or_else(|| newest_event(facts, &["FailedScheduling"]).map(|event| quoted(word(event, "message"))));
    let reason = match &said {
        Some(message) if is_about_volumes(message) => Reason::VolumeBusy,
        _ => Reason::Unschedulable,
    };
    let because = match (gates, said) {
        (true, _) => "it has scheduling gates, and waits until whoever set them takes them away".to_owned(),
        (false, Some(message)) => format!("no node takes it: {message}"),
        (false, None) => "it has no node yet".to_owned(),
    };
    let answer = Answer::new(PodState::Alive, reason, because)
        .next("the scheduler tries again whenever something changes that it waits for");
    if gates {
        answer
    } else {
        answer.advise("ask for less, free a node, or change what binds the pod to some nodes only")
    }
}

fn silent_node(object: &Value, node: &str) -> Option<Answer> {
    let ready = condition(object, "Ready");
    if ready.is_some_and(|ready| ready["status"] == "True") {
        return None;
    }
    let since = ready.map(|ready| word(ready, "lastTransitionTime")).unwrap_or_default();
    let since = if since.is_empty() { String::new() } else { format!(" since {since}") };
    let because = format!("its node {node} is not ready{since}: what it shows of the pod may be old");
    Some(
        Answer::new(PodState::Alive, Reason::NodeNotReady, because)
            .next("when its tolerations are over (300 s unless it says otherwise) it is deleted, and ends when the node is back")
            .advise(format!("look at node {node}: kubectl describe node {node}")),
    )
}

/// A container that cannot begin, or not stay.
fn waiting(facts: &PodFacts, pod: &Value) -> Option<Answer> {
    let of = |reason, because: String| Some(Answer::new(PodState::Alive, reason, because));
    for status in container_statuses(pod) {
        let (name, waiting) = (word(status, "name"), &status["state"]["waiting"]);
        let message = quoted(word(waiting, "message"));
        match word(waiting, "reason") {
            why @ ("ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "RegistryUnavailable") => {
                let image = containers(pod).find(|own| own["name"] == name).map_or("", |own| word(own, "image"));
                let pull = newest_event(facts, &["Failed"]).map(|event| quoted(word(event, "message")));
                let told = pull.filter(|pull| why == "ImagePullBackOff" && pull.contains("pull")).unwrap_or(message);
                let told = if told.is_empty() { why.to_owned() } else { told };
                return of(Reason::ImagePull, format!("the image {image} of container {name} cannot be had: {told}")).map(
                    |answer| {
                        answer
                            .next("it is pulled again, after pauses of up to five minutes")
                            .advise("check the image's name, its registry and the pull secrets; a pod that waits can be deleted at once")
                    },
                );
            }
            "CrashLoopBackOff" => {
                let last = &status["lastState"]["terminated"];
                let code =
                    last["exitCode"].as_i64().map(|code| format!(" (last exit code {code})")).unwrap_or_default();
                return of(Reason::CrashLoop, format!("container {name} ends again and again{code}")).map(|answer| {
                    answer
                        .next("it is started again, after pauses of up to five minutes")
                        .advise(format!("kubectl logs {} -c {name} --previous -n {}", facts.name, facts.namespace))
                });
            }
            why @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
                return of(Reason::Starting, format!("container {name} cannot be started, {why}: {message}"))
                    .map(|answer| answer.next("it is tried again").advise("put right what the message names"));
            }
            _ => {}
        }
    }
    let has_begun = container_statuses(pod).any(|status| !status["state"]["waiting"].is_object());
    let mount = newest_event(facts, &["FailedMount", "FailedAttachVolume"]).filter(|_| !has_begun)?;
    let because = format!("a volume cannot be had: {}", quoted(word(mount, "message")));
    of(Reason::VolumeBusy, because).map(|answer| {
        answer
            .next("it is tried again")
            .advise("see who else uses the volume: kubectl get pods -o wide, kubectl describe pvc")
    })
}

fn is_about_volumes(message: &str) -> bool {
    ["volume", "PersistentVolumeClaim", "persistentvolumeclaim"].iter().any(|word| message.contains(word))
}

/// Somebody empties the node, and a budget keeps the pod on it.
fn blocked_eviction(facts: &PodFacts, pod: &Value, node: &str) -> Option<Answer> {
    let object = facts.node.as_ref().filter(|object| object["spec"]["unschedulable"] == true)?;
    let owned_by_set =
        pod["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|owner| owner["kind"] == "DaemonSet");
    let budget =
        facts.budgets.iter().find(|budget| budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) == 0)?;
    if owned_by_set || !object.is_object() {
        return None;
    }
    let (name, status) = (word(&budget["metadata"], "name"), &budget["status"]);
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let because = format!(
        "node {node} is cordoned, and the budget {name} allows no eviction: {} healthy, {} needed",
        count("currentHealthy"),
        count("desiredHealthy")
    );
    Some(
        Answer::new(PodState::Alive, Reason::BudgetBlocksEviction, because)
            .next("an eviction is refused (429) until another pod of the budget is healthy")
            .advise(format!("have one replica more than the budget {name} needs, or relax the budget")),
    )
}
