//! How many bytes of request bodies are held in memory at once: in all, and for each user.
//!
//! A body is read only after its bytes are reserved, so that unfinished bodies cost what is reserved and no more. Whoever finds
//! the budget spent waits; a reservation that ends goes to the user who holds least. If somebody waits who would hold less than
//! the user who holds most, the oldest reservation of that user is revoked: a few users with slow bodies cannot keep out others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Status;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::inflight::too_many;

/// Even an empty body costs something.
const LEAST: usize = 4 * 1024;
/// Most that wait, of one user and of all.
const WAITING_PER_USER: usize = 2000;
const WAITING_MAX: usize = 8000;
/// Most bytes that the bodies of one user wait for: thousands of small ones may wait, large ones are refused before.
const AWAITED_PER_USER: usize = 256 << 20;
/// How long a body may wait until it is read.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes.
#[derive(Clone)]
pub(crate) struct ByteBudget(Arc<Mutex<Budget>>);

struct Budget {
    free: usize,
    per_user: usize,
    /// Oldest first.
    reserved: BTreeMap<u64, Reserved>,
    held: HashMap<Arc<str>, usize>,
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

struct Reserved {
    user: Arc<str>,
    bytes: usize,
    revoked: CancellationToken,
}

struct Waiting {
    user: Arc<str>,
    bytes: usize,
    granted: oneshot::Sender<Reservation>,
}

/// Bytes that are reserved until this is dropped.
pub(crate) struct Reservation {
    budget: ByteBudget,
    number: u64,
    /// Cancelled when others need the bytes more.
    pub(crate) revoked: CancellationToken,
}

impl ByteBudget {
    pub(crate) fn new(total: usize, per_user: usize) -> Self {
        let (reserved, held, waiting) = (BTreeMap::new(), HashMap::new(), BTreeMap::new());
        Self(Arc::new(Mutex::new(Budget { free: total, per_user, reserved, held, waiting, next: 0 })))
    }

    /// Reserves `bytes` for `user`, at once or within ten seconds; else 429.
    pub(crate) async fn reserve(&self, user: &str, bytes: usize) -> Result<Reservation, Status> {
        let granted = {
            let mut budget = self.lock();
            let (user, bytes) = (Arc::<str>::from(user), bytes.max(LEAST).min(budget.per_user));
            if budget.waiting.is_empty() && budget.fits(&user, bytes) {
                return Ok(budget.grant(self, user, bytes));
            }
            let own = budget.waiting.values().filter(|waiting| waiting.user == user);
            let (count, awaited) = own.fold((0, bytes), |(count, awaited), own| (count + 1, awaited + own.bytes));
            if count >= WAITING_PER_USER || awaited > AWAITED_PER_USER || budget.waiting.len() >= WAITING_MAX {
                return Err(too_many());
            }
            let (sender, receiver) = oneshot::channel();
            let number = budget.number();
            budget.waiting.insert(number, Waiting { user, bytes, granted: sender });
            receiver
        };
        self.hand_out();
        match tokio::time::timeout(PATIENCE, granted).await {
            Ok(Ok(reservation)) => Ok(reservation),
            Ok(Err(_)) | Err(_) => Err(too_many()),
        }
    }

    /// Grants what fits to those who wait, and makes room for the first that does not.
    fn hand_out(&self) {
        loop {
            let (waiting, reservation) = {
                let mut budget = self.lock();
                budget.waiting.retain(|_, waiting| !waiting.granted.is_closed());
                let Some(number) = budget.most_deserving() else { return };
                let Some(waiting) = budget.waiting.get(&number) else { return };
                let (user, bytes) = (Arc::clone(&waiting.user), waiting.bytes);
                if budget.free < bytes {
                    return budget.make_room(&user, bytes);
                }
                let Some(waiting) = budget.waiting.remove(&number) else { return };
                (waiting, budget.grant(self, user, bytes))
            };
            // If it left meanwhile, dropping the reservation gives the bytes back, and the next look finds them.
            drop(waiting.granted.send(reservation));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Budget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budget {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn held(&self, user: &str) -> usize {
        self.held.get(user).copied().unwrap_or_default()
    }

    fn fits(&self, user: &str, bytes: usize) -> bool {
        self.free >= bytes && self.held(user) + bytes <= self.per_user
    }

    fn grant(&mut self, budget: &ByteBudget, user: Arc<str>, bytes: usize) -> Reservation {
        let (number, revoked) = (self.number(), CancellationToken::new());
        self.free -= bytes;
        *self.held.entry(Arc::clone(&user)).or_default() += bytes;
        self.reserved.insert(number, Reserved { user, bytes, revoked: revoked.clone() });
        Reservation { budget: budget.clone(), number, revoked }
    }

    /// Of those who wait for others and not for themselves, the one whose user would hold least; of equals the first.
    fn most_deserving(&self) -> Option<u64> {
        let others =
            self.waiting.iter().filter(|(_, waiting)| self.held(&waiting.user) + waiting.bytes <= self.per_user);
        others
            .min_by_key(|(number, waiting)| (self.held(&waiting.user) + waiting.bytes, **number))
            .map(|(number, _)| *number)
    }

    /// Revokes reservations of those who hold most, oldest first, until there is room for `bytes` of `user`, as long as they
    /// hold more than `user` would.
    fn make_room(&self, user: &str, bytes: usize) {
        let revoked = |reserved: &&Reserved| reserved.revoked.is_cancelled();
        let mut coming =
            self.free + self.reserved.values().filter(revoked).map(|reserved| reserved.bytes).sum::<usize>();
        let would_hold = self.held(user) + bytes;
        while coming < bytes {
            let mut left: HashMap<&str, usize> = HashMap::new();
            for reserved in self.reserved.values().filter(|reserved| !reserved.revoked.is_cancelled()) {
                *left.entry(&reserved.user).or_default() += reserved.bytes;
            }
            let most = left.into_iter().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > would_hold);
            let Some((most, _)) = most else { return };
            let mut theirs = self.reserved.values().filter(|reserved| *reserved.user == *most && !revoked(reserved));
            let Some(oldest) = theirs.next() else { return };
            oldest.revoked.cancel();
            coming += oldest.bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut budget = self.budget.lock();
        if let Some(Reserved { user, bytes, .. }) = budget.reserved.remove(&self.number) {
            budget.free += bytes;
            if let Some(held) = budget.held.get_mut(&user) {
                *held -= bytes;
                if *held == 0 {
                    budget.held.remove(&user);
                }
            }
        }
        let anybody_waits = !budget.waiting.is_empty();
        drop(budget);
        if anybody_waits {
            self.budget.hand_out();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::task::Poll;

    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn user_over_its_share_waits_and_others_do_not() {
        let budget = ByteBudget::new(8 * MIB, 4 * MIB);
        let mut held = vec![budget.reserve("a", 3 * MIB).await.unwrap()];
        assert_eq!(budget.reserve("a", 2 * MIB).await.err().unwrap().code, 429, "more than a user may hold");
        held.push(budget.reserve("b", 4 * MIB).await.unwrap());
        held.push(budget.reserve("c", MIB).await.unwrap());
        assert_eq!(budget.lock().free, 0);
        drop(held);
        let budget = budget.lock();
        assert_eq!((budget.free, budget.held.len(), budget.reserved.len()), (8 * MIB, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn newcomer_gets_the_bytes_of_the_oldest_body_of_the_user_with_most() {
        let budget = ByteBudget::new(8 * MIB, 4 * MIB);
        let first = budget.reserve("a", 2 * MIB).await.unwrap();
        let second = budget.reserve("a", 2 * MIB).await.unwrap();
        let other = budget.reserve("b", 3 * MIB).await.unwrap();
        let last = budget.reserve("c", MIB).await.unwrap();
        let mut waiting = Box::pin(budget.reserve("new", MIB));
        assert!(matches!(futures::poll!(&mut waiting), Poll::Pending));
        let revoked = [&first, &second, &other, &last].map(|held| held.revoked.is_cancelled());
        assert_eq!(revoked, [true, false, false, false]);
        drop(first);
        waiting.await.unwrap();
        assert!(!second.revoked.is_cancelled() && !other.revoked.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn user_with_most_does_not_push_out_others() {
        let budget = ByteBudget::new(4 * MIB, 3 * MIB);
        let held = [budget.reserve("a", 2 * MIB).await.unwrap(), budget.reserve("b", 2 * MIB).await.unwrap()];
        assert_eq!(budget.reserve("a", MIB).await.err().unwrap().code, 429);
        assert!(held.iter().all(|held| !held.revoked.is_cancelled()));
        assert_eq!(budget.lock().waiting.values().filter(|waiting| !waiting.granted.is_closed()).count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_go_to_the_waiting_user_who_holds_least() {
        let budget = ByteBudget::new(4 * MIB, 4 * MIB);
        let a = budget.reserve("a", MIB).await.unwrap();
        let b = budget.reserve("b", 3 * MIB).await.unwrap();
        let mut of_a = Box::pin(budget.reserve("a", 3 * MIB));
        let mut of_c = Box::pin(budget.reserve("c", 3 * MIB));
        assert!(matches!(futures::poll!(&mut of_a), Poll::Pending));
        assert!(matches!(futures::poll!(&mut of_c), Poll::Pending));
        drop(b);
        let of_c = futures::poll!(&mut of_c);
        assert!(matches!(of_c, Poll::Ready(Ok(_))));
        assert!(matches!(futures::poll!(&mut of_a), Poll::Pending));
        drop(a);
    }
}
