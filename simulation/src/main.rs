//! `cargo xtask simulate`: seeds, one seed, or one story.

use std::process::ExitCode;

use simulation::scenario::Scenario;
use simulation::sweep::{play_all, report};
use simulation::trace::render;
use simulation::world::play;

const USAGE: &str = "simulate [--seeds N] [--from N] | --seed N | --scenario TEXT";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}\nusage: {USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Vec<String>) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut seeds, mut from, mut one) = (1000, 0, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
        match argument.as_str() {
            "--seeds" => seeds = value.parse::<u64>()?,
            "--from" => from = value.parse::<u64>()?,
            "--seed" => one = Some(Scenario::of_seed(value.parse()?)),
            "--scenario" => one = Some(value.parse::<Scenario>()?),
            _ => return Err(format!("{argument} is not known").into()),
        }
    }
    if let Some(scenario) = one {
        let outcome = play(&scenario);
        print!("{scenario}\n\n{}\n", render(&outcome.trace, None));
        outcome.broken.iter().for_each(|broken| println!("{broken}"));
        return Ok(if outcome.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let scenarios: Vec<Scenario> = (from..from + seeds).map(Scenario::of_seed).collect();
    let broken = play_all(&scenarios, |outcome| (!outcome.broken.is_empty()).then_some(outcome));
    println!("{} of {seeds} seeds broke a law", broken.len());
    for outcome in broken.iter().take(3) {
        println!("\nseed {}: {}", outcome.scenario.seed, report(outcome));
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
