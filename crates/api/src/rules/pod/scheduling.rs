//! Mistakes in where a pod may run: node selector, affinity, spreading.

use serde_json::Value;

use super::{list, word};
use crate::rules::names;
use crate::selector::object as selector;
use crate::status::Cause;

const UNSATISFIABLE: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const INCLUSION: [&str; 2] = ["Honor", "Ignore"];

/// Everything that is wrong with what decides about a pod's node.
pub(super) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in spec["nodeSelector"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if let Some(text) = names::qualified(key) {
            causes.push(Cause::invalid("spec.nodeSelector", key.as_str(), &text));
        }
        if let Some(text) = names::label_value(value) {
            causes.push(Cause::invalid("spec.nodeSelector", value, &text));
        }
    }
    node_affinity(&spec["affinity"]["nodeAffinity"], causes);
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(&spec["affinity"][kind], &format!("spec.affinity.{kind}"), causes);
    }
    spreading(spec, causes);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn node_affinity(affinity: &Value, causes: &mut Vec<Cause>) {
    let field = "spec.affinity.nodeAffinity";
    if affinity[REQUIRED].is_object() {
        let field = format!("{field}.{REQUIRED}.nodeSelectorTerms");
        let terms = list(&affinity[REQUIRED], "nodeSelectorTerms");
        if terms.is_empty() {
            causes.push(Cause::required(&field, "must have at least one node selector term"));
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(term, &format!("{field}[{index}]"), causes);
        }
    }
    for (index, preferred) in list(affinity, PREFERRED).iter().enumerate() {
        let field = format!("{field}.{PREFERRED}[{index}]");
        weight(preferred, &field, causes);
        node_term(&preferred["preference"], &format!("{field}.preference"), causes);
    }
}

fn weight(preferred: &Value, field: &str, causes: &mut Vec<Cause>) {
    let weight = preferred["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        causes.push(Cause::invalid(format!("{field}.weight"), weight, "must be in the range 1-100"));
    }
}

fn node_term(term: &Value, field: &str, causes: &mut Vec<Cause>) {
    for (index, wanted) in list(term, "matchExpressions").iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = list(wanted, "values");
        match word(wanted, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let text = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(format!("{field}.values"), text));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(format!("{field}.values"), text));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let text = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                causes.push(Cause::required(format!("{field}.values"), text));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => causes.push(Cause::invalid(format!("{field}.operator"), other, "not a valid selector operator")),
        }
        if let Some(text) = names::qualified(word(wanted, "key")) {
            causes.push(Cause::invalid(format!("{field}.key"), word(wanted, "key"), &text));
        }
    }
}

fn pod_affinity(affinity: &Value, field: &str, causes: &mut Vec<Cause>) {
    let required = list(affinity, REQUIRED).iter().enumerate().map(|(at, term)| (format!("{REQUIRED}[{at}]"), term));
    let preferred = list(affinity, PREFERRED)
        .iter()
        .enumerate()
        .map(|(at, preferred)| (format!("{PREFERRED}[{at}].podAffinityTerm"), &preferred["podAffinityTerm"]));
    for (place, term) in required.chain(preferred) {
        let field = format!("{field}.{place}");
        topology_key(term, &field, causes);
        if term["labelSelector"].is_object() {
            selector::validate(&term["labelSelector"], &format!("{field}.labelSelector"), causes);
        }
    }
    for (index, preferred) in list(affinity, PREFERRED).iter().enumerate() {
        weight(preferred, &format!("{field}.{PREFERRED}[{index}]"), causes);
    }
}

fn topology_key(term: &Value, field: &str, causes: &mut Vec<Cause>) {
    let key = word(term, "topologyKey");
    if key.is_empty() {
        causes.push(Cause::required(format!("{field}.topologyKey"), "can not be empty"));
    } else if let Some(text) = names::qualified(key) {
        causes.push(Cause::invalid(format!("{field}.topologyKey"), key, &text));
    }
}

fn spreading(spec: &Value, causes: &mut Vec<Cause>) {
    for (index, rule) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let field = format!("spec.topologySpreadConstraints[{index}]");
        let skew = rule["maxSkew"].as_i64().unwrap_or(0);
        if skew < 1 {
            causes.push(Cause::invalid(format!("{field}.maxSkew"), skew, "must be greater than zero"));
        }
        topology_key(rule, &field, causes);
        let otherwise = word(rule, "whenUnsatisfiable");
        if !UNSATISFIABLE.contains(&otherwise) {
            causes.push(Cause::not_supported(format!("{field}.whenUnsatisfiable"), otherwise, &UNSATISFIABLE));
        }
        let same = |other: &&Value| ["topologyKey", "whenUnsatisfiable"].into_iter().all(|key| other[key] == rule[key]);
        if list(spec, "topologySpreadConstraints").iter().take(index).any(|other| same(&other)) {
            let pair = format!("{{{}, {otherwise}}}", word(rule, "topologyKey"));
            causes.push(Cause::duplicate(format!("{field}.{{topologyKey, whenUnsatisfiable}}"), pair));
        }
        domains(rule, otherwise, &field, causes);
        if rule["labelSelector"].is_object() {
            selector::validate(&rule["labelSelector"], &format!("{field}.labelSelector"), causes);
        }
    }
}

/// Mistakes in which nodes and pods a rule counts.
fn domains(rule: &Value, otherwise: &str, field: &str, causes: &mut Vec<Cause>) {
    if let Some(least) = rule["minDomains"].as_i64() {
        let field = format!("{field}.minDomains");
        if least <= 0 {
            causes.push(Cause::invalid(&field, least, "must be greater than zero"));
        }
        if otherwise != "DoNotSchedule" {
            let text = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {otherwise}");
            causes.push(Cause::invalid(&field, least, &text));
        }
    }
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        if let Some(policy) = rule[key].as_str().filter(|policy| !INCLUSION.contains(policy)) {
            causes.push(Cause::not_supported(format!("{field}.{key}"), policy, &INCLUSION));
        }
    }
    let keys = list(rule, "matchLabelKeys");
    if !keys.is_empty() && !rule["labelSelector"].is_object() {
        causes.push(Cause::forbidden(
            format!("{field}.matchLabelKeys"),
            "must not be specified when labelSelector is not set",
        ));
    }
    for (index, key) in keys.iter().enumerate() {
        let key = key.as_str().unwrap_or_default();
        if let Some(text) = names::qualified(key) {
            causes.push(Cause::invalid(format!("{field}.matchLabelKeys[{index}]"), key, &text));
        }
    }
}

/// What is wrong with a change of where a pod that still waits behind a gate may run: it may only become narrower.
pub(super) fn validate_tightening(was: &Value, is: &Value, causes: &mut Vec<Cause>) {
    let wanted = was["nodeSelector"].as_object();
    if wanted.into_iter().flatten().any(|(key, value)| is["nodeSelector"].get(key) != Some(value)) {
        let text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        causes.push(Cause::invalid("spec.nodeSelector", is["nodeSelector"].clone(), text));
    }
    let terms = |spec: &Value| list(&spec["affinity"]["nodeAffinity"][REQUIRED], "nodeSelectorTerms").to_vec();
    let (before, after) = (terms(was), terms(is));
    let field = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    if !before.is_empty() && before.len() != after.len() {
        let text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        causes.push(Cause::invalid(field, Value::from(after), text));
        return;
    }
    for (index, (before, after)) in before.iter().zip(&after).enumerate() {
        let grows = |key: &str| list(after, key).starts_with(list(before, key));
        let was_empty = list(before, "matchExpressions").is_empty() && list(before, "matchFields").is_empty();
        // An empty term matches nothing, so whatever replaces it matches more.
        if (was_empty && before != after) || !grows("matchExpressions") || !grows("matchFields") {
            let text = "only additions are allowed (no mutations or deletions)";
            causes.push(Cause::invalid(format!("{field}[{index}]"), after.clone(), text));
        }
    }
}
