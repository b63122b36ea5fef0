//! The order within a pod: node-termination 5.3 and 5.4.

use lifecycle::{Hook, PodPhase, RestartPolicy};
use testkit::{HookScript, Script, Script::IgnoresTerm, exits_on_term, fails_on_term, given_pod, millis, secs};

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/timelines");

/// [NT-92]: main first, then the sidecars in reverse order.
#[test]
fn sidecars_leave_in_reverse_order_after_the_mains() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .sidecar("s2", exits_on_term(secs(1)))
        .sidecar("s3", exits_on_term(secs(1)))
        .container("main", exits_on_term(secs(2)))
        .when_deleted(secs(30))
        .then_golden(TIMELINES, "sidecars_in_reverse_order");
}

/// Example G14: a sidecar's share is what the others left of the one budget.
#[test]
fn sidecars_share_what_is_left() {
    given_pod()
        .sidecar("s1", IgnoresTerm)
        .sidecar("s2", exits_on_term(secs(15)))
        .container("main", exits_on_term(secs(10)))
        .when_deleted(secs(30))
        .then_golden(TIMELINES, "sidecars_share_what_is_left")
        .then_events(1, "StopSignalSent", "Sent SIGTERM to container s2, 20s before SIGKILL")
        .then_events(1, "StopSignalSent", "Sent SIGTERM to container s1, 5s before SIGKILL");
}

/// Example G15: at the deadline the order ends.
#[test]
fn a_main_that_eats_the_budget_leaves_two_seconds_to_all_sidecars_together() {
    given_pod()
        .sidecar("s1", IgnoresTerm)
        .sidecar("s2", exits_on_term(secs(1)))
        .container("main", IgnoresTerm)
        .when_deleted(secs(30))
        .then_golden(TIMELINES, "main_eats_the_budget")
        .then_exit("s2", 0, "Completed")
        .then_phase(PodPhase::Failed);
}

/// [NT-94] and example G16: hooks are not ordered.
#[test]
fn all_hooks_start_at_once() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(12)))
        .sidecar("s2", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(1)))
        .container("main", exits_on_term(secs(3)))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "run preStop of s1")
        .then_at(secs(0), "run preStop of s2")
        .then_at(secs(3), "TERM to s2")
        .then_at(secs(12), "TERM to s1")
        .then_events(1, "StopSignalSent", "Sent SIGTERM to container s1, 18s before SIGKILL");
}

/// Example G20: a pod that is done lets its sidecars go the same way.
#[test]
fn a_completed_pod_stops_its_sidecars() {
    given_pod()
        .restart(RestartPolicy::OnFailure)
        .sidecar("s1", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(3)))
        .sidecar("s2", exits_on_term(secs(5)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .container("main", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .then_golden(TIMELINES, "completed_pod_stops_its_sidecars")
        .then_exit("s1", 137, "Error")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-93]: hooks that never end live until the deadline, and the containers end together.
#[test]
fn endless_hooks_of_sidecars_end_together() {
    given_pod()
        .sidecar("s1", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .sidecar("s2", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .sidecar("s3", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(32), "KILL to s1")
        .then_at(secs(32), "KILL to s2")
        .then_at(secs(32), "KILL to s3")
        .then_exit("s1", 137, "Error")
        .then_exit("s3", 137, "Error")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-95]: a pod that never got past its first init container waits for nobody else.
#[test]
fn a_pod_deleted_during_initialization_does_not_hang() {
    given_pod()
        .init("setup", IgnoresTerm)
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(3))
        .told()
        .then_at(secs(0), "TERM to setup")
        .then_at(secs(3), "KILL to setup")
        .then_never("start proxy")
        .then_finished_by(secs(5))
        .then_phase(PodPhase::Failed);
}

/// [NT-96]: a sidecar does not wait for one that never started.
#[test]
fn a_started_sidecar_does_not_wait_for_an_unstarted_one() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .sidecar("s2", exits_on_term(secs(1)))
        .image(testkit::ImageScript::Takes(secs(600)))
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(60))
        .told()
        .then_at(secs(0), "TERM to s1")
        .then_at(secs(0), "cancel pull of s2")
        .then_finished_by(millis(1_010));
}

/// [NT-97]: exit codes of sidecars do not count, however they came about.
#[test]
fn a_failing_sidecar_does_not_fail_its_pod() {
    given_pod()
        .sidecar("s1", fails_on_term(secs(1), 7))
        .sidecar("s2", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::FailsAfter(secs(1)))
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(5))
        .told()
        .then_exit("s1", 7, "Error")
        .then_exit("s2", 137, "Error")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-98]: a main that overruns is what fails the pod.
#[test]
fn a_main_that_overruns_fails_its_pod() {
    given_pod()
        .grace(secs(5))
        .sidecar("quick", exits_on_term(secs(1)))
        .sidecar("slow", exits_on_term(secs(20)))
        .container("main", exits_on_term(secs(20)))
        .when_deleted(secs(5))
        .told()
        .then_exit("main", 137, "Error")
        .then_exit("slow", 137, "Error")
        .then_exit("quick", 0, "Completed")
        .then_phase(PodPhase::Failed);
}

/// [NT-99]: a sidecar that overruns does not.
#[test]
fn a_sidecar_that_overruns_does_not_fail_its_pod() {
    given_pod()
        .sidecar("slow", exits_on_term(secs(20)))
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(5))
        .told()
        .then_exit("slow", 137, "Error")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-100]: a main whose hook overruns does.
#[test]
fn a_main_whose_hook_overruns_fails_its_pod() {
    given_pod()
        .sidecar("quick", exits_on_term(secs(1)))
        .sidecar("slow", exits_on_term(secs(20)))
        .container("main", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(5))
        .told()
        .then_exit("main", 137, "Error")
        .then_exit("slow", 137, "Error")
        .then_exit("quick", 0, "Completed")
        .then_phase(PodPhase::Failed);
}

/// [NT-101]: only the sidecar whose own hook overruns is killed.
#[test]
fn a_sidecar_whose_hook_overruns_is_killed_alone() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .sidecar("s2", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(5))
        .told()
        .then_exit("s1", 0, "Completed")
        .then_exit("s2", 137, "Error")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-102]: nobody waits for its turn longer than the grace.
#[test]
fn a_turn_is_not_waited_for_beyond_the_grace() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .sidecar("s2", exits_on_term(secs(1)))
        .sidecar("s3", exits_on_term(secs(9)))
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(2))
        .told()
        .then_at(secs(1), "TERM to s3")
        .then_at(secs(2), "TERM to s2")
        .then_at(secs(2), "TERM to s1")
        .then_at(secs(3), "KILL to s3");
}

/// [NT-105]: an ephemeral container is asked with the mains, and no sidecar waits for it.
#[test]
fn an_ephemeral_container_is_not_ordered() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .container("main", exits_on_term(secs(2)))
        .ephemeral("debug", IgnoresTerm)
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "TERM to debug")
        .then_at(secs(0), "TERM to main")
        .then_at(secs(2), "TERM to s1")
        .then_at(secs(30), "KILL to debug")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-106]: a sidecar outlives a running init container it serves.
#[test]
fn a_sidecar_leaves_after_a_running_init_container() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .init("setup", exits_on_term(secs(4)))
        .container("main", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "TERM to setup")
        .then_at(secs(4), "TERM to s1");
}

/// [NT-106]: a sidecar that is down in the middle does not break the order of the others.
#[test]
fn a_gap_in_the_sidecars_does_not_break_their_order() {
    given_pod()
        .sidecar("s1", exits_on_term(secs(1)))
        .sidecar("s2", Script::ExitsAnyway { after: secs(3), code: 1, on_term: 0 })
        .sidecar("s3", exits_on_term(secs(2)))
        .container("main", exits_on_term(secs(1)))
        .when_left_alone()
        // By then s2 has crashed twice and waits for its back-off.
        .deleted_at(secs(7), secs(30))
        .told()
        .then_never("TERM to s2")
        .then_never("TERM to s2#1")
        .then_at(secs(8), "TERM to s3")
        .then_at(secs(10), "TERM to s1");
}
