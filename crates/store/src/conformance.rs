//! What every log has to do, whoever keeps it: one suite, run over the embedded log and over a model of etcd.
//!
//! A third log is another `Subject` and one more line at the end. What a log cannot be made to do (an answer that gets
//! lost, a stranger who writes) it says by answering `false`, and that part of a story is left out for it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod remote;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::bounds::SIZE_MAX;
use serde_json::{Value, json};

use crate::embedded::Embedded;
use crate::{
    Change, Encryption, Expect, HistoryError, Key, OPERATIONS_MAX, Refusal, Revision, Step, Store, TransactError,
    Watch, WatchEnd, Window,
};
use remote::{Operation, Remote};

/// Longer than any machine takes.
const LONG: Duration = Duration::from_secs(120);

/// A log under test.
trait Subject: Sync {
    /// Opens it, with everything it was told to keep.
    fn open(&self, window: Window) -> Store;
    /// The process ends without a word, with `store` open.
    fn crash(&self, store: Store);
    /// Whether all steps of a transaction have one revision.
    fn shares_revisions(&self) -> bool;
    /// Loses the answers to the next tries, which happen all the same.
    fn lose_answers(&self, _count: usize) -> bool {
        false
    }
    /// Somebody else writes all of `operations` at one revision.
    fn stranger_writes(&self, _operations: &[Operation]) -> bool {
        false
    }
    /// Somebody else does `operation` right before the next removal.
    fn stranger_before_removal(&self, _operation: Operation) -> bool {
        false
    }
    /// Forgets what was before now, and shows it to whoever opens the log next.
    fn compact(&self) -> bool {
        false
    }
}

/// The log in a folder.
struct InFolder {
    _all: tempfile::TempDir,
    now: Mutex<PathBuf>,
}

impl InFolder {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        Self { now: Mutex::new(all.path().join("store")), _all: all }
    }
}

impl Subject for InFolder {
    fn open(&self, window: Window) -> Store {
        let (log, view) = Embedded::open(&self.now.lock().unwrap(), window, &Encryption::default()).unwrap();
        Store::over(Box::new(log), view)
    }

    /// What is in the files at that moment is all there is.
    fn crash(&self, store: Store) {
        let mut now = self.now.lock().unwrap();
        let next = now.parent().unwrap().join(format!("{}-again", now.file_name().unwrap().display()));
        std::fs::create_dir(&next).unwrap();
        for file in std::fs::read_dir(&*now).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), next.join(file.file_name())).unwrap();
        }
        drop(store);
        *now = next;
    }

    fn shares_revisions(&self) -> bool {
        false
    }
}

/// The log kept by others.
#[derive(Default)]
struct OverRemote(Arc<Remote>);

impl Subject for OverRemote {
    fn open(&self, window: Window) -> Store {
        self.0.open(window)
    }

    fn crash(&self, store: Store) {
        drop(store);
    }

    fn shares_revisions(&self) -> bool {
        true
    }

    fn lose_answers(&self, count: usize) -> bool {
        self.0.lose_answers(count);
        true
    }

    fn stranger_writes(&self, operations: &[Operation]) -> bool {
        self.0.write(operations);
        true
    }

    fn stranger_before_removal(&self, operation: Operation) -> bool {
        self.0.before_delete(operation);
        true
    }

    fn compact(&self) -> bool {
        self.0.compact();
        true
    }
}

fn pod(name: &str) -> Key {
    Key::new("pods", "default", name)
}

fn budget(name: &str) -> Key {
    Key::new("budgets", "default", name)
}

fn value(n: u64) -> Value {
    json!({ "metadata": {}, "n": n })
}

fn put(key: &Key, n: u64) -> Step {
    Step::Put { key: key.clone(), value: value(n) }
}

fn delete(key: &Key) -> Step {
    Step::Delete { key: key.clone() }
}

fn n_of(store: &Store, key: &Key) -> Option<u64> {
    store.get(key).and_then(|object| object.value()["n"].as_u64())
}

fn current(store: &Store, key: &Key) -> Expect {
    store.get(key).map_or(Expect::Absent, |object| Expect::Revision(object.revision))
}

/// Writes `n`, whatever is there.
async fn set(store: &Store, key: &Key, n: u64) -> Revision {
    store.write(key, current(store, key), vec![put(key, n)]).await.unwrap()[0].revision()
}

/// `+a`, `~a`, `-a`.
fn told(change: &Change) -> String {
    let sign = match change {
        Change::Added(_) => '+',
        Change::Modified { .. } => '~',
        Change::Deleted { .. } => '-',
    };
    format!("{sign}{}", change.key().name)
}

async fn soon(watch: &mut Watch) -> Change {
    tokio::time::timeout(LONG, watch.next()).await.expect("a change comes").expect("the watch goes on")
}

/// The next `count` changes.
async fn take(watch: &mut Watch, count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    while changes.len() < count {
        changes.push(soon(watch).await);
    }
    changes
}

async fn expectation_that_does_not_hold_changes_nothing_and_says_what_is_stored(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let (a, b) = (pod("a"), budget("b"));
    let first = set(&store, &a, 1).await;
    let second = set(&store, &a, 2).await;
    let cases = [
        (vec![(a.clone(), Expect::Absent)], Some(second)),
        (vec![(a.clone(), Expect::Revision(first))], Some(second)),
        (vec![(b.clone(), Expect::Absent), (a.clone(), Expect::Revision(first))], Some(second)),
        (vec![(a.clone(), Expect::Revision(second)), (b.clone(), Expect::Revision(second))], None),
    ];
    for (expects, stored) in cases {
        let failing = expects.last().unwrap().0.clone();
        match store.transact(expects, vec![put(&a, 9), put(&b, 9)]).await {
            Err(TransactError::Conflict { key, found }) => {
                assert_eq!(key, failing);
                assert_eq!(found.map(|found| found.revision), stored);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((n_of(&store, &a), n_of(&store, &b), store.revision()), (Some(2), None, second));
    }
    store.transact(vec![(a.clone(), Expect::Revision(second)), (b.clone(), Expect::Absent)], vec![]).await.unwrap();
    assert_eq!(store.revision(), second, "who only asks changes nothing");
}

async fn revision_grows_with_every_change_and_is_stamped_on_its_object(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let mut newest = store.revision();
    for n in 0..20 {
        let key = pod(if n % 3 == 0 { "a" } else { "b" });
        let at = set(&store, &key, n).await;
        assert!(at > newest);
        let object = store.get(&key).unwrap();
        assert_eq!((object.revision, store.revision()), (at, at), "a write is visible when it is answered");
        assert_eq!(object.value()["metadata"]["resourceVersion"], at.to_string());
        assert_eq!(object.json, object.value().to_string().as_bytes(), "the bytes say the same");
        newest = at;
    }
    let same = store.write(&pod("a"), current(&store, &pod("a")), vec![put(&pod("a"), 18)]).await.unwrap();
    assert!(same.is_empty() && store.revision() == newest, "what changes nothing has no revision");
    let gone = store.write(&pod("a"), current(&store, &pod("a")), vec![delete(&pod("a"))]).await.unwrap();
    match &gone[..] {
        [Change::Deleted { before, last }] => {
            assert!(last.revision > newest && before.revision < last.revision);
            assert_eq!(last.value()["metadata"]["resourceVersion"], last.revision.to_string());
            assert_eq!(last.value()["n"], 18);
        }
        other => panic!("{other:?}"),
    }
    let nothing = store.transact(vec![], vec![delete(&pod("a"))]).await.unwrap();
    assert!(nothing.is_empty(), "nothing goes twice");
}

async fn transaction_shows_all_of_its_steps_or_none(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let (a, b) = (pod("a"), budget("b"));
    let mut watches = [store.watch("pods", "", None).unwrap(), store.watch("budgets", "", None).unwrap()];
    for n in 0..50 {
        let expects = vec![(a.clone(), current(&store, &a)), (b.clone(), current(&store, &b))];
        let changes = store.transact(expects, vec![put(&a, n), put(&b, n)]).await.unwrap();
        let revisions: Vec<_> = changes.iter().map(Change::revision).collect();
        assert_eq!(changes.iter().map(|change| change.key().clone()).collect::<Vec<_>>(), [a.clone(), b.clone()]);
        assert_eq!(revisions[0] == revisions[1], subject.shares_revisions());
        assert!(revisions[0] <= revisions[1] && store.revision() == revisions[1]);
        for (watch, revision) in watches.iter_mut().zip(revisions) {
            assert_eq!(soon(watch).await.revision(), revision);
        }
    }
    let (a_value, b_value) = (n_of(&store, &a), n_of(&store, &b));
    subject.crash(store);
    let store = subject.open(Window::default());
    assert_eq!((n_of(&store, &a), n_of(&store, &b)), (a_value, b_value));
}

async fn transaction_of_a_wrong_shape_is_refused_and_changes_nothing(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let (a, b) = (pod("a"), pod("b"));
    let before = store.revision();
    let many = |count: usize| (0..count).map(|n| Key::new(format!("kind-{n}"), "", "x")).collect::<Vec<_>>();
    let same_key = Refusal::SameKey { key: a.clone() };
    let cases = [
        (vec![], vec![put(&a, 1), put(&a, 2)], same_key.clone()),
        (vec![], vec![put(&a, 1), delete(&a)], same_key.clone()),
        (vec![], vec![delete(&a), put(&budget("x"), 1), Step::Mark { key: a.clone(), value: value(1) }], same_key),
        (vec![], vec![put(&a, 1), put(&b, 1)], Refusal::SameCollection { key: a.clone(), other: b.clone() }),
        (
            vec![],
            many(OPERATIONS_MAX + 1).iter().map(|key| put(key, 1)).collect(),
            Refusal::TooManyOperations { count: OPERATIONS_MAX + 1, limit: OPERATIONS_MAX },
        ),
        (
            many(OPERATIONS_MAX + 1).into_iter().map(|key| (key, Expect::Absent)).collect(),
            vec![put(&a, 1)],
            Refusal::TooManyOperations { count: OPERATIONS_MAX + 1, limit: OPERATIONS_MAX },
        ),
    ];
    for (expects, steps, refusal) in cases {
        match store.transact(expects, steps).await {
            Err(TransactError::Refused(found)) => assert_eq!(found, refusal),
            other => panic!("{other:?}"),
        }
        assert_eq!(store.revision(), before);
    }
    let (expects, steps) =
        many(OPERATIONS_MAX).into_iter().map(|key| ((key.clone(), Expect::Absent), put(&key, 1))).unzip();
    let changes = store.transact(expects, steps).await.unwrap();
    assert_eq!(changes.len(), OPERATIONS_MAX, "as many as are allowed are done");
}

async fn object_is_bounded_with_its_key_and_its_transaction_and_can_always_be_deleted(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let (a, b) = (pod("a"), budget("b"));
    // So that every revision has as many digits.
    for n in 0..10 {
        set(&store, &b, n).await;
    }
    let frame = |key: &Key| {
        let stamped = json!({ "metadata": { "resourceVersion": "10" }, "text": "" }).to_string().len();
        stamped + key.len()
    };
    let sized = |key: &Key, size: usize| json!({ "metadata": {}, "text": "x".repeat(size - frame(key)) });
    let write = |key: Key, size: usize| {
        let (store, value) = (&store, sized(&key, size));
        async move { store.transact(vec![], vec![Step::Put { key, value }]).await }
    };
    match write(a.clone(), SIZE_MAX + 1).await {
        Err(TransactError::Refused(refusal)) => {
            assert_eq!(refusal, Refusal::TooLarge { key: a.clone(), size: SIZE_MAX + 1, limit: SIZE_MAX });
        }
        other => panic!("{other:?}"),
    }
    assert!(store.get(&a).is_none());
    write(a.clone(), SIZE_MAX).await.unwrap();
    let half = SIZE_MAX / 2;
    let both = |more: usize| {
        let steps = [(&a, half), (&b, SIZE_MAX - half + more)];
        steps.map(|(key, size)| Step::Put { key: key.clone(), value: sized(key, size) }).to_vec()
    };
    write(a.clone(), 1000).await.unwrap();
    let revision = store.revision();
    assert!(matches!(store.transact(vec![], both(1)).await, Err(TransactError::Refused(Refusal::TooLarge { .. }))));
    assert_eq!(store.revision(), revision, "none of it is stored");
    store.transact(vec![], both(0)).await.unwrap();
    write(a.clone(), SIZE_MAX).await.unwrap();
    let mut marked = store.get(&a).unwrap().to_value();
    marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mark = vec![Step::Mark { key: a.clone(), value: marked }];
    let expects = vec![(a.clone(), current(&store, &a))];
    let changes = store.transact_then_delete(expects, mark, a.clone()).await.unwrap();
    assert_eq!(changes.iter().map(told).collect::<Vec<_>>(), ["~a", "-a"]);
    subject.crash(store);
    let store = subject.open(Window::default());
    assert!(store.get(&a).is_none());
}

async fn removal_after_a_mark_is_two_changes_and_leaves_what_somebody_else_wrote(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let (a, b) = (pod("a"), budget("b"));
    let first = set(&store, &a, 1).await;
    let mut watch = store.watch("pods", "", None).unwrap();
    let stale = vec![(a.clone(), Expect::Absent)];
    let refused = store.transact_then_delete(stale, vec![put(&a, 2)], a.clone()).await;
    assert!(matches!(refused, Err(TransactError::Conflict { .. })));
    assert_eq!((n_of(&store, &a), store.revision()), (Some(1), first), "neither half happens");
    let expects = vec![(a.clone(), Expect::Revision(first))];
    let changes = store.transact_then_delete(expects, vec![put(&b, 1), put(&a, 2)], a.clone()).await.unwrap();
    assert_eq!(changes.iter().map(told).collect::<Vec<_>>(), ["+b", "~a", "-a"]);
    let seen = take(&mut watch, 2).await;
    assert_eq!(seen.iter().map(told).collect::<Vec<_>>(), ["~a", "-a"]);
    assert!(seen[0].revision() < seen[1].revision(), "a watch can stop between them");
    assert_eq!(seen[1].object().value()["n"], 2, "it goes as it was marked");
    assert!(store.get(&a).is_none());

    let same = set(&store, &a, 3).await;
    let expects = vec![(a.clone(), Expect::Revision(same))];
    let changes = store.transact_then_delete(expects, vec![put(&a, 3)], a.clone()).await.unwrap();
    assert_eq!(changes.iter().map(told).collect::<Vec<_>>(), ["-a"], "a mark that changes nothing is no change");

    let second = set(&store, &a, 3).await;
    if subject.stranger_before_removal((a.clone(), Some(value(7)))) {
        let expects = vec![(a.clone(), Expect::Revision(second))];
        let changes = store.transact_then_delete(expects, vec![put(&a, 4)], a.clone()).await.unwrap();
        assert_eq!(changes.iter().map(told).collect::<Vec<_>>(), ["~a"], "the first half stands alone");
        assert_eq!(n_of(&store, &a), Some(7));
    }
}

async fn watch_resumed_anywhere_tells_the_rest_once_and_in_order(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let begin = store.revision();
    for n in 0..100 {
        let (a, b) = (pod(&format!("p{}", n % 7)), budget("b"));
        let step = if n % 5 == 4 && store.get(&a).is_some() { delete(&a) } else { put(&a, n) };
        store.transact(vec![], vec![step, put(&b, n)]).await.unwrap();
    }
    let all = |store: &Store| {
        let mut watch = store.watch("pods", "", Some(begin)).unwrap();
        async move { take(&mut watch, 100).await.iter().map(|c| (told(c), c.revision())).collect::<Vec<_>>() }
    };
    let expected = all(&store).await;
    assert!(expected.is_sorted_by(|(_, a), (_, b)| a < b));
    subject.crash(store);
    let store = subject.open(Window::default());
    assert_eq!(all(&store).await, expected, "the past is the same for one who was away");
    for (at, (_, revision)) in expected.iter().enumerate() {
        let mut watch = store.watch("pods", "default", Some(*revision)).unwrap();
        let rest = take(&mut watch, expected.len() - at - 1).await;
        assert_eq!(rest.iter().map(|c| (told(c), c.revision())).collect::<Vec<_>>(), expected[at + 1..]);
        assert_eq!(watch.progress(), store.revision());
    }
}

/// A lease that ends, or a person with a tool, writes many objects of a collection at one revision.
async fn revision_with_many_changes_is_told_whole(subject: &impl Subject) {
    let store = subject.open(Window { changes: 400, ..Window::default() });
    let many: Vec<Operation> = (0..120).map(|n| (pod(&format!("p{n:03}")), Some(value(n)))).collect();
    let begin = set(&store, &pod("first"), 1).await;
    let mut other = store.watch("pods", "", Some(begin)).unwrap();
    if !subject.stranger_writes(&many) {
        return;
    }
    let at = soon(&mut other).await.revision();
    set(&store, &pod("last"), 1).await;
    let mut watch = store.watch("pods", "", Some(begin)).unwrap();
    soon(&mut watch).await;
    assert!(watch.progress() < at, "nobody is told to resume behind what it has not seen");
    let mut together = 1;
    while let Some(change) = watch.next_ready() {
        assert_eq!(change.revision(), at);
        together += 1;
    }
    assert_eq!(together, 120);
    assert_eq!(told(&soon(&mut watch).await), "+last");
    // The window gives up all of it or none.
    for n in 0..399 {
        set(&store, &pod("last"), n + 2).await;
    }
    assert!(matches!(store.watch("pods", "", Some(begin)), Err(HistoryError::Compacted { .. })));
    let mut after = store.watch("pods", "", Some(at)).unwrap();
    assert_eq!(told(&soon(&mut after).await), "+last");
    assert_eq!(store.list("pods", "", Some(at)).unwrap().items.len(), 121);
}

async fn history_beyond_the_window_is_told_to_be_gone(subject: &impl Subject) {
    let window = Window { changes: 8, ..Window::default() };
    let store = subject.open(window);
    let begin = set(&store, &pod("a"), 0).await;
    let mut lagging = store.watch("pods", "", Some(begin)).unwrap();
    for n in 1..40 {
        set(&store, &pod("a"), n).await;
    }
    let newest = store.revision();
    let gone = |asked: Revision, store: &Store| {
        let told = [store.watch("pods", "", Some(asked)).err(), store.list("pods", "", Some(asked)).err()];
        told.map(|error| matches!(error, Some(HistoryError::Compacted { asked: found, oldest }) if found == asked && oldest > asked))
    };
    assert_eq!(gone(begin, &store), [true, true]);
    while tokio::time::timeout(LONG, lagging.next()).await.unwrap().is_some() {}
    assert_eq!(lagging.end(), Some(WatchEnd::Lagged), "who is too slow is told, not skipped over");
    let future = Revision(newest.0 + 5);
    assert!(matches!(store.watch("pods", "", Some(future)), Err(HistoryError::Future { .. })));
    assert!(matches!(store.list("pods", "", Some(future)), Err(HistoryError::Future { .. })));
    let recent = Revision(newest.0 - 4);
    assert_eq!(store.list("pods", "", Some(recent)).unwrap().items[0].value()["n"], 35);
    if subject.compact() {
        subject.crash(store);
        let store = subject.open(Window::default());
        assert_eq!(store.revision(), newest);
        assert_eq!(gone(recent, &store), [true, true], "what the log forgot nobody shows");
        assert_eq!(n_of(&store, &pod("a")), Some(39));
    }
}

async fn acknowledged_writes_are_there_after_a_crash_and_revisions_go_on(subject: &impl Subject) {
    let mut expected = BTreeMap::new();
    let mut newest = Revision(0);
    for round in 0..4_u64 {
        let store = subject.open(Window::default());
        assert!(store.revision() >= newest, "time does not go back");
        for (key, n) in &expected {
            assert_eq!(n_of(&store, key), *n);
        }
        assert_eq!(store.list("pods", "", None).unwrap().items.len(), expected.values().flatten().count());
        for n in 0..25 {
            let key = pod(&format!("p{}", (n * 7 + round) % 11));
            if n % 6 == 5 {
                store.transact(vec![], vec![delete(&key)]).await.unwrap();
                expected.insert(key, None);
            } else {
                let at = set(&store, &key, round * 100 + n).await;
                assert!(at > newest);
                expected.insert(key, Some(round * 100 + n));
            }
            newest = store.revision();
        }
        subject.crash(store);
    }
}

async fn writers_at_once_each_win_in_turn_and_watches_see_every_turn(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let key = pod("counter");
    set(&store, &key, 0).await;
    let mut watch = store.watch("pods", "", None).unwrap();
    let writers = (0..8).map(|_| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            let mut won = 0;
            while won < 25 {
                let object = store.get(&key).unwrap();
                let next = put(&key, object.value()["n"].as_u64().unwrap() + 1);
                match store.write(&key, Expect::Revision(object.revision), vec![next]).await {
                    Ok(_) => won += 1,
                    Err(crate::WriteError::Conflict(Some(found))) => {
                        assert!(found.revision > object.revision);
                        let seen = store.get(&key).unwrap().revision;
                        assert!(seen >= found.revision, "the view has what a conflict tells of");
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        tokio::time::timeout(LONG, writer).await.unwrap().unwrap();
    }
    assert_eq!(n_of(&store, &key), Some(200));
    let seen: Vec<_> = take(&mut watch, 200).await.iter().map(|c| c.object().value()["n"].as_u64().unwrap()).collect();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
}

async fn write_whose_answer_is_lost_is_found_out_and_told_as_it_was(subject: &impl Subject) {
    let store = subject.open(Window::default());
    let a = pod("a");
    if subject.lose_answers(3) {
        let made = store.write(&a, Expect::Absent, vec![put(&a, 1)]).await.unwrap();
        assert_eq!(
            made.iter().map(told).collect::<Vec<_>>(),
            ["+a"],
            "never told that its own object is there already"
        );
        subject.lose_answers(1);
        let changed = store.write(&a, Expect::Revision(made[0].revision()), vec![put(&a, 2)]).await.unwrap();
        assert_eq!(changed.iter().map(told).collect::<Vec<_>>(), ["~a"]);
        subject.lose_answers(1);
        let stale = store.write(&a, Expect::Revision(made[0].revision()), vec![put(&a, 3)]).await;
        assert!(matches!(stale, Err(crate::WriteError::Conflict(Some(_)))), "what did not happen is not believed");
        subject.lose_answers(1);
        let gone = store.write(&a, current(&store, &a), vec![delete(&a)]).await.unwrap();
        assert_eq!(gone.iter().map(told).collect::<Vec<_>>(), ["-a"]);
    }
    // One who does not wait for the answer has written all the same.
    let write = store.transact(vec![], vec![put(&a, 5)]);
    let mut watch = store.watch("pods", "", None).unwrap();
    drop(futures_poll_once(write).await);
    assert_eq!(soon(&mut watch).await.object().value()["n"], 5);
}

/// Polls once, which is enough to hand a request over.
async fn futures_poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

macro_rules! conformance {
    ($($story:ident),+ $(,)?) => {
        mod embedded_log {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(&super::InFolder::new()).await;
            })+
        }
        mod remote_log {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(&super::OverRemote::default()).await;
            })+
        }
    };
}

conformance!(
    expectation_that_does_not_hold_changes_nothing_and_says_what_is_stored,
    revision_grows_with_every_change_and_is_stamped_on_its_object,
    transaction_shows_all_of_its_steps_or_none,
    transaction_of_a_wrong_shape_is_refused_and_changes_nothing,
    object_is_bounded_with_its_key_and_its_transaction_and_can_always_be_deleted,
    removal_after_a_mark_is_two_changes_and_leaves_what_somebody_else_wrote,
    watch_resumed_anywhere_tells_the_rest_once_and_in_order,
    revision_with_many_changes_is_told_whole,
    history_beyond_the_window_is_told_to_be_gone,
    acknowledged_writes_are_there_after_a_crash_and_revisions_go_on,
    writers_at_once_each_win_in_turn_and_watches_see_every_turn,
    write_whose_answer_is_lost_is_found_out_and_told_as_it_was,
);

/// Two servers over one log: what one writes the other shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_of_one_server_follows_the_writes_of_another() {
    let subject = OverRemote::default();
    let (one, two) = (subject.open(Window::default()), subject.open(Window::default()));
    let mut watch = two.watch("pods", "", None).unwrap();
    let at = set(&one, &pod("a"), 1).await;
    assert_eq!(soon(&mut watch).await.revision(), at);
    let stale = two.write(&pod("a"), Expect::Absent, vec![put(&pod("a"), 2)]).await;
    assert!(matches!(stale, Err(crate::WriteError::Conflict(Some(_)))));
}
