//! Executes the effects of a pod worker. Every effect is started here, and its result comes back as an input.

mod attending;
mod breaking;
mod context;
mod ending;
mod events;
mod hooks;
mod images;
mod resizing;
mod run_names;
mod sandbox;
mod signals;
mod start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{ContainerName, Effect, HookKind, Instance, KillOutcome, PodWorker, Routes};
use runtime_api::{PodUid, Runtime};
use supervision::error_chain;
use timeline::{Appended, Clock};
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

use self::context::{PodContext, Shared};
pub use self::ending::EndedRun;
use self::events::EventRecorder;
pub use self::run_names::{container_id, hook_name, instance};
use crate::driver::{Answers, Told};
use crate::events::Recorder;
use crate::files::Files;
use crate::flaws::{self, Flaw};
use crate::heartbeat::HealthBoard;
use crate::machine::Machine;
use crate::manifest::Manifests;
use crate::probing;
use crate::publisher::{Flush, Publisher};
use crate::record::{PodFact, RecordKeeper, RecordReader};
use crate::services::Services;
use crate::sysctls::AllowedSysctls;
use crate::terminations::Terminations;
use crate::traffic::{Traffic, TrafficReporter, TrafficRequest};
use crate::volumes::{self, LocalDirectories, Watches};

/// How long to wait before asking the runtime again what it could not answer.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What the effect executors of all pods share.
pub struct Tools<R: Runtime> {
    /// The container runtime.
    pub runtime: Arc<R>,
    /// The API, as this node.
    pub client: kube::Client,
    /// Records events in the API.
    pub recorder: Recorder,
    /// The node's health.
    pub health: HealthBoard,
    /// What containers are told of the services around them.
    pub services: Services,
    /// Told whenever a container has its image: what fills the disk of images.
    pub images_given: Notify,
    /// Who waits for a kill to be over, by their tickets.
    pub waiters: std::sync::Mutex<BTreeMap<u64, oneshot::Sender<KillOutcome>>>,
    /// What tells that volumes have to change.
    pub watches: Watches,
    /// What is kept for each pod.
    pub manifests: Manifests,
    /// What time it is.
    pub clock: Clock,
    /// The machine.
    pub machine: Machine,
    /// Who waits for the disk.
    pub files: Files,
    /// The node's name.
    pub node_name: String,
    /// The node's address.
    pub host_ip: String,
    /// How many processes a pod may have; `None` for as many as the machine.
    pub pod_pids_max: Option<u64>,
    /// Which kernel parameters pods may set beside the safe ones.
    pub allowed_sysctls: AllowedSysctls,
    /// Where pods find the cluster DNS; nowhere if there is none.
    pub cluster_dns: Vec<std::net::IpAddr>,
    /// Who takes the records of how pods ended.
    pub terminations: Terminations,
    /// Who steers the traffic of pods.
    pub traffic: Arc<dyn Traffic>,
    /// Where directories of persistent volumes are made, if they can be.
    pub local: Option<Arc<LocalDirectories>>,
}

impl<R: Runtime> Tools<R> {
    /// What volumes are made with.
    pub fn volumes(&self) -> volumes::Means {
        volumes::Means {
            client: self.client.clone(),
            clock: self.clock.clone(),
            files: self.files.clone(),
            node_name: self.node_name.clone(),
            local: self.local.clone(),
        }
    }
}

/// Executes the effects of one pod.
pub struct EffectExecutor<R: Runtime> {
    context: PodContext<R>,
    publisher: Publisher,
    event_recorder: EventRecorder,
    /// What goes on for as long as the pod has a driver.
    keepers: JoinSet<()>,
    /// What is being done for the worker.
    tasks: JoinSet<()>,
    pulls: BTreeMap<ContainerName, AbortHandle>,
    /// Starts under way. None of them outlives its sandbox.
    starts: JoinSet<()>,
    /// Hooks that are ours to time or to send; those inside the container belong to the runtime.
    own_hooks: BTreeMap<(Instance, HookKind), AbortHandle>,
    /// Requests to the runtime to begin a hook.
    hook_requests: BTreeMap<(Instance, HookKind), AbortHandle>,
    probes: BTreeMap<Instance, probing::Running>,
    /// Keeps volumes up to date once a container runs that may read them.
    refreshing: Option<AbortHandle>,
}

impl<R: Runtime> EffectExecutor<R> {
    /// An executor for the pod of `record`; results go to `inbox`.
    pub fn new(tools: Arc<Tools<R>>, record: RecordReader, inbox: mpsc::Sender<Told>) -> Self {
        let uid = PodUid(record.pod().metadata.uid.clone().unwrap_or_default());
        let (publisher, publishing) = Publisher::start(
            tools.client.clone(),
            tools.node_name.clone(),
            record.clone(),
            inbox.clone(),
            tools.clock.clone(),
        );
        let mut keepers = JoinSet::new();
        keepers.spawn(publishing);
        let (event_recorder, event_queue, pending) = EventRecorder::new();
        let shared = Shared {
            tools,
            uid,
            record,
            volumes: Mutex::new(None),
            has_volumes: watch::Sender::new(false),
            lookups: Mutex::new(None),
            changes: std::sync::Mutex::default(),
            granted: Notify::new(),
            event_queue,
        };
        let context = PodContext::new(shared, Answers::new(inbox));
        let (resizing, flush) = (context.clone(), publisher.flush());
        keepers.spawn(async move { supervision::keep("resources", || resizing.keep_resources(flush.clone())).await });
        let (following, reporter) = (context.clone(), TrafficReporter::of_driver(context.answers.clone()));
        keepers.spawn(async move {
            let follow = || {
                let (told, pods) = watch::channel(following.pod());
                let routes = following.tools.traffic.follow(pods, reporter.clone());
                let handing_on = following.record.clone().hand_on_pods(told);
                async move { _ = tokio::join!(routes, handing_on) }
            };
            supervision::keep("traffic", follow).await;
        });
        // Ends when it has said what it was given: nobody has to wait for that, and nobody cuts it short.
        tokio::spawn(events::record_all(context.clone(), pending));
        Self {
            context,
            publisher,
            event_recorder,
            keepers,
            tasks: JoinSet::new(),
            pulls: BTreeMap::new(),
            starts: JoinSet::new(),
            own_hooks: BTreeMap::new(),
            hook_requests: BTreeMap::new(),
            probes: BTreeMap::new(),
            refreshing: None,
        }
    }

    /// Starts one effect.
    pub fn perform(&mut self, effect: Effect, worker: &PodWorker, record: &RecordKeeper) {
        while self.tasks.try_join_next().is_some() || self.starts.try_join_next().is_some() {}
        let context = self.context.clone();
        match effect {
            Effect::PullImage { container, edition } => {
                let name = container.clone();
                let task = self.tasks.spawn(async move { context.pull(container, edition).await });
                // Asked for again, it is not pulled twice.
                if let Some(before) = self.pulls.insert(name, task) {
                    before.abort();
                }
            }
            Effect::CancelPull { container } => {
                if let Some(task) = self.pulls.remove(&container) {
                    task.abort();
                }
            }
            Effect::CreateSandbox => {
                self.tasks.spawn(async move { context.create_sandbox().await });
            }
            Effect::StartContainer { instance } => {
                record.learn(PodFact::Starting(instance.clone()));
                self.starts.spawn(async move { context.start(instance).await });
            }
            Effect::RunHook { instance, kind } => self.run_hook(instance, kind),
            Effect::CancelHook { instance, kind } => self.cancel_hook(instance, kind),
            Effect::SendSignal { instance, signal } => {
                self.tasks.spawn(async move { context.signal(instance, signal).await });
            }
            Effect::KillContainer { instance } => {
                self.tasks.spawn(async move { context.kill(instance).await });
            }
            Effect::RemoveSandbox => {
                self.probes.clear();
                let mut starts = std::mem::take(&mut self.starts);
                // Of one that is deleted everything goes with its object, a moment later.
                let keeps_object = record.get().is_leaving() && !api::pod::is_terminating(&*self.context.pod());
                if let Some(refreshing) = self.refreshing.take_if(|_| keeps_object) {
                    refreshing.abort();
                }
                self.tasks.spawn(async move {
                    // Or one that is still being prepared would find the next sandbox in the place of its own.
                    starts.shutdown().await;
                    context.answers.learn(PodFact::NothingStarts).await;
                    context.remove_sandbox(keeps_object).await;
                });
            }
            Effect::PublishStatus => self.publisher.publish(record.get().status.clone()),
            Effect::DeleteObject => {
                if worker.has_a_story() && !flaws::has(Flaw::DeletesWithoutStatus) {
                    self.publisher.publish(record.get().status.clone());
                }
                self.publisher.delete();
            }
            // Told in their own order, and by the driver.
            Effect::Emit(_) | Effect::Finish => {}
            Effect::CutTraffic { how } => self.steer(TrafficRequest::Cut(how)),
            Effect::AwaitSettled => self.steer(TrafficRequest::AwaitSettled),
            Effect::WatchConnections => self.steer(TrafficRequest::WatchConnections),
            Effect::NotifyDrain { until } => self.steer(TrafficRequest::NotifyDrain { until }),
            Effect::RestoreTraffic => self.steer(TrafficRequest::Restore),
            Effect::KillAnswered { ticket, outcome } => {
                // Whoever asked before a restart is not there to be told.
                if let Some(waiter) = lock(&context.tools.waiters).remove(&ticket) {
                    let _ = waiter.send(outcome);
                }
            }
        }
    }

    /// Leaves it to whoever steers traffic.
    fn steer(&mut self, request: TrafficRequest) {
        let reporter = TrafficReporter::new(self.context.answers.clone());
        self.tasks.spawn(self.context.tools.traffic.perform(Pod::clone(&self.context.pod()), request, reporter));
    }

    /// The pod is asked to leave; how it is reached at this moment, if that is known.
    pub fn leaves(&self) -> Option<Routes> {
        self.context.tools.traffic.leaves(&self.context.pod())
    }

    /// The pod's barrier was opened.
    pub fn barrier_released(&self, reason: &str) {
        self.context.tools.traffic.released(reason);
    }

    /// Records the events of a step, once `unwritten` is on disk.
    pub fn record_events(&self, effects: &[Effect], unwritten: Option<Appended>) {
        let events = effects
            .iter()
            .filter_map(|effect| if let Effect::Emit(event) = effect { Some(event.clone()) } else { None });
        self.event_recorder.tell(events.collect(), unwritten);
    }

    /// A way to wait until others can see what was published.
    pub fn flush(&self) -> Flush {
        self.publisher.flush()
    }

    /// What time it is.
    pub fn clock(&self) -> Clock {
        self.context.tools.clock.clone()
    }

    /// Who takes the record of its end.
    pub fn terminations(&self) -> &Terminations {
        &self.context.tools.terminations
    }

    /// The node's name.
    pub fn node_name(&self) -> &str {
        &self.context.tools.node_name
    }

    /// Where the manifests of pods are kept.
    pub fn manifests(&self) -> Manifests {
        self.context.tools.manifests.clone()
    }

    /// The object was seen like this. It may deny what the node has said of it.
    pub fn seen(&self, pod: &Pod, is_denied: bool) {
        let flush = self.publisher.flush();
        if pod.spec.as_ref().is_some_and(|spec| spec.readiness_gates.is_some()) {
            flush.refresh();
        }
        if is_denied {
            flush.overwritten();
        } else {
            flush.seen(pod);
        }
    }

    /// What the status is made of has changed outside the worker.
    pub fn refresh(&self) {
        self.publisher.flush().refresh();
    }

    /// The pod is over: ends what still runs on its behalf and forgets what was kept for it.
    pub async fn let_go(&mut self) {
        self.keepers.shutdown().await;
        self.probes.clear();
        self.starts.shutdown().await;
        self.tasks.shutdown().await;
        if let Err(error) = self.context.tools.runtime.forget_logs(&self.context.uid).await {
            warn!(error = error_chain(&error), "the pod's logs could not be removed");
        }
        if let Err(error) = self.context.tools.manifests.forget(&self.context.uid.0).await {
            warn!(%error, "the pod's files could not be removed");
        }
    }
}

/// What is behind these locks is replaced whole, so a panic elsewhere cannot leave it half-written.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
