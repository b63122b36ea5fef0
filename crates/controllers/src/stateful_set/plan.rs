//! What happens next to the pods of one StatefulSet: pure.
//!
//! ```text
//!  ordinals asked for, upwards ──▶ ordinals no longer asked for, downwards ──▶ pods of a former template, downwards
//!  (create, replace what ended)    (delete)                                    (delete; the first step makes them anew)
//! ```
//!
//! OrderedReady does one thing at a time, and nothing while a pod that comes first is not available or is leaving. Parallel does not
//! wait for others, but keeps within `maxUnavailable` when it replaces. In both, a pod is made only when no pod has its name: one that
//! is leaving, also on a node that says nothing, is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use frame::{Now, Plan, Wake};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::claims::{ClaimFacts, ClaimingPod, Owners, owners};
use super::pods::{Phase, PodFacts};
use super::set::{StatefulSetView, Unstick};
use crate::flaws::{self, Flaw};
use crate::pod_control::{BURST, PodRef};

/// A template and the name under which it is kept.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Revision {
    pub(super) name: Arc<str>,
    pub(super) template: Arc<str>,
}

/// A pod that is to be made.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NewPod {
    pub(super) ordinal: i64,
    pub(super) revision: Revision,
    /// Claims that it needs and that are not there.
    pub(super) claims: Vec<String>,
}

/// One thing to be done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Step {
    /// Make these, their claims first.
    Create(Vec<NewPod>),
    /// A pod cannot be made yet.
    CannotCreate { pod: String, why: String },
    /// A pod that waits lacks these.
    CreateClaims { ordinal: i64, claims: Vec<String> },
    /// The claim of this name and UID gets other owners.
    OwnClaim { claim: String, uid: String, owners: Vec<OwnerReference> },
    /// Somebody else owns a claim.
    ClaimConflict { claim: String, uid: String },
    /// The pod's labels say who it is.
    Label { pod: PodRef, ordinal: i64 },
    /// Ask these to leave.
    Delete(Vec<PodRef>),
    /// Ask one to leave that blocks an update and was never ready.
    Unstick { pod: PodRef, revision: String },
    /// Everything waits for this one to be gone.
    Wait { pod: PodRef },
}

impl Step {
    /// Of what people are told once and no more.
    pub(super) fn told_once(&self) -> Option<&str> {
        match self {
            Self::Wait { pod } => Some(&pod.uid),
            Self::ClaimConflict { uid, .. } => Some(uid),
            Self::Create(_)
            | Self::CannotCreate { .. }
            | Self::CreateClaims { .. }
            | Self::OwnClaim { .. }
            | Self::Label { .. }
            | Self::Delete(_)
            | Self::Unstick { .. } => None,
        }
    }

    /// What cannot be done must not keep others from being done: the first that fails ends a pass.
    fn rank(&self) -> u8 {
        match self {
            Self::Label { .. } | Self::OwnClaim { .. } | Self::ClaimConflict { .. } | Self::Wait { .. } => 0,
            Self::Delete(_) | Self::Unstick { .. } => 1,
            Self::CreateClaims { .. } => 2,
            Self::Create(_) => 3,
            Self::CannotCreate { .. } => 4,
        }
    }
}

/// One pod of the set.
pub(super) struct Member<'a> {
    pub(super) uid: &'a Arc<str>,
    pub(super) facts: &'a PodFacts,
}

impl Member<'_> {
    fn reference(&self) -> PodRef {
        PodRef { name: self.facts.name.to_string(), uid: self.uid.to_string() }
    }
}

/// The claim of a name, if there is one.
type FindClaim<'a> = Box<dyn Fn(&str) -> Option<&'a ClaimFacts> + 'a>;

/// A set, and everything that is known of its pods and claims.
pub(super) struct Situation<'a> {
    pub(super) set: &'a StatefulSetView,
    pub(super) current: Revision,
    pub(super) update: Revision,
    /// By their ordinals.
    pub(super) pods: BTreeMap<i64, Member<'a>>,
    /// What is known of the claim of this name.
    pub(super) claim: FindClaim<'a>,
    pub(super) now: Now,
}

/// What the ordinals that are asked for come to.
enum Replicas {
    /// Nothing below waits.
    Settled,
    /// This first, and nothing after it.
    First,
}

impl Situation<'_> {
    /// What is to be done now.
    pub(super) fn plan(&self) -> Plan<Step> {
        let mut steps = Vec::new();
        if matches!(self.replicas(&mut steps), Replicas::Settled) {
            self.condemned(&mut steps);
        }
        steps.sort_by_key(Step::rank);
        let ready = self.pods.values().filter_map(|pod| pod.facts.available_at(self.set.spec.min_ready_seconds));
        let next = ready.filter(|at| *at > self.now.instant).min();
        Plan { actions: steps, wake: next.map(|at| Wake { at, why: "a pod has been ready for long enough" }) }
    }

    fn is_available(&self, pod: &PodFacts) -> bool {
        pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// It serves, and is going to.
    fn is_healthy(&self, pod: &PodFacts) -> bool {
        !pod.leaves && self.is_available(pod)
    }

    /// The ordinals that are asked for.
    fn replicas(&self, steps: &mut Vec<Step>) -> Replicas {
        let parallel = self.set.is_parallel();
        let (mut new, mut ended) = (Vec::new(), Vec::new());
        // Up to where everything is as it should be.
        let mut checked = self.set.ordinals().start;
        for ordinal in self.set.ordinals() {
            let Some(pod) = self.pods.get(&ordinal) else {
                new.extend(self.new_pod(ordinal, steps));
                if parallel && new.len() < BURST {
                    continue;
                }
                break;
            };
            if pod.facts.is_ended() && !pod.facts.leaves {
                ended.push(pod.reference());
            }
            if !parallel && let Some(stop) = self.stop(ordinal, pod) {
                steps.extend(ended.pop().map(|pod| Step::Delete(vec![pod])).or(stop));
                return Replicas::First;
            }
            self.keep(ordinal, pod, steps);
            checked = ordinal + 1;
        }
        if !ended.is_empty() {
            steps.push(Step::Delete(ended));
        }
        if !new.is_empty() {
            steps.push(Step::Create(new));
        }
        if parallel || checked == self.set.ordinals().end { Replicas::Settled } else { Replicas::First }
    }

    /// Why nothing above this pod may happen in an ordered set: nothing if it is as it should be.
    fn stop(&self, ordinal: i64, pod: &Member<'_>) -> Option<Option<Step>> {
        if flaws::has(Flaw::SkipsReadiness) {
            return None;
        }
        if pod.facts.leaves {
            return Some(Some(Step::Wait { pod: pod.reference() }));
        }
        if pod.facts.phase == Phase::Pending
            && let Some(step) = self.missing_claims(ordinal)
        {
            return Some(Some(step));
        }
        if self.is_available(pod.facts) {
            return None;
        }
        let may = match self.set.unstick() {
            Unstick::Never => false,
            Unstick::NeverReady => pod.facts.is_never_ready,
            Unstick::Always => !pod.facts.is_ready(),
        };
        let is_former = pod.facts.revision() != &*self.update.name;
        let is_blocking = may && is_former && self.set.is_rolling() && ordinal >= self.set.first_updated();
        let unstick = || Step::Unstick { pod: pod.reference(), revision: pod.facts.revision().to_owned() };
        Some(is_blocking.then(unstick))
    }

    /// What a pod that is there needs besides.
    fn keep(&self, ordinal: i64, pod: &Member<'_>, steps: &mut Vec<Step>) {
        if pod.facts.leaves || pod.facts.is_ended() {
            return;
        }
        if pod.facts.phase == Phase::Pending {
            steps.extend(self.missing_claims(ordinal));
        }
        let identity = self.set.identity(ordinal);
        if !identity.iter().all(|(label, value)| pod.facts.label(label) == Some(value)) {
            steps.push(Step::Label { pod: pod.reference(), ordinal });
        }
        self.own_claims(ordinal, pod, false, steps);
    }

    fn missing_claims(&self, ordinal: i64) -> Option<Step> {
        let claims: Vec<String> =
            self.set.claims(ordinal).map(|(_, claim)| claim).filter(|claim| (self.claim)(claim).is_none()).collect();
        (!claims.is_empty()).then_some(Step::CreateClaims { ordinal, claims })
    }

    fn own_claims(&self, ordinal: i64, pod: &Member<'_>, is_condemned: bool, steps: &mut Vec<Step>) {
        let claiming = ClaimingPod { name: &pod.facts.name, uid: pod.uid, is_condemned };
        for (_, name) in self.set.claims(ordinal) {
            let Some(claim) = (self.claim)(&name).filter(|claim| !claim.leaves) else { continue };
            if claim.is_of_former_pod(claiming.name, Some(claiming.uid)) {
                continue;
            }
            match owners(self.set, claiming, claim) {
                Owners::Right => {}
                Owners::Become(owners) => {
                    steps.push(Step::OwnClaim { claim: name, uid: claim.uid.clone(), owners });
                }
                Owners::Conflict => steps.push(Step::ClaimConflict { claim: name, uid: claim.uid.clone() }),
            }
        }
    }

    /// The pod that an ordinal lacks, unless one of its claims still goes with a former pod.
    fn new_pod(&self, ordinal: i64, steps: &mut Vec<Step>) -> Option<NewPod> {
        let name = self.set.pod_name(ordinal);
        let mut claims = Vec::new();
        for (_, claim) in self.set.claims(ordinal) {
            match (self.claim)(&claim) {
                None => claims.push(claim),
                Some(facts) if facts.leaves => {
                    steps.push(Step::CannotCreate { pod: name, why: format!("pvc {claim} is being deleted") });
                    return None;
                }
                Some(facts) if facts.is_of_former_pod(&name, None) => return None,
                Some(_) => {}
            }
        }
        let former = self.set.is_rolling() && ordinal < self.set.first_updated();
        let revision = if former { self.current.clone() } else { self.update.clone() };
        Some(NewPod { ordinal, revision, claims })
    }

    /// The ordinals that are no longer asked for, from the top; then those of a former template.
    fn condemned(&self, steps: &mut Vec<Step>) {
        let asked = self.set.ordinals();
        let condemned: Vec<_> = self.pods.iter().rev().filter(|(ordinal, _)| !asked.contains(ordinal)).collect();
        if condemned.is_empty() {
            return self.update(steps);
        }
        let before = steps.len();
        for (ordinal, pod) in &condemned {
            self.own_claims(**ordinal, pod, true, steps);
        }
        if steps.iter().skip(before).any(|step| matches!(step, Step::OwnClaim { .. })) {
            // Whoever is deleted takes its claims along: first they are its own.
            return;
        }
        if self.set.is_parallel() {
            let there = condemned.iter().filter(|(_, pod)| !pod.facts.leaves).take(BURST);
            let pods: Vec<PodRef> = there.map(|(_, pod)| pod.reference()).collect();
            if !pods.is_empty() {
                steps.push(Step::Delete(pods));
            }
            return self.update(steps);
        }
        let first_unhealthy = condemned.iter().rev().find(|(_, pod)| !self.is_healthy(pod.facts)).map(|(at, _)| **at);
        let Some((ordinal, pod)) = condemned.first() else { return };
        if pod.facts.leaves {
            steps.push(Step::Wait { pod: pod.reference() });
        } else if pod.facts.is_ended()
            || first_unhealthy.is_none_or(|first| first == **ordinal)
            || self.is_healthy(pod.facts)
        {
            steps.push(Step::Delete(vec![pod.reference()]));
        }
    }

    /// Pods of a former template make room for those of the new one.
    fn update(&self, steps: &mut Vec<Step>) {
        if !self.set.is_rolling() {
            return;
        }
        let (asked, most) = (self.set.ordinals(), self.set.max_unavailable());
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let members: Vec<(i64, &Member<'_>)> =
            self.pods.range(asked.clone()).map(|(ordinal, pod)| (*ordinal, pod)).collect();
        let missing = i64::from(self.set.replicas()) - count(members.len());
        let leaving =
            missing + count(members.iter().filter(|(_, pod)| pod.facts.leaves || pod.facts.is_ended()).count());
        let unavailable = missing + count(members.iter().filter(|(_, pod)| !self.is_healthy(pod.facts)).count());
        let first = self.set.first_updated();
        let is_former = |(ordinal, pod): &&(i64, &Member<'_>)| {
            let going = pod.facts.leaves || pod.facts.is_ended();
            *ordinal >= first && !going && pod.facts.revision() != &*self.update.name
        };
        // One that does not serve costs nobody anything; a ready one that is not available yet would.
        let (idle, serving): (Vec<_>, Vec<_>) =
            members.iter().rev().filter(is_former).partition(|(_, pod)| !pod.facts.is_ready());
        let mut room = (most - leaving).max(0);
        let mut pods = Vec::new();
        for (_, pod) in idle.iter().take(usize::try_from(room).unwrap_or(0)) {
            pods.push(pod.reference());
            room -= 1;
        }
        let room = room.min((most - unavailable).max(0));
        pods.extend(serving.iter().take(usize::try_from(room).unwrap_or(0)).map(|(_, pod)| pod.reference()));
        if !pods.is_empty() {
            steps.push(Step::Delete(pods));
        }
    }
}
