//! Quotas at the door: what is used is added up from what is stored, and what is on its way in is held.
//!
//! No number is kept that a crash could leave wrong. Two who come at once cannot both have the last of something: whoever
//! is let in is counted from that moment on, as held while it is being stored and as stored afterwards. One process has
//! the store, so one desk sees everybody.

mod keeper;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Kind;
use api::amounts::Amounts;
use api::quota::{Cost, Quota, is_countable};
use jiff::Timestamp;
use store::{Key, Revision, Store};

use crate::policies::Arrival;
use crate::request::key;
use crate::state::core_kind;

pub(crate) use keeper::keep;

/// Where everyone is counted who wants into a namespace with quotas.
#[derive(Default)]
pub(crate) struct Quotas(Arc<Mutex<Desk>>);

/// What each object costs, by its name, and of which version that is known.
type Known = HashMap<Arc<str>, (Revision, Arc<Cost>)>;

#[derive(Default)]
struct Desk {
    /// What stored objects cost, so that each is read once per version: by namespace and collection, then by name.
    known: HashMap<(Arc<str>, &'static str), Known>,
    /// Who is let in and not stored yet.
    held: BTreeMap<u64, (Key, Arc<Cost>)>,
    next: u64,
}

/// A place that is held for one object until this is dropped.
pub(crate) struct Reservation {
    desk: Arc<Mutex<Desk>>,
    number: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        open(&self.desk).held.remove(&self.number);
    }
}

fn open(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The quotas of `namespace`.
fn quotas(store: &Store, namespace: &str) -> Vec<Quota> {
    let all = store.list(core_kind("resourcequotas").collection(), namespace, None);
    all.map(|page| page.items).unwrap_or_default().iter().map(|quota| Quota::of(&quota.value())).collect()
}

/// Kinds whose cost an update may change.
fn may_grow(kind: &Kind) -> bool {
    matches!(kind.collection(), "services" | "persistentvolumeclaims")
}

impl Quotas {
    /// Holds a place for the arrival in every quota that counts it; refuses it if one has none left.
    pub(crate) fn reserve(&self, store: &Store, arrival: &Arrival<'_>) -> Result<Option<Reservation>, String> {
        let Arrival { kind, namespace, subresource, old, new } = *arrival;
        if !is_countable(kind) || subresource.is_some() || (old.is_some() && !may_grow(kind)) {
            return Ok(None);
        }
        let mut all = quotas(store, namespace);
        if all.is_empty() {
            return Ok(None);
        }
        let cost = Arc::new(Cost::of(kind, new));
        all.retain(|quota| quota.kinds().contains(kind.collection()) && quota.counts(&cost));
        if all.is_empty() {
            return Ok(None);
        }
        let now = Timestamp::now();
        let mut more = cost.at(now).clone();
        if let Some(old) = old {
            more.subtract(Cost::of(kind, old).at(now));
        }
        let mut desk = open(&self.0);
        for quota in &all {
            if kind.collection() == "pods" {
                quota.check_said(new)?;
            }
            let used = desk.used(store, namespace, kind.collection(), quota, now, true).0;
            quota.check(&used, &more)?;
        }
        desk.next += 1;
        let number = desk.next;
        desk.held.insert(number, (key(kind, namespace, api::meta::name(new)), cost));
        Ok(Some(Reservation { desk: Arc::clone(&self.0), number }))
    }

    /// What `quota` has in use of what is stored, and when that changes by itself.
    fn reckon(&self, store: &Store, namespace: &str, quota: &Quota, now: Timestamp) -> (Amounts, Option<Timestamp>) {
        let mut desk = open(&self.0);
        let (mut total, mut wake) = (Amounts::default(), None);
        for collection in quota.kinds() {
            let (used, until) = desk.used(store, namespace, collection, quota, now, false);
            total.add(&used);
            wake = wake.into_iter().chain(until).min();
        }
        (quota.used(&total), wake)
    }

    /// Forgets a namespace that has no quotas any more.
    fn forget(&self, namespace: &str) {
        open(&self.0).known.retain(|(known, _), _| &**known != namespace);
    }
}

impl Desk {
    /// What the objects of `collection` take of `quota`, and when one of them takes less by itself; with those that are
    /// `held`, or without.
    fn used(
        &mut self,
        store: &Store,
        namespace: &str,
        collection: &'static str,
        quota: &Quota,
        now: Timestamp,
        held: bool,
    ) -> (Amounts, Option<Timestamp>) {
        // Whoever is held counts as what it will be, once, whether the store has it already or not.
        let mut arriving: BTreeMap<&Key, Amounts> = BTreeMap::new();
        let of_this = |key: &Key| *key.collection == *collection && *key.namespace == *namespace;
        for (key, cost) in self.held.values().filter(|(key, _)| held && of_this(key)) {
            let own = arriving.entry(key).or_default();
            if quota.counts(cost) {
                own.raise(cost.at(now));
            }
        }
        let page = store.list(collection, namespace, None).map(|page| page.items).unwrap_or_default();
        let kind = api::KINDS.iter().find(|kind| kind.face.is_none() && kind.collection() == collection);
        let before = self.known.remove(&(namespace.into(), collection)).unwrap_or_default();
        let (mut total, mut wake) = (Amounts::default(), None);
        let mut known = Known::with_capacity(page.len());
        for (object, kind) in page.iter().zip(kind.into_iter().cycle()) {
            let same = before.get(&object.key.name).filter(|(revision, _)| *revision == object.revision);
            let cost = same.map_or_else(|| Arc::new(Cost::of(kind, &object.value())), |(_, cost)| Arc::clone(cost));
            if !arriving.contains_key(&object.key) && quota.counts(&cost) {
                total.add(cost.at(now));
                wake = wake.into_iter().chain(cost.until().filter(|until| *until >= now)).min();
            }
            known.insert(Arc::clone(&object.key.name), (object.revision, cost));
        }
        arriving.values().for_each(|own| total.add(own));
        self.known.insert((namespace.into(), collection), known);
        (total, wake)
    }
}
