//! Keeps `status.used` of every quota up to date with the objects it counts.
//!
//! One task per namespace that has quotas. The status is informational: admission adds up the stored objects itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::quota::Quota;
use api::{Registry, Status};
use futures::FutureExt as _;
use futures::future::{OptionFuture, select_all};
use jiff::Timestamp;
use serde_json::json;
use store::{Change, Watch, WatchEnd};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::change;
use crate::state::{State, core_kind};
use crate::tickets;

const QUOTAS: &str = "resourcequotas";
/// Pause after a failure, which only a store that takes no writes can cause.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Keeps the status of every quota until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let mut tasks_by_namespace = QuotaStatusTasks::default();
    tickets::discard_unused(&state.store, |namespace| super::has_quotas(&state.store, namespace)).await;
    while !stop.is_cancelled() {
        let (page, mut quotas) = state.store.list_and_watch(QUOTAS, "");
        page.items.iter().for_each(|quota| tasks_by_namespace.begin(&state, &quota.key.namespace));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = tasks_by_namespace.tasks.join_next_with_id(), if !tasks_by_namespace.tasks.is_empty() => {
                    tasks_by_namespace.ended(&state, ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                found = quotas.next() => match found {
                    Some(Change::Added(quota)) => tasks_by_namespace.begin(&state, &quota.key.namespace),
                    // The task of its namespace sees to it.
                    Some(Change::Modified { .. } | Change::Deleted { .. }) => {}
                    None if quotas.end() == Some(WatchEnd::Closed) => return,
                    None => break,
                },
            }
        }
    }
}

/// The namespaces that have quotas, each with its task. Dropping this ends the tasks.
#[derive(Default)]
struct QuotaStatusTasks {
    namespaces: HashMap<Arc<str>, Id>,
    tasks: JoinSet<()>,
}

impl QuotaStatusTasks {
    fn begin(&mut self, state: &Arc<State>, namespace: &Arc<str>) {
        if !self.namespaces.contains_key(namespace) {
            let (state, own) = (Arc::clone(state), Arc::clone(namespace));
            // One that breaks begins again, ever later if it breaks each time.
            let task = self.tasks.spawn(async move {
                supervision::keep("quotas", || keep_namespace(Arc::clone(&state), Arc::clone(&own))).await;
            });
            self.namespaces.insert(Arc::clone(namespace), task.id());
        }
    }

    /// A task ends with the last quota of its namespace; one that came just then begins another.
    fn ended(&mut self, state: &Arc<State>, task: Id) {
        let namespace = self.namespaces.iter().find(|(_, id)| **id == task).map(|(namespace, _)| Arc::clone(namespace));
        let Some(namespace) = namespace else { return };
        self.namespaces.remove(&namespace);
        if state.store.list(QUOTAS, &namespace, None).is_ok_and(|page| !page.items.is_empty()) {
            self.begin(state, &namespace);
        }
    }
}

/// Keeps the quotas of one namespace until there is none.
async fn keep_namespace(state: Arc<State>, namespace: Arc<str>) {
    loop {
        let (page, own) = state.store.list_and_watch(QUOTAS, &namespace);
        if page.items.is_empty() {
            state.quotas.forget(&namespace);
            tickets::discard_quota(&state.store, &namespace).await;
            return;
        }
        let mut kinds = state.kinds.follow();
        let registry = Arc::clone(&kinds.borrow_and_update());
        let quotas: Vec<Quota> = page.items.iter().map(|quota| Quota::of(&quota.value())).collect();
        let counted: BTreeSet<&str> = quotas.iter().flat_map(|quota| quota.kinds(&registry).into_keys()).collect();
        let mut watches = vec![own];
        watches.extend(counted.into_iter().map(|collection| state.store.list_and_watch(collection, &namespace).1));
        loop {
            let wake = match write(&state, &registry, &namespace, &quotas).await {
                Ok(wake) => wake,
                Err(error) => {
                    tracing::warn!(%error, namespace = &*namespace, "cannot write the status of a quota");
                    Some(RETRY_AFTER)
                }
            };
            match next(&mut watches, &mut kinds, wake).await {
                Next::Counted => {}
                Next::Quotas => break,
                Next::Closed => return,
            }
        }
    }
}

/// What happened.
enum Next {
    /// To objects, or to the clock.
    Counted,
    /// To the quotas themselves or to the kinds that there are; or some of what happened was missed.
    Quotas,
    /// There is no more to come.
    Closed,
}

/// Waits for the next change, the first watch being that of the quotas, or for `wake`. What has happened besides is taken
/// along.
async fn next(watches: &mut [Watch], kinds: &mut watch::Receiver<Arc<Registry>>, wake: Option<Duration>) -> Next {
    let asleep = OptionFuture::from(wake.map(tokio::time::sleep));
    let (found, at) = {
        let changes = select_all(watches.iter_mut().map(|watch| Box::pin(watch.next())));
        tokio::select! {
            Some(()) = asleep => return Next::Counted,
            Ok(()) = kinds.changed() => return Next::Quotas,
            (found, at, _) = changes => (found, at),
        }
    };
    let mut quotas_changed = at == 0 || found.is_none();
    for (at, watch) in watches.iter_mut().enumerate() {
        while let Some(found) = watch.next().now_or_never() {
            quotas_changed |= at == 0;
            if found.is_none() {
                quotas_changed = true;
                break;
            }
        }
        if watch.end() == Some(WatchEnd::Closed) {
            return Next::Closed;
        }
    }
    if quotas_changed { Next::Quotas } else { Next::Counted }
}

/// Writes what is in use where it is not written yet. Answers after how long that changes by itself.
async fn write(
    state: &State,
    registry: &Registry,
    namespace: &str,
    quotas: &[Quota],
) -> Result<Option<Duration>, Status> {
    let kind = core_kind(QUOTAS);
    let now = state.now();
    let mut wake: Option<Timestamp> = None;
    for quota in quotas {
        let (used, until) = state.quotas.reckon(&state.store, registry, namespace, quota, now);
        wake = wake.into_iter().chain(until).min();
        let status = json!({ "hard": quota.hard.to_json(), "used": used.to_json() });
        let key = crate::request::key(kind, namespace, &quota.name);
        let written = change::modify(state, kind, &key, false, |current| {
            let mut new = current.to_value();
            // One that asks for something else by now is looked at again with that.
            if Quota::of(&new).hard == quota.hard {
                new["status"] = status.clone();
            }
            Ok(new)
        });
        match written.await {
            Ok(_) => {}
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    // It takes less once the moment has passed, not when it comes.
    let left = wake.map(|wake| wake.duration_since(now).as_millis().max(0).unsigned_abs());
    Ok(left.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX).saturating_add(1))))
}
