//! What survives the death of the agent: node-termination 9.2 and 11 J.

use lifecycle::{ContainerState, Hook, Input, KillCause, PodPhase, Probe, RestartPolicy};
use testkit::{HookScript, ImageScript, Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/timelines");

/// [NT-146]: the deadline is the original one.
#[test]
fn the_deadline_survives() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(60))
        .agent_away(secs(29), secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 60s
             0.000    -> TERM to app
            29.000  agent dies
            30.000  agent is back
            60.000  grace budget spent
            60.000    -> KILL to app
            60.001  app exited 137
            60.001    -> remove sandbox
            60.002  sandbox removed
            60.002    -> delete object
            60.003  object deleted
            60.003    -> finish
        ",
        )
        .then_events(1, "Killing", "Stopping container app");
}

/// Example G19: a deadline that passed meanwhile is kept at once.
#[test]
fn a_deadline_that_passed_while_away_is_kept_at_once() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(30))
        .agent_away(secs(20), secs(45))
        .told()
        .then_at(secs(45), "KILL to app");
}

/// [NT-147]: a hook that ended while the agent was away is not run again.
#[test]
fn a_hook_that_ended_meanwhile_counts() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(10)))
        .when_deleted(secs(60))
        .agent_away(secs(5), secs(20))
        .told()
        .then_at(secs(0), "run preStop of app")
        .then_at(secs(20), "TERM to app")
        .then_at(secs(60), "KILL to app");
}

/// [NT-147]: one that still runs is awaited, not started again.
#[test]
fn a_hook_that_still_runs_is_awaited() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(30)))
        .when_deleted(secs(60))
        .agent_away(secs(5), secs(20))
        .then_golden(TIMELINES, "agent_dies_during_a_hook");
}

/// [NT-147]: one that completed before stays completed, and a signal that was answered is not sent again.
#[test]
fn a_completed_hook_and_an_answered_signal_are_not_repeated() {
    given_pod()
        .container("app", exits_on_term(secs(20)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_deleted(secs(60))
        .agent_away(secs(5), secs(10))
        .agent_away(secs(11), secs(12))
        .told()
        .then_at(secs(0), "run preStop of app")
        .then_at(secs(2), "TERM to app")
        .then_finished_by(millis(22_010));
}

/// [NT-147]: a request that was under way is sent again.
#[test]
fn a_request_in_flight_is_sent_again() {
    let story = given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::HttpGet, HookScript::Takes(secs(10)))
        .when_deleted(secs(60))
        .agent_away(secs(5), secs(6))
        .told();
    assert_eq!(story.timeline().matches("run preStop of app").count(), 2);
    story.then_at(secs(10), "TERM to app");
}

/// Node-termination 4.1: a sleep goes on from its recorded start.
#[test]
fn a_sleep_goes_on_from_its_start() {
    given_pod()
        .grace(secs(100))
        .container("app", exits_on_term(secs(1)))
        .pre_stop_sleep(secs(50))
        .when_deleted(secs(100))
        .agent_away(secs(10), secs(30))
        .told()
        .then_at(secs(50), "sleep hook of app ends")
        .then_at(secs(50), "TERM to app");
    given_pod()
        .grace(secs(100))
        .container("app", exits_on_term(secs(1)))
        .pre_stop_sleep(secs(50))
        .when_deleted(secs(100))
        .agent_away(secs(10), secs(70))
        .told()
        .then_at(secs(70), "TERM to app");
}

/// A hook that was written down but never started is started.
#[test]
fn a_hook_that_was_never_started_is_started() {
    let story = given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_deleted(secs(60))
        .agent_dies_before("run preStop of app", secs(3))
        .told();
    story.then_at(secs(3), "run preStop of app").then_at(secs(5), "TERM to app");
}

/// But not when its time is over: it would only be begun to be ended.
#[test]
fn a_hook_that_was_never_started_is_not_started_past_the_deadline() {
    let story = given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_deleted(secs(60))
        .agent_dies_before("run preStop of app", secs(70))
        .told();
    story.then_never("run preStop of app").then_at(secs(70), "TERM to app");
}

/// A signal that was written down but not answered is sent again, and its two seconds count from then.
#[test]
fn a_signal_that_was_not_answered_is_sent_again() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(1))
        .agent_dies_before("TERM to app", secs(5))
        .told()
        .then_at(secs(5), "TERM to app")
        .then_at(secs(7), "KILL to app");
}

/// One that was sent and not answered is asked for again and not sent again: its notice counts from when it was sent, so that
/// the KILL is not a moment later than without the crash, and people are told once, in the same words.
#[test]
fn a_signal_that_was_sent_before_grants_nothing_more() {
    for (back_after, killed_at) in [(millis(50), secs(3)), (secs(2), secs(3)), (secs(5), secs(5))] {
        given_pod()
            .container("app", IgnoresTerm)
            .when_deleted(secs(3))
            .agent_dies_after("TERM to app", back_after)
            .told()
            .then_times(2, "TERM to app")
            .then_at(killed_at, "KILL to app")
            .then_events(1, "StopSignalSent", "Sent SIGTERM to container app, 3s before SIGKILL");
    }
    // Two seconds of notice are its due, and those were granted before the crash.
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(1))
        .agent_dies_after("TERM to app", millis(1_500))
        .told()
        .then_at(secs(2), "KILL to app");
}

/// However often the agent dies over it.
#[test]
fn a_signal_that_was_sent_before_two_crashes_counts_from_then() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(4))
        .agent_dies_after("TERM to app", secs(1))
        .agent_away(secs(1), secs(3))
        .told()
        .then_at(secs(4), "KILL to app")
        .then_events(1, "StopSignalSent", "Sent SIGTERM to container app, 4s before SIGKILL");
}

/// [NT-149]: an exit that happened meanwhile is reported as it was.
#[test]
fn an_exit_while_away_is_told_truly() {
    let story = given_pod()
        .container("app", Script::ExitsOnTerm { after: secs(3), code: 3 })
        .when_deleted(secs(30))
        .agent_away(secs(1), secs(10))
        .told()
        .then_exit("app", 3, "Error");
    let ContainerState::Terminated(ended) = story.container("app").state else { panic!("it ended") };
    let exit = ended.exit.expect("its exit was recorded");
    assert_eq!(exit.wall.0 - ended.started.expect("it had started").0, 3_000);
    story.then_finished_by(millis(10_010));
}

/// [NT-144]: a pod that runs is not touched.
#[test]
fn a_running_pod_is_untouched() {
    given_pod()
        .init("setup", Script::ExitsByItself { after: secs(1), code: 0 })
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .agent_away(secs(10), secs(20))
        .told()
        .then_at(secs(0), "start setup")
        .then_at(secs(1), "start proxy")
        .then_at(secs(1), "start app")
        .then_status_at(secs(20), |status| {
            assert!(status.ready.holds && status.initialized.holds);
            assert!(status.containers.iter().all(|container| container.attempt == 0));
        });
}

/// [NT-114]: readiness does not flap.
#[test]
fn readiness_survives() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .readiness_probe()
        .when_left_alone()
        .probe_at(secs(2), "app", Probe::Readiness, true)
        .agent_away(secs(10), secs(20))
        .told()
        .then_status_at(secs(1), |status| assert!(!status.ready.holds))
        .then_status_at(secs(20), |status| assert!(status.ready.holds));
}

/// [NT-140]: a pod that is done is not run again.
#[test]
fn a_completed_pod_is_not_run_again() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .agent_away(secs(10), secs(20))
        .told()
        .then_never("start app#1")
        .then_never("delete object")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-141]: a final delete that was not done is done.
#[test]
fn an_unanswered_delete_is_asked_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .agent_dies_before("delete object", secs(4))
        .told()
        .then_at(millis(5_001), "delete object")
        .then_finished_by(millis(5_010))
        .then_phase(PodPhase::Succeeded);
}

/// A removal that was not done is done.
#[test]
fn an_unanswered_removal_is_asked_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .agent_dies_before("remove sandbox", secs(4))
        .told()
        .then_at(secs(5), "remove sandbox")
        .then_finished_by(millis(5_010));
}

/// [NT-148]: a kill by the node is not forgotten.
#[test]
fn an_eviction_completes() {
    given_pod()
        .container("app", exits_on_term(secs(8)))
        .when_killed(KillCause::Evicted { message: "low on memory".into() }, Some(secs(30)))
        .agent_away(secs(2), secs(5))
        .told()
        .then_phase(PodPhase::Failed)
        .then_reason(Some("Evicted"))
        .then_never("delete object");
}

/// Node-termination 3.5: a deletion that happened while the agent was away ends when its timestamp says.
#[test]
fn a_deletion_found_afterwards_has_what_is_left() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_left_alone()
        .agent_away(secs(10), secs(30))
        .deleted_at(secs(15), secs(60))
        .told()
        .then_at(secs(30), "TERM to app")
        .then_at(secs(75), "KILL to app");
    given_pod()
        .container("app", IgnoresTerm)
        .when_left_alone()
        .agent_away(secs(10), secs(30))
        .deleted_at(secs(15), secs(5))
        .told()
        .then_at(secs(30), "TERM to app")
        .then_at(secs(32), "KILL to app");
}

/// A second delete while the agent was away is heard, too; the same one found again changes nothing.
#[test]
fn a_shrink_while_away_is_heard() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(300))
        .agent_away(secs(10), secs(30))
        .deleted_at(secs(15), secs(40))
        .told()
        .then_at(secs(40), "KILL to app");
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(60))
        .agent_away(secs(10), secs(30))
        .deleted_at(secs(15), secs(60))
        .told()
        .then_at(secs(60), "KILL to app");
}

/// [NT-37]: a pod force-deleted while the agent was away has its second, hooks included.
#[test]
fn a_pod_forced_while_away_has_its_second() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_left_alone()
        .agent_away(secs(10), secs(30))
        .forced_at(secs(15))
        .told()
        .then_at(secs(30), "run preStop of app")
        .then_at(secs(31), "TERM to app")
        .then_at(secs(33), "KILL to app")
        .then_never("delete object");
}

/// Starts and pulls that were written down but not answered are asked again.
#[test]
fn unanswered_start_or_pull_is_asked_again_after_an_agent_restart() {
    for text in ["create sandbox", "pull image of app", "start app"] {
        let story = given_pod()
            .container("app", exits_on_term(secs(1)))
            .when_left_alone()
            .agent_dies_before(text, secs(5))
            .told();
        assert!(story.status().ready.holds, "after dying before `{text}`:\n{}", story.timeline());
        story.then_at(secs(5), "app started");
    }
}

/// A start that the runtime carried through while the agent was away is taken over.
#[test]
fn a_start_that_came_through_is_taken_over() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .post_start(Hook::Exec, HookScript::Takes(secs(1)))
        .start_takes(secs(2))
        .when_left_alone()
        .agent_away(secs(1), secs(5))
        .told()
        .then_at(secs(0), "start app")
        .then_at(secs(5), "run postStart of app")
        .then_status_at(secs(6), |status| assert!(status.ready.holds));
}

/// The same for a pod that is leaving: it is stopped, and nothing of it is begun.
#[test]
fn a_start_that_came_through_is_stopped_when_leaving() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .post_start(Hook::Exec, HookScript::Takes(secs(1)))
        .start_takes(secs(2))
        .when_deleted(secs(30))
        .agent_away(secs(1), secs(5))
        .told()
        .then_never("run postStart of app")
        .then_at(secs(5), "TERM to app")
        .then_finished_by(millis(6_010));
}

/// A start that was never carried out, of a pod that is leaving, is not carried out.
#[test]
fn a_start_that_never_happened_is_forgotten_when_leaving() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .start_takes(secs(10))
        .when_deleted(secs(30))
        .agent_away(secs(2), secs(5))
        .sandbox_lost_at(secs(3))
        .told()
        .then_at(secs(0), "start app")
        .then_never("app started")
        .then_exit("app", 137, "ContainerStatusUnknown")
        .then_finished_by(millis(5_010));
}

/// [NT-145] [NT-121]: a lost sandbox is made anew, and the pod starts over from its first init container.
#[test]
fn a_lost_sandbox_is_replaced() {
    given_pod()
        .init("setup", Script::ExitsByItself { after: secs(1), code: 0 })
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .agent_away(secs(10), secs(20))
        .sandbox_lost_at(secs(15))
        .then_golden(TIMELINES, "lost_sandbox_is_replaced")
        .then_exit_of_last_run("app", 137)
        .then_status_at(secs(20), |status| {
            let last = status.containers[2].last.as_ref().expect("its first run is remembered");
            assert_eq!(last.reason, "ContainerStatusUnknown");
        })
        .then_status_at(secs(30), |status| assert!(status.ready.holds));
}

/// A pod whose policy forbids another run fails instead.
#[test]
fn a_lost_sandbox_fails_a_pod_that_may_not_restart() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .agent_away(secs(10), secs(20))
        .sandbox_lost_at(secs(15))
        .told()
        .then_never("start app#1")
        .then_phase(PodPhase::Failed)
        .then_exit("app", 137, "ContainerStatusUnknown");
}

/// [NT-121]: a container that cannot be found when its pod is terminated; its pod is over only when the rest is gone.
#[test]
fn a_lost_container_of_a_leaving_pod() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .sandbox_removal_fails(1)
        .when_deleted(secs(30))
        .agent_away(secs(5), secs(10))
        .sandbox_lost_at(secs(7))
        .told()
        .then_exit("app", 137, "ContainerStatusUnknown")
        .then_status_at(secs(10), |status| assert_eq!(status.phase, PodPhase::Running))
        .then_phase(PodPhase::Failed)
        .then_finished_by(millis(10_210));
}

/// A pull that nobody waits for is not taken up again.
#[test]
fn a_leaving_pod_pulls_nothing_after_a_restart() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(600)))
        .when_deleted(secs(30))
        .agent_dies_before("cancel pull of app", secs(5))
        .told()
        .then_at(secs(0), "pull image of app")
        .then_finished_by(millis(5_010));
}

/// A postStart sleep goes on from its start, and those who wait for it begin when it is over.
#[test]
fn a_post_start_sleep_goes_on_from_its_start() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .post_start(Hook::Sleep(secs(5)), HookScript::NeverEnds)
        .container("web", exits_on_term(secs(1)))
        .when_left_alone()
        .agent_away(secs(1), secs(3))
        .deleted_at(secs(9), secs(30))
        .told()
        .then_times(1, "run postStart of app")
        .then_status_at(secs(4), |status| assert!(!status.containers[0].started))
        .then_at(secs(5), "sleep hook of app ends")
        .then_at(secs(5), "start web")
        .then_status_at(secs(6), |status| assert!(status.containers[0].started && status.ready.holds));
}

/// How a container ended that was taken for lost is told when it turns up; what was seen is never corrected.
#[test]
fn an_exit_that_turns_up_late_replaces_a_guess_and_nothing_else() {
    let name = || lifecycle::ContainerName("app".into());
    let app = || lifecycle::Instance { name: name(), attempt: 0 };
    let exited = |code, seen| Input::Exited {
        instance: app(),
        exit: lifecycle::Exit { code, signal: None, oom: false, wall: lifecycle::Wall(7), seen },
    };
    let shown = |inputs: Vec<Input>| {
        let mut pod = lifecycle::PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
        let image = Input::ImageReady { container: name(), edition: 0, stop_signal: None };
        let started = Input::Started { instance: app(), wall: lifecycle::Wall(3) };
        let up = [Input::Begin, Input::SandboxReady, image, started, Input::ObjectGone];
        for input in up.into_iter().chain(inputs) {
            pod.handle(lifecycle::Moment::from_millis(1), input);
        }
        match pod.status().containers.remove(0).state {
            ContainerState::Terminated(ended) => (ended.exit_code, ended.reason, ended.started),
            other @ (ContainerState::Running { .. } | ContainerState::Waiting(_)) => panic!("{other:?}"),
        }
    };
    let lost = || Input::AgentRestarted { report: lifecycle::RuntimeReport::default() };
    let since = Some(lifecycle::Wall(3));
    assert_eq!(shown(vec![lost()]), (137, "ContainerStatusUnknown".into(), since));
    assert_eq!(shown(vec![lost(), exited(4, true)]), (4, "Error".into(), since));
    assert_eq!(shown(vec![lost(), exited(4, false)]), (137, "ContainerStatusUnknown".into(), since));
    assert_eq!(shown(vec![lost(), exited(4, true), exited(5, true)]), (4, "Error".into(), since));
    assert_eq!(shown(vec![exited(0, true), exited(5, true)]), (0, "Completed".into(), since));
    // An exit that was only inferred is a guess, too.
    assert_eq!(shown(vec![exited(0, false)]), (137, "ContainerStatusUnknown".into(), since));
    assert_eq!(shown(vec![exited(0, false), exited(5, true)]), (5, "Error".into(), since));
}
