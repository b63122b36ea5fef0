//! What should be in the kernel, element by element, and what one transaction changes of it.
//!
//! Several owners may want the same address: the oldest has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nft::{Batch, Chain, Element, Family, TableSpec, Value, Verdict, concatenated};

use crate::Protocol;
use crate::inner_chains::{InnerChain, maps};
use crate::skeleton::{REFUSE, Settings, set_named, skeleton, table};
use crate::wanted::{Backend, Frontend, Mark, Nobody, Space, Targets, Wanted};

/// Chains that nothing leads to stay for the next Service of their shape, up to so many.
const IDLE_CHAINS_MAX: usize = 256;

/// Where an element is.
pub(crate) type Key = (Family, &'static str, Vec<u8>);
/// Of an element: nothing if it is not there, and what it leads to if it is and leads somewhere.
type State = Option<Option<Value>>;
/// Since when somebody wants something, and who.
type Claim = (String, String);

/// The number of a backend that needs none.
const NO_ID: u32 = 0;

/// The backends of a frontend, each in its slot with its number.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Slots {
    backends: Vec<(Backend, u32)>,
    affinity_seconds: Option<u32>,
}

/// Everything that should be in the kernel, and where.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ruleset {
    wanted: BTreeMap<String, Wanted>,
    lists: BTreeMap<Frontend, BTreeMap<Claim, Targets>>,
    nobody: BTreeMap<(IpAddr, Protocol, u16), BTreeMap<Claim, Nobody>>,
    marks: BTreeMap<Mark, BTreeSet<String>>,
    slots: BTreeMap<Frontend, Slots>,
    elements: BTreeMap<Key, Option<Value>>,
    /// The chains that there are, and how many elements lead to each.
    chains: BTreeMap<(Family, String), usize>,
}

/// What one transaction changes.
#[derive(Default, Debug)]
pub(crate) struct Diff {
    chains: BTreeMap<(Family, String), InnerChain>,
    /// What each element was and is to be.
    changes: BTreeMap<Key, (State, State)>,
    /// How many of them are not what they were.
    count: usize,
    /// Frontends of UDP whose flows may lead to somebody who does not serve any more, and who does.
    pub(crate) flows: BTreeMap<Frontend, BTreeSet<Backend>>,
}

impl Diff {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many elements change.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn changed(&self) -> impl Iterator<Item = (&Key, &(State, State))> {
        self.changes.iter().filter(|(_, (before, after))| before != after)
    }

    /// The chains that the elements lead to and that are not there yet, for a transaction ahead of theirs: a packet that is being
    /// judged during a commit sees elements as they are after it, but rules as they were before, and a chain without rules would
    /// lead it nowhere.
    pub(crate) fn chains(&self, settings: &Settings) -> Option<Batch> {
        let mut batch = Batch::new();
        for ((family, name), chain) in &self.chains {
            let table = table(settings, *family);
            batch.add_chain(&table, &Chain::inner(name));
            chain.rules(*family).iter().for_each(|rule| batch.add_rule(&table, name, rule));
        }
        (!self.chains.is_empty()).then_some(batch)
    }

    /// The elements that change.
    pub(crate) fn elements(&self, settings: &Settings) -> Batch {
        let mut batch = Batch::new();
        let mut sets = BTreeMap::new();
        for ((family, set, key), (before, after)) in self.changed() {
            let (old, new): &mut (Vec<Element>, Vec<Element>) = sets.entry((*family, *set)).or_default();
            old.extend(before.as_ref().map(|_| Element::key(key.clone())));
            new.extend(after.as_ref().map(|value| element(key, value)));
        }
        for ((family, set), (old, new)) in &sets {
            let (set, table) = (set_named(*family, set), table(settings, *family));
            batch.delete_elements(&table, &set, old);
            batch.add_elements(&table, &set, new);
        }
        batch
    }
}

fn element(key: &[u8], value: &Option<Value>) -> Element {
    Element { key: key.to_vec(), value: value.clone(), ends_range: false }
}

impl Ruleset {
    /// What is in the kernel, of whomever: those who want it are to say so, and the rest to be [removed](Self::remove_leftovers).
    pub(crate) fn adopt(
        elements: BTreeMap<Key, Option<Value>>,
        chains: impl IntoIterator<Item = (Family, String)>,
    ) -> Self {
        let mut chains: BTreeMap<_, _> = chains.into_iter().map(|chain| (chain, 0)).collect();
        for ((family, ..), value) in &elements {
            if let Some(uses) = leads_to(value).and_then(|chain| chains.get_mut(&(*family, chain.to_owned()))) {
                *uses += 1;
            }
        }
        Self { elements, chains, ..Self::default() }
    }

    /// Those who want something, and what.
    pub(crate) fn wanted(&self) -> &BTreeMap<String, Wanted> {
        &self.wanted
    }

    /// Makes an owner want this and nothing else; tells what changes.
    pub(crate) fn set(&mut self, owner: &str, new: Wanted, diff: &mut Diff) {
        let old = self.wanted.remove(owner).unwrap_or_default();
        if new != Wanted::default() {
            self.wanted.insert(owner.to_owned(), new.clone());
        }
        let (old_claim, claim) = ((old.since.clone(), owner.to_owned()), (new.since.clone(), owner.to_owned()));
        for frontend in old.lists.keys() {
            if let Some(claims) = self.lists.get_mut(frontend) {
                claims.remove(&old_claim);
            }
        }
        for (frontend, targets) in &new.lists {
            self.lists.entry(*frontend).or_default().insert(claim.clone(), targets.clone());
        }
        let frontends: BTreeSet<_> = old.lists.keys().chain(new.lists.keys()).collect();
        for frontend in frontends {
            self.refresh_list(frontend, diff);
            self.refresh_sources(frontend, diff);
        }
        for at in old.nobody.keys() {
            if let Some(claims) = self.nobody.get_mut(at) {
                claims.remove(&old_claim);
            }
        }
        for (at, what) in &new.nobody {
            self.nobody.entry(*at).or_default().insert(claim.clone(), *what);
        }
        for at in old.nobody.keys().chain(new.nobody.keys()) {
            let verdict = self.nobody.get(at).and_then(|claims| claims.values().next()).map(|what| match what {
                Nobody::Reject => Verdict::Goto(REFUSE.to_owned()),
                Nobody::Drop => Verdict::Drop,
            });
            if verdict.is_none() {
                self.nobody.remove(at);
            }
            self.put(nobody_key(at), verdict.map(|verdict| Some(Value::Verdict(verdict))), diff);
        }
        for mark in &old.marks {
            if let Some(claims) = self.marks.get_mut(mark) {
                claims.remove(owner);
            }
        }
        for mark in &new.marks {
            self.marks.entry(*mark).or_default().insert(owner.to_owned());
        }
        for mark in old.marks.union(&new.marks) {
            let is_there = self.marks.get(mark).is_some_and(|claims| !claims.is_empty());
            if !is_there {
                self.marks.remove(mark);
            }
            self.put(mark_key(mark), is_there.then_some(None), diff);
        }
        changed_flows(&old, &new, diff);
    }

    /// Keeps every backend where it is; the place of one that left goes to a new one, or to the last.
    fn refresh_list(&mut self, frontend: &Frontend, diff: &mut Diff) {
        let claims = self.lists.get(frontend).filter(|claims| !claims.is_empty());
        let wanted = claims.and_then(|claims| claims.values().next()).cloned().unwrap_or_default();
        if claims.is_none() {
            self.lists.remove(frontend);
        }
        let old = self.slots.remove(frontend).unwrap_or_else(|| self.adopted_slots(frontend));
        let mut new = Slots { affinity_seconds: wanted.affinity_seconds, ..old.clone() };
        let known: BTreeSet<_> = old.backends.iter().map(|it| it.0).collect();
        let mut fresh: Vec<_> = wanted.backends.difference(&known).collect();
        let mut place = 0;
        while place < new.backends.len() {
            if wanted.backends.contains(&new.backends[place].0) {
                place += 1;
            } else if let Some(backend) = fresh.pop() {
                new.backends[place] = (*backend, NO_ID);
                place += 1;
            } else {
                new.backends.swap_remove(place);
            }
        }
        new.backends.extend(fresh.into_iter().map(|backend| (*backend, NO_ID)));
        if new.affinity_seconds.is_some() {
            give_ids(&mut new.backends);
        }
        self.put_slots(frontend, &old, &new, diff);
        if !new.backends.is_empty() {
            self.slots.insert(*frontend, new);
        }
    }

    fn put_slots(&mut self, frontend: &Frontend, old: &Slots, new: &Slots, diff: &mut Diff) {
        let family = if frontend.is_ipv6 { Family::Ip6 } else { Family::Ip };
        let maps = maps(frontend.space);
        let has_affinity = new.affinity_seconds.is_some();
        let sent_to = |backend: &Backend| concatenated(&[&octets(backend.address), &backend.port.to_be_bytes()]);
        for slot in 0..old.backends.len().max(new.backends.len()) {
            let (before, after) = (old.backends.get(slot), new.backends.get(slot));
            let number = u32::try_from(slot).unwrap_or(u32::MAX);
            if before.map(|it| it.0) != after.map(|it| it.0) {
                let value = after.map(|(backend, _)| Some(Value::Bytes(sent_to(backend))));
                self.put((family, maps.slots, numbered_key(frontend, number)), value, diff);
            }
            if has_affinity || old.affinity_seconds.is_some() {
                let value = after.filter(|_| has_affinity).map(|(_, id)| Some(Value::Bytes(id.to_ne_bytes().to_vec())));
                self.put((family, maps.ids, numbered_key(frontend, number)), value, diff);
            }
        }
        if has_affinity || old.affinity_seconds.is_some() {
            let all: BTreeMap<u32, Option<&Backend>> = old.backends.iter().map(|(_, id)| (*id, None)).collect();
            let kept = new.backends.iter().filter(|_| has_affinity).map(|(backend, id)| (*id, Some(backend)));
            for (id, backend) in all.into_iter().chain(kept).collect::<BTreeMap<_, _>>() {
                let value = backend.map(|backend| Some(Value::Bytes(sent_to(backend))));
                self.put((family, maps.by_id, numbered_key(frontend, id)), value, diff);
            }
        }
        let (space, count) = (frontend.space, new.backends.len());
        let chain = match new.affinity_seconds.filter(|_| space != Space::Cut) {
            Some(seconds) => InnerChain::Affinity { space, count, seconds },
            None => InnerChain::Pick { space, count },
        };
        self.lead_to(frontend_key(frontend, family, maps.verdicts), (count > 0).then_some(chain), diff);
    }

    /// Whoever has the address says from where it is reached.
    fn refresh_sources(&mut self, frontend: &Frontend, diff: &mut Diff) {
        let (Space::Service, Some(address)) = (frontend.space, frontend.address) else { return };
        let owner = self.lists.get(frontend).and_then(|claims| claims.keys().next());
        let wanted = owner.and_then(|(_, owner)| self.wanted.get(owner));
        let at = (address, frontend.protocol, frontend.port);
        let chain = wanted.and_then(|wanted| wanted.sources.get(&at)).map(|from| InnerChain::From(from.clone()));
        let key = (family_of(address), "sources", address_key(at.0, at.1, at.2));
        self.lead_to(key, chain, diff);
    }

    fn lead_to(&mut self, key: Key, chain: Option<InnerChain>, diff: &mut Diff) {
        let name = chain.as_ref().map(InnerChain::name);
        if let (Some(chain), Some(name)) = (chain, &name) {
            let at = (key.0, name.clone());
            if !self.chains.contains_key(&at) {
                self.chains.insert(at.clone(), 0);
                diff.chains.insert(at, chain);
            }
        }
        self.put(key, name.map(|name| Some(Value::Verdict(Verdict::Goto(name)))), diff);
    }

    /// The slots of a frontend that nobody has spoken of yet, as they are in the kernel.
    fn adopted_slots(&self, frontend: &Frontend) -> Slots {
        let family = if frontend.is_ipv6 { Family::Ip6 } else { Family::Ip };
        let maps = maps(frontend.space);
        let bytes = |set, number| match self.elements.get(&(family, set, numbered_key(frontend, number))) {
            Some(Some(Value::Bytes(bytes))) => Some(bytes),
            _ => None,
        };
        let mut slots = Slots::default();
        for slot in 0.. {
            let Some(backend) = bytes(maps.slots, slot).and_then(|bytes| read_backend(bytes)) else { break };
            let id = bytes(maps.ids, slot).and_then(|id| id.as_slice().try_into().ok()).map(u32::from_ne_bytes);
            if id.is_some() {
                slots.affinity_seconds = Some(0);
            }
            slots.backends.push((backend, id.unwrap_or(NO_ID)));
        }
        slots
    }

    fn put(&mut self, key: Key, value: State, diff: &mut Diff) {
        let before = match &value {
            Some(value) => self.elements.insert(key.clone(), value.clone()),
            None => self.elements.remove(&key),
        };
        if before != value {
            for (state, is_new) in [(&before, false), (&value, true)] {
                let chain = state.as_ref().and_then(leads_to).map(|chain| (key.0, chain.to_owned()));
                if let Some(uses) = chain.and_then(|chain| self.chains.get_mut(&chain)) {
                    *uses = if is_new { *uses + 1 } else { uses.saturating_sub(1) };
                }
            }
        }
        let change = diff.changes.entry(key).or_insert_with(|| (before.clone(), before));
        let was_changed = change.0 != change.1;
        change.1 = value;
        match (was_changed, change.0 != change.1) {
            (false, true) => diff.count += 1,
            (true, false) => diff.count -= 1,
            (true, true) | (false, false) => {}
        }
    }

    /// Removes what nobody wants, but for what cuts left behind at these addresses.
    pub(crate) fn remove_leftovers(&mut self, inherited: &BTreeSet<IpAddr>, diff: &mut Diff) {
        let mut claimed: BTreeSet<Key> = self.marks.keys().map(mark_key).collect();
        claimed.extend(self.nobody.keys().map(nobody_key));
        for (frontend, slots) in &self.slots {
            let family = if frontend.is_ipv6 { Family::Ip6 } else { Family::Ip };
            let maps = maps(frontend.space);
            claimed.insert(frontend_key(frontend, family, maps.verdicts));
            for (slot, (_, id)) in (0..).zip(&slots.backends) {
                claimed.insert((family, maps.slots, numbered_key(frontend, slot)));
                if slots.affinity_seconds.is_some() {
                    claimed.insert((family, maps.ids, numbered_key(frontend, slot)));
                    claimed.insert((family, maps.by_id, numbered_key(frontend, *id)));
                }
            }
        }
        let sources = self.wanted.values().flat_map(|wanted| wanted.sources.keys());
        claimed.extend(sources.map(|at| (family_of(at.0), "sources", address_key(at.0, at.1, at.2))));
        let of_cuts = [maps(Space::Cut).verdicts, maps(Space::Cut).slots, "masq"];
        let is_inherited = |(family, set, key): &Key| {
            let is_at = || read_address_key(*family, key).is_some_and(|(address, ..)| inherited.contains(&address));
            of_cuts.contains(set) && is_at()
        };
        let is_left = |key: &&Key| !claimed.contains(*key) && !is_inherited(key);
        let leftovers: Vec<_> = self.elements.keys().filter(is_left).cloned().collect();
        leftovers.into_iter().for_each(|key| self.put(key, None, diff));
    }

    /// Forgets chains that nothing leads to, if they are too many; tells which.
    pub(crate) fn take_idle_chains(&mut self) -> Vec<(Family, String)> {
        let idle = || self.chains.iter().filter(|(_, uses)| **uses == 0);
        if idle().nth(IDLE_CHAINS_MAX).is_none() {
            return Vec::new();
        }
        let idle: Vec<_> = idle().map(|(chain, _)| chain.clone()).collect();
        self.chains.retain(|_, uses| *uses > 0);
        idle
    }

    /// Both tables, whole.
    pub(crate) fn tables(&self, settings: &Settings) -> Vec<TableSpec> {
        [Family::Ip, Family::Ip6].map(|family| self.table(settings, family)).to_vec()
    }

    fn table(&self, settings: &Settings, family: Family) -> TableSpec {
        let mut spec = skeleton(settings, family);
        let mut inner = BTreeMap::new();
        for (frontend, slots) in self.slots.iter().filter(|(it, _)| it.is_ipv6 == (family == Family::Ip6)) {
            let (space, count) = (frontend.space, slots.backends.len());
            let chain = match slots.affinity_seconds.filter(|_| space != Space::Cut) {
                Some(seconds) => InnerChain::Affinity { space, count, seconds },
                None => InnerChain::Pick { space, count },
            };
            inner.insert(chain.name(), chain);
        }
        for from in self.wanted.values().flat_map(|wanted| &wanted.sources).filter(|it| family_of(it.0.0) == family) {
            let chain = InnerChain::From(from.1.clone());
            inner.insert(chain.name(), chain);
        }
        spec.chains.extend(inner.into_iter().map(|(name, chain)| (Chain::inner(name), chain.rules(family))));
        let mut own: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
        for ((_, set, key), value) in self.elements.iter().filter(|((of, ..), _)| *of == family) {
            own.entry(set).or_default().push(element(key, value));
        }
        for (set, elements) in &mut spec.sets {
            elements.extend(own.remove(set.name.as_str()).unwrap_or_default());
        }
        spec
    }
}

fn leads_to(value: &Option<Value>) -> Option<&str> {
    match value {
        Some(Value::Verdict(Verdict::Goto(chain))) => Some(chain),
        _ => None,
    }
}

/// Flows of UDP follow whoever serves: where that is less than it was, some may have to move.
fn changed_flows(old: &Wanted, new: &Wanted, diff: &mut Diff) {
    let frontends: BTreeSet<_> = old.serving.keys().chain(new.serving.keys()).collect();
    for frontend in frontends {
        let serves = new.serving.get(frontend).cloned().unwrap_or_default();
        let kept = old.serving.get(frontend).filter(|_| new.serving.contains_key(frontend));
        let is_first = kept.is_some_and(BTreeSet::is_empty) && !serves.is_empty();
        if is_first || kept.is_none_or(|served| !served.is_subset(&serves)) {
            diff.flows.insert(*frontend, serves);
        }
    }
}

/// Gives each backend without a number one that is its own, and the same whenever it comes back if no other has it.
fn give_ids(backends: &mut [(Backend, u32)]) {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let mut taken: BTreeSet<u32> = backends.iter().map(|it| it.1).chain([NO_ID]).collect();
    for (backend, id) in backends.iter_mut().filter(|it| it.1 == NO_ID) {
        let octets = octets(backend.address).into_iter().chain(backend.port.to_be_bytes());
        *id = octets.fold(BASIS, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME));
        while !taken.insert(*id) {
            *id = id.wrapping_add(1);
        }
    }
}

/// The key of the counter of a pod's port.
pub(crate) fn address_key(address: IpAddr, protocol: Protocol, port: u16) -> Vec<u8> {
    concatenated(&[&octets(address), &[protocol.number()], &port.to_be_bytes()])
}

/// What such a key says.
pub(crate) fn read_address_key(family: Family, key: &[u8]) -> Option<(IpAddr, Protocol, u16)> {
    // Every part begins at a word.
    let (address, rest): (IpAddr, _) = match family == Family::Ip6 {
        true => (<[u8; 16]>::try_from(key.get(..16)?).ok()?.into(), key.get(16..)?),
        false => (<[u8; 4]>::try_from(key.get(..4)?).ok()?.into(), key.get(4..)?),
    };
    let port = u16::from_be_bytes(rest.get(4..6)?.try_into().ok()?);
    Some((address, Protocol::of_number(*rest.first()?)?, port))
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn read_backend(bytes: &[u8]) -> Option<Backend> {
    let (address, port): (IpAddr, _) = match bytes.len() {
        8 => (<[u8; 4]>::try_from(bytes.get(..4)?).ok()?.into(), bytes.get(4..6)?),
        _ => (<[u8; 16]>::try_from(bytes.get(..16)?).ok()?.into(), bytes.get(16..18)?),
    };
    Some(Backend { address, port: u16::from_be_bytes(port.try_into().ok()?) })
}

pub(crate) fn family_of(address: IpAddr) -> Family {
    if address.is_ipv6() { Family::Ip6 } else { Family::Ip }
}

fn frontend_bytes(frontend: &Frontend) -> Vec<u8> {
    match frontend.address {
        Some(address) => address_key(address, frontend.protocol, frontend.port),
        None => concatenated(&[&[frontend.protocol.number()], &frontend.port.to_be_bytes()]),
    }
}

fn frontend_key(frontend: &Frontend, family: Family, set: &'static str) -> Key {
    (family, set, frontend_bytes(frontend))
}

fn numbered_key(frontend: &Frontend, number: u32) -> Vec<u8> {
    let mut key = frontend_bytes(frontend);
    key.extend(number.to_ne_bytes());
    key
}

fn nobody_key(at: &(IpAddr, Protocol, u16)) -> Key {
    (family_of(at.0), "none", address_key(at.0, at.1, at.2))
}

fn mark_key(mark: &Mark) -> Key {
    match *mark {
        Mark::Vip(address) => (family_of(address), "vips", octets(address)),
        Mark::Watch(address, protocol, port) => (family_of(address), "watch", address_key(address, protocol, port)),
        Mark::Hairpin(address) => (family_of(address), "hairpin", concatenated(&[&octets(address), &octets(address)])),
        Mark::Masquerade(address, protocol, port) => (family_of(address), "masq", address_key(address, protocol, port)),
    }
}
