//! List, then watch, for ever: what changed in a collection, without a gap.
//!
//! Ends only with its receiver. A broken watch is resumed from the last revision seen; one that cannot be
//! resumed is listed anew, which the reader is told, because things found in a list happened at some
//! unknown time before.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::api::{Api, ListParams, PartialObjectMeta, PartialObjectMetaExt as _, Request, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
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

/// How long to wait after a failure before asking the server again; longer after each one.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MOST: Duration = Duration::from_secs(2);

/// How long one watch request may last; the server ends it and we resume.
const WATCH_SECONDS: u32 = 280;

/// What panics here are counted as. Whoever breaks begins with a list.
const PART: &str = "follow";

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
    let request = Request::new(api.resource_url());
    let source = Whole { client: api.into_client(), request, list, watch, of: PhantomData };
    supervision::keep(PART, || follow_source(&source, &out)).await;
}

/// Follows what `api` says about its objects, their metadata without annotations and managed fields, until the receiver is
/// dropped.
pub async fn follow_metadata<K>(api: Api<K>, out: mpsc::Sender<Sight<PartialObjectMeta<K>>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    let request = Request::new(api.resource_url());
    let source = Metadata { client: api.into_client(), request, of: PhantomData };
    supervision::keep(PART, || follow_source(&source, &out)).await;
}

fn watch_params() -> WatchParams {
    WatchParams::default().timeout(WATCH_SECONDS)
}

/// Where lists and watches of `T` come from.
trait Source<T: Clone> {
    async fn list(&self) -> kube::Result<List<T>>;
    async fn watch(&self, revision: &str) -> kube::Result<BoxStream<'_, kube::Result<WatchEvent<T>>>>;
}

/// A list, read without a copy of it in between, which is what `kube`'s own type makes.
#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<T>,
}

/// The objects themselves.
struct Whole<K> {
    client: kube::Client,
    request: Request,
    list: ListParams,
    watch: WatchParams,
    of: PhantomData<fn() -> K>,
}

impl<K> Source<K> for Whole<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    async fn list(&self) -> kube::Result<List<K>> {
        self.client.request(self.request.list(&self.list).map_err(kube::Error::BuildRequest)?).await
    }

    async fn watch(&self, revision: &str) -> kube::Result<BoxStream<'_, kube::Result<WatchEvent<K>>>> {
        let request = self.request.watch(&self.watch, revision).map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request_events::<K>(request).await?.boxed())
    }
}

/// Their metadata.
struct Metadata<K> {
    client: kube::Client,
    request: Request,
    of: PhantomData<fn() -> K>,
}

/// An object of which only this is read.
#[derive(Deserialize, Clone)]
struct Partial {
    #[serde(deserialize_with = "crate::lean_metadata")]
    metadata: ObjectMeta,
}

impl<K> Source<PartialObjectMeta<K>> for Metadata<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    async fn list(&self) -> kube::Result<List<PartialObjectMeta<K>>> {
        let request = self.request.list_metadata(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
        let List { metadata, items } = self.client.request::<List<Partial>>(request).await?;
        let items = items.into_iter().map(|item| item.metadata.into_response_partial()).collect();
        Ok(List { metadata, items })
    }

    async fn watch(
        &self,
        revision: &str,
    ) -> kube::Result<BoxStream<'_, kube::Result<WatchEvent<PartialObjectMeta<K>>>>> {
        let request = self.request.watch_metadata(&watch_params(), revision).map_err(kube::Error::BuildRequest)?;
        let events = self.client.request_events::<Partial>(request).await?;
        Ok(events.map(|event| event.map(whole_event)).boxed())
    }
}

fn whole_event<K: Resource + Clone>(event: WatchEvent<Partial>) -> WatchEvent<PartialObjectMeta<K>> {
    match event {
        WatchEvent::Added(object) => WatchEvent::Added(object.metadata.into_response_partial()),
        WatchEvent::Modified(object) => WatchEvent::Modified(object.metadata.into_response_partial()),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(object.metadata.into_response_partial()),
        WatchEvent::Bookmark(mark) => WatchEvent::Bookmark(mark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    }
}

async fn follow_source<T: ResourceExt + Clone>(source: &impl Source<T>, out: &mpsc::Sender<Sight<T>>) {
    let mut pause = RETRY;
    while !out.is_closed() {
        let list = match source.list().await {
            Ok(list) => list,
            Err(error) => {
                warn!(%error, "cannot list; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MOST);
                continue;
            }
        };
        pause = RETRY;
        let mut revision = list.metadata.resource_version.clone().unwrap_or_default();
        if out.send(Sight::Listed(list.items)).await.is_err() {
            return;
        }
        while let Resume::From(next) = watch_once(source, revision, out).await {
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
