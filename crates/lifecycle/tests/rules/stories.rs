//! The stories to read first: each is a golden timeline in `timelines/`, reviewed as prose.

use lifecycle::{
    BestEvidence, DrainSpec, Hook, KillCause, Probe, RestartPolicy, Routes, Signal, TerminationVerdict, TrafficNews,
};
use testkit::{
    HookScript, ImageScript, Script, Script::IgnoresTerm, TrafficScript, exits_on_term, given_pod, millis, secs,
};

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/timelines");
const SHARED: Routes = Routes { best: BestEvidence::Divert, last: false, replaced: true, busy: true };

#[test]
fn a_well_behaved_pod() {
    given_pod()
        .container("app", exits_on_term(secs(4)))
        .when_deleted(secs(30))
        .from_the_start()
        .with_events()
        .then_golden(DIR, "well_behaved")
        .then_verdict(TerminationVerdict::Clean);
}

#[test]
fn a_pod_that_ignores_its_stop_signal() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(30))
        .with_events()
        .then_golden(DIR, "ignores_its_stop_signal")
        .then_verdict(TerminationVerdict::Forced);
}

#[test]
fn a_hook_that_overruns() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(30))
        .with_events()
        .then_golden(DIR, "hook_overruns")
        .then_verdict(TerminationVerdict::Hurried);
}

#[test]
fn two_containers_and_a_sidecar_with_hooks() {
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(3)))
        .container("web", exits_on_term(secs(6)))
        .pre_stop_sleep(secs(5))
        .container("worker", exits_on_term(secs(9)))
        .when_deleted(secs(30))
        .then_golden(DIR, "two_containers_and_a_sidecar")
        .then_verdict(TerminationVerdict::Clean);
}

#[test]
fn a_rollout_that_loses_nothing() {
    given_pod()
        .container("web", exits_on_term(secs(2)))
        .routed(SHARED, TrafficScript::default())
        .when_deleted(secs(30))
        .with_events()
        .then_golden(DIR, "rollout_that_loses_nothing")
        .then_released_by("LocalCut");
}

#[test]
fn the_only_replica_waits_for_its_replacement() {
    given_pod()
        .container("web", exits_on_term(secs(2)))
        .routed(Routes { last: true, ..SHARED }, TrafficScript::default())
        .when_deleted(secs(30))
        .traffic_at(secs(11), TrafficNews::Routed(SHARED))
        .then_golden(DIR, "only_replica_waits_for_its_replacement");
}

#[test]
fn a_game_room_empties() {
    given_pod()
        .grace(secs(1860))
        .container("room", exits_on_term(secs(1)))
        .drain(DrainSpec { budget: Some(secs(1800)), signal: Some(Signal(10)), ..DrainSpec::default() })
        .routed(SHARED, TrafficScript { open: Some(4), ..TrafficScript::default() })
        .when_deleted(secs(1860))
        .traffic_at(secs(300), TrafficNews::Connections { open: 2 })
        .agent_away(secs(400), secs(402))
        .traffic_at(secs(700), TrafficNews::Connections { open: 0 })
        .then_golden(DIR, "game_room_empties");
}

#[test]
fn a_deletion_during_a_pull() {
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Takes(secs(600)))
        .when_left_alone()
        .deleted_at(secs(9), secs(30))
        .then_golden(DIR, "deletion_during_a_pull")
        .then_finished_by(millis(9_010));
}

#[test]
fn an_impatient_user() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop_sleep(secs(120))
        .when_deleted(secs(300))
        .deleted_at(secs(20), secs(40))
        .forced_at(secs(30))
        .then_golden(DIR, "impatient_user")
        .then_verdict(TerminationVerdict::Forced);
}

#[test]
fn an_eviction_that_somebody_waits_for() {
    let message = "The node was low on resource: memory. ".to_owned();
    given_pod()
        .container("app", exits_on_term(secs(5)))
        .when_killed(KillCause::Evicted { message }, Some(secs(1)))
        .awaited_at(secs(0), 1)
        .with_events()
        .then_golden(DIR, "eviction");
}

#[test]
fn a_crash_loop_that_is_ended() {
    given_pod()
        .restart(RestartPolicy::OnFailure)
        .container("app", Script::ExitsByItself { after: secs(2), code: 1 })
        .when_left_alone()
        .deleted_at(secs(40), secs(30))
        .then_golden(DIR, "crash_loop_that_is_ended");
}

#[test]
fn a_restart_behind_a_detour() {
    given_pod()
        .container("web", exits_on_term(secs(2)))
        .liveness_grace(secs(5))
        .routed(SHARED, TrafficScript::default())
        .when_left_alone()
        .probe_at(secs(60), "web", Probe::Liveness, false)
        .deleted_at(secs(90), secs(30))
        .then_golden(DIR, "restart_behind_a_detour");
}
