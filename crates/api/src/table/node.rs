//! A node in one line.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Column, NAME, NONE, or_none, since, text};
use crate::meta;

pub(super) const COLUMNS: [Column; 10] = [
    NAME,
    Column("Status", "string", "", 0, "Whether the node is ready and takes new pods."),
    Column("Roles", "string", "", 0, "What the node is for."),
    AGE,
    Column("Version", "string", "", 0, "The version of the node's agent."),
    Column("Internal-IP", "string", "", 1, "The node's address inside the cluster."),
    Column("External-IP", "string", "", 1, "The node's address outside the cluster."),
    Column("OS-Image", "string", "", 1, "The node's operating system."),
    Column("Kernel-Version", "string", "", 1, "The node's kernel."),
    Column("Container-Runtime", "string", "", 1, "What runs the node's containers."),
];

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

pub(super) fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = &node["status"]["nodeInfo"];
    let or_unknown = |key: &str| {
        let word = text(&info[key]);
        json!(if word.is_empty() { "<unknown>" } else { word })
    };
    vec![
        json!(meta::name(node)),
        json!(status(node)),
        json!(roles(node)),
        json!(since(meta::creation_timestamp(node), now)),
        json!(text(&info["kubeletVersion"])),
        or_none(address(node, "InternalIP")),
        or_none(address(node, "ExternalIP")),
        or_unknown("osImage"),
        or_unknown("kernelVersion"),
        or_unknown("containerRuntimeVersion"),
    ]
}

fn status(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|c| c["type"] == "Ready");
    let mut words = vec![match ready.map(|c| text(&c["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node["spec"]["unschedulable"] == json!(true) {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = meta::labels(node)
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { NONE.to_owned() } else { roles.join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let addresses = node["status"]["addresses"].as_array();
    addresses.into_iter().flatten().find(|a| a["type"] == kind).map_or("", |a| text(&a["address"]))
}
