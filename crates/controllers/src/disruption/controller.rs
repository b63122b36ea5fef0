//! Which budgets are to be counted, and what of: pure, told facts and the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Wake};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use tokio::time::Instant;

use super::known::{KnownObjects, PodFacts, Uid, Workload};
use super::plan::{Expected, Selected, needs_scale, plan};
use crate::pod::PodView;

/// How long an answer about a workload that nobody follows is believed.
const ANSWER_LIFE: Duration = Duration::from_secs(10);

/// What of budgets, pods and workloads is told.
#[derive(Debug)]
pub(super) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Budgets(WatchUpdate<Arc<PodDisruptionBudget>>),
    /// Of one kind, by its plural.
    Workloads(&'static str, WatchUpdate<Arc<DynamicObject>>),
}

/// What is planned for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    /// A budget to be counted.
    Budget(Uid),
    /// A pod that is said to be disrupted.
    Pod(Uid),
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Action {
    /// Ask a workload that is not followed how many pods it is to have.
    Ask { owner: OwnerReference, namespace: Arc<str> },
    /// Write what a budget allows, if that is new, and tell people what they should know about it.
    Count {
        budget: Arc<PodDisruptionBudget>,
        status: Option<Box<PodDisruptionBudgetStatus>>,
        /// Pods that were let go and are still there.
        not_deleted: Vec<String>,
        /// Why nobody can tell how many pods there should be.
        unknown: Option<String>,
        /// That was not told yet.
        is_news: bool,
    },
    /// A pod that was to be disrupted two minutes ago and is still there is not being disrupted: it must not look so.
    Spare { uid: Uid, namespace: Arc<str>, name: String, at: Timestamp },
}

/// What can come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    /// How many pods, or why nobody can say.
    Replicas(Result<i64, String>),
}

/// What workloads that are not followed have answered for one budget, and when.
type Answers = BTreeMap<String, (Result<i64, String>, Instant)>;

/// Everything known, and what follows from it.
#[derive(Default, Debug)]
pub(super) struct Disruption {
    known: KnownObjects,
    asked: BTreeMap<Uid, Answers>,
    /// Why a budget cannot be counted, as people were told last.
    told: BTreeMap<Uid, String>,
    /// Which workloads of each kind are known, so that a list can take away the others.
    by_kind: BTreeMap<&'static str, BTreeMap<Uid, String>>,
}

impl Disruption {
    fn budgets(&mut self, sight: WatchUpdate<Arc<PodDisruptionBudget>>) {
        match sight {
            WatchUpdate::Listed(all) => {
                let old: Vec<Uid> = self.known.budgets.keys().cloned().collect();
                old.iter().for_each(|uid| self.known.budget_gone(uid));
                all.into_iter().for_each(|budget| self.known.budget_seen(budget));
                let is_there = |uid: &Uid| self.known.budgets.contains_key(uid);
                self.told.retain(|uid, _| is_there(uid));
                self.asked.retain(|uid, _| is_there(uid));
            }
            WatchUpdate::Changed(budget) => self.known.budget_seen(budget),
            WatchUpdate::Removed(budget) => {
                let uid = budget.uid().unwrap_or_default();
                self.known.budget_gone(&uid);
                self.asked.remove(&*uid);
                self.told.remove(&*uid);
            }
        }
    }

    fn workloads(&mut self, kind: &'static str, sight: WatchUpdate<Arc<DynamicObject>>) {
        let here = self.by_kind.entry(kind).or_default();
        let mut seen = |known: &mut KnownObjects, object: &DynamicObject| {
            let (uid, namespace) = (object.uid().unwrap_or_default(), object.namespace().unwrap_or_default());
            known.workload(&uid, &namespace, Some(Workload::of(object)));
            here.insert(uid.into(), namespace);
        };
        match sight {
            WatchUpdate::Changed(object) => seen(&mut self.known, &object),
            WatchUpdate::Listed(all) => {
                all.iter().for_each(|object| seen(&mut self.known, object));
                let listed: Vec<String> = all.iter().filter_map(|object| object.uid()).collect();
                here.retain(|uid, namespace| {
                    let stays = listed.iter().any(|one| **one == **uid);
                    if !stays {
                        self.known.workload(uid, namespace, None);
                    }
                    stays
                });
            }
            WatchUpdate::Removed(object) => {
                let (uid, namespace) = (object.uid().unwrap_or_default(), object.namespace().unwrap_or_default());
                here.remove(&*uid);
                self.known.workload(&uid, &namespace, None);
            }
        }
    }

    /// The sum over the controllers of `pods`, each counted once, or whom to ask first. A pod without a controller counts for
    /// nothing.
    fn expected(&self, budget: &Uid, pods: &[&PodFacts], now: Instant) -> Result<Expected, Vec<Action>> {
        let mut counted: BTreeMap<&str, i64> = BTreeMap::new();
        let mut questions: BTreeMap<&str, Action> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = &pod.controller else { continue };
            let decider = self.decider(owner);
            let uid = decider.uid.as_str();
            let answer = || self.asked.get(budget).and_then(|answers| answers.get(uid));
            let replicas = match (self.known.workloads.get(uid), answer()) {
                (Some(workload), _) => workload.replicas,
                (None, Some((Ok(replicas), at))) if *at + ANSWER_LIFE > now => *replicas,
                (None, Some((Err(why), at))) if *at + ANSWER_LIFE > now => return Ok(Expected::Unknown(why.clone())),
                (None, _) => {
                    let question = Action::Ask { owner: decider.clone(), namespace: Arc::clone(&pod.namespace) };
                    questions.insert(uid, question);
                    continue;
                }
            };
            counted.insert(uid, replicas);
        }
        if !questions.is_empty() {
            return Err(questions.into_values().collect());
        }
        Ok(Expected::Pods(counted.values().sum()))
    }

    /// A replica set that a deployment made does not decide for itself.
    fn decider<'a>(&'a self, owner: &'a OwnerReference) -> &'a OwnerReference {
        self.known.workloads.get(&*owner.uid).and_then(|workload| workload.controller.as_ref()).unwrap_or(owner)
    }

    fn count(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(budget) = self.known.budgets.get(uid) else { return Plan::default() };
        let pods = self.known.selected(budget);
        let expected = match needs_scale(&budget.object) {
            true => match self.expected(uid, &pods, now.instant) {
                Ok(expected) => expected,
                Err(questions) => return Plan { actions: questions, wake: None },
            },
            false => Expected::Pods(0),
        };
        let selected: Vec<Selected<'_>> = pods.iter().map(|pod| pod.as_selected()).collect();
        let verdict = plan(&budget.object, &selected, &expected, now.timestamp);
        let status = (budget.object.status.as_ref() != Some(&verdict.status)).then(|| Box::new(verdict.status));
        let unknown = match expected {
            Expected::Unknown(why) => Some(why),
            Expected::Pods(_) => None,
        };
        let is_news = unknown.is_some() && unknown.as_ref() != self.told.get(uid);
        let wake = verdict.again_at.map(|at| Wake { at: now.at(at), why: "an eviction has come to nothing" });
        let mut actions = Vec::new();
        if status.is_some() || is_news || !verdict.not_deleted.is_empty() {
            let (budget, not_deleted) = (Arc::clone(&budget.object), verdict.not_deleted);
            actions.push(Action::Count { budget, status, not_deleted, unknown, is_news });
        }
        Plan { actions, wake }
    }
}

impl Controller for Disruption {
    type Input = Input;
    type Key = Key;
    type Action = Action;
    type Answer = Answer;

    fn observe(&mut self, _: Now, input: Input) -> Vec<Key> {
        let mut pods: Vec<Uid> = Vec::new();
        match input {
            Input::Pods(WatchUpdate::Listed(all)) => {
                self.known.all_pods(&all);
                pods.extend(all.iter().filter_map(|pod| pod.uid().map(Uid::from)));
            }
            Input::Pods(WatchUpdate::Changed(pod)) => {
                self.known.pod_seen(&pod);
                pods.extend(pod.uid().map(Uid::from));
            }
            Input::Pods(WatchUpdate::Removed(pod)) => self.known.pod_gone(&pod.uid().unwrap_or_default()),
            Input::Budgets(sight) => self.budgets(sight),
            Input::Workloads(kind, sight) => self.workloads(kind, sight),
        }
        pods.retain(|uid| self.known.pod(uid).is_some_and(|pod| pod.spared_at().is_some()));
        let dirty = self.known.take_dirty();
        // Whoever is counted anew is asked for anew.
        dirty.iter().for_each(|uid| drop(self.asked.remove(uid)));
        dirty.into_iter().map(Key::Budget).chain(pods.into_iter().map(Key::Pod)).collect()
    }

    fn plan(&self, key: &Key, now: Now) -> Plan<Action> {
        let uid = match key {
            Key::Budget(uid) => return self.count(uid, now),
            Key::Pod(uid) => uid,
        };
        let Some((pod, spared_at)) = self.known.pod(uid).and_then(|pod| Some((pod, pod.spared_at()?))) else {
            return Plan::default();
        };
        if spared_at > now.timestamp {
            return Plan::wait(now.at(spared_at), "the pod's disruption has come to nothing");
        }
        let (namespace, name) = (Arc::clone(&pod.namespace), pod.name.clone());
        Plan::act(Action::Spare { uid: uid.clone(), namespace, name, at: now.timestamp })
    }

    fn begun(&mut self, _: Now, key: &Key, actions: &[Action]) {
        for action in actions {
            let (Key::Budget(uid), Action::Count { unknown, .. }) = (key, action) else { continue };
            match unknown {
                Some(why) => drop(self.told.insert(uid.clone(), why.clone())),
                None => drop(self.told.remove(uid)),
            }
        }
    }

    fn ended(&mut self, now: Now, key: &Key, action: Action, outcome: Outcome<Answer>) -> Vec<Key> {
        match (key, action, outcome) {
            (Key::Budget(uid), Action::Ask { owner, .. }, Outcome::Done(Answer::Replicas(answer))) => {
                self.asked.entry(uid.clone()).or_default().insert(owner.uid, (answer, now.instant));
                vec![key.clone()]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
