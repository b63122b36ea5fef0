//! What the status of a Job may say, whoever looks after it: a Job ends once, in one way, and when nothing of it runs any more.

use serde_json::Value;

use crate::rules::value::{list, word};
use crate::status::Cause;

fn has(status: &Value, condition: &str) -> bool {
    list(status, "conditions").iter().any(|it| it["type"] == condition && it["status"] == "True")
}

/// What is wrong with a new status.
pub(super) fn validate(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (was, is, spec) = (&old["status"], &new["status"], &new["spec"]);
    let number = |key: &str| is[key].as_i64().unwrap_or(0);
    for key in ["active", "ready", "terminating", "succeeded", "failed"] {
        if number(key) < 0 {
            let text = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("status.{key}"), number(key), text));
        }
    }
    if number("ready") > number("active") {
        causes.push(Cause::invalid("status.ready", number("ready"), "cannot set more ready pods than active"));
    }
    let mut refuse = |text: &str| causes.push(Cause::invalid("status.conditions", is["conditions"].clone(), text));
    let (complete, failed) = (has(is, "Complete"), has(is, "Failed"));
    if complete && failed {
        refuse("cannot set Complete=True and Failed=true conditions");
    }
    for (end, first) in [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")] {
        if has(is, end) && !has(was, end) && !has(is, first) {
            refuse(&format!("cannot set {end}=True condition without the {first}=true condition"));
        }
        for kind in [end, first] {
            if has(was, kind) && !has(is, kind) {
                refuse(&format!("cannot disable {kind}=True condition"));
            }
        }
    }
    if has(is, "FailureTarget") && has(is, "SuccessCriteriaMet") {
        refuse("cannot set SuccessCriteriaMet=True and FailureTarget=True conditions");
    }
    let ends = (complete && !has(was, "Complete")) || (failed && !has(was, "Failed"));
    for key in ["active", "terminating"] {
        if ends && number(key) > 0 {
            let text = format!("{key}>0 is invalid for finished job");
            causes.push(Cause::invalid(format!("status.{key}"), number(key), &text));
        }
    }
    let uncounted = &is["uncountedTerminatedPods"];
    if ends && ["succeeded", "failed"].iter().any(|key| !list(uncounted, key).is_empty()) {
        let text = "uncountedTerminatedPods needs to be empty for finished job";
        causes.push(Cause::invalid("status.uncountedTerminatedPods", uncounted.clone(), text));
    }
    if complete && is["completionTime"].is_null() {
        causes.push(Cause::required("status.completionTime", "completionTime is required for Complete jobs"));
    }
    if !complete && !is["completionTime"].is_null() {
        let text = "completionTime cannot be set when there is no Complete=True condition";
        causes.push(Cause::invalid("status.completionTime", is["completionTime"].clone(), text));
    }
    let time = |key: &str| crate::time::parse(word(is, key));
    if let (Some(began), Some(ended)) = (time("startTime"), time("completionTime"))
        && ended < began
    {
        let text = "completionTime cannot be set before startTime";
        causes.push(Cause::invalid("status.completionTime", is["completionTime"].clone(), text));
    }
    for key in ["completedIndexes", "failedIndexes"] {
        if !word(is, key).is_empty() && word(spec, "completionMode") != "Indexed" {
            let text = "cannot set non-empty value when non-indexed completion mode";
            causes.push(Cause::invalid(format!("status.{key}"), word(is, key), text));
        }
    }
}
