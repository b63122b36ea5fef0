//! Records of how pods ended, in one line each.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Column, NAME, or_none, since, text};
use crate::meta;

pub(super) const COLUMNS: [Column; 11] = [
    NAME,
    Column("Pod", "string", "", 0, "The pod."),
    Column("Verdict", "string", "", 0, "How well it ended: clean, hurried, forced or lost."),
    Column("Asked by", "string", "", 0, "Who asked for it first."),
    Column("Grace", "string", "", 0, "The grace that it was given."),
    Column("Took", "string", "", 0, "How long it took, from the first request to the end."),
    AGE,
    Column("Cause", "string", "", 1, "Why it ended."),
    Column("Node", "string", "", 1, "The node that it was on."),
    Column("Barrier", "string", "", 1, "What let hooks and stop signals begin."),
    Column("Summary", "string", "", 1, "The story in one sentence."),
];

pub(super) fn cells(record: &Value, now: Timestamp) -> Vec<Value> {
    let grace = record["gracePeriodSeconds"].as_i64().map(|seconds| format!("{seconds}s")).unwrap_or_default();
    let took = record["tookMilliseconds"].as_i64().map(length).unwrap_or_default();
    vec![
        json!(meta::name(record)),
        json!(text(&record["pod"]["name"])),
        json!(text(&record["verdict"])),
        or_none(text(&record["askedBy"])),
        or_none(&grace),
        or_none(&took),
        json!(since(meta::creation_timestamp(record), now)),
        or_none(text(&record["cause"])),
        or_none(text(&record["nodeName"])),
        or_none(text(&record["barrier"])),
        json!(text(&record["summary"])),
    ]
}

/// `12ms`, `1.204s`, `3m7s`.
fn length(millis: i64) -> String {
    match millis {
        ..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{:03}s", millis / 1_000, millis % 1_000),
        _ => super::human_duration(jiff::SignedDuration::from_millis(millis)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_shown_with_who_asked_and_how_long_it_took() {
        let record = json!({ "metadata": { "name": "web-0-5d8e90e1", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "pod": { "name": "web-0" }, "verdict": "forced", "askedBy": "alice", "gracePeriodSeconds": 30,
            "tookMilliseconds": 30_012, "cause": "Deleted", "nodeName": "n1", "summary": "…" });
        let now = "2026-01-01T00:00:07Z".parse().expect("a time");
        let shown = cells(&record, now);
        let words: Vec<&str> = shown.iter().filter_map(Value::as_str).collect();
        let expected =
            ["web-0-5d8e90e1", "web-0", "forced", "alice", "30s", "30.012s", "7s", "Deleted", "n1", "<none>", "…"];
        assert_eq!(words, expected);
        assert_eq!(COLUMNS.len(), shown.len());
        assert_eq!([7, 1_204, 187_000].map(length), ["7ms", "1.204s", "3m7s"]);
    }
}
