//! Pods that are to be spread, over nodes in zones.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::tests::{asks, knowing, labelled, names, on, place, plan, pod, roomy, run};
use super::*;
use crate::woken::Dice;

/// A node with room for many, in a zone.
fn zoned(name: &str, zone: &str) -> Node {
    let mut node = roomy(name, json!({}));
    node.metadata.labels.get_or_insert_default().insert("zone".to_owned(), zone.to_owned());
    let allocatable = json!({ "cpu": "64", "memory": "256Gi", "pods": "500" });
    node.status.as_mut().unwrap().allocatable = serde_json::from_value(allocatable).unwrap();
    node
}

fn tainted(mut node: Node) -> Node {
    node.spec = serde_json::from_value(json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] })).unwrap();
    node
}

fn nodes() -> Vec<Node> {
    vec![zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")]
}

/// A pod `x` that is to be spread over zones; `more` is said besides.
fn spread(more: Value) -> PodView {
    let mut constraint = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } });
    json_patch::merge(&mut constraint, &more);
    labelled(pod("x", json!({ "containers": [], "topologySpreadConstraints": [constraint] })), "web")
}

/// Pods of the application, one on each of these nodes.
fn there(nodes: &[&str]) -> Vec<PodView> {
    let pod = |(at, node): (usize, &&str)| on(labelled(asks(&format!("{node}-{at}"), "1", "1Gi"), "web"), node);
    nodes.iter().enumerate().map(pod).collect()
}

fn goes(there: Vec<PodView>, pod: PodView, nodes: &[Node]) -> String {
    place(&[there, vec![pod]].concat(), nodes)
}

#[test]
fn spread_pod_goes_where_the_fewest_are_and_waits_rather_than_go_elsewhere() {
    assert_eq!(goes(there(&["n1"]), spread(json!({})), &nodes()), "n3");
    assert_eq!(goes(there(&["n3"]), spread(json!({})), &nodes()), "n1");
    let full = || [nodes()[..2].to_vec(), vec![roomy("n3", json!({ "unschedulable": true }))]].concat();
    let why = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match pod topology spread constraints.";
    let mut closed = full();
    closed[2].metadata.labels = zoned("n3", "b").metadata.labels;
    assert_eq!(goes(there(&["n1"]), spread(json!({})), &closed), why);
    assert_eq!(goes(there(&["n1"]), spread(json!({ "maxSkew": 2 })), &closed), "n2");
    // A node without a zone is in nobody's count, and nowhere to go.
    let missing =
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label).";
    assert_eq!(goes(vec![], spread(json!({})), &full()[2..3].iter().map(uncordoned).collect::<Vec<_>>()), missing);
}

fn uncordoned(node: &Node) -> Node {
    Node { spec: None, ..node.clone() }
}

#[test]
fn spread_counts_whom_the_constraint_selects() {
    let leaving = |mut pods: Vec<PodView>| {
        let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        pods.iter_mut().for_each(|pod| pod.metadata.deletion_timestamp = Some(at.clone()));
        pods
    };
    let elsewhere = |mut pods: Vec<PodView>| {
        pods.iter_mut().for_each(|pod| pod.metadata.namespace = Some("other".to_owned()));
        pods
    };
    let only_a = &nodes()[..2];
    let three = || there(&["n1", "n1", "n2"]);
    let two_zones = |pods| goes([pods, there(&["n3"])].concat(), spread(json!({})), &nodes());
    assert_eq!(two_zones(three()), "n3");
    assert_eq!(two_zones(leaving(three())), "n2", "who leaves does not count");
    assert_eq!(two_zones(elsewhere(three())), "n2", "nor who is in another namespace");
    // It spreads others and is none of them: it adds nothing.
    let mut other = spread(json!({}));
    other.metadata.labels = None;
    assert_eq!(
        goes(there(&["n1"]), other.clone(), &[nodes()[..2].to_vec(), vec![tainted(zoned("n3", "b"))]].concat()),
        "n2"
    );
    let none = spread(json!({ "labelSelector": null }));
    assert_eq!(goes(three(), none, only_a), "n2", "without a selector nobody counts");
}

#[test]
fn spread_with_too_few_domains_counts_from_nothing() {
    let both = || there(&["n1", "n3"]);
    assert_eq!(goes(both(), spread(json!({ "minDomains": 2 })), &nodes()), "n2");
    let why = "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.";
    assert_eq!(goes(both(), spread(json!({ "minDomains": 3 })), &nodes()), why);
    assert_eq!(goes(both(), spread(json!({ "minDomains": 3, "maxSkew": 2 })), &nodes()), "n2");
}

#[test]
fn spread_leaves_out_nodes_that_the_pod_cannot_have() {
    let with_empty_zone = || [nodes(), vec![tainted(zoned("n4", "c"))]].concat();
    let both = || there(&["n1", "n3"]);
    let why = "0/4 nodes are available: 1 node(s) had untolerated taint {k: }, 3 node(s) didn't match pod topology spread \
               constraints.";
    assert_eq!(goes(both(), spread(json!({})), &with_empty_zone()), why);
    assert_eq!(goes(both(), spread(json!({ "nodeTaintsPolicy": "Honor" })), &with_empty_zone()), "n2");
    let only_a = |more: Value| {
        let mut pod = spread(more);
        pod.spec.node_selector = [("zone".to_owned(), "a".to_owned())].into();
        pod
    };
    assert_eq!(goes(there(&["n1"]), only_a(json!({})), &nodes()), "n2");
    let why = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match pod \
               topology spread constraints.";
    assert_eq!(goes(there(&["n1"]), only_a(json!({ "nodeAffinityPolicy": "Ignore" })), &nodes()), why);
}

#[test]
fn spread_with_label_keys_counts_pods_of_the_same_version() {
    let version = |mut pod: PodView, version: &str| {
        pod.metadata.labels.get_or_insert_default().insert("version".to_owned(), version.to_owned());
        pod
    };
    let old: Vec<PodView> = there(&["n1", "n1", "n2"]).into_iter().map(|pod| version(pod, "1")).collect();
    let new = || version(spread(json!({ "matchLabelKeys": ["version", "absent"] })), "2");
    let crowded = [old.clone(), vec![version(on(labelled(asks("q", "1", "1Gi"), "web"), "n3"), "2")]].concat();
    assert_eq!(goes(crowded, new(), &nodes()), "n2", "of the new ones there is one, in the other zone");
    assert_eq!(goes(old, version(spread(json!({})), "2"), &nodes()), "n3", "without keys all count");
}

#[test]
fn spread_pod_is_looked_at_again_when_others_come() {
    let closed = [nodes()[..2].to_vec(), vec![tainted(zoned("n3", "b"))]].concat();
    let mut planner = knowing(&[there(&["n1"]), vec![spread(json!({}))]].concat(), &closed);
    assert!(matches!(&run(&mut planner)[..], [Placement::Nowhere { .. }]));
    planner.pod_seen(on(labelled(asks("late", "1", "1Gi"), "web"), "n3"));
    assert_eq!(names(&run(&mut planner)), ["x"]);
    assert_eq!(run(&mut planner), [], "it has its place");
}

#[test]
fn spread_pod_displaces_those_who_are_in_its_way() {
    let mut vital = spread(json!({}));
    vital.spec.priority = Some(1000);
    let closed = [nodes()[..1].to_vec(), vec![tainted(zoned("n3", "b"))]].concat();
    let placements = plan(&[there(&["n1"]), vec![vital]].concat(), &closed);
    let Some(Placement::After { node, victims, .. }) = placements.last() else { panic!("{placements:?}") };
    assert_eq!((&**node, &*victims[0].name, victims.len()), ("n1", "n1-0", 1));
}

#[test]
fn spread_that_is_only_wished_for_decides_among_nodes_that_fit() {
    let wish = || json!({ "whenUnsatisfiable": "ScheduleAnyway" });
    assert_eq!(goes(there(&["n1", "n1", "n3"]), spread(wish()), &nodes()), "n3");
    assert_eq!(goes(there(&["n1"]), spread(wish()), &nodes()[..2]), "n2");
    let cordoned = [nodes()[..2].to_vec(), vec![tainted(zoned("n3", "b"))]].concat();
    assert_eq!(goes(there(&["n1"]), spread(wish()), &cordoned), "n2", "rather there than nowhere");
}

/// Pods of a set that say nothing are spread over nodes all the same; those of nobody go where most is left.
#[test]
fn replicas_of_a_set_are_spread_though_they_say_nothing() {
    let hosts: Vec<Node> = ["n1", "n2"]
        .map(|name| {
            let mut node = zoned(name, "a");
            node.metadata.labels.get_or_insert_default().insert("kubernetes.io/hostname".to_owned(), name.to_owned());
            node
        })
        .into();
    let replica = |uid: &str, kind: &str| -> PodView {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "set", "controller": true }]);
        let mut pod = asks(uid, "1", "4Gi");
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        pod
    };
    let busy = || on(asks("busy", "8", "32Gi"), "n2");
    let with = |kind: &str| {
        let first = ["a", "b", "c"].map(|uid| on(replica(uid, kind), "n1"));
        place(&[&first[..], &[busy(), replica("x", kind)]].concat(), &hosts)
    };
    for kind in ["ReplicaSet", "ReplicationController", "StatefulSet"] {
        assert_eq!(with(kind), "n2", "{kind}");
    }
    assert_eq!(with("Job"), "n1", "n2 is fuller");
}

/// However pods come and go: while every node has room, no domain gets more than the skew above another, and nobody waits.
#[test]
fn spread_keeps_the_skew_whatever_comes_and_goes() {
    let mut most_apart = 0;
    for seed in 1..=60 {
        let mut dice = Dice::new(seed);
        let zones = ["a", "b", "c", "d"];
        let nodes: Vec<Node> = (0..2 + dice.roll(6)).map(|at| zoned(&format!("n{at}"), dice.pick(&zones))).collect();
        let zone_of = |node: &str| {
            let node = nodes.iter().find(|it| it.metadata.name.as_deref() == Some(node)).unwrap();
            node.metadata.labels.as_ref().unwrap()["zone"].clone()
        };
        let skew = 1 + dice.roll(3);
        let mut planner = knowing(&[], &nodes);
        let mut living: BTreeMap<String, String> = BTreeMap::new();
        for step in 0..40 {
            if dice.roll(3) == 0
                && let Some(uid) = living.keys().nth(dice.roll(living.len().max(1))).cloned()
            {
                living.remove(&uid);
                planner.pod_gone(&uid);
                continue;
            }
            let mut pod = spread(json!({ "maxSkew": skew }));
            pod.metadata.uid = Some(format!("u{step}"));
            planner.pod_seen(pod);
            let placed = run(&mut planner);
            let [Placement::On { pod, node }] = &placed[..] else { panic!("seed {seed}: {placed:?}") };
            living.insert(pod.to_string(), node.to_string());
            let mut count: BTreeMap<String, usize> =
                nodes.iter().map(|node| (zone_of(node.metadata.name.as_deref().unwrap()), 0)).collect();
            living.values().for_each(|node| *count.get_mut(&zone_of(node)).unwrap() += 1);
            let here = count[&zone_of(node)];
            let least = count.values().min().unwrap();
            assert!(here - least <= skew, "seed {seed}: {count:?}, and it went to {node}");
            most_apart = most_apart.max(count.len());
        }
    }
    assert!(most_apart > 2, "there were several zones");
}
