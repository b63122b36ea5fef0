//! How one object leaves: the pure decision of api-deletion 2 to 5.
//!
//! Reads the stored object, the options and the time; answers what to write and whether to remove. The caller runs
//! it inside its read-modify-write loop and performs the answer.
//!
//! ```text
//!   DELETE -> options, preconditions -> graceful kind?  no  -> finalizers left?  yes -> Mark (or Pending)
//!                                          | yes                      | no -> Remove
//!                                  first: pick grace, mark           (both paths end here)
//!                                  later: only ever shorten
//! ```

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::status::{Cause, Status};
use crate::termination::requests::{self, Requester};
use crate::{meta, pod, time};

/// What a delete request asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Grace in seconds; absent means the object's own.
    pub grace_seconds: Option<i64>,
    /// The uid the stored object must have.
    pub uid: Option<String>,
    /// The resource version the stored object must have.
    pub resource_version: Option<String>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// The older way to say it; `Some(false)` makes a delete that left the object answer 202.
    pub orphan_dependents: Option<bool>,
    /// Decide, but write nothing.
    pub dry_run: bool,
    /// Who asks, to be noted on what leaves gracefully. The server says so, never the client.
    pub requester: Option<Requester>,
}

/// What becomes of the objects that name this one as owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay, without their owner.
    Orphan,
    /// They are collected after the owner is gone.
    Background,
    /// They go first.
    Foreground,
}

/// What a delete does to the store.
#[derive(Debug, Clone, PartialEq)]
pub enum DeleteDecision {
    /// Nothing to write; the object stays as it is.
    Pending,
    /// Store this; the object stays.
    Mark(Value),
    /// Store this, then remove: two revisions, two events.
    MarkThenRemove(Value),
    /// Remove at once.
    Remove,
}

const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Decides one delete of `current`. Refuses with 403 (what no cluster can do without), 409 (precondition) or 422 (options).
pub fn decide_delete(
    kind: &Kind,
    current: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<DeleteDecision, Status> {
    let is_namespace = kind.collection() == "namespaces";
    if is_namespace && PROTECTED_NAMESPACES.contains(&meta::name(current)) {
        return Err(Status::forbidden(kind, meta::name(current), "this namespace may not be deleted"));
    }
    let is_class = kind.collection() == "priorityclasses.scheduling.k8s.io";
    if is_class && crate::rules::SYSTEM_CLASSES.iter().any(|(name, ..)| *name == meta::name(current)) {
        let text = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(kind, meta::name(current), text));
    }
    check_options(options)?;
    check_preconditions(kind, current, options)?;
    let asked = options.grace_seconds.map(at_least_one_if_negative);

    let policy = policy(kind, current, options);
    if is_namespace && let Some(decision) = decide_namespace(current, policy, now) {
        return Ok(decision);
    }
    if !kind.graceful_delete {
        return Ok(finish(current, policy, now));
    }
    let Some(deadline) = meta::deletion_timestamp(current) else {
        let grace = first_grace(current, asked);
        let mut marked = current.clone();
        meta::set_deletion_timestamp(&mut marked, add_seconds(now, grace));
        meta::set_deletion_grace_seconds(&mut marked, grace);
        bump_generation(&mut marked);
        if let Some(requester) = &options.requester {
            requests::note(&mut marked, requester, grace, now);
        }
        return Ok(after_mark(marked, policy, grace));
    };
    // DGPS nil or 0: the object only waits for its finalizers, so every delete means "now".
    let stored = meta::deletion_grace_seconds(current).map_or(0, at_least_one_if_negative);
    match asked {
        _ if stored == 0 => Ok(finish(current, policy, now)),
        Some(grace) if grace < stored => {
            let (mut marked, grace) = shorten(current, deadline, stored, grace, now);
            // The final delete of the pod's own node asks for nothing: the pod is over.
            if let Some(requester) = options.requester.as_ref().filter(|by| grace > 0 || !is_its_node(current, by)) {
                requests::note(&mut marked, requester, grace, now);
            }
            Ok(after_mark(marked, policy, grace))
        }
        Some(_) | None => Ok(DeleteDecision::Pending),
    }
}

/// Whether an update of a deleting object ends it: nothing is left to wait for (api-deletion 5.2).
pub fn update_removes(kind: &Kind, stored: &Value, new: &Value) -> bool {
    meta::deletion_timestamp(stored).is_some()
        && meta::deletion_grace_seconds(stored).unwrap_or(0) == 0
        && meta::finalizers(new).is_empty()
        && (kind.collection() != "namespaces" || spec_finalizers(new) == 0)
}

fn decide_namespace(current: &Value, policy: Propagation, now: Timestamp) -> Option<DeleteDecision> {
    if meta::deletion_timestamp(current).is_none() {
        let mut marked = with_collector_finalizer(current.clone(), policy);
        meta::set_deletion_timestamp(&mut marked, now);
        meta::child_mut(&mut marked, "status").insert("phase".to_owned(), json!("Terminating"));
        return Some(DeleteDecision::Mark(marked));
    }
    (spec_finalizers(current) > 0).then_some(DeleteDecision::Pending)
}

fn spec_finalizers(namespace: &Value) -> usize {
    namespace["spec"]["finalizers"].as_array().map_or(0, Vec::len)
}

/// The grace of the first delete of a pod (api-deletion 2.2): a pod without a node or with nothing left to run
/// needs none, whatever was asked for.
fn first_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty());
    if !bound || pod::is_terminal(pod) { 0 } else { at_least_one_if_negative(asked.unwrap_or(own)) }
}

/// Counts from the first request: that moment is the stored deadline minus the stored grace.
fn shorten(current: &Value, deadline: Timestamp, stored: i64, grace: i64, now: Timestamp) -> (Value, i64) {
    let mut marked = current.clone();
    let wanted = add_seconds(add_seconds(deadline, -stored), grace);
    let (at, grace) = match grace {
        // The node's final delete of a finished pod keeps the deadline: it says when the pod was to be gone.
        0 if pod::is_terminal(current) => (deadline, 0),
        0 => (now, 0),
        _ if wanted > now => (wanted, grace),
        _ => (now, 1),
    };
    meta::set_deletion_timestamp(&mut marked, at);
    meta::set_deletion_grace_seconds(&mut marked, grace);
    (marked, grace)
}

/// A grace-0 mark is followed by the removal unless a finalizer holds the object.
fn after_mark(marked: Value, policy: Propagation, grace: i64) -> DeleteDecision {
    let marked = with_collector_finalizer(marked, policy);
    if grace > 0 || !meta::finalizers(&marked).is_empty() {
        DeleteDecision::Mark(marked)
    } else {
        DeleteDecision::MarkThenRemove(marked)
    }
}

/// No grace (left) to give: gone, or marked and held by finalizers.
fn finish(current: &Value, policy: Propagation, now: Timestamp) -> DeleteDecision {
    let mut marked = with_collector_finalizer(current.clone(), policy);
    if meta::finalizers(&marked).is_empty() {
        return DeleteDecision::Remove;
    }
    let deadline = meta::deletion_timestamp(&marked);
    if deadline.is_none() {
        bump_generation(&mut marked);
    }
    // That of a finished pod was kept by the node's first final delete; one that is sent again finds it so.
    if deadline.is_none_or(|at| at > now && !pod::is_terminal(current)) {
        meta::set_deletion_timestamp(&mut marked, now);
    }
    meta::set_deletion_grace_seconds(&mut marked, 0);
    if marked == *current { DeleteDecision::Pending } else { DeleteDecision::Mark(marked) }
}

/// What becomes of dependents (api-deletion 11.2): the request says it, else a finalizer that is already there, else
/// the kind. Where the collector has no business, nothing needs to wait for it.
fn policy(kind: &Kind, current: &Value, options: &DeleteOptions) -> Propagation {
    let Some(default) = kind.propagation else { return Propagation::Background };
    let asked = match options.orphan_dependents {
        Some(true) => Some(Propagation::Orphan),
        Some(false) => Some(Propagation::Background),
        None => options.propagation,
    };
    let stored = || meta::finalizers(current).into_iter().find_map(Propagation::of_finalizer);
    asked.or_else(stored).unwrap_or(default)
}

/// The object with the one finalizer of the collector that `policy` needs, and no other.
fn with_collector_finalizer(mut object: Value, policy: Propagation) -> Value {
    let all: Vec<String> = meta::finalizers(&object).into_iter().map(str::to_owned).collect();
    let mut wanted: Vec<String> = all.clone();
    wanted.retain(|finalizer| Propagation::of_finalizer(finalizer).is_none_or(|own| own == policy));
    wanted.extend(policy.finalizer().map(str::to_owned).filter(|finalizer| !wanted.contains(finalizer)));
    if wanted != all {
        meta::set_finalizers(&mut object, &wanted);
    }
    object
}

/// Whether the node that the pod is on asks.
fn is_its_node(pod: &Value, requester: &Requester) -> bool {
    let node = pod["spec"]["nodeName"].as_str();
    node.is_some_and(|node| requester.user.strip_prefix("system:node:") == Some(node))
}

fn bump_generation(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        meta::set_generation(object, generation + 1);
    }
}

fn at_least_one_if_negative(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Cut to the second first, so that the stored pair (deadline, grace) gives back the stored request time.
fn add_seconds(at: Timestamp, seconds: i64) -> Timestamp {
    time::truncated(at).saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

fn check_options(options: &DeleteOptions) -> Result<(), Status> {
    if options.propagation.is_some() && options.orphan_dependents.is_some() {
        let causes = vec![Cause::invalid(
            "propagationPolicy",
            options.propagation.map_or("", Propagation::as_str),
            "orphanDependents and deletionPropagation cannot be both set",
        )];
        return Err(Status::invalid_of("DeleteOptions", "meta.k8s.io", "", causes));
    }
    Ok(())
}

fn check_preconditions(kind: &Kind, current: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let name = meta::name(current);
    let conflict = |message: String| Err(Status::conflict_of(kind, name, &message));
    if let Some(uid) = &options.uid
        && uid != meta::uid(current)
    {
        let stored = meta::uid(current);
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({stored}). \
             The object might have been deleted and then recreated"
        ));
    }
    if let Some(version) = &options.resource_version
        && version != meta::resource_version(current)
    {
        let stored = meta::resource_version(current);
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({stored}). The object might have been modified"
        ));
    }
    Ok(())
}

impl Propagation {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "Orphan",
            Self::Background => "Background",
            Self::Foreground => "Foreground",
        }
    }

    /// The finalizer by which an object waits for the collector.
    pub fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::Orphan => Some("orphan"),
            Self::Background => None,
            Self::Foreground => Some("foregroundDeletion"),
        }
    }

    /// The policy that a finalizer stands for.
    fn of_finalizer(word: &str) -> Option<Self> {
        [Self::Orphan, Self::Foreground].into_iter().find(|policy| policy.finalizer() == Some(word))
    }

    /// Reads the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Orphan, Self::Background, Self::Foreground].into_iter().find(|p| p.as_str() == word)
    }
}

#[cfg(test)]
mod tests;
