//! Who gets a driver: every pod bound to this node, every life the journal remembers, and nobody else.
//!
//! One task owns the table of drivers and routes facts to them. It does nothing for a pod itself but keep its manifest,
//! and waits for a driver only if a thousand facts already wait there, so one slow pod does not hold up the others.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{
    ContainerReport, DeleteSighting, Event, Exit, HookKind, HookOutcome, HookReport, Input, KillCause, PodPhase,
    PodWorker, RuntimeReport, SeenContainer, Signal, Wall,
};
use runtime::{ExitRecord, HookRecord, PodReport, PodUid, Runtime, RuntimeEvent};
use timeline::{Journal, JournalError, Life, Record};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::driver::{Driver, Progress};
use crate::hands::{Hands, Tools, hook_name, instance, lock, words};
use crate::publisher::{Flush, SharedFacts};
use crate::translate::pod_spec::{pod_spec, seconds, spec_changes};
use crate::translate::status::Facts;
use client::Sight;

/// The exit code of a process that was killed.
const KILLED: u8 = 128 + 9;

/// How long a pod that could not be taken on waits for the next try.
const TRY_AGAIN: Duration = Duration::from_secs(5);

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
}

/// Every pod with a driver, by UID; shared with the streams.
pub type Directory = Arc<Mutex<HashMap<String, PodEntry>>>;

/// What the owner of the node may ask of its pods.
#[derive(Debug)]
pub enum Command {
    /// End every pod with its full grace; new ones are not begun. Answered with the pods that are leaving.
    ShutDown(oneshot::Sender<Vec<PodEntry>>),
}

struct Handle {
    inbox: mpsc::Sender<Input>,
    entry: PodEntry,
    /// The deletion last told to the worker: grace and timestamp.
    told: Option<(i64, Timestamp)>,
    /// The worker was told to begin, in this life of the agent or an earlier one.
    begun: bool,
    /// The API object was seen to go.
    object_gone: bool,
}

/// The table of drivers.
pub struct Pods<R: Runtime> {
    tools: Arc<Tools<R>>,
    journal: Journal,
    drivers: HashMap<String, Handle>,
    directory: Directory,
    running: JoinSet<(String, Result<(), Arc<JournalError>>)>,
    /// Lives that ended here while the API may still speak of them.
    finished: HashSet<String>,
    /// Pods that could not be taken on, each to be tried again.
    later: JoinSet<Pod>,
    /// False once the node shuts down.
    takes_on_pods: bool,
}

impl<R: Runtime> Pods<R> {
    /// A table with a driver for every life that the journal remembers and this boot can continue.
    pub async fn recover(
        tools: Arc<Tools<R>>,
        journal: Journal,
        lives: Vec<Life>,
        boot_id: &str,
        directory: Directory,
        takes_on_pods: bool,
    ) -> Result<Self, runtime::RuntimeError> {
        let mut pods = Self {
            tools,
            journal,
            drivers: HashMap::new(),
            directory,
            running: JoinSet::new(),
            finished: HashSet::new(),
            later: JoinSet::new(),
            takes_on_pods,
        };
        let mut reports: HashMap<String, PodReport> =
            pods.tools.runtime.inventory().await?.into_iter().map(|r| (r.spec.uid.0.clone(), r)).collect();
        for life in lives {
            // After another boot nothing of it can have survived, but what was decided about it still holds.
            let report = reports.remove(&life.uid).filter(|_| life.boot_id == boot_id);
            let rebooted = life.boot_id != boot_id;
            pods.resume(life, report, rebooted).await;
        }
        for uid in reports.into_keys() {
            warn!(uid, "a sandbox that nobody remembers is removed");
            pods.discard(&uid).await;
        }
        pods.sweep().await;
        Ok(pods)
    }

    /// Files of pods that were forgotten just before a crash.
    async fn sweep(&self) {
        let kept = self.tools.manifests.all().await.unwrap_or_default();
        for uid in kept.iter().filter(|uid| !self.drivers.contains_key(*uid)) {
            self.forget_files(uid).await;
        }
    }

    /// Logs first: what is left after a crash is found by its manifest.
    async fn forget_files(&self, uid: &str) {
        if let Err(error) = self.tools.runtime.forget_logs(&PodUid(uid.to_owned())).await {
            warn!(uid, error = words(&error), "the pod's logs could not be removed");
        }
        if let Err(error) = self.tools.manifests.forget(uid).await {
            warn!(uid, %error, "the pod's files could not be removed");
        }
    }

    /// Routes facts until the node stops (all senders gone) or the journal fails.
    pub async fn run(
        mut self,
        mut sights: mpsc::Receiver<Sight<Pod>>,
        mut events: mpsc::UnboundedReceiver<RuntimeEvent>,
        mut commands: mpsc::Receiver<Command>,
    ) -> Result<(), Arc<JournalError>> {
        loop {
            tokio::select! {
                Some(event) = events.recv() => self.route(event).await,
                Some(sight) = sights.recv() => self.see(sight).await,
                Some(ended) = self.running.join_next() => self.ended(ended)?,
                Some(Ok(pod)) = self.later.join_next() => self.changed(pod, false).await,
                command = commands.recv() => match command {
                    Some(Command::ShutDown(answer)) => self.shut_down(answer).await,
                    // The node's owner is gone: stop looking after pods, and leave them as they are.
                    None => return Ok(()),
                },
            }
        }
    }

    async fn resume(&mut self, life: Life, report: Option<PodReport>, rebooted: bool) {
        let uid = life.uid.clone();
        let pod = match self.tools.manifests.recall(&uid).await {
            Ok(pod) => pod,
            Err(error) => {
                warn!(uid, %error, "the pod's manifest is lost; its remains are removed");
                return self.discard(&uid).await;
            }
        };
        let mut worker = PodWorker::new(life.spec.clone());
        for (at, _, input, _) in &life.steps {
            worker.handle(*at, input.clone());
        }
        let start = life.steps.first().map(|(_, wall, ..)| *wall);
        let was = life.steps.last().filter(|_| rebooted).map(|(at, wall, ..)| {
            let since = timeline::wall_now().0.saturating_sub(wall.0);
            *at + Duration::from_millis(u64::try_from(since).unwrap_or(0))
        });
        let mut facts = Facts { pod, host_ip: self.tools.host_ip.clone(), start, ..Facts::default() };
        facts.pod_ip = match &report {
            Some(report) => report.sandbox.ip.map(|ip| ip.to_string()),
            None => facts.pod.status.as_ref().and_then(|s| s.pod_ip.clone()),
        };
        for container in report.iter().flat_map(|r| &r.containers) {
            match self.tools.runtime.ensure_image(&container.image_id).await {
                Ok(image) => facts.know_image(&container.id.name, &image),
                Err(_) => _ = facts.image_ids.insert(container.id.name.clone(), container.image_id.clone()),
            }
            if let Some(words) = self.tools.runtime.termination_message(&PodUid(uid.clone()), &container.id).await {
                facts.last_words.insert(instance(&container.id), words);
            }
        }
        info!(uid, pod = life.name, steps = life.steps.len(), "a pod's life goes on");
        let begun = !life.steps.is_empty();
        let inbox = self.begin(&uid, worker, facts, begun);
        if let Some(was) = was {
            let _ = inbox.send(Input::Rebooted { was }).await;
        }
        let report = report.map(runtime_report).unwrap_or_default();
        let _ = inbox.send(Input::AgentRestarted { report }).await;
    }

    async fn discard(&mut self, uid: &str) {
        if let Err(error) = self.tools.runtime.remove_sandbox(&PodUid(uid.to_owned())).await {
            warn!(uid, error = words(&error), "a sandbox could not be removed");
        }
        self.forget_files(uid).await;
        // The next start compacts the record away; until then it is a life that ended.
        drop(self.journal.append(Record::Forgotten { uid: uid.to_owned() }));
    }

    fn begin(&mut self, uid: &str, worker: PodWorker, facts: Facts, begun: bool) -> mpsc::Sender<Input> {
        let (inbox, told) = mpsc::channel(INBOX);
        let facts = Arc::new(Mutex::new(facts));
        let hands = Hands::new(self.tools.clone(), facts.clone(), inbox.clone());
        let flush = hands.flush();
        let (driver, progress) = Driver::new(uid.to_owned(), worker, told, self.journal.clone(), hands);
        let entry = PodEntry { uid: PodUid(uid.to_owned()), facts, progress, flush };
        lock(&self.directory).insert(uid.to_owned(), entry.clone());
        self.drivers
            .insert(uid.to_owned(), Handle { inbox: inbox.clone(), entry, told: None, begun, object_gone: false });
        let key = uid.to_owned();
        self.running.spawn(async move { (key, driver.run().await) });
        inbox
    }

    fn ended(
        &mut self,
        ended: Result<(String, Result<(), Arc<JournalError>>), tokio::task::JoinError>,
    ) -> Result<(), Arc<JournalError>> {
        match ended {
            Ok((uid, result)) => {
                let handle = self.drivers.remove(&uid);
                lock(&self.directory).remove(&uid);
                // Of an object that was seen to go, the API will not speak again.
                if handle.is_none_or(|handle| !handle.object_gone) {
                    self.finished.insert(uid);
                }
                result
            }
            Err(error) => {
                error!(%error, "a pod's driver broke");
                std::panic::resume_unwind(error.into_panic())
            }
        }
    }

    async fn see(&mut self, sight: Sight<Pod>) {
        match sight {
            Sight::Listed(pods) => {
                let listed: HashSet<String> = pods.iter().filter_map(|p| p.metadata.uid.clone()).collect();
                self.finished.retain(|uid| listed.contains(uid));
                let gone: Vec<_> = self
                    .drivers
                    .iter()
                    .filter(|(uid, _)| !listed.contains(*uid))
                    .map(|(_, h)| h.inbox.clone())
                    .collect();
                for inbox in gone {
                    let _ = inbox.send(Input::ObjectGone).await;
                }
                for pod in pods {
                    self.changed(pod, false).await;
                }
            }
            Sight::Changed(pod) => self.changed(pod, true).await,
            Sight::Removed(pod) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                self.finished.remove(&uid);
                if let Some(handle) = self.drivers.get_mut(&uid) {
                    handle.object_gone = true;
                    let _ = handle.inbox.send(Input::ObjectGone).await;
                }
            }
        }
    }

    async fn changed(&mut self, pod: Pod, live: bool) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if self.finished.contains(&uid) {
            return;
        }
        if !self.drivers.contains_key(&uid) {
            // A pod that is over is nobody's concern, unless it waits for the node to let it go.
            let over = is_terminal(&pod) && pod.metadata.deletion_timestamp.is_none();
            if over || !self.takes_on_pods || !self.adopt(&uid, &pod).await {
                return;
            }
        }
        let Some(handle) = self.drivers.get_mut(&uid) else { return };
        // A pod that is already leaving when it is first seen never begins.
        if !handle.begun && pod.metadata.deletion_timestamp.is_none() {
            handle.begun = true;
            let _ = handle.inbox.send(Input::Begin).await;
        }
        let deletion = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        // Our own word comes back as well; what the worker already says of itself is no news to it.
        let ours = matches!(handle.entry.progress.borrow().status.phase, PodPhase::Succeeded | PodPhase::Failed);
        if is_terminal(&pod) && !ours {
            let succeeded = has_succeeded(&pod);
            let _ = handle.inbox.send(Input::TerminalPhaseSeen { succeeded }).await;
        }
        let gated = pod.spec.as_ref().is_some_and(|s| s.readiness_gates.is_some());
        let (changes, generation, kept) = {
            let mut facts = lock(&handle.entry.facts);
            let changes = spec_changes(&facts.pod, &pod);
            let kept = (!changes.is_empty()).then(|| pod.clone());
            let generation = pod.metadata.generation.filter(|new| facts.pod.metadata.generation != Some(*new));
            facts.pod = pod;
            (changes, generation, kept)
        };
        if gated {
            handle.entry.flush.refresh();
        }
        for change in changes {
            let _ = handle.inbox.send(Input::SpecChanged { change }).await;
        }
        if let Some(generation) = generation {
            let _ = handle.inbox.send(Input::GenerationSeen { generation }).await;
        }
        // What is kept is what the next agent compares with.
        if let Some(pod) = kept
            && let Err(error) = self.tools.manifests.keep(&uid, &pod).await
        {
            warn!(uid, %error, "a changed manifest cannot be kept; after a restart it counts as changed again");
        }
        let Some(deletion) = deletion else { return };
        if handle.told == Some((grace, deletion)) {
            return;
        }
        handle.told = Some((grace, deletion));
        let sighting = if live { DeleteSighting::Live } else { found(deletion) };
        let _ = handle.inbox.send(Input::DeleteRequested { grace: seconds(grace), sighting }).await;
    }

    /// Takes a pod on: kept on disk and written down before anything is done for it.
    async fn adopt(&mut self, uid: &str, pod: &Pod) -> bool {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let spec = match pod_spec(pod) {
            Ok(spec) => spec,
            Err(error) => {
                self.refuse(pod, &error.to_string());
                return false;
            }
        };
        if let Err(error) = self.tools.manifests.keep(uid, pod).await {
            self.refuse(pod, &format!("its manifest cannot be kept: {error}"));
            return false;
        }
        info!(uid, pod = name, "a pod is taken on");
        drop(self.journal.append(Record::Adopted {
            uid: uid.to_owned(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name,
            spec: spec.clone(),
            at: timeline::now(),
        }));
        let facts = Facts {
            pod: pod.clone(),
            host_ip: self.tools.host_ip.clone(),
            start: Some(timeline::wall_now()),
            ..Facts::default()
        };
        self.begin(uid, PodWorker::new(spec), facts, false);
        true
    }

    /// A pod that cannot be taken on is told so and tried again: nothing waits in silence.
    fn refuse(&mut self, pod: &Pod, why: &str) {
        warn!(pod = pod.metadata.name, why, "a pod cannot be taken on; trying again");
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
                if let (Some(handle), Some(text)) =
                    (self.drivers.get(&pod.0), self.tools.runtime.termination_message(&pod, &id).await)
                {
                    lock(&handle.entry.facts).last_words.insert(instance.clone(), text);
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

    async fn shut_down(&mut self, answer: oneshot::Sender<Vec<PodEntry>>) {
        self.takes_on_pods = false;
        for handle in self.drivers.values() {
            let _ = handle.inbox.send(Input::KillRequested { cause: KillCause::NodeShutdown, grace: None }).await;
        }
        let _ = answer.send(self.drivers.values().map(|h| h.entry.clone()).collect());
    }
}

/// How much of a deletion is left that was found rather than seen. A stored time has lost its fraction of a second.
fn found(deletion: Timestamp) -> DeleteSighting {
    let left = deletion.as_millisecond() + 1000 - Timestamp::now().as_millisecond();
    DeleteSighting::Found { left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) }
}

fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn has_succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
}

fn runtime_report(report: PodReport) -> RuntimeReport {
    RuntimeReport {
        sandbox: report.alive,
        containers: report
            .containers
            .iter()
            .map(|c| ContainerReport {
                instance: instance(&c.id),
                seen: match c.exit {
                    Some(exit) => SeenContainer::Exited { exit: api_exit(exit) },
                    None => SeenContainer::Running { wall: Wall(c.started_wall_ms) },
                },
            })
            .collect(),
        hooks: report
            .hooks
            .iter()
            .filter_map(|h| {
                Some(HookReport {
                    instance: instance(&h.id),
                    kind: hook_kind(&h.hook)?,
                    outcome: h.outcome.as_ref().map(hook_outcome),
                })
            })
            .collect(),
    }
}

fn api_exit(record: ExitRecord) -> Exit {
    Exit {
        code: record.code,
        signal: record.signal.map(Signal),
        oom: record.oom,
        wall: Wall(record.wall_ms),
        seen: record.seen,
    }
}

fn hook_kind(name: &str) -> Option<HookKind> {
    [HookKind::PreStop, HookKind::PostStart].into_iter().find(|kind| hook_name(*kind) == name)
}

fn hook_outcome(record: &HookRecord) -> HookOutcome {
    match record {
        HookRecord::Exited { code: 0 } => HookOutcome::Succeeded,
        // Nobody but the end of its container kills a hook, and the kernel tells of the hook first: that is no failure.
        HookRecord::Exited { code: KILLED } => HookOutcome::Cancelled,
        HookRecord::Exited { code } => HookOutcome::Failed { message: format!("it ended with exit code {code}") },
        HookRecord::Failed { message } => HookOutcome::Failed { message: message.clone() },
        HookRecord::Cancelled => HookOutcome::Cancelled,
    }
}
