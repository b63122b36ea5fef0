//! What is known of Jobs and their pods, and what is to be done: pure, told facts and the time.
//!
//! A Job has one key, so nothing is done about it while something else is. A pod that nobody has and that still has the finalizer of a Job
//! has a key of its own. Pods of a Job that is not in their namespace, or not there any more, are let go together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Wake};
use kube::ResourceExt as _;
use serde_json::Value;
use supervision::BackoffPolicy;
use tokio::time::Instant;

use super::evaluation::{JobEvent, Member, UNCOUNTED_MAX, evaluate};
use super::job_pod::{JobPod, Uid, Untracked};
use super::manage::{GonePods, Manage, NewPod, manage};
use super::new_pod::{index_in_name, name_prefix};
use super::view::JobView;
use crate::controller_ref::{Candidate, Claim, Owner, claim};
use crate::objects::{Objects, owner_word};
use crate::pod::PodView;
use crate::pod_control::PodRef;
use crate::pod_names::{NameOrder, UsedNumbers};
use crate::selector::takes;

/// How long nothing is created after the server has refused it.
const REFUSED_BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(60));

/// What is told.
#[derive(Debug)]
pub(crate) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Jobs(WatchUpdate<Arc<JobView>>),
}

/// What is planned for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// A Job and its pods.
    Job(Uid),
    /// What is left, in this namespace, of a Job that is not there.
    LeftOver(Arc<str>, Uid),
    /// A pod that nobody has.
    Pod(Uid),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Take in pods that nobody has, let go those that are not selected.
    Claim { owner: Owner, adopt: Vec<PodRef>, release: Vec<PodRef> },
    /// Create these pods, of these names.
    Create { owner: Owner, job: Arc<JobView>, pods: Vec<(String, NewPod)> },
    /// Ask these pods to leave; they count.
    Delete { owner: Owner, pods: Vec<PodRef> },
    /// Ask these pods to leave; they do not count.
    Remove { owner: Owner, pods: Vec<Untracked> },
    /// Report, to the Job of this version: a merge patch of its status. Then tell.
    Report { owner: Owner, resource_version: String, status: Value, events: Vec<JobEvent> },
    /// Take back the finalizer of pods that are counted.
    Free { namespace: Arc<str>, pods: Vec<Untracked> },
    /// The same for pods of a Job that is gone, if it is.
    FreeIfGone { owner: Owner, pods: Vec<Untracked> },
}

/// What can come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    /// Others have these names.
    Taken(Vec<String>),
    /// The server has refused a pod, or the namespace ends and nothing is created in it any more.
    Refused,
}

/// What is known of one Job besides its object; all of it is pace.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// By index; by none for Jobs without.
    used: BTreeMap<Option<u32>, UsedNumbers>,
    gone: GonePods,
    refused: u32,
    refused_until: Option<Instant>,
}

impl Memory {
    /// A pod of the Job of this name was seen: its name is used. Whose index that is, the name says; what is written on a pod
    /// can be edited.
    fn seen(&mut self, job: &str, uid: &str, pod: &str) {
        let index = index_in_name(job, pod);
        let ending = pod.rsplit_once('-').map(|(_, ending)| ending);
        if let Some(number) = ending.and_then(|ending| name_order(uid, index).number(ending)) {
            self.used.entry(index).or_default().seen(number);
        }
    }
}

/// The names of the pods of one index.
fn name_order(uid: &str, index: Option<u32>) -> NameOrder {
    match index {
        None => NameOrder::of(uid),
        Some(index) => NameOrder::of(&format!("{uid}/{index}")),
    }
}

/// Indices of pods: by their Job, and by the namespace of those who have none.
const BY_JOB: usize = 0;
const ORPHANS: usize = 1;
/// The index of Jobs: by their namespace.
const BY_NAMESPACE: usize = 0;

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(crate) struct Jobs {
    pods: Objects<JobPod, 2>,
    jobs: Objects<Arc<JobView>, 1>,
    memory: BTreeMap<Uid, Memory>,
}

/// The pods of a Job, and what it has to do with others.
struct Claimed<'a> {
    pods: Vec<Member<'a>>,
    adopt: Vec<PodRef>,
    release: Vec<PodRef>,
}

impl Jobs {
    pub(crate) fn new() -> Self {
        let pods = Objects::new([
            |pod: &JobPod| pod.job.as_ref().map(|job| owner_word(&pod.namespace, &job.uid)),
            |pod: &JobPod| pod.job.is_none().then(|| Arc::clone(&pod.namespace)),
        ]);
        let jobs = Objects::new([|job: &Arc<JobView>| Some(namespace_of(job).into())]);
        Self { pods, jobs, memory: BTreeMap::new() }
    }

    /// The Job of a pod, if it is there: in the pod's namespace, whatever the reference says.
    fn job_of<'a>(&'a self, pod: &'a JobPod) -> Option<(&'a Uid, &'a JobView)> {
        let uid = &pod.job.as_ref()?.uid;
        let job = self.jobs.get(uid).filter(|job| *namespace_of(job) == *pod.namespace)?;
        Some((uid, &**job))
    }

    /// The Jobs that would take a pod that nobody has.
    fn selecting<'a>(&'a self, pod: &'a JobPod) -> impl Iterator<Item = &'a Uid> {
        let here = self.jobs.under(BY_NAMESPACE, &pod.namespace).filter(|(_, job)| may_claim(job));
        here.filter(|(_, job)| takes(&job.spec.selector, |key| pod.label(key))).map(|(uid, _)| uid)
    }

    /// Whom a pod matters to: its Job, or, if it has none, every Job that selects it, and itself.
    fn concerned(&self, uid: &Uid, pod: &JobPod, woken: &mut BTreeSet<Key>) {
        match &pod.job {
            Some(job) => drop(woken.insert(match self.job_of(pod) {
                Some((uid, _)) => Key::Job(Arc::clone(uid)),
                None => Key::LeftOver(Arc::clone(&pod.namespace), Arc::clone(&job.uid)),
            })),
            None => {
                woken.extend(self.selecting(pod).map(|job| Key::Job(Arc::clone(job))));
                if pod.tracked {
                    woken.insert(Key::Pod(Arc::clone(uid)));
                }
            }
        }
    }

    fn pod_seen(&mut self, pod: &PodView, now: Now, woken: &mut BTreeSet<Key>) {
        let Some(uid) = pod.uid().map(Uid::from) else { return };
        let Some(facts) = JobPod::of(pod, self.pods.get(&uid), now) else { return self.pod_gone(&uid, woken) };
        if let Some(known) = self.pods.get_mut(&uid).filter(|known| **known == facts) {
            known.version = facts.version;
            return;
        }
        self.concerned(&uid, &facts, woken);
        let job = self.job_of(&facts).map(|(uid, job)| (Arc::clone(uid), job.name_any()));
        if let Some((job, name)) = job
            && let Some(memory) = self.memory.get_mut(&job)
        {
            memory.seen(&name, &job, &facts.name);
        }
        if let Some(old) = self.pods.put(Arc::clone(&uid), facts) {
            self.concerned(&uid, &old, woken);
        }
    }

    fn pod_gone(&mut self, uid: &str, woken: &mut BTreeSet<Key>) {
        let Some(old) = self.pods.remove(uid) else { return };
        self.concerned(&uid.into(), &old, woken);
        let job = self.job_of(&old).map(|(uid, _)| Arc::clone(uid));
        if let Some(memory) = job.and_then(|job| self.memory.get_mut(&job)) {
            memory.gone.add(&old);
        }
    }

    fn job_seen(&mut self, job: Arc<JobView>, woken: &mut BTreeSet<Key>) {
        let Some(uid) = job.uid().map(Uid::from) else { return };
        if !self.memory.contains_key(&uid) {
            let mut memory = Memory::default();
            let own = self.pods.owned(BY_JOB, namespace_of(&job), &uid);
            own.for_each(|(_, pod)| memory.seen(&job.name_any(), &uid, &pod.name));
            self.memory.insert(Arc::clone(&uid), memory);
        }
        let could_claim = self.jobs.get(&uid).is_some_and(|old| may_claim(old));
        if could_claim && !may_claim(&job) {
            self.wake_orphans(namespace_of(&job), woken);
        }
        woken.insert(Key::Job(Arc::clone(&uid)));
        self.jobs.put(uid, job);
    }

    fn job_gone(&mut self, uid: &str, woken: &mut BTreeSet<Key>) {
        self.memory.remove(uid);
        let Some(job) = self.jobs.remove(uid) else { return };
        woken.insert(Key::LeftOver(namespace_of(&job).into(), uid.into()));
        self.wake_orphans(namespace_of(&job), woken);
    }

    /// Nobody may be left who would take them.
    fn wake_orphans(&self, namespace: &str, woken: &mut BTreeSet<Key>) {
        let orphans = self.pods.under(ORPHANS, namespace).filter(|(_, pod)| pod.tracked);
        woken.extend(orphans.map(|(uid, _)| Key::Pod(Arc::clone(uid))));
    }

    fn claimed(&self, uid: &Uid, job: &JobView) -> Claimed<'_> {
        let mut claimed = Claimed { pods: Vec::new(), adopt: Vec::new(), release: Vec::new() };
        let namespace = namespace_of(job);
        let own = self.pods.owned(BY_JOB, namespace, uid);
        for (pod_uid, pod) in own.chain(self.pods.under(ORPHANS, namespace)) {
            let matches = takes(&job.spec.selector, |key| pod.label(key));
            let controller = pod.job.as_ref().map(|job| &*job.uid);
            let candidate = Candidate { controller, leaves: pod.leaves, matches };
            match claim(uid, job.leaves(), candidate) {
                Claim::Keep => {
                    // One that runs without the finalizer would end without being counted.
                    if pod.is_active() && !pod.tracked && !job.leaves() {
                        claimed.adopt.push(pod.named(pod_uid));
                    }
                    claimed.pods.push((pod_uid, pod));
                }
                Claim::Adopt => claimed.adopt.push(pod.named(pod_uid)),
                Claim::Release => claimed.release.push(pod.named(pod_uid)),
                Claim::Ignore => {}
            }
        }
        claimed
    }

    /// The pods of a Job that still have the finalizer.
    fn tracked(&self, namespace: &str, uid: &Uid) -> Vec<Member<'_>> {
        self.pods.owned(BY_JOB, namespace, uid).filter(|(_, pod)| pod.tracked).take(UNCOUNTED_MAX).collect()
    }

    fn plan_left_over(&self, namespace: &Arc<str>, uid: &Uid) -> Plan<Action> {
        let left = self.tracked(namespace, uid);
        let first = left.first().filter(|(_, pod)| self.job_of(pod).is_none());
        let Some(job) = first.and_then(|(_, pod)| pod.job.as_ref()) else { return Plan::default() };
        let owner = Owner {
            api_version: "batch/v1",
            kind: "Job",
            namespace: Arc::clone(namespace),
            name: Arc::clone(&job.name),
            uid: Arc::clone(uid),
        };
        Plan::act(Action::FreeIfGone { owner, pods: untracked(&left) })
    }

    fn plan_job(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(job) = self.jobs.get(uid) else { return Plan::default() };
        if job.is_managed_by_another() {
            return Plan::default();
        }
        let owner = job.owner();
        if job.finished().is_some() {
            let left = self.tracked(&owner.namespace, uid);
            let free = || Action::Free { namespace: Arc::clone(&owner.namespace), pods: untracked(&left) };
            return if left.is_empty() { Plan::default() } else { Plan::act(free()) };
        }
        let Claimed { pods, adopt, release } = self.claimed(uid, job);
        if !adopt.is_empty() || !release.is_empty() {
            return Plan::act(Action::Claim { owner, adopt, release });
        }
        let evaluation = evaluate(job, &pods, now);
        let deadline =
            evaluation.deadline.map(|at| Wake { at: now.at(at), why: "the Job has been active for too long" });
        let mut wakes: Vec<Wake> = deadline.into_iter().collect();
        let mut deletions = Vec::new();
        if evaluation.ends {
            deletions = named(&evaluation.tally.active);
        } else if !job.leaves() {
            let nothing = Memory::default();
            let memory = self.memory.get(uid).unwrap_or(&nothing);
            match manage(job, &pods, &evaluation, &memory.gone, now.instant) {
                Manage::Rest => {}
                Manage::Wait(at) => wakes.push(Wake { at, why: "failures have been waited for" }),
                Manage::Remove(pods) => return Plan::act(Action::Remove { owner, pods }),
                Manage::Create(new) => match memory.refused_until.filter(|until| *until > now.instant) {
                    Some(at) => wakes.push(Wake { at, why: "the server may take what it refused" }),
                    None => {
                        let pods = with_names(uid, &owner, memory, new);
                        return Plan::act(Action::Create { owner, job: Arc::clone(job), pods });
                    }
                },
            }
        }
        let mut actions = Vec::new();
        if evaluation.status != job.status {
            actions.push(Action::Report {
                owner: owner.clone(),
                resource_version: job.metadata.resource_version.clone().unwrap_or_default(),
                status: evaluation.status.to_patch(),
                events: evaluation.events,
            });
        }
        if !deletions.is_empty() && !job.leaves() {
            actions.push(Action::Delete { owner: owner.clone(), pods: deletions });
        }
        if !evaluation.free.is_empty() {
            actions.push(Action::Free { namespace: Arc::clone(&owner.namespace), pods: evaluation.free });
        }
        Plan { actions, wake: wakes.into_iter().min() }
    }

    fn plan_orphan(&self, uid: &Uid) -> Plan<Action> {
        let Some(pod) = self.pods.get(uid).filter(|pod| pod.tracked && pod.job.is_none()) else {
            return Plan::default();
        };
        // Whoever takes it in decides about it; one that leaves is taken in by nobody.
        if !pod.leaves && self.selecting(pod).next().is_some() {
            return Plan::default();
        }
        Plan::act(Action::Free { namespace: Arc::clone(&pod.namespace), pods: vec![pod.untracked(uid)] })
    }
}

/// Names for new pods, which no pod has had.
fn with_names(uid: &Uid, owner: &Owner, memory: &Memory, new: Vec<NewPod>) -> Vec<(String, NewPod)> {
    let mut used: BTreeMap<Option<u32>, UsedNumbers> = BTreeMap::new();
    let named = |new: NewPod| {
        let known = || memory.used.get(&new.index).cloned().unwrap_or_default();
        let used = used.entry(new.index).or_insert_with(known);
        let number = used.free().next().unwrap_or(0);
        used.seen(number);
        let ending = name_order(uid, new.index).ending(number);
        (format!("{}{ending}", name_prefix(&owner.name, new.index)), new)
    };
    new.into_iter().map(named).collect()
}

fn namespace_of(job: &JobView) -> &str {
    job.metadata.namespace.as_deref().unwrap_or_default()
}

/// Whether a Job takes in pods that nobody has.
fn may_claim(job: &JobView) -> bool {
    !job.leaves() && !job.is_managed_by_another() && job.finished().is_none()
}

fn named(members: &[Member<'_>]) -> Vec<PodRef> {
    members.iter().map(|(uid, pod)| pod.named(uid)).collect()
}

fn untracked(members: &[Member<'_>]) -> Vec<Untracked> {
    members.iter().map(|(uid, pod)| pod.untracked(uid)).collect()
}

impl Controller for Jobs {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = Answer;

    fn observe(&mut self, now: Now, input: Input) -> Vec<Key> {
        let mut woken = BTreeSet::new();
        match input {
            Input::Pods(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|pod| pod.uid().map(Uid::from)).collect();
                self.pods.missing_from(&here).iter().for_each(|uid| self.pod_gone(uid, &mut woken));
                all.iter().for_each(|pod| self.pod_seen(pod, now, &mut woken));
            }
            Input::Pods(WatchUpdate::Changed(pod)) => self.pod_seen(&pod, now, &mut woken),
            Input::Pods(WatchUpdate::Removed(pod)) => self.pod_gone(&pod.uid().unwrap_or_default(), &mut woken),
            Input::Jobs(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|job| job.uid().map(Uid::from)).collect();
                self.jobs.missing_from(&here).iter().for_each(|uid| self.job_gone(uid, &mut woken));
                all.into_iter().for_each(|job| self.job_seen(job, &mut woken));
            }
            Input::Jobs(WatchUpdate::Changed(job)) => self.job_seen(job, &mut woken),
            Input::Jobs(WatchUpdate::Removed(job)) => self.job_gone(&job.uid().unwrap_or_default(), &mut woken),
        }
        woken.into_iter().collect()
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Job(uid) => self.plan_job(uid, now),
            Key::LeftOver(namespace, uid) => self.plan_left_over(namespace, uid),
            Key::Pod(uid) => self.plan_orphan(uid),
        }
    }

    fn ended(&mut self, now: Now, key: &Key, action: Action, outcome: Outcome<Answer>) -> Vec<Key> {
        let (Key::Job(uid), Action::Create { owner, pods, .. }) = (key, action) else { return Vec::new() };
        let Some(memory) = self.memory.get_mut(uid) else { return Vec::new() };
        match outcome {
            Outcome::Done(Answer::Refused) => {
                memory.refused = memory.refused.saturating_add(1);
                memory.refused_until = Some(now.instant + REFUSED_BACKOFF.pause(memory.refused));
            }
            Outcome::Done(Answer::Taken(names)) => {
                for (name, _) in pods.iter().filter(|(name, _)| names.contains(name)) {
                    memory.seen(&owner.name, uid, name);
                }
            }
            Outcome::Done(Answer::Done) => (memory.refused, memory.refused_until) = (0, None),
            Outcome::Failed(_) | Outcome::NotTried => {}
        }
        vec![key.clone()]
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
