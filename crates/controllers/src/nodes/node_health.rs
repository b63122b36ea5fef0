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

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Wake};
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

/// What of nodes is told.
#[derive(Debug)]
pub(super) enum Input {
    Nodes(WatchUpdate<Arc<Node>>),
    /// Of `kube-node-lease`, each called like its node.
    Leases(WatchUpdate<Arc<Lease>>),
}

/// What is to be done about a node. Doing it again does no harm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Say that nobody knows how it is, unless it has posted a status since this heartbeat.
    Silent { heartbeat: Option<Timestamp>, at: Timestamp },
    /// Give it the one of the two `NoExecute` taints that is named, and take the other away.
    Taint { key: Option<&'static str>, at: Timestamp },
    /// Say that its pods are not ready.
    PodsNotReady { at: Timestamp },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ready {
    Yes,
    No,
    Unknown,
    NeverSaid,
}

#[derive(Clone, Debug)]
struct KnownNode {
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
#[derive(Clone, Debug)]
pub(super) struct NodeHealth {
    grace: Duration,
    nodes: BTreeMap<Name, KnownNode>,
    /// When a node of a zone was given up last.
    gave_up: BTreeMap<String, Instant>,
}

impl NodeHealth {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, nodes: BTreeMap::new(), gave_up: BTreeMap::new() }
    }

    fn all_nodes(&mut self, now: Instant, nodes: &[Arc<Node>]) -> Vec<Name> {
        let here: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        self.nodes.retain(|name, _| here.contains(&**name));
        for node in nodes {
            self.node_seen(now, node);
        }
        self.everybody()
    }

    /// How one node is decides what may be done about the others.
    fn everybody(&self) -> Vec<Name> {
        self.nodes.keys().cloned().collect()
    }

    /// Answers for whom it matters.
    fn node_seen(&mut self, now: Instant, node: &Node) -> Vec<Name> {
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
        let fresh = KnownNode { version, zone, ready, heartbeat, taints, heard: now, renewed: None, pods_told: false };
        match self.nodes.get_mut(&name) {
            // What was on its way when it was listed.
            Some(known) if known.version > version => Vec::new(),
            Some(known) => {
                let same = (known.ready, &known.zone) == (fresh.ready, &fresh.zone);
                // Its silence is over when it posts a status, not when we write that it is silent.
                let spoke = ready != Ready::Unknown && (heartbeat != known.heartbeat || ready != known.ready);
                let heard = if spoke { now } else { known.heard };
                let pods_told = known.pods_told && ready == Ready::Unknown;
                *known = KnownNode { heard, pods_told, renewed: known.renewed, ..fresh };
                if same { vec![name] } else { self.everybody() }
            }
            None => {
                self.nodes.insert(name, fresh);
                self.everybody()
            }
        }
    }

    /// A lease that is renewed moves a deadline, which is found out when it is reached.
    fn lease_seen(&mut self, now: Instant, lease: &Lease) {
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
    fn pods_told(&mut self, name: &str) {
        if let Some(known) = self.nodes.get_mut(name) {
            known.pods_told = known.ready == Ready::Unknown;
        }
    }

    /// A node of ours has been given up: the next one of its zone has to wait.
    fn gave_up(&mut self, now: Instant, name: &str) {
        if let Some(known) = self.nodes.get(name) {
            self.gave_up.insert(known.zone.clone(), now);
        }
    }

    fn silent_at(&self, known: &KnownNode) -> Instant {
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

impl Controller for NodeHealth {
    type Input = Input;
    type Key = Name;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, now: Now, input: Input) -> Vec<Name> {
        let now = now.instant;
        match input {
            Input::Nodes(WatchUpdate::Listed(all)) => self.all_nodes(now, &all),
            Input::Nodes(WatchUpdate::Changed(node)) => self.node_seen(now, &node),
            Input::Nodes(WatchUpdate::Removed(node)) => {
                self.nodes.remove(&*node.name_any());
                self.everybody()
            }
            Input::Leases(WatchUpdate::Listed(all)) => {
                all.iter().for_each(|lease| self.lease_seen(now, lease));
                Vec::new()
            }
            Input::Leases(WatchUpdate::Changed(lease)) => {
                self.lease_seen(now, &lease);
                Vec::new()
            }
            Input::Leases(WatchUpdate::Removed(_)) => Vec::new(),
        }
    }

    fn plan(&self, name: &Name, Now { instant: now, timestamp: at }: Now) -> Plan<Action> {
        let Some(known) = self.nodes.get(name) else { return Plan::default() };
        let (mut actions, mut wake) = (Vec::new(), None);
        if known.ready != Ready::Unknown {
            match self.silent_at(known) {
                silent if silent <= now => actions.push(Action::Silent { heartbeat: known.heartbeat, at }),
                silent => wake = Some(Wake { at: silent, why: "the node has said nothing for its grace" }),
            }
        }
        let wanted = if self.all_down() { None } else { wanted_taint(known.ready) };
        if !has_only(known, wanted) {
            let is_new = wanted.is_some() && known.taints == (false, false);
            match if is_new { self.next_turn(now, &known.zone) } else { Some(now) } {
                Some(turn) if turn <= now => actions.push(Action::Taint { key: wanted, at }),
                Some(turn) => {
                    let turn = Wake { at: turn, why: "another node of its zone was given up" };
                    wake = Some(wake.map_or(turn, |wake| wake.min(turn)));
                }
                None => {}
            }
        }
        // Last, so that a pod which cannot be written does not keep its node from being given up.
        if known.ready == Ready::Unknown && !known.pods_told {
            actions.push(Action::PodsNotReady { at });
        }
        Plan { actions, wake }
    }

    fn begun(&mut self, now: Now, name: &Name, actions: &[Action]) {
        if actions.iter().any(|action| matches!(action, Action::Taint { key: Some(_), .. })) {
            self.gave_up(now.instant, name);
        }
    }

    fn ended(&mut self, _: Now, name: &Name, action: Action, outcome: Outcome<()>) -> Vec<Name> {
        if let (Action::PodsNotReady { .. }, Outcome::Done(())) = (action, outcome) {
            self.pods_told(name);
        }
        Vec::new()
    }
}

fn wanted_taint(ready: Ready) -> Option<&'static str> {
    match ready {
        Ready::Yes | Ready::NeverSaid => None,
        Ready::No => Some(NOT_READY),
        Ready::Unknown => Some(UNREACHABLE),
    }
}

fn has_only(known: &KnownNode, wanted: Option<&str>) -> bool {
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

    /// What is to be done about which node, without the time.
    #[derive(PartialEq, Debug)]
    enum Act {
        Silent { node: Name, heartbeat: Option<Timestamp> },
        Taint { node: Name, key: Option<&'static str> },
        PodsNotReady { node: Name },
    }

    fn silent(node: &str, heartbeat: i64) -> Act {
        Act::Silent { node: node.into(), heartbeat: Some(Timestamp::from_second(heartbeat).unwrap()) }
    }

    fn taint(node: &str, key: Option<&'static str>) -> Act {
        Act::Taint { node: node.into(), key }
    }

    fn moment(instant: Instant) -> Now {
        Now { instant, timestamp: Timestamp::UNIX_EPOCH }
    }

    impl NodeHealth {
        /// Everything that would be begun by now, one node after the other.
        fn acts(&self, now: Instant) -> Vec<Act> {
            let (mut health, mut acts) = (self.clone(), Vec::new());
            for node in self.everybody() {
                let actions = health.plan(&node, moment(now)).actions;
                health.begun(moment(now), &node, &actions);
                let act = |action| match action {
                    Action::Silent { heartbeat, .. } => Act::Silent { node: Arc::clone(&node), heartbeat },
                    Action::Taint { key, .. } => Act::Taint { node: Arc::clone(&node), key },
                    Action::PodsNotReady { .. } => Act::PodsNotReady { node: Arc::clone(&node) },
                };
                acts.extend(actions.into_iter().map(act));
            }
            acts
        }

        fn next_wake(&self, now: Instant) -> Option<Instant> {
            let wakes = self.nodes.keys().filter_map(|node| self.plan(node, moment(now)).wake);
            wakes.map(|wake| wake.at).min()
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_silent_exactly_a_grace_after_it_was_heard_last() {
        let now = Instant::now();
        let mut health = NodeHealth::new(GRACE);
        health.node_seen(now, &node("a", 1, "True", 1, None));
        health.lease_seen(now, &lease("a", 1));
        assert_eq!(health.next_wake(now), Some(now + GRACE));
        health.lease_seen(now + secs(10), &lease("a", 11));
        health.lease_seen(now + secs(20), &lease("a", 11));
        let at = now + secs(60);
        assert_eq!(health.next_wake(now), Some(at));
        assert_eq!(health.acts(at - secs(1)), []);
        assert_eq!(health.acts(at), [silent("a", 1)]);
        // A status counts as much as a lease.
        health.node_seen(at, &node("a", 2, "True", 61, None));
        assert_eq!(health.acts(at), []);
        assert_eq!(health.next_wake(at), Some(at + GRACE));
    }

    #[test]
    fn a_node_that_never_said_how_it_is_has_a_little_longer() {
        let now = Instant::now();
        let mut health = NodeHealth::new(GRACE);
        health.node_seen(now, &node("a", 1, "", 0, None));
        assert_eq!(health.acts(now + secs(59)), []);
        assert_eq!(health.acts(now + secs(60)), [Act::Silent { node: "a".into(), heartbeat: None }]);
    }

    #[test]
    fn a_silent_node_is_given_up_and_taken_back() {
        let now = Instant::now();
        let mut health = NodeHealth::new(GRACE);
        health.node_seen(now, &node("a", 1, "True", 1, None));
        health.node_seen(now, &node("b", 2, "True", 1, None));
        health.node_seen(now + secs(50), &node("a", 3, "Unknown", 1, None));
        let expected = [taint("a", Some(UNREACHABLE)), Act::PodsNotReady { node: "a".into() }];
        let acts = health.acts(now + secs(49));
        assert_eq!(acts, expected);
        health.pods_told("a");
        health.gave_up(now + secs(49), "a");
        health.node_seen(now + secs(49), &node("a", 4, "Unknown", 1, Some(UNREACHABLE)));
        assert_eq!(health.acts(now + secs(49)), []);
        // What was on its way is older than what we know.
        health.node_seen(now + secs(49), &node("a", 3, "Unknown", 1, None));
        assert_eq!(health.acts(now + secs(49)), []);
        health.node_seen(now + secs(49), &node("a", 5, "True", 90, Some(UNREACHABLE)));
        assert_eq!(health.acts(now + secs(49)), [taint("a", None)]);
        // The next silence is told about again.
        health.node_seen(now + secs(49), &node("a", 6, "True", 90, None));
        health.node_seen(now + secs(49), &node("a", 7, "Unknown", 90, None));
        assert_eq!(health.acts(now + secs(49))[0], Act::PodsNotReady { node: "a".into() });
    }

    #[test]
    fn a_node_that_says_it_is_not_ready_keeps_its_pods_as_they_are() {
        let now = Instant::now();
        let mut health = NodeHealth::new(GRACE);
        health.node_seen(now, &node("a", 1, "False", 1, None));
        health.node_seen(now, &node("b", 2, "True", 1, None));
        assert_eq!(health.acts(now), [taint("a", Some(NOT_READY))]);
        // From one word to the other at once, whatever the pace.
        health.gave_up(now, "a");
        health.node_seen(now, &node("a", 3, "Unknown", 1, Some(NOT_READY)));
        assert!(health.acts(now).contains(&taint("a", Some(UNREACHABLE))));
    }

    #[test]
    fn no_node_is_given_up_while_all_are_silent() {
        let now = Instant::now();
        let mut health = NodeHealth::new(GRACE);
        health.node_seen(now, &node("a", 1, "Unknown", 1, Some(UNREACHABLE)));
        health.pods_told("a");
        assert_eq!(health.acts(now), [taint("a", None)], "it was alone, or the last to fall");
        health.node_seen(now, &node("a", 2, "Unknown", 1, None));
        assert_eq!(health.acts(now), []);
        assert_eq!(health.next_wake(now), None);
        health.node_seen(now, &node("b", 3, "True", 1, None));
        assert_eq!(health.acts(now), [taint("a", Some(UNREACHABLE))]);
    }

    #[test]
    fn nodes_are_given_up_one_at_a_time() {
        let now = Instant::now();
        let mut health = NodeHealth::new(GRACE);
        for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let ready = if index < 2 { "Unknown" } else { "True" };
            health.node_seen(now, &node(name, 1, ready, 1, None));
            health.pods_told(name);
        }
        assert_eq!(health.acts(now), [taint("a", Some(UNREACHABLE))]);
        health.gave_up(now, "a");
        health.node_seen(now, &node("a", 2, "Unknown", 1, Some(UNREACHABLE)));
        assert_eq!(health.acts(now), []);
        assert_eq!(health.next_wake(now), Some(now + PACE));
        assert_eq!(health.acts(now + PACE), [taint("b", Some(UNREACHABLE))]);
        // Most of a small zone: nobody more, until it is better.
        for name in ["c", "d"] {
            health.node_seen(now, &node(name, 3, "Unknown", 1, None));
            health.pods_told(name);
        }
        assert_eq!(health.acts(now + secs(49)), []);
        assert_eq!(health.next_wake(now + secs(49)), Some(now + GRACE), "only the silence of the last one");
    }

    /// For any order of facts: a node about which something is to be done was woken, or wakes when its grace or its turn has come.
    #[test]
    fn node_health_wakes_every_node_that_is_silent_or_given_up_in_time() {
        use crate::woken::{Dice, Watched};

        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let mut acted = 0;
        for seed in 1..=200 {
            let (mut dice, mut watched) = (Dice::new(seed), Watched::new(NodeHealth::new(GRACE)));
            for version in 1..=60 {
                let name = dice.pick(&NAMES);
                let second = i64::try_from(version).unwrap();
                let taint = dice.pick(&[None, None, Some(NOT_READY), Some(UNREACHABLE)]);
                let node = Arc::new(node(name, version, dice.pick(&["True", "False", "Unknown", ""]), second, taint));
                let input = match dice.roll(6) {
                    0..=2 => Input::Nodes(WatchUpdate::Changed(node)),
                    3 => Input::Nodes(WatchUpdate::Removed(node)),
                    4 => Input::Leases(WatchUpdate::Changed(Arc::new(lease(name, second)))),
                    _ => Input::Nodes(WatchUpdate::Listed(vec![node])),
                };
                watched.tell(input, NAMES.map(Name::from), seed);
                watched.pass(secs(dice.roll(4) as u64 * 9));
            }
            acted += watched.pending();
        }
        assert!(acted > 100, "the dice never asked for anything: {acted}");
    }
}
