//! Services: one stable address for many pods. What is allocated for them is decided in [`allocation`].

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::value::{child, each_mut, list, put, word};
use super::{Rules, names, typed_with_conditions};
use crate::meta;
use crate::status::Cause;

pub mod allocation;

pub(crate) struct ServiceRules;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const HEADLESS: &str = "None";

impl Rules for ServiceRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_with_conditions::<Service>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::Label
    }

    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        put(spec, "type", "ClusterIP");
        put(spec, "sessionAffinity", "None");
        let kind = spec["type"].as_str().unwrap_or_default().to_owned();
        if spec["sessionAffinity"] == "ClientIP" {
            put(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10800);
        } else {
            spec.remove("sessionAffinityConfig");
        }
        if kind != "ExternalName" {
            put(spec, "internalTrafficPolicy", "Cluster");
        }
        let outside = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
        if takes_node_ports(&kind) || outside {
            put(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            put(spec, "allocateLoadBalancerNodePorts", true);
        }
        for port in each_mut(spec, "ports") {
            put(port, "protocol", "TCP");
            // Clients that are typed write 0 where nothing was said.
            if port.get("targetPort").and_then(Value::as_i64) == Some(0) {
                port.remove("targetPort");
            }
            if let Some(number) = port.get("port").cloned() {
                put(port, "targetPort", number);
            }
        }
        // The two spellings of the address go together; the older one wins where only it is said.
        let (one, many) = (word(&object["spec"], "clusterIP").to_owned(), list(&object["spec"], "clusterIPs").to_vec());
        let spec = meta::child_mut(object, "spec");
        if !one.is_empty() && many.is_empty() {
            spec.insert("clusterIPs".to_owned(), json!([one]));
        }
    }

    fn before_create(&self, object: &mut Value) -> Result<(), String> {
        object["status"] = json!({ "loadBalancer": {} });
        Ok(())
    }

    /// What was allocated stays, unless the client says otherwise or no longer needs it.
    fn before_update(&self, old: &Value, new: &mut Value) {
        allocation::carry_over(old, new);
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let spec = &object["spec"];
        let kind = word(spec, "type");
        let address = word(spec, "clusterIP");
        if !TYPES.contains(&kind) {
            causes.push(Cause::not_supported("spec.type", kind, &TYPES));
        }
        if address == HEADLESS && takes_node_ports(kind) {
            let text = format!("may not be set to 'None' for {kind} services");
            causes.push(Cause::invalid("spec.clusterIPs[0]", HEADLESS, &text));
        }
        if kind == "ExternalName" {
            let name = word(spec, "externalName").trim_end_matches('.');
            if !address.is_empty() {
                causes.push(Cause::forbidden("spec.clusterIPs[0]", "may not be set for ExternalName services"));
            }
            if name.is_empty() {
                causes.push(Cause::required("spec.externalName", ""));
            } else if let Some(text) = names::subdomain(name) {
                causes.push(Cause::invalid("spec.externalName", word(spec, "externalName"), &text));
            }
        }
        if !address.is_empty() && address != HEADLESS && address.parse::<std::net::IpAddr>().is_err() {
            let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid("spec.clusterIPs[0]", address, text));
        }
        one_of(spec, "sessionAffinity", &["ClientIP", "None"], causes);
        one_of(spec, "internalTrafficPolicy", &["Cluster", "Local"], causes);
        one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"], causes);
        for (key, value) in spec["selector"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            for text in [names::qualified(key), names::label_value(value)].into_iter().flatten() {
                causes.push(Cause::invalid("spec.selector", key.as_str(), &text));
            }
        }
        if list(spec, "ports").is_empty() && address != HEADLESS && kind != "ExternalName" {
            causes.push(Cause::required("spec.ports", ""));
        }
        ports(spec, kind, causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        let is_external = |object: &Value| word(&object["spec"], "type") == "ExternalName";
        let (was, is) = (word(&old["spec"], "clusterIP"), word(&new["spec"], "clusterIP"));
        if !was.is_empty() && was != is && !is_external(old) && !is_external(new) {
            let text = "may not change once set";
            causes.push(Cause::invalid("spec.clusterIPs[0]", json!([is]), text));
        }
    }
}

fn one_of(spec: &Value, key: &str, words: &[&str], causes: &mut Vec<Cause>) {
    let value = word(spec, key);
    if !value.is_empty() && !words.contains(&value) {
        causes.push(Cause::not_supported(format!("spec.{key}"), value, words));
    }
}

/// Whether services of this type are also reached through their nodes.
pub(super) fn takes_node_ports(kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
}

fn ports(spec: &Value, kind: &str, causes: &mut Vec<Cause>) {
    let all = list(spec, "ports");
    let mut names_seen = std::collections::BTreeSet::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, port) in all.iter().enumerate() {
        let field = |key: &str| format!("spec.ports[{index}].{key}");
        match word(port, "name") {
            "" if all.len() > 1 => causes.push(Cause::required(field("name"), "")),
            "" => {}
            name => {
                if let Some(text) = names::label(name) {
                    causes.push(Cause::invalid(field("name"), name, &text));
                } else if !names_seen.insert(name) {
                    causes.push(Cause::duplicate(field("name"), name));
                }
            }
        }
        let number = port["port"].as_i64().unwrap_or_default();
        in_range(field("port"), number, causes);
        let protocol = word(port, "protocol");
        if !PROTOCOLS.contains(&protocol) {
            causes.push(Cause::not_supported(field("protocol"), protocol, &PROTOCOLS));
        }
        match &port["targetPort"] {
            Value::Number(target) => in_range(field("targetPort"), target.as_i64().unwrap_or_default(), causes),
            Value::String(name) => {
                if let Some(text) = names::port_name(name) {
                    causes.push(Cause::invalid(field("targetPort"), name.as_str(), &text));
                }
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
        if !seen.insert((protocol, number)) {
            causes.push(Cause::duplicate(format!("spec.ports[{index}]"), format!("{protocol}/{number}")));
        }
        if port["nodePort"].as_i64().is_some_and(|port| port != 0) && !takes_node_ports(kind) {
            let text = format!("may not be used when `type` is '{kind}'");
            causes.push(Cause::forbidden(field("nodePort"), &text));
        }
    }
}

fn in_range(field: String, number: i64, causes: &mut Vec<Cause>) {
    if !(1..=65535).contains(&number) {
        causes.push(Cause::invalid(field, number, "must be between 1 and 65535, inclusive"));
    }
}
