//! Who is to be planned, and when: pure, told the time.
//!
//! ```text
//!              wake                 next              ended
//!   (unknown) ─────▶ ready ───────────────▶ running ─┬─────▶ (unknown)         nothing more to do
//!                      ▲                             ├─────▶ waiting           for a deadline, a retry, or its own writes
//!                      └── due, woken, writes seen ──┼───────────┘
//!                      └─────────────────────────────┘ woken meanwhile
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use supervision::BackoffPolicy;
use tokio::time::Instant;

/// Who comes first: the lowest.
pub type Rank = (i32, i64);

/// How long a key that wrote something waits at most until its sources show it: one that is broken must not hold it up for ever.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(5);

/// Retries of all keys together: so many at once, then one in each interval.
pub(crate) const RETRIES_AT_ONCE: u32 = 100;
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What happens around a key that failed brings its retry forward, to this part of its pause: it may have been in the way, or it may
/// have been what the key itself wrote before it failed.
const BROUGHT_FORWARD: u32 = 4;

/// How a pass ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Everything was done; to be planned again then.
    Well { wake: Option<Instant> },
    /// Something was not.
    Badly,
}

/// A write that a source will show.
type Write = (&'static str, u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum For {
    /// A deadline, or a retry.
    Time,
    /// Its own writes: it was woken and has not seen them.
    Writes,
    /// Nothing, but whoever wakes it has to wait for its writes.
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In `ready` under this number.
    Ready(u64),
    /// In `timers` under this moment.
    Waiting(Instant, For),
    Running {
        /// It was woken meanwhile.
        again: bool,
    },
}

#[derive(Debug)]
struct Entry {
    state: State,
    rank: Rank,
    failures: u32,
    failed_at: Instant,
    unseen: BTreeSet<Write>,
    hold_until: Instant,
}

/// The keys that somebody has to see to.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    backoff: BackoffPolicy,
    entries: BTreeMap<K, Entry>,
    ready: BTreeMap<(Rank, u64), K>,
    timers: BTreeSet<(Instant, K)>,
    /// Who waits to see which write.
    holds: BTreeMap<Write, BTreeSet<K>>,
    /// Up to where each source has been heard.
    seen: BTreeMap<&'static str, u64>,
    numbers: u64,
    /// When the next retry would be due if all of them were evenly spread.
    retries: Option<Instant>,
}

impl<K: Clone + Ord> Queue<K> {
    pub(crate) fn new(backoff: BackoffPolicy) -> Self {
        Self {
            backoff,
            entries: BTreeMap::new(),
            ready: BTreeMap::new(),
            timers: BTreeSet::new(),
            holds: BTreeMap::new(),
            seen: BTreeMap::new(),
            numbers: 0,
            retries: None,
        }
    }

    /// Something happened that may matter to `key`.
    pub(crate) fn wake(&mut self, key: K, rank: Rank, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            let state = State::Running { again: false };
            let entry = Entry { state, rank, failures: 0, failed_at: now, unseen: BTreeSet::new(), hold_until: now };
            self.entries.insert(key.clone(), entry);
            return self.make_ready(&key);
        };
        match &mut entry.state {
            State::Running { again } => *again = true,
            State::Ready(_) if entry.rank == rank => {}
            State::Ready(number) => {
                let (old, number) = ((entry.rank, *number), *number);
                entry.rank = rank;
                self.ready.remove(&old);
                self.ready.insert((rank, number), key);
            }
            State::Waiting(at, _) => {
                entry.rank = rank;
                if entry.failures > 0 {
                    let brought = entry.failed_at + self.backoff.pause(entry.failures) / BROUGHT_FORWARD;
                    let at = (*at).min(brought.max(now));
                    self.wait(&key, at, For::Time);
                } else {
                    self.plan_soon(&key, now);
                }
            }
        }
    }

    /// Takes out the first of those who may be planned by now. It runs until [`Queue::ended`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<K> {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.timers.pop_first() else { break };
            match self.entries.get(&key).map(|entry| entry.state) {
                Some(State::Waiting(_, For::Nobody)) => self.forget(&key),
                Some(_) => self.plan_soon(&key, now),
                None => {}
            }
        }
        let (_, key) = self.ready.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Running { again: false };
        }
        Some(key)
    }

    /// When somebody who waits is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// How often a key has failed in a row.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// What became of a key that was taken out, and what was written.
    pub(crate) fn ended(&mut self, key: &K, ended: Ended, wrote: &[Write], now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let again = entry.state == State::Running { again: true };
        for write in wrote {
            if self.seen.get(write.0).is_none_or(|seen| *seen < write.1) {
                entry.unseen.insert(*write);
                entry.hold_until = now + HOLD_MAX;
                self.holds.entry(*write).or_default().insert(key.clone());
            }
        }
        match ended {
            Ended::Badly => {
                entry.failures = entry.failures.saturating_add(1);
                entry.failed_at = now;
                let pause = self.backoff.pause(entry.failures);
                let at = (now + pause).max(self.retry_slot(now));
                self.wait(key, at, For::Time);
            }
            Ended::Well { wake } => {
                entry.failures = 0;
                let (held, hold_until) = (!entry.unseen.is_empty(), entry.hold_until);
                match wake {
                    _ if again => self.plan_soon(key, now),
                    Some(at) => self.wait(key, at, For::Time),
                    None if held => self.wait(key, hold_until, For::Nobody),
                    None => self.forget(key),
                }
            }
        }
    }

    /// A source has shown everything up to `revision`.
    pub(crate) fn reached(&mut self, source: &'static str, revision: u64, now: Instant) {
        let seen = self.seen.entry(source).or_default();
        *seen = revision.max(*seen);
        let shown: Vec<Write> = self.holds.range((source, 0)..=(source, revision)).map(|(write, _)| *write).collect();
        for write in shown {
            for key in self.holds.remove(&write).unwrap_or_default() {
                let Some(entry) = self.entries.get_mut(&key) else { continue };
                entry.unseen.remove(&write);
                if !entry.unseen.is_empty() {
                    continue;
                }
                match entry.state {
                    State::Waiting(_, For::Writes) => self.plan_soon(&key, now),
                    State::Waiting(_, For::Nobody) => self.forget(&key),
                    State::Waiting(_, For::Time) | State::Ready(_) | State::Running { .. } => {}
                }
            }
        }
    }

    /// Ready, unless it has to see its own writes first.
    fn plan_soon(&mut self, key: &K, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.unseen.is_empty() || entry.hold_until <= now {
            self.make_ready(key);
        } else {
            let until = entry.hold_until;
            self.wait(key, until, For::Writes);
        }
    }

    fn make_ready(&mut self, key: &K) {
        self.stop_waiting(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.numbers += 1;
        entry.state = State::Ready(self.numbers);
        self.ready.insert((entry.rank, self.numbers), key.clone());
        // From here on it decides by what is known.
        for write in std::mem::take(&mut entry.unseen) {
            self.release(write, key);
        }
    }

    fn wait(&mut self, key: &K, at: Instant, what: For) {
        self.stop_waiting(key);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = State::Waiting(at, what);
            self.timers.insert((at, key.clone()));
        }
    }

    fn stop_waiting(&mut self, key: &K) {
        if let Some(State::Waiting(at, _)) = self.entries.get(key).map(|entry| entry.state) {
            self.timers.remove(&(at, key.clone()));
        }
    }

    fn forget(&mut self, key: &K) {
        self.stop_waiting(key);
        if let Some(entry) = self.entries.remove(key) {
            entry.unseen.into_iter().for_each(|write| self.release(write, key));
        }
    }

    fn release(&mut self, write: Write, key: &K) {
        if let Some(keys) = self.holds.get_mut(&write) {
            keys.remove(key);
            if keys.is_empty() {
                self.holds.remove(&write);
            }
        }
    }

    /// The first moment at which one more retry is not too many.
    fn retry_slot(&mut self, now: Instant) -> Instant {
        let spread = self.retries.map_or(now, |at| at.max(now)) + RETRY_INTERVAL;
        self.retries = Some(spread);
        let ahead = spread.duration_since(now).saturating_sub(RETRY_INTERVAL * RETRIES_AT_ONCE);
        now + ahead
    }
}
