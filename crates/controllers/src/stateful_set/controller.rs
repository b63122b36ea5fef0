//! What is known of StatefulSets, their pods, claims and revisions, and what follows from it.
//!
//! A set has two keys: one about its pods, the other about what it reports. A refused create waits for its retry, and the numbers go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Wake};
use kube::ResourceExt as _;
use serde_json::Value;

use super::claims::{ClaimFacts, ClaimView};
use super::plan::{Member, Revision, Situation, Step};
use super::pods::PodFacts;
use super::set::{StatefulSetStatus, StatefulSetView};
use crate::controller_history::{
    Asked, History, HistoryAction, RevisionFacts, RevisionView, Revisions, no_revisions, template_text,
};
use crate::controller_ref::{Candidate, Claim, Owner, claim};
use crate::objects::{Objects, owner_word};
use crate::pod::PodView;
use crate::pod_control::PodRef;
use crate::selector::takes;
use crate::volume_objects::claim_key;

type Uid = Arc<str>;

/// What is told.
#[derive(Debug)]
pub(crate) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Sets(WatchUpdate<Arc<StatefulSetView>>),
    Revisions(WatchUpdate<Arc<RevisionView>>),
    Claims(WatchUpdate<Arc<ClaimView>>),
}

/// What is planned for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// The pods of a set.
    Pods(Uid),
    /// What it reports.
    Status(Uid),
}

/// What is to be done, for whom.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(super) owner: Owner,
    pub(super) set: Arc<StatefulSetView>,
    pub(super) work: Work,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Take in pods that nobody has, let go those that are not of this set.
    Claim { adopt: Vec<PodRef>, release: Vec<PodRef> },
    /// See to the revisions.
    History(HistoryAction),
    /// See to pods and claims.
    Step(Step),
    /// Report, to the set of this version: a merge patch of its status.
    Report(Value),
}

/// A set, and its template as it is compared.
#[derive(Clone, Debug)]
struct SetFacts {
    view: Arc<StatefulSetView>,
    template: Arc<str>,
}

/// The pods of a set, by what they are to it.
#[derive(Default)]
struct Claimed<'a> {
    members: BTreeMap<i64, Member<'a>>,
    adopt: Vec<PodRef>,
    release: Vec<PodRef>,
}

/// Indices of pods: by their controller, and by the namespace of those who have none.
const BY_CONTROLLER: usize = 0;
const ORPHANS: usize = 1;
/// The index of sets: by their namespace.
const BY_NAMESPACE: usize = 0;

/// Everything known.
#[derive(Debug)]
pub(crate) struct StatefulSets {
    pods: Objects<PodFacts, 2>,
    sets: Objects<SetFacts, 1>,
    revisions: Revisions,
    claims: BTreeMap<Arc<str>, ClaimFacts>,
    /// Pods for whose end people were told that it is waited for, and claims of others; said once.
    told: BTreeSet<String>,
}

impl StatefulSets {
    pub(crate) fn new() -> Self {
        let pods = Objects::new([
            |pod: &PodFacts| pod.controller.as_ref().map(|uid| owner_word(&pod.namespace, uid)),
            |pod: &PodFacts| pod.controller.is_none().then(|| Arc::clone(&pod.namespace)),
        ]);
        let sets = Objects::new([|set: &SetFacts| set.view.metadata.namespace.as_deref().map(Arc::from)]);
        Self { pods, sets, revisions: no_revisions(), claims: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Whom an object matters to: its controller, or, if it has none, every set that selects it.
    fn concerned<'a>(
        &self,
        controller: Option<&Uid>,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'a str>,
        woken: &mut BTreeSet<Uid>,
    ) {
        match controller {
            Some(uid) => drop(woken.insert(Arc::clone(uid))),
            None => {
                let here = self.sets.under(BY_NAMESPACE, namespace);
                let selecting = here.filter(|(_, set)| takes(&set.view.spec.selector, &label));
                woken.extend(selecting.map(|(uid, _)| Arc::clone(uid)));
            }
        }
    }

    fn pod_concerns(&self, pod: &PodFacts, woken: &mut BTreeSet<Uid>) {
        self.concerned(pod.controller.as_ref(), &pod.namespace, |key| pod.label(key), woken);
    }

    fn pod_seen(&mut self, pod: &PodView, now: Now, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = pod.uid().map(Uid::from) else { return };
        let facts = PodFacts::of(pod, self.pods.get(&uid), now);
        if self.pods.get(&uid) == Some(&facts) {
            return;
        }
        self.pod_concerns(&facts, woken);
        if let Some(old) = self.pods.put(uid, facts) {
            self.pod_concerns(&old, woken);
        }
    }

    fn pod_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        self.told.remove(uid);
        if let Some(old) = self.pods.remove(uid) {
            self.pod_concerns(&old, woken);
        }
    }

    fn set_seen(&mut self, view: Arc<StatefulSetView>, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = view.uid().map(Uid::from) else { return };
        woken.insert(Arc::clone(&uid));
        let known = self.sets.get(&uid).filter(|known| known.view.spec.template == view.spec.template);
        let template = known.map(|known| Arc::clone(&known.template));
        let template = template.unwrap_or_else(|| template_text(&view.spec.template.value()));
        self.sets.put(uid, SetFacts { view, template });
    }

    fn revision_concerns(&self, revision: &RevisionFacts, woken: &mut BTreeSet<Uid>) {
        self.concerned(revision.controller.as_ref(), &revision.namespace, |key| revision.label(key), woken);
    }

    fn revision_seen(&mut self, view: &RevisionView, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = view.uid().map(Uid::from) else { return };
        let facts = RevisionFacts::of(view);
        self.revision_concerns(&facts, woken);
        if let Some(old) = self.revisions.put(uid, facts) {
            self.revision_concerns(&old, woken);
        }
    }

    fn revision_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        if let Some(old) = self.revisions.remove(uid) {
            self.revision_concerns(&old, woken);
        }
    }

    /// A claim has changed: `now` is what it is, unless it is gone.
    fn claim_changed(&mut self, claim: &ClaimView, now: Option<ClaimFacts>, woken: &mut BTreeSet<Uid>) {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let key = claim_key(namespace, name);
        let was = match &now {
            Some(facts) => self.claims.insert(key, facts.clone()),
            None => self.claims.remove(&key),
        };
        if was == now {
            return;
        }
        if let Some(was) = was.filter(|_| now.is_none()) {
            self.told.remove(&was.uid);
        }
        let is_of = |set: &StatefulSetView| {
            let ordinal = name.rsplit_once('-').and_then(|(_, digits)| digits.parse::<u32>().ok());
            ordinal.is_some_and(|ordinal| set.claims(ordinal.into()).any(|(_, claim)| claim == name))
        };
        let here = self.sets.under(BY_NAMESPACE, namespace).filter(|(_, set)| is_of(&set.view));
        woken.extend(here.map(|(uid, _)| Arc::clone(uid)));
    }

    fn claims_listed(&mut self, all: &[Arc<ClaimView>], woken: &mut BTreeSet<Uid>) {
        // Rare, and everything may have changed.
        self.claims.clear();
        for claim in all {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            self.claims.insert(claim_key(namespace, &claim.name_any()), ClaimFacts::of(claim));
        }
        let with_claims = self.sets.iter().filter(|(_, set)| !set.view.spec.volume_claim_templates.is_empty());
        woken.extend(with_claims.map(|(uid, _)| Arc::clone(uid)));
    }

    fn claimed(&self, uid: &Uid, set: &StatefulSetView) -> Claimed<'_> {
        let mut claimed = Claimed::default();
        let own = self.pods.owned(BY_CONTROLLER, set.namespace(), uid);
        for (pod_uid, facts) in own.chain(self.pods.under(ORPHANS, set.namespace())) {
            let ordinal = set.ordinal(&facts.name);
            let matches = ordinal.is_some() && takes(&set.spec.selector, |key| facts.label(key));
            let candidate = Candidate { controller: facts.controller.as_deref(), leaves: facts.leaves, matches };
            let named = || PodRef { name: facts.name.to_string(), uid: pod_uid.to_string() };
            match claim(uid, set.leaves(), candidate) {
                Claim::Keep => {
                    if let Some(ordinal) = ordinal {
                        claimed.members.insert(ordinal, Member { uid: pod_uid, facts });
                    }
                }
                Claim::Adopt => claimed.adopt.push(named()),
                Claim::Release => claimed.release.push(named()),
                Claim::Ignore => {}
            }
        }
        claimed
    }

    fn history<'a>(&'a self, uid: &'a Uid, set: &'a StatefulSetView) -> History<'a> {
        let selects = |it: &RevisionFacts| takes(&set.spec.selector, |key| it.label(key));
        History::of(&self.revisions, uid, set.namespace(), set.leaves(), selects)
    }

    fn plan_pods(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(SetFacts { view: set, template }) = self.sets.get(uid).filter(|set| !set.view.leaves()) else {
            return Plan::default();
        };
        let act = |work| Action { owner: set.owner(), set: Arc::clone(set), work };
        let Claimed { members, adopt, release } = self.claimed(uid, set);
        if !adopt.is_empty() || !release.is_empty() {
            return Plan::act(act(Work::Claim { adopt, release }));
        }
        let history = self.history(uid, set);
        let asked = history.asked(set.name(), template, set.status.collision_count.unwrap_or(0)).0;
        let update = match asked {
            Asked::Is(update) => update,
            Asked::Needs(action) => return Plan::act(act(Work::History(action))),
        };
        // One that is gone is never asked for again.
        let current = history.get(&set.status.current_revision).unwrap_or(update);
        let used: BTreeSet<&str> = members.values().map(|pod| pod.facts.revision()).collect();
        let is_live =
            |it: &RevisionFacts| it.name == current.name || it.name == update.name || used.contains(&*it.name);
        let forget = history.truncate(set.history_limit(), is_live);
        let revision = |it: &RevisionFacts| Revision { name: Arc::clone(&it.name), template: Arc::clone(&it.template) };
        let namespace = set.namespace();
        let situation = Situation {
            set,
            current: revision(current),
            update: revision(update),
            pods: members,
            claim: Box::new(move |name| self.claims.get(&claim_key(namespace, name))),
            now,
        };
        let Plan { actions: steps, wake } = situation.plan();
        let told = |step: &Step| step.told_once().is_some_and(|uid| self.told.contains(uid));
        let steps = steps.into_iter().filter(|step| !told(step)).map(Work::Step);
        let actions = forget.map(Work::History).into_iter().chain(steps).map(act).collect();
        Plan { actions, wake }
    }

    fn plan_status(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(SetFacts { view: set, template }) = self.sets.get(uid) else { return Plan::default() };
        let members = self.claimed(uid, set).members;
        let history = self.history(uid, set);
        let old = &set.status;
        let (asked, collisions) = history.asked(set.name(), template, old.collision_count.unwrap_or(0));
        let (update, current) = match asked {
            Asked::Is(it) => (&*it.name, history.get(&old.current_revision).map_or(&*it.name, |it| &it.name)),
            // Without new revisions a set that leaves goes on to tell what is left of it.
            Asked::Needs(_) if set.leaves() => (&*old.update_revision, &*old.current_revision),
            Asked::Needs(_) if collisions != old.collision_count.unwrap_or(0) => {
                let status = StatefulSetStatus { collision_count: Some(collisions), ..old.clone() };
                return Plan::act(self.report(set, &status));
            }
            // Its revision is about to be kept: before that, nothing can be said of it.
            Asked::Needs(_) => return Plan::default(),
        };
        let seconds = set.spec.min_ready_seconds;
        let number = |counts: &dyn Fn(&PodFacts) -> bool| {
            i32::try_from(members.values().filter(|pod| counts(pod.facts)).count()).unwrap_or(i32::MAX)
        };
        let mut status = StatefulSetStatus {
            observed_generation: set.metadata.generation.unwrap_or(0),
            replicas: number(&|_| true),
            ready_replicas: number(&PodFacts::is_ready),
            available_replicas: number(&|pod| pod.is_available(seconds, now)),
            current_replicas: number(&|pod| !pod.leaves && pod.revision() == current),
            updated_replicas: number(&|pod| !pod.leaves && pod.revision() == update),
            current_revision: current.to_owned(),
            update_revision: update.to_owned(),
            collision_count: Some(collisions).filter(|count| *count > 0).or(old.collision_count),
        };
        let asked = set.replicas();
        if [status.updated_replicas, status.ready_replicas, status.replicas].iter().all(|number| *number == asked) {
            status.current_revision.clone_from(&status.update_revision);
            status.current_replicas = status.updated_replicas;
        }
        let next = members.values().filter_map(|pod| pod.facts.available_at(seconds));
        let next = next.filter(|at| *at > now.instant).min();
        let wake = next.map(|at| Wake { at, why: "a pod has been ready for long enough" });
        let actions = if status == *old { Vec::new() } else { vec![self.report(set, &status)] };
        Plan { actions, wake }
    }

    fn report(&self, set: &Arc<StatefulSetView>, status: &StatefulSetStatus) -> Action {
        Action { owner: set.owner(), set: Arc::clone(set), work: Work::Report(status.to_patch()) }
    }
}

impl Controller for StatefulSets {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = ();

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
            Input::Sets(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|set| set.uid().map(Uid::from)).collect();
                for uid in self.sets.missing_from(&here) {
                    self.sets.remove(&uid);
                }
                all.into_iter().for_each(|set| self.set_seen(set, &mut woken));
            }
            Input::Sets(WatchUpdate::Changed(set)) => self.set_seen(set, &mut woken),
            Input::Sets(WatchUpdate::Removed(set)) => drop(self.sets.remove(&set.uid().unwrap_or_default())),
            Input::Revisions(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|it| it.uid().map(Uid::from)).collect();
                self.revisions.missing_from(&here).iter().for_each(|uid| self.revision_gone(uid, &mut woken));
                all.iter().for_each(|it| self.revision_seen(it, &mut woken));
            }
            Input::Revisions(WatchUpdate::Changed(it)) => self.revision_seen(&it, &mut woken),
            Input::Revisions(WatchUpdate::Removed(it)) => self.revision_gone(&it.uid().unwrap_or_default(), &mut woken),
            Input::Claims(WatchUpdate::Listed(all)) => self.claims_listed(&all, &mut woken),
            Input::Claims(WatchUpdate::Changed(claim)) => {
                self.claim_changed(&claim, Some(ClaimFacts::of(&claim)), &mut woken);
            }
            Input::Claims(WatchUpdate::Removed(claim)) => self.claim_changed(&claim, None, &mut woken),
        }
        woken.into_iter().flat_map(|uid| [Key::Pods(Arc::clone(&uid)), Key::Status(uid)]).collect()
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Pods(uid) => self.plan_pods(uid, now),
            Key::Status(uid) => self.plan_status(uid, now),
        }
    }

    fn ended(&mut self, _: Now, _: &Key, action: Action, outcome: Outcome<()>) -> Vec<Key> {
        if let (Work::Step(step), Outcome::Done(())) = (&action.work, outcome) {
            self.told.extend(step.told_once().map(str::to_owned));
        }
        Vec::new()
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
