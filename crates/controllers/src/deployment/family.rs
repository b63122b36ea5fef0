//! A Deployment and its ReplicaSets: which one is new, which are old, and how many pods each counts for.
//!
//! What a set reports may be older than what it was told last. Where pods are added, a set counts for whatever it may still have; where
//! pods are taken away, only for what it will certainly keep.

use std::sync::Arc;

use jiff::Timestamp;

use super::view::DeploymentView;
use crate::flaws::{self, Flaw};
use crate::replicas::set::ReplicaSetView;

/// The annotations with which Deployments and their sets tell where they stand.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// A set of a Deployment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedSet<'a> {
    pub(crate) uid: &'a Arc<str>,
    pub(crate) view: &'a Arc<ReplicaSetView>,
}

impl<'a> OwnedSet<'a> {
    pub(crate) fn name(&self) -> &'a str {
        self.view.metadata.name.as_deref().unwrap_or_default()
    }

    /// How many pods it is told to have.
    pub(crate) fn spec(&self) -> i32 {
        self.view.replicas()
    }

    /// It is told to have pods.
    pub(crate) fn is_active(&self) -> bool {
        self.spec() > 0
    }

    /// It has heard what it was told last, and has nothing under way that it was told before.
    pub(crate) fn is_observed(&self) -> bool {
        self.view.status.observed_generation >= self.view.metadata.generation.unwrap_or(0)
    }

    /// How many pods it may have, if it has heard of its present size.
    pub(crate) fn pods_max(&self) -> i32 {
        self.spec().max(self.view.status.replicas)
    }

    /// How many pods it has yet to ask to leave.
    pub(crate) fn surplus(&self) -> i32 {
        (self.view.status.replicas - self.spec()).max(0)
    }

    pub(crate) fn terminating(&self) -> i32 {
        self.view.status.terminating_replicas.unwrap_or(0).max(0)
    }

    /// How many of `size` pods are available for all that is known.
    pub(crate) fn available(&self, size: i32) -> i32 {
        self.view.status.available_replicas.clamp(0, size.max(0))
    }

    /// How many of `size` pods will be available whichever of those that are too many it asks to leave.
    pub(crate) fn certainly_available(&self, size: i32) -> i32 {
        if flaws::has(Flaw::TakesPodsForAvailable) {
            return size.max(0);
        }
        (self.view.status.available_replicas - self.surplus()).clamp(0, size.max(0))
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.view.annotation(key)
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.annotation(key)?.parse().ok()
    }

    /// Its revision; 0 if it has none that can be read.
    pub(crate) fn revision(&self) -> i64 {
        self.number(REVISION).unwrap_or(0)
    }

    /// Who is older comes first.
    pub(crate) fn age_order(&self) -> (Option<Timestamp>, &'a str) {
        (self.view.metadata.creation_timestamp.as_ref().map(|time| time.0), self.name())
    }
}

/// A Deployment and its sets.
#[derive(Clone, Debug)]
pub(crate) struct Family<'a> {
    pub(crate) deployment: &'a DeploymentView,
    /// The oldest set that has the Deployment's template.
    pub(crate) new: Option<OwnedSet<'a>>,
    /// All others, the oldest first.
    pub(crate) old: Vec<OwnedSet<'a>>,
}

impl<'a> Family<'a> {
    /// `sets` are all that the Deployment owns, each with whether it has the Deployment's template.
    pub(crate) fn new(deployment: &'a DeploymentView, sets: impl Iterator<Item = (OwnedSet<'a>, bool)>) -> Self {
        let mut sets: Vec<(OwnedSet<'a>, bool)> = sets.collect();
        sets.sort_by_key(|(set, _)| set.age_order());
        let new = sets.iter().position(|(_, same)| *same).map(|at| sets.remove(at).0);
        Self { deployment, new, old: sets.into_iter().map(|(set, _)| set).collect() }
    }

    /// Old sets, then the new one.
    pub(crate) fn all(&self) -> impl Iterator<Item = OwnedSet<'a>> {
        self.old.iter().copied().chain(self.new)
    }

    pub(crate) fn sum(&self, count: impl Fn(OwnedSet<'a>) -> i32) -> i64 {
        self.all().map(|set| i64::from(count(set))).sum()
    }

    /// How many pods leave, or are about to be asked to.
    pub(crate) fn leaving(&self) -> i64 {
        self.sum(|set| set.terminating().saturating_add(set.surplus()))
    }

    /// Every pod that is asked for is new and available, and no old one is left that nobody has asked to leave.
    pub(crate) fn is_complete(&self) -> bool {
        let replicas = i64::from(self.deployment.replicas());
        let updated = self.new.map_or(0, |new| i64::from(new.view.status.replicas));
        updated == replicas
            && self.sum(|set| set.view.status.replicas) == replicas
            && self.sum(|set| set.view.status.available_replicas) == replicas
            && self.sum(|set| set.spec()) == replicas
    }
}
