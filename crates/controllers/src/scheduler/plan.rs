//! Which pod goes where: pure, from what is known.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use super::affinity::preference;
use super::fit::{World, obstacles, reluctance};
use super::resources::Amounts;

/// One decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The pod with this UID goes to this node.
    On { pod: String, node: String },
    /// It fits nowhere, and why.
    Nowhere { pod: String, why: String },
}

/// Decides for every pod that waits for a node, the most important first: of the nodes that it fits on, the one that
/// suits it best.
pub fn plan<'a>(
    pods: impl Iterator<Item = &'a Pod> + Clone,
    nodes: impl Iterator<Item = &'a Node> + Clone,
) -> Vec<Placement> {
    let mut waiting: Vec<&Pod> = pods.clone().filter(|pod| waits(pod)).collect();
    if waiting.is_empty() {
        return Vec::new();
    }
    let mut world = World::of(nodes);
    for pod in pods.filter(|pod| !is_over(pod)) {
        if let Some(node) = bound_to(pod) {
            world.put(pod, node);
        }
    }
    // Among equals, who came first goes first; times are whole seconds, so names decide the rest.
    waiting.sort_by_key(|pod| (-priority(pod), pod.creation_timestamp().map(|time| time.0), pod.uid()));
    let mut placements = Vec::new();
    for pod in waiting {
        let uid = pod.uid().unwrap_or_default();
        let asked = Amounts::of_pod(pod);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting: Vec<(String, &Node)> = Vec::new();
        for (name, node) in world.nodes() {
            let obstacles = obstacles(pod, &asked, name, &world);
            if obstacles.is_empty() {
                fitting.push((name.clone(), node));
            }
            for obstacle in obstacles {
                *reasons.entry(obstacle).or_default() += 1;
            }
        }
        match best(pod, &asked, fitting, &world) {
            Some(node) => {
                world.put(pod, &node);
                placements.push(Placement::On { pod: uid, node });
            }
            None => placements.push(Placement::Nowhere { pod: uid, why: explain(&reasons, world.nodes().count()) }),
        }
    }
    placements
}

/// The node that suits the pod best: what it prefers, then who asks it to stay away, then where most is left, then
/// where the fewest are.
fn best(pod: &Pod, asked: &Amounts, fitting: Vec<(String, &Node)>, world: &World<'_>) -> Option<String> {
    let suits = |(name, node): &(String, &Node)| {
        (-preference(pod, node), reluctance(pod, node), -world.left_with(name, asked), world.crowd(name), name.clone())
    };
    fitting.into_iter().min_by_key(suits).map(|(name, _)| name)
}

fn bound_to(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn priority(pod: &Pod) -> i64 {
    pod.spec.as_ref().and_then(|spec| spec.priority).map_or(0, i64::from)
}

/// Done: it needs nothing any more.
fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn waits(pod: &Pod) -> bool {
    let gated = pod.spec.as_ref().is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()));
    let ours = pod.spec.as_ref().is_some_and(|s| s.scheduler_name.as_deref().unwrap_or(super::NAME) == super::NAME);
    bound_to(pod).is_none() && pod.metadata.deletion_timestamp.is_none() && ours && !gated && !is_over(pod)
}

/// Why it fits nowhere, counted by reason, as people know it.
fn explain(reasons: &BTreeMap<String, usize>, total: usize) -> String {
    if total == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counted: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    counted.sort();
    format!("0/{total} nodes are available: {}.", counted.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, spec: serde_json::Value) -> Pod {
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
        assert_eq!(plan(pods.iter(), nodes.iter()), [on("b", "n2"), on("c", "n1")]);
    }

    #[test]
    fn a_pod_that_fits_nowhere_is_told_why() {
        let pods = [pod("a", json!({ "containers": [], "nodeSelector": { "disk": "x" } }))];
        let nodes = [node("n1", "True"), node("n2", "False")];
        let why =
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were not ready.";
        assert_eq!(plan(pods.iter(), nodes.iter()), [Placement::Nowhere { pod: "a".into(), why: why.into() }]);
        assert!(
            matches!(&plan(pods.iter(), [].iter())[0], Placement::Nowhere { why, .. } if why.starts_with("no nodes"))
        );
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
        assert_eq!(plan(pods.iter(), [node("n1", "True")].iter()), []);
    }

    /// A node with 2 CPUs, 4 GiB and room for 3 pods.
    fn roomy(name: &str, more: serde_json::Value) -> Node {
        let mut value = serde_json::to_value(node(name, "True")).unwrap();
        value["status"]["allocatable"] = json!({ "cpu": "2", "memory": "4Gi", "pods": "3" });
        value["spec"] = more;
        serde_json::from_value(value).unwrap()
    }

    fn asks(uid: &str, cpu: &str, memory: &str) -> Pod {
        let resources = json!({ "requests": { "cpu": cpu, "memory": memory } });
        pod(uid, json!({ "containers": [{ "name": "a", "resources": resources }] }))
    }

    fn on(mut pod: Pod, node: &str) -> Pod {
        pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
        pod
    }

    fn labelled(mut pod: Pod, app: &str) -> Pod {
        pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        pod
    }

    /// Where the pod called `x` goes, or why nowhere.
    fn place(pods: &[Pod], nodes: &[Node]) -> String {
        let placements = plan(pods.iter(), nodes.iter());
        let found = placements.into_iter().find_map(|placement| match placement {
            Placement::On { pod, node } => (pod == "x").then_some(node),
            Placement::Nowhere { pod, why } => (pod == "x").then_some(why),
        });
        found.expect("x waits")
    }

    #[test]
    fn requests_must_fit_beside_those_who_are_there() {
        let n = || roomy("n1", json!({}));
        let why = |pods: &[Pod]| place(pods, &[n()]);
        assert_eq!(why(&[asks("x", "2", "4Gi")]), "n1", "all of it may be asked for");
        assert_eq!(why(&[asks("x", "2100m", "1Gi")]), "0/1 nodes are available: 1 Insufficient cpu.");
        let both = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.";
        assert_eq!(why(&[on(asks("a", "1", "3Gi"), "n1"), asks("x", "1500m", "2Gi")]), both);
        let mut done = on(asks("a", "2", "4Gi"), "n1");
        done.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        assert_eq!(why(&[done, asks("x", "2", "1Gi")]), "n1", "who is done needs nothing");
        let crowd: Vec<Pod> = ["a", "b", "c"].iter().map(|uid| on(asks(uid, "0", "0"), "n1")).collect();
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
        vital.spec.get_or_insert_default().priority = Some(1000);
        let nodes = [roomy("n1", json!({}))];
        let why = "0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(place(&[asks("x", "2", "1Gi"), vital], &nodes), why);
    }

    #[test]
    fn taints_keep_those_away_who_do_not_tolerate_them() {
        let taints = json!({ "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] });
        let nodes = [roomy("n1", taints)];
        let tolerant =
            |toleration: serde_json::Value| pod("x", json!({ "containers": [], "tolerations": [toleration] }));
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
        let with = |affinity: serde_json::Value| {
            pod("x", json!({ "containers": [], "affinity": { "nodeAffinity": affinity } }))
        };
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
        assert_eq!(
            place(&[with(json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred }))], &nodes),
            "n2"
        );
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
        let mut jealous = with("podAntiAffinity");
        jealous.metadata.uid = Some("j".to_owned());
        let newcomer = labelled(pod("x", json!({ "containers": [] })), "web");
        let refused = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.";
        assert_eq!(place(&[on(jealous, "n2"), newcomer], &nodes[1..]), refused);
    }
}
