//! No law is there for show: an agent with a bug in its wiring breaks the law that the bug is about, within a thousand seeds.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use simulation::flaws;
use simulation::scenario::Scenario;
use simulation::sweep::play_all;

#[test]
fn planted_flaw_breaks_its_law_within_a_thousand_seeds() {
    let program = Path::new(env!("CARGO_BIN_EXE_simulate"));
    let scenarios: Vec<Scenario> = (0..1000).map(Scenario::of_seed).collect();
    let mut unseen = Vec::new();
    for (flaw, laws) in flaws::ALL {
        let found = play_all(program, &scenarios, Some(flaw), |told| {
            let first = told.broken.iter().find(|broken| laws.contains(&broken.law)).map(ToString::to_string);
            let breaks = first.is_some();
            (first.map(|broken| (told.scenario.seed, broken)), breaks)
        });
        match found.first() {
            Some((seed, broken)) => println!("{flaw:?}: seed {seed}: {broken}"),
            None => unseen.push(flaw),
        }
    }
    assert!(unseen.is_empty(), "these broke no law: {unseen:?}");
}
