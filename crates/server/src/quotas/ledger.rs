//! What the stored objects of one kind in one namespace cost together, kept up with the store change by change.
//!
//! Nothing here is written anywhere: it begins with a list, and whoever missed a change begins again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::Kind;
use api::amounts::Amounts;
use api::quota::{Cost, Quota};
use futures::FutureExt as _;
use jiff::Timestamp;
use store::{Change, Object, Store, Watch, WatchEnd};

/// How many ways to choose among objects are added up at once. Few namespaces have more than one.
const SUMS_MOST: usize = 16;

/// One kind in one namespace.
pub(super) struct Ledger {
    kind: Arc<Kind>,
    watch: Watch,
    entries: HashMap<Arc<str>, Entry>,
    /// When entries begin to cost less by themselves.
    ends: BTreeSet<(Timestamp, Arc<str>)>,
    /// What all entries cost that a quota counts, by how it chooses among them.
    sums: HashMap<String, Sum>,
}

struct Entry {
    cost: Cost,
    /// It costs what it costs after its end.
    ended: bool,
}

impl Entry {
    fn amounts(&self) -> &Amounts {
        self.cost.at(if self.ended { Timestamp::MAX } else { Timestamp::MIN })
    }
}

struct Sum {
    /// A quota that chooses this way.
    chooser: Quota,
    total: Amounts,
}

impl Ledger {
    /// With everything that is stored now.
    pub(super) fn open(store: &Store, kind: &Arc<Kind>, namespace: &str) -> Self {
        let (page, watch) = store.list_and_watch(kind.collection(), namespace);
        let mut ledger = Self {
            kind: Arc::clone(kind),
            watch,
            entries: HashMap::new(),
            ends: BTreeSet::new(),
            sums: HashMap::new(),
        };
        page.items.iter().for_each(|object| ledger.put(object));
        ledger
    }

    /// Takes over everything that has been stored, and what time has done.
    pub(super) fn catch_up(&mut self, store: &Store, namespace: &str, now: Timestamp) {
        while let Some(next) = self.watch.next().now_or_never() {
            match next {
                Some(Change::Added(object) | Change::Modified { after: object, .. }) => self.put(&object),
                Some(Change::Deleted { last, .. }) => self.remove(&last.key.name),
                None if self.watch.end() == Some(WatchEnd::Lagged) => {
                    *self = Self::open(store, &Arc::clone(&self.kind), namespace);
                }
                None => break,
            }
        }
        while self.ends.first().is_some_and(|(end, _)| *end < now)
            && let Some((_, name)) = self.ends.pop_first()
        {
            self.end(&name);
        }
    }

    fn put(&mut self, object: &Object) {
        let name = &object.key.name;
        self.remove(name);
        let cost = Cost::of(&self.kind, &object.value());
        if let Some(until) = cost.until() {
            self.ends.insert((until, Arc::clone(name)));
        }
        let entry = Entry { cost, ended: false };
        self.counting(&entry, |total, amounts| total.add(amounts));
        self.entries.insert(Arc::clone(name), entry);
    }

    fn remove(&mut self, name: &Arc<str>) {
        let Some(entry) = self.entries.remove(name) else { return };
        if let Some(until) = entry.cost.until() {
            self.ends.remove(&(until, Arc::clone(name)));
        }
        self.counting(&entry, |total, amounts| total.subtract(amounts));
    }

    fn end(&mut self, name: &Arc<str>) {
        let Some(mut entry) = self.entries.remove(name) else { return };
        self.counting(&entry, |total, amounts| total.subtract(amounts));
        entry.ended = true;
        self.counting(&entry, |total, amounts| total.add(amounts));
        self.entries.insert(Arc::clone(name), entry);
    }

    fn counting(&mut self, entry: &Entry, change: impl Fn(&mut Amounts, &Amounts)) {
        for sum in self.sums.values_mut().filter(|sum| sum.chooser.counts(&entry.cost)) {
            change(&mut sum.total, entry.amounts());
        }
    }

    /// What everything costs that `quota` counts.
    pub(super) fn total(&mut self, quota: &Quota) -> Amounts {
        let choice = quota.choice();
        if let Some(sum) = self.sums.get(&choice) {
            return sum.total.clone();
        }
        if self.sums.len() >= SUMS_MOST {
            self.sums.clear();
        }
        let mut total = Amounts::default();
        let counted = self.entries.values().filter(|entry| quota.counts(&entry.cost));
        counted.for_each(|entry| total.add(entry.amounts()));
        self.sums.insert(choice, Sum { chooser: quota.clone(), total: total.clone() });
        total
    }

    /// What the object called `name` takes of `quota`, if it is there.
    pub(super) fn of(&self, name: &str, quota: &Quota) -> Option<&Amounts> {
        self.entries.get(name).filter(|entry| quota.counts(&entry.cost)).map(Entry::amounts)
    }

    /// When the next of them costs less by itself.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};
    use store::{Expect, Key, Step};

    use super::*;
    use crate::state::core_kind;

    async fn put(store: &Store, name: &str, value: Value) {
        let key = Key::new("pods", "a", name);
        let expect = store.get(&key).map_or(Expect::Absent, |object| Expect::Revision(object.revision));
        store.write(&key, expect, vec![Step::Put { key: key.clone(), value }]).await.unwrap();
    }

    async fn delete(store: &Store, name: &str) {
        let key = Key::new("pods", "a", name);
        let revision = store.get(&key).unwrap().revision;
        store.write(&key, Expect::Revision(revision), vec![Step::Delete { key: key.clone() }]).await.unwrap();
    }

    fn pod(cpu: usize, phase: &str, leaves: Option<&str>, best_effort: bool) -> Value {
        let requests = if best_effort { json!({}) } else { json!({ "cpu": format!("{cpu}m") }) };
        let mut pod = json!({ "metadata": {}, "status": { "phase": phase },
            "spec": { "containers": [{ "name": "app", "resources": { "requests": requests } }] } });
        if let Some(leaves) = leaves {
            pod["metadata"] = json!({ "deletionTimestamp": leaves, "deletionGracePeriodSeconds": 1 });
        }
        pod
    }

    /// Whatever happens in whatever order, the sums are those of a ledger that was opened just now.
    #[tokio::test]
    async fn a_ledger_that_follows_says_what_a_new_one_says() {
        let dir = tempfile::tempdir().unwrap();
        let window = store::Window { changes: 40, ..store::Window::default() };
        let store = Store::open_with(&dir.path().join("store"), window).await.unwrap();
        let quota = |scopes: Value| Quota::of(&json!({ "spec": { "hard": { "pods": "9" }, "scopes": scopes } }));
        let quotas = [quota(json!([])), quota(json!(["BestEffort"])), quota(json!(["NotBestEffort"]))];
        let mut ledger = Ledger::open(&store, core_kind("pods"), "a");
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for round in 0..400 {
            let name = format!("p{}", random(12));
            let there = store.get(&Key::new("pods", "a", name.as_str())).is_some();
            if there && random(3) == 0 {
                delete(&store, &name).await;
            } else {
                let phase = ["Pending", "Running", "Succeeded"][random(3)];
                let leaves = [None, Some("2025-12-31T23:59:00Z"), Some("2026-01-01T00:05:00Z")][random(3)];
                put(&store, &name, pod(1 + random(500), phase, leaves, random(2) == 0)).await;
            }
            // Now and then for longer than the store remembers what happened.
            if random(4) == 0 || round % 100 == 99 {
                let at = if round < 200 { now } else { "2026-01-01T00:06:00Z".parse().unwrap() };
                ledger.catch_up(&store, "a", at);
                let mut fresh = Ledger::open(&store, core_kind("pods"), "a");
                fresh.catch_up(&store, "a", at);
                for quota in &quotas {
                    let followed = quota.used(api::Registry::built_in(), &ledger.total(quota));
                    assert_eq!(followed, quota.used(api::Registry::built_in(), &fresh.total(quota)), "after {round}");
                }
                assert_eq!(ledger.next_end(), fresh.next_end());
            }
        }
        for _ in 0..60 {
            put(&store, "p0", pod(1 + random(500), "Running", None, false)).await;
        }
        let later: Timestamp = "2026-01-01T00:06:00Z".parse().unwrap();
        ledger.catch_up(&store, "a", later);
        let mut fresh = Ledger::open(&store, core_kind("pods"), "a");
        fresh.catch_up(&store, "a", later);
        assert_eq!(ledger.total(&quotas[0]).get("requests.cpu"), fresh.total(&quotas[0]).get("requests.cpu"));
    }
}
