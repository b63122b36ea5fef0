//! What is known of DaemonSets, their nodes, pods and revisions, and what follows from it.
//!
//! A set has two keys: one about its pods, the other about what it reports. What is remembered is pace: which names were used on a
//! node, and how long a pod that keeps failing there rests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::Value;
use supervision::BackoffPolicy;
use tokio::time::Instant;

use super::nodes::{End, NodeFacts, PodFacts};
use super::plan::{Ended, Member, Situation, Step, by_node};
use super::set::{DaemonSetStatus, DaemonSetView, Placement};
use crate::controller_history::{
    Asked, History, HistoryAction, REVISION_LABEL, RevisionFacts, RevisionView, Revisions, no_revisions, template_text,
};
use crate::controller_ref::{Candidate, Claim, Owner, claim};
use crate::objects::{Objects, owner_word};
use crate::pod::PodView;
use crate::pod_control::PodRef;
use crate::pod_names::{self, NameOrder, UsedNumbers};
use crate::selector::takes;

type Uid = Arc<str>;

/// How long a pod that failed rests before it is replaced, if the one before it on its node failed as well.
const FAILED: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(15 * 60));

/// What is told.
#[derive(Debug)]
pub(crate) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Sets(WatchUpdate<Arc<DaemonSetView>>),
    Revisions(WatchUpdate<Arc<RevisionView>>),
    Nodes(WatchUpdate<Arc<Node>>),
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
    pub(super) set: Arc<DaemonSetView>,
    pub(super) work: Work,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Take in pods that nobody has, let go those that are not selected.
    Claim { adopt: Vec<PodRef>, release: Vec<PodRef> },
    /// See to the revisions.
    History(HistoryAction),
    /// Ask these to leave; tell of those that ended by themselves.
    Delete { pods: Vec<PodRef>, ended: Vec<Ended> },
    /// A pod for each node, made of this template.
    Create { pods: Vec<NewPod>, hash: String, template: Arc<str> },
    /// Report, to the set of this version: a merge patch of its status.
    Report(Value),
}

/// A pod that is to be made.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NewPod {
    pub(super) name: String,
    pub(super) node: Arc<str>,
}

/// A set, where its pods may be, and its template as it is compared.
#[derive(Clone, Debug)]
struct SetFacts {
    view: Arc<DaemonSetView>,
    placement: Arc<Placement>,
    template: Arc<str>,
}

/// How often pods failed on a node in a row, under which generation of the set, and when the last was replaced.
#[derive(Clone, Copy, Debug)]
struct Failures {
    number: u32,
    generation: Option<i64>,
    last: Instant,
}

/// What is remembered of one set.
#[derive(Clone, Debug, Default)]
struct Memory {
    used: BTreeMap<Arc<str>, UsedNumbers>,
    failures: BTreeMap<Arc<str>, Failures>,
}

/// Indices of pods: by their controller, and by the namespace of those who have none.
const BY_CONTROLLER: usize = 0;
const ORPHANS: usize = 1;
/// The index of sets: by their namespace.
const BY_NAMESPACE: usize = 0;

/// Everything known.
#[derive(Debug)]
pub(crate) struct DaemonSets {
    pods: Objects<PodFacts, 2>,
    sets: Objects<SetFacts, 1>,
    revisions: Revisions,
    nodes: BTreeMap<Arc<str>, NodeFacts>,
    memory: BTreeMap<Uid, Memory>,
}

/// The pods of a set, by what they are to it.
#[derive(Default)]
struct Claimed<'a> {
    members: Vec<Member<'a>>,
    adopt: Vec<PodRef>,
    release: Vec<PodRef>,
}

impl DaemonSets {
    pub(crate) fn new() -> Self {
        let pods = Objects::new([
            |pod: &PodFacts| pod.controller.as_ref().map(|uid| owner_word(&pod.namespace, uid)),
            |pod: &PodFacts| pod.controller.is_none().then(|| Arc::clone(&pod.namespace)),
        ]);
        let sets = Objects::new([|set: &SetFacts| set.view.metadata.namespace.as_deref().map(Arc::from)]);
        Self { pods, sets, revisions: no_revisions(), nodes: BTreeMap::new(), memory: BTreeMap::new() }
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
        if let Some(set) = &facts.controller
            && self.sets.get(set).is_some_and(|it| *it.view.namespace() == *facts.namespace)
            && let Some(memory) = self.memory.get_mut(set)
        {
            memory.seen(set, &facts);
        }
        if let Some(old) = self.pods.put(uid, facts) {
            self.pod_concerns(&old, woken);
        }
    }

    fn pod_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        if let Some(old) = self.pods.remove(uid) {
            self.pod_concerns(&old, woken);
            if let Some(node) = old.node.filter(|node| !self.nodes.contains_key(node)) {
                self.memory.values_mut().for_each(|memory| memory.forget(&node));
            }
        }
    }

    fn set_seen(&mut self, view: Arc<DaemonSetView>, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = view.uid().map(Uid::from) else { return };
        woken.insert(Arc::clone(&uid));
        if !self.memory.contains_key(&uid) {
            let mut memory = Memory::default();
            let own = self.pods.owned(BY_CONTROLLER, view.namespace(), &uid);
            own.for_each(|(_, pod)| memory.seen(&uid, pod));
            self.memory.insert(Arc::clone(&uid), memory);
        }
        let known = self.sets.get(&uid).filter(|known| known.view.spec.template == view.spec.template);
        let facts = match known {
            Some(known) => SetFacts { view, ..known.clone() },
            None => {
                let template = template_text(&view.spec.template.value());
                SetFacts { placement: Arc::new(Placement::of(&view.spec.template)), view, template }
            }
        };
        self.sets.put(uid, facts);
    }

    fn set_gone(&mut self, uid: &str) {
        self.sets.remove(uid);
        self.memory.remove(uid);
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

    /// [WL-87] Only what matters here of a node wakes anybody.
    fn nodes_become(&mut self, nodes: BTreeMap<Arc<str>, NodeFacts>, woken: &mut BTreeSet<Uid>) {
        if self.nodes != nodes {
            self.nodes = nodes;
            for memory in self.memory.values_mut() {
                memory.used.retain(|node, _| self.nodes.contains_key(node));
                memory.failures.retain(|node, _| self.nodes.contains_key(node));
            }
            woken.extend(self.sets.iter().map(|(uid, _)| Arc::clone(uid)));
        }
    }

    fn node_seen(&mut self, node: &Node, woken: &mut BTreeSet<Uid>) {
        let (name, facts) = (Arc::from(node.name_any()), NodeFacts::of(node));
        if self.nodes.get(&name) != Some(&facts) {
            self.nodes.insert(name, facts);
            woken.extend(self.sets.iter().map(|(uid, _)| Arc::clone(uid)));
        }
    }

    fn node_gone(&mut self, node: &Node, woken: &mut BTreeSet<Uid>) {
        let name = node.name_any();
        if self.nodes.remove(name.as_str()).is_some() {
            self.memory.values_mut().for_each(|memory| memory.forget(&name));
            woken.extend(self.sets.iter().map(|(uid, _)| Arc::clone(uid)));
        }
    }

    fn claimed(&self, uid: &Uid, set: &DaemonSetView) -> Claimed<'_> {
        let mut claimed = Claimed::default();
        let own = self.pods.owned(BY_CONTROLLER, set.namespace(), uid);
        for (pod_uid, facts) in own.chain(self.pods.under(ORPHANS, set.namespace())) {
            let matches = takes(&set.spec.selector, |key| facts.label(key));
            let candidate = Candidate { controller: facts.controller.as_deref(), leaves: facts.leaves, matches };
            let named = || PodRef { name: facts.name.to_string(), uid: pod_uid.to_string() };
            match claim(uid, set.leaves(), candidate) {
                Claim::Keep => claimed.members.push(Member { uid: pod_uid, facts }),
                Claim::Adopt => claimed.adopt.push(named()),
                Claim::Release => claimed.release.push(named()),
                Claim::Ignore => {}
            }
        }
        claimed
    }

    fn history<'a>(&'a self, uid: &'a Uid, set: &'a DaemonSetView) -> History<'a> {
        let selects = |it: &RevisionFacts| takes(&set.spec.selector, |key| it.label(key));
        History::of(&self.revisions, uid, set.namespace(), set.leaves(), selects)
    }

    fn situation<'a>(
        &'a self,
        uid: &'a Uid,
        facts: &'a SetFacts,
        history: &History<'a>,
        members: Vec<Member<'a>>,
        now: Now,
    ) -> Situation<'a> {
        let set = &*facts.view;
        let (memory, generation) = (self.memory.get(uid), set.metadata.generation);
        let not_before = move |node: &str| {
            let failures = memory?.failures.get(node).filter(|it| it.generation == generation)?;
            Some(failures.last + FAILED.pause(failures.number))
        };
        Situation {
            set,
            placement: &facts.placement,
            hashes: history.of_template(&facts.template).map(hash_of).collect(),
            nodes: &self.nodes,
            pods: by_node(members.into_iter()),
            not_before: Box::new(not_before),
            now,
        }
    }

    fn plan_pods(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(facts) = self.sets.get(uid).filter(|set| !set.view.leaves()) else {
            return Plan::default();
        };
        let set = &facts.view;
        let act = |work| Action { owner: set.owner(), set: Arc::clone(set), work };
        let Claimed { members, adopt, release } = self.claimed(uid, set);
        if !adopt.is_empty() || !release.is_empty() {
            return Plan::act(act(Work::Claim { adopt, release }));
        }
        let history = self.history(uid, set);
        let asked = history.asked(set.name(), &facts.template, set.status.collision_count.unwrap_or(0)).0;
        let update = match asked {
            Asked::Is(update) => update,
            Asked::Needs(action) => return Plan::act(act(Work::History(action))),
        };
        let used: BTreeSet<&str> = members.iter().map(|pod| pod.facts.hash()).collect();
        let is_live = |it: &RevisionFacts| it.name == update.name || used.contains(hash_of(it));
        let forget = history.truncate(set.history_limit(), is_live).map(Work::History);
        let names: BTreeSet<&str> = members.iter().map(|pod| &*pod.facts.name).collect();
        let chosen = |nodes| self.name_pods(uid, set.name(), nodes, &names);
        let Plan { actions: steps, wake } = self.situation(uid, facts, &history, members.clone(), now).plan();
        let work = |step| match step {
            Step::Delete { pods, ended } => Work::Delete { pods, ended },
            Step::Create { nodes } => Work::Create {
                pods: chosen(nodes),
                hash: hash_of(update).to_owned(),
                template: Arc::clone(&facts.template),
            },
        };
        let actions = forget.into_iter().chain(steps.into_iter().map(work)).map(act).collect();
        Plan { actions, wake }
    }

    /// A name for the pod of each node, the same until it was seen: a create that is repeated makes nothing twice.
    fn name_pods(&self, uid: &Uid, set: &str, nodes: Vec<Arc<str>>, names: &BTreeSet<&str>) -> Vec<NewPod> {
        let prefix = pod_names::prefix(set);
        let mut chosen: Vec<NewPod> = Vec::new();
        for node in nodes {
            let order = name_order(uid, &node);
            let used = self.memory.get(uid).and_then(|memory| memory.used.get(&node)).cloned().unwrap_or_default();
            let mut free = used.free().map(|number| format!("{prefix}{}", order.ending(number)));
            let is_free = |name: &String| !names.contains(&**name) && chosen.iter().all(|pod| pod.name != *name);
            if let Some(name) = free.find(is_free) {
                chosen.push(NewPod { name, node });
            }
        }
        chosen
    }

    fn plan_status(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(facts) = self.sets.get(uid).filter(|set| !set.view.leaves()) else {
            return Plan::default();
        };
        let (set, old) = (&facts.view, &facts.view.status);
        let history = self.history(uid, set);
        let (asked, collisions) = history.asked(set.name(), &facts.template, old.collision_count.unwrap_or(0));
        let members = self.claimed(uid, set).members;
        let situation = self.situation(uid, facts, &history, members, now);
        let count = Some(collisions).filter(|count| *count > 0).or(old.collision_count);
        let status = match asked {
            Asked::Is(_) => situation.status(set.metadata.generation.unwrap_or(0), count),
            // Its revision is about to be kept: before that, nothing more can be said of it.
            Asked::Needs(_) => DaemonSetStatus { collision_count: count, ..old.clone() },
        };
        let wake = situation.next_available();
        if status == *old {
            return Plan { actions: Vec::new(), wake };
        }
        let work = Work::Report(status.to_patch());
        Plan { actions: vec![Action { owner: set.owner(), set: Arc::clone(set), work }], wake }
    }
}

impl Memory {
    /// A pod of the set with this UID was seen: its name is used.
    fn seen(&mut self, set: &str, pod: &PodFacts) {
        let Some(node) = &pod.node else { return };
        let number = pod.name.rsplit_once('-').and_then(|(_, ending)| name_order(set, node).number(ending));
        // One that was named otherwise has a number far away, which costs nothing.
        if let Some(number) = number {
            self.used.entry(Arc::clone(node)).or_default().seen(number);
        }
    }

    /// A node is gone, and what was remembered of it with it: names that are still there are seen with their pods.
    fn forget(&mut self, node: &str) {
        self.used.remove(node);
        self.failures.remove(node);
    }

    /// A pod that failed is replaced.
    fn failed(&mut self, node: &Arc<str>, generation: Option<i64>, now: Instant) {
        let known = self.failures.get(node).filter(|it| it.generation == generation);
        // Long ago is forgotten.
        let known = known.filter(|it| now < it.last + 2 * FAILED.most).map_or(0, |it| it.number);
        let failures = Failures { number: known.saturating_add(1), generation, last: now };
        self.failures.insert(Arc::clone(node), failures);
    }
}

/// The names of a set's pods on one node.
fn name_order(set: &str, node: &str) -> NameOrder {
    NameOrder::of(&format!("{set}/{node}"))
}

/// The hash by which pods name a revision.
fn hash_of(revision: &RevisionFacts) -> &str {
    revision.label(REVISION_LABEL).or_else(|| revision.name.rsplit_once('-').map(|(_, hash)| hash)).unwrap_or_default()
}

impl Controller for DaemonSets {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = Vec<String>;

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
                self.sets.missing_from(&here).iter().for_each(|uid| self.set_gone(uid));
                all.into_iter().for_each(|set| self.set_seen(set, &mut woken));
            }
            Input::Sets(WatchUpdate::Changed(set)) => self.set_seen(set, &mut woken),
            Input::Sets(WatchUpdate::Removed(set)) => self.set_gone(&set.uid().unwrap_or_default()),
            Input::Revisions(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|it| it.uid().map(Uid::from)).collect();
                self.revisions.missing_from(&here).iter().for_each(|uid| self.revision_gone(uid, &mut woken));
                all.iter().for_each(|it| self.revision_seen(it, &mut woken));
            }
            Input::Revisions(WatchUpdate::Changed(it)) => self.revision_seen(&it, &mut woken),
            Input::Revisions(WatchUpdate::Removed(it)) => self.revision_gone(&it.uid().unwrap_or_default(), &mut woken),
            Input::Nodes(WatchUpdate::Listed(all)) => {
                let nodes = all.iter().map(|node| (node.name_any().into(), NodeFacts::of(node))).collect();
                self.nodes_become(nodes, &mut woken);
            }
            Input::Nodes(WatchUpdate::Changed(node)) => self.node_seen(&node, &mut woken),
            Input::Nodes(WatchUpdate::Removed(node)) => self.node_gone(&node, &mut woken),
        }
        woken.into_iter().flat_map(|uid| [Key::Pods(Arc::clone(&uid)), Key::Status(uid)]).collect()
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        match key {
            Key::Pods(uid) => self.plan_pods(uid, now),
            Key::Status(uid) => self.plan_status(uid, now),
        }
    }

    fn begun(&mut self, now: Now, key: &Key, actions: &[Action]) {
        let Key::Pods(uid) = key else { return };
        let Some(memory) = self.memory.get_mut(uid) else { return };
        for action in actions {
            let Work::Delete { ended, .. } = &action.work else { continue };
            let generation = action.set.metadata.generation;
            for it in ended.iter().filter(|it| it.end == End::Failed) {
                memory.failed(&it.node, generation, now.instant);
            }
        }
    }

    fn ended(&mut self, _: Now, key: &Key, action: Action, outcome: Outcome<Vec<String>>) -> Vec<Key> {
        let (Key::Pods(uid), Work::Create { pods, .. }, Outcome::Done(taken)) = (key, action.work, outcome) else {
            return Vec::new();
        };
        if taken.is_empty() {
            return Vec::new();
        }
        // Others have these names: the next ones, then.
        let Some(memory) = self.memory.get_mut(uid) else { return Vec::new() };
        for pod in pods.iter().filter(|pod| taken.contains(&pod.name)) {
            let number = pod.name.rsplit_once('-').and_then(|(_, it)| name_order(uid, &pod.node).number(it));
            number.into_iter().for_each(|number| memory.used.entry(Arc::clone(&pod.node)).or_default().seen(number));
        }
        vec![key.clone()]
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
