//! What clients that ask for much can do to the API server, and to others who use it meanwhile.
//!
//! All at once, by one user: HTTP/2 streams whose bodies never end, connections that say nothing, watchers that do not read, and
//! lists of everything in every form. Another user goes on with small reads and writes, and tells how long they took. Memory is
//! the server's resident memory: before, at most, and a minute after everybody has left. Every program that is named is measured
//! in one run.

mod clients;
mod crowd;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tokio::task::JoinSet;

use crate::api::raise_file_limit;
use crate::api::report::{Report, Row};
use crate::api::server::Server;

use self::clients::Clients;

/// What `bench load` is told.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// The programs to measure, one after the other
    #[arg(long, default_value = "target/bin/adieu", value_name = "FILE")]
    adieu: Vec<PathBuf>,
    /// Where data goes
    #[arg(long, default_value = "target", value_name = "DIR")]
    dir: PathBuf,
    /// Objects that are listed at once
    #[arg(long, default_value_t = 20_000)]
    objects: usize,
    /// HTTP/2 streams with unfinished bodies of 3 MiB, a hundred on a connection
    #[arg(long, default_value_t = 1000)]
    streams: usize,
    /// Connections without a request, half of them without a handshake
    #[arg(long, default_value_t = 2000)]
    idle: usize,
    /// Watchers that do not read
    #[arg(long, default_value_t = 500)]
    watchers: usize,
    /// How long all of it goes on
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// How long after everybody left memory is looked at again
    #[arg(long, default_value_t = 60)]
    after: u64,
}

/// Measures, and prints a table for each program.
pub(crate) async fn run(args: &LoadArgs) -> Result<()> {
    raise_file_limit()?;
    for adieu in &args.adieu {
        let scratch = tempfile::Builder::new().prefix("bench-load-").tempdir_in(&args.dir)?;
        let server = Server::start(adieu, &scratch.path().join("server")).await.context("cannot start the server")?;
        let mut report = Report::default();
        let outcome = measure(args, &server, &mut report).await;
        server.stop()?;
        println!("{}:\n", adieu.display());
        report.print();
        outcome?;
    }
    Ok(())
}

async fn measure(args: &LoadArgs, server: &Server, report: &mut Report) -> Result<()> {
    let mib = |kib: u64| kib as f64 / 1024.0;
    report.add(Row::new("resident memory, idle").ours(mib(server.settled_kib().await?), "MiB").at_most(40.0));
    let clients = Arc::new(Clients::prepare(server, args.objects).await?);
    let before = server.settled_kib().await?;
    report.add(Row::new(format!("the same with {} objects", args.objects)).ours(mib(before), "MiB"));
    let alone = clients.others(Duration::from_secs(5)).await?;
    report.add(Row::new("another user's requests before the load, p99").ours(alone.p99, "ms"));

    let mut crowd = JoinSet::new();
    crowd::unfinished_bodies(&clients, args.streams, &mut crowd);
    crowd::idle_connections(&clients, args.idle, &mut crowd);
    crowd::silent_watchers(&clients, args.watchers, &mut crowd);
    crowd::lists(&clients, &mut crowd);
    let peak = {
        let others = clients.others(Duration::from_secs(args.seconds));
        tokio::pin!(others);
        let mut peak = 0;
        let told = loop {
            tokio::select! {
                told = &mut others => break told?,
                () = tokio::time::sleep(Duration::from_millis(100)) => peak = peak.max(server.resident_kib()?),
            }
        };
        report.add(Row::new("another user's requests during the load, p99").ours(told.p99, "ms").at_most(100.0));
        report.add(Row::new("the same, p50").ours(told.p50, "ms"));
        report.add(Row::new("the same, refused or failed").ours(told.failed as f64, &format!("of {}", told.asked)));
        peak
    };
    report.add(Row::new("resident memory during the load, at most").ours(mib(peak), "MiB").at_most(300.0));
    crowd.shutdown().await;
    tokio::time::sleep(Duration::from_secs(args.after)).await;
    let after = server.resident_kib()?;
    report.add(Row::new(format!("the same {} s after", args.after)).ours(mib(after), "MiB").at_most(80.0));
    for (what, count) in clients.counts() {
        report.note(format!("{what}: {count}"));
    }
    Ok(())
}
