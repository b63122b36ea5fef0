//! Jobs, which run pods to their end, and CronJobs, which make jobs by the clock.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Map, Value, json};

use super::{default_template, immutable, not_negative, template_warnings, validate_template};
use crate::meta;
use crate::rules::value::{child, put, word};
use crate::rules::{Rules, names, typed_as};
use crate::selector::object as selector;
use crate::status::Cause;

/// Job pods end, so they may not be restarted for ever.
const ENDING: [&str; 2] = ["OnFailure", "Never"];
/// Longest name of a CronJob: its jobs add eleven characters to it.
const CRON_NAME_MAX: usize = 52;

/// Labels by which a job knows its pods.
const GENERATED: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

pub(crate) struct JobRules;

impl Rules for JobRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Job>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        job_defaults(spec);
        // Labels of a job are its template's unless it says otherwise.
        let labels = spec["template"]["metadata"]["labels"].clone();
        if meta::labels(object).next().is_none() && labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            meta::meta_mut(object).insert("labels".to_owned(), labels);
        }
    }

    /// The pods of a job are told by its uid, so that no other job can take them.
    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({});
        if object["spec"]["manualSelector"] == json!(true) {
            return Ok(());
        }
        let (name, uid) = (meta::name(object).to_owned(), meta::uid(object).to_owned());
        let spec = meta::child_mut(object, "spec");
        let labels = child(child(child(spec, "template"), "metadata"), "labels");
        for key in GENERATED {
            labels.insert(key.to_owned(), json!(if key.ends_with("uid") { &uid } else { &name }));
        }
        let selector = json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } });
        if !spec.contains_key("selector") {
            spec.insert("selector".to_owned(), selector);
        }
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_job(&object["spec"], "spec", causes);
    }

    /// A selector of one's own could take another job's pods, so it must be asked for in so many words.
    fn validate_create(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        let labels = &spec["template"]["metadata"]["labels"];
        let generated = |key: &str| Some(labels[key].as_str()?).filter(|_| GENERATED.contains(&key));
        if spec["manualSelector"] != json!(true) && !selector::takes(&spec["selector"], generated) {
            causes.push(Cause::invalid("spec.selector", spec["selector"].clone(), "`selector` not auto-generated"));
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(&object["spec"]["template"], "spec.template")
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        immutable(old, new, "spec.selector", causes);
        immutable(old, new, "spec.completionMode", causes);
        // A suspended job that never ran may still be told where to run.
        let unstarted = old["spec"]["suspend"] == json!(true) && old["status"]["startTime"].is_null();
        if !unstarted {
            immutable(old, new, "spec.template", causes);
        }
        if old["spec"]["completionMode"] != "Indexed" {
            immutable(old, new, "spec.completions", causes);
        }
    }
}

fn job_defaults(spec: &mut Map<String, Value>) {
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    put(spec, "completionMode", "NonIndexed");
    put(spec, "suspend", false);
    let per_index = spec.contains_key("backoffLimitPerIndex");
    put(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    let by_policy = spec.contains_key("podFailurePolicy");
    put(spec, "podReplacementPolicy", if by_policy { "Failed" } else { "TerminatingOrFailed" });
    put(spec, "manualSelector", false);
    default_template(spec);
}

fn validate_job(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    let numbers = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    not_negative(spec, at, &numbers, causes);
    let modes = ["NonIndexed", "Indexed"];
    let mode = word(spec, "completionMode");
    if !modes.contains(&mode) {
        causes.push(Cause::not_supported(format!("{at}.completionMode"), mode, &modes));
    }
    if mode == "Indexed" && spec["completions"].is_null() {
        let text = "when completion mode is Indexed";
        causes.push(Cause::required(format!("{at}.completions"), text));
    }
    let template = format!("{at}.template");
    if word(&spec["template"]["spec"], "restartPolicy") == "Always" {
        let field = format!("{template}.spec.restartPolicy");
        causes.push(Cause {
            reason: "FieldValueRequired",
            message: "Required value: valid values: \"OnFailure\", \"Never\"".to_owned(),
            field,
        });
        super::validate::spec_at(&format!("{template}.spec"), &spec["template"]["spec"], &[], causes);
    } else {
        validate_template(&spec["template"], &template, &ENDING, causes);
    }
}

pub(crate) struct CronJobRules;

impl Rules for CronJobRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<CronJob>(object)
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "concurrencyPolicy", "Allow");
        put(spec, "suspend", false);
        put(spec, "successfulJobsHistoryLimit", 3);
        put(spec, "failedJobsHistoryLimit", 1);
        let job = child(child(spec, "jobTemplate"), "spec");
        default_template(job);
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({});
        Ok(())
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        if meta::name(object).len() > CRON_NAME_MAX {
            let text = "must be no more than 52 characters";
            causes.push(Cause::invalid("metadata.name", meta::name(object), text));
        }
        match word(spec, "schedule") {
            "" => causes.push(Cause::required("spec.schedule", "")),
            schedule => {
                if let Some(text) = schedule_complaint(schedule) {
                    causes.push(Cause::invalid("spec.schedule", schedule, &text));
                }
            }
        }
        let policies = ["Allow", "Forbid", "Replace"];
        let policy = word(spec, "concurrencyPolicy");
        if !policies.contains(&policy) {
            causes.push(Cause::not_supported("spec.concurrencyPolicy", policy, &policies));
        }
        let numbers = ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
        not_negative(spec, "spec", &numbers, causes);
        let template = &spec["jobTemplate"]["spec"]["template"];
        validate_template(template, "spec.jobTemplate.spec.template", &ENDING, causes);
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::Subdomain
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(&object["spec"]["jobTemplate"]["spec"]["template"], "spec.jobTemplate.spec.template")
    }
}

/// What is wrong with the shape of a schedule: five fields of digits, names, `*`, lists, ranges and steps, or a macro.
fn schedule_complaint(schedule: &str) -> Option<String> {
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if schedule.starts_with('@') {
        let macros = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
        let known = macros.contains(&schedule) || schedule.starts_with("@every ");
        return (!known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let limits: [(i64, i64); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
    fields.iter().zip(limits).find_map(|(field, (low, high))| {
        let number = |text: &str| -> Option<String> {
            match text.parse::<i64>() {
                Ok(n) if n < low => Some(format!("beginning of range ({n}) below minimum ({low}): {field}")),
                Ok(n) if n > high => Some(format!("end of range ({n}) above maximum ({high}): {field}")),
                Ok(_) => None,
                Err(_) if text.len() == 3 && text.chars().all(|c| c.is_ascii_alphabetic()) => None,
                Err(_) => Some(format!("failed to parse int from {text}")),
            }
        };
        field.split(',').find_map(|part| {
            let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            if let Some(step) = step
                && step.parse::<u32>().ok().filter(|step| *step > 0).is_none()
            {
                return Some(format!("step of range should be a positive number: {part}"));
            }
            match range {
                "*" | "?" => None,
                _ => range.split('-').find_map(number),
            }
        })
    })
}
