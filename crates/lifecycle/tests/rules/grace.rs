//! The worked examples of node-termination 3.7, and the grace rules behind them.

use lifecycle::{Hook, KillCause, PodPhase, Signal};
use testkit::{HookScript, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

/// [NT-41] and example G1.
#[test]
fn a_container_that_heeds_term_leaves_when_it_is_done() {
    given_pod()
        .container("app", exits_on_term(secs(4)))
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             0.000    -> TERM to app
             4.000  app exited 0
             4.000    -> remove sandbox
             4.001  sandbox removed
             4.001    -> delete object
             4.002  object deleted
             4.002    -> finish
        ",
        )
        .then_phase(PodPhase::Succeeded)
        .then_exit("app", 0, "Completed");
}

/// [NT-42] [NT-48] and example G2.
#[test]
fn a_container_that_ignores_term_is_killed_when_the_budget_is_spent() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             0.000    -> TERM to app
            30.000  grace budget spent
            30.000    -> KILL to app
            30.001  app exited 137
            30.001    -> remove sandbox
            30.002  sandbox removed
            30.002    -> delete object
            30.003  object deleted
            30.003    -> finish
        ",
        )
        .then_phase(PodPhase::Failed)
        .then_exit("app", 137, "Error");
}

/// Example G3: a hook is charged to the budget to the millisecond.
#[test]
fn a_hook_is_charged_to_the_grace() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(millis(10_700)))
        .when_deleted(secs(30))
        .told()
        .then_at(millis(10_700), "TERM to app")
        .then_at(secs(30), "KILL to app")
        .then_no_event("FailedPreStopHook")
        .then_events(1, "StopSignalSent", "Sent SIGTERM to container app, 19.3s before SIGKILL")
        .then_events(1, "KillSent", "Sent SIGKILL to container app: it did not exit in time");
}

/// [NT-43] [NT-85] and example G4.
#[test]
fn a_hook_that_never_ends_is_given_up_at_the_deadline() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             0.000    -> run preStop of app
            30.000  grace budget spent
            30.000    -> cancel preStop of app
            30.000    -> TERM to app
            32.000  app had its two seconds
            32.000    -> KILL to app
            32.001  app exited 137
            32.001    -> remove sandbox
            32.002  sandbox removed
            32.002    -> delete object
            32.003  object deleted
            32.003    -> finish
        ",
        )
        .then_events(1, "FailedPreStopHook", "PreStopHook timed out: it was still running when the grace period ended")
        .then_no_event("TerminationOverdue");
}

/// [NT-69] and example G5: the grace of the delete wins over the spec's.
#[test]
fn a_shorter_delete_cuts_a_sleep_short() {
    given_pod()
        .grace(secs(100))
        .container("app", IgnoresTerm)
        .pre_stop_sleep(secs(50))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(30), "TERM to app")
        .then_at(secs(32), "KILL to app");
}

/// [NT-68] and example G6.
#[test]
fn a_sleep_that_fits_is_slept() {
    given_pod()
        .grace(secs(100))
        .container("app", IgnoresTerm)
        .pre_stop_sleep(secs(50))
        .when_deleted(secs(100))
        .told()
        .then_at(secs(50), "TERM to app")
        .then_at(secs(100), "KILL to app");
}

/// [NT-56] and example G7: the object is gone first, the processes two seconds later.
#[test]
fn a_forced_pod_has_two_seconds() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_forced()
        .told()
        .then_at(secs(0), "TERM to app")
        .then_at(secs(2), "KILL to app")
        .then_never("delete object")
        .then_finished_by(millis(2_010));
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(0))
        .forced_at(millis(1))
        .told()
        .then_at(secs(2), "KILL to app")
        .then_never("delete object");
}

/// [NT-57] and example G8.
#[test]
fn a_forced_pod_gives_its_hook_one_second() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop_sleep(secs(5))
        .when_forced()
        .told()
        .then_at(secs(1), "cancel preStop of app")
        .then_at(secs(1), "TERM to app")
        .then_at(secs(3), "KILL to app");
}

/// Examples G9 and G12: an override of the node is counted from its own request.
#[test]
fn the_node_may_override_the_grace() {
    let evicted = || KillCause::Evicted { message: "The node was low on resource: memory. ".into() };
    given_pod()
        .grace(secs(600))
        .container("app", IgnoresTerm)
        .when_killed(evicted(), Some(secs(1)))
        .told()
        .then_at(secs(2), "KILL to app");
    given_pod()
        .grace(secs(120))
        .container("app", IgnoresTerm)
        .when_killed(KillCause::NodeShutdown, Some(secs(20)))
        .told()
        .then_at(secs(20), "KILL to app");
    given_pod()
        .grace(secs(7))
        .container("app", IgnoresTerm)
        .when_killed(KillCause::Preempted, None)
        .told()
        .then_at(secs(7), "KILL to app");
}

/// [NT-164]: a deletion with time left is hurried by an eviction, at once.
#[test]
fn an_eviction_hurries_a_deletion() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(300))
        .killed_at(secs(100), KillCause::Evicted { message: "full".into() }, Some(secs(1)))
        .told()
        .then_at(secs(101), "KILL to app")
        .then_reason(None);
}

/// [NT-23] and example G17: the second request counts from the first, but leaves a second.
#[test]
fn a_second_shorter_delete_takes_effect_at_once() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(300))
        .deleted_at(secs(20), secs(10))
        .told()
        .then_at(secs(21), "KILL to app");
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(300))
        .deleted_at(secs(20), secs(60))
        .told()
        .then_at(secs(60), "KILL to app");
}

/// [NT-23]: a shrink in the middle of a hook ends the hook, and the container still has its two seconds.
#[test]
fn a_shrink_reaches_a_running_hook() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(300))
        .deleted_at(secs(20), secs(1))
        .told()
        .then_at(secs(21), "cancel preStop of app")
        .then_at(secs(21), "TERM to app")
        .then_at(secs(23), "KILL to app");
}

/// [NT-24]: a longer grace is ignored.
#[test]
fn a_longer_delete_changes_nothing() {
    given_pod().container("app", IgnoresTerm).when_deleted(secs(10)).deleted_at(secs(3), secs(60)).then_timeline(
        "
             0.000  delete requested, grace 10s
             0.000    -> TERM to app
             3.000  delete requested, grace 60s
            10.000  grace budget spent
            10.000    -> KILL to app
            10.001  app exited 137
            10.001    -> remove sandbox
            10.002  sandbox removed
            10.002    -> delete object
            10.003  object deleted
            10.003    -> finish
        ",
    );
}

/// Example G18.
#[test]
fn a_force_delete_hurries_a_deletion() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(60))
        .forced_at(secs(5))
        .told()
        .then_at(secs(6), "KILL to app")
        .then_never("delete object")
        .then_finished_by(millis(6_010));
}

/// [NT-46] and example G22: no grace is shorter than a second, no notice shorter than two.
#[test]
fn a_grace_of_one_kills_after_two() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(1))
        .told()
        .then_at(secs(2), "KILL to app")
        .then_exit("app", 137, "Error")
        .then_phase(PodPhase::Failed);
}

/// [NT-15]: the cases of node-termination 3.3 (S is the spec's grace, D the deletion's, O an override).
#[test]
fn the_smallest_grace_present_counts() {
    let pod = || given_pod().grace(secs(30)).container("app", IgnoresTerm).pre_stop(Hook::Exec, HookScript::NeverEnds);
    let by = |seconds: u64, story: testkit::When| story.told().then_at(secs(seconds), "cancel preStop of app");
    let preempted = KillCause::Preempted;
    by(30, pod().when_killed(preempted.clone(), None)); // S30
    by(5, pod().when_deleted(secs(5))); // S30 D5
    by(2, pod().when_deleted(secs(5)).killed_at(secs(0), preempted.clone(), Some(secs(2)))); // S30 D5 O2
    by(1, pod().when_deleted(secs(0))); // S30 D0
    by(1, pod().when_deleted(secs(5)).killed_at(secs(0), preempted.clone(), Some(secs(0)))); // S30 D5 O0
    by(1, pod().when_deleted(secs(0)).killed_at(secs(0), preempted, Some(secs(30)))); // D0 O30
    by(60, pod().when_deleted(secs(60))); // D may exceed S
}

/// [NT-88] and node-termination 5.1: the spec's signal, else the image's, else TERM.
#[test]
fn the_stop_signal_is_the_one_that_was_asked_for() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .image_stop_signal(Signal(3))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "QUIT to app")
        .then_events(1, "StopSignalSent", "Sent SIGQUIT to container app, 30s before SIGKILL");
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .image_stop_signal(Signal(3))
        .stop_signal(Signal(37))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "RTMIN+3 to app");
}

/// Node-termination 9.5: a delete that comes after a kill counts from its own request.
#[test]
fn a_delete_joins_a_kill_with_its_own_clock() {
    given_pod()
        .grace(secs(100))
        .container("app", IgnoresTerm)
        .when_killed(KillCause::NodeShutdown, None)
        .deleted_at(secs(50), secs(20))
        .deleted_at(secs(60), secs(15))
        .told()
        .then_at(secs(65), "KILL to app")
        .then_reason(Some("Terminated"))
        .then_finished_by(millis(65_010));
}

/// A pod that is stuck says so, once, and names what it waits for.
#[test]
fn an_overdue_pod_names_the_blocking_step() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .sandbox_removal_fails(7)
        .when_deleted(secs(2))
        .told()
        .then_at(secs(5), "termination overdue")
        .then_events(1, "TerminationOverdue", "Pod should have been gone 3s ago, but its sandbox could not be removed");
}
