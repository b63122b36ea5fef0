//! What a budget allows: pure, from the budget, its pods and the time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How long an eviction that was let through is believed to be under way; then it has failed.
pub(super) const EVICTION_LIFE: SignedDuration = SignedDuration::from_secs(120);

const ALLOWED: &str = "DisruptionAllowed";

/// A pod that a budget selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selected<'a> {
    pub(super) name: &'a str,
    pub(super) ready: bool,
    pub(super) leaving: bool,
}

/// How many pods there should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// The sum of what the pods' controllers are asked for.
    Pods(i64),
    /// Nobody can tell, and why.
    Unknown(String),
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct BudgetDecision {
    pub(super) status: PodDisruptionBudgetStatus,
    /// When to look again although nothing changes: an eviction may turn out to have failed.
    pub(super) again_at: Option<Timestamp>,
    /// Pods that were let go and are still there.
    pub(super) not_deleted: Vec<String>,
}

/// Whether the budget depends on what the pods' controllers are asked for.
pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// The budget's status as it should be.
pub(super) fn plan(
    budget: &PodDisruptionBudget,
    pods: &[Selected<'_>],
    expected: &Expected,
    now: Timestamp,
) -> BudgetDecision {
    let old = budget.status.clone().unwrap_or_default();
    let generation = budget.metadata.generation;
    let (disrupted, again_at, not_deleted) = under_way(&old, pods, now);
    let healthy = pods.iter().filter(|pod| pod.ready && !pod.leaving && !disrupted.contains_key(pod.name)).count();
    let current_healthy = to_i32(i64::try_from(healthy).unwrap_or(i64::MAX));
    let (status, message) = match needs(budget, pods.len(), expected) {
        Ok((expected_pods, desired_healthy)) => {
            let left = if expected_pods > 0 { i64::from(current_healthy) - desired_healthy } else { 0 };
            let status = PodDisruptionBudgetStatus {
                current_healthy: Some(current_healthy),
                desired_healthy: Some(to_i32(desired_healthy)),
                disruptions_allowed: Some(to_i32(left.max(0))),
                expected_pods: Some(to_i32(expected_pods)),
                ..PodDisruptionBudgetStatus::default()
            };
            (status, None)
        }
        // Nothing may be evicted while it is not known what would be left.
        Err(why) => (PodDisruptionBudgetStatus { disruptions_allowed: Some(0), ..old.clone() }, Some(why)),
    };
    let (word, reason) = match (&message, status.disruptions_allowed) {
        (Some(_), _) => ("False", "SyncFailed"),
        (None, None | Some(0)) => ("False", "InsufficientPods"),
        (None, _) => ("True", "SufficientPods"),
    };
    let conditions = conditions(&old, word, reason, message.unwrap_or_default(), generation, now);
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        disrupted_pods: if disrupted.is_empty() { None } else { Some(disrupted) },
        observed_generation: generation,
        ..status
    };
    BudgetDecision { status, again_at, not_deleted }
}

/// Evictions that are still believed in, until when the first of them is, and those that have failed.
fn under_way(
    old: &PodDisruptionBudgetStatus,
    pods: &[Selected<'_>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Timestamp>, Vec<String>) {
    let (mut kept, mut again_at, mut failed) = (BTreeMap::new(), None, Vec::new());
    for (name, since) in old.disrupted_pods.iter().flatten() {
        // One that is leaving, or gone, needs no memory.
        if !pods.iter().any(|pod| pod.name == name && !pod.leaving) {
            continue;
        }
        let until = since.0.saturating_add(EVICTION_LIFE).unwrap_or(Timestamp::MAX);
        if until <= now {
            failed.push(name.clone());
            continue;
        }
        kept.insert(name.clone(), since.clone());
        again_at = Some(again_at.map_or(until, |other: Timestamp| other.min(until)));
    }
    (kept, again_at, failed)
}

/// How many pods there should be, and how many of them healthy.
fn needs(budget: &PodDisruptionBudget, pods: usize, expected: &Expected) -> Result<(i64, i64), String> {
    let scale = || match expected {
        Expected::Pods(count) => Ok(*count),
        Expected::Unknown(why) => Err(why.clone()),
    };
    let Some(spec) = &budget.spec else { return Ok((0, 0)) };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let count = scale()?;
            Ok((count, (count - of(most, count)?).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => Ok((i64::try_from(pods).unwrap_or(i64::MAX), i64::from(*least))),
        (None, Some(share @ IntOrString::String(_))) => {
            let count = scale()?;
            Ok((count, of(share, count)?))
        }
        (None, None) => Ok((0, 0)),
    }
}

/// A number, or a share of `count`, rounded up.
fn of(value: &IntOrString, count: i64) -> Result<i64, String> {
    match value {
        IntOrString::Int(number) => Ok(i64::from(*number)),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok());
            let percent = percent.ok_or_else(|| format!("invalid value for IntOrString: {text:?}"))?;
            Ok((percent * count + 99).div_euclid(100))
        }
    }
}

fn conditions(
    old: &PodDisruptionBudgetStatus,
    status: &str,
    reason: &str,
    message: String,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = old.conditions.clone().unwrap_or_default();
    let before = all.iter().find(|condition| condition.type_ == ALLOWED && condition.status == status);
    let since = before.map_or_else(|| Time(truncated(now)), |condition| condition.last_transition_time.clone());
    let next = Condition {
        type_: ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since,
        observed_generation: generation,
    };
    match all.iter_mut().find(|condition| condition.type_ == ALLOWED) {
        Some(condition) => *condition = next,
        None => all.push(next),
    }
    all
}

fn truncated(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn to_i32(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(if count < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
