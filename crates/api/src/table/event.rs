//! An event in one line. The wide columns stand between the others, as upstream has them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, NAME, since, text};
use crate::{meta, time};

pub(super) const COLUMNS: [Column; 10] = [
    Column("Last Seen", "string", "", 0, "When it happened last."),
    Column("Type", "string", "", 0, "Normal or Warning."),
    Column("Reason", "string", "", 0, "What happened, in one word."),
    Column("Object", "string", "", 0, "What it happened to."),
    Column("Subobject", "string", "", 1, "Which part of it."),
    Column("Source", "string", "", 1, "Who says so."),
    Column("Message", "string", "", 0, "What happened, in a sentence."),
    Column("First Seen", "string", "", 1, "When it happened first."),
    Column("Count", "string", "", 1, "How often it happened."),
    Column(NAME.0, NAME.1, NAME.2, 1, NAME.4),
];

pub(super) fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let at = |value: &Value| time::parse(text(value));
    let series = &event["series"];
    let event_time = at(&event["eventTime"]);
    let first = at(&event["firstTimestamp"]).or(event_time);
    let last = at(&series["lastObservedTime"]).or_else(|| at(&event["lastTimestamp"])).or(first);
    let count = series["count"].as_i64().or_else(|| event["count"].as_i64()).filter(|n| *n > 0).unwrap_or(1);
    let about = &event["involvedObject"];
    vec![
        json!(since(last, now)),
        json!(text(&event["type"])),
        json!(text(&event["reason"])),
        json!(object(about)),
        json!(text(&about["fieldPath"])),
        json!(source(event)),
        json!(text(&event["message"]).trim()),
        json!(since(first, now)),
        json!(count.to_string()),
        json!(meta::name(event)),
    ]
}

fn object(about: &Value) -> String {
    let (kind, name) = (text(&about["kind"]).to_lowercase(), text(&about["name"]));
    if name.is_empty() { kind } else { format!("{kind}/{name}") }
}

fn source(event: &Value) -> String {
    let pair = |component: &str, instance: &str| match (component, instance) {
        (component, "") => component.to_owned(),
        (component, instance) => format!("{component}, {instance}"),
    };
    let component = text(&event["source"]["component"]);
    if component.is_empty() {
        pair(text(&event["reportingComponent"]), text(&event["reportingInstance"]))
    } else {
        pair(component, text(&event["source"]["host"]))
    }
}
