//! What `kubectl get` shows: columns and cells, computed when asked.
//!
//! All columns are always sent; `priority: 1` marks those of `-o wide`. Kinds without a printer show their name and
//! when they were created.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::{meta, time};

mod age;
mod certificates;
mod event;
mod network;
mod node;
mod pod;
mod policy;
mod served;
mod termination_record;
mod workload;

pub(crate) use age::human_duration;
pub use age::since;

/// One column: name, type, format, priority, description.
struct Column(&'static str, &'static str, &'static str, u8, &'static str);

const NAME: Column = Column("Name", "string", "name", 0, "Name must be unique within a namespace.");
const AGE: Column = Column("Age", "string", "", 0, "Time since the object was created.");
/// The table of kinds without a printer.
const CREATED: [Column; 2] = [NAME, Column("Created At", "date", "", 0, "When the object was created.")];
const NONE: &str = "<none>";

/// `columnDefinitions` of a kind's table.
pub fn columns(kind: &Kind) -> Value {
    let columns: &[Column] = match kind.collection() {
        "pods" => &pod::COLUMNS,
        "nodes" => &node::COLUMNS,
        "events" => &event::COLUMNS,
        "namespaces" => &[NAME, Column("Status", "string", "", 0, "The status of the namespace"), AGE],
        "configmaps" => &[NAME, Column("Data", "string", "", 0, "Number of entries."), AGE],
        "secrets" => &[
            NAME,
            Column("Type", "string", "", 0, "What the secret is for."),
            Column("Data", "string", "", 0, "Number of entries."),
            AGE,
        ],
        "serviceaccounts" => &[NAME, AGE],
        "certificatesigningrequests.certificates.k8s.io" => &certificates::SIGNING_REQUEST,
        "leases.coordination.k8s.io" => &[NAME, Column("Holder", "string", "", 0, "Who holds the lease."), AGE],
        "deployments.apps" => &workload::DEPLOYMENT,
        "replicasets.apps" | "replicationcontrollers" => &workload::REPLICA_SET,
        "statefulsets.apps" => &workload::STATEFUL_SET,
        "daemonsets.apps" => &workload::DAEMON_SET,
        "scales.autoscaling" => &workload::SCALE,
        "jobs.batch" => &workload::JOB,
        "cronjobs.batch" => &workload::CRON_JOB,
        "services" => &network::SERVICE,
        "endpoints" => &network::ENDPOINTS,
        "endpointslices.discovery.k8s.io" => &network::SLICE,
        "ingresses.networking.k8s.io" => &network::INGRESS,
        crate::termination::COLLECTION => &termination_record::COLUMNS,
        _ if kind.is_added() => &[NAME, AGE],
        other => policy::columns(other).or_else(|| served::columns(other)).unwrap_or(&CREATED),
    };
    columns
        .iter()
        .map(|Column(name, kind, format, priority, description)| {
            json!({
                "name": name, "type": kind, "format": format, "description": description, "priority": priority,
            })
        })
        .collect()
}

/// The cells of one object's row, one per column.
pub fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(meta::name(object));
    let age = json!(since(meta::creation_timestamp(object), now));
    let entries = |key: &str| object[key].as_object().map_or(0, serde_json::Map::len);
    match kind.collection() {
        "pods" => pod::cells(object, now),
        "nodes" => node::cells(object, now),
        "events" => event::cells(object, now),
        "namespaces" => vec![name, json!(text(&object["status"]["phase"])), age],
        "configmaps" => vec![name, json!((entries("data") + entries("binaryData")).to_string()), age],
        "secrets" => vec![name, json!(text(&object["type"])), json!(entries("data").to_string()), age],
        "serviceaccounts" => vec![name, age],
        "leases.coordination.k8s.io" => vec![name, json!(text(&object["spec"]["holderIdentity"])), age],
        "certificatesigningrequests.certificates.k8s.io" => certificates::signing_request(object, now),
        "services" => network::service(object, now),
        "endpoints" => network::endpoints(object, now),
        "endpointslices.discovery.k8s.io" => network::slice(object, now),
        "ingresses.networking.k8s.io" => network::ingress(object, now),
        collection @ ("deployments.apps"
        | "replicasets.apps"
        | "replicationcontrollers"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "scales.autoscaling"
        | "jobs.batch"
        | "cronjobs.batch") => workload::cells(collection, object, now),
        crate::termination::COLLECTION => termination_record::cells(object, now),
        _ if kind.is_added() => vec![name, age],
        other => policy::cells(other, object, now)
            .or_else(|| served::cells(other, object, now))
            .unwrap_or_else(|| vec![name, json!(meta::creation_timestamp(object).map(time::seconds))]),
    }
}

/// `conditions` of one object's row: a pod that has ended says so.
pub fn row_conditions(kind: &Kind, object: &Value) -> Option<Value> {
    let phase = text(&object["status"]["phase"]);
    (kind.collection() == "pods" && crate::pod::is_terminal(object)).then(|| {
        let message = match phase {
            "Succeeded" => "The pod has completed successfully.",
            _ => "The pod failed.",
        };
        json!([{ "type": "Completed", "status": "True", "reason": phase, "message": message }])
    })
}

/// A word, empty if it is not there.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A word, `<none>` if it is not there.
fn or_none(word: &str) -> Value {
    json!(if word.is_empty() { NONE } else { word })
}

#[cfg(test)]
mod tests;
