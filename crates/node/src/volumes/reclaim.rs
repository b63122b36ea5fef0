//! Volumes that are given up: what this node has of them goes, once no container can write to it any more.
//!
//! The server keeps a deleted volume until we say that its directory is gone. Moving the directory away is one step; what is in it is
//! removed afterwards. Anything may be repeated.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::volume::{PROVISIONER_FINALIZER, VOLUME_NODE};
use client::WatchUpdate;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use lifecycle::EventKind;
use runtime_api::Runtime;
use serde_json::json;
use supervision::{BackoffPolicy, error_chain};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::claims::{own_directory, volumes_at};
use super::{LocalDirectories, Means};
use crate::effects::Tools;
use crate::pods::Directory;

/// How long a volume waits that could not be given up.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(122));
/// How long to wait for a pod that has no driver, and whose files are on their way out.
const FILES_GO: Duration = Duration::from_millis(500);

/// Why a volume could not be given up.
#[derive(Debug, thiserror::Error)]
enum ReclaimError {
    #[error("the API server does not answer")]
    Api(#[from] kube::Error),
    #[error("its directory cannot be moved away")]
    Disk(#[from] io::Error),
}

/// Gives up volumes of this node until it is dropped.
pub async fn keep_reclaimed<R: Runtime>(tools: Arc<Tools<R>>, pods: Directory) {
    let Some(local) = tools.local.clone() else { return };
    if !may_list(&tools).await {
        info!("the API server does not let the node list volumes: it makes none");
        return;
    }
    let trash = Arc::new(Notify::new());
    trash.notify_one();
    let emptying = supervision::keep("volume-trash", || empty_trash(&tools, &local, &trash));
    let reclaiming = supervision::keep("volume-reclaim", || reclaim_all(&tools, &pods, &trash));
    tokio::join!(emptying, reclaiming);
}

fn selector<R: Runtime>(tools: &Tools<R>) -> String {
    format!("{VOLUME_NODE}={}", tools.node_name)
}

/// Whether the server lets us see our volumes. Ours does; others do not know of them.
async fn may_list<R: Runtime>(tools: &Arc<Tools<R>>) -> bool {
    let mut retries = RETRY.start();
    loop {
        let api: Api<PersistentVolume> = Api::all(tools.client.clone());
        match api.list_metadata(&ListParams::default().labels(&selector(tools)).limit(1)).await {
            Ok(_) => return true,
            Err(kube::Error::Api(status)) if status.code == 403 => return false,
            Err(_) => tokio::time::sleep(retries.after_failure()).await,
        }
    }
}

async fn empty_trash<R: Runtime>(tools: &Arc<Tools<R>>, local: &Arc<LocalDirectories>, told: &Notify) {
    loop {
        told.notified().await;
        let local = Arc::clone(local);
        if let Err(error) = tools.files.run("volumes.empty_trash", move || local.empty_trash()).await {
            warn!(%error, "what was in volumes that were given up could not be removed; it is tried again later");
        }
    }
}

async fn reclaim_all<R: Runtime>(tools: &Arc<Tools<R>>, pods: &Directory, trash: &Arc<Notify>) {
    let (told, mut updates) = mpsc::channel(16);
    let api: Api<PersistentVolume> = Api::all(tools.client.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(client::follow_labelled(api, selector(tools), told));
    // Under way; each tries until it is done.
    let busy = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    while let Some(update) = updates.recv().await {
        while tasks.try_join_next().is_some() {}
        let seen = match update {
            WatchUpdate::Listed(volumes) => volumes,
            WatchUpdate::Changed(volume) => vec![volume],
            WatchUpdate::Removed(_) => continue,
        };
        for volume in seen.into_iter().filter(is_due) {
            let name = volume.name_any();
            if !crate::effects::lock(&busy).insert(name.clone()) {
                continue;
            }
            let (tools, pods, busy) = (Arc::clone(tools), pods.clone(), Arc::clone(&busy));
            let trash = Arc::clone(trash);
            tasks.spawn(async move {
                // Whatever becomes of it, it can be looked at again.
                let ended = supervision::catch("volume-reclaim", reclaim(&tools, &pods, &trash, volume)).await;
                crate::effects::lock(&busy).remove(&name);
                if let Err(panic) = ended {
                    warn!(volume = name, %panic, "giving up a volume broke");
                }
            });
        }
    }
}

/// Whether the volume waits for us: deleted, and nobody's any more.
fn is_due(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    volume.metadata.deletion_timestamp.is_some()
        && phase != Some("Bound")
        && volume.finalizers().iter().any(|own| own == PROVISIONER_FINALIZER)
}

/// Gives up one volume, however long that takes.
async fn reclaim<R: Runtime>(tools: &Arc<Tools<R>>, pods: &Directory, trash: &Notify, mut volume: PersistentVolume) {
    let mut retries = RETRY.start();
    loop {
        until_unused(tools, pods, &volume.name_any()).await;
        match try_reclaim(tools, &volume).await {
            Ok(Some(changed)) => volume = changed,
            Ok(None) => {
                trash.notify_one();
                return;
            }
            Err(error) => {
                let (volume, error) = (volume.name_any(), error_chain(&error));
                warn!(volume, error, "a volume could not be given up; trying again");
                tools.recorder.record_about(reference(&volume), EventKind::Warning, "VolumeFailedDelete", error);
                tokio::time::sleep(retries.after_failure()).await;
            }
        }
    }
}

fn reference(volume: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolume".to_owned()),
        name: Some(volume.to_owned()),
        ..ObjectReference::default()
    }
}

/// Resolves when no pod of this node can write to the volume: none that had it mounted has a process left, however it was deleted.
async fn until_unused<R: Runtime>(tools: &Arc<Tools<R>>, pods: &Directory, volume: &str) {
    'again: loop {
        // Who cannot be asked may still have it.
        let Ok(kept) = tools.manifests.all().await else {
            tokio::time::sleep(FILES_GO).await;
            continue;
        };
        for uid in kept {
            let claims = tools.manifests.volumes(&uid).claims;
            let text = match tools.files.read(&claims).await {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    tokio::time::sleep(FILES_GO).await;
                    continue 'again;
                }
            };
            if !volumes_at(&text).iter().any(|used| used == volume) {
                continue;
            }
            match pods.get(&uid) {
                Some(pod) if pod.record.get().at_rest => {}
                Some(mut pod) => {
                    info!(volume, uid, "a volume waits for a pod that still has it");
                    pod.record.wait_until(|record| record.at_rest).await;
                    // Without its driver it may be on its way out.
                    tokio::time::sleep(FILES_GO).await;
                    continue 'again;
                }
                None => {
                    tokio::time::sleep(FILES_GO).await;
                    continue 'again;
                }
            }
        }
        return;
    }
}

/// Moves the directory away and lets the volume go. Answers the volume if it has changed since it was seen.
async fn try_reclaim<R: Runtime>(
    tools: &Arc<Tools<R>>,
    volume: &PersistentVolume,
) -> Result<Option<PersistentVolume>, ReclaimError> {
    let api: Api<PersistentVolume> = Api::all(tools.client.clone());
    let name = volume.name_any();
    let means: Means = tools.volumes();
    let spec = volume.spec.clone().unwrap_or_default();
    let is_kept = spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete");
    if let (false, Some(directory), Some(local)) = (is_kept, own_directory(&means, volume, &spec), means.local.clone())
    {
        let directory = directory.to_owned();
        tools.files.run("volumes.give_up", move || local.give_up(&directory)).await?;
    }
    let left: Vec<&String> = volume.finalizers().iter().filter(|own| *own != PROVISIONER_FINALIZER).collect();
    let metadata = json!({ "uid": volume.uid(), "resourceVersion": volume.resource_version(), "finalizers": left });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    match api.patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => {
            info!(volume = name, is_kept, "a volume was given up");
            Ok(None)
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = api.get_opt(&name).await?;
            Ok(found.filter(|found| found.uid() == volume.uid() && is_due(found)))
        }
        Err(error) => Err(error.into()),
    }
}
