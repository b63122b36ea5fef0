//! The seam between the handle and whatever makes writes durable.
//!
//! A log alone gives out revisions. It takes requests from a queue, makes them durable, tells the view what became true
//! in the order of revisions, and only then answers. The embedded log judges expectations against its own view and may
//! give the steps of one request a revision each. A log kept by other machines would hand expectation and value to them,
//! let the view follow the stream of changes that comes back, and answer a request once the view has reached it; stamping
//! happens on arrival there, so nothing outside a log may depend on when an object is serialised. Such a store gives all
//! steps of one request one revision, so a request touches at most one object of a collection: a watch that resumes
//! can then never stop between two of its changes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::view::View;
use crate::{Change, Expect, Key, Step, TransactError};

/// A write on its way.
#[derive(Debug)]
pub(crate) struct Request {
    /// What must be true of which keys.
    pub(crate) expects: Vec<(Key, Expect)>,
    pub(crate) steps: Vec<Step>,
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
