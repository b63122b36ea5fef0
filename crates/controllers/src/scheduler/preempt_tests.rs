//! Who has to go for whom, in worlds of a few nodes.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

/// A node with `cpu` CPUs.
fn node(name: &str, cpu: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "status": {
            "allocatable": { "cpu": cpu, "memory": "4Gi", "pods": "10" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        }
    }))
    .unwrap()
}

/// A pod of that priority that asks for so much CPU; the seconds of its creation are its age in reverse.
fn pod(uid: &str, priority: i32, cpu: &str) -> PodView {
    let containers = json!([{ "name": "a", "resources": { "requests": { "cpu": cpu } } }]);
    let metadata = json!({
        "name": uid, "uid": uid, "namespace": "default", "labels": { "app": uid },
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    let spec = json!({ "priority": priority, "containers": containers });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn on(node: &str, mut pod: PodView) -> PodView {
    pod.spec.node_name = Some(node.to_owned());
    pod
}

fn leaving(mut pod: PodView) -> PodView {
    pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone();
    pod
}

fn younger(mut pod: PodView) -> PodView {
    pod.metadata.creation_timestamp = serde_json::from_value(json!("2026-02-01T00:00:00Z")).unwrap();
    pod
}

fn budget(app: &str, allowed: i32) -> PodDisruptionBudget {
    serde_json::from_value(json!({
        "metadata": { "name": app, "namespace": "default", "uid": format!("budget-{app}") },
        "spec": { "selector": { "matchLabels": { "app": app } } },
        "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
    }))
    .unwrap()
}

fn knowing(pods: Vec<PodView>, nodes: &[Node]) -> Planner {
    let mut planner = Planner::default();
    planner.all_nodes(nodes);
    planner.all_pods(pods);
    planner
}

/// What is decided next: `pod -> node`, `pod waits`, or `pod -> node after victims`. Taken for carried out.
fn next(planner: &mut Planner) -> Option<String> {
    Some(match planner.next()? {
        Placement::On { pod, node } => {
            planner.assume(&pod, Arc::clone(&node)).unwrap();
            format!("{pod} -> {node}")
        }
        Placement::Nowhere { pod, .. } | Placement::Choose { pod, .. } => format!("{pod} waits"),
        Placement::After { pod, node, victims, .. } => {
            planner.nominate(&pod, Arc::clone(&node));
            victims.iter().for_each(|victim| planner.displaced(&victim.uid, true));
            let mut names: Vec<_> = victims.into_iter().map(|victim| victim.name).collect();
            names.sort();
            format!("{pod} -> {node} after {}", names.join(" "))
        }
    })
}

fn all(planner: &mut Planner) -> Vec<String> {
    std::iter::from_fn(|| next(planner)).collect()
}

fn decided(pods: Vec<PodView>, nodes: &[Node]) -> String {
    all(&mut knowing(pods, nodes)).join(", ")
}

#[test]
fn preemption_takes_lower_priority_pods_and_no_more_than_needed() {
    let here = |uid: &str, priority, cpu: &str| on("n", pod(uid, priority, cpu));
    let n = [node("n", "4")];
    let three = || vec![here("a", 1, "1"), here("b", 2, "2"), here("c", 3, "1")];
    let with = |wanted: PodView| {
        let mut pods = three();
        pods.push(wanted);
        decided(pods, &n)
    };
    assert_eq!(with(pod("x", 9, "1")), "x -> n after a");
    assert_eq!(with(pod("x", 9, "2")), "x -> n after b", "one of middling importance rather than two");
    assert_eq!(with(pod("x", 9, "3")), "x -> n after a b");
    assert_eq!(with(pod("x", 9, "4")), "x -> n after a b c");
    assert_eq!(with(pod("x", 9, "5")), "x waits", "nobody leaves for nothing");
    assert_eq!(with(pod("x", 2, "1")), "x -> n after a");
    assert_eq!(with(pod("x", 2, "2")), "x waits", "an equal stays");
    let mut meek = pod("x", 9, "1");
    meek.spec.preemption_policy = Some("Never".to_owned());
    assert_eq!(with(meek), "x waits");
    let mut picky = pod("x", 9, "1");
    picky.spec.node_selector = [("disk".to_owned(), "ssd".to_owned())].into();
    assert_eq!(with(picky), "x waits", "no victim makes a node another node");
}

/// A mirror only shows what its node runs by itself, and comes back. Who owns a pod says nothing of that.
#[test]
fn preemption_spares_mirror_pods_and_not_pods_that_a_node_owns() {
    let n = [node("n", "1")];
    let here = |metadata: serde_json::Value| {
        let mut marked = serde_json::from_value::<PodView>(json!({ "metadata": metadata })).unwrap();
        let mut pod = on("n", pod("a", 1, "1"));
        std::mem::swap(&mut pod.metadata.annotations, &mut marked.metadata.annotations);
        std::mem::swap(&mut pod.metadata.owner_references, &mut marked.metadata.owner_references);
        decided(vec![pod, self::pod("x", 9, "1")], &n)
    };
    let annotations = json!({ "kubernetes.io/config.mirror": "hash", "other": "x" });
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1" }]);
    assert_eq!(here(json!({ "annotations": annotations, "ownerReferences": owner })), "x waits");
    assert_eq!(here(json!({ "ownerReferences": owner })), "x -> n after a");
}

/// Whoever has been there longest stays; a node where only younger or lesser ones go is the better one.
#[test]
fn the_node_is_taken_where_the_least_harm_is_done() {
    let nodes = [node("n1", "2"), node("n2", "2")];
    let x = || pod("x", 9, "2");
    let lesser = vec![on("n1", pod("a", 5, "2")), on("n2", pod("b", 4, "2")), x()];
    assert_eq!(decided(lesser, &nodes), "x -> n2 after b");
    let sum = vec![on("n1", pod("a", 5, "1")), on("n1", pod("b", 5, "1")), on("n2", pod("c", 5, "2")), x()];
    assert_eq!(decided(sum, &nodes), "x -> n2 after c", "one rather than two");
    let ages = vec![on("n1", pod("a", 5, "2")), on("n2", younger(pod("b", 5, "2"))), x()];
    assert_eq!(decided(ages, &nodes), "x -> n2 after b");
    let of_two = vec![on("n1", younger(pod("a", 5, "1"))), on("n1", pod("b", 5, "1")), pod("x", 9, "1")];
    assert_eq!(decided(of_two, &nodes[..1]), "x -> n1 after a");
}

#[test]
fn a_budget_is_overdrawn_only_where_there_is_no_other_way() {
    let nodes = [node("n1", "2"), node("n2", "2")];
    let with = |pods: Vec<PodView>, nodes: &[Node], allowed: i32| {
        let mut planner = knowing(pods, nodes);
        planner.all_budgets(&[budget("kept", allowed)]);
        all(&mut planner).join(", ")
    };
    let both = || vec![on("n1", pod("kept", 1, "2")), on("n2", pod("free", 5, "2")), pod("x", 9, "2")];
    assert_eq!(with(both(), &nodes, 0), "x -> n2 after free");
    assert_eq!(with(both(), &nodes, 1), "x -> n1 after kept");
    assert_eq!(with(vec![on("n1", pod("kept", 1, "2")), pod("x", 9, "2")], &nodes[..1], 0), "x -> n1 after kept");
    let beside = vec![on("n1", pod("kept", 1, "1")), on("n1", pod("free", 5, "1")), pod("x", 9, "1")];
    assert_eq!(with(beside, &nodes[..1], 0), "x -> n1 after free", "even one who matters more");
}

#[test]
fn nominated_node_is_reserved_for_the_preempting_pod() {
    let n = [node("n", "2")];
    let mut planner = knowing(vec![on("n", pod("a", 1, "2")), pod("x", 9, "2")], &n);
    assert_eq!(all(&mut planner), ["x -> n after a"]);
    planner.pod_seen(leaving(on("n", pod("a", 1, "2"))));
    assert_eq!(all(&mut planner), ["x waits"], "nobody else has to go meanwhile");
    planner.pod_seen(pod("small", 0, "1"));
    planner.pod_gone("a");
    assert_eq!(all(&mut planner), ["x -> n", "small waits"]);
}

/// Also after another start: where room was made stands in the pod's status.
#[test]
fn nominated_node_is_not_taken_by_a_pod_of_lower_priority() {
    let n = [node("n", "2")];
    let mut nominated = pod("x", 9, "2");
    nominated.status.nominated_node_name = Some("n".to_owned());
    let mut planner = knowing(vec![leaving(on("n", pod("a", 1, "1"))), nominated.clone(), pod("small", 0, "1")], &n);
    assert_eq!(all(&mut planner), ["x waits", "small waits"]);
    planner.pod_seen(pod("vital", 10, "1"));
    assert_eq!(all(&mut planner), ["vital -> n"], "who matters more need not wait for it");
    planner.pod_gone("x");
    planner.pod_gone("a");
    planner.pod_seen(pod("small", 0, "1"));
    assert_eq!(all(&mut planner), ["small -> n"], "what is not wanted any more is free");
}

#[test]
fn two_preempting_pods_do_not_count_on_the_same_victims() {
    let n = [node("n", "2")];
    let pods = vec![on("n", pod("a", 1, "1")), on("n", pod("b", 2, "1")), pod("x", 9, "1"), pod("y", 9, "1")];
    assert_eq!(decided(pods, &n), "x -> n after a, y -> n after b");
    let pods = vec![on("n", leaving(pod("a", 1, "2"))), pod("x", 9, "1"), pod("y", 9, "1")];
    assert_eq!(decided(pods, &n), "x -> n after , y -> n after ", "who leaves anyway is enough for both");
}

#[test]
fn a_victim_that_could_not_be_told_is_told_again() {
    let mut planner = knowing(vec![on("n", pod("a", 1, "2")), pod("x", 9, "2")], &[node("n", "2")]);
    assert_eq!(all(&mut planner), ["x -> n after a"]);
    planner.displaced(&"a".into(), false);
    planner.look_again("x");
    assert_eq!(all(&mut planner), ["x -> n after a"]);
}

/// Ports, and those who do not want the pod beside them, can be in the way as well.
#[test]
fn preemption_also_resolves_ports_and_anti_affinity() {
    let with_port = |uid: &str, priority: i32| {
        let mut pod = pod(uid, priority, "1");
        pod.spec.containers[0].ports =
            serde_json::from_value(json!([{ "containerPort": 80, "hostPort": 80 }])).unwrap();
        pod
    };
    let n = [node("n", "4")];
    let ports = vec![on("n", with_port("a", 1)), on("n", pod("b", 0, "1")), with_port("x", 9)];
    assert_eq!(decided(ports, &n), "x -> n after a");
    let mut labelled = serde_json::to_value(node("n", "4")).unwrap();
    labelled["metadata"]["labels"] = json!({ "host": "n" });
    let labelled: Node = serde_json::from_value::<Node>(labelled).unwrap();
    let term = json!({ "labelSelector": { "matchLabels": { "app": "x" } }, "topologyKey": "host" });
    let avoids: Value = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    let mut with_anti_affinity = on("n", pod("a", 1, "1"));
    with_anti_affinity.spec.affinity = serde_json::from_value(avoids).unwrap();
    assert_eq!(
        decided(vec![with_anti_affinity, on("n", pod("b", 0, "1")), pod("x", 9, "1")], &[labelled]),
        "x -> n after a"
    );
}
