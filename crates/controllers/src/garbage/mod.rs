//! The garbage collector: what has lost its owners goes, and what leaves waits for its dependents if it was asked to.
//!
//! ```text
//!  every kind's watch ─▶ graph (pure: who owns whom) ─▶ who needs a look ─▶ what it needs ─▶ hands (live, then act)
//!                                                              ▲                                   │
//!                                                              └──────── tried again later ◀── failed
//! ```
//!
//! Nothing is remembered between starts: the graph is made from lists, and every decision that cannot be taken back is
//! checked with the server first. So a crash at any point only means looking again.

mod graph;
mod hands;
mod plan;
mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::{Sight, follow_metadata};
use futures::StreamExt as _;
use futures::stream::{self, SelectAll};
use kube::api::{DynamicObject, PartialObjectMeta};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::events::Teller;
use graph::{Graph, Need, Thing, Uid};
use hands::{Failure, Hands, to_thing};
use resources::ResourceId;

const NAME: &str = "garbage-collector-controller";

/// How many things are seen to at once: enough for the store to write many in one go.
const AT_ONCE: usize = 32;
/// How much of one kind may wait to be taken in.
const QUEUE: usize = 64;
/// Looks wait until every kind has been listed, which spares questions; but not longer than this for one that cannot be.
const FIRST_LISTS: Duration = Duration::from_secs(5);
/// The pause after a first failure; it doubles up to the longest.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(60);

type News = (ResourceId, Sight<PartialObjectMeta<DynamicObject>>);

/// Collects until it is dropped.
pub async fn run(client: kube::Client) {
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
    let mut news: SelectAll<_> = SelectAll::new();
    for resource in &resources {
        let (out, told) = mpsc::channel(QUEUE);
        tasks.spawn(follow_metadata(resource.objects(&client, ""), out));
        let resource = resource.clone();
        news.push(Box::pin(stream::unfold((told, resource), |(mut told, resource)| async move {
            let sight = told.recv().await?;
            Some(((resource.clone(), sight), (told, resource)))
        })));
    }
    let teller = Teller::start(client.clone(), NAME, &mut tasks);
    let unlisted = resources.len();
    let hands = Arc::new(Hands::new(client, resources, teller));
    let mut collector = Collector {
        hands,
        graph: Graph::default(),
        unlisted,
        look: BTreeSet::new(),
        busy: BTreeSet::new(),
        failed: BTreeMap::new(),
        under_way: JoinSet::new(),
    };
    let first_lists = Instant::now() + FIRST_LISTS;
    loop {
        let ready = collector.unlisted == 0 || Instant::now() >= first_lists;
        if ready {
            collector.start_looks();
        }
        let wake = if ready { collector.next_retry() } else { Some(first_lists) };
        tokio::select! {
            told = news.next() => match told {
                Some(told) => collector.take_in(told),
                None => return,
            },
            Some(ended) = collector.under_way.join_next(), if !collector.under_way.is_empty() => match ended {
                Ok((uid, outcome)) => collector.ended(uid, outcome),
                Err(error) => warn!(%error, "the collector broke on something"),
            },
            () = sleep_until(wake), if wake.is_some() => {}
        }
    }
}

async fn sleep_until(wake: Option<Instant>) {
    if let Some(wake) = wake {
        tokio::time::sleep_until(wake).await;
    }
}

/// A thing that could not be seen to.
struct Failed {
    tries: u32,
    again_at: Instant,
}

struct Collector {
    hands: Arc<Hands>,
    graph: Graph,
    /// Kinds that have not been listed yet.
    unlisted: usize,
    /// Who deserves a look.
    look: BTreeSet<Uid>,
    /// Who is being seen to. One that deserves another look meanwhile gets it afterwards.
    busy: BTreeSet<Uid>,
    failed: BTreeMap<Uid, Failed>,
    under_way: JoinSet<(Uid, Result<(), Failure>)>,
}

impl Collector {
    fn take_in(&mut self, (resource, sight): News) {
        let look = match sight {
            Sight::Listed(all) => {
                self.unlisted = self.unlisted.saturating_sub(1);
                let things = all.iter().filter_map(|object| to_thing(&resource, object)).collect();
                self.graph.replace(resource, things)
            }
            Sight::Changed(object) => {
                to_thing(&resource, &object).map(|thing| self.graph.put(thing)).unwrap_or_default()
            }
            Sight::Removed(object) => {
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                self.failed.remove(uid);
                self.graph.remove(uid)
            }
        };
        self.look.extend(look);
    }

    /// Sees to as many as may be under way at once.
    fn start_looks(&mut self) {
        let now = Instant::now();
        let due = self.failed.iter().filter(|(_, failed)| failed.again_at <= now).map(|(uid, _)| uid.clone());
        self.look.extend(due.collect::<Vec<_>>());
        let waiting: Vec<Uid> = self.look.iter().filter(|uid| !self.busy.contains(*uid)).cloned().collect();
        for uid in waiting {
            if self.busy.len() >= AT_ONCE {
                return;
            }
            // News about a thing that failed a moment ago do not make it less likely to fail.
            if self.failed.get(&uid).is_some_and(|failed| failed.again_at > now) {
                self.look.remove(&uid);
                continue;
            }
            self.look.remove(&uid);
            let need = self.graph.need(&uid);
            match self.graph.get(&uid) {
                Some(thing) if need != Need::Nothing => {
                    let (thing, hands) = (thing.clone(), Arc::clone(&self.hands));
                    self.busy.insert(uid.clone());
                    self.under_way.spawn(async move {
                        let seen_to = supervision::catch("garbage", see_to(&hands, &thing, need)).await;
                        (uid, seen_to.unwrap_or_else(|panic| Err(Failure::Broke(panic))))
                    });
                }
                Some(_) | None => drop(self.failed.remove(&uid)),
            }
        }
    }

    fn ended(&mut self, uid: Uid, outcome: Result<(), Failure>) {
        self.busy.remove(&uid);
        let Err(error) = outcome else {
            self.failed.remove(&uid);
            return;
        };
        let tries = self.failed.get(&uid).map_or(0, |failed| failed.tries) + 1;
        let pause = RETRY.saturating_mul(1 << tries.min(16)).min(RETRY_MAX);
        let name = self.graph.get(&uid).map(|thing| thing.name.to_string()).unwrap_or_default();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        debug!(name, %error, cause, tries, "not seen to yet");
        if tries == 8 {
            warn!(name, %error, cause, "something cannot be collected; still trying");
        }
        self.failed.insert(uid, Failed { tries, again_at: Instant::now() + pause });
    }

    fn next_retry(&self) -> Option<Instant> {
        let waiting = self.failed.iter().filter(|(uid, _)| !self.busy.contains(*uid));
        waiting.map(|(_, failed)| failed.again_at).min()
    }
}

async fn see_to(hands: &Hands, thing: &Thing, need: Need) -> Result<(), Failure> {
    match need {
        Need::Nothing => Ok(()),
        Need::Orphaning => hands.orphan(thing).await,
        Need::LettingGo { circle } => hands.let_go(thing, &circle).await,
        Need::Judging { owners, has_dependents } => hands.judge(thing, &owners, has_dependents).await,
    }
}
