//! Pods that are found rather than begun, and sandboxes that die under living ones (node-termination 2.2, 7.1, 9.4).

use lifecycle::{
    ContainerName, ContainerReport, ContainerSpec, ContainerState, DeleteSighting, Effect, Exit, Input, Instance,
    KillCause, Moment, PodPhase, PodSpec, PodWorker, RestartPolicy, Role, RuntimeReport, SeenContainer, Signal,
    WakeReason, Wall,
};
use testkit::{Laws, Script::IgnoresTerm, exits_on_term, given_pod, secs};

/// A worker whose every step obeys the laws.
struct CheckedWorker {
    worker: PodWorker,
    laws: Laws,
}

impl CheckedWorker {
    fn new(spec: PodSpec) -> Self {
        Self { worker: PodWorker::new(spec), laws: Laws::default() }
    }

    fn tell(&mut self, millis: u64, input: Input) -> Vec<Effect> {
        let now = Moment::from_millis(millis);
        let effects = self.worker.handle(now, input.clone());
        self.laws.observe(now, &input, &effects, &self.worker);
        effects
    }

    fn wakes_at(&self) -> Option<u64> {
        self.worker.next_wake().map(|wake| wake.at.as_millis())
    }
}

fn run(name: &str, attempt: u32) -> Instance {
    Instance { name: ContainerName(name.into()), attempt }
}

fn exit(code: u8, seen: bool) -> Exit {
    Exit { code, signal: None, oom: false, wall: Wall(9), seen }
}

/// A sandbox with one container that has run three times.
fn activity() -> RuntimeReport {
    let running = ContainerReport { instance: run("app", 2), seen: SeenContainer::Running { wall: Wall(4) } };
    RuntimeReport { sandbox: true, containers: vec![running], hooks: Vec::new() }
}

/// What the runtime alone tells of a pod: names, and nothing of hooks or graces.
fn known_by_the_runtime() -> PodSpec {
    PodSpec::new(vec![ContainerSpec::new("app", Role::Main)])
}

const ORPHANED: Input = Input::KillRequested { cause: KillCause::Orphaned, grace: None };

fn signalled(effects: &[Effect]) -> bool {
    effects.contains(&Effect::SendSignal { instance: run("app", 2), signal: Signal::TERM })
}

fn acts(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| !matches!(effect, Effect::Emit(_)))
}

/// [NT-5]: a pod that somebody calls over when it is first seen, and that runs, is stopped first.
#[test]
fn a_pod_that_is_called_over_and_runs_is_stopped_first() {
    for succeeded in [true, false] {
        let mut pod = CheckedWorker::new(known_by_the_runtime());
        assert!(!acts(&pod.tell(0, Input::AgentRestarted { report: activity() })), "first it is only known");
        let asked = pod.tell(1, Input::TerminalPhaseSeen { succeeded });
        assert!(signalled(&asked) && !asked.contains(&Effect::RemoveSandbox), "{asked:?}");
        let asked = pod.tell(2_000, Input::Exited { instance: run("app", 2), exit: exit(0, true) });
        assert!(asked.contains(&Effect::RemoveSandbox), "{asked:?}");
        let asked = pod.tell(2_001, Input::SandboxRemoved);
        assert!(!asked.contains(&Effect::DeleteObject), "its object stays: {asked:?}");
        assert_eq!(pod.worker.status().phase == PodPhase::Succeeded, succeeded, "as it was called");
    }
}

/// [NT-7] [NT-27]: a pod of which only the runtime knows is stopped when it is killed, with a second of grace and the two
/// of notice, without hooks; nothing of it remains, not even in the API.
#[test]
fn a_pod_that_only_the_runtime_knows_is_stopped_and_forgotten() {
    let mut pod = CheckedWorker::new(known_by_the_runtime());
    pod.tell(0, Input::AgentRestarted { report: activity() });
    let asked = pod.tell(1, ORPHANED);
    assert!(signalled(&asked), "{asked:?}");
    assert!(!asked.contains(&Effect::PublishStatus), "nobody is told: {asked:?}");
    assert_eq!(pod.wakes_at(), Some(2_001), "a second of grace, but two of notice");
    assert!(pod.tell(2_001, Input::TimePassed).contains(&Effect::KillContainer { instance: run("app", 2) }));
    let killed = Exit { signal: Some(Signal::KILL), ..exit(137, true) };
    assert!(pod.tell(2_002, Input::Exited { instance: run("app", 2), exit: killed }).contains(&Effect::RemoveSandbox));
    assert_eq!(pod.tell(2_003, Input::SandboxRemoved), [Effect::Finish]);
}

/// [NT-8]: nothing but a kill changes anything about it, and its end is noticed.
#[test]
fn pod_known_only_to_the_runtime_changes_only_by_a_kill() {
    let mut pod = CheckedWorker::new(known_by_the_runtime());
    pod.tell(0, Input::AgentRestarted { report: activity() });
    let image = Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None };
    for input in [Input::SandboxReady, image, Input::TimePassed, Input::GenerationSeen { generation: 3 }] {
        assert!(!acts(&pod.tell(1, input.clone())), "{input:?}");
    }
    assert!(!acts(&pod.tell(2, Input::Exited { instance: run("app", 2), exit: exit(3, true) })));
    assert!(
        matches!(&pod.worker.status().containers[0].state, ContainerState::Terminated(ended) if ended.exit_code == 3)
    );
    assert!(pod.tell(3, ORPHANED).contains(&Effect::RemoveSandbox), "there is nobody left to stop");
}

/// [NT-9]: whoever found nobody to claim a pod, and says so after it was over, is not heard.
#[test]
fn a_stale_orphan_kill_of_a_pod_at_rest_is_ignored() {
    let spec = given_pod().restart(RestartPolicy::Never).container("app", IgnoresTerm).spec();
    let mut pod = CheckedWorker::new(spec);
    let image = Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None };
    for input in [Input::Begin, Input::SandboxReady, image] {
        pod.tell(0, input);
    }
    pod.tell(1, Input::Started { instance: run("app", 0), wall: Wall(0) });
    pod.tell(2, Input::Exited { instance: run("app", 0), exit: exit(0, true) });
    pod.tell(3, Input::SandboxRemoved);
    assert!(pod.worker.is_at_rest() && !pod.worker.is_finished());
    assert_eq!(pod.tell(4, ORPHANED), [], "its object stays");
    let deleted = Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live };
    assert!(pod.tell(5, deleted).contains(&Effect::DeleteObject), "until somebody deletes it");
}

/// A sandbox that dies under a living agent is noticed when an end was seen by nobody, or when something is to be started in
/// it: the pod starts over from its first init container, in a new one, and says so.
#[test]
fn a_sandbox_that_dies_under_a_living_pod_is_replaced() {
    let spec = given_pod().init("init", IgnoresTerm).container("app", IgnoresTerm).container("web", IgnoresTerm).spec();
    let mut pod = CheckedWorker::new(spec);
    let image = |name: &str| Input::ImageReady { container: ContainerName(name.into()), edition: 0, stop_signal: None };
    let started = |name: &str, attempt| Input::Started { instance: run(name, attempt), wall: Wall(0) };
    let ended = |name: &str, code, seen| Input::Exited { instance: run(name, 0), exit: exit(code, seen) };
    for input in [Input::Begin, Input::SandboxReady, image("init"), image("app"), image("web"), started("init", 0)] {
        pod.tell(0, input);
    }
    for input in [ended("init", 0, true), started("app", 0), started("web", 0)] {
        pod.tell(1, input);
    }
    let asked = pod.tell(2, ended("app", 1, true));
    assert!(asked.contains(&Effect::StartContainer { instance: run("app", 1) }), "{asked:?}");
    let asked = pod.tell(3, Input::SandboxLost { instance: run("app", 1) });
    assert!(asked.contains(&Effect::RemoveSandbox), "{asked:?}");
    assert!(asked.iter().any(|effect| matches!(effect, Effect::Emit(event) if event.reason == "SandboxChanged")));
    assert!(pod.tell(4, Input::SandboxRemoved).contains(&Effect::CreateSandbox));
    let asked = pod.tell(5, Input::SandboxReady);
    let starts: Vec<_> = asked.iter().filter(|effect| matches!(effect, Effect::StartContainer { .. })).collect();
    assert_eq!(starts, [&Effect::StartContainer { instance: run("init", 1) }], "no main before its init");
    // Whoever died with it and was not told of is not taken to run on, and the record of its end is better than none.
    assert!(!pod.worker.status().containers.iter().any(|it| matches!(it.state, ContainerState::Running { .. })));
    pod.tell(6, ended("web", 3, true));
    let web = &pod.worker.status().containers[2];
    assert_eq!(
        web.last.as_ref().map(|last| last.exit_code).or(match &web.state {
            ContainerState::Terminated(ended) => Some(ended.exit_code),
            ContainerState::Running { .. } | ContainerState::Waiting(_) => None,
        }),
        Some(3)
    );
}

/// Containers whose end nobody saw are not started in a sandbox that is gone: each runs once more, at once, and is known
/// to have ended, and when. Where nobody runs again the end is only told.
#[test]
fn an_end_that_nobody_saw_costs_one_restart() {
    for (policy, runs_again) in [(RestartPolicy::Always, true), (RestartPolicy::Never, false)] {
        let spec = given_pod().restart(policy).container("app", IgnoresTerm).container("web", IgnoresTerm).spec();
        let mut pod = CheckedWorker::new(spec);
        let image =
            |name: &str| Input::ImageReady { container: ContainerName(name.into()), edition: 0, stop_signal: None };
        let started = |name: &str, attempt| Input::Started { instance: run(name, attempt), wall: Wall(4) };
        let ended = |name: &str| Input::Exited { instance: run(name, 0), exit: exit(137, false) };
        let first = [Input::Begin, Input::SandboxReady, image("app"), image("web"), started("app", 0)];
        for input in first.into_iter().chain([started("web", 0)]) {
            pod.tell(0, input);
        }
        let asked = [pod.tell(20_000, ended("app")), pod.tell(20_000, ended("web"))].concat();
        let starts = |asked: &[Effect]| {
            let start = |effect: &Effect| {
                if let Effect::StartContainer { instance } = effect { Some(instance.clone()) } else { None }
            };
            asked.iter().filter_map(start).collect::<Vec<_>>()
        };
        assert_eq!(starts(&asked), [], "there is no sandbox to start anything in");
        let removals = asked.iter().filter(|effect| **effect == Effect::RemoveSandbox).count();
        assert_eq!(removals, 1, "{asked:?}");
        let after = [pod.tell(20_001, Input::SandboxRemoved), pod.tell(20_002, Input::SandboxReady)].concat();
        if runs_again {
            assert_eq!(starts(&after), [run("app", 1), run("web", 1)]);
            pod.tell(20_003, started("app", 1));
            pod.tell(20_003, started("web", 1));
        } else {
            assert_eq!(starts(&after), []);
        }
        let status = pod.worker.status();
        assert_eq!(status.phase, if runs_again { PodPhase::Running } else { PodPhase::Failed });
        for container in &status.containers {
            let end = match &container.state {
                ContainerState::Terminated(ended) => Some(ended),
                ContainerState::Running { .. } | ContainerState::Waiting(_) => container.last.as_ref(),
            };
            let end = end.expect("it has ended");
            assert_eq!((end.exit_code, end.reason.as_str(), end.attempt), (137, "ContainerStatusUnknown", 0));
            assert_eq!((end.started, end.exit.map(|exit| exit.wall)), (Some(Wall(4)), Some(Wall(9))));
            assert_eq!(container.attempt, u32::from(runs_again));
        }
    }
}

/// A start that takes its sandbox with it is put off like any other that failed, longer each time; and it is asked for by
/// another number, so that no late word of the one before is taken for it.
#[test]
fn a_start_that_kills_its_sandbox_is_put_off_and_told_apart() {
    let spec =
        given_pod().restart(RestartPolicy::Never).container("app", IgnoresTerm).container("web", IgnoresTerm).spec();
    let mut pod = CheckedWorker::new(spec);
    let image = |name: &str| Input::ImageReady { container: ContainerName(name.into()), edition: 0, stop_signal: None };
    for input in [Input::Begin, Input::SandboxReady, image("app"), image("web")] {
        pod.tell(0, input);
    }
    let starts = |asked: Vec<Effect>| -> Vec<Instance> {
        let start = |effect| if let Effect::StartContainer { instance } = effect { Some(instance) } else { None };
        asked.into_iter().filter_map(start).collect()
    };
    for (attempt, lost_at, back_at) in [(0, 10, 10_010), (1, 10_020, 30_020), (2, 30_030, 70_030)] {
        let asked = pod.tell(lost_at, Input::SandboxLost { instance: run("app", attempt) });
        assert!(asked.contains(&Effect::RemoveSandbox), "{asked:?}");
        let ContainerState::Waiting(shown) = &pod.worker.status().containers[0].state else { panic!("it waits") };
        assert_eq!(shown.reason, "CreateContainerError");
        pod.tell(lost_at + 1, Input::SandboxRemoved);
        assert_eq!(starts(pod.tell(lost_at + 2, Input::SandboxReady)), []);
        let wake = pod.worker.next_wake().map(|wake| (wake.at.as_millis(), wake.reason));
        assert_eq!(wake, Some((back_at, WakeReason::BackOffEnds(ContainerName("app".into())))));
        let again = [run("app", attempt + 1), run("web", attempt + 1)];
        assert_eq!(starts(pod.tell(back_at, Input::TimePassed)), again, "nothing ran, so its policy has no say");
        for late in [
            Input::SandboxLost { instance: run("web", attempt) },
            Input::Started { instance: run("web", attempt), wall: Wall(0) },
            Input::Exited { instance: run("web", attempt), exit: exit(137, false) },
        ] {
            assert_eq!(starts(pod.tell(back_at, late)), [], "a word of another run");
        }
    }
    pod.tell(70_031, Input::Started { instance: run("app", 3), wall: Wall(0) });
    let app = &pod.worker.status().containers[0];
    assert!(matches!(app.state, ContainerState::Running { .. }));
    let last = app.last.as_ref().map(|last| (last.attempt, last.reason.as_str()));
    assert_eq!(last, Some((2, "ContainerStatusUnknown")), "nobody knows whether it ran");
}

/// Of a pod that is leaving nothing is started again, wherever the start was when its sandbox died.
#[test]
fn a_sandbox_that_dies_under_a_leaving_pod_is_only_removed() {
    let mut pod = CheckedWorker::new(given_pod().container("app", exits_on_term(secs(1))).spec());
    let image = Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None };
    for input in [Input::Begin, Input::SandboxReady, image] {
        pod.tell(0, input);
    }
    pod.tell(1, Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live });
    let asked = pod.tell(2, Input::SandboxLost { instance: run("app", 0) });
    assert!(asked.contains(&Effect::RemoveSandbox), "{asked:?}");
    assert!(!asked.iter().any(|effect| matches!(effect, Effect::CreateSandbox | Effect::StartContainer { .. })));
    assert!(pod.tell(3, Input::SandboxRemoved).contains(&Effect::DeleteObject));
}

/// A phase that somebody else wrote while the sandbox was being removed is not contradicted: ours was not told yet.
#[test]
fn terminal_phase_written_by_others_first_is_kept() {
    let mut pod = CheckedWorker::new(given_pod().container("app", IgnoresTerm).spec());
    let image = Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None };
    for input in [Input::Begin, Input::SandboxReady, image] {
        pod.tell(0, input);
    }
    pod.tell(1, Input::Started { instance: run("app", 0), wall: Wall(0) });
    pod.tell(2, Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live });
    // Nobody knows how it ended, so nothing is said of it before its sandbox is gone.
    pod.tell(3, Input::AgentRestarted { report: RuntimeReport::default() });
    assert_eq!(pod.worker.status().phase, PodPhase::Running);
    pod.tell(4, Input::TerminalPhaseSeen { succeeded: true });
    pod.tell(5, Input::SandboxRemoved);
    assert_eq!(pod.worker.status().phase, PodPhase::Succeeded);
}
