//! Pods and nodes in small numbers, and what is decided about them.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

impl Planner {
    /// Decides for the most important of those who deserve a look.
    pub(super) fn next(&mut self) -> Option<Placement> {
        loop {
            let uid = self.woken.iter().min_by_key(|uid| (self.rank(uid), Arc::clone(uid)))?.clone();
            self.woken.remove(&uid);
            if let Some(placement) = self.decide(&uid) {
                return Some(placement);
            }
        }
    }

    /// The pod deserves a look although nothing was told: it could not be seen to a while ago.
    pub(super) fn look_again(&mut self, uid: &str) {
        self.woken.insert(uid.into());
    }
}

/// Everything that is decided, each decision taken for carried out.
pub(super) fn run(planner: &mut Planner) -> Vec<Placement> {
    let mut placements = Vec::new();
    while let Some(placement) = planner.next() {
        if let Placement::On { pod, node } = &placement {
            planner.assume(pod, Arc::clone(node)).unwrap();
        }
        placements.push(placement);
    }
    placements
}

pub(super) fn knowing(pods: &[PodView], nodes: &[Node]) -> Planner {
    let mut planner = Planner::default();
    planner.all_nodes(nodes);
    planner.all_pods(pods.to_vec());
    planner
}

pub(super) fn plan(pods: &[PodView], nodes: &[Node]) -> Vec<Placement> {
    run(&mut knowing(pods, nodes))
}

pub(super) fn pod(uid: &str, spec: serde_json::Value) -> PodView {
    serde_json::from_value(json!({ "metadata": { "name": uid, "uid": uid }, "spec": spec })).unwrap()
}

fn node(name: &str, ready: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "disk": name } },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] }
    }))
    .unwrap()
}

#[test]
fn a_pod_goes_to_the_ready_node_with_the_fewest_pods() {
    let pods = [
        pod("a", json!({ "containers": [], "nodeName": "n1" })),
        pod("b", json!({ "containers": [] })),
        pod("c", json!({ "containers": [] })),
    ];
    let nodes = [node("n1", "True"), node("n2", "True"), node("n3", "False")];
    let on = |pod: &str, node: &str| Placement::On { pod: pod.into(), node: node.into() };
    assert_eq!(plan(&pods, &nodes), [on("b", "n2"), on("c", "n1")]);
}

#[test]
fn a_pod_that_fits_nowhere_is_told_why() {
    let pods = [pod("a", json!({ "containers": [], "nodeSelector": { "disk": "x" } }))];
    let nodes = [node("n1", "True"), node("n2", "False")];
    let why = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were not ready.";
    assert_eq!(plan(&pods, &nodes), [Placement::Nowhere { pod: "a".into(), why: why.into() }]);
    assert!(matches!(&plan(&pods, &[])[0], Placement::Nowhere { why, .. } if why.starts_with("no nodes")));
}

#[test]
fn bound_leaving_gated_and_foreign_pods_are_left_alone() {
    let mut leaving = pod("a", json!({ "containers": [] }));
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    let pods = [
        leaving,
        pod("b", json!({ "containers": [], "schedulerName": "mine" })),
        pod("c", json!({ "containers": [], "schedulingGates": [{ "name": "wait" }] })),
    ];
    assert_eq!(plan(&pods, &[node("n1", "True")]), []);
}

/// A node with 2 CPUs, 4 GiB and room for 3 pods.
pub(super) fn roomy(name: &str, more: serde_json::Value) -> Node {
    let mut value = serde_json::to_value(node(name, "True")).unwrap();
    value["status"]["allocatable"] = json!({ "cpu": "2", "memory": "4Gi", "pods": "3" });
    value["spec"] = more;
    serde_json::from_value(value).unwrap()
}

pub(super) fn asks(uid: &str, cpu: &str, memory: &str) -> PodView {
    let resources = json!({ "requests": { "cpu": cpu, "memory": memory } });
    pod(uid, json!({ "containers": [{ "name": "a", "resources": resources }] }))
}

pub(super) fn on(mut pod: PodView, node: &str) -> PodView {
    pod.spec.node_name = Some(node.to_owned());
    pod
}

pub(super) fn labelled(mut pod: PodView, app: &str) -> PodView {
    pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
    pod
}

/// Where the pod called `x` goes, or why nowhere.
pub(super) fn place(pods: &[PodView], nodes: &[Node]) -> String {
    let placements = plan(pods, nodes);
    let found = placements.into_iter().find_map(|placement| match placement {
        Placement::On { pod, node } => (*pod == *"x").then(|| node.to_string()),
        Placement::Nowhere { pod, why } | Placement::After { pod, why, .. } => (*pod == *"x").then_some(why),
        Placement::Choose { .. } => None,
    });
    found.expect("x waits")
}

#[test]
fn requests_must_fit_beside_those_who_are_there() {
    let n = || roomy("n1", json!({}));
    let why = |pods: &[PodView]| place(pods, &[n()]);
    assert_eq!(why(&[asks("x", "2", "4Gi")]), "n1", "all of it may be asked for");
    assert_eq!(why(&[asks("x", "2100m", "1Gi")]), "0/1 nodes are available: 1 Insufficient cpu.");
    let both = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.";
    assert_eq!(why(&[on(asks("a", "1", "3Gi"), "n1"), asks("x", "1500m", "2Gi")]), both);
    let mut done = on(asks("a", "2", "4Gi"), "n1");
    done.status.phase = Some("Succeeded".to_owned());
    assert_eq!(why(&[done, asks("x", "2", "1Gi")]), "n1", "who is done needs nothing");
    let crowd: Vec<PodView> = ["a", "b", "c"].iter().map(|uid| on(asks(uid, "0", "0"), "n1")).collect();
    let why_crowded = place(&[&crowd[..], &[asks("x", "0", "0")]].concat(), &[n()]);
    assert_eq!(why_crowded, "0/1 nodes are available: 1 Too many pods.");
}

#[test]
fn init_containers_need_room_for_themselves_and_the_sidecars_before_them() {
    let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
    let spec = |init: &str| {
        json!({
            "initContainers": [
                { "name": "s", "restartPolicy": "Always", "resources": cpu("500m") },
                { "name": "i", "resources": cpu(init) },
            ],
            "containers": [{ "name": "a", "resources": cpu("1") }],
        })
    };
    let nodes = [roomy("n1", json!({}))];
    assert_eq!(place(&[pod("x", spec("1500m"))], &nodes), "n1");
    assert_eq!(place(&[pod("x", spec("1501m"))], &nodes), "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn the_most_important_pod_is_placed_first() {
    let mut vital = asks("z", "2", "1Gi");
    vital.spec.priority = Some(1000);
    let nodes = [roomy("n1", json!({}))];
    let why = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(place(&[asks("x", "2", "1Gi"), vital], &nodes), why);
}

#[test]
fn taints_keep_those_away_who_do_not_tolerate_them() {
    let taints = json!({ "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] });
    let nodes = [roomy("n1", taints)];
    let tolerant = |toleration: serde_json::Value| pod("x", json!({ "containers": [], "tolerations": [toleration] }));
    let why = "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}.";
    for (toleration, expected) in [
        (json!({ "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule" }), "n1"),
        (json!({ "key": "gpu", "operator": "Exists" }), "n1"),
        (json!({ "operator": "Exists" }), "n1"),
        (json!({ "key": "gpu", "value": "no" }), why),
        (json!({ "key": "gpu", "operator": "Exists", "effect": "NoExecute" }), why),
    ] {
        assert_eq!(place(&[tolerant(toleration.clone())], &nodes), expected, "{toleration}");
    }
    let prefers = roomy("n1", json!({ "taints": [{ "key": "old", "effect": "PreferNoSchedule" }] }));
    assert_eq!(place(&[pod("x", json!({ "containers": [] }))], &[prefers, roomy("n2", json!({}))]), "n2");
    let cordoned = [roomy("n1", json!({ "unschedulable": true }))];
    let plain = pod("x", json!({ "containers": [] }));
    assert_eq!(place(&[plain], &cordoned), "0/1 nodes are available: 1 node(s) were unschedulable.");
    let daemon = tolerant(json!({ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }));
    assert_eq!(place(&[daemon], &cordoned), "n1");
}

#[test]
fn node_affinity_requires_and_prefers() {
    let nodes = [roomy("n1", json!({})), roomy("n2", json!({}))];
    let with =
        |affinity: serde_json::Value| pod("x", json!({ "containers": [], "affinity": { "nodeAffinity": affinity } }));
    let required = |expression: serde_json::Value| {
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
        with(json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms }))
    };
    let none = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    for (expression, expected) in [
        (json!({ "key": "disk", "operator": "In", "values": ["n2"] }), "n2"),
        (json!({ "key": "disk", "operator": "NotIn", "values": ["n1"] }), "n2"),
        (json!({ "key": "disk", "operator": "Exists" }), "n1"),
        (json!({ "key": "disk", "operator": "DoesNotExist" }), none),
        (json!({ "key": "disk", "operator": "Gt", "values": ["1"] }), none),
    ] {
        assert_eq!(place(&[required(expression.clone())], &nodes), expected, "{expression}");
    }
    let by_name = json!({ "nodeSelectorTerms": [{ "matchFields":
        [{ "key": "metadata.name", "operator": "In", "values": ["n2"] }] }] });
    assert_eq!(place(&[with(json!({ "requiredDuringSchedulingIgnoredDuringExecution": by_name }))], &nodes), "n2");
    let term = json!({ "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["n2"] }] });
    let preferred = json!([{ "weight": 1, "preference": term }]);
    assert_eq!(place(&[with(json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred }))], &nodes), "n2");
}

#[test]
fn a_port_of_the_node_is_had_by_one_pod() {
    let port = |uid: &str, ip: &str, protocol: &str| {
        let port = json!({ "containerPort": 80, "hostPort": 80, "hostIP": ip, "protocol": protocol });
        pod(uid, json!({ "containers": [{ "name": "a", "ports": [port] }] }))
    };
    let nodes = [roomy("n1", json!({}))];
    let taken = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    for (ip, protocol, expected) in
        [("", "TCP", taken), ("10.0.0.2", "TCP", "n1"), ("10.0.0.1", "TCP", taken), ("10.0.0.1", "UDP", "n1")]
    {
        let there = on(port("a", "10.0.0.1", "TCP"), "n1");
        assert_eq!(place(&[there, port("x", ip, protocol)], &nodes), expected, "{ip} {protocol}");
    }
}

#[test]
fn pods_join_and_avoid_each_other() {
    let term = json!([{ "topologyKey": "disk", "labelSelector": { "matchLabels": { "app": "web" } } }]);
    let with = |kind: &str| {
        let affinity = json!({ kind: { "requiredDuringSchedulingIgnoredDuringExecution": term } });
        pod("x", json!({ "containers": [], "affinity": affinity }))
    };
    let nodes = [roomy("n1", json!({})), roomy("n2", json!({}))];
    let there = || labelled(on(pod("a", json!({ "containers": [] })), "n2"), "web");
    assert_eq!(place(&[there(), with("podAffinity")], &nodes), "n2");
    assert_eq!(place(&[there(), with("podAntiAffinity")], &nodes), "n1");
    let nobody = "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.";
    assert_eq!(place(&[with("podAffinity")], &nodes), nobody);
    assert_eq!(place(&[labelled(with("podAffinity"), "web")], &nodes), "n1", "the first of a group begins");
    let alone = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.";
    assert_eq!(place(&[there(), with("podAntiAffinity")], &nodes[1..]), alone);
    let mut with_anti_affinity = with("podAntiAffinity");
    with_anti_affinity.metadata.uid = Some("j".to_owned());
    let newcomer = labelled(pod("x", json!({ "containers": [] })), "web");
    let refused = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_eq!(place(&[on(with_anti_affinity, "n2"), newcomer], &nodes[1..]), refused);
}

pub(super) fn names(placements: &[Placement]) -> Vec<&str> {
    placements
        .iter()
        .map(|placement| match placement {
            Placement::On { pod, .. }
            | Placement::Nowhere { pod, .. }
            | Placement::After { pod, .. }
            | Placement::Choose { pod, .. } => &**pod,
        })
        .collect()
}

#[test]
fn a_new_pod_is_decided_without_a_look_at_the_others() {
    let mut planner = knowing(&[asks("a", "2", "1Gi"), asks("b", "3", "1Gi")], &[roomy("n1", json!({}))]);
    assert_eq!(names(&run(&mut planner)), ["a", "b"]);
    planner.pod_seen(asks("c", "3", "1Gi"));
    assert_eq!(names(&run(&mut planner)), ["c"], "b is in nobody's way, and nothing was in b's way");
    // What the scheduler did itself comes back as news.
    planner.pod_seen(on(asks("a", "2", "1Gi"), "n1"));
    assert_eq!(run(&mut planner), []);
}

#[test]
fn freed_resources_are_offered_to_waiting_pods() {
    let nodes = [roomy("n1", json!({}))];
    let waits = || asks("x", "1", "1Gi");
    let full = || knowing(&[on(asks("a", "2", "1Gi"), "n1"), waits()], &nodes);
    let free = [Placement::On { pod: "x".into(), node: "n1".into() }];
    let mut removed = full();
    assert!(matches!(&run(&mut removed)[..], [Placement::Nowhere { .. }]));
    removed.pod_gone("a");
    assert_eq!(run(&mut removed), free);
    let mut ended = full();
    run(&mut ended);
    let mut over = on(asks("a", "2", "1Gi"), "n1");
    over.status.phase = Some("Succeeded".to_owned());
    ended.pod_seen(over);
    assert_eq!(run(&mut ended), free);
    let mut listed = full();
    run(&mut listed);
    listed.all_pods(vec![waits()]);
    assert_eq!(run(&mut listed), free);
    let mut shrunk = full();
    run(&mut shrunk);
    shrunk.pod_seen(on(asks("a", "1", "1Gi"), "n1"));
    assert_eq!(run(&mut shrunk), free);
}

#[test]
fn a_node_is_news_when_it_matters_to_pods() {
    let mut planner = knowing(&[on(asks("a", "2", "1Gi"), "n2"), asks("x", "2", "1Gi")], &[]);
    assert_eq!(names(&run(&mut planner)), ["x"]);
    planner.node_seen(&roomy("n2", json!({})));
    let why = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(run(&mut planner), [Placement::Nowhere { pod: "x".into(), why: why.into() }], "a was there before it");
    let mut again = roomy("n2", json!({}));
    again.metadata.resource_version = Some("7".to_owned());
    planner.node_seen(&again);
    assert_eq!(run(&mut planner), [], "only its heart beats");
    planner.node_seen(&roomy("n3", json!({ "unschedulable": true })));
    assert_eq!(names(&run(&mut planner)), ["x"]);
    planner.node_seen(&roomy("n3", json!({})));
    assert_eq!(run(&mut planner), [Placement::On { pod: "x".into(), node: "n3".into() }]);
    planner.pod_seen(asks("y", "2", "1Gi"));
    run(&mut planner);
    planner.node_gone("n3");
    assert_eq!(names(&run(&mut planner)), ["y"]);
}

#[test]
fn pod_with_affinity_is_retried_when_a_matching_pod_appears() {
    let term = json!([{ "topologyKey": "disk", "labelSelector": { "matchLabels": { "app": "web" } } }]);
    let affinity = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term } });
    let lonely = pod("x", json!({ "containers": [], "affinity": affinity }));
    let mut planner = knowing(&[lonely, asks("y", "3", "1Gi")], &[roomy("n1", json!({}))]);
    assert_eq!(names(&run(&mut planner)), ["x", "y"]);
    planner.pod_seen(labelled(asks("a", "1", "1Gi"), "web"));
    assert_eq!(names(&run(&mut planner)), ["a", "x"], "y wants nobody");
}

#[test]
fn unschedulable_pod_is_retried_later() {
    let mut planner = knowing(&[asks("x", "1", "1Gi")], &[roomy("n1", json!({}))]);
    let Some(Placement::On { pod, .. }) = planner.next() else { panic!("x fits") };
    assert!(planner.next().is_none());
    planner.look_again(&pod);
    assert_eq!(names(&run(&mut planner)), ["x"]);
    planner.look_again(&pod);
    assert_eq!(run(&mut planner), [], "it has its place");
}

#[test]
fn pod_whose_binding_failed_frees_its_resources_and_waits() {
    let mut planner = knowing(&[asks("x", "2", "1Gi"), asks("y", "2", "1Gi")], &[roomy("n1", json!({}))]);
    let Some(Placement::On { pod, node }) = planner.next() else { panic!("x fits") };
    let x = planner.assume(&pod, Arc::clone(&node)).unwrap();
    assert!(matches!(planner.next(), Some(Placement::Nowhere { .. })), "x has the room");
    planner.take_back(&pod, x.clone());
    assert_eq!(run(&mut planner), [Placement::On { pod: "y".into(), node: "n1".into() }]);
    // It was bound by somebody else before we could say that we had failed.
    planner.pod_gone("y");
    run(&mut planner);
    planner.pod_seen(on(x.clone(), "n1"));
    planner.take_back(&pod, x);
    planner.pod_seen(asks("y", "2", "1Gi"));
    assert!(matches!(&run(&mut planner)[..], [Placement::Nowhere { .. }]), "x is there");
}
