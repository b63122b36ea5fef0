//! Which connections are open, and which of them is closed when there are too many.
//!
//! A connection is *new* until it has shown who it is (TLS), *idle* while it has no request, else *busy*. Whoever comes when the
//! limit is reached takes the place of the one that has waited longest without a request, of the address with most such
//! connections. So sockets that are opened and left alone keep nobody out. Busy connections are never closed for others; if all
//! are busy, the newcomer is refused. Nodes and administrators have places that no user can take.
//!
//! The limit is a part of the descriptors the process may have. The rest is the node's and the store's: no client can take the
//! descriptors that a termination needs.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// More are of no use to anybody, however many descriptors there are.
const OPEN_MAX: usize = 4096;
/// So many are left with few descriptors.
const OPEN_LEAST: usize = 64;
/// Descriptors that are never for clients: journals, logs, sockets of shims.
const RESERVED: usize = 512;
/// Connections that have not shown who they are, of one address and of all.
const NEW_PER_SOURCE: usize = 256;
const NEW_MAX: usize = 1024;

/// How long a client may take nothing of an answer whose bytes others need.
const REVOKED_PATIENCE: Duration = Duration::from_secs(2);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// In all.
    pub(crate) open: usize,
    /// Of users: all but nodes, administrators and system components.
    pub(crate) users: usize,
    /// Of those that have not shown who they are.
    pub(crate) new: usize,
    pub(crate) new_per_source: usize,
}

impl Limits {
    /// Of a process that may have so many descriptors.
    pub(crate) fn with_descriptors(descriptors: usize) -> Self {
        let open = (descriptors.saturating_sub(RESERVED) / 2).clamp(OPEN_LEAST, OPEN_MAX);
        let new = NEW_MAX.min(open / 2);
        Self { open, users: open / 4 * 3, new, new_per_source: NEW_PER_SOURCE.min(new / 2) }
    }
}

/// All open connections.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Registry>);

struct Registry {
    limits: Limits,
    began: Instant,
    open: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
}

struct Entry {
    source: IpAddr,
    stage: Stage,
    activity: Arc<Activity>,
    shed: CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Has not shown who it is.
    New,
    User,
    System,
    /// Told to close, and no longer counted.
    Shed,
}

/// The requests of one connection.
#[derive(Default)]
struct Activity {
    requests: AtomicUsize,
    /// When the last one ended, in milliseconds since the registry began.
    idle_since: AtomicU64,
    sending: Mutex<BTreeMap<u64, Sending>>,
    /// One more answer is being sent whose bytes others may come to need.
    reserved: Notify,
}

/// An answer that is being sent.
struct Sending {
    /// When the client last took something of it.
    taken: u64,
    /// Cancelled when others need its bytes more.
    revoked: Option<CancellationToken>,
}

/// One open connection, which is counted until this is dropped.
pub(crate) struct OpenConnection {
    connections: Connections,
    number: u64,
    activity: Arc<Activity>,
    /// Cancelled when the connection is to make room for another.
    pub(crate) shed: CancellationToken,
}

/// One request, which keeps its connection busy until its answer is sent.
pub(crate) struct OpenRequest {
    connections: Connections,
    activity: Arc<Activity>,
}

/// An answer with an end that is being sent. The client must go on taking it.
pub(crate) struct OpenAnswer {
    request: OpenRequest,
    number: u64,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        let (open, next) = (Mutex::new(BTreeMap::new()), AtomicU64::new(0));
        Self(Arc::new(Registry { limits, began: Instant::now(), open, next }))
    }

    /// Takes note of a new connection; `None` if there is no place for it.
    pub(crate) fn accept(&self, source: IpAddr) -> Option<OpenConnection> {
        let Limits { open: most, new, new_per_source, .. } = self.0.limits;
        let mut open = self.lock();
        let is_new = |entry: &Entry| entry.stage == Stage::New;
        if count(&open, |entry| is_new(entry) && entry.source == source) >= new_per_source {
            shed_longest(&mut open, |entry| is_new(entry) && entry.source == source);
        }
        if count(&open, is_new) >= new {
            shed_of_largest_source(&mut open, is_new);
        }
        let all = count(&open, |entry| entry.stage != Stage::Shed);
        if all >= most && !shed_of_largest_source(&mut open, |entry| entry.is_idle() && entry.stage != Stage::System) {
            return None;
        }
        // Those that were told to close still have their descriptors: never more than the double.
        if open.len() >= 2 * most {
            return None;
        }
        let (number, shed) = (self.0.next.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let activity = Arc::new(Activity::default());
        activity.idle_since.store(self.now(), Ordering::Relaxed);
        let entry = Entry { source, stage: Stage::New, activity: Arc::clone(&activity), shed: shed.clone() };
        open.insert(number, entry);
        Some(OpenConnection { connections: self.clone(), number, activity, shed })
    }

    /// Closes idle connections, as many as this, because the machine has no descriptors left.
    pub(crate) fn shed_idle(&self, many: usize) -> usize {
        let mut open = self.lock();
        (0..many)
            .take_while(|_| shed_of_largest_source(&mut open, |entry| entry.is_idle() && entry.stage != Stage::System))
            .count()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.stage != Stage::Shed && self.activity.requests.load(Ordering::Relaxed) == 0
    }
}

fn count(open: &BTreeMap<u64, Entry>, which: impl Fn(&Entry) -> bool) -> usize {
    open.values().filter(|entry| which(entry)).count()
}

/// Tells the one of these that has been without a request for longest to close; `false` if there is none.
fn shed_longest(open: &mut BTreeMap<u64, Entry>, which: impl Fn(&Entry) -> bool) -> bool {
    let these = open.values_mut().filter(|entry| which(entry));
    let Some(longest) = these.min_by_key(|entry| entry.activity.idle_since.load(Ordering::Relaxed)) else {
        return false;
    };
    longest.stage = Stage::Shed;
    longest.shed.cancel();
    true
}

/// The same among those of the address that has most of these.
fn shed_of_largest_source(open: &mut BTreeMap<u64, Entry>, which: impl Fn(&Entry) -> bool) -> bool {
    let mut sources: HashMap<IpAddr, usize> = HashMap::new();
    for entry in open.values().filter(|entry| which(entry)) {
        *sources.entry(entry.source).or_default() += 1;
    }
    let Some((largest, _)) = sources.into_iter().max_by_key(|(_, count)| *count) else { return false };
    shed_longest(open, |entry| which(entry) && entry.source == largest)
}

impl OpenConnection {
    /// The client has shown who it is. `false` if there is no place for another user.
    pub(crate) fn shown(&self, is_system: bool) -> bool {
        let mut open = self.connections.lock();
        let is_user = |entry: &Entry| entry.stage == Stage::User;
        let full = !is_system && count(&open, is_user) >= self.connections.0.limits.users;
        if full && !shed_of_largest_source(&mut open, |entry| is_user(entry) && entry.is_idle()) {
            return false;
        }
        self.activity.idle_since.store(self.connections.now(), Ordering::Relaxed);
        if let Some(entry) = open.get_mut(&self.number).filter(|entry| entry.stage == Stage::New) {
            entry.stage = if is_system { Stage::System } else { Stage::User };
        }
        true
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> OpenRequest {
        self.activity.requests.fetch_add(1, Ordering::Relaxed);
        OpenRequest { connections: self.connections.clone(), activity: Arc::clone(&self.activity) }
    }

    /// For how long there has been no request; `None` while there is one.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        if self.activity.requests.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = self.activity.idle_since.load(Ordering::Relaxed);
        Some(Duration::from_millis(self.connections.now().saturating_sub(since)))
    }

    /// Until the client has taken nothing of an answer for too long: for `patience`, or for [`REVOKED_PATIENCE`] if others need
    /// the bytes of the answer.
    pub(crate) async fn unread(&self, patience: Duration) {
        loop {
            let left = self.unread_in(patience);
            if left.is_zero() {
                return;
            }
            let tokens: Vec<CancellationToken> =
                self.activity.lock_sending().values().filter_map(Sending::awaited).collect();
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.activity.reserved.notified() => {}
                () = any_cancelled(&tokens), if !tokens.is_empty() => {}
            }
        }
    }

    /// How long it takes until an answer has waited too long for the client.
    fn unread_in(&self, patience: Duration) -> Duration {
        let now = self.connections.now();
        let sending = self.activity.lock_sending();
        let left = sending.values().map(|sending| {
            let is_revoked = sending.revoked.as_ref().is_some_and(CancellationToken::is_cancelled);
            let patience = if is_revoked { REVOKED_PATIENCE } else { patience };
            patience.saturating_sub(Duration::from_millis(now.saturating_sub(sending.taken)))
        });
        left.min().unwrap_or(patience)
    }
}

impl Sending {
    /// What tells that others need its bytes, if that was not told yet.
    fn awaited(&self) -> Option<CancellationToken> {
        self.revoked.clone().filter(|revoked| !revoked.is_cancelled())
    }
}

/// Until one of these is cancelled.
async fn any_cancelled(tokens: &[CancellationToken]) {
    let all = tokens.iter().map(|token| Box::pin(token.cancelled()));
    futures::future::select_all(all).await;
}

impl Activity {
    fn lock_sending(&self) -> MutexGuard<'_, BTreeMap<u64, Sending>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRequest {
    /// Its answer has an end, and begins to be sent. `revoked` tells when others need its bytes more.
    pub(crate) fn answer(self, revoked: Option<CancellationToken>) -> OpenAnswer {
        let number = self.connections.0.next.fetch_add(1, Ordering::Relaxed);
        let (taken, is_reserved) = (self.connections.now(), revoked.is_some());
        self.activity.lock_sending().insert(number, Sending { taken, revoked });
        if is_reserved {
            self.activity.reserved.notify_one();
        }
        OpenAnswer { request: self, number }
    }
}

impl OpenAnswer {
    /// The client has taken a part of it.
    pub(crate) fn taken(&self) {
        let now = self.request.connections.now();
        if let Some(sending) = self.request.activity.lock_sending().get_mut(&self.number) {
            sending.taken = now;
        }
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.request.activity.lock_sending().remove(&self.number);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.activity.idle_since.store(self.connections.now(), Ordering::Relaxed);
        self.activity.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn connections() -> Connections {
        Connections::new(Limits { open: 8, users: 6, new: 4, new_per_source: 3 })
    }

    fn shed(connections: &[OpenConnection]) -> Vec<usize> {
        connections.iter().enumerate().filter(|(_, one)| one.shed.is_cancelled()).map(|(at, _)| at).collect()
    }

    #[test]
    fn new_connections_of_one_source_push_out_their_own() {
        let all = connections();
        let other = all.accept(THERE).unwrap();
        let many: Vec<_> = (0..10).map(|_| all.accept(HERE).unwrap()).collect();
        assert!(!other.shed.is_cancelled(), "another address keeps its place");
        assert_eq!(shed(&many), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(count(&all.lock(), |entry| entry.stage == Stage::New), 4);
    }

    #[test]
    fn idle_connection_makes_room_and_busy_ones_stay() {
        let all = connections();
        let users: Vec<_> =
            (0..6).map(|_| all.accept(HERE).unwrap()).inspect(|one| assert!(one.shown(false))).collect();
        let busy: Vec<_> = [0, 1, 3].iter().map(|at| users[*at].begin()).collect();
        let newcomer = all.accept(THERE).unwrap();
        assert!(newcomer.shown(false));
        assert_eq!(shed(&users), [2], "the one that has waited longest of those that wait");
        let rest: Vec<_> = [4, 5].iter().map(|at| users[*at].begin()).collect();
        let request = newcomer.begin();
        let refused = all.accept(THERE).unwrap();
        assert!(!refused.shown(false), "all users are busy");
        drop(refused);
        assert!(all.accept(THERE).unwrap().shown(true), "a node has a place all the same");
        drop((busy, rest, request));
    }

    #[test]
    fn connection_that_ends_leaves_no_trace() {
        let all = connections();
        let one = all.accept(HERE).unwrap();
        let request = one.begin();
        assert_eq!(one.idle_for(), None);
        drop(request);
        assert!(one.idle_for().is_some());
        drop(one);
        assert!(all.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_a_client_does_not_take_ends_its_connection() {
        const PATIENT: Duration = Duration::from_secs(30);
        let all = connections();
        let one = all.accept(HERE).unwrap();
        assert_eq!(one.unread_in(PATIENT), PATIENT, "nothing is being sent");
        let (first, second) = (one.begin().answer(None), one.begin().answer(None));
        tokio::time::advance(Duration::from_secs(9)).await;
        first.taken();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(one.unread_in(PATIENT), Duration::from_secs(20), "of the one that waits longest");
        drop(second);
        assert_eq!(one.unread_in(PATIENT), Duration::from_secs(29));
        let began = Instant::now();
        one.unread(PATIENT).await;
        assert_eq!(began.elapsed(), Duration::from_secs(29));
        drop(first);
        assert_eq!((one.unread_in(PATIENT), one.idle_for()), (PATIENT, Some(Duration::ZERO)));
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answer_whose_bytes_others_need_ends_its_connection_sooner() {
        const PATIENT: Duration = Duration::from_secs(30);
        let all = connections();
        let one = all.accept(HERE).unwrap();
        let (began, revoked) = (Instant::now(), CancellationToken::new());
        let later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let answer = one.begin().answer(Some(revoked.clone()));
            tokio::time::sleep(Duration::from_millis(500)).await;
            revoked.cancel();
            answer
        };
        let (answer, ()) = tokio::join!(later, one.unread(PATIENT));
        assert_eq!(began.elapsed(), Duration::from_secs(3) + REVOKED_PATIENCE, "counted from when it was last taken");
        drop(answer);
    }

    #[test]
    fn clients_get_less_than_half_of_the_descriptors() {
        for (descriptors, open) in [(256, 64), (1024, 256), (4096, 1792), (20_000, 4096), (1 << 20, 4096)] {
            assert_eq!(Limits::with_descriptors(descriptors).open, open);
        }
    }
}
