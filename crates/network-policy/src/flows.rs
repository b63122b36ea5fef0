//! Connections that go on although no packet of their first direction comes any more: whoever sends answers without end is not
//! stopped by rules that judge questions.
//!
//! After something that was allowed is so no longer, the flows of protocols without an end are listed, judged, and those that are
//! refused are forgotten. What is sent then is a new flow, judged as such. No other flow is touched: forgetting one that a Service
//! led somewhere would break it.
//!
//! The list of all flows may be long, so this has a thread of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc;

use nft::{Conntrack, Family, Flow};

use crate::facts::Protocol;
use crate::judge::Packet;

/// What the thread is asked.
#[derive(Debug)]
pub(crate) enum FlowRequest {
    /// Lists the flows of these pods.
    List(BTreeSet<IpAddr>),
    Forget(Vec<Flow>),
}

/// As policies see a packet of it: where it really goes.
pub(crate) fn packet(flow: &Flow) -> Packet {
    Packet {
        source: flow.original.source.0,
        destination: flow.reply.source.0,
        protocol: flow.protocol,
        port: flow.reply.source.1,
    }
}

/// Starts the thread, in the network namespace of this one; it ends when what is answered is dropped. Flows are told by `tell`.
pub(crate) fn start(tell: impl Fn(Vec<Flow>) + Send + 'static) -> mpsc::Sender<FlowRequest> {
    let (requests, asked) = mpsc::channel::<FlowRequest>();
    let run = move || {
        while let Ok(request) = asked.recv() {
            let done = match request {
                FlowRequest::List(pods) => list(&pods).map(&tell),
                FlowRequest::Forget(flows) => forget(&flows),
            };
            if let Err(error) = done {
                tracing::warn!(error = supervision::error_chain(&error), "flows that policies refuse may stay");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("policy-flows".into()).spawn(run) {
        tracing::warn!(%error, "flows that policies refuse may stay");
    }
    requests
}

fn list(pods: &BTreeSet<IpAddr>) -> Result<Vec<Flow>, nft::Error> {
    let mut conntrack = Conntrack::open()?;
    let endless = [Protocol::Udp, Protocol::Sctp].map(Protocol::number);
    let is_looked_at = |flow: &Flow| {
        let packet = packet(flow);
        endless.contains(&flow.protocol) && (pods.contains(&packet.source) || pods.contains(&packet.destination))
    };
    let mut flows = conntrack.flows(Family::Ip, is_looked_at)?;
    flows.extend(conntrack.flows(Family::Ip6, is_looked_at)?);
    Ok(flows)
}

fn forget(flows: &[Flow]) -> Result<(), nft::Error> {
    let mut conntrack = Conntrack::open()?;
    for flow in flows {
        let is_forgotten = conntrack.forget(flow)?;
        tracing::debug!(?flow, is_forgotten, "a policy refuses a flow");
    }
    Ok(())
}
