//! Events: somebody saying what happened to something. Two groups show the one that is stored.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as NewEvent;
use serde_json::{Map, Value, json};

use super::{Rules, names, typed_as};
use crate::kinds::Face;
use crate::meta;
use crate::status::Cause;

pub(crate) struct EventRules;

impl Rules for EventRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Event>(object)
    }

    fn default(&self, object: &mut Value) {
        // Structs and words that upstream writes even when they are empty.
        meta::child_mut(object, "source");
        for key in ["reportingComponent", "reportingInstance"] {
            if object[key].is_null() {
                object[key] = Value::from("");
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let about = object["involvedObject"]["namespace"].as_str().unwrap_or_default();
        let lives = meta::namespace(object);
        // Something without a namespace is told about in `default`.
        let fits = if about.is_empty() { matches!(lives, "" | "default") } else { about == lives };
        if !fits {
            let text = "does not match event.namespace";
            causes.push(Cause::invalid("involvedObject.namespace", about, text));
        }
    }
}

/// Events of `events.k8s.io`: the same objects under newer names.
pub(crate) struct NewEventRules;

impl Rules for NewEventRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<NewEvent>(object)
    }

    /// Who reports through this group says when, by whom and about what; the fields of the older shape are not theirs.
    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let word = |key: &str| object[key].as_str().unwrap_or_default();
        if word("reportingController").is_empty() {
            causes.push(Cause::required("reportingController", ""));
        }
        if let Some(text) = names::qualified(word("reportingController")) {
            causes.push(Cause::invalid("reportingController", word("reportingController"), &text));
        }
        let limits = [("reportingInstance", 128), ("action", 128), ("reason", 128), ("note", 1024)];
        for (key, limit) in limits {
            if word(key).is_empty() && key != "note" {
                causes.push(Cause::required(key, ""));
            }
            if word(key).len() > limit {
                causes.push(Cause::invalid(key, "", &format!("can have at most {limit} characters")));
            }
        }
        if word("eventTime").is_empty() {
            causes.push(Cause::required("eventTime", ""));
        }
        if !matches!(word("type"), "Normal" | "Warning") {
            causes.push(Cause::invalid("type", "", &format!("has invalid value: {}", word("type"))));
        }
        for (key, older) in
            [("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp")]
        {
            if !word(key).is_empty() {
                causes.push(Cause::invalid(older, "", "needs to be unset"));
            }
        }
        if object["deprecatedCount"].as_i64().is_some_and(|count| count != 0) {
            causes.push(Cause::invalid("count", "", "needs to be unset"));
        }
        let source = &object["deprecatedSource"];
        if ["component", "host"].iter().any(|key| source[*key].as_str().is_some_and(|said| !said.is_empty())) {
            causes.push(Cause::invalid("source", "", "needs to be unset"));
        }
        if object["series"].is_object() {
            if object["series"]["count"].as_i64().unwrap_or(0) < 2 {
                causes.push(Cause::invalid("series.count", "", "should be at least 2"));
            }
            if object["series"]["lastObservedTime"].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::required("series.lastObservedTime", ""));
            }
        }
    }
}

/// Newer name, stored name.
const NAMES: [(&str, &str); 7] = [
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

/// How they are read from and written to what is stored.
pub(crate) static NEW_FACE: Face = Face {
    of: ("", "v1", "events"),
    shown: |event| renamed(event.clone(), |name| NAMES.iter().find(|(_, old)| *old == name).map(|(new, _)| *new)),
    stored: |event| {
        let mut event = renamed(event, |name| NAMES.iter().find(|(new, _)| *new == name).map(|(_, old)| *old));
        if event["involvedObject"].is_null() {
            event["involvedObject"] = json!({});
        }
        event
    },
    keep: |_, _| {},
};

fn renamed(event: Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let renamed: Map<String, Value> =
        fields.into_iter().map(|(key, value)| (name(&key).map_or(key, str::to_owned), value)).collect();
    Value::Object(renamed)
}
