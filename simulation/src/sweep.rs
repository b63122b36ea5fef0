//! Many stories, on as many threads as there are processors.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::laws::Law;
use crate::scenario::{Crash, Scenario};
use crate::shrink::shrink;
use crate::trace::render;
use crate::world::{Outcome, play};

/// Plays every story; answers those that `keep` wants, in order.
pub fn play_all<T: Send>(scenarios: &[Scenario], keep: impl Fn(Outcome) -> Option<T> + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let kept = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(at) else { return };
                    if let Some(answer) = keep(play(scenario)) {
                        kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, answer));
                    }
                }
            });
        }
    });
    let mut kept = kept.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    kept.sort_by_key(|(at, _)| *at);
    kept.into_iter().map(|(_, answer)| answer).collect()
}

/// The same story with the agent dying at each seam that it passes.
pub fn crash_points(scenario: &Scenario, down_ms: u64) -> Vec<Scenario> {
    let seams = play(scenario).seams;
    let dies_at = |seam: String| {
        let mut story = scenario.clone();
        story.crashes.push(Crash { seam, down_ms });
        story
    };
    seams.into_iter().map(dies_at).collect()
}

fn laws(scenario: &Scenario) -> Vec<Law> {
    play(scenario).broken.into_iter().map(|broken| broken.law).collect()
}

/// What a person needs to know of a story that broke a law: the law, the smallest story, its trace, and how to see it again.
pub fn report(outcome: &Outcome) -> String {
    let Some(first) = outcome.broken.first() else { return "no law was broken".to_owned() };
    let smallest = shrink(&outcome.scenario, first.law, laws);
    let again = play(&smallest);
    let broken = again.broken.iter().find(|broken| broken.law == first.law).unwrap_or(first);
    let mut text = format!("{broken}\n\nfound by: {}\nsmallest: {smallest}\n\n", outcome.scenario);
    text.push_str(&render(&again.trace, Some(&broken.who)));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\nsee it again: cargo xtask simulate --scenario '{smallest}'");
    text
}
