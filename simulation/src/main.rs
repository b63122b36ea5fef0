//! `cargo xtask simulate`: seeds, one seed, or one story.

use std::process::ExitCode;

use simulation::flaws::Planted;
use simulation::player::{StoryResult, serve};
use simulation::scenario::Scenario;
use simulation::sweep::{crash_points, play_all, report};
use simulation::trace::render;
use simulation::world::play;

const USAGE: &str = "simulate [--seeds N] [--from N] | --workloads N [--from N] | --seed N | --scenario TEXT | --sweep TEXT | --power TEXT; with --flaw NAME a bug is planted";

/// How long nobody looks after a crash of a sweep.
const DOWN_MS: u64 = 300;

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
    if arguments.first().is_some_and(|first| first == "--serve") {
        serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut seeds, mut from, mut one, mut swept, mut flaw, mut workloads) = (1000, 0, None, None, None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
        match argument.as_str() {
            "--seeds" => seeds = value.parse::<u64>()?,
            "--workloads" => workloads = Some(value.parse::<usize>()?),
            "--from" => from = value.parse::<u64>()?,
            "--seed" => one = Some(Scenario::of_seed(value.parse()?)),
            "--scenario" => one = Some(value.parse::<Scenario>()?),
            "--sweep" => swept = Some((value.parse::<Scenario>()?, false)),
            "--flaw" => flaw = Some(Planted::named(&value).ok_or_else(|| format!("there is no flaw {value}"))?),
            "--power" => swept = Some((value.parse::<Scenario>()?, true)),
            _ => return Err(format!("{argument} is not known").into()),
        }
    }
    if let Some(scenario) = one {
        let outcome = play(&scenario, flaw);
        print!("{scenario}\n\n{}\n", render(&outcome.trace, None));
        outcome.broken.iter().for_each(|broken| println!("{broken}"));
        return Ok(if outcome.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let program = std::env::current_exe()?;
    let scenarios: Vec<Scenario> = match swept {
        Some((scenario, power)) => crash_points(&program, &scenario, DOWN_MS, power),
        None => {
            let all = (from..).map(Scenario::of_seed);
            match workloads {
                // Only those that have one.
                Some(count) => all.filter(|story| !story.workloads.is_empty()).take(count).collect(),
                None => all.take(usize::try_from(seeds)?).collect(),
            }
        }
    };
    // One story is enough to see a bug that was planted.
    let keep = |told: StoryResult| {
        let is_broken = !told.broken.is_empty();
        (is_broken.then_some(told), is_broken && flaw.is_some())
    };
    let broken = play_all(&program, &scenarios, flaw, keep);
    println!("{} of {} stories broke a law", broken.len(), scenarios.len());
    for told in &broken {
        told.broken.first().iter().for_each(|first| println!("seed {}: {first}", told.scenario.seed));
    }
    for told in broken.iter().take(3) {
        println!("\nseed {}: {}", told.scenario.seed, report(&program, told, flaw));
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
