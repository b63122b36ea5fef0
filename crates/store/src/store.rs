//! The handle everyone holds.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use api::bounds::{self, DEPTH_MAX};

use crate::embedded::Embedded;
use crate::log::{Log, Pause, Request, Serving};
use crate::soundness::READABLE_DEPTH_MAX;
use crate::view::View;
use crate::{
    Backup, Change, Encryption, Expect, HistoryError, Key, OPERATIONS_MAX, Object, OpenError, Page, Refusal, Revision,
    Step, TransactError, Watch, WriteError,
};

/// Writes that wait for the log beyond these make their writers wait, which is all the back-pressure there is.
const QUEUE: usize = 1024;

/// How much of the past stays readable. The first bound reached counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// At most so many changes.
    pub changes: usize,
    /// At most about so much memory for objects that only the past still needs.
    pub bytes: usize,
    /// Lists of the past reach back so far. A watch may start earlier, where what it needs is still there.
    pub age: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Self { changes: 65_536, bytes: 32 << 20, age: Duration::from_secs(300) }
    }
}

/// Versioned objects and watches. Cheap to clone; the last clone dropped closes the files and ends every watch.
#[derive(Clone, Debug)]
pub struct Store {
    // Declared, and so dropped, before `_closing`: the log ends when its queue is closed.
    requests: mpsc::Sender<Request>,
    view: Arc<View>,
    encryption: Encryption,
    _closing: Arc<Closing>,
}

impl Store {
    /// Opens the store in the folder `path`, or makes it, with the default [`Window`].
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, Window::default()).await
    }

    /// Opens the store in the folder `path`, or makes it.
    pub async fn open_with(path: &Path, window: Window) -> Result<Self, OpenError> {
        Self::open_encrypted(path, window, Encryption::default()).await
    }

    /// The same with values that are encrypted on disk. Those that are there and would be written otherwise are written anew.
    pub async fn open_encrypted(path: &Path, window: Window, encryption: Encryption) -> Result<Self, OpenError> {
        let (folder, by) = (path.to_owned(), encryption.clone());
        let opened = tokio::task::spawn_blocking(move || Embedded::open(&folder, window, &by)).await;
        let (log, view) = opened.expect("opening a store does not panic, whatever is in its files")?;
        Ok(Self { encryption, ..Self::over(Box::new(log), view) })
    }

    /// The same without any thread: all is done where it is asked for, and whoever opens it has to poll what is answered
    /// besides. `pause` is awaited before every commit.
    pub fn open_in_line(path: &Path, window: Window, pause: Pause) -> Result<(Self, Serving), OpenError> {
        let encryption = Encryption::default();
        let (log, view) = Embedded::open(path, window, &encryption)?;
        let (view, (requests, queue)) = (Arc::new(view), mpsc::channel(QUEUE));
        let serving = Box::new(log).serve(queue, Arc::clone(&view), Some(pause));
        let closing = Arc::new(Closing { view: Arc::clone(&view), serving: None });
        Ok((Self { requests, view, encryption, _closing: closing }, serving))
    }

    pub(crate) fn over(log: Box<dyn Log>, view: View) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let view = Arc::new(view);
        let serving = log.serve(queue, Arc::clone(&view), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime without timers and sockets asks the system for nothing");
        let serving = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || supervision::or_abort("store", "the store's writer", || runtime.block_on(serving)))
            .expect("a thread can be started while the process starts");
        let closing = Closing { view: Arc::clone(&view), serving: Some(serving) };
        Self { requests, view, encryption: Encryption::default(), _closing: Arc::new(closing) }
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.view.revision()
    }

    /// Whether the last write could be made durable. One that could not is tried by nobody but the next writer, so this
    /// turns true again with the first that succeeds.
    pub fn takes_writes(&self) -> bool {
        self.view.takes_writes()
    }

    /// The object under `key`, as of now.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.view.get(key)
    }

    /// The objects of `collection` in `namespace` (empty: in all), as of `at` or as of now.
    pub fn list(&self, collection: &str, namespace: &str, at: Option<Revision>) -> Result<Page, HistoryError> {
        self.view.list(collection, namespace, at)
    }

    /// The objects of `collection` in `namespace` (empty: in all) of which nothing is known but their keys, as of now.
    /// No list has them: [`Object::unreadable`].
    pub fn unreadable(&self, collection: &str, namespace: &str) -> Vec<Arc<Object>> {
        self.view.unreadable(collection, namespace)
    }

    /// Everything there is, as of now, to be kept elsewhere. What is encrypted on disk is encrypted in it.
    pub fn backup(&self) -> Backup {
        self.view.backup(self.encryption.clone())
    }

    /// The changes of `collection` in `namespace` (empty: in all) after `from`, or from now on.
    pub fn watch(&self, collection: &str, namespace: &str, from: Option<Revision>) -> Result<Watch, HistoryError> {
        let (from, news) = self.view.subscribe(collection, from)?;
        Ok(Watch::new(Arc::clone(&self.view), collection, namespace, from, news))
    }

    /// The objects as of now, and the changes after exactly that.
    pub fn list_and_watch(&self, collection: &str, namespace: &str) -> (Page, Watch) {
        let (page, news) = self.view.page_and_subscribe(collection, namespace);
        let watch = Watch::new(Arc::clone(&self.view), collection, namespace, page.revision, news);
        (page, watch)
    }

    /// Performs the one step in `steps` on `key` if `expect` holds; the change comes back. A put that would change nothing
    /// is skipped: no revision, no change.
    ///
    /// Dropping the future does not undo a write that was already queued.
    ///
    /// # Panics
    ///
    /// If a step concerns another key.
    pub async fn write(&self, key: &Key, expect: Expect, steps: Vec<Step>) -> Result<Vec<Change>, WriteError> {
        for step in &steps {
            assert_eq!(step.key(), key, "every step of a write concerns its one key");
        }
        self.transact(vec![(key.clone(), expect)], steps).await.map_err(WriteError::from)
    }

    /// As [`Store::write`], over several keys: all of `steps` if all of `expects` hold, else none. A key may be expected
    /// without being written. Of a collection at most one object is written, once; there are at most [`OPERATIONS_MAX`]
    /// expectations and steps.
    pub async fn transact(&self, expects: Vec<(Key, Expect)>, steps: Vec<Step>) -> Result<Vec<Change>, TransactError> {
        self.request(expects, steps, None).await
    }

    /// As [`Store::transact`], and then a second transaction that removes `key` if it is what the first one left. Watches
    /// see both. The changes of both come back; those of the first alone if somebody else wrote the object in between,
    /// which is for the caller to look at. A crash may leave the first alone, too.
    pub async fn transact_then_delete(
        &self,
        expects: Vec<(Key, Expect)>,
        steps: Vec<Step>,
        key: Key,
    ) -> Result<Vec<Change>, TransactError> {
        self.request(expects, steps, Some(key)).await
    }

    async fn request(
        &self,
        expects: Vec<(Key, Expect)>,
        steps: Vec<Step>,
        then_delete: Option<Key>,
    ) -> Result<Vec<Change>, TransactError> {
        let refused = shape_refusal(&expects, &steps).or_else(|| steps.iter().find_map(|step| self.refusal(step)));
        if let Some(refusal) = refused {
            for step in steps {
                if let Step::Put { value, .. } | Step::Mark { value, .. } = step {
                    bounds::discard(value);
                }
            }
            return Err(TransactError::Refused(refusal));
        }
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request { expects, steps, then_delete, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Why a value is not to be stored, whatever else is. How large it is is known when it is written.
    fn refusal(&self, step: &Step) -> Option<Refusal> {
        let (Step::Put { key, value } | Step::Mark { key, value }) = step else { return None };
        if !value.is_object() || value.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
            return Some(Refusal::NotAnObject { key: key.clone() });
        }
        if bounds::is_within(value, DEPTH_MAX) {
            return None;
        }
        // What an earlier version stored may stay as deep as it is; it could not even be marked for deletion otherwise.
        let before = self.view.get(key).map_or(0, |before| bounds::depth(&before.value(), READABLE_DEPTH_MAX));
        let limit = before.clamp(DEPTH_MAX, READABLE_DEPTH_MAX);
        let path = bounds::path_beyond(value, limit)?;
        Some(Refusal::TooDeep { key: key.clone(), path, limit })
    }
}

/// Why a transaction is not to be tried, whatever its values are: what etcd would refuse, and what a watch could not be
/// resumed within.
fn shape_refusal(expects: &[(Key, Expect)], steps: &[Step]) -> Option<Refusal> {
    let count = expects.len().max(steps.len());
    if count > OPERATIONS_MAX {
        return Some(Refusal::TooManyOperations { count, limit: OPERATIONS_MAX });
    }
    steps.iter().enumerate().find_map(|(at, step)| {
        let key = step.key();
        let other = steps[..at].iter().map(Step::key).find(|other| other.collection == key.collection)?;
        Some(match other == key {
            true => Refusal::SameKey { key: key.clone() },
            false => Refusal::SameCollection { key: other.clone(), other: key.clone() },
        })
    })
}

fn closed() -> TransactError {
    TransactError::Log(Arc::new(std::io::Error::other("the log has ended")))
}

/// Ends the watches and waits for the log, when the last handle goes.
#[derive(Debug)]
struct Closing {
    view: Arc<View>,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.view.close();
        if let Some(Err(_)) = self.serving.take().map(JoinHandle::join) {
            tracing::error!("the store's log ended in a panic");
        }
    }
}
