//! Kinds that are served as data, in one line each.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Column, NAME, or_none, since};
use crate::meta;
use crate::rules::value::{list, word};

const fn plain(name: &'static str, description: &'static str) -> Column {
    Column(name, "string", "", 0, description)
}

const fn yes_or_no(name: &'static str, description: &'static str) -> Column {
    Column(name, "boolean", "", 0, description)
}

const fn count(name: &'static str, description: &'static str) -> Column {
    Column(name, "integer", "", 0, description)
}

const DRIVER: [Column; 8] = [
    NAME,
    yes_or_no("AttachRequired", "Whether its volumes are attached before they are mounted."),
    yes_or_no("PodInfoOnMount", "Whether it is told of the pod."),
    yes_or_no("StorageCapacity", "Whether it tells how much it can make."),
    plain("TokenRequests", "Audiences of the tokens that it is given."),
    yes_or_no("RequiresRepublish", "Whether it is asked again and again."),
    plain("Modes", "How long its volumes last."),
    AGE,
];
const DRIVERS: [Column; 3] = [NAME, count("Drivers", "How many drivers the node has."), AGE];
const CAPACITY: [Column; 4] =
    [NAME, plain("StorageClassName", "The class of the volumes."), plain("Capacity", "How much can be made."), AGE];
const ATTACHMENT: [Column; 6] = [
    NAME,
    plain("Attacher", "Who attaches it."),
    plain("PV", "The volume."),
    plain("Node", "The node."),
    yes_or_no("Attached", "Whether it is attached."),
    AGE,
];
const ATTRIBUTES: [Column; 3] = [NAME, plain("DriverName", "Whose attributes they are."), AGE];
const CIDR: [Column; 3] = [NAME, plain("CIDRs", "The addresses."), AGE];
const ADDRESS: [Column; 3] = [NAME, plain("ParentRef", "What has the address."), AGE];
const FLOW: [Column; 6] = [
    NAME,
    plain("PriorityLevel", "Its priority level."),
    count("MatchingPrecedence", "Its place among others that match."),
    plain("DistinguisherMethod", "By what requests are told apart."),
    AGE,
    plain("MissingPL", "Whether the priority level is missing."),
];
const LEVEL: [Column; 7] = [
    NAME,
    plain("Type", "Whether it is limited."),
    plain("NominalConcurrencyShares", "Its share of the seats."),
    plain("Queues", "How many queues it has."),
    plain("HandSize", "How many of them a flow may use."),
    plain("QueueLengthLimit", "How many requests wait in one of them."),
    AGE,
];
const NAMED: [Column; 2] = [NAME, AGE];
const STATE: [Column; 3] = [NAME, plain("State", "Whether it was given what it asks for."), AGE];
const SLICE: [Column; 5] = [
    NAME,
    plain("Node", "The node that has the devices."),
    plain("Driver", "Whose devices they are."),
    plain("Pool", "The pool of the devices."),
    AGE,
];

/// The columns of a collection, if it is one of these.
pub(super) fn columns(collection: &str) -> Option<&'static [Column]> {
    Some(match collection {
        "csidrivers.storage.k8s.io" => &DRIVER,
        "csinodes.storage.k8s.io" => &DRIVERS,
        "csistoragecapacities.storage.k8s.io" => &CAPACITY,
        "volumeattachments.storage.k8s.io" => &ATTACHMENT,
        "volumeattributesclasses.storage.k8s.io" => &ATTRIBUTES,
        "servicecidrs.networking.k8s.io" => &CIDR,
        "ipaddresses.networking.k8s.io" => &ADDRESS,
        "flowschemas.flowcontrol.apiserver.k8s.io" => &FLOW,
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => &LEVEL,
        "deviceclasses.resource.k8s.io" | "resourceclaimtemplates.resource.k8s.io" => &NAMED,
        "resourceclaims.resource.k8s.io" => &STATE,
        "resourceslices.resource.k8s.io" => &SLICE,
        _ => return None,
    })
}

/// Words of a list in one cell.
fn joined(values: &[Value]) -> String {
    values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// A number, `<none>` if it is not there.
fn number(value: &Value) -> Value {
    or_none(&value.as_i64().map(|number| number.to_string()).unwrap_or_default())
}

/// The cells of `object`, if its collection is one of these.
pub(super) fn cells(collection: &str, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let name = json!(meta::name(object));
    let age = json!(since(meta::creation_timestamp(object), now));
    let spec = &object["spec"];
    let is = |key: &str| json!(spec[key] == json!(true));
    Some(match collection {
        "csidrivers.storage.k8s.io" => {
            let audiences: Vec<Value> = list(spec, "tokenRequests").iter().map(|own| own["audience"].clone()).collect();
            let tokens = if audiences.is_empty() { json!("<unset>") } else { json!(joined(&audiences)) };
            let modes = json!(joined(list(spec, "volumeLifecycleModes")));
            let (attach, info, capacity) = (is("attachRequired"), is("podInfoOnMount"), is("storageCapacity"));
            vec![name, attach, info, capacity, tokens, is("requiresRepublish"), modes, age]
        }
        "csinodes.storage.k8s.io" => vec![name, json!(list(spec, "drivers").len()), age],
        "csistoragecapacities.storage.k8s.io" => {
            vec![name, json!(word(object, "storageClassName")), json!(word(object, "capacity")), age]
        }
        "volumeattachments.storage.k8s.io" => vec![
            name,
            json!(word(spec, "attacher")),
            json!(word(&spec["source"], "persistentVolumeName")),
            json!(word(spec, "nodeName")),
            json!(object["status"]["attached"] == json!(true)),
            age,
        ],
        "volumeattributesclasses.storage.k8s.io" => vec![name, json!(word(object, "driverName")), age],
        "servicecidrs.networking.k8s.io" => vec![name, json!(joined(list(spec, "cidrs"))), age],
        "ipaddresses.networking.k8s.io" => {
            let parent = &spec["parentRef"];
            let parts = ["group", "resource", "namespace", "name"].map(|key| word(parent, key));
            let words: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            vec![name, json!(words.join("/")), age]
        }
        "flowschemas.flowcontrol.apiserver.k8s.io" => {
            let mut conditions = list(&object["status"], "conditions").iter();
            let missing = conditions.find(|own| own["type"] == "Dangling").map_or("?", |own| word(own, "status"));
            vec![
                name,
                json!(word(&spec["priorityLevelConfiguration"], "name")),
                spec["matchingPrecedence"].clone(),
                or_none(word(&spec["distinguisherMethod"], "type")),
                age,
                json!(missing),
            ]
        }
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => {
            let limited = &spec["limited"];
            let queuing = &limited["limitResponse"]["queuing"];
            let shares = if limited.is_object() { limited } else { &spec["exempt"] };
            vec![
                name,
                json!(word(spec, "type")),
                number(&shares["nominalConcurrencyShares"]),
                number(&queuing["queues"]),
                number(&queuing["handSize"]),
                number(&queuing["queueLengthLimit"]),
                age,
            ]
        }
        "deviceclasses.resource.k8s.io" | "resourceclaimtemplates.resource.k8s.io" => vec![name, age],
        "resourceclaims.resource.k8s.io" => {
            let status = &object["status"];
            let mut states = Vec::new();
            if meta::deletion_timestamp(object).is_some() {
                states.push("deleted");
            }
            match (status["allocation"].is_object(), list(status, "reservedFor").is_empty()) {
                (false, _) if states.is_empty() => states.push("pending"),
                (false, _) => {}
                (true, true) => states.push("allocated"),
                (true, false) => states.extend(["allocated", "reserved"]),
            }
            vec![name, json!(states.join(",")), age]
        }
        "resourceslices.resource.k8s.io" => {
            let node = if spec["allNodes"] == json!(true) { "<all>" } else { word(spec, "nodeName") };
            vec![name, or_none(node), json!(word(spec, "driver")), json!(word(&spec["pool"], "name")), age]
        }
        _ => return None,
    })
}
