//! What somebody uses stays although it was deleted: claims that a pod has, volumes that a claim has.
//!
//! Both are born with a finalizer, which is taken away here once they are deleted and nobody uses them any more.

mod users;

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
use users::Users;

/// Pause after a failure, which only a store that takes no writes can cause.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Lets go of what nobody uses until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let mut keeper = FinalizerController {
            state: Arc::clone(&state),
            leaving: BTreeSet::new(),
            due: BTreeSet::new(),
            users: None,
        };
        let watch = |plural: &str| state.store.list_and_watch(core_kind(plural).collection(), "");
        let ((claims, mut claims_after), (volumes, mut volumes_after)) =
            (watch("persistentvolumeclaims"), watch("persistentvolumes"));
        claims.items.iter().chain(&volumes.items).for_each(|object| keeper.seen(object));
        loop {
            let failed = keeper.work().await;
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
                alive = Users::heard(&mut keeper.users) => if !alive { break },
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

struct FinalizerController {
    state: Arc<State>,
    /// Deleted, and still protected.
    leaving: BTreeSet<Key>,
    /// To be looked at.
    due: BTreeSet<Key>,
    /// Who uses what matters only where a claim waits for it.
    users: Option<Users>,
}

impl FinalizerController {
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

    /// Does what is due. Answers whether some of it has to be tried again.
    async fn work(&mut self) -> bool {
        let mut failed = BTreeSet::new();
        loop {
            // Also what was heard while looking: nobody will tell it again.
            let touched = self.users.as_mut().map(Users::take_touched).unwrap_or_default();
            self.due.extend(touched.into_iter().filter(|key| self.leaving.contains(key)));
            let Some(key) = self.due.pop_first() else { break };
            if let Err(error) = reconcile(&self.state, &mut self.users, &key).await {
                tracing::warn!(%error, object = %key, "cannot change the protection finalizer");
                failed.insert(key);
            }
        }
        self.due = failed;
        if self.due.is_empty() && !self.leaving.iter().any(is_claim) {
            self.users = None;
        }
        !self.due.is_empty()
    }
}

async fn reconcile(state: &State, users: &mut Option<Users>, key: &Key) -> Result<(), Status> {
    let (kind, finalizer) = protection(key);
    let Some(object) = state.store.get(key) else { return Ok(()) };
    if api::meta::deletion_timestamp(&object.value()).is_some() && is_used(state, users, &object) {
        return Ok(());
    }
    let changed = change::modify(state, kind, key, false, |current| {
        let mut new = current.to_value();
        if api::meta::deletion_timestamp(&new).is_none() {
            protect(&mut new, finalizer);
        } else if !is_used(state, users, current)
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

/// A pod that has a node uses its claims ([`users`]); a claim that is bound uses its volume.
fn is_used(state: &State, users: &mut Option<Users>, object: &Object) -> bool {
    if !is_claim(&object.key) {
        return object.value()["status"]["phase"] == "Bound";
    }
    users.get_or_insert_with(|| Users::of(&state.store)).use_it(&object.key)
}
