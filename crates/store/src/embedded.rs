//! The log in one file of this machine: one thread that judges, stamps and commits, a group at a time.
//!
//! While one group is being made durable the next one gathers in the queue, so that the cost of a sync is shared by
//! however many writers there are. Within a group each request is judged against what the ones before it will have done.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::disk::{Commit, Disk, Marks, OpenError, open_error};
use crate::load::{LoadError, load};
use crate::log::{Answer, Log, Request};
use crate::row;
use crate::view::View;
use crate::{Change, Expect, Key, Object, Revision, Step, Window, WriteError};

/// Requests that share one commit at most.
const GROUP: usize = 256;

/// The embedded log.
#[derive(Debug)]
pub(crate) struct Embedded {
    path: PathBuf,
    /// `None` after a failed commit, until the file could be opened again.
    disk: Option<Disk>,
    /// Marks the file as ours, across a reopening.
    owner: u64,
    /// The newest revision ever tried. One that failed to commit is not tried again.
    tried: Revision,
    /// What the file should look like apart from new rows.
    floor: Revision,
    garbage: Vec<Revision>,
}

impl Embedded {
    /// Opens the file and tells the view everything in it.
    pub(crate) fn open(path: &Path, window: Window) -> Result<(Self, View), OpenError> {
        let owner = new_owner();
        let disk = Disk::open(path, owner)?;
        let damaged = |error: LoadError| match error {
            LoadError::Redb(error) => open_error(path, error),
            LoadError::Rows(error) => OpenError::Damaged { path: path.to_owned(), source: error.into() },
        };
        let marks = disk.marks().map_err(|error| open_error(path, error))?;
        let (view, garbage) = load(&disk, marks, window).map_err(damaged)?;
        let log = Self {
            path: path.to_owned(),
            disk: Some(disk),
            owner,
            tried: marks.revision,
            floor: garbage.floor.unwrap_or(marks.floor),
            garbage: garbage.rows,
        };
        Ok((log, view))
    }

    fn serve_group(&mut self, requests: Vec<Request>, view: &View) {
        let mut group =
            Group { view, next: self.tried.next(), staged: HashMap::new(), changes: Vec::new(), values: Vec::new() };
        let mut verdicts = Vec::with_capacity(requests.len());
        for Request { key, expect, steps, answer } in requests {
            let verdict = group.judge(&key, expect, steps);
            verdicts.push((answer, verdict));
        }
        let Group { changes, values, .. } = group;
        if !changes.is_empty()
            && let Err(error) = self.commit(&changes, view)
        {
            tracing::error!(error = %error, "cannot write to the store");
            // A conflict or a skipped put may have been judged against a write that has just failed, so nobody in this
            // group has a sound answer.
            let error: Arc<dyn std::error::Error + Send + Sync> = Arc::new(error);
            for (answer, _) in verdicts {
                let _ = answer.send(Err(WriteError::Log(Arc::clone(&error))));
            }
            return;
        }
        let garbage = view.apply(&changes);
        drop(values);
        self.floor = garbage.floor.unwrap_or(self.floor);
        self.garbage.extend(garbage.rows);
        answer_all(verdicts, &changes);
    }

    fn commit(&mut self, changes: &[Change], view: &View) -> Result<(), CommitError> {
        let rows: Vec<_> = changes.iter().map(|change| (change.revision(), row::encode(change))).collect();
        let last = changes.last().map_or(self.tried, Change::revision);
        self.tried = self.tried.max(last);
        let disk = match self.disk.take() {
            Some(disk) => disk,
            None => self.reopen(view)?,
        };
        let commit = Commit { rows: &rows, remove: &self.garbage, marks: Marks { revision: last, floor: self.floor } };
        disk.commit(&commit)?;
        self.garbage.clear();
        self.disk = Some(disk);
        Ok(())
    }

    /// Opens the file again after a failure. The failed group may have reached it all the same; as its writers were told
    /// that nothing changed and nobody has seen it, it goes with the next commit.
    fn reopen(&mut self, view: &View) -> Result<Disk, CommitError> {
        let disk = Disk::open(&self.path, self.owner)?;
        if disk.previous_owner != self.owner {
            // Not ours to write to, now or later.
            self.owner = new_owner();
            return Err(CommitError::Taken);
        }
        let seen = view.revision();
        let garbage = &mut self.garbage;
        disk.scan(|revision, _| {
            if revision > seen {
                garbage.push(revision);
            }
            Ok::<_, redb::Error>(())
        })?;
        tracing::info!(revision = %seen, "the store takes writes again");
        Ok(disk)
    }
}

impl Log for Embedded {
    fn serve(mut self: Box<Self>, mut requests: mpsc::Receiver<Request>, view: Arc<View>) {
        let mut group = Vec::with_capacity(GROUP);
        while requests.blocking_recv_many(&mut group, GROUP) > 0 {
            self.serve_group(std::mem::take(&mut group), &view);
        }
    }
}

/// A number that no other opener of the file has.
fn new_owner() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

/// Why a group did not become durable.
#[derive(Debug, thiserror::Error)]
enum CommitError {
    #[error("cannot commit to the log")]
    Disk(#[from] redb::Error),
    #[error("cannot open the log again after a failed commit")]
    Reopen(#[from] OpenError),
    #[error("another process wrote to the log after a failed commit; restart to read what it wrote")]
    Taken,
}

/// Requests judged together, each against what the ones before it will have done.
struct Group<'a> {
    view: &'a View,
    next: Revision,
    staged: HashMap<Key, Option<Arc<Object>>>,
    changes: Vec<Change>,
    /// Keeps the parsed forms until the view has taken over those it wants.
    values: Vec<Arc<Value>>,
}

/// The part of the group's changes that a request made, or the object that stood in its way.
type Verdict = Result<std::ops::Range<usize>, Option<Arc<Object>>>;

impl Group<'_> {
    fn judge(&mut self, key: &Key, expect: Expect, steps: Vec<Step>) -> Verdict {
        let stored = self.stored(key);
        let holds = match expect {
            Expect::Absent => stored.is_none(),
            Expect::Revision(expected) => stored.as_ref().is_some_and(|object| object.revision == expected),
        };
        if !holds {
            return Err(stored);
        }
        let first = self.changes.len();
        for step in steps {
            match step {
                Step::Put { key, value } => self.put(key, value),
                Step::Delete { key } => self.delete(key),
            }
        }
        Ok(first..self.changes.len())
    }

    fn stored(&self, key: &Key) -> Option<Arc<Object>> {
        self.staged.get(key).cloned().unwrap_or_else(|| self.view.get(key))
    }

    fn put(&mut self, key: Key, mut value: Value) {
        let before = self.stored(&key);
        if before.as_ref().is_some_and(|before| !before.differs_from(&mut value)) {
            return;
        }
        let after = self.stamped(key.clone(), value);
        self.staged.insert(key, Some(Arc::clone(&after)));
        self.changes.push(match before {
            None => Change::Added(after),
            Some(before) => Change::Modified { before, after },
        });
    }

    fn delete(&mut self, key: Key) {
        let Some(before) = self.stored(&key) else { return };
        let last = self.stamped(key.clone(), before.to_value());
        self.staged.insert(key, None);
        self.changes.push(Change::Deleted { before, last });
    }

    fn stamped(&mut self, key: Key, value: Value) -> Arc<Object> {
        let (object, value) = Object::stamped(key, self.take_revision(), value);
        self.values.push(value);
        Arc::new(object)
    }

    fn take_revision(&mut self) -> Revision {
        let revision = self.next;
        self.next = revision.next();
        revision
    }
}

fn answer_all(verdicts: Vec<(oneshot::Sender<Answer>, Verdict)>, changes: &[Change]) {
    for (answer, verdict) in verdicts {
        let _ = answer.send(match verdict {
            Ok(range) => Ok(changes[range].to_vec()),
            Err(stored) => Err(WriteError::Conflict(stored)),
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn open(path: &Path) -> (Embedded, View) {
        Embedded::open(path, Window::default()).unwrap()
    }

    fn create(log: &mut Embedded, view: &View, name: &str) -> Answer {
        let key = Key::new("pods", "default", name);
        let (answer, mut answered) = oneshot::channel();
        let steps = vec![Step::Put { key: key.clone(), value: json!({}) }];
        log.serve_group(vec![Request { key, expect: Expect::Absent, steps, answer }], view);
        answered.try_recv().unwrap()
    }

    fn names(view: &View) -> Vec<String> {
        view.list("pods", "", None).unwrap().items.iter().map(|object| object.key.name.to_string()).collect()
    }

    #[test]
    fn a_group_that_failed_but_reached_the_disk_is_taken_back_and_its_revision_not_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let (mut log, view) = open(&path);
        let first = create(&mut log, &view, "a").unwrap()[0].revision();
        // The commit arrives, but its answer does not: what a sync that fails at the very end looks like.
        let (lost, _) = Object::stamped(Key::new("pods", "default", "lost"), first.next(), json!({}));
        log.commit(&[Change::Added(Arc::new(lost))], &view).unwrap();
        log.disk = None;
        let second = create(&mut log, &view, "b").unwrap()[0].revision();
        assert!(second > first.next(), "{second}");
        drop(log);
        let (_log, reopened) = open(&path);
        assert_eq!(names(&reopened), ["a", "b"]);
        assert_eq!(reopened.revision(), second);
    }

    #[test]
    fn a_log_that_someone_else_wrote_to_meanwhile_takes_no_more_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let (mut log, view) = open(&path);
        create(&mut log, &view, "a").unwrap();
        log.disk = None;
        let (mut other, its_view) = open(&path);
        create(&mut other, &its_view, "theirs").unwrap();
        drop(other);
        for _ in 0..3 {
            match create(&mut log, &view, "b") {
                Err(WriteError::Log(error)) => assert!(error.to_string().contains("another process"), "{error}"),
                other => panic!("{other:?}"),
            }
        }
        drop(log);
        assert_eq!(names(&open(&path).1), ["a", "theirs"]);
    }

    #[test]
    fn within_a_group_each_request_sees_the_ones_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, view) = open(&directory.path().join("store"));
        let key = Key::new("pods", "default", "a");
        let put = |n: u64| Step::Put { key: key.clone(), value: json!({ "n": n }) };
        let first = view.revision().next();
        let cases = [
            (Expect::Absent, vec![put(1)]),
            (Expect::Absent, vec![put(2)]),
            (Expect::Revision(first), vec![put(1)]),
            (Expect::Revision(first), vec![Step::Delete { key: key.clone() }]),
            (Expect::Revision(first), vec![put(3)]),
            (Expect::Absent, vec![put(4)]),
        ];
        let (requests, answers): (Vec<_>, Vec<_>) = cases
            .into_iter()
            .map(|(expect, steps)| {
                let (answer, answered) = oneshot::channel();
                (Request { key: key.clone(), expect, steps, answer }, answered)
            })
            .unzip();
        log.serve_group(requests, &view);
        let told: Vec<_> = answers
            .into_iter()
            .map(|mut answered| match answered.try_recv().unwrap() {
                Ok(changes) => changes.iter().map(|change| format!("@{}", change.revision())).collect::<String>(),
                Err(WriteError::Conflict(stored)) => format!("conflict {:?}", stored.map(|object| object.revision.0)),
                Err(error @ WriteError::Log(_)) => panic!("{error:?}"),
            })
            .collect();
        assert_eq!(told, ["@2", "conflict Some(2)", "", "@3", "conflict None", "@4"]);
    }
}
