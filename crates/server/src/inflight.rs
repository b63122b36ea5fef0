//! Limits on requests in flight. A request over the limit waits a little, then gets 429.
//!
//! Seats are handed out fairly, user by user ([`FairQueue`]). Administrators, nodes and our own controllers are exempt, so that a
//! flood of other requests cannot stop them. Requests that last (watches, logs, exec, proxied requests) mostly wait: they need no
//! seat, but each user has only so many at once, and so have all together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Status;

use crate::byte_budget::{ByteBudget, Reservation};
use crate::fair_queue::{FairQueue, NoSeat, Seat};
use crate::identity::Identity;
use crate::rbac;
use crate::request::Verb;

const READERS: usize = 400;
const WRITERS: usize = 200;
/// Requests with a large body are worked on a few at a time: an object takes many times the memory of its text.
const LARGE_WRITERS: usize = 4;
/// What is large.
const LARGE: usize = 128 * 1024;
/// How long a request may wait for a seat.
const PATIENCE: Duration = Duration::from_secs(1);
/// A large body that was read is worth a longer wait.
const LARGE_PATIENCE: Duration = Duration::from_secs(10);
/// `Retry-After` of a refused request.
const AGAIN_AFTER_SECONDS: u32 = 1;

/// Bytes of request bodies that are in memory at once, of one user and of all. Those who are exempt have bytes of their own.
const BODIES_PER_USER: usize = 12 << 20;
const BODIES_MAX: usize = 48 << 20;

/// Bytes of answers that are made whole before they are sent, of one user and of all.
const ANSWERS_PER_USER: usize = 32 << 20;
const ANSWERS_MAX: usize = 96 << 20;

/// Answers up to this size take their part of what a user may have unread, and never wait.
pub(crate) const SMALL_ANSWER: usize = 64 * 1024;
/// What even the shortest answer costs.
const ANSWER_LEAST: usize = 4 * 1024;
/// Bytes of short answers that nobody has taken yet, of one user and of all. Whoever has more is answered nothing else.
const SMALL_ANSWERS_PER_USER: usize = 16 << 20;
const SMALL_ANSWERS_MAX: usize = 48 << 20;

/// Watches, and other requests that last, of one user and of all who are not exempt.
const LASTING_PER_USER: usize = 2000;
const LASTING_MAX: usize = 10_000;

pub(crate) struct InflightLimits {
    readers: FairQueue,
    writers: FairQueue,
    large_writers: FairQueue,
    bodies: ByteBudget,
    system_bodies: ByteBudget,
    answers: ByteBudget,
    system_answers: ByteBudget,
    small_answers: Shares,
    lasting: Shares,
}

impl Default for InflightLimits {
    fn default() -> Self {
        Self {
            readers: FairQueue::new(READERS),
            writers: FairQueue::new(WRITERS),
            large_writers: FairQueue::new(LARGE_WRITERS),
            bodies: ByteBudget::new(BODIES_MAX, BODIES_PER_USER),
            system_bodies: ByteBudget::new(BODIES_MAX, BODIES_PER_USER),
            answers: ByteBudget::new(ANSWERS_MAX, ANSWERS_PER_USER),
            system_answers: ByteBudget::new(ANSWERS_MAX, ANSWERS_PER_USER),
            small_answers: Shares::new(SMALL_ANSWERS_PER_USER, SMALL_ANSWERS_MAX),
            lasting: Shares::new(LASTING_PER_USER, LASTING_MAX),
        }
    }
}

impl InflightLimits {
    /// A seat to be held during the request, or `None` for an exempt one. 429 if none becomes free in time.
    pub(crate) async fn take(&self, identity: &Identity, verb: Verb) -> Result<Option<Seat>, Status> {
        let seats = match verb {
            Verb::Watch => return Ok(None),
            _ if is_exempt(identity) => return Ok(None),
            Verb::Get | Verb::List => &self.readers,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => &self.writers,
        };
        seats.take(flow(identity), PATIENCE).await.map(Some).map_err(refused)
    }

    /// Bytes for a body, to be held until the request is done.
    pub(crate) async fn reserve(&self, identity: &Identity, bytes: usize) -> Result<Reservation, Status> {
        let budget = if is_exempt(identity) { &self.system_bodies } else { &self.bodies };
        budget.reserve(flow(identity), bytes).await
    }

    /// Bytes for an answer, to be held until it is sent.
    pub(crate) async fn reserve_answer(&self, identity: &Identity, bytes: usize) -> Result<Reservation, Status> {
        let budget = if is_exempt(identity) { &self.system_answers } else { &self.answers };
        budget.reserve(flow(identity), bytes).await
    }

    /// 429 for those who leave too many answers unread to be given another.
    pub(crate) fn check_unread(&self, identity: &Identity) -> Result<(), Status> {
        if is_exempt(identity) || self.small_answers.has_room(flow(identity), ANSWER_LEAST) {
            return Ok(());
        }
        Err(too_many())
    }

    /// Counts a short answer until it is sent. One that is there is never refused.
    pub(crate) fn count_answer(&self, identity: &Identity, bytes: usize) -> Option<Share> {
        (!is_exempt(identity)).then(|| self.small_answers.take(flow(identity), bytes.max(ANSWER_LEAST)))
    }

    /// Another seat for a request whose body has so many bytes, or `None` if it is not large or is exempt.
    pub(crate) async fn take_large(&self, identity: &Identity, bytes: usize) -> Result<Option<Seat>, Status> {
        if bytes < LARGE || is_exempt(identity) {
            return Ok(None);
        }
        self.large_writers.take(flow(identity), LARGE_PATIENCE).await.map(Some).map_err(refused)
    }

    /// A place for a request that lasts, or 429.
    pub(crate) fn begin_lasting(&self, identity: &Identity) -> Result<Option<Share>, Status> {
        if is_exempt(identity) {
            return Ok(None);
        }
        self.lasting.begin(flow(identity), 1).map(Some).ok_or_else(too_many)
    }
}

fn refused(_: NoSeat) -> Status {
    too_many()
}

/// What upstream says under load.
pub(crate) fn too_many() -> Status {
    Status::too_many_requests("Too many requests, please try again later.", AGAIN_AFTER_SECONDS)
}

/// Who shares one user's part. All service accounts of a namespace are one: whoever may make one account may make a thousand.
pub(crate) fn flow(identity: &Identity) -> &str {
    let user = identity.user.as_str();
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    account.map_or(user, |(_, name)| &user[..user.len() - name.len() - 1])
}

/// Those whom no flood of others may stop.
pub(crate) fn is_exempt(identity: &Identity) -> bool {
    let groups = ["system:masters", "system:nodes"];
    let account = identity.user.strip_prefix("system:serviceaccount:kube-system:");
    groups.iter().any(|group| identity.is_in(group))
        || identity.user.starts_with("system:kube-")
        || account.is_some_and(rbac::is_controller)
}

/// What each user has of something that is bounded for each of them and for all.
#[derive(Clone)]
struct Shares(Arc<Mutex<Counts>>);

struct Counts {
    by_user: HashMap<Arc<str>, usize>,
    all: usize,
    per_user: usize,
    most: usize,
}

/// A part of it; it ends when this is dropped.
pub(crate) struct Share {
    shares: Shares,
    user: Arc<str>,
    amount: usize,
}

impl Shares {
    fn new(per_user: usize, most: usize) -> Self {
        Self(Arc::new(Mutex::new(Counts { by_user: HashMap::new(), all: 0, per_user, most })))
    }

    fn begin(&self, user: &str, amount: usize) -> Option<Share> {
        let mut counts = self.lock();
        counts.has_room(user, amount).then(|| self.taken(&mut counts, user, amount))
    }

    /// The same, whether there is room or not.
    fn take(&self, user: &str, amount: usize) -> Share {
        self.taken(&mut self.lock(), user, amount)
    }

    fn has_room(&self, user: &str, amount: usize) -> bool {
        self.lock().has_room(user, amount)
    }

    fn taken(&self, counts: &mut Counts, user: &str, amount: usize) -> Share {
        let user = counts.by_user.get_key_value(user).map_or_else(|| user.into(), |(known, _)| Arc::clone(known));
        counts.all += amount;
        *counts.by_user.entry(Arc::clone(&user)).or_default() += amount;
        Share { shares: self.clone(), user, amount }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn has_room(&self, user: &str, amount: usize) -> bool {
        let own = self.by_user.get(user).copied().unwrap_or_default();
        own + amount <= self.per_user && self.all + amount <= self.most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.lock();
        counts.all -= self.amount;
        if let Some(own) = counts.by_user.get_mut(&self.user) {
            *own -= self.amount;
            if *own == 0 {
                counts.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn request_flood_gets_429_and_leaves_system_identities_unlimited() {
        let inflight = InflightLimits::default();
        let bob = Identity::new("bob", &[]);
        let mut held = Vec::new();
        for _ in 0..WRITERS {
            held.push(inflight.take(&bob, Verb::Create).await.unwrap().unwrap());
        }
        let refused = inflight.take(&bob, Verb::Delete).await.err().unwrap();
        assert_eq!((refused.code, refused.reason, refused.retry_after()), (429, "TooManyRequests", Some(1)));
        assert!(inflight.take(&bob, Verb::Get).await.unwrap().is_some(), "readers have seats of their own");
        assert!(inflight.take(&bob, Verb::Watch).await.unwrap().is_none());
        let collector = Identity::service_account("kube-system", "pod-garbage-collector");
        for free in [Identity::admin(), Identity::node("n1"), Identity::new("system:kube-scheduler", &[]), collector] {
            assert!(inflight.take(&free, Verb::Create).await.unwrap().is_none());
        }
        for other in [("kube-system", "default"), ("default", "pod-garbage-collector")] {
            assert!(inflight.take(&Identity::service_account(other.0, other.1), Verb::Create).await.is_err());
        }
        held.pop();
        assert!(inflight.take(&bob, Verb::Delete).await.unwrap().is_some());
    }

    #[test]
    fn service_accounts_of_a_namespace_share_one_part() {
        let of = |user: &str| flow(&Identity::new(user, &[])).to_owned();
        assert_eq!(of("bob"), "bob");
        assert_eq!(of("system:serviceaccount:team:a"), of("system:serviceaccount:team:b"));
        assert_ne!(of("system:serviceaccount:team:a"), of("system:serviceaccount:other:a"));
        assert_eq!(of("system:serviceaccount:odd"), "system:serviceaccount:odd");
    }

    /// [SE-97]
    #[test]
    fn user_who_leaves_many_short_answers_unread_is_answered_nothing_else() {
        let inflight = InflightLimits::default();
        let (bob, eve) = (Identity::new("bob", &[]), Identity::new("eve", &[]));
        let most = SMALL_ANSWERS_PER_USER / SMALL_ANSWER;
        let mut unread: Vec<_> = (0..most).map(|_| inflight.count_answer(&bob, SMALL_ANSWER)).collect();
        assert_eq!(inflight.check_unread(&bob).unwrap_err().code, 429);
        inflight.check_unread(&eve).unwrap();
        inflight.check_unread(&Identity::node("n1")).unwrap();
        unread.pop();
        inflight.check_unread(&bob).unwrap();
        let tiny: Vec<_> = (0..16).map(|_| inflight.count_answer(&bob, 1)).collect();
        assert_eq!(inflight.check_unread(&bob).unwrap_err().code, 429, "every answer costs something");
        drop((tiny, unread));
        assert_eq!(inflight.small_answers.lock().all, 0);
    }

    #[test]
    fn lasting_requests_are_limited_by_user_and_system_identities_are_not() {
        let inflight = InflightLimits::default();
        let (bob, eve) = (Identity::new("bob", &[]), Identity::new("eve", &[]));
        let mut held: Vec<_> = (0..LASTING_PER_USER).map(|_| inflight.begin_lasting(&bob).unwrap().unwrap()).collect();
        assert_eq!(inflight.begin_lasting(&bob).err().unwrap().code, 429);
        assert!(inflight.begin_lasting(&eve).unwrap().is_some());
        assert!(inflight.begin_lasting(&Identity::node("n1")).unwrap().is_none());
        held.pop();
        assert!(inflight.begin_lasting(&bob).unwrap().is_some());
        drop(held);
        let counts = inflight.lasting.lock();
        assert_eq!((counts.all, counts.by_user.len()), (0, 0));
    }
}
