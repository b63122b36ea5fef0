//! Which pod goes where: pure, told of pods and nodes one by one.
//!
//! A pod is looked at when it comes, and again when something has changed that may have been in its way: a node, or a
//! pod that left one. So what a new pod costs depends on the number of nodes, and not on the number of pods.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod;
use frame::Rank;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;

use super::affinity::required;
use super::fit::obstacles;
use super::preempt::{Attempt, Budget, Choice};
use super::resources::Amounts;
use super::score::best;
use super::spread::{Spread, is_bound_to_spread};
use super::volumes::{self, VolumeChoice, VolumeState};
use super::world::{NodeState, Nominees, Resident, Uid, World};
use crate::pod::PodView;
use crate::volume_objects::{Name, VolumeInput};

/// One decision.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Placement {
    /// The pod with this UID goes to this node.
    On { pod: Uid, node: Arc<str> },
    /// It goes to this node once these choices are written, and bound.
    Choose { pod: Uid, node: Arc<str>, choices: Vec<VolumeChoice> },
    /// It fits nowhere, and why.
    Nowhere { pod: Uid, why: String },
    /// It will fit on this node when those who leave it are gone, and those victims, who are to be told to leave. `why` it
    /// has to wait until then.
    After { pod: Uid, node: Arc<str>, victims: Vec<Victim>, why: String },
}

/// A pod that has to make room for a more important one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Victim {
    pub(super) uid: Uid,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Everything known, and who deserves a look.
#[derive(Default)]
pub(super) struct Planner {
    world: World,
    /// Who waits for a node.
    waiting: BTreeMap<Uid, PodView>,
    /// Whom others may let in by coming: who must be near to them, or must not be where there are more of them than elsewhere.
    sociable: BTreeSet<Uid>,
    /// Who of them deserves a look because of what was told since [`Planner::take_woken`].
    woken: BTreeSet<Uid>,
    /// Who is counted as being on a node without anybody having said so yet.
    assumed: BTreeSet<Uid>,
    /// Who of them waits for room that was made for it, and where.
    nominated: BTreeMap<Uid, Arc<str>>,
    /// Who was told to leave, whether or not the watch has said so yet.
    displaced: BTreeSet<Uid>,
    /// The budgets, by UID.
    budgets: BTreeMap<Uid, Budget>,
    /// Who of those who wait has volumes of which claim.
    by_claim: BTreeMap<Name, BTreeSet<Uid>>,
}

impl Planner {
    /// The most important first; among equals, who was made first.
    pub(super) fn rank(&self, uid: &str) -> Rank {
        let Some(pod) = self.waiting.get(uid) else { return Rank::default() };
        let made = pod.creation_timestamp().map_or(i64::MIN, |time| time.0.as_second());
        (!pod::priority(pod), made)
    }

    /// A pod that waits for a node.
    pub(super) fn waiting(&self, uid: &str) -> Option<&PodView> {
        self.waiting.get(uid)
    }

    /// Whom to decide for because of what was told.
    pub(super) fn take_woken(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.woken).into_iter().collect()
    }

    /// Decides for one pod, if it waits. Of the nodes that it fits on it gets the one that suits it best; it waits until
    /// [`Planner::assume`] is told that it goes there.
    pub(super) fn decide(&self, uid: &Uid) -> Option<Placement> {
        let (uid, pod) = self.waiting.get_key_value(uid)?;
        if let Some(why) = volumes::unready(pod, &self.world.volumes) {
            let why = explain_whole(&why, self.world.places().count());
            return Some(Placement::Nowhere { pod: Arc::clone(uid), why });
        }
        let asked = Amounts::of_pod(pod);
        let nominees = self.nominees(uid, pod::priority(pod));
        let spread = Spread::of(pod, &self.world);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting: Vec<&NodeState> = Vec::new();
        for place in self.world.places() {
            let obstacles = obstacles(pod, &asked, place, &self.world, &nominees, &spread);
            if obstacles.is_empty() {
                fitting.push(place);
            }
            for obstacle in obstacles {
                *reasons.entry(obstacle).or_default() += 1;
            }
        }
        if let Some(node) = best(pod, &asked, &fitting, &self.world) {
            let place = self.world.place(&node)?;
            let pod = Arc::clone(uid);
            return match volumes::on_node(self.waiting.get(uid)?, &place.node, &self.world.volumes).ok()? {
                VolumeState::Bound => Some(Placement::On { pod, node }),
                VolumeState::Waiting => None,
                VolumeState::Choose(choices) => Some(Placement::Choose { pod, node, choices }),
            };
        }
        let why = explain(&reasons, self.world.places().count());
        Some(self.make_room(Arc::clone(uid), &asked, &nominees, &spread, why))
    }

    /// A pod fits nowhere: perhaps others have to go for it.
    fn make_room(&self, uid: Uid, asked: &Amounts, nominees: &Nominees, spread: &Spread<'_>, why: String) -> Placement {
        let (world, displaced) = (&self.world, &self.displaced);
        let leaving = |uid: &str, resident: &Resident| resident.leaving || displaced.contains(uid);
        let Some(pod) = self.waiting.get(&uid) else { return Placement::Nowhere { pod: uid, why } };
        let own = pod::priority(pod);
        let nominated = self.nominated.get(&uid);
        // Room is being made for it already.
        let waits = nominated.is_some_and(|node| {
            let here = world.residents_on(node);
            let mut here = here.iter().filter_map(|uid| Some((uid, world.resident(uid)?)));
            here.any(|(uid, resident)| resident.priority < own && leaving(uid, resident))
        });
        if waits || pod.spec.preemption_policy.as_deref() == Some("Never") {
            return Placement::Nowhere { pod: uid, why };
        }
        let budgets = self.budgets.values().cloned().collect();
        let attempt = Attempt { pod, asked, spread, nominees, budgets, leaving: &leaving };
        // Trying out who has to go needs a world to try it in, and most pods for whom there is no room matter too little.
        let Some(Choice { node, victims }) =
            attempt.is_worth_it(world).then(|| attempt.choose(world.clone())).flatten()
        else {
            return Placement::Nowhere { pod: uid, why };
        };
        let victim = |uid: Uid| {
            let resident = world.resident(&uid)?;
            Some(Victim { namespace: resident.namespace.to_string(), name: resident.name.to_string(), uid })
        };
        let victims = victims.into_iter().filter_map(victim).collect();
        Placement::After { pod: uid, node, victims, why }
    }

    /// Those who matter no less than a pod of this priority, and wait for room that was made for them.
    fn nominees(&self, uid: &Uid, priority: i32) -> Nominees {
        let mut nominees = Nominees::new();
        for (other, node) in self.nominated.iter().filter(|(other, _)| *other != uid) {
            if let Some(pod) = self.waiting.get(other).filter(|pod| pod::priority(*pod) >= priority) {
                nominees.entry(Arc::clone(node)).or_default().push(Resident::of(pod, Arc::clone(node)));
            }
        }
        nominees
    }

    /// For whom there will be no room on that node, who was to have it before, if the pod gets it.
    pub(super) fn outranked(&self, uid: &Uid, node: &Arc<str>) -> Vec<Uid> {
        let priority = |uid: &Uid| self.waiting.get(uid).map_or(0, pod::priority);
        let own = priority(uid);
        let others = self.nominated.iter().filter(|(other, theirs)| *theirs == node && priority(other) < own);
        others.map(|(other, _)| Arc::clone(other)).collect()
    }

    /// Room is being made for the pod on that node.
    pub(super) fn nominate(&mut self, uid: &Uid, node: Arc<str>) {
        self.outranked(uid, &node).iter().for_each(|other| drop(self.nominated.remove(other)));
        self.nominated.insert(Arc::clone(uid), node);
    }

    /// The pod was told to leave, or (`false`) could not be told.
    pub(super) fn displaced(&mut self, uid: &Uid, told: bool) {
        if told {
            self.displaced.insert(Arc::clone(uid));
        } else {
            self.displaced.remove(uid);
        }
    }

    /// Something of claims, volumes or classes is so.
    pub(super) fn volumes_seen(&mut self, input: VolumeInput) {
        let touched = Arc::make_mut(&mut self.world.volumes).observe(input);
        let Self { by_claim, woken, .. } = self;
        match touched.is_everybody {
            true => woken.extend(by_claim.values().flatten().cloned()),
            false => woken.extend(touched.claims.iter().filter_map(|key| by_claim.get(key)).flatten().cloned()),
        }
    }

    pub(super) fn budget_seen(&mut self, budget: &PodDisruptionBudget) {
        if let Some(uid) = budget.uid() {
            self.budgets.insert(uid.into(), Budget::of(budget));
        }
    }

    pub(super) fn budget_gone(&mut self, uid: &str) {
        self.budgets.remove(uid);
    }

    /// These budgets and no others.
    pub(super) fn all_budgets<B: Borrow<PodDisruptionBudget>>(&mut self, budgets: &[B]) {
        self.budgets.clear();
        budgets.iter().for_each(|budget| self.budget_seen(budget.borrow()));
    }

    /// The pod is being bound. The watch will say so too; until then nobody may count on its room.
    pub(super) fn assume(&mut self, uid: &Uid, node: Arc<str>) -> Option<PodView> {
        let pod = self.stop_waiting(uid)?;
        self.arrive(uid, Resident::of(&pod, node));
        self.assumed.insert(Arc::clone(uid));
        Some(pod)
    }

    /// The pod was not bound after all, and waits as before; unless the watch knows better by now.
    pub(super) fn take_back(&mut self, uid: &Uid, pod: PodView) {
        if self.assumed.remove(uid) && self.world.remove(uid) {
            self.look_at_all();
            self.wait(Arc::clone(uid), pod);
        }
    }

    /// A pod came, or has changed.
    pub(super) fn pod_seen(&mut self, pod: PodView) {
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::from) else { return };
        self.assumed.remove(&uid);
        if let Some(node) = pod.node().filter(|_| !pod::is_terminal(&pod)) {
            let resident = Resident::of(&pod, self.world.node_name(node));
            self.stop_waiting(&uid);
            match self.world.resident(&uid) {
                Some(before) if *before == resident => {}
                Some(_) => {
                    self.world.put(&uid, resident);
                    self.look_at_all();
                }
                None => self.arrive(&uid, resident),
            }
            return;
        }
        if self.world.remove(&uid) {
            self.look_at_all();
        }
        self.stop_waiting(&uid);
        if waits(&pod) {
            if let Some(node) = pod.status.nominated_node_name.as_deref().filter(|node| !node.is_empty()) {
                self.nominated.insert(Arc::clone(&uid), self.world.node_name(node));
            }
            self.woken.insert(Arc::clone(&uid));
            self.wait(uid, pod);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        self.assumed.remove(uid);
        self.displaced.remove(uid);
        if self.world.remove(uid) {
            self.look_at_all();
        }
        self.stop_waiting(uid);
    }

    /// These pods and no others.
    pub(super) fn all_pods(&mut self, pods: Vec<PodView>) {
        let here: BTreeSet<Uid> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref().map(Uid::from)).collect();
        let waited = self.waiting.keys().filter(|uid| !here.contains(*uid)).cloned();
        let gone: Vec<Uid> = waited.chain(self.world.residents_but(&here)).collect();
        gone.iter().for_each(|uid| self.pod_gone(uid));
        pods.into_iter().for_each(|pod| self.pod_seen(pod));
    }

    pub(super) fn node_seen(&mut self, node: &Node) {
        if self.world.node_seen(node) {
            self.look_at_all();
        }
    }

    pub(super) fn node_gone(&mut self, name: &str) {
        if self.world.node_gone(name) {
            self.look_at_all();
        }
    }

    /// These nodes and no others.
    pub(super) fn all_nodes<N: Borrow<Node>>(&mut self, nodes: &[N]) {
        if self.world.all_nodes(nodes) {
            self.look_at_all();
        }
    }

    pub(super) fn namespace_seen(&mut self, namespace: &Namespace) {
        if self.world.namespace_seen(namespace) {
            self.look_at_all();
        }
    }

    pub(super) fn namespace_gone(&mut self, name: &str) {
        self.world.namespace_gone(name);
    }

    /// These namespaces and no others.
    pub(super) fn all_namespaces<N: Borrow<Namespace>>(&mut self, namespaces: &[N]) {
        let here: BTreeSet<String> = namespaces.iter().map(|it| it.borrow().name_any()).collect();
        self.world.keep_namespaces(&here);
        namespaces.iter().for_each(|it| self.namespace_seen(it.borrow()));
    }

    /// Who is there takes room, which helps nobody but those who want to be near it, or to be spread with it.
    fn arrive(&mut self, uid: &Uid, resident: Resident) {
        self.world.put(uid, resident);
        self.woken.extend(self.sociable.iter().filter(|uid| self.waiting.contains_key(*uid)).cloned());
    }

    fn look_at_all(&mut self) {
        self.woken.extend(self.waiting.keys().cloned());
    }

    fn wait(&mut self, uid: Uid, pod: PodView) {
        if !required(&pod, true).is_empty() || is_bound_to_spread(&pod) {
            self.sociable.insert(Arc::clone(&uid));
        }
        for claim in volumes::claim_keys(&pod) {
            self.by_claim.entry(claim).or_default().insert(Arc::clone(&uid));
        }
        self.waiting.insert(uid, pod);
    }

    fn stop_waiting(&mut self, uid: &str) -> Option<PodView> {
        let pod = self.waiting.remove(uid)?;
        self.nominated.remove(uid);
        self.sociable.remove(uid);
        self.woken.remove(uid);
        for claim in volumes::claim_keys(&pod) {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
        Some(pod)
    }
}

fn waits(pod: &PodView) -> bool {
    let ours = pod.spec.scheduler_name.as_deref().unwrap_or(super::NAME) == super::NAME;
    pod.node().is_none()
        && !pod::is_terminating(pod)
        && ours
        && pod.spec.scheduling_gates.is_empty()
        && !pod::is_terminal(pod)
}

/// Why it fits nowhere, counted by reason, as people know it.
fn explain(reasons: &BTreeMap<String, usize>, total: usize) -> String {
    if total == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counted: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    counted.sort();
    format!("0/{total} nodes are available: {}.", counted.join(", "))
}

/// Why no node can be its own, whichever it is.
fn explain_whole(why: &str, total: usize) -> String {
    match total {
        0 => explain(&BTreeMap::new(), 0),
        _ => format!("0/{total} nodes are available: {why}."),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "spread_tests.rs"]
mod spread_tests;

#[cfg(test)]
#[path = "preempt_tests.rs"]
mod preempt_tests;
