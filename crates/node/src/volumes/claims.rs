//! Volumes of claims: which persistent volume a claim has, and where that is on this node.
//!
//! What was found for a pod is written beside its manifest before its first container starts. So a container is started again without
//! asking anybody, and whoever gives up a volume knows which pods of this node may still write to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::placement::{NodeLabels, meets};
use api::volume::{
    DIRECTORY_MADE, LOCAL_PATH_PROVISIONER, PROVISIONED_BY, VOLUME_NODE, ephemeral_claim, is_directory_of,
};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume,
};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Means, VolumeError, disk, fs_group, host_path, missing, ownership, refused};
use crate::manifest::VolumeDirs;

/// Where a claim's volume is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ClaimedVolume {
    /// The persistent volume.
    pub(super) volume: String,
    /// The path that is mounted.
    pub(super) path: PathBuf,
    /// Whether the pod's group gets it.
    #[serde(default)]
    pub(super) is_given_to_group: bool,
    /// The claim is only to be read.
    #[serde(default)]
    pub(super) read_only: bool,
}

/// What the volumes of a pod came to, by their names in the pod.
pub(super) type ClaimedVolumes = BTreeMap<String, ClaimedVolume>;

/// The claim of a volume by name, whether it is made for the pod, and whether it is only to be read.
fn claim_of(pod: &Pod, volume: &Volume) -> Option<(String, bool, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), false, source.read_only == Some(true)));
    }
    volume.ephemeral.as_ref().map(|_| (ephemeral_claim(&pod.name_any(), &volume.name), true, false))
}

/// Finds the volumes of all claims of `pod`, as they were found before or as the API says, and makes them ready.
pub(super) async fn prepare(means: &Means, pod: &Pod, dirs: &VolumeDirs) -> Result<ClaimedVolumes, VolumeError> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let wanted: Vec<_> = volumes.filter_map(|volume| Some((&volume.name, claim_of(pod, volume)?))).collect();
    let Some((first, _)) = wanted.first() else { return Ok(ClaimedVolumes::new()) };
    let found = match read(means, &dirs.claims).await {
        Some(found) if wanted.iter().all(|(name, _)| found.contains_key(*name)) => found,
        _ => {
            let mut found = ClaimedVolumes::new();
            for (name, (claim, is_own, read_only)) in &wanted {
                let mut volume = find(means, pod, name, claim, *is_own).await?;
                volume.read_only = *read_only;
                found.insert((*name).clone(), volume);
            }
            let text = serde_json::to_vec(&found).map_err(|error| disk(first, error.into()))?;
            let draft = dirs.claims.with_extension("new");
            let above = dirs.claims.parent().unwrap_or(&dirs.claims);
            means.files.make_dir(above).await.map_err(|source| disk(first, source))?;
            let written = means.files.replace(&dirs.claims, draft, text, true).await;
            written.map_err(|source| disk(first, source))?;
            found
        }
    };
    for (name, volume) in &found {
        let kind = means.files.file_type(&volume.path).await.ok();
        if kind.is_none() {
            return Err(missing(name, format!("path {:?} does not exist", volume.path.display().to_string())));
        }
        if let Some(group) = fs_group(pod).filter(|_| volume.is_given_to_group && !volume.read_only) {
            give_to_group(means, pod, name, &volume.path, group).await?;
        }
    }
    Ok(found)
}

/// What was found before; nothing, if that cannot be read.
async fn read(means: &Means, path: &Path) -> Option<ClaimedVolumes> {
    let text = means.files.read(path).await.ok()?;
    serde_json::from_slice(&text).ok()
}

/// The persistent volumes that were found for the pod whose folder has `path`.
pub(super) fn volumes_at(text: &[u8]) -> Vec<String> {
    let found: ClaimedVolumes = serde_json::from_slice(text).unwrap_or_default();
    found.into_values().map(|volume| volume.volume).collect()
}

async fn find(
    means: &Means,
    pod: &Pod,
    name: &str,
    claim_name: &str,
    is_own: bool,
) -> Result<ClaimedVolume, VolumeError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let wrong = |why: &str| VolumeError::Claim {
        volume: name.to_owned(),
        claim: format!("{namespace}/{claim_name}"),
        why: why.to_owned(),
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(means.client.clone(), namespace);
    let claim = claims.get_opt(claim_name).await.map_err(|error| refused(name, "the claim cannot be read", error))?;
    let claim =
        claim.ok_or_else(|| wrong(&format!("failed to fetch PVC from API server: {claim_name:?} not found")))?;
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    if is_own
        && !owners.iter().any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
    {
        return Err(wrong("PVC was not created for the pod (pod is not owner)"));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(wrong("PVC is being deleted"));
    }
    let is_bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
    let volume_name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|it| !it.is_empty());
    let Some(volume_name) = volume_name.filter(|_| is_bound) else { return Err(wrong("PVC is not bound")) };
    let volumes: Api<PersistentVolume> = Api::all(means.client.clone());
    let volume = volumes.get_opt(volume_name).await;
    let volume = volume.map_err(|error| refused(name, "the persistent volume cannot be read", error))?;
    let volume = volume.ok_or_else(|| wrong(&format!("failed to fetch PV {volume_name:?} from API server")))?;
    let spec = volume.spec.clone().unwrap_or_default();
    if spec.claim_ref.as_ref().is_none_or(|reference| reference.uid != claim.metadata.uid) {
        return Err(wrong(&format!("PV {volume_name:?} is bound to another claim")));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(VolumeError::Unsupported { volume: name.to_owned(), kind: "block (volumeMode)".to_owned() });
    }
    check_affinity(means, name, &volume, &spec).await?;
    if let Some(directory) = own_directory(means, &volume, &spec) {
        make_directory(means, name, &volume, directory).await?;
    }
    let (path, is_given_to_group) = match (&spec.local, &spec.host_path) {
        (Some(local), _) => (PathBuf::from(&local.path), true),
        (None, Some(host)) => {
            let source = HostPathVolumeSource { path: host.path.clone(), type_: host.type_.clone() };
            host_path(means, name, &source).await?;
            (PathBuf::from(&host.path), false)
        }
        (None, None) => {
            return Err(VolumeError::Unsupported { volume: name.to_owned(), kind: kind_of(&spec) });
        }
    };
    Ok(ClaimedVolume { volume: volume_name.to_owned(), path, is_given_to_group, read_only: false })
}

/// The field of a persistent volume that says what it is.
fn kind_of(spec: &PersistentVolumeSpec) -> String {
    let others = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    let fields = serde_json::to_value(spec).unwrap_or_default();
    let kinds = fields.as_object().into_iter().flat_map(|fields| fields.keys());
    kinds.filter(|key| !others.contains(&key.as_str())).map(String::as_str).collect::<Vec<_>>().join(" and ")
}

/// A volume is used where it can be, also by a pod whose node was chosen by hand.
async fn check_affinity(
    means: &Means,
    name: &str,
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
) -> Result<(), VolumeError> {
    let Some(required) = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref()) else {
        return Ok(());
    };
    let nodes: Api<Node> = Api::all(means.client.clone());
    let own = nodes.get(&means.node_name).await.map_err(|error| refused(name, "the node cannot be read", error))?;
    let place = NodeLabels { name: &means.node_name, labels: own.labels() };
    if required.node_selector_terms.iter().any(|term| meets(term, place)) {
        return Ok(());
    }
    let what = format!("volume {:?} is not on this node: no matching NodeSelectorTerms", volume.name_any());
    Err(missing(name, what))
}

/// The directory of a volume that this node makes: its plain name. What else a volume says is not ours to make or to remove.
pub(super) fn own_directory<'a>(
    means: &Means,
    volume: &PersistentVolume,
    spec: &'a PersistentVolumeSpec,
) -> Option<&'a str> {
    let said = |map: Option<&BTreeMap<String, String>>, key: &str| map.and_then(|map| map.get(key).cloned());
    let path = Path::new(&spec.local.as_ref()?.path);
    let name = path.file_name()?.to_str()?;
    let is_ours = said(volume.metadata.annotations.as_ref(), PROVISIONED_BY).as_deref() == Some(LOCAL_PATH_PROVISIONER)
        && said(volume.metadata.labels.as_ref(), VOLUME_NODE).as_deref() == Some(&*means.node_name)
        && path.parent() == Some(means.local.as_ref()?.path())
        && is_directory_of(&volume.name_any(), name);
    is_ours.then_some(name)
}

/// Makes the directory the first time, and says so; one that was made and is missing is not made again.
async fn make_directory(
    means: &Means,
    name: &str,
    volume: &PersistentVolume,
    directory: &str,
) -> Result<(), VolumeError> {
    let Some(local) = means.local.clone() else { return Ok(()) };
    if volume.annotations().contains_key(DIRECTORY_MADE) {
        return Ok(());
    }
    let directory = directory.to_owned();
    let made = means.files.run("volumes.make", move || local.make(&directory)).await;
    made.map_err(|source| disk(name, source))?;
    let volumes: Api<PersistentVolume> = Api::all(means.client.clone());
    let patch = json!({ "metadata": { "uid": volume.uid(), "annotations": { DIRECTORY_MADE: "true" } } });
    let told = volumes.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    told.map(drop).map_err(|error| refused(name, "its directory cannot be recorded", error))
}

async fn give_to_group(means: &Means, pod: &Pod, name: &str, path: &Path, group: u32) -> Result<(), VolumeError> {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let only_on_mismatch = security.and_then(|own| own.fs_group_change_policy.as_deref()) == Some("OnRootMismatch");
    let path = path.to_owned();
    let giving = move || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let top = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
        ownership::give(&top, group, only_on_mismatch)
    };
    means.files.run("volumes.give", giving).await.map_err(|source| disk(name, source))
}
