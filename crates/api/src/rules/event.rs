//! Events: somebody saying what happened to something.

use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

use super::{Rules, typed_as};
use crate::meta;
use crate::status::Cause;

pub(crate) struct EventRules;

impl Rules for EventRules {
    fn typed(&self, object: Value) -> Result<Value, serde_json::Error> {
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
