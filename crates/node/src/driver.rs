//! The loop of one pod: wait, decide, remember, act.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::{Effect, Input, Moment, PodStatus, PodWorker, Probe, Wake, Wall};
use runtime_api::Runtime;
use supervision::{Backoff, Panic};
use timeline::{Appended, Clock, Journal, JournalError, Record};
use tokio::sync::{mpsc, watch};
use tracing::{Instrument, error, info, info_span, trace};

use crate::effects::EffectExecutor;
use crate::flaws::{self, Flaw};

/// What a pod's driver tells whoever watches over it.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The newest status, as the rules see it.
    pub status: PodStatus,
    /// Nothing of the pod runs, and its sandbox is gone.
    pub at_rest: bool,
    /// When it must be gone, once it is leaving.
    pub deadline: Option<Moment>,
}

/// So many facts may wait while a driver rests.
const WAITING_MAX: usize = 512;

/// The longest rest of a driver that breaks on a request to leave.
const URGENT_REST: Duration = Duration::from_secs(1);

/// How many steps are kept before they are folded into a snapshot, once the worker has one.
const FOLD_AFTER: usize = 200;

/// What the journal holds of one pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PodJournal {
    /// When its first step was, if there was one.
    pub start: Option<Wall>,
    /// How many there are since its last fold.
    pub steps: usize,
}

/// One pod's driver, not yet running.
pub struct Driver<R: Runtime> {
    uid: String,
    worker: PodWorker,
    /// The worker as the journal knows it, which is where its life goes on when the driver breaks.
    remembered: PodWorker,
    inbox: mpsc::Receiver<Input>,
    /// Facts that come before those in the inbox.
    first: VecDeque<Input>,
    /// The fact that is being told to the worker.
    in_hand: Option<Input>,
    /// The fact that the driver broke on the last time it broke.
    suspect: Option<Input>,
    backoff: Backoff,
    journal: Journal,
    pod_journal: PodJournal,
    executor: EffectExecutor<R>,
    progress: watch::Sender<Progress>,
    clock: Clock,
}

impl<R: Runtime> Driver<R> {
    /// A driver for `worker`, which may be new or rebuilt from the journal.
    pub fn new(
        uid: String,
        worker: PodWorker,
        inbox: mpsc::Receiver<Input>,
        (journal, pod_journal): (Journal, PodJournal),
        executor: EffectExecutor<R>,
    ) -> (Self, watch::Receiver<Progress>) {
        let (progress, seen) = watch::channel(Progress {
            status: worker.status(),
            at_rest: worker.is_at_rest(),
            deadline: worker.deadline(),
        });
        let clock = executor.clock();
        let driver = Self {
            uid,
            remembered: worker.clone(),
            worker,
            inbox,
            first: VecDeque::new(),
            in_hand: None,
            suspect: None,
            backoff: Backoff::default(),
            journal,
            pod_journal,
            executor,
            progress,
            clock,
        };
        (driver, seen)
    }

    /// Drives the pod to the end of its life. Ends early only if the journal can no longer be written: without a
    /// memory the node must not act.
    ///
    /// A panic does not end it: the worker is what the journal knows of it, and is told what the runtime has, as after a
    /// restart of the node. It rests ever longer before that if it breaks again and again.
    pub async fn run(mut self) -> Result<(), Arc<JournalError>> {
        let span = info_span!("pod", uid = %self.uid);
        let mut broke = None;
        async {
            loop {
                match supervision::catch("driver", self.drive(broke)).await {
                    Ok(ended) => return ended,
                    Err(panic) => broke = Some(panic),
                }
            }
        }
        .instrument(span)
        .await
    }

    async fn drive(&mut self, broke: Option<Panic>) -> Result<(), Arc<JournalError>> {
        if let Some(panic) = broke {
            self.begin_again(&panic).await;
        }
        loop {
            let next = match self.first.pop_front() {
                Some(input) => Some((self.clock.now(), input)),
                None => next(&self.clock, &mut self.inbox, self.worker.next_wake()).await,
            };
            let Some((now, input)) = next else { return Ok(()) };
            let Some(input) = self.executor.in_order(input) else { continue };
            trace!(?input, "told");
            self.in_hand = Some(input.clone());
            #[cfg(test)]
            tests::pass(tests::Point::Told, &self.uid, &input);
            flaws::stumble();
            let was_terminating = self.worker.is_terminating();
            let effects = self.worker.handle(now, input.clone());
            let mut unwritten = None;
            if self.worker != self.remembered || !effects.is_empty() {
                unwritten = self.remember(now, &input, &effects).await?;
            }
            #[cfg(test)]
            tests::pass(tests::Point::Remembered, &self.uid, &input);
            flaws::stumble();
            self.executor.attend(&input, &self.worker);
            // Before anybody can see it elsewhere: whoever comes because this pod is over finds its room free.
            self.tell(now, was_terminating);
            self.executor.record_events(&effects, unwritten);
            for effect in effects {
                if effect == Effect::Finish {
                    return self.finish().await;
                }
                self.executor.perform(effect, &self.worker);
            }
            // After acting, so that whoever hears "at rest" finds the last status already handed in.
            let at_rest = self.worker.is_at_rest();
            self.progress.send_if_modified(|p| std::mem::replace(&mut p.at_rest, at_rest) != at_rest);
            self.in_hand = None;
            self.suspect.take_if(|suspect| *suspect == input);
        }
    }

    /// Goes back to what the journal knows, and asks the runtime what has happened since.
    async fn begin_again(&mut self, panic: &Panic) {
        self.worker = self.remembered.clone();
        let left = self.worker.deadline().map(|deadline| deadline.since(self.clock.now()));
        let wait = rest(self.backoff.after_panic(tokio::time::Instant::now().into_std()), left);
        let in_a_row = self.backoff.in_a_row();
        error!(%panic, in_a_row, ?wait, input = ?self.in_hand, "the pod's driver broke; it begins again");
        self.executor.tell_broken(format!("the node broke on this pod, {in_a_row} times in a row; its log says how"));
        let retried = self.in_hand.take().filter(is_told_once);
        // Whoever is asked to leave leaves: nobody would ask again.
        let is_owed = retried.as_ref().is_some_and(asks_to_leave) && !self.remembered.is_terminating();
        if retried.is_some() && retried == self.suspect && !is_owed {
            error!(input = ?self.suspect, "the driver broke on the same fact again, which is left out");
            self.suspect = None;
        } else if let Some(input) = retried {
            self.suspect = Some(input.clone());
            self.first.push_front(input);
        }
        let is_urgent = self.first.front().is_some_and(asks_to_leave);
        self.rest(if is_urgent { wait.min(URGENT_REST) } else { wait }).await;
        self.executor.drop_all().await;
        let report = self.executor.report().await;
        // Who leaves is told so first, lest it start what it was about to start.
        let at = usize::from(self.first.front().is_some_and(asks_to_leave));
        self.first.insert(at, Input::AgentRestarted { report });
    }

    /// Waits, but not when the pod is asked to leave: its time runs. Facts are taken meanwhile, so that nobody waits with them.
    async fn rest(&mut self, wait: Duration) {
        let over = tokio::time::sleep(wait);
        tokio::pin!(over);
        while self.first.len() < WAITING_MAX {
            tokio::select! {
                () = &mut over => return,
                input = self.inbox.recv() => {
                    let Some(input) = input else { return };
                    let is_urgent = asks_to_leave(&input);
                    self.first.push_back(input);
                    if is_urgent {
                        return;
                    }
                }
            }
        }
    }

    /// Writes the step down before anything is done about it. What only shows need not wait for the disk; what acts on the
    /// world does, so that nothing is ever done twice or forgotten. Answers what is not on disk yet, for whoever waits.
    async fn remember(
        &mut self,
        now: Moment,
        input: &Input,
        effects: &[Effect],
    ) -> Result<Option<Appended>, Arc<JournalError>> {
        let wall = self.clock.wall_now();
        let start = *self.pod_journal.start.get_or_insert(wall);
        self.pod_journal.steps += 1;
        let record =
            Record::Step { uid: self.uid.clone(), at: now, wall, input: input.clone(), effects: effects.to_vec() };
        let mut written = self.journal.append(record);
        self.remembered.clone_from(&self.worker);
        // A container that crashes for months would be remembered crash by crash.
        if self.pod_journal.steps >= FOLD_AFTER
            && let Some(snapshot) = self.worker.snapshot()
        {
            let uid = self.uid.clone();
            written = self.journal.append(Record::Folded { uid, at: now, wall, start, snapshot });
            self.pod_journal.steps = 0;
        }
        // Whether it has come up is asked once: were that forgotten, a container that serves could be killed for an answer
        // that it need not give any more.
        let has_come_up = matches!(input, Input::ProbeChanged { probe: Probe::Startup, passing: true, .. });
        let waits = has_come_up || effects.iter().any(acts_on_the_world);
        if waits && !flaws::has(Flaw::ActsBeforeRecord) {
            written.await?;
            return Ok(None);
        }
        Ok(Some(written))
    }

    fn tell(&self, now: Moment, was_terminating: bool) {
        if !was_terminating && let Some(deadline) = self.worker.deadline() {
            info!(left = ?deadline.since(now), "leaving");
        }
        let status = self.worker.status();
        let deadline = self.worker.deadline();
        self.progress.send_modify(|p| {
            p.status = status;
            p.deadline = deadline;
        });
    }

    async fn finish(&mut self) -> Result<(), Arc<JournalError>> {
        // First the memory, then the files: files that a crash leaves behind are swept at the next start.
        self.journal.append(Record::Forgotten { uid: self.uid.clone() }).await?;
        self.executor.let_go().await;
        self.progress.send_modify(|p| p.at_rest = true);
        info!("gone");
        Ok(())
    }
}

/// How long a driver rests that broke: never beyond the pod's deadline, if that is still to come.
fn rest(backoff: Duration, left: Option<Duration>) -> Duration {
    left.filter(|left| !left.is_zero()).map_or(backoff, |left| backoff.min(left))
}

/// Whether nobody else tells it again: of time and of what the runtime has the driver hears by itself.
fn is_told_once(input: &Input) -> bool {
    !matches!(input, Input::TimePassed | Input::AgentRestarted { .. })
}

fn asks_to_leave(input: &Input) -> bool {
    matches!(input, Input::DeleteRequested { .. } | Input::KillRequested { .. })
}

/// The next thing to tell the worker: whatever comes first of a fact and the moment it asked for. `None` when nobody
/// is left to tell it anything.
async fn next(clock: &Clock, inbox: &mut mpsc::Receiver<Input>, wake: Option<Wake>) -> Option<(Moment, Input)> {
    let Some(wake) = wake else {
        return inbox.recv().await.map(|input| (clock.now(), input));
    };
    loop {
        let left = wake.at.since(clock.now());
        if left.is_zero() {
            // A fact that is already here goes first: an exit at the deadline is an exit, not an overrun.
            return Some((clock.now(), inbox.try_recv().unwrap_or(Input::TimePassed)));
        }
        tokio::select! {
            biased;
            input = inbox.recv() => return input.map(|input| (clock.now(), input)),
            // The timer's clock stops while the machine sleeps and ours does not, so look again at least every minute.
            () = tokio::time::sleep(left.min(Duration::from_secs(60))) => {}
        }
    }
}

fn acts_on_the_world(effect: &Effect) -> bool {
    match effect {
        Effect::CreateSandbox
        | Effect::StartContainer { .. }
        | Effect::RunHook { .. }
        | Effect::CancelHook { .. }
        | Effect::SendSignal { .. }
        | Effect::KillContainer { .. }
        | Effect::RemoveSandbox
        | Effect::CutTraffic { .. }
        | Effect::NotifyDrain { .. }
        | Effect::RestoreTraffic
        | Effect::DeleteObject => true,
        Effect::PullImage { .. }
        | Effect::CancelPull { .. }
        | Effect::PublishStatus
        | Effect::Emit(_)
        | Effect::AwaitSettled
        | Effect::WatchConnections
        | Effect::KillAnswered { .. }
        | Effect::Finish => false,
    }
}

#[cfg(test)]
mod tests;
