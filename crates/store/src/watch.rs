//! A watch: a cursor into the shared history of one collection.
//!
//! It owns no queue of its own, so a slow reader costs nothing and cannot miss, repeat or reorder a change; it only risks
//! that the window moves past it, and then it ends. Dropping it is enough to be rid of it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use crate::view::View;
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
        }
    }

    /// The next change, once there is one. `None` when the reader was too slow or the store is closed: end the stream,
    /// its client resumes or lists again. Safe to cancel.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(change);
            }
            // Marked before looking: news that arrive in between wake us again at once.
            self.news.mark_unchanged();
            (self.ready, self.cursor) = self.view.after(&self.collection, &self.namespace, self.cursor).ok()?;
            if self.ready.is_empty() {
                self.news.changed().await.ok()?;
            }
        }
    }

    /// Everything up to here in this collection has been delivered; what a bookmark may promise.
    pub fn progress(&self) -> Revision {
        match self.ready.front() {
            Some(change) => Revision(change.revision().0 - 1),
            None => self.view.progress(&self.collection, &self.namespace, self.cursor),
        }
    }
}
