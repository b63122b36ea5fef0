//! How one namespace leaves: its pods first, each with its own grace, then everything else at once, then itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::termination::Requester;
use api::{DeleteOptions, Kind, Propagation, Registry, Status};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use store::{Change, Object, Watch};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conditions::{RemainingObject, Waiting, conditions};
use crate::request::key;
use crate::state::{State, core_kind};
use crate::{change, create, delete};

/// How often the namespace says anew what it waits for.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Who asks the content of a namespace to leave.
const REQUESTER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// A namespace on its way out.
pub(super) struct Departing<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    /// Its object is gone. Whoever takes the finalizer away by hand brings that about before its content has left.
    pub(super) gone: CancellationToken,
}

impl Departing<'_> {
    /// Whether its object is still there. What was seen in it before it was asked this was its own, and not that of a
    /// later namespace of the same name.
    fn is_there(&self, state: &State) -> bool {
        create::namespace(state, self.name).is_some_and(|found| api::meta::uid(&found.value()) == self.uid)
    }
}

/// Sees the namespace through to its end, or for as long as it is there: content that outlives it is nobody's to take.
pub(super) async fn leave(state: &State, departing: &Departing<'_>) -> Result<(), Status> {
    let (name, uid) = (departing.name, departing.uid);
    let mut kinds = state.kinds.follow();
    if !empty(state, &mut kinds, Content::Pods, departing).await? {
        return Ok(());
    }
    loop {
        if !empty(state, &mut kinds, Content::Others, departing).await? {
            return Ok(());
        }
        // A kind that came meanwhile may have been there before, and have left objects.
        if !kinds.has_changed().unwrap_or(false) {
            break;
        }
    }
    tell(state, name, uid, &Waiting::default()).await?;
    let namespaces = core_kind("namespaces");
    let key = key(namespaces, "", name);
    let outcome = change::modify(state, namespaces, &key, false, |namespace| {
        let mut new = namespace.to_value();
        if api::meta::uid(&new) != uid {
            return Err(Status::not_found(namespaces, name));
        }
        if let Some(finalizers) = new["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
        Ok(new)
    });
    unless_gone(outcome.await)?;
    sweep(state, name).await?;
    tracing::info!(namespace = name, "namespace gone");
    Ok(())
}

/// What leaves together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Pods,
    Others,
}

impl Content {
    /// Its kinds among those that there are.
    fn kinds(self, registry: &Registry) -> Vec<Arc<Kind>> {
        let is_pods = |kind: &Kind| *kind == **core_kind("pods");
        let kinds = registry.stored().filter(|kind| kind.namespaced);
        kinds.filter(|kind| is_pods(kind) == (self == Self::Pods)).cloned().collect()
    }
}

/// A create that was let in before the namespace left may have been stored after it was found empty.
async fn sweep(state: &State, name: &str) -> Result<(), Status> {
    for kind in state.kinds.now().stored().filter(|kind| kind.namespaced) {
        let Ok(page) = state.store.list(kind.collection(), name, None) else { continue };
        // What was there while no namespace was is of the one that left, whatever comes under its name.
        if create::namespace(state, name).is_some() {
            return Ok(());
        }
        for object in page.items.into_iter().chain(state.store.unreadable(kind.collection(), name)) {
            ask_to_leave(state, kind, &object, Some(0)).await?;
        }
    }
    Ok(())
}

/// Asks this very object, and none that has its name by now. Nobody waits for dependents here: they live in the same
/// namespace and leave with it.
async fn ask_to_leave(state: &State, kind: &Kind, object: &Object, grace_seconds: Option<i64>) -> Result<(), Status> {
    let uid = api::meta::uid(&object.value()).to_owned();
    let is_another = || state.store.get(&object.key).is_some_and(|found| api::meta::uid(&found.value()) != uid);
    let propagation = Some(Propagation::Background);
    let requester = Some(Requester { user: REQUESTER.to_owned(), via: "Delete" });
    let options =
        DeleteOptions { uid: Some(uid.clone()), grace_seconds, propagation, requester, ..DeleteOptions::default() };
    match delete::delete(state, kind, &object.key, &options).await {
        Err(status) if status.code == 409 && is_another() => Ok(()),
        outcome => unless_gone(outcome),
    }
}

/// Asks all of `content` to leave and waits until nothing is left, saying what is. `false` if the namespace itself
/// was gone before.
async fn empty(
    state: &State,
    kinds: &mut watch::Receiver<Arc<Registry>>,
    content: Content,
    departing: &Departing<'_>,
) -> Result<bool, Status> {
    loop {
        let registry = Arc::clone(&kinds.borrow_and_update());
        let mut waiting = Waiting::default();
        let mut news = SelectAll::new();
        let mut found = Vec::new();
        for kind in content.kinds(&registry) {
            let (page, watch) = state.store.list_and_watch(kind.collection(), departing.name);
            let unreadable = state.store.unreadable(kind.collection(), departing.name);
            found.extend(page.items.into_iter().chain(unreadable).map(|object| (Arc::clone(&kind), object)));
            news.push(changes(kind, watch));
        }
        if !departing.is_there(state) {
            return Ok(false);
        }
        for (kind, object) in &found {
            waiting.put(kind, object);
        }
        for (kind, object) in &found {
            ask_to_leave(state, kind, object, None).await?;
        }
        drop(found);
        match follow(state, kinds, &mut news, waiting, departing).await? {
            Followed::Emptied => return Ok(true),
            Followed::NamespaceGone => return Ok(false),
            Followed::LookAgain => {}
        }
    }
}

/// How it ended to follow what leaves.
enum Followed {
    /// Nothing is left.
    Emptied,
    /// Changes were lost, or there are other kinds.
    LookAgain,
    /// Nobody waits for the rest any more.
    NamespaceGone,
}

/// Follows what leaves until nothing is left.
async fn follow(
    state: &State,
    kinds: &mut watch::Receiver<Arc<Registry>>,
    news: &mut SelectAll<BoxStream<'static, KindChange>>,
    mut waiting: Waiting,
    departing: &Departing<'_>,
) -> Result<Followed, Status> {
    let mut told: Option<Waiting> = None;
    let mut tell_at = Instant::now();
    while !waiting.is_empty() {
        tokio::select! {
            // What has happened already is taken in before anything is said about it.
            biased;
            () = departing.gone.cancelled() => return Ok(Followed::NamespaceGone),
            Ok(()) = kinds.changed() => return Ok(Followed::LookAgain),
            change = news.next() => match change {
                Some((kind, Some(Change::Added(object)))) => {
                    if !departing.is_there(state) {
                        return Ok(Followed::NamespaceGone);
                    }
                    waiting.put(&kind, &object);
                    ask_to_leave(state, &kind, &object, None).await?;
                }
                Some((kind, Some(Change::Modified { after, .. }))) => waiting.put(&kind, &after),
                Some((kind, Some(Change::Deleted { last, .. }))) => waiting.remove(&kind, &last.key.name),
                Some((_, None)) | None => return Ok(Followed::LookAgain),
            },
            () = tokio::time::sleep_until(tell_at), if told.as_ref() != Some(&waiting) => {
                tell(state, departing.name, departing.uid, &waiting).await?;
                told = Some(waiting.clone());
                tell_at = Instant::now() + TELL_EVERY;
            }
        }
    }
    Ok(Followed::Emptied)
}

/// One change of a kind; `None` when some were lost.
type KindChange = (Arc<Kind>, Option<Change>);

fn changes(kind: Arc<Kind>, watch: Watch) -> BoxStream<'static, KindChange> {
    let next = |(kind, watch): (Arc<Kind>, Option<Watch>)| async move {
        let mut watch = watch?;
        match watch.next().await {
            Some(change) => Some(((Arc::clone(&kind), Some(change)), (kind, Some(watch)))),
            None => Some(((Arc::clone(&kind), None), (kind, None))),
        }
    };
    stream::unfold((kind, Some(watch)), next).boxed()
}

/// Says on the namespace what it still waits for, truthfully.
async fn tell(state: &State, name: &str, uid: &str, waiting: &Waiting) -> Result<(), Status> {
    let namespaces = core_kind("namespaces");
    let now = state.now();
    let key = key(namespaces, "", name);
    let written = change::modify(state, namespaces, &key, false, |namespace| {
        let mut new = namespace.to_value();
        if api::meta::uid(&new) != uid {
            return Err(Status::not_found(namespaces, name));
        }
        new["status"]["conditions"] = conditions(&new["status"]["conditions"], waiting, now);
        Ok(new)
    });
    unless_gone(written.await)
}

fn unless_gone<T>(outcome: Result<T, Status>) -> Result<(), Status> {
    match outcome {
        Ok(_) => Ok(()),
        Err(status) if status.code == 404 => Ok(()),
        Err(status) => Err(status),
    }
}

impl Waiting {
    fn put(&mut self, kind: &Kind, object: &Object) {
        let value = object.value();
        let finalizers = api::meta::finalizers(&value).into_iter().map(str::to_owned).collect();
        let deadline = api::meta::deletion_timestamp(&value).filter(|_| kind.graceful_delete);
        let names: &mut BTreeMap<Arc<str>, RemainingObject> = self.0.entry(resource_of(kind)).or_default();
        names.insert(Arc::clone(&object.key.name), RemainingObject { finalizers, deadline });
    }

    fn remove(&mut self, kind: &Kind, name: &str) {
        if let Some(names) = self.0.get_mut(&resource_of(kind)) {
            names.remove(name);
        }
        self.0.retain(|_, names| !names.is_empty());
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `pods.`, `deployments.apps`: as upstream writes it in conditions, and tools look for it.
fn resource_of(kind: &Kind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}
