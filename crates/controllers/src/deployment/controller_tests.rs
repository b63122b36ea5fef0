//! Whole rollouts with both controllers, whatever is lost, late, repeated or killed on the way.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::super::test_world::World;
use super::*;

/// Replicas, the most pods beside those that leave, and the fewest available ones.
fn bounds(world: &World) -> (usize, usize, usize) {
    let spec = &world.deployment()["spec"];
    let rolling = &spec["strategy"]["rollingUpdate"];
    let count = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let replicas = count(&spec["replicas"]);
    (replicas, replicas + count(&rolling["maxSurge"]), replicas - count(&rolling["maxUnavailable"]).min(replicas))
}

fn leaves(pod: &&Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn is_ready(pod: &&Value) -> bool {
    pod["status"]["conditions"][0]["status"] == "True"
}

fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// Never too many, never too few.
fn rolling_law(world: &World) {
    let (_, most, least) = bounds(world);
    let active = world.pods().filter(|pod| !leaves(pod)).count();
    assert!(active <= most, "seed {}: {active} pods, {most} at most", world.seed());
    let available = world.pods().filter(|pod| !leaves(pod) && is_ready(pod)).count();
    let complete = world.deployment()["metadata"]["annotations"]["test/complete"] == "yes";
    assert!(!complete || available >= least, "seed {}: {available} available, {least} at least", world.seed());
}

/// Pods that leave have their places until they have ended, and no more than two leave.
fn braked_law(world: &World) {
    rolling_law(world);
    let (_, most, _) = bounds(world);
    let (all, leaving) = (world.pods().count(), world.pods().filter(leaves).count());
    assert!(all <= most, "seed {}: {all} pods, {most} at most", world.seed());
    assert!(leaving <= 2, "seed {}: {leaving} leave", world.seed());
}

/// Never two revisions at once.
fn recreate_law(world: &World) {
    let images: BTreeSet<&str> = world.pods().map(image).collect();
    assert!(images.len() <= 1, "seed {}: {images:?}", world.seed());
}

fn no_law(_: &World) {}

fn rolling(surge: usize, unavailable: usize) -> Value {
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
    json!({ "spec": { "strategy": strategy } })
}

/// It has come to rest as it was asked to be.
fn check_end(world: &World) {
    let seed = world.seed();
    let (deployment, status) = (world.deployment(), &world.deployment()["status"]);
    let replicas = &deployment["spec"]["replicas"];
    let wanted = image(&deployment["spec"]["template"]);
    let pods: Vec<&Value> = world.pods().collect();
    assert_eq!(json!(pods.len()), *replicas, "seed {seed}");
    assert!(pods.iter().all(|pod| image(pod) == wanted && !leaves(pod)), "seed {seed}");
    assert_eq!(status["observedGeneration"], deployment["metadata"]["generation"], "seed {seed}");
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(Some(count(field)), replicas.as_i64(), "seed {seed}: {field}");
    }
    assert_eq!((count("unavailableReplicas"), &status["terminatingReplicas"]), (0, &json!(0)), "seed {seed}");
    let progressing = status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Progressing").unwrap();
    assert_eq!(progressing["reason"], "NewReplicaSetAvailable", "seed {seed}");
    let new: Vec<&Value> = world.sets().filter(|set| image(&set["spec"]["template"]) == wanted).collect();
    assert_eq!(new.len(), 1, "seed {seed}: one set for each template");
    let revision = |it: &Value| it["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
    assert_eq!(revision(deployment), revision(new[0]), "seed {seed}");
    let highest = world.sets().map(|set| revision(set).as_str().unwrap().parse::<i64>().unwrap()).max();
    assert_eq!(revision(new[0]).as_str().unwrap().parse::<i64>().ok(), highest, "seed {seed}");
    assert!(world.sets().count() <= 3, "seed {seed}: two former revisions are kept");
}

/// The first rollout is over: from here on enough pods are available at every moment.
fn first_rollout(world: &mut World) {
    world.settle();
    check_end(world);
    world.edit_annotation("test/complete", "yes");
}

/// [WL-52] [WL-46] Whatever is lost, repeated, seen late, killed or changed meanwhile.
#[test]
fn rollouts_stay_within_their_bounds_and_end_as_asked() {
    for seed in 1..=60 {
        let replicas = i32::try_from(seed % 7).unwrap();
        let (surge, unavailable) = [(1, 0), (0, 1), (3, 2), (2, 2)][usize::try_from(seed % 4).unwrap()];
        let mut world = World::new(seed, replicas, &rolling(surge, unavailable), rolling_law);
        first_rollout(&mut world);
        for _ in 0..4 {
            let next = world.dice.pick(&["a", "b", "c"]);
            world.set_image(next);
            (0..world.dice.roll(400)).for_each(|_| world.step());
        }
        world.settle();
        check_end(&world);
    }
}

/// [TR-60] [TR-76] [WL-51]
#[test]
fn rollouts_with_brakes_wait_for_pods_that_leave() {
    for seed in 1..=30 {
        let brakes =
            json!({ "adieu.dev/pod-replacement-policy": "TerminationComplete", "adieu.dev/max-terminating": "2" });
        let mut extra = rolling(1, 1);
        extra["metadata"]["annotations"] = brakes;
        let mut world = World::new(seed, 4, &extra, braked_law);
        first_rollout(&mut world);
        for _ in 0..3 {
            let next = world.dice.pick(&["a", "b", "c"]);
            world.set_image(next);
            (0..world.dice.roll(400)).for_each(|_| world.step());
        }
        world.settle();
        check_end(&world);
    }
}

/// [WL-46]
#[test]
fn recreate_never_has_pods_of_two_revisions() {
    for seed in 1..=60 {
        let mut world = World::new(seed, 3, &json!({ "spec": { "strategy": { "type": "Recreate" } } }), recreate_law);
        for _ in 0..5 {
            (0..world.dice.roll(300)).for_each(|_| world.step());
            let next = world.dice.pick(&["a", "b", "c"]);
            let paused = world.dice.roll(6) == 0;
            world.set_image(next);
            world.edit(&json!({ "paused": paused, "replicas": 1 + world.seed() % 4 }));
        }
        world.edit(&json!({ "paused": false }));
        world.settle();
        check_end(&world);
    }
}

/// Sizes, pauses and templates change in any order.
#[test]
fn rollouts_that_are_scaled_and_paused_end_as_asked() {
    for seed in 1..=40 {
        let mut world = World::new(seed, 4, &rolling(2, 1), no_law);
        for _ in 0..6 {
            (0..world.dice.roll(250)).for_each(|_| world.step());
            match world.dice.roll(4) {
                0 => {
                    let replicas = world.dice.roll(9);
                    world.edit(&json!({ "replicas": replicas }));
                }
                1 => {
                    let paused = world.dice.flip();
                    world.edit(&json!({ "paused": paused }));
                }
                _ => {
                    let next = world.dice.pick(&["a", "b", "c"]);
                    world.set_image(next);
                }
            }
        }
        world.edit(&json!({ "paused": false }));
        world.settle();
        check_end(&world);
    }
}
