//! What somebody uses stays although it was deleted: claims that a pod has, volumes that a claim has.
//!
//! Both are born with a finalizer, which is taken away here once they are deleted and nobody uses them any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::rules::{CLAIM_PROTECTION, VOLUME_PROTECTION, protect};
use api::{Kind, Status};
use serde_json::Value;
use store::{Change, Key, Object, Watch};
use tokio_util::sync::CancellationToken;

use crate::change;
use crate::state::{State, core_kind};

/// Pause after a failure, which only a store that takes no writes can cause.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Lets go of what nobody uses until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let mut keeper = Keeper { state: Arc::clone(&state), leaving: BTreeSet::new(), due: BTreeSet::new() };
        let watch = |plural: &str| state.store.list_and_watch(core_kind(plural).collection(), "");
        let mut pods = watch("pods").1;
        let ((claims, mut claims_after), (volumes, mut volumes_after)) =
            (watch("persistentvolumeclaims"), watch("persistentvolumes"));
        claims.items.iter().chain(&volumes.items).for_each(|object| keeper.seen(object));
        loop {
            let failed = keeper.work().await;
            let waits = keeper.leaving.iter().any(is_claim);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY_AFTER), if failed => {}
                changes = next(&mut claims_after) => match changes {
                    Some(changes) => changes.iter().for_each(|change| keeper.changed(change)),
                    None => break,
                },
                changes = next(&mut volumes_after) => match changes {
                    Some(changes) => changes.iter().for_each(|change| keeper.changed(change)),
                    None => break,
                },
                // Who uses what matters only where somebody waits for it.
                changes = next(&mut pods), if waits => match changes {
                    Some(changes) => changes.iter().for_each(|change| keeper.pod_changed(change)),
                    None => break,
                },
            }
        }
    }
}

/// The next change and what came with it, once there is one; `None` when there will be no more.
async fn next(watch: &mut Watch) -> Option<Vec<Change>> {
    let mut changes = vec![watch.next().await?];
    changes.extend(std::iter::from_fn(|| watch.next_ready()));
    Some(changes)
}

fn is_claim(key: &Key) -> bool {
    &*key.collection == "persistentvolumeclaims"
}

fn protection(key: &Key) -> (&'static Kind, &'static str) {
    match is_claim(key) {
        true => (core_kind("persistentvolumeclaims"), CLAIM_PROTECTION),
        false => (core_kind("persistentvolumes"), VOLUME_PROTECTION),
    }
}

struct Keeper {
    state: Arc<State>,
    /// Deleted, and still protected.
    leaving: BTreeSet<Key>,
    /// To be looked at.
    due: BTreeSet<Key>,
}

impl Keeper {
    fn changed(&mut self, change: &Change) {
        match change {
            Change::Added(object) | Change::Modified { after: object, .. } => self.seen(object),
            Change::Deleted { last, .. } => {
                self.leaving.remove(&last.key);
                self.due.remove(&last.key);
            }
        }
    }

    fn seen(&mut self, object: &Object) {
        let value = object.value();
        let leaves = api::meta::deletion_timestamp(&value).is_some();
        let is_protected = has(&value, protection(&object.key).1);
        match (leaves, is_protected) {
            (true, true) => {
                self.leaving.insert(object.key.clone());
            }
            (true, false) => _ = self.leaving.remove(&object.key),
            // From before there was this, or taken away by somebody.
            (false, false) => {}
            (false, true) => return,
        }
        self.due.insert(object.key.clone());
    }

    fn pod_changed(&mut self, change: &Change) {
        let object = match change {
            Change::Added(object) | Change::Modified { after: object, .. } => object,
            Change::Deleted { last, .. } => last,
        };
        let claims = claims_of(&object.value());
        let concerned =
            |key: &&Key| is_claim(key) && key.namespace == object.key.namespace && claims.contains(&*key.name);
        self.due.extend(self.leaving.iter().filter(concerned).cloned());
    }

    /// Does what is due. Answers whether some of it has to be tried again.
    async fn work(&mut self) -> bool {
        for key in std::mem::take(&mut self.due) {
            if let Err(error) = look_after(&self.state, &key).await {
                tracing::warn!(%error, object = %key, "cannot change who protects this");
                self.due.insert(key);
            }
        }
        !self.due.is_empty()
    }
}

async fn look_after(state: &State, key: &Key) -> Result<(), Status> {
    let (kind, finalizer) = protection(key);
    let Some(object) = state.store.get(key) else { return Ok(()) };
    if api::meta::deletion_timestamp(&object.value()).is_some() && is_used(state, &object) {
        return Ok(());
    }
    let changed = change::modify(state, kind, key, false, |current| {
        let mut new = current.to_value();
        if api::meta::deletion_timestamp(&new).is_none() {
            protect(&mut new, finalizer);
        } else if !is_used(state, current)
            && let Some(own) = new["metadata"].get_mut("finalizers").and_then(Value::as_array_mut)
        {
            own.retain(|own| own != finalizer);
        }
        Ok(new)
    });
    match changed.await {
        Err(status) if status.code == 404 => Ok(()),
        changed => changed.map(|_| ()),
    }
}

fn has(value: &Value, finalizer: &str) -> bool {
    value["metadata"]["finalizers"].as_array().is_some_and(|own| own.iter().any(|own| own == finalizer))
}

/// A pod that has a node uses its claims for as long as it is there, for what has ended may not be unmounted yet; a claim that is bound uses its volume.
fn is_used(state: &State, object: &Object) -> bool {
    if !is_claim(&object.key) {
        return object.value()["status"]["phase"] == "Bound";
    }
    let pods = state.store.list("pods", &object.key.namespace, None).map(|page| page.items).unwrap_or_default();
    pods.iter().any(|pod| {
        let pod = pod.value();
        let has_node = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        has_node && claims_of(&pod).contains(&*object.key.name)
    })
}

/// The claims that a pod names, and those that were made for it under its name.
fn claims_of(pod: &Value) -> BTreeSet<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let name = api::meta::name(pod);
    let claim = |volume: &Value| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => Some(claim.to_owned()),
        None if volume["ephemeral"].is_object() => Some(format!("{name}-{}", volume["name"].as_str()?)),
        None => None,
    };
    volumes.filter_map(claim).collect()
}
