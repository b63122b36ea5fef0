//! What a pod's claims ask of its node, and what has to be written before the pod can be bound: pure, from claims, volumes and classes
//! as they were last seen.
//!
//! A volume of a class that waits for its first pod is chosen here, with the node. The choice is written into the objects (the
//! volume's claimRef, or the claim's selected node) and the pod is looked at again when they are bound, so nothing is remembered.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::placement::NodeLabels;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;

use super::world::{NodeFacts, World};
use crate::pod::PodView;
use crate::volume_objects::{
    Name, VolumeObjects, best_match, claim_key, class_of, is_bind_completed, is_delayed, is_promised_to,
    is_provisioned, reaches, requested, selected_node, text, volume_name,
};

const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const IN_USE: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// A choice that has to be written before the pod can be bound.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum VolumeChoice {
    /// This volume is the claim's.
    Take { volume: Arc<PersistentVolume>, claim: Arc<PersistentVolumeClaim> },
    /// A volume is to be made for the claim on this node.
    Provision { claim: Arc<PersistentVolumeClaim>, node: Arc<str> },
}

/// How the claims of a pod stand on one node that it fits on.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum VolumeState {
    /// Nothing is missing.
    Bound,
    /// Somebody has yet to bind, or to make, what was chosen.
    Waiting,
    /// These choices are to be written first.
    Choose(Vec<VolumeChoice>),
}

/// The claims of a pod, as they are known by.
pub(super) fn claim_keys(pod: &PodView) -> impl Iterator<Item = Name> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    pod.claims().map(move |(name, _)| claim_key(namespace, &name))
}

/// What keeps the pod off every node, whichever it is.
pub(super) fn unready(pod: &PodView, known: &VolumeObjects) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut has_unbound = false;
    for (name, is_ephemeral) in pod.claims() {
        let Some(claim) = known.claim(&claim_key(namespace, &name)) else {
            return Some(match is_ephemeral {
                true => {
                    format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
                }
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        let is_own = claim.metadata.owner_references.iter().flatten().any(|owner| {
            owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref() && owner.kind == "Pod"
        });
        if is_ephemeral && !is_own {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            return Some(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
            ));
        }
        if claim.status.as_ref().is_some_and(|status| text(&status.phase) == "Lost") {
            let volume = volume_name(claim).unwrap_or_default();
            return Some(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Some(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        has_unbound |= !is_bound(claim) && !waits_for_a_pod(claim, known);
    }
    has_unbound.then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    is_bind_completed(claim) && volume_name(claim).is_some()
}

/// Whether the scheduler chooses the claim's volume. One that names its volume is bound by the binder.
fn waits_for_a_pod(claim: &PersistentVolumeClaim, known: &VolumeObjects) -> bool {
    let class = class_of(claim).and_then(|name| known.class(name));
    volume_name(claim).is_none() && class.is_some_and(|class| is_delayed(class))
}

/// What keeps the pod off this node because of its volumes.
pub(super) fn obstacle(pod: &PodView, node: &NodeFacts, world: &World) -> Option<&'static str> {
    if pod.spec.volumes.is_empty() {
        return None;
    }
    let is_alone = |key: &Name| world.volumes.claim(key).is_some_and(|claim| is_for_one_pod(claim));
    if claim_keys(pod).filter(is_alone).any(|key| world.uses_claim(&key)) {
        return Some(IN_USE);
    }
    on_node(pod, node, &world.volumes).err()
}

fn is_for_one_pod(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == "ReadWriteOncePod")
}

/// How the claims of the pod would be bound on a node; or why they cannot be.
pub(super) fn on_node(pod: &PodView, node: &NodeFacts, known: &VolumeObjects) -> Result<VolumeState, &'static str> {
    let place = NodeLabels { name: &node.name, labels: &node.labels };
    let mut unbound = Vec::new();
    for claim in claim_keys(pod).filter_map(|key| known.claim(&key)) {
        if !is_bound(claim) {
            unbound.push(claim);
            continue;
        }
        match volume_name(claim).and_then(|name| known.volume(name)) {
            None => return Err(VOLUME_MISSING),
            Some(volume) if !reaches(volume, place) => return Err(NODE_CONFLICT),
            Some(_) => {}
        }
    }
    unbound.sort_by_key(|claim| (requested(claim).ceil(), claim.name_any()));
    unbound.dedup_by_key(|claim| claim.name_any());
    let is_done = unbound.is_empty();
    let mut taken = BTreeSet::new();
    let mut choices = Vec::new();
    for claim in unbound {
        if let Some((_, volume)) = known.volumes().find(|(_, volume)| is_promised_to(volume, claim)) {
            if !reaches(volume, place) {
                return Err(NODE_CONFLICT);
            }
            continue;
        }
        match selected_node(claim) {
            Some(selected) if selected == &*node.name => continue,
            Some(_) => return Err(BIND_CONFLICT),
            None => {}
        }
        let volumes = known.volumes().map(|(_, volume)| volume);
        if let Some(volume) = best_match(claim, volumes, Some(place), false, &taken) {
            taken.insert(volume.name_any().into());
            choices.push(VolumeChoice::Take { volume: Arc::clone(volume), claim: Arc::clone(claim) });
            continue;
        }
        let class = class_of(claim).and_then(|name| known.class(name));
        if !class.is_some_and(|class| is_provisioned(class) && is_allowed(class, place)) {
            return Err(BIND_CONFLICT);
        }
        choices.push(VolumeChoice::Provision { claim: Arc::clone(claim), node: Arc::clone(&node.name) });
    }
    Ok(match (is_done, choices.is_empty()) {
        (true, _) => VolumeState::Bound,
        (false, true) => VolumeState::Waiting,
        (false, false) => VolumeState::Choose(choices),
    })
}

/// Whether volumes of the class may be made for this node.
fn is_allowed(class: &StorageClass, node: NodeLabels<'_>) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    terms.is_empty()
        || terms.iter().any(|term| {
            let mut all = term.match_label_expressions.iter().flatten();
            all.all(|wanted| node.labels.get(&wanted.key).is_some_and(|value| wanted.values.contains(value)))
        })
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
