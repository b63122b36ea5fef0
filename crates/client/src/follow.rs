//! List, then watch, for ever: what changed in a collection, without a gap.
//!
//! Ends only with its receiver. A broken watch is resumed from the last revision seen; one that cannot be
//! resumed is listed anew, which the reader is told, because things found in a list happened at some
//! unknown time before. An event that cannot be read costs its object alone: the reader keeps what it knew of it.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::api::{Api, ListParams, PartialObjectMeta, PartialObjectMetaExt as _, Request, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
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

/// The same for a reader that has to know how far it has been told.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// Everything there is that can be read, at this revision.
    Listed(Vec<K>, Option<u64>),
    /// Added or modified.
    Changed(K),
    /// Removed; its last state.
    Removed(K),
    /// Nothing else happened up to this revision.
    Reached(u64),
}

/// What a follower says.
trait Message<T>: Sized {
    /// Whether a list is of use without what cannot be read. Whoever takes what is not in it for gone wants the whole.
    const LEAVES_OUT: bool;
    fn of(change: Change<T>) -> Option<Self>;
}

impl<T> Message<T> for Sight<T> {
    const LEAVES_OUT: bool = false;

    fn of(change: Change<T>) -> Option<Self> {
        match change {
            Change::Listed(all, _) => Some(Self::Listed(all)),
            Change::Changed(one) => Some(Self::Changed(one)),
            Change::Removed(one) => Some(Self::Removed(one)),
            Change::Reached(_) => None,
        }
    }
}

impl<T> Message<T> for Change<T> {
    const LEAVES_OUT: bool = true;

    fn of(change: Change<T>) -> Option<Self> {
        Some(change)
    }
}

/// How long to wait after a failure before asking the server again; longer after each one.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MOST: Duration = Duration::from_secs(2);

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
    let request = Request::new(api.resource_url());
    follow_source(Whole { client: api.into_client(), request, list, watch, of: PhantomData }, out).await;
}

/// Follows all of `api` until the receiver is dropped. What cannot be read is left out.
pub async fn follow_changes<K>(api: Api<K>, out: mpsc::Sender<Change<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (request, list, watch) = (Request::new(api.resource_url()), ListParams::default(), watch_params());
    follow_source(Whole { client: api.into_client(), request, list, watch, of: PhantomData }, out).await;
}

/// Follows what `api` says about its objects, their metadata without annotations and managed fields, until the receiver is
/// dropped.
pub async fn follow_metadata<K>(api: Api<K>, out: mpsc::Sender<Change<PartialObjectMeta<K>>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    let request = Request::new(api.resource_url());
    follow_source(Metadata { client: api.into_client(), request, of: PhantomData }, out).await;
}

fn watch_params() -> WatchParams {
    WatchParams::default().timeout(WATCH_SECONDS)
}

/// One line of a watch each.
type Lines = BoxStream<'static, kube::Result<String>>;

/// Where lists and watches of `T` come from.
trait Source<T: Clone> {
    async fn list(&self, leaves_out: bool) -> kube::Result<List<T>>;
    async fn watch(&self, revision: &str) -> kube::Result<Lines>;
    fn read_event(line: &str) -> serde_json::Result<WatchEvent<T>>;
}

/// A list, read without a copy of it in between, which is what `kube`'s own type makes.
#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<T>,
}

async fn read_list<T: DeserializeOwned>(
    client: &kube::Client,
    request: http::Request<Vec<u8>>,
    leaves_out: bool,
) -> kube::Result<List<T>> {
    let text = client.request_text(request).await?;
    let unreadable = match serde_json::from_str(&text) {
        Ok(list) => return Ok(list),
        Err(error) if leaves_out => error,
        Err(error) => return Err(kube::Error::SerdeError(error)),
    };
    let List { metadata, items } = serde_json::from_str::<List<Value>>(&text).map_err(kube::Error::SerdeError)?;
    let all = items.len();
    let items: Vec<T> = items.into_iter().filter_map(|item| T::deserialize(item).ok()).collect();
    warn!(error = %unreadable, left_out = all - items.len(), "a list holds what cannot be read");
    Ok(List { metadata, items })
}

/// Asks for a watch. Its lines are read here, not by `kube`: of one that cannot be read there, not even the object is known.
async fn read_lines(client: &kube::Client, mut request: http::Request<Vec<u8>>) -> kube::Result<Lines> {
    // As `kube` does: each event would be compressed for itself, of which its middleware reads the first alone.
    request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
    let answer = client.send(request.map(kube::client::Body::from)).await?;
    let is_well = answer.status().is_success();
    let code = answer.status().as_u16();
    if !is_well {
        let bytes = answer.into_body().collect_bytes().await?;
        let status = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            kube::core::Status::failure(&String::from_utf8_lossy(&bytes), "Failed to parse error data").with_code(code)
        });
        return Err(kube::Error::Api(status.boxed()));
    }
    let lines = futures::stream::unfold((answer.into_body(), Vec::<u8>::new()), |(mut body, mut buffer)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let rest = buffer.split_off(end + 1);
                let line = String::from_utf8(buffer).map_err(kube::Error::FromUtf8);
                return Some((line, (body, rest)));
            }
            match body.frame().await? {
                Ok(frame) => buffer.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default()),
                Err(error) => return Some((Err(error), (body, Vec::new()))),
            }
        }
    });
    Ok(lines.boxed())
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
    async fn list(&self, leaves_out: bool) -> kube::Result<List<K>> {
        let request = self.request.list(&self.list).map_err(kube::Error::BuildRequest)?;
        read_list(&self.client, request, leaves_out).await
    }

    async fn watch(&self, revision: &str) -> kube::Result<Lines> {
        let request = self.request.watch(&self.watch, revision).map_err(kube::Error::BuildRequest)?;
        read_lines(&self.client, request).await
    }

    fn read_event(line: &str) -> serde_json::Result<WatchEvent<K>> {
        serde_json::from_str(line)
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
    async fn list(&self, leaves_out: bool) -> kube::Result<List<PartialObjectMeta<K>>> {
        let request = self.request.list_metadata(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
        let List { metadata, items } = read_list::<Partial>(&self.client, request, leaves_out).await?;
        let items = items.into_iter().map(|item| item.metadata.into_response_partial()).collect();
        Ok(List { metadata, items })
    }

    async fn watch(&self, revision: &str) -> kube::Result<Lines> {
        let request = self.request.watch_metadata(&watch_params(), revision).map_err(kube::Error::BuildRequest)?;
        read_lines(&self.client, request).await
    }

    fn read_event(line: &str) -> serde_json::Result<WatchEvent<PartialObjectMeta<K>>> {
        serde_json::from_str(line).map(whole_event)
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

async fn follow_source<T: ResourceExt + Clone, M: Message<T>>(source: impl Source<T>, out: mpsc::Sender<M>) {
    let mut pause = RETRY;
    while !out.is_closed() {
        let list = match source.list(M::LEAVES_OUT).await {
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
        if !tell(&out, Change::Listed(list.items, revision.parse().ok())).await {
            return;
        }
        while let Resume::From(next) = watch_once(&source, revision, &out).await {
            revision = next;
        }
    }
}

/// Answers whether anybody listens.
async fn tell<T, M: Message<T>>(out: &mpsc::Sender<M>, change: Change<T>) -> bool {
    match M::of(change) {
        Some(message) => out.send(message).await.is_ok(),
        None => true,
    }
}

/// How one watch request ended.
enum Resume {
    /// Cleanly, or by a broken connection: go on from here.
    From(String),
    /// The history is gone, or nobody listens: list again (or stop).
    ByListing,
}

async fn watch_once<T: ResourceExt + Clone, S: Source<T>, M: Message<T>>(
    source: &S,
    mut revision: String,
    out: &mpsc::Sender<M>,
) -> Resume {
    let mut lines = match source.watch(&revision).await {
        Ok(lines) => lines,
        Err(error) => {
            warn!(%error, "cannot watch; listing again");
            tokio::time::sleep(RETRY).await;
            return Resume::ByListing;
        }
    };
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = out.closed() => return Resume::ByListing,
        };
        let line = match line {
            None => return Resume::From(revision),
            Some(Ok(line)) => line,
            Some(Err(error)) => {
                warn!(%error, "the watch broke; resuming");
                tokio::time::sleep(RETRY).await;
                return Resume::From(revision);
            }
        };
        let change = match S::read_event(&line) {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Change::Changed(object),
            Ok(WatchEvent::Deleted(object)) => Change::Removed(object),
            Ok(WatchEvent::Bookmark(mark)) => {
                revision = mark.metadata.resource_version;
                if let Ok(reached) = revision.parse()
                    && !tell(out, Change::Reached(reached)).await
                {
                    return Resume::ByListing;
                }
                continue;
            }
            Ok(WatchEvent::Error(status)) => {
                debug!(code = status.code, message = %status.message, "the watch cannot go on");
                return Resume::ByListing;
            }
            Err(error) => match skipped(&line, &error) {
                Some(next) => {
                    revision = next;
                    continue;
                }
                None => {
                    tokio::time::sleep(RETRY).await;
                    return Resume::ByListing;
                }
            },
        };
        if let Change::Changed(object) | Change::Removed(object) = &change
            && let Some(seen) = object.resource_version()
        {
            revision = seen;
        }
        if !tell(out, change).await {
            return Resume::ByListing;
        }
    }
}

/// The revision of an object that cannot be read, if the watch can go on without it. One that is gone is not in the next list.
fn skipped(line: &str, error: &serde_json::Error) -> Option<String> {
    let event = serde_json::from_str::<WatchEvent<Partial>>(line);
    let (name, revision) = match event {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
            (object.metadata.name.unwrap_or_default(), object.metadata.resource_version)
        }
        Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => (String::new(), None),
    };
    match &revision {
        Some(_) => warn!(%error, name, "an object cannot be read; it counts as it was"),
        None => warn!(%error, "an event cannot be read; listing again"),
    }
    revision
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
