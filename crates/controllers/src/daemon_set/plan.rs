//! What happens next to the pods of one DaemonSet: pure.
//!
//! First every node gets its one pod, or loses those that should not be there ([`Situation::manage`]); then pods of a former template
//! are replaced within the budget ([`Situation::update`]). Without a surge a node gets its next pod when the one before is gone; a pod
//! that has ended and is leaving holds up nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frame::{Now, Plan, Wake};
use tokio::time::Instant;

use super::nodes::{End, NodeFacts, PodFacts};
use super::set::{Budget, DaemonSetStatus, DaemonSetView, Eligibility, Placement};
use crate::pod_control::PodRef;

/// How many pods one pass creates or deletes at most.
const BURST: usize = 250;

/// One thing to be done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Step {
    /// Ask these to leave. People are told about those that have ended, and where.
    Delete { pods: Vec<PodRef>, ended: Vec<Ended> },
    /// A pod for each of these nodes.
    Create { nodes: Vec<Arc<str>> },
}

/// A pod that ended by itself and is replaced.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Ended {
    pub(super) pod: String,
    pub(super) node: Arc<str>,
    pub(super) end: End,
}

/// One pod of the set.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) uid: &'a Arc<str>,
    pub(super) facts: &'a PodFacts,
}

impl Member<'_> {
    fn reference(&self) -> PodRef {
        PodRef { name: self.facts.name.to_string(), uid: self.uid.to_string() }
    }
}

/// The moment that belongs to a node, if any.
type NotBefore<'a> = Box<dyn Fn(&str) -> Option<Instant> + 'a>;

/// A set, and everything that is known of its pods and nodes.
pub(super) struct Situation<'a> {
    pub(super) set: &'a DaemonSetView,
    pub(super) placement: &'a Placement,
    /// The hashes of the template that is asked for.
    pub(super) hashes: BTreeSet<&'a str>,
    pub(super) nodes: &'a BTreeMap<Arc<str>, NodeFacts>,
    /// Pods that still matter, by node, the oldest first.
    pub(super) pods: BTreeMap<Arc<str>, Vec<Member<'a>>>,
    /// Not before when a pod that failed on a node is replaced.
    pub(super) not_before: NotBefore<'a>,
    pub(super) now: Now,
}

/// The pods of a set by node: without those that have ended and leave, the oldest first, those with a node before those without.
pub(super) fn by_node<'a>(members: impl Iterator<Item = Member<'a>>) -> BTreeMap<Arc<str>, Vec<Member<'a>>> {
    let mut pods: BTreeMap<Arc<str>, Vec<Member<'a>>> = BTreeMap::new();
    for member in members.filter(|it| !(it.facts.leaves && it.facts.end.is_some())) {
        if let Some(node) = &member.facts.node {
            pods.entry(Arc::clone(node)).or_default().push(member);
        }
    }
    for pods in pods.values_mut() {
        pods.sort_by_key(|it| (!it.facts.is_bound, it.facts.created, Arc::clone(it.uid)));
    }
    pods
}

impl<'a> Situation<'a> {
    /// The nodes that are to have a pod.
    fn desired(&self) -> impl Iterator<Item = (&Arc<str>, &NodeFacts)> {
        self.nodes.iter().filter(|(name, node)| self.placement.eligibility(name, node).should_run)
    }

    fn on(&self, node: &str) -> &[Member<'a>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_updated(&self, pod: &PodFacts) -> bool {
        self.hashes.contains(pod.hash())
    }

    fn is_available(&self, pod: &PodFacts) -> bool {
        pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// What is to be done now.
    pub(super) fn plan(&self) -> Plan<Step> {
        let mut wake = self.next_available();
        let mut steps = self.manage(&mut wake);
        if steps.is_empty() && self.set.is_rolling() {
            steps = self.update();
        }
        Plan { actions: steps, wake }
    }

    /// When the next pod that is ready becomes available.
    pub(super) fn next_available(&self) -> Option<Wake> {
        let ready =
            self.pods.values().flatten().filter_map(|it| it.facts.available_at(self.set.spec.min_ready_seconds));
        let next = ready.filter(|at| *at > self.now.instant).min();
        next.map(|at| Wake { at, why: "a pod has been ready for long enough" })
    }

    /// One pod for every node that should have one.
    fn manage(&self, wake: &mut Option<Wake>) -> Vec<Step> {
        let (mut delete, mut ended, mut create): (Vec<PodRef>, Vec<Ended>, Vec<Arc<str>>) = Default::default();
        let surging = self.set.is_surging(self.desired().count());
        for (name, node) in self.nodes {
            let Eligibility { should_run, should_continue } = self.placement.eligibility(name, node);
            let here = self.on(name);
            let staying = || here.iter().filter(|it| !it.facts.leaves);
            if !should_continue {
                delete.extend(staying().map(Member::reference));
                continue;
            }
            let mut running = Vec::new();
            for it in staying() {
                let Some(end) = it.facts.end else {
                    running.push(it);
                    continue;
                };
                let not_before = (self.not_before)(name).filter(|at| end == End::Failed && *at > self.now.instant);
                if let Some(at) = not_before {
                    let again = Wake { at, why: "a pod that failed may be replaced" };
                    *wake = Some(wake.map_or(again, |wake| wake.min(again)));
                    continue;
                }
                delete.push(it.reference());
                ended.push(Ended { pod: it.facts.name.to_string(), node: Arc::clone(name), end });
            }
            // A pod that leaves is waited for, unless two are allowed; one that has failed is replaced when it is gone.
            let is_free = if surging { running.is_empty() && staying().next().is_none() } else { here.is_empty() };
            if should_run && is_free && !node.is_closing {
                create.push(Arc::clone(name));
            }
            delete.extend(self.excess(&running, surging));
        }
        // Nobody will ever bind those that wait for a node that is gone.
        let aimless = self.pods.iter().filter(|(node, _)| !self.nodes.contains_key(*node)).flat_map(|(_, pods)| pods);
        let aimless = aimless.filter(|it| !it.facts.is_bound && !it.facts.leaves);
        delete.extend(aimless.map(Member::reference));
        steps(delete, ended, create)
    }

    /// Which of several pods of one node are too many.
    fn excess(&self, running: &[&Member<'a>], surging: bool) -> Vec<PodRef> {
        if !surging {
            return running.iter().skip(1).map(|it| it.reference()).collect();
        }
        let (new, old): (Vec<&Member<'a>>, Vec<&Member<'a>>) = running.iter().partition(|it| self.is_updated(it.facts));
        let mut excess: Vec<PodRef> = new.iter().skip(1).chain(old.iter().skip(1)).map(|it| it.reference()).collect();
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.facts.is_ready() || self.is_available(new.facts))
        {
            excess.push(old.reference());
        }
        excess
    }

    /// Pods of a former template make room for the new ones.
    fn update(&self) -> Vec<Step> {
        match self.set.budget(self.desired().count()) {
            Budget::Unavailable(most) => self.replace(most),
            Budget::Surge(most) => self.surge(most),
        }
    }

    /// The old and the new pod of a node, without those that leave.
    fn old_and_new(&self, node: &str) -> (Option<&Member<'a>>, Option<&Member<'a>>) {
        let mut staying = self.on(node).iter().filter(|it| !it.facts.leaves);
        let old = staying.clone().find(|it| !self.is_updated(it.facts));
        (old, staying.find(|it| self.is_updated(it.facts)))
    }

    /// A node that is not ready neither helps nor hurts an update.
    fn is_lost(&self, node: &NodeFacts) -> bool {
        !node.is_ready && !self.set.counts_lost_nodes()
    }

    /// The old pod goes first. Those that do not serve go free of charge; on nodes that are lost they go last.
    fn replace(&self, most: usize) -> Vec<Step> {
        let (mut unavailable, mut free, mut serving, mut lost) = (0, Vec::new(), Vec::new(), Vec::new());
        for (name, node) in self.nodes {
            let (old, new) = self.old_and_new(name);
            if self.is_lost(node) {
                lost.extend(old.map(Member::reference));
                continue;
            }
            let is_desired = self.placement.eligibility(name, node).should_run;
            match (old, new) {
                _ if !is_desired => free.extend(old.map(Member::reference)),
                (None, Some(new)) => unavailable += usize::from(!self.is_available(new.facts)),
                (Some(old), None) if old.facts.is_ready() => serving.push(old.reference()),
                (Some(old), None) => {
                    unavailable += 1;
                    free.push(old.reference());
                }
                // The next one is on its way, or one of the two is.
                (None, None) | (Some(_), Some(_)) => unavailable += 1,
            }
        }
        let room = most.saturating_sub(unavailable);
        let is_last = serving.is_empty() && free.is_empty();
        let mut delete = free;
        delete.extend(serving.into_iter().take(room));
        if is_last {
            delete.extend(lost);
        }
        steps(delete, Vec::new(), Vec::new())
    }

    /// The new pod comes first, beside the old one; [`Self::excess`] ends the old one when the new one is available.
    fn surge(&self, most: usize) -> Vec<Step> {
        let (mut surging, mut free, mut serving, mut lost) = (0, Vec::new(), Vec::new(), Vec::new());
        for (name, node) in self.desired() {
            match self.old_and_new(name) {
                (None, _) => {}
                _ if node.is_closing => {}
                (Some(_), None) if self.is_lost(node) => lost.push(Arc::clone(name)),
                (Some(old), None) if old.facts.is_ready() => serving.push(Arc::clone(name)),
                (Some(_), None) => free.push(Arc::clone(name)),
                (Some(_), Some(_)) if self.is_lost(node) => {}
                (Some(_), Some(_)) => surging += 1,
            }
        }
        let is_last = serving.is_empty() && free.is_empty();
        let mut create = free;
        create.extend(serving.into_iter().take(most.saturating_sub(surging)));
        if is_last {
            create.extend(lost);
        }
        steps(Vec::new(), Vec::new(), create)
    }

    /// What is told of it all. `generation` and `collision_count` are the set's own.
    pub(super) fn status(&self, generation: i64, collision_count: Option<i32>) -> DaemonSetStatus {
        let mut status =
            DaemonSetStatus { observed_generation: generation, collision_count, ..DaemonSetStatus::default() };
        for (name, node) in self.nodes {
            let oldest = self.on(name).first();
            if !self.placement.eligibility(name, node).should_run {
                status.number_misscheduled += i32::from(oldest.is_some());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(pod) = oldest else { continue };
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pod.facts.is_ready());
            status.number_available += i32::from(self.is_available(pod.facts));
            status.updated_number_scheduled += i32::from(self.is_updated(pod.facts));
        }
        status.number_unavailable = status.desired_number_scheduled - status.number_available;
        status
    }
}

fn steps(delete: Vec<PodRef>, ended: Vec<Ended>, create: Vec<Arc<str>>) -> Vec<Step> {
    let mut steps = Vec::new();
    if !delete.is_empty() {
        let pods: Vec<PodRef> = delete.into_iter().take(BURST).collect();
        let is_meant = |it: &Ended| pods.iter().any(|pod| pod.name == it.pod);
        let ended = ended.into_iter().filter(is_meant).collect();
        steps.push(Step::Delete { pods, ended });
    }
    if !create.is_empty() {
        steps.push(Step::Create { nodes: create.into_iter().take(BURST).collect() });
    }
    steps
}
