//! Quotas at the door: what is used is added up from what is stored, and what is on its way in is held.
//!
//! No number is kept that a crash could leave wrong: sums live in memory, begin with what is stored and follow it change by
//! change ([`ledger`]). Two who come at once cannot both have the last of something: whoever is let in is counted from that
//! moment on, as held while it is being stored and as stored afterwards. That is so within one server, whose one desk of a namespace
//! sees everybody who wants into it; among several, only the one that holds the namespace's ticket lets anybody in
//! ([`crate::tickets`]).

mod ledger;
mod status;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::amounts::Amounts;
use api::quota::{Cost, Quota, is_countable};
use api::{Kind, Registry};
use jiff::Timestamp;
use store::{Key, Store};

use crate::policies::Arrival;
use crate::request::key;
use crate::state::core_kind;

use ledger::Ledger;
pub(crate) use status::keep;

/// The usage of every namespace with quotas.
#[derive(Default)]
pub(crate) struct Quotas(Mutex<HashMap<Arc<str>, Arc<Mutex<NamespaceQuotas>>>>);

#[derive(Default)]
struct NamespaceQuotas {
    /// What stored objects cost, by collection.
    ledgers: HashMap<Arc<str>, Ledger>,
    /// Objects admitted and not yet stored.
    held: BTreeMap<u64, (Key, Arc<Cost>)>,
    next: u64,
}

/// Quota reserved for one object until this is dropped.
pub(crate) struct Reservation {
    namespace_quotas: Arc<Mutex<NamespaceQuotas>>,
    number: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        open(&self.namespace_quotas).held.remove(&self.number);
    }
}

fn open<T>(namespace_quotas: &Mutex<T>) -> MutexGuard<'_, T> {
    namespace_quotas.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The quotas of `namespace`.
fn quotas(store: &Store, namespace: &str) -> Vec<Quota> {
    let all = store.list(core_kind("resourcequotas").collection(), namespace, None);
    all.map(|page| page.items).unwrap_or_default().iter().map(|quota| Quota::of(&quota.value())).collect()
}

/// Whether what is asked for may cost more than what it takes the place of, if it takes the place of anything.
fn may_cost_more(kind: &Kind, subresource: Option<&str>, is_new: bool) -> bool {
    match (kind.collection(), subresource) {
        ("pods", Some("resize")) => true,
        (_, Some(_)) => false,
        ("services" | "persistentvolumeclaims", None) => true,
        (_, None) => is_new,
    }
}

/// Whether a quota of `namespace` may have something to say about such a write, so that it needs the namespace's ticket.
pub(crate) fn may_refuse(store: &Store, kind: &Kind, namespace: &str, subresource: Option<&str>, is_new: bool) -> bool {
    is_countable(kind) && may_cost_more(kind, subresource, is_new) && has_quotas(store, namespace)
}

fn has_quotas(store: &Store, namespace: &str) -> bool {
    let all = store.list(core_kind("resourcequotas").collection(), namespace, None);
    all.is_ok_and(|page| !page.items.is_empty())
}

impl Quotas {
    /// Holds a place for the arrival in every quota that counts it; refuses it if one has none left.
    pub(crate) fn reserve(
        &self,
        store: &Store,
        arrival: &Arrival<'_>,
        now: Timestamp,
    ) -> Result<Option<Reservation>, String> {
        let Arrival { kind, namespace, subresource, old, new, .. } = *arrival;
        if !is_countable(kind) || !may_cost_more(kind, subresource, old.is_none()) {
            return Ok(None);
        }
        let mut all = quotas(store, namespace);
        if all.is_empty() {
            return Ok(None);
        }
        let cost = Arc::new(Cost::of(kind, new));
        all.retain(|quota| quota.counts_kind(kind) && quota.counts(&cost));
        if all.is_empty() {
            return Ok(None);
        }
        let mut more = cost.at(now).clone();
        if let Some(old) = old {
            more.subtract(Cost::of(kind, old).at(now));
        }
        let shared = self.namespace_quotas(namespace);
        let mut namespace_quotas = open(&shared);
        for quota in &all {
            if kind.collection() == "pods" {
                quota.check_said(new)?;
            }
            let used = namespace_quotas.used(store, namespace, kind, quota, now, true).0;
            quota.check(&used, &more)?;
        }
        namespace_quotas.next += 1;
        let number = namespace_quotas.next;
        namespace_quotas.held.insert(number, (key(kind, namespace, api::meta::name(new)), cost));
        drop(namespace_quotas);
        Ok(Some(Reservation { namespace_quotas: shared, number }))
    }

    fn namespace_quotas(&self, namespace: &str) -> Arc<Mutex<NamespaceQuotas>> {
        let mut desks = open(&self.0);
        match desks.get(namespace) {
            Some(namespace_quotas) => Arc::clone(namespace_quotas),
            None => Arc::clone(desks.entry(namespace.into()).or_default()),
        }
    }

    /// What `quota` has in use of what is stored, and when that changes by itself.
    fn reckon(
        &self,
        store: &Store,
        registry: &Registry,
        namespace: &str,
        quota: &Quota,
        now: Timestamp,
    ) -> (Amounts, Option<Timestamp>) {
        let shared = self.namespace_quotas(namespace);
        let mut namespace_quotas = open(&shared);
        let (mut total, mut wake) = (Amounts::default(), None);
        for kind in quota.kinds(registry).into_values() {
            let (used, until) = namespace_quotas.used(store, namespace, kind, quota, now, false);
            total.add(&used);
            wake = wake.into_iter().chain(until).min();
        }
        (quota.used(registry, &total), wake)
    }

    /// Forgets what objects of a kind cost that is no more.
    pub(crate) fn forget_kind(&self, collection: &str) {
        let desks: Vec<_> = open(&self.0).values().cloned().collect();
        desks.iter().for_each(|namespace_quotas| drop(open(namespace_quotas).ledgers.remove(collection)));
    }

    /// Forgets a namespace that has no quotas any more.
    fn forget(&self, namespace: &str) {
        let mut desks = open(&self.0);
        let Some(namespace_quotas) = desks.get(namespace) else { return };
        open(namespace_quotas).ledgers.clear();
        // Whoever holds a place there, or is about to, must be seen by those who come later.
        if Arc::strong_count(namespace_quotas) == 1 {
            desks.remove(namespace);
        }
    }
}

impl NamespaceQuotas {
    /// What the objects of `kind` take of `quota`, and when one of them takes less by itself; with those that are
    /// `held`, or without.
    fn used(
        &mut self,
        store: &Store,
        namespace: &str,
        kind: &Arc<Kind>,
        quota: &Quota,
        now: Timestamp,
        held: bool,
    ) -> (Amounts, Option<Timestamp>) {
        let opened = self.ledgers.entry(kind.shared_collection());
        let ledger = opened.or_insert_with(|| Ledger::open(store, kind, namespace));
        ledger.catch_up(store, namespace, now);
        let mut total = ledger.total(quota);
        // Whoever is held counts as what it will be, once, whether the store has it already or not.
        let mut arriving: BTreeMap<&Key, Amounts> = BTreeMap::new();
        for (key, cost) in self.held.values().filter(|(key, _)| held && *key.collection == *kind.collection()) {
            let own = arriving.entry(key).or_default();
            if quota.counts(cost) {
                own.raise(cost.at(now));
            }
        }
        for (key, own) in &arriving {
            if let Some(stored) = ledger.of(&key.name, quota) {
                total.subtract(stored);
            }
            total.add(own);
        }
        (total, ledger.next_end())
    }
}
