//! Sets and pods in any order.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::btree_map::Entry;

use frame::Controller as _;

use super::*;
use crate::woken::{Dice, Watched};

fn set(replicas: i32, generation: i64, status: Value) -> Arc<ReplicaSetView> {
    let set = json!({ "metadata": { "name": "web", "namespace": "ns", "uid": "set", "generation": generation, "resourceVersion": "1" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": {} } }, "status": status });
    Arc::new(serde_json::from_value(set).unwrap())
}

fn pod(name: &str, phase: &str, leaves: bool, owned: bool) -> Arc<PodView> {
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true }]);
    let pod = json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": { "app": "web" },
            "ownerReferences": if owned { owner } else { json!([]) },
            "deletionTimestamp": leaves.then_some("2026-01-01T00:00:00Z") },
        "status": { "phase": phase } });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn keys() -> [Key; 2] {
    [Key::Pods("set".into()), Key::Status("set".into())]
}

/// [WL-21] [WL-22] [WL-23] Whatever is created, lost, repeated or seen late: in the end there are as many pods as asked for, and a
/// create that was not seen yet is repeated under the same names.
#[test]
fn replicas_converge_whatever_order_pods_are_seen_in() {
    for seed in 1..=200 {
        let (mut dice, mut watched) = (Dice::new(seed), Watched::new(Replicas::new(SetKind::ReplicaSet)));
        let mut stored: BTreeMap<String, Arc<PodView>> = BTreeMap::new();
        let mut unseen: Vec<Arc<PodView>> = Vec::new();
        let mut replicas = 3;
        watched.tell(Input::Sets(WatchUpdate::Changed(set(replicas, 1, json!({})))), keys(), seed);
        for step in 0..60 {
            let calm = step >= 30;
            if !calm && dice.roll(5) == 0 {
                replicas = i32::try_from(dice.roll(6)).unwrap();
                watched.tell(Input::Sets(WatchUpdate::Changed(set(replicas, step, json!({})))), keys(), seed);
            }
            if !calm && dice.roll(6) == 0 && !stored.is_empty() {
                let name = stored.keys().nth(dice.roll(stored.len())).unwrap().clone();
                let changed = pod(&name, dice.pick(&["Running", "Failed"]), dice.flip(), true);
                stored.insert(name, Arc::clone(&changed));
                unseen.push(changed);
            }
            for action in watched.controller.plan(&keys()[0], watched.now).actions {
                match action {
                    Action::Create { names, .. } => {
                        for name in names {
                            // One that is there already is the one that was meant.
                            let Entry::Vacant(free) = stored.entry(name.clone()) else { continue };
                            unseen.push(Arc::clone(free.insert(pod(&name, "Pending", false, true))));
                        }
                    }
                    Action::Delete { pods, .. } => {
                        for victim in pods {
                            let leaving = pod(&victim.name, "Running", true, true);
                            stored.insert(victim.name, Arc::clone(&leaving));
                            unseen.push(leaving);
                        }
                    }
                    Action::Claim { .. } | Action::Report { .. } => panic!("nothing to claim"),
                }
            }
            let late = if calm { 0 } else { dice.roll(unseen.len() + 1) };
            for seen in unseen.drain(late..).collect::<Vec<_>>() {
                for _ in 0..=dice.roll(2) {
                    watched.tell(Input::Pods(WatchUpdate::Changed(Arc::clone(&seen))), keys(), seed);
                }
            }
            if dice.roll(10) == 0 || calm {
                unseen.clear();
                watched.tell(Input::Pods(WatchUpdate::Listed(stored.values().cloned().collect())), keys(), seed);
            }
        }
        let active = stored.values().filter(|pod| PodFacts::of(pod, None, watched.now).is_active()).count();
        assert_eq!(i32::try_from(active).unwrap(), replicas, "seed {seed}");
        assert!(watched.controller.plan(&keys()[0], watched.now).actions.is_empty(), "seed {seed}: it rests");
    }
}

/// [WL-3] [WL-4] [WL-11]
#[test]
fn replicas_create_a_bounded_batch_and_adopt_before_they_create() {
    let mut watched = Watched::new(Replicas::new(SetKind::ReplicaSet));
    watched.tell(Input::Sets(WatchUpdate::Changed(set(1200, 1, json!({})))), keys(), 0);
    let plan = |watched: &Watched<Replicas>| watched.controller.plan(&keys()[0], watched.now).actions;
    let actions = plan(&watched);
    let [Action::Create { names, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(names.len(), BURST);
    watched.tell(Input::Pods(WatchUpdate::Changed(pod("stray", "Running", false, false))), keys(), 0);
    let actions = plan(&watched);
    assert!(matches!(&actions[..], [Action::Claim { adopt, .. }] if adopt[0].name == "stray"), "{actions:?}");
}
