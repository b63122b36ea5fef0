//! What must hold in every story: a fold over the trace, which looks at nothing else.
//!
//! The laws are those of GUARANTEES.md. Slack is counted, not guessed: so many seams lie between a cause and its effect, each of
//! which takes [`Profile::hop`](crate::scenario::Profile::hop) at most, and an agent that is dead does nothing.

mod law;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use crate::faults::Fault;
use crate::machine::plan_name;
use crate::scenario::{ContainerPlan, Deed, HookPlan, PodPlan, Profile, Restart, Role, SERVER, Scenario, Script};
use crate::trace::{Run, Shown, TraceEvent, TraceLine};
use crate::workload::WorkloadPlan;

pub use self::law::{Broken, Law};

/// What is to become of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is to go.
    Leaves,
    /// It is to stay.
    Stays,
}

/// What the story asks of a pod.
pub fn fate(scenario: &Scenario, pod: &str) -> Fate {
    let leaves = scenario.acts.iter().any(|act| match &act.deed {
        Deed::Delete(name, _) | Deed::Remove(name) => name == pod,
        Deed::Create(_) | Deed::Edit(_) | Deed::ShutDown => false,
        Deed::Rollout(_) | Deed::Scale(..) | Deed::Drain(_) | Deed::Uncordon(_) => false,
    });
    if leaves { Fate::Leaves } else { Fate::Stays }
}

/// How long it takes at most until everybody has noticed that a node says nothing.
const NOTICED_MS: u64 = 75_000;

/// When a story must be over.
pub fn limit_ms(scenario: &Scenario) -> u64 {
    let last = scenario.acts.iter().map(|act| act.at).max().unwrap_or(0);
    let pods = scenario.pods.iter().chain(scenario.workloads.iter().map(|workload| &workload.pod));
    let own = pods.map(|pod| pod.grace).max().unwrap_or(0);
    let asked = scenario.acts.iter().filter_map(|act| if let Deed::Delete(_, grace) = act.deed { grace } else { None });
    let grace = asked.max().unwrap_or(0).max(own);
    let down: u64 = scenario.crashes.iter().map(|crash| crash.down_ms).sum();
    let workloads: u64 = scenario.workloads.iter().map(|workload| workload_ms(scenario, workload)).sum();
    last + 2 * grace * 1000 + down + slack(scenario, 100) + 20_000 + workloads
}

/// How long a workload takes to become what was asked for: each time all of its pods, one after the other.
fn workload_ms(scenario: &Scenario, workload: &WorkloadPlan) -> u64 {
    let name = workload.name();
    let size = |deed: &Deed| if let Deed::Scale(of, number) = deed { (of == name).then_some(*number) } else { None };
    let sizes = scenario.acts.iter().filter_map(|act| size(&act.deed));
    let most = sizes.max().unwrap_or(0).max(workload.replicas);
    let changes = u64::try_from(scenario.acts.len()).unwrap_or(1);
    let container = |it: &ContainerPlan| it.start_ms + it.ready_ms.unwrap_or(0) + it.pull_ms.unwrap_or(0) + 2_000;
    let pod: u64 = workload.pod.containers.iter().map(container).sum();
    // A node that is given up takes what it had of the workload with it.
    let unseen = if workload.pod.tolerates.is_some() { NOTICED_MS } else { 0 };
    changes * most * (pod + workload.pod.grace * 1000 + 60 * scenario.profile.hop()) + unseen
}

/// Before this nobody can say whether a story is over: who follows a static pod that was edited has yet to come up.
pub fn settled_ms(scenario: &Scenario) -> u64 {
    let edits = scenario.acts.iter().filter(|act| matches!(act.deed, Deed::Edit(_))).map(|act| act.at);
    let grace = scenario.pods.iter().map(|pod| pod.grace).max().unwrap_or(0);
    let down: u64 = scenario.crashes.iter().map(|crash| crash.down_ms).sum();
    let settled = edits.max().map_or(0, |last| last + grace * 1000 + 4_000 + down + slack(scenario, 80));
    // After a loss of power, or of an answer, what is to run has to come up again.
    let last = scenario.acts.iter().map(|act| act.at).max().unwrap_or(0);
    let comes_up = !scenario.faults.is_empty() || scenario.crashes.iter().any(|crash| crash.power || crash.node);
    settled.max(if comes_up { last + down + 15_000 + slack(scenario, 40) } else { 0 })
}

/// How long so many seams in a row take at most.
fn slack(scenario: &Scenario, seams: u64) -> u64 {
    // What is lost is asked for again, after a pause that grows to five seconds.
    let lost = if scenario.profile == Profile::Lossy { 12_000 } else { 0 };
    // So is what the runtime or the disk refuses, after it is over.
    let faults: u64 = scenario.faults.iter().map(|fault| 2_500 + fault.ms()).sum();
    // Who finds no server asks again, after a pause that grows as well.
    let served: u64 = scenario.crashes.iter().filter(|crash| crash.server).map(|crash| crash.down_ms + 8_000).sum();
    seams * scenario.profile.hop() + lost + faults + served
}

/// What a run is taken to have ended with when its machine lost its power.
const WITH_THE_POWER: u8 = u8::MAX;

#[derive(Default)]
struct RunFacts {
    started: Option<u64>,
    refused: bool,
    pre_stop: Option<(u64, Option<u64>)>,
    post_failed: bool,
    /// When, and in which life.
    signal: Option<(u64, u64)>,
    killed: bool,
    exit: Option<(u64, u8)>,
}

impl RunFacts {
    fn is_alive(&self) -> bool {
        self.started.is_some() && self.exit.is_none()
    }
}

#[derive(Default)]
struct PodFacts {
    runs: BTreeMap<Run, RunFacts>,
    sandbox: bool,
    /// The earliest that it was ever to be gone, and when that was first stored.
    deadline: Option<i64>,
    /// When it last came closer.
    hurried: u64,
    deletion_seen: Option<u64>,
    /// When the node of this life heard of it.
    heard: Option<u64>,
    object: Option<u64>,
    object_gone: Option<u64>,
    shown: BTreeSet<(Run, i32)>,
    seen_in_life: bool,
    /// The node that it is bound to.
    node: Option<String>,
    last_exit: Option<u64>,
    /// The names of the records of its end.
    records: BTreeSet<String>,
}

struct Fold<'a> {
    scenario: &'a Scenario,
    pods: BTreeMap<String, PodFacts>,
    broken: Vec<Broken>,
    life: u64,
    /// When it began.
    life_begun: u64,
    /// Those whose objects were there when this life began.
    there: BTreeMap<String, u64>,
    served: bool,
    shutdown: Option<u64>,
    /// How often the file of a static pod was changed, and when.
    edits: BTreeMap<String, Vec<u64>>,
    forced: BTreeSet<String>,
    /// What went wrong in the runtime for each pod.
    faults: BTreeMap<String, Vec<Fault>>,
    /// Pods that a user deleted.
    asked: BTreeSet<String>,
    power_lost: bool,
    /// Nodes of which nobody heard, and for how long.
    silent: BTreeMap<String, u64>,
    over_ms: u64,
}

/// Every law that a trace breaks.
pub fn check(scenario: &Scenario, trace: &[TraceLine]) -> Vec<Broken> {
    let mut fold = Fold {
        scenario,
        pods: BTreeMap::new(),
        broken: Vec::new(),
        life: 0,
        life_begun: 0,
        there: BTreeMap::new(),
        served: false,
        shutdown: None,
        edits: BTreeMap::new(),
        forced: BTreeSet::new(),
        faults: BTreeMap::new(),
        asked: BTreeSet::new(),
        power_lost: false,
        silent: BTreeMap::new(),
        over_ms: trace.last().map_or(0, |line| line.at),
    };
    for line in trace {
        fold.take(line);
    }
    fold.end();
    let mut broken = fold.broken;
    broken.extend(workloads::check(scenario, trace));
    broken
}

impl Fold<'_> {
    /// Whether the node of a pod was silent for longer than the pod bears it.
    fn is_evicted(&self, who: &str) -> bool {
        let node = self.pods.get(who).and_then(|pod| pod.node.as_ref());
        let Some((node, seconds)) = node.zip(self.plan(who).and_then(|plan| plan.tolerates)) else { return false };
        self.silent.get(node).is_some_and(|ms| *ms >= NOTICED_MS + seconds * 1000)
    }

    fn breaks(&mut self, law: Law, at: u64, who: &str, how: impl Into<String>) {
        self.broken.push(Broken { law, at, who: who.to_owned(), how: how.into() });
    }

    fn plan(&self, who: &str) -> Option<&PodPlan> {
        self.scenario.plan(plan_name(who))
    }

    fn container(&self, who: &str, run: &Run) -> Option<&ContainerPlan> {
        self.plan(who)?.containers.iter().find(|plan| plan.name == run.container)
    }

    /// Whether this verb went wrong for a pod.
    fn met(&self, who: &str, verb: &str) -> bool {
        self.faults.get(who).into_iter().flatten().any(|fault| fault.is_of(verb))
    }

    /// Whether the runtime said of a hook of this pod that it does not begin it: then it has failed.
    fn refuses_hooks(&self, who: &str) -> bool {
        let mut faults = self.faults.get(who).into_iter().flatten();
        faults.any(|fault| matches!(fault, Fault::Refused(_)) && fault.is_of("run_hook"))
    }

    /// Whether a pod that is to stay may be over because of its runtime: a container whose hook failed is stopped.
    fn lost_for_good(&self, who: &str) -> bool {
        self.refuses_hooks(who) && self.plan(who).is_some_and(|plan| plan.restart != Restart::Always)
    }

    /// How long it takes until a hook is cut off that could not be at once.
    fn hook_is_cut_off_within(&self, who: &str) -> u64 {
        let faults = self.faults.get(who).into_iter().flatten();
        faults.filter(|fault| fault.is_of("cancel_hook")).map(|fault| 500 + fault.ms()).sum()
    }

    fn run(&mut self, who: &str, run: &Run) -> &mut RunFacts {
        self.pods.entry(who.to_owned()).or_default().runs.entry(run.clone()).or_default()
    }

    /// By when a run may be killed at the earliest; `None` if nobody asked for its end.
    fn earliest(&self, who: &str, run: &Run) -> Option<i64> {
        let (pod, plan) = (self.pods.get(who)?, self.plan(who)?);
        let grace = i64::try_from(plan.grace * 1000).unwrap_or(i64::MAX);
        let ms = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        let mut earliest: Vec<i64> = pod.deadline.into_iter().collect();
        earliest.extend(self.shutdown.map(|at| ms(at) + grace));
        earliest.extend(self.edited(who).map(|at| ms(at) + grace));
        let facts = pod.runs.get(run)?;
        if let (Some(live), Some(started)) = (self.container(who, run).and_then(|it| it.live_ms), facts.started) {
            earliest.push(ms(started + live) + grace);
        }
        let no_post = self.refuses_hooks(who) && self.container(who, run).is_some_and(|it| it.post_start.is_some());
        if facts.post_failed || no_post {
            earliest.extend(facts.started.map(|at| ms(at) + grace));
        }
        earliest.extend(self.mains_over(who).map(|at| ms(at) + grace));
        earliest.into_iter().min()
    }

    /// When the file of a static pod asked for another, or for none.
    fn edited(&self, who: &str) -> Option<u64> {
        let nth = who.split_once('#').and_then(|(_, nth)| nth.parse::<usize>().ok()).unwrap_or(1);
        self.edits.get(plan_name(who))?.get(nth - 1).copied()
    }

    /// When the last of the containers that a pod is about ended for good: then its sidecars go.
    fn mains_over(&self, who: &str) -> Option<u64> {
        let (pod, plan) = (self.pods.get(who)?, self.plan(who)?);
        if plan.restart == Restart::Always {
            return None;
        }
        let mains = plan.containers.iter().filter(|it| it.role == Role::Main);
        let ends = mains.map(|main| {
            let last =
                pod.runs.iter().filter(|(run, _)| run.container == main.name).max_by_key(|(run, _)| run.attempt)?;
            let refused = last.1.refused && plan.restart == Restart::Never;
            last.1.exit.map(|(at, _)| at).or_else(|| refused.then_some(0))
        });
        ends.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// Whether anybody asked for the end of a run.
    fn may_end(&self, who: &str, run: &Run) -> bool {
        let init_failed = self.pods.get(who).is_some_and(|pod| {
            let inits = |run: &Run| self.container(who, run).is_some_and(|it| it.role == Role::Init);
            pod.runs.iter().any(|(run, facts)| inits(run) && facts.exit.is_some_and(|(_, code)| code != 0))
        });
        init_failed || self.earliest(who, run).is_some()
    }

    fn take(&mut self, line: &TraceLine) {
        let (at, who) = (line.at, line.who.as_str());
        match &line.what {
            TraceEvent::Life(number) => {
                (self.life, self.life_begun) = (*number, at);
                // A removal that was asked for may have been stored, and nobody was left to see it. One that was not is seen again.
                for (_, pod) in self.pods.iter_mut().filter(|(who, _)| self.forced.contains(plan_name(who))) {
                    pod.object = None;
                }
                self.served_anew();
                self.pods.values_mut().for_each(|pod| pod.heard = None);
            }
            TraceEvent::Crash(_) => self.end_life(at),
            TraceEvent::NodeLife(name) if name == SERVER => self.served_anew(),
            TraceEvent::NodeCrash(words) if words.split(':').next() == Some(SERVER) => self.end_life(at),
            TraceEvent::NodeLife(_) => {
                // Another agent: what the one before it had heard and asked for is not its.
                (self.life, self.life_begun) = (self.life + 1_000, at);
                self.pods.values_mut().for_each(|pod| pod.heard = None);
            }
            TraceEvent::NodeCrash(words) => {
                let node = words.split(':').next().unwrap_or_default().to_owned();
                let down = self.scenario.crashes.iter().filter(|crash| crash.node).map(|crash| crash.down_ms).max();
                self.silent.insert(node, down.unwrap_or(0));
            }
            TraceEvent::PowerLost => {
                self.power_lost = true;
                // How it ended was not told, and whoever could tell is gone.
                for pod in self.pods.values_mut() {
                    for (run, facts) in &mut pod.runs {
                        let Some((_, code)) = &mut facts.exit else { continue };
                        if !pod.shown.contains(&(run.clone(), i32::from(*code))) {
                            *code = WITH_THE_POWER;
                        }
                    }
                }
            }
            TraceEvent::Lost(run) => {
                self.run(who, run).exit = Some((at, WITH_THE_POWER));
                self.pods.entry(who.to_owned()).or_default().last_exit = Some(at);
            }
            TraceEvent::Fault(words) => {
                let words: Vec<&str> = words.split_whitespace().collect();
                self.faults.entry(who.to_owned()).or_default().extend(Fault::read(&words));
            }
            TraceEvent::User(_) => self.user(at, who, line),
            TraceEvent::Request(_) => self.served = true,
            TraceEvent::Job(_) | TraceEvent::Evicted => {}
            TraceEvent::Heard => _ = self.pods.entry(who.to_owned()).or_default().heard.get_or_insert(at),
            TraceEvent::NodeFailed(why) => self.breaks(Law::TheNodeWorks, at, who, why.clone()),
            TraceEvent::Api(_) | TraceEvent::ApiGone if who.starts_with("mirror:") => {}
            TraceEvent::Api(shown) => self.shown(at, who, shown),
            TraceEvent::ApiGone => self.gone(at, who),
            TraceEvent::Recorded(name, _) => {
                self.pods.entry(who.to_owned()).or_default().records.insert(name.clone());
            }
            TraceEvent::Sandbox(host) => {
                let bound = self.pods.get(who).and_then(|pod| pod.node.clone());
                if let Some(node) = bound.filter(|node| node != host) {
                    self.breaks(Law::OnItsNode, at, who, format!("{host} runs it, and it is bound to {node}"));
                }
                let is_static = self.plan(who).is_some_and(|plan| plan.is_static);
                let other =
                    self.pods.iter().find(|(it, pod)| pod.sandbox && plan_name(it) == plan_name(who) && *it != who);
                if let (true, Some((other, _))) = (is_static, other) {
                    let how = format!("{other} is still there");
                    self.breaks(Law::StaticsDoNotOverlap, at, who, how);
                }
                self.pods.entry(who.to_owned()).or_default().sandbox = true;
            }
            TraceEvent::SandboxGone { alive } => {
                if *alive > 0 {
                    self.breaks(Law::RemovedWhenEmpty, at, who, format!("{alive} were alive"));
                }
                self.pods.entry(who.to_owned()).or_default().sandbox = false;
            }
            TraceEvent::ShutDown => {
                let alive = self.pods.iter().find(|(_, pod)| pod.runs.values().any(RunFacts::is_alive));
                if let Some((other, _)) = alive {
                    let other = other.clone();
                    self.breaks(Law::AllEndsWell, at, &other, "it runs after the shutdown");
                }
            }
            TraceEvent::StartAsked(run) => self.start_asked(at, who, run),
            TraceEvent::Started(run) => self.started(at, who, run),
            TraceEvent::Refused(run) => self.run(who, run).refused = true,
            TraceEvent::Hook(run, hook) if hook == "preStop" => self.run(who, run).pre_stop = Some((at, None)),
            TraceEvent::HookEnd(run, hook, _) | TraceEvent::HookCancelled(run, hook) if hook == "preStop" => {
                if let Some((_, end)) = &mut self.run(who, run).pre_stop {
                    *end = Some(at);
                }
            }
            TraceEvent::HookEnd(run, _, false) => self.run(who, run).post_failed = true,
            TraceEvent::Hook(..) | TraceEvent::HookEnd(..) | TraceEvent::HookCancelled(..) => {}
            TraceEvent::Signal(run, number) => self.signal(at, who, run, *number),
            TraceEvent::SignalAgain(run, _) => {
                // A driver that broke asks again, as another agent would.
                let life = self.life;
                let same = self.run(who, run).signal.is_some_and(|(_, asked)| asked == life);
                // So does one that heard no answer.
                if same && self.scenario.stumble.is_none() && !self.met(who, "stop") {
                    self.breaks(Law::SignalOnce, at, who, format!("{run} was asked twice by one agent"));
                }
            }
            TraceEvent::Kill(run) => self.kill(at, who, run),
            TraceEvent::Exit(run, code) => {
                let limit = 100 + 10 * self.scenario.profile.hop() + self.hook_is_cut_off_within(who);
                let facts = self.run(who, run);
                let leaks = matches!(facts.pre_stop, Some((_, None)));
                if leaks && facts.signal.is_some_and(|(signal, _)| at > signal + limit) {
                    self.breaks(
                        Law::HookEndsWithItsTime,
                        at,
                        who,
                        format!("the hook of {run} ends with its container"),
                    );
                }
                self.run(who, run).exit = Some((at, *code));
                self.pods.entry(who.to_owned()).or_default().last_exit = Some(at);
            }
        }
    }

    fn user(&mut self, at: u64, who: &str, line: &TraceLine) {
        let TraceEvent::User(words) = &line.what else { return };
        if words.starts_with("shutdown") {
            self.shutdown.get_or_insert(at);
        } else if words.starts_with("edit") || words.starts_with("remove") {
            self.edits.entry(who.to_owned()).or_default().push(at);
        } else if words.starts_with("delete") {
            self.asked.insert(who.to_owned());
            if words.ends_with("grace=0") {
                self.forced.insert(who.to_owned());
            }
        }
    }

    fn shown(&mut self, at: u64, who: &str, shown: &Shown) {
        let before = self.pods.get(who).and_then(|pod| pod.object);
        if before.is_some_and(|before| before > shown.revision) {
            self.breaks(Law::NoWriteIsLost, at, who, format!("it is at revision {} again", shown.revision));
        }
        for (run, code) in &shown.ended {
            let facts = self.pods.get(who).and_then(|pod| pod.runs.get(run));
            let is_so = |facts: &RunFacts| {
                facts.exit.is_some_and(|(_, seen)| i32::from(seen) == *code || seen == WITH_THE_POWER)
            };
            // While another is waited for, the newest run is the one that the API calls the last.
            let next = Run { attempt: run.attempt + 1, ..run.clone() };
            let newest = self.pods.get(who).and_then(|pod| pod.runs.get(&next));
            let told = match facts {
                Some(facts) if facts.started.is_some() => is_so(facts) || newest.is_some_and(is_so),
                // A run that never was is told as one that could not be.
                Some(_) | None => true,
            };
            if !told {
                let how = format!("{run} is shown as ended with {code}, and is not");
                self.breaks(Law::StatusIsTrue, at, who, how);
            }
        }
        for run in &shown.running {
            if self.pods.get(who).and_then(|pod| pod.runs.get(run)).is_none_or(|facts| facts.started.is_none()) {
                self.breaks(Law::StatusIsTrue, at, who, format!("{run} is shown as running, and never was"));
            }
        }
        if shown.ready {
            let plan = self.plan(who).map(|plan| plan.containers.clone()).unwrap_or_default();
            for container in plan.iter().filter(|it| it.ready_ms.is_some()) {
                let from = container.ready_ms.unwrap_or(0);
                let runs = self.pods.get(who).map(|pod| &pod.runs);
                let is_ready = runs.is_some_and(|runs| {
                    let mut of = runs.iter().filter(|(run, _)| run.container == container.name);
                    of.any(|(_, facts)| facts.started.is_some_and(|started| at >= started + from))
                });
                if !is_ready {
                    self.breaks(
                        Law::StatusIsTrue,
                        at,
                        who,
                        format!("it is shown as ready before {} is", container.name),
                    );
                }
            }
        }
        let pod = self.pods.entry(who.to_owned()).or_default();
        (pod.object, pod.seen_in_life) = (Some(shown.revision), true);
        pod.shown.extend(shown.ended.iter().cloned());
        pod.node = shown.node.clone().or(pod.node.take());
        let unasked = pod.deletion_seen.is_none() && shown.deletion.is_some();
        // Whom a workload takes away is a law of its own.
        let unasked = unasked && self.scenario.workload(plan_name(who)).is_none();
        if unasked && !self.asked.contains(plan_name(who)) && !self.is_evicted(who) {
            self.breaks(Law::NobodyIsDeletedUnasked, at, who, "no user deleted it");
        }
        let pod = self.pods.entry(who.to_owned()).or_default();
        if let Some((deadline, _)) = shown.deletion {
            pod.deletion_seen.get_or_insert(at);
            if pod.deadline.is_none_or(|before| deadline < before) {
                (pod.deadline, pod.hurried) = (Some(deadline), at);
            }
        }
    }

    fn gone(&mut self, at: u64, who: &str) {
        let forced = self.forced.contains(plan_name(who));
        let pod = self.pods.entry(who.to_owned()).or_default();
        (pod.object, pod.object_gone, pod.seen_in_life) = (None, Some(at), true);
        if forced {
            return;
        }
        let alive: Vec<String> =
            pod.runs.iter().filter(|(_, facts)| facts.is_alive()).map(|(run, _)| run.to_string()).collect();
        let newest = |run: &Run| !pod.runs.keys().any(|it| it.container == run.container && it.attempt > run.attempt);
        let untold = pod.runs.iter().filter_map(|(run, facts)| {
            let (_, code) = facts.exit?;
            let told = match code {
                // Nobody knows how it ended, but that it did.
                WITH_THE_POWER => pod.shown.iter().any(|(shown, _)| shown == run),
                code => pod.shown.contains(&(run.clone(), i32::from(code))),
            };
            (newest(run) && !told).then(|| run.to_string())
        });
        let untold: Vec<String> = untold.collect();
        let last_exit = pod.last_exit;
        let last = pod.last_exit.max(pod.deletion_seen).unwrap_or(at).max(self.life_begun);
        if !alive.is_empty() {
            self.breaks(Law::GoneAfterTheLastExit, at, who, format!("{} alive", alive.join(", ")));
        } else if !untold.is_empty() {
            self.breaks(Law::ExitsAreShown, at, who, format!("the end of {} was never shown", untold.join(", ")));
        }
        // Sandbox, status and deletion: some thirty seams, and nothing that anybody waits for.
        if last_exit.is_some() && at > last + 1_000 + slack(self.scenario, 60) {
            self.breaks(Law::GoneAtOnce, at, who, format!("everything had ended at {last}"));
        }
    }

    fn start_asked(&mut self, at: u64, who: &str, run: &Run) {
        let heard = self.pods.get(who).and_then(|pod| pod.heard);
        if let Some(heard) = heard
            && at > heard + 50 + slack(self.scenario, 20)
        {
            self.breaks(Law::NoStartAfterTheAsk, at, who, format!("{run} starts; the node heard at {heard}"));
        }
    }

    fn started(&mut self, at: u64, who: &str, run: &Run) {
        let plan = self.plan(who).map(|plan| plan.restart);
        let role = self.container(who, run).map(|it| it.role);
        // What nobody waits for is written so much later.
        let unwritten = 50 + 6 * self.scenario.profile.hop();
        let pod = self.pods.entry(who.to_owned()).or_default();
        let of = |it: &Run, facts: &RunFacts| it.container == run.container && it != run && facts.started.is_some();
        let others = || pod.runs.iter().filter(|(it, facts)| of(it, facts));
        let alive = others().find(|(_, facts)| facts.is_alive()).map(|(other, _)| other.to_string());
        let failed = others().any(|(_, facts)| facts.exit.is_some_and(|(_, code)| code != 0));
        let before = others().count();
        let with_power = |facts: &RunFacts| facts.exit.filter(|(_, code)| *code == WITH_THE_POWER).map(|(at, _)| at);
        let lost = self.power_lost;
        let lost_young = others().all(|(_, facts)| {
            let age = with_power(facts).zip(facts.started).map(|(end, started)| end - started);
            age.is_some_and(|age| age <= unwritten)
        });
        pod.runs.entry(run.clone()).or_default().started = Some(at);
        if let Some(other) = alive {
            self.breaks(Law::RunsDoNotOverlap, at, who, format!("{other} still runs when {run} starts"));
        }
        let as_asked = before == 0
            || match (role, plan) {
                (Some(Role::Sidecar), _) | (_, Some(Restart::Always)) => true,
                // A new sandbox is prepared like the first; and of a start just before the power went nobody may know.
                (Some(Role::Init), _) if lost => true,
                (_, _) if lost_young => true,
                (_, Some(Restart::OnFailure)) => failed,
                (_, Some(Restart::Never) | None) => false,
            };
        if !as_asked {
            self.breaks(Law::RestartsAsAsked, at, who, format!("{run} starts after {before}"));
        }
    }

    fn signal(&mut self, at: u64, who: &str, run: &Run, number: u8) {
        let plan = self.container(who, run).cloned();
        let wanted = if plan.as_ref().is_some_and(|plan| plan.quit) { 3 } else { 15 };
        if number != wanted {
            self.breaks(Law::RightSignal, at, who, format!("{run} gets {number} instead of {wanted}"));
        }
        if !self.may_end(who, run) {
            self.breaks(Law::NobodyIsStoppedUnasked, at, who, format!("{run} gets its stop signal"));
        }
        self.critical_last(at, who);
        let deadline = self.earliest(who, run).unwrap_or(i64::MIN);
        let early = i64::try_from(at).unwrap_or(i64::MAX) < deadline;
        let facts = self.run(who, run);
        facts.signal = Some((at, 0));
        let (hook, post_failed) = (facts.pre_stop, facts.post_failed);
        let life = self.life;
        self.run(who, run).signal = Some((at, life));
        let asked = self.asked_at(who, run);
        match plan.and_then(|plan| plan.pre_stop) {
            Some(HookPlan::Takes(_) | HookPlan::Fails(_) | HookPlan::Never) if early && !post_failed => match hook {
                None if self.refuses_hooks(who) => {}
                None => self.breaks(Law::HookBeforeSignal, at, who, format!("the hook of {run} was not run")),
                Some((_, None)) => self.breaks(Law::HookBeforeSignal, at, who, format!("the hook of {run} still runs")),
                Some((_, Some(_))) => {}
            },
            Some(HookPlan::Sleeps(seconds)) if early && asked.is_some_and(|asked| at < asked + seconds * 1000) => {
                self.breaks(Law::HookBeforeSignal, at, who, format!("{run} was to sleep for {seconds} s first"));
            }
            Some(_) | None => {}
        }
    }

    /// When a deletion, and nothing else, asked for the end of a run.
    fn asked_at(&self, who: &str, run: &Run) -> Option<u64> {
        let live = self.container(who, run).is_some_and(|plan| plan.live_ms.is_some());
        let others = live || self.shutdown.is_some() || self.mains_over(who).is_some();
        self.pods.get(who)?.deletion_seen.filter(|_| !others)
    }

    fn critical_last(&mut self, at: u64, who: &str) {
        let Some(shutdown) = self.shutdown else { return };
        let is_critical = |who: &str| self.plan(who).is_some_and(|plan| plan.critical);
        let asked = self.pods.get(who).is_some_and(|pod| pod.deletion_seen.is_some()) || self.edited(who).is_some();
        if !is_critical(who) || asked || self.mains_over(who).is_some() {
            return;
        }
        if self.plan(who).is_some_and(|plan| plan.containers.iter().any(|it| it.live_ms.is_some())) {
            return;
        }
        let alive =
            |pod: &PodFacts| pod.runs.values().any(|it| it.is_alive() && it.started.is_some_and(|s| s < shutdown));
        let other = self.pods.iter().find(|(it, pod)| !is_critical(it) && alive(pod)).map(|(it, _)| it.clone());
        if let Some(other) = other {
            self.breaks(Law::CriticalLast, at, who, format!("it is stopped while {other} runs"));
        }
    }

    fn kill(&mut self, at: u64, who: &str, run: &Run) {
        if !self.may_end(who, run) {
            self.breaks(Law::NobodyIsStoppedUnasked, at, who, format!("{run} is killed"));
        }
        let now = i64::try_from(at).unwrap_or(i64::MAX);
        if let Some(earliest) = self.earliest(who, run)
            && now < earliest
        {
            self.breaks(Law::KillAtTheDeadline, at, who, format!("{run} had time until {earliest}"));
        }
        // A runtime that does not send it holds up nobody's end.
        let hampered = self.met(who, "stop");
        match self.run(who, run).signal {
            _ if hampered => {}
            None => self.breaks(Law::NoticeBeforeKill, at, who, format!("{run} had no stop signal")),
            Some((signal, _)) if at < signal + 2_000 => {
                self.breaks(Law::NoticeBeforeKill, at, who, format!("{run} had its stop signal at {signal}"));
            }
            Some(_) => {}
        }
        self.run(who, run).killed = true;
        // Late: counted from what the API said, as finely as it says it.
        let signal = self.run(who, run).signal.map_or(at, |(signal, _)| signal);
        let deadline = self.pods.get(who).and_then(|pod| pod.deadline).filter(|_| self.asked_at(who, run).is_some());
        if let Some(deadline) = deadline {
            // Whoever is hurried has a second left.
            let hurried = self.pods.get(who).map_or(0, |pod| pod.hurried) + 1_000;
            let heard = self.life_begun + 1_000;
            let due = u64::try_from(deadline + 1_000).unwrap_or(0).max(signal + 2_000).max(heard).max(hurried);
            if at > due + 500 + slack(self.scenario, 60) {
                self.breaks(Law::NobodyOutlivesItsDeadline, at, who, format!("{run} was due at {due}"));
            }
        }
    }

    /// A server starts. What was there before is to be there again.
    fn served_anew(&mut self) {
        self.served = false;
        // Of a workload, who was on no node yet is removed at once, and nobody need have seen it go.
        let may_be_gone =
            |who: &str, pod: &PodFacts| self.scenario.workload(plan_name(who)).is_some() && pod.runs.is_empty();
        let there = self.pods.iter().filter(|(who, pod)| !may_be_gone(who, pod));
        self.there = there.filter_map(|(who, pod)| Some((who.clone(), pod.object?))).collect();
        self.pods.values_mut().for_each(|pod| pod.seen_in_life = false);
    }

    /// Whose object was there when this life began must have been found by it.
    fn end_life(&mut self, at: u64) {
        if !self.served {
            return;
        }
        let there = std::mem::take(&mut self.there);
        for who in there.into_keys() {
            if self.pods.get(&who).is_some_and(|pod| !pod.seen_in_life) {
                self.breaks(Law::NoWriteIsLost, at, &who, "its object was there before the crash");
            }
        }
    }

    /// Whose object went leaves one record. Of who was removed by force before anything of it ran nobody may have known.
    fn records(&mut self, at: u64) {
        let mut wrong = Vec::new();
        for (who, pod) in &self.pods {
            let is_static = self.plan(who).is_none_or(|plan| plan.is_static);
            let never_seen = pod.runs.is_empty() && self.forced.contains(plan_name(who));
            let is_gone = pod.object_gone.is_some() && pod.object.is_none();
            match pod.records.len() {
                0 if is_gone && !is_static && !never_seen && !self.is_evicted(who) => {
                    wrong.push((who.clone(), "there is no record of its end".to_owned()));
                }
                0 | 1 => {}
                _ => wrong.push((who.clone(), format!("its records are {:?}", pod.records))),
            }
        }
        for (who, how) in wrong {
            self.breaks(Law::OneRecordPerEnd, at, &who, how);
        }
    }

    fn end(&mut self) {
        let at = self.over_ms;
        self.end_life(at);
        self.records(at);
        let of_workload = |who: &str| self.scenario.workload(plan_name(who)).is_some();
        let orphans = self.pods.iter().filter(|(who, pod)| of_workload(who) && pod.sandbox && pod.object.is_none());
        let orphans: Vec<String> = orphans.map(|(who, _)| who.clone()).collect();
        for who in orphans {
            self.breaks(Law::AllEndsWell, at, &who, "its sandbox is still there");
        }
        for plan in &self.scenario.pods {
            let of: Vec<(&String, &PodFacts)> =
                self.pods.iter().filter(|(who, _)| plan_name(who) == plan.name).collect();
            let mut wrong = Vec::new();
            let left = of.iter().find(|(_, pod)| pod.sandbox || (pod.object.is_some() && !plan.is_static));
            let evicted = of.iter().any(|(who, _)| self.is_evicted(who));
            let fate = if evicted { Fate::Leaves } else { fate(self.scenario, &plan.name) };
            match (fate, left) {
                (Fate::Leaves, Some((who, _))) => wrong.push(((*who).clone(), "it is still there".to_owned())),
                (Fate::Leaves, None) => {}
                (Fate::Stays, _) if self.shutdown.is_some() => {}
                (Fate::Stays, _) => {
                    let steady = |it: &&ContainerPlan| {
                        let stays = matches!(it.script, Script::Term(_) | Script::Deaf) && it.live_ms.is_none();
                        stays && it.refusals == 0 && it.role == Role::Main
                    };
                    let inits = plan.containers.iter().any(|it| it.role == Role::Init);
                    let over = of.iter().any(|(who, _)| self.mains_over(who).is_some() || self.lost_for_good(who));
                    for container in plan.containers.iter().filter(steady).filter(|_| !over && !inits) {
                        let runs = of.iter().flat_map(|(_, pod)| &pod.runs);
                        let mut alive = runs.filter(|(run, facts)| run.container == container.name && facts.is_alive());
                        if alive.next().is_none() {
                            wrong.push((plan.name.clone(), format!("{} does not run", container.name)));
                        }
                    }
                }
            }
            for (who, how) in wrong {
                self.breaks(Law::AllEndsWell, at, &who, how);
            }
        }
    }
}
