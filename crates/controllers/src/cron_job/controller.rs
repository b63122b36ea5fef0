//! When a CronJob makes a Job, and which Jobs it has: pure, told facts and the time.
//!
//! The status follows from the Jobs that are there: a Job of ours that is seen is active until it ends, and the time it was due is the
//! last time that was scheduled. The name of a Job is made from that time, so one that was made and not seen yet, or not written
//! down before a crash, is not made twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::cron::{Missed, Schedule, time_zone};
use client::WatchUpdate;
use frame::{Controller, Now, Outcome, Plan, Wake};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::Value;

use super::view::{CronJobStatus, CronJobView};
use crate::controller_ref::{Owner, controller_of};
use crate::job::view::{Finished, JobView};
use crate::objects::{Objects, owner_word};

/// The UID of anything.
pub(crate) type Uid = Arc<str>;

/// When a Job was due, on the Job.
pub(crate) const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Ours: the Job that takes another's place waits until the other and its pods are gone.
const REPLACE_AFTER_END: &str = "adieu.dev/replace-after-end";
/// A time is looked at a little after it has come.
const AFTER_TIME: Duration = Duration::from_millis(100);
/// How many things that were told are remembered.
const TOLD_MAX: usize = 32;

/// What is told.
#[derive(Debug)]
pub(crate) enum Input {
    CronJobs(WatchUpdate<Arc<CronJobView>>),
    Jobs(WatchUpdate<Arc<JobView>>),
}

/// A Job that is meant, and no other under its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JobRef {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Something to be told about a CronJob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CronEvent {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Tell these.
    Tell { owner: Owner, events: Vec<CronEvent> },
    /// Delete these Jobs, with their pods; the Jobs last, if they are to stay for so long.
    DeleteJobs { owner: Owner, jobs: Vec<JobRef>, foreground: bool },
    /// Make the Job of this name.
    Create { owner: Owner, name: String, job: Value },
    /// Report, to the CronJob of this version: a merge patch of its status. `missing` are Jobs of which nothing is seen: they must be
    /// gone indeed. Then tell.
    Report { owner: Owner, resource_version: String, status: Value, missing: Vec<JobRef>, events: Vec<CronEvent> },
}

/// What can come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    /// The namespace is being deleted: nothing more is made before something changes or the next time comes.
    NamespaceEnding,
}

/// A Job, as far as CronJobs care.
#[derive(Clone, PartialEq, Debug)]
struct CronJobJob {
    name: String,
    namespace: String,
    owner: Uid,
    finished: Option<Finished>,
    ended: Option<Timestamp>,
    began: Option<Timestamp>,
    leaves: bool,
    /// When it was due, if we made it.
    scheduled: Option<Timestamp>,
}

impl CronJobJob {
    fn of(job: &JobView) -> Option<Self> {
        let owner =
            controller_of(&job.metadata).filter(|it| it.kind == "CronJob" && it.api_version.starts_with("batch/"))?;
        let (name, time) = (job.name_any(), |time: &Option<Time>| time.as_ref().map(|time| time.0));
        Some(Self {
            scheduled: scheduled_by(&owner.name, &name),
            name,
            namespace: job.namespace().unwrap_or_default(),
            owner: owner.uid.as_str().into(),
            finished: job.finished(),
            ended: time(&job.status.completion_time),
            began: time(&job.status.start_time).or_else(|| time(&job.metadata.creation_timestamp)),
            leaves: job.leaves(),
        })
    }
}

/// The name of the Job that was due then.
fn job_name(cron: &str, scheduled: Timestamp) -> String {
    format!("{cron}-{}", scheduled.as_second().div_euclid(60))
}

/// When the Job of that name was due; its name alone says it, so that nothing written on it changes what was done.
fn scheduled_by(cron: &str, job: &str) -> Option<Timestamp> {
    let minute: i64 = job.strip_prefix(cron)?.strip_prefix('-')?.parse().ok()?;
    let scheduled = Timestamp::from_second(minute.checked_mul(60)?).ok()?;
    (job == job_name(cron, scheduled)).then_some(scheduled)
}

/// A date as the annotation has it.
fn written(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    match zoned.offset().seconds() {
        0 => zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        _ => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    }
}

const BY_OWNER: usize = 0;

/// Everything known, and what follows from it.
#[derive(Debug)]
pub(crate) struct CronJobs {
    crons: BTreeMap<Uid, Arc<CronJobView>>,
    jobs: Objects<CronJobJob, 1>,
    /// What has been told about each, so that it is not told again.
    told: BTreeMap<Uid, Vec<CronEvent>>,
}

/// What the status is to be, and what there is to say about that.
struct Repaired {
    status: CronJobStatus,
    missing: Vec<JobRef>,
    events: Vec<CronEvent>,
}

impl CronJobs {
    pub(crate) fn new() -> Self {
        let jobs = Objects::new([|job: &CronJobJob| Some(owner_word(&job.namespace, &job.owner))]);
        Self { crons: BTreeMap::new(), jobs, told: BTreeMap::new() }
    }

    fn job_seen(&mut self, job: &JobView, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = job.uid().map(Uid::from) else { return };
        let Some(facts) = CronJobJob::of(job) else { return self.job_gone(&uid, woken) };
        if self.jobs.get(&uid) == Some(&facts) {
            return;
        }
        woken.insert(Arc::clone(&facts.owner));
        woken.extend(self.jobs.put(uid, facts).map(|old| old.owner));
    }

    fn job_gone(&mut self, uid: &str, woken: &mut BTreeSet<Uid>) {
        woken.extend(self.jobs.remove(uid).map(|old| old.owner));
    }

    fn cron_seen(&mut self, cron: Arc<CronJobView>, woken: &mut BTreeSet<Uid>) {
        let Some(uid) = cron.uid().map(Uid::from) else { return };
        woken.insert(Arc::clone(&uid));
        self.crons.insert(uid, cron);
    }

    fn cron_gone(&mut self, uid: &str) {
        self.crons.remove(uid);
        self.told.remove(uid);
    }

    /// Jobs beyond the history that is kept: the oldest of each kind.
    fn beyond_history(&self, uid: &Uid, cron: &CronJobView) -> Vec<JobRef> {
        let mut beyond = Vec::new();
        let limits = [(true, cron.spec.successful_jobs_history_limit), (false, cron.spec.failed_jobs_history_limit)];
        for (complete, limit) in limits {
            let Some(limit) = limit else { continue };
            let is_such = |job: &CronJobJob| !job.leaves && job.finished.is_some_and(|it| it.complete == complete);
            let mut ended: Vec<(&Uid, &CronJobJob)> = self.jobs_of(uid).filter(|(_, job)| is_such(job)).collect();
            ended.sort_by_key(|(uid, job)| (job.began, &job.name, Uid::clone(uid)));
            let surplus = ended.len().saturating_sub(limit);
            beyond.extend(
                ended
                    .into_iter()
                    .take(surplus)
                    .map(|(uid, job)| JobRef { name: job.name.clone(), uid: uid.to_string() }),
            );
        }
        beyond
    }

    /// The status as the Jobs that are there make it.
    fn repaired(&self, uid: &Uid, cron: &CronJobView, now: Now) -> Repaired {
        let mut status = cron.status.clone();
        let (mut missing, mut events) = (Vec::new(), Vec::new());
        let event = |is_warning, reason, message| CronEvent { is_warning, reason, message };
        status.active.retain(|active| {
            let name = active.name.clone().unwrap_or_default();
            let job_uid = active.uid.clone().unwrap_or_default();
            let is_ours =
                |job: &&CronJobJob| job.owner == *uid && cron.metadata.namespace.as_ref() == Some(&job.namespace);
            match self.jobs.get(&job_uid).filter(is_ours) {
                Some(CronJobJob { finished: None, .. }) => true,
                Some(CronJobJob { finished: Some(finished), .. }) => {
                    let condition = if finished.complete { "Complete" } else { "Failed" };
                    let message = format!("Saw completed job: {name}, condition: {condition}");
                    events.push(event(false, "SawCompletedJob", message));
                    false
                }
                None => {
                    events.push(event(false, "MissingJob", format!("Active job went missing: {name}")));
                    missing.push(JobRef { name, uid: job_uid });
                    false
                }
            }
        });
        for (job_uid, job) in self.jobs_of(uid) {
            let is_listed = status.active.iter().any(|it| it.uid.as_deref() == Some(&**job_uid));
            let scheduled = job.scheduled.filter(|at| *at <= now.timestamp);
            if job.finished.is_none() && !is_listed && scheduled.is_some() {
                status.active.push(reference(job_uid, job));
            }
            if let Some(scheduled) = scheduled {
                status.last_schedule_time = status.last_schedule_time.max(Some(Time(scheduled)));
            }
            if job.finished.is_some_and(|it| it.complete) {
                status.last_successful_time = status.last_successful_time.max(job.ended.map(Time));
            }
        }
        Repaired { status, missing, events }
    }

    /// Those of `events` that have not been told yet.
    fn untold(&self, uid: &Uid, events: Vec<CronEvent>) -> Vec<CronEvent> {
        let told = self.told.get(uid);
        events.into_iter().filter(|event| told.is_none_or(|told| !told.contains(event))).collect()
    }

    /// The Jobs of a CronJob: those in its namespace, whatever references of others say.
    fn jobs_of(&self, uid: &Uid) -> impl Iterator<Item = (&Uid, &CronJobJob)> {
        let namespace = self.crons.get(uid).and_then(|cron| cron.metadata.namespace.as_deref());
        self.jobs.owned(BY_OWNER, namespace.unwrap_or_default(), uid)
    }

    fn unexpected(&self, uid: &Uid) -> Vec<CronEvent> {
        let strange = self.jobs_of(uid).filter(|(_, job)| job.finished.is_none() && job.scheduled.is_none());
        let message = |name: &str| format!("Saw a job that the controller did not create or forgot: {name}");
        let event = |(_, job): (&Uid, &CronJobJob)| CronEvent {
            is_warning: true,
            reason: "UnexpectedJob",
            message: message(&job.name),
        };
        // Fewer than are remembered as told: each is told once.
        strange.map(event).take(TOLD_MAX / 2).collect()
    }

    fn plan_cron(&self, uid: &Uid, now: Now) -> Plan<Action> {
        let Some(cron) = self.crons.get(uid) else { return Plan::default() };
        let owner = cron.owner();
        let Repaired { status, missing, events } = self.repaired(uid, cron, now);
        if status != cron.status {
            let resource_version = cron.metadata.resource_version.clone().unwrap_or_default();
            return Plan::act(Action::Report { owner, resource_version, status: status.to_patch(), missing, events });
        }
        let beyond = self.beyond_history(uid, cron);
        if !beyond.is_empty() && !cron.leaves() {
            return Plan::act(Action::DeleteJobs { owner, jobs: beyond, foreground: false });
        }
        let (mut plan, events) = match cron.leaves() {
            true => (Plan::default(), Vec::new()),
            false => self.plan_next(cron, now),
        };
        let events = self.untold(uid, [self.unexpected(uid), events].concat());
        if !events.is_empty() {
            plan.actions.insert(0, Action::Tell { owner, events });
        }
        plan
    }

    /// What the clock asks for.
    fn plan_next(&self, cron: &CronJobView, now: Now) -> (Plan<Action>, Vec<CronEvent>) {
        let warning = |reason, message: String| vec![CronEvent { is_warning: true, reason, message }];
        let spec = &cron.spec;
        if spec.suspend == Some(true) {
            return (Plan::default(), Vec::new());
        }
        let zone = match spec.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => match time_zone(name) {
                Some(zone) => zone,
                None => {
                    let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
                    return (Plan::default(), warning("UnknownTimeZone", message));
                }
            },
        };
        let schedule = match Schedule::parse(&spec.schedule) {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                return (Plan::default(), warning("UnparseableSchedule", message));
            }
        };
        let next = schedule.next_after(now.timestamp, &zone);
        let wake = next.map(|next| Wake { at: now.at(next) + AFTER_TIME, why: "the next time has come" });
        let rest = || Plan { actions: Vec::new(), wake };
        let last = cron.status.last_schedule_time.as_ref().or(cron.metadata.creation_timestamp.as_ref());
        let last = last.map_or(now.timestamp, |time| time.0);
        let Some(Missed { latest, too_many }) = schedule.missed(last, now.timestamp, &zone) else {
            return (rest(), Vec::new());
        };
        let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        let is_late = |deadline| latest.saturating_add(deadline).is_ok_and(|until| until < now.timestamp);
        if deadline.is_some_and(is_late) {
            let date = latest.to_zoned(zone).strftime("%a, %d %b %Y %H:%M:%S %z");
            return (rest(), warning("MissSchedule", format!("Missed scheduled time to start a job: {date}")));
        }
        let mut events = Vec::new();
        // Those beyond the deadline are none that it has missed.
        let from = deadline.map_or(last, |deadline| now.timestamp.saturating_sub(deadline).unwrap_or(last).max(last));
        if too_many && schedule.missed(from, now.timestamp, &zone).is_some_and(|missed| missed.too_many) {
            let text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            events = warning("TooManyMissedTimes", text.to_owned());
        }
        let owner = cron.owner();
        let name = job_name(&owner.name, latest);
        if cron.status.active.iter().any(|active| active.name.as_ref() == Some(&name)) {
            return (rest(), events);
        }
        let running =
            || cron.status.active.iter().filter_map(|it| Some(JobRef { name: it.name.clone()?, uid: it.uid.clone()? }));
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if running().next().is_some() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                events.push(CronEvent { is_warning: false, reason: "JobAlreadyActive", message: message.to_owned() });
                return (rest(), events);
            }
            Some("Replace") if running().next().is_some() => {
                let foreground = cron.is_annotated(REPLACE_AFTER_END);
                let leaves = |job: &JobRef| self.jobs.get(&job.uid).is_none_or(|job| job.leaves);
                let jobs: Vec<JobRef> = running().filter(|job| !leaves(job)).collect();
                if jobs.is_empty() && foreground {
                    // Its pods still leave; the Job goes with the last of them.
                    return (rest(), events);
                }
                if !jobs.is_empty() {
                    return (Plan::act(Action::DeleteJobs { owner, jobs, foreground }), events);
                }
            }
            _ => {}
        }
        let job = spec.job_template.job(&owner, &name, &written(latest, &zone));
        (Plan { actions: vec![Action::Create { owner, name, job }], wake }, events)
    }
}

fn reference(uid: &Uid, job: &CronJobJob) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: Some(job.name.clone()),
        namespace: Some(job.namespace.clone()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

impl Controller for CronJobs {
    type Input = Input;
    type Key = Uid;
    type Action = Action;
    type Answer = Answer;

    fn observe(&mut self, _: Now, input: Input) -> Vec<Uid> {
        let mut woken = BTreeSet::new();
        match input {
            Input::CronJobs(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|cron| cron.uid().map(Uid::from)).collect();
                let gone: Vec<Uid> = self.crons.keys().filter(|uid| !here.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| self.cron_gone(uid));
                all.into_iter().for_each(|cron| self.cron_seen(cron, &mut woken));
            }
            Input::CronJobs(WatchUpdate::Changed(cron)) => self.cron_seen(cron, &mut woken),
            Input::CronJobs(WatchUpdate::Removed(cron)) => self.cron_gone(&cron.uid().unwrap_or_default()),
            Input::Jobs(WatchUpdate::Listed(all)) => {
                let here: BTreeSet<Uid> = all.iter().filter_map(|job| job.uid().map(Uid::from)).collect();
                self.jobs.missing_from(&here).iter().for_each(|uid| self.job_gone(uid, &mut woken));
                all.iter().for_each(|job| self.job_seen(job, &mut woken));
            }
            Input::Jobs(WatchUpdate::Changed(job)) => self.job_seen(&job, &mut woken),
            Input::Jobs(WatchUpdate::Removed(job)) => self.job_gone(&job.uid().unwrap_or_default(), &mut woken),
        }
        woken.into_iter().collect()
    }

    fn plan(&self, key: &Uid, now: Now) -> Plan<Action> {
        self.plan_cron(key, now)
    }

    fn ended(&mut self, _: Now, key: &Uid, action: Action, outcome: Outcome<Answer>) -> Vec<Uid> {
        if let (Action::Tell { events, .. }, Outcome::Done(_)) = (&action, &outcome)
            && self.crons.contains_key(key)
        {
            let told = self.told.entry(Arc::clone(key)).or_default();
            told.extend(events.iter().cloned());
            let surplus = told.len().saturating_sub(TOLD_MAX);
            told.drain(..surplus);
        }
        if matches!((&action, &outcome), (Action::Create { .. }, Outcome::Done(Answer::Done)))
            && let Some(told) = self.told.get_mut(key)
        {
            // What was in the way of this time may be told again of the next.
            told.retain(|event| !matches!(event.reason, "JobAlreadyActive" | "TooManyMissedTimes"));
        }
        match outcome {
            Outcome::Done(Answer::NamespaceEnding) => Vec::new(),
            Outcome::Done(Answer::Done) | Outcome::Failed(_) | Outcome::NotTried => vec![Arc::clone(key)],
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
