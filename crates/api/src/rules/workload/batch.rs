//! Jobs, which run pods to their end, and CronJobs, which make jobs by the clock.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Map, Value, json};

use super::{default_template, immutable, job_status, not_negative, template_warnings, validate_template};
use crate::cron::{self, Schedule};
use crate::meta;
use crate::rules::value::{child, list, put, word};
use crate::rules::{Rules, names, typed_as};
use crate::selector::object as selector;
use crate::status::Cause;

/// Job pods end, so they may not be restarted for ever.
const ENDING: [&str; 2] = ["OnFailure", "Never"];
/// Longest name of a CronJob: its jobs add eleven characters to it.
const CRON_NAME_MAX: usize = 52;
/// How many indexes may run at once.
const INDEXES_MAX: i64 = 100_000;
/// How many rules a policy may have.
const RULES_MAX: usize = 20;

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

    fn validate_status_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        job_status::validate(old, new, causes);
    }

    /// A selector of one's own could take another job's pods, so it must be asked for in so many words.
    fn validate_create(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        let labels = &spec["template"]["metadata"]["labels"];
        // The host name of its last pod.
        if let Some(last) = spec["completions"].as_i64().filter(|_| word(spec, "completionMode") == "Indexed") {
            let host = format!("{}-{}", meta::name(object), (last - 1).max(0));
            if let Some(text) = names::label(&host) {
                let text = format!("will not able to create pod with invalid DNS label {host:?}: {text}");
                causes.push(Cause::invalid("metadata.name", meta::name(object), &text));
            }
        }
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
        let fixed = ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];
        fixed.iter().for_each(|key| immutable(old, new, &format!("spec.{key}"), causes));
        // A suspended job that never ran may still be told where to run.
        let unstarted = old["spec"]["suspend"] == json!(true) && old["status"]["startTime"].is_null();
        if !unstarted {
            immutable(old, new, "spec.template", causes);
        }
        let (was, is) = (&old["spec"]["completions"], &new["spec"]["completions"]);
        if old["spec"]["completionMode"] != "Indexed" {
            immutable(old, new, "spec.completions", causes);
        } else if was != is && *is != new["spec"]["parallelism"] {
            let text = "can only be modified in tandem with spec.parallelism";
            causes.push(Cause::invalid("spec.completions", is.clone(), text));
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
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "ttlSecondsAfterFinished",
    ];
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
    validate_indexes(spec, at, mode == "Indexed", causes);
    validate_policies(spec, at, causes);
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

/// What only pods with indexes have.
fn validate_indexes(spec: &Value, at: &str, indexed: bool, causes: &mut Vec<Cause>) {
    for key in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
        if !spec[key].is_null() && !indexed {
            causes.push(Cause::invalid(format!("{at}.{key}"), spec[key].clone(), "requires indexed completion mode"));
        }
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        causes.push(Cause::required(format!("{at}.backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    if !indexed {
        return;
    }
    let number = |key: &str| spec[key].as_i64();
    let at_most = |key: &str, limit: i64, when: &str, causes: &mut Vec<Cause>| {
        if let Some(value) = number(key).filter(|value| *value > limit) {
            let text = format!("must be less than or equal to {limit} when {when}");
            causes.push(Cause::invalid(format!("{at}.{key}"), value, &text));
        }
    };
    at_most("parallelism", INDEXES_MAX, "completion mode is Indexed", causes);
    let (completions, most) = (number("completions").unwrap_or(0), number("maxFailedIndexes"));
    if most.is_some_and(|most| most > completions) {
        let field = format!("{at}.maxFailedIndexes");
        causes.push(Cause::invalid(field, most.unwrap_or(0), "must be less than or equal to completions"));
    }
    if completions > INDEXES_MAX && !spec["backoffLimitPerIndex"].is_null() {
        let when = "completions are above 100000 and used with backoff limit per index";
        at_most("parallelism", INDEXES_MAX / 10, when, causes);
        at_most("maxFailedIndexes", INDEXES_MAX / 10, when, causes);
    }
}

/// Rules about failures, successes and replacements.
fn validate_policies(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    let replacement = word(spec, "podReplacementPolicy");
    let by_policy = !spec["podFailurePolicy"].is_null();
    let known: &[&str] = if by_policy { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !replacement.is_empty() && !known.contains(&replacement) {
        causes.push(Cause::not_supported(format!("{at}.podReplacementPolicy"), replacement, known));
    }
    if let Some(by) = spec["managedBy"].as_str() {
        let is_path =
            by.split_once('/').is_some_and(|(domain, path)| names::subdomain(domain).is_none() && !path.is_empty());
        if !is_path || by.len() > 63 {
            let text = "must be a domain-prefixed path (such as \"acme.io/foo\") of at most 63 characters";
            causes.push(Cause::invalid(format!("{at}.managedBy"), by, text));
        }
    }
    let policy = word(&spec["template"]["spec"], "restartPolicy");
    if by_policy && policy != "Never" {
        let text = "only \"Never\" is supported when podFailurePolicy is specified";
        causes.push(Cause::invalid(format!("{at}.template.spec.restartPolicy"), policy, text));
    }
    let rules = list(&spec["podFailurePolicy"], "rules");
    if rules.len() > RULES_MAX {
        causes.push(Cause::too_many(format!("{at}.podFailurePolicy.rules"), rules.len(), RULES_MAX));
    }
    for (number, rule) in rules.iter().enumerate() {
        let field = format!("{at}.podFailurePolicy.rules[{number}]");
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        let action = word(rule, "action");
        if !actions.contains(&action) {
            causes.push(Cause::not_supported(format!("{field}.action"), action, &actions));
        }
        if action == "FailIndex" && spec["backoffLimitPerIndex"].is_null() {
            let text = "requires the backoffLimitPerIndex to be set";
            causes.push(Cause::invalid(format!("{field}.action"), action, text));
        }
        if rule["onExitCodes"].is_null() == list(rule, "onPodConditions").is_empty() {
            let text = "specifying exactly one of onExitCodes and onPodConditions is required";
            causes.push(Cause::invalid(field, rule.clone(), text));
            continue;
        }
        let codes = &rule["onExitCodes"];
        let operators = ["In", "NotIn"];
        if !codes.is_null() && !operators.contains(&word(codes, "operator")) {
            causes.push(Cause::not_supported(
                format!("{field}.onExitCodes.operator"),
                word(codes, "operator"),
                &operators,
            ));
        }
        if word(codes, "operator") == "In" && list(codes, "values").contains(&json!(0)) {
            causes.push(Cause::invalid(format!("{field}.onExitCodes.values"), 0, "must not be 0 for the In operator"));
        }
    }
    if !spec["successPolicy"].is_null() && list(&spec["successPolicy"], "rules").is_empty() {
        let text = "at least one rules must be specified when the successPolicy is specified";
        causes.push(Cause::required(format!("{at}.successPolicy.rules"), text));
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
        validate_time_zone(spec, causes);
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

/// What is wrong with a schedule.
fn schedule_complaint(schedule: &str) -> Option<String> {
    if schedule.contains("TZ") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    Schedule::parse(schedule).err()
}

/// What is wrong with a time zone: nobody knows it, or everybody knows another by that name.
fn validate_time_zone(spec: &Value, causes: &mut Vec<Cause>) {
    let Some(zone) = spec["timeZone"].as_str() else { return };
    if zone.is_empty() {
        return causes.push(Cause::invalid("spec.timeZone", zone, "must be nil or non-empty string"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return causes.push(Cause::invalid("spec.timeZone", zone, text));
    }
    if cron::time_zone(zone).is_none() {
        causes.push(Cause::invalid("spec.timeZone", zone, &format!("unknown time zone {zone}")));
    }
}
