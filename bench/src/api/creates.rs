//! Pods created per second, end to end through HTTPS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;

use super::ApiArgs;
use super::report::{Report, Row, median};
use super::server::{Server, own_cpu};

pub(crate) const NAMESPACE: &str = "bench";

/// One round.
pub(crate) struct Round {
    rate: f64,
    /// Microseconds of processor time per pod.
    server: f64,
    client: f64,
}

/// Makes the namespace.
pub(crate) async fn prepare(server: &Server) -> Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let mut connection = server.target.connect().await?;
    connection.ask("POST", "/api/v1/namespaces", namespace.to_string().into()).await?;
    Ok(())
}

/// A pod as people write them.
fn pod(name: &str, scheduler: &str) -> Bytes {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "web", "tier": "front" } },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "web", "image": "registry.example/web:1.2.3",
                "command": ["/bin/web", "--listen", ":8080"],
                "ports": [{ "containerPort": 8080 }],
                "env": [{ "name": "MODE", "value": "production" }],
                "resources": { "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "memory": "128Mi" } },
                "readinessProbe": { "httpGet": { "path": "/ready", "port": 8080 } },
            }],
        },
    })
    .to_string()
    .into()
}

/// Creates `count` pods with `clients` connections, of which no scheduler takes notice.
pub(crate) async fn create(server: &Server, count: usize, clients: usize, prefix: &str) -> Result<Round> {
    create_for(server, count, clients, prefix, "nobody").await
}

/// The same for a scheduler.
pub(crate) async fn create_for(
    server: &Server,
    count: usize,
    clients: usize,
    prefix: &str,
    scheduler: &'static str,
) -> Result<Round> {
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(server.target.connect().await?);
    }
    let next = Arc::new(AtomicUsize::new(0));
    let (served, spent, begun) = (server.cpu()?, own_cpu()?, Instant::now());
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let (next, prefix) = (Arc::clone(&next), prefix.to_owned());
        tasks.spawn(async move {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<_, anyhow::Error>(());
                }
                connection.ask("POST", &path, pod(&format!("{prefix}-{n}"), scheduler)).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count as f64;
    Ok(Round {
        rate: count as f64 / begun.elapsed().as_secs_f64(),
        server: each(server.cpu()? - served),
        client: each(own_cpu()? - spent),
    })
}

pub(crate) async fn measure(args: &ApiArgs, server: &Server, first: Round, report: &mut Report) -> Result<()> {
    let mut rounds = vec![first];
    for round in 1..args.rounds {
        rounds.push(create(server, args.pods, 64, &format!("round{round}")).await?);
    }
    let of = |which: fn(&Round) -> f64| median(rounds.iter().map(which).collect());
    let cost = format!("{:.0} µs server, {:.0} µs client per pod", of(|r| r.server), of(|r| r.client));
    let row = Row::new("pod creates/s through HTTPS, 64 clients").ours(of(|r| r.rate), "/s").at_least(3000.0);
    report.add(row.cost(cost));
    let alone = create(server, 1000, 1, "alone").await?;
    let cost = format!("{:.0} µs server, {:.0} µs client per pod", alone.server, alone.client);
    report.add(Row::new("pod creates/s through HTTPS, 1 client").ours(alone.rate, "/s").cost(cost));
    Ok(())
}
