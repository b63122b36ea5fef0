//! Budgets in numbers.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

fn at(clock: &str) -> Timestamp {
    format!("2026-01-01T{clock}Z").parse().unwrap()
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    serde_json::from_value(json!({ "metadata": { "name": "b", "generation": 3 }, "spec": spec, "status": status }))
        .unwrap()
}

fn empty() -> Value {
    json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 })
}

fn pods(ready: usize, others: usize) -> Vec<Selected<'static>> {
    const NAMES: [&str; 8] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];
    (0..ready + others).map(|n| Selected { name: NAMES[n], ready: n < ready, leaving: false }).collect()
}

/// expectedPods, desiredHealthy, currentHealthy, disruptionsAllowed.
fn counts(spec: Value, pods: &[Selected<'_>], expected: i64) -> (i32, i32, i32, i32) {
    let status = plan(&budget(spec, empty()), pods, &Expected::Pods(expected), at("10:00:00")).status;
    let [a, b, c, d] =
        [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed]
            .map(Option::unwrap);
    (a, b, c, d)
}

#[test]
fn numbers_and_shares_are_counted_as_upstream_does() {
    assert_eq!(counts(json!({ "minAvailable": 2 }), &pods(3, 1), 9), (4, 2, 3, 1), "a number needs no scale");
    assert_eq!(counts(json!({ "minAvailable": "50%" }), &pods(3, 0), 5), (5, 3, 3, 0), "rounded up");
    assert_eq!(counts(json!({ "maxUnavailable": 1 }), &pods(3, 1), 4), (4, 3, 3, 0));
    assert_eq!(counts(json!({ "maxUnavailable": "34%" }), &pods(3, 0), 3), (3, 1, 3, 2), "rounded up too");
    assert_eq!(counts(json!({ "maxUnavailable": 9 }), &pods(3, 0), 3), (3, 0, 3, 3));
    assert_eq!(counts(json!({}), &pods(3, 0), 3), (0, 0, 3, 0));
    assert_eq!(counts(json!({ "minAvailable": 5 }), &pods(3, 0), 3), (3, 5, 3, 0), "never less than none");
}

#[test]
fn pods_that_leave_or_were_let_go_do_not_count() {
    let mut some = pods(4, 0);
    some[0].leaving = true;
    let status = json!({ "currentHealthy": 4, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 4,
        "disruptedPods": { "p0": "2026-01-01T09:59:00Z", "p1": "2026-01-01T09:59:00Z", "p2": "2026-01-01T09:58:00Z",
            "gone": "2026-01-01T09:59:00Z" } });
    let verdict = plan(&budget(json!({ "minAvailable": 1 }), status), &some, &Expected::Pods(0), at("10:00:00"));
    let kept: Vec<_> = verdict.status.disrupted_pods.unwrap().into_keys().collect();
    assert_eq!(kept, ["p1"], "p0 is leaving, p2 was not deleted in time, one is gone");
    assert_eq!((verdict.status.current_healthy, verdict.status.disruptions_allowed), (Some(2), Some(1)));
    assert_eq!(verdict.again_at, Some(at("10:01:00")));
    assert_eq!(verdict.not_deleted, ["p2"]);
}

#[test]
fn a_budget_that_cannot_be_counted_allows_nothing_and_says_why() {
    let before = json!({ "currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2, "expectedPods": 3 });
    let why = Expected::Unknown("jobs.batch does not implement the scale subresource".to_owned());
    let verdict = plan(&budget(json!({ "maxUnavailable": 1 }), before), &pods(3, 0), &why, at("10:00:00"));
    let condition = &verdict.status.conditions.unwrap()[0];
    assert_eq!(verdict.status.disruptions_allowed, Some(0));
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "SyncFailed"));
    assert_eq!(condition.message, "jobs.batch does not implement the scale subresource");
    assert_eq!(verdict.status.observed_generation, Some(3));
}

#[test]
fn a_condition_keeps_its_time_until_it_turns() {
    let spec = || json!({ "minAvailable": 1 });
    let first = plan(&budget(spec(), empty()), &pods(2, 0), &Expected::Pods(0), at("10:00:00")).status;
    let again = budget(spec(), serde_json::to_value(&first).unwrap());
    let second = plan(&again, &pods(2, 0), &Expected::Pods(0), at("11:00:00")).status;
    assert_eq!(first, second, "nothing to write");
    let third = plan(&again, &pods(1, 0), &Expected::Pods(0), at("12:00:00")).status;
    let condition = &third.conditions.unwrap()[0];
    assert_eq!((condition.reason.as_str(), condition.last_transition_time.0), ("InsufficientPods", at("12:00:00")));
}
