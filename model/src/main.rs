//! Prints what the models hold: `cargo run --release -p model`; with `-- --large` the large ones, too, and with the name
//! of a model, or a part of it, those alone.

use std::process::ExitCode;

use model::catalogue;
use model::check::{Findings, explore};

fn main() -> ExitCode {
    let mut models = catalogue::small();
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("--large") => models.extend(catalogue::large()),
        Some(name) => {
            models.extend(catalogue::large());
            models.retain(|model| model.name.contains(name));
            if models.is_empty() {
                eprintln!("no model is called {name}; the only option is --large");
                return ExitCode::FAILURE;
            }
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{:<34} {:>10} {:>12} {:>6} {:>9} {:>11} {:>8}",
        "model", "states", "transitions", "depth", "holds", "reachable", "time"
    );
    let mut all = Vec::new();
    for model in models {
        let findings = explore(model, threads);
        print(&findings);
        all.push(findings);
    }
    let states: usize = all.iter().map(|findings| findings.states).sum();
    let transitions: usize = all.iter().map(|findings| findings.transitions).sum();
    let took: f64 = all.iter().map(|findings| findings.took.as_secs_f64()).sum();
    println!("{:<34} {states:>10} {transitions:>12} {:>6} {:>9} {:>11} {took:>7.1}s", "all", "", "", "");
    println!("\nHolds in every state:");
    for law in model::laws::Law::ALL {
        println!("  {}", law.sentence());
    }
    let failed = all.iter().any(|findings| !findings.failures.is_empty());
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(findings: &Findings) {
    let Findings { name, states, transitions, depth, always, sometimes, took, failures } = findings;
    let missed = failures.iter().filter(|failure| failure.trace.is_empty()).count();
    let broken = failures.len() - missed;
    println!(
        "{name:<34} {states:>10} {transitions:>12} {depth:>6} {:>9} {:>11} {:>7.1}s",
        format!("{} of {always}", always - broken),
        format!("{} of {sometimes}", sometimes - missed),
        took.as_secs_f64()
    );
    for failure in failures {
        let what = if failure.trace.is_empty() { "NOT REACHABLE" } else { "BROKEN" };
        println!("  {what}: {}\n{}", failure.sentence, failure.trace);
    }
}
