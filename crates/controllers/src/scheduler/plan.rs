//! Which pod goes where: pure, from what is known.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

/// One decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The pod with this UID goes to this node.
    On { pod: String, node: String },
    /// It fits nowhere, and why.
    Nowhere { pod: String, why: String },
}

/// Decides for every pod that waits for a node: the fitting node with the fewest pods, by name among equals.
pub fn plan<'a>(
    pods: impl Iterator<Item = &'a Pod> + Clone,
    nodes: impl Iterator<Item = &'a Node> + Clone,
) -> Vec<Placement> {
    let mut load: BTreeMap<String, usize> = nodes.clone().map(|n| (n.name_any(), 0)).collect();
    for node in pods.clone().filter_map(bound_to) {
        if let Some(count) = load.get_mut(node) {
            *count += 1;
        }
    }
    let mut placements = Vec::new();
    for pod in pods.filter(|pod| waits(pod)) {
        let uid = pod.uid().unwrap_or_default();
        let fitting = nodes.clone().filter(|node| obstacle(pod, node).is_none()).map(ResourceExt::name_any);
        match fitting.min_by_key(|name| (load.get(name).copied().unwrap_or(0), name.clone())) {
            Some(node) => {
                *load.entry(node.clone()).or_default() += 1;
                placements.push(Placement::On { pod: uid, node });
            }
            None => placements.push(Placement::Nowhere { pod: uid, why: explain(pod, nodes.clone()) }),
        }
    }
    placements
}

fn bound_to(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn waits(pod: &Pod) -> bool {
    let gated = pod.spec.as_ref().is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()));
    let ours = pod.spec.as_ref().is_some_and(|s| s.scheduler_name.as_deref().unwrap_or(super::NAME) == super::NAME);
    bound_to(pod).is_none() && pod.metadata.deletion_timestamp.is_none() && ours && !gated
}

fn explain<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a Node>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    for node in nodes {
        total += 1;
        if let Some(why) = obstacle(pod, node) {
            *counts.entry(why).or_default() += 1;
        }
    }
    let reasons: Vec<String> = counts.into_iter().map(|(why, count)| format!("{count} {why}")).collect();
    if reasons.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    format!("0/{total} nodes are available: {}.", reasons.join(", "))
}

/// What keeps the pod off the node, if anything does.
fn obstacle(pod: &Pod, node: &Node) -> Option<&'static str> {
    let spec = node.spec.as_ref();
    if spec.and_then(|s| s.unschedulable) == Some(true) {
        return Some("node(s) were unschedulable");
    }
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    if !conditions.is_some_and(|list| list.iter().any(|c| c.type_ == "Ready" && c.status == "True")) {
        return Some("node(s) were not ready");
    }
    let wanted = pod.spec.as_ref().and_then(|s| s.node_selector.as_ref());
    let labels = node.labels();
    if wanted.is_some_and(|w| w.iter().any(|(key, value)| labels.get(key) != Some(value))) {
        return Some("node(s) didn't match Pod's node affinity/selector");
    }
    None
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
}
