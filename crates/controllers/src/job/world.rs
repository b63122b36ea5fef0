//! A small world for tests of the Job controller: a store with one Job and its pods, watches that lag, and a node that does what it is told.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller as _, Outcome};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::controller::{Action, Answer, Input, Jobs, Key};
use super::job_pod::{TRACKING_FINALIZER, Untracked};
use super::new_pod::pod_text;
use super::view::JobView;
use crate::pod_control::PodRef;
use crate::woken::Watched;

pub(super) struct World {
    pub(super) watched: Watched<Jobs>,
    pub(super) job: Value,
    pub(super) pods: BTreeMap<String, Value>,
    /// What the watches have not told yet.
    unseen_jobs: VecDeque<Value>,
    unseen_pods: VecDeque<(bool, Value)>,
    revision: u64,
    made: u64,
    /// Pods of which the node has seen the end.
    over: BTreeSet<String>,
    /// How often each UID has gone into a number, and which pods ended how while they still counted.
    pub(super) counted: BTreeMap<String, usize>,
    pub(super) ended: BTreeMap<String, &'static str>,
    /// Pods that the controller knew to have failed before the Job was over.
    pub(super) known_failed: BTreeSet<String>,
    pub(super) events: Vec<String>,
    pub(super) conditions_seen: Vec<String>,
    pub(super) most_active: usize,
    /// The server takes no pods.
    pub(super) refuses: bool,
    pub(super) seed: u64,
}

pub(super) fn key() -> Key {
    Key::Job("job".into())
}

impl World {
    /// A Job of this spec, which the controller has been told of.
    pub(super) fn with(spec: Value) -> Self {
        let mut spec = spec;
        spec["selector"] = json!({ "matchLabels": { "job": "sum" } });
        if spec["template"].is_null() {
            spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c" }] } });
        }
        spec["template"]["metadata"] = json!({ "labels": { "job": "sum" } });
        let metadata = json!({ "name": "sum", "namespace": "ns", "uid": "job", "resourceVersion": "0" });
        let mut world = Self {
            watched: Watched::new(Jobs::new()),
            job: json!({ "metadata": metadata, "spec": spec, "status": {} }),
            pods: BTreeMap::new(),
            unseen_jobs: VecDeque::new(),
            unseen_pods: VecDeque::new(),
            revision: 0,
            made: 0,
            over: BTreeSet::new(),
            counted: BTreeMap::new(),
            ended: BTreeMap::new(),
            known_failed: BTreeSet::new(),
            events: Vec::new(),
            conditions_seen: Vec::new(),
            most_active: 0,
            refuses: false,
            seed: 0,
        };
        world.change_job(|_| {});
        world
    }

    fn stamp(&self, later: i64) -> String {
        api::time::seconds(self.watched.now.timestamp + SignedDuration::from_secs(later))
    }

    /// Changes the Job as a person does.
    pub(super) fn change_job(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.job);
        self.revision += 1;
        self.job["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.unseen_jobs.push_back(self.job.clone());
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let before = pod.clone();
        change(pod);
        if *pod == before {
            return;
        }
        self.revision += 1;
        pod["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let pod = pod.clone();
        let leaves = pod["metadata"]["deletionTimestamp"].is_string();
        let held = pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if leaves && !held && self.over.contains(name) {
            self.pods.remove(name);
            self.unseen_pods.push_back((true, pod));
        } else {
            self.unseen_pods.push_back((false, pod));
        }
    }

    /// Somebody makes a pod of this name without an owner.
    pub(super) fn stray(&mut self, name: &str, finalizers: Value) {
        let metadata = json!({ "name": name, "namespace": "ns", "labels": { "job": "sum" }, "finalizers": finalizers });
        self.create(name, json!({ "metadata": metadata }));
    }

    fn create(&mut self, name: &str, mut pod: Value) {
        self.made += 1;
        pod["metadata"]["uid"] = format!("{name}#{}", self.made).into();
        pod["metadata"]["creationTimestamp"] = self.stamp(0).into();
        pod["status"] = json!({});
        self.pods.insert(name.to_owned(), pod);
        self.change_pod(name, |pod| pod["status"]["phase"] = "Pending".into());
        self.most_active = self.most_active.max(self.active().len());
    }

    /// The names of pods that run or will.
    pub(super) fn active(&self) -> Vec<String> {
        let is_active = |pod: &Value| {
            let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            !ended && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.pods.iter().filter(|(_, pod)| is_active(pod)).map(|(name, _)| name.clone()).collect()
    }

    /// The active pod of an index.
    pub(super) fn pod_of(&self, index: u32) -> String {
        let start = format!("sum-{index}-");
        self.active().into_iter().find(|name| name.starts_with(&start)).expect("there is one")
    }

    /// The node says that a pod runs, or how it ended: `code` is that of its container.
    pub(super) fn pod_is(&mut self, name: &str, phase: &'static str, code: i64) {
        let at = self.stamp(0);
        let Some(pod) = self.pods.get(name) else { return };
        let tracked =
            pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(TRACKING_FINALIZER)));
        if phase != "Running" {
            if tracked {
                self.ended.insert(pod["metadata"]["uid"].as_str().unwrap().to_owned(), phase);
            }
            self.over.insert(name.to_owned());
        }
        self.change_pod(name, |pod| {
            pod["status"]["phase"] = phase.into();
            if phase == "Running" {
                pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": at }]);
            } else {
                let ended = json!({ "terminated": { "exitCode": code, "finishedAt": at } });
                pod["status"]["containerStatuses"] = json!([{ "name": "c", "restartCount": 0, "state": ended }]);
                pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at }]);
            }
        });
    }

    /// The node is told of a condition.
    pub(super) fn pod_has(&mut self, name: &str, condition: &str) {
        let condition = json!([{ "type": condition, "status": "True" }]);
        self.change_pod(name, |pod| pod["status"]["conditions"] = condition);
    }

    /// Somebody writes something on a pod.
    pub(super) fn annotate(&mut self, name: &str, key: &str, value: &str) {
        self.change_pod(name, |pod| pod["metadata"]["annotations"][key] = value.into());
    }

    pub(super) fn restarted(&mut self, name: &str, times: i64) {
        let status = json!([{ "name": "c", "restartCount": times }]);
        self.change_pod(name, |pod| pod["status"]["containerStatuses"] = status);
    }

    /// Somebody asks a pod to leave.
    pub(super) fn delete_pod(&mut self, name: &str) {
        let at = self.stamp(30);
        self.change_pod(name, |pod| {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                pod["metadata"]["deletionTimestamp"] = at.into();
                pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
            }
        });
    }

    /// Somebody takes a pod away by force, whatever holds it.
    pub(super) fn force_away(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        self.unseen_pods.push_back((true, pod));
    }

    fn told(&mut self, pod: &Value) {
        let tracked =
            pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(TRACKING_FINALIZER)));
        if pod["status"]["phase"] == "Failed" && tracked && self.condition("SuccessCriteriaMet").is_none() {
            self.known_failed.insert(pod["metadata"]["uid"].as_str().unwrap().to_owned());
        }
    }

    fn keys(&self) -> Vec<Key> {
        let uids = self.pods.values().map(|pod| Key::Pod(pod["metadata"]["uid"].as_str().unwrap().into()));
        uids.chain([key(), Key::LeftOver("ns".into(), "job".into())]).collect()
    }

    /// The watches tell one more thing each, if they are to and there is any.
    pub(super) fn hear(&mut self, of_job: bool, of_pods: bool) {
        let keys = self.keys();
        if let Some(job) = of_job.then(|| self.unseen_jobs.pop_front()).flatten() {
            let job = Arc::new(serde_json::from_value(job).unwrap());
            self.watched.tell(Input::Jobs(WatchUpdate::Changed(job)), keys.clone(), self.seed);
        }
        if let Some((gone, pod)) = of_pods.then(|| self.unseen_pods.pop_front()).flatten() {
            self.told(&pod);
            let pod = Arc::new(serde_json::from_value(pod).unwrap());
            let update = if gone { WatchUpdate::Removed(pod) } else { WatchUpdate::Changed(pod) };
            self.watched.tell(Input::Pods(update), keys, self.seed);
        }
    }

    pub(super) fn hear_all(&mut self) {
        while !self.unseen_jobs.is_empty() || !self.unseen_pods.is_empty() {
            self.hear(!self.unseen_jobs.is_empty(), true);
        }
    }

    /// Another controller begins with lists of what there is.
    pub(super) fn restart(&mut self) {
        let now = self.watched.now;
        self.watched = Watched::new(Jobs::new());
        self.watched.now = now;
        self.unseen_jobs.clear();
        self.unseen_pods.clear();
        self.pods.values().cloned().collect::<Vec<_>>().iter().for_each(|pod| self.told(pod));
        let pods = self.pods.values().map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
        self.watched.tell(Input::Pods(WatchUpdate::Listed(pods)), [], self.seed);
        let job = Arc::new(serde_json::from_value(self.job.clone()).unwrap());
        let keys = self.keys();
        self.watched.tell(Input::Jobs(WatchUpdate::Listed(vec![job])), keys, self.seed);
    }

    /// Plans once and does the first `most` writes of it. Answers whether there was anything to do.
    pub(super) fn act(&mut self, most: usize) -> bool {
        let mut left = most;
        let keys = self.keys();
        let mut any = false;
        for key in keys {
            let actions = self.watched.controller.plan(&key, self.watched.now).actions;
            any |= !actions.is_empty();
            for action in actions {
                let Some(answer) = self.apply(&action, &mut left) else { return any };
                self.watched.controller.ended(self.watched.now, &key, action, Outcome::Done(answer));
            }
        }
        any
    }

    /// Hears and acts until nothing is left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.hear_all();
            if !self.act(usize::MAX) {
                return;
            }
        }
        panic!("it never rests: {}", self.job["status"]);
    }

    /// Time passes, in steps of a second, and what is due is done.
    pub(super) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.watched.pass(Duration::from_secs(1));
            self.settle();
        }
    }

    /// Whether the condition is so, and why.
    pub(super) fn condition(&self, kind: &str) -> Option<String> {
        let all = self.job["status"]["conditions"].as_array()?;
        let found = all.iter().find(|it| it["type"] == kind && it["status"] == "True")?;
        Some(format!("{}: {}", found["reason"].as_str()?, found["message"].as_str()?))
    }

    pub(super) fn number(&self, key: &str) -> i64 {
        self.job["status"][key].as_i64().unwrap_or(0)
    }

    /// Does one action as a server would; `None` if it failed, or if whoever does it has ended.
    fn apply(&mut self, action: &Action, left: &mut usize) -> Option<Answer> {
        let mut each = |world: &mut Self, pods: &[PodRef], act: &dyn Fn(&mut Self, &str)| {
            for pod in pods {
                *left = left.checked_sub(1)?;
                if world.pods.get(&pod.name).is_some_and(|it| it["metadata"]["uid"] == *pod.uid) {
                    act(world, &pod.name);
                }
            }
            Some(Answer::Done)
        };
        let free = |world: &mut Self, name: &str| {
            let kept = |finalizers: &Value| -> Value {
                finalizers.as_array().into_iter().flatten().filter(|it| **it != TRACKING_FINALIZER).cloned().collect()
            };
            world.change_pod(name, |pod| pod["metadata"]["finalizers"] = kept(&pod["metadata"]["finalizers"]));
        };
        match action {
            Action::Create { owner, job, pods } => {
                if self.refuses {
                    return Some(Answer::Refused);
                }
                for (name, new) in pods {
                    *left = left.checked_sub(1)?;
                    if !self.pods.contains_key(name) {
                        let text = pod_text(&job.spec.template, owner, name, new);
                        self.create(name, serde_json::from_slice(&text).unwrap());
                    }
                }
                Some(Answer::Done)
            }
            Action::Delete { pods, .. } => each(self, pods, &Self::delete_pod),
            Action::Remove { pods, .. } => {
                let named: Vec<PodRef> = pods.iter().map(|it| it.pod.clone()).collect();
                let same = self.as_seen(pods);
                each(self, &same, &free)?;
                if same.len() < pods.len() {
                    return None;
                }
                each(self, &named, &Self::delete_pod)
            }
            Action::Free { pods, .. } | Action::FreeIfGone { pods, .. } => {
                let same = self.as_seen(pods);
                each(self, &same, &free)?;
                (same.len() == pods.len()).then_some(Answer::Done)
            }
            Action::Claim { adopt, release, .. } => {
                each(self, adopt, &|world, name| {
                    world.change_pod(name, |pod| {
                        pod["metadata"]["ownerReferences"] =
                            json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "job", "controller": true }]);
                        pod["metadata"]["finalizers"] = json!([TRACKING_FINALIZER]);
                    });
                })?;
                each(self, release, &|world, name| {
                    free(world, name);
                    world.change_pod(name, |pod| pod["metadata"]["ownerReferences"] = json!([]));
                })
            }
            Action::Report { resource_version, status, events, .. } => {
                *left = left.checked_sub(1)?;
                if self.job["metadata"]["resourceVersion"] != *resource_version {
                    return None;
                }
                self.report(status);
                self.events.extend(events.iter().map(|event| format!("{}: {}", event.reason, event.message)));
                Some(Answer::Done)
            }
        }
    }

    /// Those that are as they were seen, if that is asked for.
    fn as_seen(&self, pods: &[Untracked]) -> Vec<PodRef> {
        let is_same = |it: &&Untracked| {
            let version = self.pods.get(&it.pod.name).map(|pod| pod["metadata"]["resourceVersion"].clone());
            it.version.is_none() || version.is_none() || version == it.version.clone().map(Value::from)
        };
        pods.iter().filter(is_same).map(|it| it.pod.clone()).collect()
    }

    fn report(&mut self, patch: &Value) {
        let uids = |job: &Value| -> BTreeSet<String> {
            let uncounted = &job["status"]["uncountedTerminatedPods"];
            let both = [&uncounted["succeeded"], &uncounted["failed"]]
                .map(|list| list.as_array().cloned().unwrap_or_default());
            both.concat().iter().map(|uid| uid.as_str().unwrap().to_owned()).collect()
        };
        let before = uids(&self.job);
        self.change_job(|job| {
            for (key, value) in patch.as_object().unwrap() {
                match value {
                    Value::Null => drop(job["status"].as_object_mut().unwrap().remove(key)),
                    Value::Object(parts) => {
                        let parts = parts.iter().filter(|(_, part)| !part.is_null());
                        job["status"][key] = parts.map(|(key, part)| (key.clone(), part.clone())).collect();
                    }
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                        job["status"][key] = value.clone();
                    }
                }
            }
        });
        let after = uids(&self.job);
        for uid in before.difference(&after) {
            let times = self.counted.entry(uid.clone()).or_default();
            *times += 1;
            assert_eq!(*times, 1, "seed {}: {uid} is counted twice", self.seed);
        }
        for uid in after.difference(&before) {
            assert!(!self.counted.contains_key(uid), "seed {}: {uid} is to be counted again", self.seed);
        }
        for condition in self.job["status"]["conditions"].as_array().into_iter().flatten() {
            let seen = format!("{}={}", condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap());
            if self.conditions_seen.last() != Some(&seen) && !self.conditions_seen.contains(&seen) {
                self.conditions_seen.push(seen);
            }
        }
        let _: JobView = serde_json::from_value(self.job.clone()).unwrap();
    }
}
