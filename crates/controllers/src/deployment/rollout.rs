//! What a rollout does next: pure arithmetic over the sizes of sets.
//!
//! One step at a time, as upstream: room above is used first, then old pods are taken away as far as enough are available. Terminating
//! pods count nowhere, unless a brake says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::family::{DESIRED_REPLICAS, Family, MAX_REPLICAS, OwnedSet};
use crate::flaws::{self, Flaw};

/// What is to happen next.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Step {
    /// The new set is to be created, with so many pods.
    pub(crate) create: Option<i32>,
    /// Sets that get another size, or are told anew for which size of the Deployment they have theirs.
    pub(crate) sizes: BTreeMap<Arc<str>, i32>,
    /// Former revisions may be forgotten.
    pub(crate) trims: bool,
}

impl Step {
    fn create(replicas: i32) -> Self {
        Self { create: Some(replicas), ..Self::default() }
    }

    fn size(set: OwnedSet<'_>, replicas: i32) -> Self {
        Self { sizes: BTreeMap::from([(Arc::clone(set.uid), replicas)]), ..Self::default() }
    }
}

/// The next step, given how many pods of old sets have not ended.
pub(crate) fn next_step(family: &Family<'_>, old_pods: usize) -> Step {
    if family.deployment.spec.paused {
        return Step { trims: true, ..scale(family, old_pods) };
    }
    if is_scaling_event(family) {
        let step = scale(family, old_pods);
        if step != Step::default() {
            return step;
        }
    }
    let step = if family.deployment.is_recreate() { recreate(family, old_pods) } else { roll(family) };
    Step { trims: step == Step::default() && family.is_complete(), ..step }
}

/// A set with pods has them for another size of the Deployment than it has.
fn is_scaling_event(family: &Family<'_>) -> bool {
    let replicas = i64::from(family.deployment.replicas());
    let differs = |set: OwnedSet<'_>| set.number(DESIRED_REPLICAS).is_some_and(|desired| desired != replicas);
    family.all().any(|set| set.is_active() && differs(set))
}

/// How many pods may be added. Nobody knows before every set has heard of its present size.
fn room(family: &Family<'_>) -> i64 {
    let brakes = family.deployment.brakes();
    if flaws::has(Flaw::CountsWishes) {
        let most = i64::from(family.deployment.replicas()) + i64::from(family.deployment.fenceposts().surge);
        return (most - family.sum(|set| set.spec())).max(0);
    }
    if family.all().any(|set| !set.is_observed()) || brakes.may_leave(family.leaving()) == 0 {
        return 0;
    }
    let ending = if brakes.waits_for_termination { family.sum(|set| set.terminating()) } else { 0 };
    let most = i64::from(family.deployment.replicas()) + i64::from(family.deployment.fenceposts().surge);
    (most - family.sum(|set| set.pods_max()) - ending).max(0)
}

fn roll(family: &Family<'_>) -> Step {
    let replicas = family.deployment.replicas();
    let Some(new) = family.new else {
        let first = room(family).min(i64::from(replicas));
        return Step::create(i32::try_from(first).unwrap_or(replicas));
    };
    if new.spec() > replicas {
        return Step::size(new, replicas);
    }
    let more = room(family).min(i64::from(replicas - new.spec()));
    if more > 0 {
        return Step::size(new, new.spec() + i32::try_from(more).unwrap_or(0));
    }
    take_from_old(family, new)
}

/// Takes away old pods: first those that are not available, then others while enough are.
fn take_from_old(family: &Family<'_>, new: OwnedSet<'_>) -> Step {
    let deployment = family.deployment;
    let least = i64::from(deployment.replicas()) - i64::from(deployment.fenceposts().unavailable);
    let new_available = i64::from(new.certainly_available(new.spec()));
    let old_size: i64 = family.old.iter().map(|set| i64::from(set.spec())).sum();
    let most = old_size + new_available - least;
    if old_size == 0 || most <= 0 {
        return Step::default();
    }
    let mut may_leave = deployment.brakes().may_leave(family.leaving());
    let mut sizes: Vec<i32> = family.old.iter().map(|set| set.spec()).collect();
    let take = |size: &mut i32, wanted: i64, may_leave: &mut i64| {
        let taken = wanted.min(i64::from(*size)).min(*may_leave).max(0);
        *size -= i32::try_from(taken).unwrap_or(0);
        *may_leave -= taken;
        taken
    };
    let mut unhealthy = most;
    for (set, size) in family.old.iter().zip(&mut sizes) {
        let broken = i64::from(*size - set.available(*size));
        unhealthy -= take(size, broken.min(unhealthy), &mut may_leave);
    }
    let old_available = |sizes: &[i32]| -> i64 {
        let each = family.old.iter().zip(sizes).map(|(set, size)| i64::from(set.certainly_available(*size)));
        each.sum()
    };
    let mut spare = new_available + old_available(&sizes) - least;
    for size in &mut sizes {
        spare -= take(size, spare, &mut may_leave);
    }
    let changed = family.old.iter().zip(sizes).filter(|(set, size)| set.spec() != *size);
    Step { sizes: changed.map(|(set, size)| (Arc::clone(set.uid), size)).collect(), ..Step::default() }
}

/// Everything old goes, and only when it has ended the new begins.
fn recreate(family: &Family<'_>, old_pods: usize) -> Step {
    let active: BTreeMap<Arc<str>, i32> =
        family.old.iter().filter(|set| set.is_active()).map(|set| (Arc::clone(set.uid), 0)).collect();
    if !active.is_empty() {
        return Step { sizes: active, ..Step::default() };
    }
    if waits_for_old_pods(family, old_pods) {
        return Step::default();
    }
    let replicas = family.deployment.replicas();
    match family.new {
        None => Step::create(replicas),
        Some(new) if new.spec() != replicas => Step::size(new, replicas),
        Some(_) => Step::default(),
    }
}

/// Whether a Recreate rollout has to wait: pods of old sets have not ended, or a set has not said yet that it has none.
pub(crate) fn waits_for_old_pods(family: &Family<'_>, old_pods: usize) -> bool {
    let may_have_pods = |set: &OwnedSet<'_>| set.pods_max() > 0 || set.terminating() > 0 || !set.is_observed();
    old_pods > 0 || family.old.iter().any(may_have_pods)
}

/// The Deployment has another size, or is paused: every set gets its part of it.
fn scale(family: &Family<'_>, old_pods: usize) -> Step {
    let replicas = family.deployment.replicas();
    let active: Vec<OwnedSet<'_>> = family.all().filter(OwnedSet::is_active).collect();
    let only = match active[..] {
        [] => family.new.or_else(|| family.old.last().copied()),
        [only] => Some(only),
        [..] => None,
    };
    if let Some(only) = only {
        let is_new = family.new.is_some_and(|new| new.uid == only.uid);
        if family.deployment.is_recreate() && is_new && waits_for_old_pods(family, old_pods) {
            return Step::default();
        }
        let told = only.number(DESIRED_REPLICAS) == Some(i64::from(replicas));
        return if only.spec() == replicas && (told || !only.is_active()) {
            Step::default()
        } else {
            Step::size(only, replicas)
        };
    }
    if active.is_empty() {
        return Step::default();
    }
    if family.new.is_some_and(|new| is_saturated(new, replicas)) {
        let old = family.old.iter().filter(|set| set.is_active());
        return Step { sizes: old.map(|set| (Arc::clone(set.uid), 0)).collect(), ..Step::default() };
    }
    if family.deployment.is_recreate() {
        return Step::default();
    }
    Step { sizes: proportional(family, active), ..Step::default() }
}

fn is_saturated(new: OwnedSet<'_>, replicas: i32) -> bool {
    let desired = new.number(DESIRED_REPLICAS) == Some(i64::from(replicas));
    desired && new.spec() == replicas && new.view.status.available_replicas == replicas
}

/// Sizes in the proportions that the sets have now, the largest first; what rounding leaves over is the largest's.
fn proportional(family: &Family<'_>, mut active: Vec<OwnedSet<'_>>) -> BTreeMap<Arc<str>, i32> {
    let replicas = family.deployment.replicas();
    let allowed = match replicas {
        0 => 0,
        _ => i64::from(replicas) + i64::from(family.deployment.fenceposts().surge),
    };
    let to_add = allowed - active.iter().map(|set| i64::from(set.spec())).sum::<i64>();
    active.sort_by(|one, other| {
        let by_age = one.age_order().cmp(&other.age_order());
        // Of two that are alike the newer grows first, and the older shrinks first.
        other.spec().cmp(&one.spec()).then(if to_add > 0 { by_age.reverse() } else { by_age })
    });
    let mut left = to_add;
    let mut sizes: Vec<i64> = Vec::new();
    for set in &active {
        let wanted = fraction(family, *set, allowed);
        let added = if to_add > 0 { wanted.min(left) } else { wanted.max(left) };
        let added = if left == 0 { 0 } else { added };
        left -= added;
        sizes.push(i64::from(set.spec()) + added);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + left).max(0);
    }
    let size = |size: i64| i32::try_from(size.max(0)).unwrap_or(i32::MAX);
    active.iter().zip(sizes).map(|(set, to)| (Arc::clone(set.uid), size(to))).collect()
}

/// How many pods more (or fewer) a set's part of `allowed` is.
fn fraction(family: &Family<'_>, set: OwnedSet<'_>, allowed: i64) -> i64 {
    let spec = i64::from(set.spec());
    if family.deployment.replicas() == 0 {
        return -spec;
    }
    let before = set.number(MAX_REPLICAS).filter(|before| *before > 0);
    let before = before.unwrap_or_else(|| i64::from(family.deployment.status.replicas));
    if before <= 0 {
        return 0;
    }
    // Rounded to the nearest, halves up: sizes are never negative.
    let doubled = 2 * i128::from(spec) * i128::from(allowed) + i128::from(before);
    i64::try_from(doubled / (2 * i128::from(before))).unwrap_or(i64::MAX) - spec
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
