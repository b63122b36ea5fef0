//! The one loop of every controller.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use supervision::error_chain;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, error, trace, warn};

use crate::queue::{Ended, Queue};
use crate::source::{Source, SourceUpdate};
use crate::{Applied, Clock, Controller, Effects, Limits, Outcome, Plan};

/// How much is taken in between two plans: whoever talks without a pause must not keep others from being seen to.
const TAKEN_IN_MAX: usize = 1024;

/// A key that failed so often in a row is worth a line in the log.
const FAILURES_TOLD: u32 = 5;

/// What a source says, with its number and its name; nothing, if it has ended.
type NumberedUpdate<I> = (usize, &'static str, Option<SourceUpdate<I>>);

/// Something was to be done, and this came of it.
struct Pass<C: Controller> {
    key: C::Key,
    outcomes: Vec<(C::Action, Outcome<C::Answer>)>,
    wrote: Vec<(&'static str, u64)>,
    /// What was in the way, in words.
    failure: Option<String>,
    wake: Option<Instant>,
}

/// Runs a controller called `name` until one of its sources ends. Dropping this ends everything that is under way.
///
/// A panic of `plan` or `apply` costs one pass, which is tried again. One of `observe`, `begun` or `ended` leaves nobody who can say
/// what is known: it ends the controller, and whoever started it starts another from lists.
pub async fn run<C: Controller, E: Effects<C>>(
    name: &'static str,
    controller: C,
    effects: E,
    sources: Vec<Source<C::Input>>,
    limits: Limits,
    clock: Clock,
) {
    let unlisted: BTreeSet<usize> = (0..sources.len()).collect();
    let mut told: SelectAll<BoxStream<'static, NumberedUpdate<C::Input>>> = SelectAll::new();
    for (number, Source { name, news }) in sources.into_iter().enumerate() {
        // The end of a source is told as well.
        let news = news.map(Some).chain(futures::stream::iter([None]));
        told.push(news.map(move |news| (number, name, news)).boxed());
    }
    let first_lists = limits.first_lists.map(|longest| Instant::now() + longest);
    let mut runner = Runner {
        name,
        controller,
        effects: Arc::new(effects),
        queue: Queue::new(limits.backoff),
        running: JoinSet::new(),
        unlisted,
        limits,
        clock,
    };
    loop {
        let has_lists = runner.unlisted.is_empty() || first_lists.is_some_and(|at| at <= Instant::now());
        if has_lists {
            runner.begin_passes();
        }
        let due = match has_lists {
            // Whoever is due while nobody more may be seen to is planned when a pass ends.
            true => runner.queue.next_due().filter(|_| runner.running.len() < limits.at_once),
            false => first_lists,
        };
        tokio::select! {
            biased;
            news = told.next() => if !runner.take_in(news) { return },
            Some(ended) = runner.running.join_next(), if !runner.running.is_empty() => runner.ended(ended),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
        // Decide with everything that has been heard and has ended by now.
        for _ in 0..TAKEN_IN_MAX {
            let Some(news) = told.next().now_or_never() else { break };
            if !runner.take_in(news) {
                return;
            }
        }
        while let Some(ended) = runner.running.try_join_next() {
            runner.ended(ended);
        }
    }
}

struct Runner<C: Controller, E> {
    name: &'static str,
    controller: C,
    effects: Arc<E>,
    queue: Queue<C::Key>,
    running: JoinSet<Pass<C>>,
    /// Sources that have not said yet what there is.
    unlisted: BTreeSet<usize>,
    limits: Limits,
    clock: Clock,
}

impl<C: Controller, E: Effects<C>> Runner<C, E> {
    /// Answers whether there is more to come.
    fn take_in(&mut self, told: Option<NumberedUpdate<C::Input>>) -> bool {
        let Some((number, source, Some(SourceUpdate { input, listed, revision }))) = told else { return false };
        if listed {
            self.unlisted.remove(&number);
        }
        let now = self.clock.now();
        if let Some(input) = input {
            let keys = self.controller.observe(now, input);
            self.wake(keys, now.instant);
        }
        if let Some(revision) = revision {
            self.queue.reached(source, revision, now.instant);
        }
        true
    }

    fn wake(&mut self, keys: Vec<C::Key>, now: Instant) {
        for key in keys {
            let rank = self.controller.rank(&key);
            self.queue.wake(key, rank, now);
        }
    }

    /// Plans as many keys as may be seen to at once. Those for whom nothing is to be done do not count.
    fn begin_passes(&mut self) {
        let now = self.clock.now();
        while self.running.len() < self.limits.at_once {
            let Some(key) = self.queue.next(now.instant) else { return };
            let planned = supervision::catch_blocking(self.name, || self.controller.plan(&key, now));
            let Plan { actions, wake } = match planned {
                Ok(plan) => plan,
                Err(panic) => {
                    self.failed(&key, &error_chain(&panic));
                    self.queue.ended(&key, Ended::Badly, &[], now.instant);
                    continue;
                }
            };
            trace!(controller = self.name, ?key, actions = actions.len(), wake = wake.map(|wake| wake.why), "planned");
            let wake = wake.map(|wake| wake.at);
            if actions.is_empty() {
                self.queue.ended(&key, Ended::Well { wake }, &[], now.instant);
                continue;
            }
            self.controller.begun(now, &key, &actions);
            let (name, effects, longest) = (self.name, Arc::clone(&self.effects), self.limits.action_max);
            self.running.spawn(async move {
                let mut pass = Pass { key, outcomes: Vec::new(), wrote: Vec::new(), failure: None, wake };
                for action in actions {
                    let outcome = match pass.failure {
                        Some(_) => Outcome::NotTried,
                        None => apply::<C, E>(name, &effects, &action, &mut pass, longest).await,
                    };
                    pass.outcomes.push((action, outcome));
                }
                pass
            });
        }
    }

    fn ended(&mut self, ended: Result<Pass<C>, JoinError>) {
        let Pass { key, outcomes, wrote, failure, wake } = match ended {
            Ok(pass) => pass,
            // Panics are caught inside, and nobody ends a pass but whoever drops the set.
            Err(error) => return error!(controller = self.name, %error, "a pass was lost"),
        };
        let now = self.clock.now();
        let ended = match &failure {
            None => Ended::Well { wake },
            Some(failure) => {
                self.failed(&key, failure);
                Ended::Badly
            }
        };
        let mut woken = Vec::new();
        for (action, outcome) in outcomes {
            woken.extend(self.controller.ended(now, &key, action, outcome));
        }
        self.queue.ended(&key, ended, &wrote, now.instant);
        self.wake(woken, now.instant);
    }

    fn failed(&self, key: &C::Key, failure: &str) {
        let failures = self.queue.failures(key) + 1;
        debug!(controller = self.name, ?key, failure, failures, "not seen to yet");
        if failures == FAILURES_TOLD {
            warn!(controller = self.name, ?key, failure, failures, "something cannot be seen to; still trying");
        }
    }
}

/// Does one action; whatever it comes to is an answer.
async fn apply<C: Controller, E: Effects<C>>(
    name: &'static str,
    effects: &E,
    action: &C::Action,
    pass: &mut Pass<C>,
    longest: std::time::Duration,
) -> Outcome<C::Answer> {
    // It may break before it has made its future.
    let doing = supervision::catch(name, async { effects.apply(&pass.key, action).await });
    let failure = match tokio::time::timeout(longest, doing).await {
        Ok(Ok(Ok(Applied { answer, wrote }))) => {
            pass.wrote.extend(wrote);
            return Outcome::Done(answer);
        }
        Ok(Ok(Err(error))) => error_chain(&error),
        Ok(Err(panic)) => error_chain(&panic),
        Err(_) => format!("it took longer than {longest:?}"),
    };
    pass.failure = Some(failure.clone());
    Outcome::Failed(failure)
}
