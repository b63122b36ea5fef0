//! `metrics.k8s.io`: what nodes and pods use right now, for `kubectl top`. Nothing of it is stored: whoever asks is told
//! what the nodes answer, and a node that does not answer in time is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Status;
use api::selector::excerpt;
use http::header;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::Object;

use crate::body::Body;
use crate::list::Selection;
use crate::node;
use crate::query::Query;
use crate::request::{ResourceAddress, Verb, key};
use crate::respond;
use crate::state::{State, core_kind};

const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// How long a node may take. It looks twice, a second apart, if nobody asked lately.
const ANSWER: Duration = Duration::from_secs(8);
/// The longest answer that is read.
const ANSWER_MAX: usize = 4 << 20;
/// What a kubelet counts over that does not say so.
const USUAL_WINDOW_NANOS: u64 = 10_000_000_000;

/// Whether this is the one to answer.
pub(crate) fn is_asked(address: &ResourceAddress) -> bool {
    (address.group.as_str(), address.version.as_str()) == api::discovery::METRICS
}

/// Answers a get or a list of what pods or nodes use.
pub(crate) async fn answer(
    state: &State,
    address: &ResourceAddress,
    verb: Verb,
    query: &Query,
) -> Result<Response<Body>, Status> {
    let is_pods = match address.resource.as_str() {
        "pods" => true,
        "nodes" if address.namespace.is_empty() => false,
        _ => return Err(Status::no_such_path()),
    };
    if !address.subresource.is_empty() || (is_pods && address.namespace.is_empty() && !address.name.is_empty()) {
        return Err(Status::no_such_path());
    }
    let kind = if is_pods { "PodMetrics" } else { "NodeMetrics" };
    let document = match verb {
        Verb::List => {
            let items = used(state, wanted(state, address, query)?, is_pods).await;
            json!({ "kind": format!("{kind}List"), "apiVersion": API_VERSION, "metadata": {}, "items": items })
        }
        Verb::Get => {
            let known = key(core_kind(&address.resource), &address.namespace, &address.name);
            let object = state.store.get(&known).map(|object| known_of(&object));
            let found = used(state, object.into_iter().collect(), is_pods).await.pop();
            let mut found = found.ok_or_else(|| absent(kind, address))?;
            (found["kind"], found["apiVersion"]) = (json!(kind), json!(API_VERSION));
            found
        }
        Verb::Watch | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            return Err(Status::method_not_allowed());
        }
    };
    Ok(respond::json(StatusCode::OK, respond::to_bytes(&document)))
}

fn absent(kind: &str, address: &ResourceAddress) -> Status {
    let name = if address.namespace.is_empty() {
        address.name.clone()
    } else {
        format!("{}/{}", address.namespace, address.name)
    };
    Status::new(404, "NotFound", format!("{}.metrics.k8s.io {name:?} not found", kind.to_lowercase()))
}

/// The pods or nodes that a list is about.
fn wanted(state: &State, address: &ResourceAddress, query: &Query) -> Result<Vec<Value>, Status> {
    let kind = core_kind(&address.resource);
    let selection = Selection::parse(kind, query)?;
    let page = state.store.list(kind.collection(), &address.namespace, None);
    let all = page.map(|page| page.items).unwrap_or_default();
    Ok(all.iter().filter(|object| selection.takes(object)).map(|object| known_of(object)).collect())
}

/// What has to be known of a pod or node while others are asked about it.
fn known_of(object: &Object) -> Value {
    excerpt(&object.json, &["metadata.name", "metadata.namespace", "metadata.labels", "spec.nodeName"])
}

/// What each of these uses, as far as its node says.
async fn used(state: &State, objects: Vec<Value>, is_pods: bool) -> Vec<Value> {
    let node_of = |object: &Value| {
        let name = if is_pods { &object["spec"]["nodeName"] } else { &object["metadata"]["name"] };
        name.as_str().unwrap_or_default().to_owned()
    };
    let nodes: BTreeSet<String> = objects.iter().map(node_of).filter(|node| !node.is_empty()).collect();
    let asked = nodes.iter().map(|node| async move { (node.clone(), ask(state, node).await) });
    let answers: BTreeMap<String, Value> = futures::future::join_all(asked)
        .await
        .into_iter()
        .filter_map(|(node, summary)| Some((node, summary?)))
        .collect();
    let now = state.now();
    let tell = |object: &Value| {
        let summary = answers.get(&node_of(object))?;
        if is_pods { of_pod(object, summary, now) } else { of_node(object, summary, now) }
    };
    objects.iter().filter_map(tell).collect()
}

/// What a node says of itself and its pods; `None` if it says nothing in time.
async fn ask(state: &State, name: &str) -> Option<Value> {
    let asking = async {
        let request =
            http::Request::get("/stats/summary").header(header::HOST, name).body(Empty::<bytes::Bytes>::new()).ok()?;
        let answer = node::ask(state, name, request).await;
        let answer = answer.inspect_err(|error| tracing::debug!(%error, "a node does not say what it uses")).ok()?;
        let is_good = answer.status().is_success();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await.ok()?.to_bytes();
        serde_json::from_slice(&body).ok().filter(|_| is_good)
    };
    tokio::time::timeout(ANSWER, asking).await.ok().flatten()
}

fn of_node(object: &Value, summary: &Value, now: Timestamp) -> Option<Value> {
    let mut told = measured(object, summary, &summary["node"], now)?;
    told["usage"] = usage(&summary["node"])?;
    Some(told)
}

fn of_pod(object: &Value, summary: &Value, now: Timestamp) -> Option<Value> {
    let same = |pod: &&Value| ["name", "namespace"].iter().all(|word| pod["podRef"][word] == object["metadata"][word]);
    let pod = summary["pods"].as_array()?.iter().find(same)?;
    let mut told = measured(object, summary, pod, now)?;
    told["metadata"]["namespace"] = object["metadata"]["namespace"].clone();
    let containers = pod["containers"].as_array()?.iter();
    let each = containers.filter_map(|of| Some(json!({ "name": of["name"], "usage": usage(of)? })));
    told["containers"] = Value::from(each.collect::<Vec<_>>());
    Some(told)
}

/// Whose use it is, when it was measured, and over which time.
fn measured(object: &Value, summary: &Value, of: &Value, now: Timestamp) -> Option<Value> {
    let at: Timestamp = of["cpu"]["time"].as_str()?.parse().ok()?;
    let window = summary["windowNanoSeconds"].as_u64().unwrap_or(USUAL_WINDOW_NANOS);
    let mut metadata = json!({
        "name": object["metadata"]["name"],
        "creationTimestamp": format!("{now:.0}"),
    });
    if let Some(labels) = object["metadata"]["labels"].as_object() {
        metadata["labels"] = json!(labels);
    }
    let window = format!("{}s", Duration::from_nanos(window).as_secs_f64());
    Some(json!({ "metadata": metadata, "timestamp": format!("{at:.0}"), "window": window }))
}

fn usage(of: &Value) -> Option<Value> {
    let (cpu, memory) = (of["cpu"]["usageNanoCores"].as_u64()?, of["memory"]["workingSetBytes"].as_u64()?);
    let cpu = quantity(cpu, 1000, &["n", "u", "m", ""]);
    let memory = quantity(memory, 1024, &["", "Ki", "Mi", "Gi", "Ti"]);
    Some(json!({ "cpu": cpu, "memory": memory }))
}

/// A number as Kubernetes writes quantities: in the largest unit that says it whole.
fn quantity(mut number: u64, step: u64, units: &[&str]) -> String {
    let mut unit = 0;
    while number != 0 && number.is_multiple_of(step) && unit + 1 < units.len() {
        (number, unit) = (number / step, unit + 1);
    }
    if number == 0 { "0".to_owned() } else { format!("{number}{}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_in_the_largest_whole_unit() {
        let cpu = |nanos| quantity(nanos, 1000, &["n", "u", "m", ""]);
        assert_eq!([cpu(0), cpu(1), cpu(250_000_000), cpu(3_000_000_000)], ["0", "1n", "250m", "3"]);
        let memory = |bytes| quantity(bytes, 1024, &["", "Ki", "Mi", "Gi", "Ti"]);
        assert_eq!([memory(1000), memory(6 << 20), memory(5 << 10)], ["1000", "6Mi", "5Ki"]);
    }

    /// A static pod's own UID is not its mirror's: pods are known by their names.
    #[test]
    fn a_pod_is_told_with_what_its_node_says_of_it() {
        let object = json!({ "metadata": { "name": "web", "namespace": "a", "uid": "1", "labels": { "app": "web" } } });
        let time = "2026-01-02T03:04:05.678Z";
        let cpu = json!({ "time": time, "usageNanoCores": 1_500_000 });
        let app = json!({ "name": "app", "cpu": cpu, "memory": { "workingSetBytes": 4096 } });
        let pod = json!({ "podRef": { "name": "web", "namespace": "a", "uid": "2" }, "containers": [app],
            "cpu": cpu, "memory": { "workingSetBytes": 4096 } });
        let summary = json!({ "node": {}, "pods": [pod], "windowNanoSeconds": 1_250_000_000 });
        let mut told = of_pod(&object, &summary, Timestamp::UNIX_EPOCH).expect("it is known");
        told["metadata"]["creationTimestamp"].take();
        assert_eq!(
            told,
            json!({
                "metadata": { "name": "web", "namespace": "a", "labels": { "app": "web" }, "creationTimestamp": null },
                "timestamp": "2026-01-02T03:04:05Z", "window": "1.25s",
                "containers": [{ "name": "app", "usage": { "cpu": "1500u", "memory": "4Ki" } }],
            })
        );
        let other = json!({ "metadata": { "name": "web", "namespace": "b" } });
        assert_eq!(of_pod(&other, &summary, Timestamp::UNIX_EPOCH), None);
    }
}
