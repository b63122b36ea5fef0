//! One case for each cause: the facts as a cluster tells them, and the answer.
#![allow(clippy::unwrap_used, reason = "tests")]

use api::TerminationRecord;
use api::termination::{EndedPod, ProcessSignals, TerminationProgress, TerminationRequest, TerminationStep, step};
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn ready_node() -> Value {
    json!({ "metadata": { "name": "n1" }, "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn running() -> Value {
    json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "app", "image": "registry.example/web:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "app", "ready": true, "state": { "running": {} } }] },
    })
}

/// 20 of its 30 seconds are left.
fn leaving() -> Value {
    let mut pod = running();
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:20Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

fn facts(pod: Value) -> PodFacts {
    PodFacts {
        namespace: "shop".into(),
        name: "web".into(),
        pod: Some(pod),
        node: Some(ready_node()),
        keeps_records: Some(true),
        ..PodFacts::default()
    }
}

fn event(reason: &str, message: &str) -> Value {
    json!({ "reason": reason, "message": message, "involvedObject": { "uid": "u" }, "lastTimestamp": "2026-01-01T00:00:50Z" })
}

fn progress(waits_for: &str) -> TerminationProgress {
    TerminationProgress {
        waits_for: waits_for.into(),
        next: "grace budget spent".into(),
        next_in_milliseconds: Some(20_000),
        deadline_in_milliseconds: Some(20_000),
        ..TerminationProgress::default()
    }
}

fn signalled(disposition: &str, pid: u32) -> TerminationProgress {
    let delivered = TerminationStep { type_: step::SIGNAL_DELIVERED.into(), ..TerminationStep::default() };
    TerminationProgress {
        record: Some(TerminationRecord { steps: vec![delivered], ..TerminationRecord::default() }),
        processes: vec![ProcessSignals {
            container: "app".into(),
            name: "sleep".into(),
            pid,
            signal: "SIGTERM".into(),
            disposition: disposition.into(),
        }],
        ..progress("container app is asked to exit")
    }
}

fn record() -> TerminationRecord {
    TerminationRecord {
        pod: EndedPod { name: "web".into(), uid: "u".into(), owner: "ReplicaSet/web-5d8".into() },
        verdict: "forced".into(),
        summary: "Deleted by alice with 30 s; app had to be killed; over after 30.012 s".into(),
        requests: vec![TerminationRequest {
            by: "alice".into(),
            via: "Delete".into(),
            ..TerminationRequest::default()
        }],
        ..TerminationRecord::default()
    }
}

/// The facts, changed; the cause; and what the sentence and the advice must say.
type Case = (&'static str, PodFacts, Reason, &'static [&'static str]);

fn with(mut facts: PodFacts, change: impl FnOnce(&mut PodFacts)) -> PodFacts {
    change(&mut facts);
    facts
}

fn pod_with(mut pod: Value, change: impl FnOnce(&mut Value)) -> PodFacts {
    change(&mut pod);
    facts(pod)
}

fn waiting(reason: &str, message: &str) -> PodFacts {
    pod_with(running(), |pod| {
        pod["status"]["conditions"] = json!([]);
        pod["status"]["containerStatuses"][0] =
            json!({ "name": "app", "ready": false, "state": { "waiting": { "reason": reason, "message": message } } });
    })
}

fn condition_is(kind: &str, status: &str, reason: &str, message: &str) -> PodFacts {
    pod_with(leaving(), |pod| {
        pod["status"]["conditions"] = json!([{ "type": kind, "status": status, "reason": reason, "message": message }]);
    })
}

fn alive_cases() -> Vec<Case> {
    vec![
        ("running", facts(running()), Reason::Running, &["runs on node n1 and is ready"]),
        (
            "unschedulable",
            pod_with(running(), |pod| {
                pod["spec"]["nodeName"] = Value::Null;
                pod["status"] = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu." }] });
            }),
            Reason::Unschedulable,
            &["no node takes it: 0/1 nodes are available: 1 Insufficient cpu", "ask for less"],
        ),
        (
            "volume that cannot be bound",
            pod_with(running(), |pod| {
                pod["spec"]["nodeName"] = Value::Null;
                pod["status"] = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                    "message": "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod" }] });
            }),
            Reason::VolumeBusy,
            &["ReadWriteOncePod"],
        ),
        (
            "image pull",
            with(waiting("ImagePullBackOff", "Back-off pulling image"), |facts| {
                facts.events.push(event("Failed", "Failed to pull image: no such host registry.example"));
            }),
            Reason::ImagePull,
            &["registry.example/web:1 of container app cannot be had", "no such host", "pull secrets"],
        ),
        (
            "crash loop",
            with(waiting("CrashLoopBackOff", "back-off 40s"), |facts| {
                facts.pod.as_mut().unwrap()["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] =
                    json!(3);
            }),
            Reason::CrashLoop,
            &["app ends again and again (last exit code 3)", "kubectl logs web -c app --previous"],
        ),
        (
            "volume of a pod on a node",
            with(waiting("ContainerCreating", ""), |facts| {
                facts.events.push(event("FailedMount", "volume data is mounted elsewhere"));
            }),
            Reason::VolumeBusy,
            &["a volume cannot be had: volume data is mounted elsewhere"],
        ),
        ("starting", waiting("ContainerCreating", ""), Reason::Starting, &["node n1 is bringing it up"]),
        (
            "budget that blocks an eviction",
            with(facts(running()), |facts| {
                facts.node.as_mut().unwrap()["spec"]["unschedulable"] = json!(true);
                facts.budgets.push(json!({ "metadata": { "name": "web" },
                    "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1 } }));
            }),
            Reason::BudgetBlocksEviction,
            &["cordoned, and the budget web allows no eviction: 1 healthy, 1 needed", "one replica more"],
        ),
        (
            "not ready",
            pod_with(running(), |pod| {
                pod["status"]["conditions"][0]["status"] = json!("False");
                pod["status"]["containerStatuses"][0]["ready"] = json!(false);
            }),
            Reason::NotReady,
            &["app is not ready: a readiness probe does not pass"],
        ),
        (
            "node gone",
            with(facts(running()), |facts| facts.node = None),
            Reason::NodeGone,
            &["n1 does not exist any more"],
        ),
        (
            "ended by itself",
            pod_with(running(), |pod| {
                pod["status"] =
                    json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." });
            }),
            Reason::Completed,
            &["it is Failed, Evicted: The node was low on memory"],
        ),
    ]
}

fn leaving_cases() -> Vec<Case> {
    vec![
        (
            "finalizer",
            pod_with(leaving(), |pod| {
                pod["metadata"]["finalizers"] = json!(["example.com/backup"]);
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                pod["status"] = json!({ "phase": "Succeeded" });
            }),
            Reason::Finalizer,
            &[
                "nothing of it runs any more; its object waits for the finalizer example.com/backup",
                "whether the controller of example.com/backup runs",
            ],
        ),
        (
            "node gone",
            with(facts(leaving()), |facts| facts.node = None),
            Reason::NodeGone,
            &["n1 does not exist", "--force"],
        ),
        (
            "node not ready",
            with(facts(leaving()), |facts| {
                facts.node.as_mut().unwrap()["status"]["conditions"][0] =
                    json!({ "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z" });
            }),
            Reason::NodeNotReady,
            &["n1 is not ready since 2026-01-01T00:00:00Z"],
        ),
        (
            "hook still running",
            with(facts(leaving()), |facts| facts.progress = Some(progress("container app is in its preStop hook"))),
            Reason::HookRunning,
            &["container app is in its preStop hook", "grace budget spent, in 20 s"],
        ),
        (
            "TERM ignored",
            with(facts(leaving()), |facts| facts.progress = Some(signalled("Ignored", 1))),
            Reason::SignalIgnored,
            &["sleep (process 1 of container app) ignores SIGTERM"],
        ),
        (
            "TERM blocked",
            with(facts(leaving()), |facts| facts.progress = Some(signalled("Blocked", 7))),
            Reason::SignalIgnored,
            &["blocks SIGTERM"],
        ),
        (
            "TERM without a handler in process 1",
            with(facts(leaving()), |facts| facts.progress = Some(signalled("Default", 1))),
            Reason::SignalIgnored,
            &["has no handler for SIGTERM, and the kernel protects the first process", "trap 'exit' TERM"],
        ),
        (
            "TERM without a handler in another process",
            with(facts(leaving()), |facts| facts.progress = Some(signalled("Default", 7))),
            Reason::Stopping,
            &["has not ended yet"],
        ),
        (
            "TERM caught",
            with(facts(leaving()), |facts| facts.progress = Some(signalled("Caught", 1))),
            Reason::Stopping,
            &["has a handler for it, and has not ended yet"],
        ),
        (
            "volume busy",
            condition_is(
                "adieu.dev/TerminationBlocked",
                "True",
                "SandboxNotRemoved",
                "cannot unmount /data: device or resource busy",
            ),
            Reason::VolumeBusy,
            &["cannot unmount /data: device or resource busy", "fuser"],
        ),
        (
            "sandbox stuck",
            condition_is(
                "adieu.dev/TerminationBlocked",
                "True",
                "SandboxNotRemoved",
                "its sandbox could not be removed",
            ),
            Reason::StuckOnNode,
            &["its sandbox could not be removed"],
        ),
        (
            "connections draining",
            condition_is("adieu.dev/TrafficDrained", "True", "LocalCut", "after 6ms, 3 connections open"),
            Reason::ConnectionsDraining,
            &["3 connections open", "shorter --grace-period"],
        ),
        (
            "withdrawing",
            condition_is("adieu.dev/TrafficDrained", "False", "WaitingForEvidence", "1 of 3 proxies let go"),
            Reason::Withdrawing,
            &["evidence that new connections go elsewhere: 1 of 3 proxies let go"],
        ),
        (
            "held by connections, told by its node",
            with(
                condition_is("adieu.dev/TrafficDrained", "True", "LocalCut", "after 6ms, 3 connections open"),
                |facts| {
                    facts.progress = Some(progress("container app is held until its traffic is gone"));
                },
            ),
            Reason::ConnectionsDraining,
            &["3 connections open", "grace budget spent, in 20 s"],
        ),
        (
            "foreign cluster, hook or signal",
            pod_with(leaving(), |pod| pod["spec"]["containers"][0]["lifecycle"]["preStop"] = json!({ "exec": {} })),
            Reason::HookRunning,
            &["either the preStop hook of app runs, or app has its stop signal"],
        ),
        (
            "foreign cluster, signal",
            facts(leaving()),
            Reason::Stopping,
            &["app was asked to stop and has not ended yet"],
        ),
        (
            "foreign cluster, late",
            pod_with(leaving(), |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z")),
            Reason::StuckOnNode,
            &["its time is over"],
        ),
        (
            "foreign cluster, unmount event",
            with(
                pod_with(leaving(), |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z")),
                |facts| {
                    facts.events.push(event("FailedUnMount", "volume data: target is busy"));
                },
            ),
            Reason::VolumeBusy,
            &["30 s past its deadline: volume data: target is busy"],
        ),
        (
            "clearing up",
            pod_with(leaving(), |pod| pod["status"]["containerStatuses"][0]["state"] = json!({ "terminated": {} })),
            Reason::Leaving,
            &["no container of it runs any more"],
        ),
    ]
}

fn gone_cases() -> Vec<Case> {
    let gone = || PodFacts { pod: None, node: None, ..facts(Value::Null) };
    vec![
        (
            "gone with a record",
            with(gone(), |facts| facts.records.push(record())),
            Reason::Recorded,
            &["app had to be killed; over after 30.012 s (forced)", "adieu timeline pod/web -n shop"],
        ),
        (
            "gone and made anew",
            with(gone(), |facts| {
                facts.records.push(record());
                facts.successors.push(json!({ "metadata": { "name": "web-5d8-abcde" } }));
            }),
            Reason::Recreated,
            &["app had to be killed", "scale or delete ReplicaSet/web-5d8"],
        ),
        ("never there", gone(), Reason::NotFound, &["no pod of this name is or was there"]),
        (
            "gone from a foreign cluster",
            with(gone(), |facts| {
                facts.keeps_records = Some(false);
                facts.events.push(event("Killing", "Stopping container app"));
            }),
            Reason::NotFound,
            &["Stopping container app (Killing, 10 s ago)"],
        ),
    ]
}

#[test]
fn every_cause_has_its_answer() {
    let cases = alive_cases().into_iter().chain(leaving_cases()).chain(gone_cases());
    for (case, facts, reason, words) in cases {
        let answer = answer(&facts, now());
        assert_eq!(answer.reason, reason, "{case}: {answer:#?}");
        let told = text(&facts, &answer);
        for word in words {
            assert!(told.contains(word), "{case}: {word:?} in\n{told}");
        }
    }
}

#[test]
fn leaving_pod_tells_its_deadline_and_who_asked() {
    let pod = pod_with(leaving(), |pod| {
        let note = json!([{ "by": "alice", "via": "Delete", "at": "2026-01-01T00:00:50Z", "gracePeriodSeconds": 30 }]);
        pod["metadata"]["annotations"] = json!({ api::termination::DELETION_REQUESTS: note.to_string() });
    });
    let answer = answer(&pod, now());
    assert_eq!(answer.state, PodState::Terminating);
    assert_eq!(answer.deadline.unwrap(), "2026-01-01T00:01:20Z, in 20 s (grace 30 s)");
    assert_eq!(answer.details, ["deleted by alice at 2026-01-01T00:00:50Z with grace 30 s"]);
}

/// What is not known is said, on a cluster that tells less.
#[test]
fn foreign_cluster_is_told_what_it_cannot_tell() {
    let mut foreign = facts(leaving());
    foreign.unknown.push("what node n1 is doing about the pod (it does not tell)".into());
    let told = text(&foreign, &answer(&foreign, now()));
    for word in ["who asked for it", "whether a hook runs", "what node n1 is doing"] {
        assert!(told.contains(word), "{word} in\n{told}");
    }
}

/// Others' words do not make an answer long, or many lines.
#[test]
fn message_of_another_program_is_cut_to_a_part_of_a_sentence() {
    let quote = quoted(&format!("one\n  two.\t{}", "x".repeat(1000)));
    assert!(quote.starts_with("one two. xxx") && quote.ends_with('…') && quote.chars().count() == 301, "{quote}");
    assert_eq!(quoted(" done. "), "done");
}

#[test]
fn pod_of_any_shape_has_an_answer() {
    for pod in [
        Value::Null,
        json!({}),
        json!([]),
        json!({ "metadata": { "deletionTimestamp": 5, "finalizers": [5] }, "spec": 5, "status": "x" }),
    ] {
        let found = answer(&facts(pod.clone()), now());
        assert!(!found.because.is_empty(), "{pod}");
        let leaving = json!({ "metadata": { "deletionTimestamp": "nonsense", "finalizers": [5, "a/b"] }, "status": { "containerStatuses": 5 } });
        assert!(!answer(&facts(leaving), now()).because.is_empty());
    }
}
