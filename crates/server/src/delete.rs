//! DELETE of one object: the decision is `api`'s, performing it is ours.

use std::sync::Arc;

use api::termination::Requester;
use api::{DeleteDecision, DeleteOptions, Kind, Status};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::json;
use store::{Change, Expect, Key, Object, Step, Store, TransactError};

use crate::body::Body;
use crate::rbac;
use crate::request::Request;
use crate::respond::{self, Shown};
use crate::state::{State, write_failure};
use crate::termination_records;

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
    options.requester = Some(Requester { user: request.identity.user.clone(), via: "Delete" });
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
        let Some(removal) = Removal::of(key, decision) else {
            return Ok(Deleted { shown: Shown::Stored(object), removed: false, pending: true });
        };
        if kind.graceful_delete && removal.removes() {
            termination_records::record_pod_without_node(state, &object.value(), options.requester.as_ref()).await;
        }
        let expects = vec![(key.clone(), Expect::Revision(object.revision))];
        match removal.perform(&state.store, expects, Vec::new()).await {
            Ok(Performed::Whole(changes)) => return Ok(performed(&changes, object)),
            Ok(Performed::MarkOnly(marked)) => return finish(state, kind, marked).await,
            Err(TransactError::Conflict { found, .. }) => current = found,
            Err(error @ (TransactError::Refused(_) | TransactError::Log(_))) => {
                return Err(write_failure(state, error.into()));
            }
        }
    }
}

/// Removes an object that was marked for it, and that somebody else wrote before it was removed: a status, a finalizer that
/// is waited for. One that is gone, or another by now, was removed by somebody else, and that was what was asked for.
pub(crate) async fn finish(state: &State, kind: &Kind, marked: Arc<Object>) -> Result<Deleted, Status> {
    let uid = Some(api::meta::uid(&marked.value()).to_owned());
    let options = DeleteOptions { uid, grace_seconds: Some(0), ..DeleteOptions::default() };
    match Box::pin(delete(state, kind, &marked.key, &options)).await {
        Err(status) if matches!(status.code, 404 | 409) => {
            Ok(Deleted { shown: Shown::Stored(marked), removed: true, pending: false })
        }
        finished => finished,
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

/// What a decision comes to in the store: one step, and perhaps a removal after it. Those are two writes, as watches see
/// them: a store takes one step per key. If only the first is done, the object is marked and has no grace left, so whoever
/// asks next removes it: a delete, its node, or the pod garbage collector.
pub(crate) struct Removal {
    pub(crate) step: Step,
    pub(crate) then_delete: Option<Key>,
}

/// How far a removal came.
pub(crate) enum Performed {
    /// Everything in it happened.
    Whole(Vec<Change>),
    /// The object was marked like this, and then written by somebody else before it was removed.
    MarkOnly(Arc<Object>),
}

impl Removal {
    /// Nothing, if there is nothing to write.
    pub(crate) fn of(key: &Key, decision: DeleteDecision) -> Option<Self> {
        let mark = |value| Step::Mark { key: key.clone(), value };
        match decision {
            DeleteDecision::Pending => None,
            DeleteDecision::Mark(value) => Some(Self { step: mark(value), then_delete: None }),
            DeleteDecision::MarkThenRemove(value) => Some(Self { step: mark(value), then_delete: Some(key.clone()) }),
            DeleteDecision::Remove => Some(Self { step: Step::Delete { key: key.clone() }, then_delete: None }),
        }
    }

    /// Whether nothing is left when it is done.
    pub(crate) fn removes(&self) -> bool {
        self.then_delete.is_some() || matches!(self.step, Step::Delete { .. })
    }

    /// Does it if `expects` hold, with `others` in the same transaction as the step.
    pub(crate) async fn perform(
        self,
        store: &Store,
        expects: Vec<(Key, Expect)>,
        mut others: Vec<Step>,
    ) -> Result<Performed, TransactError> {
        others.push(self.step);
        let Some(key) = self.then_delete else {
            return store.transact(expects, others).await.map(Performed::Whole);
        };
        let changes = store.transact_then_delete(expects, others, key).await?;
        Ok(match changes.last() {
            Some(Change::Added(marked) | Change::Modified { after: marked, .. }) => {
                Performed::MarkOnly(Arc::clone(marked))
            }
            Some(Change::Deleted { .. }) | None => Performed::Whole(changes),
        })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::state::core_kind;

    /// Somebody else wrote between the mark and the removal: upstream removes what is there then, if it is still the object
    /// that was meant. A finalizer that came between is waited for.
    #[tokio::test]
    async fn removal_is_finished_after_another_writer_came_between() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(
            crate::ServerConfig {
                store: Store::open(&dir.path().join("store")).await.unwrap(),
                advertise: ([127, 0, 0, 1], 6443).into(),
                version: String::new(),
                nodes: Arc::new(crate::NoNodes),
                service_range: crate::ServiceRange::default(),
                token_key: crate::TokenKey::fresh(),
            },
            frame::Clock::system(),
        );
        let pods = core_kind("pods");
        let key = Key::new("pods", "default", "p");
        let marked = |more: serde_json::Value| {
            let mut pod = json!({ "metadata": { "name": "p", "namespace": "default", "uid": "u", "generation": 2,
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0 } });
            for (name, value) in more.as_object().unwrap() {
                pod["metadata"][name] = value.clone();
            }
            pod
        };
        let put = |value| {
            let (store, step) = (&state.store, Step::Put { key: key.clone(), value });
            async move { store.transact(vec![], vec![step]).await.unwrap() }
        };
        put(marked(json!({}))).await;
        let ours = state.store.get(&key).unwrap();
        let cases = [
            (json!({ "annotations": { "a": "b" } }), true, true),
            (json!({ "finalizers": ["a/b"] }), false, false),
            (json!({ "uid": "another" }), true, false),
        ];
        for (between, removed, gone) in cases {
            put(marked(between.clone())).await;
            let finished = finish(&state, pods, Arc::clone(&ours)).await.unwrap();
            assert_eq!((finished.removed, state.store.get(&key).is_none()), (removed, gone), "{between}");
        }
        state.store.transact(vec![], vec![Step::Delete { key: key.clone() }]).await.unwrap();
        assert!(finish(&state, pods, ours).await.unwrap().removed, "somebody else did it");
    }
}
