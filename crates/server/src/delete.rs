//! DELETE of one object: the decision is `api`'s, performing it is ours.

use std::sync::Arc;

use api::{DeleteDecision, DeleteOptions, Kind, Status};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::json;
use store::{Change, Expect, Key, Object, Step, WriteError};

use crate::body::Body;
use crate::rbac;
use crate::request::Request;
use crate::respond::{self, Shown};
use crate::state::{State, write_failure};

/// Jobs orphan their pods unless told otherwise, unlike everything else that people delete.
const ORPHANING_JOBS: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// What a delete came to.
pub(crate) struct Deleted {
    /// The object after this request: as marked, or as it last was.
    pub(crate) shown: Shown,
    /// Whether it is gone.
    pub(crate) removed: bool,
    /// Whether nothing was written because an earlier delete already says it all.
    pub(crate) pending: bool,
}

pub(crate) async fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let kind = &request.kind;
    request.accept.for_objects()?;
    let mut options =
        api::decode_delete_options(request.content_type.as_deref(), &request.body, request.query.pairs())?;
    if kind.collection() == "namespaces" && options.uid.is_none() {
        // A namespace takes its time to go; one that is made anew meanwhile is not meant.
        let found = state.store.get(&request.key()).ok_or_else(|| Status::not_found(kind, &request.name))?;
        options.uid = Some(api::meta::uid(&found.value()).to_owned());
    }
    rbac::check_delete(state, request, &request.name)?;
    let deleted = delete(state, kind, &request.key(), &options).await?;
    tracing::debug!(user = %request.identity.user, agent = %request.user_agent, grace = ?options.grace_seconds,
        resource = kind.plural, namespace = %request.namespace, name = %request.name, removed = deleted.removed,
        "delete asked for");
    let value = deleted.shown.value();
    let mut response = if deleted.removed && !kind.delete_returns_object {
        respond::status(&Status::success(kind, &request.name, api::meta::uid(&value)))
    } else {
        // An old way of asking for background deletion is answered with 202 while the object is still there.
        let accepted = !deleted.removed && options.orphan_dependents == Some(false);
        let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
        respond::object(request, code, &deleted.shown)?
    };
    respond::warn(&mut response, &warnings(kind, &deleted, &options, state.now()));
    Ok(response)
}

/// A wish that is not granted is not an error, but it is worth a word; so is what nobody would guess.
fn warnings(kind: &Kind, deleted: &Deleted, options: &DeleteOptions, now: Timestamp) -> Vec<String> {
    if kind.collection() == "jobs.batch" && options.propagation.is_none() && options.orphan_dependents.is_none() {
        return vec![ORPHANING_JOBS.to_owned()];
    }
    let value = deleted.shown.value();
    let stored = api::meta::deletion_grace_seconds(&value).unwrap_or(0);
    match (api::meta::deletion_timestamp(&value), options.grace_seconds) {
        // One second is what kubectl sends for "now".
        (Some(_), Some(asked)) if deleted.removed && asked > 1 && kind.graceful_delete => {
            let why = "it had no node, or nothing left to run";
            vec![format!("the pod needed no grace and is gone; the {asked} s asked for were not used: {why}")]
        }
        (Some(deadline), Some(asked)) if deleted.pending && asked > stored => {
            let left = deadline.duration_since(now).as_secs().max(0);
            vec![format!("already terminating, {left} s left; grace can only be shortened")]
        }
        _ => Vec::new(),
    }
}

/// Deletes the object under `key`, in as many rounds as other writers make necessary.
pub(crate) async fn delete(state: &State, kind: &Kind, key: &Key, options: &DeleteOptions) -> Result<Deleted, Status> {
    let mut current = state.store.get(key);
    loop {
        let Some(object) = current else { return Err(Status::not_found(kind, &key.name)) };
        let decision = decide(kind, &object, options, state.now())?;
        if options.dry_run {
            return Ok(imagine(decision, object));
        }
        let steps = steps(key, decision);
        if steps.is_empty() {
            return Ok(Deleted { shown: Shown::Stored(object), removed: false, pending: true });
        }
        match state.store.write(key, Expect::Revision(object.revision), steps).await {
            Ok(changes) => return Ok(performed(&changes, object)),
            Err(WriteError::Conflict(found)) => current = found,
            Err(error @ (WriteError::Refused(_) | WriteError::Log(_))) => return Err(write_failure(state, error)),
        }
    }
}

/// How the object leaves. Nobody waits for what nobody can read; a namespace is emptied all the same.
fn decide(kind: &Kind, object: &Object, options: &DeleteOptions, now: Timestamp) -> Result<DeleteDecision, Status> {
    if object.unreadable().is_none() {
        return api::decide_delete(kind, &object.value(), options, now);
    }
    let mut value = object.to_value();
    if kind.collection() == "namespaces" {
        value["spec"] = json!({ "finalizers": ["kubernetes"] });
        return api::decide_delete(kind, &value, options, now);
    }
    api::decide_delete(kind, &value, options, now).map(|_| DeleteDecision::Remove)
}

/// What `decision` comes to in the store.
pub(crate) fn steps(key: &Key, decision: DeleteDecision) -> Vec<Step> {
    let mark = |value| Step::Mark { key: key.clone(), value };
    let remove = || Step::Delete { key: key.clone() };
    match decision {
        DeleteDecision::Pending => Vec::new(),
        DeleteDecision::Mark(value) => vec![mark(value)],
        // Two revisions, one durable batch: watchers see both events, a crash cannot leave the first alone.
        DeleteDecision::MarkThenRemove(value) => vec![mark(value), remove()],
        DeleteDecision::Remove => vec![remove()],
    }
}

fn performed(changes: &[Change], before: Arc<Object>) -> Deleted {
    match changes.last() {
        Some(Change::Deleted { last, .. }) => {
            Deleted { shown: Shown::Stored(Arc::clone(last)), removed: true, pending: false }
        }
        Some(Change::Added(after) | Change::Modified { after, .. }) => {
            Deleted { shown: Shown::Stored(Arc::clone(after)), removed: false, pending: false }
        }
        None => Deleted { shown: Shown::Stored(before), removed: false, pending: true },
    }
}

/// A dry run answers the object as the first write would leave it, with its current version.
fn imagine(decision: DeleteDecision, object: Arc<Object>) -> Deleted {
    match decision {
        DeleteDecision::Pending => Deleted { shown: Shown::Stored(object), removed: false, pending: true },
        DeleteDecision::Mark(value) => Deleted { shown: Shown::made(value), removed: false, pending: false },
        DeleteDecision::MarkThenRemove(value) => Deleted { shown: Shown::made(value), removed: true, pending: false },
        DeleteDecision::Remove => Deleted { shown: Shown::Stored(object), removed: true, pending: false },
    }
}

/// Whether `namespace` holds any object of `kind`.
pub(crate) fn any_left(state: &State, kind: &Kind, namespace: &str) -> bool {
    state.store.list(kind.collection(), namespace, None).is_ok_and(|page| !page.items.is_empty())
}
