//! `adieu plan`: how the pods of a manifest will leave, before any of them runs.
//!
//! Reads manifests (`manifest`), assumes how programs and hooks behave (`behaviour`), lets the rules that run real
//! pods play the deletion in virtual time (`story`), and says how it went: for people (`draw`) or programs
//! (`report`, `sarif`, `junit`). Needs no root, no cluster and no time.

mod advice;
mod bars;
mod behaviour;
mod checked;
mod command;
mod documents;
mod draw;
mod duration_text;
mod ender;
mod image;
mod junit;
mod live;
mod located;
mod manifest;
mod mistakes;
mod options;
mod paint;
pub(crate) mod pause;
mod report;
mod sarif;
mod seen;
mod sentence;
mod shell;
mod story;
mod traffic;
mod verdict;
mod workload;
mod world;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use lifecycle::{ContainerName, Hook, PodSpec, Readiness, Role};

use crate::cluster::{Cluster, ClusterArgs, ObjectName};
use advice::Warning;
use bars::Bar;
use behaviour::Behaviour;
use located::Located;
use manifest::{Manifests, PlannedPod};
use mistakes::Mistakes;
use story::{Cast, Story};
use traffic::Traffic;
use verdict::PlanVerdict;
use world::Part;

pub use options::{AppOption, HookOption};
pub use paint::Paint;
pub use traffic::TrafficOption;

/// `adieu plan`.
#[derive(Args, Clone, Debug, Default)]
pub struct PlanArgs {
    /// A manifest, YAML or JSON, a folder of them, or - for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE", required_unless_present = "stray")]
    pub files: Vec<PathBuf>,
    /// What a cluster has instead: deploy/NAME, sts/NAME, ds/NAME, job/NAME, pod/NAME
    #[arg(value_name = "WHAT")]
    pub stray: Option<PathBuf>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Delete the pod so long after its start, such as 2s [default: once everything is Ready]
    #[arg(long, value_name = "TIME", value_parser = options::duration)]
    pub delete_at: Option<Duration>,
    /// Delete it with this grace, in seconds [default: terminationGracePeriodSeconds]
    #[arg(long, value_name = "SECONDS", value_parser = options::whole_seconds, allow_negative_numbers = true)]
    pub grace: Option<u64>,
    /// How a program takes its stop signal: exits-after=3s, exits-at-once, ignores-term, hangs, exit-code=1; joined by
    /// commas, for all main containers or for one
    #[arg(long = "app", value_name = "[CONTAINER=]HOW")]
    pub apps: Vec<AppOption>,
    /// How a preStop hook goes: takes=2s, hangs, fails; for all containers or for one
    #[arg(long = "hook", value_name = "[CONTAINER=]HOW")]
    pub hooks: Vec<HookOption>,
    /// How traffic from Services goes elsewhere: unsteered (by nobody, as on most clusters), steered (with the drain barrier, as on Adieu), and then
    /// moves-after=2s, stays, replacement-after=5s, no-replacement, connections-end-after=10m; joined by commas
    #[arg(long = "traffic", value_name = "HOW")]
    pub traffic: Vec<TrafficOption>,
    /// `json` for programs, `sarif` for code hosts and editors, `junit` for CI
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: PlanOutput,
    /// Exit with 3 if there are warnings
    #[arg(long)]
    pub strict: bool,
    /// Leave out warnings of that short name; joined by commas, or given several times
    #[arg(long, value_name = "WARNING", value_delimiter = ',', value_parser = advice::code)]
    pub accept: Vec<String>,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanOutput {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// Warnings beside their lines: SARIF 2.1.0.
    Sarif,
    /// A test for each pod.
    Junit,
}

/// How planning went, beyond what was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was planned.
    Planned,
    /// It was, and there are warnings, which `--strict` does not let pass.
    Refused,
}

/// One pod's end, planned.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pod: &'a PlannedPod,
    /// What the manifest grants; the delete may say otherwise.
    own_grace: Duration,
    /// `--grace` said so.
    grace_said: bool,
    traffic: Option<Traffic>,
    behaviours: BTreeMap<String, Behaviour>,
    assumed: Vec<String>,
    story: Story,
    /// The same without anybody who steers traffic, for a pod that has some.
    unsteered: Option<Story>,
    /// The delete finds the pod at a moment that takes explaining.
    from_the_start: bool,
    bars: Vec<Bar>,
    verdict: PlanVerdict,
    warnings: Vec<Warning>,
}

/// The command line says something that these manifests have no place for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(String);

/// Plans every pod of the manifests and writes the result to `out`. Mistakes in the manifests are an error, and for
/// programs are written to `out` as well; one in the command line is a [`Misuse`].
pub fn run(args: &PlanArgs, stdin: &mut dyn Read, out: &mut dyn Write, paint: Paint) -> Result<Outcome> {
    if let Some(stray) = &args.stray {
        return Err(Misuse(format!("files are given with -f: adieu plan -f {}", stray.display())).into());
    }
    let mut mistakes = Mistakes::default();
    let sources = documents::sources(&args.files, stdin, &mut mistakes);
    let manifests = manifest::read(&sources, &mut mistakes);
    present(args, manifests, mistakes, out, paint)
}

/// The object of a cluster that is meant, if it is one: `deploy/web`.
pub fn object_of(args: &PlanArgs) -> Option<ObjectName> {
    let stray = args.stray.as_ref().filter(|stray| args.files.is_empty() && !stray.exists())?;
    live::object_name(stray.to_str()?)
}

/// Plans an object of a cluster as [`run`] does one of a manifest.
pub async fn run_live(
    args: &PlanArgs,
    cluster: &Cluster,
    name: &ObjectName,
    out: &mut dyn Write,
    paint: Paint,
) -> Result<Outcome> {
    let (own, mut services) = live::objects(cluster, name).await?;
    // One that is not understood here is no reason not to plan the pods.
    services.retain(|service| {
        let mut mistakes = Mistakes::default();
        manifest::of_objects(std::slice::from_ref(service), &mut mistakes);
        mistakes.is_empty()
    });
    let objects: Vec<_> = std::iter::once(own).chain(services).collect();
    let mut mistakes = Mistakes::default();
    let manifests = manifest::of_objects(&objects, &mut mistakes);
    present(args, manifests, mistakes, out, paint)
}

fn present(
    args: &PlanArgs,
    manifests: Manifests,
    mistakes: Mistakes,
    out: &mut dyn Write,
    paint: Paint,
) -> Result<Outcome> {
    let manifests = match sound(manifests, mistakes) {
        Ok(manifests) => manifests,
        Err(mistakes) => {
            let told = match args.output {
                PlanOutput::Text => String::new(),
                PlanOutput::Json => report::of_mistakes(&mistakes)?,
                PlanOutput::Sarif => sarif::of_mistakes(&mistakes)?,
                PlanOutput::Junit => junit::of_mistakes(&mistakes),
            };
            write(out, &told)?;
            return Err(mistakes.into());
        }
    };
    check(args, &manifests)?;
    let notes = traffic::notes(&manifests);
    let plans = manifests.pods.iter().map(|pod| plan(args, pod, &manifests)).collect::<Result<Vec<_>>>()?;
    let text = match args.output {
        PlanOutput::Text => {
            let pages = plans.iter().map(|plan| draw::plan(plan, paint));
            let notes = notes.iter().map(|note| draw::aside("note", note));
            let skipped = manifests.skipped.iter().map(|skipped| draw::aside("skipped", skipped));
            pages.chain(notes).chain(skipped).collect::<Vec<_>>().join("\n")
        }
        PlanOutput::Json => report::of(&plans, &manifests.skipped, &notes)?,
        PlanOutput::Sarif => sarif::of(&plans)?,
        PlanOutput::Junit => junit::of(&plans),
    };
    write(out, &text)?;
    let warned = plans.iter().any(|plan| !plan.warnings.is_empty());
    Ok(if args.strict && warned { Outcome::Refused } else { Outcome::Planned })
}

fn write(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader who has seen enough (`| head`) is no mistake.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Everything that is to be planned, or everything that is wrong.
fn sound(manifests: Manifests, mistakes: Mistakes) -> Result<Manifests, Mistakes> {
    if !mistakes.is_empty() {
        return Err(mistakes.sorted());
    }
    if manifests.pods.is_empty() {
        return Err(Mistakes::one(format!("no pods to plan: the manifests hold no {}", workload::kinds())));
    }
    Ok(manifests)
}

/// The values of everything that `-f` names, for commands that take manifests as they are; or everything that is wrong.
pub(crate) fn manifest_values(files: &[PathBuf], stdin: &mut dyn Read) -> Result<Vec<serde_json::Value>> {
    let mut mistakes = Mistakes::default();
    let sources = documents::sources(files, stdin, &mut mistakes);
    let documents = sources.iter().flat_map(|source| documents::documents(source, &mut mistakes)).collect::<Vec<_>>();
    if mistakes.is_empty() { Ok(documents.iter().map(Located::value).collect()) } else { Err(mistakes.sorted().into()) }
}

/// What is to be said of the manifest of a pod that runs somewhere; nothing of one that cannot be read here.
pub(crate) fn advice_on(pod: &serde_json::Value) -> Vec<PodAdvice> {
    let manifests = manifest::of_objects(&[(String::new(), pod.clone())], &mut Mistakes::default());
    let plans = manifests.pods.iter().filter_map(|pod| plan(&PlanArgs::default(), pod, &manifests).ok());
    let warnings = plans.flat_map(|plan| plan.warnings);
    warnings
        .map(|Warning { code, container, finding, reason, remedy, .. }| PodAdvice {
            code,
            container,
            finding: format!("{finding}; {reason}"),
            remedy,
        })
        .collect()
}

/// Advice on a pod, for other commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodAdvice {
    /// The short name.
    pub code: &'static str,
    /// Which container it is about.
    pub container: Option<String>,
    /// What was found, and why it matters.
    pub finding: String,
    /// What to do.
    pub remedy: String,
}

/// Whether everybody is there of whom the command line speaks.
fn check(args: &PlanArgs, manifests: &Manifests) -> Result<(), Misuse> {
    let containers = || {
        let specs = manifests.pods.iter().filter_map(|pod| pod.pod.spec.as_ref());
        specs.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
    };
    let apps = args.apps.iter().filter_map(|app| app.container.as_deref());
    let hooks = || args.hooks.iter().filter_map(|hook| hook.container.as_deref());
    if let Some(name) = apps.chain(hooks()).find(|name| containers().all(|container| container.name != *name)) {
        let mut known: Vec<&str> = containers().map(|container| container.name.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        return Err(Misuse(format!("no container is called {name:?}; there are: {}", known.join(", "))));
    }
    let hooked = |name: &&str| {
        let mut named = containers().filter(|container| container.name == **name);
        named.any(|container| container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.pre_stop.is_some()))
    };
    match hooks().find(|name| !hooked(name)) {
        Some(name) => Err(Misuse(format!("--hook {name}: that container has no preStop hook"))),
        None => Ok(()),
    }
}

fn plan<'a>(args: &PlanArgs, pod: &'a PlannedPod, manifests: &Manifests) -> Result<Plan<'a>> {
    let spec = reading::pod_spec(&pod.pod).with_context(|| pod.place.to_string())?;
    let own_grace = spec.grace;
    let grace = args.grace.map_or(own_grace, Duration::from_secs);
    let behaviours = behaviours(args, pod, &spec);
    let leaving = |role: Role| matches!(role, Role::Main | Role::Sidecar);
    let names: Vec<String> =
        spec.containers.iter().filter(|part| leaving(part.role)).map(|part| part.name.0.clone()).collect();
    let mut assumed: Vec<String> =
        names.iter().filter_map(|name| behaviours.get(name)).flat_map(|b| b.assumed.clone()).collect();
    let parts = parts(pod, &spec, &behaviours);
    let ready_after = parts.values().map(|part| part.probes_pass_after).max().unwrap_or_default();
    let (traffic, flow, about_traffic) = traffic::of(pod, ready_after, manifests, &args.traffic);
    assumed.extend(about_traffic);
    let init = |part: &&lifecycle::ContainerSpec| part.role == Role::Init;
    if args.delete_at.is_some() && spec.containers.iter().any(|part| init(&part)) {
        assumed.push("init containers take no time, except what they sleep".to_owned());
    }
    let cast = Cast { spec, parts, routes: traffic.as_ref().map(|traffic| traffic.routes), flow };
    let today = Cast { flow: flow.unsteered(), ..cast.clone() };
    let unsteered = traffic.as_ref().filter(|_| flow.steered).map(|_| story::tell(today, grace, args.delete_at));
    let story = story::tell(cast, grace, args.delete_at);
    let bars = bars::of(names.iter().map(String::as_str), story.departure());
    let mut plan = Plan {
        pod,
        own_grace,
        grace_said: args.grace.is_some(),
        traffic,
        assumed,
        verdict: verdict::of(&story, &bars, &behaviours, pod.is_job()),
        behaviours,
        from_the_start: args.delete_at.is_some() || !story.was_ready,
        story,
        unsteered,
        bars,
        warnings: Vec::new(),
    };
    plan.warnings = advice::on(&plan);
    if plan.warnings.iter().any(|warning| warning.code == advice::STILL_ARRIVES) {
        plan.verdict.refuses();
    }
    plan.warnings.retain(|warning| !args.accept.iter().any(|accepted| accepted == warning.code));
    Ok(plan)
}

fn behaviours(args: &PlanArgs, pod: &PlannedPod, spec: &PodSpec) -> BTreeMap<String, Behaviour> {
    let Some(api) = pod.pod.spec.as_ref() else { return BTreeMap::new() };
    let containers = api.init_containers.iter().flatten().chain(&api.containers);
    containers
        .map(|container| {
            let main = spec.containers.iter().any(|part| part.name.0 == container.name && part.role == Role::Main);
            (container.name.clone(), Behaviour::of(&pod.pod, container, main, &args.apps, &args.hooks))
        })
        .collect()
}

fn parts(pod: &PlannedPod, spec: &PodSpec, behaviours: &BTreeMap<String, Behaviour>) -> BTreeMap<ContainerName, Part> {
    let api = pod.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    api.filter_map(|container| {
        let part = spec.containers.iter().find(|part| part.name.0 == container.name)?;
        let delay = container.readiness_probe.as_ref().and_then(|probe| probe.initial_delay_seconds).unwrap_or(0);
        let after = Duration::from_secs(u64::try_from(delay).unwrap_or(0));
        Some((
            part.name.clone(),
            Part {
                role: part.role,
                readiness: part.readiness,
                probes_pass_after: if part.readiness == Readiness::WhenProbed { after } else { Duration::ZERO },
                behaviour: behaviours.get(&container.name)?.clone(),
                sleeps: matches!(part.pre_stop, Some(Hook::Sleep(_) | Hook::ExecSleep(_))),
            },
        ))
    })
    .collect()
}

#[cfg(test)]
mod tests;
