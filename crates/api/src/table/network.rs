//! Services and what is behind them, in one line each.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::workload::selector_text;
use super::{AGE, Column, NAME, NONE, since, text};
use crate::meta;
use crate::rules::value::{list, word};

pub(super) const SERVICE: [Column; 7] = [
    NAME,
    Column("Type", "string", "", 0, "How the service is reached."),
    Column("Cluster-IP", "string", "", 0, "Its address inside the cluster."),
    Column("External-IP", "string", "", 0, "Its addresses outside the cluster."),
    Column("Port(s)", "string", "", 0, "Its ports, with those of the nodes."),
    AGE,
    Column("Selector", "string", "", 1, "Which pods are behind it."),
];
pub(super) const ENDPOINTS: [Column; 3] = [NAME, Column("Endpoints", "string", "", 0, "Where the pods are."), AGE];
pub(super) const SLICE: [Column; 5] = [
    NAME,
    Column("AddressType", "string", "", 0, "What kind of addresses it holds."),
    Column("Ports", "string", "", 0, "The ports of every endpoint."),
    Column("Endpoints", "string", "", 0, "Where the pods are."),
    AGE,
];
pub(super) const INGRESS: [Column; 6] = [
    NAME,
    Column("Class", "string", "", 0, "Who serves it."),
    Column("Hosts", "string", "", 0, "The names it answers to."),
    Column("Address", "string", "", 0, "Where it is reached."),
    Column("Ports", "string", "", 0, "The ports it listens on."),
    AGE,
];

/// Most addresses shown before the rest is only counted.
const SHOWN: usize = 3;

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let address = match word(spec, "clusterIP") {
        "" => NONE,
        address => address,
    };
    let ports: Vec<String> = list(spec, "ports")
        .iter()
        .map(|port| {
            let node = port["nodePort"].as_i64().filter(|port| *port != 0).map(|port| format!(":{port}"));
            format!("{}{}/{}", port["port"], node.unwrap_or_default(), word(port, "protocol"))
        })
        .collect();
    vec![
        json!(meta::name(object)),
        json!(word(spec, "type")),
        json!(address),
        json!(external(object)),
        json!(if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }),
        json!(since(meta::creation_timestamp(object), now)),
        json!(selector_text(&json!({ "matchLabels": spec["selector"] }))),
    ]
}

fn external(service: &Value) -> String {
    let spec = &service["spec"];
    let mut addresses: Vec<&str> = list(spec, "externalIPs").iter().filter_map(Value::as_str).collect();
    match word(spec, "type") {
        "ExternalName" => return word(spec, "externalName").to_owned(),
        "LoadBalancer" => {
            let given: Vec<&str> = ingress_addresses(service);
            if given.is_empty() && addresses.is_empty() {
                return "<pending>".to_owned();
            }
            addresses.splice(0..0, given);
        }
        _ => {}
    }
    if addresses.is_empty() { NONE.to_owned() } else { addresses.join(",") }
}

fn ingress_addresses(object: &Value) -> Vec<&str> {
    let ingress = list(&object["status"]["loadBalancer"], "ingress").iter();
    ingress.map(|each| if text(&each["ip"]).is_empty() { text(&each["hostname"]) } else { text(&each["ip"]) }).collect()
}

/// The first few, and how many more there are.
fn clipped(all: &[String]) -> String {
    match all.len() {
        0 => NONE.to_owned(),
        count if count > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN),
        _ => all.join(","),
    }
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| word(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(ToOwned::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|address| format!("{address}:{}", port["port"])));
        }
    }
    let age = since(meta::creation_timestamp(object), now);
    vec![json!(meta::name(object)), json!(clipped(&all)), json!(age)]
}

pub(super) fn slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(object, "ports")
        .iter()
        .map(|port| port["port"].as_i64().map_or_else(|| "*".to_owned(), |port| port.to_string()))
        .collect();
    let addresses: Vec<String> = list(object, "endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "addresses"))
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect();
    let none = |text: String| if text.is_empty() { "<unset>".to_owned() } else { text };
    vec![
        json!(meta::name(object)),
        json!(word(object, "addressType")),
        json!(if ports.is_empty() { none(String::new()) } else { clipped(&ports) }),
        json!(if addresses.is_empty() { none(String::new()) } else { clipped(&addresses) }),
        json!(since(meta::creation_timestamp(object), now)),
    ]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let hosts: Vec<String> =
        list(spec, "rules").iter().map(|rule| word(rule, "host").to_owned()).filter(|host| !host.is_empty()).collect();
    let class = word(spec, "ingressClassName");
    vec![
        json!(meta::name(object)),
        json!(if class.is_empty() { NONE } else { class }),
        json!(if hosts.is_empty() { "*".to_owned() } else { clipped(&hosts) }),
        json!(ingress_addresses(object).join(",")),
        json!(if list(spec, "tls").is_empty() { "80" } else { "80, 443" }),
        json!(since(meta::creation_timestamp(object), now)),
    ]
}
