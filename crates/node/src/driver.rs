//! The loop of one pod: wait, decide, remember, act.
//!
//! The driver owns the pod's record ([`crate::record`]); whatever becomes known of the pod is told here ([`inbox`]).

mod inbox;
mod manifest_keeper;
mod restart;
mod sighting;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Effect, HookOutcome, Input, Instance, Moment, PodWorker, Probe, TrafficNews, Wall};
use runtime_api::Runtime;
use supervision::Backoff;
use timeline::{Appended, Clock, Journal, JournalError, Record};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info, info_span, trace};

pub use self::inbox::{Answers, Grant, INBOX, Told};
use self::manifest_keeper::{Kept, ManifestKeeper};
use self::sighting::{News, Sightings, is_denied};
use crate::effects::{EffectExecutor, EndedRun, hook_name};
use crate::flaws::{self, Flaw};
use crate::record::{Leaving, PodFact, RecordKeeper};
use crate::terminations::{PendingRecord, TerminationStory};
use crate::translate::resize::Pending;
use reading::spec_changes;

/// How many steps are kept before they are folded into a snapshot, once the worker has one.
const FOLD_AFTER: usize = 200;

/// How long a sight of the pod that the driver broke on waits for the next try.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

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
    record: RecordKeeper,
    inbox: mpsc::Receiver<Told>,
    /// Messages that were taken from the inbox while the driver rested.
    waiting: VecDeque<Told>,
    /// Facts that the worker is told before the next message is looked at.
    pending: VecDeque<Input>,
    /// Ends of runs whose start is not told of yet: the start takes another way, and may be overtaken.
    held: BTreeMap<Instance, Input>,
    /// Runs that have ended, while it is read what they left for people.
    endings: FuturesUnordered<BoxFuture<'static, EndedRun>>,
    manifest: ManifestKeeper,
    sightings: Sightings,
    /// A sight of the pod that the driver broke on, and when it is looked at again.
    later: Option<(Instant, Arc<Pod>, bool)>,
    /// The fact that is being told to the worker.
    in_hand: Option<Input>,
    /// The fact that the driver broke on the last time it broke.
    suspect: Option<Input>,
    backoff: Backoff,
    journal: Journal,
    pod_journal: PodJournal,
    /// How its end goes, from the step that began it.
    story: Option<TerminationStory>,
    /// The record of that was handed over, for the object stays.
    is_told: bool,
    executor: EffectExecutor<R>,
    clock: Clock,
}

/// What a driver waited for.
enum Heard {
    Told(Told),
    Ended(EndedRun),
    Kept(Kept),
    LookAgain,
    TimePassed,
    /// Nobody is left to tell it anything.
    Nobody,
}

/// Whether the effects of a step are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acts {
    Yes,
    /// Not those that the worker asks for again when it hears what the runtime has.
    WhenReported,
}

impl<R: Runtime> Driver<R> {
    /// A driver for `worker`, which may be new or rebuilt from the journal.
    pub fn new(
        uid: String,
        worker: PodWorker,
        inbox: mpsc::Receiver<Told>,
        (journal, pod_journal): (Journal, PodJournal),
        record: RecordKeeper,
        executor: EffectExecutor<R>,
    ) -> Self {
        let generation = worker.status().observed_generation.or(record.get().pod.metadata.generation);
        Self {
            manifest: ManifestKeeper::new(executor.manifests(), uid.clone()),
            uid,
            remembered: worker.clone(),
            worker,
            record,
            inbox,
            waiting: VecDeque::new(),
            pending: VecDeque::new(),
            held: BTreeMap::new(),
            endings: FuturesUnordered::new(),
            sightings: Sightings::new(generation),
            later: None,
            in_hand: None,
            suspect: None,
            backoff: Backoff::default(),
            journal,
            pod_journal,
            story: None,
            is_told: false,
            clock: executor.clock(),
            executor,
        }
    }

    /// Goes on with the story of an end that an earlier agent began. If the pod is at rest, its record is stored, perhaps again.
    #[must_use]
    pub fn with_story(mut self, story: Option<TerminationStory>) -> Self {
        self.story = story;
        if self.worker.is_resting()
            && let Some(pending) = self.termination_record()
        {
            self.is_told = true;
            self.executor.terminations().store(pending);
        }
        self
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

    async fn drive(&mut self, broke: Option<supervision::Panic>) -> Result<(), Arc<JournalError>> {
        if let Some(panic) = broke
            && self.begin_again(&panic).await?
        {
            return Ok(());
        }
        loop {
            let input = match self.pending.pop_front() {
                Some(input) => input,
                None => match self.hear().await {
                    Heard::TimePassed => Input::TimePassed,
                    Heard::Nobody => return Ok(()),
                    Heard::Told(told) => {
                        self.receive(told);
                        continue;
                    }
                    Heard::Ended(ended) => {
                        self.run_ended(ended);
                        continue;
                    }
                    Heard::Kept(kept) => {
                        self.kept(kept);
                        continue;
                    }
                    Heard::LookAgain => {
                        if let Some((_, pod, is_live)) = self.later.take() {
                            self.seen_or_later(pod, is_live);
                        }
                        continue;
                    }
                },
            };
            if self.step(input, Acts::Yes).await? {
                return Ok(());
            }
        }
    }

    /// Told next. A pod that is asked to leave is told first how it is reached: what it was told before may be older.
    fn tell_next(&mut self, input: Input) {
        if restart::asks_to_leave(&input)
            && let Some(routes) = self.executor.leaves()
        {
            self.pending.push_back(Input::Traffic(TrafficNews::Routed(routes)));
        }
        self.pending.push_back(input);
    }

    /// The next thing that happens, the moment that the worker asked for included.
    async fn hear(&mut self) -> Heard {
        if let Some(told) = self.waiting.pop_front() {
            return Heard::Told(told);
        }
        let wake = self.worker.next_wake().map(|wake| wake.at);
        loop {
            let left = wake.map(|at| at.since(self.clock.now()));
            if left.is_some_and(|left| left.is_zero()) {
                // A fact that is already here goes first: an exit at the deadline is an exit, not an overrun.
                let ended = self.endings.next().now_or_never().flatten().map(Heard::Ended);
                let told = || self.inbox.try_recv().ok().map(Heard::Told);
                return ended.or_else(told).unwrap_or(Heard::TimePassed);
            }
            let due = async {
                match left {
                    // The timer's clock stops while the machine sleeps and ours does not, so look again at least every minute.
                    Some(left) => tokio::time::sleep(left.min(Duration::from_secs(60))).await,
                    None => std::future::pending().await,
                }
            };
            let look_again_at = self.later.as_ref().map(|(at, ..)| *at);
            let again = async move {
                match look_again_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = self.endings.next() => return Heard::Ended(ended),
                kept = self.manifest.next() => return Heard::Kept(kept),
                told = self.inbox.recv() => return told.map_or(Heard::Nobody, Heard::Told),
                () = again => return Heard::LookAgain,
                () = due => {}
            }
        }
    }

    /// Takes one message: the record learns what is in it, and what concerns the rules is told to the worker next.
    fn receive(&mut self, told: Told) {
        match told {
            Told::Input(input) => self.tell_next(input),
            Told::Seen { pod, is_live } => self.seen_or_later(pod, is_live),
            Told::Exited { id, exit } => {
                self.endings.push(self.executor.read_ending(self.record.get().pod.clone(), id, exit))
            }
            Told::Grant(grant) => self.manifest.keep(grant.pod.clone(), Some(grant), &self.record.get()),
            Told::NotGranted { pod, pending } => self.not_granted(&pod, pending),
            Told::Fact { fact, known } => {
                self.record.learn(*fact);
                self.release_held();
                if let Some(known) = known {
                    // Whoever asked may have been ended.
                    let _ = known.send(self.record.get());
                }
            }
            Told::Answer { life, input, .. } if life != self.executor.life() => {
                debug!(?input, "an answer to a former life of the driver comes too late");
            }
            Told::Answer { fact, input, .. } => {
                if let Some(fact) = fact {
                    self.record.learn(*fact);
                }
                self.pending.push_back(input);
            }
        }
    }

    /// Tells the worker one fact and does what it asks for. True when its life is over.
    async fn step(&mut self, input: Input, acts: Acts) -> Result<bool, Arc<JournalError>> {
        let now = self.clock.now();
        let Some(input) = self.hold_back(input) else { return Ok(false) };
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
        // Before anybody can see it elsewhere: whoever comes because this pod is over finds its room free.
        self.tell(now, &input, was_terminating);
        if acts == Acts::Yes {
            self.executor.attend(&input, &self.worker);
        }
        self.executor.record_events(&effects, unwritten);
        for effect in effects {
            if effect == Effect::Finish {
                self.finish().await?;
                return Ok(true);
            }
            if acts == Acts::Yes || !is_asked_again(&effect) {
                self.executor.perform(effect, &self.worker, &self.record);
            }
        }
        // After acting, so that whoever hears "at rest" finds the last status already handed in.
        self.tell_rest(self.worker.is_at_rest());
        self.in_hand = None;
        self.suspect.take_if(|suspect| *suspect == input);
        self.release_held();
        Ok(false)
    }

    /// The input itself, unless it tells of the end of a run whose start is not told of yet. Then it comes right after the start.
    fn hold_back(&mut self, input: Input) -> Option<Input> {
        if let Input::Exited { instance, .. } = &input
            && self.record.get().starting.contains(instance)
        {
            if !flaws::has(Flaw::DropsHeldExit) {
                self.held.insert(instance.clone(), input);
            }
            return None;
        }
        Some(input)
    }

    /// Tells of ends that waited for a start, if that is answered or will never be.
    fn release_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let record = self.record.get();
        let held = std::mem::take(&mut self.held);
        let (held, released): (BTreeMap<_, _>, BTreeMap<_, _>) =
            held.into_iter().partition(|(run, _)| record.starting.contains(run));
        self.held = held;
        for (_, end) in released.into_iter().rev() {
            self.pending.push_front(end);
        }
    }

    /// Looks at the pod's object. One on which this breaks is looked at again later: it may be asked to leave, and nobody would
    /// say so again.
    fn seen_or_later(&mut self, pod: Arc<Pod>, is_live: bool) {
        self.later = None;
        let again = Arc::clone(&pod);
        if let Err(panic) = supervision::catch_blocking("driver", || self.seen(pod, is_live)) {
            error!(%panic, "the driver broke on the pod's object; it is looked at again later");
            self.later = Some((Instant::now() + LOOK_AGAIN, again, is_live));
        }
    }

    fn seen(&mut self, pod: Arc<Pod>, is_live: bool) {
        if api::pod::is_static(&*pod) {
            return self.manifest_seen(pod);
        }
        let now = crate::timestamp(&self.clock);
        let News { inputs, is_changed } = self.sightings.see(&self.record.get(), &pod, is_live, now);
        self.record.learn(PodFact::Seen(Arc::clone(&pod)));
        self.executor.seen(&pod, is_denied(&pod));
        let record = self.record.get();
        if record.resize.pending.is_some() && !record.asks_for_other_resources() {
            self.record.learn(PodFact::ResizePending(None));
            self.executor.refresh();
        }
        // What is kept is what the next agent compares with.
        if is_changed {
            self.manifest.keep(pod, None, &record);
        }
        inputs.into_iter().for_each(|input| self.tell_next(input));
    }

    /// The file of a static pod says this by now. What a file asks for is granted as it is.
    fn manifest_seen(&mut self, pod: Arc<Pod>) {
        let record = self.record.get();
        let changes = spec_changes(&record.pod, &pod);
        let is_news = record.pod.metadata.annotations != pod.metadata.annotations || record.pod.spec != pod.spec;
        drop(record);
        self.record.learn(PodFact::Seen(Arc::clone(&pod)));
        if !is_news {
            return;
        }
        self.record.learn(PodFact::Granted { pod: Arc::clone(&pod), in_progress: None });
        self.manifest.keep(pod, None, &self.record.get());
        self.executor.resources_granted();
        // The mirror shows the manifest as it is.
        self.executor.refresh();
        self.pending.extend(changes.into_iter().map(|change| Input::SpecChanged { change }));
    }

    fn run_ended(&mut self, EndedRun { run, exit, message }: EndedRun) {
        if let Some(text) = message {
            self.record.learn(PodFact::TerminationMessage { run: run.clone(), text });
        }
        self.pending.push_back(Input::Exited { instance: run, exit });
    }

    /// The manifest is on disk, or could not be written.
    fn kept(&mut self, kept: Kept) {
        if let Some(Kept { grant, result }) = self.manifest.settled(kept) {
            let is_kept = result.is_ok();
            match (&grant, result) {
                (Some(grant), Ok(())) => self.granted(grant),
                (Some(grant), Err(error)) => {
                    let message = format!("what is granted cannot be kept: {error}");
                    let generation = grant.pod.metadata.generation.unwrap_or_default();
                    self.not_granted(&grant.pod, Pending { reason: "Deferred", message, generation });
                }
                (None, Ok(())) => {}
                (None, Err(error)) => self.executor.manifest_not_kept(&error),
            }
            if let Some(grant) = grant {
                // The table may have ended.
                let _ = grant.is_kept.send(is_kept);
            }
        }
        self.manifest.write_next(&self.record.get());
    }

    /// Other resources are granted, which is kept: those that run are given them.
    fn granted(&mut self, grant: &Grant) {
        let in_progress = grant.has_begun.then(|| grant.pod.metadata.generation.unwrap_or_default());
        self.record.learn(PodFact::Granted { pod: grant.pod.clone(), in_progress });
        info!("other resources are granted to a pod");
        self.executor.resize_granted(&grant.pod, in_progress);
    }

    fn not_granted(&mut self, pod: &Pod, pending: Pending) {
        let before = self.record.get();
        self.executor.resize_refused(pod, before.resize.pending.as_ref(), &pending);
        self.record.learn(PodFact::ResizePending(Some(pending)));
        self.executor.refresh();
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
        TerminationStory::observe(&mut self.story, (now, wall), input, effects, &self.worker);
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
        // How a run ended is shown as soon as it is told, and must not become another end by a loss of power.
        let has_ended = matches!(input, Input::Exited { .. });
        let waits = has_come_up || has_ended || effects.iter().any(acts_on_the_world);
        if waits && !flaws::has(Flaw::ActsBeforeRecord) {
            written.await?;
            return Ok(None);
        }
        Ok(Some(written))
    }

    /// Has the record learn what the step changed.
    fn tell(&mut self, now: Moment, input: &Input, was_terminating: bool) {
        let deadline = self.worker.deadline();
        if !was_terminating && let Some(deadline) = deadline {
            info!(left = ?deadline.since(now), "leaving");
        }
        if let Input::HookFinished { instance, kind, outcome: HookOutcome::Failed { message, .. } } = input {
            info!(%instance, hook = hook_name(*kind), why = message, "a hook failed");
        }
        if let Input::Exited { instance, .. } = input {
            let is_last = self.worker.has_ended(&instance.name);
            self.record.learn(PodFact::Ended { run: instance.clone(), is_last });
        } else if let Input::Started { instance, .. }
        | Input::StartFailed { instance, .. }
        | Input::SandboxLost { instance } = input
        {
            self.record.learn(PodFact::StartAnswered(instance.clone()));
            // It may not have the newest resources, and was left alone until here.
            self.executor.resources_granted();
        }
        let status = self.worker.status();
        let is_open = |status: &lifecycle::PodStatus| status.traffic_drained.as_ref().is_some_and(|it| it.holds);
        if is_open(&status) && !is_open(&self.record.get().status) {
            let reason = status.traffic_drained.as_ref().and_then(|drained| drained.reason.as_deref());
            self.executor.barrier_released(reason.unwrap_or_default());
        }
        self.record.learn(PodFact::Judged { status: Arc::new(status), deadline });
        if let Some((waits_for, story)) = self.worker.waits_for().zip(self.story.clone()) {
            self.record.learn(PodFact::Leaving(Box::new(Leaving { waits_for, next: self.worker.next_wake(), story })));
        }
    }

    fn tell_rest(&mut self, at_rest: bool) {
        if self.record.get().at_rest != at_rest {
            self.record.learn(PodFact::AtRest(at_rest));
        }
        // The life stays in the journal, and tells the same story after a crash.
        if !self.is_told
            && self.worker.is_resting()
            && let Some(pending) = self.termination_record()
        {
            self.is_told = true;
            self.count_termination();
            self.executor.terminations().store(pending);
        }
    }

    /// The record of the pod's end; of one that was over before it came here there is none.
    fn termination_record(&self) -> Option<PendingRecord> {
        let story = self.story.as_ref().filter(|_| self.worker.has_a_story())?;
        PendingRecord::new(&story.record(&self.record.get().pod, self.executor.node_name()))
    }

    fn count_termination(&self) {
        if let Some(story) = &self.story {
            let record = story.record(&self.record.get().pod, self.executor.node_name());
            self.executor.terminations().count(&record);
        }
    }

    async fn finish(&mut self) -> Result<(), Arc<JournalError>> {
        // First the memory, then the files: files that a crash leaves behind are swept at the next start. What is to be told of the
        // end takes the place of the life until it is stored.
        match self.termination_record() {
            Some(mut pending) if !flaws::has(Flaw::ForgetsRecord) => {
                if !self.is_told {
                    self.count_termination();
                }
                let (uid, wall, record) = (self.uid.clone(), self.clock.wall_now(), pending.to_text());
                pending.journalled = Some((uid.clone(), wall));
                self.journal.append(Record::Concluded { uid, wall, record }).await?;
                self.executor.terminations().store(pending);
            }
            Some(_) | None => self.journal.append(Record::Forgotten { uid: self.uid.clone() }).await?,
        }
        self.manifest.stop().await;
        self.executor.let_go().await;
        self.tell_rest(true);
        info!("gone");
        Ok(())
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

/// Whether the worker asks for this again when it hears what the runtime has, if it is still to be done.
fn is_asked_again(effect: &Effect) -> bool {
    let is_said_once = matches!(effect, Effect::PublishStatus | Effect::Emit(_) | Effect::KillAnswered { .. });
    !is_said_once && *effect != Effect::Finish
}

#[cfg(test)]
mod tests;
