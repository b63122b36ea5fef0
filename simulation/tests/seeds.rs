//! Stories by the thousand, and the agent dead at every seam of ten.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use simulation::player::Player;
use simulation::scenario::{SHAPES, Scenario};
use simulation::sweep::{broken, crash_points, report};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_simulate"))
}

#[test]
fn scenario_reads_back_as_it_was_written() {
    for seed in 0..300 {
        let scenario = Scenario::of_seed(seed);
        assert_eq!(scenario.to_string().parse::<Scenario>().unwrap(), scenario);
    }
    let of_pods =
        ["pod", "delete p0", "pod p0 app=dance", "profile odd", "crash", "lost", "full cup @1 for=2", "away @1"];
    let of_workloads =
        ["deploy web replicas=2", "deploy a-b app=deaf", "job work completions=x app=deaf", "scale web @1"];
    for text in of_pods.into_iter().chain(of_workloads) {
        assert!(text.parse::<Scenario>().is_err(), "{text}");
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    let (mut one, mut other) = (Player::start(program()).unwrap(), Player::start(program()).unwrap());
    let with_workloads = (0..).map(Scenario::of_seed).filter(|story| !story.workloads.is_empty());
    for scenario in (0..20).map(Scenario::of_seed).chain(with_workloads.take(8)) {
        let seed = scenario.seed;
        let (first, second) = (one.play(&scenario, None).unwrap().trace, other.play(&scenario, None).unwrap().trace);
        let differs = first.lines().zip(second.lines()).position(|(one, other)| one != other);
        if let Some(at) = differs {
            let around = |text: &str| text.lines().skip(at.saturating_sub(3)).take(7).collect::<Vec<_>>().join("\n");
            panic!("seed {seed}, line {at}:\n{}\n--- and the second time ---\n{}", around(&first), around(&second));
        }
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn thousand_seeds_break_no_law() {
    let scenarios: Vec<Scenario> = (0..1000).map(Scenario::of_seed).collect();
    no_law_is_broken_by(&scenarios);
}

#[test]
fn agent_may_die_at_every_seam_of_ten_pod_shapes() {
    let shapes = SHAPES.iter().map(|shape| format!("profile even; {shape}").parse::<Scenario>().unwrap());
    let stories: Vec<Scenario> = shapes.flat_map(|shape| crash_points(program(), &shape, 300, false)).collect();
    assert!(stories.len() > 1_000, "{} seams", stories.len());
    no_law_is_broken_by(&stories);
}

#[test]
fn power_may_be_lost_at_every_seam_of_a_pod() {
    let shape =
        "profile even; pod p0 grace=2 init:init=self-200-0 app=term-100,pre-300; delete p0 @1000".parse().unwrap();
    let stories = crash_points(program(), &shape, 300, true);
    assert!(stories.len() > 100, "{} seams", stories.len());
    no_law_is_broken_by(&stories);
}

fn no_law_is_broken_by(stories: &[Scenario]) {
    let broken = broken(program(), stories);
    let first = broken.first().map(|told| report(program(), told, None));
    assert!(first.is_none(), "{} of {} stories\n{}", broken.len(), stories.len(), first.unwrap_or_default());
}
