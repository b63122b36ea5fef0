//! The objects every cluster has from its first start (api-surface 22). What a person changes is left alone here;
//! what only the server can know is [`own_service`]'s.

use std::sync::Arc;

use api::volume::{DEFAULT_CLASS, LOCAL_PATH_CLASS, LOCAL_PATH_PROVISIONER};
use api::{Kind, Status, rules};
use futures::future::try_join_all;
use serde_json::{Value, json};
use store::{Expect, Key, Step, WriteError};

use crate::create::{self, Creation};
use crate::request::key;
use crate::state::{State, write_failure};
use crate::{namespaces, own_service, rbac, service_cidr};

/// Recorded as the writer of what the server makes by itself.
pub(crate) const MANAGER: &str = "adieu";

pub(crate) async fn run(state: &State) -> Result<(), Status> {
    survive(namespaces::bootstrap(state).await)?;
    survive(priority_classes(state).await)?;
    survive(storage_class(state).await)?;
    survive(rbac::bootstrap(state).await)?;
    survive(service_cidr::restore(state).await)?;
    survive(own_service::restore(state).await)
}

/// Whatever is stored, the server starts: a person can only mend it through the API. Without a store that takes writes
/// it does not.
fn survive(outcome: Result<(), Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code < 500 || status.reason == "StorageReadError" => {
            tracing::warn!(%status, "cannot create a built-in object; starting without it");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Creates an object unless it is there, or its namespace leaves.
pub(crate) async fn make(state: &State, kind: &Arc<Kind>, namespace: &str, value: Value) -> Result<(), Status> {
    if is_stored(state, &key(kind, namespace, api::meta::name(&value))).await? {
        return Ok(());
    }
    let creation = Creation { kind, namespace, manager: Some(MANAGER), dry_run: false, is_own: true };
    match create::create(state, &creation, value, &mut Vec::new()).await {
        Ok(_) => Ok(()),
        Err(status) if matches!(status.code, 403 | 404 | 409) => Ok(()),
        Err(status) => Err(status),
    }
}

/// Whether there is an object under `key`. One that cannot be read makes room for one that can.
pub(crate) async fn is_stored(state: &State, key: &Key) -> Result<bool, Status> {
    match state.store.get(key) {
        // It is whole, and comes back with its key.
        Some(found) if found.lacks_key() => Ok(true),
        Some(found) if found.unreadable().is_some() => {
            tracing::warn!(%key, "an object that every cluster has cannot be read; it is made anew");
            let steps = vec![Step::Delete { key: key.clone() }];
            match state.store.write(key, Expect::Revision(found.revision), steps).await {
                Ok(_) | Err(WriteError::Conflict(_)) => Ok(false),
                Err(error @ (WriteError::Refused(_) | WriteError::Log(_))) => Err(write_failure(state, error)),
            }
        }
        found => Ok(found.is_some()),
    }
}

async fn priority_classes(state: &State) -> Result<(), Status> {
    let kind = known("scheduling.k8s.io", "priorityclasses");
    let classes = rules::SYSTEM_CLASSES.map(|(name, value, description)| {
        make(state, kind, "", json!({ "metadata": { "name": name }, "value": value, "description": description }))
    });
    try_join_all(classes).await.map(|_| ())
}

/// A class for claims that name none, unless people have made their own.
async fn storage_class(state: &State) -> Result<(), Status> {
    let kind = known("storage.k8s.io", "storageclasses");
    let found = state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default();
    if found.iter().any(|class| class.unreadable().is_none()) {
        return Ok(());
    }
    let class = json!({
        "metadata": { "name": LOCAL_PATH_CLASS, "annotations": { DEFAULT_CLASS: "true" } },
        "provisioner": LOCAL_PATH_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    });
    make(state, kind, "", class).await
}

/// A row of the table that is always there.
pub(crate) fn known(group: &str, plural: &str) -> &'static Arc<Kind> {
    api::built_in(group, "v1", plural).expect("the table of kinds has what the server itself makes")
}
