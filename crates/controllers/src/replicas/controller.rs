//! How many pods each set has, is to have, and reports: pure, told facts and the time.
//!
//! A set has two keys. One is about its pods (claim, create, delete), the other about what it reports: a refused create waits for its
//! retry, and the numbers go on. What was refused last is remembered for the report alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod;
use api::rules::{SURGE_ASKED_AT, surges_until};
use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Wake};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::brakes::Brakes;
use super::set::{ReplicaSetView, SetKind, SetStatus};
use super::victims::{Replica, deletion_cost, victims};
use crate::availability::{Since, available_at, ready_since};
use crate::controller_ref::{Candidate, Claim, Owner, claim, controller_of};
use crate::flaws::{self, Flaw};
use crate::objects::{Objects, owner_word};
use crate::pod::PodView;
use crate::pod_control::{BURST, PodRef};
use crate::pod_names::{self, NameOrder, UsedNumbers};
use crate::selector::takes;

/// The UID of anything.
pub(crate) type Uid = Arc<str>;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What is told.
#[derive(Debug)]
pub(crate) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Sets(WatchUpdate<Arc<ReplicaSetView>>),
}

/// What is planned for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// The pods of a set.
    Pods(Uid),
    /// What it reports.
    Status(Uid),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Take in pods that nobody has, let go those that are not selected.
    Claim { owner: Owner, adopt: Vec<PodRef>, release: Vec<PodRef> },
    /// Create pods of these names.
    Create { owner: Owner, set: Arc<ReplicaSetView>, names: Vec<String> },
    /// Ask these pods to leave.
    Delete { owner: Owner, pods: Vec<PodRef> },
    /// Report: a merge patch of the status. To the set of this version, if something is replaced that others write too.
    Report { owner: Owner, resource_version: Option<String>, status: Value },
}

/// What can come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    /// Pods of these names are there, and others have these.
    Created(Vec<String>, Vec<String>),
}

/// A pod, as far as sets care.
#[derive(Clone, PartialEq, Debug)]
struct PodFacts {
    namespace: Arc<str>,
    name: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    controller: Option<Uid>,
    node: Option<Arc<str>>,
    leaves: bool,
    terminal: bool,
    phase: u8,
    ready: Option<Since>,
    deletion_cost: i32,
    /// Its eviction waits for a successor until then.
    surges_until: Option<Timestamp>,
    restarts: (i32, i32),
    created: Option<Timestamp>,
}

impl PodFacts {
    fn of(pod: &PodView, known: Option<&Self>, now: Now) -> Self {
        let most = |statuses: &[crate::pod::ContainerStatusView], counts: &dyn Fn(&str) -> bool| {
            statuses.iter().filter(|it| counts(&it.name)).map(|it| it.restart_count).max().unwrap_or(0)
        };
        let is_sidecar = |name: &str| {
            pod.spec.init_containers.iter().any(|it| it.name == name && it.restart_policy.as_deref() == Some("Always"))
        };
        Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            labels: pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            controller: controller_of(&pod.metadata).map(|owner| owner.uid.as_str().into()),
            node: pod.node().map(Arc::from),
            leaves: pod::is_terminating(pod),
            terminal: pod::is_terminal(pod),
            phase: match pod.status.phase.as_deref() {
                Some("Running") => 2,
                Some("Unknown") => 1,
                _ => 0,
            },
            ready: ready_since(pod, known.and_then(|known| known.ready), now),
            deletion_cost: deletion_cost(
                pod.annotations().get("controller.kubernetes.io/pod-deletion-cost").map(String::as_str),
            ),
            surges_until: pod
                .annotations()
                .get(SURGE_ASKED_AT)
                .and_then(|asked_at| surges_until(asked_at, now.timestamp))
                .filter(|until| *until > now.timestamp),
            restarts: (
                most(&pod.status.container_statuses, &|_| true),
                most(&pod.status.init_container_statuses, &is_sidecar),
            ),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    fn is_active(&self) -> bool {
        (!self.leaves || flaws::has(Flaw::CountsLeaving)) && !self.terminal
    }

    /// It is about to be evicted, and waits for a successor.
    fn surges(&self, now: Timestamp) -> bool {
        self.surges_until.is_some_and(|until| until > now)
    }
}

/// What is known of one set besides its object.
#[derive(Clone, Debug, Default)]
struct Memory {
    used: UsedNumbers,
    /// Pods that are being created, or were and have not been seen: what is reported does not count them yet.
    unseen: BTreeSet<String>,
    /// Why its pods could not be made or taken away: reason and message.
    failure: Option<(&'static str, String)>,
}

/// Indices of pods: by their controller, and by the namespace of those who have none.
const BY_CONTROLLER: usize = 0;
const ORPHANS: usize = 1;
/// Indices of sets: by their namespace, and by their controller.
const BY_NAMESPACE: usize = 0;
const SIBLINGS: usize = 1;

/// Everything known, and what follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    kind: SetKind,
    pods: Objects<PodFacts, 2>,
    sets: Objects<Arc<ReplicaSetView>, 2>,
    memory: BTreeMap<Uid, Memory>,
}

/// The pods of a set, by what they are to it.
struct Claimed<'a> {
    active: Vec<(&'a Uid, &'a PodFacts)>,
    terminating: usize,
    adopt: Vec<PodRef>,
    release: Vec<PodRef>,
}

impl Replicas {
    pub(crate) fn new(kind: SetKind) -> Self {
        let pods = Objects::new([
            |pod: &PodFacts| pod.controller.as_ref().map(|uid| owner_word(&pod.namespace, uid)),
            |pod: &PodFacts| pod.controller.is_none().then(|| Arc::clone(&pod.namespace)),
        ]);
        let sets = Objects::new([
            |set: &Arc<ReplicaSetView>| Some(set.namespace().into()),
            |set: &Arc<ReplicaSetView>| {
                controller_of(&set.metadata).map(|owner| owner_word(set.namespace(), &owner.uid))
            },
        ]);
        Self { kind, pods, sets, memory: BTreeMap::new() }
    }

    /// Whom a pod matters to: its controller, or, if it has none, every set that selects it.
    fn concerned(&self, pod: &PodFacts, woken: &mut BTreeSet<Uid>) {
        match &pod.controller {
            Some(uid) => drop(woken.insert(Arc::clone(uid))),
            None => {
                let here = self.sets.under(BY_NAMESPACE, &pod.namespace);
                let selecting = here.filter(|(_, set)| takes(&set.spec.selector, |key| pod.label(key)));
                woken.extend(selecting.map(|(uid, _)| Arc::clone(uid)));
            }
        }
    }

    fn pod_seen(&mut self, pod: &PodView, now: Now, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = pod.uid().map(Uid::from) else { return };
        let facts = PodFacts::of(pod, self.pods.get(&uid), now);
        if self.pods.get(&uid) == Some(&facts) {
            return;
        }
        self.concerned(&facts, woken);
        if let Some((set, number)) = facts.controller.as_ref().and_then(|set| Some((set, number_of(set, &facts.name)?)))
            && self.sets.get(set).is_some_and(|it| *it.namespace() == *facts.namespace)
            && let Some(memory) = self.memory.get_mut(set)
        {
            memory.used.seen(number);
            memory.unseen.remove(&*facts.name);
        }
        if let Some(old) = self.pods.put(uid, facts) {
            self.concerned(&old, woken);
        }
    }

    fn pod_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        if let Some(old) = self.pods.remove(uid) {
            self.concerned(&old, woken);
        }
    }

    fn set_seen(&mut self, set: Arc<ReplicaSetView>, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = set.uid().map(Uid::from) else { return };
        if !self.memory.contains_key(&uid) {
            let own = self.pods.owned(BY_CONTROLLER, set.namespace(), &uid);
            let there = own.filter_map(|(_, pod)| number_of(&uid, &pod.name));
            let used = UsedNumbers::starting(there);
            self.memory.insert(Arc::clone(&uid), Memory { used, ..Memory::default() });
        }
        woken.insert(Arc::clone(&uid));
        self.sets.put(uid, set);
    }

    fn set_gone(&mut self, uid: &str) {
        self.sets.remove(uid);
        self.memory.remove(uid);
    }

    fn claimed(&self, uid: &Uid, set: &ReplicaSetView) -> Claimed<'_> {
        let mut claimed = Claimed { active: Vec::new(), terminating: 0, adopt: Vec::new(), release: Vec::new() };
        let orphans = self.pods.under(ORPHANS, set.namespace()).filter(|(_, pod)| pod.is_active());
        let own = self.pods.owned(BY_CONTROLLER, set.namespace(), uid);
        for (pod_uid, pod) in own.chain(orphans) {
            let matches = takes(&set.spec.selector, |key| pod.label(key));
            if !pod.is_active() {
                // Who leaves is neither released nor adopted.
                claimed.terminating += usize::from(matches && pod.leaves && !pod.terminal);
                continue;
            }
            let candidate = Candidate { controller: pod.controller.as_deref(), leaves: pod.leaves, matches };
            let named = || PodRef { name: pod.name.to_string(), uid: pod_uid.to_string() };
            match claim(uid, set.leaves(), candidate) {
                Claim::Keep => claimed.active.push((pod_uid, pod)),
                Claim::Adopt => claimed.adopt.push(named()),
                Claim::Release => claimed.release.push(named()),
                Claim::Ignore => {}
            }
        }
        claimed
    }

    /// How many pods are missing (above nothing) or too many (below), brakes considered.
    fn difference(set: &ReplicaSetView, claimed: &Claimed<'_>, now: Timestamp) -> i64 {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let (active, leaving) = (count(claimed.active.len()), count(claimed.terminating));
        let surging = count(claimed.active.iter().filter(|(_, pod)| pod.surges(now)).count());
        let wanted = i64::from(set.replicas());
        // Whoever is about to be evicted has a successor beside it, but no more than are wanted at all.
        let missing = wanted + surging.min(wanted) - active;
        let brakes = Brakes::of(set.metadata.annotations.as_ref());
        if missing > 0 && brakes.waits_for_termination {
            return (missing - leaving).max(0);
        }
        missing.max(-brakes.may_leave(leaving))
    }

    fn plan_pods(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(set) = self.sets.get(uid).filter(|set| !set.leaves()) else { return Plan::default() };
        let claimed = self.claimed(uid, set);
        let owner = self.kind.owner(set);
        if !claimed.adopt.is_empty() || !claimed.release.is_empty() {
            return Plan::act(Action::Claim { owner, adopt: claimed.adopt, release: claimed.release });
        }
        let difference = Self::difference(set, &claimed, now.timestamp);
        // When the last eviction that waits was given up, its successor is one too many.
        let lapses =
            claimed.active.iter().filter_map(|(_, pod)| pod.surges_until).filter(|until| *until > now.timestamp);
        let wake = lapses.min().map(|until| Wake { at: now.at(until), why: "an eviction may have been given up" });
        let count = usize::try_from(difference.unsigned_abs()).unwrap_or(BURST).min(BURST);
        let plan = match difference {
            0 => Plan::default(),
            1.. => {
                let (order, prefix) = (NameOrder::of(uid), pod_names::prefix(&owner.name));
                let used = self.memory.get(uid).map(|memory| memory.used.clone()).unwrap_or_default();
                let names = used.free().take(count).map(|number| format!("{prefix}{}", order.ending(number))).collect();
                Plan::act(Action::Create { owner, set: Arc::clone(set), names })
            }
            _ => {
                let pods = self.victims(uid, set, &claimed, count, now);
                Plan::act(Action::Delete { owner, pods })
            }
        };
        Plan { wake, ..plan }
    }

    fn victims(&self, uid: &Uid, set: &ReplicaSetView, claimed: &Claimed<'_>, count: usize, now: Now) -> Vec<PodRef> {
        let replicas: Vec<Replica<'_>> = claimed
            .active
            .iter()
            .map(|(uid, pod)| Replica {
                uid,
                node: pod.node.as_deref(),
                phase: pod.phase,
                ready_since: pod.ready.map(|since| since.stamp),
                deletion_cost: pod.deletion_cost,
                restarts: pod.restarts,
                created: pod.created,
            })
            .collect();
        // All sets of one Deployment count together; a set of its own counts for itself.
        let family: Vec<&Uid> = match controller_of(&set.metadata) {
            Some(owner) => self.sets.owned(SIBLINGS, set.namespace(), &owner.uid).map(|(uid, _)| uid).collect(),
            None => vec![uid],
        };
        let mut siblings: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, pod) in family.into_iter().flat_map(|uid| self.pods.owned(BY_CONTROLLER, set.namespace(), uid)) {
            if let Some(node) = pod.node.as_deref().filter(|_| pod.is_active()) {
                *siblings.entry(node).or_default() += 1;
            }
        }
        let chosen = victims(&replicas, count, siblings, now.timestamp);
        let named = chosen.into_iter().filter_map(|at| claimed.active.get(at));
        named.map(|(uid, pod)| PodRef { name: pod.name.to_string(), uid: uid.to_string() }).collect()
    }

    fn plan_status(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(set) = self.sets.get(uid) else { return Plan::default() };
        let claimed = self.claimed(uid, set);
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let template = set.spec.template.labels();
        let is_labelled = |pod: &PodFacts| template.iter().all(|(key, value)| pod.label(key) == Some(value));
        let available = |pod: &PodFacts| pod.ready.map(|since| available_at(since, set.spec.min_ready_seconds));
        let is_available = |pod: &PodFacts| available(pod).is_some_and(|at| at <= now.instant);
        let active = || claimed.active.iter().map(|(_, pod)| *pod);
        let status = SetStatus {
            replicas: count(claimed.active.len()),
            fully_labeled_replicas: count(active().filter(|pod| is_labelled(pod)).count()),
            ready_replicas: count(active().filter(|pod| pod.ready.is_some()).count()),
            available_replicas: count(active().filter(|pod| is_available(pod)).count()),
            terminating_replicas: (self.kind == SetKind::ReplicaSet).then(|| count(claimed.terminating)),
            observed_generation: self.observed_generation(uid, set),
            conditions: self.conditions(uid, set, &claimed, now.timestamp),
        };
        let next = active().filter_map(available).filter(|at| *at > now.instant).min();
        let wake = next.map(|at| Wake { at, why: "a pod has been ready for long enough" });
        if status == set.status {
            return Plan { actions: Vec::new(), wake };
        }
        let replaces = status.conditions != set.status.conditions;
        let resource_version = set.metadata.resource_version.clone().filter(|_| replaces);
        let status = to_patch(&status, replaces);
        let report = Action::Report { owner: self.kind.owner(set), resource_version, status };
        Plan { actions: vec![report], wake }
    }

    /// The generation that these numbers are about. Pods that were asked for before it and are not among them must not appear later:
    /// whoever reads that there are none believes it.
    fn observed_generation(&self, uid: &Uid, set: &ReplicaSetView) -> i64 {
        match self.memory.get(uid) {
            Some(memory) if !memory.unseen.is_empty() => set.status.observed_generation,
            _ => set.metadata.generation.unwrap_or(0),
        }
    }

    /// The conditions of others as they are, and ours for as long as something cannot be done.
    fn conditions(&self, uid: &Uid, set: &ReplicaSetView, claimed: &Claimed<'_>, now: Timestamp) -> Vec<Value> {
        let ours = |condition: &&Value| condition["type"] == REPLICA_FAILURE;
        let old = set.status.conditions.iter().find(ours);
        let mut conditions: Vec<Value> = set.status.conditions.iter().filter(|it| !ours(it)).cloned().collect();
        let difference = Self::difference(set, claimed, now);
        let failure = self.memory.get(uid).and_then(|memory| memory.failure.as_ref());
        match (failure, old) {
            // Nothing is in the way, or nothing is to be done any more.
            _ if difference == 0 || set.leaves() => {}
            (None, None) => {}
            (None, Some(old)) => conditions.push(old.clone()),
            (Some((reason, message)), old) => {
                let since = old.map_or_else(|| Value::from(stamp(now)), |old| old["lastTransitionTime"].clone());
                conditions.push(json!({ "type": REPLICA_FAILURE, "status": "True", "lastTransitionTime": since,
                    "reason": reason, "message": message }));
            }
        }
        conditions
    }
}

/// A moment as conditions have it.
pub(crate) fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The number of a pod's name among those of a set.
fn number_of(set: &str, name: &str) -> Option<u32> {
    NameOrder::of(set).number(name.rsplit_once('-')?.1)
}

/// Numbers that are nothing are left out, as upstream does; conditions are named only if they change.
fn to_patch(status: &SetStatus, with_conditions: bool) -> Value {
    let number = |number: i32| if number == 0 { Value::Null } else { number.into() };
    let mut patch = json!({
        "replicas": status.replicas,
        "fullyLabeledReplicas": number(status.fully_labeled_replicas),
        "readyReplicas": number(status.ready_replicas),
        "availableReplicas": number(status.available_replicas),
        "terminatingReplicas": status.terminating_replicas,
        "observedGeneration": status.observed_generation,
    });
    if with_conditions {
        let conditions = &status.conditions;
        patch["conditions"] = if conditions.is_empty() { Value::Null } else { Value::from(conditions.clone()) };
    }
    patch
}

impl Controller for Replicas {
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
                // Who was created and is in no list is gone.
                for (uid, memory) in &mut self.memory {
                    if !std::mem::take(&mut memory.unseen).is_empty() {
                        woken.insert(Arc::clone(uid));
                    }
                }
            }
            Input::Pods(WatchUpdate::Changed(pod)) => self.pod_seen(&pod, now, &mut woken),
            Input::Pods(WatchUpdate::Removed(pod)) => self.pod_gone(&pod.uid().unwrap_or_default(), &mut woken),
            Input::Sets(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|set| set.uid().map(Uid::from)).collect();
                self.sets.missing_from(&here).iter().for_each(|uid| self.set_gone(uid));
                all.into_iter().for_each(|set| self.set_seen(set, &mut woken));
            }
            Input::Sets(WatchUpdate::Changed(set)) => self.set_seen(set, &mut woken),
            Input::Sets(WatchUpdate::Removed(set)) => self.set_gone(&set.uid().unwrap_or_default()),
        }
        woken.into_iter().flat_map(|uid| [Key::Pods(Arc::clone(&uid)), Key::Status(uid)]).collect()
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Pods(uid) => self.plan_pods(uid, now),
            Key::Status(uid) => self.plan_status(uid, now),
        }
    }

    fn begun(&mut self, _: Now, key: &Key, actions: &[Action]) {
        let Key::Pods(uid) = key else { return };
        let Some(memory) = self.memory.get_mut(uid) else { return };
        for action in actions {
            if let Action::Create { names, .. } = action {
                memory.unseen.extend(names.iter().cloned());
            }
        }
    }

    fn ended(&mut self, _: Now, key: &Key, action: Action, outcome: Outcome<Answer>) -> Vec<Key> {
        let Key::Pods(uid) = key else { return Vec::new() };
        let Some(memory) = self.memory.get_mut(uid) else { return Vec::new() };
        let (reason, asked_for) = match action {
            Action::Create { names, .. } => ("FailedCreate", BTreeSet::from_iter(names)),
            Action::Delete { .. } => ("FailedDelete", BTreeSet::new()),
            Action::Claim { .. } | Action::Report { .. } => return vec![key.clone()],
        };
        let before = memory.failure.take();
        let (mut created, mut taken) = (Vec::new(), Vec::new());
        match outcome {
            Outcome::Failed(why) => memory.failure = Some((reason, why)),
            Outcome::NotTried => memory.failure.clone_from(&before),
            Outcome::Done(Answer::Created(names, taken_names)) => (created, taken) = (names, taken_names),
            Outcome::Done(Answer::Done) => {}
        }
        if flaws::has(Flaw::ForgetsCreated) {
            taken.clone_from(&created);
        }
        taken.iter().filter_map(|name| number_of(uid, name)).for_each(|number| memory.used.seen(number));
        let waited = !memory.unseen.is_empty();
        let created: BTreeSet<String> = created.into_iter().collect();
        memory.unseen.retain(|name| created.contains(name) || !asked_for.contains(name));
        let mut woken = Vec::new();
        if memory.failure != before || !taken.is_empty() || (waited && memory.unseen.is_empty()) {
            woken.push(Key::Status(Arc::clone(uid)));
        }
        if !taken.is_empty() {
            woken.push(key.clone());
        }
        woken
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
