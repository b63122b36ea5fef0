//! The table of pod drivers: one for every pod bound to this node or defined by a manifest, and for every pod in the journal.
//!
//! One task owns the table of drivers and routes messages to them. It does nothing for a pod itself, neither reads nor writes nor
//! asks the API: what takes time is a task of its own, whose end comes back as a message. It waits for a driver only if a thousand
//! messages already wait there, so one slow pod does not hold up the others.

mod admission;
mod admission_queue;
mod arrivals;
mod directory;
mod eviction;
mod handle;
mod orphans;
mod placement;
mod recovery;
mod resize;
mod shutdown;
mod statics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::pod;
use client::WatchUpdate;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Input, PodWorker, Succession};
use runtime_api::{PodUid, Runtime, RuntimeEvent};
use timeline::{Journal, JournalError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::error;

use self::admission::Claim;
use self::admission_queue::AdmissionQueue;
use self::arrivals::Arrivals;
pub use self::directory::{Directory, PodReader};
use self::handle::{Handle, LeaveReason, Source, Stage};
use self::orphans::Orphans;
use self::placement::Placed;
pub use self::shutdown::{FLUSH, ShutdownGrace, ShutdownNews};
use crate::driver::{Driver, INBOX, PodJournal, Told};
use crate::effects::{EffectExecutor, Tools, instance};
use crate::flaws::{self, Flaw};
use crate::node_resources::NodeResources;
use crate::pressure::Eviction;
use crate::record::{PodRecord, RecordKeeper};
use crate::statics::ManifestPods;
use crate::terminations::TerminationStory;
use crate::translate::report::{hook_kind, hook_outcome};

/// How long a pod that could not be taken on waits for the next try.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// How long the table rests after a panic.
const BREATH: Duration = Duration::from_millis(100);

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
    retries: BTreeMap<String, Arc<Pod>>,
    later: JoinSet<String>,
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
    /// Pods that are kept on disk before they get a driver.
    arrivals: Arrivals,
    /// Who was granted other resources, and whether that could be kept.
    granting: JoinSet<(String, bool)>,
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
            retries: BTreeMap::new(),
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
            arrivals: Arrivals::default(),
            granting: JoinSet::new(),
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
                Some(Ok(uid)) = self.later.join_next() => self.try_again(&uid).await,
                Some(Ok((uid, placed))) = self.placing.join_next() => self.placed(&uid, placed).await,
                Some(arrived) = self.arrivals.next() => self.arrived(arrived).await,
                Some(Ok((uid, is_kept))) = self.granting.join_next() => self.granted(&uid, is_kept).await,
                Some(_) = self.chores.join_next() => {}
                freed = self.admission_queue.freed() => self.resources_freed(&freed).await,
                Some(ended) = self.running.join_next() => self.ended(ended).await?,
                Some(event) = inputs.events.recv() => self.route(event).await,
                Some(update) = inputs.updates.recv() => self.see(update).await,
            }
        }
    }

    async fn try_again(&mut self, uid: &str) {
        let Some(pod) = self.retries.remove(uid) else { return };
        if pod::is_static(&*pod) {
            // Its file may have been edited meanwhile.
            let Some(pod) = self.desired.get(uid).cloned() else { return };
            return self.begin_static(pod);
        }
        // What has been seen of it meanwhile is newer.
        let known = self.drivers.get(uid).map(|handle| &handle.newest).or_else(|| self.arrivals.newest(uid));
        if known.is_none_or(|known| revision(known) <= revision(&pod)) {
            self.changed_or_later(pod, false).await;
        }
    }

    /// Gives a pod its driver, which hears these facts before anything else happens, time included.
    fn begin(
        &mut self,
        uid: &str,
        worker: PodWorker,
        record: PodRecord,
        begun: bool,
        first: Vec<Input>,
        (pod_journal, story): (PodJournal, Option<TerminationStory>),
    ) {
        let (inbox, told) = mpsc::channel(INBOX);
        for input in first {
            inbox.try_send(Told::Input(input)).expect("a new inbox has room for the first few facts");
        }
        let newest = Arc::clone(&record.pod);
        let (keeper, record) = RecordKeeper::new(record);
        let executor = EffectExecutor::new(self.tools.clone(), record.clone(), inbox.clone());
        let reader = PodReader { uid: PodUid(uid.to_owned()), record, flush: executor.flush() };
        let journal = (self.journal.clone(), pod_journal);
        let driver = Driver::new(uid.to_owned(), worker, told, journal, keeper, executor).with_story(story);
        self.directory.insert(reader.clone());
        let stage = if begun { Stage::Begun } else { Stage::Waiting { placed: Placed::default(), is_recorded: false } };
        let (source, claim) = (Source::of(&newest), Claim::of(&newest));
        let handle = Handle { inbox, reader, newest, source, stage, claim, granting: None };
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
                self.directory.remove(&uid);
                if let Some(successor) = self.orphans.gone(&uid) {
                    result?;
                    self.follow_orphan(&uid, successor).await;
                    return Ok(());
                }
                match handle.map(|handle| (handle.source, handle.stage)) {
                    Some((Source::File { full_name }, _)) => {
                        result?;
                        self.succeed(&full_name, &uid);
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
                let (mirrors, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(pod::is_mirror);
                self.mirrors_listed(mirrors);
                let listed: BTreeSet<String> = pods.iter().filter_map(|p| p.metadata.uid.clone()).collect();
                self.finished.retain(|uid| listed.contains(uid));
                self.orphans.objects(&listed);
                self.arrivals.objects(&listed);
                self.retries.retain(|uid, pod| listed.contains(uid) || pod::is_static(&**pod));
                let gone: Vec<_> = self
                    .drivers
                    .iter()
                    .filter(|(uid, handle)| handle.source == Source::Api && !listed.contains(*uid))
                    .map(|(_, h)| h.inbox.clone())
                    .collect();
                for inbox in gone {
                    let _ = inbox.send(Told::Input(Input::ObjectGone)).await;
                }
                for pod in pods {
                    let known = |uid: &String| self.drivers.contains_key(uid);
                    if flaws::has(Flaw::SkipsListed) && pod.metadata.uid.as_ref().is_some_and(known) {
                        continue;
                    }
                    self.changed_or_later(Arc::new(pod), false).await;
                }
            }
            WatchUpdate::Changed(pod) if pod::is_mirror(&pod) => self.mirror_changed(pod),
            WatchUpdate::Changed(pod) => self.changed_or_later(Arc::new(pod), true).await,
            WatchUpdate::Removed(pod) => {
                self.name_freed(&pod);
                let uid = pod.metadata.uid.unwrap_or_default();
                self.finished.remove(&uid);
                self.arrivals.give_up(&uid);
                self.retries.remove(&uid);
                if let Some(handle) = self.drivers.get_mut(&uid) {
                    handle.leave(LeaveReason::ObjectGone);
                    self.orphans.object_gone(&uid);
                    handle.tell(Input::ObjectGone).await;
                }
            }
        }
    }

    /// Takes a pod as it is now. One on which this breaks is looked at again later: it may be asked to leave, and nobody would
    /// say so again.
    async fn changed_or_later(&mut self, pod: Arc<Pod>, is_live: bool) {
        let kept = Arc::clone(&pod);
        if let Err(panic) = supervision::catch("pods", self.changed(pod, is_live)).await {
            error!(%panic, uid = ?kept.metadata.uid, "the table of pods broke on a pod; it is looked at again later");
            self.look_again_later(kept);
        }
    }

    /// The pod is tried again in a while, as it was last seen by then, unless its object is removed.
    fn look_again_later(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if self.retries.get(&uid).is_none_or(|known| revision(known) <= revision(&pod)) {
            self.retries.insert(uid.clone(), pod);
        }
        self.later.spawn(async move {
            tokio::time::sleep(TRY_AGAIN).await;
            uid
        });
    }

    async fn changed(&mut self, pod: Arc<Pod>, is_live: bool) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if self.finished.contains(&uid) {
            return;
        }
        let Some(pod) = self.orphans.unless_waiting(&uid, pod) else { return };
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let Some(handle) = self.drivers.get_mut(&uid) else {
            // A pod that is over is nobody's concern, unless it waits for the node to let it go.
            let is_over = pod::is_terminal(&*pod) && !is_deleted && self.arrivals.newest(&uid).is_none();
            if is_over {
                // An older sight of it must not begin it later.
                self.retries.remove(&uid);
            } else if self.mode != Mode::Closed {
                self.take_on(&uid, pod, is_live);
            }
            return;
        };
        handle.newest = Arc::clone(&pod);
        // A pod that is already leaving when it is first seen never begins.
        if is_deleted {
            handle.leave(LeaveReason::Deleted);
            return handle.send(Told::Seen { pod, is_live }).await;
        }
        self.admit(&uid, &pod).await;
        if let Some(handle) = self.drivers.get(&uid) {
            handle.send(Told::Seen { pod, is_live }).await;
        }
        self.resize(&uid).await;
    }

    async fn route(&mut self, event: RuntimeEvent) {
        let (pod, told) = match event {
            RuntimeEvent::Exited { pod, id, exit } => (pod, Told::Exited { id, exit }),
            RuntimeEvent::HookEnded { pod, id, hook, outcome } => {
                let Some(kind) = hook_kind(&hook) else { return };
                let outcome = hook_outcome(&outcome);
                (pod, Told::Input(Input::HookFinished { instance: instance(&id), kind, outcome }))
            }
        };
        let Some(handle) = self.drivers.get(&pod.0) else { return };
        let is_exit = matches!(told, Told::Exited { .. });
        if !(is_exit && flaws::has(Flaw::DropsExitOfLeaving) && handle.is_leaving()) {
            handle.send(told).await;
        }
    }
}

/// How new this sight of a pod is.
fn revision(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}
