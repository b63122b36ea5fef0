//! The scheduler in its frame: what is told to the planner, and what comes of its decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Rank};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;

use super::plan::{Placement, Planner, Victim};
use super::volumes::VolumeChoice;
use super::world::Uid;
use crate::pod::PodView;
use crate::volume_objects::VolumeInput;

/// What of pods, nodes and budgets is told.
#[derive(Debug)]
pub(super) enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Nodes(WatchUpdate<Arc<Node>>),
    Namespaces(WatchUpdate<Arc<Namespace>>),
    Budgets(WatchUpdate<Arc<PodDisruptionBudget>>),
    Volumes(VolumeInput),
}

/// What is to be done about a pod that waits.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// It goes to this node.
    Bind { pod: Box<PodView>, node: Arc<str> },
    /// A volume is chosen for it, on this node.
    ChooseVolume { node: Arc<str>, choice: VolumeChoice },
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
    fn pods(&mut self, sight: WatchUpdate<Arc<PodView>>) {
        match sight {
            WatchUpdate::Listed(pods) => {
                self.planner.all_pods(pods.into_iter().map(Arc::unwrap_or_clone).collect());
                self.told.retain(|uid, _| self.planner.waiting(uid).is_some());
            }
            WatchUpdate::Changed(pod) => self.planner.pod_seen(Arc::unwrap_or_clone(pod)),
            WatchUpdate::Removed(pod) => {
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
            Input::Nodes(WatchUpdate::Listed(nodes)) => planner.all_nodes(&nodes),
            Input::Nodes(WatchUpdate::Changed(node)) => planner.node_seen(&node),
            Input::Nodes(WatchUpdate::Removed(node)) => planner.node_gone(&node.name_any()),
            Input::Namespaces(WatchUpdate::Listed(all)) => planner.all_namespaces(&all),
            Input::Namespaces(WatchUpdate::Changed(it)) => planner.namespace_seen(&it),
            Input::Namespaces(WatchUpdate::Removed(it)) => planner.namespace_gone(&it.name_any()),
            Input::Volumes(input) => planner.volumes_seen(input),
            Input::Budgets(WatchUpdate::Listed(budgets)) => planner.all_budgets(&budgets),
            Input::Budgets(WatchUpdate::Changed(budget)) => planner.budget_seen(&budget),
            Input::Budgets(WatchUpdate::Removed(budget)) => planner.budget_gone(&budget.uid().unwrap_or_default()),
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
            Some(Placement::Choose { node, choices, .. }) => {
                let choose = |choice| Action::ChooseVolume { node: Arc::clone(&node), choice };
                choices.into_iter().map(choose).collect()
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
                // Its room is kept while its volumes are bound.
                Action::ChooseVolume { node, .. } => self.planner.nominate(uid, Arc::clone(node)),
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
            (Action::Displace { victim, .. }, Outcome::Failed(_) | Outcome::NotTried) => {
                self.planner.displaced(&victim.uid, false);
            }
            (
                Action::Explain { .. } | Action::Displace { .. } | Action::Unnominate(_) | Action::ChooseVolume { .. },
                _,
            ) => {}
        }
        self.planner.take_woken()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::woken::{Dice, Watched};

    fn pod(uid: &str, priority: usize, cpus: usize, node: Option<&str>) -> Arc<PodView> {
        let container = json!({ "name": "a", "resources": { "requests": { "cpu": cpus.to_string() } } });
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": uid, "namespace": "ns", "uid": uid, "labels": { "app": "web" } },
                "spec": { "containers": [container], "priority": priority, "nodeName": node } }))
            .unwrap(),
        )
    }

    /// The same, to be spread over nodes.
    fn spread(mut pod: Arc<PodView>) -> Arc<PodView> {
        let constraint = json!([{ "maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": "web" } } }]);
        Arc::make_mut(&mut pod).spec.topology_spread_constraints = serde_json::from_value(constraint).unwrap();
        pod
    }

    fn node(name: &str, cpus: usize, ready: &str) -> Arc<Node> {
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "host": name } },
                "status": { "allocatable": { "cpu": cpus.to_string() },
                    "conditions": [{ "type": "Ready", "status": ready }] } }))
            .unwrap(),
        )
    }

    fn may_go(scheduler: &Scheduler, uid: &Uid, now: Now) -> bool {
        scheduler.plan(uid, now).actions.iter().any(|action| !matches!(action, Action::Explain { .. }))
    }

    /// For any order of facts: a pod that has come to fit somewhere, or could have room made, was woken.
    #[test]
    fn scheduler_wakes_every_pod_that_can_be_placed() {
        let mut placed = 0;
        for seed in 1..=300 {
            let (mut dice, Watched { controller: mut scheduler, now, .. }) =
                (Dice::new(seed), Watched::new(Scheduler::default()));
            let uids: Vec<Uid> = (0..6).map(|number| format!("p{number}").into()).collect();
            let mut pending = std::collections::BTreeSet::new();
            for _ in 0..60 {
                let uid = dice.pick(&["p0", "p1", "p2", "p3", "p4", "p5"]);
                let on = dice.pick(&[None, None, Some("n0"), Some("n1")]);
                let pod = pod(uid, dice.roll(3), 1 + dice.roll(3), on);
                let pod = if dice.flip() { spread(pod) } else { pod };
                let node = node(dice.pick(&["n0", "n1"]), dice.roll(6), dice.pick(&["True", "True", "False"]));
                let input = match dice.roll(7) {
                    0..=2 => Input::Pods(WatchUpdate::Changed(pod)),
                    3 => Input::Pods(WatchUpdate::Removed(pod)),
                    4 | 5 => Input::Nodes(WatchUpdate::Changed(node)),
                    _ => Input::Nodes(WatchUpdate::Removed(node)),
                };
                pending.extend(scheduler.observe(now, input));
                for uid in &uids {
                    if may_go(&scheduler, uid, now) {
                        assert!(pending.contains(uid), "seed {seed}: {uid} can be placed, and nobody woke it");
                        placed += 1;
                    } else {
                        pending.remove(uid);
                    }
                }
            }
        }
        assert!(placed > 1000, "the dice never asked for anything: {placed}");
    }

    /// A pod that is being bound has its room, until that fails.
    #[test]
    fn scheduler_frees_the_resources_of_a_failed_binding() {
        let Watched { controller: mut scheduler, now, .. } = Watched::new(Scheduler::default());
        scheduler.observe(now, Input::Nodes(WatchUpdate::Listed(vec![node("n0", 1, "True")])));
        scheduler.observe(now, Input::Pods(WatchUpdate::Listed(vec![pod("p0", 1, 1, None), pod("p1", 1, 1, None)])));
        let (first, second): (Uid, Uid) = ("p0".into(), "p1".into());
        let actions = scheduler.plan(&first, now).actions;
        scheduler.begun(now, &first, &actions);
        assert!(!may_go(&scheduler, &second, now));
        let [bind] = <[Action; 1]>::try_from(actions).unwrap();
        assert_eq!(scheduler.ended(now, &first, bind, Outcome::Failed(String::new())), std::slice::from_ref(&second));
        assert!(may_go(&scheduler, &first, now) && may_go(&scheduler, &second, now));
    }
}
