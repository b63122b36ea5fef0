//! Which pod goes where: pure, told of pods and nodes one by one.
//!
//! A pod is looked at when it comes, and again when something has changed that may have been in its way: a node, or a
//! pod that left one. So what a new pod costs depends on the number of nodes, and not on the number of pods.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use super::affinity::{preference, required};
use super::fit::{obstacles, reluctance};
use super::resources::Amounts;
use super::world::{Place, Resident, Uid, World};
use crate::pod::PodView;

/// One decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// The pod with this UID goes to this node.
    On { pod: Uid, node: Arc<str> },
    /// It fits nowhere, and why.
    Nowhere { pod: Uid, why: String },
}

/// The most important first; among equals, who came first. Times are whole seconds, so names decide the rest.
type Rank = (Reverse<i32>, Option<Timestamp>, Uid);

/// Everything known, and who deserves a look.
#[derive(Default)]
pub(super) struct Planner {
    world: World,
    /// Who waits for a node.
    waiting: BTreeMap<Uid, PodView>,
    /// Who of them must be near to others.
    sociable: BTreeSet<Uid>,
    /// Who of them deserves a look.
    look: BTreeSet<Rank>,
    /// Who of them is to be looked at again in a while.
    put_off: BTreeSet<Rank>,
    /// Who is counted as being on a node without anybody having said so yet.
    assumed: BTreeSet<Uid>,
}

impl Planner {
    /// A pod that waits for a node.
    pub(super) fn waiting(&self, uid: &str) -> Option<&PodView> {
        self.waiting.get(uid)
    }

    /// Decides for the most important of those who deserve a look. Of the nodes that it fits on it gets the one that suits
    /// it best; it waits until [`Planner::assume`] is told that it goes there.
    pub(super) fn next(&mut self) -> Option<Placement> {
        let (.., uid) = self.look.pop_first()?;
        let pod = self.waiting.get(&uid)?;
        let asked = Amounts::of_pod(pod);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting: Vec<&Place> = Vec::new();
        for place in self.world.places() {
            let obstacles = obstacles(pod, &asked, place, &self.world);
            if obstacles.is_empty() {
                fitting.push(place);
            }
            for obstacle in obstacles {
                *reasons.entry(obstacle).or_default() += 1;
            }
        }
        Some(match best(pod, &asked, fitting) {
            Some(node) => Placement::On { pod: uid, node },
            None => Placement::Nowhere { pod: uid, why: explain(&reasons, self.world.places().count()) },
        })
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

    /// The pod is to be looked at again after [`Planner::look_again`].
    pub(super) fn put_off(&mut self, uid: &Uid) {
        if let Some(pod) = self.waiting.get(uid) {
            self.put_off.insert(rank(uid, pod));
        }
    }

    /// Those who were put off deserve a look now.
    pub(super) fn look_again(&mut self) {
        self.look.append(&mut self.put_off);
    }

    /// A pod came, or has changed.
    pub(super) fn pod_seen(&mut self, pod: PodView) {
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::from) else { return };
        self.assumed.remove(&uid);
        if let Some(node) = pod.node().filter(|_| !pod.is_over()) {
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
            self.look.insert(rank(&uid, &pod));
            self.wait(uid, pod);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        self.assumed.remove(uid);
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
    pub(super) fn all_nodes(&mut self, nodes: &[Node]) {
        if self.world.all_nodes(nodes) {
            self.look_at_all();
        }
    }

    /// Who is there takes room, which helps nobody but those who want to be near it.
    fn arrive(&mut self, uid: &Uid, resident: Resident) {
        self.world.put(uid, resident);
        let sociable = self.sociable.iter().filter_map(|uid| self.waiting.get(uid).map(|pod| rank(uid, pod)));
        self.look.extend(sociable);
    }

    fn look_at_all(&mut self) {
        self.look.extend(self.waiting.iter().map(|(uid, pod)| rank(uid, pod)));
    }

    fn wait(&mut self, uid: Uid, pod: PodView) {
        if !required(&pod, true).is_empty() {
            self.sociable.insert(Arc::clone(&uid));
        }
        self.waiting.insert(uid, pod);
    }

    fn stop_waiting(&mut self, uid: &str) -> Option<PodView> {
        let pod = self.waiting.remove(uid)?;
        let rank = rank(&uid.into(), &pod);
        self.sociable.remove(uid);
        self.look.remove(&rank);
        self.put_off.remove(&rank);
        Some(pod)
    }
}

fn rank(uid: &Uid, pod: &PodView) -> Rank {
    (Reverse(pod.spec.priority.unwrap_or(0)), pod.creation_timestamp().map(|time| time.0), Arc::clone(uid))
}

/// The node that suits the pod best: what it prefers, then who asks it to stay away, then where most is left, then
/// where the fewest are.
fn best(pod: &PodView, asked: &Amounts, fitting: Vec<&Place>) -> Option<Arc<str>> {
    let suits = |place: &&Place| {
        let node = &place.node;
        (-preference(pod, node), reluctance(pod, node), -place.left_with(asked), place.crowd, Arc::clone(&node.name))
    };
    fitting.into_iter().min_by_key(suits).map(|place| Arc::clone(&place.node.name))
}

fn waits(pod: &PodView) -> bool {
    let ours = pod.spec.scheduler_name.as_deref().unwrap_or(super::NAME) == super::NAME;
    pod.node().is_none() && !pod.is_leaving() && ours && pod.spec.scheduling_gates.is_empty() && !pod.is_over()
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

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
