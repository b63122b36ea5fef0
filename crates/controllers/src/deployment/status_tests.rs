//! Conditions and counts as `kubectl rollout status` reads them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::fixtures::{Set, deployment, family, set, views};
use super::super::view::DeploymentView;
use super::*;

const CALM: Circumstances<'static> = Circumstances { waits_for: None, failure: None, progress: None };

fn now() -> Now {
    Now {
        instant: Instant::now() + Duration::from_secs(100_000),
        timestamp: Timestamp::from_second(1_800_000_000).unwrap(),
    }
}

fn later(now: Now, seconds: u64) -> Now {
    let by = Duration::from_secs(seconds);
    Now { instant: now.instant + by, timestamp: now.timestamp + by }
}

/// A Deployment of three, at the revision of its set, whose condition says this since `at`.
fn progressing(reason: &str, at: Timestamp, status: Value, spec: Value) -> DeploymentView {
    let condition = json!({ "type": "Progressing", "status": "True", "reason": reason, "message": "before",
        "lastUpdateTime": at.to_string(), "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let mut extra = json!({ "metadata": { "annotations": { REVISION: "1" } }, "spec": spec, "status": status });
    extra["status"]["conditions"] = json!([condition]);
    deployment(3, &extra)
}

fn reported(web: &DeploymentView, sets: &[Set], circumstances: Circumstances<'_>, now: Now) -> Report {
    report(&family(web, &views(sets)), circumstances, now)
}

fn condition(report: &Report, kind: &str) -> (String, String, String) {
    let found = find(&report.status.conditions, kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn reason(report: &Report) -> String {
    condition(report, PROGRESSING).1
}

/// Since when the condition on progress was said.
fn since(web: &DeploymentView, now: Now) -> Option<Since> {
    find(&web.status.conditions, PROGRESSING).and_then(conditions::updated).map(|stamp| Since::heard(stamp, None, now))
}

#[test]
fn deployment_status_counts_over_all_its_sets() {
    let web = deployment(10, &json!({ "metadata": { "generation": 7 } }));
    let mut old = set("old", 8, 8);
    old.terminating = Some(2);
    let mut new = set("new", 5, 3);
    new.replicas = 4;
    let status = reported(&web, &[old.clone(), new.clone()], CALM, now()).status;
    assert_eq!((status.observed_generation, status.replicas, status.updated_replicas), (7, 12, 4));
    assert_eq!((status.available_replicas, status.unavailable_replicas), (11, 2), "asked for, less those available");
    assert_eq!(status.terminating_replicas, Some(2));
    old.terminating = None;
    assert_eq!(reported(&web, &[old.clone(), new.clone()], CALM, now()).status.terminating_replicas, None);
    old.unheard = 9;
    assert_eq!(
        reported(&web, &[old, new], CALM, now()).status.terminating_replicas,
        Some(0),
        "nobody has looked at it"
    );
}

/// [WL-27]
#[test]
fn deployment_conditions_follow_a_rollout_from_its_first_set_to_the_last_pod() {
    let now = now();
    let web = deployment(3, &json!({}));
    let first = reported(&web, &[set("new", 3, 0)], CALM, now);
    assert_eq!(condition(&first, "Progressing").2, "Created new replica set \"new\"");
    assert_eq!((reason(&first).as_str(), first.revision.as_deref()), ("NewReplicaSetCreated", Some("1")));
    let unavailable =
        ("False".into(), "MinimumReplicasUnavailable".into(), "Deployment does not have minimum availability.".into());
    assert_eq!(condition(&first, "Available"), unavailable);

    let web = progressing("NewReplicaSetCreated", now.timestamp, json!({}), json!({}));
    let progress = Circumstances { progress: since(&web, now), ..CALM };
    let going = reported(&web, &[set("new", 3, 1)], progress, later(now, 9));
    let updated = ("True".into(), "ReplicaSetUpdated".into(), "ReplicaSet \"new\" is progressing.".into());
    assert_eq!(condition(&going, "Progressing"), updated);
    let found = find(&going.status.conditions, PROGRESSING).unwrap();
    assert_eq!(found["lastUpdateTime"], crate::replicas::controller::stamp(later(now, 9).timestamp));
    assert_eq!(found["lastTransitionTime"], "2026-01-01T00:00:00Z");

    let done = reported(&web, &[set("new", 3, 3)], progress, later(now, 9));
    let available =
        ("True".into(), "NewReplicaSetAvailable".into(), "ReplicaSet \"new\" has successfully progressed.".into());
    assert_eq!(condition(&done, "Progressing"), available);
    assert_eq!(condition(&done, "Available").1, "MinimumReplicasAvailable");

    // An orphan of another time with the same template was taken in.
    let mut older = set("new", 3, 0);
    older.extra = json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } });
    let found = reported(&deployment(3, &json!({})), &[older], CALM, now);
    assert_eq!(condition(&found, "Progressing").2, "Found new replica set \"new\"");
}

/// [WL-40] [WL-42]
#[test]
fn progress_deadline_is_counted_from_the_last_progress_by_a_clock_that_only_goes_forward() {
    let now = now();
    let status = json!({ "replicas": 3, "updatedReplicas": 1 });
    let web = progressing("ReplicaSetUpdated", now.timestamp, status, json!({ "progressDeadlineSeconds": 60 }));
    let mut web = web;
    web.status.conditions[0]["message"] = json!("ReplicaSet \"new\" is progressing.");
    let sets = [set("old", 2, 2), set("new", 1, 0)];
    web.status.ready_replicas = 2;
    web.status.available_replicas = 2;
    let known = Circumstances { progress: since(&web, now), ..CALM };
    let early = reported(&web, &sets, known, later(now, 59));
    assert_eq!(reason(&early), "ReplicaSetUpdated");
    assert_eq!(early.wake.unwrap().at, now.instant + Duration::from_secs(60));
    let mut moved = later(now, 59);
    moved.timestamp += Duration::from_secs(3600);
    assert_eq!(reason(&reported(&web, &sets, known, moved)), "ReplicaSetUpdated", "somebody set the wall clock");
    let late = reported(&web, &sets, known, later(now, 61));
    let exceeded =
        ("False".into(), "ProgressDeadlineExceeded".into(), "ReplicaSet \"new\" has timed out progressing.".into());
    assert_eq!(condition(&late, "Progressing"), exceeded);

    let timed_out = |status: Value| progressing("ProgressDeadlineExceeded", now.timestamp, status, json!({}));
    let stands = timed_out(json!({ "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2 }));
    assert_eq!(reason(&reported(&stands, &sets, known, later(now, 70))), "ProgressDeadlineExceeded");
    assert_eq!(
        reason(&reported(&timed_out(json!({ "replicas": 3 })), &sets, known, later(now, 70))),
        "ReplicaSetUpdated"
    );
    let unlimited =
        progressing("ReplicaSetUpdated", now.timestamp, json!({}), json!({ "progressDeadlineSeconds": i32::MAX }));
    assert!(find(&reported(&unlimited, &sets, known, now).status.conditions, PROGRESSING).is_none());
}

/// [WL-41] [TR-77]
#[test]
fn progress_of_a_finished_rollout_is_not_counted_again() {
    let now = now();
    let status = json!({ "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3 });
    let web = progressing("NewReplicaSetAvailable", now.timestamp, status, json!({}));
    let known = Circumstances { progress: since(&web, now), ..CALM };
    let mut draining = set("old", 0, 0);
    draining.terminating = Some(3);
    let crashed = reported(&web, &[draining, set("new", 3, 0)], known, later(now, 9000));
    assert_eq!((reason(&crashed).as_str(), crashed.wake), ("NewReplicaSetAvailable", None));
    assert_eq!(condition(&crashed, "Available").0, "False");
    let mut grown = set("new", 5, 3);
    grown.replicas = 3;
    assert_eq!(reason(&reported(&web, &[grown], known, later(now, 9000))), "NewReplicaSetAvailable");
}

/// [WL-36]
#[test]
fn pause_and_resume_are_told_and_restart_the_clock() {
    let now = now();
    let paused = progressing("ReplicaSetUpdated", now.timestamp, json!({}), json!({ "paused": true }));
    let told = reported(&paused, &[set("new", 1, 0)], CALM, now);
    assert_eq!(
        condition(&told, "Progressing"),
        ("Unknown".into(), "DeploymentPaused".into(), "Deployment is paused".into())
    );
    let late = progressing("ProgressDeadlineExceeded", now.timestamp, json!({}), json!({ "paused": true }));
    assert_eq!(reason(&reported(&late, &[set("new", 1, 0)], CALM, now)), "ProgressDeadlineExceeded");
    let resumed = progressing("DeploymentPaused", now.timestamp, json!({}), json!({}));
    let told = reported(&resumed, &[set("new", 1, 0)], CALM, later(now, 5000));
    assert_eq!(
        condition(&told, "Progressing"),
        ("Unknown".into(), "DeploymentResumed".into(), "Deployment is resumed".into())
    );
    let status = json!({ "replicas": 1, "updatedReplicas": 1 });
    let going = progressing("DeploymentResumed", later(now, 5000).timestamp, status, json!({}));
    let known = Circumstances { progress: since(&going, later(now, 5000)), ..CALM };
    let told = reported(&going, &[set("new", 1, 0)], known, later(now, 5001));
    assert_eq!(told.wake.unwrap().at, now.instant + Duration::from_secs(5600));
}

/// [WL-43]
#[test]
fn recreate_that_waits_for_old_pods_says_so_and_its_clock_stands() {
    let now = now();
    let waits = |count| Circumstances { waits_for: Some(OldPods { count, grace: 900 }), ..CALM };
    let mut draining = set("old", 0, 0);
    draining.terminating = Some(2);
    let status = json!({ "replicas": 3, "updatedReplicas": 3 });
    let web = progressing("NewReplicaSetAvailable", now.timestamp, status, json!({}));
    let told = reported(&web, &[draining.clone()], waits(2), now);
    let message = "Deployment \"web\" is waiting for 2 pods of former revisions to end, for at most 900s each.";
    assert_eq!(condition(&told, "Progressing"), ("True".into(), "ReplicaSetUpdated".into(), message.into()));
    let mut web = web;
    web.status = told.status;
    let known = Circumstances { progress: since(&web, now), ..waits(2) };
    let standing = reported(&web, &[draining.clone()], known, later(now, 700));
    assert_eq!((standing.status, standing.wake), (web.status.clone(), None));
    // The last one has ended: the time of the rollout begins.
    let over = reported(&web, &[set("old", 0, 0)], Circumstances { waits_for: None, ..known }, later(now, 700));
    let found = find(&over.status.conditions, PROGRESSING).unwrap();
    assert_eq!(found["message"], "Deployment \"web\" is progressing.");
    assert_eq!(found["lastUpdateTime"], crate::replicas::controller::stamp(later(now, 700).timestamp));
}

/// [WL-50]
#[test]
fn failures_of_sets_and_foreign_conditions_are_shown() {
    let now = now();
    let failed = |message: &str| {
        let mut set = set("new", 3, 0);
        let condition = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        set.extra = json!({ "status": { "conditions": [condition] } });
        set
    };
    let mut web = deployment(3, &json!({ "status": { "conditions": [{ "type": "Mine", "status": "True" }] } }));
    let told = reported(&web, &[failed("exceeded quota")], CALM, now);
    assert_eq!(condition(&told, "ReplicaFailure"), ("True".into(), "FailedCreate".into(), "exceeded quota".into()));
    assert_eq!(condition(&told, "Mine").0, "True");
    web.status = told.status;
    let other = reported(&web, &[failed("another quota")], CALM, now);
    assert_eq!(condition(&other, "ReplicaFailure").2, "another quota", "the latest is told");
    let well = reported(&web, &[set("new", 3, 0)], CALM, now);
    assert!(find(&well.status.conditions, REPLICA_FAILURE).is_none());
    let refused = reported(&web, &[], Circumstances { failure: Some("Failed to create"), ..CALM }, now);
    assert_eq!(
        condition(&refused, "Progressing"),
        ("False".into(), "ReplicaSetCreateError".into(), "Failed to create".into())
    );
}
