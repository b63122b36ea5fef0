//! The log in a folder of this machine: one thread that judges, stamps and commits, a group at a time.
//!
//! While one group is being made durable the next one gathers in the queue, so that the cost of a sync is shared by
//! however many writers there are. Within a group each request is judged against what the ones before it will have done.
//! When the segment being written has grown enough, the next begins, and a thread beside this one writes down what
//! is left of everything before it.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::directory::{self, Directory, Holds};
use crate::files::{self, Head};
use crate::frame::Chain;
use crate::load::{LoadError, load};
use crate::log::{Answer, Log, Pause, Request, Serving, size_limit};
use crate::mark::Mark;
use crate::segment::{RESERVE, Segment};
use crate::view::View;
use crate::{
    Change, Encryption, Expect, Key, Object, OpenError, Refusal, Revision, Step, TransactError, Window, row, snapshot,
};

/// Requests that share one commit at most.
const GROUP: usize = 256;

/// A group that has grown this large takes no more requests.
const GROUP_BYTES: usize = 16 << 20;

/// No segment ends before it is this long.
const SEGMENT: u64 = 4 << 20;

/// By how much an object may grow while the disk is full: a status and a mark do.
const GROWTH_MAX: usize = 16 << 10;

/// The largest object that may be changed while the disk is full, but for its mark: the reserve is for many.
const SHORT_MAX: usize = 64 << 10;

/// The embedded log.
#[derive(Debug)]
pub(crate) struct Embedded {
    directory: Directory,
    mark: Mark,
    /// The segment being written, and its number.
    segment: Segment,
    number: u64,
    /// The newest revision ever tried. One that failed to commit is not tried again.
    tried: Revision,
    /// How long the newest snapshot is, and what was written since it was begun.
    snapshot_size: u64,
    log_size: u64,
    snapshot: Option<Snapshot>,
    encryption: Encryption,
    /// Values are in the files that are to be written otherwise, and no snapshot without them has begun.
    is_stale: bool,
    /// After another segment was refused by a full disk: how long this one must become before that is tried again.
    least: u64,
    frame: Vec<u8>,
}

/// A snapshot being written.
#[derive(Debug)]
struct Snapshot {
    writing: JoinHandle<io::Result<u64>>,
    stop: Arc<AtomicBool>,
    /// Whether it is made because values are to be written otherwise.
    renews: bool,
}

impl Embedded {
    /// Opens the folder and tells the view everything in it.
    pub(crate) fn open(path: &Path, window: Window, encryption: &Encryption) -> Result<(Self, View), OpenError> {
        let io_error = |source| OpenError::Io { path: path.to_owned(), source };
        let directory = Directory::enter(path).map_err(io_error)?;
        let directory = directory.ok_or_else(|| OpenError::InUse { path: path.to_owned() })?;
        let loaded = load(&directory, window, encryption).map_err(|error| match error {
            LoadError::Io(source) => io_error(source),
            LoadError::Newer(found) => OpenError::Newer { path: path.to_owned(), found },
            LoadError::Damaged(damage) => OpenError::Damaged { path: path.to_owned(), source: damage.into() },
        })?;
        let revision = loaded.view.revision();
        let (mut mark, known) = Mark::open(path).map_err(io_error)?;
        if let Some(known) = known.filter(|known| *known > revision) {
            return Err(OpenError::Behind { path: path.to_owned(), found: revision, known });
        }
        mark.note(revision);
        let (number, segment) = match loaded.segment {
            Some(segment) => segment,
            None => (1, begin(directory.path(), 1, revision).map_err(io_error)?),
        };
        let mut log = Self {
            directory,
            mark,
            segment,
            number,
            tried: revision,
            snapshot_size: loaded.snapshot_size,
            log_size: loaded.log_size,
            snapshot: None,
            encryption: encryption.clone(),
            is_stale: loaded.is_stale,
            least: 0,
            frame: Vec::new(),
        };
        log.segment.renew_reserve();
        // What was written before a key was there, or by another one, is not to stay in the files until they have grown.
        if log.is_stale {
            log.compact(&loaded.view);
        }
        Ok((log, loaded.view))
    }

    /// Serves as many of the requests as fit into one commit; answers the others.
    fn serve_group(&mut self, requests: Vec<Request>, view: &View) -> Vec<Request> {
        // Whether there is room again is seen when somebody needs it.
        self.segment.renew_reserve();
        let mut group = Group::new(view, self.tried.next(), self.segment.is_short());
        let mut verdicts = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        files::begin_rows(&mut self.frame);
        while self.frame.len() < GROUP_BYTES
            && let Some(Request { expects, steps, then_delete, answer }) = requests.next()
        {
            let verdict = group.judge(&expects, steps, then_delete);
            if let Ok(range) = &verdict {
                group.changes[range.clone()].iter().for_each(|change| {
                    row::encode(change, &self.encryption, &mut self.frame);
                });
            }
            verdicts.push((answer, verdict));
        }
        let Group { changes, values, .. } = group;
        let mut news = None;
        if let Some(last) = changes.last() {
            self.tried = last.revision();
            let appended = self.segment.append(&mut self.frame);
            view.note_write(appended.is_ok());
            if let Err(error) = appended {
                tracing::error!(error = %error, "cannot write to the store");
                // A conflict or a skipped put may have been judged against a write that has just failed, so nobody in
                // this group has a sound answer.
                let error: Arc<dyn std::error::Error + Send + Sync> = Arc::new(error);
                for (answer, _) in verdicts {
                    let _ = answer.send(Err(TransactError::Log(Arc::clone(&error))));
                }
                return requests.collect();
            }
            self.mark.note(self.tried);
            self.log_size += self.frame.len() as u64;
            news = Some(view.apply(&changes));
        }
        drop(values);
        // First: whoever asked would have to wait behind a thousand who only watch.
        answer_all(verdicts, &changes);
        if let Some(news) = news {
            news.wake();
        }
        requests.collect()
    }

    /// Begins the next segment and a snapshot of what was before it, once the log has grown enough. Whatever fails here
    /// leaves the log as it was, only longer.
    fn compact(&mut self, view: &View) {
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.writing.is_finished()) {
            let renews = snapshot.renews;
            match snapshot.end() {
                Ok(size) => {
                    self.snapshot_size = size;
                    self.log_size = self.segment.len();
                    if renews {
                        let keys = self.encryption.writers();
                        tracing::info!(?keys, "the store is written anew: its values are encrypted as configured");
                    }
                }
                Err(error) => {
                    self.is_stale |= renews;
                    tracing::warn!(%error, "cannot write a snapshot of the store; its log keeps growing");
                }
            }
        }
        let enough = SEGMENT.max(self.snapshot_size);
        // What a failed write left at the end of a segment is taken away by the next write to it, so it must come.
        if self.snapshot.is_some() || !self.segment.is_clean() {
            return;
        }
        let has_grown = self.log_size >= enough && self.segment.len() >= SEGMENT;
        if !(has_grown || self.is_stale) || self.segment.len() < self.least {
            return;
        }
        match self.begin_snapshot(view) {
            Ok(snapshot) => self.snapshot = Some(snapshot),
            Err(error) => tracing::warn!(%error, "cannot begin another segment of the store; its log keeps growing"),
        }
    }

    fn begin_snapshot(&mut self, view: &View) -> io::Result<Snapshot> {
        let number = self.number + 1;
        // On a full disk, whatever the old segment gives back may go to others: it stays until its reserve is nearly used up.
        if !self.segment.has_room_for_another() && !self.segment.is_at_its_last() {
            self.least = self.segment.len() + RESERVE / 8;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut next = begin(self.directory.path(), number, view.revision())?;
        next.renew_reserve();
        std::mem::replace(&mut self.segment, next).close();
        self.segment.renew_reserve();
        // A snapshot that fails is not tried again before so much has come: another segment, and a full disk, at each write would be worse.
        self.least = SEGMENT;
        self.number = number;
        let everything = view.everything();
        let stop = Arc::new(AtomicBool::new(false));
        let (path, stopping, encryption) =
            (self.directory.path().to_owned(), Arc::clone(&stop), self.encryption.clone());
        let writing = std::thread::Builder::new()
            .name("store snapshot".to_owned())
            .spawn(move || snapshot::write(&path, number, everything, &encryption, &stopping))?;
        Ok(Snapshot { writing, stop, renews: std::mem::take(&mut self.is_stale) })
    }
}

impl Snapshot {
    fn end(self) -> io::Result<u64> {
        self.writing.join().unwrap_or_else(|_| Err(io::Error::other("the snapshot panicked")))
    }
}

impl Drop for Embedded {
    /// Nobody else may enter the folder while a thread of ours writes there.
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.stop.store(true, Ordering::Relaxed);
            let _ = snapshot.end();
        }
    }
}

impl Log for Embedded {
    fn serve(
        mut self: Box<Self>,
        mut requests: mpsc::Receiver<Request>,
        view: Arc<View>,
        pause: Option<Pause>,
    ) -> Serving {
        Box::pin(async move {
            let mut group = Vec::with_capacity(GROUP);
            while requests.recv_many(&mut group, GROUP).await > 0 {
                while !group.is_empty() {
                    if let Some(pause) = &pause {
                        pause("store.commit").await;
                    }
                    group = self.serve_group(group, &view);
                }
                self.compact(&view);
            }
        })
    }
}

/// New and larger objects wait until the disk has room.
fn no_room() -> TransactError {
    let words = "No space left on the disk, but for what ends: objects can be deleted, and created when there is room";
    TransactError::Log(Arc::new(io::Error::new(io::ErrorKind::StorageFull, words)))
}

/// Makes the segment that follows `revision`.
pub(crate) fn begin(directory: &Path, number: u64, revision: Revision) -> io::Result<Segment> {
    let head = Head { holds: Holds::Changes, number, revision, floor: Revision::NONE };
    let (file, (length, chain)) = directory::make(directory, Holds::Changes, number, |file| {
        let mut frame = head.encode();
        let chain = Chain::default().seal(&mut frame);
        file.write_all(&frame)?;
        Ok((frame.len() as u64, chain))
    })?;
    Ok(Segment::new(file, length, chain))
}

/// Requests judged together, each against what the ones before it will have done.
struct Group<'a> {
    view: &'a View,
    next: Revision,
    staged: HashMap<Key, Option<Arc<Object>>>,
    changes: Vec<Change>,
    /// Keeps the parsed forms until the view has taken over those it wants.
    values: Vec<Arc<Value>>,
    /// The disk is full: what is left is for objects that end.
    is_short: bool,
}

/// What the steps of a request store together.
#[derive(Default)]
struct RequestSize {
    bytes: usize,
    /// The greatest of what each of them may store.
    limit: usize,
}

impl RequestSize {
    fn add(&mut self, object: &Object, limit: usize) -> Result<(), Refusal> {
        let own = object.key.len() + object.json.len();
        self.bytes += own;
        self.limit = self.limit.max(limit);
        let (size, limit) = if own > limit { (own, limit) } else { (self.bytes, self.limit) };
        if size > limit { Err(Refusal::TooLarge { key: object.key.clone(), size, limit }) } else { Ok(()) }
    }
}

/// The part of the group's changes that a request made, or why it made none.
type RequestOutcome = Result<std::ops::Range<usize>, TransactError>;

impl<'a> Group<'a> {
    fn new(view: &'a View, next: Revision, is_short: bool) -> Self {
        Self { view, next, staged: HashMap::new(), changes: Vec::new(), values: Vec::new(), is_short }
    }

    fn judge(&mut self, expects: &[(Key, Expect)], steps: Vec<Step>, then_delete: Option<Key>) -> RequestOutcome {
        for (key, expect) in expects {
            let stored = self.stored(key);
            let holds = match expect {
                Expect::Absent => stored.is_none(),
                Expect::Revision(expected) => stored.as_ref().is_some_and(|object| object.revision == *expected),
            };
            if !holds {
                return Err(TransactError::Conflict { key: key.clone(), found: stored });
            }
        }
        let first = self.changes.len();
        let mut size = RequestSize::default();
        for step in steps {
            let refused = match step {
                Step::Put { key, value } => self.put(key, value, false, &mut size).err(),
                Step::Mark { key, value } => self.put(key, value, true, &mut size).err(),
                Step::Delete { key } => {
                    self.delete(key);
                    None
                }
            };
            if let Some(refusal) = refused {
                self.undo(first);
                return Err(refusal);
            }
        }
        // Nobody comes between, and both are in one commit.
        if let Some(key) = then_delete {
            self.delete(key);
        }
        Ok(first..self.changes.len())
    }

    /// Takes back every change from the one with this index on: their request does not happen.
    fn undo(&mut self, first: usize) {
        self.values.truncate(first);
        for change in self.changes.drain(first..).rev() {
            self.next = change.revision();
            let before = match &change {
                Change::Added(_) => None,
                Change::Modified { before, .. } | Change::Deleted { before, .. } => Some(Arc::clone(before)),
            };
            self.staged.insert(change.key().clone(), before);
        }
    }

    fn stored(&self, key: &Key) -> Option<Arc<Object>> {
        self.staged.get(key).cloned().unwrap_or_else(|| self.view.get(key))
    }

    fn put(&mut self, key: Key, mut value: Value, is_mark: bool, size: &mut RequestSize) -> Result<(), TransactError> {
        let before = self.stored(&key);
        if before.as_ref().is_some_and(|before| !before.differs_from(&mut value)) {
            return Ok(());
        }
        let (after, value) = Object::stamped(key.clone(), self.next, value);
        let limit = size_limit(before.as_deref(), after.revision, is_mark);
        size.add(&after, limit).map_err(TransactError::Refused)?;
        let is_small = |before: &Arc<Object>| {
            let length = after.json.len();
            length <= before.json.len() + GROWTH_MAX && (is_mark || length <= SHORT_MAX)
        };
        if self.is_short && !before.as_ref().is_some_and(is_small) {
            return Err(no_room());
        }
        let after = self.take(after, value);
        self.staged.insert(key, Some(Arc::clone(&after)));
        self.changes.push(match before {
            None => Change::Added(after),
            Some(before) => Change::Modified { before, after },
        });
        Ok(())
    }

    fn delete(&mut self, key: Key) {
        let Some(before) = self.stored(&key) else { return };
        let (last, value) = Object::stamped(key.clone(), self.next, before.to_value());
        let last = self.take(last, value);
        self.staged.insert(key, None);
        self.changes.push(Change::Deleted { before, last });
    }

    /// Takes in an object that has the next revision.
    fn take(&mut self, object: Object, value: Arc<Value>) -> Arc<Object> {
        self.next = object.revision.next();
        self.values.push(value);
        Arc::new(object)
    }
}

fn answer_all(verdicts: Vec<(oneshot::Sender<Answer>, RequestOutcome)>, changes: &[Change]) {
    for (answer, verdict) in verdicts {
        let _ = answer.send(match verdict {
            Ok(range) => Ok(changes[range].to_vec()),
            Err(error) => Err(error),
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use api::bounds::SIZE_MAX;
    use serde_json::json;

    use super::*;

    fn open(path: &Path) -> (Embedded, View) {
        Embedded::open(path, Window::default(), &Encryption::default()).unwrap()
    }

    /// A request that is refused halfway leaves nothing to those behind it, and takes no revision.
    #[test]
    fn request_refused_for_its_size_leaves_its_group_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, view) = open(&directory.path().join("store"));
        let (pod, budget) = (Key::new("pods", "default", "a"), Key::new("budgets", "default", "b"));
        let put = |key: &Key, size: usize| Step::Put { key: key.clone(), value: json!({ "x": "x".repeat(size) }) };
        let delete = |key: &Key| Step::Delete { key: key.clone() };
        let cases = vec![
            vec![put(&pod, 1)],
            vec![put(&pod, 2), delete(&pod), put(&budget, 1), put(&budget, SIZE_MAX)],
            vec![put(&budget, 3)],
            vec![delete(&pod), put(&pod, SIZE_MAX)],
            vec![put(&pod, 4)],
        ];
        let (requests, answers): (Vec<_>, Vec<_>) = cases
            .into_iter()
            .map(|steps| {
                let (answer, answered) = oneshot::channel();
                (Request { expects: Vec::new(), steps, then_delete: None, answer }, answered)
            })
            .unzip();
        assert!(log.serve_group(requests, &view).is_empty());
        let told: Vec<String> = answers
            .into_iter()
            .map(|mut answered| match answered.try_recv().unwrap() {
                Ok(changes) => format!("{:?}", changes.iter().map(|change| change.revision().0).collect::<Vec<_>>()),
                Err(TransactError::Refused(Refusal::TooLarge { key, size, limit: SIZE_MAX })) if size > SIZE_MAX => {
                    format!("{key} is too large")
                }
                Err(error) => panic!("{error:?}"),
            })
            .collect();
        let (b, a) = ("budgets/default/b is too large", "pods/default/a is too large");
        assert_eq!(told, ["[2]", b, "[3]", a, "[4]"]);
        let length = |key: &Key| view.get(key).unwrap().value()["x"].as_str().unwrap().len();
        assert_eq!((length(&pod), length(&budget), view.revision()), (4, 3, Revision(4)));
        drop(log);
        let (_log, view) = open(&directory.path().join("store"));
        assert_eq!(view.revision(), Revision(4), "what was refused is in no file");
    }

    #[test]
    fn grouped_write_sees_the_writes_before_it() {
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
                (Request { expects: vec![(key.clone(), expect)], steps, then_delete: None, answer }, answered)
            })
            .unzip();
        assert!(log.serve_group(requests, &view).is_empty());
        let told: Vec<_> = answers
            .into_iter()
            .map(|mut answered| match answered.try_recv().unwrap() {
                Ok(changes) => changes.iter().map(|change| format!("@{}", change.revision())).collect::<String>(),
                Err(TransactError::Conflict { found, .. }) => {
                    format!("conflict {:?}", found.map(|object| object.revision.0))
                }
                Err(error @ (TransactError::Refused(_) | TransactError::Log(_))) => panic!("{error:?}"),
            })
            .collect();
        assert_eq!(told, ["@2", "conflict Some(2)", "", "@3", "conflict None", "@4"]);
    }
}
