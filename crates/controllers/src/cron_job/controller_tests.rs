//! CronJobs across crashes, late watches and clocks that jump.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::woken::{Dice, Watched};

fn key() -> Uid {
    "cron".into()
}

/// A store with one CronJob and its Jobs.
struct World {
    watched: Watched<CronJobs>,
    cron: Value,
    jobs: BTreeMap<String, Value>,
    revision: u64,
    unseen: Vec<String>,
    made: Vec<String>,
    events: Vec<String>,
    /// The namespace is being deleted: nothing is made in it.
    namespace_ends: bool,
    /// How often a Job was asked for in vain.
    in_vain: usize,
}

impl World {
    fn with(spec: Value) -> Self {
        let mut spec = spec;
        spec["jobTemplate"] = json!({ "metadata": { "labels": { "app": "c" } }, "spec": { "parallelism": 2 } });
        let watched = Watched::new(CronJobs::new());
        let created = api::time::seconds(watched.now.timestamp);
        let metadata = json!({ "name": "c", "namespace": "ns", "uid": "cron", "creationTimestamp": created });
        let cron = json!({ "metadata": metadata, "spec": spec, "status": {} });
        let (jobs, unseen, made, events) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        let (revision, namespace_ends, in_vain) = (0, false, 0);
        let mut world = Self { watched, cron, jobs, revision, unseen, made, events, namespace_ends, in_vain };
        world.tell_cron();
        world
    }

    fn tell_cron(&mut self) {
        self.revision += 1;
        self.cron["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let cron = Arc::new(serde_json::from_value(self.cron.clone()).unwrap());
        self.watched.tell(Input::CronJobs(WatchUpdate::Changed(cron)), [key()], 0);
    }

    fn hear(&mut self) {
        for name in std::mem::take(&mut self.unseen) {
            if let Some(job) = self.jobs.get(&name) {
                let job = Arc::new(serde_json::from_value(job.clone()).unwrap());
                self.watched.tell(Input::Jobs(WatchUpdate::Changed(job)), [key()], 0);
            }
        }
    }

    fn restart(&mut self) {
        let now = self.watched.now;
        self.watched = Watched::new(CronJobs::new());
        self.watched.now = now;
        self.unseen.clear();
        let jobs = self.jobs.values().map(|job| Arc::new(serde_json::from_value(job.clone()).unwrap())).collect();
        self.watched.tell(Input::Jobs(WatchUpdate::Listed(jobs)), [], 0);
        self.tell_cron();
    }

    fn remove(&mut self, name: &str) {
        if let Some(job) = self.jobs.remove(name) {
            let job = Arc::new(serde_json::from_value(job).unwrap());
            self.watched.tell(Input::Jobs(WatchUpdate::Removed(job)), [key()], 0);
        }
    }

    /// Plans once; does the first `most` of it.
    fn act(&mut self, most: usize) -> bool {
        let actions = self.watched.controller.plan(&key(), self.watched.now).actions;
        let any = !actions.is_empty();
        for action in actions.into_iter().take(most) {
            let mut answer = Answer::Done;
            match &action {
                Action::Create { .. } if self.namespace_ends => {
                    self.in_vain += 1;
                    answer = Answer::NamespaceEnding;
                }
                Action::Tell { events, .. } => self.note(events),
                Action::DeleteJobs { jobs, foreground, .. } => {
                    for job in jobs.clone() {
                        if *foreground {
                            self.jobs.get_mut(&job.name).unwrap()["metadata"]["deletionTimestamp"] =
                                "2027-01-01T00:00:00Z".into();
                            self.unseen.push(job.name);
                        } else {
                            self.remove(&job.name);
                        }
                    }
                }
                Action::Create { name, job, .. } => {
                    if !self.jobs.contains_key(name) {
                        let mut job = job.clone();
                        job["metadata"]["uid"] = format!("{name}#{}", self.made.len()).into();
                        let now = api::time::seconds(self.watched.now.timestamp);
                        job["status"] = json!({ "startTime": now });
                        self.jobs.insert(name.clone(), job);
                        self.made.push(name.clone());
                        self.unseen.push(name.clone());
                    }
                }
                Action::Report { resource_version, status, missing, events, .. } => {
                    assert!(
                        missing
                            .iter()
                            .all(|it| self.jobs.get(&it.name).is_none_or(|job| job["metadata"]["uid"] != *it.uid))
                    );
                    if self.cron["metadata"]["resourceVersion"] == *resource_version {
                        self.note(events);
                        let fields = status.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
                        self.cron["status"] = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
                        self.tell_cron();
                    }
                }
            }
            let woken = self.watched.controller.ended(self.watched.now, &key(), action, Outcome::Done(answer));
            if answer == Answer::NamespaceEnding {
                assert_eq!(woken, [] as [Uid; 0], "nothing has changed that makes it possible");
                return false;
            }
        }
        any
    }

    fn note(&mut self, events: &[CronEvent]) {
        self.events.extend(events.iter().map(|event| event.reason.to_owned()));
    }

    fn settle(&mut self) {
        for _ in 0..1000 {
            self.hear();
            if !self.act(usize::MAX) {
                return;
            }
        }
        panic!("it never rests: {} {:?}", self.cron["status"], self.events);
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.watched.pass(Duration::from_secs(1));
            self.settle();
        }
    }

    fn finish(&mut self, name: &str, condition: &str) {
        let now = api::time::seconds(self.watched.now.timestamp);
        let job = self.jobs.get_mut(name).unwrap();
        job["status"]["conditions"] = json!([{ "type": condition, "status": "True", "lastTransitionTime": now }]);
        if condition == "Complete" {
            job["status"]["completionTime"] = now.into();
        }
        self.unseen.push(name.to_owned());
        self.settle();
    }

    fn active(&self) -> Vec<String> {
        let active = self.cron["status"]["active"].as_array().cloned().unwrap_or_default();
        active.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// [WL-128] [WL-133] One Job for each minute that comes, whoever dies between any two writes and however late Jobs are seen.
#[test]
fn cron_job_makes_each_job_once_whatever_crashes() {
    for seed in 1..=200 {
        let mut dice = Dice::new(seed);
        let limits =
            json!({ "schedule": "*/1 * * * *", "successfulJobsHistoryLimit": 50, "failedJobsHistoryLimit": 50 });
        let mut world = World::with(limits);
        let began = world.watched.now.timestamp;
        for _ in 0..300 {
            match dice.roll(8) {
                0 => world.restart(),
                1 | 2 => world.hear(),
                3 | 4 => drop(world.act(dice.roll(3))),
                5 if !world.jobs.is_empty() => {
                    let name = world.jobs.keys().nth(dice.roll(world.jobs.len())).unwrap().clone();
                    if world.jobs[&name]["status"]["conditions"].is_null() {
                        world.finish(&name, dice.pick(&["Complete", "Failed"]));
                    }
                }
                _ => world.watched.pass(Duration::from_secs(10)),
            }
            world.act(usize::MAX);
        }
        world.settle();
        let mut names = world.made.clone();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), world.made.len(), "seed {seed}: each once");
        let minutes = (world.watched.now.timestamp.as_second() / 60) - began.as_second() / 60;
        assert!(i64::try_from(names.len()).unwrap() <= minutes, "seed {seed}");
        let running: BTreeSet<&String> =
            world.jobs.iter().filter(|(_, job)| job["status"]["conditions"].is_null()).map(|(name, _)| name).collect();
        assert_eq!(world.active().iter().collect::<BTreeSet<_>>(), running, "seed {seed}: the list is what runs");
    }
}

/// [WL-129]
#[test]
fn cron_job_that_forbids_another_starts_the_missed_one_when_the_first_ends() {
    let mut world = World::with(json!({ "schedule": "*/1 * * * *", "concurrencyPolicy": "Forbid" }));
    world.pass(150);
    assert_eq!((world.made.len(), world.active().len()), (1, 1));
    assert_eq!(world.events.iter().filter(|it| *it == "JobAlreadyActive").count(), 1, "{:?}", world.events);
    world.finish(&world.made[0].clone(), "Complete");
    assert_eq!(world.made.len(), 2, "the last that was missed, once");
    assert!(world.events.contains(&"SawCompletedJob".to_owned()));
    assert!(world.cron["status"]["lastSuccessfulTime"].is_string());
}

/// [WL-130]
#[test]
fn cron_job_that_replaces_makes_the_new_job_at_once_or_when_the_old_one_is_gone() {
    let mut world = World::with(json!({ "schedule": "*/1 * * * *", "concurrencyPolicy": "Replace" }));
    world.pass(121);
    assert_eq!((world.made.len(), world.jobs.len()), (2, 1), "the first has gone");
    let mut world = World::with(json!({ "schedule": "*/1 * * * *", "concurrencyPolicy": "Replace" }));
    world.cron["metadata"]["annotations"] = json!({ REPLACE_AFTER_END: "true" });
    world.tell_cron();
    world.pass(121);
    assert_eq!((world.made.len(), world.jobs.len()), (1, 1), "its pods still leave");
    world.remove(&world.made[0].clone());
    world.settle();
    assert_eq!((world.made.len(), world.active()), (2, vec![world.made[1].clone()]));
}

/// [WL-131] [WL-132] [WL-134]
#[test]
fn cron_job_makes_up_for_one_missed_time_and_none_beyond_its_deadline() {
    let mut world = World::with(json!({ "schedule": "*/1 * * * *" }));
    world.watched.pass(Duration::from_secs(3 * 3600));
    world.restart();
    world.settle();
    assert_eq!(world.made.len(), 1);
    assert_eq!(world.events, ["TooManyMissedTimes"]);
    // The clock goes back ten minutes: nothing is made until the old time has come again.
    world.watched.now.timestamp -= Duration::from_secs(600);
    world.pass(600);
    assert_eq!(world.made.len(), 1);
    world.pass(60);
    assert_eq!(world.made.len(), 2);

    let mut world = World::with(json!({ "schedule": "*/5 * * * *", "startingDeadlineSeconds": 10 }));
    world.watched.pass(Duration::from_secs(330));
    world.restart();
    world.settle();
    assert_eq!((world.made.len(), &world.events[..]), (0, &["MissSchedule".to_owned()][..]));
    world.pass(300);
    assert_eq!(world.made.len(), 1, "the next one is in time");
}

/// [WL-136] [WL-137]
#[test]
fn cron_job_keeps_a_history_and_counts_jobs_that_people_made_from_it() {
    let history = json!({ "schedule": "*/1 * * * *", "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1 });
    let mut world = World::with(history);
    for number in 0..5 {
        world.pass(60);
        world.finish(&world.made[number].clone(), "Complete");
    }
    assert_eq!(world.jobs.keys().cloned().collect::<Vec<_>>(), world.made[2..]);
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "cron", "controller": true }]);
    let manual = json!({ "metadata": { "name": "by-hand", "namespace": "ns", "uid": "x", "ownerReferences": owner },
        "status": { "startTime": "2026-01-01T00:00:00Z" } });
    world.jobs.insert("by-hand".into(), manual);
    world.unseen.push("by-hand".into());
    world.settle();
    assert_eq!((world.events.last().map(String::as_str), world.active()), (Some("UnexpectedJob"), vec![]));
    world.finish("by-hand", "Complete");
    assert!(!world.jobs.contains_key("by-hand"), "it began first, so it goes first");
}

#[test]
fn cron_job_that_is_suspended_or_has_an_unknown_zone_makes_nothing() {
    for (spec, reasons) in [
        (json!({ "schedule": "*/1 * * * *", "suspend": true }), vec![]),
        (json!({ "schedule": "*/1 * * * *", "timeZone": "Mars/Olympus" }), vec!["UnknownTimeZone".to_owned()]),
        (json!({ "schedule": "whenever" }), vec!["UnparseableSchedule".to_owned()]),
    ] {
        let mut world = World::with(spec.clone());
        world.pass(200);
        assert_eq!((world.made.len(), &world.events), (0, &reasons), "{spec}");
    }
}

#[test]
fn cron_job_gives_its_jobs_the_template_and_the_time_in_its_zone() {
    let mut world = World::with(json!({ "schedule": "*/1 * * * *", "timeZone": "Asia/Kathmandu" }));
    world.pass(60);
    let job = &world.jobs[&world.made[0]];
    let due = world.watched.now.timestamp.as_second();
    assert_eq!(world.made[0], format!("c-{}", due / 60));
    assert_eq!(job["metadata"]["labels"], json!({ "app": "c" }));
    assert_eq!(
        (&job["spec"]["parallelism"], &job["metadata"]["ownerReferences"][0]["uid"]),
        (&json!(2), &json!("cron"))
    );
    let written = job["metadata"]["annotations"][SCHEDULED].as_str().unwrap();
    assert!(written.ends_with("+05:45") && api::time::parse(written).unwrap().as_second() == due, "{written}");
    assert_eq!(api::time::parse(world.cron["status"]["lastScheduleTime"].as_str().unwrap()).unwrap().as_second(), due);
}

/// What is written on a Job, or left out, does not change when it was due.
#[test]
fn job_was_due_when_its_name_says() {
    let due = Timestamp::from_second(29_000_000 * 60).unwrap();
    assert_eq!(scheduled_by("tick", "tick-29000000"), Some(due));
    for other in ["tick", "tick-", "tick-x", "tick-029000000", "tock-29000000", "tick-9223372036854775807", "tick--"] {
        assert_eq!(scheduled_by("tick", other), None, "{other}");
    }
}

#[test]
fn cron_job_in_a_namespace_that_ends_asks_once_for_each_time() {
    let mut world = World::with(json!({ "schedule": "* * * * *" }));
    world.namespace_ends = true;
    for _ in 0..3 {
        world.watched.pass(Duration::from_secs(60));
        world.settle();
    }
    assert_eq!((world.in_vain, world.made.len()), (3, 0));
}
