//! Budgets, pods and workloads in any order.
#![allow(clippy::unwrap_used, reason = "tests")]

use frame::{Controller as _, Outcome};
use serde_json::{Value, json};

use super::*;
use crate::woken::{Dice, Watched};

const SECOND: Duration = Duration::from_secs(1);

fn budget(name: &str, spec: Value, status: Value) -> Arc<PodDisruptionBudget> {
    let mut budget = json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "generation": 1 },
        "spec": spec, "status": status });
    budget["spec"]["selector"] = json!({ "matchLabels": { "app": name } });
    Arc::new(serde_json::from_value(budget).unwrap())
}

fn pod(name: &str, app: &str, owner: &str, conditions: Value) -> Arc<PodView> {
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true });
    Arc::new(
        serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "ns", "uid": name,
            "labels": { "app": app }, "ownerReferences": [owner] }, "status": { "conditions": conditions } }))
        .unwrap(),
    )
}

fn replica_set(name: &str, replicas: usize) -> Arc<DynamicObject> {
    Arc::new(
        serde_json::from_value(json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": name, "namespace": "ns", "uid": name }, "spec": { "replicas": replicas } }))
        .unwrap(),
    )
}

fn empty() -> Value {
    json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 })
}

fn keys() -> Vec<Key> {
    let budgets = ["a", "b"].map(|name| Key::Budget(name.into()));
    let pods = ["p0", "p1", "p2", "p3", "p4"].map(|name| Key::Pod(name.into()));
    budgets.into_iter().chain(pods).collect()
}

/// Writes what is to be written, which is told like anything else. Answers how much that was.
fn write_counts(watched: &mut Watched<Disruption>, seed: u64) -> usize {
    let mut written = 0;
    for key in ["a", "b"].map(|name| Key::Budget(name.into())) {
        for action in watched.controller.plan(&key, watched.now).actions {
            let Action::Count { budget, status: Some(status), .. } = action else { continue };
            let budget = PodDisruptionBudget { status: Some(*status), ..(*budget).clone() };
            watched.tell(Input::Budgets(WatchUpdate::Changed(Arc::new(budget))), keys(), seed);
            written += 1;
        }
    }
    written
}

/// For any order of facts: a budget whose count is wrong and a pod that only looks disrupted were woken, or wake in time.
#[test]
fn disruption_wakes_every_budget_that_is_to_be_counted_and_every_pod_that_was_spared() {
    let mut acted = 0;
    for seed in 1..=200 {
        let (mut dice, mut watched) = (Dice::new(seed), Watched::new(Disruption::default()));
        // All of them are followed; whoever is asked answers for a while, which is another matter.
        let sets = vec![replica_set("r0", 1), replica_set("r1", 2)];
        watched.tell(Input::Workloads("replicasets", WatchUpdate::Listed(sets)), keys(), seed);
        for _ in 0..60 {
            let since = watched.now.timestamp.to_string();
            let conditions = match dice.roll(3) {
                0 => json!([{ "type": "Ready", "status": "True" }]),
                1 => json!([{ "type": "DisruptionTarget", "status": "True", "lastTransitionTime": since }]),
                _ => json!([]),
            };
            let name = format!("p{}", dice.roll(5));
            let pod = pod(&name, dice.pick(&["a", "b", "other"]), dice.pick(&["r0", "r1"]), conditions);
            let spec = dice.pick(&["minAvailable", "maxUnavailable"]);
            let mut status = empty();
            if dice.flip() {
                status["disruptedPods"] = json!({ format!("p{}", dice.roll(5)): since });
            }
            let budget = budget(dice.pick(&["a", "b"]), json!({ spec: 1 }), status);
            let replica_set = replica_set(dice.pick(&["r0", "r1"]), dice.roll(4));
            let input = match dice.roll(8) {
                0..=2 => Input::Pods(WatchUpdate::Changed(pod)),
                3 => Input::Pods(WatchUpdate::Removed(pod)),
                4 => Input::Budgets(WatchUpdate::Changed(budget)),
                5 => Input::Budgets(WatchUpdate::Removed(budget)),
                6 => Input::Workloads("replicasets", WatchUpdate::Changed(replica_set)),
                _ => Input::Workloads("replicasets", WatchUpdate::Changed(replica_set)),
            };
            watched.tell(input, keys(), seed);
            acted += write_counts(&mut watched, seed);
            watched.pass(SECOND * u32::try_from(dice.roll(4) * 20).unwrap());
        }
    }
    assert!(acted > 1000, "the dice never asked for anything: {acted}");
}

#[test]
fn disruption_asks_workloads_it_does_not_follow_before_it_counts() {
    let Watched { mut controller, mut now, .. } = Watched::new(Disruption::default());
    controller.observe(
        now,
        Input::Pods(WatchUpdate::Listed(vec![pod("p0", "a", "r0", json!([])), pod("p1", "a", "r0", json!([]))])),
    );
    controller
        .observe(now, Input::Budgets(WatchUpdate::Listed(vec![budget("a", json!({ "maxUnavailable": 1 }), empty())])));
    let key = Key::Budget("a".into());
    let asked = controller.plan(&key, now).actions;
    let [question @ Action::Ask { owner, .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(owner.uid, "r0", "once for both pods");
    let answer = Outcome::Done(Answer::Replicas(Ok(5)));
    assert_eq!(controller.ended(now, &key, question.clone(), answer), std::slice::from_ref(&key));
    let counted = controller.plan(&key, now).actions;
    let [Action::Count { status: Some(status), .. }] = &counted[..] else { panic!("{counted:?}") };
    assert_eq!(status.expected_pods, Some(5));
    // An answer is not believed for ever, nor beyond the next change.
    now.instant += ANSWER_LIFE;
    assert!(matches!(controller.plan(&key, now).actions[..], [Action::Ask { .. }]));
    now.instant -= ANSWER_LIFE;
    controller.observe(now, Input::Pods(WatchUpdate::Removed(pod("p1", "a", "r0", json!([])))));
    assert!(matches!(controller.plan(&key, now).actions[..], [Action::Ask { .. }]));
}
