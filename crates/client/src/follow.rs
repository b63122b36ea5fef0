//! List, then watch, for ever: what changed in a collection, without a gap.
//!
//! Ends only with its receiver. A broken watch is resumed from the last revision seen; one that cannot be
//! resumed is listed anew, which the reader is told, because things found in a list happened at some
//! unknown time before. An object that the reader's type cannot hold is not told, and costs nobody the others: the log names
//! it, once.

use std::collections::HashSet;
use std::fmt::Debug;
use std::io;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt as _, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PartialObjectMeta, PartialObjectMetaExt as _, Request, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use supervision::BackoffPolicy;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::lenient::{ReadObject, Unreadable, WatchLine, read_line, read_list};

/// One update of a list and watch.
#[derive(Debug)]
pub enum WatchUpdate<K> {
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
    /// Everything there is, at this revision.
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
    fn of(change: Change<T>) -> Option<Self>;
}

impl<T> Message<T> for WatchUpdate<T> {
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
    fn of(change: Change<T>) -> Option<Self> {
        Some(change)
    }
}

/// Answers whether anybody listens.
async fn tell<T, M: Message<T>>(out: &mpsc::Sender<M>, change: Change<T>) -> bool {
    match M::of(change) {
        Some(message) => out.send(message).await.is_ok(),
        None => true,
    }
}

/// How long to wait after a failure before asking the server again; longer after each one.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(2));

/// How many objects that cannot be read are remembered, so as to name each of them once.
const NAMED_MOST: usize = 1000;

/// How long one watch request may last; the server ends it and we resume.
const WATCH_SECONDS: u32 = 280;

/// What panics here are counted as. Whoever breaks begins with a list.
const PART: &str = "follow";

/// Follows `api`, restricted by a field selector, until the receiver is dropped.
pub async fn follow<K>(api: Api<K>, field_selector: Option<String>, out: mpsc::Sender<WatchUpdate<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut source = Source::of(api);
    if let Some(selector) = &field_selector {
        source.list = source.list.fields(selector);
        source.watch = source.watch.fields(selector);
    }
    supervision::keep(PART, || follow_source(&source, read_whole, &out)).await;
}

/// The same, restricted by a label selector.
pub async fn follow_labelled<K>(api: Api<K>, label_selector: String, out: mpsc::Sender<WatchUpdate<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut source = Source::of(api);
    source.list = source.list.labels(&label_selector);
    source.watch = source.watch.labels(&label_selector);
    supervision::keep(PART, || follow_source(&source, read_whole, &out)).await;
}

/// Follows all of `api`, and says how far, until the receiver is dropped.
pub async fn follow_changes<K>(api: Api<K>, out: mpsc::Sender<Change<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let source = Source::of(api);
    supervision::keep(PART, || follow_source(&source, read_whole, &out)).await;
}

/// Follows what `api` says about its objects, their metadata without annotations and managed fields, until the receiver is
/// dropped.
pub async fn follow_metadata<K>(api: Api<K>, out: mpsc::Sender<Change<PartialObjectMeta<K>>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    let source = Source { is_metadata_only: true, ..Source::of(api) };
    supervision::keep(PART, || follow_source(&source, read_metadata, &out)).await;
}

/// What `api` has, as far as it can be read.
pub async fn list_readable<K>(api: Api<K>, params: &ListParams) -> kube::Result<Vec<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let source = Source { list: params.clone(), ..Source::of(api) };
    let mut named = Named { kind: source.kind().to_owned(), keys: HashSet::new() };
    let list = read_list(&source.list().await?, read_whole::<K>).map_err(kube::Error::SerdeError)?;
    list.unreadable.iter().for_each(|unreadable| named.tell(unreadable));
    Ok(list.items)
}

/// Reads an object with all that its type holds.
fn read_whole<K: DeserializeOwned>(text: &str) -> serde_json::Result<K> {
    serde_json::from_str(text)
}

/// An object of which only this is read.
#[derive(Deserialize)]
struct Partial {
    #[serde(deserialize_with = "crate::trimmed_metadata")]
    metadata: ObjectMeta,
}

fn read_metadata<K: Resource>(text: &str) -> serde_json::Result<PartialObjectMeta<K>> {
    read_whole::<Partial>(text).map(|partial| partial.metadata.into_response_partial())
}

fn watch_params() -> WatchParams {
    WatchParams::default().timeout(WATCH_SECONDS)
}

/// Where lists and watches come from, as text.
struct Source {
    client: kube::Client,
    request: Request,
    list: ListParams,
    watch: WatchParams,
    /// Objects come without spec and status.
    is_metadata_only: bool,
}

impl Source {
    fn of<K: Resource>(api: Api<K>) -> Self {
        let request = Request::new(api.resource_url());
        let (list, watch) = (ListParams::default(), watch_params());
        Self { client: api.into_client(), request, list, watch, is_metadata_only: false }
    }

    /// What the log calls them: the path that is asked for.
    fn kind(&self) -> &str {
        &self.request.url_path
    }

    async fn list(&self) -> kube::Result<String> {
        let Self { client, request, list, .. } = self;
        let request = if self.is_metadata_only { request.list_metadata(list) } else { request.list(list) };
        client.request_text(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// The lines of a watch.
    async fn watch(&self, revision: &str) -> kube::Result<BoxStream<'static, io::Result<String>>> {
        let Self { client, request, watch, .. } = self;
        let request = if self.is_metadata_only {
            request.watch_metadata(watch, revision)
        } else {
            request.watch(watch, revision)
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        // A stream that is compressed event by event is not one that our client can unpack.
        let encoding = request.headers_mut().entry(http::header::ACCEPT_ENCODING);
        encoding.or_insert(http::HeaderValue::from_static("identity"));
        Ok(Box::pin(client.request_stream(request).await?).lines().boxed())
    }
}

/// What came, if anything did: the end of a stream may cut a line off.
fn read_event<T>(line: io::Result<String>, read: ReadObject<T>) -> Option<kube::Result<WatchLine<T>>> {
    match line {
        Ok(line) => match read_line(&line, read) {
            Err(error) if error.is_eof() => None,
            read => Some(read.map_err(kube::Error::SerdeError)),
        },
        Err(error) if is_cut_off(&error) => None,
        Err(error) => Some(Err(kube::Error::ReadEvents(error))),
    }
}

/// Whether the connection ended in the middle, which a watch does not mind: it is resumed.
fn is_cut_off(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|io| matches!(io.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut)) {
            return true;
        }
        cause = error.source();
    }
    error.to_string().contains("unexpected EOF during chunk")
}

/// The objects that cannot be read, each of which is named once.
struct Named {
    /// Of which kind.
    kind: String,
    keys: HashSet<String>,
}

impl Named {
    fn tell(&mut self, unreadable: &Unreadable) {
        if self.keys.len() >= NAMED_MOST {
            self.keys.clear();
        }
        let key = unreadable.identity.key();
        if self.keys.insert(key.clone()) {
            let Self { kind, .. } = self;
            warn!(kind, key, error = %unreadable.error, "an object cannot be read; going on without it");
        }
    }

    /// Whatever comes under this name is another object.
    fn forget(&mut self, unreadable: &Unreadable) {
        self.keys.remove(&unreadable.identity.key());
    }
}

async fn follow_source<T: ResourceExt, M: Message<T>>(source: &Source, read: ReadObject<T>, out: &mpsc::Sender<M>) {
    let mut named = Named { kind: source.kind().to_owned(), keys: HashSet::new() };
    let mut retries = RETRY.start();
    while !out.is_closed() {
        let text = source.list().await;
        let list = match text.and_then(|text| read_list(&text, read).map_err(kube::Error::SerdeError)) {
            Ok(list) => list,
            Err(error) => {
                warn!(%error, "cannot list; trying again");
                tokio::time::sleep(retries.after_failure()).await;
                continue;
            }
        };
        retries.reset();
        list.unreadable.iter().for_each(|unreadable| named.tell(unreadable));
        let mut revision = list.metadata.resource_version.clone().unwrap_or_default();
        if !tell(out, Change::Listed(list.items, revision.parse().ok())).await {
            return;
        }
        while let Resume::From(next) = watch_once(source, read, revision, &mut named, out).await {
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

async fn watch_once<T: ResourceExt, M: Message<T>>(
    source: &Source,
    read: ReadObject<T>,
    mut revision: String,
    named: &mut Named,
    out: &mpsc::Sender<M>,
) -> Resume {
    let mut stream = match source.watch(&revision).await {
        Ok(stream) => stream,
        Err(error) => {
            warn!(%error, "cannot watch; listing again");
            tokio::time::sleep(RETRY.first).await;
            return Resume::ByListing;
        }
    };
    loop {
        let line = tokio::select! {
            line = stream.next() => line,
            () = out.closed() => return Resume::ByListing,
        };
        let Some(line) = line else { return Resume::From(revision) };
        let Some(event) = read_event(line, read) else { continue };
        let change = match event {
            Ok(WatchLine::Event(WatchEvent::Added(object) | WatchEvent::Modified(object))) => Change::Changed(object),
            Ok(WatchLine::Event(WatchEvent::Deleted(object)) | WatchLine::Removed(_, Some(object))) => {
                Change::Removed(object)
            }
            Ok(WatchLine::Unreadable(unreadable)) => {
                named.tell(&unreadable);
                revision = unreadable.identity.resource_version.unwrap_or(revision);
                continue;
            }
            Ok(WatchLine::Removed(unreadable, None)) => {
                named.forget(&unreadable);
                revision = unreadable.identity.resource_version.unwrap_or(revision);
                continue;
            }
            Ok(WatchLine::Event(WatchEvent::Bookmark(mark))) => {
                revision = mark.metadata.resource_version;
                match revision.parse().ok().map(Change::Reached) {
                    Some(reached) => reached,
                    None => continue,
                }
            }
            Ok(WatchLine::Event(WatchEvent::Error(status))) => {
                debug!(code = status.code, message = %status.message, "the watch cannot go on");
                return Resume::ByListing;
            }
            Err(error @ kube::Error::SerdeError(_)) => {
                // It would be the next event again.
                warn!(%error, "the watch told what nobody can read; listing again");
                tokio::time::sleep(RETRY.first).await;
                return Resume::ByListing;
            }
            Err(error) => {
                warn!(%error, "the watch broke; resuming");
                tokio::time::sleep(RETRY.first).await;
                return Resume::From(revision);
            }
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

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
