//! Ends of every kind, and what others see of them: node-termination 1, 6 and 11 A, C, H.

use lifecycle::{
    ContainerState, DeleteSighting, Hook, Input, KillCause, PodPhase, Probe, RestartPolicy, TerminationVerdict,
};
use testkit::{
    HookScript, ImageScript, Script, Script::IgnoresTerm, exits_on_term, fails_on_term, given_pod, millis, secs,
};

const POLICIES: [RestartPolicy; 3] = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];

/// [NT-3]: the whole walk, with everything that people and the API are told.
#[test]
fn a_deletion_is_told_to_everyone() {
    given_pod().container("app", exits_on_term(secs(4))).when_deleted(secs(5)).with_events().then_timeline(
        "
             0.000  delete requested, grace 5s
             0.000    -> event Killing: Stopping container app
             0.000    -> TERM to app
             0.000    -> publish status
             0.000    -> event StopSignalSent: Sent SIGTERM to container app, 5s before SIGKILL
             4.000  app exited 0
             4.000    -> remove sandbox
             4.000    -> publish status
             4.001  sandbox removed
             4.001    -> delete object
             4.002  object deleted
             4.002    -> finish
        ",
    );
}

/// [NT-12]: a pod that is done ends without anybody asking, and stays in the API.
#[test]
fn a_completed_pod_stays_in_the_api() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .told()
        .then_at(secs(1), "remove sandbox")
        .then_never("delete object")
        .then_never("finish")
        .then_phase(PodPhase::Succeeded)
        .then_exit("app", 0, "Completed");
}

/// [NT-25]: a kill finds nobody, a delete is answered at once, a vanished object ends it all.
#[test]
fn a_completed_pod_is_deleted_at_once() {
    let done = || {
        given_pod()
            .restart(RestartPolicy::Never)
            .container("app", Script::ExitsByItself { after: secs(1), code: 3 })
            .when_left_alone()
            .killed_at(secs(5), KillCause::NodeShutdown, Some(secs(1)))
    };
    done()
        .deleted_at(secs(10), secs(30))
        .told()
        .then_at(secs(10), "delete object")
        .then_finished_by(millis(10_001))
        .then_phase(PodPhase::Failed)
        .then_reason(None);
    done().forced_at(secs(10)).told().then_never("delete object").then_finished_by(secs(10));
}

/// [NT-45]: a pod whose image cannot be had leaves at once, Failed.
#[test]
fn a_pod_without_its_image_is_deleted_as_failed() {
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Fails { reason: "ErrImagePull" })
        .when_deleted(secs(30))
        .told()
        .then_phase(PodPhase::Failed)
        .then_exit("app", 137, "ContainerStatusUnknown")
        .then_finished_by(millis(10));
}

/// [NT-46]: no handler, any policy: 137 and Failed.
#[test]
fn a_killed_container_fails_its_pod_whatever_the_policy() {
    for policy in POLICIES {
        given_pod()
            .restart(policy)
            .container("app", IgnoresTerm)
            .when_deleted(secs(1))
            .told()
            .then_exit("app", 137, "Error")
            .then_phase(PodPhase::Failed)
            .then_never("start app#1");
    }
}

/// [NT-47]: exit 0 on the stop signal, any policy: Succeeded.
#[test]
fn a_container_that_exits_well_succeeds_whatever_the_policy() {
    for policy in POLICIES {
        given_pod()
            .restart(policy)
            .container("app", exits_on_term(secs(1)))
            .when_deleted(secs(30))
            .told()
            .then_exit("app", 0, "Completed")
            .then_phase(PodPhase::Succeeded)
            .then_never("start app#1");
    }
}

/// [NT-49]: pods that always fail are never said to have succeeded, whenever they are deleted.
#[test]
fn a_failing_pod_never_reports_success() {
    for at in (0..40).map(|step| millis(step * 700)) {
        for policy in POLICIES {
            let story = given_pod()
                .restart(policy)
                .container("app", Script::ExitsAnyway { after: secs(3), code: 1, on_term: 1 })
                .start_takes(secs(1))
                .sandbox_takes(millis(500))
                .when_left_alone()
                .deleted_at(at, secs(2))
                .told()
                .then_phase(PodPhase::Failed);
            let ContainerState::Terminated(ended) = story.container("app").state else { panic!("deleted at {at:?}") };
            assert!(ended.exit_code != 0, "deleted at {at:?}");
        }
    }
}

/// [NT-50]: behind a failing init container, no main ever reports a start.
#[test]
fn a_main_behind_a_failing_init_never_starts() {
    for at in (0..30).map(|step| millis(step * 900)) {
        for policy in POLICIES {
            let story = given_pod()
                .restart(policy)
                .init("setup", Script::ExitsAnyway { after: secs(1), code: 1, on_term: 1 })
                .container("app", exits_on_term(secs(1)))
                .when_left_alone()
                .deleted_at(at, secs(2))
                .told()
                .then_never("start app")
                .then_phase(PodPhase::Failed);
            let ContainerState::Waiting(waiting) = story.container("app").state else { panic!("deleted at {at:?}") };
            assert_eq!(waiting.reason, "PodInitializing");
        }
    }
}

/// [NT-59]: a delete during a pull waits for nothing and starts nothing.
#[test]
fn a_delete_during_a_pull_cancels_it() {
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Takes(secs(600)))
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             0.000    -> cancel pull of app
             0.000    -> remove sandbox
             0.001  sandbox removed
             0.001    -> delete object
             0.002  object deleted
             0.002    -> finish
        ",
        );
}

/// An image that arrives although nobody wants it any more starts nothing.
#[test]
fn an_image_that_comes_late_starts_nothing() {
    let late = Input::ImageReady { container: lifecycle::ContainerName("app".into()), edition: 0, stop_signal: None };
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Takes(secs(600)))
        .sandbox_takes(secs(2))
        .when_deleted(secs(30))
        .told_at(secs(1), late)
        .told()
        .then_never("start app")
        .then_finished_by(millis(2_010));
}

/// A sandbox in the making is waited for, so that making and removing it do not race; but not beyond the deadline.
#[test]
fn a_sandbox_in_the_making_is_waited_for() {
    given_pod()
        .container("app", IgnoresTerm)
        .sandbox_takes(secs(2))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(2), "remove sandbox");
    given_pod()
        .container("app", IgnoresTerm)
        .sandbox_takes(secs(20))
        .when_deleted(secs(5))
        .told()
        .then_at(secs(5), "remove sandbox")
        .then_finished_by(millis(5_010));
}

/// A start that was under way is waited for, and what it brought up is stopped like everything else.
#[test]
fn a_container_that_comes_up_during_termination_is_stopped() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .post_start(Hook::Exec, HookScript::NeverEnds)
        .start_takes(secs(3))
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             3.000  app started
             3.000    -> run preStop of app
             5.000  preStop of app done
             5.000    -> TERM to app
             6.000  app exited 0
             6.000    -> remove sandbox
             6.001  sandbox removed
             6.001    -> delete object
             6.002  object deleted
             6.002    -> finish
        ",
        );
}

/// If it comes up after the deadline it has no time for a hook, but it has its two seconds.
#[test]
fn a_container_that_comes_up_after_the_deadline_has_two_seconds() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .start_takes(secs(5))
        .when_deleted(secs(4))
        .told()
        .then_never("run preStop of app")
        .then_at(secs(5), "TERM to app")
        .then_at(secs(7), "KILL to app");
    given_pod()
        .container("app", exits_on_term(millis(10)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .start_takes(secs(5))
        .when_deleted(secs(4))
        .told()
        .then_verdict(TerminationVerdict::Hurried);
}

/// A start that nobody ever answers is waited for until the deadline and two seconds; the sandbox takes the rest along.
#[test]
fn a_start_that_is_never_answered_does_not_hold_the_pod_for_ever() {
    given_pod()
        .container("app", Script::StartUnanswered)
        .sandbox_removal_fails(1)
        .when_deleted(secs(4))
        .told()
        .then_at(secs(6), "start of app was never answered")
        .then_status_at(millis(6_100), |status| {
            assert_eq!((status.phase, status.verdict), (PodPhase::Pending, None), "it may yet run");
        })
        .then_finished_by(millis(6_210))
        .then_exit("app", 137, "ContainerStatusUnknown")
        .then_verdict(TerminationVerdict::Lost)
        .then_phase(PodPhase::Failed);
}

/// A start that fails during termination counts as gone.
#[test]
fn a_start_that_fails_during_termination_counts_as_gone() {
    given_pod()
        .container("app", Script::CannotStart { reason: "CreateContainerError" })
        .start_takes(secs(3))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(3), "remove sandbox")
        .then_exit("app", 137, "ContainerStatusUnknown")
        .then_phase(PodPhase::Failed);
}

/// [NT-51]: a pod that waits for something that does not exist leaves without it.
#[test]
fn a_pod_that_could_never_be_created_leaves_at_once() {
    given_pod()
        .container("app", Script::CannotStart { reason: "CreateContainerConfigError" })
        .when_left_alone()
        .deleted_at(secs(15), secs(30))
        .told()
        .then_phase(PodPhase::Failed)
        .then_finished_by(millis(15_010));
}

/// [NT-61]: an exit is shown when it is seen, not at the end.
#[test]
fn an_exit_is_shown_at_once() {
    given_pod()
        .container("early", exits_on_term(secs(1)))
        .container("late", exits_on_term(secs(20)))
        .when_deleted(secs(30))
        .told()
        .then_status_at(secs(1), |status| {
            assert!(matches!(status.containers[0].state, ContainerState::Terminated(_)));
            assert!(matches!(status.containers[1].state, ContainerState::Running { .. }));
            assert_eq!(status.phase, PodPhase::Running);
            assert_eq!(status.ready.message.as_deref(), Some("containers with unready status: [early]"));
        });
}

/// [NT-62] [NT-116]: a sandbox that will not go away hides neither exits nor phase, and holds the object.
#[test]
fn a_stuck_sandbox_hides_nothing() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .sandbox_removal_fails(3)
        .when_deleted(secs(30))
        .then_timeline(
            "
             0.000  delete requested, grace 30s
             0.000    -> TERM to app
             1.000  app exited 0
             1.000    -> remove sandbox
             1.001  sandbox not removed: device busy
             1.201  sandbox removal is tried again
             1.201    -> remove sandbox
             1.202  sandbox not removed: device busy
             1.602  sandbox removal is tried again
             1.602    -> remove sandbox
             1.603  sandbox not removed: device busy
             2.403  sandbox removal is tried again
             2.403    -> remove sandbox
             2.404  sandbox removed
             2.404    -> delete object
             2.405  object deleted
             2.405    -> finish
        ",
        )
        .then_status_at(millis(1_500), |status| {
            assert_eq!(status.phase, PodPhase::Succeeded);
            assert!(matches!(status.containers[0].state, ContainerState::Terminated(_)));
            assert_eq!(status.ready.reason.as_deref(), Some("PodCompleted"));
            let blocked = status.blocked.as_ref().expect("the first removal failed");
            assert_eq!((blocked.holds, blocked.reason.as_deref()), (true, Some("SandboxNotRemoved")));
            assert_eq!(blocked.message.as_deref(), Some("its sandbox could not be removed"));
        })
        .then_events(
            3,
            "FailedKillPod",
            r#"error killing pod: failed to "KillPodSandbox" for "uid-1" with KillPodSandboxError: "device busy""#,
        );
}

/// What keeps a pod is shown for as long as it does, and no longer; a pod that nothing keeps says nothing of it.
#[test]
fn blocked_condition_is_shown_while_a_step_blocks_the_pod() {
    let seen = |status: &lifecycle::PodStatus| {
        let blocked = status.blocked.clone()?;
        Some((blocked.holds, blocked.reason.unwrap_or_default(), blocked.message.unwrap_or_default()))
    };
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .sandbox_removal_fails(1)
        .when_killed(KillCause::NodeShutdown, None)
        .told()
        .then_status_at(millis(500), |status| assert_eq!(seen(status), None))
        .then_status_at(secs(9), |status| assert_eq!(seen(status), Some((false, "Gone".into(), String::new()))));
    // Killed, and not gone: the kernel does not let go of it.
    let mut pod = lifecycle::PodWorker::new(given_pod().container("app", Script::IgnoresTerm).spec());
    let at = lifecycle::Moment::from_millis;
    let name = || lifecycle::ContainerName("app".into());
    let started =
        Input::Started { instance: lifecycle::Instance { name: name(), attempt: 0 }, wall: lifecycle::Wall(0) };
    let image = Input::ImageReady { container: name(), edition: 0, stop_signal: None };
    for input in [Input::Begin, Input::SandboxReady, image, started, Input::ObjectGone] {
        pod.handle(at(0), input);
    }
    pod.handle(at(3_999), Input::TimePassed);
    assert_eq!(seen(&pod.status()), None);
    pod.handle(at(4_000), Input::TimePassed);
    let words = "container app is killed, exit not seen".to_owned();
    assert_eq!(seen(&pod.status()), Some((true, "ContainersNotGone".into(), words)));
    // And one whose object nobody deletes.
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .final_delete_fails(20)
        .when_deleted(secs(2))
        .told()
        .then_events(1, "TerminationOverdue", "Pod should have been gone 3s ago, but its object could not be deleted")
        .then_status_at(secs(6), |status| {
            let words = "its object could not be deleted".to_owned();
            assert_eq!(seen(status), Some((true, "ObjectNotDeleted".into(), words)));
        });
}

/// A pod whose agent died before it could forget it is forgotten by the next one.
#[test]
fn a_pod_is_forgotten_in_the_end_whoever_dies() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .agent_dies_before("finish", secs(5))
        .told()
        .then_at(millis(6_002), "finish");
}

/// Ready that the node took away does not come back with a deletion, nor does a pod live longer for it.
#[test]
fn a_deletion_after_an_eviction_gives_nothing_back() {
    let evicted = |grace| {
        given_pod()
            .container("app", IgnoresTerm)
            .when_killed(KillCause::Evicted { message: "low".into() }, Some(secs(20)))
            .deleted_at(secs(2), secs(grace))
            .told()
            .then_status_at(secs(1), |status| assert!(!status.ready.holds && status.containers_ready.holds))
            .then_status_at(secs(3), |status| assert!(!status.ready.holds && status.containers_ready.holds))
            .then_reason(Some("Evicted"))
    };
    evicted(60).then_at(secs(20), "KILL to app");
    evicted(5).then_at(secs(7), "KILL to app");
    // Who is deleted tells the truth, whatever comes after.
    given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(20))
        .killed_at(secs(2), KillCause::Preempted, None)
        .told()
        .then_status_at(secs(3), |status| assert!(status.ready.holds));
}

/// A deletion that shortens what the node had granted hurries the pod.
#[test]
fn a_deletion_that_shortens_a_kill_hurries() {
    let shut_down = |delete| {
        given_pod()
            .container("app", exits_on_term(secs(3)))
            .when_killed(KillCause::NodeShutdown, Some(secs(20)))
            .deleted_at(secs(1), secs(delete))
            .told()
    };
    shut_down(19).then_verdict(TerminationVerdict::Clean);
    shut_down(18).then_verdict(TerminationVerdict::Hurried);
}

/// A final delete that fails is tried again soon.
#[test]
fn a_failed_final_delete_is_tried_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .final_delete_fails(2)
        .when_deleted(secs(30))
        .told()
        .then_finished_by(millis(1_610));
}

/// [NT-113]: without a probe, Ready stays while the container runs.
#[test]
fn termination_alone_does_not_unset_ready() {
    given_pod()
        .container("app", exits_on_term(secs(10)))
        .when_deleted(secs(30))
        .told()
        .then_status_at(secs(9), |status| assert!(status.ready.holds && status.containers_ready.holds))
        .then_status_at(secs(10), |status| assert!(!status.ready.holds));
}

/// [NT-107] [NT-108]: a readiness probe may still change its mind; a liveness probe may not.
#[test]
fn readiness_counts_during_termination_and_liveness_does_not() {
    given_pod()
        .container("app", exits_on_term(secs(10)))
        .readiness_probe()
        .when_left_alone()
        .probe_at(secs(1), "app", Probe::Readiness, true)
        .deleted_at(secs(2), secs(30))
        .probe_at(secs(4), "app", Probe::Readiness, false)
        .probe_at(secs(5), "app", Probe::Liveness, false)
        .told()
        .then_status_at(millis(500), |status| assert!(!status.ready.holds))
        .then_status_at(secs(3), |status| assert!(status.ready.holds))
        .then_status_at(secs(4), |status| {
            assert_eq!(status.ready.reason.as_deref(), Some("ContainersNotReady"));
            assert_eq!(status.ready.message.as_deref(), Some("containers with unready status: [app]"));
        })
        .then_at(secs(2), "TERM to app")
        .then_events(1, "Killing", "Stopping container app");
}

/// [NT-115] [NT-120] [NT-165] [NT-4]: an evicted pod is unready at once, Failed whatever its exit codes, and stays.
#[test]
fn an_evicted_pod_stays_failed_with_its_reason() {
    let message = "The node was low on resource: memory. ";
    let story = given_pod()
        .container("app", exits_on_term(secs(3)))
        .when_killed(KillCause::Evicted { message: message.into() }, Some(secs(10)))
        .told()
        .then_status_at(secs(1), |status| {
            assert!(!status.ready.holds && status.containers_ready.holds);
            assert_eq!((status.phase, &status.reason), (PodPhase::Running, &None));
        })
        .then_phase(PodPhase::Failed)
        .then_reason(Some("Evicted"))
        .then_exit("app", 0, "Completed")
        .then_never("delete object");
    assert_eq!(story.status().message.as_deref(), Some(message));
}

/// Node-termination 6.7: the words for the other ends that the node causes.
#[test]
fn every_kill_of_the_node_has_its_words() {
    let words = |cause: KillCause| {
        let status = given_pod().container("app", exits_on_term(secs(1))).when_killed(cause, None).told().status();
        (status.phase, status.reason.unwrap_or_default(), status.message.unwrap_or_default())
    };
    let failed = |reason: &str, message: &str| (PodPhase::Failed, reason.to_owned(), message.to_owned());
    assert_eq!(words(KillCause::Preempted), failed("Preempting", "Preempted in order to admit critical pod"));
    assert_eq!(
        words(KillCause::NodeShutdown),
        failed("Terminated", "Pod was terminated in response to imminent node shutdown.")
    );
    let over = KillCause::OverLimit {
        message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ".into(),
    };
    assert_eq!(words(over).1, "Evicted");
}

/// A killed pod that is deleted afterwards leaves the API with its reason.
#[test]
fn a_killed_pod_leaves_when_it_is_deleted() {
    given_pod()
        .container("app", exits_on_term(secs(3)))
        .when_killed(KillCause::Preempted, None)
        .deleted_at(secs(60), secs(30))
        .told()
        .then_at(secs(60), "delete object")
        .then_reason(Some("Preempting"))
        .then_finished_by(millis(60_001));
}

/// [NT-121] [NT-122]: what was never located is never said to have succeeded.
#[test]
fn a_pod_deleted_while_creating_ends_failed() {
    given_pod()
        .container("a", exits_on_term(secs(1)))
        .container("b", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(60)))
        .when_deleted(secs(30))
        .told()
        .then_exit("a", 0, "Completed")
        .then_exit("b", 137, "ContainerStatusUnknown")
        .then_phase(PodPhase::Failed);
}

/// [NT-121]: a pod deleted during its initialization does not claim that its mains ran.
#[test]
fn a_pod_deleted_during_init_leaves_its_mains_waiting() {
    let story = given_pod()
        .init("first", Script::ExitsByItself { after: secs(1), code: 0 })
        .init("second", exits_on_term(secs(1)))
        .init("third", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .deleted_at(secs(5), secs(30))
        .told()
        .then_exit("first", 0, "Completed")
        .then_exit("second", 0, "Completed")
        .then_phase(PodPhase::Failed);
    for name in ["third", "app"] {
        assert!(matches!(story.container(name).state, ContainerState::Waiting(_)), "{name}");
    }
}

/// A pod that is deleted before it was even begun leaves the same way, without having lived.
#[test]
fn a_pod_that_was_never_begun_can_leave() {
    use lifecycle::{Effect, Moment, PodWorker};
    let mut worker = PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    let at = Moment::from_millis;
    let live = DeleteSighting::Live;
    let asked = worker.handle(at(5), Input::DeleteRequested { grace: secs(30), sighting: live });
    assert!(asked.contains(&Effect::RemoveSandbox));
    assert_eq!(worker.handle(at(6), Input::Begin), [Effect::PublishStatus]);
    assert_eq!(worker.handle(at(7), Input::SandboxRemoved), [Effect::DeleteObject]);
    assert_eq!(worker.status().phase, PodPhase::Failed);
    assert_eq!(worker.handle(at(8), Input::ObjectDeleted), [Effect::Finish]);
    assert!(worker.is_finished() && worker.next_wake().is_none());
}

/// Being deleted while being completed: the delete counts from its own request and takes the object along.
#[test]
fn a_delete_joins_a_completion() {
    given_pod()
        .restart(RestartPolicy::Never)
        .sidecar("proxy", IgnoresTerm)
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .deleted_at(secs(11), secs(10))
        .told()
        .then_at(secs(21), "KILL to proxy")
        .then_phase(PodPhase::Succeeded)
        .then_finished_by(millis(21_010));
}

/// Exit codes of several mains: one failure fails the pod.
#[test]
fn one_failing_main_fails_the_pod() {
    given_pod()
        .container("good", exits_on_term(secs(1)))
        .container("bad", fails_on_term(secs(2), 143))
        .when_deleted(secs(30))
        .told()
        .then_exit("good", 0, "Completed")
        .then_exit("bad", 143, "Error")
        .then_phase(PodPhase::Failed);
}

/// The last init container heard the stop signal and was done well: the mains had their turn, and were never found.
#[test]
fn mains_behind_a_last_init_container_that_ended_well_count_as_lost() {
    given_pod()
        .init("migrate", exits_on_term(secs(1)))
        .container("app", IgnoresTerm)
        .when_left_alone()
        .deleted_at(secs(5), secs(30))
        .told()
        .then_exit("migrate", 0, "Completed")
        .then_exit("app", 137, "ContainerStatusUnknown")
        .then_phase(PodPhase::Failed);
}
