//! Storms: seeded, and every input followed by the laws of `testkit::laws`.
//!
//! Two kinds. In the first, inputs of every kind come in any order, most of them absurd: nothing may break. In the
//! second, a simulated world behaves, but agents die, sandboxes vanish and requests pile up: every pod must leave,
//! and in time.

use std::time::Duration;

use lifecycle::{
    BarrierMode, BestEvidence, ContainerName, ContainerReport, ContainerSpec, Cut, DeleteSighting, Delivery, DrainSpec,
    Exit, Hook, HookKind, HookOutcome, HookReport, Input, Instance, KillCause, LastEndpoint, Moment, PodWorker, Probe,
    RestartPolicy, Role, Routes, RuntimeReport, SeenContainer, Signal, SpecChange, TrafficNews, Wall,
};
use testkit::dice::storms;
use testkit::{Dice, Given, HookScript, ImageScript, Laws, Script, TrafficScript, When, given_pod, millis, secs};

#[test]
fn any_inputs_in_any_order_break_nothing() {
    let (mut finished, mut snapshots) = (0, 0);
    for seed in 0..storms() {
        let mut dice = Dice::seeded(seed);
        let spec = any_pod(&mut dice).spec();
        let names: Vec<ContainerName> = spec.containers.iter().map(|container| container.name.clone()).collect();
        let mut worker = PodWorker::new(spec.clone());
        let (mut laws, mut now, mut journal) = (Laws::default(), 500_000, Vec::new());
        for step in 0..120 {
            // Rarely are workers woken exactly when they asked; often nothing but time passes.
            now += dice.pick(&[0, 0, 1, 40, 999, 1_000, 2_000, 10_000, 31_000]);
            if let Some(wake) = worker.next_wake().filter(|_| dice.once_in(3)) {
                now = now.max(wake.at.as_millis());
            }
            let input = if step == 0 && !dice.once_in(20) { Input::Begin } else { any_input(&mut dice, &names) };
            let at = Moment::from_millis(now);
            let effects = worker.handle(at, input.clone());
            laws.observe(at, &input, &effects, &worker);
            journal.push((at, input));
            if let Some(snapshot) = worker.snapshot() {
                let again = PodWorker::remembered(spec.clone(), snapshot);
                assert_eq!(again, worker, "seed {seed}, step {step}: what is put down is the whole of it");
                snapshots += 1;
            }
        }
        let mut again = PodWorker::new(spec);
        for (at, input) in journal {
            again.handle(at, input);
        }
        assert_eq!(again, worker, "seed {seed}: the same inputs make the same worker");
        finished += u64::from(worker.is_finished());
    }
    assert!(snapshots > 0, "storms should be calm at times, too");
    assert!(finished > storms() / 10, "storms should reach the end of lives, too: {finished}");
}

#[test]
fn every_pod_leaves_in_time_whatever_happens_around_it() {
    for seed in 0..storms() {
        let mut dice = Dice::seeded(seed);
        let given = any_pod(&mut dice);
        let (story, latest) = any_story(&mut dice, given);
        let told = std::panic::catch_unwind(|| story.told()).unwrap_or_else(|_| panic!("seed {seed}"));
        assert!(told.finished_at().is_some_and(|at| at <= latest), "seed {seed}, by {latest:?}:\n{}", told.timeline());
    }
}

fn any_pod(dice: &mut Dice) -> Given {
    let policies = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];
    let mut given = given_pod().restart(dice.pick(&policies)).grace(secs(dice.pick(&[0, 1, 5, 30])));
    given = given.start_takes(dice.pick(&[millis(0), millis(3), secs(1)]));
    given = given.sandbox_takes(dice.pick(&[millis(0), millis(40)]));
    if dice.once_in(2) {
        let traffic = TrafficScript {
            cut_takes: dice.pick(&[Some(millis(2)), Some(secs(9)), None]),
            settle_takes: dice.pick(&[millis(5), secs(9)]),
            open: dice.pick(&[Some(0), Some(3), None]),
            ..TrafficScript::default()
        };
        let drain = any_drain(dice);
        given = given.routed(any_routes(dice), traffic).drain(drain);
    }
    if dice.once_in(6) {
        given = given.active_deadline(secs(dice.pick(&[3, 20, 300])));
    }
    for name in ["s1", "i1", "s2"] {
        if dice.once_in(3) {
            let script = any_script(dice);
            given = if name == "i1" { given.init(name, script) } else { given.sidecar(name, script) };
            given = any_details(dice, given, name != "i1");
        }
    }
    for name in ["a", "b"] {
        if name == "a" || dice.once_in(2) {
            let script = any_script(dice);
            given = given.container(name, script);
            given = any_details(dice, given, true);
        }
    }
    given
}

fn any_script(dice: &mut Dice) -> Script {
    let after = dice.pick(&[millis(0), secs(1), secs(4), secs(20)]);
    let code = dice.pick(&[0, 0, 1]);
    dice.pick(&[
        Script::StartUnanswered,
        Script::IgnoresTerm,
        Script::ExitsOnTerm { after, code },
        Script::ExitsByItself { after, code },
        Script::ExitsAnyway { after, code, on_term: code },
        Script::CannotStart { reason: "StartError" },
    ])
}

fn any_details(dice: &mut Dice, mut given: Given, hooks: bool) -> Given {
    let hook = |dice: &mut Dice| {
        let length = dice.pick(&[millis(0), millis(700), secs(3), secs(40)]);
        let hook = dice.pick(&[Hook::Exec, Hook::Exec, Hook::HttpGet, Hook::Sleep(length)]);
        let scripts = [
            HookScript::Takes(length),
            HookScript::FailsAfter(length),
            HookScript::NeverEnds,
            HookScript::EndsItsContainer(length),
        ];
        (hook, dice.pick(&scripts))
    };
    if hooks && dice.once_in(2) {
        let (kind, script) = hook(dice);
        given = given.pre_stop(kind, script);
    }
    if hooks && dice.once_in(5) {
        let (kind, script) = hook(dice);
        given = given.post_start(kind, script);
    }
    given.image(dice.pick(&[
        ImageScript::Present,
        ImageScript::Present,
        ImageScript::Takes(secs(2)),
        ImageScript::Fails { reason: "ErrImagePull" },
    ]))
}

/// A story that ends in a deletion, and the time by which it must have ended.
fn any_story(dice: &mut Dice, given: Given) -> (When, Duration) {
    let mut story = given.when_left_alone();
    let deleted_at = millis(dice.below(30_000));
    let grace = secs(dice.pick(&[0, 1, 2, 10, 30]));
    let mut deadline = deleted_at + grace.max(secs(1));
    if dice.once_in(4) {
        story = story.killed_at(millis(dice.below(40_000)), KillCause::NodeShutdown, Some(secs(dice.below(20))));
    }
    story = story.deleted_at(deleted_at, grace);
    if dice.once_in(4) {
        let again = millis(dice.below(20_000));
        story = story.deleted_at(deleted_at + again, secs(dice.below(10)));
    }
    if dice.once_in(8) {
        story = story.forced_at(deleted_at + millis(dice.below(5_000)));
    }
    let mut at = Duration::ZERO;
    for _ in 0..dice.below(4) {
        let from = at + millis(dice.below(15_000) + 1);
        at = from + millis(dice.below(8_000) + 1);
        story = story.agent_away(from, at);
        if dice.once_in(6) {
            story = story.sandbox_lost_at(from + millis(1));
        }
    }
    // A deadline cannot be kept by an agent that is not there, nor before a start under way is answered. A container
    // of its own that takes a whole notice and a KILL that was cut off by the agent's death cost a little more.
    deadline = deadline.max(at + secs(1));
    (story, deadline + secs(2) + secs(2))
}

fn any_input(dice: &mut Dice, names: &[ContainerName]) -> Input {
    let instance =
        Instance { name: dice.pick(names), attempt: u32::try_from(dice.below(3) * dice.below(2)).expect("small") };
    let kind = dice.pick(&[HookKind::PreStop, HookKind::PostStart]);
    let message = || "said so".to_owned();
    let outcome = dice.pick(&[HookOutcome::Succeeded, HookOutcome::failed(message()), HookOutcome::Cancelled]);
    let exit = Exit {
        code: dice.pick(&[0, 1, 137]),
        signal: None,
        oom: dice.once_in(9),
        wall: Wall(7),
        seen: !dice.once_in(9),
    };
    let grace = secs(dice.below(40));
    match dice.below(34) {
        26 => Input::SpecChanged {
            change: dice.pick(&[
                SpecChange::Image { container: instance.name },
                SpecChange::Ephemeral { spec: ContainerSpec::new("debug", Role::Ephemeral) },
                SpecChange::ActiveDeadline { deadline: Some(grace * 10) },
                SpecChange::ActiveDeadline { deadline: None },
            ]),
        },
        27 => Input::GenerationSeen { generation: 1 + i64::from(instance.attempt) },
        28 if dice.once_in(9) => Input::TerminalPhaseSeen { succeeded: dice.once_in(2) },
        28 if dice.once_in(9) => Input::Rejected { reason: "OutOfcpu".into(), message: message() },
        29 => Input::KillAwaited { ticket: dice.below(5) },
        30 | 31 => Input::Traffic(any_news(dice)),
        32 if dice.once_in(4) => Input::Rebooted { was: Moment::from_millis(dice.below(2_000_000)) },
        33 if dice.once_in(9) => Input::KillRequested {
            cause: dice.pick(&[KillCause::ConfigRemoved, KillCause::Orphaned, KillCause::NodeShutdown]),
            grace: None,
        },
        0 => Input::Begin,
        1..=4 => Input::ImageReady {
            container: instance.name,
            edition: u32::from(dice.once_in(4)),
            stop_signal: dice.pick(&[None, Some(Signal(3))]),
        },
        5 => Input::ImageFailed {
            container: instance.name,
            edition: 0,
            reason: "ErrImagePull".into(),
            message: message(),
        },
        6 | 7 => Input::SandboxReady,
        8 if dice.once_in(2) => Input::VolumeFailed { message: message() },
        8 => Input::SandboxFailed { message: message() },
        9..=11 => Input::Started { instance, wall: Wall(3) },
        12 => Input::StartFailed {
            instance,
            reason: dice.pick(&["StartError", "CreateContainerError"]).into(),
            message: message(),
        },
        13 | 14 => Input::Exited { instance, exit },
        15 => Input::HookFinished { instance, kind, outcome },
        16 => Input::SignalAnswered {
            instance,
            signal: Signal::TERM,
            delivery: dice.pick(&[Delivery::Delivered, Delivery::AlreadyGone]),
        },
        17 => Input::ProbeChanged {
            instance,
            probe: dice.pick(&[Probe::Readiness, Probe::Liveness, Probe::Startup]),
            passing: dice.once_in(2),
        },
        18 if dice.once_in(3) => Input::DeleteRequested {
            grace,
            sighting: dice.pick(&[DeleteSighting::Live, DeleteSighting::Found { left: grace / 3 }]),
        },
        18 if dice.once_in(4) => Input::ObjectGone,
        19 if dice.once_in(6) => Input::KillRequested { cause: KillCause::Preempted, grace: Some(grace) },
        20 if dice.once_in(4) => Input::SandboxLost { instance },
        20 => Input::SandboxRemoved,
        21 if dice.once_in(3) => Input::KillFailed { instance, message: message() },
        21 => Input::SandboxRemovalFailed { message: message() },
        22 => Input::ObjectDeleted,
        23 => Input::ObjectDeleteFailed { message: message() },
        24 => Input::AgentRestarted { report: any_report(dice, names, exit, &outcome) },
        _ => Input::TimePassed,
    }
}

fn any_routes(dice: &mut Dice) -> Routes {
    Routes {
        best: dice.pick(&[BestEvidence::Unrouted, BestEvidence::Settled, BestEvidence::Acks, BestEvidence::Divert]),
        last: dice.once_in(3),
        replaced: dice.once_in(2),
        busy: dice.once_in(2),
    }
}

fn any_news(dice: &mut Dice) -> TrafficNews {
    let (routes, how) = (any_routes(dice), dice.pick(&[Cut::Divert, Cut::Withdraw, Cut::Refuse]));
    let open = u32::try_from(dice.below(3)).expect("small");
    dice.pick(&[
        TrafficNews::Routed(routes),
        TrafficNews::CutDone { how, revision: 1 },
        TrafficNews::Acked { acked: open, required: 2 },
        TrafficNews::Quiet,
        TrafficNews::Settled,
        TrafficNews::Connections { open },
        TrafficNews::AppDone,
        TrafficNews::Late { count: open },
        TrafficNews::Failed { message: "said so".into() },
    ])
}

fn any_drain(dice: &mut Dice) -> DrainSpec {
    let modes = [BarrierMode::Auto, BarrierMode::Local, BarrierMode::Acks, BarrierMode::Quiet, BarrierMode::Off];
    DrainSpec {
        barrier: dice.pick(&modes),
        barrier_cap: dice.pick(&[None, Some(secs(1)), Some(secs(99))]),
        reserve: dice.pick(&[None, None, Some(secs(4))]),
        budget: dice.pick(&[None, Some(secs(8)), Some(secs(999))]),
        signal: dice.pick(&[None, Some(Signal(10))]),
        elide_sleep: dice.once_in(2),
        last_endpoint: dice.pick(&[LastEndpoint::Serve, LastEndpoint::Hold, LastEndpoint::Reject]),
        replacement_wait: dice.pick(&[None, Some(secs(3))]),
        ..DrainSpec::default()
    }
}

fn any_report(dice: &mut Dice, names: &[ContainerName], exit: Exit, outcome: &HookOutcome) -> RuntimeReport {
    let mut report = RuntimeReport { sandbox: !dice.once_in(4), ..RuntimeReport::default() };
    for name in names {
        let instance = Instance { name: name.clone(), attempt: u32::try_from(dice.below(2)).expect("small") };
        if !dice.once_in(3) {
            let seen = dice.pick(&[SeenContainer::Running { wall: Wall(4) }, SeenContainer::Exited { exit }]);
            report.containers.push(ContainerReport { instance: instance.clone(), seen });
        }
        if dice.once_in(3) {
            let kind = dice.pick(&[HookKind::PreStop, HookKind::PostStart]);
            let outcome = dice.pick(&[None, Some(outcome.clone())]);
            report.hooks.push(HookReport { instance, kind, outcome });
        }
    }
    report
}
