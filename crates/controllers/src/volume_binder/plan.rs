//! What is to be done about one claim or one volume: pure, one write at a time.
//!
//! Binding is four writes, each of which can be the last one before a crash: the volume's claimRef, its phase, the claim's volumeName,
//! its phase. The volume is the lock: whoever writes its claimRef first has it.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use api::volume::{
    BETA_STORAGE_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, LOCAL_PATH_PROVISIONER, PROVISIONED_BY,
    PROVISIONER_FINALIZER, SELECTED_NODE, STORAGE_PROVISIONER, VOLUME_NODE, directory_name,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::claim_users::ClaimUsers;
use crate::volume_objects::{
    Name, VolumeObjects, best_match, capacity, claim_key, claim_ref, class_of, default_class, is_bind_completed,
    is_delayed, is_promised_to, is_provisioned, mismatch, requested, seen_as, selected_node, taken_by, text,
    volume_name,
};

/// Where the agents of nodes make directories of volumes, by the names of the nodes.
pub(super) type Directories = BTreeMap<Name, Option<String>>;

/// One thing to be done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Action {
    /// Change a volume that is as it was seen.
    PatchVolume { name: String, patch: Value, is_status: bool },
    /// Change a claim that is as it was seen.
    PatchClaim { namespace: String, name: String, patch: Value, is_status: bool },
    /// A volume for a claim.
    CreateVolume(Value),
    /// Its claim is gone, and nobody wants what is in it.
    DeleteVolume { name: String, uid: String },
    /// The node that has the volume is gone for good: nobody is left to remove what is in it.
    AbandonVolume { name: String, uid: String, node: String, patch: Value },
    /// The claim is gone, if another look at the server says so too.
    Release { name: String, claim: ClaimId, patch: Value },
    /// Something that people should know about a claim or volume.
    Tell { about: About, is_warning: bool, reason: &'static str, message: String },
}

/// The one claim that is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClaimId {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// What an event is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum About {
    Claim(ClaimId),
    Volume { name: String, uid: String },
}

fn id_of(claim: &PersistentVolumeClaim) -> ClaimId {
    ClaimId {
        namespace: text(&claim.metadata.namespace).to_owned(),
        name: claim.name_any(),
        uid: text(&claim.metadata.uid).to_owned(),
    }
}

fn say(claim: &PersistentVolumeClaim, is_warning: bool, reason: &'static str, message: String) -> Option<Action> {
    Some(Action::Tell { about: About::Claim(id_of(claim)), is_warning, reason, message })
}

fn patch_volume(volume: &PersistentVolume, patch: Value, is_status: bool) -> Action {
    Action::PatchVolume { name: volume.name_any(), patch: seen_as(&volume.metadata, patch), is_status }
}

fn patch_claim(claim: &PersistentVolumeClaim, patch: Value, is_status: bool) -> Action {
    let (namespace, name) = (text(&claim.metadata.namespace).to_owned(), claim.name_any());
    Action::PatchClaim { namespace, name, patch: seen_as(&claim.metadata, patch), is_status }
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().map(|status| text(&status.phase)).unwrap_or_default()
}

fn annotation<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    volume.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// What the binder decides from.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) known: &'a VolumeObjects,
    pub(super) directories: &'a Directories,
    pub(super) users: &'a ClaimUsers,
}

/// The next step of a claim.
pub(super) fn claim(facts: Facts<'_>, key: &str) -> Option<Action> {
    let Facts { known, directories, users } = facts;
    let claim = known.claim(key)?;
    let named = volume_name(claim);
    if is_bind_completed(claim) {
        let lost = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return match named.and_then(|name| known.volume(name)) {
            None => lose(claim, "ClaimLost", lost),
            Some(volume) if claim_ref(volume).is_none() || is_promised_to(volume, claim) => {
                bind(claim, volume).or_else(|| expand(known, claim, volume))
            }
            Some(_) => {
                lose(claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
            }
        };
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if let Some(name) = named {
        let volume = known.volume(name)?;
        if is_promised_to(volume, claim) {
            return bind(claim, volume);
        }
        if claim_ref(volume).is_some() {
            let message = format!("volume {name:?} already bound to a different claim.");
            return say(claim, true, "FailedBinding", message);
        }
        if let Some(why) = mismatch(volume, claim) {
            let message = format!("Cannot bind to requested volume {name:?}: {why}");
            return say(claim, true, "VolumeMismatch", message);
        }
        return bind(claim, volume);
    }
    // A default that came after the claim is its own all the same, unless it wants a volume without one.
    if let (None, Some(class)) = (class_of(claim), default_class(known)) {
        return Some(patch_claim(claim, json!({ "spec": { "storageClassName": &**class } }), false));
    }
    let class_name = class_of(claim).unwrap_or_default();
    let class = known.class(class_name);
    let node = selected_node(claim);
    let waits = class.is_some_and(|class| is_delayed(class)) && node.is_none();
    let volumes = known.volumes().map(|(_, volume)| volume);
    if let Some(volume) = best_match(claim, volumes, None, waits || node.is_some(), &Default::default()) {
        return bind(claim, volume);
    }
    if waits {
        // A pod that was given its node by hand is seen by no scheduler.
        let is_made = |node: &str| directories.contains_key(node) || !class.is_some_and(|class| is_local_path(class));
        if let Some(node) = users.node_of(key).filter(|node| is_made(node)) {
            return Some(patch_claim(claim, json!({ "metadata": { "annotations": { SELECTED_NODE: node } } }), false));
        }
        if let Some(pod) = users.waiting(key) {
            return say(claim, false, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled"));
        }
        let message = "waiting for first consumer to be created before binding".to_owned();
        return say(claim, false, "WaitForFirstConsumer", message);
    }
    match class {
        None if class_name.is_empty() => {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            say(claim, false, "FailedBinding", message)
        }
        None => {
            let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
            say(claim, true, "ProvisioningFailed", message)
        }
        Some(class) if is_local_path(class) => provision(claim, class, node, directories),
        Some(class) if is_provisioned(class) => {
            let provisioner = &class.provisioner;
            // By this they know that it is theirs.
            if said_of(claim, STORAGE_PROVISIONER) != Some(provisioner) {
                let annotations = json!({ STORAGE_PROVISIONER: provisioner, BETA_STORAGE_PROVISIONER: provisioner });
                return Some(patch_claim(claim, json!({ "metadata": { "annotations": annotations } }), false));
            }
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
                 system administrator. If volume creation is delayed, please verify that the provisioner is running and \
                 correctly registered."
            );
            say(claim, false, "ExternalProvisioning", message)
        }
        Some(_) => {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            say(claim, false, "FailedBinding", message)
        }
    }
}

fn lose(claim: &PersistentVolumeClaim, reason: &'static str, message: &str) -> Option<Action> {
    let is_lost = claim.status.as_ref().is_some_and(|status| text(&status.phase) == "Lost");
    if is_lost {
        return say(claim, true, reason, message.to_owned());
    }
    Some(patch_claim(claim, json!({ "status": { "phase": "Lost" } }), true))
}

/// The next of the four writes, if one is left.
fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Action> {
    let metadata = &claim.metadata;
    let promised = claim_ref(volume);
    // What is in one that leaves is given up as soon as nobody is bound to it.
    if phase(volume) != "Bound" && volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if promised.is_none_or(|promised| promised.uid != metadata.uid) {
        let patch = taken_by(volume, claim);
        return Some(Action::PatchVolume { name: volume.name_any(), patch, is_status: false });
    }
    if phase(volume) != "Bound" {
        return Some(patch_volume(volume, json!({ "status": { "phase": "Bound", "message": null } }), true));
    }
    if volume_name(claim) != Some(&volume.name_any()) || !is_bind_completed(claim) {
        let mut annotations = json!({ BIND_COMPLETED: "yes" });
        if volume_name(claim).is_none() {
            annotations[BOUND_BY_CONTROLLER] = "yes".into();
        }
        let patch = json!({ "metadata": { "annotations": annotations }, "spec": { "volumeName": volume.name_any() } });
        return Some(patch_claim(claim, patch, false));
    }
    let status = claim.status.as_ref();
    if status.is_none_or(|status| text(&status.phase) != "Bound") {
        let spec = volume.spec.as_ref()?;
        let status = json!({ "phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity });
        return Some(patch_claim(claim, json!({ "status": status }), true));
    }
    None
}

/// A claim asks for more than it has: of what we make ourselves it gets more, if its class says so, by numbers alone.
fn expand(known: &VolumeObjects, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Action> {
    if annotation(volume, PROVISIONED_BY) != Some(LOCAL_PATH_PROVISIONER) {
        return None;
    }
    let class = known.class(class_of(claim).unwrap_or_default());
    let may_grow = class.is_some_and(|class| class.allow_volume_expansion == Some(true));
    if may_grow && requested(claim) > capacity(volume) {
        let patch = json!({ "spec": { "capacity": { "storage": requested(claim).to_string() } } });
        return Some(patch_volume(volume, patch, false));
    }
    let shown = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    let shown: Quantity = shown.and_then(|shown| shown.0.parse().ok()).unwrap_or(Quantity::ZERO);
    let has = volume.spec.as_ref().and_then(|spec| spec.capacity.clone());
    (shown < capacity(volume)).then(|| patch_claim(claim, json!({ "status": { "capacity": has } }), true))
}

fn said_of<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a String> {
    claim.metadata.annotations.as_ref()?.get(key)
}

/// A volume whose directory the agent of the chosen node makes.
fn provision(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: Option<&str>,
    directories: &Directories,
) -> Option<Action> {
    let spec = claim.spec.as_ref()?;
    let fail = |why: &str| {
        let message = format!("failed to provision volume with StorageClass {:?}: {why}", class.name_any());
        say(claim, true, "ProvisioningFailed", message)
    };
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if spec.selector.is_some() {
        return fail("claim.Spec.Selector is not supported");
    }
    if modes.iter().any(|mode| mode != "ReadWriteOnce" && mode != "ReadWriteOncePod") {
        return fail("NodePath only supports ReadWriteOnce and ReadWriteOncePod (1.22+) access modes");
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return fail("volumes of mode Block are not supported");
    }
    if let Some(parameter) = class.parameters.iter().flatten().map(|(name, _)| name).next() {
        return fail(&format!("parameter {parameter:?} is not known"));
    }
    let Some(node) = node else { return fail("configuration error, no node was specified") };
    // A node that left is not waited for: the scheduler chooses another.
    let Some(directory) = directories.get(node) else {
        return Some(patch_claim(claim, json!({ "metadata": { "annotations": { SELECTED_NODE: null } } }), false));
    };
    let Some(directory) = directory else { return fail("the node has no directory for volumes") };
    let (namespace, name) = (text(&claim.metadata.namespace), claim.name_any());
    let uid = claim.metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    let volume = format!("pvc-{uid}");
    let path = format!("{directory}/{}", directory_name(&volume, namespace, &name));
    let asked = requested(claim);
    let expression = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    let hostname = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
    Some(Action::CreateVolume(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": volume, "labels": { VOLUME_NODE: node },
            "annotations": { PROVISIONED_BY: LOCAL_PATH_PROVISIONER }, "finalizers": [PROVISIONER_FINALIZER] },
        "spec": {
            "accessModes": modes,
            "capacity": { "storage": asked.to_string() },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": uid, "resourceVersion": claim.metadata.resource_version },
            "local": { "path": path },
            "nodeAffinity": { "required": hostname },
            "mountOptions": class.mount_options,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.name_any(),
            "volumeMode": "Filesystem",
        },
    })))
}

/// The next step of a volume.
pub(super) fn volume(facts: Facts<'_>, name: &str) -> Option<Action> {
    let Facts { known, directories, .. } = facts;
    let volume = known.volume(name)?;
    if let Some(action) = abandon(volume, directories) {
        return Some(action);
    }
    let to_phase = |word: &str| {
        (phase(volume) != word).then(|| patch_volume(volume, json!({ "status": { "phase": word } }), true))
    };
    let Some(promised) = claim_ref(volume).filter(|promised| !text(&promised.uid).is_empty()) else {
        return to_phase("Available");
    };
    let claim = known.claim(&claim_key(text(&promised.namespace), text(&promised.name)));
    let is_ours = annotation(volume, PROVISIONED_BY) == Some(LOCAL_PATH_PROVISIONER);
    let policy = volume.spec.as_ref().map(|spec| text(&spec.persistent_volume_reclaim_policy)).unwrap_or_default();
    match claim.filter(|claim| claim.metadata.uid == promised.uid) {
        // The claim's next step, if there is one.
        Some(claim) if volume_name(claim).is_none_or(|named| named == name) => None,
        Some(_) if is_ours && policy == "Delete" => reclaim(volume, policy, is_ours),
        Some(_) if annotation(volume, BOUND_BY_CONTROLLER).is_some() => {
            let patch =
                json!({ "metadata": { "annotations": { BOUND_BY_CONTROLLER: null } }, "spec": { "claimRef": null } });
            Some(patch_volume(volume, patch, false))
        }
        Some(_) => Some(patch_volume(volume, json!({ "spec": { "claimRef": { "uid": null } } }), false)),
        None if phase(volume) == "Released" || phase(volume) == "Failed" => reclaim(volume, policy, is_ours),
        None => {
            let claim = ClaimId {
                namespace: text(&promised.namespace).to_owned(),
                name: text(&promised.name).to_owned(),
                uid: text(&promised.uid).to_owned(),
            };
            let patch = seen_as(&volume.metadata, json!({ "status": { "phase": "Released" } }));
            Some(Action::Release { name: name.to_owned(), claim, patch })
        }
    }
}

/// A volume that leaves, and whose node is gone: nobody will remove its directory.
fn abandon(volume: &PersistentVolume, directories: &Directories) -> Option<Action> {
    let node = volume.metadata.labels.as_ref()?.get(VOLUME_NODE)?;
    let finalizers = volume.metadata.finalizers.as_deref().unwrap_or_default();
    let is_held = finalizers.iter().any(|own| own == PROVISIONER_FINALIZER);
    if volume.metadata.deletion_timestamp.is_none()
        || annotation(volume, PROVISIONED_BY) != Some(LOCAL_PATH_PROVISIONER)
        || !is_held
        || phase(volume) == "Bound"
        || directories.contains_key(&**node)
    {
        return None;
    }
    let left: Vec<&String> = finalizers.iter().filter(|own| *own != PROVISIONER_FINALIZER).collect();
    let patch = seen_as(&volume.metadata, json!({ "metadata": { "finalizers": left } }));
    let uid = text(&volume.metadata.uid).to_owned();
    Some(Action::AbandonVolume { name: volume.name_any(), uid, node: node.clone(), patch })
}

/// What becomes of a volume whose claim is gone.
fn reclaim(volume: &PersistentVolume, policy: &str, is_ours: bool) -> Option<Action> {
    if policy != "Delete" || volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (name, uid) = (volume.name_any(), text(&volume.metadata.uid).to_owned());
    if is_ours {
        return Some(Action::DeleteVolume { name, uid });
    }
    // Whoever made it takes it away.
    if annotation(volume, PROVISIONED_BY).is_some() {
        return None;
    }
    let message = format!("error getting deleter volume plugin for volume {name:?}: no volume plugin matched");
    if phase(volume) == "Failed" {
        let about = About::Volume { name, uid };
        return Some(Action::Tell { about, is_warning: true, reason: "VolumeFailedDelete", message });
    }
    Some(patch_volume(volume, json!({ "status": { "phase": "Failed", "message": message } }), true))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

fn is_local_path(class: &StorageClass) -> bool {
    class.provisioner == LOCAL_PATH_PROVISIONER
}
