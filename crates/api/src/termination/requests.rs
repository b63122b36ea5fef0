//! Who asked for a pod's end: noted by the server on the pod itself, with every delete that says something new.
//!
//! The note is an annotation, so that everybody who may read the pod can tell who asked, and so that its node can copy it into the
//! record. Only the server writes it: what a client sends under its name is put back to what was there ([`keep`]).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bounded;
use crate::{meta, time};

/// The annotation that holds the requests, as a JSON list in the order they came.
pub const DELETION_REQUESTS: &str = "adieu.dev/deletion-requests";

/// More are not kept: the first, which counts most, and the last ones.
const KEPT_MAX: usize = 8;
/// Longer names are cut.
const USER_BYTES_MAX: usize = 256;
/// What is longer was not written by the server.
const NOTE_BYTES_MAX: usize = 16 << 10;

/// Who sends a delete, and by which way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// The user's name.
    pub user: String,
    /// `Delete` or `Eviction`.
    pub via: &'static str,
}

/// One delete of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeletionRequest {
    /// The user.
    pub by: String,
    /// `Delete` or `Eviction`.
    pub via: String,
    /// When, to the second.
    pub at: String,
    /// The grace that it came to.
    pub grace_period_seconds: i64,
}

/// Notes a delete on a pod that it marks.
pub(crate) fn note(pod: &mut Value, requester: &Requester, grace: i64, now: Timestamp) {
    let mut all = of_object(pod);
    if all.len() >= KEPT_MAX {
        all.remove(1);
    }
    all.push(DeletionRequest {
        by: bounded(&requester.user, USER_BYTES_MAX).to_owned(),
        via: requester.via.to_owned(),
        at: time::seconds(now),
        grace_period_seconds: grace,
    });
    let text = json!(all).to_string();
    let annotations = meta::meta_mut(pod).entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[DELETION_REQUESTS] = json!(text);
}

/// The requests that are noted on a pod.
pub fn of_object(pod: &Value) -> Vec<DeletionRequest> {
    read(pod["metadata"]["annotations"][DELETION_REQUESTS].as_str())
}

/// The same of the annotation's text. What the server did not write says nothing.
pub fn read(note: Option<&str>) -> Vec<DeletionRequest> {
    let note = note.filter(|note| note.len() <= NOTE_BYTES_MAX);
    let mut all: Vec<DeletionRequest> = note.and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default();
    all.truncate(KEPT_MAX);
    all
}

/// Nobody else writes the note: it stays as it was in `old`, or away.
pub(crate) fn keep(old: &Value, new: &mut Value) {
    let stored = old["metadata"]["annotations"].get(DELETION_REQUESTS);
    if stored == new["metadata"]["annotations"].get(DELETION_REQUESTS) {
        return;
    }
    let metadata = meta::meta_mut(new);
    match stored {
        Some(note) => {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(DELETION_REQUESTS.to_owned(), note.clone());
            } else {
                *annotations = json!({ DELETION_REQUESTS: note });
            }
        }
        None => {
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            if let Some(annotations) = annotations {
                annotations.remove(DELETION_REQUESTS);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05.9Z".parse().expect("a time")
    }

    #[test]
    fn note_keeps_the_first_request_and_the_last_ones() {
        let mut pod = json!({ "metadata": { "annotations": { "a": "b" } } });
        for number in 0..20 {
            let by = Requester { user: format!("user-{number}"), via: "Delete" };
            note(&mut pod, &by, 30 - number, now());
        }
        let all = of_object(&pod);
        let users: Vec<&str> = all.iter().map(|request| request.by.as_str()).collect();
        assert_eq!(users, ["user-0", "user-13", "user-14", "user-15", "user-16", "user-17", "user-18", "user-19"]);
        let first = DeletionRequest {
            by: "user-0".into(),
            via: "Delete".into(),
            at: "2026-01-02T03:04:05Z".into(),
            grace_period_seconds: 30,
        };
        assert_eq!(all[0], first);
        assert_eq!(pod["metadata"]["annotations"]["a"], "b");
    }

    #[test]
    fn note_of_a_long_name_is_cut_and_a_foreign_note_says_nothing() {
        let mut pod = json!({ "metadata": {} });
        note(&mut pod, &Requester { user: "ü".repeat(1000), via: "Delete" }, 30, now());
        assert_eq!(of_object(&pod)[0].by.len(), USER_BYTES_MAX);
        for foreign in ["", "nonsense", "{}", "[1]", &"[".repeat(NOTE_BYTES_MAX + 1)] {
            assert_eq!(read(Some(foreign)), [], "{foreign:.20}");
        }
    }

    #[test]
    fn client_cannot_write_change_or_take_away_the_note() {
        let with = |note: &str| json!({ "metadata": { "annotations": { DELETION_REQUESTS: note, "a": "b" } } });
        let without = json!({ "metadata": { "annotations": { "a": "b" } } });
        for (old, sent, expected) in [
            (json!({ "metadata": {} }), with("forged"), without.clone()),
            (with("true"), with("forged"), with("true")),
            (with("true"), without.clone(), with("true")),
            (
                with("true"),
                json!({ "metadata": {} }),
                json!({ "metadata": { "annotations": { DELETION_REQUESTS: "true" } } }),
            ),
            (
                without.clone(),
                json!({ "metadata": { "annotations": { DELETION_REQUESTS: "forged" } } }),
                json!({ "metadata": {} }),
            ),
        ] {
            let mut new = sent.clone();
            keep(&old, &mut new);
            assert_eq!(new, expected, "{old} {sent}");
        }
    }
}
