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

/// Whoever reads that a set has heard that it is to have no pods, and that it has none, believes it.
#[test]
fn replicas_report_a_generation_only_when_pods_asked_for_before_it_were_seen() {
    let mut watched = Watched::new(Replicas::new(SetKind::ReplicaSet));
    watched.tell(Input::Sets(WatchUpdate::Changed(set(2, 1, json!({})))), keys(), 0);
    let [pods, status] = keys();
    let creates = watched.controller.plan(&pods, watched.now).actions;
    let [Action::Create { names, .. }] = &creates[..] else { panic!("{creates:?}") };
    let names = names.clone();
    watched.controller.begun(watched.now, &pods, &creates);
    // Scaled to nothing while the two are being created.
    watched.tell(Input::Sets(WatchUpdate::Changed(set(0, 2, json!({ "observedGeneration": 1 })))), keys(), 0);
    let observed = |watched: &Watched<Replicas>| {
        let actions = watched.controller.plan(&status, watched.now).actions;
        let [Action::Report { status, .. }] = &actions[..] else { panic!("{actions:?}") };
        status["observedGeneration"].clone()
    };
    assert_eq!(observed(&watched), 1, "they may appear at any moment");
    let done = Outcome::Done(Answer::Created(names.clone(), Vec::new()));
    let create = creates.into_iter().next().unwrap();
    assert!(watched.controller.ended(watched.now, &pods, create.clone(), done).is_empty());
    assert_eq!(observed(&watched), 1, "they are there and were not seen");
    watched.tell(Input::Pods(WatchUpdate::Changed(pod(&names[0], "Pending", false, true))), keys(), 0);
    assert_eq!(observed(&watched), 1);
    watched.tell(Input::Pods(WatchUpdate::Changed(pod(&names[1], "Pending", true, true))), keys(), 0);
    assert_eq!(observed(&watched), 2);

    // One that was refused never appears.
    watched.controller.begun(watched.now, &pods, std::slice::from_ref(&create));
    assert_eq!(observed(&watched), 1);
    let woken = watched.controller.ended(watched.now, &pods, create.clone(), Outcome::Failed("no".to_owned()));
    assert!(woken.contains(&status));
    assert_eq!(observed(&watched), 2);
    // One that was created and is in no list is gone.
    watched.controller.begun(watched.now, &pods, std::slice::from_ref(&create));
    let woken = watched.controller.observe(watched.now, Input::Pods(WatchUpdate::Listed(Vec::new())));
    assert!(woken.contains(&status));
    assert_eq!(observed(&watched), 2);
}

/// [TR-60] [WL-51]
#[test]
fn replicas_with_brakes_wait_for_pods_that_leave() {
    let braked = |replicas: i32, brake: &str, value: &str, leaving: usize| {
        let mut watched = Watched::new(Replicas::new(SetKind::ReplicaSet));
        let mut set = Arc::unwrap_or_clone(set(replicas, 1, json!({})));
        set.metadata.annotations = Some(BTreeMap::from([(brake.to_owned(), value.to_owned())]));
        watched.tell(Input::Sets(WatchUpdate::Changed(Arc::new(set))), keys(), 0);
        for number in 0..5 {
            let pod = pod(&format!("p{number}"), "Running", number < leaving, true);
            watched.tell(Input::Pods(WatchUpdate::Changed(pod)), keys(), 0);
        }
        let actions = watched.controller.plan(&keys()[0], watched.now).actions;
        match &actions[..] {
            [] => (0, 0),
            [Action::Create { names, .. }] => (names.len(), 0),
            [Action::Delete { pods, .. }] => (0, pods.len()),
            _ => panic!("{actions:?}"),
        }
    };
    let most = "adieu.dev/max-terminating";
    assert_eq!(braked(0, most, "2", 0), (0, 2));
    assert_eq!(braked(0, most, "2", 1), (0, 1));
    assert_eq!(braked(0, most, "2", 2), (0, 0));
    assert_eq!(braked(0, most, "none", 2), (0, 3));
    assert_eq!(braked(5, most, "2", 3), (3, 0), "successors do not wait for that");
    let policy = "adieu.dev/pod-replacement-policy";
    assert_eq!(braked(5, policy, "TerminationComplete", 3), (0, 0));
    assert_eq!(braked(7, policy, "TerminationComplete", 3), (2, 0));
    assert_eq!(braked(1, policy, "TerminationComplete", 3), (0, 1));
}

/// A pod of another namespace that names this set as its controller is neither counted nor released.
#[test]
fn replicas_do_not_count_pods_of_other_namespaces_that_name_them_as_their_owner() {
    let mut watched = Watched::new(Replicas::new(SetKind::ReplicaSet));
    watched.tell(Input::Sets(WatchUpdate::Changed(set(1, 1, json!({})))), keys(), 0);
    for labels in ["web", "other"] {
        let mut foreign = PodView::clone(&pod("foreign", "Running", false, true));
        foreign.metadata.namespace = Some("elsewhere".to_owned());
        foreign.metadata.labels = Some([("app".to_owned(), labels.to_owned())].into());
        watched.tell(Input::Pods(WatchUpdate::Changed(Arc::new(foreign))), keys(), 0);
        let actions = watched.controller.plan(&keys()[0], watched.now).actions;
        assert!(matches!(&actions[..], [Action::Create { names, .. }] if names.len() == 1), "{actions:?}");
    }
}

/// [TR-87] in part: what the set does about a pod whose eviction waits.
#[test]
fn replicas_make_a_successor_for_a_pod_that_is_to_be_evicted_until_the_eviction_is_given_up() {
    let mut watched = Watched::new(Replicas::new(SetKind::ReplicaSet));
    let asked_at = api::time::seconds(watched.now.timestamp);
    let marked = |name: &str| {
        let mut pod = PodView::clone(&pod(name, "Running", false, true));
        pod.metadata.annotations = Some([(SURGE_ASKED_AT.to_owned(), asked_at.clone())].into());
        Arc::new(pod)
    };
    let plan = |watched: &Watched<Replicas>| watched.controller.plan(&keys()[0], watched.now);
    watched.tell(Input::Sets(WatchUpdate::Changed(set(1, 1, json!({})))), keys(), 0);
    watched.tell(Input::Pods(WatchUpdate::Changed(pod("old", "Running", false, true))), keys(), 0);
    assert_eq!(plan(&watched).actions.len(), 0);
    watched.tell(Input::Pods(WatchUpdate::Changed(marked("old"))), keys(), 0);
    let actions = plan(&watched).actions;
    let [Action::Create { names, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(names.len(), 1);
    let successor = pod(&names[0], "Running", false, true);
    watched.tell(Input::Pods(WatchUpdate::Changed(Arc::clone(&successor))), keys(), 0);
    let rests = plan(&watched);
    assert_eq!((rests.actions.len(), rests.wake.is_some()), (0, true), "two are right for now");
    // It leaves, and its successor is there already.
    let mut gone = watched.controller.clone();
    gone.observe(watched.now, Input::Pods(WatchUpdate::Changed(pod("old", "Running", true, true))));
    let plan_without = gone.plan(&keys()[0], watched.now);
    assert_eq!((plan_without.actions.len(), plan_without.wake), (0, None));
    // A set that is to have none has none, whoever waits.
    let mut none = watched.controller.clone();
    none.observe(watched.now, Input::Sets(WatchUpdate::Changed(set(0, 2, json!({})))));
    let actions = none.plan(&keys()[0], watched.now).actions;
    assert!(matches!(&actions[..], [Action::Delete { pods, .. }] if pods.len() == 2), "{actions:?}");
    // Nobody asks any more: one is too many.
    watched.pass(std::time::Duration::from_secs(121));
    let actions = plan(&watched).actions;
    assert!(matches!(&actions[..], [Action::Delete { pods, .. }] if pods.len() == 1), "{actions:?}");
}
