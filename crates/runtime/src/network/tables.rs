//! The packet rules of this instance: what should stand in each of its tables, and somebody who sees to it that it does.
//!
//! ```text
//!  write(spec) ──▶ kernel ──▶ kept as what should be there
//!                    │ every commit on this machine is told, with who made it
//!                    ▼
//!  another program's ──▶ damaged ── a moment later, the longer the more often ──▶ written again, whole
//!  our own           ──▶ whole
//! ```
//!
//! A firewall that is reloaded (`nft flush ruleset`) takes everybody's rules away, and whoever edits a ruleset by hand may take one.
//! A table belongs to one run of the agent, and its comment tells which: a later run of the same instance takes it over, and
//! this one leaves it alone from then on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nft::{Action, Batch, Change, Monitor, Nftables, Notification, ObjectKind, Table, TableSpec, Transaction};
use rustix::time::{ClockId, clock_gettime};
use supervision::BackoffPolicy;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A reload comes in several steps; this is for those that follow at once.
const REPAIR_AFTER: Duration = Duration::from_millis(10);
/// How long rules are missing at most where another program keeps taking them away.
const REPAIR_AFTER_MAX: Duration = Duration::from_secs(1);
/// A repair after such a time is the first again.
const PEACE: Duration = Duration::from_secs(10);
/// How many changes of a table are told to people.
const TOLD_MAX: usize = 8;

/// The packet rules of this instance.
#[derive(Debug)]
pub(super) struct Tables {
    run: Run,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    /// Opened when something is first written.
    nftables: Option<Nftables>,
    /// What should be there.
    wanted: BTreeMap<Table, TableSpec>,
    /// What others did to it.
    damaged: BTreeMap<Table, Damage>,
    repairs: u64,
}

/// What others did to a table.
#[derive(Default, Debug)]
struct Damage {
    changes: Vec<String>,
    /// Beside those.
    more: usize,
    by: Option<String>,
    /// How often it could not be repaired.
    failures: u32,
}

impl Tables {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { run: Run::start(), state: Mutex::default() }
    }

    /// Makes a table be this, at once, and keeps it so. If the kernel refuses, what was there before stays.
    pub(super) fn write(&self, spec: TableSpec) -> Result<(), nft::Error> {
        let spec = TableSpec { comment: Some(self.run.to_string()), ..spec };
        let mut state = self.state();
        state.replace(&spec)?;
        state.damaged.remove(&spec.table);
        state.wanted.insert(spec.table.clone(), spec);
        Ok(())
    }

    /// Removes a table, if it is there.
    pub(super) fn remove(&self, table: &Table) -> Result<(), nft::Error> {
        let mut state = self.state();
        state.wanted.remove(table);
        state.damaged.remove(table);
        let mut batch = Batch::new();
        batch.remove_table(table);
        state.nftables()?.commit(batch)
    }

    /// How often tables were written again because another program had changed them.
    pub(super) fn repairs(&self) -> u64 {
        self.state().repairs
    }

    /// Follows what happens to the tables, for as long as it is polled. Nothing that happens after this call is missed.
    pub(super) fn watch(self: &Arc<Self>) -> Result<impl Future<Output = ()> + use<>, nft::Error> {
        let monitor = Monitor::open()?;
        let failed = |source| nft::Error::Socket { doing: "wait for a monitor", source };
        #[expect(
            deprecated,
            reason = "the call in its place is unsafe, and a monitor keeps one descriptor as long as it lives"
        )]
        let monitor = AsyncFd::with_interest(monitor, Interest::READABLE).map_err(failed)?;
        Ok(self.clone().follow(monitor))
    }

    async fn follow(self: Arc<Self>, mut monitor: AsyncFd<Monitor>) {
        let mut pace = Pace::default();
        let mut due: Option<Instant> = None;
        loop {
            let repair = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = repair => {
                    due = None;
                    if self.repair() {
                        pace.repaired(Instant::now());
                    }
                }
                ready = monitor.readable_mut() => {
                    let Ok(mut ready) = ready else { return };
                    match ready.get_inner_mut().read() {
                        Ok(Some(told)) => told.iter().for_each(|notification| self.hear(notification)),
                        Ok(None) => ready.clear_ready(),
                        Err(error) => {
                            tracing::warn!(error = &error as &dyn std::error::Error, "cannot hear who changes packet rules");
                            self.hear(&Notification::Lost);
                            tokio::time::sleep(REPAIR_AFTER_MAX).await;
                        }
                    }
                }
            }
            if due.is_none() && !self.state().damaged.is_empty() {
                let now = Instant::now();
                due = Some(now + pace.wait(now));
            }
        }
    }

    /// Takes note of what happened.
    fn hear(&self, notification: &Notification) {
        let mut state = self.state();
        match notification {
            Notification::Lost => {
                let tables: Vec<_> = state.wanted.keys().cloned().collect();
                for table in tables {
                    state.damaged.entry(table).or_default().tell("changes that were not heard of in time".to_owned());
                }
            }
            Notification::Committed(transaction) if state.is_own(transaction) => {
                // Whatever was done to a table before it was written is gone with it.
                let is_new = |change: &&Change| (change.kind, change.action) == (ObjectKind::Table, Action::Added);
                for change in transaction.changes.iter().filter(is_new) {
                    state.damaged.remove(&change.table);
                }
            }
            Notification::Committed(transaction) => {
                let changes = transaction.changes.iter().filter(|change| state.wanted.contains_key(&change.table));
                let changes: Vec<_> = changes.collect();
                if changes.iter().any(|change| self.run.is_before(change.comment.as_deref())) {
                    tracing::info!("a later run of this instance has its packet rules");
                    state.wanted.clear();
                    state.damaged.clear();
                    return;
                }
                for change in changes {
                    let damage = state.damaged.entry(change.table.clone()).or_default();
                    damage.tell(in_words(change));
                    let by = transaction.process.as_ref().map(|it| format!("{} (process {})", it.name, it.id));
                    damage.by = damage.by.take().or(by);
                }
            }
        }
    }

    /// Writes again what others changed; false if there was nothing to do. What cannot be written stays to be done.
    fn repair(&self) -> bool {
        let mut state = self.state();
        let damaged = std::mem::take(&mut state.damaged);
        let is_any = !damaged.is_empty();
        for (table, mut damage) in damaged {
            let Some(spec) = state.wanted.get(&table).cloned() else { continue };
            match state.replace(&spec) {
                Ok(()) => {
                    state.repairs += 1;
                    tracing::warn!(
                        %table, changed = %damage, by = damage.by.as_deref().unwrap_or("unknown"), repairs = state.repairs,
                        "another program changed packet rules of pods; they were written again"
                    );
                }
                Err(error) => {
                    damage.failures = damage.failures.saturating_add(1);
                    // Tried every second for as long as it takes, and told less and less often.
                    if damage.failures.is_power_of_two() {
                        let error: &dyn std::error::Error = &error;
                        tracing::error!(
                            %table, changed = %damage, failures = damage.failures, error,
                            "cannot write packet rules of pods again"
                        );
                    }
                    state.damaged.insert(table, damage);
                }
            }
        }
        is_any
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn nftables(&mut self) -> Result<&mut Nftables, nft::Error> {
        match &mut self.nftables {
            Some(nftables) => Ok(nftables),
            none => Ok(none.insert(Nftables::open()?)),
        }
    }

    fn replace(&mut self, spec: &TableSpec) -> Result<(), nft::Error> {
        let mut batch = Batch::new();
        batch.replace_table(spec);
        self.nftables()?.commit(batch)
    }

    fn is_own(&self, transaction: &Transaction) -> bool {
        self.nftables.as_ref().is_some_and(|nftables| nftables.port() == transaction.port)
    }
}

impl Damage {
    fn tell(&mut self, change: String) {
        if self.changes.contains(&change) {
            return;
        }
        match self.changes.len() {
            TOLD_MAX.. => self.more += 1,
            _ => self.changes.push(change),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.changes.join(", "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn in_words(change: &Change) -> String {
    let done = match change.action {
        Action::Added => "added",
        Action::Removed => "removed",
    };
    let name = change.name.as_deref().unwrap_or_default();
    match change.kind {
        ObjectKind::Table => format!("table {done}"),
        ObjectKind::Rule => format!("{} rules of chain {name} {done}", change.count),
        ObjectKind::Element => format!("{} elements of {name} {done}", change.count),
        kind @ (ObjectKind::Chain | ObjectKind::Set | ObjectKind::Other) => format!("{kind} {name} {done}"),
    }
}

/// Which run of the agent tables belong to: the boot of the machine, and the moment within it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    boot: String,
    nanoseconds: u64,
}

impl Run {
    const WORDS: [&str; 2] = ["adieu, boot ", ", run "];

    fn start() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let time = clock_gettime(ClockId::Boottime);
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        let nanoseconds = count(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(count(time.tv_nsec));
        Self { boot: boot.trim().to_owned(), nanoseconds }
    }

    /// Whether the comment is that of a later run. A ruleset that was saved and restored has that of an earlier one, or of
    /// another boot.
    fn is_before(&self, comment: Option<&str>) -> bool {
        let other = comment.and_then(|comment| comment.strip_prefix(Self::WORDS[0])?.split_once(Self::WORDS[1]));
        let Some((boot, nanoseconds)) = other else { return false };
        boot == self.boot && nanoseconds.parse().is_ok_and(|other: u64| other > self.nanoseconds)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}{}", Self::WORDS[0], self.boot, Self::WORDS[1], self.nanoseconds)
    }
}

/// How long to wait before a repair: hardly at all the first time, and twice as long each time somebody does it again.
#[derive(Default, Debug)]
struct Pace {
    repairs: u32,
    last: Option<Instant>,
}

impl Pace {
    fn wait(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= PEACE) {
            self.repairs = 0;
        }
        BackoffPolicy::new(REPAIR_AFTER, REPAIR_AFTER_MAX).pause(self.repairs.saturating_add(1))
    }

    fn repaired(&mut self, now: Instant) {
        self.repairs = self.repairs.saturating_add(1);
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_come_less_and_less_often_until_there_is_peace() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        let waits: Vec<_> = (0..10)
            .map(|_| {
                let wait = pace.wait(now);
                now += wait;
                pace.repaired(now);
                wait.as_millis()
            })
            .collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
        assert_eq!(pace.wait(now + PEACE / 2), REPAIR_AFTER_MAX);
        assert_eq!(pace.wait(now + PEACE), REPAIR_AFTER);
    }

    #[test]
    fn later_run_of_the_same_boot_is_told_from_rules_that_were_restored() {
        let run = |boot: &str, nanoseconds| Run { boot: boot.to_owned(), nanoseconds };
        let own = run("b", 5);
        let later = |other: Run| own.is_before(Some(&other.to_string()));
        assert!(later(run("b", 6)));
        assert!(!later(run("b", 5)) && !later(run("b", 4)) && !later(run("a", 6)));
        assert!(!own.is_before(None) && !own.is_before(Some("adieu, boot b, run x")) && !own.is_before(Some("")));
        assert!(Run::start().to_string().len() <= 128, "as long as a comment may be");
    }

    #[test]
    fn damage_tells_the_first_changes_and_counts_the_others() {
        let mut damage = Damage::default();
        for number in 0..20 {
            damage.tell(format!("{}", number % 10));
        }
        assert_eq!(damage.to_string(), "0, 1, 2, 3, 4, 5, 6, 7 and 4 more");
    }
}
