//! Lifecycle hooks: node-termination 4.

use lifecycle::{
    ContainerName, ContainerSpec, ContainerState, DeleteSighting, Delivery, Effect, Hook, Input, Instance, Moment,
    PodPhase, PodSpec, PodWorker, Probe, RestartPolicy, Role, Signal, Wall,
};
use testkit::{HookScript, Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/timelines");

/// [NT-83]: a sleep is over when there is nobody left to sleep for.
#[test]
fn a_container_that_exits_during_its_sleep_ends_the_sleep() {
    given_pod()
        .grace(secs(100))
        .container("app", Script::ExitsByItself { after: secs(2), code: 0 })
        .pre_stop_sleep(secs(50))
        .when_deleted(secs(100))
        .then_timeline(
            "
             0.000  delete requested, grace 100s
             0.000    -> run preStop of app
             2.000  app exited 0
             2.000    -> cancel preStop of app
             2.000    -> remove sandbox
             2.001  sandbox removed
             2.001    -> delete object
             2.002  object deleted
             2.002    -> finish
        ",
        )
        .then_no_event("FailedPreStopHook")
        .then_phase(PodPhase::Succeeded);
}

/// [NT-84]: a hook that ends its container did its work.
#[test]
fn a_hook_that_stops_its_container_is_not_a_failure() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::EndsItsContainer(secs(3)))
        .when_deleted(secs(30))
        .told()
        .then_no_event("FailedPreStopHook")
        .then_never("TERM to app")
        .then_exit("app", 0, "Completed")
        .then_finished_by(millis(3_010));
}

/// [NT-74]: a hook that fails is told of, and the stop goes on.
#[test]
fn a_failing_hook_does_not_prevent_the_stop() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::FailsAfter(millis(300)))
        .when_deleted(secs(30))
        .told()
        .then_events(1, "FailedPreStopHook", "PreStopHook failed: exit 1")
        .then_at(millis(300), "TERM to app")
        .then_finished_by(millis(1_310));
}

/// [NT-63]: preStop runs before the stop signal, and only once.
#[test]
fn a_hook_runs_before_the_stop_signal() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "run preStop of app")
        .then_at(secs(2), "TERM to app");
}

/// [NT-70]: a container that left by itself is not asked to prepare for leaving.
#[test]
fn a_container_that_is_gone_has_no_hook() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .pre_stop_sleep(secs(20))
        .container("other", exits_on_term(secs(0)))
        .when_left_alone()
        .deleted_at(secs(5), secs(30))
        .told()
        .then_never("run preStop of app")
        .then_events(0, "Killing", "Stopping container app")
        .then_events(1, "Killing", "Stopping container other");
}

/// [NT-71]: a sleep of nothing takes no time.
#[test]
fn a_sleep_of_zero_is_no_delay() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop_sleep(secs(0))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "TERM to app");
}

/// [NT-60]: a hanging postStart does not delay the end.
#[test]
fn a_delete_cancels_a_hanging_post_start() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .post_start(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             0.000    -> cancel postStart of app
             0.000    -> TERM to app
             1.000  app exited 0
             1.000    -> remove sandbox
             1.001  sandbox removed
             1.001    -> delete object
             1.002  object deleted
             1.002    -> finish
        ",
        )
        .then_no_event("FailedPostStartHook");
}

/// [NT-79]: the second container starts after the hook of the first.
#[test]
fn a_post_start_hook_holds_back_the_next_container() {
    given_pod()
        .container("first", IgnoresTerm)
        .post_start(Hook::Exec, HookScript::Takes(secs(4)))
        .container("second", IgnoresTerm)
        .when_left_alone()
        .told()
        .then_at(secs(0), "run postStart of first")
        .then_at(secs(4), "start second")
        .then_status_at(secs(1), |status| {
            assert!(matches!(status.containers[0].state, ContainerState::Running { .. }));
            assert!(!status.containers[0].started && !status.containers[0].ready);
            assert_eq!(status.phase, PodPhase::Pending);
        })
        .then_status_at(secs(4), |status| {
            assert!(status.containers[0].started && status.ready.holds);
            assert_eq!(status.phase, PodPhase::Running);
        });
}

/// [NT-80]: a failed postStart ends the container, which is restarted with back-off.
#[test]
fn a_failed_post_start_ends_the_container() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .post_start(Hook::Exec, HookScript::FailsAfter(secs(1)))
        .when_left_alone()
        .deleted_at(secs(9), secs(1))
        .told()
        .then_at(secs(1), "run preStop of app")
        .then_at(secs(3), "TERM to app")
        .then_at(secs(4), "start app#1")
        .then_events(2, "FailedPostStartHook", "PostStartHook failed: exit 1")
        .then_events(2, "Killing", "FailedPostStartHook")
        .then_events(1, "BackOff", "Back-off restarting failed container app in pod web_default(uid-1)")
        .then_status_at(millis(8_500), |status| {
            assert_eq!(waits_for(&status.containers[0].state), ("PostStartHookError", Some("exit 1: secret")));
        });
}

/// What a failed postStart hook said is shown as itself, then as the back-off that it leads to.
#[test]
fn a_post_start_that_fails_again_backs_off() {
    let message =
        "back-off 10s restarting failed container=app pod=web_default(uid-1): PostStartHookError: exit 1: secret";
    given_pod()
        .container("app", exits_on_term(secs(0)))
        .post_start(Hook::Exec, HookScript::FailsAfter(secs(1)))
        .when_left_alone()
        .deleted_at(secs(9), secs(1))
        .told()
        .then_at(secs(1), "start app#1")
        .then_status_at(millis(2_500), |status| {
            assert_eq!(waits_for(&status.containers[0].state), ("PostStartHookError", Some("exit 1: secret")));
        })
        .then_status_at(millis(3_500), |status| {
            assert_eq!(waits_for(&status.containers[0].state), ("CrashLoopBackOff", Some(message)));
        });
}

/// A container whose postStart hook was cut short, or failed, never came up: it is not ready for its last moments.
#[test]
fn a_container_that_never_came_up_is_not_ready_when_it_leaves() {
    let unready = |status: &lifecycle::PodStatus| {
        assert!(matches!(status.containers[0].state, ContainerState::Running { .. }));
        assert!(!status.containers[0].started && !status.containers[0].ready && !status.ready.holds, "{status:?}");
    };
    given_pod()
        .container("app", exits_on_term(secs(5)))
        .post_start(Hook::Exec, HookScript::Takes(secs(60)))
        .when_left_alone()
        .deleted_at(secs(2), secs(30))
        .told()
        .then_status_at(secs(1), unready)
        .then_status_at(secs(4), unready);
    given_pod()
        .container("app", exits_on_term(secs(5)))
        .post_start(Hook::Exec, HookScript::FailsAfter(secs(1)))
        .when_left_alone()
        .deleted_at(secs(20), secs(1))
        .told()
        .then_status_at(secs(3), unready);
}

/// A signal that nobody was left to take was not sent.
#[test]
fn stop_signal_event_is_emitted_only_after_delivery() {
    let app = Instance { name: ContainerName("app".into()), attempt: 0 };
    let told = |delivery| {
        let mut pod = PodWorker::new(PodSpec::new(vec![ContainerSpec::new("app", Role::Main)]));
        let up = [
            Input::Begin,
            Input::SandboxReady,
            Input::ImageReady { container: app.name.clone(), edition: 0, stop_signal: None },
            Input::Started { instance: app.clone(), wall: Wall(1) },
            Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live },
        ];
        for input in up {
            pod.handle(Moment::from_millis(0), input);
        }
        let answered = Input::SignalAnswered { instance: app.clone(), signal: Signal::TERM, delivery };
        let effects = pod.handle(Moment::from_millis(3), answered);
        let mut events = effects.into_iter().filter_map(|effect| {
            let Effect::Emit(event) = effect else { return None };
            Some(event)
        });
        events.find(|event| event.reason == "StopSignalSent").map(|event| event.message)
    };
    assert_eq!(told(Delivery::Delivered).as_deref(), Some("Sent SIGTERM to container app, 30s before SIGKILL"));
    assert_eq!(told(Delivery::AlreadyGone), None);
}

fn waits_for(state: &ContainerState) -> (&str, Option<&str>) {
    match state {
        ContainerState::Waiting(waiting) => (&waiting.reason, waiting.message.as_deref()),
        other @ (ContainerState::Running { .. } | ContainerState::Terminated(_)) => panic!("not waiting but {other:?}"),
    }
}

/// [NT-82]: a liveness failure stops the container alone, hook first, and it is restarted.
#[test]
fn a_liveness_failure_stops_and_restarts_one_container() {
    given_pod()
        .grace(secs(20))
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(3)))
        .container("other", IgnoresTerm)
        .when_left_alone()
        .probe_at(secs(5), "app", Probe::Liveness, false)
        .then_golden(TIMELINES, "liveness_failure")
        .then_events(1, "Killing", "Container app failed liveness probe, will be restarted")
        .then_exit_of_last_run("app", 137);
}

/// [NT-81]: a startup failure likewise.
#[test]
fn a_startup_failure_runs_the_hook_too() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(3)))
        .when_left_alone()
        .probe_at(secs(5), "app", Probe::Startup, false)
        .told()
        .then_at(secs(5), "run preStop of app")
        .then_at(secs(8), "TERM to app")
        .then_at(secs(9), "start app#1")
        .then_events(1, "Killing", "Container app failed startup probe, will be restarted");
}

/// A delete that finds a container on its way out already neither starts its hook again nor waits longer for it.
#[test]
fn a_delete_joins_a_container_that_is_being_stopped() {
    given_pod()
        .grace(secs(20))
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_left_alone()
        .probe_at(secs(5), "app", Probe::Liveness, false)
        .deleted_at(secs(10), secs(600))
        .told()
        .then_at(secs(5), "run preStop of app")
        .then_at(secs(25), "TERM to app")
        .then_at(secs(27), "KILL to app")
        .then_never("start app#1")
        .then_no_event("BackOff");
}
