//! The machine is booted under a pod: nothing is done before somebody says what came through it (node-termination 9.2).

use lifecycle::{
    ContainerName, ContainerState, DeleteSighting, Effect, Exit, Hook, Input, Instance, Moment, PodPhase, PodWorker,
    RuntimeReport, TerminationVerdict, Wall,
};
use testkit::{HookScript, Script::IgnoresTerm, given_pod, secs};

const BOOTED: u64 = 20_000;

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn run(name: &str, attempt: u32) -> Instance {
    Instance { name: ContainerName(name.into()), attempt }
}

fn started(name: &str, attempt: u32) -> Input {
    Input::Started { instance: run(name, attempt), wall: Wall(0) }
}

fn exited(name: &str, attempt: u32, code: u8) -> Input {
    Input::Exited {
        instance: run(name, attempt),
        exit: Exit { code, signal: None, oom: false, wall: Wall(0), seen: true },
    }
}

fn image_of(name: &str) -> Input {
    Input::ImageReady { container: ContainerName(name.into()), edition: 0, stop_signal: None }
}

fn tell(pod: &mut PodWorker, inputs: impl IntoIterator<Item = (u64, Input)>) -> Vec<Effect> {
    inputs.into_iter().map(|(now, input)| pod.handle(at(now), input)).last().unwrap_or_default()
}

fn ready(pod: &PodWorker) -> Vec<bool> {
    pod.status().containers.iter().map(|container| container.ready).collect()
}

/// [NT-145]: a pod whose main was waiting to be restarted starts over from its first init container, although the wait
/// was long over when the machine came back.
#[test]
fn a_back_off_that_ended_while_the_machine_was_off_starts_no_main_before_its_init() {
    let spec = given_pod().init("init", IgnoresTerm).container("app", IgnoresTerm).spec();
    let mut pod = PodWorker::new(spec);
    tell(
        &mut pod,
        [
            (9_000_000, Input::Begin),
            (9_000_001, Input::SandboxReady),
            (9_000_002, image_of("init")),
            (9_000_003, image_of("app")),
            (9_000_004, started("init", 0)),
            (9_000_005, exited("init", 0, 0)),
            (9_000_006, started("app", 0)),
            (9_000_007, exited("app", 0, 1)),
            (9_000_008, started("app", 1)),
            (9_000_009, exited("app", 1, 1)),
        ],
    );
    assert_eq!(ready(&pod), [true, false], "an init container is ready once it has succeeded");
    // Five minutes later: the back-off of ten seconds is over.
    let asked = pod.handle(at(BOOTED), Input::Rebooted { was: at(9_300_000) });
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(pod.next_wake(), None, "nor is there anything to wake up for");
    assert!(pod.handle(at(BOOTED + 1), Input::TimePassed).is_empty());
    let asked = pod.handle(at(BOOTED + 2), Input::AgentRestarted { report: RuntimeReport::default() });
    assert!(asked.contains(&Effect::RemoveSandbox), "{asked:?}");
    assert!(!asked.iter().any(|effect| matches!(effect, Effect::StartContainer { .. })), "{asked:?}");
    let asked = tell(&mut pod, [(BOOTED + 3, Input::SandboxRemoved), (BOOTED + 4, Input::SandboxReady)]);
    assert!(asked.contains(&Effect::StartContainer { instance: run("init", 1) }), "{asked:?}");
    tell(&mut pod, [(BOOTED + 5, started("init", 1))]);
    assert_eq!(ready(&pod), [false, false], "and not while it runs");
    let asked = tell(&mut pod, [(BOOTED + 6, exited("init", 1, 0))]);
    assert!(asked.contains(&Effect::StartContainer { instance: run("app", 2) }), "{asked:?}");
}

/// What was asked of a process that died with the machine is neither given up with a warning nor asked of anybody.
#[test]
fn hook_cut_off_by_a_reboot_is_neither_repeated_nor_warned_about() {
    let spec = given_pod().container("app", IgnoresTerm).pre_stop(Hook::Exec, HookScript::NeverEnds).spec();
    let mut pod = PodWorker::new(spec);
    let asked = tell(
        &mut pod,
        [
            (1_000, Input::Begin),
            (1_001, Input::SandboxReady),
            (1_002, image_of("app")),
            (1_003, started("app", 0)),
            (5_000, Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live }),
        ],
    );
    assert!(asked.iter().any(|effect| matches!(effect, Effect::RunHook { .. })), "{asked:?}");
    let mut asked = pod.handle(at(BOOTED), Input::Rebooted { was: at(900_000) });
    asked.extend(pod.handle(at(BOOTED + 1), Input::TimePassed));
    asked.extend(pod.handle(at(BOOTED + 2), Input::AgentRestarted { report: RuntimeReport::default() }));
    let blames = asked.iter().filter(|effect| {
        matches!(effect, Effect::SendSignal { .. } | Effect::KillContainer { .. })
            || matches!(effect, Effect::Emit(event) if event.reason == "FailedPreStopHook")
    });
    assert_eq!(blames.count(), 0, "{asked:?}");
    assert!(asked.contains(&Effect::RemoveSandbox));
}

/// Nobody is late while the machine is off: that a pod should have been gone long ago is told only if it is still there
/// when it could have been.
#[test]
fn pod_that_died_with_the_machine_is_not_reported_overdue() {
    let overdue = |asked: &[Effect]| {
        asked.iter().any(|effect| matches!(effect, Effect::Emit(event) if event.reason == "TerminationOverdue"))
    };
    let up = || {
        let mut pod = PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
        let deleted = Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live };
        let begin = [Input::Begin, Input::SandboxReady, image_of("app"), started("app", 0), deleted];
        tell(&mut pod, begin.into_iter().map(|input| (1_000, input)));
        pod
    };
    let mut pod = up();
    let mut asked = pod.handle(at(BOOTED), Input::Rebooted { was: at(900_000) });
    asked.extend(pod.handle(at(BOOTED + 1), Input::AgentRestarted { report: RuntimeReport::default() }));
    assert!(asked.contains(&Effect::RemoveSandbox) && !overdue(&asked), "{asked:?}");
    assert!(pod.handle(at(BOOTED + 2), Input::SandboxRemoved).contains(&Effect::DeleteObject));
    // A sandbox that was being removed when the machine went down.
    let mut pod = up();
    tell(&mut pod, [(2_000, exited("app", 0, 0))]);
    let mut asked = pod.handle(at(BOOTED), Input::Rebooted { was: at(900_000) });
    asked.extend(pod.handle(at(BOOTED + 1), Input::AgentRestarted { report: RuntimeReport::default() }));
    asked.extend(pod.handle(at(BOOTED + 2_999), Input::TimePassed));
    assert!(!overdue(&asked), "{asked:?}");
    let asked = pod.handle(at(BOOTED + 3_000), Input::TimePassed);
    assert!(overdue(&asked), "by then it could have been gone: {asked:?}");
}

/// A run that was asked for, and of which nobody heard before the machine went down, may have run: its pod is not judged
/// by the run before, whether it was asked to leave before the boot or after it.
#[test]
fn a_run_that_died_unheard_is_not_judged_by_the_run_before() {
    let deleted = || Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live };
    for leaves_before in [true, false] {
        let mut pod = PodWorker::new(given_pod().container("app", IgnoresTerm).spec());
        let begin = [Input::Begin, Input::SandboxReady, image_of("app"), started("app", 0)];
        tell(&mut pod, begin.into_iter().map(|input| (1_000, input)));
        let asked = tell(&mut pod, [(2_000, exited("app", 0, 0))]);
        assert!(asked.contains(&Effect::StartContainer { instance: run("app", 1) }), "{asked:?}");
        if leaves_before {
            tell(&mut pod, [(2_001, deleted())]);
        }
        let report = Input::AgentRestarted { report: RuntimeReport::default() };
        tell(&mut pod, [(BOOTED, Input::Rebooted { was: at(3_000) }), (BOOTED + 1, report)]);
        if !leaves_before {
            tell(&mut pod, [(BOOTED + 2, deleted())]);
        }
        assert_eq!(pod.status().phase, PodPhase::Running, "not before its sandbox is seen to be gone");
        tell(&mut pod, [(BOOTED + 3, Input::SandboxRemoved)]);
        let status = pod.status();
        assert_eq!((status.phase, status.verdict), (PodPhase::Failed, Some(TerminationVerdict::Lost)));
        let ContainerState::Terminated(ended) = &status.containers[0].state else { panic!("it ended") };
        assert_eq!((ended.attempt, ended.reason.as_str()), (1, "ContainerStatusUnknown"));
    }
}
