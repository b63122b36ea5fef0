//! What is known of the cluster, and what follows from it for the pods of this node.
//!
//! A change costs what it touches: a pod is looked at by the sets that policies of local pods use, a policy by the local pods of its
//! namespace. Policies that select no local pod are kept and not rendered.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectReference;
use nft::{Family, concatenated};

use crate::facts::{NamedPort, PodFacts};
use crate::judge::World;
use crate::policy::{Policy, PolicyKey, Way};
use crate::render::{Dynamic, FAMILIES, Name, Rendered, door_key, family_of, octets, profile, render};
use crate::selector::Labels;
use crate::wanted::{Claimant, Content, Wanted};

/// From which link a pod sends, and as whom.
pub(crate) const FROM_PODS: &str = "from_pods";
/// Pods whose policies are in force: answers reach them.
pub(crate) const TO_PODS: &str = "to_pods";
/// A pod and itself.
pub(crate) const TO_ITSELF: &str = "to_itself";
/// Which policies decide who enters a pod; nobody enters one that is not here.
pub(crate) const MAY_ENTER: &str = "may_enter";
/// Which policies decide where a pod's packets go; those of one that is not here go nowhere.
pub(crate) const MAY_LEAVE: &str = "may_leave";
/// How long names of links are, filled up with zeros.
pub(crate) const LINK_BYTES: usize = 16;

/// How much the rules of one namespace may take up, as a message to the kernel: 20,000 rules, or 130,000 addresses.
const NAMESPACE_BYTES_MAX: usize = 8 << 20;
/// And those of all policies of a node: what is written in one piece may not be longer than 64 MiB.
const NODE_BYTES_MAX: usize = 40 << 20;
/// What a rule, an element and a set take up in it, roughly.
const RULE_BYTES: usize = 400;
const ELEMENT_BYTES: usize = 64;
const SET_BYTES: usize = 256;

/// The cluster DNS among the pods; no UID of a pod.
const CLUSTER_DNS: &str = "cluster-dns";

/// A pod of this node, on the pod network.
#[derive(Default, Debug)]
pub(crate) struct Local {
    claimant: Claimant,
    pub(crate) facts: Option<PodFacts>,
    /// The version of the object that they are of.
    pub(crate) version: u64,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) link: String,
    /// The policies that select it.
    selected: BTreeSet<PolicyKey>,
    chains: Vec<Name>,
    claims: BTreeMap<(Name, Vec<u8>), Content>,
}

#[derive(Debug)]
struct InUse {
    set: Dynamic,
    users: usize,
}

/// A policy that selects a local pod.
#[derive(Debug)]
struct Active {
    ways: BTreeMap<Way, (String, Rendered)>,
    namespace: String,
    bytes: usize,
}

/// Elements of one set.
type Keys = BTreeSet<(Family, Vec<u8>)>;

#[derive(Default, Debug)]
pub(crate) struct Model {
    pub(crate) wanted: Wanted,
    namespaces: BTreeMap<String, Labels>,
    /// Namespaces that are being deleted: their policies hold until they are gone, for their pods may still be here.
    leaving: BTreeSet<String>,
    /// Policies of such that are deleted.
    outlived: BTreeSet<PolicyKey>,
    policies: BTreeMap<PolicyKey, Policy>,
    pods: BTreeMap<String, PodFacts>,
    locals: BTreeMap<String, Local>,
    /// Pods and local pods, by where they are.
    by_namespace: BTreeMap<String, BTreeSet<String>>,
    active: BTreeMap<PolicyKey, Active>,
    /// Policies for whose rules there is no room: they isolate, and allow nothing.
    crowded_out: BTreeSet<PolicyKey>,
    /// How much the rules of each namespace take up.
    bytes: BTreeMap<String, usize>,
    /// How many local pods a policy selects.
    selecting: BTreeMap<PolicyKey, usize>,
    dynamic: BTreeMap<String, InUse>,
    /// Which elements a pod has in which of those.
    memberships: BTreeMap<String, BTreeMap<String, Keys>>,
    claimants: BTreeMap<String, Claimant>,
    last_claimant: Claimant,
    /// Namespaces, policies and pods.
    listed: [bool; 3],
}

impl Model {
    pub(crate) fn new(cluster_dns: Option<PodFacts>) -> Self {
        let mut model = Self::default();
        if let Some(dns) = cluster_dns {
            model.set_pod(CLUSTER_DNS, dns, 0);
        }
        model
    }

    /// Whether the first lists of all three kinds were told.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed == [true; 3]
    }

    pub(crate) fn list_namespaces(&mut self, all: BTreeMap<String, (Labels, bool)>) {
        let gone: Vec<_> = self.namespaces.keys().filter(|name| !all.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_namespace(name));
        all.into_iter().for_each(|(name, (labels, is_leaving))| self.set_namespace(name, labels, is_leaving));
        self.listed[0] = true;
    }

    pub(crate) fn set_namespace(&mut self, name: String, labels: Labels, is_leaving: bool) {
        match is_leaving {
            true => self.leaving.insert(name.clone()),
            false => self.leaving.remove(&name),
        };
        if self.namespaces.get(&name) != Some(&labels) {
            self.namespaces.insert(name.clone(), labels);
            self.namespace_changed(&name);
        }
    }

    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.leaving.remove(name);
        let outlived: Vec<_> = self.outlived.iter().filter(|(namespace, _)| namespace == name).cloned().collect();
        outlived.iter().for_each(|key| self.set_policy(key, None));
        if self.namespaces.remove(name).is_some() {
            self.namespace_changed(name);
        }
    }

    fn namespace_changed(&mut self, name: &str) {
        let pods: Vec<_> = self.by_namespace.get(name).into_iter().flatten().cloned().collect();
        pods.iter().for_each(|uid| self.update_memberships(uid));
    }

    pub(crate) fn list_policies(&mut self, all: BTreeMap<PolicyKey, Policy>) {
        let gone: Vec<_> = self.policies.keys().filter(|key| !all.contains_key(*key)).cloned().collect();
        gone.iter().for_each(|key| self.set_policy(key, None));
        all.into_iter().for_each(|(key, policy)| self.set_policy(&key, Some(policy)));
        self.listed[1] = true;
    }

    pub(crate) fn policy(&self, key: &PolicyKey) -> Option<&Policy> {
        self.policies.get(key)
    }

    /// Whether a policy selects a local pod.
    pub(crate) fn is_any_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// The policies that select local pods.
    pub(crate) fn active(&self) -> Vec<PolicyKey> {
        self.active.keys().cloned().collect()
    }

    /// What one of them needs.
    pub(crate) fn rendered(&self, key: &PolicyKey) -> Vec<&Rendered> {
        self.active.get(key).into_iter().flat_map(|active| active.ways.values()).map(|(_, it)| it).collect()
    }

    pub(crate) fn set_policy(&mut self, key: &PolicyKey, policy: Option<Policy>) {
        if policy.is_none() && self.leaving.contains(&key.0) {
            self.outlived.insert(key.clone());
            return;
        }
        self.outlived.remove(key);
        if self.policies.get(key) == policy.as_ref() {
            return;
        }
        match policy {
            Some(policy) => self.policies.insert(key.clone(), policy),
            None => self.policies.remove(key),
        };
        // What is not needed any more is left when what is needed instead is there.
        let before = self.active.remove(key);
        let mut touched = Vec::new();
        for uid in self.by_namespace.get(&key.0).into_iter().flatten() {
            let Some((local, facts)) = self.locals.get(uid).and_then(|it| Some((it, it.facts.as_ref()?))) else {
                continue;
            };
            let is_selected =
                self.policies.get(key).is_some_and(|policy| policy.selects(&facts.namespace, &facts.labels));
            if is_selected || local.selected.contains(key) {
                let mut selected = local.selected.clone();
                match is_selected {
                    true => selected.insert(key.clone()),
                    false => selected.remove(key),
                };
                touched.push((uid.clone(), selected));
            }
        }
        touched.into_iter().for_each(|(uid, selected)| self.select(&uid, selected));
        if let Some(before) = before {
            self.leave(before);
        }
    }

    pub(crate) fn list_pods(&mut self, all: BTreeMap<String, (PodFacts, u64)>) {
        let is_gone = |uid: &&String| !all.contains_key(*uid) && *uid != CLUSTER_DNS;
        let gone: Vec<_> = self.pods.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|uid| self.remove_pod(uid));
        all.into_iter().for_each(|(uid, (facts, version))| self.set_pod(&uid, facts, version));
        self.listed[2] = true;
    }

    /// Takes note of a pod as the API has it.
    pub(crate) fn set_pod(&mut self, uid: &str, facts: PodFacts, version: u64) {
        self.know_local(uid, &facts, version);
        if self.pods.get(uid) == Some(&facts) {
            return;
        }
        let before = self.pods.insert(uid.to_owned(), facts.clone());
        if before.is_none_or(|before| before.namespace != facts.namespace) {
            self.by_namespace.entry(facts.namespace).or_default().insert(uid.to_owned());
        }
        self.update_memberships(uid);
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) {
        if let Some(before) = self.pods.remove(uid) {
            self.update_memberships(uid);
            self.leave_namespace(uid, &before.namespace);
        }
    }

    fn leave_namespace(&mut self, uid: &str, namespace: &str) {
        if self.pods.contains_key(uid) || self.locals.contains_key(uid) {
            return;
        }
        self.claimants.remove(uid);
        if let Some(pods) = self.by_namespace.get_mut(namespace) {
            pods.remove(uid);
            if pods.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
    }

    /// A pod of this node has addresses. What is known of it counts unless something newer is.
    pub(crate) fn admit(&mut self, uid: &str, facts: PodFacts, version: u64, addresses: &[IpAddr], link: &str) {
        // Whoever had one of its addresses has it no longer.
        let has_one = |local: &Local| addresses.iter().any(|address| local.addresses.contains(address));
        let former = self.locals.iter().filter(|(other, local)| *other != uid && has_one(local));
        let former: Vec<_> = former.map(|(other, _)| other.clone()).collect();
        former.iter().for_each(|other| self.release(other));
        self.by_namespace.entry(facts.namespace.clone()).or_default().insert(uid.to_owned());
        self.last_claimant += 1;
        let local = self.locals.entry(uid.to_owned()).or_default();
        let addresses: BTreeSet<_> = addresses.iter().copied().collect();
        if local.claimant == 0 || local.addresses != addresses {
            let before = local.claimant;
            let claims = std::mem::take(&mut local.claims);
            local.claimant = self.last_claimant;
            for (name, key) in claims.keys() {
                self.wanted.unclaim(name, key, before);
            }
        }
        (local.addresses, local.link) = (addresses, link.to_owned());
        if local.facts.is_none() || version >= local.version {
            (local.facts, local.version) = (Some(facts), version);
        }
        self.update_local(uid);
        self.update_memberships(uid);
    }

    /// What is known of a local pod, if it is one.
    pub(crate) fn know_local(&mut self, uid: &str, facts: &PodFacts, version: u64) {
        let Some(local) = self.locals.get_mut(uid) else { return };
        if version < local.version || local.facts.as_ref() == Some(facts) {
            return;
        }
        (local.facts, local.version) = (Some(facts.clone()), version);
        self.update_local(uid);
        self.update_memberships(uid);
    }

    /// Nobody has the pod's addresses any more.
    pub(crate) fn release(&mut self, uid: &str) {
        let Some(local) = self.locals.remove(uid) else { return };
        for (name, key) in local.claims.keys() {
            self.wanted.unclaim(name, key, local.claimant);
        }
        local.chains.iter().for_each(|chain| self.wanted.leave_chain(chain));
        local.selected.iter().for_each(|key| self.deselect(key));
        self.update_memberships(uid);
        if let Some(facts) = local.facts {
            self.leave_namespace(uid, &facts.namespace);
        }
    }

    pub(crate) fn locals(&self) -> impl Iterator<Item = (&String, &BTreeSet<IpAddr>)> {
        self.locals.iter().map(|(uid, local)| (uid, &local.addresses))
    }

    /// Takes the local pods away, for a model that is made anew.
    pub(crate) fn take_locals(&mut self) -> BTreeMap<String, Local> {
        std::mem::take(&mut self.locals)
    }

    /// The pod at that address and the names of the policies that isolate it that way.
    pub(crate) fn isolated_by(&self, address: IpAddr, way: Way) -> Option<(ObjectReference, Vec<String>)> {
        let (uid, local) = self.locals.iter().find(|(_, local)| local.addresses.contains(&address))?;
        let facts = local.facts.as_ref()?;
        let isolates = |key: &&PolicyKey| self.policies.get(*key).is_some_and(|policy| policy.allowed(way).is_some());
        let names = local.selected.iter().filter(isolates).map(|(_, name)| name.clone()).collect();
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(facts.namespace.clone()),
            name: Some(facts.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        Some((about, names))
    }

    /// Everything that policies look at.
    pub(crate) fn world(&self) -> World<'_> {
        let mut locals: Vec<_> = self.locals.values().collect();
        locals.sort_by_key(|local| local.claimant);
        let of = |local: &Local| local.addresses.iter().copied().collect::<Vec<_>>();
        let subjects = locals.iter().filter_map(|local| Some((of(local), local.facts.as_ref()?)));
        let subjects = subjects.flat_map(|(addresses, facts)| addresses.into_iter().map(move |it| (it, facts)));
        let uids: BTreeSet<_> = self.pods.keys().chain(self.locals.keys()).collect();
        let mut peers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (pod, addresses) in uids.into_iter().filter_map(|uid| self.peer(uid)) {
            addresses.into_iter().for_each(|address| peers.entry(address).or_default().push(pod));
        }
        World { namespaces: &self.namespaces, policies: &self.policies, peers, subjects: subjects.collect() }
    }

    /// A pod that others may mean, and where it is; `None` if policies mean nobody by it.
    fn peer(&self, uid: &str) -> Option<(&PodFacts, BTreeSet<IpAddr>)> {
        let local = self.locals.get(uid);
        let facts = local.and_then(|local| local.facts.as_ref()).or_else(|| self.pods.get(uid))?;
        let of_local = local.into_iter().flat_map(|local| &local.addresses);
        let addresses = facts.addresses.iter().chain(of_local).copied().collect();
        (!facts.is_over && !facts.is_on_host_network).then_some((facts, addresses))
    }

    /// Brings the rules of a local pod up to date: which policies select it, and what follows.
    fn update_local(&mut self, uid: &str) {
        let Some(facts) = self.locals.get(uid).and_then(|local| local.facts.as_ref()) else { return };
        let of_namespace = self.policies.range((facts.namespace.clone(), String::new())..);
        let of_namespace = of_namespace.take_while(|((namespace, _), _)| *namespace == facts.namespace);
        let selecting = of_namespace.filter(|(_, policy)| policy.selects(&facts.namespace, &facts.labels));
        let selected = selecting.map(|(key, _)| key.clone()).collect();
        self.select(uid, selected);
    }

    /// A local pod is selected by these policies and no others.
    fn select(&mut self, uid: &str, selected: BTreeSet<PolicyKey>) {
        let Some(local) = self.locals.get(uid) else { return };
        let (claimant, addresses, link) = (local.claimant, local.addresses.clone(), local.link.clone());
        selected.iter().for_each(|key| self.activate(key));
        let mut chains = Vec::new();
        let mut claims = BTreeMap::new();
        for address in addresses {
            let (family, own) = (family_of(address), octets(address));
            let mut name = link.clone().into_bytes();
            name.resize(LINK_BYTES, 0);
            let mut claim = |set: &str, key, content| claims.insert(((family, set.to_owned()), key), content);
            claim(FROM_PODS, concatenated(&[&name, &own]), Content::Member);
            claim(TO_PODS, own.clone(), Content::Member);
            claim(TO_ITSELF, concatenated(&[&own, &own]), Content::Member);
            for (way, map) in [(Way::Ingress, MAY_ENTER), (Way::Egress, MAY_LEAVE)] {
                let of_way = selected.iter().filter_map(|key| self.active.get(key)?.ways.get(&way));
                let of_way: BTreeSet<_> = of_way.map(|(chain, _)| chain.clone()).collect();
                if of_way.is_empty() {
                    claim(map, own.clone(), Content::Accept);
                    continue;
                }
                let (chain, rules) = profile(&of_way);
                claim(map, own.clone(), Content::Jump(chain.clone()));
                self.wanted.use_chain(&(family, chain.clone()), &rules);
                chains.push((family, chain));
            }
        }
        let Some(local) = self.locals.get_mut(uid) else { return };
        let claims_before = std::mem::replace(&mut local.claims, claims.clone());
        let chains_before = std::mem::replace(&mut local.chains, chains);
        let selected_before = std::mem::replace(&mut local.selected, selected.clone());
        for ((name, key), content) in &claims {
            if claims_before.get(&(name.clone(), key.clone())) != Some(content) {
                self.wanted.claim(name, key, content.clone(), claimant);
            }
        }
        for (name, key) in claims_before.keys().filter(|it| !claims.contains_key(*it)) {
            self.wanted.unclaim(name, key, claimant);
        }
        chains_before.iter().for_each(|chain| self.wanted.leave_chain(chain));
        for key in selected.difference(&selected_before) {
            *self.selecting.entry(key.clone()).or_default() += 1;
        }
        selected_before.difference(&selected).for_each(|key| self.deselect(key));
    }

    /// Renders a policy that selects a local pod, unless it is rendered.
    fn activate(&mut self, key: &PolicyKey) {
        let Some(policy) = self.policies.get(key).filter(|_| !self.active.contains_key(key)) else { return };
        let ways = Way::BOTH.into_iter().filter_map(|way| Some((way, render(way, policy.allowed(way)?))));
        let mut ways: BTreeMap<_, _> = ways.collect();
        let namespace = policy.namespace.clone();
        let mut bytes = ways.values().map(|(_, rendered)| self.bytes_of(rendered)).sum::<usize>();
        let of_namespace = self.bytes.get(&namespace).copied().unwrap_or_default();
        let is_too_much =
            of_namespace + bytes > NAMESPACE_BYTES_MAX || self.bytes.values().sum::<usize>() + bytes > NODE_BYTES_MAX;
        if is_too_much {
            let closed = ways.keys().map(|way| (*way, render(*way, &[])));
            (ways, bytes) = (closed.collect(), 0);
            self.crowded_out.insert(key.clone());
        } else {
            self.crowded_out.remove(key);
        }
        *self.bytes.entry(namespace.clone()).or_default() += bytes;
        for (_, rendered) in ways.values() {
            for (name, (set, elements)) in &rendered.constant {
                if self.wanted.use_set(name, set) {
                    for element in elements {
                        let content = if element.ends_range { Content::RangeEnd } else { Content::Member };
                        self.wanted.claim(name, &element.key, content, 0);
                    }
                }
            }
            rendered.chains.iter().for_each(|(name, rules)| self.wanted.use_chain(name, rules));
        }
        let sets: Vec<_> = ways.values().flat_map(|(_, rendered)| rendered.dynamic.clone()).collect();
        self.active.insert(key.clone(), Active { ways, namespace, bytes });
        sets.into_iter().for_each(|(name, set)| self.use_dynamic(name, set));
    }

    /// One local pod fewer is selected by the policy.
    fn deselect(&mut self, key: &PolicyKey) {
        let Some(count) = self.selecting.get_mut(key) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.selecting.remove(key);
        if let Some(active) = self.active.remove(key) {
            self.leave(active);
        }
    }

    fn bytes_of(&self, rendered: &Rendered) -> usize {
        let pods = self.pods.len().max(self.locals.len());
        let rules: usize = rendered.chains.values().map(Vec::len).sum();
        let elements: usize = rendered.constant.values().map(|(_, elements)| elements.len()).sum();
        let sets = rendered.constant.len() + rendered.dynamic.len();
        (elements + pods * rendered.dynamic.len()) * ELEMENT_BYTES + rules * RULE_BYTES + sets * SET_BYTES
    }

    /// Why a policy allows nothing, if it allows less than it says.
    pub(crate) fn problem(&self, key: &PolicyKey) -> Option<String> {
        let crowded_out = || "its namespace or its node has too many rules of other policies already".to_owned();
        let policy = self.policies.get(key)?;
        policy.problem.clone().or_else(|| self.crowded_out.contains(key).then(crowded_out))
    }

    /// Tries policies again for which there was no room; answers which those were.
    pub(crate) fn retry_crowded_out(&mut self) -> Vec<PolicyKey> {
        let keys: Vec<_> = std::mem::take(&mut self.crowded_out).into_iter().collect();
        for key in &keys {
            if let Some(policy) = self.policies.remove(key) {
                self.set_policy(key, Some(policy));
            }
        }
        keys
    }

    fn leave(&mut self, active: Active) {
        if let Some(bytes) = self.bytes.get_mut(&active.namespace) {
            *bytes = bytes.saturating_sub(active.bytes);
            if *bytes == 0 {
                self.bytes.remove(&active.namespace);
            }
        }
        for (_, rendered) in active.ways.values() {
            rendered.chains.keys().for_each(|name| self.wanted.leave_chain(name));
            rendered.constant.keys().for_each(|name| self.wanted.leave_set(name));
            rendered.dynamic.keys().for_each(|name| self.leave_dynamic(name));
        }
    }

    fn use_dynamic(&mut self, name: String, set: Dynamic) {
        for family in FAMILIES {
            self.wanted.use_set(&(family, name.clone()), &set.set(family));
        }
        let in_use = self.dynamic.entry(name.clone()).or_insert(InUse { set, users: 0 });
        in_use.users += 1;
        if in_use.users == 1 {
            let uids: BTreeSet<_> = self.pods.keys().chain(self.locals.keys()).cloned().collect();
            uids.iter().for_each(|uid| self.update_membership(uid, &name));
        }
    }

    fn leave_dynamic(&mut self, name: &str) {
        FAMILIES.into_iter().for_each(|family| self.wanted.leave_set(&(family, name.to_owned())));
        let Some(in_use) = self.dynamic.get_mut(name) else { return };
        in_use.users -= 1;
        if in_use.users == 0 {
            self.dynamic.remove(name);
            self.memberships.values_mut().for_each(|of_pod| drop(of_pod.remove(name)));
            self.memberships.retain(|_, of_pod| !of_pod.is_empty());
        }
    }

    fn update_memberships(&mut self, uid: &str) {
        let sets: Vec<_> = self.dynamic.keys().cloned().collect();
        sets.iter().for_each(|name| self.update_membership(uid, name));
    }

    /// Brings the elements of a pod in one set up to date.
    fn update_membership(&mut self, uid: &str, name: &str) {
        let Some(in_use) = self.dynamic.get(name) else { return };
        let keys = self.keys(uid, &in_use.set);
        let before = self.memberships.get(uid).and_then(|of_pod| of_pod.get(name)).cloned().unwrap_or_default();
        if keys == before {
            return;
        }
        let last = &mut self.last_claimant;
        let claimant = *self.claimants.entry(uid.to_owned()).or_insert_with(|| {
            *last += 1;
            *last
        });
        for (family, key) in keys.difference(&before) {
            self.wanted.claim(&(*family, name.to_owned()), key, Content::Member, claimant);
        }
        for (family, key) in before.difference(&keys) {
            self.wanted.unclaim(&(*family, name.to_owned()), key, claimant);
        }
        let of_pod = self.memberships.entry(uid.to_owned()).or_default();
        match keys.is_empty() {
            true => of_pod.remove(name),
            false => of_pod.insert(name.to_owned(), keys),
        };
        if of_pod.is_empty() {
            self.memberships.remove(uid);
        }
    }

    /// What a pod has in a set.
    fn keys(&self, uid: &str, set: &Dynamic) -> Keys {
        let Some((pod, addresses)) = self.peer(uid) else { return BTreeSet::new() };
        let is_meant = |selectors: &BTreeSet<_>| {
            let labels = self.namespaces.get(&pod.namespace);
            selectors.iter().any(|it: &crate::selector::PeerSelector| it.takes(&pod.namespace, labels, &pod.labels))
        };
        let at = |address: IpAddr, ports: Vec<_>| {
            ports.into_iter().map(move |(protocol, port)| (family_of(address), door_key(address, protocol, port)))
        };
        match (set, &pod.only) {
            (Dynamic::Peers(selectors), None) if is_meant(selectors) => {
                addresses.into_iter().map(|address| (family_of(address), octets(address))).collect()
            }
            (Dynamic::Doors(selectors), Some(only)) if is_meant(selectors) => {
                addresses.into_iter().flat_map(|address| at(address, only.iter().copied().collect())).collect()
            }
            (Dynamic::Names(names), _) => {
                let has_name = |it: &&NamedPort| names.contains(&(it.protocol, it.name.clone()));
                let ports: Vec<_> = pod.ports.iter().filter(has_name).map(|it| (it.protocol, it.number)).collect();
                addresses.into_iter().flat_map(|address| at(address, ports.clone())).collect()
            }
            _ => BTreeSet::new(),
        }
    }
}
