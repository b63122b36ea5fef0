//! Mistakes in a pod's spec (api-surface 19).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{container, dns, ephemeral, list, scheduling, security, volume, word};
use crate::rules::names;
use crate::status::Cause;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PREEMPTION: [&str; 2] = ["Never", "PreemptLowerPriority"];
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const OS_NAMES: [&str; 2] = ["linux", "windows"];

/// Everything that is wrong with the pod's spec that stands at `field`.
///
/// `claims` are volumes that the pods will have besides those of the spec.
pub(crate) fn spec_at(field: &str, value: &Value, claims: &[&str], causes: &mut Vec<Cause>) {
    let mut found = Vec::new();
    spec_with(value, claims, &mut found);
    for cause in &mut found {
        cause.field = cause.field.replacen("spec", field, 1);
    }
    causes.extend(found);
}

/// Everything that is wrong with a pod's spec.
pub(super) fn spec(spec: &Value, causes: &mut Vec<Cause>) {
    spec_with(spec, &[], causes);
    if !word(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        let text = "cannot be set until all schedulingGates have been cleared";
        causes.push(Cause::forbidden("spec.nodeName", text));
    }
}

fn spec_with(spec: &Value, claims: &[&str], causes: &mut Vec<Cause>) {
    one_of(spec, "restartPolicy", &RESTART_POLICIES, causes);
    one_of(spec, "dnsPolicy", &DNS_POLICIES, causes);
    one_of(spec, "preemptionPolicy", &PREEMPTION, causes);
    if spec["os"].is_object() {
        match word(&spec["os"], "name") {
            "" => causes.push(Cause::required("spec.os.name", "")),
            name if !OS_NAMES.contains(&name) => {
                causes.push(Cause::not_supported("spec.os.name", name, &OS_NAMES));
            }
            _ => {}
        }
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let text = "must be between 1 and 2147483647, inclusive";
        causes.push(Cause::invalid("spec.activeDeadlineSeconds", seconds, text));
    }
    dns::validate(&spec["dnsConfig"], causes);
    if word(spec, "dnsPolicy") == "None" && list(&spec["dnsConfig"], "nameservers").is_empty() {
        let text = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        causes.push(Cause::required("spec.dnsConfig.nameservers", text));
    }
    named(spec, "nodeName", names::subdomain, causes);
    named(spec, "serviceAccountName", names::subdomain, causes);
    named(spec, "schedulerName", names::qualified, causes);
    named(spec, "hostname", names::label, causes);
    named(spec, "subdomain", names::label, causes);
    tolerations(spec, causes);
    host_aliases(spec, causes);
    scheduling::validate(spec, causes);
    security::validate(spec, causes);
    let mut volumes = volume::validate(list(spec, "volumes"), causes);
    volumes.extend(claims);
    containers(spec, &volumes, causes);
    ephemeral::validate(spec, causes);
}

fn containers(spec: &Value, volumes: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    if list(spec, "containers").is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    let mut names_seen = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for key in super::CONTAINER_LISTS {
        for (index, container) in list(spec, key).iter().enumerate() {
            let field = format!("spec.{key}[{index}]");
            let name = word(container, "name");
            if !name.is_empty() && !names_seen.insert(name) {
                causes.push(Cause::duplicate(format!("{field}.name"), name));
            }
            container::Check { spec, field, kind: container::Role::of(key, container), volumes }.run(
                container,
                &mut host_ports,
                causes,
            );
        }
    }
}

fn host_aliases(spec: &Value, causes: &mut Vec<Cause>) {
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let field = format!("spec.hostAliases[{index}]");
        let ip = word(alias, "ip");
        if ip.parse::<std::net::IpAddr>().is_err() {
            let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(format!("{field}.ip"), ip, text));
        }
        for (at, name) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            if let Some(text) = names::subdomain(name) {
                causes.push(Cause::invalid(format!("{field}.hostnames[{at}]"), name, &text));
            }
        }
    }
}

fn tolerations(spec: &Value, causes: &mut Vec<Cause>) {
    for (index, toleration) in list(spec, "tolerations").iter().enumerate() {
        let field = |key: &str| format!("spec.tolerations[{index}].{key}");
        let (key, operator) = (word(toleration, "key"), word(toleration, "operator"));
        let (value, effect) = (word(toleration, "value"), word(toleration, "effect"));
        if !key.is_empty()
            && let Some(text) = names::qualified(key)
        {
            causes.push(Cause::invalid(field("key"), key, &text));
        }
        if key.is_empty() && operator != "Exists" {
            let text = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            causes.push(Cause::invalid(field("operator"), operator, text));
        }
        if toleration["tolerationSeconds"].is_i64() && effect != "NoExecute" {
            let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.push(Cause::invalid(field("effect"), effect, text));
        }
        match operator {
            "" | "Equal" => {
                if let Some(text) = names::label_value(value) {
                    causes.push(Cause::invalid(field("operator"), value, &text));
                }
            }
            "Exists" if !value.is_empty() => {
                let text = "value must be empty when `operator` is 'Exists'";
                causes.push(Cause::invalid(field("operator"), Value::from(value), text));
            }
            "Exists" => {}
            other => causes.push(Cause::not_supported(field("operator"), other, &["Equal", "Exists"])),
        }
        if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
            causes.push(Cause::not_supported(field("effect"), effect, &TAINT_EFFECTS));
        }
    }
}

fn one_of(spec: &Value, key: &str, words: &[&str], causes: &mut Vec<Cause>) {
    let value = word(spec, key);
    if !value.is_empty() && !words.contains(&value) {
        causes.push(Cause::not_supported(format!("spec.{key}"), value, words));
    }
}

fn named(spec: &Value, key: &str, rule: fn(&str) -> Option<String>, causes: &mut Vec<Cause>) {
    let value = word(spec, key);
    if !value.is_empty()
        && let Some(text) = rule(value)
    {
        causes.push(Cause::invalid(format!("spec.{key}"), value, &text));
    }
}
