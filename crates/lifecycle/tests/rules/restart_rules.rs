//! Containers with a restart policy and rules of their own, and pods of which all containers are run again.

use lifecycle::{
    Condition, ContainerState, ExitCodes, Hook, PodPhase, PodStatus, RestartAction, RestartPolicy, RestartRule,
};
use testkit::{HookScript, Script, exits_on_term, given_pod, millis, secs};

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/timelines");

/// Ends by itself after a second.
fn ends_with(code: u8) -> Script {
    Script::ExitsByItself { after: secs(1), code }
}

fn restart(codes: ExitCodes) -> RestartRule {
    RestartRule { codes, action: RestartAction::Restart }
}

fn restart_all(code: i32) -> RestartRule {
    RestartRule { codes: ExitCodes::In(vec![code]), action: RestartAction::RestartAllContainers }
}

fn restarting(status: &PodStatus) -> &Condition {
    status.all_restarting.as_ref().expect("its rules can ask for it")
}

fn waits_for(status: &PodStatus, index: usize) -> Option<&str> {
    match &status.containers[index].state {
        ContainerState::Waiting(waiting) => Some(&waiting.reason),
        ContainerState::Running { .. } | ContainerState::Terminated(_) => None,
    }
}

#[test]
fn policy_of_a_container_wins_over_that_of_its_pod() {
    for (pods, own, code, again) in [
        (RestartPolicy::Always, RestartPolicy::Never, 1, false),
        (RestartPolicy::Always, RestartPolicy::OnFailure, 0, false),
        (RestartPolicy::Always, RestartPolicy::OnFailure, 1, true),
        (RestartPolicy::Never, RestartPolicy::Always, 0, true),
        (RestartPolicy::Never, RestartPolicy::OnFailure, 1, true),
        (RestartPolicy::Never, RestartPolicy::OnFailure, 0, false),
    ] {
        let told = given_pod()
            .restart(pods)
            .container("app", ends_with(code))
            .restarts(own, vec![])
            .container("web", exits_on_term(secs(1)))
            .when_left_alone()
            .deleted_at(secs(5), secs(5))
            .told();
        let told = if again { told.then_at(secs(1), "start app#1") } else { told.then_never("start app#1") };
        told.then_status_at(secs(4), |status| assert_eq!(status.phase, PodPhase::Running, "web runs"));
    }
}

#[test]
fn pod_is_over_when_no_container_runs_again_by_its_own_policy() {
    given_pod()
        .container("app", ends_with(0))
        .restarts(RestartPolicy::Never, vec![])
        .container("web", ends_with(0))
        .restarts(RestartPolicy::OnFailure, vec![])
        .when_left_alone()
        .told()
        .then_phase(PodPhase::Succeeded)
        .then_at(secs(1), "remove sandbox");
}

#[test]
fn first_rule_that_speaks_of_an_exit_code_decides() {
    use ExitCodes::{In, NotIn};
    for (rules, policy, code, again) in [
        (vec![restart(In(vec![42]))], RestartPolicy::Never, 42, true),
        (vec![restart(In(vec![42]))], RestartPolicy::Never, 43, false),
        (vec![restart(NotIn(vec![42]))], RestartPolicy::Never, 42, false),
        (vec![restart(NotIn(vec![42]))], RestartPolicy::Never, 0, true),
        (vec![restart(In(vec![1])), restart(In(vec![42]))], RestartPolicy::Never, 42, true),
        (vec![restart(In(vec![42]))], RestartPolicy::OnFailure, 1, true),
        (vec![], RestartPolicy::Never, 42, false),
        (vec![restart(In(vec![]))], RestartPolicy::Never, 0, false),
    ] {
        let told = given_pod()
            .restart(RestartPolicy::Never)
            .container("app", ends_with(code))
            .restarts(policy, rules.clone())
            .when_left_alone()
            .deleted_at(secs(5), secs(5))
            .told();
        match again {
            true => told.then_at(secs(1), "start app#1"),
            false => told.then_never("start app#1"),
        };
    }
}

/// Nobody knows how a container ended that cannot be found, so no rule speaks of it.
#[test]
fn rule_does_not_speak_of_a_run_that_was_lost() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", exits_on_term(secs(1)))
        .restarts(RestartPolicy::Never, vec![restart(ExitCodes::In(vec![137]))])
        .when_left_alone()
        .agent_away(secs(10), secs(20))
        .sandbox_lost_at(secs(15))
        .told()
        .then_never("start app#1")
        .then_phase(PodPhase::Failed);
}

#[test]
fn init_container_with_a_policy_of_its_own_is_tried_again_until_it_succeeds() {
    given_pod()
        .restart(RestartPolicy::Never)
        .init("setup", ends_with(1))
        .restarts(RestartPolicy::OnFailure, vec![])
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .deleted_at(secs(5), secs(5))
        .told()
        .then_at(secs(1), "start setup#1")
        .then_status_at(secs(3), |status| assert_eq!(waits_for(status, 0), Some("CrashLoopBackOff")));
    given_pod()
        .init("setup", ends_with(1))
        .restarts(RestartPolicy::Never, vec![])
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told()
        .then_never("start app")
        .then_phase(PodPhase::Failed);
    // One that has succeeded has done its part, whatever its rules say.
    given_pod()
        .init("setup", ends_with(0))
        .restarts(RestartPolicy::Always, vec![restart(ExitCodes::In(vec![0]))])
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told()
        .then_at(secs(1), "start app")
        .then_never("start setup#1");
}

/// Containers that had done their part run again too; hooks are left out, and whoever ignores its signal has two seconds.
#[test]
fn restart_of_all_containers_begins_with_the_first_init_container() {
    given_pod()
        .restart(RestartPolicy::Never)
        .init("setup", ends_with(0))
        .sidecar("proxy", exits_on_term(millis(100)))
        .container("source", Script::ExitsByItself { after: secs(10), code: 42 })
        .restarts(RestartPolicy::Never, vec![restart_all(42)])
        .container("done", ends_with(0))
        .container("deaf", Script::IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .ephemeral("debug", Script::IgnoresTerm)
        .when_left_alone()
        .deleted_at(secs(20), secs(5))
        .then_golden(TIMELINES, "restart_of_all_containers")
        .then_status_at(secs(9), |status| assert!(!restarting(status).holds))
        .then_status_at(secs(12), |status| {
            let condition = restarting(status);
            assert!(condition.holds && status.phase == PodPhase::Running && status.initialized.holds);
            assert_eq!(condition.reason.as_deref(), Some("RestartAllContainersStarted"));
            assert_eq!(condition.message.as_deref(), Some("container exited with restart policy rule"));
            for waiting in [0, 1, 2, 3] {
                assert_eq!(waits_for(status, waiting), Some("RestartingAllContainers"), "{waiting}");
            }
        })
        .then_status_at(secs(15), |status| {
            assert!(!restarting(status).holds);
            assert_eq!(status.containers.iter().map(|it| it.attempt).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0]);
        });
}

/// The container that asks for it waits longer each time, as it would alone.
#[test]
fn restart_of_all_containers_backs_off() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("source", ends_with(42))
        .restarts(RestartPolicy::Never, vec![restart_all(42)])
        .container("web", exits_on_term(millis(0)))
        .when_left_alone()
        .deleted_at(secs(30), secs(5))
        .told()
        .then_at(secs(1), "start source#1")
        .then_at(secs(1), "start web#1")
        .then_at(secs(2), "start web#2")
        .then_at(secs(12), "start source#2")
        .then_at(secs(13), "TERM to web#2");
}

#[test]
fn sidecar_may_ask_for_all_containers_to_run_again() {
    given_pod()
        .restart(RestartPolicy::Never)
        .sidecar("proxy", Script::ExitsByItself { after: secs(5), code: 42 })
        .restarts(RestartPolicy::Always, vec![restart_all(42)])
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .deleted_at(secs(8), secs(5))
        .told()
        .then_at(secs(5), "TERM to app")
        .then_at(secs(6), "start proxy#1")
        .then_at(secs(6), "start app#1");
}

#[test]
fn pod_deleted_while_all_its_containers_are_restarted_leaves() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("source", Script::ExitsByItself { after: secs(10), code: 42 })
        .restarts(RestartPolicy::Never, vec![restart_all(42)])
        .container("slow", exits_on_term(millis(1_500)))
        .when_left_alone()
        .deleted_at(secs(11), secs(30))
        .told()
        .then_times(1, "TERM to slow")
        .then_never("start source#1")
        .then_never("start slow#1")
        .then_finished_by(millis(11_510))
        .then_exit("source", 42, "Error");
}

/// What was stopped for it is run again by the agent that comes back, and nothing is stopped twice.
#[test]
fn restart_of_all_containers_goes_on_after_the_agent_has_died() {
    given_pod()
        .restart(RestartPolicy::Never)
        .init("setup", ends_with(0))
        .container("source", Script::ExitsByItself { after: secs(10), code: 42 })
        .restarts(RestartPolicy::Never, vec![restart_all(42)])
        .container("slow", exits_on_term(millis(1_500)))
        .when_left_alone()
        .agent_away(millis(11_500), secs(15))
        .deleted_at(secs(20), secs(30))
        .told()
        .then_times(1, "start setup#1")
        .then_at(secs(15), "start setup#1")
        .then_at(secs(16), "start source#1")
        .then_at(secs(16), "start slow#1");
}

/// An image that is pulled too early costs a pod whose init containers fail, and may not be what they were to see to.
#[test]
fn image_is_pulled_when_it_is_its_container_s_turn() {
    given_pod()
        .init("setup", ends_with(0))
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .container("web", exits_on_term(secs(1)))
        .ephemeral("debug", exits_on_term(secs(1)))
        .when_left_alone()
        .told()
        .then_at(secs(0), "pull image of setup")
        .then_at(secs(0), "pull image of debug")
        .then_at(secs(1), "pull image of proxy")
        .then_at(secs(1), "pull image of app")
        .then_at(secs(1), "pull image of web")
        .then_times(1, "pull image of app");
}
