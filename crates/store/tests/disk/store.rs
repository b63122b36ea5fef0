//! What a store promises while it runs, and across an orderly restart.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use serde_json::json;
use store::{
    Change, Expect, HistoryError, Key, Refusal, Revision, Step, Store, TransactError, Watch, WatchEnd, Window,
    WriteError,
};
use tempfile::TempDir;

async fn open() -> (TempDir, Store) {
    open_with(Window::default()).await
}

async fn open_with(window: Window) -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_with(&directory.path().join("store"), window).await.unwrap();
    (directory, store)
}

#[tokio::test]
async fn an_object_carries_its_revision_in_both_forms() {
    let (_directory, store) = open().await;
    let key = pod("default", "web");
    let changes = store.write(&key, Expect::Absent, put(&key, 1)).await.unwrap();
    let object = store.get(&key).unwrap();
    assert!(matches!(&changes[..], [Change::Added(added)] if Arc::ptr_eq(added, &object)));
    assert_eq!(object.revision, store.revision());
    assert_eq!(object.value()["metadata"]["resourceVersion"], json!(object.revision.to_string()));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&object.json).unwrap(), *object.value());
    assert!(object.json.starts_with(b"{") && object.json.ends_with(b"}"));
}

#[tokio::test]
async fn a_write_that_expects_something_else_is_told_what_is_there() {
    let (_directory, store) = open().await;
    let key = pod("default", "web");
    let missing = store.write(&key, Expect::Revision(Revision(7)), put(&key, 1)).await;
    assert!(matches!(missing, Err(WriteError::Conflict(None))));
    let first = set(&store, &key, 1).await;
    let second = set(&store, &key, 2).await;
    for expect in [Expect::Absent, Expect::Revision(first)] {
        match store.write(&key, expect, put(&key, 3)).await {
            Err(WriteError::Conflict(Some(stored))) => assert_eq!(stored.revision, second),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.revision(), second, "a conflict gives out no revision");
}

#[tokio::test]
async fn a_put_that_changes_nothing_gives_out_no_revision() {
    let (_directory, store) = open().await;
    let key = pod("default", "web");
    let revision = set(&store, &key, 1).await;
    let mut watch = store.watch("pods", "", None).unwrap();
    let mut again = value(&key, 1);
    again["metadata"]["resourceVersion"] = json!("whatever the client sent");
    let steps = vec![Step::Put { key: key.clone(), value: again }];
    assert!(store.write(&key, Expect::Revision(revision), steps).await.unwrap().is_empty());
    assert_eq!(store.revision(), revision);
    let next = set(&store, &key, 2).await;
    assert_eq!(soon(&mut watch).await.revision(), next, "and no change");
}

/// The two writes of a grace 0 delete share a commit here, and watchers see both.
#[tokio::test]
async fn removal_after_a_mark_has_a_revision_of_its_own() {
    let (directory, store) = open().await;
    let key = pod("default", "web");
    let added = set(&store, &key, 1).await;
    let mut watch = store.watch("pods", "default", None).unwrap();
    let expects = vec![(key.clone(), Expect::Revision(added))];
    let changes = store.transact_then_delete(expects, put(&key, 2), key.clone()).await.unwrap();
    assert_eq!(changes.iter().map(told).collect::<Vec<_>>(), ["~web@3", "-web@4"]);
    assert_eq!(told(&soon(&mut watch).await), "~web@3");
    match soon(&mut watch).await {
        Change::Deleted { before, last } => {
            assert_eq!((before.revision, last.revision), (Revision(3), Revision(4)));
            assert_eq!(last.value()["metadata"]["resourceVersion"], json!("4"));
            assert_eq!(n_of(&last), 2, "the last stored state");
        }
        other @ (Change::Added(_) | Change::Modified { .. }) => panic!("{other:?}"),
    }
    assert!(store.get(&key).is_none());
    drop((watch, store));
    let store = Store::open(&directory.path().join("store")).await.unwrap();
    assert!(store.get(&key).is_none());
    assert_eq!(store.revision(), Revision(4));
}

#[tokio::test]
async fn a_delete_of_nothing_changes_nothing() {
    let (_directory, store) = open().await;
    let key = pod("default", "web");
    assert!(store.write(&key, Expect::Absent, delete(&key)).await.unwrap().is_empty());
    assert_eq!(store.revision(), Revision::FIRST);
}

#[tokio::test]
#[should_panic(expected = "one key")]
async fn a_write_concerns_one_key() {
    let (_directory, store) = open().await;
    let _ = store.write(&pod("default", "a"), Expect::Absent, put(&pod("default", "b"), 1)).await;
}

#[tokio::test]
async fn a_transaction_over_several_keys_happens_whole_or_not_at_all() {
    let (directory, store) = open().await;
    let (web, budget, namespace) =
        (pod("default", "web"), Key::new("budgets", "default", "web"), Key::new("namespaces", "", "default"));
    let expected = set(&store, &namespace, 1).await;
    let expects = |revision| {
        let absent = [&web, &budget].map(|key| (key.clone(), Expect::Absent));
        absent.into_iter().chain([(namespace.clone(), Expect::Revision(revision))]).collect::<Vec<_>>()
    };
    let steps = || [put(&web, 1), put(&budget, 1)].concat();
    // The namespace is only looked at, and still decides.
    let newest = set(&store, &namespace, 2).await;
    match store.transact(expects(expected), steps()).await {
        Err(TransactError::Conflict { key, found: Some(found) }) => {
            assert_eq!((key, found.revision), (namespace.clone(), newest));
        }
        other => panic!("{other:?}"),
    }
    assert!(store.get(&web).is_none() && store.get(&budget).is_none());
    let mut watch = store.watch("pods", "", None).unwrap();
    let changes = store.transact(expects(newest), steps()).await.unwrap();
    assert_eq!(changes.iter().map(told).collect::<Vec<_>>(), ["+web@4", "+web@5"]);
    assert_eq!(told(&soon(&mut watch).await), "+web@4");
    match store.transact(expects(newest), steps()).await {
        Err(TransactError::Conflict { key, .. }) => assert_eq!(key, web),
        other => panic!("{other:?}"),
    }
    drop((watch, store));
    let store = Store::open(&directory.path().join("store")).await.unwrap();
    assert_eq!((n_of(&store.get(&web).unwrap()), n_of(&store.get(&budget).unwrap())), (1, 1));
}

#[tokio::test]
async fn a_transaction_writes_one_object_of_a_collection() {
    let (_directory, store) = open().await;
    let (a, b) = (pod("a", "a"), pod("a", "b"));
    match store.transact(vec![], [put(&a, 1), put(&b, 1)].concat()).await {
        Err(TransactError::Refused(refusal)) => assert_eq!(refusal, Refusal::SameCollection { key: a, other: b }),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.revision(), Revision::FIRST);
}

#[tokio::test]
async fn a_list_is_in_key_order_and_knows_namespaces() {
    let (_directory, store) = open().await;
    for key in [pod("b", "x"), pod("a", "y"), pod("a", "x"), pod("ab", "x"), Key::new("nodes", "", "n")] {
        set(&store, &key, 1).await;
    }
    let list = |collection, namespace| {
        let page = store.list(collection, namespace, None).unwrap();
        assert_eq!(page.revision, store.revision());
        page.items.iter().map(|object| object.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list("pods", ""), ["pods/a/x", "pods/a/y", "pods/ab/x", "pods/b/x"]);
    assert_eq!(list("pods", "a"), ["pods/a/x", "pods/a/y"]);
    assert_eq!(list("nodes", ""), ["nodes/n"]);
    assert_eq!(list("pods", "c"), [""; 0]);
    assert_eq!(list("pod", ""), [""; 0]);
}

/// A story with additions, changes, removals, and a second collection in between.
async fn story(store: &Store) -> BTreeMap<Revision, Vec<(String, u64)>> {
    let mut states = BTreeMap::from([(store.revision(), names(&store.list("pods", "", None).unwrap().items))]);
    for round in 0..40_u64 {
        let key = pod(if round % 3 == 0 { "a" } else { "b" }, &format!("p{}", round % 7));
        if round % 5 == 4 && store.get(&key).is_some() {
            remove(store, &key).await;
        } else {
            set(store, &key, round).await;
        }
        states.insert(store.revision(), names(&store.list("pods", "", None).unwrap().items));
        set(store, &Key::new("nodes", "", "n"), round).await;
        states.insert(store.revision(), names(&store.list("pods", "", None).unwrap().items));
    }
    states
}

#[tokio::test]
async fn a_list_at_a_revision_is_what_was_there() {
    let (directory, store) = open().await;
    let states = story(&store).await;
    let check = |store: &Store| {
        for (revision, expected) in &states {
            let page = store.list("pods", "", Some(*revision)).unwrap();
            assert_eq!((page.revision, &names(&page.items)), (*revision, expected));
            let page = store.list("pods", "a", Some(*revision)).unwrap();
            let expected: Vec<_> = expected.iter().filter(|(key, _)| key.starts_with("pods/a/")).cloned().collect();
            assert_eq!(names(&page.items), expected);
        }
    };
    check(&store);
    drop(store);
    check(&Store::open(&directory.path().join("store")).await.unwrap());
}

#[tokio::test]
async fn a_watch_resumes_from_every_revision_exactly_once_in_order() {
    async fn check(store: &Store, all: &[Change]) {
        for from in (Revision::FIRST.0..=store.revision().0).map(Revision) {
            for namespace in ["", "a"] {
                let expected = all.iter().filter(|change| change.revision() > from);
                let expected = expected.filter(|change| namespace.is_empty() || &*change.key().namespace == namespace);
                let mut watch = store.watch("pods", namespace, Some(from)).unwrap();
                for expected in expected {
                    assert_eq!(told(&soon(&mut watch).await), told(expected));
                }
                assert_eq!(watch.progress(), store.revision(), "and no more");
            }
        }
    }
    let (directory, store) = open().await;
    let mut live = store.watch("pods", "", None).unwrap();
    story(&store).await;
    let newest = set(&store, &pod("z", "last"), 1).await;
    let mut all = Vec::new();
    while all.last().map(Change::revision) != Some(newest) {
        all.push(soon(&mut live).await);
    }
    check(&store, &all).await;
    drop((live, store));
    check(&Store::open(&directory.path().join("store")).await.unwrap(), &all).await;
}

#[tokio::test]
async fn a_list_and_watch_has_no_gap() {
    let (_directory, store) = open().await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 0..300 {
                set(&store, &pod("default", &format!("p{}", n % 10)), n).await;
            }
        }
    });
    while !writer.is_finished() {
        let (page, mut watch) = store.list_and_watch("pods", "default");
        let mut known: BTreeMap<_, _> = names(&page.items).into_iter().collect();
        let mut at = page.revision;
        for _ in 0..20 {
            let Ok(Some(change)) = tokio::time::timeout(Duration::from_millis(200), watch.next()).await else { break };
            assert_eq!(change.revision().0, at.0 + 1, "every revision is a change of this collection");
            at = change.revision();
            known.insert(change.key().to_string(), n_of(change.object()));
            let then = store.list("pods", "default", Some(at)).unwrap();
            assert_eq!(names(&then.items), known.clone().into_iter().collect::<Vec<_>>());
        }
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn every_watcher_is_given_the_same_object() {
    let (_directory, store) = open().await;
    let mut watches: Vec<Watch> = (0..50).map(|_| store.watch("pods", "", None).unwrap()).collect();
    set(&store, &pod("default", "web"), 1).await;
    let stored = store.get(&pod("default", "web")).unwrap();
    for watch in &mut watches {
        assert!(Arc::ptr_eq(soon(watch).await.object(), &stored));
    }
}

#[tokio::test]
async fn a_watcher_that_is_too_slow_is_ended_and_keeps_nothing_alive() {
    let (_directory, store) = open_with(SMALL).await;
    let key = pod("default", "web");
    let mut slow = store.watch("pods", "", None).unwrap();
    let mut quick = store.watch("pods", "", None).unwrap();
    set(&store, &key, 0).await;
    let forgotten = Arc::downgrade(&store.get(&key).unwrap());
    for n in 1..=100 {
        set(&store, &key, n).await;
        soon(&mut quick).await;
    }
    assert!(forgotten.upgrade().is_none(), "an unread change is not kept for the slow one");
    assert!(tokio::time::timeout(Duration::from_secs(30), slow.next()).await.unwrap().is_none());
    assert!(slow.next().await.is_none(), "and it stays ended");
    assert_eq!((slow.end(), quick.end()), (Some(WatchEnd::Lagged), None));
    soon(&mut quick).await;
}

#[tokio::test]
async fn a_quiet_collection_stays_watchable_while_a_busy_one_moves_on() {
    let (directory, store) = open_with(SMALL).await;
    let quiet = set(&store, &Key::new("nodes", "", "n"), 1).await;
    let mut watch = store.watch("nodes", "", Some(quiet)).unwrap();
    for n in 0..100 {
        set(&store, &pod("default", "web"), n).await;
    }
    assert_eq!(watch.progress(), store.revision());
    assert!(matches!(store.watch("pods", "", Some(quiet)), Err(HistoryError::Compacted { .. })));
    store.watch("nodes", "", Some(quiet)).unwrap();
    let next = set(&store, &Key::new("nodes", "", "n"), 2).await;
    assert_eq!(soon(&mut watch).await.revision(), next);
    drop((watch, store));
    Store::open_with(&directory.path().join("store"), SMALL).await.unwrap();
}

#[tokio::test]
async fn watch_history_is_bounded_by_count_and_bytes() {
    for window in [SMALL, Window { changes: usize::MAX, bytes: 8 * (64 + 256 + 4 * 80), age: std::time::Duration::MAX }]
    {
        let (directory, store) = open_with(window).await;
        for n in 0..50 {
            set(&store, &pod("default", "web"), n).await;
        }
        let newest = store.revision();
        let oldest = match store.list("pods", "", Some(Revision(2))) {
            Err(HistoryError::Compacted { asked: Revision(2), oldest }) => oldest,
            other => panic!("{other:?}"),
        };
        assert!((4..=16).contains(&(newest.0 - oldest.0)), "{oldest} to {newest}");
        store.list("pods", "", Some(oldest)).unwrap();
        store.watch("pods", "", Some(oldest)).unwrap();
        assert!(store.watch("pods", "", Some(Revision(oldest.0 - 1))).is_err());
        drop(store);
        let store = Store::open_with(&directory.path().join("store"), window).await.unwrap();
        assert_eq!(store.list("pods", "", Some(oldest)).unwrap().items.len(), 1, "the same past after a restart");
        assert!(store.watch("pods", "", Some(Revision(oldest.0 - 2))).is_err());
    }
}

#[tokio::test]
async fn revision_from_the_future_is_refused() {
    let (_directory, store) = open().await;
    let newest = store.revision();
    let asked = Revision(newest.0 + 1);
    assert!(matches!(store.list("pods", "", Some(asked)), Err(HistoryError::Future { newest: n, .. }) if n == newest));
    assert!(matches!(store.watch("pods", "", Some(asked)), Err(HistoryError::Future { .. })));
}

#[tokio::test]
async fn progress_is_what_a_bookmark_may_promise() {
    let (_directory, store) = open().await;
    let start = store.revision();
    let mut watch = store.watch("pods", "a", None).unwrap();
    assert_eq!(watch.progress(), start);
    let elsewhere = set(&store, &pod("b", "x"), 1).await;
    assert_eq!(watch.progress(), elsewhere, "nothing of ours came before it");
    let first = set(&store, &pod("a", "x"), 1).await;
    let second = set(&store, &pod("a", "x"), 2).await;
    assert_eq!(watch.progress(), Revision(first.0 - 1));
    soon(&mut watch).await;
    assert_eq!(watch.progress(), Revision(second.0 - 1));
    soon(&mut watch).await;
    assert_eq!(watch.progress(), second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_of_one_key_each_win_once() {
    let (_directory, store) = open().await;
    let key = pod("default", "counter");
    set(&store, &key, 0).await;
    let mut watch = store.watch("pods", "", None).unwrap();
    let writers: Vec<_> = (0..64)
        .map(|_| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                loop {
                    let stored = store.get(&key).unwrap();
                    let steps = put(&key, n_of(&stored) + 1);
                    match store.write(&key, Expect::Revision(stored.revision), steps).await {
                        Ok(changes) => return changes[0].revision(),
                        Err(WriteError::Conflict(Some(_))) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    let mut revisions = BTreeSet::new();
    for writer in writers {
        assert!(revisions.insert(writer.await.unwrap()));
    }
    assert_eq!(n_of(&store.get(&key).unwrap()), 64, "no increment was lost");
    for n in 1..=64 {
        assert_eq!(n_of(soon(&mut watch).await.object()), n);
    }
}

#[tokio::test]
async fn writes_queued_together_see_each_other() {
    let (_directory, store) = open().await;
    let key = pod("default", "web");
    // Polled in this order by one task, so they reach the queue in this order, most likely in one group.
    let writes = (0..100).map(|n| {
        let (store, key) = (store.clone(), key.clone());
        async move { store.write(&key, Expect::Absent, put(&key, n)).await }
    });
    let mut winners = Vec::new();
    let mut set = tokio::task::JoinSet::new();
    writes.for_each(|write| {
        set.spawn(write);
    });
    while let Some(outcome) = set.join_next().await {
        match outcome.unwrap() {
            Ok(changes) => winners.push(changes),
            Err(WriteError::Conflict(Some(stored))) => assert_eq!(stored.revision, Revision(2)),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_writes_at_once_all_happen_and_all_are_told_in_order() {
    let (directory, store) = open().await;
    let mut watch = store.watch("pods", "", None).unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..200_u64 {
        let store = store.clone();
        writers.spawn(async move {
            for n in 0..10 {
                set(&store, &pod("default", &format!("p{writer}")), n).await;
            }
        });
    }
    let mut last = Revision::FIRST;
    for _ in 0..2000 {
        let change = soon(&mut watch).await;
        assert_eq!(change.revision(), Revision(last.0 + 1));
        last = change.revision();
    }
    while writers.join_next().await.transpose().unwrap().is_some() {}
    let before = names(&store.list("pods", "", None).unwrap().items);
    drop((watch, store));
    let store = Store::open(&directory.path().join("store")).await.unwrap();
    assert_eq!(names(&store.list("pods", "", None).unwrap().items), before);
    assert_eq!(store.revision(), last);
}

#[tokio::test]
async fn revisions_go_on_after_a_restart_even_when_everything_is_deleted() {
    let (directory, store) = open_with(Window { changes: 0, bytes: 0, ..Window::default() }).await;
    let key = pod("default", "web");
    set(&store, &key, 1).await;
    let deleted = remove(&store, &key).await;
    drop(store);
    let path = directory.path().join("store");
    let store = Store::open_with(&path, Window { changes: 0, bytes: 0, ..Window::default() }).await.unwrap();
    assert_eq!(store.revision(), deleted);
    assert_eq!(set(&store, &key, 1).await, Revision(deleted.0 + 1));
}

#[tokio::test]
async fn closing_ends_watches_after_what_they_have_yet_to_read() {
    let (_directory, store) = open().await;
    let mut watch = store.watch("pods", "", None).unwrap();
    let revision = set(&store, &pod("default", "web"), 1).await;
    drop(store);
    assert_eq!(soon(&mut watch).await.revision(), revision);
    ends(&mut watch).await;
}

/// What every request looks at is kept read; a collection that was large for a while is small again afterwards.
#[tokio::test]
async fn a_collection_that_has_become_small_again_is_kept_read() {
    let (_directory, store) = open().await;
    let lasting = Key::new("roles", "", "lasting");
    set(&store, &lasting, 1).await;
    let is_read = || store.get(&lasting).unwrap().parsed().is_some();
    // Displaces what is kept only because it was written last.
    let write_elsewhere = async |round: u64| {
        for n in 0..40 {
            let key = Key::new("elsewhere", "", format!("e{n}"));
            let value = json!({ "metadata": {}, "round": round, "text": "x".repeat(16 << 10) });
            store.write(&key, current(&store, &key), vec![Step::Put { key: key.clone(), value }]).await.unwrap();
        }
    };
    write_elsewhere(1).await;
    assert!(is_read(), "a small collection");
    let bulky: Vec<Key> = (0..40).map(|n| Key::new("roles", "", format!("bulky{n}"))).collect();
    for key in &bulky {
        let value = json!({ "metadata": {}, "text": "x".repeat(16 << 10) });
        store.write(key, Expect::Absent, vec![Step::Put { key: key.clone(), value }]).await.unwrap();
    }
    write_elsewhere(2).await;
    assert!(!is_read(), "a large one");
    for key in &bulky {
        remove(&store, key).await;
    }
    write_elsewhere(3).await;
    assert!(is_read(), "a small one again");
}
