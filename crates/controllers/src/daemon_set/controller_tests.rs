//! Sets, nodes and pods in any order: one pod for each node, and the bounds of an update.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;

use serde_json::json;

use super::super::set::{Budget, new_pod};
use super::*;
use crate::woken::{Dice, Watched};

/// A pod as the server has it.
#[derive(Clone, Debug)]
struct SimPod {
    uid: String,
    node: Arc<str>,
    hash: String,
    phase: &'static str,
    ready: bool,
    leaves: bool,
    is_bound: bool,
    created: i64,
    since: i64,
}

impl SimPod {
    fn serves(&self) -> bool {
        self.ready && !self.leaves
    }

    fn is_ended(&self) -> bool {
        ["Failed", "Succeeded"].contains(&self.phase)
    }
}

#[derive(Clone, Debug)]
struct SimNode {
    pool: &'static str,
    ready: bool,
    taint: Option<(&'static str, &'static str)>,
    message: &'static str,
}

const WELL: SimNode = SimNode { pool: "a", ready: true, taint: None, message: "" };

/// A server that does what it is told, and a controller that hears of it.
struct World {
    watched: Watched<DaemonSets>,
    set: Value,
    nodes: BTreeMap<Arc<str>, SimNode>,
    pods: BTreeMap<String, SimPod>,
    revisions: BTreeMap<String, Value>,
    unheard: VecDeque<Input>,
    number: u64,
    seed: u64,
    all_heard: bool,
}

fn keys() -> [Key; 2] {
    [Key::Pods("set".into()), Key::Status("set".into())]
}

fn stamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "log" } },
        "spec": { "nodeSelector": { "pool": "a" }, "containers": [{ "name": "c", "image": image }] } })
}

fn owner() -> Value {
    json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": "set", "controller": true }])
}

impl World {
    fn new(spec: Value, nodes: usize, seed: u64) -> Self {
        let mut set = json!({ "metadata": { "name": "log", "namespace": "ns", "uid": "set" },
            "spec": { "selector": { "matchLabels": { "app": "log" } }, "template": template("i:1") }, "status": {} });
        set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let mut world = Self {
            watched: Watched::new(DaemonSets::new()),
            set,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            unheard: VecDeque::new(),
            number: 1,
            seed,
            all_heard: true,
        };
        world.edit(|_| {});
        for number in 1..=nodes {
            world.put_node(&format!("n{number}"), WELL);
        }
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

    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.set["spec"]);
        self.set["metadata"]["generation"] = json!(self.next());
        self.set_changed();
    }

    fn set_changed(&mut self) {
        self.set["metadata"]["resourceVersion"] = json!(self.next().to_string());
        self.unheard.push_back(Input::Sets(WatchUpdate::Changed(Arc::new(self.view()))));
    }

    fn view(&self) -> DaemonSetView {
        serde_json::from_value(self.set.clone()).unwrap()
    }

    fn node_view(name: &str, node: &SimNode) -> Arc<Node> {
        let taints: Vec<Value> =
            node.taint.iter().map(|(key, effect)| json!({ "key": key, "effect": effect })).collect();
        let ready =
            json!({ "type": "Ready", "status": if node.ready { "True" } else { "False" }, "message": node.message });
        let view = json!({ "metadata": { "name": name, "labels": { "pool": node.pool } }, "spec": { "taints": taints },
            "status": { "conditions": [ready] } });
        Arc::new(serde_json::from_value(view).unwrap())
    }

    fn put_node(&mut self, name: &str, node: SimNode) {
        self.unheard.push_back(Input::Nodes(WatchUpdate::Changed(Self::node_view(name, &node))));
        self.nodes.insert(name.into(), node);
    }

    fn pod_view(name: &str, pod: &SimPod) -> Arc<PodView> {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [&*pod.node] });
        let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
        let ready = json!({ "type": "Ready", "status": if pod.ready { "True" } else { "False" }, "lastTransitionTime": stamp(pod.since) });
        let view = json!({ "metadata": { "name": name, "namespace": "ns", "uid": pod.uid, "ownerReferences": owner(),
                "labels": { "app": "log", "controller-revision-hash": pod.hash }, "creationTimestamp": stamp(pod.created),
                "deletionTimestamp": pod.leaves.then_some("2027-01-01T00:00:00Z") },
            "spec": { "nodeName": pod.is_bound.then_some(&*pod.node),
                "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } },
            "status": { "phase": pod.phase, "conditions": [ready] } });
        Arc::new(serde_json::from_value(view).unwrap())
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut SimPod, i64)) {
        let now = self.now();
        let Some(pod) = self.pods.get_mut(name) else { return };
        change(pod, now);
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
            if !pod.leaves && !pod.is_ended() && !pod.ready {
                (pod.phase, pod.ready, pod.is_bound, pod.since) = ("Running", true, true, now);
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

    fn list(&mut self) {
        self.unheard.clear();
        let pods = self.pods.iter().map(|(name, pod)| Self::pod_view(name, pod)).collect();
        let nodes = self.nodes.iter().map(|(name, node)| Self::node_view(name, node)).collect();
        let revisions =
            self.revisions.values().map(|it| Arc::new(serde_json::from_value(it.clone()).unwrap())).collect();
        for input in [
            Input::Pods(WatchUpdate::Listed(pods)),
            Input::Nodes(WatchUpdate::Listed(nodes)),
            Input::Revisions(WatchUpdate::Listed(revisions)),
            Input::Sets(WatchUpdate::Listed(vec![Arc::new(self.view())])),
        ] {
            self.watched.tell(input, keys(), self.seed);
        }
    }

    fn act(&mut self) -> usize {
        let mut done = 0;
        for key in keys() {
            let actions = self.watched.controller.plan(&key, self.watched.now).actions;
            done += actions.len();
            self.watched.controller.begun(self.watched.now, &key, &actions);
            for action in actions {
                self.apply(&action.work);
                drop(self.watched.controller.ended(self.watched.now, &key, action, Outcome::Done(Vec::new())));
            }
        }
        done
    }

    fn apply(&mut self, work: &Work) {
        match work {
            Work::Claim { .. } | Work::History(HistoryAction::Adopt(_)) => panic!("nothing to claim"),
            Work::History(HistoryAction::Create { name, hash, number, template }) => {
                let template: Value = serde_json::from_str(template).unwrap();
                let kept = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("rev-{name}"),
                        "labels": { "app": "log", "controller-revision-hash": hash }, "ownerReferences": owner() },
                    "revision": number, "data": { "spec": { "template": template } } });
                self.keep(name.clone(), kept);
            }
            Work::History(HistoryAction::Renumber { revision, number }) => {
                let text = format!("{revision:?}");
                let name = self.revisions.keys().find(|own| text.contains(own.as_str())).unwrap().clone();
                let mut kept = self.revisions[&name].clone();
                kept["revision"] = json!(number);
                self.keep(name, kept);
            }
            Work::History(HistoryAction::Delete(_)) => panic!("there are few revisions"),
            Work::Delete { pods, .. } => {
                self.check_deletion(pods);
                for pod in pods {
                    if self.pods.get(&pod.name).is_some_and(|own| own.uid == pod.uid) {
                        // Whoever is on no node goes at once.
                        match self.pods[&pod.name].is_bound {
                            true => self.change_pod(&pod.name, |pod, _| pod.leaves = true),
                            false => self.remove_pod(&pod.name),
                        }
                    }
                }
            }
            Work::Create { pods, hash, .. } => {
                pods.iter().for_each(|pod| self.create(pod, hash));
                self.check_surge();
            }
            Work::Report(status) => {
                let mut set = self.set["status"].as_object().unwrap().clone();
                set.extend(status.as_object().unwrap().clone());
                set.retain(|_, value| !value.is_null());
                self.set["status"] = Value::Object(set);
                self.set_changed();
            }
        }
    }

    fn keep(&mut self, name: String, kept: Value) {
        self.revisions.insert(name, kept.clone());
        let view = Arc::new(serde_json::from_value(kept).unwrap());
        self.unheard.push_back(Input::Revisions(WatchUpdate::Changed(view)));
    }

    fn desired(&self) -> Vec<Arc<str>> {
        let placement = Placement::of(&self.view().spec.template);
        let should_run = |name: &str, node: &SimNode| {
            placement.eligibility(name, &NodeFacts::of(&Self::node_view(name, node))).should_run
        };
        self.nodes.iter().filter(|(name, node)| should_run(name, node)).map(|(name, _)| Arc::clone(name)).collect()
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &SimPod> {
        self.pods.values().filter(move |pod| *pod.node == *node && !(pod.leaves && pod.is_ended()))
    }

    fn create(&mut self, pod: &NewPod, hash: &str) {
        if self.pods.contains_key(&pod.name) {
            return; // 409: the one that was meant.
        }
        let surging = self.view().is_surging(self.desired().len());
        if self.all_heard && !surging {
            assert_eq!(self.on(&pod.node).count(), 0, "seed {}: {} has a pod", self.seed, pod.node);
        }
        let uid = format!("pod-{}", self.next());
        let now = self.now();
        let made = SimPod {
            uid,
            node: Arc::clone(&pod.node),
            hash: hash.to_owned(),
            phase: "Pending",
            ready: false,
            leaves: false,
            is_bound: false,
            created: now,
            since: now,
        };
        self.pods.insert(pod.name.clone(), made);
        self.change_pod(&pod.name, |_, _| {});
    }

    /// [WL-88] [WL-93] No more nodes than allowed are without a pod that serves, as far as it is up to the controller.
    fn check_deletion(&self, pods: &[PodRef]) {
        let desired = self.desired();
        let Budget::Unavailable(most) = self.view().budget(desired.len()) else { return };
        if !self.all_heard {
            return;
        }
        let of = |pod: &PodRef| &self.pods[&pod.name];
        let is_meant = |node: &Arc<str>| desired.contains(node) && self.nodes[node].ready;
        let excess = |pod: &PodRef| self.on(&of(pod).node).filter(|it| !it.leaves && !it.is_ended()).count() > 1;
        let taken: Vec<&Arc<str>> =
            pods.iter().filter(|pod| of(pod).serves() && !excess(pod)).map(|pod| &of(pod).node).collect();
        let taken: Vec<&Arc<str>> = taken.into_iter().filter(|node| is_meant(node)).collect();
        if !taken.is_empty() {
            let serves = |node: &Arc<str>| self.on(node).any(SimPod::serves) && !taken.contains(&node);
            let without = desired.iter().filter(|node| is_meant(node) && !serves(node)).count();
            assert!(without <= most, "seed {}: {without} nodes are without a pod, {most} may be", self.seed);
        }
    }

    /// [WL-89] No more nodes than allowed have two pods of which the old one serves.
    fn check_surge(&self) {
        let desired = self.desired();
        let Budget::Surge(most) = self.view().budget(desired.len()) else { return };
        let staying = |node: &str| self.on(node).filter(|pod| !pod.leaves && !pod.is_ended()).count();
        let crowded = desired.iter().filter(|node| {
            staying(node) > 1
                && self.nodes[*node].ready
                && self.on(node).filter(|pod| !pod.leaves).all(|pod| pod.ready || pod.phase == "Pending")
        });
        if self.all_heard {
            let started = crowded.filter(|node| self.on(node).any(SimPod::serves)).count();
            assert!(started <= most, "seed {}: {started} nodes have two pods, {most} may have", self.seed);
        }
    }

    fn settle(&mut self) {
        self.list();
        let mut quiet = 0;
        for _ in 0..600 {
            let done = self.act();
            self.hear_all();
            let leaving: Vec<String> =
                self.pods.iter().filter(|(_, pod)| pod.leaves).map(|(name, _)| name.clone()).collect();
            leaving.iter().for_each(|name| self.remove_pod(name));
            let idle: Vec<String> = self
                .pods
                .iter()
                .filter(|(_, pod)| !pod.ready && !pod.is_ended())
                .map(|(name, _)| name.clone())
                .collect();
            idle.iter().for_each(|name| self.get_ready(name));
            self.hear_all();
            self.watched.pass(Duration::from_secs(120));
            quiet = if done == 0 && leaving.is_empty() && idle.is_empty() { quiet + 1 } else { 0 };
            if quiet == 9 {
                return;
            }
        }
        panic!("seed {}: it does not come to rest: {:?}", self.seed, self.pods);
    }
}

fn turn(world: &mut World) {
    world.act();
    world.hear_all();
}

fn settled(spec: Value, nodes: usize) -> World {
    let mut world = World::new(spec, nodes, 0);
    world.settle();
    world
}

fn rolling(unavailable: Value, surge: Value) -> Value {
    json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": surge } } })
}

fn policy(dice: &mut Dice) -> Value {
    let mut spec = match dice.roll(4) {
        0 => rolling(json!(1), json!(0)),
        1 => rolling(json!("40%"), json!(0)),
        2 => rolling(json!(0), json!(2)),
        _ => json!({ "updateStrategy": { "type": "OnDelete" } }),
    };
    spec["minReadySeconds"] = json!(dice.roll(2) * 5);
    spec
}

fn disturb(world: &mut World, dice: &mut Dice) {
    let node = format!("n{}", dice.roll(6) + 1);
    let names: Vec<String> = world.pods.keys().cloned().collect();
    let name = if names.is_empty() { String::new() } else { names[dice.roll(names.len())].clone() };
    let is_leaving = world.pods.get(&name).is_some_and(|pod| pod.leaves);
    match dice.roll(14) {
        0 => {
            let image = dice.pick(&["i:1", "i:2", "i:3"]);
            world.edit(|spec| spec["template"] = template(image));
        }
        1 => world.put_node(&node, SimNode { pool: dice.pick(&["a", "b"]), ..WELL }),
        2 => world.put_node(&node, SimNode { ready: dice.flip(), ..WELL }),
        3 => world.put_node(&node, SimNode { taint: Some(("k", dice.pick(&["NoSchedule", "NoExecute"]))), ..WELL }),
        4 => {
            if let Some(gone) = world.nodes.remove(node.as_str()) {
                world.unheard.push_back(Input::Nodes(WatchUpdate::Removed(World::node_view(&node, &gone))));
            }
        }
        5 => world.change_pod(&name, |pod, _| (pod.phase, pod.ready) = ("Failed", false)),
        6 => world.change_pod(&name, |pod, now| (pod.ready, pod.since) = (false, now)),
        7 => world.change_pod(&name, |pod, _| pod.leaves = true),
        8..=10 if is_leaving => world.remove_pod(&name),
        _ => world.get_ready(&name),
    }
}

fn is_done(world: &World) {
    let (set, seed, desired) = (world.view(), world.seed, world.desired());
    let hash = |pod: &SimPod| pod.hash.clone();
    let newest = world.revisions.values().max_by_key(|it| it["revision"].as_i64()).unwrap();
    let newest = newest["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap();
    for node in world.nodes.keys() {
        let here: Vec<&SimPod> = world.on(node).collect();
        if desired.contains(node) {
            assert_eq!(here.len(), 1, "seed {seed}: {node} has {here:?}");
            let is_updated = hash(here[0]) == newest;
            assert!(is_updated || !set.is_rolling(), "seed {seed}: {node} has a former pod");
        }
    }
    let (status, count) = (&set.status, i32::try_from(desired.len()).unwrap());
    let numbers = [status.desired_number_scheduled, status.current_number_scheduled, status.number_available];
    assert_eq!((numbers, status.number_unavailable), ([count; 3], 0), "seed {seed}");
    if set.is_rolling() {
        assert_eq!(status.updated_number_scheduled, count, "seed {seed}");
    }
    assert!(world.revisions.len() <= 3, "seed {seed}: same template, same revision");
}

/// [WL-84] [WL-85] [WL-86] [WL-88] [WL-89] [WL-98] [TR-81] A controller that knows everything keeps the bounds whatever people and
/// nodes do, and comes to rest where it should.
#[test]
fn daemon_set_keeps_bounds_and_converges() {
    for seed in 1..=100 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(policy(&mut dice), 5, seed);
        for _ in 0..80 {
            disturb(&mut world, &mut dice);
            world.hear_all();
            if dice.flip() {
                turn(&mut world);
            }
            world.watched.pass(Duration::from_secs(u64::try_from(dice.roll(4)).unwrap()));
        }
        world.settle();
        is_done(&world);
    }
}

/// The same for one that hears late, twice or in lists, and repeats what it did.
#[test]
fn daemon_set_converges_whatever_it_hears_late_or_twice() {
    for seed in 1..=100 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(policy(&mut dice), 5, seed);
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
        world.settle();
        is_done(&world);
    }
}

/// A create that was not seen is repeated under the same names.
#[test]
fn daemon_set_repeats_an_unseen_create_without_a_second_pod() {
    let mut world = World::new(json!({}), 5, 0);
    turn(&mut world);
    for _ in 0..5 {
        world.act();
    }
    assert_eq!(world.pods.len(), 5);
    world.hear_all();
    assert_eq!(world.watched.controller.plan(&keys()[0], world.watched.now).actions.len(), 0);
}

/// [WL-84]
#[test]
fn daemon_set_pod_is_meant_for_one_node_and_lives_with_its_troubles() {
    let set = World::new(json!({}), 0, 0).view();
    let mut asked = template("i:1");
    asked["spec"]["affinity"]["nodeAffinity"] = json!({ "requiredDuringSchedulingIgnoredDuringExecution":
        { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "pool", "operator": "Exists" }] }] } });
    for (host_network, count) in [(false, 6), (true, 7)] {
        asked["spec"]["hostNetwork"] = json!(host_network);
        let pod = new_pod(&set.owner(), "log-x", "n1", "hash", &asked.to_string());
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), count);
        let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let field = json!({ "key": "metadata.name", "operator": "In", "values": ["n1"] });
        assert_eq!(*required, json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] }));
        assert_eq!(pod["metadata"]["labels"]["controller-revision-hash"], "hash");
        let view: PodView = serde_json::from_value(pod).unwrap();
        let now = World::new(json!({}), 0, 0).watched.now;
        assert_eq!(PodFacts::of(&view, None, now).node.as_deref(), Some("n1"), "before it is bound");
    }
}

/// [WL-85] [WL-86] [TR-81]
#[test]
fn daemon_set_pod_stays_on_a_tainted_node_and_leaves_one_that_is_not_meant() {
    let mut world = settled(json!({}), 3);
    world.put_node("n1", SimNode { taint: Some(("k", "NoSchedule")), ..WELL });
    world.hear_all();
    world.settle();
    assert_eq!((world.on("n1").count(), world.view().status.number_misscheduled), (1, 1));
    world.put_node("n1", SimNode { taint: Some(("k", "NoExecute")), ..WELL });
    world.put_node("n2", SimNode { pool: "b", ..WELL });
    world.hear_all();
    turn(&mut world);
    assert!(world.on("n1").chain(world.on("n2")).all(|pod| pod.leaves));
    // Wanted again while the pod still leaves: no second one before it is gone.
    world.put_node("n2", WELL);
    world.hear_all();
    turn(&mut world);
    assert_eq!((world.on("n2").count(), world.view().status.number_unavailable), (1, 0), "it is still ready");
    world.settle();
    assert!(world.on("n2").all(|pod| !pod.leaves) && world.on("n1").count() == 0);
}

/// [WL-88]
#[test]
fn daemon_set_update_is_not_held_up_by_a_node_that_is_lost() {
    let mut world = settled(rolling(json!(1), json!(0)), 4);
    world.put_node("n2", SimNode { ready: false, ..WELL });
    let lost = world.pods.iter().find(|(_, pod)| &*pod.node == "n2").map(|(name, _)| name.clone()).unwrap();
    world.change_pod(&lost, |pod, now| (pod.ready, pod.since) = (false, now));
    world.edit(|spec| spec["template"] = template("i:2"));
    world.hear_all();
    let mut replaced: Vec<Arc<str>> = Vec::new();
    for _ in 0..40 {
        turn(&mut world);
        let leaving: Vec<(String, Arc<str>)> = world
            .pods
            .iter()
            .filter(|(_, pod)| pod.leaves)
            .map(|(name, pod)| (name.clone(), Arc::clone(&pod.node)))
            .collect();
        assert!(leaving.iter().filter(|(_, node)| &**node != "n2").count() <= 1, "one at a time");
        for (name, node) in leaving.into_iter().filter(|(name, _)| *name != lost) {
            replaced.push(node);
            world.remove_pod(&name);
        }
        let idle: Vec<String> = world.pods.keys().filter(|name| **name != lost).cloned().collect();
        idle.iter().for_each(|name| world.get_ready(name));
        world.hear_all();
    }
    assert_eq!(replaced, ["n1".into(), "n3".into(), "n4".into()]);
    assert!(world.pods[&lost].leaves, "asked last, and not waited for");
}

/// [WL-93]
#[test]
fn daemon_set_second_update_within_min_ready_seconds_keeps_the_budget() {
    let mut spec = rolling(json!(1), json!(0));
    spec["minReadySeconds"] = json!(3600);
    let mut world = World::new(spec, 5, 0);
    turn(&mut world);
    turn(&mut world);
    let all: Vec<String> = world.pods.keys().cloned().collect();
    all.iter().for_each(|name| world.get_ready(name));
    world.edit(|spec| spec["template"] = template("i:2"));
    world.hear_all();
    turn(&mut world);
    turn(&mut world);
    assert_eq!(world.pods.values().filter(|pod| pod.leaves).count(), 1);
}

/// [WL-89]
#[test]
fn daemon_set_surge_starts_the_new_pod_beside_the_old_one() {
    let mut world = settled(rolling(json!(0), json!(1)), 3);
    world.edit(|spec| spec["template"] = template("i:2"));
    world.hear_all();
    turn(&mut world);
    turn(&mut world);
    assert_eq!((world.pods.len(), world.on("n1").count()), (4, 2));
    turn(&mut world);
    assert!(world.pods.values().all(|pod| !pod.leaves), "the old one waits for the new one");
    assert_eq!(world.view().status.updated_number_scheduled, 0, "the oldest pod of a node counts");
    let new: Vec<String> = world.pods.iter().filter(|(_, pod)| !pod.ready).map(|(name, _)| name.clone()).collect();
    new.iter().for_each(|name| world.get_ready(name));
    world.hear_all();
    turn(&mut world);
    assert!(world.on("n1").any(|pod| pod.leaves));
    world.settle();
    is_done(&world);
}

/// [WL-92]
#[test]
fn daemon_set_rollback_leaves_pods_alone_that_were_not_updated() {
    let mut world = settled(rolling(json!(1), json!(0)), 4);
    let before: BTreeMap<String, String> =
        world.pods.iter().map(|(name, pod)| (name.clone(), pod.uid.clone())).collect();
    world.edit(|spec| spec["template"] = template("bad"));
    world.hear_all();
    turn(&mut world);
    turn(&mut world);
    let leaving = world.pods.iter().find(|(_, pod)| pod.leaves).map(|(name, _)| name.clone()).unwrap();
    world.remove_pod(&leaving);
    world.hear_all();
    turn(&mut world);
    world.edit(|spec| spec["template"] = template("i:1"));
    world.hear_all();
    world.settle();
    is_done(&world);
    let kept = before.iter().filter(|(name, uid)| world.pods.get(*name).is_some_and(|pod| pod.uid == **uid)).count();
    assert_eq!((kept, world.revisions.len()), (3, 2));
}

/// [WL-94] [WL-95]
#[test]
fn daemon_set_replaces_a_failed_pod_after_a_growing_pause() {
    let mut world = settled(json!({}), 1);
    let fail = |world: &mut World| {
        let name = world.pods.keys().next().unwrap().clone();
        world.change_pod(&name, |pod, _| (pod.phase, pod.ready, pod.is_bound) = ("Failed", false, true));
        world.hear_all();
        name
    };
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let failed = fail(&mut world);
        let begun = world.watched.now.instant;
        while !world.pods[&failed].leaves {
            let plan = world.watched.controller.plan(&keys()[0], world.watched.now);
            if plan.actions.is_empty() {
                let wake = plan.wake.unwrap();
                world.watched.pass(wake.at - world.watched.now.instant);
            }
            turn(&mut world);
        }
        pauses.push((world.watched.now.instant - begun).as_secs());
        // It ended and leaves: its successor does not wait for it to be gone.
        turn(&mut world);
        assert_eq!(world.pods.len(), 2);
        world.remove_pod(&failed);
        world.hear_all();
    }
    assert_eq!(pauses, [0, 1, 2, 4]);
}

/// [WL-96]
#[test]
fn daemon_set_keeps_the_older_scheduled_one_of_two_pods() {
    let mut world = settled(json!({}), 1);
    let first = world.pods.keys().next().unwrap().clone();
    let second =
        SimPod { uid: "second".into(), created: 0, is_bound: false, ready: false, ..world.pods[&first].clone() };
    world.pods.insert("second".into(), second);
    world.change_pod("second", |_, _| {});
    world.hear_all();
    turn(&mut world);
    assert_eq!(world.pods.keys().collect::<Vec<_>>(), [&first], "it has a node, although it is younger");
}

/// [WL-97] [WL-100]
#[test]
fn daemon_set_starts_nothing_on_a_node_that_shuts_down_and_comes_back_to_a_cordoned_one() {
    let mut world = settled(json!({}), 2);
    world.put_node("n1", SimNode { ready: false, message: "node is shutting down", ..WELL });
    world.put_node("n2", SimNode { taint: Some(("node.kubernetes.io/unschedulable", "NoSchedule")), ..WELL });
    let all: Vec<String> = world.pods.keys().cloned().collect();
    all.iter().for_each(|name| world.remove_pod(name));
    world.hear_all();
    turn(&mut world);
    assert_eq!(world.pods.values().map(|pod| &*pod.node).collect::<Vec<_>>(), ["n2"]);
    world.put_node("n1", WELL);
    world.hear_all();
    world.settle();
    is_done(&world);
}

/// [WL-91]
#[test]
fn daemon_set_percentages_are_rounded_up() {
    let budget = |unavailable: Value, surge: Value| World::new(rolling(unavailable, surge), 0, 0).view().budget(5);
    assert_eq!(budget(json!("25%"), json!(0)), Budget::Unavailable(2));
    assert_eq!(budget(json!(0), json!("25%")), Budget::Surge(2));
    assert_eq!(World::new(rolling(json!("10%"), json!(0)), 0, 0).view().budget(0), Budget::Unavailable(1));
}

/// What is remembered is pace, and that of a node which is gone is of no use to anybody.
#[test]
fn daemon_set_forgets_the_nodes_that_are_gone() {
    let mut world = settled(json!({}), 3);
    let remembered = |world: &World| -> Vec<String> {
        let memory = &world.watched.controller.memory["set"];
        memory.used.keys().chain(memory.failures.keys()).map(ToString::to_string).collect()
    };
    let failing: Vec<String> = world.pods.keys().cloned().collect();
    for name in failing {
        world.change_pod(&name, |pod, _| pod.phase = "Failed");
        world.settle();
    }
    assert_eq!(remembered(&world), ["n1", "n2", "n3", "n1", "n2", "n3"]);
    world.watched.tell(Input::Nodes(WatchUpdate::Removed(World::node_view("n1", &WELL))), keys(), 0);
    assert_eq!(remembered(&world), ["n2", "n3", "n2", "n3"]);
    world.watched.tell(Input::Nodes(WatchUpdate::Listed(vec![World::node_view("n3", &WELL)])), keys(), 0);
    assert_eq!(remembered(&world), ["n3", "n3"]);
    // A pod that is still there on a node that is gone is told of once more, and goes.
    let (name, pod) =
        world.pods.iter().find(|(_, pod)| *pod.node == *"n1").map(|(n, p)| (n.clone(), p.clone())).unwrap();
    world.change_pod(&name, |pod, _| pod.leaves = true);
    world.hear_all();
    assert_eq!(remembered(&world), ["n1", "n3", "n3"]);
    world.watched.tell(Input::Pods(WatchUpdate::Removed(World::pod_view(&name, &pod))), keys(), 0);
    assert_eq!(remembered(&world), ["n3", "n3"]);
}
