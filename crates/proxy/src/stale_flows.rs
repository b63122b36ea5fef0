//! Flows that lead to somebody who does not serve any more are forgotten, so that their next packet is sent anew.
//!
//! Rules are for the first packet of a flow; the others follow it. TCP ends by itself when its pod does, so its flows are forgotten
//! only when the pod is gone. UDP has no end: a client that sends for ever would be led to nobody for ever.
//!
//! The list of all flows may be long, so this has a thread of its own, and always comes behind the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc;

use nft::{Conntrack, Family, Flow};

use crate::Protocol;
use crate::wanted::{Backend, Frontend};

/// What changed.
#[derive(Default, Debug)]
pub(crate) struct StaleFlows {
    /// Frontends of UDP, and who serves them.
    pub(crate) frontends: BTreeMap<Frontend, BTreeSet<Backend>>,
    /// Pods that are gone.
    pub(crate) gone: BTreeSet<IpAddr>,
}

impl StaleFlows {
    fn is_empty(&self) -> bool {
        self.frontends.is_empty() && self.gone.is_empty()
    }

    fn extend(&mut self, later: Self) {
        self.frontends.extend(later.frontends);
        self.gone.extend(later.gone);
    }

    /// Whether a flow leads to nobody.
    fn has(&self, flow: &Flow, node: &[IpAddr]) -> bool {
        let (by, at) = (flow.reply.source, flow.original.destination);
        if self.gone.contains(&by.0) {
            return true;
        }
        if flow.protocol != Protocol::Udp.number() {
            return false;
        }
        let serves = |backends: &BTreeSet<Backend>| backends.contains(&Backend { address: by.0, port: by.1 });
        let is_ipv6 = at.0.is_ipv6();
        self.frontends.iter().any(|(frontend, backends)| {
            let is_meant = frontend.port == at.1
                && frontend.protocol == Protocol::Udp
                && match frontend.address {
                    Some(address) => address == at.0,
                    None => frontend.is_ipv6 == is_ipv6 && node.contains(&at.0),
                };
            is_meant && !serves(backends)
        })
    }
}

/// Hands changes to the thread that looks at flows.
#[derive(Debug)]
pub(crate) struct FlowCleaner(mpsc::Sender<StaleFlows>);

impl FlowCleaner {
    /// Starts the thread, in the network namespace of this one. It ends when this is dropped.
    pub(crate) fn start(node_addresses: Vec<IpAddr>) -> Self {
        let (changes, changed) = mpsc::channel::<StaleFlows>();
        let run = move || {
            while let Ok(mut stale) = changed.recv() {
                changed.try_iter().for_each(|later| stale.extend(later));
                if let Err(error) = forget(&stale, &node_addresses) {
                    tracing::warn!(
                        error = supervision::error_chain(&error),
                        "flows to endpoints that are gone may stay"
                    );
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("proxy-flows".into()).spawn(run) {
            tracing::warn!(%error, "flows to endpoints that are gone are not forgotten");
        }
        Self(changes)
    }

    pub(crate) fn clean(&self, stale: StaleFlows) {
        if !stale.is_empty() {
            // Without the thread nobody listens, as was said when it did not start.
            let _ = self.0.send(stale);
        }
    }
}

fn forget(stale: &StaleFlows, node: &[IpAddr]) -> Result<(), nft::Error> {
    let mut conntrack = Conntrack::open()?;
    for family in [Family::Ip, Family::Ip6] {
        for flow in conntrack.flows(family, |flow| stale.has(flow, node))? {
            let is_forgotten = conntrack.forget(&flow)?;
            tracing::debug!(?flow, is_forgotten, "a flow led to an endpoint that does not serve");
        }
    }
    Ok(())
}
