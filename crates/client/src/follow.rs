//! List, then watch, for ever: what changed in a collection, without a gap.
//!
//! Ends only with its receiver. A broken watch is resumed from the last revision seen; one that cannot be
//! resumed is listed anew, which the reader is told, because things found in a list happened at some
//! unknown time before.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ListParams, ObjectList, PartialObjectMeta, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// What a reader is told.
#[derive(Debug)]
pub enum Sight<K> {
    /// Everything there is, found by listing.
    Listed(Vec<K>),
    /// Added or modified, seen as it happened.
    Changed(K),
    /// Removed, seen as it happened; its last state.
    Removed(K),
}

/// How long to wait after a failure before asking the server again.
const RETRY: Duration = Duration::from_millis(200);

/// How long one watch request may last; the server ends it and we resume.
const WATCH_SECONDS: u32 = 280;

/// Follows `api`, restricted by a field selector, until the receiver is dropped.
pub async fn follow<K>(api: Api<K>, field_selector: Option<String>, out: mpsc::Sender<Sight<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut list = ListParams::default();
    let mut watch = watch_params();
    if let Some(selector) = &field_selector {
        list = list.fields(selector);
        watch = watch.fields(selector);
    }
    follow_source(Whole { api, list, watch }, out).await;
}

/// Follows what `api` says about its objects, their metadata, until the receiver is dropped.
pub async fn follow_metadata<K>(api: Api<K>, out: mpsc::Sender<Sight<PartialObjectMeta<K>>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    follow_source(Metadata { api }, out).await;
}

fn watch_params() -> WatchParams {
    WatchParams::default().timeout(WATCH_SECONDS)
}

/// Where lists and watches of `T` come from.
trait Source<T: Clone> {
    async fn list(&self) -> kube::Result<ObjectList<T>>;
    async fn watch(&self, revision: &str) -> kube::Result<BoxStream<'_, kube::Result<WatchEvent<T>>>>;
}

/// The objects themselves.
struct Whole<K> {
    api: Api<K>,
    list: ListParams,
    watch: WatchParams,
}

impl<K> Source<K> for Whole<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    async fn list(&self) -> kube::Result<ObjectList<K>> {
        self.api.list(&self.list).await
    }

    async fn watch(&self, revision: &str) -> kube::Result<BoxStream<'_, kube::Result<WatchEvent<K>>>> {
        Ok(self.api.watch(&self.watch, revision).await?.boxed())
    }
}

/// Their metadata.
struct Metadata<K> {
    api: Api<K>,
}

impl<K> Source<PartialObjectMeta<K>> for Metadata<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    async fn list(&self) -> kube::Result<ObjectList<PartialObjectMeta<K>>> {
        self.api.list_metadata(&ListParams::default()).await
    }

    async fn watch(
        &self,
        revision: &str,
    ) -> kube::Result<BoxStream<'_, kube::Result<WatchEvent<PartialObjectMeta<K>>>>> {
        Ok(self.api.watch_metadata(&watch_params(), revision).await?.boxed())
    }
}

async fn follow_source<T: ResourceExt + Clone>(source: impl Source<T>, out: mpsc::Sender<Sight<T>>) {
    while !out.is_closed() {
        let list = match source.list().await {
            Ok(list) => list,
            Err(error) => {
                warn!(%error, "cannot list; trying again");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let mut revision = list.metadata.resource_version.clone().unwrap_or_default();
        if out.send(Sight::Listed(list.items)).await.is_err() {
            return;
        }
        while let Resume::From(next) = watch_once(&source, revision, &out).await {
            revision = next;
        }
    }
}

/// How one watch request ended.
enum Resume {
    /// Cleanly, or by a broken connection: go on from here.
    From(String),
    /// The history is gone, or nobody listens: list again (or stop).
    ByListing,
}

async fn watch_once<T: ResourceExt + Clone>(
    source: &impl Source<T>,
    mut revision: String,
    out: &mpsc::Sender<Sight<T>>,
) -> Resume {
    let mut stream = match source.watch(&revision).await {
        Ok(stream) => stream,
        Err(error) => {
            warn!(%error, "cannot watch; listing again");
            tokio::time::sleep(RETRY).await;
            return Resume::ByListing;
        }
    };
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            () = out.closed() => return Resume::ByListing,
        };
        let sight = match item {
            None => return Resume::From(revision),
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => Sight::Changed(object),
            Some(Ok(WatchEvent::Deleted(object))) => Sight::Removed(object),
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                revision = mark.metadata.resource_version;
                continue;
            }
            Some(Ok(WatchEvent::Error(status))) => {
                debug!(code = status.code, message = %status.message, "the watch cannot go on");
                return Resume::ByListing;
            }
            Some(Err(error)) => {
                warn!(%error, "the watch broke; resuming");
                tokio::time::sleep(RETRY).await;
                return Resume::From(revision);
            }
        };
        if let Sight::Changed(object) | Sight::Removed(object) = &sight
            && let Some(seen) = object.resource_version()
        {
            revision = seen;
        }
        if out.send(sight).await.is_err() {
            return Resume::ByListing;
        }
    }
}
