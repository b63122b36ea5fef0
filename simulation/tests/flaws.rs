//! No law is there for show: an agent with a bug in its wiring breaks the law that the bug is about, within a thousand seeds.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use simulation::flaws;
use simulation::player::Player;
use simulation::scenario::{SHAPES, Scenario};
use simulation::sweep::{play_all, report};

/// What few seeds let go wrong just where it matters: these stories are played before the seeds.
const RARE: [&str; 7] = [
    "pod p0 grace=3 app=term-200,pre-700; delete p0 @1000; lost runtime.run_hook/p0/1",
    "pod p0 grace=2 app=term-900; delete p0 @1000; lost runtime.start/p0/1",
    "pod p0 grace=1 app=deaf,prenever; delete p0 @1000; refused runtime.cancel_hook/p0/1",
    "statefulset db replicas=2 grace=1 tolerates=5 app=term-100; node n1; node n2; crash journal.written/n2/3 down=90000 node",
    "seed 1; profile lossy; deploy web replicas=4 surge=0 unavailable=2 app=term-100; rollout web @3000; node n1; node n2",
    "job work completions=4 parallelism=1 indexed app=self-300-0",
    "job work completions=4 parallelism=1 app=self-300-0",
];

#[test]
fn planted_flaw_breaks_its_law_within_a_thousand_seeds() {
    let program = Path::new(env!("CARGO_BIN_EXE_simulate"));
    let rare = RARE.iter().map(|story| story.parse().unwrap());
    let scenarios: Vec<Scenario> = rare.chain((0..1000).map(Scenario::of_seed)).collect();
    let (with_workloads, others): (Vec<Scenario>, Vec<Scenario>) =
        scenarios.into_iter().partition(|story| !story.workloads.is_empty());
    let mut unseen = Vec::new();
    for (flaw, laws) in flaws::ALL {
        // Without workloads most controllers have nothing to do.
        let scenarios = if flaw.in_controllers().is_some() { &with_workloads } else { &others };
        let found = play_all(program, scenarios, Some(flaw), |told| {
            let first = told.broken.iter().find(|broken| laws.contains(&broken.law)).map(ToString::to_string);
            let breaks = first.is_some();
            (first.map(|broken| (told.scenario.seed, broken)), breaks)
        });
        match found.first() {
            Some((seed, broken)) => println!("{}: seed {seed}: {broken}", flaw.name()),
            None => unseen.push(flaw.name()),
        }
    }
    assert!(unseen.is_empty(), "these broke no law: {unseen:?}");
}

/// A driver that panics begins again from the journal, and nobody notices but those who read the log.
#[test]
fn driver_may_break_at_every_step_of_ten_pod_shapes() {
    let program = Path::new(env!("CARGO_BIN_EXE_simulate"));
    let mut player = Player::start(program).unwrap();
    let (mut steps, mut broken) = (0, Vec::new());
    for shape in SHAPES {
        let shape: Scenario = format!("profile even; {shape}").parse().unwrap();
        let steady = player.play(&shape, None).unwrap().trace;
        let mut unseen = 0;
        for step in 1.. {
            let told = player.play(&Scenario { stumble: Some(step), ..shape.clone() }, None).unwrap();
            // Either nobody saw it, or nobody took so many steps.
            unseen = if told.trace == steady { unseen + 1 } else { 0 };
            if unseen == 4 {
                break;
            }
            steps += 1;
            broken.extend((!told.broken.is_empty()).then_some(told));
        }
    }
    assert!(steps > 150, "{steps} steps");
    let first = broken.first().map(|told| report(program, told, None));
    assert!(first.is_none(), "{} of {steps} steps\n{}", broken.len(), first.unwrap_or_default());
}
