//! Executes the effects of a pod worker. Every effect is started here, and its result comes back as an input.

mod breaking;
mod events;
mod resizing;
mod run_names;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LifecycleHandler, Pod};
use lifecycle::{
    ContainerName, Delivery, Effect, Event, EventKind, Hook, HookKind, HookOutcome, Input, Instance, KillOutcome,
    Moment, PodWorker, Signal, Wall,
};
use reading::hook_of;
use runtime_api::{DurableHooks as _, Image, PodUid, Runtime, RuntimeError, SandboxSpec, Started};
use supervision::{Panic, error_chain};
use timeline::{Appended, Clock};
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

use self::breaking::{PART, asked, caught};
use self::events::{EventQueue, EventRecorder};
pub use self::run_names::{container_id, hook_name, instance};
use crate::events::Recorder;
use crate::files::Files;
use crate::flaws::{self, Flaw};
use crate::heartbeat::HealthBoard;
use crate::images::{self, NoImage, PullPolicy};
use crate::machine::Machine;
use crate::manifest::Manifests;
use crate::probing;
use crate::publisher::{Flush, Publisher, SharedFacts};
use crate::services::Services;
use crate::sysctls::AllowedSysctls;
use crate::traffic::{Traffic, TrafficReporter, TrafficRequest};
use crate::translate::container::{ConfigError, Lookups, RunFacts, container_spec};
use crate::translate::non_root::may_run_as;
use crate::translate::resize::amounts;
use crate::translate::sandbox::{ports_not_mapped, sandbox_spec};
use crate::translate::{find_container, find_ephemeral, unmet};
use crate::volumes::{self, Changes, Prepared, VolumeError, Watches};

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
    /// Who steers the traffic of pods.
    pub traffic: Arc<dyn Traffic>,
}

impl<R: Runtime> Tools<R> {
    /// What volumes are made with.
    fn volumes(&self) -> volumes::Means {
        volumes::Means { client: self.client.clone(), clock: self.clock.clone(), files: self.files.clone() }
    }
}

/// Executes the effects of one pod.
pub struct EffectExecutor<R: Runtime> {
    context: Arc<PodContext<R>>,
    publisher: Publisher,
    event_recorder: EventRecorder,
    /// What goes on for as long as the pod has hands.
    keepers: JoinSet<()>,
    /// What is being done for the worker.
    tasks: JoinSet<()>,
    pulls: BTreeMap<ContainerName, AbortHandle>,
    /// Starts under way. None of them outlives its sandbox.
    starts: JoinSet<()>,
    /// Hooks that are ours to time or to send; those inside the container belong to the runtime.
    own_hooks: BTreeMap<(Instance, HookKind), AbortHandle>,
    probes: BTreeMap<Instance, probing::Running>,
    /// Keeps volumes up to date once a container runs that may read them.
    refreshing: Option<AbortHandle>,
}

/// What the tasks of one pod share.
struct PodContext<R: Runtime> {
    tools: Arc<Tools<R>>,
    uid: PodUid,
    facts: SharedFacts,
    inbox: mpsc::Sender<Input>,
    /// Where each volume is, once made. Held while they are being made, so that they are made once.
    volumes: Mutex<Option<BTreeMap<String, Prepared>>>,
    /// They were made; images are of no use before.
    has_volumes: watch::Sender<bool>,
    /// What environments referred to when a container was last started.
    lookups: Mutex<Option<Lookups>>,
    /// What happened to the volumes' sources since they were made; taken by whoever keeps them fresh.
    changes: std::sync::Mutex<Option<Changes>>,
    /// The pod was asked to leave: nothing is started any more, however far its preparation is.
    leaving: watch::Sender<bool>,
    /// Told when other resources were granted, or a run was started that may not have the newest.
    granted: Arc<Notify>,
    /// Runs whose start was asked for and not answered, each with its end if that was seen already.
    starting: std::sync::Mutex<BTreeMap<Instance, Option<Input>>>,
    event_queue: EventQueue,
}

impl<R: Runtime> EffectExecutor<R> {
    /// An executor for the pod of `facts`; results go to `inbox`.
    pub fn new(tools: Arc<Tools<R>>, facts: SharedFacts, inbox: mpsc::Sender<Input>) -> Self {
        let uid = PodUid(lock(&facts).pod.metadata.uid.clone().unwrap_or_default());
        let (publisher, publishing) = Publisher::start(
            tools.client.clone(),
            tools.node_name.clone(),
            facts.clone(),
            inbox.clone(),
            tools.clock.clone(),
        );
        let mut keepers = JoinSet::new();
        keepers.spawn(publishing);
        let (event_recorder, event_queue, pending) = EventRecorder::new();
        let context = Arc::new(PodContext {
            tools,
            uid,
            facts,
            inbox,
            volumes: Mutex::new(None),
            has_volumes: watch::Sender::new(false),
            lookups: Mutex::new(None),
            changes: std::sync::Mutex::default(),
            leaving: watch::Sender::new(false),
            granted: Arc::default(),
            starting: std::sync::Mutex::default(),
            event_queue,
        });
        let (resizing, flush) = (context.clone(), publisher.flush());
        keepers.spawn(async move { supervision::keep("resources", || resizing.keep_resources(flush.clone())).await });
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
            probes: BTreeMap::new(),
            refreshing: None,
        }
    }

    /// Starts one effect.
    pub fn perform(&mut self, effect: Effect, worker: &PodWorker) {
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
                lock(&context.starting).entry(instance.clone()).or_default();
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
                self.tasks.spawn(async move {
                    // Or one that is still being prepared would find the next sandbox in the place of its own.
                    starts.shutdown().await;
                    let held = std::mem::take(&mut *lock(&context.starting)).into_values().flatten();
                    for end in held {
                        context.tell(end).await;
                    }
                    context.remove_sandbox().await;
                });
            }
            Effect::PublishStatus => self.publisher.publish(worker.status()),
            Effect::DeleteObject => {
                if worker.has_a_story() && !flaws::has(Flaw::DeletesWithoutStatus) {
                    self.publisher.publish(worker.status());
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
        let reporter = TrafficReporter::new(self.context.inbox.clone());
        self.tasks.spawn(self.context.tools.traffic.perform(self.context.pod(), request, reporter));
    }

    /// Records the events of a step, once `unwritten` is on disk.
    pub fn record_events(&self, effects: &[Effect], unwritten: Option<Appended>) {
        let events = effects
            .iter()
            .filter_map(|effect| if let Effect::Emit(event) = effect { Some(event.clone()) } else { None });
        self.event_recorder.tell(events.collect(), unwritten);
    }

    /// The input itself, unless it tells of the end of a run whose start is not told of yet: the start takes another way, and
    /// may be overtaken. Then it comes again right after the start.
    pub fn in_order(&self, input: Input) -> Option<Input> {
        if let Input::Exited { instance, .. } = &input
            && let Some(held) = lock(&self.context.starting).get_mut(instance)
        {
            *held = Some(input).filter(|_| !flaws::has(Flaw::DropsHeldExit));
            return None;
        }
        Some(input)
    }

    /// Keeps probes and volumes in step with what was seen: they begin with a run and end with it.
    pub fn attend(&mut self, input: &Input, worker: &PodWorker) {
        if let Input::Started { instance, .. } = input {
            self.probe(instance, false);
            self.keep_volumes_fresh();
        } else if let Input::Exited { instance, .. } = input {
            let mut facts = lock(&self.context.facts);
            facts.has.remove(instance);
            // No other run of it is waited for that will never come.
            if worker.has_ended(&instance.name) {
                facts.resize.restarting.remove(&instance.name.0);
            }
            drop(facts);
            self.context.granted.notify_one();
            self.probes.remove(instance);
        } else if let Input::AgentRestarted { report } = input {
            // Whoever made the sandbox had made the volumes; the next start makes sure of them.
            if worker.status().ready_to_start_containers.holds {
                self.context.has_volumes.send_replace(true);
            }
            for container in &report.containers {
                if matches!(container.seen, lifecycle::SeenContainer::Running { .. }) {
                    let name = &container.instance.name;
                    let came_up = worker.status().containers.iter().any(|it| it.name == *name && it.started);
                    self.probe(&container.instance, came_up);
                    self.keep_volumes_fresh();
                }
            }
        }
        let is_leaving = worker.is_terminating();
        if is_leaving {
            self.context.leaving.send_replace(true);
        }
        // Whoever is being stopped, alone or with its pod, need not prove that it lives.
        for (instance, running) in &mut self.probes {
            if is_leaving || worker.is_stopping(instance) {
                running.keep_only_readiness();
            }
        }
    }

    /// A way to wait until others can see what was published.
    pub fn flush(&self) -> Flush {
        self.publisher.flush()
    }

    /// What time it is.
    pub fn clock(&self) -> Clock {
        self.context.tools.clock.clone()
    }

    /// What to tell when other resources were granted to the pod.
    pub fn granted(&self) -> Arc<Notify> {
        self.context.granted.clone()
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

    fn probe(&mut self, instance: &Instance, came_up: bool) {
        let facts = lock(&self.context.facts);
        let Some(container) = find_container(&facts.pod, &instance.name.0) else { return };
        let target = probing::Target {
            runtime: self.context.tools.runtime.clone(),
            pod: self.context.uid.clone(),
            id: container_id(instance),
            pod_ip: facts.pod_ip.clone().unwrap_or_else(|| facts.host_ip.clone()),
        };
        let context = Arc::downgrade(&self.context);
        let tell = move |event| {
            if let Some(context) = context.upgrade() {
                context.say(event);
            }
        };
        if let Some(running) = probing::start(&container, (instance, came_up), target, self.context.inbox.clone(), tell)
        {
            self.probes.insert(instance.clone(), running);
        }
    }

    fn keep_volumes_fresh(&mut self) {
        if self.refreshing.is_none() {
            let context = &self.context;
            let (means, facts, run) = (context.tools.volumes(), context.facts.clone(), context.run_facts());
            let dir = context.tools.manifests.volumes(&context.uid.0).memory;
            let made = lock(&context.changes).take();
            // Those of an earlier agent may have changed since it went.
            let stale = made.is_none();
            let changes = made.unwrap_or_else(|| context.tools.watches.changes(&context.pod()));
            self.refreshing = Some(self.tasks.spawn(volumes::keep_fresh(means, facts, run, dir, changes, stale)));
        }
    }

    fn run_hook(&mut self, instance: Instance, kind: HookKind) {
        let context = self.context.clone();
        let handler = context.handler(&instance, kind);
        let key = (instance.clone(), kind);
        match handler.as_ref().map(hook_of) {
            Some(Hook::Exec | Hook::ExecSleep(_)) => {
                let command = handler.and_then(|h| h.exec?.command).unwrap_or_default();
                self.tasks.spawn(async move { context.exec_hook(instance, kind, command).await });
            }
            Some(Hook::Sleep(length)) => {
                let task = self.tasks.spawn(async move {
                    tokio::time::sleep(length).await;
                    context.hook_finished(instance, kind, HookOutcome::Succeeded).await;
                });
                self.own_hooks.insert(key, task);
            }
            Some(Hook::HttpGet) => {
                let task = self.tasks.spawn(async move { context.http_hook(instance, kind, handler).await });
                self.own_hooks.insert(key, task);
            }
            None => {
                let outcome = HookOutcome::Failed { message: "the pod no longer names this hook".to_owned() };
                self.tasks.spawn(async move { context.hook_finished(instance, kind, outcome).await });
            }
        }
    }

    fn cancel_hook(&mut self, instance: Instance, kind: HookKind) {
        let context = self.context.clone();
        let own = self.own_hooks.remove(&(instance.clone(), kind));
        self.tasks.spawn(async move {
            if let Some(task) = own {
                task.abort();
                return context.hook_finished(instance, kind, HookOutcome::Cancelled).await;
            }
            let id = container_id(&instance);
            let asked = match context.tools.runtime.durable_hooks() {
                Some(_) if flaws::has(Flaw::LeavesHookRunning) => false,
                Some(hooks) => caught(hooks.cancel_hook(&context.uid, &id, hook_name(kind))).await.is_ok(),
                None => false,
            };
            if !asked {
                // Nobody is left to run it, so it does not run.
                context.hook_finished(instance, kind, HookOutcome::Cancelled).await;
            }
        });
    }
}

impl<R: Runtime> PodContext<R> {
    /// A driver that is gone needs no answer.
    async fn tell(&self, input: Input) {
        let _ = self.inbox.send(input).await;
    }

    fn pod(&self) -> Pod {
        lock(&self.facts).pod.clone()
    }

    fn run_facts(&self) -> RunFacts {
        RunFacts {
            pod_ip: lock(&self.facts).pod_ip.clone(),
            host_ip: self.tools.host_ip.clone(),
            node_name: self.tools.node_name.clone(),
            memory_bytes: self.tools.machine.memory_bytes(),
            cpu_millis: self.tools.machine.cpus * 1000,
        }
    }

    fn emit(&self, container: Option<&ContainerName>, kind: EventKind, reason: &str, message: String) {
        let event = Event { container: container.cloned(), kind, reason: reason.to_owned(), message };
        self.say(event);
    }

    async fn pull(&self, container: ContainerName, edition: u32) {
        // A pod that waits for a volume has use for no image yet. Nobody is late who ends all that at once.
        let _ = self.has_volumes.subscribe().wait_for(|made| *made).await;
        let obtained = supervision::catch(PART, self.obtain(&container)).await;
        let input = match obtained.unwrap_or_else(|panic| Err(("ErrImagePull", panic.to_string()))) {
            Ok(Image { stop_signal, .. }) => {
                let stop_signal = stop_signal.filter(|_| !flaws::has(Flaw::ForgetsImageSignal));
                Input::ImageReady { container, edition, stop_signal: stop_signal.map(Signal) }
            }
            Err((reason, message)) => Input::ImageFailed { container, edition, reason: reason.to_owned(), message },
        };
        self.tell(input).await;
    }

    /// Makes a container's image present as its policy says, and remembers which one it is.
    async fn obtain(&self, container: &ContainerName) -> Result<Image, NoImage> {
        let pod = self.pod();
        let Some(wanted) = find_container(&pod, &container.0) else {
            return Err(("CreateContainerError", format!("the pod has no container {container}")));
        };
        let name = wanted.image.clone().unwrap_or_default();
        let policy = PullPolicy::of(wanted.image_pull_policy.as_deref());
        let tell = |kind, reason: &str, message| self.emit(Some(container), kind, reason, message);
        let image = images::obtain(&*self.tools.runtime, &self.tools.client, &pod, &name, policy, &tell).await?;
        self.tools.images_given.notify_one();
        let mut facts = lock(&self.facts);
        // Another one may be wanted by now; that is somebody else's to find.
        if find_container(&facts.pod, &container.0).is_some_and(|now| now.image == wanted.image) {
            facts.know_image(&container.0, &image);
        }
        Ok(image)
    }

    /// A pull on the way to a start ends at once when the pod is asked to leave.
    async fn obtain_unless_leaving(&self, container: &ContainerName) -> Result<Image, NoImage> {
        let mut leaving = self.leaving.subscribe();
        tokio::select! {
            obtained = self.obtain(container) => obtained,
            // The sender is ours: it cannot be gone.
            _ = leaving.wait_for(|leaving| *leaving) => {
                Err(("CreateContainerError", "the pod is leaving".to_owned()))
            }
        }
    }

    /// Waits until the services are known, which a pod that is asked to leave does not.
    async fn services_unless_leaving(&self, pod: &Pod) -> Result<BTreeMap<String, String>, NotStarted> {
        let mut leaving = self.leaving.subscribe();
        tokio::select! {
            variables = self.tools.services.variables(pod) => Ok(variables),
            _ = leaving.wait_for(|leaving| *leaving) => {
                Err(NotStarted::Refused("CreateContainerError", "the pod is leaving".to_owned()))
            }
        }
    }

    /// Makes volumes and sandbox side by side: neither needs the other, and nothing is started without both.
    async fn create_sandbox(&self) {
        let pod = self.pod();
        let granted = lock(&self.facts).as_granted(&pod);
        let spec = SandboxSpec {
            pids_max: self.tools.pod_pids_max,
            ..sandbox_spec(&granted, &self.tools.machine.resolv_conf)
        };
        let run_facts = self.run_facts();
        let making =
            async { tokio::join!(self.tools.runtime.create_sandbox(&spec), self.make_volumes(&pod, &run_facts)) };
        let (sandbox, volumes) = match supervision::catch(PART, making).await {
            Ok(made) => made,
            Err(panic) => return self.tell(Input::SandboxFailed { message: panic.to_string() }).await,
        };
        if let Err(error) = volumes {
            return self.tell(Input::VolumeFailed { message: error_chain(&error) }).await;
        }
        match sandbox {
            Ok(sandbox) => {
                for message in ports_not_mapped(&pod).into_iter().chain(unmet::of_pod(&pod)) {
                    self.emit(None, EventKind::Warning, "SettingNotApplied", message);
                }
                let ip = sandbox.ip().map_or_else(|| self.tools.host_ip.clone(), |ip| ip.to_string());
                {
                    let mut facts = lock(&self.facts);
                    facts.pod_ip = Some(ip);
                    facts.whole = Some(spec.resources);
                }
                self.tell(Input::SandboxReady).await;
            }
            Err(error) => self.tell(Input::SandboxFailed { message: error_chain(&error) }).await,
        }
    }

    async fn start(&self, instance: Instance) {
        let asked = instance.clone();
        let started = supervision::catch(PART, self.try_start(&instance)).await;
        let broken = |panic: Panic| Err(NotStarted::Refused("CreateContainerError", panic.to_string()));
        let input = match started.unwrap_or_else(broken) {
            Ok(wall) => Input::Started { instance, wall },
            Err(NotStarted::Refused(reason, message)) => {
                lock(&self.facts).know_refusal(&instance, self.tools.clock.wall_now());
                Input::StartFailed { instance, reason: reason.to_owned(), message }
            }
            Err(NotStarted::NoSandbox) => Input::SandboxLost { instance },
        };
        self.tell(input).await;
        let held = lock(&self.starting).remove(&asked).flatten();
        // It may not have the newest resources, and was left alone until here.
        self.granted.notify_one();
        if let Some(end) = held {
            self.tell(end).await;
        }
    }

    async fn try_start(&self, instance: &Instance) -> Result<Wall, NotStarted> {
        let pod = self.pod();
        let mut container = find_container(&pod, &instance.name.0)
            .ok_or_else(|| ("CreateContainerError", format!("the pod has no container {}", instance.name)))?
            .into_owned();
        lock(&self.facts).give_granted(&mut container);
        let facts = self.run_facts();
        let volumes = self.volumes(&pod, &facts).await?;
        let mut lookups = self.lookups(&pod).await?;
        lookups.services = self.services_unless_leaving(&pod).await?;
        let known = {
            let facts = lock(&self.facts);
            let user = facts.image_users.get(&instance.name.0).cloned();
            facts.image_ids.get(&instance.name.0).cloned().zip(user)
        };
        let image = match known {
            // The first run has the image that was made present for it.
            Some(known) if instance.attempt == 0 => known,
            // The policy speaks again for every further run, and after a restart of the node the id is not known here.
            _ => self.obtain_unless_leaving(&instance.name).await.map(|image| (image.id, image.user))?,
        };
        let plan = |(image, user): (String, Option<String>)| {
            may_run_as(&pod, &container, user.as_deref())
                .map_err(|error: ConfigError| ("CreateContainerConfigError", error.to_string()))?;
            container_spec(&pod, &container, container_id(instance), image, &volumes, &lookups, &facts)
                .map_err(|error: ConfigError| ("CreateContainerConfigError", error.to_string()))
        };
        // What it is given has to fit into what its pod has. Where it does not, that is told as of any other limit.
        if let Err(error) = self.widen().await {
            warn!(uid = %self.uid.0, error, "a pod cannot be given more yet");
        }
        let mut started = self.start_unless_leaving(&plan(image)?).await?;
        if let Err(RuntimeError::ImageAbsent { .. }) = started {
            // Someone removed it since it was made present.
            let image = self.obtain_unless_leaving(&instance.name).await?;
            let spec = plan((image.id, image.user))?;
            started = self.start_unless_leaving(&spec).await?;
        }
        match started {
            Ok(Started { wall_ms, warnings }) => {
                {
                    let mut facts = lock(&self.facts);
                    facts.know_run(instance, container.image.as_deref().unwrap_or_default());
                    facts.know_resources(instance, container.resources.clone());
                    facts.has.insert(instance.clone(), amounts(container.resources.as_ref()));
                }
                for message in warnings.into_iter().chain(unmet::of_container(&pod, &container)) {
                    self.emit(Some(&instance.name), EventKind::Warning, "SettingNotApplied", message);
                }
                Ok(Wall(wall_ms))
            }
            Err(RuntimeError::NoContainer { .. }) => {
                let target = find_ephemeral(&pod, &instance.name.0).and_then(|own| own.target_container_name.clone());
                let message = format!("unable to find target container {:?}", target.unwrap_or_default());
                Err(NotStarted::Refused("CreateContainerConfigError", message))
            }
            // The shim died with all it held: what becomes of the pod is the rules' to say.
            Err(RuntimeError::NoSandbox { .. }) => Err(NotStarted::NoSandbox),
            Err(error @ RuntimeError::Start { .. }) => Err(NotStarted::Refused("StartError", error_chain(&error))),
            Err(error) => Err(NotStarted::Refused("CreateContainerError", error_chain(&error))),
        }
    }

    /// The last look before anything is made.
    async fn start_unless_leaving(
        &self,
        spec: &runtime_api::ContainerSpec,
    ) -> Result<Result<Started, RuntimeError>, NotStarted> {
        if *self.leaving.borrow() {
            return Err(NotStarted::Refused("CreateContainerError", "the pod is leaving".to_owned()));
        }
        Ok(self.tools.runtime.start_container(&self.uid, spec).await)
    }

    /// What environments refer to; while nobody can be asked, as it was for an earlier start.
    async fn lookups(&self, pod: &Pod) -> Result<Lookups, (&'static str, String)> {
        let mut known = self.lookups.lock().await;
        match volumes::lookups(&self.tools.client, pod).await {
            Ok(found) => Ok(known.insert(found).clone()),
            Err(kube::Error::Api(status)) => Err(("CreateContainerConfigError", status.to_string())),
            Err(error) => known.clone().ok_or_else(|| ("CreateContainerConfigError", error.to_string())),
        }
    }

    async fn volumes(&self, pod: &Pod, facts: &RunFacts) -> Result<BTreeMap<String, Prepared>, (&'static str, String)> {
        self.make_volumes(pod, facts).await.map_err(|error| {
            let message = error_chain(&error);
            self.emit(None, EventKind::Warning, "FailedMount", message.clone());
            ("CreateContainerConfigError", message)
        })
    }

    /// The volumes, made unless they are.
    async fn make_volumes(&self, pod: &Pod, facts: &RunFacts) -> Result<BTreeMap<String, Prepared>, VolumeError> {
        let mut made = self.volumes.lock().await;
        if let Some(volumes) = &*made {
            return Ok(volumes.clone());
        }
        let changes = self.tools.watches.changes(pod);
        let dirs = self.tools.manifests.volumes(&self.uid.0);
        let volumes = volumes::prepare(&self.tools.volumes(), pod, facts, &dirs).await?;
        *lock(&self.changes) = Some(changes);
        self.has_volumes.send_replace(true);
        Ok(made.insert(volumes).clone())
    }

    async fn signal(&self, instance: Instance, signal: Signal) {
        let delivery = loop {
            match caught(self.tools.runtime.stop(&self.uid, &container_id(&instance), signal.0)).await {
                Ok(runtime_api::Delivery::Delivered) => break Delivery::Delivered,
                Ok(runtime_api::Delivery::DeliveredBefore { boot_ms }) => {
                    break Delivery::DeliveredBefore { at: Moment::from_millis(boot_ms) };
                }
                Ok(runtime_api::Delivery::AlreadyGone) => break Delivery::AlreadyGone,
                Err(RuntimeError::NoSandbox { .. } | RuntimeError::NoContainer { .. }) => break Delivery::AlreadyGone,
                // Nobody knows whether it arrived. Asking again is safe, because the runtime sends it once; KILL at the
                // deadline ends the container, and with it this loop.
                Err(error) => warn!(error = error_chain(&error), %instance, "a signal could not be sent; trying again"),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        };
        self.tell(Input::SignalAnswered { instance, signal, delivery }).await;
    }

    async fn kill(&self, instance: Instance) {
        match caught(self.tools.runtime.kill(&self.uid, &container_id(&instance))).await {
            Ok(()) => {}
            // There is nobody left to kill; whoever reaps tells how it ended.
            Err(RuntimeError::NoSandbox { .. } | RuntimeError::NoContainer { .. }) => {}
            Err(error) => {
                let message = error_chain(&error);
                warn!(error = message, %instance, "a container could not be killed");
                self.tell(Input::KillFailed { instance, message }).await;
            }
        }
    }

    async fn remove_sandbox(&self) {
        let input = match caught(self.tools.runtime.remove_sandbox(&self.uid)).await {
            Ok(()) => Input::SandboxRemoved,
            Err(error) => Input::SandboxRemovalFailed { message: error_chain(&error) },
        };
        self.tell(input).await;
    }

    fn handler(&self, instance: &Instance, kind: HookKind) -> Option<LifecycleHandler> {
        let pod = self.pod();
        let lifecycle = find_container(&pod, &instance.name.0)?.lifecycle.clone()?;
        match kind {
            HookKind::PreStop => lifecycle.pre_stop,
            HookKind::PostStart => lifecycle.post_start,
        }
    }

    async fn hook_finished(&self, instance: Instance, kind: HookKind, outcome: HookOutcome) {
        self.tell(Input::HookFinished { instance, kind, outcome }).await;
    }

    /// The runtime tells how it ended; only a hook that could not be started is answered here.
    async fn exec_hook(&self, instance: Instance, kind: HookKind, command: Vec<String>) {
        let id = container_id(&instance);
        let asked = match self.tools.runtime.durable_hooks() {
            Some(hooks) => {
                let asking = hooks.run_hook(&self.uid, &id, hook_name(kind), &command);
                caught(asking).await.map_err(|error| error_chain(&error))
            }
            None => Err("this container runtime cannot run hooks".to_owned()),
        };
        if let Err(message) = asked {
            self.hook_finished(instance, kind, HookOutcome::Failed { message }).await;
        }
    }

    async fn http_hook(&self, instance: Instance, kind: HookKind, handler: Option<LifecycleHandler>) {
        let pod = self.pod();
        let container = find_container(&pod, &instance.name.0);
        let pod_ip = lock(&self.facts).pod_ip.clone().unwrap_or_else(|| self.tools.host_ip.clone());
        let outcome = match handler.and_then(|h| h.http_get).zip(container) {
            None => HookOutcome::Failed { message: "invalid handler".to_owned() },
            Some((get, container)) => match asked(probing::hook_request(&get, &container, &pod_ip)).await {
                Ok(remark) => {
                    if let Some(message) = remark {
                        self.emit(None, EventKind::Warning, "LifecycleHTTPFallback", message);
                    }
                    HookOutcome::Succeeded
                }
                Err(message) => HookOutcome::Failed { message },
            },
        };
        self.hook_finished(instance, kind, outcome).await;
    }
}

/// Why a container was not started.
enum NotStarted {
    /// For a reason, in the API's word, and a sentence.
    Refused(&'static str, String),
    /// There is no sandbox to start it in.
    NoSandbox,
}

impl From<(&'static str, String)> for NotStarted {
    fn from((reason, message): (&'static str, String)) -> Self {
        Self::Refused(reason, message)
    }
}

/// Facts are replaced whole, so a panic elsewhere cannot leave them half-written.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
