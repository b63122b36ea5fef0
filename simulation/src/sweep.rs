//! Many stories, on as many players as there are processors.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::flaws::Planted;
use crate::laws::Law;
use crate::player::{Player, StoryResult};
use crate::scenario::{Crash, Scenario};
use crate::shrink::shrink;

/// Plays every story until `keep` has had enough, which it says by its second answer; answers what it wants to keep, in order.
pub fn play_all<T: Send>(
    program: &Path,
    scenarios: &[Scenario],
    flaw: Option<Planted>,
    keep: impl Fn(StoryResult) -> (Option<T>, bool) + Sync,
) -> Vec<T> {
    let (next, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    let kept = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut player = Player::start(program).expect("the program is there");
                while !enough.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(at) else { return };
                    let told = player.play(scenario, flaw).expect("a player answers");
                    let (answer, is_enough) = keep(told);
                    if let Some(answer) = answer {
                        kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, answer));
                    }
                    if is_enough {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut kept = kept.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    kept.sort_by_key(|(at, _)| *at);
    kept.into_iter().map(|(_, answer)| answer).collect()
}

/// The stories among these that break a law.
pub fn broken(program: &Path, scenarios: &[Scenario]) -> Vec<StoryResult> {
    play_all(program, scenarios, None, |told| ((!told.broken.is_empty()).then_some(told), false))
}

/// The same story with the agent dying, or the power lost, at each seam that it passes.
pub fn crash_points(program: &Path, scenario: &Scenario, down_ms: u64, power: bool) -> Vec<Scenario> {
    let mut player = Player::start(program).expect("the program is there");
    let seams = player.play(scenario, None).expect("a player answers").seams;
    // What comes over a watch comes again; the places before and behind it are there.
    let seams = seams.into_iter().filter(|seam| !seam.starts_with("api.watch.frame"));
    let dies_at = |seam: String| {
        let mut story = scenario.clone();
        story.crashes.push(Crash { seam, down_ms, power, node: false, server: false });
        story
    };
    seams.map(dies_at).collect()
}

/// What a person needs to know of a story that broke a law: the law, the smallest story, its trace, and how to see it again.
pub fn report(program: &Path, told: &StoryResult, flaw: Option<Planted>) -> String {
    let Some(first) = told.broken.first() else { return "no law was broken".to_owned() };
    let mut player = Player::start(program).expect("the program is there");
    let mut laws = |scenario: &Scenario| -> Vec<Law> {
        player.play(scenario, flaw).map(|told| told.broken.iter().map(|it| it.law).collect()).unwrap_or_default()
    };
    let smallest = shrink(&told.scenario, first.law, &mut laws);
    let again = player.play(&smallest, flaw).unwrap_or_else(|_| told.clone());
    let broken = again.broken.iter().find(|broken| broken.law == first.law).unwrap_or(first);
    let mut text = format!("{broken}\n\nfound by: {}\nsmallest: {smallest}\n\n", told.scenario);
    let concerns = |line: &&str| {
        let who = line.split_whitespace().nth(1).unwrap_or_default();
        (who == broken.who || line.contains("agent ")) && !line.contains(" request ")
    };
    again.trace.lines().filter(concerns).for_each(|line| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    });
    let _ = writeln!(text, "\nsee it again: cargo xtask simulate --scenario '{smallest}'");
    text
}
