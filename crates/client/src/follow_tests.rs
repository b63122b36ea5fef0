//! A scripted server behind `follow`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;

fn map(name: &str, revision: u64) -> Value {
    json!({ "metadata": { "name": name, "resourceVersion": revision.to_string() } })
}

/// One whose `data` is no map.
fn unreadable(name: &str, revision: u64) -> Value {
    let mut map = map(name, revision);
    map["data"] = json!(["not", "a", "map"]);
    map
}

fn event(kind: &str, object: Value) -> Value {
    json!({ "type": kind, "object": object })
}

/// A server that answers lists and watches in this order, and notes what it was asked for. When it has no more to say, a watch
/// stays open.
fn server(answers: Vec<Value>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let (answers, asked) = (Arc::new(Mutex::new(VecDeque::from(answers))), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (answers, noted) = (Arc::clone(&answers), Arc::clone(&noted));
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let watches = query.contains("watch=true");
            let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
            let what = if watches { format!("watch from {}", from.unwrap_or_default()) } else { "list".to_owned() };
            noted.lock().unwrap().push(what);
            let next = answers.lock().unwrap().pop_front();
            let body = match next {
                None => return std::future::pending().await,
                Some(Value::Array(events)) => events.iter().map(|event| format!("{event}\n")).collect::<String>(),
                Some(list) => list.to_string(),
            };
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::from(body.into_bytes())))
        }
    });
    (kube::Client::new(service, "default"), asked)
}

fn list(revision: u64, items: &[Value]) -> Value {
    json!({ "kind": "ConfigMapList", "metadata": { "resourceVersion": revision.to_string() }, "items": items })
}

fn say(change: Change<ConfigMap>) -> String {
    match change {
        Change::Listed(all, revision) => {
            let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
            format!("listed {} at {}", names.join(" "), revision.unwrap())
        }
        Change::Changed(one) => format!("changed {}", one.name_any()),
        Change::Removed(one) => format!("removed {}", one.name_any()),
        Change::Reached(revision) => format!("reached {revision}"),
    }
}

/// Follows until so much has been said.
async fn told(client: kube::Client, count: usize) -> Vec<String> {
    let (out, mut changes) = mpsc::channel(1);
    let following = tokio::spawn(follow_changes(Api::<ConfigMap>::namespaced(client, "default"), out));
    let mut told = Vec::new();
    while told.len() < count {
        told.push(say(changes.recv().await.unwrap()));
    }
    following.abort();
    told
}

#[tokio::test]
async fn watch_goes_on_where_the_list_ended_and_where_the_last_watch_broke() {
    let (client, asked) = server(vec![
        list(5, &[map("a", 3)]),
        json!([
            event("ADDED", map("b", 6)),
            event(
                "BOOKMARK",
                json!({ "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": { "resourceVersion": "9" } })
            )
        ]),
        json!([event("DELETED", map("a", 11))]),
    ]);
    let told = told(client, 4).await;
    assert_eq!(told, ["listed a at 5", "changed b", "reached 9", "removed a"]);
    assert_eq!(asked.lock().unwrap()[..3], ["list", "watch from 5", "watch from 9"]);
}

#[tokio::test]
async fn object_that_cannot_be_read_costs_nobody_else() {
    let (client, asked) = server(vec![
        list(5, &[map("a", 3), unreadable("bad", 4), map("c", 5)]),
        json!([event("MODIFIED", unreadable("a", 6)), event("ADDED", map("d", 7)), event("ADDED", unreadable("e", 8))]),
        json!([event("ADDED", map("f", 9))]),
    ]);
    assert_eq!(told(client, 3).await, ["listed a c at 5", "changed d", "changed f"]);
    assert_eq!(asked.lock().unwrap()[..3], ["list", "watch from 5", "watch from 8"], "it is not asked for again");
}
