//! Endpoints and EndpointSlices: where the pods behind a service are.

use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use super::value::{each_mut, list, put, word};
use super::{Rules, names, typed_as};
use crate::status::Cause;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const SLICE_MAX: usize = 1000;
const SLICE_PORTS_MAX: usize = 20000;

pub(crate) struct EndpointsRules;

impl Rules for EndpointsRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Endpoints>(object)
    }

    fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        for subset in each_mut(map, "subsets") {
            for port in each_mut(subset, "ports") {
                put(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        for (index, subset) in list(object, "subsets").iter().enumerate() {
            let field = format!("subsets[{index}]");
            if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
                causes.push(Cause::required(&field, "must specify `addresses` or `notReadyAddresses`"));
            }
            for key in ["addresses", "notReadyAddresses"] {
                for (at, address) in list(subset, key).iter().enumerate() {
                    address_is_valid(word(address, "ip"), &format!("{field}.{key}[{at}].ip"), causes);
                }
            }
            let ports = list(subset, "ports");
            for (at, port) in ports.iter().enumerate() {
                port_is_valid(port, &format!("{field}.ports[{at}]"), ports.len() > 1, true, causes);
            }
        }
    }
}

pub(crate) struct EndpointSliceRules;

impl Rules for EndpointSliceRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<EndpointSlice>(object)
    }

    fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        for port in each_mut(map, "ports") {
            if port.get("name").is_none_or(Value::is_null) {
                port.insert("name".to_owned(), Value::from(""));
            }
            put(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        let types = ["FQDN", "IPv4", "IPv6"];
        let kind = word(object, "addressType");
        if kind.is_empty() {
            causes.push(Cause::required("addressType", ""));
        } else if !types.contains(&kind) {
            causes.push(Cause::not_supported("addressType", kind, &types));
        }
        let endpoints = list(object, "endpoints");
        if endpoints.len() > SLICE_MAX {
            causes.push(Cause::too_many("endpoints", endpoints.len(), SLICE_MAX));
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let field = format!("endpoints[{index}].addresses");
            let addresses = list(endpoint, "addresses");
            if addresses.is_empty() {
                causes.push(Cause::required(&field, "must contain at least 1 address"));
            }
            for (at, address) in addresses.iter().enumerate().filter(|_| kind != "FQDN") {
                let text = address.as_str().unwrap_or_default();
                let field = format!("{field}[{at}]");
                match (kind, text.parse::<std::net::IpAddr>()) {
                    ("IPv4", Ok(std::net::IpAddr::V6(_))) => {
                        causes.push(Cause::invalid(field, text, "must be an IPv4 address"));
                    }
                    ("IPv6", Ok(std::net::IpAddr::V4(_))) => {
                        causes.push(Cause::invalid(field, text, "must be an IPv6 address"));
                    }
                    _ => address_is_valid(text, &field, causes),
                }
            }
        }
        let ports = list(object, "ports");
        if ports.len() > SLICE_PORTS_MAX {
            causes.push(Cause::too_many("ports", ports.len(), SLICE_PORTS_MAX));
        }
        let mut seen = std::collections::BTreeSet::new();
        for (at, port) in ports.iter().enumerate() {
            port_is_valid(port, &format!("ports[{at}]"), false, false, causes);
            if !seen.insert(word(port, "name")) {
                causes.push(Cause::duplicate(format!("ports[{at}].name"), word(port, "name")));
            }
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        super::workload::immutable(old, new, "addressType", causes);
    }
}

fn address_is_valid(text: &str, field: &str, causes: &mut Vec<Cause>) {
    if text.parse::<std::net::IpAddr>().is_err() {
        let sentence = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        causes.push(Cause::invalid(field, text, sentence));
    }
}

fn port_is_valid(port: &Value, field: &str, needs_name: bool, needs_number: bool, causes: &mut Vec<Cause>) {
    match word(port, "name") {
        "" if needs_name => causes.push(Cause::required(format!("{field}.name"), "")),
        "" => {}
        name => {
            if let Some(text) = names::label(name) {
                causes.push(Cause::invalid(format!("{field}.name"), name, &text));
            }
        }
    }
    match port["port"].as_i64() {
        Some(number) if !(1..=65535).contains(&number) => {
            causes.push(Cause::invalid(format!("{field}.port"), number, "must be between 1 and 65535, inclusive"));
        }
        None if needs_number => causes.push(Cause::required(format!("{field}.port"), "")),
        Some(_) | None => {}
    }
    let protocol = word(port, "protocol");
    if !PROTOCOLS.contains(&protocol) {
        causes.push(Cause::not_supported(format!("{field}.protocol"), protocol, &PROTOCOLS));
    }
}
