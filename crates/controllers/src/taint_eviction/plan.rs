//! Which pods must leave because of their node's taints, and when: pure, told facts and the time.
//!
//! A pod that does not tolerate a `NoExecute` taint leaves at once; one that tolerates it for a while leaves that long
//! after the taint was put there, or after it was bound if that was later. Both moments are stored, so a restart changes
//! nothing about the deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use kube::ResourceExt as _;

use crate::pod::PodView;
use crate::tolerations::covering;

/// A pod's UID.
pub(super) type Uid = Arc<str>;

/// What changed for a pod.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// It may stay after all.
    Spare(Arc<PodView>),
}

#[derive(Debug)]
struct Known {
    pod: Arc<PodView>,
    node: Arc<str>,
    /// When it must leave.
    until: Option<Timestamp>,
}

/// Everything known, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pods: BTreeMap<Uid, Known>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Uid>>,
    /// The `NoExecute` taints of each node that has any.
    nodes: BTreeMap<Arc<str>, Vec<Taint>>,
    /// Pods in the order in which they must leave.
    deadlines: BTreeSet<(Timestamp, Uid)>,
}

impl Plan {
    pub(super) fn all_pods(&mut self, now: Timestamp, pods: &[Arc<PodView>]) -> Vec<Act> {
        let here: BTreeSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
        let gone: Vec<Uid> = self.pods.keys().filter(|uid| !here.contains(&***uid)).cloned().collect();
        for uid in gone {
            self.pod_gone(&uid);
        }
        pods.iter().flat_map(|pod| self.pod_seen(now, pod)).collect()
    }

    pub(super) fn pod_seen(&mut self, now: Timestamp, pod: &Arc<PodView>) -> Vec<Act> {
        let Some(uid) = pod.uid().map(Uid::from) else { return Vec::new() };
        // One that is asked to leave already has nothing to wait for here, and one without a node nothing to fear.
        let Some(node) = pod.node().filter(|_| !pod.is_leaving()).map(Arc::<str>::from) else {
            self.pod_gone(&uid);
            return Vec::new();
        };
        self.by_node.entry(Arc::clone(&node)).or_default().insert(Arc::clone(&uid));
        match self.pods.get_mut(&uid) {
            Some(known) => known.pod = Arc::clone(pod),
            None => {
                self.pods.insert(Arc::clone(&uid), Known { pod: Arc::clone(pod), node, until: None });
            }
        }
        self.judge(now, &uid).into_iter().collect()
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some((uid, known)) = self.pods.remove_entry(uid) else { return };
        if let Some(until) = known.until {
            self.deadlines.remove(&(until, Arc::clone(&uid)));
        }
        if let Some(others) = self.by_node.get_mut(&known.node) {
            others.remove(&uid);
            if others.is_empty() {
                self.by_node.remove(&known.node);
            }
        }
    }

    pub(super) fn all_nodes(&mut self, now: Timestamp, nodes: &[Arc<Node>]) -> Vec<Act> {
        let here: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        let gone: Vec<Arc<str>> = self.nodes.keys().filter(|name| !here.contains(&***name)).cloned().collect();
        let mut acts: Vec<Act> = gone.iter().flat_map(|name| self.node_gone(now, name)).collect();
        acts.extend(nodes.iter().flat_map(|node| self.node_seen(now, node)));
        acts
    }

    pub(super) fn node_seen(&mut self, now: Timestamp, node: &Node) -> Vec<Act> {
        let all = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let taints: Vec<Taint> = all.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect();
        self.set_taints(now, &node.name_any(), taints)
    }

    /// Pods of a node that is gone are not ended by its taints.
    pub(super) fn node_gone(&mut self, now: Timestamp, name: &str) -> Vec<Act> {
        self.set_taints(now, name, Vec::new())
    }

    fn set_taints(&mut self, now: Timestamp, name: &str, taints: Vec<Taint>) -> Vec<Act> {
        let before = self.nodes.get(name).map(Vec::as_slice).unwrap_or_default();
        if before == taints {
            return Vec::new();
        }
        match taints.is_empty() {
            true => drop(self.nodes.remove(name)),
            false => drop(self.nodes.insert(name.into(), taints)),
        }
        let uids: Vec<Uid> = self.by_node.get(name).into_iter().flatten().cloned().collect();
        uids.iter().filter_map(|uid| self.judge(now, uid)).collect()
    }

    fn judge(&mut self, now: Timestamp, uid: &Uid) -> Option<Act> {
        let known = self.pods.get_mut(uid)?;
        let taints = self.nodes.get(&known.node).map(Vec::as_slice).unwrap_or_default();
        let until = leaves_at(&known.pod, taints, now);
        // One that leaves at once, whenever that was said, is not put off by being looked at again.
        if known.until == until || (known.until.is_some_and(|at| at <= now) && until.is_some()) {
            return None;
        }
        if let Some(old) = known.until {
            self.deadlines.remove(&(old, Arc::clone(uid)));
        }
        if let Some(new) = until {
            self.deadlines.insert((new, Arc::clone(uid)));
        }
        let had = std::mem::replace(&mut known.until, until);
        (had.is_some() && until.is_none()).then(|| Act::Spare(Arc::clone(&known.pod)))
    }

    /// Takes out the pods that must leave by now; each is handed out once.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Arc<PodView>> {
        let mut due = Vec::new();
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, uid)) = self.deadlines.pop_first() else { break };
            if let Some(known) = self.pods.get(&uid) {
                due.push(Arc::clone(&known.pod));
            }
        }
        due
    }

    /// A pod that was handed out could not be ended: it is due again at `at`, if it still has to leave at all.
    pub(super) fn put_back(&mut self, uid: &str, at: Timestamp) {
        let uid = Uid::from(uid);
        let Some(known) = self.pods.get_mut(&uid) else { return };
        if let Some(until) = &mut known.until {
            self.deadlines.remove(&(*until, Arc::clone(&uid)));
            *until = at;
            self.deadlines.insert((at, uid));
        }
    }

    /// When the next pod must leave.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

/// When the pod must leave; never, if it tolerates everything for ever.
fn leaves_at(pod: &PodView, taints: &[Taint], now: Timestamp) -> Option<Timestamp> {
    let bound = pod.status.conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    let bound = bound.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    let each = taints.iter().filter_map(|taint| {
        let added = taint.time_added.as_ref().map_or(now, |time| time.0);
        let since = bound.map_or(added, |bound| bound.max(added));
        match covering(&pod.spec.tolerations, taint) {
            None => Some(since.min(now)),
            Some(Toleration { toleration_seconds: None, .. }) => None,
            Some(Toleration { toleration_seconds: Some(seconds), .. }) => {
                let most = SignedDuration::from_secs((*seconds).max(0));
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

    fn names(pods: &[Arc<PodView>]) -> Vec<String> {
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn who_does_not_tolerate_leaves_at_once_and_once() {
        let mut plan = Plan::default();
        plan.pod_seen(at(0), &pod("a", json!([])));
        let other = json!([{ "key": "other", "operator": "Exists" }]);
        plan.pod_seen(at(0), &pod("b", other));
        plan.pod_seen(at(0), &pod("all", json!([{ "operator": "Exists", "effect": "NoExecute" }])));
        assert_eq!(plan.next_wake(), None);
        plan.node_seen(at(5), &node(unreachable(5)));
        assert_eq!(names(&plan.due(at(5))), ["a", "b"]);
        assert_eq!(names(&plan.due(at(900))), [""; 0]);
        // Looking at it again does not end it a second time; a failure does.
        plan.pod_seen(at(6), &pod("a", json!([])));
        assert_eq!(plan.next_wake(), None);
        plan.put_back("a", at(7));
        assert_eq!(names(&plan.due(at(7))), ["a"]);
    }

    #[test]
    fn a_taint_that_only_keeps_new_pods_away_ends_nobody() {
        let mut plan = Plan::default();
        plan.pod_seen(at(0), &pod("a", json!([])));
        plan.node_seen(at(0), &node(json!([{ "key": "k", "effect": "NoSchedule" }])));
        assert_eq!(plan.next_wake(), None);
    }

    #[test]
    fn the_deadline_counts_from_the_taint_also_for_a_planner_that_came_later() {
        let mut plan = Plan::default();
        plan.all_pods(at(100), &[pod("a", for_seconds(300))]);
        plan.all_nodes(at(100), &[node(unreachable(10))]);
        assert_eq!(plan.next_wake(), Some(at(310)));
        assert_eq!(plan.due(at(309)).len(), 0);
        assert_eq!(names(&plan.due(at(310))), ["a"]);
    }

    #[test]
    fn who_came_after_the_taint_has_its_whole_time() {
        let mut plan = Plan::default();
        plan.node_seen(at(10), &node(unreachable(10)));
        plan.pod_seen(at(200), &bound_at("late", for_seconds(300), 200));
        assert_eq!(plan.next_wake(), Some(at(500)));
    }

    #[test]
    fn the_first_of_several_deadlines_counts() {
        let mut plan = Plan::default();
        let mut tolerations = for_seconds(300);
        let other = json!({ "key": "k", "operator": "Equal", "value": "v", "tolerationSeconds": 20,
            "effect": "NoExecute" });
        tolerations.as_array_mut().unwrap().push(other);
        plan.pod_seen(at(0), &pod("a", tolerations));
        let mut taints = unreachable(0);
        let other = json!({ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": at(100).to_string() });
        taints.as_array_mut().unwrap().push(other);
        plan.node_seen(at(100), &node(taints));
        assert_eq!(plan.next_wake(), Some(at(120)));
    }

    #[test]
    fn a_taint_that_goes_spares_those_who_waited() {
        let mut plan = Plan::default();
        let waiting = pod("a", for_seconds(300));
        plan.pod_seen(at(0), &waiting);
        plan.pod_seen(at(0), &pod("b", json!([{ "operator": "Exists" }])));
        plan.node_seen(at(0), &node(unreachable(0)));
        let acts = plan.node_seen(at(9), &node(json!([])));
        assert!(matches!(&*acts, [Act::Spare(pod)] if pod.name_any() == "a"), "{acts:?}");
        assert_eq!(plan.next_wake(), None);
        assert_eq!(plan.due(at(900)).len(), 0);
    }

    #[test]
    fn who_leaves_already_or_is_gone_is_not_ended() {
        let mut plan = Plan::default();
        plan.node_seen(at(0), &node(unreachable(0)));
        let mut leaving = Arc::unwrap_or_clone(pod("a", for_seconds(5)));
        plan.pod_seen(at(0), &pod("a", for_seconds(5)));
        plan.pod_seen(at(0), &pod("b", for_seconds(5)));
        leaving.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
        plan.pod_seen(at(1), &Arc::new(leaving));
        plan.pod_gone("b");
        assert_eq!(plan.next_wake(), None);
    }
}
