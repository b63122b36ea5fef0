//! What must hold of workloads (G17): how many pods there are, how many are available, who follows whom, and what it comes to.
//!
//! Controllers hear of everything later than it happens, and of some of it twice. What happened within the last seams they need not
//! have heard: so far back the kindest number counts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Broken, Law, NOTICED_MS, slack};
use crate::machine::plan_name;
use crate::scenario::{Deed, SERVER, Scenario};
use crate::trace::{JobShown, Run, Shown, TraceEvent, TraceLine};
use crate::workload::{WorkloadKind, WorkloadPlan};

/// So many seams lie between a change and what a controller makes of it: watch, plan, request, commit, and the same for a
/// controller that waits for another.
const SEAMS: u64 = 60;

/// Every law of workloads that a trace breaks.
pub(super) fn check(scenario: &Scenario, trace: &[TraceLine]) -> Vec<Broken> {
    let of = |plan| {
        let mut fold = Fold::new(scenario, plan);
        trace.iter().for_each(|line| fold.take(line));
        fold.end(trace.last().map_or(0, |line| line.at));
        fold.broken
    };
    scenario.workloads.iter().flat_map(of).collect()
}

/// A pod of the workload.
#[derive(Default)]
struct Pod {
    name: String,
    rollout: u64,
    index: Option<u64>,
    node: Option<String>,
    /// Since when it is ready, and until when it was.
    ready_since: Option<u64>,
    ready_until: Option<u64>,
    deleted: bool,
    succeeded: Option<u64>,
    failed: bool,
    gone: bool,
    evicted: bool,
    alive: BTreeSet<Run>,
}

impl Pod {
    fn is_active(&self) -> bool {
        !self.gone && !self.deleted && !self.failed && self.succeeded.is_none()
    }

    fn is_available(&self) -> bool {
        self.is_active() && self.ready_since.is_some()
    }
}

struct Fold<'a> {
    scenario: &'a Scenario,
    plan: &'a WorkloadPlan,
    slack: u64,
    /// How many pods there are to be, from when on.
    wanted: Vec<(u64, u64)>,
    rollout: u64,
    deleted: bool,
    /// Somebody asked for fewer pods, others, or none.
    may_delete: bool,
    pods: BTreeMap<String, Pod>,
    /// When pods stopped being available for another reason than that their controller took them away.
    lost: Vec<u64>,
    /// Since when too few are there.
    lacking: Option<u64>,
    /// Since when there is a control plane; nothing while there is none.
    up_since: Option<u64>,
    silent: BTreeSet<String>,
    job: JobShown,
    broken: Vec<Broken>,
}

impl<'a> Fold<'a> {
    fn new(scenario: &'a Scenario, plan: &'a WorkloadPlan) -> Self {
        Self {
            scenario,
            plan,
            slack: 1_000 + slack(scenario, SEAMS),
            wanted: Vec::new(),
            rollout: 0,
            deleted: false,
            may_delete: false,
            pods: BTreeMap::new(),
            lost: Vec::new(),
            lacking: None,
            up_since: None,
            silent: BTreeSet::new(),
            job: JobShown::default(),
            broken: Vec::new(),
        }
    }

    fn breaks(&mut self, law: Law, at: u64, who: &str, how: impl Into<String>) {
        self.broken.push(Broken { law, at, who: who.to_owned(), how: how.into() });
    }

    /// What happened before this may be taken as heard by all.
    fn heard_before(&self, at: u64) -> u64 {
        let since = at.saturating_sub(self.slack);
        // Whoever has just come up knows nothing of what it did before.
        if self.up_since.is_none_or(|up| up > since) { 0 } else { since }
    }

    /// How many pods there were to be lately.
    fn wanted_lately(&self, at: u64) -> impl Iterator<Item = u64> {
        let since = self.heard_before(at);
        let ends = self.wanted.iter().skip(1).map(|(next, _)| *next).chain([u64::MAX]);
        self.wanted.iter().zip(ends).filter(move |(_, end)| *end >= since).map(|((_, number), _)| *number)
    }

    fn count(&self, counts: impl Fn(&Pod) -> bool) -> u64 {
        u64::try_from(self.pods.values().filter(|pod| counts(pod)).count()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, line: &TraceLine) {
        let (at, who) = (line.at, line.who.as_str());
        if plan_name(who) == self.plan.name() {
            self.told(at, who, &line.what);
        } else if let TraceEvent::Life(_) = line.what {
            self.up_since = Some(at);
        } else if let TraceEvent::Crash(_) = line.what {
            self.up_since = None;
        } else if let TraceEvent::NodeLife(name) = &line.what {
            self.up_since = if name == SERVER { Some(at) } else { self.up_since };
        } else if let TraceEvent::NodeCrash(words) = &line.what {
            match words.split(':').next() {
                Some(SERVER) => self.up_since = None,
                Some(node) if self.gives_nodes_up() => drop(self.silent.insert(node.to_owned())),
                Some(_) | None => {}
            }
        }
        self.pods_are_enough(at);
    }

    /// What happens to the workload, or to one of its pods.
    fn told(&mut self, at: u64, who: &str, what: &TraceEvent) {
        match what {
            TraceEvent::User(words) => self.user(at, words),
            TraceEvent::Evicted => self.pods.entry(who.to_owned()).or_default().evicted = true,
            TraceEvent::Api(shown) => self.shown(at, who, shown),
            TraceEvent::ApiGone => self.gone(at, who),
            TraceEvent::Started(run) => self.started(at, who, run),
            TraceEvent::Exit(run, _) | TraceEvent::Lost(run) => {
                self.pods.entry(who.to_owned()).or_default().alive.remove(run);
            }
            TraceEvent::Job(shown) => self.job(at, shown),
            // How a pod runs is told by other laws.
            TraceEvent::Sandbox(_) | TraceEvent::SandboxGone { .. } | TraceEvent::StartAsked(_) => {}
            TraceEvent::Refused(_) | TraceEvent::Hook(..) | TraceEvent::HookEnd(..) | TraceEvent::HookCancelled(..) => {
            }
            TraceEvent::Signal(..) | TraceEvent::SignalAgain(..) | TraceEvent::Kill(_) => {}
            TraceEvent::Recorded(..) | TraceEvent::Heard | TraceEvent::Request(_) | TraceEvent::Fault(_) => {}
            TraceEvent::Life(_) | TraceEvent::Crash(_) | TraceEvent::NodeLife(_) | TraceEvent::NodeCrash(_) => {}
            TraceEvent::PowerLost | TraceEvent::ShutDown | TraceEvent::NodeFailed(_) => {}
        }
    }

    /// Whether a node that dies is away until its pods are given up.
    fn gives_nodes_up(&self) -> bool {
        let bears = self.plan.pod.tolerates.map(|seconds| seconds * 1000);
        self.scenario.crashes.iter().any(|crash| crash.node && bears.is_some_and(|ms| crash.down_ms >= NOTICED_MS + ms))
    }

    fn user(&mut self, at: u64, words: &str) {
        let Some(act) = self.scenario.acts.iter().find(|act| act.to_string() == words) else { return };
        match &act.deed {
            Deed::Create(_) if self.wanted.is_empty() => self.wanted.push((at, self.plan.replicas)),
            Deed::Scale(_, number) => {
                self.wanted.push((at, *number));
                self.may_delete = true;
            }
            Deed::Rollout(_) => {
                self.rollout += 1;
                self.may_delete = true;
            }
            Deed::Delete(..) => {
                self.deleted = true;
                self.may_delete = true;
            }
            Deed::Create(_) | Deed::Edit(_) | Deed::Remove(_) | Deed::ShutDown => {}
            Deed::Drain(_) | Deed::Uncordon(_) => {}
        }
    }

    fn shown(&mut self, at: u64, who: &str, shown: &Shown) {
        let Some(member) = &shown.member else { return };
        let is_new = self.pods.get(who).is_none_or(|pod| pod.name.is_empty());
        let was_available = self.pods.get(who).is_some_and(Pod::is_available);
        let was_active = is_new || self.pods.get(who).is_some_and(Pod::is_active);
        let pod = self.pods.entry(who.to_owned()).or_default();
        (pod.name, pod.rollout, pod.index) = (member.name.clone(), member.rollout, member.index);
        pod.node = shown.node.clone();
        pod.deleted = shown.deletion.is_some();
        pod.failed = shown.phase == "Failed";
        if shown.phase == "Succeeded" {
            pod.succeeded.get_or_insert(at);
        }
        // Who leaves is listed no more, and one that ended ran for nobody.
        let serves = shown.ready && !pod.deleted && !pod.failed && pod.succeeded.is_none();
        let since = pod.ready_since;
        match (serves, since) {
            (true, None) => pod.ready_since = Some(at),
            (false, Some(_)) => (pod.ready_since, pod.ready_until) = (None, Some(at)),
            (true, Some(_)) | (false, None) => {}
        }
        let is_deleted = was_active && pod.deleted;
        if is_new {
            self.made(at, who);
        }
        if is_deleted {
            self.taken_away(at, who, was_available.then_some(since).flatten());
        } else if was_available && !serves {
            self.lost.push(at);
        }
        self.pods_are_not_too_many(at);
    }

    fn gone(&mut self, at: u64, who: &str) {
        let Some(pod) = self.pods.get_mut(who) else { return };
        let (was_active, since) = (pod.is_active(), pod.ready_since.take());
        pod.ready_until = pod.ready_until.or(since.map(|_| at));
        pod.gone = true;
        if was_active {
            self.taken_away(at, who, since);
        }
    }

    /// A pod that nobody had seen is stored.
    fn made(&mut self, at: u64, who: &str) {
        let (name, index) = match self.pods.get(who) {
            Some(pod) => (pod.name.clone(), pod.index),
            None => return,
        };
        let heard = self.heard_before(at);
        if let WorkloadKind::StatefulSet { parallel: false } = self.plan.kind {
            let ordinal = |name: &str| name.rsplit_once('-').and_then(|(_, digits)| digits.parse::<u64>().ok());
            let own = ordinal(&name).unwrap_or(0);
            let was_ready = |before: u64| {
                let mut of = self.pods.values().filter(|pod| ordinal(&pod.name) == Some(before));
                of.any(|pod| pod.is_available() || pod.ready_until.is_some_and(|until| until >= heard))
            };
            if let Some(before) = (0..own).find(|before| !was_ready(*before)) {
                self.breaks(
                    Law::SetsGoInOrder,
                    at,
                    who,
                    format!("{name} is made, and the one of {before} is not ready"),
                );
            }
        }
        let Some(index) = index else { return };
        let others = || self.pods.iter().filter(|(other, pod)| *other != who && pod.index == Some(index));
        let done = others().find(|(_, pod)| pod.succeeded.is_some_and(|since| since < heard));
        let runs = others().find(|(_, pod)| pod.is_active());
        let how = match (done, runs) {
            (Some((other, _)), _) => format!("index {index} begins again, and {other} has succeeded"),
            (None, Some((other, _))) => format!("index {index} begins, and {other} runs"),
            (None, None) => return,
        };
        self.breaks(Law::JobCountsOnce, at, who, how);
    }

    /// A pod that nobody had asked to leave leaves; `available` since then, if it was.
    fn taken_away(&mut self, at: u64, who: &str, available: Option<u64>) {
        let Some(pod) = self.pods.get(who) else { return };
        let evicted = pod.evicted || pod.node.as_ref().is_some_and(|node| self.silent.contains(node));
        if evicted {
            self.lost.extend(available.map(|_| at));
            return;
        }
        // Whoever was evicted with a successor first may have one too many.
        let may = self.may_delete || self.pods.values().any(|pod| pod.evicted);
        if !may {
            self.breaks(Law::NobodyIsDeletedUnasked, at, who, "its controller deleted it, and nobody asked for fewer");
        }
        let unavailable = match self.plan.kind {
            WorkloadKind::Deployment { unavailable, .. } => unavailable,
            WorkloadKind::ReplicaSet => 0,
            WorkloadKind::StatefulSet { .. } => 1,
            WorkloadKind::Job { .. } => return,
        };
        let heard = self.heard_before(at);
        // One that has just become ready may be taken for one that is not.
        if self.deleted || available.is_none_or(|since| since >= heard) {
            return;
        }
        let lost = self.lost.iter().filter(|lost| **lost >= heard).count();
        let there = self.count(Pod::is_available) + u64::try_from(lost).unwrap_or(0);
        let least = self.wanted_lately(at).min().unwrap_or(0).saturating_sub(unavailable);
        if there < least {
            self.breaks(Law::AvailabilityIsKept, at, who, format!("{there} are available without it, of {least}"));
        }
    }

    fn pods_are_not_too_many(&mut self, at: u64) {
        // When the workload goes, its sets may replace for a moment what is taken from them.
        if self.deleted {
            return;
        }
        let active = self.count(Pod::is_active);
        let wanted = self.wanted_lately(at).max().unwrap_or(0);
        let most = match self.plan.kind {
            WorkloadKind::Deployment { surge, .. } => wanted + surge,
            WorkloadKind::ReplicaSet => wanted,
            // Who is too many leaves one at a time.
            WorkloadKind::StatefulSet { .. } => return,
            WorkloadKind::Job { parallelism, .. } => parallelism,
        };
        // Whoever is about to be evicted has a successor beside it.
        let most = most + self.count(|pod| pod.is_active() && pod.evicted);
        if active > most {
            let name = self.plan.name().to_owned();
            self.breaks(Law::SurgeIsKept, at, &name, format!("{active} pods, and {most} are allowed"));
        }
    }

    fn pods_are_enough(&mut self, at: u64) {
        let unavailable = match self.plan.kind {
            WorkloadKind::Deployment { unavailable, .. } => unavailable,
            WorkloadKind::ReplicaSet => 0,
            WorkloadKind::StatefulSet { .. } | WorkloadKind::Job { .. } => return,
        };
        let Some(up) = self.up_since.filter(|_| !self.deleted) else {
            self.lacking = None;
            return;
        };
        let rolls = self.pods.values().any(|pod| !pod.gone && pod.rollout != self.rollout);
        let least = self.wanted.last().map_or(0, |(_, number)| *number);
        let least = least.saturating_sub(if rolls { unavailable } else { 0 });
        let active = self.count(Pod::is_active);
        if active >= least {
            self.lacking = None;
            return;
        }
        let since = *self.lacking.get_or_insert(at);
        if at > since.max(up) + self.slack {
            // Told once, and begun anew.
            self.lacking = Some(u64::MAX - self.slack);
            let name = self.plan.name().to_owned();
            let how = format!("{active} pods of {least} since {since}, besides those that leave");
            self.breaks(Law::LeavingAreReplaced, at, &name, how);
        }
    }

    fn started(&mut self, at: u64, who: &str, run: &Run) {
        let name = self.pods.get(who).map(|pod| pod.name.clone()).unwrap_or_default();
        let is_twin = |(other, pod): &(&String, &Pod)| *other != who && pod.name == name && !pod.alive.is_empty();
        let twin = self.pods.iter().find(is_twin).map(|(other, _)| other.clone());
        if let Some(twin) = twin.filter(|_| !name.is_empty()) {
            self.breaks(Law::OneOfAnIdentity, at, who, format!("{run} starts as {name}, and {twin} of that name runs"));
        }
        self.pods.entry(who.to_owned()).or_default().alive.insert(run.clone());
    }

    fn job(&mut self, at: u64, shown: &JobShown) {
        let ended = self.pods.iter().filter(|(_, pod)| pod.succeeded.is_some());
        let ended: BTreeSet<String> =
            ended.map(|(who, pod)| pod.index.map_or_else(|| who.clone(), |index| index.to_string())).collect();
        if usize::try_from(shown.succeeded).is_ok_and(|told| told > ended.len()) {
            let how = format!("{} are said to have succeeded, and {} have", shown.succeeded, ended.len());
            self.breaks(Law::JobCountsOnce, at, self.plan.name(), how);
        }
        self.job = shown.clone();
    }

    fn end(&mut self, at: u64) {
        let name = self.plan.name().to_owned();
        let there: Vec<&Pod> = self.pods.values().filter(|pod| !pod.gone && !pod.name.is_empty()).collect();
        let how = match self.scenario.wanted(&name) {
            None if there.is_empty() => return,
            None => format!("{} pods outlive it", there.len()),
            Some((completions, _)) if self.plan.kind.is_job() => {
                if self.job.complete && self.job.succeeded == completions {
                    return;
                }
                format!("{} of {completions} have succeeded", self.job.succeeded)
            }
            Some((replicas, rollout)) => {
                let right = there.iter().filter(|pod| pod.is_available() && pod.rollout == rollout).count();
                if right == there.len() && u64::try_from(right) == Ok(replicas) {
                    return;
                }
                format!("{right} of {} pods are ready and of rollout {rollout}; {replicas} are asked for", there.len())
            }
        };
        self.breaks(Law::WorkloadsConverge, at, &name, how);
    }
}
