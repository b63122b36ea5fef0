//! The binder: claims get their volumes, found or made, and volumes whose claims are gone are let go.
//!
//! [`plan`] decides; here the decisions are written. A volume of the class `local-path` is only an object: its directory is made
//! by the agent of its node.

mod claim_users;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::volume::VOLUMES_DIRECTORY;
use client::WatchUpdate;
use frame::{Applied, Controller, Effects, Limits, Now, Outcome, Plan};
use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use tokio::task::JoinSet;
use tracing::info;

use crate::clients::Clients;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use crate::volume_objects::{CLAIMS, Name, STORAGE_CLASSES, VOLUMES, VolumeInput, VolumeObjects, is_bind_completed};
use claim_users::ClaimUsers;
use plan::{About, Action, Directories, Facts};

const ACCOUNT: &str = "persistent-volume-binder";
/// As whom it speaks in events.
const NAME: &str = "persistentvolume-controller";

/// Binds until its feeds end. Followers and what it tells are `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    (nodes, pods): (&mut Feed<Node>, &mut Feed<PodView>),
    claims: &mut Feed<PersistentVolumeClaim>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), NAME, settings.clock, tasks);
    let mut volumes = Feed::new(VOLUMES, Api::<PersistentVolume>::all(clients.read()));
    let mut classes = Feed::new(STORAGE_CLASSES, Api::<StorageClass>::all(clients.read()));
    let sources = vec![
        nodes.source(Input::Nodes),
        pods.source(Input::Pods),
        claims.source(|update| Input::Objects(VolumeInput::Claims(update))),
        volumes.source(|update| Input::Objects(VolumeInput::Volumes(update))),
        classes.source(|update| Input::Objects(VolumeInput::Classes(update))),
    ];
    volumes.start(tasks);
    classes.start(tasks);
    let effects = BinderEffects { client, read: clients.read(), recorder };
    frame::run(ACCOUNT, Binder::default(), effects, sources, Limits::default(), settings.clock)
}

#[derive(Debug)]
enum Input {
    Nodes(WatchUpdate<Arc<Node>>),
    Pods(WatchUpdate<Arc<PodView>>),
    Objects(VolumeInput),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Claim(Name),
    Volume(Name),
}

/// Everything known, and what people were told.
#[derive(Default)]
struct Binder {
    known: VolumeObjects,
    directories: Directories,
    users: ClaimUsers,
    /// The last words about each; said once.
    told: BTreeMap<Key, String>,
}

impl Binder {
    fn nodes(&mut self, update: WatchUpdate<Arc<Node>>) -> bool {
        let facts = |node: &Node| {
            let said = node.metadata.annotations.as_ref().and_then(|own| own.get(VOLUMES_DIRECTORY));
            let directory = said.filter(|path| path.starts_with('/') && path.len() < 3000).cloned();
            (Name::from(node.name_any()), directory)
        };
        let before = self.directories.clone();
        match update {
            WatchUpdate::Listed(all) => self.directories = all.iter().map(|node| facts(node)).collect(),
            WatchUpdate::Changed(node) => {
                let (name, directory) = facts(&node);
                self.directories.insert(name, directory);
            }
            WatchUpdate::Removed(node) => drop(self.directories.remove(&*node.name_any())),
        }
        before != self.directories
    }

    fn facts(&self) -> Facts<'_> {
        Facts { known: &self.known, directories: &self.directories, users: &self.users }
    }

    /// Volumes that leave: some of them wait for a node.
    fn leaving(&self) -> impl Iterator<Item = Key> {
        let volumes = self.known.volumes().filter(|(_, volume)| volume.metadata.deletion_timestamp.is_some());
        volumes.map(|(name, _)| Key::Volume(Arc::clone(name)))
    }

    fn unbound(&self) -> impl Iterator<Item = Key> {
        let claims = self.known.claims().filter(|(_, claim)| !is_bind_completed(claim));
        claims.map(|(key, _)| Key::Claim(Arc::clone(key)))
    }
}

impl Controller for Binder {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, _: Now, input: Input) -> Vec<Key> {
        match input {
            Input::Nodes(update) => {
                if self.nodes(update) {
                    self.unbound().chain(self.leaving()).collect()
                } else {
                    Vec::new()
                }
            }
            Input::Pods(update) => {
                let touched = self.users.observe(update).into_iter();
                let is_unbound = |key: &Name| self.known.claim(key).is_some_and(|claim| !is_bind_completed(claim));
                touched.filter(is_unbound).map(Key::Claim).collect()
            }
            Input::Objects(input) => {
                let touched = self.known.observe(input);
                let mut keys: Vec<Key> = touched.claims.into_iter().map(Key::Claim).collect();
                keys.extend(touched.volumes.into_iter().map(Key::Volume));
                if touched.is_everybody {
                    keys.extend(self.unbound());
                }
                let is_gone = |key: &Key| match key {
                    Key::Claim(key) => self.known.claim(key).is_none(),
                    Key::Volume(name) => self.known.volume(name).is_none(),
                };
                keys.iter().filter(|key| is_gone(key)).for_each(|key| drop(self.told.remove(key)));
                keys
            }
        }
    }

    fn plan(&self, key: &Key, _: Now) -> Plan<Action> {
        let action = match key {
            Key::Claim(claim) => plan::claim(self.facts(), claim),
            Key::Volume(name) => plan::volume(self.facts(), name),
        };
        match action {
            Some(Action::Tell { message, .. }) if self.told.get(key) == Some(&message) => Plan::default(),
            Some(action) => Plan::act(action),
            None => Plan::default(),
        }
    }

    fn ended(&mut self, _: Now, key: &Key, action: Action, outcome: Outcome<()>) -> Vec<Key> {
        if let (Action::Tell { message, .. }, Outcome::Done(())) = (action, outcome) {
            self.told.insert(key.clone(), message);
        }
        Vec::new()
    }
}

struct BinderEffects {
    client: kube::Client,
    read: kube::Client,
    recorder: EventRecorder,
}

impl Effects<Binder> for BinderEffects {
    type Error = kube::Error;

    async fn apply(&self, _: &Key, action: &Action) -> kube::Result<Applied<()>> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let params = PatchParams::default();
        // What is gone or has changed is told by the watch, and planned again.
        let (source, written) = match action {
            Action::PatchVolume { name, patch, is_status } => {
                let patch = Patch::Merge(patch);
                let patched = match is_status {
                    true => volumes.patch_status(name, &params, &patch).await,
                    false => volumes.patch(name, &params, &patch).await,
                };
                (VOLUMES, unless_gone(patched)?.and_then(|volume| volume.resource_version()))
            }
            Action::PatchClaim { namespace, name, patch, is_status } => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
                let patch = Patch::Merge(patch);
                let patched = match is_status {
                    true => claims.patch_status(name, &params, &patch).await,
                    false => claims.patch(name, &params, &patch).await,
                };
                (CLAIMS, unless_gone(patched)?.and_then(|claim| claim.resource_version()))
            }
            Action::CreateVolume(volume) => {
                let volume: PersistentVolume =
                    serde_json::from_value(volume.clone()).map_err(kube::Error::SerdeError)?;
                let made = unless_gone(volumes.create(&PostParams::default(), &volume).await)?;
                if let Some(made) = &made {
                    info!(volume = made.name_any(), "made");
                    let message = format!("Successfully provisioned volume {}", made.name_any());
                    let reference = made.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
                    self.recorder.tell(reference, "ProvisioningSucceeded", &message);
                }
                (VOLUMES, made.and_then(|volume| volume.resource_version()))
            }
            Action::DeleteVolume { name, uid } => {
                let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                unless_gone(volumes.delete(name, &params).await)?;
                return Ok(Applied::new(()));
            }
            Action::AbandonVolume { name, uid, node, patch } => {
                let patched = unless_gone(volumes.patch(name, &params, &Patch::Merge(patch)).await)?;
                if patched.is_some() {
                    let about = reference(&About::Volume { name: name.clone(), uid: uid.clone() });
                    let message = format!("node {node:?} is gone; what it has of the volume stays there");
                    self.recorder.warn(about, "VolumeAbandoned", &message);
                }
                (VOLUMES, patched.and_then(|volume| volume.resource_version()))
            }
            Action::Release { name, claim, patch } => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.read.clone(), &claim.namespace);
                let found = claims.get_opt(&claim.name).await?;
                if found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&claim.uid)) {
                    return Ok(Applied::new(()));
                }
                let patched = volumes.patch_status(name, &params, &Patch::Merge(patch)).await;
                (VOLUMES, unless_gone(patched)?.and_then(|volume| volume.resource_version()))
            }
            Action::Tell { about, is_warning, reason, message } => {
                let about = reference(about);
                match is_warning {
                    true => self.recorder.warn(about, reason, message),
                    false => self.recorder.tell(about, reason, message),
                }
                return Ok(Applied::new(()));
            }
        };
        Ok(Applied::wrote((), source, revision(written)))
    }
}

fn reference(about: &About) -> ObjectReference {
    let (kind, namespace, name, uid) = match about {
        About::Claim(claim) => ("PersistentVolumeClaim", Some(claim.namespace.clone()), &claim.name, &claim.uid),
        About::Volume { name, uid } => ("PersistentVolume", None, name, uid),
    };
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace,
        name: Some(name.clone()),
        uid: Some(uid.clone()),
        ..ObjectReference::default()
    }
}
