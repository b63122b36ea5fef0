//! The table of pod drivers: one for every pod bound to this node or defined by a manifest, and for every pod in the journal.
//!
//! One task owns the table of drivers and routes facts to them. It does nothing for a pod itself but keep its manifest,
//! and waits for a driver only if a thousand facts already wait there, so one slow pod does not hold up the others.

mod admission;
mod admission_queue;
mod eviction;
mod handle;
mod orphans;
mod placement;
mod recovery;
mod resize;
mod shutdown;
mod statics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::WatchUpdate;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{DeleteSighting, Event, Input, PodPhase, PodWorker, Succession};
use runtime_api::{PodUid, Runtime, RuntimeEvent};
use timeline::{Journal, JournalError, Record};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use self::admission::Claim;
use self::admission_queue::AdmissionQueue;
use self::handle::{Handle, LeaveReason, Source, Stage};
use self::orphans::Orphans;
use self::placement::Placed;
pub use self::shutdown::{FLUSH, ShutdownGrace, ShutdownNews};
use crate::driver::{Driver, PodJournal, Progress};
use crate::effects::{EffectExecutor, Tools, instance, lock};
use crate::flaws::{self, Flaw};
use crate::node_resources::NodeResources;
use crate::pressure::Eviction;
use crate::publisher::{Flush, SharedFacts};
use crate::statics::{ManifestPods, is_mirror, is_static};
use crate::termination_message::termination_message;
use crate::translate::pod_spec::{pod_spec, seconds, spec_changes};
use crate::translate::report::{api_exit, hook_kind, hook_outcome};
use crate::translate::status::Facts;

/// How long a pod that could not be taken on waits for the next try.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// How long the table rests after a panic.
const BREATH: Duration = Duration::from_millis(100);

/// How many facts may wait for one driver.
const INBOX: usize = 1024;

/// A pod that has a driver, as others may ask about it.
#[derive(Clone, Debug)]
pub struct PodEntry {
    /// Its UID.
    pub uid: PodUid,
    /// What the node knows of it.
    pub facts: SharedFacts,
    /// How far it is.
    pub progress: watch::Receiver<Progress>,
    /// A way to wait until the API shows it.
    pub flush: Flush,
    /// Told when other resources were granted to it.
    pub granted: Arc<Notify>,
}

/// Every pod with a driver, by UID; shared with the streams.
pub type Directory = Arc<Mutex<BTreeMap<String, PodEntry>>>;

/// What the owner of the node may ask of its pods.
#[derive(Debug)]
pub enum Command {
    /// End every pod; new ones are turned away. How that goes is told to `news`.
    ShutDown {
        /// How much time they have.
        shutdown_grace: ShutdownGrace,
        /// Whoever wants to know.
        news: mpsc::UnboundedSender<ShutdownNews>,
    },
    /// The machine does not go down after all.
    CallOff {
        /// Told when the node takes on pods again.
        resumed: oneshot::Sender<()>,
    },
}

/// Whether the node takes on pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It does.
    Open,
    /// It turns them away.
    ShuttingDown,
    /// It only ends what it has, and leaves the others to a later start.
    Closed,
}

/// The table of drivers.
pub struct Pods<R: Runtime> {
    tools: Arc<Tools<R>>,
    journal: Journal,
    drivers: BTreeMap<String, Handle>,
    /// Which of them only have to go, and who comes after them.
    orphans: Orphans,
    directory: Directory,
    running: JoinSet<(String, Result<(), Arc<JournalError>>)>,
    /// Lives that ended here while the API may still speak of them.
    finished: BTreeSet<String>,
    /// Pods that could not be taken on, each to be tried again.
    later: JoinSet<Arc<Pod>>,
    mode: Mode,
    /// The shutdown that is under way.
    stopping: Option<shutdown::Stopping>,
    /// Which static pods may run.
    succession: Succession,
    /// What the files ask for, by UID.
    desired: BTreeMap<String, Arc<Pod>>,
    /// The mirrors that the API has, by full name.
    mirrors: BTreeMap<String, Pod>,
    /// Work that nobody waits for; ended with the node.
    chores: JoinSet<()>,
    /// The ticket of the next one who waits for a kill to be over.
    next_ticket: u64,
    /// The pods that wait for resources.
    admission_queue: AdmissionQueue,
    /// Who waits to know whether it may be here, and whether it may.
    placing: JoinSet<(String, Placed)>,
}

/// The inputs of the table of drivers.
pub struct PodInputs {
    /// The pods of this node in the API.
    pub updates: mpsc::Receiver<WatchUpdate<Pod>>,
    /// The pods that files ask for.
    pub files: mpsc::Receiver<ManifestPods>,
    /// The runtime.
    pub events: mpsc::UnboundedReceiver<RuntimeEvent>,
    /// Evictions by node pressure.
    pub evictions: mpsc::Receiver<Eviction>,
    /// The node's owner.
    pub commands: mpsc::Receiver<Command>,
}

impl<R: Runtime> Pods<R> {
    /// A table without drivers, on a node that has so much to give.
    pub fn new(
        tools: Arc<Tools<R>>,
        journal: Journal,
        directory: Directory,
        mode: Mode,
        capacity: NodeResources,
    ) -> Self {
        // Those of an earlier start are still in the journal.
        let next_ticket = u64::try_from(tools.clock.wall_now().0).unwrap_or(0);
        Self {
            tools,
            journal,
            drivers: BTreeMap::new(),
            orphans: Orphans::default(),
            directory,
            running: JoinSet::new(),
            finished: BTreeSet::new(),
            later: JoinSet::new(),
            mode,
            stopping: None,
            succession: Succession::default(),
            desired: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            chores: JoinSet::new(),
            next_ticket,
            admission_queue: AdmissionQueue::new(capacity),
            placing: JoinSet::new(),
        }
    }

    /// Routes facts until the node stops (all senders gone) or the journal fails.
    ///
    /// A fact that it breaks on is left out: the table is whole between any two, and every other pod goes on.
    pub async fn run(mut self, mut inputs: PodInputs) -> Result<(), Arc<JournalError>> {
        loop {
            match supervision::catch("pods", self.route_all(&mut inputs)).await {
                Ok(ended) => return ended,
                Err(panic) => error!(%panic, "the table of pods broke on a fact, which is left out"),
            }
            // Whatever it is, it does not take a whole processor.
            tokio::time::sleep(BREATH).await;
        }
    }

    async fn route_all(&mut self, inputs: &mut PodInputs) -> Result<(), Arc<JournalError>> {
        loop {
            // What is rare comes first, so that nothing of it waits behind a stream that never ends.
            tokio::select! {
                biased;
                command = inputs.commands.recv() => match command {
                    Some(Command::ShutDown { shutdown_grace, news }) => self.shut_down(shutdown_grace, news),
                    Some(Command::CallOff { resumed }) => self.call_off(resumed).await,
                    // The node's owner is gone: stop looking after pods, and leave them as they are.
                    None => return Ok(()),
                },
                event = shutdown::next(&mut self.stopping, &self.tools.clock) => self.stopping_event(event).await,
                Some(eviction) = inputs.evictions.recv() => self.evict(eviction).await,
                Some(wanted) = inputs.files.recv() => self.want(wanted).await,
                Some(Ok(pod)) = self.later.join_next() => self.try_again(pod).await,
                Some(Ok((uid, placed))) = self.placing.join_next() => self.placed(&uid, placed).await,
                Some(_) = self.chores.join_next() => {}
                freed = self.admission_queue.freed() => self.resources_freed(&freed).await,
                Some(ended) = self.running.join_next() => self.ended(ended).await?,
                Some(event) = inputs.events.recv() => self.route(event).await,
                Some(update) = inputs.updates.recv() => self.see(update).await,
            }
        }
    }

    async fn try_again(&mut self, pod: Arc<Pod>) {
        if is_static(&pod) {
            return self.begin_static(pod).await;
        }
        // What has been seen of it meanwhile is newer.
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let known = self.drivers.get(uid).map(|handle| revision(&handle.pod()));
        if known.is_none_or(|known| known <= revision(&pod)) {
            self.changed_or_later(pod, false).await;
        }
    }

    /// Gives a pod its driver, which hears these facts before anything else happens, time included.
    fn begin(
        &mut self,
        uid: &str,
        worker: PodWorker,
        mut facts: Facts,
        begun: bool,
        first: Vec<Input>,
        pod_journal: PodJournal,
    ) {
        let (inbox, told) = mpsc::channel(INBOX);
        for input in first {
            inbox.try_send(input).expect("a new inbox has room for the first few facts");
        }
        let (source, claim) = (Source::of(&facts.pod), Claim::of(&facts.pod));
        let generation = worker.status().observed_generation.or(facts.pod.metadata.generation);
        facts.grant(&facts.pod.clone());
        let facts = Arc::new(Mutex::new(facts));
        let executor = EffectExecutor::new(self.tools.clone(), facts.clone(), inbox.clone());
        let (flush, granted) = (executor.flush(), executor.granted());
        let (driver, progress) =
            Driver::new(uid.to_owned(), worker, told, (self.journal.clone(), pod_journal), executor);
        let entry = PodEntry { uid: PodUid(uid.to_owned()), facts, progress, flush, granted };
        lock(&self.directory).insert(uid.to_owned(), entry.clone());
        let stage = if begun { Stage::Begun } else { Stage::Waiting { placed: Placed::default(), is_recorded: false } };
        let handle = Handle { inbox, entry, source, stage, claim, told: None, generation };
        self.drivers.insert(uid.to_owned(), handle);
        let key = uid.to_owned();
        self.running.spawn(async move { (key, driver.run().await) });
    }

    async fn ended(
        &mut self,
        ended: Result<(String, Result<(), Arc<JournalError>>), tokio::task::JoinError>,
    ) -> Result<(), Arc<JournalError>> {
        match ended {
            Ok((uid, result)) => {
                let handle = self.drivers.remove(&uid);
                lock(&self.directory).remove(&uid);
                if let Some(successor) = self.orphans.gone(&uid) {
                    result?;
                    self.follow_orphan(&uid, successor).await;
                    return Ok(());
                }
                match handle.map(|handle| (handle.source, handle.stage)) {
                    Some((Source::File { full_name }, _)) => {
                        result?;
                        self.succeed(&full_name, &uid).await;
                        return Ok(());
                    }
                    // Of an object that was seen to go, the API will not speak again.
                    Some((Source::Api, Stage::Leaving(LeaveReason::ObjectGone))) => {}
                    Some(_) | None => _ = self.finished.insert(uid),
                }
                result
            }
            // It begins again by itself, whatever breaks; and nobody aborts it.
            Err(error) => {
                error!(%error, "a pod's driver is gone");
                Ok(())
            }
        }
    }

    async fn see(&mut self, update: WatchUpdate<Pod>) {
        match update {
            WatchUpdate::Listed(pods) => {
                let (mirrors, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(is_mirror);
                self.mirrors_listed(mirrors);
                let listed: BTreeSet<String> = pods.iter().filter_map(|p| p.metadata.uid.clone()).collect();
                self.finished.retain(|uid| listed.contains(uid));
                self.orphans.objects(&listed);
                let gone: Vec<_> = self
                    .drivers
                    .iter()
                    .filter(|(uid, handle)| handle.source == Source::Api && !listed.contains(*uid))
                    .map(|(_, h)| h.inbox.clone())
                    .collect();
                for inbox in gone {
                    let _ = inbox.send(Input::ObjectGone).await;
                }
                for pod in pods {
                    let known = |uid: &String| self.drivers.contains_key(uid);
                    if flaws::has(Flaw::SkipsListed) && pod.metadata.uid.as_ref().is_some_and(known) {
                        continue;
                    }
                    self.changed_or_later(Arc::new(pod), false).await;
                }
            }
            WatchUpdate::Changed(pod) if is_mirror(&pod) => self.mirror_changed(pod),
            WatchUpdate::Changed(pod) => self.changed_or_later(Arc::new(pod), true).await,
            WatchUpdate::Removed(pod) => {
                self.name_freed(&pod);
                let uid = pod.metadata.uid.unwrap_or_default();
                self.finished.remove(&uid);
                if let Some(handle) = self.drivers.get_mut(&uid) {
                    handle.leave(LeaveReason::ObjectGone);
                    self.orphans.object_gone(&uid);
                    let _ = handle.inbox.send(Input::ObjectGone).await;
                }
            }
        }
    }

    /// Takes a pod as it is now. One on which this breaks is looked at again later: it may be asked to leave, and nobody would
    /// say so again.
    async fn changed_or_later(&mut self, pod: Arc<Pod>, live: bool) {
        let kept = Arc::clone(&pod);
        if let Err(panic) = supervision::catch("pods", self.changed(pod, live)).await {
            error!(%panic, uid = ?kept.metadata.uid, "the table of pods broke on a pod; it is looked at again later");
            self.later.spawn(async move {
                tokio::time::sleep(TRY_AGAIN).await;
                kept
            });
        }
    }

    async fn changed(&mut self, pod: Arc<Pod>, live: bool) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if self.finished.contains(&uid) {
            return;
        }
        let Some(pod) = self.orphans.unless_waiting(&uid, pod) else { return };
        if !self.drivers.contains_key(&uid) {
            // A pod that is over is nobody's concern, unless it waits for the node to let it go.
            let over = is_terminal(&pod) && pod.metadata.deletion_timestamp.is_none();
            if over || self.mode == Mode::Closed || !self.adopt(&uid, &pod).await {
                return;
            }
        }
        // A pod that is already leaving when it is first seen never begins.
        if pod.metadata.deletion_timestamp.is_none() {
            self.admit(&uid, &pod).await;
        }
        let Some(handle) = self.drivers.get_mut(&uid) else { return };
        let deletion = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        // Our own word comes back as well; what the worker already says of itself is no news to it.
        let ours = matches!(handle.entry.progress.borrow().status.phase, PodPhase::Succeeded | PodPhase::Failed);
        if is_terminal(&pod) && !ours {
            let succeeded = has_succeeded(&pod);
            let _ = handle.inbox.send(Input::TerminalPhaseSeen { succeeded }).await;
        }
        let denied = is_denied(&pod);
        let gated = pod.spec.as_ref().is_some_and(|s| s.readiness_gates.is_some());
        let (changes, generation, kept) = {
            let mut facts = lock(&handle.entry.facts);
            let changes = spec_changes(&facts.pod, &pod);
            let kept = (!changes.is_empty()).then(|| facts.as_granted(&pod));
            let generation = pod.metadata.generation.filter(|new| handle.generation != Some(*new));
            facts.pod = pod;
            (changes, generation, kept)
        };
        if gated {
            handle.entry.flush.refresh();
        }
        if denied {
            handle.entry.flush.overwritten();
        } else {
            handle.entry.flush.seen(&lock(&handle.entry.facts).pod);
        }
        for change in changes {
            let _ = handle.inbox.send(Input::SpecChanged { change }).await;
        }
        if let Some(generation) = generation {
            handle.generation = Some(generation);
            let _ = handle.inbox.send(Input::GenerationSeen { generation }).await;
        }
        // What is kept is what the next agent compares with.
        if let Some(pod) = kept
            && let Err(error) = self.tools.manifests.keep(&uid, &pod).await
        {
            warn!(uid, %error, "a changed manifest cannot be kept; after a restart it counts as changed again");
        }
        let Some(deletion) = deletion else { return self.resize(&uid).await };
        let hears = handle.told.is_none() || !flaws::has(Flaw::HearsOneDeletion);
        if handle.told == Some((grace, deletion)) || !hears {
            return;
        }
        handle.told = Some((grace, deletion));
        handle.leave(LeaveReason::Deleted);
        let sighting = if live { DeleteSighting::Live } else { found(deletion, crate::timestamp(&self.tools.clock)) };
        let _ = handle.inbox.send(Input::DeleteRequested { grace: seconds(grace), sighting }).await;
    }

    /// Takes a pod on: kept on disk and written down before anything is done for it.
    async fn adopt(&mut self, uid: &str, pod: &Arc<Pod>) -> bool {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let spec = match pod_spec(pod) {
            Ok(spec) => spec,
            Err(error) => {
                self.refuse(pod, &error.to_string());
                return false;
            }
        };
        if flaws::has(Flaw::KeepsNoManifest) {
            debug!(uid, "the manifest is not kept");
        } else if let Err(error) = self.tools.manifests.keep(uid, pod).await {
            self.refuse(pod, &format!("its manifest cannot be kept: {error}"));
            return false;
        }
        info!(uid, pod = name, "pod accepted");
        drop(self.journal.append(Record::Adopted {
            uid: uid.to_owned(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name,
            spec: spec.clone(),
            at: self.tools.clock.now(),
        }));
        let facts = Facts {
            pod: pod.clone(),
            host_ip: self.tools.host_ip.clone(),
            start: Some(self.tools.clock.wall_now()),
            ..Facts::default()
        };
        self.begin(uid, PodWorker::new(spec), facts, false, Vec::new(), PodJournal::default());
        true
    }

    /// A pod that cannot be taken on is told so and tried again: nothing waits in silence.
    fn refuse(&mut self, pod: &Arc<Pod>, why: &str) {
        warn!(pod = pod.metadata.name, why, "pod cannot be accepted; retrying");
        self.tools
            .recorder
            .record(pod, Event::pod_warning("FailedSync", format!("the node cannot take on the pod: {why}")));
        let pod = pod.clone();
        self.later.spawn(async move {
            tokio::time::sleep(TRY_AGAIN).await;
            pod
        });
    }

    async fn route(&mut self, event: RuntimeEvent) {
        let (pod, input) = match event {
            RuntimeEvent::Exited { pod, id, exit } => {
                let instance = instance(&id);
                if let Some(handle) = self.drivers.get(&pod.0) {
                    if flaws::has(Flaw::DropsExitOfLeaving) && handle.is_leaving() {
                        return;
                    }
                    let manifest = handle.pod();
                    let message = termination_message(&*self.tools.runtime, &manifest, &id, &exit, &self.tools.files);
                    // Whatever its message does to us, the exit is told.
                    if let Ok(Some(text)) = supervision::catch("pods", message).await {
                        lock(&handle.entry.facts).termination_messages.insert(instance.clone(), text);
                    }
                }
                (pod, Input::Exited { instance, exit: api_exit(exit) })
            }
            RuntimeEvent::HookEnded { pod, id, hook, outcome } => {
                let Some(kind) = hook_kind(&hook) else { return };
                (pod, Input::HookFinished { instance: instance(&id), kind, outcome: hook_outcome(&outcome) })
            }
        };
        if let Some(handle) = self.drivers.get(&pod.0) {
            let _ = handle.inbox.send(input).await;
        }
    }
}

/// How much of a deletion is left that was found rather than seen. A stored time has lost its fraction of a second.
fn found(deletion: Timestamp, now: Timestamp) -> DeleteSighting {
    let left = deletion.as_millisecond() + 1000 - now.as_millisecond();
    let left = if flaws::has(Flaw::FoundIsOver) { 0 } else { left };
    DeleteSighting::Found { left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) }
}

/// How new this sight of a pod is.
fn revision(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn has_succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
}

/// Whether somebody said that the pod is not ready because they had not heard of us. They hear of us as soon as we see that.
fn is_denied(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|it| it.type_ == "Ready" && it.reason.as_deref() == Some("NodeNotReady"))
}
