//! The garbage collector: what has lost its owners goes, and what leaves waits for its dependents if it was asked to.
//!
//! ```text
//!  every kind's watch ─▶ graph (pure: who owns whom) ─▶ who needs a look ─▶ what it needs ─▶ effects (live, then act)
//!                                                              ▲                                   │
//!                                                              └──────── tried again later ◀── failed
//! ```
//!
//! Nothing is remembered between starts: the graph is made from lists, and every decision that cannot be taken back is
//! checked with the server first. So a crash at any point only means looking again.

mod effects;
mod graph;
mod plan;
mod resources;

use std::time::Duration;

use client::follow_metadata;
use frame::{Limits, Source};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use crate::Kinds;
use crate::clients::Clients;
use crate::events::EventRecorder;
use crate::feed::to_news;
use crate::settings::Settings;
use effects::GarbageEffects;
use graph::Graph;
use resources::ResourceId;

const ACCOUNT: &str = "generic-garbage-collector";
/// As whom it speaks in events.
const NAME: &str = "garbage-collector-controller";

/// How many things are seen to at once: enough for the store to write many in one go.
const AT_ONCE: usize = 32;
/// How much of one kind may wait to be taken in.
const QUEUE: usize = 64;
/// Looks wait until every kind has been listed, which spares questions; but not longer than this for one that cannot be.
const FIRST_LISTS: Duration = Duration::from_secs(5);
/// The pause after a failure to ask what there is.
const RETRY: Duration = Duration::from_millis(100);

/// Kinds often come several at a time; they are taken in together.
const SETTLE: Duration = Duration::from_millis(200);

/// Collects until it is dropped, beginning anew with the kinds that there are whenever they change.
pub(crate) async fn run(clients: Clients, mut kinds: Kinds, settings: Settings) {
    loop {
        kinds.mark_unchanged();
        tokio::select! {
            () = collect(clients.act(ACCOUNT), settings) => return,
            Ok(()) = kinds.changed() => tokio::time::sleep(SETTLE).await,
        }
    }
}

/// Collects what there is of the kinds that there are now.
async fn collect(client: kube::Client, settings: Settings) {
    let resources = loop {
        match resources::discover(&client).await {
            Ok(resources) => break resources,
            Err(error) => {
                warn!(%error, "cannot ask what there is to collect; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    let mut tasks = JoinSet::new();
    let recorder = EventRecorder::start(client.clone(), NAME, settings.clock, &mut tasks);
    let sources = resources.iter().map(|resource| source(&client, resource, &mut tasks)).collect();
    let limits = Limits { at_once: AT_ONCE, first_lists: Some(FIRST_LISTS), ..Limits::default() };
    let effects = GarbageEffects::new(client, resources, recorder);
    frame::run(ACCOUNT, Graph::default(), effects, sources, limits, settings.clock).await;
}

/// The metadata of all objects of one kind. Nobody else reads it, so it is not shared.
fn source(
    client: &kube::Client,
    resource: &ResourceId,
    tasks: &mut JoinSet<()>,
) -> Source<<Graph as frame::Controller>::Input> {
    let (out, told) = mpsc::channel(QUEUE);
    tasks.spawn(follow_metadata(resource.objects(client, ""), out));
    let news = futures::stream::unfold((told, resource.clone()), |(mut told, resource)| async move {
        let news = to_news(told.recv().await?, |_| None, &|sight| (resource.clone(), sight));
        Some((news, (told, resource)))
    });
    Source::new("objects", news)
}
