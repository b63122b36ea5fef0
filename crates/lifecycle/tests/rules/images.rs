//! Another image for a running container: who is replaced, with what signal, and what is never lost on the way.

use lifecycle::{ContainerName, Hook, Input, Instance, Moment, PodWorker, RestartPolicy, Signal, SpecChange, Wall};
use testkit::{HookScript, Script, exits_on_term, given_pod, millis, secs};

fn image_of(name: &str) -> Input {
    Input::SpecChanged { change: SpecChange::Image { container: ContainerName(name.into()) } }
}

fn app(attempt: u32) -> Instance {
    Instance { name: ContainerName("app".into()), attempt }
}

fn image_ready(edition: u32, stop_signal: Option<Signal>) -> Input {
    Input::ImageReady { container: ContainerName("app".into()), edition, stop_signal }
}

fn signals(effects: &[lifecycle::Effect]) -> Vec<Signal> {
    let signal = |effect: &lifecycle::Effect| {
        if let lifecycle::Effect::SendSignal { signal, .. } = effect { Some(*signal) } else { None }
    };
    effects.iter().filter_map(signal).collect()
}

/// A run gets the stop signal of the image it was made from, even if that named none and the new one is there already.
#[test]
fn a_replaced_run_gets_the_signal_of_its_own_image() {
    let hook_done = Input::HookFinished {
        instance: app(0),
        kind: lifecycle::HookKind::PreStop,
        outcome: lifecycle::HookOutcome::Succeeded,
    };
    for (old, new, expected) in [
        (None, Some(Signal(3)), Signal::TERM),
        (Some(Signal(3)), None, Signal(3)),
        (Some(Signal(3)), Some(Signal(12)), Signal(3)),
    ] {
        let given = given_pod().container("app", exits_on_term(secs(1)));
        let mut pod = PodWorker::new(given.pre_stop(Hook::Exec, HookScript::NeverEnds).spec());
        let mut clock = 0;
        let mut tell = |input| {
            clock += 1;
            pod.handle(Moment::from_millis(clock), input)
        };
        for input in
            [Input::Begin, Input::SandboxReady, image_ready(0, old), Input::Started { instance: app(0), wall: Wall(0) }]
        {
            tell(input);
        }
        tell(image_of("app"));
        tell(image_ready(1, new));
        assert_eq!(signals(&tell(hook_done.clone())), [expected], "{old:?} to {new:?}");
        assert_eq!(pod.status().containers[0].stop_signal, Some(expected), "and that is what is shown");
        // The next run has the new one's.
        let exit = lifecycle::Exit { code: 0, signal: None, oom: false, wall: Wall(0), seen: true };
        pod.handle(Moment::from_millis(50), Input::Exited { instance: app(0), exit });
        pod.handle(Moment::from_millis(51), Input::Started { instance: app(1), wall: Wall(0) });
        assert_eq!(pod.status().containers[0].stop_signal, Some(new.unwrap_or(Signal::TERM)));
    }
}

/// An image that changes while the container is being started is not lost: the run is replaced as soon as it is seen.
#[test]
fn an_image_that_changes_during_a_start_is_not_lost() {
    for policy in [RestartPolicy::Always, RestartPolicy::Never] {
        given_pod()
            .restart(policy)
            .start_takes(secs(2))
            .container("app", exits_on_term(secs(1)))
            .post_start(Hook::Exec, HookScript::NeverEnds)
            .when_left_alone()
            .told_at(secs(1), image_of("app"))
            .deleted_at(secs(20), secs(30))
            .told()
            .then_times(2, "pull image of app")
            .then_at(secs(2), "TERM to app")
            .then_events(1, "Killing", "Container app definition changed, will be restarted")
            .then_never("run postStart of app")
            .then_at(secs(3), "start app#1")
            .then_at(secs(5), "run postStart of app#1")
            .then_at(secs(20), "TERM to app#1");
    }
}

/// Nor is it lost when the run ends, or fails, before it was seen to run.
#[test]
fn an_image_that_changes_during_a_start_that_fails_is_not_lost() {
    let exit = lifecycle::Exit { code: 1, signal: None, oom: false, wall: Wall(0), seen: true };
    let refused = Input::StartFailed { instance: app(0), reason: "StartError".into(), message: "no such file".into() };
    for end in [Input::Exited { instance: app(0), exit }, refused] {
        let spec = given_pod().restart(RestartPolicy::Never).container("app", Script::IgnoresTerm).spec();
        let mut pod = PodWorker::new(spec);
        for input in [Input::Begin, Input::SandboxReady, image_ready(0, None), image_of("app"), image_ready(1, None)] {
            pod.handle(Moment::from_millis(1), input);
        }
        let asked = pod.handle(Moment::from_millis(2), end);
        assert!(asked.contains(&lifecycle::Effect::StartContainer { instance: app(1) }), "{asked:?}");
    }
}

/// Nor when the agent dies meanwhile.
#[test]
fn an_image_that_changes_during_a_start_survives_the_agent() {
    given_pod()
        .start_takes(secs(2))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .told_at(secs(1), image_of("app"))
        .agent_away(millis(1_500), secs(4))
        .deleted_at(secs(20), secs(30))
        .told()
        .then_at(secs(4), "TERM to app")
        .then_at(secs(5), "start app#1")
        .then_at(secs(20), "TERM to app#1");
}

/// A run that nobody remembers gets the stop signal of its image as soon as that is known, and not that of another one.
#[test]
fn a_run_that_was_taken_over_gets_the_signal_of_its_image() {
    let found = || {
        let seen = lifecycle::SeenContainer::Running { wall: Wall(0) };
        let containers = vec![lifecycle::ContainerReport { instance: app(0), seen }];
        Input::AgentRestarted { report: lifecycle::RuntimeReport { sandbox: true, containers, hooks: Vec::new() } }
    };
    let signals_after = |inputs: Vec<Input>| {
        let mut pod = PodWorker::new(given_pod().container("app", Script::IgnoresTerm).spec());
        for (clock, input) in (0..).zip(inputs) {
            pod.handle(Moment::from_millis(clock), input);
        }
        signals(&pod.handle(Moment::from_millis(99), Input::ObjectGone))
    };
    let quit = Some(Signal(3));
    assert_eq!(signals_after(vec![Input::Begin, found(), image_ready(0, quit)]), [Signal(3)]);
    assert_eq!(signals_after(vec![Input::Begin, image_ready(0, quit), found()]), [Signal(3)]);
    assert_eq!(signals_after(vec![Input::Begin, found()]), [Signal::TERM], "nobody knows");
    // It goes on under the number it has.
    let mut pod = PodWorker::new(given_pod().container("app", Script::IgnoresTerm).spec());
    let third =
        lifecycle::ContainerReport { instance: app(2), seen: lifecycle::SeenContainer::Running { wall: Wall(0) } };
    let report = lifecycle::RuntimeReport { sandbox: true, containers: vec![third], hooks: Vec::new() };
    pod.handle(Moment::from_millis(0), Input::Begin);
    pod.handle(Moment::from_millis(1), Input::AgentRestarted { report });
    assert_eq!(pod.status().containers[0].attempt, 2);
    let asked = pod.handle(Moment::from_millis(2), Input::ObjectGone);
    assert!(asked.contains(&lifecycle::Effect::SendSignal { instance: app(2), signal: Signal::TERM }), "{asked:?}");
    // It is being replaced when an image comes: that is not the one it was made from.
    let mut pod = PodWorker::new(
        given_pod().container("app", Script::IgnoresTerm).pre_stop(Hook::Exec, HookScript::NeverEnds).spec(),
    );
    for input in [Input::Begin, found(), image_of("app"), image_ready(1, quit)] {
        pod.handle(Moment::from_millis(1), input);
    }
    let (kind, outcome) = (lifecycle::HookKind::PreStop, lifecycle::HookOutcome::Succeeded);
    let done = Input::HookFinished { instance: app(0), kind, outcome };
    assert_eq!(signals(&pod.handle(Moment::from_millis(2), done)), [Signal::TERM]);
}

/// A run to completion is left alone, and so is one that waits for its back-off: the next run has the new image.
#[test]
fn an_image_that_changes_between_runs_is_used_by_the_next() {
    given_pod()
        .container("app", Script::ExitsByItself { after: secs(1), code: 1 })
        .when_left_alone()
        .told_at(secs(5), image_of("app"))
        .deleted_at(secs(13), secs(30))
        .told()
        .then_times(2, "pull image of app")
        .then_at(secs(12), "start app#2");
}

/// New connections go elsewhere while a container is replaced, as they do for any other restart.
#[test]
fn a_replacement_takes_a_detour() {
    let routes = lifecycle::Routes { best: lifecycle::BestEvidence::Divert, last: false, replaced: true, busy: true };
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .routed(routes, testkit::TrafficScript::default())
        .when_left_alone()
        .told_at(secs(10), image_of("app"))
        .deleted_at(secs(60), secs(30))
        .told()
        .then_times(2, "divert new connections")
        .then_at(millis(10_002), "TERM to app")
        .then_at(millis(11_002), "restore traffic");
}

/// The late answer about an image that is not wanted any more starts nothing, and does not make the other one's a surprise.
#[test]
fn a_late_answer_about_another_image_starts_nothing() {
    let mut pod = PodWorker::new(given_pod().container("app", Script::IgnoresTerm).spec());
    let mut clock = 0;
    let mut tell = |input| {
        clock += 1;
        pod.handle(Moment::from_millis(clock), input)
    };
    tell(Input::Begin);
    tell(Input::SandboxReady);
    let again = tell(image_of("app"));
    let name = || ContainerName("app".into());
    assert!(again.contains(&lifecycle::Effect::PullImage { container: name(), edition: 1 }), "{again:?}");
    let start = lifecycle::Effect::StartContainer { instance: app(0) };
    assert!(!tell(image_ready(0, None)).contains(&start), "that is the old one");
    let refused =
        Input::ImageFailed { container: name(), edition: 0, reason: "ErrImagePull".into(), message: "".into() };
    assert!(tell(refused).is_empty(), "so is that");
    assert!(tell(image_ready(1, Some(Signal(3)))).contains(&start));
}
