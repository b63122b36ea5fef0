//! Records of how pods ended, as far as the server has a part in them: those of pods that never had a node, which records a node may
//! write, and how long they are kept.
//!
//! Everything else in a record is its pod's node's to say. Old ones go first: each namespace has room for [`PER_NAMESPACE_MAX`], all
//! of them together for [`TOTAL_MAX`], and none is kept for longer than [`LIFE`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::termination::{
    self, EndedPod, MicroTime, ObjectMeta, Requester, TerminationRecord, TerminationRequest, TerminationStep, step,
};
use api::{DeleteOptions, Kind, Status};
use frame::{Applied, Controller, Effects, Now, Plan};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::{Change, Key, Object};
use tokio_util::sync::CancellationToken;

use crate::background::{self, Seen};
use crate::create::{self, Creation};
use crate::delete;
use crate::request::key;
use crate::state::{State, core_kind};

/// How long a record is kept.
const LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How many records a namespace may have.
const PER_NAMESPACE_MAX: usize = 500;
/// How many there may be in all.
const TOTAL_MAX: usize = 2000;
/// Where there are too many, this share of them goes, so that not every new one costs an old one.
const SPARE: usize = 10;
/// Most records removed in one go, so that a flood does not hold up other writers.
const BATCH: usize = 500;

/// The row of the kind.
pub(crate) fn kind() -> &'static Arc<Kind> {
    api::built_in(termination::GROUP, termination::VERSION, termination::PLURAL).expect("the table of kinds has it")
}

/// Keeps the record of a pod that goes and never had a node. A record that cannot be written keeps nobody: the pod goes without.
pub(crate) async fn record_pod_without_node(state: &State, pod: &Value, requester: Option<&Requester>) {
    let is_bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let namespace = api::meta::namespace(pod);
    if is_bound || create::check_namespace_takes(state, kind(), namespace, "").is_err() {
        return;
    }
    let record = match serde_json::to_value(record_of(pod, requester, state.now())) {
        Ok(record) => record,
        Err(error) => return tracing::error!(%error, "a record cannot be written as JSON"),
    };
    let creation = Creation { kind: kind(), namespace, manager: None, dry_run: false, is_own: true };
    match create::create(state, &creation, record, &mut Vec::new()).await {
        Ok(_) => {}
        Err(status) if status.reason == "AlreadyExists" => {}
        Err(status) => {
            let pod = api::meta::name(pod);
            tracing::warn!(namespace, pod, error = %status.message, "the end of a pod without a node is not recorded");
        }
    }
}

fn record_of(pod: &Value, requester: Option<&Requester>, now: Timestamp) -> TerminationRecord {
    let (name, uid) = (api::meta::name(pod), api::meta::uid(pod));
    let asked_by = requester.map(|by| termination::bounded(&by.user, 256).to_owned()).unwrap_or_default();
    let asked = TerminationRequest {
        by: asked_by.clone(),
        via: requester.map_or("Delete", |by| by.via).to_owned(),
        grace_period_seconds: Some(0),
        deadline_milliseconds: Some(0),
        ..TerminationRequest::default()
    };
    let deleted = TerminationStep { type_: step::DELETED.to_owned(), ..TerminationStep::default() };
    TerminationRecord {
        metadata: ObjectMeta { name: Some(termination::record_name(name, uid)), ..ObjectMeta::default() },
        pod: EndedPod { name: name.to_owned(), uid: uid.to_owned(), owner: owner(pod) },
        verdict: "clean".to_owned(),
        cause: "Deleted".to_owned(),
        summary: "It never had a node, and nothing of it ever ran.".to_owned(),
        asked_by,
        requests: vec![asked],
        grace_period_seconds: Some(0),
        start_time: Some(MicroTime(now)),
        deadline: Some(MicroTime(now)),
        end_time: Some(MicroTime(now)),
        took_milliseconds: Some(0),
        steps: vec![deleted],
        ..TerminationRecord::default()
    }
}

/// `ReplicaSet/web-5d8`, or nothing.
fn owner(pod: &Value) -> String {
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.into_iter().find(|owner| owner["controller"] == true);
    let word = |owner: &Value, key: &str| owner[key].as_str().unwrap_or_default().to_owned();
    controller.map(|owner| format!("{}/{}", word(owner, "kind"), word(owner, "name"))).unwrap_or_default()
}

/// Whether a node may write this record: it is about a pod that is on that node, or that is gone, and says so.
pub(crate) fn check_node(state: &State, node: &str, namespace: &str, record: &Value) -> Result<(), String> {
    if record["nodeName"] != node {
        return Err(format!("node {node:?} may only write records of its own pods"));
    }
    if namespace.is_empty() {
        return Err(format!("node {node:?} may only write records that say their namespace"));
    }
    let word = |key: &str| record["pod"][key].as_str().unwrap_or_default();
    let Some(pod) = state.store.get(&key(core_kind("pods"), namespace, word("name"))) else { return Ok(()) };
    let pod = pod.value();
    if api::meta::uid(&pod) == word("uid") && pod["spec"]["nodeName"] != node {
        return Err(format!("node {node:?} may only write records of its own pods"));
    }
    Ok(())
}

/// Removes what is too old and what is too much, until `stop`.
pub(crate) async fn expire(state: Arc<State>, stop: CancellationToken) {
    let sources = vec![background::source(&state.store, termination::COLLECTION, "", |seen| seen)];
    background::run("termination-records", (state.clock, stop), Retention::default(), Remove(state), sources).await;
}

/// Those of a namespace by when they were made, then by name.
type ByAge = BTreeMap<(Timestamp, Arc<str>), Key>;

/// Every record there is, by namespace, oldest first.
#[derive(Default, Debug)]
struct Retention {
    kept: BTreeMap<Arc<str>, ByAge>,
    /// When each was made: a change of a record does not make it younger.
    made: BTreeMap<Key, Timestamp>,
}

impl Retention {
    fn add(&mut self, record: &Object) {
        if self.made.contains_key(&record.key) {
            return;
        }
        let key = record.key.clone();
        let made = api::meta::creation_timestamp(&record.value()).unwrap_or(Timestamp::UNIX_EPOCH);
        self.made.insert(key.clone(), made);
        let place = (made, Arc::clone(&key.name));
        self.kept.entry(Arc::clone(&key.namespace)).or_default().insert(place, key);
    }

    fn remove(&mut self, key: &Key) {
        let Some(made) = self.made.remove(key) else { return };
        let Some(own) = self.kept.get_mut(&key.namespace) else { return };
        own.remove(&(made, Arc::clone(&key.name)));
        if own.is_empty() {
            self.kept.remove(&key.namespace);
        }
    }

    /// Who has to go by now, those that went beyond the age first.
    fn surplus(&self, now: Timestamp) -> Vec<Key> {
        let eldest = now.saturating_sub(LIFE).unwrap_or(Timestamp::MIN);
        let mut gone = BTreeMap::new();
        for own in self.kept.values() {
            let aged = own.keys().take_while(|(made, _)| *made <= eldest).count();
            let surplus = aged.max(too_many(own.len(), PER_NAMESPACE_MAX));
            gone.extend(own.iter().take(surplus).map(|((made, _), key)| (key.clone(), *made)));
        }
        let left = self.made.len() - gone.len();
        let mut more = too_many(left, TOTAL_MAX);
        if more > 0 {
            let mut oldest: Vec<(&Timestamp, &Key)> =
                self.made.iter().filter(|(key, _)| !gone.contains_key(*key)).map(|(key, made)| (made, key)).collect();
            oldest.sort_unstable();
            let chosen: Vec<(Key, Timestamp)> =
                oldest.into_iter().take(more).map(|(made, key)| (key.clone(), *made)).collect();
            more -= chosen.len();
            debug_assert_eq!(more, 0, "there are as many as were counted");
            gone.extend(chosen);
        }
        let mut gone: Vec<(Timestamp, Key)> = gone.into_iter().map(|(key, made)| (made, key)).collect();
        gone.sort_unstable_by(|one, other| Reverse(other).cmp(&Reverse(one)));
        gone.into_iter().take(BATCH).map(|(_, key)| key).collect()
    }

    fn oldest(&self) -> Option<Timestamp> {
        self.kept.values().filter_map(|own| own.keys().next()).map(|(made, _)| *made).min()
    }
}

/// How many of so many have to go; with those, some that would have to go soon.
fn too_many(count: usize, most: usize) -> usize {
    if count > most { count - (most - most / SPARE) } else { 0 }
}

impl Controller for Retention {
    type Input = Seen;
    type Key = ();
    type Action = Vec<Key>;
    type Answer = ();

    fn observe(&mut self, _: Now, seen: Seen) -> Vec<()> {
        match seen {
            Seen::All(all) => {
                *self = Self::default();
                all.iter().for_each(|record| self.add(record));
            }
            Seen::One(Change::Added(record) | Change::Modified { after: record, .. }) => self.add(&record),
            Seen::One(Change::Deleted { last, .. }) => self.remove(&last.key),
        }
        vec![()]
    }

    fn plan(&self, (): &(), now: Now) -> Plan<Vec<Key>> {
        let surplus = self.surplus(now.timestamp);
        if !surplus.is_empty() {
            return Plan::act(surplus);
        }
        let Some(oldest) = self.oldest() else { return Plan::default() };
        let due = oldest.saturating_add(LIFE).unwrap_or(Timestamp::MAX);
        Plan::wait(now.at(due), "the oldest record has been kept for long enough")
    }
}

struct Remove(Arc<State>);

impl Effects<Retention> for Remove {
    type Error = Status;

    async fn apply(&self, (): &(), records: &Vec<Key>) -> Result<Applied<()>, Status> {
        for record in records {
            match delete::delete(&self.0, kind(), record, &DeleteOptions::default()).await {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        Ok(Applied::new(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    fn keep(retention: &mut Retention, namespace: &str, name: &str, made: Timestamp) {
        let key = key(kind(), namespace, name);
        retention.made.insert(key.clone(), made);
        let own = retention.kept.entry(Arc::clone(&key.namespace)).or_default();
        own.insert((made, Arc::clone(&key.name)), key);
    }

    fn names(surplus: &[Key]) -> Vec<&str> {
        surplus.iter().map(|key| &*key.name).collect()
    }

    #[test]
    fn record_goes_when_it_is_a_week_old() {
        let mut retention = Retention::default();
        keep(&mut retention, "a", "old", at(0));
        keep(&mut retention, "a", "new", at(10));
        assert!(retention.surplus(at(7 * 86_400 - 1)).is_empty());
        assert_eq!(names(&retention.surplus(at(7 * 86_400))), ["old"]);
        let now = Now { instant: tokio::time::Instant::now(), timestamp: at(0) };
        let wake = retention.plan(&(), now).wake.unwrap();
        assert_eq!(wake.at, now.at(at(7 * 86_400)));
    }

    #[test]
    fn namespace_with_too_many_records_loses_its_oldest_and_others_keep_theirs() {
        let mut retention = Retention::default();
        keep(&mut retention, "quiet", "first", at(-100));
        for number in 0..=PER_NAMESPACE_MAX {
            keep(&mut retention, "busy", &format!("r{number:04}"), at(number as i64));
        }
        let surplus = retention.surplus(at(1000));
        assert_eq!(
            surplus.len(),
            1 + PER_NAMESPACE_MAX / SPARE,
            "some more, so that not every new one costs an old one"
        );
        assert_eq!((&*surplus[0].name, &*surplus[0].namespace), ("r0000", "busy"));
        surplus.iter().for_each(|key| retention.remove(key));
        assert!(retention.surplus(at(1000)).is_empty());
        assert_eq!(retention.oldest(), Some(at(-100)));
    }

    #[test]
    fn records_of_many_namespaces_are_bounded_together() {
        let mut retention = Retention::default();
        for number in 0..=TOTAL_MAX {
            keep(&mut retention, &format!("n{number}"), "r", at(number as i64));
        }
        let surplus = retention.surplus(at(5000));
        assert_eq!(surplus.len(), 1 + TOTAL_MAX / SPARE);
        assert_eq!(&*surplus[0].namespace, "n0");
    }

    #[test]
    fn flood_of_records_is_removed_in_portions() {
        let mut retention = Retention::default();
        for number in 0..3 * BATCH {
            keep(&mut retention, "busy", &format!("r{number:04}"), at(0));
        }
        assert_eq!(retention.surplus(at(8 * 86_400)).len(), BATCH);
    }
}
