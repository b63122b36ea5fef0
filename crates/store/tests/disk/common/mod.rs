//! What the store's tests share.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::{Change, Expect, Key, Object, Revision, Step, Store, Watch, Window};

/// `pods/<namespace>/<name>`.
pub(crate) fn pod(namespace: &str, name: &str) -> Key {
    Key::new("pods", namespace, name)
}

/// An object that differs with `n`.
pub(crate) fn value(key: &Key, n: u64) -> Value {
    json!({ "metadata": { "name": &*key.name, "namespace": &*key.namespace }, "n": n })
}

/// What `value` put into it.
pub(crate) fn n_of(object: &Object) -> u64 {
    object.value()["n"].as_u64().unwrap()
}

pub(crate) fn put(key: &Key, n: u64) -> Vec<Step> {
    vec![Step::Put { key: key.clone(), value: value(key, n) }]
}

pub(crate) fn delete(key: &Key) -> Vec<Step> {
    vec![Step::Delete { key: key.clone() }]
}

/// What has to be expected of the stored object for a write to succeed now.
pub(crate) fn current(store: &Store, key: &Key) -> Expect {
    store.get(key).map_or(Expect::Absent, |object| Expect::Revision(object.revision))
}

/// Writes `n` whatever is there, and answers the revision.
pub(crate) async fn set(store: &Store, key: &Key, n: u64) -> Revision {
    let changes = store.write(key, current(store, key), put(key, n)).await.unwrap();
    changes.last().unwrap().revision()
}

pub(crate) async fn remove(store: &Store, key: &Key) -> Revision {
    store.write(key, current(store, key), delete(key)).await.unwrap().last().unwrap().revision()
}

/// The next change, which must come.
pub(crate) async fn soon(watch: &mut Watch) -> Change {
    tokio::time::timeout(Duration::from_secs(120), watch.next())
        .await
        .expect("a change comes")
        .expect("the watch goes on")
}

/// The end of the watch, which must come.
pub(crate) async fn ends(watch: &mut Watch) {
    let end = tokio::time::timeout(Duration::from_secs(120), async { while watch.next().await.is_some() {} });
    end.await.expect("the watch ends");
}

/// One word per change: `+a@5`, `~a@6`, `-a@7`.
pub(crate) fn told(change: &Change) -> String {
    let sign = match change {
        Change::Added(_) => '+',
        Change::Modified { .. } => '~',
        Change::Deleted { .. } => '-',
    };
    format!("{sign}{}@{}", change.key().name, change.revision())
}

/// Names with their content.
pub(crate) fn names(items: &[Arc<Object>]) -> Vec<(String, u64)> {
    items.iter().map(|object| (object.key.to_string(), n_of(object))).collect()
}

pub(crate) const SMALL: Window = Window { changes: 8, bytes: usize::MAX, age: std::time::Duration::MAX };
