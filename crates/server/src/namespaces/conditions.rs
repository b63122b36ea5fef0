//! What a leaving namespace says about itself: five conditions, all `False` when nothing is in the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

/// How many objects are named.
const NAMED: usize = 5;

/// What is left in a namespace: by resource, then by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Waiting(pub(super) BTreeMap<String, BTreeMap<Arc<str>, RemainingObject>>);

/// One object that is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RemainingObject {
    pub(super) finalizers: Vec<String>,
    /// By when it is expected to be gone, if it was given time.
    pub(super) deadline: Option<Timestamp>,
}

/// `old` with the five conditions brought up to date. A condition keeps its time until it turns, and others are left alone.
pub(super) fn conditions(old: &Value, waiting: &Waiting, now: Timestamp) -> Value {
    let mut all = old.as_array().cloned().unwrap_or_default();
    for (kind, bad, reason, message) in [
        ("NamespaceDeletionDiscoveryFailure", None, "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            None,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", content(waiting), "ContentRemoved", "All content successfully removed"),
        (
            "NamespaceFinalizersRemaining",
            finalizers(waiting),
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ] {
        let (status, reason, message) = match bad {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let before = all.iter().find(|condition| condition["type"] == kind && condition["status"] == status);
        let since = before.map_or_else(|| json!(api::time::seconds(now)), |c| c["lastTransitionTime"].clone());
        let next = json!({ "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since });
        match all.iter_mut().find(|condition| condition["type"] == kind) {
            Some(condition) => *condition = next,
            None => all.push(next),
        }
    }
    Value::Array(all)
}

/// What is left, and until when.
fn content(waiting: &Waiting) -> Option<(&'static str, String)> {
    if waiting.0.is_empty() {
        return None;
    }
    let parts = waiting.0.iter().map(|(resource, objects)| {
        let timed = objects.iter().filter_map(|(name, left)| left.deadline.map(|at| (name, at)));
        let mut named: Vec<String> =
            timed.take(NAMED).map(|(name, at)| format!("{name} until {}", api::time::seconds(at))).collect();
        let more = objects.values().filter(|left| left.deadline.is_some()).count().saturating_sub(named.len());
        if more > 0 {
            named.push(format!("{more} more"));
        }
        let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
        format!("{resource} has {} resource instances{named}", objects.len())
    });
    let parts: Vec<String> = parts.collect();
    Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", parts.join(", "))))
}

/// Which finalizers hold something.
fn finalizers(waiting: &Waiting) -> Option<(&'static str, String)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for finalizer in waiting.0.values().flat_map(BTreeMap::values).flat_map(|left| &left.finalizers) {
        *counts.entry(finalizer).or_default() += 1;
    }
    if counts.is_empty() {
        return None;
    }
    let parts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let text = format!("Some content in the namespace has finalizers remaining: {}", parts.join(", "));
    Some(("SomeFinalizersRemain", text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn find<'a>(all: &'a Value, kind: &str) -> &'a Value {
        all.as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap()
    }

    #[test]
    fn namespace_conditions_name_remaining_objects_deadlines_and_finalizers() {
        let pod = |deadline: &str, finalizers: &[&str]| RemainingObject {
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            deadline: Some(at(deadline)),
        };
        let pods = BTreeMap::from([
            (Arc::from("a"), pod("2026-01-01T00:00:30Z", &[])),
            (Arc::from("b"), pod("2026-01-01T00:00:40Z", &["x/y"])),
        ]);
        let waiting = Waiting(BTreeMap::from([("pods.".to_owned(), pods)]));
        let all = conditions(&Value::Null, &waiting, at("2026-01-01T00:00:00Z"));
        let content = find(&all, "NamespaceContentRemaining");
        assert_eq!((&content["status"], &content["reason"]), (&json!("True"), &json!("SomeResourcesRemain")));
        assert_eq!(
            content["message"],
            "Some resources are remaining: pods. has 2 resource instances (a until 2026-01-01T00:00:30Z, b until \
             2026-01-01T00:00:40Z)"
        );
        assert_eq!(
            find(&all, "NamespaceFinalizersRemaining")["message"],
            "Some content in the namespace has finalizers remaining: x/y in 1 resource instances"
        );

        let later = conditions(&all, &Waiting::default(), at("2026-01-01T00:01:00Z"));
        let content = find(&later, "NamespaceContentRemaining");
        assert_eq!((&content["status"], &content["reason"]), (&json!("False"), &json!("ContentRemoved")));
        assert_eq!(content["lastTransitionTime"], "2026-01-01T00:01:00Z");
        let same = find(&later, "NamespaceDeletionContentFailure");
        assert_eq!(same["lastTransitionTime"], "2026-01-01T00:00:00Z", "it did not turn");
        assert_eq!(later.as_array().unwrap().len(), 5);
    }
}
