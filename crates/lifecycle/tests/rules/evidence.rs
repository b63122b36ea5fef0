//! No evidence is fabricated, and nothing is taken from the last endpoint: traffic-and-rollouts 3.1, I3 and I7.

use lifecycle::{
    BarrierMode, BestEvidence, Cut, DrainSpec, Hook, LastEndpoint, Probe, Routes, TrafficNews, TrafficNews::Routed,
};
use testkit::{Given, HookScript, Script::IgnoresTerm, TrafficScript, exits_on_term, given_pod, millis, secs};

const DIVERTED: Routes = Routes { best: BestEvidence::Divert, last: false, replaced: true, busy: true };
const ACKED: Routes = Routes { best: BestEvidence::Acks, ..DIVERTED };
const LAST: Routes = Routes { last: true, replaced: false, ..DIVERTED };

fn served(routes: Routes, drain: DrainSpec) -> Given {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Sleep(secs(15)), HookScript::NeverEnds)
        .routed(routes, TrafficScript::default())
        .drain(drain)
}

fn eliding() -> DrainSpec {
    DrainSpec { elide_sleep: true, ..DrainSpec::default() }
}

/// A pod that was taken off the lists is not called diverted because it could be by now: the detour is asked for, and only
/// its own answer counts.
#[test]
fn a_withdrawal_is_no_detour() {
    served(ACKED, eliding())
        .when_deleted(secs(60))
        .traffic_at(millis(10), TrafficNews::Acked { acked: 0, required: 50 })
        .traffic_at(millis(20), Routed(DIVERTED))
        .traffic_at(millis(21), TrafficNews::CutDone { how: Cut::Withdraw, revision: 3 })
        .told()
        .then_at(secs(0), "withdraw from traffic")
        .then_at(millis(20), "divert new connections")
        .then_at(millis(22), "await empty accept queues")
        .then_at(millis(27), "TERM to app")
        .then_released_by("LocalCut");
}

/// And one that could be diverted and cannot be any more waits for its proxies again.
#[test]
fn a_detour_that_became_impossible_is_no_evidence() {
    served(DIVERTED, DrainSpec { elide_sleep: true, barrier_cap: Some(secs(3)), ..DrainSpec::default() })
        .when_deleted(secs(60))
        .traffic_at(millis(4), Routed(ACKED))
        .told()
        .then_at(secs(0), "divert new connections")
        .then_at(millis(4), "withdraw from traffic")
        .then_released_by("Deadline")
        .then_at(secs(3), "run preStop of app");
    let acked = served(DIVERTED, eliding())
        .when_deleted(secs(60))
        .traffic_at(millis(4), Routed(ACKED))
        .traffic_at(millis(50), TrafficNews::Acked { acked: 50, required: 50 });
    acked.told().then_released_by("AllAcked").then_at(millis(55), "TERM to app");
}

/// Of a pod on a port of its node nothing can be known but that nobody waits: that releases it, and replaces no sleep.
#[test]
fn empty_queues_release_but_prove_nothing() {
    served(Routes { best: BestEvidence::Settled, ..DIVERTED }, eliding())
        .when_deleted(secs(60))
        .told()
        .then_released_by("Settled")
        .then_at(millis(7), "run preStop of app")
        .then_at(millis(15_007), "TERM to app");
}

/// I7 does not end with the release: a pod that waits for its connections gets new ones again when the others are gone,
/// and loses them when they are back.
#[test]
fn the_last_endpoint_gets_its_connections_back_while_it_drains() {
    let drain = DrainSpec { budget: Some(secs(1_800)), ..DrainSpec::default() };
    let drains = |drain| {
        given_pod()
            .grace(secs(1_860))
            .container("app", exits_on_term(secs(1)))
            .routed(DIVERTED, TrafficScript { open: Some(4), ..TrafficScript::default() })
            .drain(drain)
            .when_deleted(secs(1_860))
            .traffic_at(secs(60), Routed(LAST))
            .traffic_at(secs(90), Routed(LAST))
            .traffic_at(secs(120), Routed(DIVERTED))
            .told()
    };
    let story = drains(drain.clone()).then_at(secs(60), "restore traffic").then_times(2, "divert new connections");
    assert!(story.timeline().contains("120.000    -> divert new connections"), "{}", story.timeline());
    // Whoever wants new connections to be refused is taken at its word.
    drains(DrainSpec { last_endpoint: LastEndpoint::Reject, ..drain }).then_never("restore traffic");
}

/// Nor while its hook runs.
#[test]
fn the_last_endpoint_gets_its_connections_back_during_its_hook() {
    served(DIVERTED, DrainSpec::default())
        .when_deleted(secs(60))
        .traffic_at(secs(5), Routed(LAST))
        .told()
        .then_at(secs(5), "restore traffic");
}

/// A detour around a container that is restarted alone ends when nobody can take it, whatever the container does.
#[test]
fn a_detour_ends_with_those_who_took_it() {
    given_pod()
        .container("app", exits_on_term(secs(30)))
        .routed(DIVERTED, TrafficScript::default())
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .traffic_at(secs(12), Routed(LAST))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_at(secs(10), "divert new connections")
        .then_at(secs(12), "restore traffic");
    // Before it is there, too: the stop then waits for nobody.
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(DIVERTED, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .traffic_at(secs(12), Routed(LAST))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_at(secs(12), "restore traffic")
        .then_at(secs(12), "TERM to app");
}

/// Whoever refuses new connections as the last one sends them to a sibling that comes meanwhile.
#[test]
fn a_refusal_becomes_a_detour_when_somebody_comes() {
    let reject = DrainSpec { last_endpoint: LastEndpoint::Reject, ..DrainSpec::default() };
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(LAST, TrafficScript { cut_takes: Some(millis(500)), ..TrafficScript::default() })
        .drain(reject)
        .when_deleted(secs(30))
        .traffic_at(millis(100), Routed(DIVERTED))
        .told()
        .then_at(secs(0), "refuse new connections")
        .then_at(millis(100), "divert new connections")
        .then_at(millis(605), "TERM to app")
        .then_released_by("LocalCut");
}

/// A pod that nobody routes to any more has nothing to wait for, however far its cut was.
#[test]
fn a_pod_that_lost_its_service_goes_on_at_once() {
    let nobody = Routes { best: BestEvidence::Unrouted, ..DIVERTED };
    let never_cut = || TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() };
    let leaves = |drain| {
        let pod = given_pod().container("app", exits_on_term(secs(1))).routed(DIVERTED, never_cut()).drain(drain);
        pod.when_deleted(secs(30)).traffic_at(secs(1), Routed(nobody)).told()
    };
    leaves(DrainSpec::default()).then_released_by("NotSelected").then_at(secs(1), "TERM to app");
    // Unless it wants silence itself.
    let quiet = DrainSpec { barrier: BarrierMode::Quiet, ..DrainSpec::default() };
    leaves(quiet).then_released_by("Deadline").then_at(secs(5), "TERM to app");
}

/// Nobody answers that connections were given back: an agent that died before it did that does it when it is back.
#[test]
fn connections_that_were_not_given_back_are_given_back_by_the_next_agent() {
    let slow = TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() };
    // During the cut, and after the release.
    for (script, at) in [(slow, 1), (TrafficScript::default(), 3)] {
        given_pod()
            .container("app", IgnoresTerm)
            .routed(DIVERTED, script)
            .when_deleted(secs(30))
            .traffic_at(secs(at), Routed(LAST))
            .agent_dies_before("restore traffic", secs(1))
            .told()
            .then_at(secs(at + 1), "restore traffic");
    }
    // And around a container that is restarted alone.
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(DIVERTED, TrafficScript::default())
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .agent_dies_before("restore traffic", secs(1))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_times(1, "restore traffic");
}

/// Nor do connections stay with a leaving pod because its agent died on its way to send them to whoever can take them.
#[test]
fn connections_that_were_not_taken_again_are_taken_by_the_next_agent() {
    given_pod()
        .container("app", IgnoresTerm)
        .routed(ACKED, TrafficScript::default())
        .when_deleted(secs(30))
        .traffic_at(secs(1), TrafficNews::Acked { acked: 50, required: 50 })
        .traffic_at(secs(3), Routed(LAST))
        .traffic_at(secs(4), Routed(DIVERTED))
        .agent_dies_before("divert new connections", secs(1))
        .agent_away(secs(8), secs(9))
        .told()
        .then_released_by("AllAcked")
        .then_at(secs(3), "restore traffic")
        // Asked for after each start, answered or not: whoever keeps them away has begun anew as well.
        .then_times(2, "divert new connections");
}
