//! What pods cost that only live: many of them, each asked over HTTP every ten seconds how it is, for as long as wanted.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::memory;
use crate::pod::Trial;

/// So many come and go at a time.
const AT_A_TIME: usize = 10;
/// Whoever has just come costs more than whoever only lives.
const SETTLE: Duration = Duration::from_secs(15);
/// What the kernel counts in when it tells programs.
const TICKS_A_SECOND: u64 = 100;

/// As the first process httpd itself would not hear TERM.
const WEB: &str = "mkdir -p /tmp/www && echo hello > /tmp/www/index.html && trap 'exit 0' TERM; \
                   httpd -f -p 8080 -h /tmp/www & wait";

/// `bench soak`.
#[derive(Args, Debug)]
pub(crate) struct SoakArgs {
    /// The cluster to measure [default: $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The image to run; it must have busybox's httpd and be present on the node
    #[arg(long, default_value = "busybox")]
    image: String,
    /// How many pods
    #[arg(long, default_value_t = 100)]
    pods: usize,
    /// For how long they live
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Processes that count: the control plane and agents of the cluster, which must run here
    #[arg(long, value_name = "PID", required = true)]
    pid: Vec<i32>,
    /// `json` for programs
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

/// Measures.
pub(crate) async fn run(args: &SoakArgs) -> Result<()> {
    let client = crate::client(args.kubeconfig.as_deref()).await?;
    let probe = json!({ "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 10, "timeoutSeconds": 5 });
    let container = json!({
        "image": args.image,
        "command": ["sh", "-c", WEB],
        "readinessProbe": probe,
        "livenessProbe": probe,
        "lifecycle": { "preStop": { "exec": { "command": ["true"] } } },
    });
    let trials: Vec<Trial> =
        (0..args.pods).map(|n| Trial::with(&client, &format!("soak-{n}"), container.clone())).collect();
    eprintln!("{} pods come", args.pods);
    stream::iter(&trials).map(Trial::come).buffer_unordered(AT_A_TIME).try_collect::<Vec<_>>().await?;
    tokio::time::sleep(SETTLE).await;

    let (begun, before) = (Instant::now(), cpu(&args.pid)?);
    let mut most_kib = 0;
    for minute in 1..=args.minutes {
        eprint!("\rthey live: {minute}/{} min", args.minutes);
        tokio::time::sleep(Duration::from_secs(60)).await;
        most_kib = most_kib.max(memory::resident_kib(&args.pid)?.unwrap_or(0));
    }
    eprintln!();
    let share = (cpu(&args.pid)? - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;

    let pods: Api<Pod> = Api::namespaced(client, "default");
    for pod in pods.list(&ListParams::default()).await? {
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let calm = statuses.iter().all(|status| status.ready && status.restart_count == 0);
        ensure!(calm, "{:?} did not live in peace: {statuses:?}", pod.metadata.name);
    }
    eprintln!("they go");
    stream::iter(&trials).map(Trial::go).buffer_unordered(AT_A_TIME).try_collect::<Vec<_>>().await?;

    if args.output == "json" {
        println!("{:#}", json!({ "pods": args.pods, "cpuPercentOfOneCore": share, "mostResidentKiB": most_kib }));
        return Ok(());
    }
    println!("{} pods, each asked twice every 10 s, for {} min:", args.pods, args.minutes);
    println!("{:38} {share:>5.2} % of one core", "CPU");
    println!("{:38} {:>5.1} MiB", "resident memory, at most", f64::from(u32::try_from(most_kib)?) / 1024.0);
    Ok(())
}

/// The time that all `pids` together have spent on a processor.
fn cpu(pids: &[i32]) -> Result<Duration> {
    pids.iter()
        .map(|pid| {
            let text =
                std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("no process {pid}"))?;
            // The name, in parentheses, may hold anything; what follows it does not.
            let (_, rest) = text.rsplit_once(')').context("a name")?;
            let field = |number: usize| -> Result<u64> {
                Ok(rest.split_whitespace().nth(number - 3).context("a field")?.parse()?)
            };
            let ticks = field(14)? + field(15)?;
            Ok(Duration::from_millis(ticks * 1000 / TICKS_A_SECOND))
        })
        .sum()
}
