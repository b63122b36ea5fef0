//! Pods that the scheduler takes notice of: how fast they get a node, and what it costs to know them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;

use super::ApiArgs;
use super::creates::{self, NAMESPACE};
use super::report::{Report, Row};
use super::server::Server;

const NODE: &str = "roomy";
/// Nobody is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node without an agent, which takes as many as there are.
fn node() -> Bytes {
    let room = json!({ "cpu": "100000", "memory": "100Ti", "pods": "1000000" });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE },
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
    .to_string()
    .into()
}

pub(crate) async fn measure(args: &ApiArgs, server: &Server, report: &mut Report) -> Result<()> {
    let before = server.settled_kib().await?;
    server.target.connect().await?.ask("POST", "/api/v1/nodes", node()).await?;
    let mut watcher = server.target.connect().await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?watch=1&fieldSelector=spec.nodeName={NODE}");
    let events = watcher.open("GET", &path, Bytes::new()).await?;
    let (begun, served) = (Instant::now(), server.cpu()?);
    let (created, bound) = tokio::join!(
        creates::create_for(server, args.pods, 64, "bound", "default-scheduler"),
        count(events, args.pods)
    );
    created?;
    bound?;
    let rate = args.pods as f64 / begun.elapsed().as_secs_f64();
    let cost = (server.cpu()? - served).as_secs_f64() * 1e6 / args.pods as f64;
    let what = "pods created and bound to a node/s, 64 clients";
    report.add(Row::new(what).ours(rate, "/s").cost(format!("{cost:.0} µs server per pod: create, bind, event")));
    let full = server.settled_kib().await?;
    let each = full.saturating_sub(before) as f64 / args.pods as f64;
    report.add(
        Row::new("resident memory per bound pod, its object, its event and their past included").ours(each, "KiB"),
    );
    Ok(())
}

/// Waits until so many pods were seen on the node.
async fn count(mut events: Incoming, pods: usize) -> Result<()> {
    let mut lines = 0;
    while lines < pods {
        let frame = tokio::time::timeout(PATIENCE, events.frame()).await.context("a pod is not bound")?;
        let frame = frame.context("the watch ended")??;
        lines += frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
    }
    Ok(())
}
