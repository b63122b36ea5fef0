//! How fast many pods are listed.

use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;

use super::ApiArgs;
use super::creates::NAMESPACE;
use super::report::{Report, Row, median};
use super::server::{Server, own_cpu};

fn path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

/// The size of the list.
pub(crate) async fn once(server: &Server) -> Result<usize> {
    server.target.connect().await?.ask("GET", &path(), Bytes::new()).await
}

pub(crate) async fn measure(args: &ApiArgs, server: &Server, report: &mut Report) -> Result<()> {
    let mut connection = server.target.connect().await?;
    let (mut rates, mut costs, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let (served, spent, begun) = (server.cpu()?, own_cpu()?, Instant::now());
        let mut bytes = 0;
        while begun.elapsed() < args.round() {
            bytes += connection.ask("GET", &path(), Bytes::new()).await?;
        }
        let megabytes = bytes as f64 / 1e6;
        rates.push(megabytes / begun.elapsed().as_secs_f64());
        costs.push(megabytes / (server.cpu()? - served).as_secs_f64());
        own.push((own_cpu()? - spent).as_secs_f64() * 1e3 / megabytes);
    }
    let row = Row::new(format!("list of {} pods, per core of the server", args.pods));
    report.add(row.ours(median(costs), "MB/s").at_least(200.0));
    let cost = format!("{:.2} ms client per MB", median(own));
    report.add(Row::new("the same, as one client on the same machine sees it").ours(median(rates), "MB/s").cost(cost));
    Ok(())
}
