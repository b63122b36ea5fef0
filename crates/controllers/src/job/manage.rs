//! How many pods of a Job run: who is to be created, who is one too many, and how long a failure is waited for. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use supervision::BackoffPolicy;
use tokio::time::Instant;

use super::evaluation::{Evaluation, Member, is_failed};
use super::indexes::CompletionIndexes;
use super::job_pod::{Ending, JobPod, Untracked};
use super::policy::FailureAction;
use super::view::JobView;
use crate::flaws::{self, Flaw};
use crate::pod_control::BURST;

/// How long a failed pod is not replaced: twice as long after each failure in a row.
const FAILURE_BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(10), Duration::from_secs(600));
/// More failures in a row than this change nothing any more.
const FAILURES_KEPT: usize = 16;

/// How pods ended that are no longer there. It is only about pace: whoever begins anew knows those that are there.
#[derive(Clone, Default, Debug)]
pub(crate) struct GonePods {
    failed: Vec<(Ending, Instant)>,
    succeeded: Option<Instant>,
}

impl GonePods {
    /// One more is gone.
    pub(crate) fn add(&mut self, pod: &JobPod) {
        let Some((ending, since)) = pod.ended else { return };
        match ending {
            Ending::Succeeded => self.succeeded = self.succeeded.max(Some(since.instant)),
            Ending::Failed | Ending::Leaving => {
                self.failed.push((ending, since.instant));
                self.failed.sort_by_key(|(_, at)| *at);
                let surplus = self.failed.len().saturating_sub(FAILURES_KEPT);
                self.failed.drain(..surplus);
            }
        }
    }
}

/// A pod to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NewPod {
    pub(crate) index: Option<u32>,
    /// How often pods of its index failed before, and how often that did not count; if that is limited.
    pub(crate) failures: Option<(u32, u32)>,
}

/// What is to be done about the number of pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Manage {
    Rest,
    /// Nothing before then.
    Wait(Instant),
    Create(Vec<NewPod>),
    /// These go, and are not counted.
    Remove(Vec<Untracked>),
}

/// What is to be done about the number of pods of a Job that goes on.
pub(crate) fn manage(job: &JobView, pods: &[Member<'_>], it: &Evaluation<'_>, gone: &GonePods, now: Instant) -> Manage {
    let tally = &it.tally;
    let active = i64::try_from(tally.active.len()).unwrap_or(i64::MAX);
    if job.is_suspended() {
        let all = tally.active.iter().take(BURST).map(|(uid, pod)| pod.untracked(uid)).collect::<Vec<_>>();
        return if all.is_empty() { Manage::Rest } else { Manage::Remove(all) };
    }
    let wanted = match job.spec.completions {
        Some(completions) => (i64::from(completions) - tally.succeeded).min(job.parallelism()).max(0),
        // Once one has succeeded, whoever runs may go on.
        None if tally.succeeded > 0 => active,
        None => job.parallelism(),
    };
    let surplus = usize::try_from(active - wanted).unwrap_or(0);
    let victims = victims(job, &tally.active, surplus);
    if !victims.is_empty() {
        return Manage::Remove(victims);
    }
    let leaving = if job.replaces_failed_only() { tally.terminating.len() } else { 0 };
    let missing = wanted - active - i64::try_from(leaving).unwrap_or(0);
    let missing = usize::try_from(missing).unwrap_or(0).min(BURST);
    if missing == 0 {
        return Manage::Rest;
    }
    let Some(indexes) = job.indexes() else {
        return match backoff_end(job, pods, gone).filter(|end| *end > now) {
            Some(end) => Manage::Wait(end),
            None => Manage::Create(vec![NewPod { index: None, failures: None }; missing]),
        };
    };
    let there = tally.active.iter().filter_map(|(_, pod)| pod.index);
    let leaving = tally.terminating.iter().filter(|_| job.replaces_failed_only()).filter_map(|(_, pod)| pod.index);
    let runs = CompletionIndexes::of(there.chain(leaving));
    let mut taken = if flaws::has(Flaw::ForgetsIndexes) { runs } else { tally.completed_indexes.with(&runs) };
    if let Some(failed) = &tally.failed_indexes {
        taken = taken.with(failed);
    }
    if job.spec.backoff_limit_per_index.is_some() {
        return create_by_index(job, it, taken.missing(indexes).take(missing), now);
    }
    match backoff_end(job, pods, gone).filter(|end| *end > now) {
        Some(end) => Manage::Wait(end),
        None => {
            let new = |index| NewPod { index: Some(index), failures: None };
            create(taken.missing(indexes).take(missing).map(new).collect())
        }
    }
}

fn create(new: Vec<NewPod>) -> Manage {
    if new.is_empty() { Manage::Rest } else { Manage::Create(new) }
}

/// Each index has a back-off of its own.
fn create_by_index(job: &JobView, it: &Evaluation<'_>, indexes: impl Iterator<Item = u32>, now: Instant) -> Manage {
    let (mut new, mut next) = (Vec::new(), None::<Instant>);
    for index in indexes {
        let Some((_, last)) = it.tally.last_failures.get(&index) else {
            new.push(NewPod { index: Some(index), failures: Some((0, 0)) });
            continue;
        };
        let (failures, ignored) = (last.index_failures, last.index_ignored_failures);
        let all = failures.saturating_add(ignored).saturating_add(1);
        let end = last.ended.map_or(now, |(_, since)| since.instant + FAILURE_BACKOFF.pause(all));
        if end > now {
            next = Some(next.map_or(end, |next| next.min(end)));
            continue;
        }
        let counts = job.spec.pod_failure_policy.as_ref().is_none_or(|it| it.action(last) != FailureAction::Ignore);
        let failures =
            if counts { (failures.saturating_add(1), ignored) } else { (failures, ignored.saturating_add(1)) };
        new.push(NewPod { index: Some(index), failures: Some(failures) });
    }
    match next {
        Some(next) if new.is_empty() => Manage::Wait(next),
        _ => create(new),
    }
}

/// Who is one too many: first pods of an index that has another, or of none, then those that have got least far.
fn victims(job: &JobView, active: &[Member<'_>], surplus: usize) -> Vec<Untracked> {
    let mut order: Vec<Member<'_>> = active.to_vec();
    order.sort_by(|(one, pod), (two, other)| pod.removal_order().cmp(&other.removal_order()).then(one.cmp(two)));
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    let (mut out, mut left) = (Vec::new(), Vec::new());
    match job.indexes() {
        None => left = order,
        Some(indexes) => {
            for (_, pod) in &order {
                pod.index_below(indexes).into_iter().for_each(|index| *places.entry(index).or_default() += 1);
            }
            for member in order {
                let others = member.1.index_below(indexes).and_then(|index| places.get_mut(&index));
                match others {
                    // The last one of its index, which has got farthest, stays.
                    Some(1) => left.push(member),
                    Some(others) => {
                        *others -= 1;
                        out.push(member);
                    }
                    None => out.push(member),
                }
            }
        }
    }
    let more = surplus.saturating_sub(out.len());
    out.extend(left.into_iter().take(more));
    out.into_iter().take(BURST).map(|(uid, pod)| pod.untracked(uid)).collect()
}

/// When the last failures, after the last success, have been waited for.
fn backoff_end(job: &JobView, pods: &[Member<'_>], gone: &GonePods) -> Option<Instant> {
    let ended = || pods.iter().filter_map(|(_, pod)| Some((*pod, pod.ended?)));
    let succeeded =
        ended().filter(|(_, (ending, _))| *ending == Ending::Succeeded).map(|(_, (_, since))| since.instant);
    let last_success = succeeded.max().max(gone.succeeded);
    let counts = |ending: Ending| match ending {
        Ending::Failed => true,
        Ending::Leaving => !job.replaces_failed_only(),
        Ending::Succeeded => false,
    };
    let there = ended().filter(|(pod, (ending, _))| counts(*ending) && (is_failed(job, pod) || !pod.tracked));
    let there = there.map(|(_, (_, since))| since.instant);
    let before = gone.failed.iter().filter(|(ending, _)| counts(*ending)).map(|(_, at)| *at);
    let failures: Vec<Instant> =
        there.chain(before).filter(|at| last_success.is_none_or(|success| *at > success)).collect();
    let last = failures.iter().max()?;
    Some(*last + FAILURE_BACKOFF.pause(u32::try_from(failures.len()).unwrap_or(u32::MAX)))
}
