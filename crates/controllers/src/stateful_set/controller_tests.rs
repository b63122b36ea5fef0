//! Sets, pods and nodes in any order: the laws of names, of order and of availability.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;

use super::super::plan::NewPod;
use super::*;
use crate::woken::{Dice, Watched};

/// A pod as the server has it.
#[derive(Clone, Debug)]
struct SimPod {
    uid: String,
    ordinal: i64,
    revision: String,
    phase: &'static str,
    ready: bool,
    leaves: bool,
    /// When it last became what it is, in seconds.
    since: i64,
    /// It was ready once.
    was_ready: bool,
}

impl SimPod {
    fn serves(&self) -> bool {
        self.ready && !self.leaves
    }
}

/// A server that does what it is told, and a controller that hears of it.
struct World {
    watched: Watched<StatefulSets>,
    set: Value,
    pods: BTreeMap<String, SimPod>,
    revisions: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    unheard: VecDeque<Input>,
    number: u64,
    seed: u64,
    /// The order laws hold for what is known; they are checked when everything is.
    all_heard: bool,
}

const START: i64 = 1_800_000_000;

fn keys() -> [Key; 2] {
    [Key::Pods("set".into()), Key::Status("set".into())]
}

fn stamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

impl World {
    fn new(spec: Value, seed: u64) -> Self {
        let mut set = json!({ "metadata": { "name": "web", "namespace": "ns", "uid": "set", "generation": 1, "resourceVersion": "1" },
            "spec": { "replicas": 3, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
                "template": template("i:1") }, "status": {} });
        set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let mut world = Self {
            watched: Watched::new(StatefulSets::new()),
            set,
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            claims: BTreeMap::new(),
            unheard: VecDeque::new(),
            number: 1,
            seed,
            all_heard: true,
        };
        world.edit(|_| {});
        world.hear_all();
        world
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn now(&self) -> i64 {
        self.watched.now.timestamp.as_second()
    }

    /// A person changes the set.
    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let version = self.next();
        change(&mut self.set["spec"]);
        self.set["metadata"]["generation"] = json!(version);
        self.set_changed(version);
    }

    fn set_changed(&mut self, version: u64) {
        self.set["metadata"]["resourceVersion"] = json!(version.to_string());
        let view = serde_json::from_value(self.set.clone()).unwrap();
        self.unheard.push_back(Input::Sets(WatchUpdate::Changed(Arc::new(view))));
    }

    fn view(&self) -> StatefulSetView {
        serde_json::from_value(self.set.clone()).unwrap()
    }

    fn pod_view(name: &str, pod: &SimPod) -> Arc<PodView> {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "set", "controller": true }]);
        let labels = json!({ "app": "web", "controller-revision-hash": pod.revision,
            "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": pod.ordinal.to_string() });
        let ready = json!({ "type": "Ready", "status": if pod.ready { "True" } else { "False" },
            "lastTransitionTime": stamp(if pod.was_ready { pod.since } else { START }) });
        let view = json!({ "metadata": { "name": name, "namespace": "ns", "uid": pod.uid, "labels": labels, "ownerReferences": owner,
                "deletionTimestamp": pod.leaves.then_some("2027-01-01T00:00:00Z") },
            "status": { "phase": pod.phase, "startTime": stamp(START), "conditions": [ready] } });
        Arc::new(serde_json::from_value(view).unwrap())
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut SimPod, i64)) {
        let now = self.now();
        let Some(pod) = self.pods.get_mut(name) else { return };
        change(pod, now);
        pod.was_ready |= pod.ready;
        let view = Self::pod_view(name, pod);
        self.unheard.push_back(Input::Pods(WatchUpdate::Changed(view)));
    }

    fn remove_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.unheard.push_back(Input::Pods(WatchUpdate::Removed(Self::pod_view(name, &pod))));
        }
    }

    fn get_ready(&mut self, name: &str) {
        self.change_pod(name, |pod, now| {
            if !pod.leaves && pod.phase != "Failed" {
                (pod.phase, pod.ready, pod.since) = ("Running", true, now);
            }
        });
    }

    fn hear(&mut self, twice: bool) {
        let Some(input) = self.unheard.pop_front() else { return };
        if let (true, Input::Pods(WatchUpdate::Changed(pod))) = (twice, &input) {
            self.watched.tell(Input::Pods(WatchUpdate::Changed(Arc::clone(pod))), keys(), self.seed);
        }
        self.watched.tell(input, keys(), self.seed);
    }

    fn hear_all(&mut self) {
        while !self.unheard.is_empty() {
            self.hear(false);
        }
    }

    /// The watch broke: what was said meanwhile is told as a list.
    fn list(&mut self) {
        self.unheard.clear();
        let pods = self.pods.iter().map(|(name, pod)| Self::pod_view(name, pod)).collect();
        let revisions =
            self.revisions.values().map(|it| Arc::new(serde_json::from_value(it.clone()).unwrap())).collect();
        let claims = self.claims.values().map(|it| Arc::new(serde_json::from_value(it.clone()).unwrap())).collect();
        let set = Arc::new(self.view());
        for input in [
            Input::Pods(WatchUpdate::Listed(pods)),
            Input::Revisions(WatchUpdate::Listed(revisions)),
            Input::Claims(WatchUpdate::Listed(claims)),
            Input::Sets(WatchUpdate::Listed(vec![set])),
        ] {
            self.watched.tell(input, keys(), self.seed);
        }
    }

    /// Plans and does both keys once. Answers how much was done.
    fn act(&mut self) -> usize {
        let mut done = 0;
        for key in keys() {
            let actions = self.watched.controller.plan(&key, self.watched.now).actions;
            done += actions.len();
            for action in actions {
                self.apply(&action.work);
                drop(self.watched.controller.ended(self.watched.now, &key, action, Outcome::Done(())));
            }
        }
        done
    }

    fn apply(&mut self, work: &Work) {
        match work {
            Work::Claim { .. } => panic!("nothing to claim"),
            Work::History(HistoryAction::Create { name, number, template, .. }) => {
                if !self.revisions.contains_key(name) {
                    let template: Value = serde_json::from_str(template).unwrap();
                    let kept = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("rev-{name}"),
                            "labels": { "app": "web" }, "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet",
                                "name": "web", "uid": "set", "controller": true }] },
                        "revision": number, "data": { "spec": { "template": template } } });
                    self.keep(name.clone(), kept);
                }
            }
            Work::History(HistoryAction::Renumber { revision, number }) => {
                let name = format!("{revision:?}");
                let (name, mut kept) = self
                    .revisions
                    .iter()
                    .find(|(own, _)| name.contains(own.as_str()))
                    .map(|(name, kept)| (name.clone(), kept.clone()))
                    .unwrap();
                kept["revision"] = json!(number);
                self.keep(name, kept);
            }
            Work::History(HistoryAction::Delete(all)) => {
                for gone in all {
                    let text = format!("{gone:?}");
                    let name = self.revisions.keys().find(|own| text.contains(own.as_str())).cloned();
                    if let Some(kept) = name.and_then(|name| self.revisions.remove(&name)) {
                        let view = Arc::new(serde_json::from_value(kept).unwrap());
                        self.unheard.push_back(Input::Revisions(WatchUpdate::Removed(view)));
                    }
                }
            }
            Work::History(HistoryAction::Adopt(_)) => panic!("nothing to adopt"),
            Work::Step(Step::Create(pods)) => pods.iter().for_each(|pod| self.create(pod)),
            Work::Step(Step::Delete(pods)) => {
                self.check_deletion(pods);
                pods.iter().for_each(|pod| self.delete(pod));
            }
            Work::Step(Step::Unstick { pod, .. }) => self.delete(pod),
            Work::Step(Step::OwnClaim { claim, owners, .. }) => {
                let mut changed = self.claims[claim].clone();
                changed["metadata"]["ownerReferences"] = json!(owners);
                self.claim(claim.clone(), changed);
            }
            Work::Step(Step::CreateClaims { claims, .. }) => claims.iter().for_each(|claim| self.make_claim(claim)),
            Work::Step(Step::Wait { .. } | Step::CannotCreate { .. } | Step::ClaimConflict { .. }) => {}
            Work::Step(Step::Label { .. }) => panic!("every pod has its labels"),
            Work::Report(status) => {
                let version = self.next();
                let mut set = self.set["status"].as_object().unwrap().clone();
                set.extend(status.as_object().unwrap().clone());
                set.retain(|_, value| !value.is_null());
                self.set["status"] = Value::Object(set);
                self.set_changed(version);
            }
        }
    }

    fn keep(&mut self, name: String, kept: Value) {
        self.revisions.insert(name, kept.clone());
        let view = Arc::new(serde_json::from_value(kept).unwrap());
        self.unheard.push_back(Input::Revisions(WatchUpdate::Changed(view)));
    }

    fn make_claim(&mut self, name: &str) {
        if !self.claims.contains_key(name) {
            let uid = format!("claim-{}", self.next());
            self.claim(name.to_owned(), json!({ "metadata": { "name": name, "namespace": "ns", "uid": uid } }));
        }
    }

    fn claim(&mut self, name: String, claim: Value) {
        self.claims.insert(name, claim.clone());
        let view = Arc::new(serde_json::from_value(claim).unwrap());
        self.unheard.push_back(Input::Claims(WatchUpdate::Changed(view)));
    }

    fn create(&mut self, new: &NewPod) {
        new.claims.iter().for_each(|claim| self.make_claim(claim));
        let set = self.view();
        let name = set.pod_name(new.ordinal);
        if self.pods.contains_key(&name) {
            return; // 409: whoever has the name keeps it.
        }
        if self.all_heard && !set.is_parallel() {
            let mut below = set.ordinals().take_while(|ordinal| *ordinal < new.ordinal);
            let serves = |ordinal| self.pods.get(&set.pod_name(ordinal)).is_some_and(SimPod::serves);
            assert!(below.all(serves), "seed {}: {name} is made although a pod below does not serve", self.seed);
        }
        let uid = format!("pod-{}", self.next());
        let pod = SimPod {
            uid,
            ordinal: new.ordinal,
            revision: new.revision.name.to_string(),
            phase: "Pending",
            ready: false,
            leaves: false,
            since: START,
            was_ready: false,
        };
        self.pods.insert(name.clone(), pod);
        self.change_pod(&name, |_, _| {});
    }

    fn delete(&mut self, pod: &PodRef) {
        if self.pods.get(&pod.name).is_some_and(|own| own.uid == pod.uid) {
            self.change_pod(&pod.name, |pod, _| pod.leaves = true);
        }
    }

    /// [WL-57] [WL-69] [TR-79] Order and availability, for a controller that knows everything.
    fn check_deletion(&self, pods: &[PodRef]) {
        let set = self.view();
        if !self.all_heard {
            return;
        }
        let asked = set.ordinals();
        let deleted: Vec<&SimPod> = pods.iter().map(|pod| &self.pods[&pod.name]).collect();
        if !set.is_parallel() {
            for pod in deleted.iter().filter(|pod| !asked.contains(&pod.ordinal)) {
                let higher = self.pods.values().any(|it| it.ordinal > pod.ordinal && !asked.contains(&it.ordinal));
                assert!(!higher, "seed {}: {} goes before those above it are gone", self.seed, pod.ordinal);
                assert_eq!(pods.len(), 1, "seed {}: one at a time", self.seed);
            }
        }
        let in_range = || self.pods.values().filter(|pod| asked.contains(&pod.ordinal));
        let before = in_range().filter(|pod| pod.serves()).count();
        let taken = deleted.iter().filter(|pod| pod.serves() && asked.contains(&pod.ordinal)).count();
        if taken > 0 {
            let unavailable = i64::from(set.replicas()) - i64::try_from(before - taken).unwrap();
            assert!(unavailable <= set.max_unavailable(), "seed {}: {unavailable} are unavailable", self.seed);
            let first = set.first_updated();
            assert!(deleted.iter().all(|pod| pod.ordinal >= first), "seed {}: the partition is spared", self.seed);
        }
    }

    /// Nodes do what they are asked to, and the controller acts, until nothing more happens.
    fn settle(&mut self) {
        self.list();
        let mut quiet = 0;
        for _ in 0..400 {
            let done = self.act();
            self.hear_all();
            let leaving: Vec<String> =
                self.pods.iter().filter(|(_, pod)| pod.leaves).map(|(name, _)| name.clone()).collect();
            leaving.iter().for_each(|name| self.remove_pod(name));
            let idle: Vec<String> =
                self.pods.iter().filter(|(_, pod)| !pod.ready).map(|(name, _)| name.clone()).collect();
            idle.iter().for_each(|name| self.get_ready(name));
            self.hear_all();
            self.watched.pass(Duration::from_secs(10));
            // Time alone may make a pod available.
            quiet = if done == 0 && leaving.is_empty() && idle.is_empty() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return;
            }
        }
        panic!("seed {}: it does not come to rest: {:?}", self.seed, self.pods);
    }

    fn names(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }
}

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

/// What a person, a node or the network may do.
fn disturb(world: &mut World, dice: &mut Dice) {
    let some = |world: &World, dice: &mut Dice| {
        let names = world.pods.keys().cloned().collect::<Vec<_>>();
        (!names.is_empty()).then(|| names[dice.roll(names.len())].clone())
    };
    let Some(name) = some(world, dice) else { return };
    match dice.roll(12) {
        0 => world.edit(|spec| spec["replicas"] = json!(dice.roll(6))),
        1 => {
            let image = dice.pick(&["i:1", "i:2", "i:3"]);
            world.edit(|spec| spec["template"] = template(image));
        }
        2 => world.edit(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(dice.roll(4))),
        3 => world.change_pod(&name, |pod, now| (pod.ready, pod.since) = (false, now)),
        4 => world.change_pod(&name, |pod, _| (pod.phase, pod.ready) = ("Failed", false)),
        5 => world.change_pod(&name, |pod, _| pod.leaves = true),
        6..=8 if world.pods[&name].leaves => world.remove_pod(&name),
        _ => world.get_ready(&name),
    }
}

fn is_done(world: &World) {
    let (set, seed) = (world.view(), world.seed);
    let wanted: Vec<String> = set.ordinals().map(|ordinal| set.pod_name(ordinal)).collect();
    assert_eq!(world.names(), wanted, "seed {seed}");
    let update = set.status.update_revision.clone();
    for (name, pod) in &world.pods {
        let is_updated = pod.revision == update || pod.ordinal < set.first_updated() || !set.is_rolling();
        assert!(is_updated, "seed {seed}: {name} is of {} and not of {update}", pod.revision);
    }
    let count = set.replicas();
    let status = &set.status;
    assert_eq!([status.replicas, status.ready_replicas, status.available_replicas], [count; 3], "seed {seed}");
    assert_eq!(json!(status.observed_generation), world.set["metadata"]["generation"], "seed {seed}");
    if status.updated_replicas == count {
        assert_eq!(status.current_revision, status.update_revision, "seed {seed}: complete");
    }
    assert!(world.revisions.len() <= 3, "seed {seed}: same template, same revision");
}

fn policy(dice: &mut Dice) -> Value {
    json!({ "podManagementPolicy": dice.pick(&["OrderedReady", "Parallel"]), "minReadySeconds": dice.roll(2) * 5,
        "ordinals": { "start": dice.roll(2) * 4 },
        "updateStrategy": { "type": dice.pick(&["RollingUpdate", "RollingUpdate", "RollingUpdate", "OnDelete"]),
            "rollingUpdate": { "partition": 0, "maxUnavailable": dice.pick(&[json!(1), json!(2), json!("50%")].each_ref()) } } })
}

/// [WL-53] [WL-54] [WL-57] [WL-58] [WL-69] [WL-70] [TR-79] [TR-80] A controller that knows everything keeps the order and the bounds
/// whatever people and nodes do, and comes to rest where it should.
#[test]
fn stateful_set_keeps_order_and_bounds_and_converges() {
    for seed in 1..=120 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(policy(&mut dice), seed);
        for _ in 0..80 {
            disturb(&mut world, &mut dice);
            world.hear_all();
            if dice.flip() {
                world.act();
                world.hear_all();
            }
            world.watched.pass(Duration::from_secs(u64::try_from(dice.roll(4)).unwrap()));
        }
        world.settle();
        is_done(&world);
    }
}

/// [WL-82] [WL-83] The same for one that hears late, twice or in lists, and repeats what it did: no name is given twice, and it ends
/// in the same state.
#[test]
fn stateful_set_converges_whatever_it_hears_late_or_twice() {
    for seed in 1..=120 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(policy(&mut dice), seed);
        world.all_heard = false;
        for _ in 0..80 {
            disturb(&mut world, &mut dice);
            for _ in 0..dice.roll(3) {
                world.hear(dice.flip());
            }
            for _ in 0..dice.roll(3) {
                world.act();
            }
            if dice.roll(12) == 0 {
                world.list();
            }
        }
        world.all_heard = true;
        world.settle();
        is_done(&world);
    }
}

fn settled(spec: Value) -> World {
    let mut world = World::new(spec, 0);
    world.settle();
    world
}

fn turn(world: &mut World) {
    world.act();
    world.hear_all();
}

/// [WL-56] [WL-78] [TR-80] A pod that leaves, on a node that says nothing, holds up everything and is never doubled.
#[test]
fn stateful_set_waits_for_a_pod_that_does_not_leave() {
    let mut world = settled(json!({ "replicas": 3 }));
    world.change_pod("web-1", |pod, _| pod.leaves = true);
    world.edit(|spec| (spec["replicas"], spec["template"]) = (json!(5), template("i:2")));
    world.hear_all();
    let mut waits = 0;
    for _ in 0..50 {
        for action in world.watched.controller.plan(&keys()[0], world.watched.now).actions {
            waits += usize::from(matches!(action.work, Work::Step(Step::Wait { .. })));
        }
        turn(&mut world);
        world.watched.pass(Duration::from_secs(600));
    }
    assert_eq!((world.names(), waits), (vec!["web-0", "web-1", "web-2"], 1), "told once");
    let uid = world.pods["web-1"].uid.clone();
    world.remove_pod("web-1");
    world.hear_all();
    turn(&mut world);
    assert_ne!(world.pods["web-1"].uid, uid);
    world.settle();
    is_done(&world);
}

/// [WL-57] Raised again during a stop: whoever leaves goes, the others stay.
#[test]
fn stateful_set_that_is_scaled_up_again_keeps_the_pods_that_were_not_asked_to_leave() {
    let mut world = settled(json!({ "replicas": 5 }));
    let uids = |world: &World| world.pods.values().map(|pod| pod.uid.clone()).collect::<Vec<_>>();
    let before = uids(&world);
    world.edit(|spec| spec["replicas"] = json!(2));
    world.hear_all();
    turn(&mut world);
    world.remove_pod("web-4");
    world.hear_all();
    turn(&mut world);
    assert!(world.pods["web-3"].leaves && !world.pods["web-2"].leaves);
    world.edit(|spec| spec["replicas"] = json!(5));
    world.hear_all();
    world.settle();
    is_done(&world);
    assert_eq!(uids(&world)[..3], before[..3]);
}

/// [WL-58] [WL-59]
#[test]
fn stateful_set_scales_down_past_an_unready_pod_only_if_it_is_the_one_that_goes() {
    let mut world = settled(json!({ "replicas": 5 }));
    let unready =
        |world: &mut World, name: &str| world.change_pod(name, |pod, now| (pod.ready, pod.since) = (false, now));
    unready(&mut world, "web-1");
    world.edit(|spec| spec["replicas"] = json!(2));
    world.hear_all();
    turn(&mut world);
    assert!(world.pods.values().all(|pod| !pod.leaves), "everything waits for web-1");
    world.get_ready("web-1");
    unready(&mut world, "web-4");
    world.hear_all();
    turn(&mut world);
    assert!(world.pods["web-4"].leaves);

    let mut world = settled(json!({ "replicas": 5, "podManagementPolicy": "Parallel" }));
    unready(&mut world, "web-1");
    world.edit(|spec| spec["replicas"] = json!(2));
    world.hear_all();
    turn(&mut world);
    let leaving: Vec<&str> = world.pods.iter().filter(|(_, pod)| pod.leaves).map(|(name, _)| name.as_str()).collect();
    assert_eq!(leaving, ["web-2", "web-3", "web-4"]);
}

/// [WL-55] [WL-63] [WL-64]
#[test]
fn stateful_set_partition_decides_which_template_a_pod_is_made_of() {
    let mut world =
        settled(json!({ "ordinals": { "start": 5 }, "updateStrategy": { "rollingUpdate": { "partition": 5 } } }));
    assert_eq!(world.names(), ["web-5", "web-6", "web-7"]);
    let first = world.pods["web-5"].revision.clone();
    world.edit(|spec| spec["template"] = template("i:2"));
    world.hear_all();
    world.settle();
    assert!(world.pods.values().all(|pod| pod.revision == first), "beyond the partition is nobody");
    assert_ne!(world.view().status.update_revision, first);
    world.edit(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(2));
    world.hear_all();
    world.settle();
    let second = world.view().status.update_revision;
    let revisions = |world: &World| world.pods.values().map(|pod| pod.revision.clone()).collect::<Vec<_>>();
    assert_eq!(revisions(&world), [first.clone(), first.clone(), second.clone()]);
    for name in ["web-5", "web-7"] {
        world.change_pod(name, |pod, _| pod.leaves = true);
    }
    world.hear_all();
    world.settle();
    assert_eq!(revisions(&world), [first.clone(), first, second.clone()]);
    world.edit(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(0));
    world.hear_all();
    world.settle();
    assert_eq!(revisions(&world), [second.clone(), second.clone(), second]);
}

/// [WL-60] [WL-61] [WL-62] A pod that could never serve does not hold up the template that would mend it.
#[test]
fn stateful_set_replaces_a_blocking_pod_that_was_never_ready() {
    for (annotation, was_ready, replaced) in
        [(None, false, true), (None, true, false), (Some("never"), false, false), (Some("always"), true, true)]
    {
        let mut world = settled(json!({ "replicas": 3 }));
        world.set["metadata"]["annotations"] = json!({ "adieu.dev/unstick": annotation });
        if annotation.is_none() {
            world.set["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        world.edit(|spec| spec["template"] = template("bad"));
        world.hear_all();
        turn(&mut world);
        turn(&mut world);
        assert!(world.pods["web-2"].leaves);
        world.remove_pod("web-2");
        world.hear_all();
        turn(&mut world);
        if was_ready {
            world.get_ready("web-2");
        }
        world.watched.pass(Duration::from_secs(60));
        world.change_pod("web-2", |pod, now| (pod.ready, pod.phase, pod.since) = (false, "Running", now));
        world.edit(|spec| spec["template"] = template("good"));
        world.hear_all();
        turn(&mut world);
        turn(&mut world);
        assert_eq!(world.pods["web-2"].leaves, replaced, "{annotation:?} {was_ready}");
    }
}

/// [WL-68]
#[test]
fn stateful_set_on_delete_replaces_nobody_by_itself_and_completes() {
    let mut world = settled(json!({ "updateStrategy": { "type": "OnDelete" } }));
    let first = world.view().status.current_revision;
    world.edit(|spec| spec["template"] = template("i:2"));
    world.hear_all();
    world.settle();
    assert!(world.pods.values().all(|pod| pod.revision == first));
    for name in ["web-0", "web-1", "web-2"] {
        world.change_pod(name, |pod, _| pod.leaves = true);
    }
    world.hear_all();
    world.settle();
    let status = world.view().status;
    assert!(world.pods.values().all(|pod| pod.revision == status.update_revision));
    assert!(status.current_revision == status.update_revision && status.current_revision != first);
}

fn with_claims(when_scaled: &str) -> Value {
    json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {} }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled, "whenDeleted": "Retain" } })
}

/// [WL-72] [WL-73] [WL-74] [WL-82]
#[test]
fn stateful_set_claim_belongs_to_a_condemned_pod_before_it_goes_and_is_waited_for() {
    let mut world = settled(with_claims("Delete"));
    assert_eq!(world.claims.keys().collect::<Vec<_>>(), ["data-web-0", "data-web-1", "data-web-2"]);
    world.edit(|spec| spec["replicas"] = json!(2));
    world.hear_all();
    turn(&mut world);
    let uid = world.pods["web-2"].uid.clone();
    assert_eq!(world.claims["data-web-2"]["metadata"]["ownerReferences"][0]["uid"], uid);
    assert!(!world.pods["web-2"].leaves, "first the claim, then the pod");
    turn(&mut world);
    assert!(world.pods["web-2"].leaves);
    world.remove_pod("web-2");
    world.edit(|spec| spec["replicas"] = json!(3));
    world.hear_all();
    turn(&mut world);
    assert!(!world.pods.contains_key("web-2"), "its claim goes with the former pod");
    let mut leaving = world.claims["data-web-2"].clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    world.claim("data-web-2".to_owned(), leaving.clone());
    world.hear_all();
    let actions = world.watched.controller.plan(&keys()[0], world.watched.now).actions;
    let why = "pvc data-web-2 is being deleted";
    assert!(
        actions.iter().any(|it| matches!(&it.work, Work::Step(Step::CannotCreate { why: said, .. }) if said == why))
    );
    world.claims.remove("data-web-2");
    let gone = Arc::new(serde_json::from_value(leaving).unwrap());
    world.unheard.push_back(Input::Claims(WatchUpdate::Removed(gone)));
    world.hear_all();
    world.settle();
    is_done(&world);
    assert!(world.claims["data-web-2"]["metadata"]["ownerReferences"].is_null(), "a fresh one");
}

#[test]
fn stateful_set_of_very_many_replicas_is_planned_in_bounded_steps() {
    let mut world = World::new(json!({ "replicas": i32::MAX, "podManagementPolicy": "Parallel" }), 0);
    turn(&mut world);
    turn(&mut world);
    assert_eq!(world.pods.len(), crate::pod_control::BURST);
}

#[test]
fn stateful_set_gives_only_names_that_it_would_give() {
    let set = World::new(json!({}), 0).view();
    assert_eq!((set.ordinal("web-0"), set.ordinal("web-17")), (Some(0), Some(17)));
    for other in ["web", "web-", "web-01", "web-x", "web--1", "web-+1", "other-1", "web-1-1", "web-99999999999"] {
        assert_eq!(set.ordinal(other), None, "{other}");
    }
    let pod = set.pod(&set.owner(), 3, "web-abc", &template_text(&template("i:1")));
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-3"), &json!("web")));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({ "app": "web", "controller-revision-hash": "web-abc",
        "statefulset.kubernetes.io/pod-name": "web-3", "apps.kubernetes.io/pod-index": "3" })
    );
}
