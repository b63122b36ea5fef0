//! Claims, volumes and classes as they were last seen, and which volume fits which claim: shared by the binder and the scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::placement::{NodeLabels, meets};
use api::quantity::Quantity;
use api::volume::{BIND_COMPLETED, BOUND_BY_CONTROLLER, DEFAULT_CLASS, NO_PROVISIONER, SELECTED_NODE};
use client::WatchUpdate;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// What sources of claims, volumes and classes are called.
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(crate) const STORAGE_CLASSES: &str = "storageclasses";

/// `namespace/name` of a claim, or the name of a volume or class.
pub(crate) type Name = Arc<str>;

/// The name under which a claim is known here.
pub(crate) fn claim_key(namespace: &str, name: &str) -> Name {
    format!("{namespace}/{name}").into()
}

/// What is told of them.
#[derive(Debug)]
pub(crate) enum VolumeInput {
    Claims(WatchUpdate<Arc<PersistentVolumeClaim>>),
    Volumes(WatchUpdate<Arc<PersistentVolume>>),
    Classes(WatchUpdate<Arc<StorageClass>>),
}

/// Whom a change may matter to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) claims: BTreeSet<Name>,
    pub(crate) volumes: BTreeSet<Name>,
    /// A volume that any claim may take has come, or a class has changed.
    pub(crate) is_everybody: bool,
}

/// Everything known of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeObjects {
    claims: BTreeMap<Name, Arc<PersistentVolumeClaim>>,
    volumes: BTreeMap<Name, Arc<PersistentVolume>>,
    classes: BTreeMap<Name, Arc<StorageClass>>,
}

impl VolumeObjects {
    pub(crate) fn claim(&self, key: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(key)
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    pub(crate) fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = (&Name, &Arc<PersistentVolumeClaim>)> {
        self.claims.iter()
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = (&Name, &Arc<PersistentVolume>)> {
        self.volumes.iter()
    }

    /// Takes in a fact. Answers whom it may matter to.
    pub(crate) fn observe(&mut self, input: VolumeInput) -> Touched {
        let mut touched = Touched::default();
        match input {
            VolumeInput::Claims(update) => {
                let key = |claim: &PersistentVolumeClaim| {
                    claim_key(claim.metadata.namespace.as_deref().unwrap_or_default(), &claim.name_any())
                };
                for (key, old, new) in take_in(&mut self.claims, update, key) {
                    let named =
                        [&old, &new].into_iter().flatten().filter_map(|claim| volume_name(claim).map(Into::into));
                    touched.volumes.extend(named);
                    touched.claims.insert(key);
                }
            }
            VolumeInput::Volumes(update) => {
                for (name, old, new) in take_in(&mut self.volumes, update, |volume| volume.name_any().into()) {
                    let taken = [&old, &new].into_iter().flatten().filter_map(|volume| claim_ref(volume));
                    touched.claims.extend(taken.map(|claim| claim_key(text(&claim.namespace), text(&claim.name))));
                    touched.is_everybody |= new.is_some_and(|volume| claim_ref(&volume).is_none());
                    touched.volumes.insert(name);
                }
                // A claim that names a volume hears of it, whoever the volume was promised to.
                let names = &touched.volumes;
                let naming =
                    self.claims.iter().filter(|(_, claim)| volume_name(claim).is_some_and(|name| names.contains(name)));
                touched.claims.extend(naming.map(|(key, _)| Arc::clone(key)));
            }
            VolumeInput::Classes(update) => {
                take_in(&mut self.classes, update, |class| class.name_any().into());
                touched.is_everybody = true;
            }
        }
        touched
    }
}

/// What was under a name, and what is.
type Difference<K> = (Name, Option<Arc<K>>, Option<Arc<K>>);

/// Brings a table up to date. Answers what was and what is, for all that changed.
fn take_in<K>(
    table: &mut BTreeMap<Name, Arc<K>>,
    update: WatchUpdate<Arc<K>>,
    key: impl Fn(&K) -> Name,
) -> Vec<Difference<K>> {
    match update {
        WatchUpdate::Changed(one) => {
            let key = key(&one);
            let old = table.insert(Arc::clone(&key), Arc::clone(&one));
            vec![(key, old, Some(one))]
        }
        WatchUpdate::Removed(one) => {
            let key = key(&one);
            let old = table.remove(&key);
            vec![(key, old.or(Some(one)), None)]
        }
        WatchUpdate::Listed(all) => {
            let mut before = std::mem::take(table);
            let mut changed = Vec::new();
            for one in all {
                let key = key(&one);
                table.insert(Arc::clone(&key), Arc::clone(&one));
                changed.push((Arc::clone(&key), before.remove(&key), Some(one)));
            }
            changed.extend(before.into_iter().map(|(key, old)| (key, Some(old), None)));
            changed
        }
    }
}

/// A patch of an object as it was seen: refused if it is another by now, or has changed.
pub(crate) fn seen_as(metadata: &ObjectMeta, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    patch
}

/// The patch by which a volume becomes a claim's.
pub(crate) fn taken_by(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Value {
    let ObjectMeta { namespace, name, uid, resource_version, .. } = &claim.metadata;
    let reference = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
        "uid": uid, "resourceVersion": resource_version });
    let mut patch = json!({ "spec": { "claimRef": reference } });
    if claim_ref(volume).is_none() {
        patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
    }
    seen_as(&volume.metadata, patch)
}

/// The class of claims that name none: the youngest that is marked, then the first by name.
pub(crate) fn default_class(known: &VolumeObjects) -> Option<&Name> {
    let marked = known.classes.iter().filter(|(_, class)| {
        class.metadata.annotations.as_ref().is_some_and(|own| own.get(DEFAULT_CLASS).is_some_and(|is| is == "true"))
    });
    let born = |class: &StorageClass| class.creation_timestamp().map(|time| time.0);
    marked.reduce(|best, other| if born(other.1) > born(best.1) { other } else { best }).map(|(name, _)| name)
}

/// Some text, or none.
pub(crate) fn text(word: &Option<String>) -> &str {
    word.as_deref().unwrap_or_default()
}

/// The volume that a claim names.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The claim that a volume is promised to.
pub(crate) fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether the volume is promised to this claim: by its UID, or by its name alone.
pub(crate) fn is_promised_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|promised| {
        promised.namespace == claim.metadata.namespace
            && promised.name == claim.metadata.name
            && (text(&promised.uid).is_empty() || promised.uid == claim.metadata.uid)
    })
}

/// Whether claim and volume were brought together, or whether there was a time when they were.
pub(crate) fn is_bind_completed(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|own| own.contains_key(BIND_COMPLETED))
}

/// The node that was chosen for the claim's volume.
pub(crate) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(SELECTED_NODE).map(String::as_str).filter(|node| !node.is_empty())
}

/// The class that a claim asks for: `None` if it says nothing, empty if it wants a volume without one.
pub(crate) fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    let beta = claim.metadata.annotations.as_ref().and_then(|own| own.get("volume.beta.kubernetes.io/storage-class"));
    beta.or(claim.spec.as_ref()?.storage_class_name.as_ref()).map(String::as_str)
}

/// Whether volumes of the class wait for the first pod.
pub(crate) fn is_delayed(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Whether somebody makes volumes of the class.
pub(crate) fn is_provisioned(class: &StorageClass) -> bool {
    !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER
}

/// How large a volume the claim asks for.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests.and_then(|own| own.get("storage")?.0.parse().ok()).unwrap_or(Quantity::ZERO)
}

/// How large a volume is.
pub(crate) fn capacity(volume: &PersistentVolume) -> Quantity {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity.and_then(|own| own.get("storage")?.0.parse().ok()).unwrap_or(Quantity::ZERO)
}

/// What makes a volume unfit for a claim that names it, in upstream's words.
pub(crate) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let (spec, wanted) = (volume.spec.as_ref()?, claim.spec.as_ref()?);
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name_any()));
    }
    if capacity(volume) < requested(claim) {
        return Some("requested PV is too small".to_owned());
    }
    if text(&spec.storage_class_name) != class_of(claim).unwrap_or_default() {
        return Some("storageClassName does not match".to_owned());
    }
    if mode(&spec.volume_mode) != mode(&wanted.volume_mode) {
        return Some("incompatible volumeMode".to_owned());
    }
    if !has_modes(volume, claim) {
        return Some("incompatible accessMode".to_owned());
    }
    None
}

fn mode(word: &Option<String>) -> &str {
    word.as_deref().unwrap_or("Filesystem")
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| has.contains(mode))
}

/// Whether the volume can be used on a node.
pub(crate) fn reaches(volume: &PersistentVolume, node: NodeLabels<'_>) -> bool {
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| meets(term, node)))
}

/// The volume for a claim that names none: one that is promised to it, otherwise the smallest that fits, then by name. `node` is
/// where it has to be used, if that is decided; `taken` are spoken for. A claim whose class waits takes only what was promised.
pub(crate) fn best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a Arc<PersistentVolume>>,
    node: Option<NodeLabels<'_>>,
    only_promised: bool,
    taken: &BTreeSet<Name>,
) -> Option<&'a Arc<PersistentVolume>> {
    let wanted = claim.spec.as_ref()?;
    let asked = requested(claim);
    let attributes = |word: &Option<String>| text(word).to_owned();
    let mut best: Option<&Arc<PersistentVolume>> = None;
    for volume in volumes {
        let Some(spec) = &volume.spec else { continue };
        if volume.metadata.deletion_timestamp.is_some()
            || capacity(volume) < asked
            || mode(&spec.volume_mode) != mode(&wanted.volume_mode)
            || attributes(&spec.volume_attributes_class_name) != attributes(&wanted.volume_attributes_class_name)
            || taken.contains(text(&volume.metadata.name))
        {
            continue;
        }
        if is_promised_to(volume, claim) {
            return Some(volume);
        }
        let is_free = spec.claim_ref.is_none()
            && volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
        if only_promised
            || !is_free
            || text(&spec.storage_class_name) != class_of(claim).unwrap_or_default()
            || !has_modes(volume, claim)
            || !wanted.selector.as_ref().is_none_or(|selector| selects(selector, volume))
            || !node.is_none_or(|node| reaches(volume, node))
        {
            continue;
        }
        // In the order of names, so that the first of equals stays.
        if best.is_none_or(|best| capacity(volume) < capacity(best)) {
            best = Some(volume);
        }
    }
    best
}

fn selects(selector: &LabelSelector, volume: &PersistentVolume) -> bool {
    let labels = volume.metadata.labels.as_ref();
    crate::selector::takes(selector, |key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}
