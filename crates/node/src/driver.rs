//! The loop of one pod: wait, decide, remember, act.

use std::sync::Arc;
use std::time::Duration;

use lifecycle::{Effect, Input, Moment, PodStatus, PodWorker, Probe, Wake, Wall};
use runtime_api::Runtime;
use timeline::{Appended, Clock, Journal, JournalError, Record};
use tokio::sync::{mpsc, watch};
use tracing::{Instrument, info, info_span, trace};

use crate::flaws::{self, Flaw};
use crate::hands::Hands;

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

/// So many steps are kept of a life before it is folded, once its pod is calm.
const FOLD_AFTER: usize = 200;

/// What the journal holds of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// When its first step was, if there was one.
    pub start: Option<Wall>,
    /// How many there are since its last fold.
    pub steps: usize,
}

/// One pod's driver, not yet running.
pub struct Driver<R: Runtime> {
    uid: String,
    worker: PodWorker,
    inbox: mpsc::Receiver<Input>,
    journal: Journal,
    memory: Memory,
    hands: Hands<R>,
    progress: watch::Sender<Progress>,
    clock: Clock,
}

impl<R: Runtime> Driver<R> {
    /// A driver for `worker`, which may be new or rebuilt from the journal.
    pub fn new(
        uid: String,
        worker: PodWorker,
        inbox: mpsc::Receiver<Input>,
        (journal, memory): (Journal, Memory),
        hands: Hands<R>,
    ) -> (Self, watch::Receiver<Progress>) {
        let (progress, seen) = watch::channel(Progress {
            status: worker.status(),
            at_rest: worker.is_at_rest(),
            deadline: worker.deadline(),
        });
        let clock = hands.clock();
        (Self { uid, worker, inbox, journal, memory, hands, progress, clock }, seen)
    }

    /// Drives the pod to the end of its life. Ends early only if the journal can no longer be written: without a
    /// memory the node must not act.
    pub async fn run(self) -> Result<(), Arc<JournalError>> {
        let span = info_span!("pod", uid = %self.uid);
        self.drive().instrument(span).await
    }

    async fn drive(mut self) -> Result<(), Arc<JournalError>> {
        loop {
            let Some((now, input)) = next(&self.clock, &mut self.inbox, self.worker.next_wake()).await else {
                return Ok(());
            };
            let Some(input) = self.hands.in_order(input) else { continue };
            trace!(?input, "told");
            let before = self.worker.clone();
            let effects = self.worker.handle(now, input.clone());
            let mut unwritten = None;
            if self.worker != before || !effects.is_empty() {
                unwritten = self.remember(now, &input, &effects).await?;
            }
            self.hands.attend(&input, &self.worker);
            // Before anybody can see it elsewhere: whoever comes because this pod is over finds its room free.
            self.tell(now, before.is_terminating());
            self.hands.tell_people(&effects, unwritten);
            for effect in effects {
                if effect == Effect::Finish {
                    return self.finish().await;
                }
                self.hands.perform(effect, &self.worker);
            }
            // After acting, so that whoever hears "at rest" finds the last status already handed in.
            let at_rest = self.worker.is_at_rest();
            self.progress.send_if_modified(|p| std::mem::replace(&mut p.at_rest, at_rest) != at_rest);
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
        let start = *self.memory.start.get_or_insert(wall);
        self.memory.steps += 1;
        let record =
            Record::Step { uid: self.uid.clone(), at: now, wall, input: input.clone(), effects: effects.to_vec() };
        let mut written = self.journal.append(record);
        // A container that crashes for months would be remembered crash by crash.
        if self.memory.steps >= FOLD_AFTER
            && let Some(calm) = self.worker.calm()
        {
            let uid = self.uid.clone();
            written = self.journal.append(Record::Folded { uid, at: now, wall, start, calm });
            self.memory.steps = 0;
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

    async fn finish(mut self) -> Result<(), Arc<JournalError>> {
        // First the memory, then the files: files that a crash leaves behind are swept at the next start.
        self.journal.append(Record::Forgotten { uid: self.uid.clone() }).await?;
        self.hands.let_go().await;
        self.progress.send_modify(|p| p.at_rest = true);
        info!("gone");
        Ok(())
    }
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
