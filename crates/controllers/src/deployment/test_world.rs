//! A small cluster for tests: stored objects, watches that lag, and the controllers of Deployments and ReplicaSets as they ship.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::WatchUpdate;
use frame::{Controller as _, Outcome};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::controller::{Action, Deployments, Input, Key};
use super::fixtures::{merge, template};
use crate::replicas::controller::{
    Action as SetAction, Answer as SetAnswer, Input as SetInput, Key as SetKey, Replicas, stamp,
};
use crate::replicas::set::SetKind;
use crate::woken::{Dice, Watched};

/// Kinds, as numbers of sources.
const DEPLOYMENTS: usize = 0;
const SETS: usize = 1;
const PODS: usize = 2;

/// Something that happened to an object: what it is after that, or was last.
#[derive(Clone)]
struct Event {
    kind: usize,
    revision: u64,
    gone: bool,
    object: Value,
}

/// How far a controller has been told.
#[derive(Clone, Copy, Default)]
struct Reader {
    at: [usize; 3],
    /// The newest revision heard of each kind.
    heard: [u64; 3],
}

/// Creates of one set that are under way.
struct Creating {
    key: SetKey,
    action: SetAction,
    left: Vec<String>,
}

pub(crate) struct World {
    revision: u64,
    stored: [BTreeMap<String, Value>; 3],
    events: Vec<Event>,
    pub(crate) dice: Dice,
    seed: u64,
    deployments: Watched<Deployments>,
    replicas: Replicas,
    readers: [Reader; 2],
    /// Own writes that a key has to see before it is planned again: kind and revision.
    holds: BTreeMap<Key, (usize, u64)>,
    set_holds: BTreeMap<SetKey, (usize, u64)>,
    creating: Vec<Creating>,
    /// Called after every write.
    law: fn(&Self),
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn as_view<T: DeserializeOwned>(object: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object.clone()).unwrap())
}

fn update<T: DeserializeOwned>(event: &Event) -> WatchUpdate<Arc<T>> {
    match event.gone {
        true => WatchUpdate::Removed(as_view(&event.object)),
        false => WatchUpdate::Changed(as_view(&event.object)),
    }
}

impl World {
    /// A Deployment with this spec, nothing else, and a `law` that holds at every moment.
    pub(crate) fn new(seed: u64, replicas: i32, extra: &Value, law: fn(&Self)) -> Self {
        let mut world = Self {
            revision: 1,
            stored: Default::default(),
            events: Vec::new(),
            dice: Dice::new(seed),
            seed,
            deployments: Watched::new(Deployments::new()),
            replicas: Replicas::new(SetKind::ReplicaSet),
            readers: Default::default(),
            holds: BTreeMap::new(),
            set_holds: BTreeMap::new(),
            creating: Vec::new(),
            law,
        };
        let mut object = json!({
            "metadata": { "name": "web", "namespace": "ns", "uid": "d", "generation": 1 },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("a"),
                "progressDeadlineSeconds": 600, "revisionHistoryLimit": 2 },
            "status": {},
        });
        merge(&mut object, extra);
        world.write(DEPLOYMENTS, "d", object);
        world
    }

    pub(crate) fn deployment(&self) -> &Value {
        &self.stored[DEPLOYMENTS]["d"]
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = &Value> {
        self.stored[SETS].values()
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Value> {
        self.stored[PODS].values()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    fn write(&mut self, kind: usize, uid: &str, mut object: Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.stored[kind].insert(uid.to_owned(), object.clone());
        self.events.push(Event { kind, revision: self.revision, gone: false, object });
        (self.law)(self);
    }

    fn remove(&mut self, kind: usize, uid: &str) {
        let Some(mut object) = self.stored[kind].remove(uid) else { return };
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.events.push(Event { kind, revision: self.revision, gone: true, object });
        (self.law)(self);
    }

    /// Somebody changes the spec of the Deployment.
    pub(crate) fn edit(&mut self, spec: &Value) {
        let mut object = self.deployment().clone();
        merge(&mut object["spec"], spec);
        if object["spec"] != self.deployment()["spec"] {
            object["metadata"]["generation"] = json!(number(&object, "/metadata/generation") + 1);
            self.write(DEPLOYMENTS, "d", object);
        }
    }

    pub(crate) fn set_image(&mut self, image: &str) {
        self.edit(&json!({ "template": template(image) }));
    }

    pub(crate) fn edit_annotation(&mut self, key: &str, value: &str) {
        let mut object = self.deployment().clone();
        object["metadata"]["annotations"][key] = json!(value);
        object["metadata"]["generation"] = json!(number(&object, "/metadata/generation") + 1);
        self.write(DEPLOYMENTS, "d", object);
    }

    fn tell(&mut self, event: &Event, reader: usize) {
        let keys = [Key::Sets("d".into()), Key::Status("d".into())];
        if reader == 0 {
            let input = match event.kind {
                DEPLOYMENTS => Input::Deployments(update(event)),
                SETS => Input::Sets(update(event)),
                _ => Input::Pods(update(event)),
            };
            self.deployments.tell(input, keys, self.seed);
        } else if event.kind != DEPLOYMENTS {
            let now = self.deployments.now;
            self.replicas.observe(
                now,
                if event.kind == SETS { SetInput::Sets(update(event)) } else { SetInput::Pods(update(event)) },
            );
        }
        let heard = &mut self.readers[reader].heard[event.kind];
        *heard = event.revision.max(*heard);
    }

    /// One controller hears some of what it has not heard, of one kind; some of it twice.
    fn hear(&mut self, reader: usize, kind: usize, most: usize) {
        for _ in 0..most {
            let from = self.readers[reader].at[kind];
            let next = self.events.iter().enumerate().skip(from).find(|(_, event)| event.kind == kind);
            let Some((at, event)) = next.map(|(at, event)| (at, event.clone())) else { return };
            self.readers[reader].at[kind] = at + 1;
            self.tell(&event, reader);
            if self.dice.roll(4) == 0 {
                self.tell(&event, reader);
            }
        }
    }

    /// What was not heard is lost, and everything is listed.
    fn list(&mut self, reader: usize, kind: usize) {
        let all: Vec<Value> = self.stored[kind].values().cloned().collect();
        let keys = [Key::Sets("d".into()), Key::Status("d".into())];
        if reader == 0 {
            let input = match kind {
                DEPLOYMENTS => Input::Deployments(WatchUpdate::Listed(all.iter().map(as_view).collect())),
                SETS => Input::Sets(WatchUpdate::Listed(all.iter().map(as_view).collect())),
                _ => Input::Pods(WatchUpdate::Listed(all.iter().map(as_view).collect())),
            };
            self.deployments.tell(input, keys, self.seed);
        } else if kind == SETS {
            self.replicas
                .observe(self.deployments.now, SetInput::Sets(WatchUpdate::Listed(all.iter().map(as_view).collect())));
        } else if kind == PODS {
            self.replicas
                .observe(self.deployments.now, SetInput::Pods(WatchUpdate::Listed(all.iter().map(as_view).collect())));
        }
        self.readers[reader].at[kind] = self.events.len();
        self.readers[reader].heard[kind] = self.revision;
    }

    /// The Deployment controller dies, and another begins with lists.
    fn restart(&mut self) {
        let now = self.deployments.now;
        self.deployments = Watched::new(Deployments::new());
        self.deployments.now = now;
        self.holds.clear();
        (0..3).for_each(|kind| self.list(0, kind));
    }

    fn now(&self) -> String {
        stamp(self.deployments.now.timestamp)
    }

    /// The revision of the newest write of a kind.
    fn newest(&self, kind: usize) -> u64 {
        self.events.iter().rev().find(|event| event.kind == kind).map_or(0, |event| event.revision)
    }

    /// Plans one key of the Deployment controller and does what it says. Answers whether there was anything.
    fn work(&mut self, key: &Key) -> bool {
        if let Some((kind, revision)) = self.holds.get(key)
            && self.readers[0].heard[*kind] < *revision
        {
            return false;
        }
        let actions = self.deployments.controller.plan(key, self.deployments.now).actions;
        let dies_after = if self.dice.roll(20) == 0 { self.dice.roll(3) } else { usize::MAX };
        let any = !actions.is_empty();
        for (number, action) in actions.into_iter().enumerate() {
            if number >= dies_after {
                self.restart();
                break;
            }
            let before = self.revision;
            let kind = self.apply(&action);
            // Now and then an answer is lost.
            if self.revision > before && self.dice.roll(10) > 0 {
                self.holds.insert(key.clone(), (kind, self.newest(kind)));
            }
        }
        any
    }

    fn is_version(&self, kind: usize, uid: &str, version: &str) -> bool {
        self.stored[kind].get(uid).is_some_and(|it| text(it, "/metadata/resourceVersion") == version)
    }

    /// Does what a Deployment asks for, as the server would. Answers which kind shows it.
    fn apply(&mut self, action: &Action) -> usize {
        match action {
            Action::Create { name, set, .. } => {
                if self.sets().all(|there| text(there, "/metadata/name") != name) {
                    let mut set = set.clone();
                    let uid = format!("{name}-{}", self.revision);
                    merge(
                        &mut set["metadata"],
                        &json!({ "uid": uid, "generation": 1, "creationTimestamp": self.now() }),
                    );
                    set["status"] = json!({ "replicas": 0 });
                    self.write(SETS, &uid, set);
                }
            }
            Action::Change { set, change, .. } if self.is_version(SETS, &set.uid, &set.resource_version) => {
                let mut object = self.stored[SETS][&set.uid].clone();
                for (key, value) in &change.annotations {
                    object["metadata"]["annotations"][key] = json!(value);
                }
                if let Some(replicas) = change.replicas {
                    object["spec"]["replicas"] = json!(replicas);
                    object["metadata"]["generation"] = json!(number(&object, "/metadata/generation") + 1);
                }
                let uid = set.uid.clone();
                self.write(SETS, &uid, object);
            }
            Action::Forget { set, .. } if self.is_version(SETS, &set.uid, &set.resource_version) => {
                let uid = set.uid.clone();
                let of_set = |pod: &&Value| text(pod, "/metadata/ownerReferences/0/uid") == uid;
                assert_eq!(self.pods().filter(of_set).count(), 0, "seed {}: its pods have ended", self.seed);
                self.remove(SETS, &uid);
            }
            Action::Report { resource_version, status, revision, .. } => {
                if resource_version.as_ref().is_none_or(|version| self.is_version(DEPLOYMENTS, "d", version)) {
                    let mut object = self.deployment().clone();
                    merge(&mut object["status"], status);
                    if let Some(revision) = revision {
                        object["metadata"]["annotations"][super::family::REVISION] = json!(revision);
                    }
                    self.write(DEPLOYMENTS, "d", object);
                }
                return DEPLOYMENTS;
            }
            Action::Claim { .. } | Action::Rollback { .. } => panic!("nothing to claim"),
            Action::Change { .. } | Action::Forget { .. } => {}
        }
        SETS
    }

    /// Plans one key of the ReplicaSet controller and does, or begins, what it says. Answers whether there was anything.
    fn work_on_set(&mut self, key: &SetKey) -> bool {
        if let Some((kind, revision)) = self.set_holds.get(key)
            && self.readers[1].heard[*kind] < *revision
        {
            return false;
        }
        if self.creating.iter().any(|it| it.key == *key) {
            return false;
        }
        let actions = self.replicas.plan(key, self.deployments.now).actions;
        let any = !actions.is_empty();
        self.replicas.begun(self.deployments.now, key, &actions);
        for action in actions {
            match action {
                SetAction::Create { ref names, .. } => {
                    let left = names.iter().rev().cloned().collect();
                    self.creating.push(Creating { key: key.clone(), action, left });
                    continue;
                }
                SetAction::Delete { ref pods, .. } => {
                    for pod in pods {
                        let Some(mut object) = self.stored[PODS].get(&pod.uid).cloned() else { continue };
                        object["metadata"]["deletionTimestamp"] = json!(self.now());
                        self.write(PODS, &pod.uid, object);
                    }
                    self.set_holds.insert(key.clone(), (PODS, self.newest(PODS)));
                }
                SetAction::Report { ref resource_version, ref status, .. } => {
                    let SetKey::Status(uid) = key else { panic!("a status") };
                    let is_current = resource_version.as_ref().is_none_or(|it| self.is_version(SETS, uid, it));
                    if let Some(mut object) = self.stored[SETS].get(&**uid).cloned().filter(|_| is_current) {
                        merge(&mut object["status"], status);
                        self.write(SETS, uid, object);
                        self.set_holds.insert(key.clone(), (SETS, self.newest(SETS)));
                    }
                }
                SetAction::Claim { .. } => panic!("nothing to claim"),
            }
            self.replicas.ended(self.deployments.now, key, action, Outcome::Done(SetAnswer::Done));
        }
        any
    }

    /// One of the pods that are being created is there.
    fn create_one(&mut self) -> bool {
        if self.creating.is_empty() {
            return false;
        }
        let at = self.dice.roll(self.creating.len());
        let now = self.now();
        let creating = &mut self.creating[at];
        let SetAction::Create { owner, set, names } = &creating.action else { panic!("creates") };
        if let Some(name) = creating.left.pop() {
            let mut pod = set.spec.template.pod(owner, &name);
            merge(&mut pod["metadata"], &json!({ "uid": name, "creationTimestamp": now }));
            pod["status"] = json!({ "phase": "Pending" });
            if !self.stored[PODS].contains_key(&name) {
                self.write(PODS, &name, pod);
            }
            return true;
        }
        let names = names.clone();
        let Creating { key, action, .. } = self.creating.remove(at);
        self.set_holds.insert(key.clone(), (PODS, self.newest(PODS)));
        let done = Outcome::Done(SetAnswer::Created(names, Vec::new()));
        self.replicas.ended(self.deployments.now, &key, action, done);
        true
    }

    /// Something becomes of a pod. Answers whether anything could.
    fn node(&mut self) -> bool {
        let waiting =
            |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_string() || text(pod, "/status/phase") == "Pending";
        let uids: Vec<String> = self.pods().filter(waiting).map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
        if uids.is_empty() {
            return false;
        }
        let uid = &uids[self.dice.roll(uids.len())];
        let mut pod = self.stored[PODS][uid].clone();
        if pod["metadata"]["deletionTimestamp"].is_string() {
            self.remove(PODS, uid);
        } else {
            let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": self.now() });
            pod["status"] = json!({ "phase": "Running", "conditions": [ready] });
            self.write(PODS, uid, pod);
        }
        true
    }

    fn set_keys(&self) -> Vec<SetKey> {
        let uids = self.stored[SETS].keys().map(|uid| Arc::<str>::from(uid.as_str()));
        uids.flat_map(|uid| [SetKey::Pods(Arc::clone(&uid)), SetKey::Status(uid)]).collect()
    }

    /// Anything that can happen happens.
    pub(crate) fn step(&mut self) {
        match self.dice.roll(12) {
            0 | 1 => {
                let (kind, most) = (self.dice.roll(3), self.dice.roll(6));
                self.hear(0, kind, most);
            }
            2 | 3 => {
                let (kind, most) = (1 + self.dice.roll(2), self.dice.roll(6));
                self.hear(1, kind, most);
            }
            4 if self.dice.roll(8) == 0 => {
                let (reader, kind) = (self.dice.roll(2), self.dice.roll(3));
                self.list(reader, kind);
            }
            4 if self.dice.roll(8) == 0 => self.restart(),
            5 | 6 => drop(self.work(&Key::Sets("d".into()))),
            7 => drop(self.work(&Key::Status("d".into()))),
            8 | 9 => {
                let keys = self.set_keys();
                if !keys.is_empty() {
                    let key = keys[self.dice.roll(keys.len())].clone();
                    self.work_on_set(&key);
                }
            }
            10 => drop(self.create_one()),
            11 => drop(self.node()),
            _ => self.deployments.pass(Duration::from_millis(200)),
        }
    }

    /// Everything that is to happen happens, and then nothing does any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2000 {
            for kind in 0..3 {
                self.hear(0, kind, usize::MAX);
                self.hear(1, kind, usize::MAX);
            }
            let mut busy = self.create_one() || self.node();
            busy |= self.work(&Key::Sets("d".into()));
            busy |= self.work(&Key::Status("d".into()));
            for key in self.set_keys() {
                busy |= self.work_on_set(&key);
            }
            let unheard = (0..2).any(|reader| {
                (0..3).any(|kind| {
                    let from = self.readers[reader].at[kind];
                    self.events
                        .iter()
                        .skip(from)
                        .any(|event| event.kind == kind && (reader == 0 || kind != DEPLOYMENTS))
                })
            });
            if !busy && !unheard {
                return;
            }
        }
        panic!("seed {}: it never rests: {:#}", self.seed, self.deployment())
    }
}
