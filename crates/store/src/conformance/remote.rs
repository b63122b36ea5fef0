//! A small model of etcd, and a log over it, to show that the suite asks nothing that only one log can do.
//!
//! As etcd does, it gives all writes of a transaction one revision, refuses two operations on one key, may apply a write
//! and lose the answer, forgets the past when told to, and takes writes from strangers, any number of keys at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::log::{Answer, Log, Pause, Request, Serving, size_limit};
use crate::view::View;
use crate::{Change, Expect, Key, Object, Refusal, Revision, Step, Store, TransactError, Window};

/// The machines that keep the objects.
pub(super) struct Remote {
    state: Mutex<State>,
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// What was stored at `compacted`.
    base: BTreeMap<Key, (u64, Value)>,
    compacted: u64,
    /// What happened since, in order.
    history: Vec<(u64, Operation)>,
    objects: BTreeMap<Key, (u64, Value)>,
    /// How many of the next answers are lost on their way.
    answers_lost: usize,
    /// What a stranger does before the next removal.
    before_delete: Option<Operation>,
}

/// A key, and what is stored there or that nothing is.
pub(super) type Operation = (Key, Option<Value>);

enum TxnAnswer {
    /// At this revision, if anything happened.
    Succeeded(Option<u64>),
    /// The first key that is not as expected.
    Failed(Key),
}

/// The answer did not arrive.
struct Lost;

impl Default for Remote {
    fn default() -> Self {
        let state = State { revision: 1, compacted: 1, ..State::default() };
        Self { state: Mutex::new(state), news: watch::Sender::new(1) }
    }
}

impl Remote {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Another server's view of the same machines.
    pub(super) fn open(self: &Arc<Self>, window: Window) -> Store {
        let state = self.state();
        let view = View::new(Revision(state.compacted), window);
        for (key, (revision, value)) in &state.base {
            let (object, _) = Object::stamped(key.clone(), Revision(*revision), value.clone());
            view.restore(&Change::Added(Arc::new(object)));
        }
        drop(state);
        let log = RemoteLog { remote: Arc::clone(self) };
        log.follow(&view);
        Store::over(Box::new(log), view)
    }

    pub(super) fn lose_answers(&self, count: usize) {
        self.state().answers_lost = count;
    }

    pub(super) fn before_delete(&self, operation: Operation) {
        self.state().before_delete = Some(operation);
    }

    pub(super) fn compact(&self) {
        let mut state = self.state();
        (state.base, state.compacted) = (state.objects.clone(), state.revision);
        state.history.clear();
    }

    /// A write that no server of ours makes: without expectations, as many keys as it likes.
    pub(super) fn write(&self, operations: &[Operation]) {
        self.state().apply(operations);
        self.news.send_replace(self.state().revision);
    }

    fn txn(&self, expects: &[(Key, Expect)], operations: &[Operation]) -> Result<TxnAnswer, Lost> {
        let mut state = self.state();
        let keys: BTreeSet<_> = operations.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), operations.len(), "duplicate key given in txn request");
        if operations.iter().any(|(_, value)| value.is_none())
            && let Some(stranger) = state.before_delete.take()
        {
            state.apply(&[stranger]);
        }
        let failed = expects.iter().find(|(key, expect)| match (expect, state.objects.get(key)) {
            (Expect::Absent, stored) => stored.is_some(),
            (Expect::Revision(expected), stored) => stored.is_none_or(|(revision, _)| *revision != expected.0),
        });
        let answer = match failed {
            Some((key, _)) => TxnAnswer::Failed(key.clone()),
            None => TxnAnswer::Succeeded(state.apply(operations)),
        };
        let revision = state.revision;
        let lost = state.answers_lost > 0;
        state.answers_lost = state.answers_lost.saturating_sub(1);
        drop(state);
        self.news.send_replace(revision);
        if lost { Err(Lost) } else { Ok(answer) }
    }
}

impl State {
    /// Does all of it at one revision, which it answers if anything happened.
    fn apply(&mut self, operations: &[Operation]) -> Option<u64> {
        let next = self.revision + 1;
        for (key, value) in operations {
            let before = match value {
                Some(value) => self.objects.insert(key.clone(), (next, value.clone())),
                None => self.objects.remove(key),
            };
            if value.is_some() || before.is_some() {
                self.revision = next;
                self.history.push((next, (key.clone(), value.clone())));
            }
        }
        (self.revision == next).then_some(next)
    }
}

/// The log: hands requests over, and follows what comes back.
struct RemoteLog {
    remote: Arc<Remote>,
}

impl RemoteLog {
    /// Tells the view what happened since, a revision at a time.
    fn follow(&self, view: &View) {
        let state = self.remote.state();
        let seen = view.revision().0;
        let news: Vec<_> = state.history.iter().filter(|(revision, _)| *revision > seen).cloned().collect();
        drop(state);
        for chunk in news.chunk_by(|(a, _), (b, _)| a == b) {
            let changes: Vec<Change> =
                chunk.iter().map(|(revision, operation)| change(view, Revision(*revision), operation)).collect();
            view.apply(&changes).wake();
        }
    }

    fn perform(&self, request: Request, view: &View) {
        let Request { expects, steps, then_delete, answer } = request;
        let mut told = self.transact(&expects, steps, view);
        if let (Ok(changes), Some(key)) = (&mut told, then_delete)
            && let Some(left) = left(view, changes, &key)
        {
            let then = vec![Step::Delete { key: key.clone() }];
            if let Ok(more) = self.transact(&[(key, Expect::Revision(left))], then, view) {
                changes.extend(more);
            }
        }
        let _ = answer.send(told);
    }

    fn transact(&self, expects: &[(Key, Expect)], steps: Vec<Step>, view: &View) -> Answer {
        self.follow(view);
        let mut operations: Vec<Operation> = Vec::new();
        let (mut size, mut most) = (0, 0);
        for step in steps {
            let is_mark = matches!(step, Step::Mark { .. });
            match step {
                Step::Put { key, mut value } | Step::Mark { key, mut value } => {
                    let before = view.get(&key);
                    if before.as_ref().is_some_and(|before| !before.differs_from(&mut value)) {
                        continue;
                    }
                    let next = Revision(view.revision().0 + 1);
                    let (after, value) = Object::stamped(key.clone(), next, value);
                    let (own, limit) = (key.len() + after.json.len(), size_limit(before.as_deref(), next, is_mark));
                    (size, most) = (size + own, limit.max(most));
                    if own > limit || size > most {
                        return Err(TransactError::Refused(Refusal::TooLarge { key, size, limit }));
                    }
                    operations.push((key, Some(Arc::unwrap_or_clone(value))));
                }
                Step::Delete { key } => operations.push((key, None)),
            }
        }
        let mut asked_before = false;
        loop {
            match self.remote.txn(expects, &operations) {
                Err(Lost) => asked_before = true,
                Ok(TxnAnswer::Succeeded(revision)) => return Ok(self.changes_at(view, revision, &operations)),
                Ok(TxnAnswer::Failed(key)) => {
                    // What an unanswered try of ours stored cannot be anybody else's: it is found, and that was it.
                    if let Some(revision) = self.found_done(&operations).filter(|_| asked_before) {
                        return Ok(self.changes_at(view, Some(revision), &operations));
                    }
                    self.follow(view);
                    return Err(TransactError::Conflict { found: view.get(&key), key });
                }
            }
        }
    }

    /// The revision at which everything in `operations` happened, if it did.
    fn found_done(&self, operations: &[Operation]) -> Option<u64> {
        let state = self.remote.state();
        let mut done = None;
        for (key, value) in operations {
            let (revision, last) = state.history.iter().rev().find(|(_, (other, _))| other == key)?;
            if last.1 != *value {
                return None;
            }
            done = Some(*revision);
        }
        done
    }

    /// What the view saw at `revision` of the keys in `operations`.
    fn changes_at(&self, view: &View, revision: Option<u64>, operations: &[Operation]) -> Vec<Change> {
        self.follow(view);
        let Some(revision) = revision else { return Vec::new() };
        let before = Revision(revision - 1);
        let mut changes = Vec::new();
        for (key, _) in operations {
            let told = view.after(&key.collection, "", before).map(|(told, _)| told).unwrap_or_default();
            changes.extend(told.into_iter().find(|change| change.key() == key && change.revision().0 == revision));
        }
        changes
    }
}

/// The revision at which the first half left `key`; one that changed nothing left what is there.
fn left(view: &View, changes: &[Change], key: &Key) -> Option<Revision> {
    let own = changes.iter().find(|change| change.key() == key).map(Change::revision);
    own.or_else(|| view.get(key).map(|object| object.revision))
}

fn change(view: &View, revision: Revision, (key, value): &Operation) -> Change {
    let stamped = |value: Value| Arc::new(Object::stamped(key.clone(), revision, value).0);
    match (value, view.get(key)) {
        (Some(value), None) => Change::Added(stamped(value.clone())),
        (Some(value), Some(before)) => Change::Modified { before, after: stamped(value.clone()) },
        (None, Some(before)) => Change::Deleted { last: stamped(before.to_value()), before },
        (None, None) => panic!("{key} goes and is not there"),
    }
}

impl Log for RemoteLog {
    fn serve(self: Box<Self>, mut requests: mpsc::Receiver<Request>, view: Arc<View>, _: Option<Pause>) -> Serving {
        Box::pin(async move {
            let mut news = self.remote.news.subscribe();
            // What was written before there was anybody to be woken.
            self.follow(&view);
            loop {
                tokio::select! {
                    request = requests.recv() => match request {
                        Some(request) => self.perform(request, &view),
                        None => return,
                    },
                    Ok(()) = news.changed() => self.follow(&view),
                }
            }
        })
    }
}
