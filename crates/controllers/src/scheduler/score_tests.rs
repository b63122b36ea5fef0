//! Points for nodes, checked against numbers worked out by hand from upstream's formulas.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::super::world::Resident;
use super::*;

/// Nodes of so many thousandths of CPUs and bytes, each with labels, taints and images.
fn world(nodes: &[(&str, i64, i64, Value)]) -> World {
    let mut world = World::default();
    for (name, cpu, memory, more) in nodes {
        let mut node = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
            "status": { "allocatable": { "cpu": format!("{cpu}m"), "memory": memory.to_string(), "pods": "100" } } });
        json_patch::merge(&mut node, more);
        let node: Node = serde_json::from_value(node).unwrap();
        world.node_seen(&node);
    }
    world
}

fn pod(spec: Value) -> PodView {
    let metadata = json!({ "name": "x", "uid": "x", "namespace": "ns", "labels": { "app": "web" } });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn asks(cpu: i64, memory: i64) -> PodView {
    let requests = json!({ "cpu": format!("{cpu}m"), "memory": memory.to_string() });
    pod(json!({ "containers": [{ "name": "c", "resources": { "requests": requests } }] }))
}

/// Pods of the application that are on these nodes.
fn with_pods(mut world: World, nodes: &[&str], spec: &Value) -> World {
    for (at, node) in nodes.iter().enumerate() {
        let resident = Resident::of(&pod(spec.clone()), (*node).into());
        world.put(&format!("p{at}").as_str().into(), resident);
    }
    world
}

fn places(world: &World) -> Vec<&NodeState> {
    world.places().collect()
}

fn each(world: &World, score: impl Fn(&NodeState) -> i64) -> Vec<i64> {
    world.places().map(score).collect()
}

#[test]
fn score_of_resources_prefers_what_is_left_and_what_is_even() {
    let world = world(&[("n1", 4000, 10_000, json!({})), ("n2", 6000, 10_000, json!({})), ("n3", 0, 0, json!({}))]);
    let pod = asks(3000, 5000);
    let asked = Amounts::of_pod(&pod);
    let request = NonZeroRequest::of(&pod, &asked);
    assert_eq!(each(&world, |place| least_allocated(place, request)), [37, 50, 0]);
    assert_eq!(each(&world, |place| evenness(place, &asked)), [87, 100, 100]);
    assert_eq!(each(&world, |place| balanced(place, &asked)), [68, 75, 75], "it was even before");
    let greedy = asks(i64::MAX / 1000, i64::MAX);
    let asked = Amounts::of_pod(&greedy);
    assert_eq!(each(&world, |place| least_allocated(place, NonZeroRequest::of(&greedy, &asked))), [0, 0, 0]);
    assert_eq!(each(&world, |place| evenness(place, &asked)), [100, 100, 100], "all of both");
}

#[test]
fn score_of_images_prefers_nodes_that_have_much_of_what_is_needed() {
    let image = |name: &str, megabytes: i64| json!({ "names": [name], "sizeBytes": megabytes << 20 });
    let has = |images: Value| json!({ "status": { "images": images } });
    let world = world(&[
        ("n1", 1, 1, has(json!([image("r.io/40:latest", 40), image("r.io/2000:v1", 2000)]))),
        ("n2", 1, 1, has(json!([image("r.io/250:latest", 250), image("r.io/10:latest", 10)]))),
    ]);
    let scores = |images: &[&str]| {
        let containers: Vec<Value> = images.iter().map(|image| json!({ "name": "c", "image": image })).collect();
        let images = Images::of(&pod(json!({ "containers": containers })), &world);
        each(&world, |place| images.score(place))
    };
    assert_eq!(scores(&["r.io/40", "r.io/250"]), [0, 5], "20 MiB are too few to count; 125 - 23 of 2000 - 23");
    assert_eq!(scores(&["r.io/2000:v1"]), [100, 0]);
    assert_eq!(scores(&["r.io/none"]), [0, 0]);
    assert_eq!(scores(&[]), [0, 0]);
}

#[test]
fn score_of_spread_weighs_domains_as_upstream_does() {
    let zone = |zone: &str| json!({ "metadata": { "labels": { "zone": zone } } });
    let world =
        world(&[("a", 1, 1, zone("1")), ("b", 1, 1, zone("1")), ("c", 1, 1, zone("2")), ("d", 1, 1, json!({}))]);
    let world = with_pods(world, &["a", "a", "b", "d", "d", "d"], &json!({ "containers": [] }));
    let wish = |key: &str| {
        json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "app": "web" } } })
    };
    let scores = |keys: &[&str]| {
        let constraints: Vec<Value> = keys.iter().map(|key| wish(key)).collect();
        let pod = pod(json!({ "containers": [], "topologySpreadConstraints": constraints }));
        spread::scores(&pod, &places(&world), &world)
    };
    assert_eq!(scores(&["kubernetes.io/hostname"]), Some(vec![20, 60, 100, 0]), "costs of 4, 2, 0 and 5");
    assert_eq!(scores(&["zone"]), Some(vec![0, 0, 100, 0]), "costs of 4, 4 and 0; a node without a zone gets nothing");
    assert_eq!(scores(&["zone", "kubernetes.io/hostname"]), Some(vec![0, 14, 100, 0]), "costs of 7, 6 and 0");
    assert_eq!(scores(&[]), None, "a pod of nobody that asks for nothing");
    // The usual constraints of replicas, on nodes without zones.
    let mut replica = pod(json!({ "containers": [] }));
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true }]);
    replica.metadata.owner_references = serde_json::from_value(owner).unwrap();
    let mut hosts = self::world(&["a", "b", "c"].map(|name| (name, 1, 1, json!({}))));
    for (uid, node) in [("1", "a"), ("2", "a"), ("3", "b")] {
        hosts.put(&uid.into(), Resident::of(&replica, node.into()));
    }
    assert_eq!(spread::scores(&replica, &places(&hosts), &hosts), Some(vec![40, 60, 100]), "costs of 5, 4 and 2");
}

#[test]
fn score_of_company_adds_what_pods_wish_of_each_other() {
    let world = || world(&[("a", 1, 1, json!({})), ("b", 1, 1, json!({})), ("c", 1, 1, json!({}))]);
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } });
    let wish = |kind: &str, weight: i64| {
        let preferred = json!([{ "weight": weight, "podAffinityTerm": term }]);
        json!({ "containers": [], "affinity": { kind: { "preferredDuringSchedulingIgnoredDuringExecution": preferred } } })
    };
    let must = json!({ "containers": [], "affinity": { "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term] } } });
    let quiet = json!({ "containers": [] });
    let scores = |theirs: &Value, own: &Value| {
        let world = with_pods(world(), &["a", "a", "b"], theirs);
        affinity::scores(&pod(own.clone()), &places(&world), &world)
    };
    assert_eq!(scores(&quiet, &quiet), None);
    assert_eq!(scores(&quiet, &wish("podAffinity", 5)), Some(vec![10, 5, 0]));
    assert_eq!(scores(&quiet, &wish("podAntiAffinity", 5)), Some(vec![-10, -5, 0]));
    assert_eq!(scores(&wish("podAntiAffinity", 7), &quiet), Some(vec![-14, -7, 0]), "they were there first");
    assert_eq!(scores(&must, &quiet), Some(vec![2, 1, 0]));
    assert_eq!(between(&[-14, -7, 0]), [0, 50, 100]);
    assert_eq!(
        (between(&[3, 3]), scaled(vec![1, 4]), upside_down(vec![1, 4, 0])),
        (vec![0, 0], vec![25, 100], vec![75, 0, 100])
    );
    assert_eq!((scaled(vec![0, 0]), upside_down(vec![0, 0])), (vec![0, 0], vec![100, 100]));
}

/// Each question alone decides where the others say the same, and a weightier one outvotes a lighter.
#[test]
fn best_node_is_the_one_with_the_most_points() {
    let even =
        |change: &dyn Fn(&str) -> Value| world(&["n1", "n2", "n3"].map(|name| (name, 4000, 8 << 30, change(name))));
    let best_of = |world: &World, pod: &PodView| {
        best(pod, &Amounts::of_pod(pod), &places(world), world).map(|node| node.to_string()).unwrap()
    };
    let is = |name: &str, wanted: &str, value: Value| if name == wanted { value } else { json!({}) };
    let plain = asks(100, 1 << 20);
    let prefers_not = json!({ "spec": { "taints": [{ "key": "k", "effect": "PreferNoSchedule" }] } });
    assert_eq!(best_of(&even(&|name| is(name, "n1", prefers_not.clone())), &plain), "n2");
    let image = json!({ "status": { "images": [{ "names": ["r.io/big:1"], "sizeBytes": 3_i64 << 30 }] } });
    let mut with_image = plain.clone();
    with_image.spec.containers[0].image = "r.io/big:1".to_owned();
    let has_image = even(&|name| is(name, "n3", image.clone()));
    assert_eq!(best_of(&has_image, &with_image), "n3");
    let labelled = json!({ "metadata": { "labels": { "disk": "ssd" } } });
    let wish = json!([{ "weight": 1, "preference": { "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["ssd"] }] } }]);
    let affinity = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": wish } });
    let mut particular = with_image.clone();
    particular.spec.affinity = serde_json::from_value(affinity).unwrap();
    let both = even(&|name| if name == "n3" { image.clone() } else { is(name, "n2", labelled.clone()) });
    assert_eq!(best_of(&both, &particular), "n2", "twice as much as an image");
    let used = with_pods(even(&|_| json!({})), &["n1", "n2", "n2"], &json!({ "containers": [{ "name": "c" }] }));
    assert_eq!(best_of(&used, &plain), "n3");
    assert_eq!(best(&plain, &Amounts::of_pod(&plain), &[], &used), None);
}
