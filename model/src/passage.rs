//! When a leaving pod's traffic lets hooks and signals pass (traffic-and-rollouts 3.3 to 3.5, 3.9), reckoned apart from
//! the worker and only from what the worker was told.

use std::time::Duration;

use lifecycle::{LastEndpoint, Moment, PodSpec};

use crate::promised_deadline::PromisedDeadline;
use crate::traffic::{Connections, Reach, Siblings, Traffic};
use crate::world::{Object, World};

/// How long evidence about traffic is waited for, and what is kept back of the grace, if a pod does not say.
const CAP: Duration = Duration::from_secs(5);
const RESERVE: Duration = Duration::from_secs(2);
const SETTLE_CAP: Duration = Duration::from_secs(1);
/// For how long nobody must be connected.
const EMPTY_FOR: Duration = Duration::from_millis(500);

/// Whether new connections hold nothing back: they go elsewhere, or their time is over.
pub fn barrier_is_open(spec: &PodSpec, world: &World, promise: Option<PromisedDeadline>) -> bool {
    let traffic = &world.traffic;
    let (Some(promise), Traffic { guarded: true, opened_at: None, .. }) = (promise, traffic) else { return true };
    let nobody_comes = traffic.reach == Some(Reach::Nobody);
    if world.heard == Object::Gone || nobody_comes || !world.serves(spec) || world.now >= latest(spec, promise) {
        return true;
    }
    match (traffic.siblings, spec.drain.last_endpoint) {
        (Siblings::None, LastEndpoint::Serve) => true,
        (Siblings::None, LastEndpoint::Hold) | (Siblings::Coming, LastEndpoint::Serve | LastEndpoint::Hold) => false,
        (Siblings::There, _) | (_, LastEndpoint::Reject) => {
            let reserve = spec.drain.reserve.unwrap_or(RESERVE);
            let cap = promise.barrier_cap(spec.drain.barrier_cap.unwrap_or(CAP), reserve, traffic.cutting_since);
            traffic.has_evidence(world.now, SETTLE_CAP) || world.now >= cap
        }
    }
}

/// Whether open connections hold nothing back.
pub fn drain_is_over(spec: &PodSpec, world: &World, promise: Option<PromisedDeadline>) -> bool {
    let traffic = &world.traffic;
    let waits = traffic.guarded && !traffic.drained;
    let (Some(promise), true, Some(budget)) = (promise, waits, spec.drain.budget) else { return true };
    let opened_at = traffic.opened_at.unwrap_or(world.now);
    let empty = matches!(traffic.connections, Connections::Empty(since) if world.now >= since + EMPTY_FOR);
    world.heard == Object::Gone
        || !world.serves(spec)
        || empty
        || traffic.app_done
        || world.now >= (opened_at + budget).min(latest(spec, promise))
}

/// When hooks must have begun at the latest.
fn latest(spec: &PodSpec, promise: PromisedDeadline) -> Moment {
    promise.latest(spec.drain.reserve.unwrap_or(RESERVE))
}
