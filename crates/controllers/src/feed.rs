//! One watch, several controllers: every object is read once and shared.

use std::fmt::Debug;
use std::sync::Arc;

use client::{Change, WatchUpdate, follow_changes};
use frame::{Source, SourceUpdate};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How much may wait for a slow reader before the watch waits too.
const QUEUE: usize = 256;

/// One kind of objects, and who is told about it.
pub(crate) struct Feed<K> {
    /// What sources of this are called.
    name: &'static str,
    api: Api<K>,
    readers: Vec<mpsc::Sender<Change<Arc<K>>>>,
}

impl<K> Feed<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    pub(crate) fn new(name: &'static str, api: Api<K>) -> Self {
        Self { name, api, readers: Vec::new() }
    }

    /// A source for one more reader, who calls what it is told `input`.
    pub(crate) fn source<I: Send + 'static>(
        &mut self,
        input: impl Fn(WatchUpdate<Arc<K>>) -> I + Send + 'static,
    ) -> Source<I> {
        let (out, told) = mpsc::channel(QUEUE);
        self.readers.push(out);
        let news = futures::stream::unfold((told, input), |(mut told, input)| async move {
            let news = to_news(told.recv().await?, |object| revision(object.resource_version()), &input);
            Some((news, (told, input)))
        });
        Source::new(self.name, news)
    }

    /// Begins to tell. The followers are `tasks`.
    pub(crate) fn start(self, tasks: &mut JoinSet<()>) {
        let (out, mut told) = mpsc::channel(QUEUE);
        tasks.spawn(follow_changes(self.api, out));
        let readers = self.readers;
        tasks.spawn(async move {
            while let Some(change) = told.recv().await {
                let shared = match change {
                    Change::Listed(all, revision) => Change::Listed(all.into_iter().map(Arc::new).collect(), revision),
                    Change::Changed(one) => Change::Changed(Arc::new(one)),
                    Change::Removed(one) => Change::Removed(Arc::new(one)),
                    Change::Reached(revision) => Change::Reached(revision),
                };
                for reader in &readers {
                    // A reader that has ended takes the others with it: they begin anew together.
                    if reader.send(shared.clone()).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// What was told, in a controller's words.
pub(crate) fn to_news<T, I>(
    change: Change<T>,
    revision: impl Fn(&T) -> Option<u64>,
    input: &impl Fn(WatchUpdate<T>) -> I,
) -> SourceUpdate<I> {
    match change {
        Change::Listed(all, revision) => SourceUpdate::listed(input(WatchUpdate::Listed(all)), revision),
        Change::Changed(one) => {
            let revision = revision(&one);
            SourceUpdate::changed(input(WatchUpdate::Changed(one)), revision)
        }
        Change::Removed(one) => {
            let revision = revision(&one);
            SourceUpdate::changed(input(WatchUpdate::Removed(one)), revision)
        }
        Change::Reached(revision) => SourceUpdate::reached(revision),
    }
}

/// A revision as a number. Ours are; those of another server need not be, and then nobody waits for them.
pub(crate) fn revision(written: Option<String>) -> Option<u64> {
    written.and_then(|revision| revision.parse().ok())
}
