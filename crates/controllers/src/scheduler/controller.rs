//! The scheduler in its frame: what is told to the planner, and what comes of its decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Sight;
use frame::{Controller, Now, Outcome, Plan, Rank};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;

use super::plan::{Placement, Planner, Victim};
use super::world::Uid;
use crate::pod::PodView;

/// What of pods, nodes and budgets is told.
#[derive(Debug)]
pub(super) enum Input {
    Pods(Sight<Arc<PodView>>),
    Nodes(Sight<Arc<Node>>),
    Budgets(Sight<Arc<PodDisruptionBudget>>),
}

/// What is to be done about a pod that waits.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// It goes to this node.
    Bind { pod: Box<PodView>, node: Arc<str> },
    /// Let people see that it waits, and why; and where room is made for it, if it is.
    Explain { pod: Box<PodView>, why: String, nominated: Option<Arc<str>>, is_news: bool, at: Timestamp },
    /// No room is made for this pod any more.
    Unnominate(Box<PodView>),
    /// This pod has to leave the node for it.
    Displace { victim: Victim, node: Arc<str>, at: Timestamp },
}

/// What can come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    /// It is gone, or bound by somebody else.
    NotBound,
}

/// Everything known, and what people were told.
#[derive(Default)]
pub(super) struct Scheduler {
    planner: Planner,
    /// What each pod without a place was last told.
    told: BTreeMap<Uid, String>,
}

impl Scheduler {
    fn pods(&mut self, sight: Sight<Arc<PodView>>) {
        match sight {
            Sight::Listed(pods) => {
                self.planner.all_pods(pods.into_iter().map(Arc::unwrap_or_clone).collect());
                self.told.retain(|uid, _| self.planner.waiting(uid).is_some());
            }
            Sight::Changed(pod) => self.planner.pod_seen(Arc::unwrap_or_clone(pod)),
            Sight::Removed(pod) => {
                let uid = pod.uid().unwrap_or_default();
                self.planner.pod_gone(&uid);
                self.told.remove(&*uid);
            }
        }
    }

    /// Lets people see that the pod waits, if there is anything new about that.
    fn explain(&self, uid: &Uid, why: String, nominated: Option<Arc<str>>, at: Timestamp) -> Option<Action> {
        let is_news = self.told.get(uid) != Some(&why);
        let pod = self.planner.waiting(uid).filter(|_| is_news || nominated.is_some())?;
        Some(Action::Explain { pod: Box::new(pod.clone()), why, nominated, is_news, at })
    }

    /// Has others leave the node, so that the pod can come. First everybody can see for whom the room is.
    fn make_room(&self, uid: &Uid, node: &Arc<str>, victims: Vec<Victim>, why: String, at: Timestamp) -> Vec<Action> {
        let outranked = self.planner.outranked(uid, node);
        let outranked = outranked.iter().filter_map(|other| self.planner.waiting(other));
        let mut actions: Vec<Action> = self.explain(uid, why, Some(Arc::clone(node)), at).into_iter().collect();
        actions.extend(outranked.map(|pod| Action::Unnominate(Box::new(pod.clone()))));
        actions.extend(victims.into_iter().map(|victim| Action::Displace { victim, node: Arc::clone(node), at }));
        actions
    }
}

impl Controller for Scheduler {
    type Input = Input;
    type Key = Uid;
    type Action = Action;
    type Answer = Answer;

    fn observe(&mut self, _: Now, input: Input) -> Vec<Uid> {
        let planner = &mut self.planner;
        match input {
            Input::Pods(sight) => self.pods(sight),
            Input::Nodes(Sight::Listed(nodes)) => planner.all_nodes(&nodes),
            Input::Nodes(Sight::Changed(node)) => planner.node_seen(&node),
            Input::Nodes(Sight::Removed(node)) => planner.node_gone(&node.name_any()),
            Input::Budgets(Sight::Listed(budgets)) => planner.all_budgets(&budgets),
            Input::Budgets(Sight::Changed(budget)) => planner.budget_seen(&budget),
            Input::Budgets(Sight::Removed(budget)) => planner.budget_gone(&budget.uid().unwrap_or_default()),
        }
        self.planner.take_woken()
    }

    fn plan(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let actions = match self.planner.decide(uid) {
            None => Vec::new(),
            Some(Placement::On { node, .. }) => {
                let pod = self.planner.waiting(uid).cloned().map(Box::new);
                pod.map(|pod| Action::Bind { pod, node }).into_iter().collect()
            }
            Some(Placement::Nowhere { why, .. }) => self.explain(uid, why, None, now.timestamp).into_iter().collect(),
            Some(Placement::After { node, victims, why, .. }) => {
                self.make_room(uid, &node, victims, why, now.timestamp)
            }
        };
        Plan { actions, wake: None }
    }

    fn rank(&self, uid: &Uid) -> Rank {
        self.planner.rank(uid)
    }

    fn begun(&mut self, _: Now, uid: &Uid, actions: &[Action]) {
        for action in actions {
            match action {
                // It has its room from here on.
                Action::Bind { node, .. } => drop(self.planner.assume(uid, Arc::clone(node))),
                Action::Displace { victim, .. } => self.planner.displaced(&victim.uid, true),
                Action::Explain { .. } | Action::Unnominate(_) => {}
            }
        }
    }

    fn ended(&mut self, _: Now, uid: &Uid, action: Action, outcome: Outcome<Answer>) -> Vec<Uid> {
        match (action, outcome) {
            (Action::Bind { .. }, Outcome::Done(Answer::Done)) => drop(self.told.remove(uid)),
            (Action::Bind { pod, .. }, _) => self.planner.take_back(uid, *pod),
            (Action::Explain { why, nominated, .. }, Outcome::Done(_)) => {
                self.told.insert(Arc::clone(uid), why);
                if let Some(node) = nominated {
                    self.planner.nominate(uid, node);
                }
            }
            (Action::Displace { victim, .. }, Outcome::Failed | Outcome::NotTried) => {
                self.planner.displaced(&victim.uid, false);
            }
            (Action::Explain { .. } | Action::Displace { .. } | Action::Unnominate(_), _) => {}
        }
        self.planner.take_woken()
    }
}
