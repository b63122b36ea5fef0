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

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio::time::Instant;

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

/// What is to be done.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Act {
    /// Collect this pod.
    Collect(Uid, Why),
    /// Ask whether this node is really gone; [`Keeper::node_is_gone`] takes the answer.
    AskFor(Arc<str>),
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
            leaving: pod.is_leaving(),
            ended: pod.is_over(),
            evicted: pod.status.reason.as_deref() == Some("Evicted"),
            created: pod.creation_timestamp().map_or(0, |at| at.0.as_second()),
        }
    }
}

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(super) struct Keeper {
    settings: Settings,
    pods: BTreeMap<Uid, PodFacts>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Uid>>,
    /// Ended pods in the order in which they are given up.
    ended: BTreeSet<(bool, i64, Uid)>,
    /// Nodes that exist, and whether each is out of service.
    nodes: BTreeMap<Arc<str>, bool>,
    nodes_listed: bool,
    /// Nodes that pods name and nobody has, with the moment until which they may turn up.
    missing: BTreeMap<Arc<str>, Instant>,
}

impl Keeper {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            pods: BTreeMap::new(),
            by_node: BTreeMap::new(),
            ended: BTreeSet::new(),
            nodes: BTreeMap::new(),
            nodes_listed: false,
            missing: BTreeMap::new(),
        }
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&PodFacts> {
        self.pods.get(uid)
    }

    pub(super) fn all_pods(&mut self, now: Instant, pods: &[Arc<PodView>]) -> Vec<Act> {
        let here: BTreeSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
        let gone: Vec<Uid> = self.pods.keys().filter(|uid| !here.contains(&***uid)).cloned().collect();
        for uid in gone {
            self.pod_gone(&uid);
        }
        pods.iter().flat_map(|pod| self.pod_seen(now, pod)).collect()
    }

    pub(super) fn pod_seen(&mut self, now: Instant, pod: &PodView) -> Vec<Act> {
        let Some(uid) = pod.uid().map(Uid::from) else { return Vec::new() };
        let facts = PodFacts::of(pod);
        if self.pods.get(&uid) == Some(&facts) {
            return Vec::new();
        }
        self.pod_gone(&uid);
        if !facts.node.is_empty() {
            self.by_node.entry(Arc::clone(&facts.node)).or_default().insert(uid.clone());
        }
        if facts.ended {
            self.ended.insert((!facts.evicted, facts.created, uid.clone()));
        }
        self.pods.insert(uid.clone(), facts);
        let mut acts = self.judge(now, &uid);
        let surplus = self.ended.len().saturating_sub(self.settings.ended_max);
        acts.extend(self.ended.iter().take(surplus).map(|(.., uid)| Act::Collect(uid.clone(), Why::Surplus)));
        acts
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some(facts) = self.pods.remove(uid) else { return };
        self.ended.remove(&(!facts.evicted, facts.created, uid.into()));
        if let Some(others) = self.by_node.get_mut(&facts.node) {
            others.remove(uid);
            if others.is_empty() {
                self.by_node.remove(&facts.node);
                self.missing.remove(&facts.node);
            }
        }
    }

    pub(super) fn all_nodes(&mut self, now: Instant, nodes: &[Arc<Node>]) -> Vec<Act> {
        self.nodes = nodes.iter().map(|node| (Arc::from(node.name_any()), is_out_of_service(node))).collect();
        self.nodes_listed = true;
        let uids: Vec<Uid> = self.pods.keys().cloned().collect();
        self.missing.retain(|name, _| !self.nodes.contains_key(name));
        uids.iter().flat_map(|uid| self.judge(now, uid)).collect()
    }

    pub(super) fn node_seen(&mut self, now: Instant, node: &Node) -> Vec<Act> {
        let name: Arc<str> = node.name_any().into();
        self.missing.remove(&name);
        self.nodes.insert(Arc::clone(&name), is_out_of_service(node));
        self.judge_node(now, &name)
    }

    pub(super) fn node_gone(&mut self, now: Instant, name: &str) -> Vec<Act> {
        self.nodes.remove(name);
        self.judge_node(now, name)
    }

    /// The answer to [`Act::AskFor`]: the server has no such node either.
    pub(super) fn node_is_gone(&mut self, name: &str) -> Vec<Act> {
        self.missing.remove(name);
        let pods = self.by_node.get(name).into_iter().flatten();
        pods.map(|uid| Act::Collect(uid.clone(), Why::NodeGone)).collect()
    }

    /// The answer to [`Act::AskFor`]: it is there after all, or nobody could say. The watch will tell of it, or the
    /// question is asked again.
    pub(super) fn node_is_not_gone(&mut self, now: Instant, name: &str) {
        if !self.nodes.contains_key(name) && self.by_node.contains_key(name) {
            self.missing.insert(name.into(), now + self.settings.quarantine);
        }
    }

    /// What time itself makes necessary.
    pub(super) fn time_passed(&mut self, now: Instant) -> Vec<Act> {
        let due: Vec<Arc<str>> =
            self.missing.iter().filter(|(_, until)| **until <= now).map(|(name, _)| Arc::clone(name)).collect();
        for name in &due {
            self.missing.remove(name);
        }
        due.into_iter().map(Act::AskFor).collect()
    }

    /// When time itself makes something necessary.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.missing.values().min().copied()
    }

    fn judge_node(&mut self, now: Instant, name: &str) -> Vec<Act> {
        let uids: Vec<Uid> = self.by_node.get(name).into_iter().flatten().cloned().collect();
        uids.iter().flat_map(|uid| self.judge(now, uid)).collect()
    }

    fn judge(&mut self, now: Instant, uid: &Uid) -> Vec<Act> {
        let Some(pod) = self.pods.get(uid) else { return Vec::new() };
        if pod.node.is_empty() {
            return if pod.leaving { vec![Act::Collect(uid.clone(), Why::Unscheduled)] } else { Vec::new() };
        }
        match self.nodes.get(&pod.node) {
            Some(true) if pod.leaving => vec![Act::Collect(uid.clone(), Why::OutOfService)],
            Some(_) => Vec::new(),
            None if self.nodes_listed => {
                let until = now + self.settings.quarantine;
                self.missing.entry(Arc::clone(&pod.node)).or_insert(until);
                Vec::new()
            }
            None => Vec::new(),
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

    fn collect(uid: &str, why: Why) -> Act {
        Act::Collect(uid.into(), why)
    }

    #[test]
    fn pods_of_a_missing_node_are_given_up_after_the_quarantine_and_a_last_question() {
        let now = Instant::now();
        let mut keeper = Keeper::new(Settings::default());
        assert_eq!(keeper.pod_seen(now, &pod("a", "n1", "Running", false)), [], "nodes are not known yet");
        assert_eq!(keeper.all_nodes(now, &[node("n2", "True", None)]), []);
        assert_eq!(keeper.next_wake(), Some(now + Duration::from_secs(40)));
        assert_eq!(keeper.time_passed(now + Duration::from_secs(39)), []);
        let due = now + Duration::from_secs(40);
        assert_eq!(keeper.time_passed(due), [Act::AskFor("n1".into())]);
        assert_eq!(keeper.node_is_gone("n1"), [collect("a", Why::NodeGone)]);
    }

    #[test]
    fn a_node_that_comes_back_keeps_its_pods() {
        let now = Instant::now();
        let mut keeper = Keeper::new(Settings::default());
        keeper.all_nodes(now, &[node("n1", "True", None)]);
        keeper.pod_seen(now, &pod("a", "n1", "Running", false));
        keeper.node_gone(now, "n1");
        assert!(keeper.next_wake().is_some());
        assert_eq!(keeper.node_seen(now, &node("n1", "True", None)), []);
        assert_eq!(keeper.next_wake(), None);
        // Or the question finds it.
        keeper.node_gone(now, "n1");
        let due = now + Duration::from_secs(40);
        keeper.time_passed(due);
        keeper.node_is_not_gone(due, "n1");
        assert_eq!(keeper.next_wake(), Some(due + Duration::from_secs(40)));
    }

    #[test]
    fn only_leaving_pods_of_a_dead_node_out_of_service_are_given_up() {
        let now = Instant::now();
        let mut keeper = Keeper::new(Settings::default());
        keeper.all_nodes(now, &[node("n1", "True", Some(OUT_OF_SERVICE))]);
        keeper.pod_seen(now, &pod("stays", "n1", "Running", false));
        assert_eq!(keeper.pod_seen(now, &pod("leaves", "n1", "Running", true)), [], "the node is ready");
        let dead = node("n1", "Unknown", Some(OUT_OF_SERVICE));
        assert_eq!(keeper.node_seen(now, &dead), [collect("leaves", Why::OutOfService)]);
        assert_eq!(keeper.pod_seen(now, &pod("later", "n1", "Running", true)), [collect("later", Why::OutOfService)]);
    }

    #[test]
    fn a_pod_that_leaves_without_a_node_is_finished() {
        let now = Instant::now();
        let mut keeper = Keeper::new(Settings::default());
        assert_eq!(keeper.pod_seen(now, &pod("a", "", "Pending", false)), []);
        assert_eq!(keeper.pod_seen(now, &pod("a", "", "Pending", true)), [collect("a", Why::Unscheduled)]);
    }

    #[test]
    fn of_too_many_ended_pods_the_evicted_and_then_the_oldest_go() {
        let now = Instant::now();
        let mut keeper = Keeper::new(Settings { ended_max: 2, ..Settings::default() });
        let ended = |uid: &str, created: &str, reason: &str| {
            let mut pod = pod(uid, "", "Failed", false);
            pod.metadata.creation_timestamp = Some(serde_json::from_value(json!(created)).unwrap());
            pod.status.reason = Some(reason.to_owned());
            pod
        };
        assert_eq!(keeper.pod_seen(now, &ended("old", "2026-01-01T00:00:00Z", "")), []);
        assert_eq!(keeper.pod_seen(now, &ended("new", "2026-01-03T00:00:00Z", "")), []);
        let evicted = ended("evicted", "2026-01-02T00:00:00Z", "Evicted");
        assert_eq!(keeper.pod_seen(now, &evicted), [collect("evicted", Why::Surplus)]);
        keeper.pod_gone("evicted");
        let third = ended("third", "2026-01-04T00:00:00Z", "");
        assert_eq!(keeper.pod_seen(now, &third), [collect("old", Why::Surplus)]);
    }
}
