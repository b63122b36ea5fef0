//! Which pods must leave because of their node's taints, and when: pure, told facts and the time.
//!
//! A pod that does not tolerate a `NoExecute` taint leaves at once; one that tolerates it for a while leaves that long
//! after the taint was put there, or after it was bound if that was later. Both moments are stored, so a restart changes
//! nothing about the deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod::{self, Toleration};
use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;

use crate::objects::Objects;
use crate::pod::PodView;

/// A pod's UID.
pub(super) type Uid = Arc<str>;

/// What is to be done about a pod.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// It must leave.
    Evict { pod: Arc<PodView>, at: Timestamp },
    /// It may stay after all: people are told.
    Spare(Arc<PodView>),
}

/// What of pods and nodes is told.
#[derive(Debug)]
pub(super) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Nodes(WatchUpdate<Arc<Node>>),
}

#[derive(Debug)]
struct KnownPod {
    pod: Arc<PodView>,
    node: Arc<str>,
    /// When it must leave.
    until: Option<Timestamp>,
    /// It is being ended, or has been, and the watch has yet to say so.
    evicted: bool,
    /// It was to leave and may stay, and nobody has been told yet.
    spared: bool,
}

/// The index of pods by their node.
const BY_NODE: usize = 0;

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(super) struct TaintEviction {
    pods: Objects<KnownPod, 1>,
    /// The `NoExecute` taints of each node that has any.
    nodes: BTreeMap<Arc<str>, Vec<Taint>>,
}

impl Default for TaintEviction {
    fn default() -> Self {
        Self { pods: Objects::new([|known: &KnownPod| Some(Arc::clone(&known.node))]), nodes: BTreeMap::new() }
    }
}

impl TaintEviction {
    fn all_pods(&mut self, now: Timestamp, pods: &[Arc<PodView>]) -> Vec<Uid> {
        let here: BTreeSet<Uid> = pods.iter().filter_map(|pod| pod.uid().map(Uid::from)).collect();
        for uid in self.pods.missing_from(&here) {
            self.pods.remove(&uid);
        }
        pods.iter().flat_map(|pod| self.pod_seen(now, pod)).collect()
    }

    fn pod_seen(&mut self, now: Timestamp, pod: &Arc<PodView>) -> Option<Uid> {
        let uid = pod.uid().map(Uid::from)?;
        // One that is asked to leave already has nothing to wait for here, and one without a node nothing to fear.
        let Some(node) = pod.node().filter(|_| !pod::is_terminating(&**pod)) else {
            self.pods.remove(&uid);
            return None;
        };
        match self.pods.get_mut(&uid) {
            Some(known) => known.pod = Arc::clone(pod),
            None => {
                let known =
                    KnownPod { pod: Arc::clone(pod), node: node.into(), until: None, evicted: false, spared: false };
                self.pods.put(Arc::clone(&uid), known);
            }
        }
        self.judge(now, &uid).then_some(uid)
    }

    fn all_nodes(&mut self, now: Timestamp, nodes: &[Arc<Node>]) -> Vec<Uid> {
        let here: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        let gone: Vec<Arc<str>> = self.nodes.keys().filter(|name| !here.contains(&***name)).cloned().collect();
        let mut touched: Vec<Uid> = gone.iter().flat_map(|name| self.set_taints(now, name, Vec::new())).collect();
        touched.extend(nodes.iter().flat_map(|node| self.node_seen(now, node)));
        touched
    }

    fn node_seen(&mut self, now: Timestamp, node: &Node) -> Vec<Uid> {
        let all = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let taints: Vec<Taint> = all.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect();
        self.set_taints(now, &node.name_any(), taints)
    }

    fn set_taints(&mut self, now: Timestamp, name: &str, taints: Vec<Taint>) -> Vec<Uid> {
        let before = self.nodes.get(name).map(Vec::as_slice).unwrap_or_default();
        if before == taints {
            return Vec::new();
        }
        match taints.is_empty() {
            true => drop(self.nodes.remove(name)),
            false => drop(self.nodes.insert(name.into(), taints)),
        }
        let mut uids: Vec<Uid> = self.pods.under(BY_NODE, name).map(|(uid, _)| uid.clone()).collect();
        uids.retain(|uid| self.judge(now, uid));
        uids
    }

    /// Works out when a pod must leave. Answers whether that is new.
    fn judge(&mut self, now: Timestamp, uid: &str) -> bool {
        let Some(known) = self.pods.get_mut(uid) else { return false };
        let taints = self.nodes.get(&known.node).map(Vec::as_slice).unwrap_or_default();
        let until = leaves_at(&known.pod, taints, now);
        // One that leaves at once, whenever that was said, is not put off by being looked at again.
        if known.until == until || (known.until.is_some_and(|at| at <= now) && until.is_some()) {
            return false;
        }
        let had = std::mem::replace(&mut known.until, until);
        known.spared = had.is_some() && until.is_none();
        known.evicted = false;
        true
    }
}

impl Controller for TaintEviction {
    type Input = Input;
    type Key = Uid;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, now: Now, input: Input) -> Vec<Uid> {
        let now = now.timestamp;
        match input {
            Input::Pods(WatchUpdate::Listed(all)) => self.all_pods(now, &all),
            Input::Pods(WatchUpdate::Changed(pod)) => self.pod_seen(now, &pod).into_iter().collect(),
            Input::Pods(WatchUpdate::Removed(pod)) => {
                self.pods.remove(&pod.uid().unwrap_or_default());
                Vec::new()
            }
            Input::Nodes(WatchUpdate::Listed(all)) => self.all_nodes(now, &all),
            Input::Nodes(WatchUpdate::Changed(node)) => self.node_seen(now, &node),
            // Pods of a node that is gone are not ended by its taints.
            Input::Nodes(WatchUpdate::Removed(node)) => self.set_taints(now, &node.name_any(), Vec::new()),
        }
    }

    fn plan(&self, uid: &Uid, now: Now) -> Plan<Action> {
        match self.pods.get(uid) {
            Some(KnownPod { pod, spared: true, .. }) => Plan::act(Action::Spare(Arc::clone(pod))),
            Some(KnownPod { pod, until: Some(until), evicted: false, .. }) if *until <= now.timestamp => {
                Plan::act(Action::Evict { pod: Arc::clone(pod), at: now.timestamp })
            }
            Some(KnownPod { until: Some(until), evicted: false, .. }) => {
                Plan::wait(now.at(*until), "the pod tolerates its node's taints no longer")
            }
            Some(_) | None => Plan::default(),
        }
    }

    fn begun(&mut self, _: Now, uid: &Uid, actions: &[Action]) {
        let Some(known) = self.pods.get_mut(uid) else { return };
        for action in actions {
            match action {
                Action::Evict { .. } => known.evicted = true,
                Action::Spare(_) => known.spared = false,
            }
        }
    }

    fn ended(&mut self, _: Now, uid: &Uid, action: Action, outcome: Outcome<()>) -> Vec<Uid> {
        if let (Action::Evict { .. }, Outcome::Failed(_) | Outcome::NotTried) = (action, outcome)
            && let Some(known) = self.pods.get_mut(uid)
        {
            known.evicted = false;
        }
        Vec::new()
    }
}

/// When the pod must leave; never, if it tolerates everything for ever.
fn leaves_at(pod: &PodView, taints: &[Taint], now: Timestamp) -> Option<Timestamp> {
    let bound = pod.status.conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    let bound = bound.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    let each = taints.iter().filter_map(|taint| {
        let added = taint.time_added.as_ref().map_or(now, |time| time.0);
        let since = bound.map_or(added, |bound| bound.max(added));
        match pod::toleration(pod, taint) {
            None => Some(since.min(now)),
            Some(Toleration { seconds: None, .. }) => None,
            Some(Toleration { seconds: Some(seconds), .. }) => {
                let most = SignedDuration::from_secs(seconds.max(0));
                Some(since.saturating_add(most).unwrap_or(Timestamp::MAX))
            }
        }
    });
    each.min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn pod(uid: &str, tolerations: Value) -> Arc<PodView> {
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": uid, "namespace": "ns", "uid": uid },
                "spec": { "nodeName": "n1", "tolerations": tolerations } }))
            .unwrap(),
        )
    }

    fn bound_at(uid: &str, tolerations: Value, second: i64) -> Arc<PodView> {
        let mut pod = Arc::unwrap_or_clone(pod(uid, tolerations));
        pod.status.conditions = serde_json::from_value(
            json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": at(second).to_string() }]),
        )
        .unwrap();
        Arc::new(pod)
    }

    fn node(taints: Value) -> Arc<Node> {
        Arc::new(serde_json::from_value(json!({ "metadata": { "name": "n1" }, "spec": { "taints": taints } })).unwrap())
    }

    fn unreachable(second: i64) -> Value {
        json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": at(second).to_string() }])
    }

    fn for_seconds(seconds: i64) -> Value {
        json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds }])
    }

    /// A controller whose keys are planned by hand.
    #[derive(Default)]
    struct Stage {
        plan: TaintEviction,
        keys: BTreeSet<Uid>,
    }

    fn now(at: Timestamp) -> Now {
        Now { instant: tokio::time::Instant::now(), timestamp: at }
    }

    impl Stage {
        /// Who is spared by this.
        fn told(&mut self, at: Timestamp, input: Input) -> Vec<String> {
            let keys = self.plan.observe(now(at), input);
            let spared: Vec<String> =
                keys.iter().flat_map(|uid| self.perform(at, uid, false)).map(|pod| pod.name_any()).collect();
            self.keys.extend(keys);
            spared
        }

        fn pod_seen(&mut self, at: Timestamp, pod: &Arc<PodView>) {
            self.told(at, Input::Pods(WatchUpdate::Changed(Arc::clone(pod))));
        }

        fn node_seen(&mut self, at: Timestamp, node: Arc<Node>) -> Vec<String> {
            self.told(at, Input::Nodes(WatchUpdate::Changed(node)))
        }

        /// Does what is planned for a pod, if it is of this sort.
        fn perform(&mut self, at: Timestamp, uid: &Uid, evicts: bool) -> Vec<Arc<PodView>> {
            let mut actions = self.plan.plan(uid, now(at)).actions;
            actions.retain(|action| matches!(action, Action::Evict { .. }) == evicts);
            self.plan.begun(now(at), uid, &actions);
            let pod = |action| match action {
                Action::Evict { pod, .. } | Action::Spare(pod) => pod,
            };
            actions.into_iter().map(pod).collect()
        }

        /// Who must leave by now.
        fn due(&mut self, at: Timestamp) -> Vec<String> {
            let keys = self.keys.clone();
            keys.iter().flat_map(|uid| self.perform(at, uid, true)).map(|pod| pod.name_any()).collect()
        }

        /// When the next one must leave.
        fn next_wake(&self) -> Option<Timestamp> {
            let waits = |uid: &Uid| self.plan.plan(uid, now(at(-1))).wake.is_some();
            let pods = self.keys.iter().filter(|uid| waits(uid)).filter_map(|uid| self.plan.pods.get(uid));
            pods.filter_map(|known| known.until).min()
        }

        /// It could not be made to leave.
        fn failed(&mut self, uid: &str) {
            let pod = Arc::clone(&self.plan.pods.get(uid).unwrap().pod);
            self.plan.ended(now(at(0)), &uid.into(), Action::Evict { pod, at: at(0) }, Outcome::Failed(String::new()));
        }
    }

    #[test]
    fn pod_without_toleration_is_evicted_at_once_and_once() {
        let mut stage = Stage::default();
        stage.pod_seen(at(0), &pod("a", json!([])));
        let other = json!([{ "key": "other", "operator": "Exists" }]);
        stage.pod_seen(at(0), &pod("b", other));
        stage.pod_seen(at(0), &pod("all", json!([{ "operator": "Exists", "effect": "NoExecute" }])));
        assert_eq!(stage.next_wake(), None);
        stage.node_seen(at(5), node(unreachable(5)));
        assert_eq!(stage.due(at(5)), ["a", "b"]);
        assert_eq!(stage.due(at(900)), [""; 0]);
        // Looking at it again does not end it a second time; a failure does.
        stage.pod_seen(at(6), &pod("a", json!([])));
        assert_eq!(stage.next_wake(), None);
        stage.failed("a");
        assert_eq!(stage.due(at(7)), ["a"]);
    }

    #[test]
    fn a_taint_that_only_keeps_new_pods_away_ends_nobody() {
        let mut stage = Stage::default();
        stage.pod_seen(at(0), &pod("a", json!([])));
        stage.node_seen(at(0), node(json!([{ "key": "k", "effect": "NoSchedule" }])));
        assert_eq!(stage.next_wake(), None);
    }

    #[test]
    fn the_deadline_counts_from_the_taint_also_for_a_planner_that_came_later() {
        let mut stage = Stage::default();
        stage.told(at(100), Input::Pods(WatchUpdate::Listed(vec![pod("a", for_seconds(300))])));
        stage.told(at(100), Input::Nodes(WatchUpdate::Listed(vec![node(unreachable(10))])));
        assert_eq!(stage.next_wake(), Some(at(310)));
        assert_eq!(stage.due(at(309)).len(), 0);
        assert_eq!(stage.due(at(310)), ["a"]);
    }

    #[test]
    fn pod_bound_after_the_taint_has_its_whole_toleration() {
        let mut stage = Stage::default();
        stage.node_seen(at(10), node(unreachable(10)));
        stage.pod_seen(at(200), &bound_at("late", for_seconds(300), 200));
        assert_eq!(stage.next_wake(), Some(at(500)));
    }

    #[test]
    fn the_first_of_several_deadlines_counts() {
        let mut stage = Stage::default();
        let mut tolerations = for_seconds(300);
        let other = json!({ "key": "k", "operator": "Equal", "value": "v", "tolerationSeconds": 20,
            "effect": "NoExecute" });
        tolerations.as_array_mut().unwrap().push(other);
        stage.pod_seen(at(0), &pod("a", tolerations));
        let mut taints = unreachable(0);
        let other = json!({ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": at(100).to_string() });
        taints.as_array_mut().unwrap().push(other);
        stage.node_seen(at(100), node(taints));
        assert_eq!(stage.next_wake(), Some(at(120)));
    }

    #[test]
    fn a_taint_that_goes_spares_those_who_waited() {
        let mut stage = Stage::default();
        let waiting = pod("a", for_seconds(300));
        stage.pod_seen(at(0), &waiting);
        stage.pod_seen(at(0), &pod("b", json!([{ "operator": "Exists" }])));
        stage.node_seen(at(0), node(unreachable(0)));
        assert_eq!(stage.node_seen(at(9), node(json!([]))), ["a"]);
        assert_eq!(stage.next_wake(), None);
        assert_eq!(stage.due(at(900)).len(), 0);
    }

    #[test]
    fn pod_already_terminating_or_gone_is_not_evicted() {
        let mut stage = Stage::default();
        stage.node_seen(at(0), node(unreachable(0)));
        let mut leaving = Arc::unwrap_or_clone(pod("a", for_seconds(5)));
        stage.pod_seen(at(0), &pod("a", for_seconds(5)));
        stage.pod_seen(at(0), &pod("b", for_seconds(5)));
        leaving.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
        stage.pod_seen(at(1), &Arc::new(leaving));
        stage.told(at(1), Input::Pods(WatchUpdate::Removed(pod("b", json!([])))));
        assert_eq!(stage.next_wake(), None);
    }

    /// For any order of facts: whoever must leave was woken, or wakes when its time is up.
    #[test]
    fn taint_eviction_wakes_every_pod_that_must_leave_in_time() {
        use crate::woken::{Dice, Watched};

        let mut evicted = 0;
        for seed in 1..=200 {
            let (mut dice, mut watched) = (Dice::new(seed), Watched::new(TaintEviction::default()));
            let keys: Vec<Uid> = (0..5).map(|number| format!("p{number}").into()).collect();
            for _ in 0..60 {
                let uid = format!("p{}", dice.roll(5));
                let tolerations = match dice.roll(3) {
                    0 => json!([]),
                    1 => for_seconds(60 * i64::try_from(dice.roll(4)).unwrap()),
                    _ => json!([{ "operator": "Exists" }]),
                };
                let taints = match dice.roll(3) {
                    0 => json!([]),
                    1 => unreachable(i64::try_from(dice.roll(100)).unwrap()),
                    // One that nobody dated.
                    _ => json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]),
                };
                let input = match dice.roll(6) {
                    0..=2 => Input::Pods(WatchUpdate::Changed(pod(&uid, tolerations))),
                    3 => Input::Pods(WatchUpdate::Removed(pod(&uid, json!([])))),
                    4 => Input::Nodes(WatchUpdate::Changed(node(taints))),
                    _ => Input::Nodes(WatchUpdate::Listed(if dice.flip() { vec![node(taints)] } else { Vec::new() })),
                };
                watched.tell(input, keys.iter().cloned(), seed);
                watched.pass(std::time::Duration::from_secs(dice.roll(4) as u64 * 20));
            }
            evicted += watched.pending();
        }
        assert!(evicted > 100, "the dice never asked for anything: {evicted}");
    }
}
