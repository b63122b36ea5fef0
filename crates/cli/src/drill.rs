//! `adieu drill deploy/NAME`: real terminations under real requests, with a verdict for people and for CI.
//!
//! The parts: `target` is what is drilled and where clients would dial, `source` sends the requests, `pods` watches the ends, `course`
//! is the order of things, `evidence` what the cluster tells besides. All of it ends in [`observations::Observations`], from which
//! `report` is a pure function. Requests are `crate::load`'s, as those of the demo.

pub mod client;
mod client_pod;
mod course;
mod ends;
mod evidence;
mod findings;
mod junit;
mod observations;
mod pods;
mod report;
mod show;
mod source;
mod target;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, ClusterArgs, Environment, LocalInstance, ObjectName};
use crate::demo::image;
use crate::demo::screen::Screen;
use crate::demo::{DRAWN_EVERY, SIGNALLED, Signals};
use crate::progress;
use client::Connections;
use course::Course;
use observations::{Ending, Way};
use report::DrillResult;
use source::LoadSource;
use target::Target;

/// Something was found; `plan --strict` says the same.
const FOUND: u8 = 3;
/// What the image of the client is called in a file.
const CLIENT_IMAGE: &str = "localhost/adieu-drill:1";

/// `adieu drill`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu drill deploy/web                      restart it under requests through its Service, and count those that are lost
  adieu drill deploy/web --kill --pods 2      delete two of its pods, one after the other
  adieu drill sts/db --service db --port 8080 --path /healthz
  adieu drill deploy/web --url http://192.0.2.7/shop   requests from this machine through whatever is in front
  adieu drill ds/agent --no-load              only look how the pods end
  adieu drill deploy/web --junit drill.xml    for a build server; -o json for other programs

On another cluster:
  adieu drill --save-client-image client.tar  then: kind load image-archive client.tar
  adieu drill deploy/web --kubeconfig FILE --client-image localhost/adieu-drill:1 --yes

Exits with 0 if every request was answered and every pod left well, 3 if something was found, 1 if there was no drill, and
130 after Ctrl-C, which reports what was seen so far and removes what the drill made.")]
pub struct DrillArgs {
    /// What is to leave: deploy/NAME, sts/NAME, ds/NAME, pod/NAME
    #[arg(value_name = "WHAT", required_unless_present = "save_client_image")]
    pub what: Option<ObjectName>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Delete its pods one after the other instead of restarting it
    #[arg(long)]
    pub kill: bool,
    /// Delete only so many of them
    #[arg(long, value_name = "N", requires = "kill", value_parser = at_least_one)]
    pub pods: Option<usize>,
    /// The Service that requests go through [default: the only one that selects the pods]
    #[arg(long, value_name = "NAME", help_heading = "Requests")]
    pub service: Option<String>,
    /// Which of its ports, by number or name [default: http, else 80, else the first]
    #[arg(long, value_name = "PORT", help_heading = "Requests")]
    pub port: Option<String>,
    /// The path that is asked for
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = path, help_heading = "Requests")]
    pub path: String,
    /// Send requests from this machine to http://HOST[:PORT][/PATH] instead
    #[arg(long, value_name = "URL", conflicts_with_all = ["service", "port", "path"], help_heading = "Requests")]
    pub url: Option<String>,
    /// Send no requests
    #[arg(long, conflicts_with_all = ["service", "port", "url", "from", "client_image"], help_heading = "Requests")]
    pub no_load: bool,
    /// How many requests a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5000), help_heading = "Requests")]
    pub rate: u32,
    /// A connection for each request, connections that are kept, or half of the requests each way
    #[arg(long, value_name = "KIND", default_value = "both", help_heading = "Requests")]
    pub connections: Connections,
    /// Whether a pod sends them or this machine [default: a pod where one can be made, else this machine]
    #[arg(long, value_name = "WHERE", default_value = "auto", hide_default_value = true, help_heading = "Requests")]
    pub from: From,
    /// An image of this program for the pod that sends them, on another cluster
    #[arg(long, value_name = "IMAGE", help_heading = "Requests")]
    pub client_image: Option<String>,
    /// Write that image to a file, as docker save would, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "what", help_heading = "Requests")]
    pub save_client_image: Option<PathBuf>,
    /// How long the pods may take to leave and to be replaced, such as 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = limit)]
    pub timeout: Duration,
    /// Do not ask, also not on a cluster that is no Adieu of this machine
    #[arg(short, long)]
    pub yes: bool,
    /// `json` or `junit` for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: DrillOutput,
    /// Write the report as JUnit XML to this file, too
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum From {
    /// A pod if one can be made, else this machine.
    Auto,
    /// This machine.
    Here,
    /// A pod.
    Pod,
}

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DrillOutput {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For build servers.
    Junit,
}

/// What a drill needs to know of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// What the environment says of clusters.
    pub environment: &'a Environment,
    /// This program.
    pub program: &'a Path,
    /// Whether this user may add images to an instance of this machine.
    pub is_root: bool,
    /// What standard error is.
    pub screen: progress::Screen,
    /// Tells the time on the wall.
    pub now: fn() -> Timestamp,
}

/// Drills, and writes the report to `out`; how far it is goes to standard error.
pub fn run(args: &DrillArgs, surroundings: Surroundings<'_>, out: &mut dyn Write) -> Result<ExitCode> {
    if let Some(file) = &args.save_client_image {
        return save_client_image(file, surroundings.program, out);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(drill(args, surroundings, out));
    // Somebody may still wait for an answer from standard input; nobody waits for that.
    runtime.shutdown_background();
    outcome
}

fn save_client_image(file: &Path, program: &Path, out: &mut dyn Write) -> Result<ExitCode> {
    image::write(program, CLIENT_IMAGE, file)?;
    writeln!(out, "{CLIENT_IMAGE} is in {}", file.display())?;
    Ok(ExitCode::SUCCESS)
}

async fn drill(args: &DrillArgs, surroundings: Surroundings<'_>, out: &mut dyn Write) -> Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let junit = args.junit.as_deref().map(junit_file).transpose()?;
    let what = args.what.as_ref().context("name what is to leave, such as deploy/web")?;
    let looking = async {
        let cluster = args.cluster.connect(surroundings.environment).await?;
        let target = Target::find(&cluster, what, args).await?;
        let local = LocalInstance::of(&cluster, &args.cluster).await;
        consent(&cluster, &target, args, local.is_some()).await?;
        Ok::<_, anyhow::Error>((cluster, target, local))
    };
    let (cluster, target, local) = tokio::select! {
        found = looking => found?,
        number = signals.heard() => return Ok(ExitCode::from(SIGNALLED + number)),
    };
    let began = Instant::now();
    let source = LoadSource::new(began);
    let heard = source.heard();
    let screen = Screen::new(surroundings.screen, move || heard.borrow().counts.clone(), io::stderr());
    let mut course = Course {
        table: pods::follow(&cluster, &target, began),
        cluster: &cluster,
        args,
        target: &target,
        local: local.filter(|_| surroundings.is_root),
        surroundings,
        screen: &screen,
        source,
        before: evidence::Before::default(),
        goal: None,
        ready: 0,
        has_begun: false,
    };
    let ended = {
        let mut running = std::pin::pin!(course.run());
        loop {
            tokio::select! {
                ended = &mut running => break ended,
                number = signals.heard() => break Ok(Ending::Interrupted(number)),
                () = sleep(DRAWN_EVERY) => screen.draw(),
            }
        }
    };
    screen.begin("removing what the drill made");
    let removed = {
        let mut removing = std::pin::pin!(course.source.end());
        loop {
            tokio::select! {
                removed = &mut removing => break removed,
                _ = signals.heard() => screen.say("still removing what the drill made; that takes a few seconds"),
                () = sleep(DRAWN_EVERY) => screen.draw(),
            }
        }
    };
    let ending = match (ended, course.has_begun) {
        (Ok(Ending::Interrupted(number)), false) => {
            screen.failed("called off before any pod was asked to leave");
            removed?;
            return Ok(ExitCode::from(SIGNALLED + number));
        }
        (Ok(ending), _) => ending,
        (Err(error), false) => {
            if let Err(stays) = removed {
                screen.failed(format!("{stays:#}"));
            }
            return Err(error);
        }
        (Err(error), true) => Ending::Broken(format!("{error:#}")),
    };
    screen.begin("asking how the pods ended");
    let observations = course.observations(ending).await;
    let mut report = report::of(&observations);
    match removed {
        Ok(()) => screen.done("the drill is over, and what it made is removed"),
        Err(stays) => {
            screen.failed(format!("{stays:#}"));
            report.notes.push(format!("{stays:#}"));
        }
    }
    print(args, &report, junit, out)?;
    Ok(match (&observations.ending, report.result) {
        (Ending::Interrupted(number), _) => ExitCode::from(SIGNALLED + number),
        (_, DrillResult::Passed) => ExitCode::SUCCESS,
        (_, DrillResult::Failed | DrillResult::Incomplete) => ExitCode::from(FOUND),
    })
}

/// A file that can be written to. What is in it stays there until there is a report.
fn junit_file(path: &Path) -> Result<File> {
    let opened = File::options().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| format!("cannot write to {}", path.display()))
}

/// What was seen is shown first: it cannot be had again.
fn print(args: &DrillArgs, report: &report::Report, junit: Option<File>, out: &mut dyn Write) -> Result<()> {
    match args.output {
        DrillOutput::Text => write!(out, "{}", show::text(report))?,
        DrillOutput::Json => writeln!(out, "{}", serde_json::to_string_pretty(report)?)?,
        DrillOutput::Junit => write!(out, "{}", junit::xml(report))?,
    }
    out.flush()?;
    if let Some(file) = junit {
        replace(file, &junit::xml(report)).context("cannot write the report to the file of --junit")?;
    }
    Ok(())
}

fn replace(mut file: File, text: &str) -> io::Result<()> {
    // Pipes and terminals have nothing to cut off.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

/// Whether somebody has to be asked before pods are made to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Consent {
    Given,
    ToBeAsked,
    Missing,
}

/// An instance of this machine is the user's own; any other cluster may be somebody's production.
fn needed_consent(is_local: bool, yes: bool, stdin_is_terminal: bool) -> Consent {
    match (is_local || yes, stdin_is_terminal) {
        (true, _) => Consent::Given,
        (false, true) => Consent::ToBeAsked,
        (false, false) => Consent::Missing,
    }
}

async fn consent(cluster: &Cluster, target: &Target, args: &DrillArgs, is_local: bool) -> Result<()> {
    let does = match target.way {
        Way::Restart => format!("restarts {}", target.shown()),
        Way::Kill => format!("deletes pods of {}", target.shown()),
    };
    let Cluster { server, namespace, .. } = cluster;
    let requests = if args.no_load { String::new() } else { format!(" under {} requests a second", args.rate) };
    match needed_consent(is_local, args.yes, io::stdin().is_terminal()) {
        Consent::Given => Ok(()),
        Consent::Missing => bail!(
            "this {does} in namespace {namespace} of {server}, which is no Adieu of this machine; say --yes if that is what \
             you want"
        ),
        Consent::ToBeAsked => {
            eprint(&format!("This {does} in namespace {namespace} of {server}{requests}. Go on? [y/N] "));
            let (tell, told) = tokio::sync::oneshot::channel();
            // Nobody can be called off who waits for keys.
            std::thread::spawn(move || {
                let mut answer = String::new();
                let _ = io::stdin().read_line(&mut answer);
                let _ = tell.send(answer);
            });
            let answer = told.await.unwrap_or_default();
            match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => Ok(()),
                _ => bail!("called off; nothing was done"),
            }
        }
    }
}

fn eprint(text: &str) {
    let mut out = io::stderr();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{text:?} is not a number of pods, at least 1"))
}

fn limit(text: &str) -> Result<Duration, String> {
    let limit = crate::verbs::duration(text)?;
    let day = Duration::from_secs(86_400);
    if limit.is_zero() || limit > day { Err("write a time between 1s and 24h".to_owned()) } else { Ok(limit) }
}

/// Of an address in this form: `/health?deep=1`.
fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.parse::<http::Uri>().is_ok();
    if is_path { Ok(text.to_owned()) } else { Err(format!("{text:?} is no path; write for example /health")) }
}

#[cfg(test)]
mod tests;
