//! Claims and volumes brought together, step by step.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use client::WatchUpdate;

use api::volume::NO_PROVISIONER;

use super::*;
use crate::volume_objects::VolumeInput;

/// The objects, changed as the server would change them.
#[derive(Default)]
struct World {
    known: VolumeObjects,
    directories: Directories,
    users: ClaimUsers,
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => {
            *into = if patch.is_object() { json!({}) } else { patch.clone() };
            if patch.is_object() {
                merge(into, patch);
            }
        }
    }
}

impl World {
    fn facts(&self) -> Facts<'_> {
        Facts { known: &self.known, directories: &self.directories, users: &self.users }
    }

    fn claim(&mut self, name: &str, spec: Value) {
        let mut claim = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("u-{name}") },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "" }, "status": { "phase": "Pending" } });
        merge(&mut claim["spec"], &spec);
        self.put_claim(claim);
    }

    fn put_claim(&mut self, claim: Value) {
        let claim = serde_json::from_value(claim).unwrap();
        self.known.observe(VolumeInput::Claims(WatchUpdate::Changed(Arc::new(claim))));
    }

    fn volume(&mut self, name: &str, size: &str, spec: Value) {
        let mut volume = json!({ "metadata": { "name": name, "uid": format!("u-{name}") }, "status": { "phase": "Available" },
            "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size }, "hostPath": { "path": "/x" },
                "persistentVolumeReclaimPolicy": "Retain" } });
        merge(&mut volume["spec"], &spec);
        self.put_volume(volume);
    }

    fn put_volume(&mut self, volume: Value) {
        let volume = serde_json::from_value(volume).unwrap();
        self.known.observe(VolumeInput::Volumes(WatchUpdate::Changed(Arc::new(volume))));
    }

    fn class(&mut self, name: &str, provisioner: &str, mode: &str) {
        let class = json!({ "metadata": { "name": name }, "provisioner": provisioner, "volumeBindingMode": mode });
        let class = serde_json::from_value(class).unwrap();
        self.known.observe(VolumeInput::Classes(WatchUpdate::Changed(Arc::new(class))));
    }

    /// Does one action. Answers it in a word.
    fn apply(&mut self, action: Action) -> String {
        match action {
            Action::PatchVolume { name, patch, .. }
            | Action::Release { name, patch, .. }
            | Action::AbandonVolume { name, patch, .. } => {
                let mut volume = serde_json::to_value(&**self.known.volume(&name).unwrap()).unwrap();
                merge(&mut volume, &patch);
                self.put_volume(volume);
                let what = patch["status"]["phase"].as_str().unwrap_or("claimRef");
                format!("{name} {what}")
            }
            Action::PatchClaim { namespace, name, patch, .. } => {
                let key = claim_key(&namespace, &name);
                let mut claim = serde_json::to_value(&**self.known.claim(&key).unwrap()).unwrap();
                merge(&mut claim, &patch);
                self.put_claim(claim);
                let written = patch["spec"]["volumeName"].as_str().map(|_| "volumeName");
                let other = || patch["metadata"]["annotations"].to_string();
                let what = patch["status"]["phase"].as_str().or(written).map_or_else(other, str::to_owned);
                format!("{name} {what}")
            }
            Action::CreateVolume(mut volume) => {
                volume["status"] = json!({ "phase": "Pending" });
                self.put_volume(volume.clone());
                format!("made {}", volume["metadata"]["name"].as_str().unwrap())
            }
            Action::DeleteVolume { name, .. } => {
                let volume = Arc::clone(self.known.volume(&name).unwrap());
                self.known.observe(VolumeInput::Volumes(WatchUpdate::Removed(volume)));
                format!("deleted {name}")
            }
            Action::Tell { reason, message, .. } => format!("{reason}: {message}"),
        }
    }

    /// Everything that is done about a claim, until nothing is left or the same is said again.
    fn settle(&mut self, claim: &str) -> Vec<String> {
        let mut done: Vec<String> = Vec::new();
        while let Some(action) = super::claim(self.facts(), &claim_key("ns", claim)) {
            let said = self.apply(action);
            if done.last() == Some(&said) {
                break;
            }
            done.push(said);
        }
        done
    }
}

fn asks(size: &str) -> Value {
    json!({ "resources": { "requests": { "storage": size } } })
}

/// [WL-150] The smallest volume that is large enough, in four writes.
#[test]
fn claim_takes_the_smallest_volume_that_fits_in_four_writes() {
    let mut world = World::default();
    for (name, size) in [("a", "20Gi"), ("b", "10Gi"), ("c", "5Gi")] {
        world.volume(name, size, json!({}));
    }
    world.claim("c1", asks("8Gi"));
    assert_eq!(world.settle("c1"), ["b claimRef", "b Bound", "c1 volumeName", "c1 Bound"]);
    // [WL-152] What is taken is taken.
    world.claim("c2", asks("8Gi"));
    assert_eq!(world.settle("c2")[0], "a claimRef");
    world.claim("c3", asks("8Gi"));
    let none = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    assert_eq!(world.settle("c3"), [none]);
}

/// [WL-151] A crash after any write: the next look goes on with the same pair.
#[test]
fn binding_goes_on_after_a_crash_between_any_two_writes() {
    for steps in 0..4 {
        let mut world = World::default();
        world.volume("a", "1Gi", json!({}));
        world.claim("c1", asks("1Gi"));
        for _ in 0..steps {
            let action = super::claim(world.facts(), "ns/c1").unwrap();
            world.apply(action);
        }
        // Something that fits better comes while nobody looks.
        world.volume("0", "1Gi", json!({}));
        world.settle("c1");
        let claim = world.known.claim("ns/c1").unwrap();
        let expected = if steps == 0 { "0" } else { "a" };
        assert_eq!(volume_name(claim), Some(expected), "after {steps}");
        assert_eq!(claim.status.as_ref().unwrap().phase.as_deref(), Some("Bound"));
    }
}

/// [WL-153] A volume that is promised to the claim is its own, whatever else fits.
#[test]
fn promised_volume_is_bound_whatever_else_fits() {
    let mut world = World::default();
    world.volume("a", "1Gi", json!({}));
    world.volume("z", "9Gi", json!({ "claimRef": { "namespace": "ns", "name": "c1" }, "storageClassName": "other" }));
    world.claim("c1", asks("1Gi"));
    assert_eq!(world.settle("c1")[0], "z claimRef");
}

/// [WL-155] A claim of a class that waits is made a volume on the node that the scheduler chose.
#[test]
fn delayed_claim_waits_for_a_node_and_is_provisioned_there() {
    let mut world = World::default();
    world.class("local-path", LOCAL_PATH_PROVISIONER, "WaitForFirstConsumer");
    let mut spec = asks("1Gi");
    spec["storageClassName"] = "local-path".into();
    world.claim("c1", spec);
    let waits = "WaitForFirstConsumer: waiting for first consumer to be created before binding";
    assert_eq!(world.settle("c1"), [waits]);
    let mut claim = serde_json::to_value(&**world.known.claim("ns/c1").unwrap()).unwrap();
    claim["metadata"]["annotations"] = json!({ SELECTED_NODE: "n1" });
    world.put_claim(claim.clone());
    let action = super::claim(world.facts(), "ns/c1").unwrap();
    world.apply(action);
    assert_eq!(selected_node(world.known.claim("ns/c1").unwrap()), None, "the node is gone: another is looked for");
    world.put_claim(claim);
    world.directories.insert("n1".into(), Some("/data/volumes".to_owned()));
    let v = "pvc-u-c1";
    assert_eq!(
        world.settle("c1"),
        [format!("made {v}"), format!("{v} Bound"), "c1 volumeName".into(), "c1 Bound".into()]
    );
    let volume = serde_json::to_value(&**world.known.volume(v).unwrap()).unwrap();
    assert_eq!(volume["spec"]["local"]["path"], "/data/volumes/pvc-u-c1_ns_c1");
    assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
}

/// [WL-160] [WL-161] What becomes of a volume without its claim, and of a claim without its volume.
#[test]
fn released_volume_is_kept_or_deleted_and_lost_claim_says_so() {
    let mut world = World::default();
    let taken = json!({ "claimRef": { "namespace": "ns", "name": "c1", "uid": "u-c1" } });
    world.volume("kept", "1Gi", taken.clone());
    let action = super::volume(world.facts(), "kept").unwrap();
    assert_eq!(world.apply(action), "kept Released");
    assert_eq!(super::volume(world.facts(), "kept"), None);
    let mut freed = serde_json::to_value(&**world.known.volume("kept").unwrap()).unwrap();
    freed["spec"].as_object_mut().unwrap().remove("claimRef");
    world.put_volume(freed);
    let action = super::volume(world.facts(), "kept").unwrap();
    assert_eq!(world.apply(action), "kept Available");

    let mut ours = taken;
    ours["persistentVolumeReclaimPolicy"] = "Delete".into();
    world.volume("ours", "1Gi", ours);
    let mut volume = serde_json::to_value(&**world.known.volume("ours").unwrap()).unwrap();
    volume["metadata"]["annotations"] = json!({ PROVISIONED_BY: LOCAL_PATH_PROVISIONER });
    world.put_volume(volume);
    for expected in ["ours Released", "deleted ours"] {
        let action = super::volume(world.facts(), "ours").unwrap();
        assert_eq!(world.apply(action), expected);
    }
    world.claim("c2", json!({ "volumeName": "gone" }));
    assert_eq!(world.settle("c2"), Vec::<String>::new(), "one that was never bound waits");
    let mut claim = serde_json::to_value(&**world.known.claim("ns/c2").unwrap()).unwrap();
    claim["metadata"]["annotations"] = json!({ BIND_COMPLETED: "yes" });
    world.put_claim(claim);
    let lost = "ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert_eq!(world.settle("c2"), ["c2 Lost", lost]);
}

/// [WL-154] A default class that comes later is taken by a claim that names none, never by one that wants none.
#[test]
fn claim_without_a_class_takes_a_default_that_comes_later_and_one_of_no_class_never() {
    let mut world = World::default();
    world.put_claim(json!({ "metadata": { "name": "nil", "namespace": "ns", "uid": "u" },
        "spec": { "accessModes": ["ReadWriteOnce"] } }));
    world.claim("none", asks("1Gi"));
    let none = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    assert_eq!((world.settle("nil"), world.settle("none")), (vec![none.to_owned()], vec![none.to_owned()]));
    for (name, born) in
        [("old", "2026-01-01T00:00:00Z"), ("young", "2026-01-02T00:00:00Z"), ("not", "2026-01-03T00:00:00Z")]
    {
        let class = json!({ "metadata": { "name": name, "creationTimestamp": born,
                "annotations": { "storageclass.kubernetes.io/is-default-class": (name != "not").to_string() } },
            "provisioner": NO_PROVISIONER });
        let class = serde_json::from_value(class).unwrap();
        world.known.observe(VolumeInput::Classes(WatchUpdate::Changed(Arc::new(class))));
    }
    world.settle("nil");
    assert_eq!(class_of(world.known.claim("ns/nil").unwrap()), Some("young"));
    world.settle("none");
    assert_eq!(class_of(world.known.claim("ns/none").unwrap()), Some(""));
}

/// A pod whose node was written by hand is the first consumer; one that waits for the scheduler is named.
#[test]
fn delayed_claim_names_the_pod_that_waits_and_follows_one_that_has_its_node() {
    let mut world = World::default();
    world.class("wait", "example.com/other", "WaitForFirstConsumer");
    let mut spec = asks("1Gi");
    spec["storageClassName"] = "wait".into();
    world.claim("c1", spec);
    let pod = |node: Option<&str>| {
        let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c1" } });
        let pod = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "p" },
            "spec": { "nodeName": node, "volumes": [volume] } });
        WatchUpdate::Changed(Arc::new(serde_json::from_value(pod).unwrap()))
    };
    world.users.observe(pod(None));
    assert_eq!(world.settle("c1"), ["WaitForPodScheduled: waiting for pod p to be scheduled"]);
    world.users.observe(pod(Some("n1")));
    let done = world.settle("c1");
    assert_eq!(selected_node(world.known.claim("ns/c1").unwrap()), Some("n1"));
    let claim = world.known.claim("ns/c1").unwrap();
    assert_eq!(said_of(claim, STORAGE_PROVISIONER).map(String::as_str), Some("example.com/other"), "{done:?}");
    assert!(done.last().unwrap().starts_with("ExternalProvisioning: "), "{done:?}");
}

/// A claim of a class that allows it grows; the sizes of what others made are theirs to change.
#[test]
fn bound_claim_grows_with_its_volume_where_the_class_allows_it() {
    for (allowed, expected) in [(true, "3Gi"), (false, "1Gi")] {
        let mut world = World::default();
        let class = json!({ "metadata": { "name": "local-path" }, "provisioner": LOCAL_PATH_PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": allowed });
        let class = serde_json::from_value(class).unwrap();
        world.known.observe(VolumeInput::Classes(WatchUpdate::Changed(Arc::new(class))));
        world.directories.insert("n1".into(), Some("/data/volumes".to_owned()));
        world.put_claim(json!({ "metadata": { "name": "c1", "namespace": "ns", "uid": "u-c1",
                "annotations": { SELECTED_NODE: "n1" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
                "resources": { "requests": { "storage": "1Gi" } } } }));
        world.settle("c1");
        let mut claim = serde_json::to_value(&**world.known.claim("ns/c1").unwrap()).unwrap();
        assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
        claim["spec"]["resources"]["requests"]["storage"] = "3Gi".into();
        world.put_claim(claim);
        world.settle("c1");
        let claim = serde_json::to_value(&**world.known.claim("ns/c1").unwrap()).unwrap();
        let volume = serde_json::to_value(&**world.known.volume("pvc-u-c1").unwrap()).unwrap();
        assert_eq!(
            (&claim["status"]["capacity"]["storage"], &volume["spec"]["capacity"]["storage"]),
            (&json!(expected), &json!(expected))
        );
    }
}

/// [WL-167] A volume that leaves is not held for a node that is gone, and is held for one that is there.
#[test]
fn leaving_volume_of_a_node_that_is_gone_is_abandoned() {
    let mut world = World::default();
    let volume = |phase: &str| {
        json!({ "metadata": { "name": "v", "uid": "u-v", "labels": { VOLUME_NODE: "n1" },
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other", PROVISIONER_FINALIZER],
            "annotations": { PROVISIONED_BY: LOCAL_PATH_PROVISIONER } }, "status": { "phase": phase },
        "spec": { "claimRef": { "namespace": "ns", "name": "c1", "uid": "u-c1" },
            "persistentVolumeReclaimPolicy": "Delete" } })
    };
    world.directories.insert("n1".into(), Some("/data/volumes".to_owned()));
    world.put_volume(volume("Released"));
    assert_eq!(super::volume(world.facts(), "v"), None, "its node removes the directory");
    world.directories.clear();
    world.put_volume(volume("Bound"));
    assert!(!matches!(super::volume(world.facts(), "v"), Some(Action::AbandonVolume { .. })), "somebody has it");
    world.put_volume(volume("Released"));
    let Some(Action::AbandonVolume { node, patch, .. }) = super::volume(world.facts(), "v") else { panic!("held") };
    assert_eq!((node.as_str(), &patch["metadata"]["finalizers"]), ("n1", &json!(["other"])));
}
