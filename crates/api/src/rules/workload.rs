//! Workloads: kinds that make pods from a template. What they have in common; each has a file below.

use serde_json::{Map, Value};

use super::names;
use super::pod::{defaults, validate};
use super::value::{child, list, word};
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

/// The same for a template that stands alone.
pub(super) fn default_pod_template(template: &mut Value) {
    let mut spec = Map::from_iter([("template".to_owned(), template.take())]);
    default_template(&mut spec);
    *template = spec.remove("template").unwrap_or_default();
}

/// What is wrong with the template at `field`, whose pods may restart as `policies` allow.
pub(super) fn validate_template(template: &Value, field: &str, policies: &[&str], causes: &mut Vec<Cause>) {
    validate_template_with(template, &[], field, policies, causes);
}

/// The same for pods that get volumes of their own from claims called `claims`.
pub(super) fn validate_template_with(
    template: &Value,
    claims: &[&str],
    field: &str,
    policies: &[&str],
    causes: &mut Vec<Cause>,
) {
    for (key, value) in template["metadata"]["labels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        for text in [names::qualified(key), names::label_value(value)].into_iter().flatten() {
            causes.push(Cause::invalid(format!("{field}.labels"), key.as_str(), &text));
        }
    }
    if !list(&template["spec"], "ephemeralContainers").is_empty() {
        let field = format!("{field}.spec.ephemeralContainers");
        causes.push(Cause::forbidden(field, "ephemeral containers not allowed in pod template"));
    }
    validate::spec_at(&format!("{field}.spec"), &template["spec"], claims, causes);
    let policy = word(&template["spec"], "restartPolicy");
    if !policies.contains(&policy) {
        causes.push(Cause::not_supported(format!("{field}.spec.restartPolicy"), policy, policies));
    }
}

/// What is allowed in the template at `field`, but probably not meant.
pub(super) fn template_warnings(template: &Value, field: &str) -> Vec<String> {
    let negative = template["spec"]["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0);
    let text = "must be >= 0; negative values are invalid and will be treated as 1";
    negative.then(|| format!("{field}.spec.terminationGracePeriodSeconds: {text}")).into_iter().collect()
}

/// A selector must be there, say something, and take the pods of its own template.
/// `kind` is the word that upstream has for it.
pub(super) fn validate_selector(spec: &Value, kind: &str, causes: &mut Vec<Cause>) {
    let own = &spec["selector"];
    if !own.is_object() {
        causes.push(Cause::required("spec.selector", ""));
        return;
    }
    selector::validate(own, "spec.selector", causes);
    if selector::is_empty(own) {
        let text = format!("empty selector is invalid for {kind}");
        causes.push(Cause::invalid("spec.selector", own.clone(), &text));
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

/// A percentage of all is at most all.
pub(super) fn not_above_all(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|digits| digits.parse::<i64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        causes.push(Cause::invalid(field, value.clone(), "must not be greater than 100%"));
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
