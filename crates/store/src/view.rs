//! What is true, and what was: every object by key, and the window of changes that led here.
//!
//! Only the log changes it, group by group, after the commit. Readers take a short lock and leave with shared objects.
//! History is kept per collection, so that a busy collection never makes a quiet one unwatchable, and is given up
//! globally oldest first, so that memory stays bounded.
//!
//! Objects are kept as their bytes. Their parsed forms, several times as large, are kept for what was written last, which
//! is what everybody is about to look at, and for collections that are small, which is where roles, accounts and
//! namespaces live, which every request looks at.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;

use crate::age::Ages;
use crate::encryption::label;
use crate::snapshot::FullSnapshot;
use crate::{Backup, Change, Encryption, HistoryError, Key, Object, Page, Revision, Window};

/// How many changes a watch takes over at a time, and then those that have the revision of the last; also about how many
/// a stalled reader can keep alive.
const BATCH: usize = 64;

/// About how much memory the parsed forms of what was written last may take.
const RECENT: usize = 2 << 20;

/// A collection is small if the parsed forms of all its objects take about as much memory, or less.
const SMALL: usize = 2 << 20;

#[derive(Debug)]
pub(crate) struct View {
    state: RwLock<State>,
    /// Whether the log could not take the last write.
    refusing: AtomicBool,
}

#[derive(Debug)]
struct State {
    revision: Revision,
    /// No collection has given up a change after this one.
    floor: Revision,
    collections: BTreeMap<Arc<str>, Collection>,
    /// The collection of each kept change, oldest first.
    order: VecDeque<Arc<str>>,
    /// What the superseded objects held by history weigh.
    weight: usize,
    recent: Recent,
    ages: Ages,
    window: Window,
    closed: bool,
}

#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Kept>,
    /// What the parsed forms of all `objects` weigh, or would.
    parsed: usize,
    /// Whether they are kept.
    keeps_parsed: bool,
    history: VecDeque<Change>,
    /// Every change after this one is in `history`.
    forgotten: Revision,
    /// Wakes the watches; `None` once the store is closed.
    news: Option<watch::Sender<Revision>>,
}

/// An object, with its parsed form if its collection is small.
#[derive(Debug)]
struct Kept {
    object: Arc<Object>,
    value: Option<Arc<Value>>,
}

/// The parsed forms of what was written last, oldest first.
#[derive(Debug, Default)]
struct Recent {
    values: VecDeque<(Arc<Value>, usize)>,
    weight: usize,
}

/// The cursor is older than the history of its collection.
pub(crate) struct Lagged;

/// Something is visible that the watches of some collections were not woken for.
#[must_use = "its watches sleep"]
pub(crate) struct PendingWakes {
    of: Vec<watch::Sender<Revision>>,
    revision: Revision,
}

impl PendingWakes {
    pub(crate) fn wake(self) {
        for news in self.of {
            news.send_replace(self.revision);
        }
    }
}

impl View {
    pub(crate) fn new(floor: Revision, window: Window) -> Self {
        let state = State {
            revision: floor,
            floor,
            collections: BTreeMap::new(),
            order: VecDeque::new(),
            weight: 0,
            recent: Recent::default(),
            ages: Ages::default(),
            window,
            closed: false,
        };
        Self { state: RwLock::new(state), refusing: AtomicBool::new(false) }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.read().revision
    }

    /// Notes whether the log could take its last write.
    pub(crate) fn note_write(&self, succeeded: bool) {
        self.refusing.store(!succeeded, Ordering::Relaxed);
    }

    pub(crate) fn takes_writes(&self) -> bool {
        !self.refusing.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.read().collections.get(&key.collection)?.objects.get(key).map(|kept| Arc::clone(&kept.object))
    }

    pub(crate) fn list(&self, collection: &str, namespace: &str, at: Option<Revision>) -> Result<Page, HistoryError> {
        let state = self.read();
        let Some(at) = at else { return Ok(state.page(collection, namespace)) };
        state.check(collection, at)?;
        state.check_age(at)?;
        let Some(collection) = state.collections.get(collection) else {
            return Ok(Page { items: Vec::new(), revision: at });
        };
        let mut items = collection.as_of(namespace, at);
        items.retain(|object| object.unreadable().is_none());
        Ok(Page { items, revision: at })
    }

    /// What no list shows.
    pub(crate) fn unreadable(&self, collection: &str, namespace: &str) -> Vec<Arc<Object>> {
        let state = self.read();
        let Some(collection) = state.collections.get(collection) else { return Vec::new() };
        collection.range(namespace).filter(|object| object.unreadable().is_some()).cloned().collect()
    }

    /// Says what cannot be shown as it is stored.
    pub(crate) fn tell_damage(&self) {
        let state = self.read();
        let mut locked: BTreeMap<_, usize> = BTreeMap::new();
        for kept in state.collections.values().flat_map(|collection| collection.objects.values()) {
            let Some(damage) = kept.object.damage() else { continue };
            let (key, reason) = (&kept.object.key, &damage.reason);
            if kept.object.lacks_key() {
                *locked.entry(label(&damage.stored)).or_default() += 1;
            }
            if damage.is_unreadable {
                tracing::warn!(%key, reason, "a stored object cannot be read; it is left out, and can be deleted");
            } else {
                tracing::warn!(%key, reason, "a stored object is shown without its deepest levels");
            }
        }
        for (by, objects) in locked {
            let by = by.unwrap_or_default();
            tracing::error!(
                by,
                objects,
                "stored objects cannot be read without the key that encrypted them; none is lost"
            );
        }
    }

    /// Where a watch that has seen everything up to `from` starts, and what wakes it.
    pub(crate) fn subscribe(
        &self,
        collection: &str,
        from: Option<Revision>,
    ) -> Result<(Revision, watch::Receiver<Revision>), HistoryError> {
        let mut state = self.write();
        let from = from.unwrap_or(state.revision);
        state.check(collection, from)?;
        Ok((from, state.news(collection)))
    }

    /// A page, and what a watch needs to continue exactly there.
    pub(crate) fn page_and_subscribe(&self, collection: &str, namespace: &str) -> (Page, watch::Receiver<Revision>) {
        let mut state = self.write();
        let page = state.page(collection, namespace);
        (page, state.news(collection))
    }

    /// The next changes after `cursor`, and the cursor after them. All changes of a revision come together: a reader that
    /// resumes after one of them has all of them.
    pub(crate) fn after(
        &self,
        collection: &str,
        namespace: &str,
        cursor: Revision,
    ) -> Result<(VecDeque<Change>, Revision), Lagged> {
        let state = self.read();
        let Some(collection) = state.collections.get(collection) else { return Ok((VecDeque::new(), state.revision)) };
        if cursor < collection.forgotten {
            return Err(Lagged);
        }
        let is_told = |change: &&Change| change.key().is_in(namespace) && change.object().unreadable().is_none();
        let mut told = collection.since(cursor).filter(is_told).peekable();
        let mut changes: VecDeque<Change> = told.by_ref().take(BATCH).cloned().collect();
        let Some(last) = changes.back().map(Change::revision).filter(|_| changes.len() == BATCH) else {
            return Ok((changes, state.revision));
        };
        while let Some(change) = told.next_if(|change| change.revision() == last) {
            changes.push_back(change.clone());
        }
        Ok((changes, last))
    }

    /// How far a watch that took everything up to `cursor` can be said to have come.
    pub(crate) fn progress(&self, collection: &str, namespace: &str, cursor: Revision) -> Revision {
        let state = self.read();
        let Some(collection) = state.collections.get(collection) else { return state.revision };
        if cursor < collection.forgotten {
            return cursor;
        }
        match collection.since(cursor).find(|change| change.key().is_in(namespace)) {
            Some(change) => Revision(change.revision().0 - 1),
            None => state.revision,
        }
    }

    /// Makes one committed group visible, in order. Its watches are still to be woken.
    pub(crate) fn apply(&self, changes: &[Change]) -> PendingWakes {
        let mut state = self.write();
        let mut woken: Vec<watch::Sender<Revision>> = Vec::new();
        for change in changes {
            let news = state.apply(change);
            state.recent.keep(change.object());
            if let Some(news) = news
                && !woken.iter().any(|known| known.same_channel(&news))
            {
                woken.push(news);
            }
        }
        state.trim();
        let (revision, kept) = (state.revision, state.window.age);
        state.ages.note(revision, Instant::now(), kept);
        drop(state);
        PendingWakes { of: woken, revision }
    }

    /// Takes over a change that was made visible in an earlier life, when nobody watches.
    pub(crate) fn replay(&self, change: &Change) {
        let mut state = self.write();
        state.apply(change);
        state.trim();
    }

    /// Moves the newest revision on without a change: what a reopened log says was given out before.
    pub(crate) fn advance_to(&self, revision: Revision) {
        let mut state = self.write();
        state.revision = state.revision.max(revision);
    }

    /// Takes over what a change from before the window left, without the change itself.
    pub(crate) fn restore(&self, change: &Change) {
        self.write().collection(&Arc::clone(&change.key().collection)).put(change);
    }

    /// All there is to know, as of now.
    pub(crate) fn everything(&self) -> FullSnapshot {
        let state = self.read();
        let objects = state.collections.values().flat_map(|collection| collection.as_of("", state.floor)).collect();
        let mut next: BTreeMap<&str, usize> = BTreeMap::new();
        let changes = state.order.iter().map(|name| {
            let at = next.entry(name).or_default();
            *at += 1;
            state.collections[name].history[*at - 1].clone()
        });
        FullSnapshot { revision: state.revision, floor: state.floor, objects, changes: changes.collect() }
    }

    /// Every object, as of now.
    pub(crate) fn backup(&self, encryption: Encryption) -> Backup {
        let state = self.read();
        let objects = state.collections.values().flat_map(|collection| collection.range("")).cloned().collect();
        Backup::new(state.revision, objects, encryption)
    }

    /// Ends every watch once it has read what there is.
    pub(crate) fn close(&self) {
        let mut state = self.write();
        state.closed = true;
        for collection in state.collections.values_mut() {
            collection.news = None;
        }
    }

    // A poisoned lock means a panic between two plain map operations; the maps themselves are still sound, and the
    // process ends on panic in production anyway.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn collection(&mut self, name: &Arc<str>) -> &mut Collection {
        let (floor, revision, closed) = (self.floor, self.revision, self.closed);
        self.collections.entry(Arc::clone(name)).or_insert_with(|| Collection {
            objects: BTreeMap::new(),
            parsed: 0,
            keeps_parsed: true,
            history: VecDeque::new(),
            forgotten: floor,
            news: (!closed).then(|| watch::Sender::new(revision)),
        })
    }

    fn news(&mut self, collection: &str) -> watch::Receiver<Revision> {
        let revision = self.revision;
        match &self.collection(&Arc::from(collection)).news {
            Some(news) => news.subscribe(),
            // Its sender is gone at once, which is what a watch on a closed store looks like.
            None => watch::Sender::new(revision).subscribe(),
        }
    }

    /// Whether everything after `asked` is known.
    fn check(&self, collection: &str, asked: Revision) -> Result<(), HistoryError> {
        let oldest = self.collections.get(collection).map_or(self.floor, |collection| collection.forgotten);
        if asked > self.revision {
            return Err(HistoryError::Future { asked, newest: self.revision });
        }
        if asked < oldest {
            return Err(HistoryError::Compacted { asked, oldest });
        }
        Ok(())
    }

    /// Whether the past is not so long gone that nobody should build on it: a list that is read in pages over hours
    /// would show a world that never comes back.
    fn check_age(&self, asked: Revision) -> Result<(), HistoryError> {
        match self.ages.older_than(self.window.age, Instant::now()).filter(|oldest| asked < *oldest) {
            Some(oldest) => Err(HistoryError::Compacted { asked, oldest }),
            None => Ok(()),
        }
    }

    fn page(&self, collection: &str, namespace: &str) -> Page {
        let items = match self.collections.get(collection) {
            Some(collection) => {
                collection.range(namespace).filter(|object| object.unreadable().is_none()).cloned().collect()
            }
            None => Vec::new(),
        };
        Page { items, revision: self.revision }
    }

    fn apply(&mut self, change: &Change) -> Option<watch::Sender<Revision>> {
        let name = Arc::clone(&change.key().collection);
        self.revision = change.revision();
        self.weight += weight(change);
        let collection = self.collection(&name);
        collection.put(change);
        collection.history.push_back(change.clone());
        let news = collection.news.clone();
        self.order.push_back(name);
        news
    }

    /// Gives up whole revisions only.
    fn trim(&mut self) {
        while self.order.len() > self.window.changes
            || self.weight > self.window.bytes
            || self.oldest().is_some_and(|oldest| oldest <= self.floor)
        {
            let Some(name) = self.order.pop_front() else { break };
            let collection = self.collections.get_mut(&name).expect("a kept change has its collection");
            let change = collection.history.pop_front().expect("order and history hold the same changes");
            collection.forgotten = change.revision();
            self.floor = change.revision();
            self.weight -= weight(&change);
        }
    }

    /// The revision of the oldest change that is kept.
    fn oldest(&self) -> Option<Revision> {
        self.collections.get(self.order.front()?)?.history.front().map(Change::revision)
    }
}

impl Recent {
    fn keep(&mut self, object: &Object) {
        let weight = object.parsed_weight();
        self.values.push_back((object.value(), weight));
        self.weight += weight;
        while self.weight > RECENT
            && let Some((_, weight)) = self.values.pop_front()
        {
            self.weight -= weight;
        }
    }
}

impl Collection {
    fn put(&mut self, change: &Change) {
        let (gone, come) = match change {
            Change::Added(after) => (None, Some(after)),
            Change::Modified { before, after } => (Some(before), Some(after)),
            Change::Deleted { before, .. } => (Some(before), None),
        };
        let weight = |object: Option<&Arc<Object>>| object.map_or(0, |object| object.parsed_weight());
        self.parsed = self.parsed + weight(come) - weight(gone);
        // Half of them would be of little use.
        if self.keeps_parsed && self.parsed > SMALL {
            self.keeps_parsed = false;
            self.objects.values_mut().for_each(|kept| kept.value = None);
        }
        match come {
            Some(after) => {
                let value = self.keeps_parsed.then(|| after.value());
                self.objects.insert(after.key.clone(), Kept { object: Arc::clone(after), value });
            }
            None => _ = self.objects.remove(change.key()),
        }
        // Well below the line, so that one who crosses it again and again is not read again and again.
        if !self.keeps_parsed && self.parsed <= SMALL / 2 {
            self.keeps_parsed = true;
            self.objects.values_mut().for_each(|kept| kept.value = Some(kept.object.value()));
        }
    }

    fn range(&self, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let from = Key::new("", namespace, "");
        let from = match self.objects.keys().next() {
            Some(first) => Key { collection: Arc::clone(&first.collection), ..from },
            None => from,
        };
        self.objects.range(from..).map(|(_, kept)| &kept.object).take_while(move |object| object.key.is_in(namespace))
    }

    /// The objects as they were at `at`: those of today, with every newer change undone.
    fn as_of(&self, namespace: &str, at: Revision) -> Vec<Arc<Object>> {
        let mut objects: BTreeMap<&Key, &Arc<Object>> =
            self.range(namespace).map(|object| (&object.key, object)).collect();
        for change in self.since(at).rev().filter(|change| change.key().is_in(namespace)) {
            match change {
                Change::Added(object) => objects.remove(&object.key),
                Change::Modified { before, .. } | Change::Deleted { before, .. } => objects.insert(&before.key, before),
            };
        }
        objects.into_values().cloned().collect()
    }

    fn since(&self, cursor: Revision) -> impl DoubleEndedIterator<Item = &Change> {
        let start = self.history.partition_point(|change| change.revision() <= cursor);
        self.history.range(start..)
    }
}

/// What keeping a change costs: the objects that only history still needs.
fn weight(change: &Change) -> usize {
    const OWN: usize = 64;
    match change {
        Change::Added(_) => OWN,
        Change::Modified { before, .. } => OWN + before.weight(),
        Change::Deleted { before, last } => OWN + before.weight() + last.weight(),
    }
}
