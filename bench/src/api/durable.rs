//! Durable writes per second, the store's beside etcd's: 1 KiB values over a thousand keys per writer.
//!
//! Each is used as its API server uses it: the store by a call in the same process, etcd by gRPC on loopback.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use store::{Expect, Key, Step, Store};
use tokio::task::JoinSet;

use super::ApiArgs;
use super::etcd::Etcd;
use super::report::{Report, Row, median};
use super::server::{cpu_of, own_cpu};

const KEYS: u64 = 1000;
/// Streams share connections, as they do in programs that use etcd's own client.
const ETCD_CONNECTIONS: usize = 8;

#[derive(Default)]
struct Rates {
    rates: Vec<f64>,
    /// Microseconds of processor time per write, of everybody who took part.
    costs: Vec<f64>,
}

impl Rates {
    fn add(&mut self, writes: u64, took: Duration, cpu: Duration) {
        self.rates.push(writes as f64 / took.as_secs_f64());
        self.costs.push(cpu.as_secs_f64() * 1e6 / writes as f64);
    }
}

pub(crate) async fn measure(args: &ApiArgs, scratch: &Path, report: &mut Report) -> Result<()> {
    let store = Store::open(&scratch.join("store")).await?;
    let etcd = match &args.etcd {
        Some(etcd) => Some(Etcd::start(etcd, &scratch.join("etcd")).await?),
        None => None,
    };
    for clients in [1, 64] {
        let (mut ours, mut theirs) = (Rates::default(), Rates::default());
        for _ in 0..args.rounds {
            write_store(&store, clients, args.round(), &mut ours).await?;
            if let Some(etcd) = &etcd {
                write_etcd(etcd, clients, args.round(), &mut theirs).await?;
            }
        }
        let plural = if clients == 1 { "client" } else { "clients" };
        let row = Row::new(format!("durable writes/s, {clients} {plural}")).ours(median(ours.rates), "/s");
        let cost = format!("{:.0} µs per write", median(ours.costs));
        report.add(match &etcd {
            Some(_) => row
                .beside("etcd", median(theirs.rates), "/s")
                .cost(format!("{cost}; etcd and its client {:.0} µs", median(theirs.costs))),
            None => row.cost(cost),
        });
    }
    Ok(())
}

async fn write_store(store: &Store, clients: usize, lasts: Duration, rates: &mut Rates) -> Result<()> {
    let (spent, begun) = (own_cpu()?, Instant::now());
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let store = store.clone();
        tasks.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < lasts {
                let key = Key::new("pods", "default", format!("w{client}-{}", count % KEYS));
                let expect = store.get(&key).map_or(Expect::Absent, |object| Expect::Revision(object.revision));
                let step = Step::Put { key: key.clone(), value: about_a_kibibyte(count) };
                store.write(&key, expect, vec![step]).await?;
                count += 1;
            }
            Ok::<_, anyhow::Error>(count)
        });
    }
    let mut total = 0;
    while let Some(count) = tasks.join_next().await {
        total += count??;
    }
    rates.add(total, begun.elapsed(), own_cpu()? - spent);
    Ok(())
}

async fn write_etcd(etcd: &Etcd, clients: usize, lasts: Duration, rates: &mut Rates) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..clients.min(ETCD_CONNECTIONS) {
        connections.push(etcd.connect().await?);
    }
    let (served, spent, begun) = (cpu_of(etcd.pid()?)?, own_cpu()?, Instant::now());
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let mut connection = connections[client % connections.len()].clone();
        tasks.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < lasts {
                let value = about_a_kibibyte(count).to_string();
                connection.put(&format!("/registry/pods/default/w{client}-{}", count % KEYS), value.as_bytes()).await?;
                count += 1;
            }
            Ok::<_, anyhow::Error>(count)
        });
    }
    let mut total = 0;
    while let Some(count) = tasks.join_next().await {
        total += count??;
    }
    rates.add(total, begun.elapsed(), cpu_of(etcd.pid()?)? - served + own_cpu()? - spent);
    Ok(())
}

fn about_a_kibibyte(n: u64) -> Value {
    json!({ "metadata": { "name": "web", "labels": { "n": n.to_string() } }, "filler": "x".repeat(900) })
}
