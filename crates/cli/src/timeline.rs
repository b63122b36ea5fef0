//! `adieu timeline pod/NAME`: how a pod ended, or how far its end is, drawn.
//!
//! Of a pod that is gone the record tells all. Of one that is still leaving its node tells what happened so far. On a cluster of
//! another make the object and its events tell what they can, and the drawing says so.

mod chart;
mod from_events;
mod svg;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::TerminationRecord;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

pub use chart::{draw, step_text};
pub use svg::picture;

use crate::cluster::{Cluster, ClusterArgs, PodName};
use crate::pod_end::PodFacts;

/// How often a pod that leaves is looked at anew.
const LOOK: Duration = Duration::from_millis(250);
/// How long a chart is where nobody says how wide the terminal is.
const WIDTH: usize = 100;

/// `adieu timeline`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu timeline pod/web-0 -n shop                 how it ended, or how far its end is
  adieu timeline web-0 --follow                    step by step, until it is gone
  adieu timeline web-0 -o svg > web-0.svg          a picture
  adieu timeline web-0 -o json | jq .record.phases")]
pub struct TimelineArgs {
    /// Which pod: pod/NAME, or its bare name
    #[arg(value_name = "POD")]
    pub pod: PodName,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TimelineOutput,
    /// Go on until the pod is gone
    #[arg(short, long)]
    pub follow: bool,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// How a timeline is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimelineOutput {
    /// Bars and lines.
    Text,
    /// For programs.
    Json,
    /// A picture.
    Svg,
}

/// Where a timeline comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The record of an end that is over.
    Record,
    /// What the node tells of an end that goes on.
    Node,
    /// The object and its events, on a cluster that tells no more.
    Events,
}

impl Source {
    /// For people; nothing if there is nothing to say.
    fn remark(self) -> &'static str {
        match self {
            Self::Record => "",
            Self::Node => "it is still leaving; this is what its node tells so far",
            Self::Events => {
                "drawn from the pod's object and events alone, to the second: signals, hooks, exits of the sandbox and \
                 connections are not shown by this cluster"
            }
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Node => "node",
            Self::Events => "events",
        }
    }
}

/// Asks and prints; goes on while the pod leaves, if that is wanted.
pub async fn run(cluster: &Cluster, args: &TimelineArgs, out: &mut impl Write) -> Result<()> {
    let mut told = 0;
    let mut title = false;
    loop {
        let facts = PodFacts::gather(cluster, &args.pod).await?;
        let Some((record, source)) = timeline(&facts) else {
            if args.follow && facts.pod.is_some() {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            bail!("{}", nothing(&facts));
        };
        let is_over = source == Source::Record || facts.pod.is_none();
        if args.follow && args.output == TimelineOutput::Text && args.file.is_none() {
            if !title {
                writeln!(out, "{}", chart::title(&facts.namespace, &record))?;
                title = true;
            }
            for step in record.steps.iter().skip(told) {
                writeln!(out, "{}", step_text(step))?;
            }
            told = told.max(record.steps.len());
            out.flush()?;
            if is_over {
                return writeln!(out, "{}", record.summary).map_err(Into::into);
            }
        } else if !args.follow || is_over {
            let text = rendered(&facts, &record, source, args.output)?;
            return match &args.file {
                Some(file) => std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display())),
                None => written(out, &text),
            };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whoever closes the pipe has read enough.
fn written(out: &mut impl Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn rendered(facts: &PodFacts, record: &TerminationRecord, source: Source, output: TimelineOutput) -> Result<String> {
    Ok(match output {
        TimelineOutput::Text => draw(&facts.namespace, record, source.remark(), WIDTH),
        TimelineOutput::Svg => picture(&facts.namespace, record, source.remark()),
        TimelineOutput::Json => {
            let told: Value = json!({ "source": source.word(), "remark": source.remark(), "record": record });
            format!("{}\n", serde_json::to_string_pretty(&told)?)
        }
    })
}

/// The best that is known of the pod's end; nothing of one that does not leave.
pub fn timeline(facts: &PodFacts) -> Option<(TerminationRecord, Source)> {
    if let Some(record) = facts.record() {
        return Some((record.clone(), Source::Record));
    }
    if let Some(mut record) = facts.progress.as_ref().and_then(|progress| progress.record.clone()) {
        // How well it ends is known when it is over.
        record.verdict.clear();
        record.summary.clear();
        return Some((record, Source::Node));
    }
    from_events::record(facts).map(|record| (record, Source::Events))
}

fn nothing(facts: &PodFacts) -> String {
    let (name, namespace) = (&facts.name, &facts.namespace);
    match &facts.pod {
        Some(_) => format!("pod/{name} is not leaving: there is no end to draw yet; --follow waits for it"),
        None => format!(
            "there is no pod/{name} in namespace {namespace}, and no record of one; `adieu why pod/{name}` tells what is known"
        ),
    }
}

#[cfg(test)]
mod tests;
