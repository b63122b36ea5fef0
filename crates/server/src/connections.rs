//! Which connections are open, and which of them is closed when there are too many.
//!
//! A connection is *new* until it has shown who it is (TLS), *idle* while it has no request, else *busy*. Whoever comes when the
//! limit is reached takes the place of the one that has waited longest without a request, of the address with most such
//! connections. So sockets that are opened and left alone keep nobody out. If all are busy, the user who has most of them loses
//! one, the one that takes nothing of its answer first, as long as that user has more than an eighth; else the newcomer is
//! refused. All who do not say who they are count as one user. Nodes and administrators have places that no user can take.
//!
//! A connection that has become another protocol's (exec, port-forward) is busy for as long as it is open.
//!
//! The limit is a part of the descriptors the process may have. The rest is the node's and the store's: no client can take the
//! descriptors that a termination needs.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
/// How long a client may take nothing of an answer that is there for it, and of the events of a watch.
const UNREAD: Duration = Duration::from_secs(30);
pub(crate) const UNREAD_EVENTS: Duration = Duration::from_secs(60);
/// How long an answer may take that has an end, however steadily it is taken. Upstream ends requests then, too.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The part of the places that a user may have while others find none: one in this many.
const FAIR_PART: usize = 8;

/// How a client must take an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It is there, and has an end.
    Ending,
    /// Events, each to be taken soon after it has come.
    Watching,
    /// What a person may look at for as long as they like: logs, answers of others.
    Lasting,
}

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
    /// Whose the last one was.
    user: Mutex<Option<Arc<str>>>,
    /// Ends what the connection has become, if it is another protocol's.
    upgraded: OnceLock<CancellationToken>,
    /// When the last one ended, in milliseconds since the registry began.
    idle_since: AtomicU64,
    sending: Mutex<BTreeMap<u64, Sending>>,
    /// One more answer is being sent whose bytes others may come to need.
    reserved: Notify,
}

/// An answer that is being sent.
struct Sending {
    pace: Pace,
    began: u64,
    /// When the client last took something of it.
    taken: u64,
    /// There is nothing that it could take.
    silent: bool,
    /// Cancelled when others need its bytes more.
    revoked: Option<CancellationToken>,
}

/// One open connection, which is counted until this is dropped.
pub(crate) struct OpenConnection {
    connections: Connections,
    number: u64,
    activity: Arc<Activity>,
    /// What keeps it busy after it has become another protocol's.
    kept: OnceLock<OpenRequest>,
    /// Cancelled when the connection is to make room for another.
    pub(crate) shed: CancellationToken,
}

/// Who asks on a connection, to be told when that is known.
#[derive(Clone)]
pub(crate) struct Asker(Arc<Activity>);

impl Asker {
    pub(crate) fn is(&self, user: &str) {
        let mut known = self.0.user.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(user) {
            *known = Some(user.into());
        }
    }
}

/// One request, which keeps its connection busy until its answer is sent.
pub(crate) struct OpenRequest {
    connections: Connections,
    activity: Arc<Activity>,
}

/// An answer that is being sent. The client must go on taking it.
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
        if all >= most
            && !shed_of_largest_source(&mut open, |entry| entry.is_idle() && entry.stage != Stage::System)
            && !self.shed_of_largest_user(&mut open)
        {
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
        Some(OpenConnection { connections: self.clone(), number, activity, kept: OnceLock::new(), shed })
    }

    /// Tells a connection of the user who has most to close, if that is more than a fair part of them: the one whose client has
    /// taken nothing for longest, else the oldest.
    fn shed_of_largest_user(&self, open: &mut BTreeMap<u64, Entry>) -> bool {
        let mut users: HashMap<Option<Arc<str>>, usize> = HashMap::new();
        for entry in open.values().filter(|entry| entry.stage == Stage::User) {
            *users.entry(entry.activity.user()).or_default() += 1;
        }
        let Some((largest, count)) = users.into_iter().max_by_key(|(_, count)| *count) else { return false };
        if count <= (self.0.limits.users / FAIR_PART).max(1) {
            return false;
        }
        let theirs = open.iter_mut().filter(|(_, entry)| entry.stage == Stage::User);
        let theirs = theirs.filter(|(_, entry)| entry.activity.user() == largest);
        let stuck =
            |(number, entry): &(&u64, &mut Entry)| (entry.activity.untaken_since().unwrap_or(u64::MAX), **number);
        let Some((_, entry)) = theirs.min_by_key(stuck) else { return false };
        entry.shed();
        true
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

    fn shed(&mut self) {
        self.stage = Stage::Shed;
        self.shed.cancel();
        if let Some(upgraded) = self.activity.upgraded.get() {
            upgraded.cancel();
        }
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
    longest.shed();
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
        if full
            && !shed_of_largest_source(&mut open, |entry| is_user(entry) && entry.is_idle())
            && !self.connections.shed_of_largest_user(&mut open)
        {
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

    /// What is to be told who asks.
    pub(crate) fn asker(&self) -> Asker {
        Asker(Arc::clone(&self.activity))
    }

    /// It becomes another protocol's by `request`, and is busy until it is closed. `ends` closes it.
    pub(crate) fn upgraded(&self, request: OpenRequest, ends: CancellationToken) {
        let _ = (self.kept.set(request), self.activity.upgraded.set(ends));
    }

    /// For how long there has been no request; `None` while there is one.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        if self.activity.requests.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = self.activity.idle_since.load(Ordering::Relaxed);
        Some(Duration::from_millis(self.connections.now().saturating_sub(since)))
    }

    /// Until the client has taken nothing of an answer for too long, or too long to take all of it.
    pub(crate) async fn unread(&self) {
        loop {
            let left = self.unread_in();
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

    /// How long it takes at least until an answer has waited too long for the client.
    fn unread_in(&self) -> Duration {
        let now = self.connections.now();
        let sending = self.activity.lock_sending();
        sending.values().map(|sending| sending.left(now)).min().unwrap_or(UNREAD).min(UNREAD)
    }
}

impl Sending {
    /// What tells that others need its bytes, if that was not told yet.
    fn awaited(&self) -> Option<CancellationToken> {
        self.revoked.clone().filter(|revoked| !revoked.is_cancelled())
    }

    /// How long it may wait for the client yet.
    fn left(&self, now: u64) -> Duration {
        let since = |then: u64| Duration::from_millis(now.saturating_sub(then));
        let is_revoked = self.revoked.as_ref().is_some_and(CancellationToken::is_cancelled);
        let patience = match self.pace {
            _ if self.silent => None,
            _ if is_revoked => Some(REVOKED_PATIENCE),
            Pace::Ending => Some(UNREAD),
            Pace::Watching => Some(UNREAD_EVENTS),
            Pace::Lasting => None,
        };
        let untaken = patience.map(|patience| patience.saturating_sub(since(self.taken)));
        let limit = (self.pace == Pace::Ending).then(|| ANSWER_LIMIT.saturating_sub(since(self.began)));
        untaken.into_iter().chain(limit).min().unwrap_or(Duration::MAX)
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

    fn user(&self) -> Option<Arc<str>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Since when the client has taken nothing of an answer that is there for it.
    fn untaken_since(&self) -> Option<u64> {
        let sending = self.lock_sending();
        sending.values().filter(|sending| !sending.silent).map(|sending| sending.taken).min()
    }
}

impl OpenRequest {
    /// Its answer begins to be sent. `revoked` tells when others need its bytes more.
    pub(crate) fn answer(self, pace: Pace, revoked: Option<CancellationToken>) -> OpenAnswer {
        let number = self.connections.0.next.fetch_add(1, Ordering::Relaxed);
        let (now, is_reserved) = (self.connections.now(), revoked.is_some());
        let sending = Sending { pace, began: now, taken: now, silent: false, revoked };
        self.activity.lock_sending().insert(number, sending);
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
            (sending.taken, sending.silent) = (now, false);
        }
    }

    /// There is nothing to take.
    pub(crate) fn silent(&self) {
        if let Some(sending) = self.request.activity.lock_sending().get_mut(&self.number) {
            sending.silent = true;
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
        users.iter().enumerate().for_each(|(number, one)| one.asker().is(&number.to_string()));
        let busy: Vec<_> = [0, 1, 3].iter().map(|at| users[*at].begin()).collect();
        let newcomer = all.accept(THERE).unwrap();
        assert!(newcomer.shown(false));
        assert_eq!(shed(&users), [2], "the one that has waited longest of those that wait");
        newcomer.asker().is("new");
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
        let all = connections();
        let one = all.accept(HERE).unwrap();
        assert_eq!(one.unread_in(), UNREAD, "nothing is being sent");
        let (first, second) = (one.begin().answer(Pace::Ending, None), one.begin().answer(Pace::Ending, None));
        tokio::time::advance(Duration::from_secs(9)).await;
        first.taken();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(one.unread_in(), Duration::from_secs(20), "of the one that waits longest");
        drop(second);
        assert_eq!(one.unread_in(), Duration::from_secs(29));
        let began = Instant::now();
        one.unread().await;
        assert_eq!(began.elapsed(), Duration::from_secs(29));
        drop(first);
        assert_eq!((one.unread_in(), one.idle_for()), (UNREAD, Some(Duration::ZERO)));
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answer_whose_bytes_others_need_ends_its_connection_sooner() {
        let all = connections();
        let one = all.accept(HERE).unwrap();
        let (began, revoked) = (Instant::now(), CancellationToken::new());
        let later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let answer = one.begin().answer(Pace::Ending, Some(revoked.clone()));
            tokio::time::sleep(Duration::from_millis(500)).await;
            revoked.cancel();
            answer
        };
        let (answer, ()) = tokio::join!(later, one.unread());
        assert_eq!(began.elapsed(), Duration::from_secs(3) + REVOKED_PATIENCE, "counted from when it was last taken");
        drop(answer);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_is_taken_too_slowly_ends_its_connection_after_a_minute() {
        let all = connections();
        let one = all.accept(HERE).unwrap();
        let (began, answer) = (Instant::now(), one.begin().answer(Pace::Ending, None));
        let trickle = async {
            loop {
                tokio::time::sleep(Duration::from_secs(7)).await;
                answer.taken();
            }
        };
        tokio::select! {
            () = one.unread() => {}
            () = trickle => {}
        }
        assert_eq!(began.elapsed(), ANSWER_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn watch_may_be_silent_for_ever_and_ends_when_its_events_are_not_taken() {
        let all = connections();
        let one = all.accept(HERE).unwrap();
        let log = one.begin().answer(Pace::Lasting, None);
        let watch = one.begin().answer(Pace::Watching, None);
        watch.silent();
        assert!(tokio::time::timeout(Duration::from_secs(3600), one.unread()).await.is_err());
        watch.taken();
        let began = Instant::now();
        one.unread().await;
        assert_eq!(began.elapsed(), UNREAD_EVENTS);
        drop((watch, log));
    }

    /// [SE-97] Those who do not say who they are, or open more streams than others, lose theirs when somebody else finds no place.
    #[tokio::test(start_paused = true)]
    async fn user_with_most_busy_connections_loses_the_one_that_is_stuck() {
        let all = Connections::new(Limits { open: 32, users: 24, new: 4, new_per_source: 3 });
        let user = |name: &str| {
            let one = all.accept(HERE)?;
            let let_in = one.shown(false);
            one.asker().is(name);
            let_in.then(|| (one.begin().answer(Pace::Lasting, None), one))
        };
        let mut theirs: Vec<_> = (0..21).map(|_| user("flood").unwrap()).collect();
        let others: Vec<_> = (0..3).map(|_| user("quiet").unwrap()).collect();
        theirs.iter().filter(|(answer, _)| answer.number != theirs[7].0.number).for_each(|(answer, _)| answer.silent());
        for many in 1..=18 {
            let newcomer = user(&format!("user {many}")).unwrap_or_else(|| panic!("{many}: there is a place"));
            assert_eq!(theirs.iter().filter(|(_, one)| one.shed.is_cancelled()).count(), many);
            assert!(many > 1 || theirs[7].1.shed.is_cancelled(), "the one whose client takes nothing is the first");
            theirs.push(newcomer);
        }
        assert!(user("one too many").is_none(), "nobody has more than a fair part");
        assert!(others.iter().all(|(_, one)| !one.shed.is_cancelled()));
    }

    #[test]
    fn connection_of_another_protocol_is_busy_until_it_is_closed_and_is_told_to_end() {
        let all = connections();
        let users: Vec<_> =
            (0..6).map(|_| all.accept(HERE).unwrap()).inspect(|one| assert!(one.shown(false))).collect();
        let ends: Vec<_> = users.iter().map(|one| (one.begin(), CancellationToken::new())).collect();
        let ends: Vec<_> = users
            .iter()
            .zip(ends)
            .map(|(one, (request, token))| {
                one.asker().is("bob");
                one.upgraded(request, token.clone());
                token
            })
            .collect();
        assert_eq!((users[0].idle_for(), all.shed_idle(6)), (None, 0));
        assert!(all.accept(THERE).unwrap().shown(false));
        assert_eq!(ends.iter().filter(|token| token.is_cancelled()).count(), 1);
        drop(users);
        assert!(all.lock().is_empty());
    }

    #[test]
    fn clients_get_less_than_half_of_the_descriptors() {
        for (descriptors, open) in [(256, 64), (1024, 256), (4096, 1792), (20_000, 4096), (1 << 20, 4096)] {
            assert_eq!(Limits::with_descriptors(descriptors).open, open);
        }
    }
}
