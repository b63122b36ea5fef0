//! A watch: a cursor into the shared history of one collection.
//!
//! It owns no queue of its own, so a slow reader costs nothing and cannot miss, repeat or reorder a change; it only risks
//! that the window moves past it, and then it ends. Dropping it is enough to be rid of it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use crate::view::{Lagged, View};
use crate::{Change, Revision};

/// The changes of one collection, each exactly once, in the order of revisions.
#[derive(Debug)]
pub struct Watch {
    view: Arc<View>,
    collection: Box<str>,
    namespace: Box<str>,
    /// Everything up to here is delivered or in `ready`.
    cursor: Revision,
    ready: VecDeque<Change>,
    news: watch::Receiver<Revision>,
    /// Why there is no more, once there is no more.
    end: Option<WatchEnd>,
}

/// Why a watch has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchEnd {
    /// The reader was too slow: changes it has not read are no longer kept.
    Lagged,
    /// The store was closed; everything before was read.
    Closed,
}

impl Watch {
    pub(crate) fn new(
        view: Arc<View>,
        collection: &str,
        namespace: &str,
        from: Revision,
        news: watch::Receiver<Revision>,
    ) -> Self {
        Self {
            view,
            collection: collection.into(),
            namespace: namespace.into(),
            cursor: from,
            ready: VecDeque::new(),
            news,
            end: None,
        }
    }

    /// The next change, once there is one; `None` when there will be no more, for the reason that [`Watch::end`] then
    /// says. Safe to cancel.
    pub async fn next(&mut self) -> Option<Change> {
        while self.end.is_none() {
            if let Some(change) = self.ready.pop_front() {
                return Some(change);
            }
            // Marked before looking: news that arrive in between wake us again at once.
            self.news.mark_unchanged();
            match self.view.after(&self.collection, &self.namespace, self.cursor) {
                Ok(after) => (self.ready, self.cursor) = after,
                Err(Lagged) => self.end = Some(WatchEnd::Lagged),
            }
            if self.ready.is_empty() && self.end.is_none() && self.news.changed().await.is_err() {
                self.end = Some(WatchEnd::Closed);
            }
        }
        None
    }

    /// The next change of those that are there, without waiting for more; `None` when all were read, or there will be no more, which
    /// [`Watch::end`] then says.
    pub fn next_now(&mut self) -> Option<Change> {
        if self.ready.is_empty() && self.end.is_none() {
            match self.view.after(&self.collection, &self.namespace, self.cursor) {
                Ok(after) => (self.ready, self.cursor) = after,
                Err(Lagged) => self.end = Some(WatchEnd::Lagged),
            }
        }
        self.ready.pop_front()
    }

    /// The next change if it came along with the one before; for readers that pass on several at once.
    pub fn next_ready(&mut self) -> Option<Change> {
        self.ready.pop_front()
    }

    /// The revision of what [`Watch::next_ready`] would answer. Whoever passes on several at once ends between revisions:
    /// a reader that resumes after one change of a revision is not told the others.
    pub fn ready_revision(&self) -> Option<Revision> {
        self.ready.front().map(Change::revision)
    }

    /// Why the watch has ended, if it has.
    pub fn end(&self) -> Option<WatchEnd> {
        self.end
    }

    /// Everything up to here in this collection has been delivered; what a bookmark may promise.
    pub fn progress(&self) -> Revision {
        match self.ready.front() {
            Some(change) => Revision(change.revision().0 - 1),
            None => self.view.progress(&self.collection, &self.namespace, self.cursor),
        }
    }
}
