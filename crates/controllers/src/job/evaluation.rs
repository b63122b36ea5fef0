//! What a Job has come to: its verdict, its numbers, and whose finalizer may go. Pure.
//!
//! ```text
//!  pod ends ─▶ its UID is written to uncountedTerminatedPods ─▶ its finalizer is removed ─▶ it is seen without: the UID leaves, a number grows
//! ```
//!
//! Each arrow is one write, and each is decided from what is stored: whoever begins anew in between does the next one. A number grows only
//! when the pod has been *seen* without its finalizer, so no view of the pods, however late, can count it again. A verdict
//! (SuccessCriteriaMet, FailureTarget) is written before anything is done about it, and is never taken back; Complete or Failed
//! follows when nothing of the Job runs any more.

use std::collections::{BTreeMap, BTreeSet};

use frame::Now;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::indexes::CompletionIndexes;
use super::job_pod::{JobPod, Phase, Uid, Untracked};
use super::policy::FailureAction;
use super::view::{JobStatus, JobView};
use crate::flaws::{self, Flaw};

/// How many UIDs are uncounted at most, and how many finalizers one pass removes.
pub(crate) const UNCOUNTED_MAX: usize = 500;

pub(crate) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
pub(crate) const FAILURE_TARGET: &str = "FailureTarget";
const SUSPENDED: &str = "Suspended";

/// A pod of the Job.
pub(crate) type Member<'a> = (&'a Uid, &'a JobPod);

/// Something to be told about the Job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JobEvent {
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Why a Job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Verdict {
    /// The condition that says so first.
    condition: &'static str,
    reason: String,
    message: String,
    /// It is written down.
    stored: bool,
}

/// The pods of a Job, by what they are to it.
pub(crate) struct Tally<'a> {
    pub(crate) active: Vec<Member<'a>>,
    pub(crate) terminating: Vec<Member<'a>>,
    ready: usize,
    /// Those in the numbers, those on their way there, and those that have just ended.
    pub(crate) succeeded: i64,
    failed: i64,
    pub(crate) completed_indexes: CompletionIndexes,
    pub(crate) failed_indexes: Option<CompletionIndexes>,
    /// The last failed pod of each index that has no successor yet: it carries the count.
    pub(crate) last_failures: BTreeMap<u32, Member<'a>>,
}

/// What follows.
pub(crate) struct Evaluation<'a> {
    pub(crate) tally: Tally<'a>,
    /// What the status is to be.
    pub(crate) status: JobStatus,
    /// To be told once that is written.
    pub(crate) events: Vec<JobEvent>,
    /// Pods whose finalizer may go once that is written.
    pub(crate) free: Vec<Untracked>,
    /// The Job ends: its pods are to leave.
    pub(crate) ends: bool,
    /// When it has been active for too long.
    pub(crate) deadline: Option<Timestamp>,
}

/// Whether a pod has failed, as this Job sees it.
pub(crate) fn is_failed(job: &JobView, pod: &JobPod) -> bool {
    match pod.phase {
        Phase::Failed => true,
        Phase::Succeeded => false,
        Phase::Pending | Phase::Unknown | Phase::Running => pod.leaves && !job.replaces_failed_only(),
    }
}

/// What follows from the failure of a pod.
fn failure(job: &JobView, pod: &JobPod) -> FailureAction {
    job.spec.pod_failure_policy.as_ref().map_or(FailureAction::Count, |policy| policy.action(pod))
}

/// The pod's index is one of the Job's, if those have indexes.
fn has_place(job: &JobView, pod: &JobPod) -> bool {
    job.indexes().is_none_or(|indexes| pod.index_below(indexes).is_some())
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn tally<'a>(job: &JobView, pods: &[Member<'a>]) -> Tally<'a> {
    let status = &job.status;
    let uncounted = &status.uncounted_terminated_pods;
    let known: BTreeSet<&str> = uncounted.succeeded.iter().chain(&uncounted.failed).map(String::as_str).collect();
    let new = |(uid, pod): &&Member<'a>| pod.tracked && !known.contains(&***uid) && has_place(job, pod);
    let new_succeeded = pods.iter().filter(new).filter(|(_, pod)| pod.phase == Phase::Succeeded).count();
    let counts = |(_, pod): &&Member<'a>| is_failed(job, pod) && failure(job, pod) != FailureAction::Ignore;
    let new_failed = pods.iter().filter(new).filter(counts).count();
    let total = |stored: i32, waiting: usize, new: usize| i64::from(stored) + i64::from(count(waiting + new));
    let active: Vec<Member<'a>> = pods.iter().filter(|(_, pod)| pod.is_active()).copied().collect();
    let mut tally = Tally {
        ready: active.iter().filter(|(_, pod)| pod.ready.is_some()).count(),
        active,
        terminating: pods.iter().filter(|(_, pod)| pod.is_terminating()).copied().collect(),
        succeeded: total(status.succeeded, uncounted.succeeded.len(), new_succeeded),
        failed: total(status.failed, uncounted.failed.len(), new_failed),
        completed_indexes: CompletionIndexes::default(),
        failed_indexes: None,
        last_failures: BTreeMap::new(),
    };
    let Some(indexes) = job.indexes() else { return tally };
    let is_counted_failed = |uid: &Uid| uncounted.failed.iter().any(|failed| **failed == **uid);
    let done = pods.iter().filter(|(_, pod)| pod.tracked && pod.phase == Phase::Succeeded);
    let done = done.filter(|(uid, _)| !is_counted_failed(uid)).filter_map(|(_, pod)| pod.index_below(indexes));
    tally.completed_indexes =
        CompletionIndexes::parse(&status.completed_indexes, indexes).with(&CompletionIndexes::of(done));
    tally.succeeded = tally.completed_indexes.total();
    if let Some(limit) = job.spec.backoff_limit_per_index {
        tally_failed_indexes(job, pods, indexes, limit, &mut tally);
    }
    tally
}

fn tally_failed_indexes<'a>(job: &JobView, pods: &[Member<'a>], indexes: u32, limit: i32, tally: &mut Tally<'a>) {
    let failed = || {
        let tracked = pods.iter().filter(|(_, pod)| pod.tracked && is_failed(job, pod));
        tracked.filter_map(move |(uid, pod)| Some((pod.index_below(indexes)?, (*uid, *pod))))
    };
    let limit = u32::try_from(limit).unwrap_or(0);
    let ends_its_index = |pod: &JobPod| match failure(job, pod) {
        FailureAction::FailIndex => true,
        FailureAction::Ignore => false,
        FailureAction::Count | FailureAction::FailJob(_) => pod.index_failures >= limit,
    };
    let new = failed().filter(|(_, (_, pod))| ends_its_index(pod)).map(|(index, _)| index);
    let stored = CompletionIndexes::parse(job.status.failed_indexes.as_deref().unwrap_or_default(), indexes);
    let over = stored.with(&CompletionIndexes::of(new));
    let active: BTreeSet<u32> = tally.active.iter().filter_map(|(_, pod)| pod.index).collect();
    for (index, member) in failed() {
        if active.contains(&index) || tally.completed_indexes.contains(index) || over.contains(index) {
            continue;
        }
        let order = |(uid, pod): Member<'a>| {
            let at = pod.ended.map(|(_, since)| since.stamp);
            (pod.index_failures.saturating_add(pod.index_ignored_failures), at, Uid::clone(uid))
        };
        let last = tally.last_failures.entry(index).or_insert(member);
        if order(member) > order(*last) {
            *last = member;
        }
    }
    tally.failed_indexes = Some(over);
}

/// How often containers of pods that run were started again, if that counts.
fn restarts_reach_the_limit(job: &JobView, pods: &[Member<'_>], limit: i32) -> bool {
    let runs = |pod: &JobPod| matches!(pod.phase, Phase::Running | Phase::Pending);
    let restarts =
        pods.iter().filter(|(_, pod)| runs(pod)).fold(0i32, |sum, (_, pod)| sum.saturating_add(pod.restarts));
    restarts >= limit.max(1) && job.spec.template.restart_policy().as_deref() == Some("OnFailure")
}

fn verdict(
    job: &JobView,
    pods: &[Member<'_>],
    tally: &Tally<'_>,
    deadline: Option<Timestamp>,
    now: Now,
) -> Option<Verdict> {
    for condition in [SUCCESS_CRITERIA_MET, FAILURE_TARGET] {
        if let Some(stored) = job.status.condition(condition) {
            let text = |key: &str| stored[key].as_str().unwrap_or_default().to_owned();
            return Some(Verdict { condition, reason: text("reason"), message: text("message"), stored: true });
        }
    }
    let new = |condition, reason: &str, message: &str| {
        Some(Verdict { condition, reason: reason.to_owned(), message: message.to_owned(), stored: false })
    };
    let fails = |reason: &str, message: &str| new(FAILURE_TARGET, reason, message);
    let policy = pods.iter().filter(|(_, pod)| is_failed(job, pod)).find_map(|(_, pod)| match failure(job, pod) {
        FailureAction::FailJob(message) => Some(message),
        FailureAction::Count | FailureAction::Ignore | FailureAction::FailIndex => None,
    });
    if let Some(message) = policy {
        return fails("PodFailurePolicy", &message);
    }
    let limit = job.spec.backoff_limit.unwrap_or(6);
    if tally.failed > i64::from(limit) || restarts_reach_the_limit(job, pods, limit) {
        return fails("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline.is_some_and(|deadline| deadline <= now.timestamp) {
        return fails("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    if let (Some(indexes), Some(failed)) = (job.indexes(), &tally.failed_indexes) {
        if job.spec.max_failed_indexes.is_some_and(|most| failed.total() > i64::from(most)) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return fails("MaxFailedIndexesExceeded", message);
        }
        if failed.total() > 0 && failed.total() + tally.completed_indexes.total() >= i64::from(indexes) {
            return fails("FailedIndexes", "Job has failed indexes");
        }
    }
    let policy = job.spec.success_policy.as_ref().zip(job.indexes());
    if let Some(message) = policy.and_then(|(policy, indexes)| policy.met(&tally.completed_indexes, indexes)) {
        return new(SUCCESS_CRITERIA_MET, "SuccessPolicy", &message);
    }
    let enough = match job.spec.completions {
        Some(completions) => tally.succeeded >= i64::from(completions),
        None => tally.succeeded > 0,
    };
    if enough && tally.active.is_empty() {
        return new(SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods");
    }
    None
}

/// Puts a condition into the list. One that is not there is not so already; answers whether anything has changed.
fn set_condition(list: &mut Vec<Value>, kind: &str, is: bool, (reason, message): (&str, &str), now: Timestamp) -> bool {
    let status = if is { "True" } else { "False" };
    let at = api::time::seconds(now);
    let new = json!({ "type": kind, "status": status, "lastProbeTime": at, "lastTransitionTime": at, "reason": reason,
        "message": message });
    match list.iter_mut().find(|it| it["type"] == kind) {
        Some(old) if ["status", "reason", "message"].iter().all(|key| old[*key] == new[*key]) => return false,
        Some(old) => *old = new,
        None if is => list.push(new),
        None => return false,
    }
    true
}

/// Counts those who have ended: their UIDs are written down, and who is in the numbers or does not count is let go. Answers whether
/// there are more than one pass takes.
fn count_ended(
    job: &JobView,
    pods: &[Member<'_>],
    tally: &Tally<'_>,
    verdict: Option<&Verdict>,
    status: &mut JobStatus,
    free: &mut Vec<Untracked>,
) -> bool {
    let uncounted = &mut status.uncounted_terminated_pods;
    let known: BTreeSet<String> = uncounted.succeeded.iter().chain(&uncounted.failed).cloned().collect();
    let fails = verdict.is_some_and(|verdict| verdict.condition == FAILURE_TARGET);
    // Whoever is ended by the success of the others has not failed.
    let succeeds = verdict.is_some_and(|verdict| verdict.condition == SUCCESS_CRITERIA_MET && verdict.stored);
    let mut members: Vec<&Member<'_>> = pods.iter().filter(|(_, pod)| pod.tracked).collect();
    members.sort_by_key(|(_, pod)| pod.index);
    for (uid, pod) in members {
        let is_held = pod.index.and_then(|index| tally.last_failures.get(&index)).is_some_and(|(held, _)| held == uid);
        // When the Job ends, who has not ended by then is not waited for.
        let ends = job.leaves() || (verdict.is_some() && !pod.is_active());
        let failed = is_failed(job, pod) && (ends || !is_held);
        let counts = (failed && !succeeds) || (fails && !pod.is_active());
        if !ends && !failed && pod.phase != Phase::Succeeded {
            continue;
        }
        if free.len() >= UNCOUNTED_MAX || uncounted.succeeded.len() + uncounted.failed.len() >= UNCOUNTED_MAX {
            // Who is waiting to be let go is: otherwise nobody would ever make room.
            if !known.contains(&***uid) {
                return true;
            }
        }
        free.push(pod.untracked(uid));
        if known.contains(&***uid) {
            continue;
        }
        if pod.phase == Phase::Succeeded {
            // The index itself is the record of an indexed success.
            if job.indexes().is_none() {
                uncounted.succeeded.push(uid.to_string());
            }
        } else if counts && has_place(job, pod) && failure(job, pod) != FailureAction::Ignore {
            uncounted.failed.push(uid.to_string());
        }
    }
    false
}

fn suspend_or_resume(job: &JobView, status: &mut JobStatus, events: &mut Vec<JobEvent>, now: Now) {
    let event = |reason: &str, message: &str| JobEvent {
        is_warning: false,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let conditions = &mut status.conditions;
    if job.is_suspended() {
        if set_condition(conditions, SUSPENDED, true, ("JobSuspended", "Job suspended"), now.timestamp) {
            status.start_time = None;
            events.push(event("Suspended", "Job suspended"));
        }
    } else if set_condition(conditions, SUSPENDED, false, ("JobResumed", "Job resumed"), now.timestamp) {
        // The deadline counts anew from here.
        status.start_time = Some(stored_time(now.timestamp));
        events.push(event("Resumed", "Job resumed"));
    }
}

/// A moment as it comes back from the store.
fn stored_time(at: Timestamp) -> Time {
    Time(api::time::parse(&api::time::seconds(at)).unwrap_or(at))
}

/// What follows for a Job from its pods, all of them, by now.
pub(crate) fn evaluate<'a>(job: &JobView, pods: &[Member<'a>], now: Now) -> Evaluation<'a> {
    let tally = tally(job, pods);
    let mut status = job.status.clone();
    let mut events = Vec::new();
    if status.start_time.is_none() && !job.is_suspended() {
        status.start_time = Some(stored_time(now.timestamp));
    }
    let deadline = job.spec.active_deadline_seconds.filter(|_| !job.is_suspended()).and_then(|seconds| {
        let started = status.start_time.as_ref()?.0;
        Some(started.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
    });
    let verdict = verdict(job, pods, &tally, deadline, now);

    // Who has been seen without the finalizer is in the numbers from here on.
    let tracked: BTreeSet<&str> = pods.iter().filter(|(_, pod)| pod.tracked).map(|(uid, _)| &***uid).collect();
    let uncounted = &mut status.uncounted_terminated_pods;
    for (list, number) in
        [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)]
    {
        let before = list.len();
        list.retain(|uid| tracked.contains(uid.as_str()));
        let times = if flaws::has(Flaw::CountsTwice) { 2 } else { 1 };
        *number = number.saturating_add(count(times * (before - list.len())));
    }
    let mut free = Vec::new();
    let is_more = count_ended(job, pods, &tally, verdict.as_ref(), &mut status, &mut free);
    if job.indexes().is_some() {
        status.completed_indexes = tally.completed_indexes.to_string();
        status.succeeded = i32::try_from(tally.completed_indexes.total()).unwrap_or(i32::MAX);
        status.failed_indexes = tally.failed_indexes.as_ref().map(ToString::to_string);
    }
    status.active = count(tally.active.len());
    status.ready = Some(count(tally.ready));
    status.terminating = Some(count(tally.terminating.len()));

    match &verdict {
        None if !job.leaves() => suspend_or_resume(job, &mut status, &mut events, now),
        None => {}
        Some(verdict) if !verdict.stored => {
            let because = (verdict.reason.as_str(), verdict.message.as_str());
            set_condition(&mut status.conditions, verdict.condition, true, because, now.timestamp);
            let left: Vec<&str> = tally.active.iter().chain(&tally.terminating).map(|(_, pod)| &*pod.name).collect();
            if let Some((first, others)) = left.split_first() {
                let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
                let message = format!("Waiting for pod {first}{others} to end");
                events.push(JobEvent { is_warning: false, reason: "WaitingForPods".to_owned(), message });
            }
        }
        Some(verdict) => {
            let counted = &status.uncounted_terminated_pods;
            let all_counted = counted.succeeded.is_empty() && counted.failed.is_empty() && free.is_empty() && !is_more;
            if all_counted && tally.active.is_empty() && tally.terminating.is_empty() {
                finish(job, verdict, &mut status, &mut events, now);
            }
        }
    }
    let deadline = deadline.filter(|_| verdict.is_none());
    Evaluation { tally, status, events, free, ends: verdict.is_some(), deadline }
}

fn finish(job: &JobView, verdict: &Verdict, status: &mut JobStatus, events: &mut Vec<JobEvent>, now: Now) {
    let because = (verdict.reason.as_str(), verdict.message.as_str());
    if verdict.condition == FAILURE_TARGET {
        set_condition(&mut status.conditions, "Failed", true, because, now.timestamp);
        let (reason, message) = (verdict.reason.clone(), verdict.message.clone());
        return events.push(JobEvent { is_warning: true, reason, message });
    }
    set_condition(&mut status.conditions, "Complete", true, because, now.timestamp);
    // A clock that was put back must not make it end before it began.
    let ended = stored_time(now.timestamp);
    status.completion_time = Some(status.start_time.clone().map_or(ended.clone(), |started| started.max(ended)));
    if job.spec.completions.is_some_and(|completions| status.succeeded > completions) {
        let message = "Too many succeeded pods running after completion count reached".to_owned();
        events.push(JobEvent { is_warning: true, reason: "TooManySucceededPods".to_owned(), message });
    }
    let (reason, message) = ("Completed".to_owned(), "Job completed".to_owned());
    events.push(JobEvent { is_warning: false, reason, message });
}
