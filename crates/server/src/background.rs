//! What the server looks after by itself, in the frame of every controller. Sources are watches of the store; what is done is
//! decided again by whoever writes, in the store as it is then.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use frame::{Applied, Clock, Controller, Effects, Limits, Now, Plan, Source, SourceUpdate};
use futures::future::BoxFuture;
use store::{Change, Object, Store, Watch, WatchEnd};
use tokio_util::sync::CancellationToken;

/// The longest pause after a failure, which only a store that takes no writes can cause.
const RETRY_MOST: Duration = Duration::from_secs(1);

/// What a watch of the store says.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Everything there is.
    All(Vec<Arc<Object>>),
    One(Change),
}

/// The objects of one collection, in one namespace or (empty) in all. A watch that has fallen behind begins with a list.
pub(crate) fn source<I: Send + 'static>(
    store: &Store,
    collection: &'static str,
    namespace: &'static str,
    input: impl Fn(Seen) -> I + Send + 'static,
) -> Source<I> {
    let begin: (Store, Option<Watch>) = (store.clone(), None);
    let seen = futures::stream::unfold((begin, input), move |((store, watch), input)| async move {
        let mut watch = match watch {
            Some(watch) => watch,
            None => return Some(list(store, collection, namespace, input)),
        };
        match watch.next().await {
            Some(change) => {
                let news = SourceUpdate::changed(input(Seen::One(change)), Some(watch.progress().0));
                Some((news, ((store, Some(watch)), input)))
            }
            None if watch.end() == Some(WatchEnd::Closed) => None,
            None => Some(list(store, collection, namespace, input)),
        }
    });
    Source::new(collection, seen)
}

/// A step of [`source`]: what it says, and how it goes on.
type Step<I, F> = (SourceUpdate<I>, ((Store, Option<Watch>), F));

fn list<I, F: Fn(Seen) -> I>(store: Store, collection: &str, namespace: &str, input: F) -> Step<I, F> {
    let (page, watch) = store.list_and_watch(collection, namespace);
    let news = SourceUpdate::listed(input(Seen::All(page.items)), Some(page.revision.0));
    (news, ((store, Some(watch)), input))
}

/// Puts a few objects right that belong together whenever any of them changes, and at the start.
pub(crate) async fn keep_right(
    name: &'static str,
    (clock, stop): (Clock, CancellationToken),
    sources: Vec<Source<()>>,
    restore: impl Fn() -> BoxFuture<'static, Result<(), Status>> + Send + Sync + 'static,
) {
    let restore = Restore(Box::new(restore));
    run(name, (clock, stop), Together, restore, sources).await;
}

/// Runs a controller of the server until `stop`.
pub(crate) async fn run<C: Controller, E: Effects<C>>(
    name: &'static str,
    (clock, stop): (Clock, CancellationToken),
    controller: C,
    effects: E,
    sources: Vec<Source<C::Input>>,
) {
    // One thing after the other: whatever is written here is little.
    let mut limits = Limits { at_once: 1, ..Limits::default() };
    limits.backoff.most = RETRY_MOST;
    let running = frame::run(name, controller, effects, sources, limits, clock);
    stop.run_until_cancelled(running).await;
}

/// Whatever changes concerns all of them.
struct Together;

impl Controller for Together {
    type Input = ();
    type Key = ();
    type Action = ();
    type Answer = ();

    fn observe(&mut self, _: Now, (): ()) -> Vec<()> {
        vec![()]
    }

    fn plan(&self, (): &(), _: Now) -> Plan<()> {
        Plan::act(())
    }
}

/// How they are put right; nothing happens if they are.
struct Restore(Box<dyn Fn() -> BoxFuture<'static, Result<(), Status>> + Send + Sync>);

impl Effects<Together> for Restore {
    type Error = Status;

    async fn apply(&self, (): &(), (): &()) -> Result<Applied<()>, Status> {
        (self.0)().await.map(Applied::new)
    }
}
