//! Tickets: how several servers over one store decide from sums without a lock that they share.
//!
//! Whoever gives out an address or room in a quota decides from *everything* that is stored, and an expectation on the
//! object alone would let two servers give out the same. So the decision has a ticket: a stored object that no client sees
//! and that means nothing but whose it is. A server writes its own name into it, decides from a view that has that write,
//! and expects the ticket unchanged in the same transaction that stores the decision. Once another server has taken the
//! ticket, whatever the first one still sends fails, and is decided again.
//!
//! ```text
//!  server A   take ticket (rev 7) ── decide, store if ticket is at 7 ── decide, store if at 7 ─────── store if at 7: conflict
//!  server B                                                        take ticket (rev 12) ── decide, store if at 12 ──▶
//! ```
//!
//! Within one server many decisions are on their way at once, each counting the others ([`crate::quotas`]), or one after
//! the other (services): the ticket is only expected, so they neither write it nor conflict, and share commits as all
//! writes do. A server that was started anew is another server. A crash leaves nothing wrong: the ticket counts nothing.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::{Kind, Status};
use serde_json::{Value, json};
use store::{Change, Expect, Key, Revision, Step, Store, TransactError, WriteError};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::quotas;
use crate::random;
use crate::state::{State, write_failure};

/// Where tickets are. No kind is stored under such a name, so no client sees them.
pub(crate) const COLLECTION: &str = "/adieu/ticket";
/// The addresses and ports of all services.
const SERVICES: &str = "services";
/// How often another server may take a ticket in between.
const MOVES_MOST: u32 = 100;
/// A ticket is left to the server that took it for so long, or up to twice that, so that it can do what it took it for...
const REST: Duration = Duration::from_millis(10);
/// ...and for longer and longer, up to this, while it goes to and fro: the store may be slow.
const REST_MOST: Duration = Duration::from_secs(1);
/// After so long without another move the next is the first again.
const CALM: Duration = Duration::from_secs(5);
/// How many tickets that others took are remembered.
const LOSSES_MOST: usize = 1024;

/// What this server takes tickets with.
pub(crate) struct Tickets {
    owner: String,
    /// Where the store was when this server began. What was taken before is not fought for.
    began: Revision,
    /// Services are given their addresses one after the other: whoever decides sees those who came before.
    services: Mutex<()>,
    /// The tickets that another server took.
    losses: std::sync::Mutex<HashMap<Key, Loss>>,
}

/// A ticket is another server's.
struct Loss {
    revision: Revision,
    seen: Instant,
    rest: Duration,
}

impl Tickets {
    pub(crate) fn new(store: &Store) -> Self {
        let (services, losses) = (Mutex::default(), std::sync::Mutex::default());
        Self { owner: random::uid(), began: store.revision(), services, losses }
    }

    /// How long the ticket, which another server took at `revision`, is still left to it.
    fn rest(&self, ticket: &Key, revision: Revision) -> Duration {
        if revision <= self.began {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let before = losses.get(ticket).filter(|loss| now < loss.seen + CALM);
        let (seen, rest) = match before {
            Some(loss) if loss.revision == revision => (loss.seen, loss.rest),
            Some(loss) => (now, random::jittered(loss.rest).min(REST_MOST)),
            None => (now, random::jittered(REST)),
        };
        if losses.len() >= LOSSES_MOST {
            losses.clear();
        }
        losses.insert(ticket.clone(), Loss { revision, seen, rest });
        (seen + rest).saturating_duration_since(now)
    }
}

/// The tickets that one write needs, until this is dropped.
#[derive(Default)]
pub(crate) struct Held<'a> {
    tickets: Vec<Key>,
    _turn: Option<MutexGuard<'a, ()>>,
    /// How often another server took one.
    moves: u32,
}

impl<'a> Held<'a> {
    /// What a write to `kind` in `namespace` needs: a new object, or one that takes the place of `old`.
    pub(crate) async fn of(
        state: &'a State,
        kind: &Kind,
        namespace: &str,
        subresource: Option<&str>,
        is_new: bool,
    ) -> Self {
        let mut tickets = Vec::new();
        let mut turn = None;
        if kind.collection() == "services" && subresource.is_none() {
            turn = Some(state.tickets.services.lock().await);
            tickets.push(key(SERVICES));
        }
        if quotas::may_refuse(&state.store, kind, namespace, subresource, is_new) {
            tickets.push(quota(namespace));
        }
        Self { tickets, _turn: turn, moves: 0 }
    }

    /// What has to be expected by a transaction that stores what is decided after this.
    pub(crate) async fn expects(&mut self, state: &State) -> Result<Vec<(Key, Expect)>, Status> {
        let mut expects = Vec::with_capacity(self.tickets.len());
        for at in 0..self.tickets.len() {
            let ticket = self.tickets[at].clone();
            let expect = self.take(state, &ticket).await?;
            expects.push((ticket, expect));
        }
        Ok(expects)
    }

    /// A transaction failed because `key` was not as expected. Answers whether that is a ticket, so that everything has to
    /// be decided again.
    pub(crate) fn was_moved(&mut self, key: &Key) -> bool {
        let is_ticket = *key.collection == *COLLECTION;
        self.moves += u32::from(is_ticket);
        is_ticket
    }

    async fn take(&mut self, state: &State, ticket: &Key) -> Result<Expect, Status> {
        loop {
            let found = state.store.get(ticket);
            if let Some(found) = found.as_ref().filter(|found| is_owned(&found.value(), &state.tickets.owner)) {
                return Ok(Expect::Revision(found.revision));
            }
            if self.moves >= MOVES_MOST {
                let text = format!("other servers keep deciding about {}", ticket.name);
                return Err(Status::timeout(&text).with_retry_after(1));
            }
            let rest = found.as_ref().map(|found| state.tickets.rest(ticket, found.revision));
            if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
                tokio::time::sleep(rest).await;
                continue;
            }
            let expect = found.map_or(Expect::Absent, |found| Expect::Revision(found.revision));
            let value = json!({ "metadata": { "name": &*ticket.name }, "owner": state.tickets.owner });
            let put = Step::Put { key: ticket.clone(), value };
            match state.store.transact(vec![(ticket.clone(), expect)], vec![put]).await {
                Ok(changes) => match changes.first().map(Change::revision) {
                    Some(revision) => return Ok(Expect::Revision(revision)),
                    None => return Err(Status::internal("a ticket that was taken did not change")),
                },
                Err(TransactError::Conflict { .. }) => self.moves += 1,
                Err(error @ (TransactError::Refused(_) | TransactError::Log(_))) => {
                    return Err(write_failure(state, WriteError::from(error)));
                }
            }
        }
    }
}

/// Gives up the ticket of a namespace that has no quotas any more. Whoever decides meanwhile decides again.
pub(crate) async fn discard_quota(store: &Store, namespace: &str) {
    discard(store, &quota(namespace)).await;
}

/// Gives up the tickets of namespaces that have no quotas any more.
pub(crate) async fn discard_unused(store: &Store, has_quotas: impl Fn(&str) -> bool) {
    let all = store.list(COLLECTION, "", None).map(|page| page.items).unwrap_or_default();
    for ticket in all {
        let namespace = ticket.key.name.strip_prefix("quota/");
        if namespace.is_some_and(|namespace| !has_quotas(namespace)) {
            discard(store, &ticket.key).await;
        }
    }
}

async fn discard(store: &Store, ticket: &Key) {
    let Some(found) = store.get(ticket) else { return };
    let expects = vec![(ticket.clone(), Expect::Revision(found.revision))];
    // One that stays, or that another server has taken, does no harm.
    if let Err(error) = store.transact(expects, vec![Step::Delete { key: ticket.clone() }]).await {
        tracing::debug!(%error, ticket = &*ticket.name, "a ticket that nobody needs stays");
    }
}

fn is_owned(ticket: &Value, owner: &str) -> bool {
    ticket["owner"] == owner
}

fn quota(namespace: &str) -> Key {
    key(&format!("quota/{namespace}"))
}

fn key(name: &str) -> Key {
    Key::new(COLLECTION, "", Arc::from(name))
}
