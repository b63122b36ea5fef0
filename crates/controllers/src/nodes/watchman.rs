//! Which nodes have fallen silent, and whose pods are to be moved away from: pure, told facts and the time.
//!
//! ```text
//!  lease renewed, status posted ─▶ heard ── grace passes ─▶ Ready=Unknown ─▶ its pods not ready, unreachable:NoExecute
//!                                    ▲                                                              │
//!                                    └───────────────── posts its status again ◀────────────────────┘
//! ```
//!
//! A moment counts when it was heard here, not when the node says it was: clocks differ. Nodes are given up one at a time, and
//! not at all while every node is silent (it is more likely that we are cut off) or most of a small zone is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio::time::Instant;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A node that has never said how it is has this much longer.
const STARTUP: Duration = Duration::from_secs(10);
/// Between two nodes of a zone that are given up.
const PACE: Duration = Duration::from_secs(10);
/// The same while most nodes of a large zone are silent.
const SLOW_PACE: Duration = Duration::from_secs(100);
/// A zone with more nodes than this is large.
const LARGE: usize = 50;

/// A node's name.
pub(super) type Name = Arc<str>;

/// What is to be done about a node. Doing it again does no harm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// Say that nobody knows how it is, unless it has posted a status since this heartbeat.
    Silent { node: Name, heartbeat: Option<Timestamp> },
    /// Give it the one of the two `NoExecute` taints that is named, and take the other away.
    Taint { node: Name, key: Option<&'static str> },
    /// Say that its pods are not ready.
    PodsNotReady { node: Name },
}

impl Act {
    pub(super) fn node(&self) -> &Name {
        match self {
            Self::Silent { node, .. } | Self::Taint { node, .. } | Self::PodsNotReady { node } => node,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ready {
    Yes,
    No,
    Unknown,
    NeverSaid,
}

#[derive(Debug)]
struct Known {
    version: u64,
    zone: String,
    ready: Ready,
    /// What its Ready condition says about when it was posted.
    heartbeat: Option<Timestamp>,
    /// Its two taints of ours: not ready, unreachable.
    taints: (bool, bool),
    heard: Instant,
    renewed: Option<Timestamp>,
    /// Its pods have been told about, in this silence.
    pods_told: bool,
}

/// Everything known of nodes.
#[derive(Debug)]
pub(super) struct Watchman {
    grace: Duration,
    nodes: BTreeMap<Name, Known>,
    /// When a node of a zone was given up last.
    gave_up: BTreeMap<String, Instant>,
}

impl Watchman {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, nodes: BTreeMap::new(), gave_up: BTreeMap::new() }
    }

    pub(super) fn all_nodes(&mut self, now: Instant, nodes: &[Arc<Node>]) {
        let here: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        self.nodes.retain(|name, _| here.contains(&**name));
        for node in nodes {
            self.node_seen(now, node);
        }
    }

    pub(super) fn node_seen(&mut self, now: Instant, node: &Node) {
        let name: Name = node.name_any().into();
        let version = node.resource_version().and_then(|text| text.parse().ok()).unwrap_or(0);
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let condition = conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready = match condition.map(|condition| condition.status.as_str()) {
            Some("True") => Ready::Yes,
            Some("False") => Ready::No,
            Some(_) => Ready::Unknown,
            None => Ready::NeverSaid,
        };
        let heartbeat = condition.and_then(|condition| condition.last_heartbeat_time.as_ref()).map(|time| time.0);
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let has = |key: &str| taints.iter().any(|taint| taint.key == key && taint.effect == "NoExecute");
        let label = |key: &str| node.labels().get(key).map(String::as_str).unwrap_or_default();
        let zone = format!("{}/{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"));
        let taints = (has(NOT_READY), has(UNREACHABLE));
        let fresh = Known { version, zone, ready, heartbeat, taints, heard: now, renewed: None, pods_told: false };
        match self.nodes.get_mut(&name) {
            // What we wrote ourselves came back before what was on its way.
            Some(known) if known.version > version => {}
            Some(known) => {
                // Its silence is over when it posts a status, not when we write that it is silent.
                let spoke = ready != Ready::Unknown && (heartbeat != known.heartbeat || ready != known.ready);
                let heard = if spoke { now } else { known.heard };
                let pods_told = known.pods_told && ready == Ready::Unknown;
                *known = Known { heard, pods_told, renewed: known.renewed, ..fresh };
            }
            None => drop(self.nodes.insert(name, fresh)),
        }
    }

    pub(super) fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    pub(super) fn lease_seen(&mut self, now: Instant, lease: &Lease) {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let Some(known) = self.nodes.get_mut(&*lease.name_any()) else { return };
        if renewed.is_some() && known.renewed != renewed {
            // The first sight of a lease says nothing about when it was renewed.
            if known.renewed.is_some() {
                known.heard = now;
            }
            known.renewed = renewed;
        }
    }

    /// The pods of a node were told about.
    pub(super) fn pods_told(&mut self, name: &str) {
        if let Some(known) = self.nodes.get_mut(name) {
            known.pods_told = known.ready == Ready::Unknown;
        }
    }

    /// Everything that is to be done by now. Facts change by being told, so the same answer comes until they do.
    pub(super) fn acts(&mut self, now: Instant) -> Vec<Act> {
        let mut acts = Vec::new();
        for (name, known) in &self.nodes {
            if known.ready != Ready::Unknown && self.silent_at(known) <= now {
                acts.push(Act::Silent { node: Arc::clone(name), heartbeat: known.heartbeat });
            }
        }
        let all_down = self.all_down();
        let mut given_up = Vec::new();
        for (name, known) in &self.nodes {
            let wanted = if all_down { None } else { wanted_taint(known.ready) };
            if has_only(known, wanted) {
                continue;
            }
            let is_new = wanted.is_some() && known.taints == (false, false);
            if is_new && self.next_turn(now, &known.zone).is_none_or(|turn| turn > now) {
                continue;
            }
            if is_new && given_up.contains(&known.zone) {
                continue;
            }
            if is_new {
                given_up.push(known.zone.clone());
            }
            acts.push(Act::Taint { node: Arc::clone(name), key: wanted });
        }
        // Last, so that a pod which cannot be written does not keep its node from being given up.
        let untold = self.nodes.iter().filter(|(_, known)| known.ready == Ready::Unknown && !known.pods_told);
        acts.extend(untold.map(|(name, _)| Act::PodsNotReady { node: Arc::clone(name) }));
        acts
    }

    /// A node of ours has been given up: the next one of its zone has to wait.
    pub(super) fn gave_up(&mut self, now: Instant, name: &str) {
        if let Some(known) = self.nodes.get(name) {
            self.gave_up.insert(known.zone.clone(), now);
        }
    }

    /// When time itself makes something necessary.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let silent = self.nodes.values().filter(|known| known.ready != Ready::Unknown).map(|it| self.silent_at(it));
        let all_down = self.all_down();
        let given_up = self
            .nodes
            .values()
            .filter(|known| !all_down && wanted_taint(known.ready).is_some() && known.taints == (false, false));
        let turns = given_up.filter_map(|known| self.next_turn(now, &known.zone));
        silent.chain(turns).filter(|at| *at > now).min()
    }

    fn silent_at(&self, known: &Known) -> Instant {
        known.heard + self.grace + if known.ready == Ready::NeverSaid { STARTUP } else { Duration::ZERO }
    }

    /// Nobody is ready: there is nowhere to go, and it is likely that the fault is ours.
    fn all_down(&self) -> bool {
        self.nodes.values().all(|known| wanted_taint(known.ready).is_some())
    }

    /// When the next node of the zone may be given up; `None` while too much of it is down.
    fn next_turn(&self, now: Instant, zone: &str) -> Option<Instant> {
        let all = self.nodes.values().filter(|known| known.zone == zone);
        let (mut count, mut down) = (0_usize, 0_usize);
        for known in all {
            count += 1;
            down += usize::from(wanted_taint(known.ready).is_some());
        }
        let most_are_down = down > 2 && down * 100 >= count * 55;
        let pace = match most_are_down {
            false => PACE,
            true if count > LARGE => SLOW_PACE,
            // A whole zone that is down is another matter: those whose nodes are elsewhere can be helped there.
            true if down == count => PACE,
            true => return None,
        };
        Some(self.gave_up.get(zone).map_or(now, |last| *last + pace))
    }
}

fn wanted_taint(ready: Ready) -> Option<&'static str> {
    match ready {
        Ready::Yes | Ready::NeverSaid => None,
        Ready::No => Some(NOT_READY),
        Ready::Unknown => Some(UNREACHABLE),
    }
}

fn has_only(known: &Known, wanted: Option<&str>) -> bool {
    known.taints == (wanted == Some(NOT_READY), wanted == Some(UNREACHABLE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    const GRACE: Duration = Duration::from_secs(50);

    fn node(name: &str, version: u64, ready: &str, heartbeat: i64, taint: Option<&str>) -> Node {
        let taints: Vec<_> = taint.iter().map(|key| json!({ "key": key, "effect": "NoExecute" })).collect();
        let mut node = json!({ "metadata": { "name": name, "resourceVersion": version.to_string() },
            "spec": { "taints": taints }, "status": {} });
        if !ready.is_empty() {
            let at = Timestamp::from_second(heartbeat).unwrap().to_string();
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": ready, "lastHeartbeatTime": at }]);
        }
        serde_json::from_value(node).unwrap()
    }

    fn lease(name: &str, renewed: i64) -> Lease {
        let at = Timestamp::from_second(renewed).unwrap();
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "renewTime": format!("{at:.6}") } }))
            .unwrap()
    }

    fn silent(node: &str, heartbeat: i64) -> Act {
        Act::Silent { node: node.into(), heartbeat: Some(Timestamp::from_second(heartbeat).unwrap()) }
    }

    fn taint(node: &str, key: Option<&'static str>) -> Act {
        Act::Taint { node: node.into(), key }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_silent_exactly_a_grace_after_it_was_heard_last() {
        let now = Instant::now();
        let mut watchman = Watchman::new(GRACE);
        watchman.node_seen(now, &node("a", 1, "True", 1, None));
        watchman.lease_seen(now, &lease("a", 1));
        assert_eq!(watchman.next_wake(now), Some(now + GRACE));
        watchman.lease_seen(now + secs(10), &lease("a", 11));
        watchman.lease_seen(now + secs(20), &lease("a", 11));
        let at = now + secs(60);
        assert_eq!(watchman.next_wake(now), Some(at));
        assert_eq!(watchman.acts(at - secs(1)), []);
        assert_eq!(watchman.acts(at), [silent("a", 1)]);
        // A status counts as much as a lease.
        watchman.node_seen(at, &node("a", 2, "True", 61, None));
        assert_eq!(watchman.acts(at), []);
        assert_eq!(watchman.next_wake(at), Some(at + GRACE));
    }

    #[test]
    fn a_node_that_never_said_how_it_is_has_a_little_longer() {
        let now = Instant::now();
        let mut watchman = Watchman::new(GRACE);
        watchman.node_seen(now, &node("a", 1, "", 0, None));
        assert_eq!(watchman.acts(now + secs(59)), []);
        assert_eq!(watchman.acts(now + secs(60)), [Act::Silent { node: "a".into(), heartbeat: None }]);
    }

    #[test]
    fn a_silent_node_is_given_up_and_taken_back() {
        let now = Instant::now();
        let mut watchman = Watchman::new(GRACE);
        watchman.node_seen(now, &node("a", 1, "True", 1, None));
        watchman.node_seen(now, &node("b", 2, "True", 1, None));
        watchman.node_seen(now + secs(50), &node("a", 3, "Unknown", 1, None));
        let expected = [taint("a", Some(UNREACHABLE)), Act::PodsNotReady { node: "a".into() }];
        let acts = watchman.acts(now + secs(49));
        assert_eq!(acts, expected);
        watchman.pods_told("a");
        watchman.gave_up(now + secs(49), "a");
        watchman.node_seen(now + secs(49), &node("a", 4, "Unknown", 1, Some(UNREACHABLE)));
        assert_eq!(watchman.acts(now + secs(49)), []);
        // What was on its way is older than what we know.
        watchman.node_seen(now + secs(49), &node("a", 3, "Unknown", 1, None));
        assert_eq!(watchman.acts(now + secs(49)), []);
        watchman.node_seen(now + secs(49), &node("a", 5, "True", 90, Some(UNREACHABLE)));
        assert_eq!(watchman.acts(now + secs(49)), [taint("a", None)]);
        // The next silence is told about again.
        watchman.node_seen(now + secs(49), &node("a", 6, "True", 90, None));
        watchman.node_seen(now + secs(49), &node("a", 7, "Unknown", 90, None));
        assert_eq!(watchman.acts(now + secs(49))[0], Act::PodsNotReady { node: "a".into() });
    }

    #[test]
    fn a_node_that_says_it_is_not_ready_keeps_its_pods_as_they_are() {
        let now = Instant::now();
        let mut watchman = Watchman::new(GRACE);
        watchman.node_seen(now, &node("a", 1, "False", 1, None));
        watchman.node_seen(now, &node("b", 2, "True", 1, None));
        assert_eq!(watchman.acts(now), [taint("a", Some(NOT_READY))]);
        // From one word to the other at once, whatever the pace.
        watchman.gave_up(now, "a");
        watchman.node_seen(now, &node("a", 3, "Unknown", 1, Some(NOT_READY)));
        assert!(watchman.acts(now).contains(&taint("a", Some(UNREACHABLE))));
    }

    #[test]
    fn nobody_is_given_up_while_everybody_is_silent() {
        let now = Instant::now();
        let mut watchman = Watchman::new(GRACE);
        watchman.node_seen(now, &node("a", 1, "Unknown", 1, Some(UNREACHABLE)));
        watchman.pods_told("a");
        assert_eq!(watchman.acts(now), [taint("a", None)], "it was alone, or the last to fall");
        watchman.node_seen(now, &node("a", 2, "Unknown", 1, None));
        assert_eq!(watchman.acts(now), []);
        assert_eq!(watchman.next_wake(now), None);
        watchman.node_seen(now, &node("b", 3, "True", 1, None));
        assert_eq!(watchman.acts(now), [taint("a", Some(UNREACHABLE))]);
    }

    #[test]
    fn nodes_are_given_up_one_at_a_time() {
        let now = Instant::now();
        let mut watchman = Watchman::new(GRACE);
        for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let ready = if index < 2 { "Unknown" } else { "True" };
            watchman.node_seen(now, &node(name, 1, ready, 1, None));
            watchman.pods_told(name);
        }
        assert_eq!(watchman.acts(now), [taint("a", Some(UNREACHABLE))]);
        watchman.gave_up(now, "a");
        watchman.node_seen(now, &node("a", 2, "Unknown", 1, Some(UNREACHABLE)));
        assert_eq!(watchman.acts(now), []);
        assert_eq!(watchman.next_wake(now), Some(now + PACE));
        assert_eq!(watchman.acts(now + PACE), [taint("b", Some(UNREACHABLE))]);
        // Most of a small zone: nobody more, until it is better.
        for name in ["c", "d"] {
            watchman.node_seen(now, &node(name, 3, "Unknown", 1, None));
            watchman.pods_told(name);
        }
        assert_eq!(watchman.acts(now + secs(49)), []);
        assert_eq!(watchman.next_wake(now + secs(49)), Some(now + GRACE), "only the silence of the last one");
    }
}
