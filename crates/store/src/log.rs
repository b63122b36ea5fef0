//! The seam between the handle and whatever makes writes durable.
//!
//! A log alone gives out revisions. It takes requests from a queue, makes them durable, tells the view what became true
//! in the order of revisions, and only then answers: a success once the view has it, a conflict once the view has what was
//! found. The embedded log judges expectations against its own view and gives the steps of one request a revision each. A
//! log kept by other machines hands expectation and value to them, lets the view follow the stream of changes that comes
//! back, and answers a request once the view has reached it; stamping happens on arrival there, so nothing outside a log
//! may depend on when an object is serialised. Such a store gives all steps of one request one revision and takes one step
//! per key, so the handle refuses two for every log, and two objects of one collection: a watch that resumes can then never
//! stop between two changes of one request. It also bounds what a request may hold, and so does every log
//! ([`size_limit`]).
//!
//! An outcome that a log is not told it finds out, by asking again with the same expectations, before it answers: nobody
//! is told a guess.
//!
//! What every log has to do is in `conformance`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use api::bounds::SIZE_MAX;

use crate::view::View;
use crate::{Change, Expect, Key, Object, Revision, Step, TransactError};

/// By how much a mark may make an object larger than it was, or than it may be: a time, a grace, a finalizer, a condition.
const MARK: usize = 16 << 10;

/// A write on its way.
#[derive(Debug)]
pub(crate) struct Request {
    /// What must be true of which keys.
    pub(crate) expects: Vec<(Key, Expect)>,
    pub(crate) steps: Vec<Step>,
    /// Removed by a write of its own once `steps` are done, if it is still what they left. That other write may share the
    /// commit of the first and need not; where it does not, somebody else may come between, or a crash: the first then
    /// stands alone, and the answer has its changes only.
    pub(crate) then_delete: Option<Key>,
    /// Nobody may be waiting any more; the write happens all the same.
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// What became of it.
pub(crate) type Answer = Result<Vec<Change>, TransactError>;

/// Makes writes durable for as long as there is a store. Blocks whoever polls it while it writes.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Awaited right before a commit (`store.commit`), where no thread of its own is there to be slow.
pub type Pause = Arc<dyn Fn(&'static str) -> Serving + Send + Sync>;

/// Where writes become durable and get their revisions.
pub(crate) trait Log: Send + 'static {
    /// Serves requests until every handle is gone. `pause` is awaited around every commit.
    fn serve(self: Box<Self>, requests: mpsc::Receiver<Request>, view: Arc<View>, pause: Option<Pause>) -> Serving;
}

/// How large what a step stores may be, with its key. What is stored larger already may stay as large as it is, and
/// grow a little when it is marked: everything can be deleted. All steps of a request together may be as large as the one
/// that may be the largest.
pub(crate) fn size_limit(before: Option<&Object>, after: Revision, is_mark: bool) -> usize {
    let stored = before.map_or(0, |before| before.key.len() + size_at(before, after));
    stored.max(SIZE_MAX) + if is_mark { MARK } else { 0 }
}

/// How large `object` would be at another revision, which may have more digits.
fn size_at(object: &Object, revision: Revision) -> usize {
    let digits = |revision: Revision| revision.0.checked_ilog10().unwrap_or(0) as usize;
    object.json.len() + digits(revision).saturating_sub(digits(object.revision))
}
