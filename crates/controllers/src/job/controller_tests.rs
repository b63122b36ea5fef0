//! Jobs that lose, repeat and outlive whoever sees to them.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::super::world::{World, key};
use super::*;
use crate::woken::Dice;

/// [WL-102] [WL-119] [WL-121] Whoever dies between any two writes, however late the watches are: each pod is counted exactly once, never
/// more than `parallelism` pods are active, and the Job ends.
#[test]
fn job_counts_each_pod_exactly_once_whatever_crashes_and_however_late_watches_are() {
    for seed in 1..=1000 {
        let mut dice = Dice::new(seed);
        let completions = 1 + dice.roll(6);
        let indexed = dice.flip();
        let policy = dice.pick(&["TerminatingOrFailed", "Failed"]);
        let mut world = World::with(json!({ "completions": completions, "parallelism": 3, "backoffLimit": 40,
            "completionMode": if indexed { "Indexed" } else { "NonIndexed" }, "podReplacementPolicy": policy }));
        world.seed = seed;
        let mut forced = BTreeSet::new();
        for step in 0..140 {
            let calm = step >= 90;
            match dice.roll(12) {
                0..4 => world.hear(dice.flip(), true),
                4 => world.hear_all(),
                5..8 => drop(world.act(if calm { usize::MAX } else { dice.roll(5) })),
                8 if !calm => world.restart(),
                9 => world.watched.pass(Duration::from_secs(1 + dice.roll(400) as u64)),
                _ => world.hear(true, dice.flip()),
            }
            let names: Vec<String> = world.pods.keys().cloned().collect();
            if names.is_empty() || dice.flip() {
                continue;
            }
            let name = &names[dice.roll(names.len())];
            let phase = world.pods[name]["status"]["phase"].as_str().unwrap().to_owned();
            match dice.roll(10) {
                0..3 if phase == "Pending" => world.pod_is(name, "Running", 0),
                3..6 if phase == "Running" => world.pod_is(name, "Succeeded", 0),
                6..8 if phase == "Running" && !calm => world.pod_is(name, "Failed", 1),
                8 if !calm => world.delete_pod(name),
                9 if !calm && dice.roll(8) == 0 => {
                    forced.insert(world.pods[name]["metadata"]["uid"].as_str().unwrap().to_owned());
                    world.force_away(name);
                }
                _ => {}
            }
        }
        for _ in 0..40 {
            world.watched.pass(Duration::from_secs(700));
            world.settle();
            if world.condition("Complete").is_some() {
                break;
            }
            for name in world.pods.keys().cloned().collect::<Vec<_>>() {
                match world.pods[&name]["status"]["phase"].as_str() {
                    Some("Succeeded" | "Failed") => {}
                    _ => world.pod_is(&name, "Succeeded", 0),
                }
            }
        }
        let status = world.job["status"].clone();
        let complete = world.condition("Complete");
        let reached = Some("CompletionsReached: Reached expected number of succeeded pods".to_owned());
        assert_eq!(complete, reached, "seed {seed}: {status}");
        assert!(world.most_active <= 3, "seed {seed}: {} were active", world.most_active);
        if indexed {
            assert_eq!(world.number("succeeded"), i64::try_from(completions).unwrap(), "seed {seed}: {status}");
        } else {
            let counted = i64::try_from(world.counted.len()).unwrap();
            assert_eq!(world.number("succeeded") + world.number("failed"), counted, "seed {seed}");
            let succeeded = world.ended.iter().filter(|(_, how)| **how == "Succeeded").map(|(uid, _)| uid);
            for uid in succeeded.chain(&world.known_failed).filter(|uid| !forced.contains(*uid)) {
                assert!(world.counted.contains_key(uid), "seed {seed}: {uid} is lost: {status}");
            }
        }
        let held = world
            .pods
            .values()
            .filter(|pod| pod["metadata"]["finalizers"] == json!([super::super::job_pod::TRACKING_FINALIZER]));
        assert_eq!(held.count(), 0, "seed {seed}: nobody is held any more");
        assert!(!world.act(usize::MAX), "seed {seed}: it rests");
    }
}

/// [WL-103] [WL-125]
#[test]
fn job_without_completions_ends_with_the_first_success_and_waits_for_the_others() {
    let mut world = World::with(json!({ "parallelism": 3 }));
    world.settle();
    let names = world.active();
    assert_eq!((names.len(), world.number("active")), (3, 3));
    world.pod_is(&names[0], "Succeeded", 0);
    world.settle();
    assert_eq!(
        (world.active().len(), world.condition("SuccessCriteriaMet")),
        (2, None),
        "nobody new, and the others go on"
    );
    world.pod_is(&names[1], "Failed", 1);
    world.delete_pod(&names[2]);
    world.pass(60);
    assert!(
        world.condition("SuccessCriteriaMet").is_some() && world.condition("Complete").is_none(),
        "one still leaves"
    );
    let waiting = format!("WaitingForPods: Waiting for pod {} to end", names[2]);
    assert!(world.events.contains(&waiting), "{:?}", world.events);
    world.pod_is(&names[2], "Failed", 143);
    world.settle();
    assert!(world.condition("Complete").is_some());
    assert_eq!(world.conditions_seen, ["SuccessCriteriaMet=True", "Complete=True"]);
    assert_eq!(world.events.last().map(String::as_str), Some("Completed: Job completed"));
}

/// [WL-105]
#[test]
fn job_replaces_failures_after_ten_and_twenty_seconds_and_fails_beyond_its_limit() {
    let mut world = World::with(json!({ "completions": 1, "backoffLimit": 2 }));
    world.settle();
    for (failures, pause) in [(1, 10), (2, 20)] {
        world.pod_is(&world.active()[0].clone(), "Failed", 1);
        world.pass(pause - 1);
        assert_eq!((world.active().len(), world.number("failed")), (0, failures));
        world.pass(1);
        assert_eq!(world.active().len(), 1, "after {pause} s");
    }
    world.pod_is(&world.active()[0].clone(), "Failed", 1);
    world.settle();
    let why = "BackoffLimitExceeded: Job has reached the specified backoff limit";
    assert_eq!(world.condition("Failed").as_deref(), Some(why));
    assert_eq!((world.number("failed"), world.pods.len()), (3, 3), "they are kept for who wants to look");
    assert_eq!(world.conditions_seen, ["FailureTarget=True", "Failed=True"]);
    assert_eq!(world.events, [why]);
}

/// The pauses are those of a controller that was there all the time: the pods tell when they failed.
#[test]
fn job_controller_that_begins_anew_waits_as_long_as_the_one_before() {
    let mut world = World::with(json!({ "completions": 1 }));
    world.settle();
    world.pod_is(&world.active()[0].clone(), "Failed", 1);
    world.pass(4);
    world.restart();
    world.pass(5);
    assert_eq!(world.active().len(), 0);
    world.pass(1);
    assert_eq!(world.active().len(), 1);
}

/// [WL-106]
#[test]
fn job_that_restarts_in_place_fails_when_its_containers_were_restarted_too_often() {
    let template = json!({ "spec": { "restartPolicy": "OnFailure", "containers": [{ "name": "c" }] } });
    for (limit, restarts, fails) in [(0, 1, true), (3, 2, false), (3, 3, true)] {
        let mut world = World::with(json!({ "completions": 1, "backoffLimit": limit, "template": template }));
        world.settle();
        let name = world.active()[0].clone();
        world.pod_is(&name, "Running", 0);
        world.restarted(&name, restarts);
        world.settle();
        assert_eq!(world.condition("FailureTarget").is_some(), fails, "{limit} {restarts}");
        assert_eq!(world.active().is_empty(), fails, "the pod is asked to leave");
    }
}

/// [WL-107] [WL-108] [WL-109]
#[test]
fn job_replaces_a_pod_that_leaves_at_once_or_when_it_has_ended_as_its_policy_says() {
    let mut world = World::with(json!({ "completions": 1, "podReplacementPolicy": "TerminatingOrFailed" }));
    world.settle();
    let name = world.active()[0].clone();
    world.pod_is(&name, "Running", 0);
    world.delete_pod(&name);
    world.settle();
    assert_eq!((world.number("failed"), world.number("terminating"), world.active().len()), (1, 1, 0));
    world.pass(10);
    assert_eq!((world.active().len(), world.pods.len()), (1, 2), "two overlap");

    let spec =
        json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed", "podReplacementPolicy": "Failed" });
    let mut world = World::with(spec);
    world.settle();
    let name = world.pod_of(0);
    world.pod_is(&name, "Running", 0);
    world.delete_pod(&name);
    world.pass(600);
    assert_eq!((world.number("failed"), world.number("terminating"), world.active().len()), (0, 1, 1));
    world.pod_is(&name, "Succeeded", 0);
    world.pass(20);
    assert_eq!(world.job["status"]["completedIndexes"], "0", "it exited 0 in its grace");
    assert_eq!((world.active().len(), world.number("failed")), (1, 0));
}

/// [WL-110] [WL-118]
#[test]
fn job_fails_at_once_by_policy_and_nothing_rescues_it() {
    let rule = json!({ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } });
    let mut world = World::with(json!({ "completions": 3, "parallelism": 3, "podReplacementPolicy": "Failed",
        "podFailurePolicy": { "rules": [rule] } }));
    world.settle();
    let names = world.active();
    names.iter().for_each(|name| world.pod_is(name, "Running", 0));
    world.pod_is(&names[0], "Failed", 42);
    world.settle();
    let why = format!(
        "PodFailurePolicy: Container c for pod ns/{} failed with exit code 42 matching FailJob rule at index 0",
        names[0]
    );
    assert_eq!((world.condition("FailureTarget"), world.condition("Failed")), (Some(why.clone()), None));
    assert_eq!((world.active().len(), world.number("terminating")), (0, 2));
    world.pod_is(&names[1], "Succeeded", 0);
    world.settle();
    assert_eq!(world.condition("Failed"), None, "one still leaves");
    world.pod_is(&names[2], "Succeeded", 0);
    world.settle();
    assert_eq!(world.condition("Failed"), Some(why));
}

/// [WL-111]
#[test]
fn job_does_not_count_what_its_policy_ignores() {
    let rule = json!({ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] });
    let mut world = World::with(json!({ "completions": 1, "backoffLimit": 0, "podReplacementPolicy": "Failed",
        "podFailurePolicy": { "rules": [rule] } }));
    world.settle();
    let name = world.active()[0].clone();
    world.pod_is(&name, "Running", 0);
    world.pod_is(&name, "Failed", 137);
    world.pod_has(&name, "DisruptionTarget");
    world.pass(10);
    assert_eq!((world.number("failed"), world.active().len(), world.condition("FailureTarget")), (0, 1, None));
    assert!(world.pods[&name]["metadata"]["finalizers"].as_array().unwrap().is_empty());
}

/// [WL-104] [WL-112] [WL-113]
#[test]
fn indexed_job_counts_failures_of_each_index_across_a_crash() {
    let mut world = World::with(json!({ "completions": 4, "parallelism": 4, "completionMode": "Indexed",
        "backoffLimit": i32::MAX, "backoffLimitPerIndex": 1 }));
    world.settle();
    for index in [0, 2] {
        world.pod_is(&world.pod_of(index).clone(), "Succeeded", 0);
    }
    for index in [1, 3] {
        world.pod_is(&world.pod_of(index).clone(), "Failed", 1);
    }
    world.settle();
    assert_eq!(world.job["status"]["completedIndexes"], "0,2");
    let held = |world: &World| world.pods.values().filter(|pod| pod["metadata"]["finalizers"][0].is_string()).count();
    assert_eq!((world.number("failed"), held(&world)), (0, 2), "they carry the count until they have successors");
    world.restart();
    world.pass(10);
    for index in [1, 3] {
        let name = world.pod_of(index);
        assert_eq!(world.pods[&name]["metadata"]["annotations"][super::super::job_pod::INDEX_FAILURES], "1");
        world.pod_is(&name, "Failed", 1);
    }
    world.settle();
    let status = &world.job["status"];
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"]), (&json!("1,3"), &json!("0,2")));
    assert_eq!((world.number("failed"), world.number("succeeded"), held(&world)), (4, 2, 0));
    assert_eq!(world.condition("Failed").as_deref(), Some("FailedIndexes: Job has failed indexes"));
}

#[test]
fn indexed_job_fails_beyond_its_failed_indexes_and_by_fail_index() {
    let rule =
        json!({ "action": "FailIndex", "onExitCodes": { "operator": "NotIn", "values": [1], "containerName": "c" } });
    let mut world = World::with(json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "backoffLimit": i32::MAX, "backoffLimitPerIndex": 5, "maxFailedIndexes": 0, "podReplacementPolicy": "Failed",
        "podFailurePolicy": { "rules": [rule] } }));
    world.settle();
    world.pod_is(&world.pod_of(1).clone(), "Failed", 7);
    world.settle();
    assert_eq!(world.job["status"]["failedIndexes"], "1");
    let why = world.condition("FailureTarget");
    let expected = "MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes";
    assert_eq!((why.as_deref(), world.active().len()), (Some(expected), 0));
}

/// [WL-114]
#[test]
fn indexed_job_succeeds_by_policy_and_the_others_are_asked_to_leave() {
    let mut world = World::with(json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "successPolicy": { "rules": [{ "succeededIndexes": "1-2", "succeededCount": 1 }] } }));
    world.settle();
    let others = [world.pod_of(1), world.pod_of(2)];
    world.pod_is(&world.pod_of(0).clone(), "Succeeded", 0);
    world.settle();
    assert_eq!(world.condition("SuccessCriteriaMet"), None);
    world.pod_is(&others[0], "Succeeded", 0);
    world.settle();
    let why = Some("SuccessPolicy: Matched rules at index 0".to_owned());
    assert_eq!((world.condition("SuccessCriteriaMet"), world.condition("Complete")), (why.clone(), None));
    assert!(world.pods[&others[1]]["metadata"]["deletionTimestamp"].is_string());
    world.pod_is(&others[1], "Failed", 143);
    world.settle();
    assert_eq!((world.condition("Complete"), world.number("failed"), world.number("succeeded")), (why, 0, 2));
}

/// [WL-115] [WL-116]
#[test]
fn suspended_job_ends_its_pods_uncounted_and_begins_anew_when_resumed() {
    for (policy, overlap) in [("TerminatingOrFailed", 3), ("Failed", 0)] {
        let mut world = World::with(json!({ "completions": 3, "parallelism": 3, "podReplacementPolicy": policy,
            "activeDeadlineSeconds": 100 }));
        world.settle();
        let names = world.active();
        names.iter().for_each(|name| world.pod_is(name, "Running", 0));
        world.settle();
        world.change_job(|job| job["spec"]["suspend"] = true.into());
        world.pass(200);
        assert_eq!((world.active().len(), world.number("terminating"), world.number("failed")), (0, 3, 0), "{policy}");
        assert_eq!(world.condition("Suspended").as_deref(), Some("JobSuspended: Job suspended"));
        assert!(world.job["status"]["startTime"].is_null());
        world.change_job(|job| job["spec"]["suspend"] = false.into());
        world.settle();
        assert_eq!((world.active().len(), world.condition("Suspended")), (overlap, None), "{policy}");
        assert!(world.job["status"]["startTime"].is_string());
        names.iter().for_each(|name| world.pod_is(name, "Failed", 143));
        world.pass(99);
        assert_eq!((world.active().len(), world.number("failed"), world.condition("FailureTarget")), (3, 0, None));
        world.pass(1);
        assert!(world.condition("FailureTarget").unwrap().starts_with("DeadlineExceeded"), "it counts from the resume");
        assert_eq!(world.events[..2], ["Suspended: Job suspended", "Resumed: Job resumed"]);
    }
}

/// [WL-117]
#[test]
fn job_that_was_active_for_too_long_ends_its_pods_and_fails() {
    let mut world = World::with(json!({ "completions": 2, "parallelism": 2, "activeDeadlineSeconds": 60 }));
    world.settle();
    let names = world.active();
    world.pass(59);
    assert_eq!((world.active().len(), world.condition("FailureTarget")), (2, None));
    world.pass(1);
    let why = "DeadlineExceeded: Job was active longer than specified deadline";
    assert_eq!((world.condition("FailureTarget").as_deref(), world.condition("Failed")), (Some(why), None));
    assert_eq!((world.active().len(), world.number("terminating")), (0, 2));
    names.iter().for_each(|name| world.pod_is(name, "Failed", 143));
    world.settle();
    assert_eq!((world.condition("Failed").as_deref(), world.number("failed")), (Some(why), 2));
}

/// [WL-120]
#[test]
fn job_counts_at_most_five_hundred_pods_in_one_write() {
    let mut world = World::with(json!({ "completions": 600, "parallelism": 600 }));
    world.settle();
    let names = world.active();
    assert_eq!(names.len(), 600);
    names.iter().for_each(|name| world.pod_is(name, "Succeeded", 0));
    world.hear_all();
    world.act(1);
    let listed = world.job["status"]["uncountedTerminatedPods"]["succeeded"].as_array().unwrap().len();
    assert_eq!(listed, UNCOUNTED_MAX);
    world.settle();
    assert_eq!((world.number("succeeded"), world.condition("Complete").is_some()), (600, true));
}

/// [WL-124]
#[test]
fn job_that_is_scaled_down_takes_the_pods_that_got_least_far_and_does_not_count_them() {
    let mut world = World::with(json!({ "completions": 9, "parallelism": 5 }));
    world.settle();
    let names = world.active();
    names[..2].iter().for_each(|name| world.pod_is(name, "Running", 0));
    world.settle();
    world.change_job(|job| job["spec"]["parallelism"] = 2.into());
    world.settle();
    assert_eq!((world.active(), world.number("failed"), world.number("terminating")), (names[..2].to_vec(), 0, 3));
    names[2..].iter().for_each(|name| world.pod_is(name, "Failed", 143));
    world.change_job(|job| job["spec"]["parallelism"] = 3.into());
    world.settle();
    assert_eq!((world.active().len(), world.number("failed")), (3, 0), "and nobody waits for them");
}

/// [WL-122] [WL-123] [WL-126] in part: whose pods are whose.
#[test]
fn job_adopts_and_releases_pods_and_lets_go_those_that_nobody_has() {
    let mut world = World::with(json!({ "completions": 2, "parallelism": 2 }));
    world.stray("stray", json!([]));
    world.settle();
    assert_eq!(world.pods.len(), 2, "it takes in what it selects before it creates");
    assert_eq!(world.pods["stray"]["metadata"]["ownerReferences"][0]["uid"], "job");
    let tracked = json!([super::super::job_pod::TRACKING_FINALIZER]);
    assert_eq!(world.pods["stray"]["metadata"]["finalizers"], tracked);
    // A Job that is gone leaves nobody behind who cannot go.
    let job = Arc::new(serde_json::from_value(world.job.clone()).unwrap());
    let keys = [key()];
    world.watched.tell(Input::Jobs(WatchUpdate::Removed(job)), keys, 0);
    assert!(world.act(usize::MAX));
    assert!(world.pods.values().all(|pod| pod["metadata"]["finalizers"] == json!([])));

    let mut world = World::with(json!({ "completions": 1, "managedBy": "example.com/other" }));
    world.stray("orphan", tracked);
    world.settle();
    assert_eq!((world.pods.len(), &world.job["status"]), (1, &json!({})), "another program's");
    assert_eq!(world.pods["orphan"]["metadata"]["finalizers"], json!([]), "nobody will count it");
}

#[test]
fn job_whose_pods_are_refused_still_reports_and_asks_again_later() {
    let mut world = World::with(json!({ "completions": 1 }));
    world.refuses = true;
    world.settle();
    assert_eq!((world.number("active"), world.job["status"]["startTime"].is_string()), (0, true));
    world.refuses = false;
    world.pass(1);
    assert_eq!(world.number("active"), 1);
}

#[test]
fn indexed_job_ends_the_second_pod_of_an_index_and_those_beyond() {
    let mut world = World::with(json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed" }));
    world.settle();
    world.change_job(|job| {
        job["spec"]["completions"] = 2.into();
        job["spec"]["parallelism"] = 2.into();
    });
    world.settle();
    assert_eq!(world.active().len(), 2);
    assert!(world.active().iter().all(|name| !name.starts_with("sum-2-")), "{:?}", world.active());
}

/// What is written on a pod can be edited; its name cannot.
#[test]
fn indexed_job_never_uses_a_name_again_whatever_its_pods_are_annotated_with() {
    let mut world = World::with(json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed" }));
    world.settle();
    let first = world.pod_of(0);
    world.annotate(&first, "batch.kubernetes.io/job-completion-index", "7");
    world.restart();
    world.settle();
    let names: BTreeSet<String> = world.pods.keys().cloned().collect();
    assert!(names.len() > 2, "a pod of no index is none of this Job's indexes: another was made: {names:?}");
    assert!(names.contains(&first));
}

/// An owner is in the namespace of what it owns, whatever a reference says.
#[test]
fn job_lets_go_pods_of_other_namespaces_that_name_it_and_learns_nothing_from_them() {
    let mut world = World::with(json!({ "completions": 1, "parallelism": 1 }));
    world.settle();
    let reference =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "job", "controller": true }]);
    let foreign = |phase: &str| -> Arc<PodView> {
        let metadata = json!({ "name": "sum-x7k2q", "namespace": "other", "uid": "foreign", "labels": { "job": "sum" },
            "ownerReferences": reference, "finalizers": [super::super::job_pod::TRACKING_FINALIZER] });
        let ended = json!([{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": 1,
            "finishedAt": "2027-01-15T08:00:00Z" } } }]);
        Arc::new(
            serde_json::from_value(json!({ "metadata": metadata,
            "status": { "phase": phase, "containerStatuses": ended } }))
            .unwrap(),
        )
    };
    let left_over = Key::LeftOver("other".into(), "job".into());
    let controller = &mut world.watched.controller;
    let woken = controller.observe(world.watched.now, Input::Pods(WatchUpdate::Changed(foreign("Failed"))));
    assert_eq!(woken, std::slice::from_ref(&left_over));
    let actions = controller.plan(&left_over, world.watched.now).actions;
    let [Action::FreeIfGone { owner, pods }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((&*owner.namespace, &*pods[0].pod.name), ("other", "sum-x7k2q"));
    assert!(controller.tracked("ns", &"job".into()).iter().all(|(_, pod)| *pod.namespace == *"ns"));
    controller.observe(world.watched.now, Input::Pods(WatchUpdate::Removed(foreign("Failed"))));
    assert!(
        format!("{:?}", controller.memory["job"].gone).contains("failed: []"),
        "{:?}",
        controller.memory["job"].gone
    );
    assert!(controller.plan(&left_over, world.watched.now).actions.is_empty());
}
