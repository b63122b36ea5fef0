//! Conditions of a Deployment: how they are found, and when writing one anew changes it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::replicas::controller::stamp;

pub(crate) const AVAILABLE: &str = "Available";
pub(crate) const PROGRESSING: &str = "Progressing";
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What a condition says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// The moment at which a condition was last written.
pub(crate) fn updated(condition: &Value) -> Option<Timestamp> {
    condition["lastUpdateTime"].as_str()?.parse().ok()
}

/// Says something; nothing changes if status and reason are the same.
pub(crate) fn say(conditions: &mut Vec<Value>, kind: &str, said: &Said, now: Timestamp) {
    let same = |old: &Value| old["status"] == said.status && old["reason"] == said.reason;
    if !find(conditions, kind).is_some_and(same) {
        say_anew(conditions, kind, said, now);
    }
}

/// Says something as of now, even if it is what was said before; since when it is so stays while its status does.
pub(crate) fn say_anew(conditions: &mut Vec<Value>, kind: &str, said: &Said, now: Timestamp) {
    let old = find(conditions, kind).filter(|old| old["status"] == said.status);
    let since = old.map_or_else(|| json!(stamp(now)), |old| old["lastTransitionTime"].clone());
    put(
        conditions,
        json!({ "type": kind, "status": said.status, "reason": said.reason, "message": said.message,
            "lastUpdateTime": stamp(now), "lastTransitionTime": since }),
    );
}

/// Puts a condition where the one of its type is, or at the end.
pub(crate) fn put(conditions: &mut Vec<Value>, condition: Value) {
    match conditions.iter_mut().find(|old| old["type"] == condition["type"]) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

pub(crate) fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition["type"] != kind);
}
