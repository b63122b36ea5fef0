//! Answers that never come, though the agent lives: every wait has an end, and what was asked is asked again.

use lifecycle::{ContainerName, Input, PodPhase, SpecChange, TerminationVerdict, WakeReason};
use testkit::{ImageScript, Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

/// A removal that nobody answers is asked for again; people are told meanwhile what the pod waits for.
#[test]
fn a_removal_that_is_never_answered_is_asked_for_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .unanswered_at_first("remove sandbox")
        .when_deleted(secs(30))
        .told()
        .then_times(2, "remove sandbox")
        .then_at(secs(121), "sandbox removal was never answered")
        .then_events(
            1,
            "TerminationOverdue",
            "Pod should have been gone 3s ago, but its sandbox is still being removed",
        )
        .then_phase(PodPhase::Succeeded)
        .then_finished_by(millis(121_010));
}

/// So is a final DELETE.
#[test]
fn a_delete_that_is_never_answered_is_asked_for_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .unanswered_at_first("delete object")
        .when_deleted(secs(30))
        .told()
        .then_times(2, "delete object")
        .then_at(millis(121_001), "final delete was never answered")
        .then_finished_by(millis(121_010));
}

/// So are the sandbox, the image and the start of a pod that comes up.
#[test]
fn unanswered_sandbox_image_and_start_are_asked_for_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .unanswered_at_first("create sandbox")
        .unanswered_at_first("start app")
        .when_left_alone()
        .deleted_at(secs(4_000), secs(30))
        .told()
        .then_at(secs(120), "sandbox was never answered for")
        .then_at(secs(3_720), "start of app was never answered")
        .then_events(1, "Failed", "Error: nobody answered whether the container was started; asking again")
        .then_at(secs(3_720), "app started")
        .then_exit("app", 0, "Completed");
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(1)))
        .unanswered_at_first("pull image of app")
        .when_left_alone()
        .deleted_at(secs(4000), secs(30))
        .told()
        .then_at(secs(3600), "pull for app was never answered")
        .then_at(secs(3601), "start app");
}

/// A sandbox that is replaced under a living pod is waited for no longer than any other.
#[test]
fn a_replacement_that_is_never_answered_is_asked_for_again() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .unanswered_at_first("remove sandbox")
        .when_left_alone()
        .sandbox_lost_at(secs(10))
        .agent_away(secs(11), secs(12))
        .deleted_at(secs(300), secs(30))
        .told()
        .then_at(secs(132), "sandbox removal was never answered")
        .then_at(millis(132_001), "start app#1");
}

/// A start may have to pull its image again: one that takes long is neither warned about nor asked for twice.
#[test]
fn a_start_that_pulls_for_long_is_waited_for() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .start_takes(secs(600))
        .when_left_alone()
        .deleted_at(secs(700), secs(30))
        .told()
        .then_times(1, "start app")
        .then_no_event("Failed")
        .then_at(secs(700), "TERM to app");
}

/// A start that nobody ever answers is asked for again and again, and holds neither the pod's end nor its order.
#[test]
fn a_start_that_is_never_answered_is_asked_for_until_the_pod_leaves() {
    given_pod()
        .container("app", Script::StartUnanswered)
        .container("web", IgnoresTerm)
        .when_left_alone()
        .deleted_at(secs(12_000), secs(5))
        .told()
        .then_times(4, "start app")
        .then_at(secs(12_000), "TERM to web")
        .then_at(secs(12_005), "KILL to web")
        .then_at(secs(12_007), "remove sandbox")
        .then_finished_by(millis(12_007_010));
}

/// A run of which nobody knows whether it was is not taken for a success, whatever the one before it said.
#[test]
fn an_unanswered_run_is_no_success() {
    given_pod()
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .unanswered_at_first("start app#1")
        .when_left_alone()
        .deleted_at(secs(5), secs(5))
        .told()
        .then_at(secs(12), "remove sandbox")
        .then_phase(PodPhase::Failed)
        .then_verdict(TerminationVerdict::Lost);
}

/// An image that changes before an unanswered start is asked for again is not lost either.
#[test]
fn an_image_that_changes_during_an_unanswered_start_is_not_lost() {
    let changed = Input::SpecChanged { change: SpecChange::Image { container: ContainerName("app".into()) } };
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .unanswered_at_first("start app")
        .when_left_alone()
        .told_at(secs(10), changed)
        .deleted_at(secs(4_000), secs(30))
        .told()
        .then_at(secs(3_600), "TERM to app")
        .then_at(secs(3_601), "start app#1");
}

/// Whatever a worker waits for, it says until when and why: no phase of a life waits in silence, but for the world.
#[test]
fn every_wait_for_an_answer_has_a_deadline_and_a_reason() {
    let mut pod = lifecycle::PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    let at = lifecycle::Moment::from_millis;
    let name = || lifecycle::ContainerName("app".into());
    let instance = || lifecycle::Instance { name: name(), attempt: 0 };
    let exit = lifecycle::Exit { code: 0, signal: None, oom: false, wall: lifecycle::Wall(0), seen: true };
    let next = |pod: &lifecycle::PodWorker| pod.next_wake().map(|wake| (wake.at.as_millis(), wake.reason));
    pod.handle(at(0), Input::Begin);
    assert_eq!(next(&pod), Some((120_000, WakeReason::SandboxUnanswered)));
    pod.handle(at(1), Input::SandboxReady);
    assert_eq!(next(&pod), Some((3_600_000, WakeReason::PullUnanswered(name()))));
    pod.handle(at(2), Input::ImageReady { container: name(), edition: 0, stop_signal: None });
    assert_eq!(next(&pod), Some((3_600_002, WakeReason::StartUnanswered(name()))));
    pod.handle(at(3), Input::Started { instance: instance(), wall: lifecycle::Wall(0) });
    assert_eq!(next(&pod), None, "it lives");
    pod.handle(at(4), Input::ObjectGone);
    assert_eq!(next(&pod), Some((2_004, WakeReason::FloorSpent(name()))));
    pod.handle(at(5), Input::Exited { instance: instance(), exit });
    assert_eq!(next(&pod), Some((4_004, WakeReason::Overdue)));
    pod.handle(at(4_004), Input::TimePassed);
    assert_eq!(next(&pod), Some((120_005, WakeReason::RemovalUnanswered)));
}
