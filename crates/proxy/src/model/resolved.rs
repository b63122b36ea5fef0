//! The endpoints of one Service as its slices and the cuts say together, with indexes by pod and by port.
//!
//! It is computed once after a change and shared by all questions about the Service's pods: with hundreds of pods behind one Service
//! every one of them asks who its siblings are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Endpoint, Model, ServiceKey, TargetPort};
use crate::wanted::Backend;
use crate::{CutMode, Protocol};

/// Endpoints of all ports that are indexed as takers of connections. Whoever has more finds siblings among these.
const TAKERS_MAX: usize = 100_000;

/// A port of a pod, in one family.
type PodPort = (Protocol, u16, bool);

/// The endpoints of a Service as the cuts leave them.
#[derive(Default, Debug)]
pub(super) struct Resolved {
    pub(super) endpoints: Vec<Endpoint>,
    /// Where the endpoints of a pod are.
    of_pod: BTreeMap<String, Vec<usize>>,
    /// Pods that serve as far as slices say, cut or not.
    serving: BTreeSet<String>,
    takers: BTreeMap<PodPort, Takers>,
    taking: TakerCount,
}

/// Endpoints that are ready and stay.
#[derive(Clone, Default, Debug)]
pub(super) struct Takers {
    /// On this node.
    pub(super) here: BTreeSet<Backend>,
    /// On other nodes.
    pub(super) elsewhere: BTreeSet<Backend>,
}

#[derive(Clone, Copy, Default, Debug)]
struct TakerCount {
    here: usize,
    all: usize,
}

impl Resolved {
    /// Each address once: of two, the one that stays. An endpoint is the pod's that has its address, whatever its slice says.
    pub(super) fn of(model: &Model, key: &ServiceKey) -> Self {
        let mut found: BTreeMap<(IpAddr, Arc<[TargetPort]>), Endpoint> = BTreeMap::new();
        let mut resolved = Self::default();
        for endpoint in model.raw_endpoints_of(key) {
            let mut endpoint = Endpoint { uid: model.owner_of(endpoint, key).map(str::to_owned), ..endpoint.clone() };
            if let Some(uid) = endpoint.uid.as_ref().filter(|_| endpoint.ready || endpoint.serving) {
                resolved.serving.insert(uid.clone());
            }
            if let Some(cut) = endpoint.uid.as_ref().and_then(|uid| model.cuts.get(uid)) {
                endpoint.ready = false;
                endpoint.terminating = true;
                endpoint.serving &= cut.mode != CutMode::Refuse && !cut.departed;
            } else if model.inherited.contains(&endpoint.address) {
                (endpoint.ready, endpoint.terminating) = (false, true);
            }
            let identity = (endpoint.address, endpoint.ports.clone());
            let stays = found.get(&identity).is_some_and(|known| !known.terminating || endpoint.terminating);
            if !stays {
                found.insert(identity, endpoint);
            }
        }
        resolved.endpoints = found.into_values().collect();
        resolved.index(model);
        resolved
    }

    fn index(&mut self, model: &Model) {
        let mut indexed = 0;
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            if let Some(uid) = &endpoint.uid {
                self.of_pod.entry(uid.clone()).or_default().push(at);
            }
            if !endpoint.takes_new() {
                continue;
            }
            let is_here = model.is_here(endpoint);
            self.taking.all += 1;
            self.taking.here += usize::from(is_here);
            let is_ipv6 = endpoint.address.is_ipv6();
            for (protocol, port) in endpoint.numbers() {
                if indexed == TAKERS_MAX {
                    break;
                }
                let takers = self.takers.entry((protocol, port, is_ipv6)).or_default();
                let list = if is_here { &mut takers.here } else { &mut takers.elsewhere };
                indexed += usize::from(list.insert(Backend { address: endpoint.address, port }));
            }
        }
    }

    /// The endpoints of a pod.
    pub(super) fn of_pod(&self, uid: &str) -> impl Iterator<Item = &Endpoint> {
        self.of_pod.get(uid).into_iter().flatten().filter_map(|at| self.endpoints.get(*at))
    }

    /// Whether slices say that the pod serves.
    pub(super) fn serves(&self, uid: &str) -> bool {
        self.serving.contains(uid)
    }

    /// Whether some other pod takes new connections, on this node if only that one counts.
    pub(super) fn has_other_taker(&self, model: &Model, uid: &str, only_here: bool) -> bool {
        let counts = |endpoint: &&Endpoint| endpoint.takes_new() && (!only_here || model.is_here(endpoint));
        let all = if only_here { self.taking.here } else { self.taking.all };
        self.of_pod(uid).filter(counts).count() < all
    }

    /// Who takes new connections on a port, without the pod itself.
    pub(super) fn other_takers(&self, uid: &str, (protocol, port, is_ipv6): PodPort) -> Takers {
        let mut takers = self.takers.get(&(protocol, port, is_ipv6)).cloned().unwrap_or_default();
        for own in self.of_pod(uid) {
            let own = Backend { address: own.address, port };
            takers.here.remove(&own);
            takers.elsewhere.remove(&own);
        }
        takers
    }

    /// How many of those there are: on this node if there are any.
    pub(super) fn count_of_other_takers(&self, uid: &str, (protocol, port, is_ipv6): PodPort) -> usize {
        let Some(takers) = self.takers.get(&(protocol, port, is_ipv6)) else { return 0 };
        let own: BTreeSet<_> = self.of_pod(uid).map(|own| Backend { address: own.address, port }).collect();
        let without_own = |list: &BTreeSet<Backend>| list.len() - own.iter().filter(|it| list.contains(it)).count();
        match without_own(&takers.here) {
            0 => without_own(&takers.elsewhere),
            here => here,
        }
    }
}

impl Takers {
    /// Those that are in both.
    pub(super) fn common(&self, other: &Self) -> Self {
        Self { here: &self.here & &other.here, elsewhere: &self.elsewhere & &other.elsewhere }
    }

    /// Those on this node, or the others if there are none.
    pub(super) fn nearest(self) -> BTreeSet<Backend> {
        if self.here.is_empty() { self.elsewhere } else { self.here }
    }
}
