//! What each Deployment's sets are to be, and what it reports: pure, told facts and the time.
//!
//! A Deployment has two keys. One is about its sets (claim, create, resize, forget), the other about what it reports: a refused create
//! waits for its retry, and the numbers go on. What was refused last is remembered for the report alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::pod;
use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan};
use kube::ResourceExt as _;
use serde_json::Value;

use super::conditions::{PROGRESSING, find, updated};
use super::family::{Family, OwnedSet};
use super::history::{Rollback, SetChange, forgotten, handed_down, new_set, rollback};
use super::rollout::{next_step, waits_for_old_pods};
use super::status::{Circumstances, OldPods, report, to_patch};
use super::template::Fingerprint;
use super::view::DeploymentView;
use crate::availability::Since;
use crate::controller_ref::{Candidate, Claim, Owner, claim, controller_of};
use crate::objects::{Objects, owner_word};
use crate::pod::PodView;
use crate::pod_control::PodTemplate;
use crate::replicas::set::ReplicaSetView;
use crate::selector::{is_empty, takes};

/// The UID of anything.
type Uid = Arc<str>;

/// What is told.
#[derive(Debug)]
pub(crate) enum Input {
    Deployments(WatchUpdate<Arc<DeploymentView>>),
    Sets(WatchUpdate<Arc<ReplicaSetView>>),
    Pods(WatchUpdate<Arc<PodView>>),
}

/// What is planned for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// The sets of a Deployment.
    Sets(Uid),
    /// What it reports.
    Status(Uid),
}

/// A set that is meant, in the version that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SetRef {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl SetRef {
    fn of(set: OwnedSet<'_>) -> Self {
        let resource_version = set.view.metadata.resource_version.clone().unwrap_or_default();
        Self { name: set.name().to_owned(), uid: set.uid.to_string(), resource_version }
    }
}

/// What is to be done. Each names the Deployment first.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Take in sets that nobody has, let go those that are not selected.
    Claim { owner: Owner, adopt: Vec<SetRef>, release: Vec<SetRef> },
    /// Create the new set. If another has its name, count that, in the version of the Deployment that was looked at.
    Create { owner: Owner, name: String, set: Value, template: PodTemplate, resource_version: String, collisions: i32 },
    /// Change a set of this size.
    Change { owner: Owner, set: SetRef, from: i32, change: SetChange },
    /// Forget a former revision.
    Forget { owner: Owner, set: SetRef },
    /// Go back to a former revision, as an old client asked.
    Rollback { owner: Owner, resource_version: String, rollback: Rollback },
    /// Report: a merge patch of the status and of the revision. With a version if something is replaced that others write too.
    Report { owner: Owner, resource_version: Option<String>, status: Value, revision: Option<String> },
}

/// A set, and what its template is.
#[derive(Clone, Debug)]
struct KnownSet {
    view: Arc<ReplicaSetView>,
    template: Fingerprint,
}

/// A Deployment, and what is known besides.
#[derive(Clone, Debug)]
struct KnownDeployment {
    view: Arc<DeploymentView>,
    template: Fingerprint,
    /// Since when the condition that tells of progress says what it says.
    progress: Option<Since>,
    /// Why the new set could not be created.
    failure: Option<String>,
}

/// A pod of a set, as far as Deployments care.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PodFacts {
    namespace: Arc<str>,
    set: Uid,
    has_ended: bool,
    grace: i64,
}

/// Indices of sets: by their controller, and by the namespace of those who have none.
const BY_CONTROLLER: usize = 0;
const ORPHANS: usize = 1;
/// The index of Deployments by their namespace, and of pods by their set.
const BY_NAMESPACE: usize = 0;
const BY_SET: usize = 0;

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(crate) struct Deployments {
    deployments: Objects<KnownDeployment, 1>,
    sets: Objects<KnownSet, 2>,
    pods: Objects<PodFacts, 1>,
}

/// The sets of a Deployment, by what they are to it.
struct Claimed<'a> {
    kept: Vec<(OwnedSet<'a>, bool)>,
    adopt: Vec<SetRef>,
    release: Vec<SetRef>,
}

impl Deployments {
    pub(crate) fn new() -> Self {
        Self {
            deployments: Objects::new([|it: &KnownDeployment| it.view.metadata.namespace.as_deref().map(Arc::from)]),
            sets: Objects::new([
                |set: &KnownSet| {
                    controller_of(&set.view.metadata).map(|owner| owner_word(set.view.namespace(), &owner.uid))
                },
                |set: &KnownSet| match controller_of(&set.view.metadata) {
                    Some(_) => None,
                    None => set.view.metadata.namespace.as_deref().map(Arc::from),
                },
            ]),
            pods: Objects::new([|pod: &PodFacts| Some(owner_word(&pod.namespace, &pod.set))]),
        }
    }

    fn deployment_seen(&mut self, view: Arc<DeploymentView>, now: Now, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = view.uid().map(Uid::from) else { return };
        let known = self.deployments.get(&uid);
        let same = known.filter(|known| known.view.spec.template == view.spec.template);
        let template = same.map_or_else(|| Fingerprint::of(&view.spec.template), |known| known.template);
        let said = find(&view.status.conditions, PROGRESSING).and_then(updated);
        let progress = said.map(|stamp| Since::heard(stamp, known.and_then(|known| known.progress), now));
        let failure = known.and_then(|known| known.failure.clone());
        woken.insert(Arc::clone(&uid));
        self.deployments.put(uid, KnownDeployment { view, template, progress, failure });
    }

    /// Whom a set matters to: its controller, or, if it has none, every Deployment that selects it.
    fn concerned(&self, set: &ReplicaSetView, woken: &mut BTreeSet<Uid>) {
        if let Some(owner) = controller_of(&set.metadata) {
            woken.insert(owner.uid.as_str().into());
            return;
        }
        let here = self.deployments.under(BY_NAMESPACE, set.metadata.namespace.as_deref().unwrap_or_default());
        let selecting = here.filter(|(_, it)| takes(&it.view.spec.selector, |key| label(set, key)));
        woken.extend(selecting.map(|(uid, _)| Arc::clone(uid)));
    }

    fn set_seen(&mut self, view: Arc<ReplicaSetView>, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = view.uid().map(Uid::from) else { return };
        let same = self.sets.get(&uid).filter(|known| known.view.spec.template == view.spec.template);
        let template = same.map_or_else(|| Fingerprint::of(&view.spec.template), |known| known.template);
        self.concerned(&view, woken);
        if let Some(old) = self.sets.put(uid, KnownSet { view, template }) {
            self.concerned(&old.view, woken);
        }
    }

    fn set_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        if let Some(old) = self.sets.remove(uid) {
            self.concerned(&old.view, woken);
        }
    }

    /// Pods matter to those Deployments whose rollouts wait for them.
    fn pod_matters(&self, pod: &PodFacts, woken: &mut BTreeSet<Uid>) {
        let owner = self.sets.get(&pod.set).and_then(|set| controller_of(&set.view.metadata));
        let waiting = owner.filter(|it| self.deployments.get(&it.uid).is_some_and(|it| it.view.is_recreate()));
        woken.extend(waiting.map(|owner| Uid::from(owner.uid.as_str())));
    }

    fn pod_seen(&mut self, pod: &PodView, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = pod.uid().map(Uid::from) else { return };
        let set = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet");
        let Some(set) = set else { return self.pod_gone(&uid, woken) };
        let facts = PodFacts {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            set: set.uid.as_str().into(),
            has_ended: pod::is_terminal(pod),
            grace: pod.metadata.deletion_grace_period_seconds.unwrap_or(0),
        };
        if self.pods.get(&uid) == Some(&facts) {
            return;
        }
        self.pod_matters(&facts, woken);
        if let Some(old) = self.pods.put(uid, facts) {
            self.pod_matters(&old, woken);
        }
    }

    fn pod_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        if let Some(old) = self.pods.remove(uid) {
            self.pod_matters(&old, woken);
        }
    }

    fn claimed(&self, uid: &Uid, known: &KnownDeployment) -> Claimed<'_> {
        let deployment = &known.view;
        let mut claimed = Claimed { kept: Vec::new(), adopt: Vec::new(), release: Vec::new() };
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let orphans = self.sets.under(ORPHANS, namespace);
        let own = self.sets.owned(BY_CONTROLLER, namespace, uid);
        for (set_uid, set) in own.chain(orphans) {
            let candidate = Candidate {
                controller: controller_of(&set.view.metadata).map(|owner| owner.uid.as_str()),
                leaves: set.view.leaves(),
                matches: takes(&deployment.spec.selector, |key| label(&set.view, key)),
            };
            let owned = OwnedSet { uid: set_uid, view: &set.view };
            match claim(uid, deployment.leaves(), candidate) {
                Claim::Keep => claimed.kept.push((owned, set.template == known.template)),
                Claim::Adopt => claimed.adopt.push(SetRef::of(owned)),
                Claim::Release => claimed.release.push(SetRef::of(owned)),
                Claim::Ignore => {}
            }
        }
        claimed
    }

    /// The pods of old sets that have not ended.
    fn old_pods(&self, family: &Family<'_>) -> OldPods {
        let namespace = family.deployment.metadata.namespace.as_deref().unwrap_or_default();
        let pods = family.old.iter().flat_map(|set| self.pods.owned(BY_SET, namespace, set.uid)).map(|(_, pod)| pod);
        pods.filter(|pod| !pod.has_ended)
            .fold(OldPods::default(), |sum, pod| OldPods { count: sum.count + 1, grace: sum.grace.max(pod.grace) })
    }

    fn plan_sets(&self, uid: &Uid) -> Plan<Action> {
        let known = self.deployments.get(uid);
        // The server takes none with an empty selector; one that came otherwise must not own everything.
        let known = known.filter(|known| !known.view.leaves() && !is_empty(&known.view.spec.selector));
        let Some(known) = known else { return Plan::default() };
        let deployment = &*known.view;
        let owner = deployment.owner();
        let Claimed { kept, adopt, release } = self.claimed(uid, known);
        if !adopt.is_empty() || !release.is_empty() {
            return Plan::act(Action::Claim { owner, adopt, release });
        }
        let family = Family::new(deployment, kept.into_iter());
        let resource_version = deployment.metadata.resource_version.clone().unwrap_or_default();
        if !deployment.spec.paused
            && let Some(rollback) = rollback(&family)
        {
            return Plan::act(Action::Rollback { owner, resource_version, rollback });
        }
        let step = next_step(&family, self.old_pods(&family).count);
        let mut actions = Vec::new();
        for set in family.all() {
            let mut change = handed_down(&family, set);
            if let Some(size) = step.sizes.get(set.uid) {
                change.resize(deployment, set, *size);
            }
            if !change.is_nothing() {
                let (owner, from) = (owner.clone(), set.spec());
                actions.push(Action::Change { owner, set: SetRef::of(set), from, change });
            }
        }
        if let Some(replicas) = step.create {
            let (name, set) = new_set(&family, replicas);
            let template = deployment.spec.template.clone();
            let collisions = deployment.status.collision_count.unwrap_or(0);
            let owner = owner.clone();
            actions.push(Action::Create { owner, name, set, template, resource_version, collisions });
        }
        if step.trims {
            let forget = |set: OwnedSet<'_>| Action::Forget { owner: owner.clone(), set: SetRef::of(set) };
            actions.extend(forgotten(&family).into_iter().map(forget));
        }
        Plan { actions, wake: None }
    }

    fn plan_status(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(known) = self.deployments.get(uid) else { return Plan::default() };
        let deployment = &*known.view;
        let kept = if is_empty(&deployment.spec.selector) { Vec::new() } else { self.claimed(uid, known).kept };
        let family = Family::new(deployment, kept.into_iter());
        let old_pods = self.old_pods(&family);
        let is_waiting = deployment.is_recreate() && waits_for_old_pods(&family, old_pods.count);
        let circumstances = Circumstances {
            waits_for: (is_waiting && old_pods.count > 0).then_some(old_pods),
            failure: known.failure.as_deref(),
            progress: known.progress,
        };
        let report = report(&family, circumstances, now);
        if report.status == deployment.status && report.revision.is_none() {
            return Plan { actions: Vec::new(), wake: report.wake };
        }
        let replaces = report.status.conditions != deployment.status.conditions || report.revision.is_some();
        let resource_version = deployment.metadata.resource_version.clone().filter(|_| replaces);
        let status = to_patch(&deployment.status, &report.status);
        let action = Action::Report { owner: deployment.owner(), resource_version, status, revision: report.revision };
        Plan { actions: vec![action], wake: report.wake }
    }
}

fn label<'a>(set: &'a ReplicaSetView, key: &str) -> Option<&'a str> {
    set.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

impl Controller for Deployments {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, now: Now, input: Input) -> Vec<Key> {
        let mut woken = BTreeSet::new();
        match input {
            Input::Deployments(WatchUpdate::Listed(all)) => {
                let here = uids(&all);
                self.deployments.missing_from(&here).iter().for_each(|uid| drop(self.deployments.remove(uid)));
                all.into_iter().for_each(|it| self.deployment_seen(it, now, &mut woken));
            }
            Input::Deployments(WatchUpdate::Changed(it)) => self.deployment_seen(it, now, &mut woken),
            Input::Deployments(WatchUpdate::Removed(it)) => {
                drop(self.deployments.remove(&it.uid().unwrap_or_default()));
            }
            Input::Sets(WatchUpdate::Listed(all)) => {
                let here = uids(&all);
                self.sets.missing_from(&here).iter().for_each(|uid| self.set_gone(uid, &mut woken));
                all.into_iter().for_each(|set| self.set_seen(set, &mut woken));
            }
            Input::Sets(WatchUpdate::Changed(set)) => self.set_seen(set, &mut woken),
            Input::Sets(WatchUpdate::Removed(set)) => self.set_gone(&set.uid().unwrap_or_default(), &mut woken),
            Input::Pods(WatchUpdate::Listed(all)) => {
                let here = uids(&all);
                self.pods.missing_from(&here).iter().for_each(|uid| self.pod_gone(uid, &mut woken));
                all.iter().for_each(|pod| self.pod_seen(pod, &mut woken));
            }
            Input::Pods(WatchUpdate::Changed(pod)) => self.pod_seen(&pod, &mut woken),
            Input::Pods(WatchUpdate::Removed(pod)) => self.pod_gone(&pod.uid().unwrap_or_default(), &mut woken),
        }
        woken.retain(|uid| self.deployments.get(uid).is_some());
        woken.into_iter().flat_map(|uid| [Key::Sets(Arc::clone(&uid)), Key::Status(uid)]).collect()
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Sets(uid) => self.plan_sets(uid),
            Key::Status(uid) => self.plan_status(uid, now),
        }
    }

    fn ended(&mut self, _: Now, key: &Key, action: Action, outcome: Outcome<()>) -> Vec<Key> {
        let (Key::Sets(uid) | Key::Status(uid)) = key;
        let Some(known) = self.deployments.get_mut(uid) else { return Vec::new() };
        let Action::Create { name, .. } = action else { return Vec::new() };
        let before = known.failure.take();
        known.failure = match outcome {
            Outcome::Failed(why) => Some(format!("Failed to create new replica set {name:?}: {why}")),
            Outcome::NotTried => before.clone(),
            Outcome::Done(()) => None,
        };
        if known.failure == before { Vec::new() } else { vec![Key::Status(Arc::clone(uid))] }
    }
}

fn uids<K: kube::Resource>(all: &[Arc<K>]) -> BTreeSet<Uid> {
    all.iter().filter_map(|it| it.uid().map(Uid::from)).collect()
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
