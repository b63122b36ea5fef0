//! Pods with claims, and the nodes that their volumes allow.
#![allow(clippy::unwrap_used, reason = "tests")]

use client::WatchUpdate;
use serde_json::{Value, json};

use super::super::plan::{Placement, Planner};
use super::*;
use crate::volume_objects::VolumeInput;

fn pod(uid: &str, volumes: Value) -> PodView {
    serde_json::from_value(json!({ "metadata": { "name": uid, "namespace": "ns", "uid": uid },
        "spec": { "volumes": volumes } }))
    .unwrap()
}

fn with_claim(uid: &str, claim: &str) -> PodView {
    pod(uid, json!([{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }]))
}

struct Cluster(Planner);

impl Cluster {
    fn new(nodes: &[&str]) -> Self {
        let mut planner = Planner::default();
        for name in nodes {
            let node = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
            planner.node_seen(&serde_json::from_value(node).unwrap());
        }
        Self(planner)
    }

    fn claim(&mut self, name: &str, class: &str, change: Value) {
        let mut claim = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("u-{name}") },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": { "requests": { "storage": "1Gi" } } } });
        for (part, fields) in change.as_object().unwrap() {
            for (key, value) in fields.as_object().unwrap() {
                claim[part][key] = value.clone();
            }
        }
        let claim = serde_json::from_value(claim).unwrap();
        self.0.volumes_seen(VolumeInput::Claims(WatchUpdate::Changed(Arc::new(claim))));
    }

    fn volume(&mut self, name: &str, size: &str, class: &str, node: &str) {
        let term =
            json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] });
        let volume = json!({ "metadata": { "name": name, "uid": name }, "status": { "phase": "Available" },
            "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size }, "storageClassName": class,
                "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } } } });
        let volume = serde_json::from_value(volume).unwrap();
        self.0.volumes_seen(VolumeInput::Volumes(WatchUpdate::Changed(Arc::new(volume))));
    }

    fn class(&mut self, name: &str, provisioner: &str, mode: &str, topologies: Value) {
        let class = json!({ "metadata": { "name": name }, "provisioner": provisioner, "volumeBindingMode": mode,
            "allowedTopologies": topologies });
        let class = serde_json::from_value(class).unwrap();
        self.0.volumes_seen(VolumeInput::Classes(WatchUpdate::Changed(Arc::new(class))));
    }

    /// What is decided for a pod that waits, in words.
    fn decide(&self, uid: &str) -> String {
        match self.0.decide(&uid.into()) {
            None => "waits".to_owned(),
            Some(Placement::On { node, .. }) => format!("on {node}"),
            Some(Placement::Nowhere { why, .. }) => why,
            Some(Placement::After { .. }) => panic!("nobody has to leave"),
            Some(Placement::Choose { node, choices, .. }) => {
                let word = |choice: &VolumeChoice| match choice {
                    VolumeChoice::Take { volume, claim } => format!("{} takes {}", claim.name_any(), volume.name_any()),
                    VolumeChoice::Provision { claim, node } => format!("{} on {node}", claim.name_any()),
                };
                format!("{node}: {}", choices.iter().map(word).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

const BOUND: &str = "pv.kubernetes.io/bind-completed";

/// [WL-157] What keeps a pod from every node is told in upstream's words, and looked at again when that changes.
#[test]
fn pod_waits_for_its_claim_with_the_reason_and_is_woken_by_it() {
    let mut cluster = Cluster::new(&["n1", "n2"]);
    cluster.0.pod_seen(with_claim("p", "c"));
    cluster.0.take_woken();
    let whole = |why: &str| format!("0/2 nodes are available: {why}.");
    assert_eq!(cluster.decide("p"), whole("persistentvolumeclaim \"c\" not found"));
    cluster.claim("c", "", json!({}));
    assert_eq!(cluster.0.take_woken(), ["p".into()]);
    assert_eq!(cluster.decide("p"), whole("pod has unbound immediate PersistentVolumeClaims"));
    cluster.claim("c", "", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    assert_eq!(cluster.decide("p"), whole("persistentvolumeclaim \"c\" is being deleted"));
    cluster.claim("c", "", json!({ "spec": { "volumeName": "v" }, "status": { "phase": "Lost" } }));
    let lost = "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"";
    assert_eq!(cluster.decide("p"), whole(lost));
    let bound = json!({ "metadata": { "annotations": { BOUND: "yes" } }, "spec": { "volumeName": "v" } });
    cluster.claim("c", "", bound);
    assert_eq!(
        cluster.decide("p"),
        whole("2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
    );
    cluster.0.take_woken();
    cluster.volume("v", "1Gi", "", "n2");
    assert_eq!(cluster.0.take_woken(), ["p".into()]);
    assert_eq!(cluster.decide("p"), "on n2");
    let mut own = pod("q", json!([{ "name": "v", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }]));
    cluster.0.pod_seen(own.clone());
    let missing = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"q-v\"";
    assert_eq!(cluster.decide("q"), whole(missing));
    // [WL-170] A claim of that name that is not its own is not used.
    cluster.claim("q-v", "", json!({}));
    assert_eq!(cluster.decide("q"), whole("PVC ns/q-v was not created for pod ns/q (pod is not owner)"));
    own.spec.volumes.clear();
    cluster.0.pod_seen(own);
    assert_eq!(cluster.decide("q"), "on n1");
}

/// [WL-155] The node and the volume are chosen together, written, and waited for.
#[test]
fn claim_of_a_class_that_waits_is_chosen_with_the_node() {
    let mut cluster = Cluster::new(&["n1", "n2"]);
    cluster.class("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", json!([]));
    cluster.class("local-path", "adieu.dev/local-path", "WaitForFirstConsumer", json!([]));
    cluster.claim("c", "static", json!({}));
    cluster.0.pod_seen(with_claim("p", "c"));
    let none = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    assert_eq!(cluster.decide("p"), none);
    cluster.volume("large", "9Gi", "static", "n2");
    cluster.volume("small", "2Gi", "static", "n2");
    assert_eq!(cluster.decide("p"), "n2: c takes small");
    cluster.claim("d", "local-path", json!({}));
    cluster.0.pod_seen(with_claim("q", "d"));
    assert_eq!(cluster.decide("q"), "n1: d on n1");
    cluster.claim(
        "d",
        "local-path",
        json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n2" } } }),
    );
    assert_eq!(cluster.decide("q"), "waits", "for the volume to be made where it was chosen");
    let topologies = json!([{ "matchLabelExpressions": [{ "key": "kubernetes.io/hostname", "values": ["n2"] }] }]);
    cluster.class("zoned", "example.com/x", "WaitForFirstConsumer", topologies);
    cluster.claim("e", "zoned", json!({}));
    cluster.0.pod_seen(with_claim("r", "e"));
    assert_eq!(cluster.decide("r"), "n2: e on n2");
}

/// Two claims of one pod take two volumes, the smaller one first.
#[test]
fn claims_of_one_pod_take_different_volumes() {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.class("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", json!([]));
    cluster.claim("a", "static", json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
    cluster.claim("b", "static", json!({}));
    let volume = |name: &str, claim: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } });
    cluster.0.pod_seen(pod("p", json!([volume("x", "a"), volume("y", "b")])));
    cluster.volume("one", "2Gi", "static", "n1");
    assert!(cluster.decide("p").contains("didn't find available"), "{}", cluster.decide("p"));
    cluster.volume("two", "3Gi", "static", "n1");
    assert_eq!(cluster.decide("p"), "n1: b takes one, a takes two");
}

/// [WL-168] A claim for one pod is not shared, and its successor comes the moment it is free.
#[test]
fn claim_for_one_pod_keeps_the_next_waiting_until_the_first_is_over() {
    let mut cluster = Cluster::new(&["n1"]);
    let alone = json!({ "metadata": { "annotations": { BOUND: "yes" } },
        "spec": { "volumeName": "v", "accessModes": ["ReadWriteOncePod"] } });
    cluster.claim("c", "", alone);
    cluster.volume("v", "1Gi", "", "n1");
    let mut first = with_claim("p", "c");
    first.spec.node_name = Some("n1".to_owned());
    cluster.0.pod_seen(first.clone());
    cluster.0.pod_seen(with_claim("q", "c"));
    assert_eq!(cluster.decide("q"), format!("0/1 nodes are available: 1 {IN_USE}."));
    cluster.0.take_woken();
    first.status.phase = Some("Succeeded".to_owned());
    cluster.0.pod_seen(first);
    assert_eq!(cluster.0.take_woken(), ["q".into()]);
    assert_eq!(cluster.decide("q"), "on n1");
}
