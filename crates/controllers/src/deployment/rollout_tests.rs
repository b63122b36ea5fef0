//! The worked examples, and every rollout of a few sizes to its end.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::super::fixtures::{Set, deployment, family, set, views};
use super::super::view::DeploymentView;
use super::*;

fn rolling(replicas: i32, surge: i32, unavailable: i32) -> DeploymentView {
    let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    deployment(replicas, &json!({ "spec": { "strategy": { "rollingUpdate": rolling } } }))
}

fn step(deployment: &DeploymentView, sets: &[Set]) -> Step {
    next_step(&family(deployment, &views(sets)), 0)
}

fn sizes(step: &Step) -> Vec<(&str, i32)> {
    step.sizes.iter().map(|(name, size)| (&**name, *size)).collect()
}

/// Rolls from `old` to `new`, with every pod available one step after it was asked for. Answers the sizes that the sets have on the
/// way: new, old.
fn steps(deployment: &DeploymentView) -> Vec<(i32, i32)> {
    let mut sets = vec![set("old", deployment.replicas(), deployment.replicas())];
    let mut seen = Vec::new();
    for _ in 0..1000 {
        let step = step(deployment, &sets);
        if let Some(size) = step.create {
            let mut new = set("new", size, 0);
            new.replicas = 0;
            sets.push(new);
        }
        for set in &mut sets {
            let Some(size) = step.sizes.get(set.name) else { continue };
            set.spec = *size;
        }
        let changed = step.create.is_some() || !step.sizes.is_empty();
        if changed {
            seen.push((sets.get(1).map_or(0, |new| new.spec), sets[0].spec));
        }
        let mut waits = false;
        for set in &mut sets {
            waits |= set.replicas != set.spec || set.available != set.spec;
            (set.replicas, set.available) = match changed {
                // Pods come and go at once, and new ones are available later.
                true => (set.spec, set.available.min(set.spec)),
                false => (set.spec, set.spec),
            };
        }
        if !changed && !waits {
            assert!(step.trims, "it is complete");
            return seen;
        }
    }
    panic!("it never ends: {seen:?}")
}

/// [TR-74] The tables of the specification: surge and unavailable in every mix.
#[test]
fn rollout_takes_the_steps_of_the_worked_examples() {
    assert_eq!(steps(&deployment(1, &json!({}))), [(1, 1), (1, 0)]);
    assert_eq!(steps(&deployment(3, &json!({}))), [(1, 3), (1, 2), (2, 2), (2, 1), (3, 1), (3, 0)]);
    let four = [(0, 4), (0, 3), (1, 3), (1, 2), (2, 2), (2, 1), (3, 1), (3, 0), (4, 0)];
    assert_eq!(steps(&rolling(4, 0, 1)), four);
    assert_eq!(steps(&rolling(10, 3, 2)), [(3, 10), (3, 8), (5, 8), (5, 3), (10, 3), (10, 0)]);
    let fifteen = [(4, 15), (4, 12), (7, 12), (7, 5), (14, 5), (14, 0), (15, 0)];
    assert_eq!(steps(&deployment(15, &json!({}))), fifteen);
}

/// Whatever the sizes: it ends, never has more than it may, and never fewer available than it must.
#[test]
fn rollout_of_any_size_ends_within_its_bounds() {
    for replicas in 0..=9 {
        for surge in 0..=4 {
            for unavailable in 0..=4 {
                if surge == 0 && unavailable == 0 {
                    continue;
                }
                let deployment = rolling(replicas, surge, unavailable);
                let seen = steps(&deployment);
                let last = seen.last().copied().unwrap_or((0, 0));
                assert_eq!(last, (replicas, 0), "{replicas}/{surge}/{unavailable}: {seen:?}");
                assert!(seen.iter().all(|(new, old)| new + old <= replicas + surge), "{seen:?}");
                assert!(seen.iter().all(|(new, old)| new + old >= replicas - unavailable.min(replicas)), "{seen:?}");
            }
        }
    }
}

/// [WL-50] New pods cannot be made, and none may be missing: old ones stay.
#[test]
fn rollout_keeps_old_pods_while_new_ones_are_not_available() {
    let deployment = rolling(3, 1, 0);
    let mut new = set("new", 1, 0);
    new.replicas = 0;
    assert_eq!(step(&deployment, &[set("old", 3, 3), new]), Step::default());
    // Old ones that are not available go first, for nobody misses them.
    assert_eq!(sizes(&step(&rolling(4, 0, 2), &[set("old", 4, 2), set("new", 0, 0)])), [("old", 2)]);
    assert_eq!(sizes(&step(&rolling(4, 0, 2), &[set("a", 2, 1), set("b", 2, 2), set("new", 0, 0)])), [("a", 0)]);
}

/// What a set reports may be older than what it was told.
#[test]
fn rollout_counts_what_a_set_may_still_have_and_what_it_certainly_keeps() {
    let deployment = rolling(10, 3, 2);
    // The old set was told to have eight, and ten are still there.
    let mut old = set("old", 8, 10);
    old.replicas = 10;
    assert_eq!(step(&deployment, &[old.clone(), set("new", 3, 0)]), Step::default(), "there is no room yet");
    old.unheard = 1;
    (old.replicas, old.available) = (8, 8);
    assert_eq!(step(&deployment, &[old.clone(), set("new", 3, 0)]), Step::default(), "it has not heard");
    old.unheard = 0;
    assert_eq!(sizes(&step(&deployment, &[old.clone(), set("new", 3, 0)])), [("new", 5)]);
    // Two of ten have yet to go, and one of them is not available: seven will be, for all that is known.
    (old.replicas, old.available) = (10, 9);
    assert_eq!(sizes(&step(&deployment, &[old, set("new", 5, 2)])), [("old", 7)]);
}

/// [WL-37] [WL-38] [TR-78]
#[test]
fn scaling_in_a_rollout_is_proportional() {
    let told = |mut set: Set, desired, most| {
        set.told = Some((desired, most));
        set
    };
    let broken = [told(set("old", 8, 8), 10, 13), told(set("new", 5, 0), 10, 13)];
    assert_eq!(sizes(&step(&rolling(30, 3, 2), &broken)), [("new", 13), ("old", 20)]);
    let back = [told(set("old", 20, 20), 30, 33), told(set("new", 13, 0), 30, 33)];
    assert_eq!(sizes(&step(&rolling(10, 3, 2), &back)), [("new", 5), ("old", 8)]);
    assert_eq!(sizes(&step(&rolling(0, 3, 2), &broken)), [("new", 0), ("old", 0)], "to nothing at once");

    // Killed after the first of the two: the second gets the same as it would have.
    let half = [told(set("old", 20, 8), 30, 33), told(set("new", 5, 0), 10, 13)];
    assert_eq!(sizes(&step(&rolling(30, 3, 2), &half)), [("new", 13), ("old", 20)]);

    let paused = deployment(8, &json!({ "spec": { "paused": true } }));
    let sets = [told(set("old", 3, 3), 4, 5), told(set("new", 2, 0), 4, 5)];
    assert_eq!(sizes(&step(&paused, &sets)), [("new", 4), ("old", 6)]);

    // Of two that are alike, the newer grows first and the older shrinks first.
    let even = [told(set("old", 3, 3), 6, 6), told(set("new", 3, 3), 6, 6)];
    assert_eq!(sizes(&step(&rolling(7, 0, 1), &even)), [("new", 4), ("old", 3)]);
    assert_eq!(sizes(&step(&rolling(5, 0, 1), &even)), [("new", 3), ("old", 2)]);
    let odd = [told(set("old", i32::MAX, 0), i32::MAX, i32::MAX), told(set("new", i32::MAX, 0), 1, -4)];
    step(&rolling(7, 0, 1), &odd);
}

/// [WL-39]
#[test]
fn scaling_of_a_complete_deployment_resizes_its_one_set() {
    let told = |mut set: Set, desired| {
        set.told = Some((desired, desired + 3));
        set
    };
    assert_eq!(sizes(&step(&rolling(12, 3, 2), &[set("old", 0, 0), told(set("new", 10, 10), 10)])), [("new", 12)]);
    // Somebody sized the set by hand: it is told for which size it has its pods, so that a rollout can begin.
    assert_eq!(sizes(&step(&rolling(12, 3, 2), &[told(set("old", 12, 12), 10)])), [("old", 12)]);
    // An old set with pods appears beside a new one that has all.
    let adopted = [told(set("old", 2, 2), 99), told(set("new", 4, 4), 4)];
    assert_eq!(sizes(&step(&rolling(4, 1, 1), &adopted)), [("old", 0)]);
}

fn recreating(replicas: i32) -> DeploymentView {
    deployment(replicas, &json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": {} } } }))
}

/// [WL-44] [WL-45] Old pods are waited for until they have ended; asking them to leave is not enough.
#[test]
fn recreate_waits_until_no_old_pod_is_left() {
    let deployment = recreating(3);
    let next = |sets: &[Set], pods| next_step(&family(&deployment, &views(sets)), pods);
    assert_eq!(next(&[], 0).create, Some(3), "the first rollout waits for nobody");
    assert_eq!(sizes(&next(&[set("old", 3, 3)], 3)), [("old", 0)]);
    let empty = set("old", 0, 0);
    assert_eq!(next(std::slice::from_ref(&empty), 1), Step::default(), "a pod is there");
    let mut leaving = empty.clone();
    leaving.terminating = Some(1);
    assert_eq!(next(&[leaving.clone()], 0), Step::default(), "the set says so");
    let mut unheard = empty.clone();
    unheard.unheard = 1;
    assert_eq!(next(&[unheard], 0), Step::default(), "the set has not heard, and may create one yet");
    assert_eq!(next(std::slice::from_ref(&empty), 0).create, Some(3));
    assert_eq!(sizes(&next(&[empty.clone(), set("new", 0, 0)], 0)), [("new", 3)]);
    assert_eq!(next(&[leaving, set("new", 0, 0)], 0), Step::default());
    assert!(next(&[empty, set("new", 3, 3)], 0).trims);
}

fn braked(replicas: i32, brake: &str, value: &str) -> DeploymentView {
    let rolling = json!({ "maxSurge": 1, "maxUnavailable": replicas / 5 });
    let annotations = json!({ brake: value });
    let spec = json!({ "strategy": { "rollingUpdate": rolling } });
    deployment(replicas, &json!({ "metadata": { "annotations": annotations }, "spec": spec }))
}

/// [TR-76]
#[test]
fn rollout_that_waits_for_terminations_counts_pods_that_leave() {
    let deployment = braked(4, "adieu.dev/pod-replacement-policy", "TerminationComplete");
    let mut old = set("old", 3, 3);
    old.terminating = Some(1);
    assert_eq!(step(&deployment, &[old.clone(), set("new", 1, 0)]), Step::default(), "five are there");
    old.terminating = Some(0);
    assert_eq!(sizes(&step(&deployment, &[old, set("new", 1, 0)])), [("new", 2)]);
}

/// [WL-51]
#[test]
fn rollout_with_max_terminating_waits_for_those_that_leave() {
    let deployment = braked(10, "adieu.dev/max-terminating", "2");
    let available = [set("old", 10, 10), set("new", 1, 1)];
    assert_eq!(sizes(&step(&deployment, &available)), [("old", 8)], "three could go, and two may");
    let mut old = set("old", 8, 8);
    old.terminating = Some(2);
    assert_eq!(step(&deployment, &[old.clone(), set("new", 1, 1)]), Step::default(), "neither up nor down");
    old.terminating = Some(1);
    assert_eq!(sizes(&step(&deployment, &[old.clone(), set("new", 1, 1)])), [("new", 3)]);
    (old.replicas, old.available) = (9, 9);
    assert_eq!(step(&deployment, &[old, set("new", 3, 3)]), Step::default(), "one leaves and one is about to");
}
