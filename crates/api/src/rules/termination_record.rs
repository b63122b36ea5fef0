//! Records of how pods ended: whose they are never changes, and everything in one is bounded.

use serde_json::{Value, json};

use super::value::{list, word};
use super::{Rules, typed_as};
use crate::meta;
use crate::status::Cause;
use crate::termination::{
    CONTAINERS_MAX, REQUESTS_MAX, STEPS_MAX, TEXT_BYTES_MAX, TerminationRecord, VERDICTS, record_name,
};

pub(crate) struct TerminationRecordRules;

impl Rules for TerminationRecordRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<TerminationRecord>(object)
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let pod = &object["pod"];
        for field in ["name", "uid"] {
            if word(pod, field).is_empty() {
                causes.push(Cause::required(format!("pod.{field}"), ""));
            }
        }
        let verdict = word(object, "verdict");
        if !VERDICTS.contains(&verdict) {
            causes.push(Cause::not_supported("verdict", verdict, &VERDICTS));
        }
        for (field, limit) in [("requests", REQUESTS_MAX), ("steps", STEPS_MAX), ("containers", CONTAINERS_MAX)] {
            let items = list(object, field);
            if items.len() > limit {
                causes.push(Cause::too_many(field, items.len(), limit));
            }
            for (index, item) in items.iter().enumerate().take(limit) {
                check_texts(item, &format!("{field}[{index}]."), causes);
            }
        }
        check_texts(object, "", causes);
        check_texts(pod, "pod.", causes);
    }

    fn validate_create(&self, object: &Value, causes: &mut Vec<Cause>) {
        let (pod, uid) = (word(&object["pod"], "name"), word(&object["pod"], "uid"));
        let (name, expected) = (meta::name(object), record_name(pod, uid));
        if !pod.is_empty() && !uid.is_empty() && name != expected {
            let text = format!("must be {expected}, for its pod and the first 8 characters of that one's UID");
            causes.push(Cause::invalid("metadata.name", name, &text));
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let identity = |object: &Value| json!([object["pod"]["name"], object["pod"]["uid"]]);
        if identity(old) != identity(new) {
            causes.push(Cause::invalid("pod", new["pod"].clone(), "field is immutable"));
        }
        // The server may have written that it never had one, a moment before it was given one.
        if old.get("nodeName").is_some() && old.get("nodeName") != new.get("nodeName") {
            causes.push(Cause::invalid("nodeName", new["nodeName"].clone(), "field is immutable"));
        }
    }
}

/// Texts right below `value` that are too long.
fn check_texts(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (field, text) in value.as_object().into_iter().flatten() {
        if text.as_str().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            causes.push(Cause::too_long(format!("{path}{field}"), TEXT_BYTES_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Value {
        json!({ "metadata": { "name": "web-0-5d8e90e1" }, "pod": { "name": "web-0", "uid": "5d8e90e1-7a37" },
            "nodeName": "n1", "verdict": "clean" })
    }

    fn refused(change: impl Fn(&mut Value)) -> Vec<String> {
        let (mut causes, mut object) = (Vec::new(), record());
        change(&mut object);
        TerminationRecordRules.validate(&object, &mut causes);
        TerminationRecordRules.validate_create(&object, &mut causes);
        TerminationRecordRules.validate_update(&record(), &object, &mut causes);
        causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn record_names_its_pod_and_has_a_known_verdict() {
        assert_eq!(refused(|_| {}), Vec::<String>::new());
        assert_eq!(refused(|it| it["verdict"] = json!("fine")), ["verdict"]);
        assert_eq!(refused(|it| it["metadata"]["name"] = json!("web-0")), ["metadata.name"]);
        assert_eq!(refused(|it| it["nodeName"] = json!("n2")), ["nodeName"]);
        assert_eq!(refused(|it| it["pod"] = json!({})), ["pod.name", "pod.uid", "pod"]);
        assert_eq!(refused(|it| it["pod"]["uid"] = json!("5d8e90e1-other")), ["pod"]);
    }

    #[test]
    fn record_is_bounded_in_every_part() {
        assert_eq!(refused(|it| it["steps"] = json!(vec![json!({}); STEPS_MAX + 1])), ["steps"]);
        assert_eq!(refused(|it| it["requests"] = json!(vec![json!({}); REQUESTS_MAX + 1])), ["requests"]);
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(refused(|it| it["steps"] = json!([{}, { "output": long }])), ["steps[1].output"]);
        assert_eq!(refused(|it| it["summary"] = json!(long)), ["summary"]);
    }
}
