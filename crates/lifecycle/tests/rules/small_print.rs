//! The small print: rules that no story turns on, each of which somebody would miss.

use lifecycle::{
    BestEvidence, ContainerName, Hook, Input, Instance, KillCause, PodPhase, Probe, RestartPolicy, Routes, TrafficNews,
};
use testkit::{
    HookScript, ImageScript, Script, Script::IgnoresTerm, TrafficScript, exits_on_term, given_pod, millis, secs,
};

const SHARED: Routes = Routes { best: BestEvidence::Divert, last: false, replaced: true, busy: true };

fn run(name: &str, attempt: u32) -> Instance {
    Instance { name: ContainerName(name.into()), attempt }
}

/// Connections that come late are told even when nothing of the pod is left but its sandbox, or its object.
#[test]
fn late_connections_are_told_to_the_very_end() {
    let late = |at| {
        given_pod()
            .container("app", exits_on_term(secs(1)))
            .routed(SHARED, TrafficScript::default())
            .sandbox_removal_fails(4)
            .when_killed(KillCause::NodeShutdown, None)
            .traffic_at(at, TrafficNews::Late { count: 3 })
            .told()
            .then_events(1, "LateConnections", "3 connections came after the barrier was released")
    };
    late(millis(1_500));
    late(secs(60)).then_phase(PodPhase::Failed);
}

/// A detour takes no more than half of what the container has.
#[test]
fn a_detour_takes_half_of_a_short_grace() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .liveness_grace(secs(4))
        .routed(SHARED, TrafficScript { cut_takes: Some(secs(60)), ..TrafficScript::default() })
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .deleted_at(secs(40), secs(30))
        .told()
        .then_at(secs(12), "TERM to app");
}

/// Who has a postStart hook holds back those after it while its image is on its way, but not when it cannot be had.
#[test]
fn an_image_on_its_way_holds_back_those_after_it() {
    let second_starts = |image, at| {
        given_pod()
            .container("app", exits_on_term(secs(1)))
            .image(image)
            .post_start(Hook::Exec, HookScript::Takes(secs(1)))
            .container("web", exits_on_term(secs(1)))
            .when_left_alone()
            .deleted_at(secs(20), secs(30))
            .told()
            .then_at(at, "start web")
    };
    second_starts(ImageScript::Takes(secs(5)), secs(6));
    second_starts(ImageScript::Fails { reason: "ErrImagePull" }, secs(0));
}

/// A refusal that comes late, or for somebody else, changes nothing for those who run or are being started.
#[test]
fn a_late_refusal_changes_nothing() {
    let refused = |instance| Input::StartFailed { instance, reason: "StartError".into(), message: "no".into() };
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", exits_on_term(secs(1)))
        .container("web", Script::StartUnanswered)
        .when_left_alone()
        .told_at(secs(1), refused(run("app", 0)))
        .told_at(secs(2), refused(run("web", 7)))
        .deleted_at(secs(5), secs(5))
        .told()
        .then_no_event("Failed")
        .then_at(secs(5), "TERM to app")
        .then_exit("app", 0, "Completed");
    given_pod().container("app", IgnoresTerm).when_deleted(secs(3)).told().then_at(secs(3), "KILL to app");
}

/// A sandbox that cannot be made is told, and tried again soon.
#[test]
fn a_sandbox_that_cannot_be_made_is_tried_again() {
    let at = lifecycle::Moment::from_millis;
    let mut pod = lifecycle::PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    pod.handle(at(0), Input::Begin);
    let failed = || Input::SandboxFailed { message: "no address left".into() };
    for (now, next) in [(10, 210), (210, 610)] {
        let asked = pod.handle(at(now), failed());
        let told = lifecycle::Event::pod_warning(
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: no address left".into(),
        );
        assert_eq!(asked, [lifecycle::Effect::Emit(told)]);
        let wake = pod.next_wake().expect("it is tried again");
        assert_eq!((wake.at, wake.reason), (at(next), lifecycle::WakeReason::SandboxRetry));
        assert_eq!(pod.handle(at(next), Input::TimePassed), [lifecycle::Effect::CreateSandbox]);
    }
}

/// Whoever was making a sandbox is gone: a leaving pod does not wait for it any longer.
#[test]
fn a_sandbox_that_nobody_makes_any_more_is_not_waited_for() {
    given_pod()
        .sandbox_takes(secs(20))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .deleted_at(secs(1), secs(30))
        .agent_away(secs(2), secs(3))
        .told()
        .then_at(secs(3), "remove sandbox")
        .then_finished_by(millis(3_010));
}

/// A pod that starts over runs its init containers again, and nobody who is done for good.
#[test]
fn completed_container_is_not_run_again_when_its_sandbox_is_replaced() {
    given_pod()
        .restart(RestartPolicy::OnFailure)
        .init("setup", Script::ExitsByItself { after: secs(1), code: 0 })
        .container("once", Script::ExitsByItself { after: secs(1), code: 0 })
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .sandbox_lost_at(secs(10))
        .agent_away(secs(11), secs(12))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_times(1, "start setup#1")
        .then_never("start once#1")
        .then_times(1, "start app#1")
        .then_exit("once", 0, "Completed");
}

/// A restart that was asked for and never happened is asked for again by the next agent.
#[test]
fn a_restart_that_never_happened_is_asked_for_again() {
    given_pod()
        .container("app", Script::ExitsAnyway { after: secs(30), code: 1, on_term: 0 })
        .when_left_alone()
        .agent_dies_before("start app#1", secs(1))
        .deleted_at(secs(40), secs(30))
        .told()
        .then_at(secs(31), "start app#1")
        .then_at(secs(40), "TERM to app#1");
}

/// One hook of a container is not taken for another: that the first one ran says nothing of the last one.
#[test]
fn a_hook_that_ran_is_not_taken_for_one_that_did_not() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .post_start(Hook::Exec, HookScript::Takes(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_left_alone()
        .deleted_at(secs(10), secs(30))
        .agent_dies_before("run preStop of app", secs(1))
        .told()
        .then_at(secs(11), "run preStop of app")
        .then_at(secs(13), "TERM to app")
        .then_times(1, "run postStart of app");
}

/// A wake says whose time is over: the pod's, the container's own, or the two seconds that everybody has.
#[test]
fn a_wake_says_whose_time_is_over() {
    given_pod()
        .container("app", IgnoresTerm)
        .liveness_grace(secs(5))
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .deleted_at(secs(11), secs(30))
        .told()
        .then_at(secs(15), "grace of app spent")
        .then_never("grace budget spent");
    let deleted = |grace| given_pod().container("app", IgnoresTerm).when_deleted(secs(grace)).told();
    deleted(1).then_at(secs(2), "app had its two seconds").then_never("grace budget spent");
    deleted(2).then_at(secs(2), "grace budget spent").then_never("app had its two seconds");
}

/// Whatever a confused runtime reports (a sandbox that was lost and is there again, with somebody in it), a worker never
/// asks to be woken for what is over.
#[test]
fn wake_is_never_requested_for_a_past_deadline() {
    let at = lifecycle::Moment::from_millis;
    let mut pod = lifecycle::PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    let seen = lifecycle::SeenContainer::Running { wall: lifecycle::Wall(0) };
    let containers = vec![lifecycle::ContainerReport { instance: run("app", 1), seen }];
    let there = lifecycle::RuntimeReport { sandbox: true, containers, hooks: Vec::new() };
    for input in [
        Input::Begin,
        Input::SandboxReady,
        Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None },
        Input::Started { instance: run("app", 0), wall: lifecycle::Wall(0) },
        Input::AgentRestarted { report: lifecycle::RuntimeReport::default() },
        Input::AgentRestarted { report: there },
        Input::SandboxRemoved,
        Input::DeleteRequested { grace: secs(5), sighting: lifecycle::DeleteSighting::Live },
    ] {
        pod.handle(at(1_000), input);
    }
    let asked = pod.handle(at(6_000), Input::TimePassed);
    assert!(asked.contains(&lifecycle::Effect::KillContainer { instance: run("app", 1) }), "{asked:?}");
    let wake = pod.next_wake().expect("the kill is watched");
    assert!(wake.at > at(6_000), "{wake:?}");
}

/// A static pod that is done says so when its manifest goes; one that would have gone on, or has not begun, does not.
#[test]
fn a_static_pod_that_is_done_says_so() {
    let removed = |restart, script| {
        given_pod()
            .restart(restart)
            .sidecar("proxy", exits_on_term(secs(1)))
            .container("app", script)
            .when_left_alone()
            .killed_at(secs(5), KillCause::ConfigRemoved, None)
            .told()
    };
    let done = Script::ExitsByItself { after: secs(5), code: 0 };
    removed(RestartPolicy::Never, exits_on_term(secs(1))).then_phase(PodPhase::Succeeded);
    removed(RestartPolicy::Never, IgnoresTerm).then_phase(PodPhase::Failed);
    removed(RestartPolicy::Always, exits_on_term(secs(1))).then_phase(PodPhase::Running);
    removed(RestartPolicy::Always, done).then_phase(PodPhase::Running);
    removed(RestartPolicy::Never, exits_on_term(secs(2)))
        .then_status_at(secs(6), |status| assert_eq!(status.phase, PodPhase::Running));
    removed(RestartPolicy::Never, Script::StartUnanswered).then_phase(PodPhase::Pending);
}

/// Initialized stays what it was, though a sidecar is down; a main container is being created once it is, and not before.
#[test]
fn a_pod_that_was_initialized_stays_so() {
    given_pod()
        .init("setup", Script::ExitsByItself { after: secs(1), code: 0 })
        .sidecar("proxy", Script::ExitsByItself { after: secs(3), code: 1 })
        .container("app", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(9)))
        .when_left_alone()
        .deleted_at(secs(60), secs(30))
        .told()
        .then_status_at(millis(500), |status| {
            assert_eq!(reason(status, "app"), "PodInitializing");
            assert!(!status.initialized.holds);
        })
        .then_status_at(millis(2_500), |status| assert_eq!(reason(status, "app"), "ContainerCreating"))
        .then_status_at(secs(12), |status| {
            assert_eq!(reason(status, "proxy"), "CrashLoopBackOff");
            assert!(status.initialized.holds && !status.ready.holds);
        });
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(9)))
        .when_left_alone()
        .deleted_at(secs(20), secs(30))
        .told()
        .then_status_at(secs(5), |status| assert_eq!(reason(status, "app"), "ContainerCreating"));
}

fn reason<'a>(status: &'a lifecycle::PodStatus, name: &str) -> &'a str {
    let container = status.containers.iter().find(|container| container.name.0 == name).expect("a given container");
    match &container.state {
        lifecycle::ContainerState::Waiting(waiting) => &waiting.reason,
        other @ (lifecycle::ContainerState::Running { .. } | lifecycle::ContainerState::Terminated(_)) => {
            panic!("{name} does not wait: {other:?}")
        }
    }
}

/// A container between two images is shown as it ended when its pod leaves.
#[test]
fn a_container_between_two_images_is_shown_as_it_ended() {
    let changed =
        Input::SpecChanged { change: lifecycle::SpecChange::Image { container: ContainerName("app".into()) } };
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(10)))
        .when_left_alone()
        .told_at(secs(15), changed)
        .deleted_at(secs(18), secs(30))
        .told()
        .then_status_at(secs(17), |status| assert_eq!(reason(status, "app"), "ContainerCreating"))
        .then_exit("app", 0, "Completed")
        .then_phase(PodPhase::Succeeded);
}

/// A pod that leaves before it was initialized owes an end to the init containers it came to, the first in any case.
#[test]
fn the_init_containers_it_came_to_are_said_to_have_ended() {
    let story = given_pod()
        .init("first", Script::ExitsByItself { after: secs(9), code: 0 })
        .image(ImageScript::Takes(secs(60)))
        .init("second", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .deleted_at(secs(5), secs(30))
        .told()
        .then_exit("first", 137, "ContainerStatusUnknown")
        .then_phase(PodPhase::Failed);
    assert_eq!(
        (reason(&story.status(), "second"), reason(&story.status(), "app")),
        ("PodInitializing", "PodInitializing")
    );
}
