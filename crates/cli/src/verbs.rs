//! Everyday commands on any cluster, with kubectl's words and flags: `get`, `describe`, `apply`, `delete`, `logs`, `exec`,
//! `rollout`, `scale`, `cordon`, `uncordon`, `drain`, `events`, `version`.
//!
//! What a cluster serves it says itself (`resources`), rows are the server's own (`table`), and objects stay the JSON they
//! are, so that kinds unknown to this program work as well.

mod apply;
mod delete;
mod describe;
mod drain;
mod events;
mod exec;
mod format;
mod get;
mod jsonpath;
mod logs;
mod manifests;
mod pods;
mod requests;
mod resources;
mod rollout;
mod select;
mod version;

pub(crate) use get::next_line;
pub(crate) use pods::labels_of;
pub(crate) use requests::{Call, path_segment};
pub(crate) use resources::{Resource, Resources};
pub(crate) use rollout::Target as RolloutTarget;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use jiff::Timestamp;

pub use apply::ApplyArgs;
pub use delete::{Cascade, DeleteArgs};
pub use describe::DescribeArgs;
pub use drain::{CordonArgs, DrainArgs};
pub use events::EventsArgs;
pub use exec::ExecArgs;
pub use format::{Format, OutputTemplate};
pub use get::{ApiResourcesArgs, GetArgs};
pub use logs::LogsArgs;
pub use rollout::{RolloutArgs, RolloutCommand, ScaleArgs, Workloads};
pub use version::{Build, VersionArgs};

use crate::cluster::{ClusterArgs, Environment};

/// Everyday commands.
#[derive(Subcommand, Clone, Debug)]
pub enum Verb {
    /// List objects, or show some
    Get(GetArgs),
    /// Show an object in words, with its events
    Describe(DescribeArgs),
    /// Make the cluster hold what manifests say
    Apply(ApplyArgs),
    /// Ask objects to leave, and wait until they have
    Delete(DeleteArgs),
    /// Print what containers have written
    Logs(LogsArgs),
    /// Run a command in a container
    Exec(ExecArgs),
    /// Restart, watch, undo, pause and resume rollouts
    Rollout(RolloutArgs),
    /// Change how many pods a workload has
    Scale(ScaleArgs),
    /// Let a node take no new pods
    Cordon(CordonArgs),
    /// Let a node take pods again
    Uncordon(CordonArgs),
    /// Evict the pods of a node, within their disruption budgets
    Drain(DrainArgs),
    /// Show what was told of objects, the oldest first
    Events(EventsArgs),
    /// List the kinds that the cluster serves
    ApiResources(ApiResourcesArgs),
    /// Show the version of this program and of the server
    Version(VersionArgs),
}

impl Verb {
    fn cluster(&self) -> &ClusterArgs {
        match self {
            Self::Get(args) => &args.cluster,
            Self::Describe(args) => &args.cluster,
            Self::Apply(args) => &args.cluster,
            Self::Delete(args) => &args.cluster,
            Self::Logs(args) => &args.cluster,
            Self::Exec(args) => &args.cluster,
            Self::Rollout(args) => &args.command.which().cluster,
            Self::Scale(args) => &args.which.cluster,
            Self::Cordon(args) | Self::Uncordon(args) => &args.cluster,
            Self::Drain(args) => &args.cluster,
            Self::Events(args) => &args.cluster,
            Self::ApiResources(args) => &args.cluster,
            Self::Version(args) => &args.cluster,
        }
    }
}

/// What the commands need to know besides.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What the environment says of clusters.
    pub environment: &'a Environment,
    /// What this program is.
    pub build: Build,
    /// Tells the time on the wall.
    pub now: fn() -> Timestamp,
}

/// Does what was asked, writing to `out`.
pub fn run(verb: &Verb, context: Context<'_>, out: &mut dyn Write) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(run_async(verb, context, out));
    // Somebody may still be reading standard input; nobody waits for that.
    runtime.shutdown_background();
    outcome
}

async fn run_async(verb: &Verb, context: Context<'_>, out: &mut dyn Write) -> Result<ExitCode> {
    if let Verb::Version(args) = verb {
        version::run(args, context.environment, context.build, out).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = verb.cluster().connect(context.environment).await?;
    match verb {
        Verb::Get(args) => get::run(args, &cluster, out).await?,
        Verb::Describe(args) => describe::run(args, &cluster, (context.now)(), out).await?,
        Verb::Apply(args) => apply::run(args, &cluster, out).await?,
        Verb::Delete(args) => delete::run(args, &cluster, out).await?,
        Verb::Logs(args) => logs::run(args, &cluster, out).await?,
        Verb::Exec(args) => return exec::run(args, &cluster).await,
        Verb::Rollout(args) => rollout::run(args, &cluster, (context.now)(), out).await?,
        Verb::Scale(args) => rollout::scale(args, &cluster, out).await?,
        Verb::Cordon(args) => drain::cordon(args, true, &cluster, out).await?,
        Verb::Uncordon(args) => drain::cordon(args, false, &cluster, out).await?,
        Verb::Drain(args) => drain::drain(args, &cluster, out).await?,
        Verb::Events(args) => events::run(args, &cluster, context.now, out).await?,
        Verb::ApiResources(_) => get::api_resources(&cluster, out).await?,
        Verb::Version(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// `90s`, `5m`, `1h30m`, `0`: as kubectl takes it. A number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let odd = || format!("{text:?} is no time; write for example 90s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(u64::from(seconds)));
    }
    let (mut total, mut digits) = (Duration::ZERO, String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_ascii_digit() && digits.len() < 9 {
            digits.push(letter);
            continue;
        }
        let count: u32 = digits.parse().map_err(|_| odd())?;
        digits.clear();
        let unit = match letter {
            'm' if letters.next_if_eq(&'s').is_some() => Duration::from_millis(1),
            's' => Duration::from_secs(1),
            'm' => Duration::from_secs(60),
            'h' => Duration::from_secs(3600),
            _ => return Err(odd()),
        };
        total = unit.checked_mul(count).and_then(|part| total.checked_add(part)).ok_or_else(odd)?;
    }
    if digits.is_empty() && !text.is_empty() { Ok(total) } else { Err(odd()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_kubectl_reads_them() {
        for (text, seconds) in [("0", 0), ("7", 7), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2000ms", 2)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "5x", "m5", "-1s", "1h30", "9999999999s", "٣s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
