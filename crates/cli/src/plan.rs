//! `adieu plan`: how the pods of a manifest will leave, before any of them runs.
//!
//! Reads manifests (`manifest`), assumes how programs and hooks behave (`behaviour`), lets the rules that run real
//! pods play the deletion in virtual time (`story`), and says how it went: for people (`draw`) or programs
//! (`report`). Needs no root, no cluster and no time.

mod advice;
mod bars;
mod behaviour;
mod command;
mod draw;
mod located;
mod manifest;
mod paint;
mod report;
mod story;
mod verdict;
mod words;
mod workload;
mod world;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use lifecycle::{ContainerName, PodSpec, Readiness, Role};

use advice::Warning;
use bars::Bar;
use behaviour::Behaviour;
use manifest::{Manifests, PlannedPod};
use story::{Story, What};
use verdict::Verdict;
use world::Part;

pub use behaviour::{AppOption, HookOption};
pub use paint::Paint;

/// `adieu plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// A manifest, YAML or JSON, or - for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Delete the pod so long after its start, such as 2s [default: once everything is Ready]
    #[arg(long, value_name = "TIME", value_parser = behaviour::duration)]
    pub delete_at: Option<Duration>,
    /// Delete it with this grace, in seconds [default: terminationGracePeriodSeconds]
    #[arg(long, value_name = "SECONDS")]
    pub grace: Option<u64>,
    /// How a program takes its stop signal: exits-after=3s, exits-at-once, ignores-term, exit-code=1; joined by commas,
    /// for all main containers or for one
    #[arg(long = "app", value_name = "[CONTAINER=]HOW")]
    pub apps: Vec<AppOption>,
    /// How a preStop hook goes: takes=2s, hangs, fails; for all containers or for one
    #[arg(long = "hook", value_name = "[CONTAINER=]HOW")]
    pub hooks: Vec<HookOption>,
    /// `json` for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: PlanOutput,
    /// Exit with 2 if there are warnings
    #[arg(long)]
    pub strict: bool,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanOutput {
    /// For people.
    Text,
    /// For programs.
    Json,
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
    services: Vec<String>,
    behaviours: BTreeMap<String, Behaviour>,
    assumed: Vec<String>,
    story: Story,
    /// The delete finds the pod at a moment that takes explaining.
    from_the_start: bool,
    bars: Vec<Bar>,
    verdict: Verdict,
    warnings: Vec<Warning>,
}

/// Plans every pod of the manifests and writes the result to `out`.
pub fn run(args: &PlanArgs, stdin: &mut dyn Read, out: &mut dyn Write, paint: Paint) -> Result<Outcome> {
    let manifests = manifest::read(&args.files, stdin)?;
    if manifests.pods.is_empty() {
        bail!("no pods to plan: the manifests hold no Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet or Job");
    }
    check_names(args, &manifests)?;
    let plans = manifests.pods.iter().map(|pod| plan(args, pod, &manifests)).collect::<Result<Vec<_>>>()?;
    let text = match args.output {
        PlanOutput::Text => {
            let pages = plans.iter().map(|plan| draw::plan(plan, paint));
            let skipped = manifests.skipped.iter().map(|skipped| format!("skipped: {skipped}\n"));
            pages.chain(skipped).collect::<Vec<_>>().join("\n")
        }
        PlanOutput::Json => serde_json::to_string_pretty(&report::of(&plans, &manifests.skipped))? + "\n",
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader who has seen enough (`| head`) is no mistake.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    let warned = plans.iter().any(|plan| !plan.warnings.is_empty());
    Ok(if args.strict && warned { Outcome::Refused } else { Outcome::Planned })
}

/// A container that an option names exists somewhere.
fn check_names(args: &PlanArgs, manifests: &Manifests) -> Result<()> {
    let specs = manifests.pods.iter().filter_map(|pod| pod.pod.spec.as_ref());
    let known: Vec<&str> = specs
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
        .map(|container| container.name.as_str())
        .collect();
    let apps = args.apps.iter().filter_map(|app| app.container.as_deref());
    let hooks = args.hooks.iter().filter_map(|hook| hook.container.as_deref());
    for name in apps.chain(hooks) {
        if !known.contains(&name) {
            bail!("no container is called {name:?}; there are: {}", known.join(", "));
        }
    }
    Ok(())
}

fn plan<'a>(args: &PlanArgs, pod: &'a PlannedPod, manifests: &Manifests) -> Result<Plan<'a>> {
    let spec = reading::pod_spec(&pod.pod).with_context(|| pod.place.to_string())?;
    let grace = args.grace.map_or(spec.grace, Duration::from_secs);
    let behaviours = behaviours(args, pod, &spec);
    let leaving = |role: Role| matches!(role, Role::Main | Role::Sidecar);
    let names: Vec<String> =
        spec.containers.iter().filter(|part| leaving(part.role)).map(|part| part.name.0.clone()).collect();
    let assumed = names.iter().filter_map(|name| behaviours.get(name)).flat_map(|b| b.assumed.clone()).collect();
    let parts = parts(pod, &spec, &behaviours);
    let story = story::tell(spec, parts, grace, args.delete_at);
    let bars = bars::of(names.iter().map(String::as_str), &story.facts);
    let services = manifests.services.iter().filter(|service| service.selects(&pod.pod));
    let mut plan = Plan {
        pod,
        services: services.map(|service| service.name.clone()).collect(),
        behaviours,
        assumed,
        verdict: verdict::of(&story, &bars),
        from_the_start: args.delete_at.is_some() || !story.was_ready,
        story,
        bars,
        warnings: Vec::new(),
    };
    plan.warnings = advice::on(&plan);
    Ok(plan)
}

impl Plan<'_> {
    /// Which fact is the delete.
    fn delete_position(&self) -> usize {
        let is_delete = |what: &What| matches!(what, What::DeleteRequested { .. } | What::RemovedAtOnce);
        self.story.facts.iter().position(|fact| is_delete(&fact.what)).unwrap_or(0)
    }
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
            },
        ))
    })
    .collect()
}

#[cfg(test)]
mod tests;
