//! The owners and fellows of a pod that is to be evicted, and the mark of one that waits for its successor
//! ([`api::rules::decide_surge`] decides).

use std::sync::Arc;

use api::rules::{self, Surge, SurgeOwners};
use api::{Kind, Status};
use jiff::Timestamp;
use serde_json::Value;

use crate::bootstrap::known;
use crate::change;
use crate::request::{Request, key};
use crate::state::State;

/// Whether the eviction of this pod waits for a successor; `refusal` is what its budget says, if that is no.
pub(crate) fn decide(state: &State, request: &Request, pod: &Value, refusal: Option<&Status>, now: Timestamp) -> Surge {
    let namespace = &*request.namespace;
    let Some(set) = controller(state, known("apps", "replicasets"), namespace, pod) else { return Surge::No };
    let deployment = controller(state, known("apps", "deployments"), namespace, &set);
    let owners = SurgeOwners { set: &set, deployment: deployment.as_deref() };
    // One that has not counted its pods yet says nothing about them.
    let is_refused = refusal.is_some_and(|refusal| refusal.code == 429 && refusal.retry_after().is_none());
    let fellows = || -> Vec<Arc<Value>> {
        let all = state.store.list(request.kind.collection(), namespace, None);
        let all = all.map(|page| page.items).unwrap_or_default();
        let is_fellow = |other: &Arc<Value>| controller_uid(other) == Some(api::meta::uid(&set));
        all.iter().map(|other| other.value()).filter(is_fellow).collect()
    };
    rules::decide_surge(pod, owners, fellows, is_refused, now)
}

/// Marks the pod: its set makes a successor.
pub(crate) async fn mark(state: &State, request: &Request, uid: &str, now: Timestamp) -> Result<(), Status> {
    let key = request.key();
    let marked = change::modify(state, &request.kind, &key, false, |current| {
        let pod = current.value();
        if api::meta::uid(&pod) != uid {
            return Err(Status::not_found(&request.kind, &request.name));
        }
        Ok(rules::mark_surge(&pod, now))
    });
    marked.await.map(drop)
}

fn controller_of(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

fn controller_uid(object: &Value) -> Option<&str> {
    controller_of(object)?["uid"].as_str()
}

/// The object that controls this one, if it is of that kind and there.
fn controller(state: &State, kind: &Kind, namespace: &str, object: &Value) -> Option<Arc<Value>> {
    let owner = controller_of(object)?;
    let is_such = owner["kind"] == *kind.kind && owner["apiVersion"] == kind.api_version();
    let found = is_such.then(|| state.store.get(&key(kind, namespace, owner["name"].as_str()?))).flatten()?.value();
    (owner["uid"] == api::meta::uid(&found)).then_some(found)
}
