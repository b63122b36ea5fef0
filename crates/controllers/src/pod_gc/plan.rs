//! Which pods nobody will ever finish: pure, told facts and the time.
//!
//! | class | when |
//! |---|---|
//! | out of service | asked to leave, and its node is not ready and marked as out of service |
//! | node gone | bound to a node that has been missing for the quarantine |
//! | unscheduled | asked to leave before it had a node |
//! | surplus | more pods have ended than are kept |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod;
use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::objects::Objects;
use crate::pod::PodView;
use crate::settings::Settings;

/// A pod's UID.
pub(super) type Uid = Arc<str>;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Why a pod is collected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    OutOfService,
    NodeGone,
    Unscheduled,
    Surplus,
}

/// What is planned for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    /// A pod that somebody may have to collect.
    Pod(Uid),
    /// A node that pods name and nobody has.
    Node(Arc<str>),
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Collect this pod.
    Collect { uid: Uid, pod: PodFacts, why: Why, at: Timestamp },
    /// Ask whether this node is really gone.
    AskFor(Arc<str>),
}

/// What can come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The pod is gone, or asked to leave.
    Collected,
    /// Whether the server has such a node.
    NodeExists(bool),
}

/// A pod, as far as this matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PodFacts {
    pub(super) namespace: String,
    pub(super) name: String,
    node: Arc<str>,
    leaving: bool,
    /// Succeeded or Failed.
    pub(super) ended: bool,
    evicted: bool,
    created: i64,
}

impl PodFacts {
    fn of(pod: &PodView) -> Self {
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            node: pod.node().unwrap_or_default().into(),
            leaving: pod::is_terminating(pod),
            ended: pod::is_terminal(pod),
            evicted: pod.status.reason.as_deref() == Some("Evicted"),
            created: pod.creation_timestamp().map_or(0, |at| at.0.as_second()),
        }
    }
}

/// What of pods and nodes is told.
#[derive(Debug)]
pub(super) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Nodes(WatchUpdate<Arc<Node>>),
}

/// The index of pods by their node.
const BY_NODE: usize = 0;

fn node_of(pod: &PodFacts) -> Option<Arc<str>> {
    (!pod.node.is_empty()).then(|| Arc::clone(&pod.node))
}

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(super) struct PodGc {
    settings: Settings,
    pods: Objects<PodFacts, 1>,
    /// Ended pods in the order in which they are given up.
    ended: BTreeSet<(bool, i64, Uid)>,
    /// Nodes that exist, and whether each is out of service.
    nodes: BTreeMap<Arc<str>, bool>,
    nodes_listed: bool,
    /// Nodes that pods name and nobody has, with the moment until which they may turn up.
    missing: BTreeMap<Arc<str>, Instant>,
    /// Pods whose node turned out to be gone.
    given_up: BTreeSet<Uid>,
}

impl PodGc {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            pods: Objects::new([node_of]),
            ended: BTreeSet::new(),
            nodes: BTreeMap::new(),
            nodes_listed: false,
            missing: BTreeMap::new(),
            given_up: BTreeSet::new(),
        }
    }

    fn all_pods(&mut self, now: Instant, pods: &[Arc<PodView>]) -> Vec<Key> {
        let here: BTreeSet<Uid> = pods.iter().filter_map(|pod| pod.uid().map(Uid::from)).collect();
        for uid in self.pods.missing_from(&here) {
            self.pod_gone(&uid);
        }
        pods.iter().flat_map(|pod| self.pod_seen(now, pod)).collect()
    }

    fn pod_seen(&mut self, now: Instant, pod: &PodView) -> Vec<Key> {
        let Some(uid) = pod.uid().map(Uid::from) else { return Vec::new() };
        let facts = PodFacts::of(pod);
        if self.pods.get(&uid) == Some(&facts) {
            return Vec::new();
        }
        // What is known of its node stays.
        let (given_up, missing) = (self.given_up.contains(&uid), self.missing.get_key_value(&facts.node));
        let missing = missing.map(|(name, until)| (Arc::clone(name), *until));
        self.pod_gone(&uid);
        self.given_up.extend(given_up.then(|| uid.clone()));
        self.missing.extend(missing);
        if facts.ended {
            self.ended.insert((!facts.evicted, facts.created, uid.clone()));
        }
        let mut keys = self.node_wanted(now, &facts.node);
        self.pods.put(uid.clone(), facts);
        keys.extend(self.surplus().filter(|other| *other != uid).map(Key::Pod));
        keys.push(Key::Pod(uid));
        keys
    }

    fn pod_gone(&mut self, uid: &str) {
        let Some(facts) = self.pods.remove(uid) else { return };
        self.given_up.remove(uid);
        self.ended.remove(&(!facts.evicted, facts.created, uid.into()));
        if self.pods.under(BY_NODE, &facts.node).next().is_none() {
            self.missing.remove(&facts.node);
        }
    }

    fn all_nodes(&mut self, now: Instant, nodes: &[Arc<Node>]) -> Vec<Key> {
        self.nodes = nodes.iter().map(|node| (Arc::from(node.name_any()), is_out_of_service(node))).collect();
        self.nodes_listed = true;
        self.missing.retain(|name, _| !self.nodes.contains_key(name));
        let named: BTreeSet<Arc<str>> = self.pods.iter().filter_map(|(_, pod)| node_of(pod)).collect();
        let mut keys: Vec<Key> = named.iter().flat_map(|name| self.node_wanted(now, name)).collect();
        keys.extend(self.pods.iter().map(|(uid, _)| Key::Pod(uid.clone())));
        keys
    }

    fn node_seen(&mut self, node: &Node) -> Vec<Key> {
        let name: Arc<str> = node.name_any().into();
        self.missing.remove(&name);
        let pods: Vec<Uid> = self.pods.under(BY_NODE, &name).map(|(uid, _)| uid.clone()).collect();
        pods.iter().for_each(|uid| _ = self.given_up.remove(uid));
        self.nodes.insert(name, is_out_of_service(node));
        pods.into_iter().map(Key::Pod).collect()
    }

    fn node_gone(&mut self, now: Instant, name: &str) -> Vec<Key> {
        self.nodes.remove(name);
        if self.pods.under(BY_NODE, name).next().is_some() { self.node_wanted(now, name) } else { Vec::new() }
    }

    /// A pod names this node. If nobody has it, it may turn up for a while.
    fn node_wanted(&mut self, now: Instant, name: &str) -> Vec<Key> {
        if name.is_empty() || !self.nodes_listed || self.nodes.contains_key(name) || self.missing.contains_key(name) {
            return Vec::new();
        }
        let name: Arc<str> = name.into();
        self.missing.insert(Arc::clone(&name), now + self.settings.quarantine);
        vec![Key::Node(name)]
    }

    /// The server has no such node either.
    fn node_is_gone(&mut self, name: &str) -> Vec<Key> {
        self.missing.remove(name);
        let pods: Vec<Uid> = self.pods.under(BY_NODE, name).map(|(uid, _)| uid.clone()).collect();
        self.given_up.extend(pods.iter().cloned());
        pods.into_iter().map(Key::Pod).collect()
    }

    /// It is there after all, or nobody could say. The watch will tell of it, or the question is asked again.
    fn node_is_not_gone(&mut self, now: Instant, name: &str) -> Vec<Key> {
        self.missing.remove(name);
        if self.pods.under(BY_NODE, name).next().is_some() { self.node_wanted(now, name) } else { Vec::new() }
    }

    /// Those that have ended and are not kept.
    fn surplus(&self) -> impl Iterator<Item = Uid> {
        let count = self.ended.len().saturating_sub(self.settings.ended_max);
        self.ended.iter().take(count).map(|(.., uid)| uid.clone())
    }

    /// Why a pod is to be collected, if it is.
    fn reason(&self, uid: &Uid, pod: &PodFacts) -> Option<Why> {
        let out_of_service = self.nodes.get(&pod.node);
        match out_of_service {
            None if pod.node.is_empty() && pod.leaving => Some(Why::Unscheduled),
            None if self.given_up.contains(uid) => Some(Why::NodeGone),
            Some(true) if pod.leaving => Some(Why::OutOfService),
            Some(_) | None => {
                let is_surplus = pod.ended && self.surplus().any(|other| other == *uid);
                is_surplus.then_some(Why::Surplus)
            }
        }
    }
}

impl Controller for PodGc {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = Answer;

    fn observe(&mut self, now: Now, input: Input) -> Vec<Key> {
        match input {
            Input::Pods(WatchUpdate::Listed(all)) => self.all_pods(now.instant, &all),
            Input::Pods(WatchUpdate::Changed(pod)) => self.pod_seen(now.instant, &pod),
            Input::Pods(WatchUpdate::Removed(pod)) => {
                self.pod_gone(&pod.uid().unwrap_or_default());
                Vec::new()
            }
            Input::Nodes(WatchUpdate::Listed(all)) => self.all_nodes(now.instant, &all),
            Input::Nodes(WatchUpdate::Changed(node)) => self.node_seen(&node),
            Input::Nodes(WatchUpdate::Removed(node)) => self.node_gone(now.instant, &node.name_any()),
        }
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Pod(uid) => {
                let Some(pod) = self.pods.get(uid) else { return Plan::default() };
                let collect = |why| Action::Collect { uid: uid.clone(), pod: pod.clone(), why, at: now.timestamp };
                self.reason(uid, pod).map(|why| Plan::act(collect(why))).unwrap_or_default()
            }
            Key::Node(name) => match self.missing.get(name) {
                Some(until) if *until <= now.instant => Plan::act(Action::AskFor(Arc::clone(name))),
                Some(until) => Plan::wait(*until, "the node has been missing for the quarantine"),
                None => Plan::default(),
            },
        }
    }

    fn ended(&mut self, now: Now, _: &Key, action: Action, outcome: Outcome<Answer>) -> Vec<Key> {
        let Action::AskFor(name) = action else { return Vec::new() };
        match outcome {
            Outcome::Done(Answer::NodeExists(false)) => self.node_is_gone(&name),
            Outcome::Done(_) | Outcome::Failed(_) | Outcome::NotTried => self.node_is_not_gone(now.instant, &name),
        }
    }
}

/// Not ready, and marked by a person who knows that nothing runs there any more.
fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    !ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: &str, phase: &str, leaving: bool) -> PodView {
        let mut pod = json!({ "metadata": { "name": uid, "namespace": "ns", "uid": uid },
            "spec": { "containers": [], "nodeName": node }, "status": { "phase": phase } });
        if leaving {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    fn node(name: &str, ready: &str, taint: Option<&str>) -> Arc<Node> {
        let taints: Vec<_> =
            taint.iter().map(|key| json!({ "key": key, "effect": "NoExecute", "value": "nodeshutdown" })).collect();
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "taints": taints },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] } }))
            .unwrap(),
        )
    }

    /// What is to be done, without what else is known of a pod.
    #[derive(PartialEq, Debug)]
    enum Act {
        Collect(Uid, Why),
        AskFor(Arc<str>),
    }

    fn collect(uid: &str, why: Why) -> Act {
        Act::Collect(uid.into(), why)
    }

    fn at(instant: Instant) -> Now {
        Now { instant, timestamp: Timestamp::UNIX_EPOCH }
    }

    fn plans(gc: &PodGc, now: Instant, keys: &[Key]) -> Vec<Act> {
        let actions = keys.iter().flat_map(|key| gc.plan(key, at(now)).actions);
        let act = |action| match action {
            Action::Collect { uid, why, .. } => Act::Collect(uid, why),
            Action::AskFor(name) => Act::AskFor(name),
        };
        actions.map(act).collect()
    }

    /// What is to be done because of this.
    fn told(gc: &mut PodGc, now: Instant, input: Input) -> Vec<Act> {
        let keys = gc.observe(at(now), input);
        plans(gc, now, &keys)
    }

    fn pod_seen(gc: &mut PodGc, now: Instant, pod: PodView) -> Vec<Act> {
        told(gc, now, Input::Pods(WatchUpdate::Changed(Arc::new(pod))))
    }

    fn all_nodes(gc: &mut PodGc, now: Instant, nodes: Vec<Arc<Node>>) -> Vec<Act> {
        told(gc, now, Input::Nodes(WatchUpdate::Listed(nodes)))
    }

    /// What time itself makes necessary.
    fn time_passed(gc: &PodGc, now: Instant) -> Vec<Act> {
        let keys: Vec<Key> = gc.missing.keys().cloned().map(Key::Node).collect();
        plans(gc, now, &keys)
    }

    fn next_wake(gc: &PodGc) -> Option<Instant> {
        let now = at(*gc.missing.values().min()? - Duration::from_millis(1));
        gc.missing.keys().filter_map(|name| gc.plan(&Key::Node(Arc::clone(name)), now).wake).map(|wake| wake.at).min()
    }

    fn answer(gc: &mut PodGc, now: Instant, name: &str, exists: bool) -> Vec<Act> {
        let outcome = Outcome::Done(Answer::NodeExists(exists));
        let keys = gc.ended(at(now), &Key::Node(name.into()), Action::AskFor(name.into()), outcome);
        plans(gc, now, &keys)
    }

    #[test]
    fn pods_of_a_missing_node_are_given_up_after_the_quarantine_and_a_last_question() {
        let now = Instant::now();
        let mut gc = PodGc::new(Settings::default());
        assert_eq!(pod_seen(&mut gc, now, pod("a", "n1", "Running", false)), [], "nodes are not known yet");
        assert_eq!(all_nodes(&mut gc, now, vec![node("n2", "True", None)]), []);
        assert_eq!(next_wake(&gc), Some(now + Duration::from_secs(40)));
        assert_eq!(time_passed(&gc, now + Duration::from_secs(39)), []);
        let due = now + Duration::from_secs(40);
        assert_eq!(time_passed(&gc, due), [Act::AskFor("n1".into())]);
        assert_eq!(answer(&mut gc, due, "n1", false), [collect("a", Why::NodeGone)]);
    }

    #[test]
    fn a_node_that_comes_back_keeps_its_pods() {
        let now = Instant::now();
        let mut gc = PodGc::new(Settings::default());
        all_nodes(&mut gc, now, vec![node("n1", "True", None)]);
        pod_seen(&mut gc, now, pod("a", "n1", "Running", false));
        told(&mut gc, now, Input::Nodes(WatchUpdate::Removed(node("n1", "True", None))));
        assert!(next_wake(&gc).is_some());
        assert_eq!(told(&mut gc, now, Input::Nodes(WatchUpdate::Changed(node("n1", "True", None)))), []);
        assert_eq!(next_wake(&gc), None);
        // Or the question finds it.
        told(&mut gc, now, Input::Nodes(WatchUpdate::Removed(node("n1", "True", None))));
        let due = now + Duration::from_secs(40);
        time_passed(&gc, due);
        answer(&mut gc, due, "n1", true);
        assert_eq!(next_wake(&gc), Some(due + Duration::from_secs(40)));
    }

    #[test]
    fn only_leaving_pods_of_a_dead_node_out_of_service_are_given_up() {
        let now = Instant::now();
        let mut gc = PodGc::new(Settings::default());
        all_nodes(&mut gc, now, vec![node("n1", "True", Some(OUT_OF_SERVICE))]);
        pod_seen(&mut gc, now, pod("stays", "n1", "Running", false));
        assert_eq!(pod_seen(&mut gc, now, pod("leaves", "n1", "Running", true)), [], "the node is ready");
        let dead = node("n1", "Unknown", Some(OUT_OF_SERVICE));
        assert_eq!(
            told(&mut gc, now, Input::Nodes(WatchUpdate::Changed(dead))),
            [collect("leaves", Why::OutOfService)]
        );
        assert_eq!(pod_seen(&mut gc, now, pod("later", "n1", "Running", true)), [collect("later", Why::OutOfService)]);
    }

    #[test]
    fn a_pod_that_leaves_without_a_node_is_finished() {
        let now = Instant::now();
        let mut gc = PodGc::new(Settings::default());
        assert_eq!(pod_seen(&mut gc, now, pod("a", "", "Pending", false)), []);
        assert_eq!(pod_seen(&mut gc, now, pod("a", "", "Pending", true)), [collect("a", Why::Unscheduled)]);
    }

    #[test]
    fn ended_pods_over_the_limit_are_collected_evicted_first_then_oldest() {
        let now = Instant::now();
        let mut gc = PodGc::new(Settings { ended_max: 2, ..Settings::default() });
        let ended = |uid: &str, created: &str, reason: &str| {
            let mut pod = pod(uid, "", "Failed", false);
            pod.metadata.creation_timestamp = Some(serde_json::from_value(json!(created)).unwrap());
            pod.status.reason = Some(reason.to_owned());
            pod
        };
        assert_eq!(pod_seen(&mut gc, now, ended("old", "2026-01-01T00:00:00Z", "")), []);
        assert_eq!(pod_seen(&mut gc, now, ended("new", "2026-01-03T00:00:00Z", "")), []);
        let evicted = ended("evicted", "2026-01-02T00:00:00Z", "Evicted");
        assert_eq!(pod_seen(&mut gc, now, evicted), [collect("evicted", Why::Surplus)]);
        gc.pod_gone("evicted");
        let third = ended("third", "2026-01-04T00:00:00Z", "");
        assert_eq!(pod_seen(&mut gc, now, third), [collect("old", Why::Surplus)]);
    }

    /// [AD-76] [AD-77] For any order of facts: whoever is to be collected was woken, and a start from lists finds the same pods.
    #[test]
    fn pod_gc_wakes_every_pod_that_is_to_be_collected_and_a_restart_finds_the_same() {
        use crate::woken::{Dice, Watched};

        const NODES: [&str; 4] = ["", "n1", "n2", "n3"];
        let (mut collected, settings) = (0, Settings { ended_max: 2, ..Settings::default() });
        for seed in 1..=200 {
            let (mut dice, mut watched) = (Dice::new(seed), Watched::new(PodGc::new(settings)));
            let keys: Vec<Key> = (0..6).map(|number| Key::Pod(format!("p{number}").into())).collect();
            let keys = || keys.iter().cloned().chain(NODES.map(|name| Key::Node(name.into())));
            let (mut pods, mut nodes) = (BTreeMap::new(), BTreeMap::new());
            watched.tell(Input::Nodes(WatchUpdate::Listed(Vec::new())), keys(), seed);
            for _ in 0..60 {
                let (uid, name) = (format!("p{}", dice.roll(6)), dice.pick(&NODES[1..]));
                let phase = dice.pick(&["Running", "Running", "Succeeded", "Failed"]);
                let input = match dice.roll(7) {
                    0..=3 => {
                        let pod = Arc::new(pod(&uid, dice.pick(&NODES), phase, dice.flip()));
                        pods.insert(uid, Arc::clone(&pod));
                        Input::Pods(WatchUpdate::Changed(pod))
                    }
                    4 => match pods.remove(&uid) {
                        Some(pod) => Input::Pods(WatchUpdate::Removed(pod)),
                        None => continue,
                    },
                    5 => {
                        let node = node(name, dice.pick(&["True", "Unknown"]), dice.flip().then_some(OUT_OF_SERVICE));
                        nodes.insert(name, Arc::clone(&node));
                        Input::Nodes(WatchUpdate::Changed(node))
                    }
                    _ => match nodes.remove(name) {
                        Some(node) => Input::Nodes(WatchUpdate::Removed(node)),
                        None => continue,
                    },
                };
                watched.tell(input, keys(), seed);
                watched.pass(Duration::from_secs(dice.roll(3) as u64 * 10));
            }
            collected += watched.pending();
            let mut fresh = PodGc::new(settings);
            fresh.observe(watched.now, Input::Pods(WatchUpdate::Listed(pods.into_values().collect())));
            fresh.observe(watched.now, Input::Nodes(WatchUpdate::Listed(nodes.into_values().collect())));
            for key in keys().filter(|key| matches!(key, Key::Pod(_))) {
                assert_eq!(fresh.plan(&key, watched.now), watched.controller.plan(&key, watched.now), "seed {seed}");
            }
        }
        assert!(collected > 100, "the dice never asked for anything: {collected}");
    }
}
