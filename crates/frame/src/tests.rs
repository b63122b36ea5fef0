//! The frame under a scripted controller, in paused time: every moment is exact.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::queue::{HOLD_MAX, RETRIES_AT_ONCE, RETRY_INTERVAL};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// What is known of a key, and how seeing to it goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Fact {
    /// What there is to be done: nothing once it has been.
    value: u64,
    takes: Duration,
    /// How often it fails before it works.
    failing: u32,
    panics: bool,
    /// Nothing is to be done before this much of the test has passed.
    due: Option<Duration>,
    /// The revision of the write.
    writes: Option<u64>,
    rank: i32,
    /// Wakes these as well when it is done.
    then: Vec<u32>,
}

/// What happened to a key, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
enum LogLine {
    Planned(u32, u64),
    Begun(u32, u64),
    Done(u32, u64),
    Failed(u32),
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Duration, LogLine)>>>);

impl Log {
    fn add(&self, since: Instant, line: LogLine) {
        self.0.lock().unwrap().push((since.elapsed(), line));
    }

    fn lines(&self) -> Vec<(Duration, LogLine)> {
        self.0.lock().unwrap().clone()
    }

    /// When this happened.
    fn times(&self, wanted: impl Fn(&LogLine) -> bool) -> Vec<u64> {
        let lines = self.lines();
        let wanted = lines.iter().filter(|(_, line)| wanted(line));
        wanted.map(|(at, _)| u64::try_from(at.as_millis()).unwrap()).collect()
    }
}

struct Scripted {
    since: Instant,
    facts: BTreeMap<u32, Fact>,
    done: BTreeMap<u32, u64>,
    log: Log,
}

impl Controller for Scripted {
    type Input = (u32, Fact);
    type Key = u32;
    type Action = (u32, Fact);
    type Answer = ();

    fn observe(&mut self, _: Now, (key, fact): (u32, Fact)) -> Vec<u32> {
        self.facts.insert(key, fact);
        vec![key]
    }

    fn plan(&self, key: &u32, now: Now) -> Plan<(u32, Fact)> {
        let fact = self.facts[key].clone();
        self.log.add(self.since, LogLine::Planned(*key, fact.value));
        assert!(fact.value != u64::MAX, "a plan that panics");
        if let Some(due) = fact.due.map(|due| self.since + due).filter(|due| *due > now.instant) {
            return Plan::wait(due, "the script says so");
        }
        if self.done.get(key) == Some(&fact.value) {
            return Plan::default();
        }
        Plan::act((*key, fact))
    }

    fn rank(&self, key: &u32) -> Rank {
        (self.facts[key].rank, 0)
    }

    fn begun(&mut self, _: Now, key: &u32, actions: &[(u32, Fact)]) {
        self.log.add(self.since, LogLine::Begun(*key, actions[0].1.value));
    }

    fn ended(&mut self, _: Now, key: &u32, (_, fact): (u32, Fact), outcome: Outcome<()>) -> Vec<u32> {
        match outcome {
            Outcome::Done(()) => {
                self.log.add(self.since, LogLine::Done(*key, fact.value));
                self.done.insert(*key, fact.value);
                fact.then
            }
            Outcome::Failed(_) => {
                self.log.add(self.since, LogLine::Failed(*key));
                let known = self.facts.get_mut(key).unwrap();
                known.failing = known.failing.saturating_sub(1);
                Vec::new()
            }
            Outcome::NotTried => Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

#[derive(Clone, Default)]
struct Scene {
    active: Arc<Mutex<BTreeSet<u32>>>,
    most: Arc<Mutex<usize>>,
}

impl Effects<Scripted> for Scene {
    type Error = Refused;

    async fn apply(&self, key: &u32, (_, fact): &(u32, Fact)) -> Result<Applied<()>, Refused> {
        {
            let mut active = self.active.lock().unwrap();
            assert!(active.insert(*key), "{key} is seen to beside itself");
            let mut most = self.most.lock().unwrap();
            *most = active.len().max(*most);
        }
        tokio::time::sleep(fact.takes).await;
        self.active.lock().unwrap().remove(key);
        assert!(!fact.panics || fact.failing == 0, "an effect that panics");
        if fact.failing > 0 { Err(Refused) } else { Ok(Applied::wrote((), "things", fact.writes)) }
    }
}

/// A controller that runs, and the end of its one source.
struct Stage {
    told: mpsc::UnboundedSender<SourceUpdate<(u32, Fact)>>,
    log: Log,
    scene: Scene,
    task: tokio::task::JoinHandle<()>,
}

impl Stage {
    fn start(limits: Limits) -> Self {
        Self::with(limits, true)
    }

    fn with(limits: Limits, listed: bool) -> Self {
        let (told, news) = mpsc::unbounded_channel();
        let (log, scene) = (Log::default(), Scene::default());
        let news = futures::stream::unfold(news, |mut news| async move { Some((news.recv().await?, news)) });
        let controller =
            Scripted { since: Instant::now(), facts: BTreeMap::new(), done: BTreeMap::new(), log: log.clone() };
        let sources = vec![Source::new("things", news)];
        let task = tokio::spawn(run("scripted", controller, scene.clone(), sources, limits, Clock::system()));
        let stage = Self { told, log, scene, task };
        if listed {
            stage.told.send(SourceUpdate { input: None, listed: true, revision: None }).unwrap();
        }
        stage
    }

    fn tell(&self, key: u32, fact: Fact) {
        self.told.send(SourceUpdate::changed((key, fact), None)).unwrap();
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(MS(ms)).await;
}

/// The same numbers every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[tokio::test(start_paused = true)]
async fn key_that_is_woken_often_is_planned_once() {
    let stage = Stage::start(Limits::default());
    for value in 1..=100 {
        stage.tell(7, Fact { value, ..Fact::default() });
    }
    pass(1).await;
    assert_eq!(stage.log.times(|line| matches!(line, LogLine::Planned(..))).len(), 1);
    assert_eq!(stage.log.lines().last().unwrap().1, LogLine::Done(7, 100));
}

/// For any order of facts, failures and durations: what was told last is what is done in the end, no key is seen to beside
/// itself, and no more keys at once than are allowed.
#[tokio::test(start_paused = true)]
async fn last_fact_of_every_key_is_acted_on_whatever_happens_meanwhile() {
    for seed in 1..=60 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let at_once = usize::try_from(1 + dice.roll(4)).unwrap();
        let stage = Stage::start(Limits { at_once, ..Limits::default() });
        let mut last = BTreeMap::new();
        for value in 1..=200 {
            let key = u32::try_from(dice.roll(12)).unwrap();
            let fact = Fact {
                value,
                takes: MS(dice.roll(40)),
                failing: u32::try_from(dice.roll(3)).unwrap(),
                panics: dice.roll(4) == 0,
                writes: (dice.roll(3) == 0).then_some(value),
                then: if dice.roll(4) == 0 { vec![key] } else { Vec::new() },
                ..Fact::default()
            };
            last.insert(key, value);
            stage.tell(key, fact);
            if dice.roll(3) == 0 {
                pass(dice.roll(50)).await;
            }
            if dice.roll(5) == 0 {
                stage.told.send(SourceUpdate::reached(value)).unwrap();
            }
        }
        pass(60_000).await;
        let mut done = BTreeMap::new();
        for (_, line) in stage.log.lines() {
            if let LogLine::Done(key, value) = line {
                done.insert(key, value);
            }
        }
        assert_eq!(done, last, "seed {seed}");
        assert!(*stage.scene.most.lock().unwrap() <= at_once, "seed {seed}");
        assert!(!stage.task.is_finished(), "seed {seed}");
        stage.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn failing_key_is_retried_later_each_time_and_success_resets_its_pause() {
    let stage = Stage::start(Limits::default());
    let failing = |value| Fact { value, failing: 4, ..Fact::default() };
    stage.tell(1, failing(1));
    pass(10_000).await;
    let begun = || stage.log.times(|line| matches!(line, LogLine::Begun(..)));
    // Timers of tokio are a millisecond coarse.
    assert_eq!(begun(), [0, 100, 300, 700, 1500]);
    stage.tell(1, failing(2));
    pass(200).await;
    assert_eq!(begun()[5..], [10_000, 10_100]);
}

#[tokio::test(start_paused = true)]
async fn success_resets_the_pause_of_a_key_that_was_woken_meanwhile() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, takes: MS(50), failing: 3, ..Fact::default() });
    // It fails at 50, 200 and 450, and succeeds at 900.
    pass(870).await;
    stage.tell(1, Fact { value: 2, failing: 1, ..Fact::default() });
    pass(5_000).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Begun(1, 2)), [900, 1_000]);
}

#[tokio::test(start_paused = true)]
async fn pause_never_grows_beyond_its_longest() {
    let backoff = BackoffPolicy { first: MS(100), most: MS(1000) };
    let stage = Stage::start(Limits { backoff, ..Limits::default() });
    stage.tell(1, Fact { value: 1, failing: u32::MAX, ..Fact::default() });
    pass(5_600).await;
    let begun = stage.log.times(|line| matches!(line, LogLine::Begun(..)));
    assert_eq!(begun, [0, 100, 300, 700, 1500, 2500, 3500, 4500, 5500]);
    assert_eq!(Limits::default().backoff.pause(u32::MAX), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn news_bring_a_retry_forward_to_a_quarter_of_its_pause() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, failing: 5, ..Fact::default() });
    // It failed at 0, 100, 300, 700 and 1500; the next pause is 1.6 s.
    pass(1_510).await;
    stage.tell(1, Fact { value: 2, ..Fact::default() });
    pass(5_000).await;
    assert_eq!(stage.log.times(|line| matches!(line, LogLine::Done(..))), [1_900]);
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_plan_or_an_effect_costs_one_pass_of_one_key() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, failing: 1, panics: true, ..Fact::default() });
    stage.tell(2, Fact { value: u64::MAX, ..Fact::default() });
    stage.tell(3, Fact { value: 3, ..Fact::default() });
    pass(150).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(3, 3)), [0]);
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(1, 1)), [100]);
    assert_eq!(stage.log.times(|line| *line == LogLine::Planned(2, u64::MAX)), [0, 100]);
    stage.tell(2, Fact { value: 4, ..Fact::default() });
    pass(5_000).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(2, 4)).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn key_is_planned_at_its_deadline_and_not_before() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, due: Some(MS(30_000)), ..Fact::default() });
    stage.tell(2, Fact { value: 2, due: Some(MS(10_000)), ..Fact::default() });
    pass(60_000).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(2, 2)), [10_000]);
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(1, 1)), [30_000]);
    assert_eq!(stage.log.times(|line| matches!(line, LogLine::Planned(..))), [0, 0, 10_000, 30_000], "nothing polls");
}

#[tokio::test(start_paused = true)]
async fn deadline_that_is_moved_counts_from_the_newest_fact() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, due: Some(MS(10_000)), ..Fact::default() });
    pass(5_000).await;
    stage.tell(1, Fact { value: 1, due: Some(MS(20_000)), ..Fact::default() });
    pass(60_000).await;
    assert_eq!(stage.log.times(|line| matches!(line, LogLine::Done(..))), [20_000]);
}

/// What a key wrote is shown before it is planned again: no expectations.
#[tokio::test(start_paused = true)]
async fn key_that_wrote_is_planned_again_when_its_source_shows_the_write() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, writes: Some(50), ..Fact::default() });
    pass(100).await;
    stage.tell(1, Fact { value: 2, ..Fact::default() });
    stage.tell(2, Fact { value: 2, ..Fact::default() });
    pass(100).await;
    stage.told.send(SourceUpdate::reached(49)).unwrap();
    pass(100).await;
    stage.told.send(SourceUpdate::reached(50)).unwrap();
    pass(100).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Begun(1, 2)), [300]);
    assert_eq!(stage.log.times(|line| *line == LogLine::Begun(2, 2)), [100], "nobody else waits for it");
    // A write that was shown before it was answered holds nobody.
    stage.tell(1, Fact { value: 3, writes: Some(50), then: vec![1], ..Fact::default() });
    pass(100).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Planned(1, 3)), [400, 400]);
}

#[tokio::test(start_paused = true)]
async fn key_whose_write_is_never_shown_goes_on_after_a_while() {
    let stage = Stage::start(Limits::default());
    stage.tell(1, Fact { value: 1, writes: Some(50), ..Fact::default() });
    pass(100).await;
    stage.tell(1, Fact { value: 2, ..Fact::default() });
    pass(20_000).await;
    let longest = u64::try_from(HOLD_MAX.as_millis()).unwrap();
    assert_eq!(stage.log.times(|line| *line == LogLine::Begun(1, 2)), [longest]);
}

#[tokio::test(start_paused = true)]
async fn plans_wait_for_the_first_lists_but_not_for_ever() {
    let stage = Stage::with(Limits { first_lists: Some(MS(5_000)), ..Limits::default() }, false);
    stage.tell(1, Fact { value: 1, ..Fact::default() });
    pass(10_000).await;
    assert_eq!(stage.log.times(|line| matches!(line, LogLine::Planned(..))), [5_000]);

    let stage = Stage::with(Limits::default(), false);
    stage.tell(1, Fact { value: 1, ..Fact::default() });
    pass(10_000).await;
    assert_eq!(stage.log.lines(), []);
    stage.told.send(SourceUpdate::listed((2, Fact::default()), None)).unwrap();
    pass(1).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Begun(1, 1)), [10_000]);
}

#[tokio::test(start_paused = true)]
async fn lowest_rank_comes_first_and_equals_in_the_order_in_which_they_came() {
    let stage = Stage::start(Limits { at_once: 1, ..Limits::default() });
    for (key, rank) in [(1, 5), (9, 0), (3, 5), (4, -1), (2, 0)] {
        stage.tell(key, Fact { value: 1, rank, takes: MS(10), ..Fact::default() });
    }
    pass(1_000).await;
    let lines = stage.log.lines().into_iter();
    let order: Vec<u32> =
        lines.filter_map(|(_, line)| if let LogLine::Begun(key, _) = line { Some(key) } else { None }).collect();
    assert_eq!(order, [4, 9, 2, 1, 3]);
}

#[tokio::test(start_paused = true)]
async fn effect_that_hangs_is_given_up_and_tried_again() {
    let stage = Stage::start(Limits { at_once: 1, action_max: MS(1_000), ..Limits::default() });
    stage.tell(1, Fact { value: 1, takes: MS(100_000), ..Fact::default() });
    stage.tell(2, Fact { value: 2, ..Fact::default() });
    pass(1_050).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Failed(1)), [1_000]);
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(2, 2)), [1_000]);
    stage.scene.active.lock().unwrap().clear();
    stage.tell(1, Fact { value: 3, ..Fact::default() });
    pass(1_000).await;
    assert_eq!(stage.log.times(|line| *line == LogLine::Done(1, 3)).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_of_all_keys_together_are_spread() {
    let stage = Stage::start(Limits { at_once: 1000, ..Limits::default() });
    for key in 0..300 {
        stage.tell(key, Fact { value: 1, failing: 1, ..Fact::default() });
    }
    pass(60_000).await;
    let done = stage.log.times(|line| matches!(line, LogLine::Done(..)));
    assert_eq!(done.len(), 300);
    let first = done.iter().filter(|at| **at <= 200).count();
    assert!(first <= usize::try_from(RETRIES_AT_ONCE + 2).unwrap(), "{first} at once");
    let interval = u64::try_from(RETRY_INTERVAL.as_millis()).unwrap();
    assert_eq!(*done.last().unwrap(), (300 - u64::from(RETRIES_AT_ONCE)) * interval);
}

#[tokio::test(start_paused = true)]
async fn controller_ends_with_its_source() {
    let Stage { told, task, .. } = Stage::start(Limits::default());
    drop(told);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn simulated_wall_goes_by_paused_time_and_far_deadlines_are_looked_at_on_the_way() {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::simulated(start);
    pass(90_000).await;
    let now = clock.now();
    assert_eq!(now.timestamp.to_string(), "2026-01-01T00:01:30Z");
    assert_eq!(now.at("2026-01-01T00:01:31Z".parse().unwrap()), now.instant + MS(1_000));
    assert_eq!(now.at(start), now.instant, "what is over is due");
    assert_eq!(now.at(Timestamp::MAX), now.instant + Duration::from_secs(24 * 3600));
}
