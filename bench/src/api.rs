//! How much the API server and its store can do, beside etcd where etcd has an answer.
//!
//! Everything runs on this machine: the store in this process, etcd and the server as children, the clients here. So
//! rates say what both ends can do together, and processor time, which a busy neighbour hardly changes, says what one
//! operation costs. Every figure is a median of rounds that alternate with those of its peer.

mod creates;
mod durable;
mod etcd;
mod https;
mod lists;
pub(crate) mod report;
mod scheduled;
pub(crate) mod server;
mod watchers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use self::report::{Report, Row};
use self::server::Server;
pub(crate) use self::server::raise_file_limit;

/// What `bench api` is told.
#[derive(Args, Debug)]
pub(crate) struct ApiArgs {
    /// The program to measure
    #[arg(long, default_value = "target/bin/adieu", value_name = "FILE")]
    adieu: PathBuf,
    /// etcd, to be measured beside it
    #[arg(long, value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// Where data goes: a folder on the disk to be measured
    #[arg(long, default_value = "target", value_name = "DIR")]
    dir: PathBuf,
    /// How long a round takes
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How many rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many pods are created, kept and listed
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many watch one collection
    #[arg(long, default_value_t = 1000)]
    watchers: usize,
    /// Only what the name of one of these parts begins with: durable, creates, lists, memory, watchers, scheduled
    #[arg(long)]
    only: Option<String>,
}

impl ApiArgs {
    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| part.starts_with(only))
    }

    fn round(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Measures, and prints a table.
pub(crate) async fn run(args: &ApiArgs) -> Result<()> {
    raise_file_limit()?;
    let scratch = tempfile::Builder::new().prefix("bench-api-").tempdir_in(&args.dir)?;
    let mut report = Report::default();
    if args.wants("durable") {
        durable::measure(args, scratch.path(), &mut report).await?;
    }
    if ["creates", "lists", "memory", "watchers", "scheduled"].iter().any(|part| args.wants(part)) {
        let server =
            Server::start(&args.adieu, &scratch.path().join("server")).await.context("cannot start the server")?;
        let outcome = measure_server(args, &server, &mut report).await;
        server.stop()?;
        outcome?;
    }
    report.print();
    Ok(())
}

async fn measure_server(args: &ApiArgs, server: &Server, report: &mut Report) -> Result<()> {
    let idle = server.settled_kib().await?;
    report.add(Row::new("resident memory, idle").ours(idle as f64 / 1024.0, "MiB").at_most(40.0));
    creates::prepare(server).await?;
    let first = creates::create(server, args.pods, 64, "first").await?;
    let full = server.settled_kib().await?;
    let listed = lists::once(server).await?;
    let per_pod = (full.saturating_sub(idle) * 1024) as f64 / args.pods as f64;
    let object = listed as f64 / args.pods as f64;
    report.note(format!("{} pods: {object:.0} bytes each as JSON", args.pods));
    report.add(
        Row::new("resident memory per pod, beyond the object").ours((per_pod - object) / 1024.0, "KiB").at_most(4.0),
    );
    if args.wants("lists") {
        lists::measure(args, server, report).await?;
    }
    if args.wants("creates") {
        creates::measure(args, server, first, report).await?;
    }
    if args.wants("scheduled") {
        scheduled::measure(args, server, report).await?;
    }
    // The last, as its clients stand back for the server from then on.
    if args.wants("watchers") {
        watchers::measure(args, server, report).await?;
    }
    Ok(())
}
