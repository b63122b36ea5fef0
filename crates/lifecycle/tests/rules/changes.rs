//! Probes with a grace of their own, specs that change, deadlines, generations and reboots: node-termination 3.6, 6, 8
//! and 11 C to H.

use lifecycle::{
    BestEvidence, ContainerName, ContainerSpec, ContainerState, Cut, DeleteSighting, DrainSpec, Effect, Exit, Hook,
    Input, Instance, KillCause, Moment, PodPhase, PodWorker, Probe, RestartPolicy, Role, Routes, RuntimeReport, Signal,
    SpecChange, TerminationVerdict, TrafficNews, Wall, message,
};
use testkit::{HookScript, ImageScript, Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

const POLICIES: [RestartPolicy; 3] = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];

fn image_of(name: &str) -> Input {
    Input::SpecChanged { change: SpecChange::Image { container: ContainerName(name.into()) } }
}

fn resources_of(name: &str) -> Input {
    Input::SpecChanged { change: SpecChange::Resources { container: ContainerName(name.into()) } }
}

/// Resources that a container gets only by another run end the one it has, with its grace and its hook, whatever the policy;
/// nobody who is leaving, and no run to completion, is disturbed by them.
#[test]
fn changed_resources_restart_a_container_and_nobody_who_leaves() {
    for policy in POLICIES {
        given_pod()
            .restart(policy)
            .container("app", exits_on_term(secs(2)))
            .pre_stop(Hook::Exec, HookScript::Takes(secs(1)))
            .when_left_alone()
            .told_at(secs(10), resources_of("app"))
            .told_at(secs(11), resources_of("app"))
            .deleted_at(secs(60), secs(1))
            .told()
            .then_times(1, "pull image of app")
            .then_events(1, "Killing", "Container app resize requires restart")
            .then_at(secs(11), "TERM to app")
            .then_at(secs(13), "start app#1")
            .then_never("start app#2")
            .then_status_at(secs(20), |status| assert_eq!(status.containers[0].attempt, 1));
        given_pod()
            .restart(policy)
            .container("app", exits_on_term(secs(4)))
            .when_deleted(secs(30))
            .told_at(secs(1), resources_of("app"))
            .told()
            .then_never("start app#1")
            .then_times(1, "TERM to app")
            .then_finished_by(millis(4_010));
    }
    // One that is being ended for another reason is run again all the same, also if it ends well.
    given_pod()
        .restart(RestartPolicy::OnFailure)
        .container("app", exits_on_term(secs(2)))
        .when_left_alone()
        .probe_at(secs(10), "app", Probe::Liveness, false)
        .told_at(secs(11), resources_of("app"))
        .deleted_at(secs(60), secs(1))
        .told()
        .then_times(1, "TERM to app")
        .then_at(secs(12), "start app#1");
    given_pod()
        .init("setup", Script::ExitsByItself { after: secs(5), code: 0 })
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told_at(secs(2), resources_of("setup"))
        .deleted_at(secs(10), secs(1))
        .told()
        .then_never("TERM to setup")
        .then_never("start setup#1");
}

/// [NT-111]: a liveness failure grants what its probe says, not what the pod says (G13).
#[test]
fn a_liveness_failure_has_its_own_grace() {
    given_pod()
        .grace(secs(500))
        .container("app", IgnoresTerm)
        .liveness_grace(secs(5))
        .when_left_alone()
        .probe_at(secs(20), "app", Probe::Liveness, false)
        .deleted_at(secs(40), secs(1))
        .told()
        .then_at(secs(20), "TERM to app")
        .then_at(millis(25_001), "start app#1")
        .then_events(1, "Killing", "Container app failed liveness probe, will be restarted")
        .then_at(secs(25), "KILL to app");
}

/// [NT-111]: the same for the startup probe, also of a sidecar, and even if it is longer than the pod's (G21).
#[test]
fn a_startup_failure_has_its_own_grace() {
    given_pod()
        .grace(secs(10))
        .container("app", IgnoresTerm)
        .startup_probe(Some(secs(60)))
        .when_left_alone()
        .probe_at(secs(5), "app", Probe::Startup, false)
        .deleted_at(secs(80), secs(1))
        .told()
        .then_at(secs(65), "KILL to app");
    given_pod()
        .sidecar("proxy", IgnoresTerm)
        .startup_probe(Some(secs(3)))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .probe_at(secs(5), "proxy", Probe::Startup, false)
        .deleted_at(secs(20), secs(30))
        .told()
        .then_events(1, "Killing", "Init container proxy failed startup probe")
        .then_at(secs(8), "KILL to proxy")
        .then_never("start app");
}

/// A probe's grace does not apply to a pod that is being deleted: the pod's deadline holds if it comes first.
#[test]
fn a_probes_grace_never_outlives_the_pods() {
    given_pod()
        .container("app", IgnoresTerm)
        .liveness_grace(secs(60))
        .when_left_alone()
        .probe_at(secs(5), "app", Probe::Liveness, false)
        .deleted_at(secs(6), secs(10))
        .told()
        .then_at(secs(16), "KILL to app");
}

/// Until its startup probe has passed, a container is neither started nor ready, nobody waits behind it in vain, and
/// nobody asks whether it lives.
#[test]
fn a_startup_probe_gates_everything_else() {
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .startup_probe(None)
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .probe_at(secs(1), "proxy", Probe::Liveness, false)
        .probe_at(secs(3), "proxy", Probe::Startup, true)
        .probe_at(secs(5), "proxy", Probe::Startup, false)
        .deleted_at(secs(9), secs(30))
        .told()
        .then_status_at(secs(2), |status| {
            assert!(!status.containers[0].started && !status.containers[0].ready && !status.initialized.holds);
        })
        .then_at(secs(3), "start app")
        .then_status_at(secs(4), |status| {
            assert!(status.containers[0].started && status.containers[0].ready && status.ready.holds);
        })
        .then_no_event("Unhealthy")
        .then_at(secs(10), "TERM to proxy");
}

/// [NT-109] [NT-110]: during a hook readiness still counts, and liveness does not, of sidecars neither.
#[test]
fn readiness_counts_during_a_hook_and_liveness_does_not() {
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(8)))
        .container("app", exits_on_term(secs(1)))
        .readiness_probe()
        .pre_stop(Hook::Exec, HookScript::Takes(secs(8)))
        .when_left_alone()
        .probe_at(secs(1), "app", Probe::Readiness, true)
        .probe_at(secs(2), "app", Probe::Liveness, false)
        .probe_at(secs(4), "app", Probe::Readiness, false)
        .probe_at(secs(5), "app", Probe::Liveness, false)
        .deleted_at(secs(6), secs(30))
        .probe_at(secs(7), "proxy", Probe::Liveness, false)
        .told()
        .then_status_at(secs(3), |status| assert!(status.ready.holds))
        .then_status_at(secs(5), |status| assert!(!status.ready.holds))
        .then_times(1, "run preStop of app")
        .then_times(1, "run preStop of proxy")
        .then_at(secs(10), "TERM to app")
        .then_never("start proxy#1")
        .then_never("start app#1");
}

/// [NT-52] [NT-103] [NT-104]: another image restarts nobody once the pod is leaving, whatever the policy and the role.
#[test]
fn a_changed_image_restarts_nobody_during_termination() {
    for policy in POLICIES {
        given_pod()
            .restart(policy)
            .sidecar("proxy", exits_on_term(secs(1)))
            .container("app", exits_on_term(secs(4)))
            .when_deleted(secs(30))
            .told_at(secs(1), image_of("app"))
            .told_at(secs(2), image_of("proxy"))
            .told()
            .then_times(1, "pull image of app")
            .then_times(1, "pull image of proxy")
            .then_never("start app#1")
            .then_at(secs(4), "TERM to proxy")
            .then_finished_by(millis(5_010));
    }
    given_pod()
        .init("setup", exits_on_term(secs(4)))
        .container("app", exits_on_term(secs(1)))
        .when_deleted(secs(30))
        .told_at(secs(1), image_of("setup"))
        .told()
        .then_times(1, "pull image of setup")
        .then_never("start setup#1")
        .then_never("start app");
}

/// Another image restarts a container of a living pod: with its grace and its hook, and whatever the policy.
#[test]
fn a_changed_image_restarts_a_container() {
    for policy in POLICIES {
        given_pod()
            .restart(policy)
            .container("app", exits_on_term(secs(2)))
            .image_stop_signal(Signal(3))
            .image(ImageScript::Takes(secs(8)))
            .pre_stop(Hook::Exec, HookScript::Takes(secs(1)))
            .when_left_alone()
            .told_at(secs(10), image_of("app"))
            .deleted_at(secs(60), secs(1))
            .told()
            .then_times(2, "pull image of app")
            .then_events(1, "Killing", "Container app definition changed, will be restarted")
            // The signal is that of the image it was made from, though another one is on its way.
            .then_at(secs(11), "QUIT to app")
            .then_at(secs(18), "start app#1")
            .then_status_at(secs(20), |status| assert_eq!(status.containers[0].attempt, 1));
    }
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told_at(secs(10), image_of("proxy"))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_events(1, "Killing", "Init container proxy definition changed")
        .then_at(secs(11), "start proxy#1");
    // A run to completion that is over, or under way, is not begun anew.
    given_pod()
        .init("setup", Script::ExitsByItself { after: secs(5), code: 0 })
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told_at(secs(2), image_of("setup"))
        .told_at(secs(8), image_of("setup"))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_never("start setup#1")
        .then_times(2, "pull image of setup")
        .then_at(secs(5), "start app");
}

/// [NT-105]: an ephemeral container joins a running pod, and is signalled with the mains when the pod leaves.
#[test]
fn an_ephemeral_container_joins_and_leaves_with_the_mains() {
    let joins =
        Input::SpecChanged { change: SpecChange::Ephemeral { spec: ContainerSpec::new("debug", Role::Ephemeral) } };
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", exits_on_term(secs(3)))
        .when_left_alone()
        .told_at(secs(5), joins.clone())
        .told_at(secs(6), joins.clone())
        .agent_away(secs(7), secs(8))
        .deleted_at(secs(20), secs(30))
        .told()
        .then_at(secs(5), "start debug")
        .then_at(secs(20), "TERM to debug")
        .then_at(secs(20), "TERM to app")
        .then_at(secs(23), "TERM to proxy")
        .then_exit("debug", 0, "Completed");
    given_pod()
        .container("app", exits_on_term(secs(3)))
        .when_deleted(secs(30))
        .told_at(secs(1), joins)
        .told()
        .then_never("pull image of debug");
}

/// [NT-163]: a pod that was active for too long leaves with its grace, unready at once and Failed in the end.
#[test]
fn an_active_deadline_ends_a_pod() {
    given_pod()
        .grace(secs(10))
        .active_deadline(secs(60))
        .container("app", IgnoresTerm)
        .when_left_alone()
        .told()
        .then_at(secs(60), "TERM to app")
        .then_status_at(secs(61), |status| {
            assert_eq!(status.phase, PodPhase::Running);
            assert_eq!((status.ready.holds, status.ready.reason.as_deref()), (false, Some("PodFailed")));
        })
        .then_at(secs(70), "KILL to app")
        .then_phase(PodPhase::Failed)
        .then_reason(Some("DeadlineExceeded"))
        .then_events(1, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        .then_never("delete object");
}

/// [NT-163]: the deadline may be changed, counts from the beginning, and survives a restart of the agent.
#[test]
fn an_active_deadline_may_be_changed() {
    let changed = |deadline| Input::SpecChanged { change: SpecChange::ActiveDeadline { deadline } };
    given_pod()
        .active_deadline(secs(60))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told_at(secs(10), changed(None))
        .told_at(secs(90), changed(Some(secs(200))))
        .agent_away(secs(100), secs(120))
        .told()
        .then_at(secs(200), "TERM to app")
        .then_reason(Some("DeadlineExceeded"));
    // A pod whose time was over while the agent was away is not begun anew for it.
    given_pod()
        .active_deadline(secs(60))
        .container("app", exits_on_term(secs(1)))
        .image(ImageScript::Takes(secs(600)))
        .when_left_alone()
        .agent_away(secs(50), secs(70))
        .told()
        .then_times(1, "pull image of app")
        .then_at(secs(70), "remove sandbox")
        .then_reason(Some("DeadlineExceeded"));
}

/// Reason and message belong to an end that the node caused; others have none.
#[test]
fn a_reason_belongs_to_its_phase() {
    let story = given_pod()
        .container("app", exits_on_term(secs(5)))
        .when_killed(KillCause::Preempted, Some(secs(10)))
        .told()
        .then_status_at(secs(2), |status| {
            assert_eq!((status.phase, &status.reason, &status.message), (PodPhase::Running, &None, &None));
        })
        .then_phase(PodPhase::Failed)
        .then_reason(Some("Preempting"));
    assert_eq!(story.status().message.as_deref(), Some("Preempted in order to admit critical pod"));
    given_pod().container("app", exits_on_term(secs(1))).when_deleted(secs(9)).told().then_reason(None);
}

/// [NT-127]: a container that vanished counts as a run, and the next one has the next number. If its pod is leaving there
/// is no next one, and the number stays.
#[test]
fn a_vanished_container_counts_as_a_run() {
    let story = given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .agent_away(secs(5), secs(9))
        .sandbox_lost_at(secs(6))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_status_at(secs(20), |status| {
            assert_eq!(status.containers[0].attempt, 1);
            let last = status.containers[0].last.as_ref().expect("it ran before");
            assert_eq!((last.exit_code, last.reason.as_str()), (137, "ContainerStatusUnknown"));
        });
    assert!(matches!(story.container("app").state, ContainerState::Terminated(_)));
    let leaving = given_pod()
        .container("app", IgnoresTerm)
        .when_deleted(secs(60))
        .agent_away(secs(5), secs(9))
        .sandbox_lost_at(secs(6))
        .told()
        .then_exit("app", 137, "ContainerStatusUnknown");
    let app = leaving.container("app");
    assert_eq!((app.attempt, app.last), (0, None));
}

/// [NT-86]: the pod's own stop signal wins over the image's, and is shown.
#[test]
fn the_stop_signal_in_force_is_shown() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .stop_signal(Signal(10))
        .image_stop_signal(Signal(3))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(0), "USR1 to app")
        .then_status_at(secs(0), |status| assert_eq!(status.containers[0].stop_signal, Some(Signal(10))));
}

/// [NT-64] [NT-65] [NT-66]: hooks of every kind run on mains and sidecars alike; one that could not be
/// asked, or was no valid one, failed and prevents nothing.
#[test]
fn hooks_of_every_kind_run_on_mains_and_sidecars() {
    for hook in [Hook::Exec, Hook::HttpGet, Hook::Sleep(secs(2))] {
        given_pod()
            .sidecar("proxy", exits_on_term(secs(1)))
            .post_start(hook, HookScript::Takes(secs(2)))
            .pre_stop(hook, HookScript::Takes(secs(2)))
            .container("app", exits_on_term(secs(1)))
            .post_start(hook, HookScript::Takes(secs(2)))
            .pre_stop(hook, HookScript::Takes(secs(2)))
            .when_left_alone()
            .deleted_at(secs(20), secs(30))
            .told()
            .then_at(secs(0), "run postStart of proxy")
            .then_at(secs(2), "run postStart of app")
            .then_at(secs(20), "run preStop of app")
            .then_at(secs(20), "run preStop of proxy")
            .then_at(secs(22), "TERM to app")
            .then_at(secs(23), "TERM to proxy")
            .then_no_event("FailedPreStopHook");
    }
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::HttpGet, HookScript::FailsAfter(secs(1)))
        .when_deleted(secs(30))
        .told()
        .then_at(secs(1), "TERM to app")
        .then_events(1, "FailedPreStopHook", "PreStopHook failed: exit 1");
}

/// [NT-73]: a sleep that is cancelled before its end is given up, not slept.
#[test]
fn a_cancelled_sleep_is_not_slept() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop_sleep(secs(50))
        .when_deleted(secs(10))
        .told()
        .then_at(secs(10), "cancel preStop of app")
        .then_events(1, "FailedPreStopHook", "PreStopHook timed out: it was still running when the grace period ended")
        .then_at(secs(10), "TERM to app")
        .then_finished_by(millis(11_010));
}

/// [NT-123]: last words are cut to a share of what a pod may say; files and logs are read from their ends.
#[test]
fn termination_message_is_cut() {
    assert_eq!(message::share(1), 12_288);
    assert_eq!(message::share(48), 256);
    assert_eq!(message::share(0), 12_288);
    assert_eq!(message::cut("abcdef", 3), "abc");
    assert_eq!(message::cut("aü", 2), "a", "whole characters only");
    assert_eq!(message::cut("ab", 9), "ab");
    let long = format!("{}end", "x".repeat(5_000));
    assert_eq!(message::of_file(&long).len(), 4_096);
    assert!(message::of_file(&long).ends_with("xend"));
    let log: String = (0..200).map(|line| format!("{line}\n")).collect();
    assert!(message::of_log(&log).starts_with("120\n") && message::of_log(&log).ends_with("199\n"));
    let wide: String = (0..200).map(|_| format!("{}\n", "y".repeat(99))).collect();
    assert_eq!(message::of_log(&wide).len(), 2_048);
    assert_eq!(message::of_log("only"), "only");
}

/// The newest generation is told, without anything else having to change; once the object is being deleted it is late.
#[test]
fn the_observed_generation_is_told() {
    given_pod()
        .container("app", exits_on_term(secs(5)))
        .when_left_alone()
        .told_at(secs(2), Input::GenerationSeen { generation: 2 })
        .told_at(secs(3), Input::GenerationSeen { generation: 2 })
        .deleted_at(secs(4), secs(30))
        .told_at(secs(5), Input::GenerationSeen { generation: 3 })
        .with_events()
        .told()
        .then_status_at(secs(1), |status| assert_eq!(status.observed_generation, None))
        .then_status_at(secs(2), |status| assert_eq!(status.observed_generation, Some(2)))
        .then_status_at(secs(5), |status| assert_eq!(status.observed_generation, Some(3)));
}

fn instance(name: &str) -> Instance {
    Instance { name: ContainerName(name.into()), attempt: 0 }
}

/// [NT-145]: after a reboot a living pod starts over, on the new boot's clock.
#[test]
fn a_living_pod_starts_over_after_a_reboot() {
    let at = Moment::from_millis;
    let mut pod = PodWorker::new(given_pod().active_deadline(secs(600)).container("app", IgnoresTerm).spec());
    for (now, input) in [
        (9_000_000, Input::Begin),
        (9_000_001, Input::SandboxReady),
        (9_000_002, Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None }),
        (9_000_003, Input::Started { instance: instance("app"), wall: Wall(0) }),
    ] {
        pod.handle(at(now), input);
    }
    // A hundred seconds later, the machine is up for twenty.
    pod.handle(at(20_000), Input::Rebooted { was: at(9_100_000) });
    let asked = pod.handle(at(20_001), Input::AgentRestarted { report: RuntimeReport::default() });
    assert!(asked.contains(&Effect::RemoveSandbox));
    pod.handle(at(20_002), Input::SandboxRemoved);
    let asked = pod.handle(at(20_003), Input::SandboxReady);
    let again = Instance { attempt: 1, ..instance("app") };
    assert!(asked.contains(&Effect::StartContainer { instance: again.clone() }));
    pod.handle(at(20_004), Input::Started { instance: again, wall: Wall(9) });
    let wake = pod.next_wake().expect("it has an active deadline");
    // A hundred seconds of six hundred were over when it came back.
    assert_eq!(wake.at, at(520_000));
}

/// A boot clock that reads more than the old one did is still another clock: what was left is left.
#[test]
fn an_active_deadline_is_not_read_off_another_clock() {
    let at = Moment::from_millis;
    let mut pod = PodWorker::new(given_pod().active_deadline(secs(600)).container("app", IgnoresTerm).spec());
    pod.handle(at(5_000), Input::Begin);
    // Nobody knows for how long the machine was off, for its wall clock went back.
    pod.handle(at(700_000), Input::Rebooted { was: at(25_000) });
    assert!(!pod.is_terminating());
    assert_eq!(pod.next_wake(), None, "nothing is done before somebody says what came through");
    pod.handle(at(700_000), Input::AgentRestarted { report: RuntimeReport::default() });
    let until = pod.next_wake().map(|wake| (wake.at, wake.reason));
    assert_eq!(until, Some((at(820_000), lifecycle::WakeReason::SandboxUnanswered)));
    pod.handle(at(1_280_000), Input::TimePassed);
    assert_eq!(pod.deadline(), Some(at(1_310_000)), "600 s after its begin, and its grace from then");
}

/// A leaving pod keeps its deadline through a reboot, and is finalised: nobody can have survived.
#[test]
fn a_leaving_pod_is_finalised_after_a_reboot() {
    let at = Moment::from_millis;
    let mut pod = PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
    for (now, input) in [
        (1_000, Input::Begin),
        (1_001, Input::SandboxReady),
        (1_002, Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None }),
        (1_003, Input::Started { instance: instance("app"), wall: Wall(0) }),
        (5_000, Input::DeleteRequested { grace: secs(60), sighting: DeleteSighting::Live }),
    ] {
        pod.handle(at(now), input);
    }
    pod.handle(at(3_000), Input::Rebooted { was: at(35_000) });
    assert_eq!(pod.deadline(), Some(at(33_000)), "thirty seconds are left");
    // It was asked to leave thirty seconds ago, most of them before the boot: a shorter grace counts from then.
    let shorter = |grace| Input::DeleteRequested { grace: secs(grace), sighting: DeleteSighting::Live };
    pod.handle(at(3_000), shorter(40));
    assert_eq!(pod.deadline(), Some(at(13_000)), "ten seconds of forty");
    pod.handle(at(3_000), shorter(20));
    assert_eq!(pod.deadline(), Some(at(4_000)), "none of twenty, but a second");
    let asked = pod.handle(at(3_001), Input::AgentRestarted { report: RuntimeReport::default() });
    assert!(asked.contains(&Effect::RemoveSandbox));
    assert_eq!(pod.status().phase, PodPhase::Running, "not before its sandbox is seen to be gone");
    pod.handle(at(3_002), Input::SandboxRemoved);
    let status = pod.status();
    assert_eq!((status.phase, status.verdict), (PodPhase::Failed, Some(TerminationVerdict::Lost)));
    assert_eq!(pod.handle(at(3_003), Input::ObjectDeleted), [Effect::Finish]);
}

/// Back-offs, retries and hooks keep what was left of them through a reboot.
#[test]
fn every_wait_keeps_its_rest_through_a_reboot() {
    let at = Moment::from_millis;
    let drain = DrainSpec { budget: Some(secs(20)), ..DrainSpec::default() };
    let spec = given_pod().container("app", IgnoresTerm).drain(drain).spec();
    let image_ready = || Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None };
    // Everything that ran goes on. Whoever reports that makes errands about a sandbox begin anew; other waits go on, too.
    let all_survived = |pod: &PodWorker| {
        let running =
            pod.status().containers.into_iter().filter(|it| matches!(it.state, ContainerState::Running { .. }));
        let containers = running.map(|it| lifecycle::ContainerReport {
            instance: Instance { name: it.name, attempt: it.attempt },
            seen: lifecycle::SeenContainer::Running { wall: Wall(0) },
        });
        RuntimeReport { sandbox: true, containers: containers.collect(), hooks: Vec::new() }
    };
    let shifted_of = |spec: &lifecycle::PodSpec, inputs: Vec<(u64, Input)>| {
        let mut pod = PodWorker::new(spec.clone());
        for (now, input) in inputs {
            pod.handle(at(now), input);
        }
        let mut booted = pod.clone();
        booted.handle(at(50_000), Input::Rebooted { was: at(9_000_000) });
        // Without processes there is nothing to be told first.
        if let Some(after) = booted.next_wake() {
            assert_eq!(pod.next_wake().map(|before| before.at - at(9_000_000)), Some(after.at - at(50_000)));
        }
        let report = all_survived(&pod);
        for (pod, now) in [(&mut pod, 9_000_000), (&mut booted, 50_000)] {
            pod.handle(at(now), Input::AgentRestarted { report: report.clone() });
        }
        let before = pod.next_wake().expect("it waits for something").at;
        let after = booted.next_wake().expect("it still does").at;
        assert_eq!(before - at(9_000_000), after - at(50_000));
    };
    let shifted = |inputs| shifted_of(&spec, inputs);
    let failed = Input::SandboxFailed { message: "no".into() };
    shifted(vec![(8_999_000, Input::Begin), (8_999_900, failed)]);
    let no_image = Input::ImageFailed {
        container: ContainerName("app".into()),
        edition: 0,
        reason: "ErrImagePull".into(),
        message: "no".into(),
    };
    shifted(vec![(8_999_000, Input::Begin), (8_999_900, no_image)]);
    let removal_failed = Input::SandboxRemovalFailed { message: "busy".into() };
    // People were told that it is late: that alone does not keep its rest, for nobody is late while the machine is off.
    let told_late = (8_995_000, Input::TimePassed);
    shifted(vec![(8_990_000, Input::ObjectGone), told_late, (8_999_999, removal_failed)]);
    let up = |then: Vec<(u64, Input)>| {
        let image = Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None };
        let started = Input::Started { instance: instance("app"), wall: Wall(0) };
        let routes = Routes { best: BestEvidence::Divert, last: false, replaced: true, busy: true };
        let up = [Input::Begin, Input::SandboxReady, image, started, Input::Traffic(TrafficNews::Routed(routes))];
        up.into_iter().map(|input| (8_900_000, input)).chain(then).collect::<Vec<_>>()
    };
    let exit = Exit { code: 1, signal: None, oom: false, wall: Wall(0), seen: true };
    let again = Instance { attempt: 1, ..instance("app") };
    shifted(up(vec![
        (8_995_000, Input::Exited { instance: instance("app"), exit }),
        (8_995_001, Input::Started { instance: again.clone(), wall: Wall(0) }),
        (8_999_000, Input::Exited { instance: again, exit }),
    ]));
    let unwell = Input::ProbeChanged { instance: instance("app"), probe: Probe::Liveness, passing: false };
    shifted(up(vec![(8_999_000, unwell.clone())]));
    shifted(up(vec![
        (8_999_000, unwell),
        (8_999_500, Input::Traffic(TrafficNews::CutDone { how: Cut::Divert, revision: 1 })),
    ]));
    // A pull, a start, a hook that nobody else times any more.
    shifted(vec![(8_999_000, Input::Begin), (8_999_100, Input::SandboxReady)]);
    shifted(vec![(8_999_000, Input::Begin), (8_999_100, Input::SandboxReady), (8_999_200, image_ready())]);
    let deleted = Input::DeleteRequested { grace: secs(60), sighting: DeleteSighting::Live };
    let cut = Input::Traffic(TrafficNews::CutDone { how: Cut::Divert, revision: 1 });
    let settled = Input::Traffic(TrafficNews::Settled);
    shifted(up(vec![(8_999_000, deleted.clone())]));
    shifted(up(vec![(8_999_000, deleted.clone()), (8_999_800, cut.clone())]));
    let draining = || vec![(8_999_000, deleted.clone()), (8_999_700, cut.clone()), (8_999_800, settled.clone())];
    shifted(up(draining()));
    let empty = (8_999_900, Input::Traffic(TrafficNews::Connections { open: 0 }));
    shifted(up(draining().into_iter().chain([empty]).collect()));
    let done = (8_999_900, Input::Traffic(TrafficNews::AppDone));
    shifted(up(draining().into_iter().chain([done.clone()]).collect()));
    // Whoever waits for a kill.
    let lost = Input::AgentRestarted { report: RuntimeReport::default() };
    let (forced_before, overdue) = ((8_990_000, Input::ObjectGone), (8_995_000, Input::TimePassed));
    let awaited = (8_996_000, Input::KillAwaited { ticket: 1 });
    shifted(up(vec![forced_before, (8_990_001, lost), overdue, awaited]));
    let forced = (8_999_950, Input::ObjectGone);
    let seen = lifecycle::SeenContainer::Running { wall: Wall(0) };
    let running = lifecycle::ContainerReport { instance: instance("app"), seen };
    let report = RuntimeReport { sandbox: true, containers: vec![running], hooks: Vec::new() };
    let begin =
        [Input::Begin, Input::SandboxReady, image_ready(), Input::Started { instance: instance("app"), wall: Wall(0) }];
    let begin = || begin.clone().into_iter().map(|input| (8_998_000, input));
    let sleeps = given_pod().container("app", IgnoresTerm).pre_stop_sleep(secs(20)).spec();
    let back = (8_999_500, Input::AgentRestarted { report });
    let away = [(8_999_000, deleted.clone()), back.clone()];
    shifted_of(&sleeps, begin().chain(away).collect());
    let wakes_up =
        given_pod().container("app", IgnoresTerm).post_start(Hook::Sleep(secs(20)), HookScript::NeverEnds).spec();
    shifted_of(&wakes_up, begin().chain([back]).collect());
    shifted(up(draining().into_iter().chain([done, forced]).collect()));
}
