//! Events: somebody saying what happened to something. Two groups show the one that is stored.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as NewEvent;
use serde_json::{Map, Value, json};

use super::{Rules, typed_as};
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
};

fn renamed(event: Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let renamed: Map<String, Value> =
        fields.into_iter().map(|(key, value)| (name(&key).map_or(key, str::to_owned), value)).collect();
    Value::Object(renamed)
}
