//! Which endpoints go into which slice, with as few writes as possible: pure.
//!
//! Endpoints are grouped by family and ports. One that is listed stays where it is. What is new goes first into slices that are
//! written anyway, then into the one that it fills best, then into a new one. A slice that is to be made while another is to go
//! takes the place of that one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::endpoint::Candidate;
use super::views::Family;

/// When something became ready that a slice tells, for those who measure how late they hear of it.
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Whose slices these are, and what all of them have in common.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SliceOwner {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) reference: OwnerReference,
    pub(super) labels: BTreeMap<String, String>,
    /// The annotations of every slice; those of others are left alone if nothing is said here.
    pub(super) annotations: Option<BTreeMap<String, String>>,
    /// How many endpoints a slice may have.
    pub(super) slice_max: usize,
    /// Whether there is a slice even when there is nothing to list.
    pub(super) placeholder: bool,
}

/// What the ports of a slice come to, in an order that does not depend on how they were written.
pub(super) type PortSet = Vec<(String, String, i32, String)>;

/// The endpoints that have the same ports.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Group {
    pub(super) ports: Vec<EndpointPort>,
    pub(super) candidates: Vec<Candidate>,
}

/// What is to be written.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SliceWrites {
    pub(super) creates: Vec<EndpointSlice>,
    pub(super) updates: Vec<EndpointSlice>,
    pub(super) deletes: Vec<EndpointSlice>,
    /// Somebody who is listed must no longer be counted on: this must not wait.
    pub(super) withdraws: bool,
    /// Somebody is listed in a slice that is to be made and in one that is to be changed: made first, nobody misses it meanwhile.
    pub(super) moves: bool,
}

impl SliceWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.updates.is_empty() && self.deletes.is_empty()
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.creates.extend(other.creates);
        self.updates.extend(other.updates);
        self.deletes.extend(other.deletes);
        self.withdraws |= other.withdraws;
        self.moves |= other.moves;
    }
}

pub(super) fn port_set(ports: &[EndpointPort]) -> PortSet {
    let words = ports.iter().map(|port| {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        (word(&port.name), word(&port.protocol), port.port.unwrap_or(0), word(&port.app_protocol))
    });
    let mut set: PortSet = words.collect();
    set.sort();
    set
}

/// Who an endpoint is: a pod and where it is, or an address alone.
type Identity = (String, Vec<String>);

fn identity(endpoint: &Endpoint) -> Identity {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default();
    (uid, endpoint.addresses.clone())
}

/// A slice as it is going to be.
struct Draft<'a> {
    old: &'a EndpointSlice,
    endpoints: Vec<Endpoint>,
    changed: bool,
    trigger: Option<Timestamp>,
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

impl SliceOwner {
    /// Makes the slices of one family, of which `existing` are there, list `wanted`.
    pub(super) fn pack(
        &self,
        family: Family,
        existing: &[&EndpointSlice],
        wanted: BTreeMap<PortSet, Group>,
    ) -> SliceWrites {
        let mut writes = SliceWrites { withdraws: withdraws(existing, &wanted), ..SliceWrites::default() };
        let mut by_ports: BTreeMap<PortSet, Vec<&EndpointSlice>> = BTreeMap::new();
        for slice in existing {
            match self.owns(slice) {
                true => by_ports.entry(port_set(slice.ports.as_deref().unwrap_or_default())).or_default().push(slice),
                false => writes.deletes.push((*slice).clone()),
            }
        }
        let (mut creates, mut doomed, mut kept) = (Vec::new(), Vec::new(), 0);
        for (ports, group) in wanted {
            let slices = by_ports.remove(&ports).unwrap_or_default();
            let (drafts, fresh) = self.fill(slices, group.candidates);
            for draft in drafts {
                if draft.endpoints.is_empty() {
                    doomed.push(draft.old);
                    continue;
                }
                kept += 1;
                if draft.changed {
                    writes.updates.push(self.rewritten(draft.old, draft.endpoints, None, draft.trigger));
                }
            }
            creates.extend(fresh.into_iter().map(|(endpoints, trigger)| (group.ports.clone(), endpoints, trigger)));
        }
        doomed.extend(by_ports.into_values().flatten());
        if self.placeholder && kept == 0 && creates.is_empty() {
            creates.push((Vec::new(), Vec::new(), None));
        }
        let listed: BTreeSet<Identity> =
            existing.iter().flat_map(|slice| slice.endpoints.iter().flatten()).map(identity).collect();
        for (ports, endpoints, trigger) in creates {
            let alike =
                doomed.iter().position(|old| port_set(old.ports.as_deref().unwrap_or_default()) == port_set(&ports));
            if doomed.is_empty() {
                writes.moves |= endpoints.iter().any(|endpoint| listed.contains(&identity(endpoint)));
                writes.creates.push(self.made(family, ports, endpoints, trigger));
                continue;
            }
            let old = doomed.remove(alike.unwrap_or(0));
            let next = self.rewritten(old, endpoints, Some(ports), trigger);
            if next.endpoints.iter().flatten().ne(old.endpoints.iter().flatten())
                || next.ports.iter().flatten().ne(old.ports.iter().flatten())
                || !self.describes(old)
            {
                writes.updates.push(next);
            }
        }
        writes.deletes.extend(doomed.into_iter().cloned());
        writes
    }

    /// Puts `candidates` into slices that have their ports. Answers those slices, and what does not fit into them.
    #[expect(clippy::type_complexity, reason = "two lists of the same thing")]
    fn fill<'a>(
        &self,
        mut slices: Vec<&'a EndpointSlice>,
        candidates: Vec<Candidate>,
    ) -> (Vec<Draft<'a>>, Vec<(Vec<Endpoint>, Option<Timestamp>)>) {
        slices.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        let mut left: BTreeMap<Identity, Candidate> =
            candidates.into_iter().map(|candidate| (identity(&candidate.endpoint), candidate)).collect();
        let mut drafts = Vec::new();
        for old in slices {
            let mut draft = Draft { old, endpoints: Vec::new(), changed: !self.describes(old), trigger: None };
            for endpoint in old.endpoints.iter().flatten() {
                let stays =
                    if draft.endpoints.len() < self.slice_max { left.remove(&identity(endpoint)) } else { None };
                let Some(Candidate { endpoint: next, trigger }) = stays else {
                    draft.changed = true;
                    continue;
                };
                if next != *endpoint {
                    draft.changed = true;
                    draft.trigger = earlier(draft.trigger, trigger);
                }
                draft.endpoints.push(next);
            }
            drafts.push(draft);
        }
        let mut by_size: Vec<usize> = (0..drafts.len()).filter(|at| drafts[*at].changed).collect();
        by_size.sort_by_key(|at| std::cmp::Reverse(drafts[*at].endpoints.len()));
        for at in by_size {
            self.top_up(&mut drafts[at], &mut left);
        }
        let mut fresh = Vec::new();
        while !left.is_empty() {
            let room = |draft: &Draft<'_>| self.slice_max.saturating_sub(draft.endpoints.len());
            let takes_all = drafts.iter_mut().filter(|draft| !draft.changed && room(draft) >= left.len());
            match takes_all.min_by_key(|draft| room(draft)) {
                Some(draft) => {
                    draft.changed = true;
                    self.top_up(draft, &mut left);
                }
                None => {
                    let (mut endpoints, mut since) = (Vec::new(), None);
                    while endpoints.len() < self.slice_max.max(1) {
                        let Some((_, Candidate { endpoint, trigger })) = left.pop_first() else { break };
                        endpoints.push(endpoint);
                        since = earlier(since, trigger);
                    }
                    fresh.push((endpoints, since));
                }
            }
        }
        (drafts, fresh)
    }

    fn top_up(&self, draft: &mut Draft<'_>, left: &mut BTreeMap<Identity, Candidate>) {
        while draft.endpoints.len() < self.slice_max {
            let Some((_, Candidate { endpoint, trigger })) = left.pop_first() else { return };
            draft.endpoints.push(endpoint);
            draft.trigger = earlier(draft.trigger, trigger);
        }
    }

    fn owns(&self, slice: &EndpointSlice) -> bool {
        slice.metadata.owner_references.iter().flatten().any(|owner| owner.uid == self.reference.uid)
    }

    /// Whether the labels and annotations of a slice are right.
    fn describes(&self, slice: &EndpointSlice) -> bool {
        let without_trigger = |annotations: &Option<BTreeMap<String, String>>| {
            let mut all = annotations.clone().unwrap_or_default();
            all.remove(TRIGGER_TIME);
            all
        };
        slice.metadata.labels.as_ref() == Some(&self.labels)
            && self.annotations.as_ref().is_none_or(|own| *own == without_trigger(&slice.metadata.annotations))
    }

    fn rewritten(
        &self,
        old: &EndpointSlice,
        endpoints: Vec<Endpoint>,
        ports: Option<Vec<EndpointPort>>,
        trigger: Option<Timestamp>,
    ) -> EndpointSlice {
        let mut next = EndpointSlice { endpoints: Some(endpoints), ..old.clone() };
        if let Some(ports) = ports {
            next.ports = Some(ports);
        }
        next.metadata.labels = Some(self.labels.clone());
        self.annotate(&mut next.metadata, trigger);
        next
    }

    fn made(
        &self,
        family: Family,
        ports: Vec<EndpointPort>,
        endpoints: Vec<Endpoint>,
        trigger: Option<Timestamp>,
    ) -> EndpointSlice {
        let mut metadata = ObjectMeta {
            generate_name: Some(format!("{}-", self.name)),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels.clone()),
            owner_references: Some(vec![self.reference.clone()]),
            ..ObjectMeta::default()
        };
        self.annotate(&mut metadata, trigger);
        EndpointSlice {
            address_type: family.name().to_owned(),
            endpoints: Some(endpoints),
            metadata,
            ports: Some(ports),
        }
    }

    fn annotate(&self, metadata: &mut ObjectMeta, trigger: Option<Timestamp>) {
        let mut annotations = match &self.annotations {
            Some(own) => own.clone(),
            None => metadata.annotations.take().unwrap_or_default(),
        };
        match trigger {
            Some(at) => drop(annotations.insert(TRIGGER_TIME.to_owned(), at.to_string())),
            None => drop(annotations.remove(TRIGGER_TIME)),
        }
        metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    }
}

/// What consumers make of conditions: nothing said means ready, serving and not terminating.
fn conditions(endpoint: &Endpoint) -> (bool, bool, bool) {
    let EndpointConditions { ready, serving, terminating } = endpoint.conditions.clone().unwrap_or_default();
    (ready.unwrap_or(true), serving.unwrap_or(true), terminating.unwrap_or(false))
}

/// Whether somebody who is listed is to be listed with less, or not at all.
fn withdraws(existing: &[&EndpointSlice], wanted: &BTreeMap<PortSet, Group>) -> bool {
    let candidates = wanted.iter().flat_map(|(ports, group)| {
        group.candidates.iter().map(move |candidate| ((ports, identity(&candidate.endpoint)), &candidate.endpoint))
    });
    let next: BTreeMap<(&PortSet, Identity), &Endpoint> = candidates.collect();
    existing.iter().any(|slice| {
        let ports = port_set(slice.ports.as_deref().unwrap_or_default());
        slice.endpoints.iter().flatten().any(|endpoint| {
            let (ready, serving, terminating) = conditions(endpoint);
            match next.get(&(&ports, identity(endpoint))).map(|next| conditions(next)) {
                Some((still_ready, still_serving, now_terminating)) => {
                    (ready && !still_ready) || (serving && !still_serving) || (!terminating && now_terminating)
                }
                None => ready || serving,
            }
        })
    })
}
