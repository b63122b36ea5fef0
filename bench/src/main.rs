//! How fast a pod comes and goes, measured through the API of any cluster: Adieu's or somebody else's.
//!
//! Every figure is taken by a client that watches, so that it means what a user would see:
//!
//! ```text
//!  create ──▶ Ready on a watch
//!  delete ──▶ the container's TERM handler, heard through its log
//!  the handler's last word in the log ──▶ the object gone on a watch
//! ```
//!
//! Figures go to standard output as a table, or as JSON with `-o json`. With `--pid`, the resident memory of those
//! processes is added. Compare two clusters by running it against both, on one machine, one after the other.
//!
//! `bench api` is another matter: what the API server and its store can do, beside etcd. So is `bench runtime`: what the
//! container runtime can do, beside runc and podman. `bench soak` is about pods that only live, `bench load` about clients that ask
//! the API server for too much.

mod api;
mod crowd;
mod deployment;
mod load;
mod memory;
mod pod;
mod runtime;
mod soak;
mod stats;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::runtime::Builder;

use crate::pod::Trial;
use crate::stats::Figures;

#[derive(Parser, Debug)]
#[command(about = "Measures how pods come and go, through the API of any cluster")]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The cluster to measure [default: $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The image to run; it must have a shell and be present on the node
    #[arg(long, default_value = "busybox")]
    image: String,
    /// How many pods to run one after the other
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How many pods to create and delete at once
    #[arg(long, default_value_t = 50)]
    crowd: usize,
    /// Processes whose memory counts (the control plane and agents of the cluster, if they run here)
    #[arg(long, value_name = "PID")]
    pid: Vec<i32>,
    /// `json` for programs
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measures the API server and its store, beside etcd
    Api(api::ApiArgs),
    /// Measures the API server while clients ask it for too much
    Load(load::LoadArgs),
    /// Measures the container runtime, beside runc, crun and podman
    Runtime(runtime::RuntimeArgs),
    /// Measures what pods cost that only live: probes, and nothing else
    Soak(soak::SoakArgs),
}

fn main() -> Result<()> {
    let args = Args::parse();
    // Nothing else in this program speaks TLS, so nobody else has chosen.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match &args.command {
        // Many clients, and the store itself: they may use what there is.
        Some(Command::Api(api)) => Builder::new_multi_thread().enable_all().build()?.block_on(api::run(api)),
        Some(Command::Load(load)) => Builder::new_multi_thread().enable_all().build()?.block_on(load::run(load)),
        // As many threads as the node has: the kernel is what is measured.
        Some(Command::Runtime(runtime)) => {
            Builder::new_multi_thread().enable_all().build()?.block_on(runtime::run(runtime))
        }
        Some(Command::Soak(soak)) => Builder::new_current_thread().enable_all().build()?.block_on(soak::run(soak)),
        None => Builder::new_current_thread().enable_all().build()?.block_on(pods(&args)),
    }
}

async fn pods(args: &Args) -> Result<()> {
    let client = client(args.kubeconfig.as_deref()).await?;
    let idle = memory::at_rest_kib(&args.pid).await?;

    let mut alone = Figures::default();
    for round in 0..args.rounds {
        eprint!("\rone by one: {}/{}", round + 1, args.rounds);
        alone.add(Trial::new(&client, &args.image, &format!("bench-{round}")).run().await?);
    }
    eprintln!();
    let behind_service = behind_service(&client, args).await?;
    eprintln!("{} at once", args.crowd);
    let (all_ready, all_gone) = crowd::run(&client, &args.image, args.crowd).await?;
    eprintln!("a Deployment of {}", args.crowd);
    let deployment = deployment::run(&client, &args.image, args.crowd).await?;

    let report = json!({
        "createToReadyMs": alone.summary(|t| t.create_to_ready),
        "deleteToSignalMs": alone.summary(|t| t.delete_to_signal),
        "deleteToSignalBehindServiceMs": behind_service.summary(|t| t.delete_to_signal),
        "exitToGoneMs": alone.summary(|t| t.exit_to_gone),
        "crowd": { "pods": args.crowd, "allReadyMs": millis(all_ready), "allGoneMs": millis(all_gone) },
        "deployment": { "pods": args.crowd, "createMs": millis(deployment.create), "rollMs": millis(deployment.roll),
            "deleteMs": millis(deployment.delete) },
        "idleResidentKiB": idle,
    });
    if args.output == "json" {
        println!("{report:#}");
        return Ok(());
    }
    println!("{:34} {:>9} {:>9}", "", "p50 ms", "p99 ms");
    for (label, key) in [
        ("create -> Ready on a watch", "createToReadyMs"),
        ("delete -> stop signal in the container", "deleteToSignalMs"),
        ("the same behind a Service", "deleteToSignalBehindServiceMs"),
        ("exit -> gone on a watch", "exitToGoneMs"),
    ] {
        println!("{label:38} {:>5} {:>9}", report[key]["p50"], report[key]["p99"]);
    }
    println!("{:38} {:>5}", format!("{} pods at once -> all Ready", args.crowd), millis(all_ready));
    println!("{:38} {:>5}", format!("{} pods at once -> all gone", args.crowd), millis(all_gone));
    for (what, took) in
        [("all available", deployment.create), ("rolled out", deployment.roll), ("pods gone", deployment.delete)]
    {
        println!("{:38} {:>5}", format!("Deployment of {} -> {what}", args.crowd), millis(took));
    }
    if let Some(idle) = idle {
        println!("{:38} {:>5} MiB", "resident memory, idle", idle / 1024);
    }
    Ok(())
}

/// Pods that a Service leads to, with another that takes their connections when they leave.
async fn behind_service(client: &kube::Client, args: &Args) -> Result<Figures> {
    const SERVICE: &str = "bench-service";
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": SERVICE },
        "spec": { "selector": { "app": SERVICE }, "ports": [{ "port": 80 }] },
    });
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    let other = Trial::new(client, &args.image, "bench-other").behind(SERVICE);
    other.come().await?;
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        eprint!("\rbehind a Service: {}/{}", round + 1, args.rounds);
        let trial = Trial::new(client, &args.image, &format!("bench-served-{round}")).behind(SERVICE);
        figures.add(trial.run().await?);
    }
    eprintln!();
    other.go().await?;
    services.delete(SERVICE, &DeleteParams::default()).await?;
    Ok(figures)
}

async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    let kubeconfig = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => Kubeconfig::read().context("no kubeconfig; name one with --kubeconfig")?,
    };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

fn millis(duration: Duration) -> u128 {
    duration.as_millis()
}
