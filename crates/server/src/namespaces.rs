//! The life of a namespace inside the server: what each must hold, and how one leaves.
//!
//! ```text
//!  DELETE ─▶ Terminating ─▶ pods asked to leave ─▶ last pod gone ─▶ everything else deleted ─▶ finalizer off ─▶ gone
//! ```
//!
//! Driven by the store's changes, never by a clock. Pods go first and with their own grace, so that the configuration
//! and secrets they use outlive them.

mod conditions;
mod leaving;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use serde_json::json;
use store::{Change, Object};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bootstrap::{is_stored, make};
use crate::request::key;
use crate::state::{State, core_kind};
use crate::{change, create};

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
        let there: HashSet<String> = page.items.iter().map(|found| api::meta::uid(&found.value()).to_owned()).collect();
        leaving.forget(|uid| !there.contains(uid));
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
                        let value = last.value();
                        leaving.forget(|uid| uid == api::meta::uid(&value));
                        // Only one of them can be deleted at all; everyone counts on it, so it comes back empty.
                        if INITIAL.contains(&&*last.key.name) {
                            report(&last.key.name, bootstrap(&state).await);
                        }
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
    /// By uid, what tells the task that the object is gone.
    started: HashMap<String, CancellationToken>,
    tasks: JoinSet<()>,
}

impl Leaving {
    /// The objects of these are gone.
    fn forget(&mut self, is_gone: impl Fn(&str) -> bool) {
        for (_, gone) in self.started.extract_if(|uid, _| is_gone(uid)) {
            gone.cancel();
        }
    }
}

async fn consider(state: &Arc<State>, namespace: &Object, leaving: &mut Leaving) {
    let name = &*namespace.key.name;
    if api::meta::deletion_timestamp(&namespace.value()).is_none() {
        report(name, ensure_contents(state, name).await);
        return;
    }
    let uid = api::meta::uid(&namespace.value()).to_owned();
    if !leaving.started.contains_key(&uid) {
        let (state, name, gone) = (Arc::clone(state), name.to_owned(), CancellationToken::new());
        leaving.started.insert(uid.clone(), gone.clone());
        leaving.tasks.spawn(async move {
            let departing = leaving::Departing { name: &name, uid: &uid, gone };
            // Should it break, it begins again: nobody else would ever end this namespace.
            supervision::keep("namespaces", || async {
                while let Err(error) = leaving::leave(&state, &departing).await {
                    tracing::warn!(namespace = name, %error, "the namespace cannot leave yet");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            })
            .await;
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
    let key = key(configmaps, namespace, ROOT_CA);
    is_stored(state, &key).await?;
    match state.store.get(&key) {
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
