//! Coming up, crashing, and trying again.

use lifecycle::{
    ContainerSpec, ContainerState, Effect, Event, Input, Moment, PodPhase, PodSpec, PodStatus, PodWorker,
    RestartPolicy, Role,
};
use testkit::{ImageScript, Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

fn waiting(status: &PodStatus, index: usize) -> &str {
    match &status.containers[index].state {
        ContainerState::Waiting(waiting) => &waiting.reason,
        other @ (ContainerState::Running { .. } | ContainerState::Terminated(_)) => panic!("not waiting but {other:?}"),
    }
}

/// [NT-1]: images and sandbox side by side, then the containers.
#[test]
fn a_pod_comes_up() {
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Takes(millis(20)))
        .sandbox_takes(millis(5))
        .start_takes(millis(3))
        .when_left_alone()
        .with_events()
        .then_timeline(
            "
             0.000  pod is to be run
             0.000    -> create sandbox
             0.000    -> pull image of app
             0.000    -> publish status
             0.005  sandbox ready
             0.005    -> publish status
             0.020  image of app ready
             0.020    -> start app
             0.020    -> publish status
             0.023  app started
             0.023    -> event Created: Container created
             0.023    -> event Started: Container started
             0.023    -> publish status
        ",
        )
        .then_status_at(millis(10), |status| {
            assert_eq!(status.phase, PodPhase::Pending);
            assert!(status.ready_to_start_containers.holds && !status.ready.holds);
            assert_eq!(waiting(status, 0), "ContainerCreating");
        })
        .then_status_at(millis(23), |status| {
            assert_eq!(status.phase, PodPhase::Running);
            assert!(status.ready.holds && status.containers[0].ready && status.containers[0].started);
        });
}

#[test]
fn init_containers_run_one_after_another_and_sidecars_stay() {
    given_pod()
        .init("one", Script::ExitsByItself { after: secs(1), code: 0 })
        .sidecar("proxy", IgnoresTerm)
        .init("two", Script::ExitsByItself { after: secs(2), code: 0 })
        .container("app", IgnoresTerm)
        .when_left_alone()
        .told()
        .then_at(secs(0), "start one")
        .then_at(secs(1), "start proxy")
        .then_at(secs(1), "start two")
        .then_at(secs(3), "start app")
        .then_status_at(secs(2), |status| {
            assert_eq!(status.phase, PodPhase::Pending);
            assert_eq!(status.initialized.message.as_deref(), Some("containers with incomplete status: [two]"));
            assert_eq!(waiting(status, 3), "PodInitializing");
        })
        .then_status_at(secs(3), |status| assert!(status.initialized.holds && status.ready.holds));
}

fn words(status: &PodStatus, index: usize) -> &str {
    match &status.containers[index].state {
        ContainerState::Waiting(waiting) => waiting.message.as_deref().unwrap_or_default(),
        other @ (ContainerState::Running { .. } | ContainerState::Terminated(_)) => panic!("{other:?} does not wait"),
    }
}

fn words_of(delay: &str) -> String {
    format!("back-off {delay} restarting failed container=app pod=web_default(uid-1)")
}

#[test]
fn a_crashing_container_waits_longer_each_time() {
    given_pod()
        .container("app", Script::ExitsByItself { after: secs(1), code: 2 })
        .when_left_alone()
        .deleted_at(secs(200), secs(1))
        .told()
        .then_at(secs(0), "start app")
        .then_at(secs(1), "start app#1")
        .then_at(secs(12), "start app#2")
        .then_at(secs(33), "start app#3")
        .then_at(secs(74), "start app#4")
        .then_at(secs(155), "start app#5")
        .then_status_at(secs(3), |status| {
            let app = &status.containers[0];
            assert_eq!(waiting(status, 0), "CrashLoopBackOff");
            assert_eq!((app.attempt, app.last.as_ref().map(|last| last.exit_code)), (1, Some(2)));
            assert_eq!(status.phase, PodPhase::Running);
        })
        .then_status_at(secs(20), |status| assert_eq!(words(status, 0), words_of("20s")))
        .then_status_at(secs(154), |status| assert_eq!(words(status, 0), words_of("1m20s")))
        .then_events(5, "BackOff", "Back-off restarting failed container app in pod web_default(uid-1)")
        // While it waits nothing runs, so a delete ends it at once, and it is shown as it ended.
        .then_exit("app", 2, "Error")
        .then_finished_by(millis(200_010));
}

#[test]
fn a_long_run_is_forgiven() {
    given_pod()
        .container("app", Script::ExitsByItself { after: secs(601), code: 0 })
        .when_left_alone()
        .deleted_at(secs(2_000), secs(1))
        .told()
        .then_at(secs(601), "start app#1")
        .then_at(secs(1_202), "start app#2")
        .then_at(secs(1_803), "start app#3")
        .then_no_event("BackOff");
}

#[test]
fn on_failure_restarts_until_it_succeeds() {
    given_pod()
        .restart(RestartPolicy::OnFailure)
        .container("good", Script::ExitsByItself { after: secs(1), code: 0 })
        .container("bad", Script::ExitsByItself { after: secs(2), code: 1 })
        .when_left_alone()
        .deleted_at(secs(100), secs(1))
        .told()
        .then_never("start good#1")
        .then_at(secs(2), "start bad#1")
        .then_status_at(secs(50), |status| assert_eq!(status.phase, PodPhase::Running));
}

#[test]
fn never_fails_the_pod_when_all_are_done() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("bad", Script::ExitsByItself { after: secs(1), code: 1 })
        .container("good", Script::ExitsByItself { after: secs(3), code: 0 })
        .when_left_alone()
        .told()
        .then_status_at(secs(2), |status| assert_eq!(status.phase, PodPhase::Running))
        .then_phase(PodPhase::Failed);
}

#[test]
fn a_failed_init_container_fails_a_pod_that_may_not_restart_it() {
    given_pod()
        .restart(RestartPolicy::Never)
        .sidecar("proxy", exits_on_term(secs(1)))
        .init("setup", Script::ExitsByItself { after: secs(2), code: 9 })
        .container("app", IgnoresTerm)
        .when_left_alone()
        .told()
        .then_at(secs(2), "TERM to proxy")
        .then_never("start app")
        .then_exit("setup", 9, "Error")
        .then_phase(PodPhase::Failed);
}

#[test]
fn a_crashed_sidecar_comes_back_while_the_pod_lives() {
    given_pod()
        .restart(RestartPolicy::Never)
        .sidecar("proxy", Script::ExitsByItself { after: secs(5), code: 0 })
        .container("app", IgnoresTerm)
        .when_left_alone()
        .deleted_at(secs(8), secs(1))
        .told()
        .then_at(secs(5), "start proxy#1")
        .then_at(secs(0), "start app")
        .then_status_at(secs(6), |status| assert!(status.ready.holds && status.phase == PodPhase::Running));
}

#[test]
fn an_image_that_cannot_be_pulled_is_tried_again_and_shown() {
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Fails { reason: "ErrImagePull" })
        .when_left_alone()
        .deleted_at(secs(29), secs(1))
        .then_timeline(
            "
             0.000  pod is to be run
             0.000    -> create sandbox
             0.000    -> pull image of app
             0.000  sandbox ready
             0.000  image of app failed: ErrImagePull
             1.000  image of app counts as backing off
            10.000  pull back-off of app ends
            10.000    -> pull image of app
            10.000  image of app failed: ErrImagePull
            11.000  image of app counts as backing off
            29.000  delete requested, grace 1s
            29.000    -> remove sandbox
            29.001  sandbox removed
            29.001    -> delete object
            29.002  object deleted
            29.002    -> finish
        ",
        )
        .then_events(2, "Failed", "Error: ErrImagePull")
        .then_events(2, "Failed", "Error: ImagePullBackOff")
        .then_events(2, "BackOff", "Back-off pulling image")
        .then_status_at(millis(500), |status| assert_eq!(waiting(status, 0), "ErrImagePull"))
        .then_status_at(secs(5), |status| {
            assert_eq!(waiting(status, 0), "ImagePullBackOff");
            let ContainerState::Waiting(waiting) = &status.containers[0].state else { unreachable!() };
            let told = "Back-off pulling image: ErrImagePull: Failed to pull image \"app\": not found";
            assert_eq!(waiting.message.as_deref(), Some(told), "the error stays readable");
        })
        .then_status_at(millis(10_500), |status| assert_eq!(waiting(status, 0), "ErrImagePull"));
}

#[test]
fn an_image_that_may_not_be_pulled_keeps_its_reason() {
    given_pod()
        .container("app", IgnoresTerm)
        .image(ImageScript::Fails { reason: "ErrImageNeverPull" })
        .when_left_alone()
        .deleted_at(secs(25), secs(1))
        .told()
        .then_status_at(secs(9), |status| assert_eq!(waiting(status, 0), "ErrImageNeverPull"))
        .then_no_event("BackOff");
}

#[test]
fn a_container_that_cannot_be_created_is_tried_again_whatever_the_policy() {
    let story = given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::CannotStart { reason: "CreateContainerError" })
        .when_left_alone()
        .deleted_at(secs(45), secs(1))
        .told()
        .then_status_at(secs(5), |status| {
            assert_eq!(waiting(status, 0), "CreateContainerError");
            assert_eq!((status.phase, status.containers[0].attempt), (PodPhase::Pending, 0));
        })
        .then_phase(PodPhase::Failed);
    assert_eq!(story.timeline().matches("-> start app\n").count(), 3, "at 0, 10 and 30:\n{}", story.timeline());
}

#[test]
fn a_process_that_cannot_be_run_counts_as_a_run_that_ended() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::CannotStart { reason: "StartError" })
        .when_left_alone()
        .told()
        .then_exit("app", 128, "StartError")
        .then_events(1, "Failed", "Error: no such file")
        .then_phase(PodPhase::Failed);
}

/// Whoever looks into a pod that does not come up cannot wait until it has.
#[test]
fn an_ephemeral_container_does_not_wait_for_init_containers() {
    given_pod()
        .init("hangs", IgnoresTerm)
        .container("app", IgnoresTerm)
        .ephemeral("debugger", IgnoresTerm)
        .when_left_alone()
        .deleted_at(secs(5), secs(1))
        .told()
        .then_at(secs(0), "start hangs")
        .then_at(secs(0), "start debugger")
        .then_never("start app")
        .then_status_at(secs(1), |status| {
            assert!(!status.initialized.holds);
            assert_eq!(status.phase, PodPhase::Pending);
        });
}

/// A volume that cannot be made holds up its pod, which says so and stays as it is until the volume is there.
#[test]
fn a_pod_waits_for_its_volumes() {
    let missing = || Input::VolumeFailed { message: "MountVolume.SetUp failed for volume \"v\" : no".into() };
    let mut pod = PodWorker::new(PodSpec::new(vec![ContainerSpec::new("app", Role::Main)]));
    pod.handle(Moment::from_millis(0), Input::Begin);
    let effects = pod.handle(Moment::from_millis(10), missing());
    let told = Event::pod_warning("FailedMount", "MountVolume.SetUp failed for volume \"v\" : no".into());
    assert_eq!(effects, [Effect::Emit(told)]);
    assert_eq!(waiting(&pod.status(), 0), "ContainerCreating");
    assert!(!pod.status().ready_to_start_containers.holds);
    assert_eq!(pod.next_wake().map(|wake| wake.at), Some(Moment::from_millis(210)));
    assert_eq!(pod.handle(Moment::from_millis(210), Input::TimePassed), [Effect::CreateSandbox]);
    pod.handle(Moment::from_millis(220), Input::SandboxReady);
    assert!(pod.status().ready_to_start_containers.holds);
}
