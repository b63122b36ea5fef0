//! Workloads: kinds that make pods from a template. What they have in common; each has a file below.

use serde_json::{Map, Value};

use super::names;
use super::pod::{defaults, validate};
use super::value::{child, word};
use crate::selector::object as selector;
use crate::status::Cause;

pub(crate) mod batch;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod revision;
pub(crate) mod stateful_set;

/// Fills in the template below `spec`.
pub(super) fn default_template(spec: &mut Map<String, Value>) {
    let template = child(spec, "template");
    child(template, "metadata");
    defaults::apply_to_spec(child(template, "spec"));
}

/// What is wrong with the template at `field`, whose pods may restart as `policies` allow.
pub(super) fn validate_template(template: &Value, field: &str, policies: &[&str], causes: &mut Vec<Cause>) {
    for (key, value) in template["metadata"]["labels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        for text in [names::qualified(key), names::label_value(value)].into_iter().flatten() {
            causes.push(Cause::invalid(format!("{field}.labels"), key.as_str(), &text));
        }
    }
    validate::spec_at(&format!("{field}.spec"), &template["spec"], causes);
    let policy = word(&template["spec"], "restartPolicy");
    if !policies.contains(&policy) {
        causes.push(Cause::not_supported(format!("{field}.spec.restartPolicy"), policy, policies));
    }
}

/// A selector must be there, say something, and take the pods of its own template.
pub(super) fn validate_selector(spec: &Value, causes: &mut Vec<Cause>) {
    let own = &spec["selector"];
    if !own.is_object() {
        causes.push(Cause::required("spec.selector", ""));
        return;
    }
    selector::validate(own, "spec.selector", causes);
    if selector::is_empty(own) {
        causes.push(Cause::invalid("spec.selector", own.clone(), "empty selector is invalid for workload"));
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !selector::takes(own, |key| labels[key].as_str()) {
        let text = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels.clone(), text));
    }
}

/// Numbers that may not be negative.
pub(super) fn not_negative(value: &Value, at: &str, keys: &[&str], causes: &mut Vec<Cause>) {
    for key in keys {
        if let Some(number) = value[*key].as_i64().filter(|number| *number < 0) {
            causes.push(Cause::invalid(format!("{at}.{key}"), number, "must be greater than or equal to 0"));
        }
    }
}

/// What was decided at creation stays.
pub(super) fn immutable(old: &Value, new: &Value, field: &str, causes: &mut Vec<Cause>) {
    let pointer = format!("/{}", field.replace('.', "/"));
    let (was, is) = (old.pointer(&pointer), new.pointer(&pointer));
    if was != is {
        causes.push(Cause::invalid(field, is.cloned().unwrap_or_default(), "field is immutable"));
    }
}

/// A number or a percentage, at `field`; answers its value if it is one, percentages as they are.
pub(super) fn int_or_percent(value: &Value, field: &str, causes: &mut Vec<Cause>) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        if number < 0 {
            causes.push(Cause::invalid(field, number, "must be greater than or equal to 0"));
        }
        return Some(number);
    }
    let text = value.as_str()?;
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok()).filter(|n| *n >= 0);
    if percent.is_none() {
        let sentence = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                        '93%', regex used for validation is '[0-9]+%')";
        causes.push(Cause::invalid(field, text, sentence));
    }
    percent
}
