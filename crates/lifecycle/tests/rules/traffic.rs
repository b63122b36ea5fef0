//! No hook and no stop signal before the traffic has gone, or its time is over: traffic-and-rollouts 3 and 10 B, C, E.

use lifecycle::{
    BarrierMode, BestEvidence, DrainSpec, Hook, KillCause, LastEndpoint, PodPhase, Probe, Routes, Signal,
    TerminationVerdict, TrafficNews,
};
use testkit::{Given, HookScript, Script, Script::IgnoresTerm, TrafficScript, exits_on_term, given_pod, millis, secs};

/// Reached through a Service, with siblings that can take over.
const SHARED: Routes = Routes { best: BestEvidence::Divert, last: false, replaced: true, busy: true };
/// Nobody else can take over yet.
const ALONE: Routes = Routes { last: true, ..SHARED };

fn served(routes: Routes) -> Given {
    given_pod().container("app", exits_on_term(secs(1))).routed(routes, TrafficScript::default())
}

fn asks(drain: DrainSpec) -> Given {
    served(SHARED).drain(drain)
}

/// [TR-14]: new connections go elsewhere before the hook runs, and the hook before the stop signal.
#[test]
fn traffic_is_diverted_before_the_hook_and_the_stop_signal() {
    served(SHARED).pre_stop(Hook::Exec, HookScript::Takes(secs(2))).when_deleted(secs(30)).with_events().then_timeline(
        "
             0.000  delete requested, grace 30s
             0.000    -> divert new connections
             0.000    -> event DrainStarted: New connections are being kept away
             0.000    -> event Killing: Stopping container app
             0.000    -> publish status
             0.002  cut done at revision 7
             0.002    -> await empty accept queues
             0.007  accept queues empty
             0.007    -> event DrainReleased: Released after 7ms: LocalCut
             0.007    -> run preStop of app
             0.007    -> publish status
             2.007  preStop of app done
             2.007    -> TERM to app
             2.007    -> event StopSignalSent: Sent SIGTERM to container app, 27.993s before SIGKILL
             3.007  app exited 0
             3.007    -> remove sandbox
             3.007    -> publish status
             3.008  sandbox removed
             3.008    -> delete object
             3.009  object deleted
             3.009    -> finish
        ",
    );
}

/// [TR-15]: with a grace that has no room for it, the cut is asked for and nobody waits.
#[test]
fn a_short_grace_has_no_room_for_a_barrier() {
    for grace in [1, 2] {
        given_pod()
            .container("app", IgnoresTerm)
            .routed(SHARED, TrafficScript::default())
            .when_deleted(secs(grace))
            .told()
            .then_at(secs(0), "divert new connections")
            .then_at(secs(0), "TERM to app")
            .then_at(secs(2), "KILL to app")
            .then_released_by("ShortGrace");
    }
}

/// [TR-16]: a force delete waits for nobody.
#[test]
fn a_forced_pod_waits_for_no_cut() {
    served(SHARED).when_forced().told().then_at(secs(0), "TERM to app").then_verdict(TerminationVerdict::Forced);
    // A grace of nothing is the same, before and while it waits.
    served(SHARED)
        .when_deleted(secs(0))
        .told()
        .then_at(secs(0), "TERM to app")
        .then_verdict(TerminationVerdict::Forced);
    given_pod()
        .container("app", exits_on_term(millis(100)))
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
        .when_deleted(secs(30))
        .deleted_at(secs(2), secs(0))
        .told()
        .then_at(secs(2), "TERM to app")
        .then_released_by("Forced")
        .then_verdict(TerminationVerdict::Forced);
    // Nor does one that is forced while it waits.
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
        .when_deleted(secs(30))
        .forced_at(secs(2))
        .told()
        .then_at(secs(2), "TERM to app")
        .then_released_by("Forced");
    room(Some(9), DrainSpec::default())
        .when_deleted(secs(1860))
        .forced_at(secs(60))
        .told()
        .then_at(secs(60), "TERM to app")
        .then_verdict(TerminationVerdict::Forced);
}

/// [TR-17]: connections that nobody accepted yet are waited for, but for no more than a second.
#[test]
fn a_full_accept_queue_is_waited_for_up_to_a_second() {
    let queue = |settle_takes| {
        let traffic = TrafficScript { settle_takes, ..TrafficScript::default() };
        given_pod().container("app", exits_on_term(secs(1))).routed(SHARED, traffic).when_deleted(secs(30)).told()
    };
    queue(millis(400)).then_at(millis(402), "TERM to app").then_released_by("LocalCut");
    queue(secs(20)).then_at(millis(1_002), "TERM to app").then_released_by("LocalCut");
}

/// Nobody counts connections of a pod that is forced, or that nobody serves.
#[test]
fn connections_of_a_pod_without_future_are_not_counted() {
    let drain = || DrainSpec { budget: Some(secs(20)), ..DrainSpec::default() };
    let plain = || given_pod().drain(drain()).container("app", exits_on_term(secs(1)));
    plain().when_deleted(secs(30)).told().then_at(secs(0), "count connections");
    plain().when_forced().told().then_never("count connections").then_at(secs(0), "TERM to app");
    given_pod()
        .drain(drain())
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", Script::ExitsByItself { after: secs(2), code: 0 })
        .routed(ALONE, TrafficScript::default())
        .when_deleted(secs(60))
        .told()
        .then_never("count connections")
        .then_at(secs(2), "TERM to proxy");
}

/// The signal of a drain is the first main container's, whoever stands before it, unless the pod says whose.
#[test]
fn the_drain_signal_is_for_the_first_main_container() {
    let told = |signal_to: Option<&str>| {
        let signal_to = signal_to.map(|name| lifecycle::ContainerName(name.into()));
        let drain = DrainSpec { budget: Some(secs(20)), signal: Some(Signal(10)), signal_to, ..DrainSpec::default() };
        given_pod()
            .drain(drain)
            .sidecar("proxy", exits_on_term(secs(1)))
            .container("app", exits_on_term(secs(1)))
            .container("web", exits_on_term(secs(1)))
            .when_deleted(secs(60))
            .told()
    };
    told(None).then_at(secs(0), "USR1 to app").then_never("USR1 to proxy").then_never("USR1 to web");
    told(Some("web")).then_at(secs(0), "USR1 to web").then_never("USR1 to app");
    told(Some("proxy")).then_at(secs(0), "USR1 to proxy").then_never("USR1 to app");
}

/// A pod that refuses is released by its own node's word, or by silence, whatever else would count for it.
#[test]
fn a_refusal_counts_for_every_kind_of_pod() {
    let refuses = |mode, routes| {
        served(routes)
            .drain(DrainSpec { last_endpoint: LastEndpoint::Reject, barrier: mode, ..DrainSpec::default() })
            .when_deleted(secs(30))
    };
    let stateful = Routes { best: BestEvidence::Acks, ..ALONE };
    refuses(BarrierMode::Auto, stateful).told().then_at(millis(7), "TERM to app").then_released_by("LocalCut");
    for mode in [BarrierMode::Acks, BarrierMode::Local] {
        given_pod()
            .container("app", exits_on_term(secs(1)))
            .routed(stateful, TrafficScript { cut_takes: None, ..TrafficScript::default() })
            .drain(DrainSpec { last_endpoint: LastEndpoint::Reject, barrier: mode, ..DrainSpec::default() })
            .when_deleted(secs(30))
            .traffic_at(secs(1), TrafficNews::Quiet)
            .told()
            .then_at(secs(1), "TERM to app")
            .then_released_by("Quiet");
    }
}

/// Silence needs no empty accept queues.
#[test]
fn silence_releases_whatever_else_is_waited_for() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(SHARED, TrafficScript { settle_takes: secs(20), ..TrafficScript::default() })
        .when_deleted(secs(30))
        .traffic_at(millis(300), TrafficNews::Quiet)
        .told()
        .then_at(millis(300), "TERM to app")
        .then_released_by("Quiet");
}

/// [TR-18]: a cut that cannot be made opens the barrier at its cap, and says why.
#[test]
fn a_failed_cut_opens_the_barrier_at_its_cap() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(SHARED, TrafficScript { cut_takes: None, ..TrafficScript::default() })
        .when_deleted(secs(30))
        .told()
        .then_at(secs(5), "TERM to app")
        .then_released_by("Deadline")
        .then_verdict(TerminationVerdict::Hurried)
        .then_events(1, "DrainDeadline", "No evidence after 5s that new connections go elsewhere: the kernel said no");
}

/// [TR-19]: a second, shorter delete recomputes every budget from the first request.
#[test]
fn a_shorter_delete_shortens_the_barrier() {
    given_pod()
        .container("app", IgnoresTerm)
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
        .when_deleted(secs(30))
        .deleted_at(secs(1), secs(3))
        .told()
        .then_at(secs(1), "TERM to app")
        .then_at(secs(3), "KILL to app")
        .then_released_by("Deadline");
}

/// [TR-25]: a pod that nobody routes to loses no time.
#[test]
fn an_unrouted_pod_does_not_wait() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "TERM to app")
        .then_never("divert new connections")
        .then_no_event("DrainStarted")
        .then_released_by("NotSelected")
        .then_verdict(TerminationVerdict::Clean);
    // It may ask to be watched nevertheless.
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .drain(DrainSpec { barrier: BarrierMode::Quiet, ..DrainSpec::default() })
        .when_deleted(secs(30))
        .traffic_at(secs(2), TrafficNews::Quiet)
        .told()
        .then_at(secs(2), "TERM to app")
        .then_released_by("Quiet");
}

/// [TR-26]: who wants no barrier gets the order and the timing of others.
#[test]
fn a_barrier_can_be_switched_off() {
    asks(DrainSpec { barrier: BarrierMode::Off, ..DrainSpec::default() })
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "TERM to app")
        .then_never("divert new connections")
        .then_released_by("Off");
}

/// [TR-27]: a container that is restarted alone gets no new connections meanwhile, if somebody can take them.
#[test]
fn a_restart_takes_a_detour() {
    let restart = |routes| {
        served(routes)
            .readiness_probe()
            .when_left_alone()
            .probe_at(secs(1), "app", Probe::Readiness, true)
            .probe_at(secs(10), "app", Probe::Liveness, false)
            .told_at(
                secs(14),
                lifecycle::Input::ProbeChanged {
                    instance: lifecycle::Instance { name: lifecycle::ContainerName("app".into()), attempt: 1 },
                    probe: Probe::Readiness,
                    passing: true,
                },
            )
            .told()
    };
    restart(SHARED)
        .then_at(secs(10), "divert new connections")
        .then_at(millis(10_002), "TERM to app")
        .then_at(secs(14), "restore traffic");
    restart(ALONE).then_never("divert new connections").then_at(secs(10), "TERM to app");
}

/// A detour that nobody makes is not waited for beyond its cap.
#[test]
fn a_detour_that_fails_holds_nobody() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .deleted_at(secs(40), secs(30))
        .told()
        .then_times(1, "detour cap passed")
        .then_at(secs(15), "TERM to app");
}

/// [TR-28]: a sleep that would wait for what has already happened is left out, if the pod says so: the API's own, and a
/// command that only sleeps. Any other command is run.
#[test]
fn a_pointless_sleep_is_left_out() {
    let sleeps = |hook, cut_takes, elide_sleep| {
        given_pod()
            .container("app", exits_on_term(secs(1)))
            .pre_stop(hook, HookScript::Takes(secs(15)))
            .drain(DrainSpec { elide_sleep, ..DrainSpec::default() })
            .routed(SHARED, TrafficScript { cut_takes, ..TrafficScript::default() })
            .when_deleted(secs(60))
            .told()
    };
    for hook in [Hook::Sleep(secs(15)), Hook::ExecSleep(secs(15))] {
        sleeps(hook, Some(millis(2)), true).then_at(millis(7), "TERM to app").then_never("run preStop of app");
        sleeps(hook, Some(millis(2)), false).then_at(millis(15_007), "TERM to app");
        sleeps(hook, None, true).then_at(secs(20), "TERM to app").then_released_by("Deadline");
    }
    sleeps(Hook::Exec, Some(millis(2)), true).then_at(millis(15_007), "TERM to app");
}

/// [TR-29]: the only replica goes on serving until its replacement is there.
#[test]
fn the_last_endpoint_serves_until_it_is_replaced() {
    served(ALONE)
        .when_deleted(secs(30))
        .traffic_at(secs(8), TrafficNews::Routed(SHARED))
        .told()
        .then_at(secs(8), "divert new connections")
        .then_at(millis(8_007), "TERM to app")
        .then_released_by("LocalCut")
        .then_verdict(TerminationVerdict::Clean);
}

/// [TR-30]: a replacement that never comes is waited for as long as the grace allows.
#[test]
fn a_replacement_that_never_comes_is_not_waited_for_beyond_the_reserve() {
    served(ALONE)
        .when_deleted(secs(30))
        .told()
        .then_never("divert new connections")
        .then_at(secs(20), "TERM to app")
        .then_released_by("Deadline");
    served(ALONE)
        .drain(DrainSpec { replacement_wait: Some(secs(3)), ..DrainSpec::default() })
        .when_deleted(secs(30))
        .told()
        .then_at(secs(3), "TERM to app");
}

/// [TR-31] [TR-32] [TR-34]: where nobody is expected to take over, nobody waits: scale to zero, Recreate, a namespace
/// that goes; and neither does a pod that nobody called for a minute.
#[test]
fn a_last_endpoint_without_successor_does_not_wait() {
    for routes in [Routes { replaced: false, ..ALONE }, Routes { busy: false, ..ALONE }] {
        served(routes)
            .when_deleted(secs(30))
            .told()
            .then_at(secs(0), "TERM to app")
            .then_never("divert new connections")
            .then_released_by("LastEndpoint");
    }
    let hold = DrainSpec { last_endpoint: LastEndpoint::Hold, ..DrainSpec::default() };
    served(Routes { replaced: false, ..ALONE })
        .drain(hold)
        .when_deleted(secs(30))
        .traffic_at(secs(4), TrafficNews::Routed(SHARED))
        .told()
        .then_at(secs(4), "divert new connections");
}

/// [TR-33]: who must not take new work refuses it at once, even if nobody else can take it.
#[test]
fn the_last_endpoint_may_refuse() {
    served(ALONE)
        .drain(DrainSpec { last_endpoint: LastEndpoint::Reject, ..DrainSpec::default() })
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "refuse new connections")
        .then_at(millis(7), "TERM to app");
}

/// A pod whose siblings vanish while its traffic is being cut is the last one, and serves again.
#[test]
fn a_pod_that_becomes_the_last_one_serves_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(3)), ..TrafficScript::default() })
        .when_deleted(secs(30))
        .traffic_at(secs(1), TrafficNews::Routed(ALONE))
        .traffic_at(secs(9), TrafficNews::Routed(SHARED))
        .told()
        .then_at(secs(1), "restore traffic")
        .then_times(2, "divert new connections")
        .then_at(millis(12_005), "TERM to app");
}

/// A pod that leaves all lists and then turns out to be the last one is put back: nothing is taken from it.
#[test]
fn a_withdrawn_pod_that_becomes_the_last_one_is_put_back() {
    let stateful = Routes { best: BestEvidence::Acks, replaced: false, ..SHARED };
    served(stateful)
        .when_deleted(secs(30))
        .traffic_at(secs(1), TrafficNews::Routed(Routes { last: true, ..stateful }))
        .told()
        .then_at(secs(0), "withdraw from traffic")
        .then_at(secs(1), "restore traffic")
        .then_at(secs(1), "TERM to app")
        .then_released_by("LastEndpoint");
}

/// A replacement that is called off is not waited for, nor is one that nobody needs any more.
#[test]
fn a_last_endpoint_decides_again_when_its_world_changes() {
    let changes_to =
        |routes| served(ALONE).when_deleted(secs(30)).traffic_at(secs(4), TrafficNews::Routed(routes)).told();
    changes_to(Routes { replaced: false, ..ALONE }).then_at(secs(4), "TERM to app").then_released_by("LastEndpoint");
    changes_to(Routes { busy: false, ..ALONE }).then_at(secs(4), "TERM to app").then_released_by("LastEndpoint");
    changes_to(Routes::default()).then_at(secs(4), "TERM to app").then_released_by("NotSelected");
    // Who wants to be held is held, whoever comes.
    served(ALONE)
        .drain(DrainSpec { last_endpoint: LastEndpoint::Hold, ..DrainSpec::default() })
        .when_deleted(secs(30))
        .traffic_at(secs(4), TrafficNews::Routed(Routes { replaced: false, ..ALONE }))
        .told()
        .then_at(secs(20), "TERM to app")
        .then_released_by("Deadline")
        .then_verdict(TerminationVerdict::Hurried);
}

/// Nobody is held for the sake of a main container that is gone: what is left has no traffic.
#[test]
fn barrier_opens_once_the_main_containers_are_gone() {
    let mains_end = |routes| {
        given_pod()
            .sidecar("proxy", exits_on_term(secs(1)))
            .pre_stop(Hook::Exec, HookScript::Takes(secs(1)))
            .container("app", Script::ExitsByItself { after: secs(2), code: 0 })
            .routed(routes, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
            .when_deleted(secs(30))
            .told()
            .then_at(secs(2), "run preStop of proxy")
            .then_at(secs(3), "TERM to proxy")
            .then_released_by("NotServing")
            .then_no_event("DrainDeadline")
            .then_verdict(TerminationVerdict::Clean)
    };
    mains_end(ALONE).then_never("divert new connections");
    mains_end(SHARED).then_times(1, "divert new connections");
}

/// [TR-36]: where nothing can be diverted, every proxy's word is waited for, and one that never comes is not.
#[test]
fn every_proxy_has_to_let_go() {
    let stateful = || served(Routes { best: BestEvidence::Acks, ..SHARED }).when_deleted(secs(30));
    stateful()
        .traffic_at(secs(1), TrafficNews::Acked { acked: 49, required: 50 })
        .traffic_at(secs(2), TrafficNews::Acked { acked: 50, required: 50 })
        .told()
        .then_at(secs(0), "withdraw from traffic")
        .then_at(millis(2_005), "TERM to app")
        .then_released_by("AllAcked")
        .then_status_at(secs(3), |status| {
            let message = status.traffic_drained.as_ref().and_then(|drained| drained.message.clone());
            assert_eq!(message.as_deref(), Some("after 2.005s, 50 of 50 proxies let go"));
        });
    stateful()
        .traffic_at(secs(1), TrafficNews::Acked { acked: 49, required: 50 })
        .told()
        .then_at(secs(5), "TERM to app")
        .then_released_by("Deadline");
}

/// Each mode counts its own evidence and no other.
#[test]
fn a_mode_counts_only_its_own_evidence() {
    let told = |barrier, news: TrafficNews| {
        asks(DrainSpec { barrier, barrier_cap: Some(secs(4)), ..DrainSpec::default() })
            .when_deleted(secs(30))
            .traffic_at(secs(1), news)
            .told()
    };
    let acked = TrafficNews::Acked { acked: 1, required: 1 };
    told(BarrierMode::Acks, acked.clone()).then_released_by("AllAcked").then_at(millis(1_005), "TERM to app");
    told(BarrierMode::Acks, TrafficNews::Quiet).then_released_by("Deadline").then_at(secs(4), "TERM to app");
    told(BarrierMode::Quiet, TrafficNews::Quiet).then_released_by("Quiet").then_at(secs(1), "TERM to app");
    told(BarrierMode::Quiet, acked).then_released_by("Deadline");
    told(BarrierMode::Local, TrafficNews::Quiet).then_released_by("LocalCut").then_at(millis(7), "TERM to app");
}

/// The reserve and the caps of traffic-and-rollouts 3.3, by the moment at which a barrier without evidence opens.
#[test]
fn the_budgets_are_reckoned_from_the_grace() {
    let opens = |grace, drain: DrainSpec, sleep| {
        let mut given = given_pod().grace(secs(grace)).container("app", exits_on_term(secs(1))).drain(drain);
        if sleep > 0 {
            given = given.pre_stop_sleep(secs(sleep));
        }
        let story = given
            .routed(SHARED, TrafficScript { cut_takes: Some(secs(9_999)), ..TrafficScript::default() })
            .when_deleted(secs(grace))
            .told();
        let drained = story.status().traffic_drained.expect("it was released");
        drained.message.expect("it says when")
    };
    let plain = DrainSpec::default;
    assert_eq!(opens(30, plain(), 0), "after 5s");
    assert_eq!(opens(10, plain(), 0), "after 5s");
    assert_eq!(opens(5, plain(), 0), "after 3s");
    assert_eq!(opens(2, plain(), 0), "at once");
    assert_eq!(opens(1860, plain(), 0), "after 5s");
    assert_eq!(opens(30, plain(), 25), "after 3s");
    assert_eq!(opens(30, DrainSpec { reserve: Some(secs(28)), ..plain() }, 0), "after 2s");
    assert_eq!(opens(30, DrainSpec { barrier_cap: Some(secs(12)), ..plain() }, 0), "after 12s");
    assert_eq!(opens(30, DrainSpec { barrier_cap: Some(secs(99)), ..plain() }, 0), "after 20s");
}

fn room(open: Option<u32>, drain: DrainSpec) -> Given {
    given_pod()
        .grace(secs(1860))
        .container("app", exits_on_term(secs(1)))
        .drain(DrainSpec { budget: Some(secs(1800)), ..drain })
        .routed(SHARED, TrafficScript { open, ..TrafficScript::default() })
}

/// [TR-48]: open connections are waited for; the application is told first, and the end comes soon after the last.
#[test]
fn open_connections_are_waited_for() {
    room(Some(4), DrainSpec::default())
        .when_deleted(secs(1860))
        .traffic_at(secs(600), TrafficNews::Connections { open: 1 })
        .traffic_at(secs(1200), TrafficNews::Connections { open: 0 })
        .then_timeline(
            "
                0.000  delete requested, grace 1860s
                0.000    -> divert new connections
                0.002  cut done at revision 7
                0.002    -> await empty accept queues
                0.007  accept queues empty
                0.007    -> tell the application to drain
                0.007    -> count connections
                0.008  4 connections open
              600.000  1 connections open
             1200.000  0 connections open
             1200.500  no connection came back
             1200.500    -> TERM to app
             1201.500  app exited 0
             1201.500    -> remove sandbox
             1201.501  sandbox removed
             1201.501    -> delete object
             1201.502  object deleted
             1201.502    -> finish
            ",
        )
        .then_verdict(TerminationVerdict::Clean);
}

/// [TR-49]: one that never ends is waited for until the budget is spent.
#[test]
fn a_connection_that_never_ends_is_waited_for_until_the_budget_is_spent() {
    given_pod()
        .container("app", IgnoresTerm)
        .drain(DrainSpec { budget: Some(secs(1800)), ..DrainSpec::default() })
        .routed(SHARED, TrafficScript { open: Some(1), ..TrafficScript::default() })
        .when_deleted(secs(1860))
        .told()
        .then_at(millis(1_800_007), "TERM to app")
        .then_at(secs(1860), "KILL to app");
}

/// [TR-50]: an empty room costs nothing; one that fills up again within half a second is not empty.
#[test]
fn pod_without_open_connections_leaves_at_once() {
    room(Some(0), DrainSpec::default()).when_deleted(secs(1860)).told().then_at(millis(508), "TERM to app");
    room(Some(0), DrainSpec::default())
        .when_deleted(secs(1860))
        .traffic_at(millis(300), TrafficNews::Connections { open: 1 })
        .traffic_at(secs(9), TrafficNews::Connections { open: 0 })
        .told()
        .then_at(millis(9_500), "TERM to app");
    room(Some(2), DrainSpec { enough: 2, ..DrainSpec::default() })
        .when_deleted(secs(1860))
        .told()
        .then_at(millis(508), "TERM to app");
}

/// A budget beyond the grace is what the grace has room for.
#[test]
fn a_budget_is_never_longer_than_the_grace_allows() {
    room(Some(3), DrainSpec { budget: Some(secs(600)), ..DrainSpec::default() })
        .when_deleted(secs(30))
        .told()
        .then_at(secs(20), "TERM to app")
        .then_verdict(TerminationVerdict::Hurried);
}

/// [TR-52]: the drain signal is sent once, after the cut and before the stop signal.
#[test]
fn the_application_is_told_once() {
    let usr1 = DrainSpec { signal: Some(Signal(10)), ..DrainSpec::default() };
    room(Some(1), usr1)
        .when_deleted(secs(1860))
        .traffic_at(secs(50), TrafficNews::Connections { open: 0 })
        .told()
        .then_at(millis(7), "USR1 to app")
        .then_at(millis(50_500), "TERM to app");
}

/// [TR-54]: the application may say itself that it is done, or just exit.
#[test]
fn the_application_ends_its_drain() {
    room(Some(9), DrainSpec::default())
        .when_deleted(secs(1860))
        .traffic_at(secs(30), TrafficNews::AppDone)
        .told()
        .then_at(secs(30), "TERM to app");
    given_pod()
        .container("app", testkit::Script::ExitsByItself { after: secs(40), code: 0 })
        .drain(DrainSpec { budget: Some(secs(1800)), ..DrainSpec::default() })
        .routed(SHARED, TrafficScript { open: Some(9), ..TrafficScript::default() })
        .when_deleted(secs(1860))
        .told()
        .then_never("TERM to app")
        .then_phase(PodPhase::Succeeded)
        .then_verdict(TerminationVerdict::Clean)
        .then_finished_by(millis(40_010));
}

/// What does not count is not counted: the rules hear of those that do, and of nobody else.
#[test]
fn connections_that_do_not_count_hold_nobody() {
    room(Some(0), DrainSpec::default())
        .when_deleted(secs(1860))
        .told()
        .then_status_at(millis(100), |status| {
            let message = status.traffic_drained.as_ref().and_then(|drained| drained.message.clone());
            assert_eq!(message.as_deref(), Some("after 7ms, 0 connections open"));
        })
        .then_finished_by(secs(2));
}

/// Where nobody can count, nobody is waited for, and people are told.
#[test]
fn connections_that_cannot_be_counted_are_not_waited_for() {
    room(None, DrainSpec::default()).when_deleted(secs(1860)).told().then_at(millis(8), "TERM to app").then_events(
        1,
        "DrainFailed",
        "Open connections cannot be counted: no sockets to be seen",
    );
}

/// [TR-59]: an agent that dies while connections are waited for goes on with what is left: nothing twice, nothing early.
#[test]
fn a_drain_goes_on_after_a_restart_of_the_agent() {
    let usr1 = DrainSpec { signal: Some(Signal(10)), ..DrainSpec::default() };
    room(Some(1), usr1)
        .when_deleted(secs(1860))
        .agent_away(secs(100), secs(200))
        .told()
        .then_times(1, "USR1 to app")
        .then_times(1, "tell the application to drain")
        .then_times(2, "count connections")
        .then_at(millis(1_800_007), "TERM to app");
    // And one that dies during the cut asks for it again.
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(2)), ..TrafficScript::default() })
        .when_deleted(secs(30))
        .agent_away(secs(1), millis(1_500))
        .told()
        .then_times(2, "divert new connections")
        .then_at(millis(3_505), "TERM to app");
}

/// A shutdown of the node is orderly too; a completed pod has nobody to wait for.
#[test]
fn every_orderly_end_has_its_barrier() {
    served(SHARED)
        .when_killed(KillCause::NodeShutdown, Some(secs(20)))
        .told()
        .then_at(secs(0), "divert new connections")
        .then_at(millis(7), "TERM to app");
    given_pod()
        .restart(lifecycle::RestartPolicy::Never)
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", testkit::Script::ExitsByItself { after: secs(1), code: 0 })
        .routed(SHARED, TrafficScript::default())
        .when_left_alone()
        .told()
        .then_never("divert new connections")
        .then_at(secs(1), "TERM to proxy");
}

/// Connections that came after the release are the platform's own failures, and are told.
#[test]
fn late_connections_are_told() {
    given_pod()
        .container("app", IgnoresTerm)
        .routed(SHARED, TrafficScript::default())
        .when_deleted(secs(30))
        .traffic_at(secs(3), TrafficNews::Late { count: 2 })
        .told()
        .then_status_at(secs(2), |status| assert_eq!(drained(status), "after 7ms"))
        .then_status_at(secs(4), |status| assert_eq!(drained(status), "after 7ms, 2 connections came late"))
        .then_events(1, "LateConnections", "2 connections came after the barrier was released");
}

fn drained(status: &lifecycle::PodStatus) -> &str {
    let drained = status.traffic_drained.as_ref().and_then(|drained| drained.message.as_deref());
    drained.expect("it was released")
}

/// A pod none of whose mains runs has no traffic to lose.
#[test]
fn a_pod_that_never_served_has_no_barrier() {
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .image(testkit::ImageScript::Takes(secs(600)))
        .routed(SHARED, TrafficScript::default())
        .when_deleted(secs(30))
        .told()
        .then_never("divert new connections")
        .then_at(secs(0), "TERM to proxy")
        .then_status_at(secs(1), |status| assert_eq!(status.traffic_drained, None));
}
