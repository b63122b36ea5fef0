//! What the container runtime can do, beside runc, crun and podman on the same machine in the same run.
//!
//! Ours is asked through its own trait, with everything a pod has: sandbox, network, overlay, system call filter. The
//! peers are asked by their command lines; runc and crun get a bare bundle without network, overlay or filter, which is
//! less work than ours. Rounds of all alternate. To be run in a network namespace of its own (`scripts/bench runtime`).

mod ours;
mod peers;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use self::ours::Ours;
use self::peers::{Oci, Peer, Podman};
use crate::api::report::{Report, Row, median};

/// What `bench runtime` is told.
#[derive(Args, Debug)]
pub(crate) struct RuntimeArgs {
    /// The program whose shim runs the pods
    #[arg(long, default_value = "target/bin/adieu", value_name = "FILE")]
    adieu: PathBuf,
    /// An image with a shell
    #[arg(long, default_value = "target/images/busybox.tar", value_name = "FILE")]
    image: PathBuf,
    /// Where data goes
    #[arg(long, default_value = "target", value_name = "DIR")]
    dir: PathBuf,
    /// How many containers each runs one after the other
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How many pods at once, and idle
    #[arg(long, default_value_t = 100)]
    crowd: usize,
    /// How many of them are asked for at a time
    #[arg(long, default_value_t = 8)]
    width: usize,
    /// How long idle pods are watched, seconds
    #[arg(long, default_value_t = 20)]
    idle: u64,
}

/// Times of one kind, in milliseconds.
type Millis = Vec<f64>;

/// Measures, and prints a table.
pub(crate) async fn run(args: &RuntimeArgs) -> Result<()> {
    crate::api::raise_file_limit()?;
    let scratch = tempfile::Builder::new().prefix("bench-runtime-").tempdir_in(&args.dir)?;
    let scratch_path = scratch.path().canonicalize()?;
    let mut report = Report::default();
    let ours = Ours::open(args, &scratch_path.join("ours")).await?;
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    for (name, peer) in [
        ("runc", Oci::new("runc", &scratch_path).map(|peer| Box::new(peer) as Box<dyn Peer>)),
        ("crun", Oci::new("crun", &scratch_path).map(|peer| Box::new(peer) as Box<dyn Peer>)),
        ("podman", Podman::new(&args.image).map(|peer| Box::new(peer) as Box<dyn Peer>)),
    ] {
        match peer {
            Ok(peer) => peers.push(peer),
            Err(error) => report.note(format!("{name} does not run here: {error:#}")),
        }
    }
    one_by_one(args, &ours, &mut peers, &mut report).await?;
    drop(peers);
    crowd(args, &ours, &mut report).await?;
    ours.close().await?;
    report.print();
    Ok(())
}

async fn one_by_one(args: &RuntimeArgs, ours: &Ours, peers: &mut [Box<dyn Peer>], report: &mut Report) -> Result<()> {
    let (mut starts, mut ends) = (Millis::new(), Millis::new());
    let (mut terms, mut execs) = (Millis::new(), Millis::new());
    let mut theirs: Vec<(Millis, Millis)> = peers.iter().map(|_| Default::default()).collect();
    for round in 0..args.rounds {
        eprint!("\rone by one: {}/{}", round + 1, args.rounds);
        let pod = ours.start(&format!("one-{round}")).await?;
        starts.push(pod.took);
        execs.push(ours.exec(&pod).await?);
        terms.push(ours.term(&pod).await?);
        ours.remove(&pod).await?;
        let pod = ours.start(&format!("end-{round}")).await?;
        ends.push(ours.kill_and_remove(&pod).await?);
        for (peer, (starts, ends)) in peers.iter().zip(&mut theirs) {
            starts.push(peer.start(round)?);
            ends.push(peer.end(round)?);
        }
    }
    eprintln!();
    let (start, end) = (median(starts), median(ends));
    for (peer, (starts, ends)) in peers.iter().zip(theirs) {
        let (name, most) = (peer.name(), peer.most());
        let (starts, ends) = (median(starts), median(ends));
        report.add(Row::new("call → container running, p50").ours(start, "ms").within(name, starts, "ms", most));
        report.add(Row::new("kill → all removed, p50").ours(end, "ms").within(name, ends, "ms", 1.0));
    }
    report.add(Row::new("TERM → durable exit record, p50").ours(median(terms), "ms").at_most(3.0));
    report.add(Row::new("exec started, p50").ours(median(execs), "ms").at_most(4.0));
    Ok(())
}

async fn crowd(args: &RuntimeArgs, ours: &Ours, report: &mut Report) -> Result<()> {
    let (pods, started) = ours.start_many(args.crowd, args.width).await?;
    report.add(Row::new("pods started, two cores").ours(started, "/s").at_least(100.0));
    let (pss, private) = ours.shim_memory()?;
    report.add(
        Row::new("shim, PSS of each of many")
            .ours(pss, "KiB")
            .at_most(0.44 * 1024.0)
            .cost(format!("{private:.0} KiB its own")),
    );
    let share = ours.idle_share(std::time::Duration::from_secs(args.idle)).await?;
    let what = format!("processor time of {} idle pods", args.crowd);
    report.add(Row::new(what).ours(share * 100.0, "% of a core").at_most(0.5));
    let ended = ours.remove_many(pods, args.width).await?;
    report.add(Row::new("pods ended, two cores").ours(ended, "/s").at_least(200.0));
    Ok(())
}
