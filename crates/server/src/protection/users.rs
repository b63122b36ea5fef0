//! Which pods use which claims, known for as long as a claim waits for it.
//!
//! All pods are looked through once; from then on their changes are followed. A question first takes in what has happened up to
//! now, so its answer is as true as one that looks through all pods again.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use serde_json::Value;
use store::{Change, Key, Object, Store, Watch};

use crate::state::core_kind;

/// Pods by the claims that they use.
pub(super) struct Users {
    pods: Watch,
    /// By claim, the pods that have a node and name it.
    of: BTreeMap<Key, BTreeSet<Key>>,
    /// The other way round.
    by: BTreeMap<Key, BTreeSet<Key>>,
    /// Claims that lost a user since they were last asked for.
    touched: BTreeSet<Key>,
    /// Nothing more is heard of pods: nobody can say what is unused.
    ended: bool,
}

impl Users {
    pub(super) fn of(store: &Store) -> Self {
        let (page, pods) = store.list_and_watch(core_kind("pods").collection(), "");
        let mut users = Self { pods, of: BTreeMap::new(), by: BTreeMap::new(), touched: BTreeSet::new(), ended: false };
        page.items.iter().for_each(|pod| users.seen(pod));
        users
    }

    /// Waits until something is heard of a pod, for ever if nobody listens. Answers whether more will be.
    pub(super) async fn heard(users: &mut Option<Self>) -> bool {
        let Some(users) = users else { return std::future::pending().await };
        match users.pods.next().await {
            Some(change) => users.changed(&change),
            None => users.ended = true,
        }
        users.catch_up();
        !users.ended
    }

    /// The claims that lost a user since the last time.
    pub(super) fn take_touched(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.touched)
    }

    /// Whether a pod uses `claim`: one that has a node does for as long as it is there, for what has ended may not be unmounted
    /// yet.
    pub(super) fn use_it(&mut self, claim: &Key) -> bool {
        self.catch_up();
        self.ended || self.of.contains_key(claim)
    }

    fn catch_up(&mut self) {
        while !self.ended
            && let Some(next) = self.pods.next().now_or_never()
        {
            match next {
                Some(change) => self.changed(&change),
                None => self.ended = true,
            }
        }
    }

    fn changed(&mut self, change: &Change) {
        match change {
            Change::Added(pod) | Change::Modified { after: pod, .. } => self.seen(pod),
            Change::Deleted { last, .. } => self.uses(&last.key, BTreeSet::new()),
        }
    }

    fn seen(&mut self, pod: &Object) {
        let claims = if names_a_claim(pod) { claims_of(&pod.key, &pod.value()) } else { BTreeSet::new() };
        self.uses(&pod.key, claims);
    }

    fn uses(&mut self, pod: &Key, claims: BTreeSet<Key>) {
        let before = if claims.is_empty() { self.by.remove(pod) } else { self.by.insert(pod.clone(), claims.clone()) };
        for claim in before.into_iter().flatten().filter(|claim| !claims.contains(claim)) {
            if let Some(pods) = self.of.get_mut(&claim) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.of.remove(&claim);
                }
            }
            self.touched.insert(claim);
        }
        for claim in claims {
            self.of.entry(claim).or_default().insert(pod.clone());
        }
    }
}

/// Whether a pod may have a claim at all, by a look at its bytes: most pods have none, and reading them all would take long
/// where there are many.
fn names_a_claim(pod: &Object) -> bool {
    let text = std::str::from_utf8(&pod.json).unwrap_or_default();
    text.contains("\"persistentVolumeClaim\":") || text.contains("\"ephemeral\":")
}

/// The claims that a pod with a node names, and those that were made for it under its name.
fn claims_of(key: &Key, pod: &Value) -> BTreeSet<Key> {
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return BTreeSet::new();
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claim = |volume: &Value| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => Some(claim.to_owned()),
        None if volume["ephemeral"].is_object() => Some(format!("{}-{}", key.name, volume["name"].as_str()?)),
        None => None,
    };
    let kind = core_kind("persistentvolumeclaims");
    volumes.filter_map(claim).map(|name| crate::request::key(kind, &key.namespace, &name)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;
    use store::{Expect, Step};

    use super::*;

    fn claim(name: &str) -> Key {
        crate::request::key(core_kind("persistentvolumeclaims"), "d", name)
    }

    async fn put(store: &Store, name: &str, volume: Value, node: Option<&str>) -> Key {
        let key = crate::request::key(core_kind("pods"), "d", name);
        let mut pod = json!({ "metadata": { "name": name, "namespace": "d" }, "spec": { "volumes": [volume] } });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        let expect = store.get(&key).map_or(Expect::Absent, |old| Expect::Revision(old.revision));
        store.write(&key, expect, vec![Step::Put { key: key.clone(), value: pod }]).await.unwrap();
        key
    }

    #[tokio::test]
    async fn every_change_of_a_pod_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).await.unwrap();
        let named = || json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } });
        let one = put(&store, "one", named(), Some("n1")).await;
        put(&store, "made", json!({ "name": "v", "ephemeral": { "volumeClaimTemplate": {} } }), Some("n1")).await;
        put(&store, "none", json!({ "name": "persistentVolumeClaim", "emptyDir": {} }), Some("n1")).await;
        let mut users = Users::of(&store);
        assert_eq!(["c", "made-v", "none-v", "d"].map(|name| users.use_it(&claim(name))), [true, true, false, false]);
        assert!(users.take_touched().is_empty());

        // Who has no node yet uses nothing; who has one does, also beside another.
        put(&store, "two", named(), None).await;
        let gone = store.get(&one).unwrap().revision;
        store.write(&one, Expect::Revision(gone), vec![Step::Delete { key: one.clone() }]).await.unwrap();
        assert!(!users.use_it(&claim("c")));
        assert_eq!(users.take_touched(), BTreeSet::from([claim("c")]));
        let two = put(&store, "two", named(), Some("n2")).await;
        put(&store, "three", named(), Some("n2")).await;
        assert!(users.use_it(&claim("c")));
        let gone = store.get(&two).unwrap().revision;
        store.write(&two, Expect::Revision(gone), vec![Step::Delete { key: two.clone() }]).await.unwrap();
        assert!(users.use_it(&claim("c")), "somebody is left");
    }
}
