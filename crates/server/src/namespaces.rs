//! The life of a namespace inside the server: what each must hold, and how one leaves.
//!
//! ```text
//!  DELETE ─▶ Terminating ─▶ pods asked to leave ─▶ last pod gone ─▶ everything else deleted ─▶ finalizer off ─▶ gone
//! ```
//!
//! Driven by the store's changes, never by a clock. Pods go first and with their own grace, so that the configuration
//! and secrets they use outlive them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::{DeleteOptions, KINDS, Kind, Status};
use jiff::Timestamp;
use serde_json::json;
use store::{Change, Object};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bootstrap::make;
use crate::create;
use crate::request::key;
use crate::state::{State, core_kind};
use crate::{change, delete};

/// Namespaces that exist from the first start.
const INITIAL: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const ROOT_CA: &str = "kube-root-ca.crt";
/// Pause after a failure, which only a store that takes no writes can cause.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Makes the namespaces every cluster has, and what they must hold.
pub(crate) async fn bootstrap(state: &State) -> Result<(), Status> {
    for name in INITIAL {
        make(state, core_kind("namespaces"), "", json!({ "metadata": { "name": name } })).await?;
        ensure_contents(state, name).await?;
    }
    Ok(())
}

/// Keeps every namespace as it should be until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let mut leaving = Leaving::default();
    while !stop.is_cancelled() {
        let (page, mut namespaces) = state.store.list_and_watch("namespaces", "");
        let (_, mut accounts) = state.store.list_and_watch("serviceaccounts", "");
        let (_, mut configmaps) = state.store.list_and_watch("configmaps", "");
        for namespace in page.items {
            consider(&state, &namespace, &mut leaving).await;
        }
        loop {
            let lost = tokio::select! {
                () = stop.cancelled() => return,
                // Told the CA: every namespace is to have it.
                () = state.root_ca_set.notified() => true,
                Some(ended) = leaving.tasks.join_next(), if !leaving.tasks.is_empty() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a namespace was not seen through to its end");
                    }
                    false
                }
                found = namespaces.next() => match found {
                    Some(Change::Added(namespace) | Change::Modified { after: namespace, .. }) => {
                        consider(&state, &namespace, &mut leaving).await;
                        false
                    }
                    Some(Change::Deleted { last, .. }) => {
                        leaving.started.remove(api::meta::uid(&last.value()));
                        false
                    }
                    None => true,
                },
                found = accounts.next() => restore(&state, found, "default").await,
                found = configmaps.next() => restore(&state, found, ROOT_CA).await,
            };
            if lost {
                break;
            }
        }
    }
}

/// The namespaces on their way out, each with a task that sees it through. Dropping this ends the tasks.
#[derive(Default)]
struct Leaving {
    started: HashSet<String>,
    tasks: JoinSet<()>,
}

async fn consider(state: &Arc<State>, namespace: &Object, leaving: &mut Leaving) {
    let name = &*namespace.key.name;
    if api::meta::deletion_timestamp(&namespace.value()).is_none() {
        report(name, ensure_contents(state, name).await);
        return;
    }
    let uid = api::meta::uid(&namespace.value()).to_owned();
    if leaving.started.insert(uid.clone()) {
        let (state, name) = (Arc::clone(state), name.to_owned());
        leaving.tasks.spawn(async move {
            while let Err(error) = leave(&state, &name, &uid).await {
                tracing::warn!(namespace = name, %error, "the namespace cannot leave yet");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        });
    }
}

fn report(namespace: &str, result: Result<(), Status>) {
    if let Err(error) = result {
        tracing::warn!(namespace, %error, "cannot bring the namespace into order");
    }
}

/// Puts back what was deleted or changed. Answers whether changes were lost and everything must be looked at again.
async fn restore(state: &State, found: Option<Change>, name: &str) -> bool {
    let Some(found) = found else { return true };
    let key = found.key();
    let touched = matches!(found, Change::Deleted { .. } | Change::Modified { .. });
    if &*key.name == name && touched && is_active(state, &key.namespace) {
        report(&key.namespace, ensure_contents(state, &key.namespace).await);
    }
    false
}

fn is_active(state: &State, namespace: &str) -> bool {
    create::namespace(state, namespace)
        .is_some_and(|namespace| api::meta::deletion_timestamp(&namespace.value()).is_none())
}

/// The default service account, and the CA that pods trust.
async fn ensure_contents(state: &State, namespace: &str) -> Result<(), Status> {
    make(state, core_kind("serviceaccounts"), namespace, json!({ "metadata": { "name": "default" } })).await?;
    let Some(ca) = state.root_ca.get() else { return Ok(()) };
    let data = json!({ "ca.crt": ca });
    let configmaps = core_kind("configmaps");
    match state.store.get(&key(configmaps, namespace, ROOT_CA)) {
        None => {
            make(state, core_kind("configmaps"), namespace, json!({ "metadata": { "name": ROOT_CA }, "data": data }))
                .await
        }
        Some(found) if found.value()["data"] == data => Ok(()),
        Some(found) => {
            let restored = change::modify(state, configmaps, &found.key, false, |current| {
                let mut new = current.to_value();
                new["data"] = data.clone();
                Ok(new)
            });
            restored.await.map(|_| ())
        }
    }
}

/// Sees one namespace through to its end.
async fn leave(state: &State, name: &str, uid: &str) -> Result<(), Status> {
    let pods = core_kind("pods");
    empty(state, pods, name, uid).await?;
    let others =
        || KINDS.iter().filter(|kind| kind.namespaced && kind.is_stored() && kind.face.is_none() && *kind != pods);
    for kind in others() {
        empty(state, kind, name, uid).await?;
    }
    conditions(state, name, uid, None).await?;
    let namespaces = core_kind("namespaces");
    let outcome = change::modify(state, namespaces, &key(namespaces, "", name), false, |namespace| {
        if api::meta::uid(&namespace.value()) != uid {
            return Err(Status::not_found(namespaces, name));
        }
        let mut new = namespace.to_value();
        if let Some(finalizers) = new["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
        Ok(new)
    })
    .await;
    match outcome {
        Ok(_) => {}
        Err(status) if status.code == 404 => {}
        Err(status) => return Err(status),
    }
    // A create that was let in before the namespace left may have been stored after it was found empty.
    if create::namespace(state, name).is_none() {
        let now = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
        for kind in KINDS.iter().filter(|kind| kind.namespaced && kind.is_stored()) {
            let Ok(page) = state.store.list(kind.collection(), name, None) else { continue };
            for object in page.items {
                ask_to_leave(state, kind, &object, &now).await?;
            }
        }
    }
    tracing::info!(namespace = name, "namespace gone");
    Ok(())
}

/// Deletes every object of `kind` in the namespace, each with its own grace, and waits until none is left.
async fn empty(state: &State, kind: &'static Kind, namespace: &str, uid: &str) -> Result<(), Status> {
    let options = DeleteOptions::default();
    loop {
        let (page, mut watch) = state.store.list_and_watch(kind.collection(), namespace);
        let mut left: BTreeSet<Arc<str>> = page.items.iter().map(|object| Arc::clone(&object.key.name)).collect();
        for object in &page.items {
            ask_to_leave(state, kind, object, &options).await?;
        }
        let Ok(still) = state.store.list(kind.collection(), namespace, None) else { continue };
        if !still.items.is_empty() {
            conditions(state, namespace, uid, Some((kind, &still.items))).await?;
        }
        loop {
            if left.is_empty() {
                return Ok(());
            }
            match watch.next().await {
                Some(Change::Added(object)) => {
                    left.insert(Arc::clone(&object.key.name));
                    ask_to_leave(state, kind, &object, &options).await?;
                }
                Some(Change::Modified { .. }) => {}
                Some(Change::Deleted { last, .. }) => {
                    left.remove(&last.key.name);
                }
                None => break,
            }
        }
    }
}

async fn ask_to_leave(state: &State, kind: &Kind, object: &Object, options: &DeleteOptions) -> Result<(), Status> {
    match delete::delete(state, kind, &object.key, options).await {
        Ok(_) => Ok(()),
        Err(status) if status.code == 404 => Ok(()),
        Err(status) => Err(status),
    }
}

/// Says on the namespace what it still waits for, truthfully.
async fn conditions(
    state: &State,
    name: &str,
    uid: &str,
    remaining: Option<(&Kind, &[Arc<Object>])>,
) -> Result<(), Status> {
    let now = api::time::seconds(Timestamp::now());
    let held: usize = remaining.map_or(0, |(_, objects)| {
        objects.iter().filter(|object| !api::meta::finalizers(&object.value()).is_empty()).count()
    });
    let condition = |kind: &str, bad: Option<(&str, String)>, good: (&str, &str)| {
        let (status, reason, message) = match bad {
            Some((reason, message)) => ("True", reason.to_owned(), message),
            None => ("False", good.0.to_owned(), good.1.to_owned()),
        };
        json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now })
    };
    let content = remaining.map(|(kind, objects)| {
        let text =
            format!("Some resources are remaining: {} has {} resource instances", kind.resource(), objects.len());
        ("SomeResourcesRemain", text)
    });
    let finalizers = (held > 0).then(|| {
        let text = format!("Some content in the namespace has finalizers remaining in {held} resource instances");
        ("SomeFinalizersRemain", text)
    });
    let all = json!([
        condition(
            "NamespaceDeletionDiscoveryFailure",
            None,
            ("ResourcesDiscovered", "All resources successfully discovered")
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed")
        ),
        condition(
            "NamespaceDeletionContentFailure",
            None,
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization")
        ),
        condition("NamespaceContentRemaining", content, ("ContentRemoved", "All content successfully removed")),
        condition(
            "NamespaceFinalizersRemaining",
            finalizers,
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished")
        ),
    ]);
    let namespaces = core_kind("namespaces");
    let key = key(namespaces, "", name);
    let written = change::modify(state, namespaces, &key, false, |namespace| {
        if api::meta::uid(&namespace.value()) != uid {
            return Err(Status::not_found(namespaces, name));
        }
        let mut new = namespace.to_value();
        new["status"]["conditions"] = all.clone();
        Ok(new)
    });
    match written.await {
        Ok(_) => Ok(()),
        Err(status) if status.code == 404 => Ok(()),
        Err(status) => Err(status),
    }
}
