//! Requests of every kind in every order, first sights, orphans, static pods and their successors: node-termination 2,
//! 9 and 11 A, B, I.

use lifecycle::{
    Admission, ContainerState, DeleteSighting, Effect, Hook, Input, KillCause, KillOutcome, Moment, PodPhase,
    PodWorker, RestartPolicy, Source, Succession, TerminationVerdict,
};
use testkit::{Dice, HookScript, Laws, Script, Script::IgnoresTerm, exits_on_term, given_pod, millis, secs};

const fn at(millis: u64) -> Moment {
    Moment::from_millis(1_000_000 + millis)
}

fn worker() -> PodWorker {
    PodWorker::new(given_pod().container("app", exits_on_term(secs(1))).spec())
}

/// [NT-10]: being killed is state: whatever is told after the kill, in whatever order, the pod leaves.
#[test]
fn a_kill_is_never_forgotten() {
    for seed in 0..20 {
        let mut dice = Dice::seeded(seed);
        let (mut worker, mut laws) = (worker(), Laws::default());
        let kill = Input::KillRequested { cause: KillCause::Preempted, grace: None };
        let mut inputs = vec![Input::Begin, kill];
        inputs.extend((0..5).map(|_| {
            dice.pick(&[Input::Begin, Input::GenerationSeen { generation: 2 }, Input::SandboxReady, Input::TimePassed])
        }));
        for (step, input) in inputs.into_iter().enumerate() {
            let now = at(step as u64);
            let effects = worker.handle(now, input.clone());
            laws.observe(now, &input, &effects, &worker);
        }
        assert_eq!(worker.deadline(), Some(at(30_001)), "seed {seed}");
    }
}

/// [NT-11]: many pods, each driven on its own with a small inbox, in a storm of updates for all of them: every pod is told
/// everything, in order, and answers as if it were alone.
#[test]
fn a_storm_of_updates_loses_nothing() {
    let storm = |seed| {
        let mut dice = Dice::seeded(seed);
        let mut told = vec![Input::Begin, Input::SandboxReady, image_ready()];
        told.push(Input::Started { instance: instance("app"), wall: lifecycle::Wall(0) });
        told.extend((1..=300).flat_map(|generation| {
            let passing = dice.pick(&[true, false]);
            let probe = Input::ProbeChanged { instance: instance("app"), probe: lifecycle::Probe::Readiness, passing };
            [Input::GenerationSeen { generation }, probe]
        }));
        told.push(Input::KillRequested { cause: KillCause::Preempted, grace: Some(secs(30)) });
        told.extend((301..=400).map(|generation| Input::GenerationSeen { generation }));
        told
    };
    let lives = |told: &[Input]| {
        let mut pod = worker();
        let effects: Vec<Vec<Effect>> =
            (0..).zip(told).map(|(step, input)| pod.handle(at(step), input.clone())).collect();
        (pod, effects)
    };
    let (sent, done): (Vec<_>, Vec<_>) = (0..20)
        .map(|_| {
            let (inbox, told) = std::sync::mpsc::sync_channel::<Input>(2);
            let driver = std::thread::spawn(move || {
                let mut pod = worker();
                let effects: Vec<Vec<Effect>> =
                    (0..).zip(told).map(|(step, input)| pod.handle(at(step), input)).collect();
                (pod, effects)
            });
            (inbox, driver)
        })
        .unzip();
    let storms: Vec<Vec<Input>> = (0..20).map(storm).collect();
    for step in 0..storms[0].len() {
        for (inbox, storm) in sent.iter().zip(&storms) {
            inbox.send(storm[step].clone()).expect("its driver runs");
        }
    }
    drop(sent);
    for (driver, storm) in done.into_iter().zip(&storms) {
        let (pod, effects) = driver.join().expect("it ends with its inbox");
        assert_eq!((&pod, &effects), (&lives(storm).0, &lives(storm).1));
        assert_eq!(pod.status().observed_generation, Some(400));
        assert!(pod.is_terminating());
    }
}

/// [NT-13]: what came while something else was being done counts the moment that is done.
#[test]
fn deletion_during_another_step_counts_as_soon_as_the_step_ends() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .sandbox_removal_fails(2)
        .when_killed(KillCause::NodeShutdown, None)
        .deleted_at(millis(1_100), secs(30))
        .told()
        .then_at(millis(1_603), "sandbox removed")
        .then_at(millis(1_603), "delete object");
    // While it comes up: nothing that was under way is finished first.
    given_pod()
        .sandbox_takes(secs(3))
        .container("app", exits_on_term(secs(1)))
        .when_left_alone()
        .deleted_at(secs(1), secs(30))
        .told()
        .then_never("start app")
        .then_at(secs(3), "remove sandbox")
        .then_finished_by(millis(3_010));
}

/// [NT-26]: an attempt to stop that fails costs only its time: a hook that is done is not run again, and what is left of
/// the grace is left.
#[test]
fn a_failed_stop_goes_on_with_what_is_left() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(4)))
        .when_deleted(secs(30))
        .agent_dies_before("TERM to app", secs(1))
        .told()
        .then_times(1, "run preStop of app")
        .then_at(secs(5), "TERM to app")
        .then_at(secs(30), "KILL to app");
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(4)))
        .when_deleted(secs(30))
        .runtime_away(millis(3_500), secs(5))
        .told()
        .then_times(1, "run preStop of app")
        .then_times(1, "TERM to app")
        .then_at(secs(30), "KILL to app");
}

/// [NT-20]: of those that nobody wants any more, who never began vanishes, who runs begins to leave, and who is over is
/// forgotten.
#[test]
fn config_removal_ends_each_pod_according_to_its_phase() {
    let removed = || Input::KillRequested { cause: KillCause::ConfigRemoved, grace: None };
    let mut unstarted = worker();
    assert_eq!(unstarted.handle(at(0), removed()), [Effect::Finish]);
    for gone in [removed(), Input::ObjectGone] {
        let mut running = worker();
        for input in [Input::Begin, Input::SandboxReady, image_ready()] {
            running.handle(at(0), input);
        }
        running.handle(at(1), Input::Started { instance: instance("app"), wall: lifecycle::Wall(0) });
        let asked = running.handle(at(2), gone.clone());
        assert!(running.is_terminating() && !running.is_finished());
        assert!(asked.iter().any(|effect| matches!(effect, Effect::SendSignal { .. })), "{asked:?}");
        let mut over = worker();
        over.handle(at(0), Input::TerminalPhaseSeen { succeeded: true });
        assert_eq!(over.handle(at(1), Input::SandboxRemoved), []);
        assert!(over.is_at_rest() && !over.is_finished());
        assert_eq!(over.handle(at(2), gone), [Effect::Finish]);
    }
}

fn image_ready() -> Input {
    Input::ImageReady { container: lifecycle::ContainerName("app".into()), edition: 0, stop_signal: None }
}

/// The same storm of updates for many pods: each is told everything, and each answers for itself.
#[test]
fn many_pods_do_not_disturb_each_other() {
    let mut pods: Vec<PodWorker> = (0..100).map(|_| worker()).collect();
    let told = [Input::Begin, Input::SandboxReady, Input::GenerationSeen { generation: 7 }];
    for (step, input) in told.into_iter().enumerate() {
        for pod in &mut pods {
            pod.handle(at(step as u64), input.clone());
        }
    }
    let mut alone = worker();
    alone.handle(at(0), Input::Begin);
    alone.handle(at(1), Input::SandboxReady);
    alone.handle(at(2), Input::GenerationSeen { generation: 7 });
    assert!(pods.iter().all(|pod| *pod == alone));
    assert_eq!(alone.status().observed_generation, Some(7));
}

/// [NT-2] [NT-32]: a pod that is leaving is not begun again, and nothing that is told of it disturbs its leaving.
#[test]
fn a_leaving_pod_is_not_begun_again() {
    given_pod()
        .container("app", exits_on_term(secs(5)))
        .when_deleted(secs(30))
        .told_at(secs(1), Input::Begin)
        .told_at(secs(2), Input::GenerationSeen { generation: 3 })
        .told()
        .then_never("start app#1")
        .then_at(secs(0), "TERM to app")
        .then_finished_by(millis(5_010));
}

/// [NT-14]: what failed is tried again soon, at growing intervals, for as long as it takes.
#[test]
fn failed_removal_and_final_delete_are_retried_with_back_off() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .sandbox_removal_fails(4)
        .final_delete_fails(2)
        .when_deleted(secs(30))
        .told()
        .then_times(5, "remove sandbox")
        .then_times(3, "delete object")
        .then_finished_by(millis(5_000));
}

/// [NT-28]: a pod whose sandbox could not be removed and whose object is gone is still cleared away.
#[test]
fn a_failed_removal_goes_on_without_the_object() {
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .sandbox_removal_fails(6)
        .when_deleted(secs(30))
        .forced_at(secs(2))
        .told()
        .then_never("delete object")
        .then_times(7, "remove sandbox")
        .then_finished_by(secs(20));
}

/// A pod that was said to be over although it runs is stopped first, and what was said stays said.
#[test]
fn a_pod_that_is_said_to_be_over_is_stopped() {
    given_pod()
        .container("app", exits_on_term(secs(4)))
        .when_left_alone()
        .told_at(secs(2), Input::TerminalPhaseSeen { succeeded: false })
        .told()
        .then_at(secs(2), "TERM to app")
        .then_status_at(secs(3), |status| {
            assert_eq!(status.phase, PodPhase::Failed);
            assert!(matches!(status.containers[0].state, ContainerState::Running { .. }), "the truth is told of those");
            assert!(!status.ready.holds);
        })
        .then_exit("app", 0, "Completed")
        .then_phase(PodPhase::Failed)
        .then_never("delete object");
}

/// [NT-31]: nor is one started that the node refuses.
#[test]
fn a_pod_that_is_refused_at_first_sight_is_not_started() {
    let mut worker = worker();
    let refused = Input::Rejected { reason: "OutOfcpu".into(), message: "no room".into() };
    let mut asked = worker.handle(at(0), refused);
    asked.extend(worker.handle(at(1), Input::Begin));
    let starts = |effect: &Effect| {
        matches!(effect, Effect::StartContainer { .. } | Effect::CreateSandbox | Effect::PullImage { .. })
    };
    assert!(!asked.iter().any(starts), "{asked:?}");
    worker.handle(at(2), Input::SandboxRemoved);
    let status = worker.status();
    assert_eq!((status.phase, status.reason.as_deref()), (PodPhase::Failed, Some("OutOfcpu")));
}

/// [NT-6] [NT-31] [NT-141]: one that was over before it was seen is only cleared away, and never spoken for.
#[test]
fn a_pod_that_was_over_before_is_only_cleared_away() {
    let mut worker = worker();
    let asked = worker.handle(at(0), Input::TerminalPhaseSeen { succeeded: true });
    assert_eq!(asked, [Effect::RemoveSandbox]);
    assert!(!worker.has_a_story());
    let deleted = Input::DeleteRequested { grace: secs(0), sighting: DeleteSighting::Found { left: secs(0) } };
    assert_eq!(worker.handle(at(1), deleted), []);
    assert!(!worker.is_at_rest(), "its sandbox may still be there");
    assert_eq!(worker.handle(at(2), Input::SandboxRemoved), [Effect::DeleteObject]);
    assert!(worker.is_at_rest());
    assert_eq!(worker.status().phase, PodPhase::Succeeded);
    assert_eq!(worker.handle(at(3), Input::ObjectDeleted), [Effect::Finish]);
}

/// [NT-125]: a terminal phase does not change, whoever wrote it first.
#[test]
fn a_terminal_phase_stays() {
    given_pod()
        .container("app", exits_on_term(secs(4)))
        .when_deleted(secs(30))
        .told_at(secs(1), Input::TerminalPhaseSeen { succeeded: false })
        .told_at(secs(2), Input::TerminalPhaseSeen { succeeded: true })
        .told()
        .then_phase(PodPhase::Failed);
    given_pod()
        .container("app", exits_on_term(secs(4)))
        .sandbox_removal_fails(3)
        .when_deleted(secs(30))
        .told_at(millis(4_100), Input::TerminalPhaseSeen { succeeded: false })
        .told()
        .then_phase(PodPhase::Succeeded);
}

/// [NT-4] [NT-21]: whoever waits for a kill is told when no process remains.
#[test]
fn a_kill_is_answered_when_nobody_is_left() {
    let message = "The node was low on resource: memory. ".to_owned();
    given_pod()
        .container("app", exits_on_term(secs(3)))
        .when_killed(KillCause::Evicted { message }, Some(secs(0)))
        .awaited_at(secs(0), 1)
        .awaited_at(secs(1), 2)
        .told()
        .then_at(millis(2_001), "answer 1: stopped")
        .then_at(millis(2_001), "answer 2: stopped")
        .then_reason(Some("Evicted"));
}

/// [NT-22]: one who waits for too long is told so, and the kill goes on.
#[test]
fn a_kill_that_takes_too_long_is_answered_too() {
    assert_eq!(overran_at(4), Some((at(10_005), KillOutcome::Overran)));
    // Half as long again as the grace that is left, if that is more than ten seconds.
    assert_eq!(overran_at(30), Some((at(44_999) + millis(4), KillOutcome::Overran)));
}

fn overran_at(grace: u64) -> Option<(Moment, KillOutcome)> {
    let mut worker = worker();
    for (step, input) in [
        Input::Begin,
        Input::SandboxReady,
        Input::ImageReady { container: lifecycle::ContainerName("app".into()), edition: 0, stop_signal: None },
        Input::Started { instance: instance("app"), wall: lifecycle::Wall(0) },
        Input::KillRequested { cause: KillCause::Preempted, grace: Some(secs(grace)) },
        Input::KillAwaited { ticket: 9 },
    ]
    .into_iter()
    .enumerate()
    {
        worker.handle(at(step as u64), input);
    }
    let answered = |effects: &[Effect]| {
        effects.iter().find_map(|effect| {
            if let Effect::KillAnswered { ticket: 9, outcome } = effect { Some(*outcome) } else { None }
        })
    };
    // The runtime never answers anything.
    let told = (0..100).find_map(|_| {
        let wake = worker.next_wake().expect("somebody waits");
        let effects = worker.handle(wake.at, Input::TimePassed);
        let told = answered(&effects).map(|outcome| (wake.at, outcome));
        let exceeded =
            effects.iter().any(|e| matches!(e, Effect::Emit(event) if event.reason == "ExceededGracePeriod"));
        assert_eq!(exceeded, told.is_some());
        told
    });
    assert!(worker.is_terminating() && !worker.is_at_rest());
    told
}

/// [NT-25]: who waits for a kill that is over, or that nobody asked for, is answered at once.
#[test]
fn a_kill_of_a_finished_pod_is_answered_at_once() {
    let mut pod = worker();
    pod.handle(at(0), Input::Begin);
    let nobody = [Effect::KillAnswered { ticket: 1, outcome: KillOutcome::NotAsked }];
    assert_eq!(pod.handle(at(1), Input::KillAwaited { ticket: 1 }), nobody);
    pod.handle(at(2), Input::ObjectGone);
    pod.handle(at(3), Input::SandboxFailed { message: "too late".into() });
    pod.handle(at(4), Input::SandboxRemoved);
    assert!(pod.is_finished());
    let stopped = [Effect::KillAnswered { ticket: 2, outcome: KillOutcome::Stopped }];
    assert_eq!(pod.handle(at(5), Input::KillAwaited { ticket: 2 }), stopped);
}

/// [NT-33] [NT-35]: what left the configuration leaves the node: at once if it never began, gracefully if it did.
#[test]
fn pod_removed_from_the_configuration_is_ended() {
    let mut waiting = worker();
    let removed = Input::KillRequested { cause: KillCause::ConfigRemoved, grace: None };
    assert_eq!(waiting.handle(at(0), removed), [Effect::Finish]);
    assert!(waiting.is_finished() && waiting.next_wake().is_none());
    given_pod()
        .container("app", IgnoresTerm)
        .when_killed(KillCause::ConfigRemoved, None)
        .told()
        .then_at(secs(30), "KILL to app")
        .then_never("delete object")
        .then_finished_by(millis(30_010));
    given_pod().container("app", exits_on_term(secs(5))).when_forced().told().then_at(secs(2), "KILL to app");
}

/// [NT-40]: an orphan has a second; a hook that is known runs within it.
#[test]
fn an_orphan_has_a_second() {
    given_pod()
        .container("app", IgnoresTerm)
        .pre_stop(Hook::Exec, HookScript::Takes(secs(5)))
        .when_killed(KillCause::Orphaned, None)
        .told()
        .then_at(secs(0), "run preStop of app")
        .then_at(secs(1), "TERM to app")
        .then_at(secs(3), "KILL to app")
        .then_never("delete object")
        .then_finished_by(millis(3_010));
}

/// A worker that never began, or is done, hears nothing from the runtime; a late kill finds nobody.
#[test]
fn stale_input_changes_nothing() {
    let mut pod = worker();
    let before = pod.clone();
    let exit = lifecycle::Exit { code: 0, signal: None, oom: false, wall: lifecycle::Wall(0), seen: true };
    for input in [
        Input::Exited { instance: instance("app"), exit },
        Input::Started { instance: instance("app"), wall: lifecycle::Wall(0) },
        Input::SandboxRemoved,
        Input::TimePassed,
    ] {
        assert_eq!(pod.handle(at(0), input), []);
    }
    assert_eq!(pod, before);
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .killed_at(secs(9), KillCause::Preempted, Some(secs(1)))
        .told()
        .then_never("KILL to app")
        .then_phase(PodPhase::Succeeded)
        .then_reason(None);
}

/// [NT-142]: a pod that the node refuses is Failed and stays, or leaves when it is deleted.
#[test]
fn a_refused_pod_fails() {
    let refused = || Input::Rejected { reason: "OutOfcpu".into(), message: "Node didn't have enough cpu".into() };
    let mut pod = worker();
    let asked = pod.handle(at(0), refused());
    assert!(asked.contains(&Effect::RemoveSandbox) && asked.contains(&Effect::PublishStatus));
    let status = pod.status();
    assert_eq!((status.phase, status.reason.as_deref()), (PodPhase::Failed, Some("OutOfcpu")));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: Node didn't have enough cpu"));
    assert_eq!(status.containers, [], "no end is made up for containers that never were");
    pod.handle(at(1), Input::SandboxRemoved);
    let deleted = Input::DeleteRequested { grace: secs(30), sighting: DeleteSighting::Live };
    assert_eq!(pod.handle(at(2), deleted), [Effect::DeleteObject]);
}

/// [NT-143]: one that ran before it was refused leaves with its full grace and its hooks.
#[test]
fn a_running_pod_that_is_refused_leaves_gracefully() {
    given_pod()
        .container("app", exits_on_term(secs(4)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_left_alone()
        .agent_away(secs(1), secs(3))
        .told_at(secs(4), Input::Rejected { reason: "NodeAffinity".into(), message: "no".into() })
        .deleted_at(secs(5), secs(30))
        .told()
        .then_at(secs(4), "run preStop of app")
        .then_at(secs(6), "TERM to app")
        .then_reason(Some("NodeAffinity"))
        .then_finished_by(millis(10_010));
}

/// [NT-16] [NT-17] [NT-19]: static pods of one name run one after the other; who is not wanted any more is skipped.
#[test]
fn static_pods_succeed_each_other() {
    let mut line = Succession::default();
    assert_eq!(line.arrives("web_default", "one", Source::Static), Admission::Begin);
    assert_eq!(line.arrives("web_default", "two", Source::Static), Admission::Wait);
    assert_eq!(line.arrives("web_default", "three", Source::Static), Admission::Wait);
    assert_eq!(line.arrives("other_default", "x", Source::Static), Admission::Begin);
    assert_eq!(line.arrives("web_default", "one", Source::Static), Admission::Never, "it runs");
    assert!(line.leaves("web_default", "two"), "it never began");
    assert!(!line.is_leaving("web_default"));
    assert!(!line.leaves("web_default", "one"));
    assert!(line.is_leaving("web_default"));
    assert_eq!(line.finished("web_default", "two"), None, "it was not its turn to be followed");
    assert_eq!(line.finished("web_default", "one").as_deref(), Some("three"));
    assert_eq!(line.finished("web_default", "three"), None);
    line.arrives("web_default", "four", Source::Static);
    line.arrives("web_default", "five", Source::Static);
    line.leaves("web_default", "five");
    line.leaves("web_default", "four");
    assert_eq!(line.finished("web_default", "four"), None, "nobody waits");
    line.finished("other_default", "x");
    assert_eq!(line, Succession::default(), "nothing is kept of those that are over");
    // And the worker of one that was withdrawn while it waited cannot be begun any more.
    let mut withdrawn = worker();
    let removed = Input::KillRequested { cause: KillCause::ConfigRemoved, grace: None };
    assert_eq!(withdrawn.handle(at(0), removed), [Effect::Finish]);
    assert_eq!(withdrawn.handle(at(1), Input::Begin), []);
}

/// [NT-18]: pods of the API do not wait for anybody's name.
#[test]
fn a_pod_of_the_api_does_not_wait_for_a_name() {
    let mut line = Succession::default();
    line.arrives("web_default", "static", Source::Static);
    assert_eq!(line.arrives("web_default", "api", Source::Api), Admission::Begin);
    assert_eq!(line.finished("web_default", "api"), None);
    assert_eq!(line.arrives("web_default", "next", Source::Static), Admission::Wait);
}

/// [NT-34] [NT-36] [NT-131]: a pod that comes back with its own UID while it leaves runs again when it is gone.
#[test]
fn the_same_uid_runs_again_after_itself() {
    let mut line = Succession::default();
    line.arrives("web_default", "fixed", Source::Static);
    line.leaves("web_default", "fixed");
    assert_eq!(line.arrives("web_default", "fixed", Source::Static), Admission::Wait);
    assert_eq!(line.arrives("web_default", "fixed", Source::Static), Admission::Wait, "told twice");
    assert_eq!(line.finished("web_default", "fixed").as_deref(), Some("fixed"));
    assert_eq!(line.finished("web_default", "fixed"), None, "once");
    // Taken away while it waited, and put back when the name is free: it runs, though nobody called it finished.
    line.arrives("web_default", "old", Source::Static);
    assert_eq!(line.arrives("web_default", "fixed", Source::Static), Admission::Wait);
    assert!(line.leaves("web_default", "fixed"));
    line.leaves("web_default", "old");
    assert_eq!(line.finished("web_default", "old"), None);
    assert_eq!(line.arrives("web_default", "fixed", Source::Static), Admission::Begin);
}

/// [NT-134]: of many edits while the old one leaves, only the newest runs.
#[test]
fn the_last_of_many_edits_runs() {
    let mut line = Succession::default();
    line.arrives("web_default", "0", Source::Static);
    line.leaves("web_default", "0");
    for edit in 1..=300 {
        assert_eq!(line.arrives("web_default", &edit.to_string(), Source::Static), Admission::Wait);
        if edit < 300 {
            assert!(line.leaves("web_default", &edit.to_string()));
        }
    }
    assert_eq!(line.finished("web_default", "0").as_deref(), Some("300"));
}

/// [NT-132] [NT-118] [NT-122]: while a removed static pod stops, nothing is said of it: its mirror stays as it is, and
/// is not deleted by way of its status.
#[test]
fn a_mirror_stays_while_its_static_pod_stops() {
    let story = given_pod()
        .grace(secs(20))
        .container("app", IgnoresTerm)
        .when_killed(KillCause::ConfigRemoved, None)
        .deleted_at(secs(3), secs(0))
        .with_events()
        .told()
        .then_at(secs(20), "KILL to app")
        .then_never("delete object")
        .then_phase(PodPhase::Running)
        .then_finished_by(millis(20_010));
    let told_after = story.timeline().lines().filter(|line| line.contains("publish status")).count();
    assert_eq!(told_after, 0, "{}", story.timeline());
    // Of any other pod something is said: the count counts.
    let other = given_pod().container("app", IgnoresTerm).when_deleted(secs(1)).with_events().told();
    assert!(other.timeline().contains("publish status"));
}

/// [NT-133]: an edited static pod's successor begins the moment its predecessor is gone, even if that
/// took several tries.
#[test]
fn a_successor_begins_when_its_predecessor_is_gone() {
    let mut line = Succession::default();
    line.arrives("web_default", "old", Source::Static);
    line.arrives("web_default", "new", Source::Static);
    line.leaves("web_default", "old");
    let story = given_pod()
        .grace(secs(20))
        .container("app", exits_on_term(secs(2)))
        .sandbox_removal_fails(5)
        .when_killed(KillCause::ConfigRemoved, None)
        .told();
    let gone = story.finished_at().expect("it leaves in the end");
    assert!(gone > secs(2) && gone < secs(10), "{gone:?}");
    assert_eq!(line.finished("web_default", "old").as_deref(), Some("new"), "without waiting for anything else");
}

/// [NT-135]: a runtime that stops during a static pod's end ends it when it is back, whether or not the agent was there.
#[test]
fn a_runtime_that_was_away_ends_what_it_finds() {
    given_pod()
        .grace(secs(20))
        .container("app", IgnoresTerm)
        .when_killed(KillCause::ConfigRemoved, None)
        .runtime_away(secs(5), secs(42))
        .told()
        .then_times(10, "KILL to app")
        .then_at(millis(46_210), "app exited 137")
        .then_events(
            9,
            "FailedKillPod",
            "error killing pod: failed to \"KillContainer\" for \"app\" with KillContainerError: \"no answer\"",
        )
        .then_events(
            1,
            "TerminationOverdue",
            "Pod should have been gone 3s ago, but container app is killed, exit not seen",
        )
        .then_finished_by(millis(46_220));
    // It stops before the signal, and when nothing is left but the sandbox.
    given_pod()
        .grace(secs(20))
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::Takes(secs(2)))
        .when_killed(KillCause::ConfigRemoved, None)
        .runtime_away(secs(1), secs(10))
        .told()
        .then_at(secs(2), "TERM to app")
        .then_at(secs(11), "app exited 0")
        .then_finished_by(millis(11_010));
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .when_killed(KillCause::ConfigRemoved, None)
        .runtime_away(millis(500), secs(30))
        .told()
        .then_finished_by(millis(36_010));
    given_pod()
        .container("app", IgnoresTerm)
        .when_killed(KillCause::ConfigRemoved, Some(secs(10)))
        .agent_away(secs(2), secs(40))
        .told()
        .then_at(secs(40), "KILL to app")
        .then_finished_by(millis(40_010));
}

/// A manifest that was removed while the agent was away is noticed when it is back, with the pod's full grace.
#[test]
fn a_manifest_removed_while_away_is_noticed() {
    given_pod()
        .container("app", IgnoresTerm)
        .when_left_alone()
        .agent_away(secs(5), secs(20))
        .killed_at(secs(10), KillCause::ConfigRemoved, None)
        .told()
        .then_at(secs(20), "TERM to app")
        .then_at(secs(50), "KILL to app")
        .then_finished_by(millis(50_010));
}

/// A pod at rest whose manifest goes has nothing left to stay for.
#[test]
fn a_completed_static_pod_ends_with_its_manifest() {
    given_pod()
        .restart(RestartPolicy::Never)
        .container("app", Script::ExitsByItself { after: secs(1), code: 0 })
        .when_left_alone()
        .killed_at(secs(60), KillCause::ConfigRemoved, None)
        .told()
        .then_at(secs(60), "finish")
        .then_phase(PodPhase::Succeeded);
}

/// How well a pod left: of its own accord, hurried, by force, or nobody knows.
#[test]
fn every_end_has_its_verdict() {
    let quick = || given_pod().container("app", exits_on_term(secs(3)));
    quick().when_deleted(secs(30)).told().then_verdict(TerminationVerdict::Clean);
    quick().when_deleted(secs(30)).deleted_at(secs(1), secs(10)).told().then_verdict(TerminationVerdict::Hurried);
    quick().when_deleted(secs(30)).deleted_at(secs(1), secs(60)).told().then_verdict(TerminationVerdict::Clean);
    quick()
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(5))
        .told()
        .then_verdict(TerminationVerdict::Forced);
    given_pod()
        .container("app", exits_on_term(secs(1)))
        .pre_stop(Hook::Exec, HookScript::NeverEnds)
        .when_deleted(secs(5))
        .told()
        .then_verdict(TerminationVerdict::Hurried);
    given_pod()
        .sidecar("proxy", exits_on_term(secs(1)))
        .container("app", Script::ExitsByItself { after: secs(6), code: 0 })
        .pre_stop_sleep(millis(4_500))
        .when_deleted(secs(5))
        .told()
        .then_verdict(TerminationVerdict::Hurried);
    given_pod().container("app", IgnoresTerm).when_deleted(secs(5)).told().then_verdict(TerminationVerdict::Forced);
    quick().when_forced().told().then_verdict(TerminationVerdict::Forced);
    quick()
        .when_deleted(secs(30))
        .agent_away(secs(1), secs(2))
        .sandbox_lost_at(millis(1_500))
        .told()
        .then_verdict(TerminationVerdict::Lost);
}

fn instance(name: &str) -> lifecycle::Instance {
    lifecycle::Instance { name: lifecycle::ContainerName(name.into()), attempt: 0 }
}
