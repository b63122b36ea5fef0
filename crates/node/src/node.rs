//! The node agent: its parts, started and stopped together.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use lifecycle::EventKind;
use runtime_api::Runtime;
use timeline::{Clock, JournalError};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::containers::NodeContainers;
use crate::effects::Tools;
use crate::events::Recorder;
use crate::files::Files;
use crate::heartbeat::{self, HealthBoard, ReportedFacts};
use crate::machine::Machine;
use crate::manifest::Manifests;
use crate::memory_volumes::MemoryVolumes;
use crate::node_resources::NodeResources;
use crate::pods::{Command, Directory, Mode, PodInputs, Pods, ShutdownGrace, ShutdownNews};
use crate::pressure::{Collector, EvictionConfig, ImageCollection, Monitor, StorageLimits};
use crate::services::Services;
use crate::statics::Folder;
use crate::sysctls::AllowedSysctls;
use crate::terminations::Terminations;
use crate::traffic::Traffic;
use crate::volumes::{LocalDirectories, Watches};

/// What a node needs to know of itself.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name in the API.
    pub name: String,
    /// Its address, as pods and the API server see it.
    pub address: IpAddr,
    /// Where it keeps its journal and what its pods need; nothing else lives there.
    pub data_dir: PathBuf,
    /// Where images are kept.
    pub images: PathBuf,
    /// Where directories of persistent volumes are made.
    pub volumes: PathBuf,
    /// When pods have to go because the node is short of something.
    pub eviction: EvictionConfig,
    /// When images have to go because their disk is filling up.
    pub images_kept: ImageCollection,
    /// How many pods the node takes on.
    pub pods_max: u32,
    /// How many processes a pod may have; `None` for as many as the machine.
    pub pod_pids_max: Option<u64>,
    /// Which kernel parameters pods may set beside the safe ones.
    pub allowed_sysctls: AllowedSysctls,
    /// Where pods find the cluster DNS; nowhere if there is none, and they get the machine's resolvers.
    pub cluster_dns: Vec<IpAddr>,
    /// Who steers the traffic of pods; [`NoTraffic`](crate::NoTraffic) if nobody does.
    pub traffic: Arc<dyn Traffic>,
    /// Where manifests of static pods are kept.
    pub static_pods: Option<PathBuf>,
    /// `v1.36.4+adieu.…`, as the API server reports it too.
    pub version: String,
    /// Where its own API listens at its address; `None` when the API server needs no network to reach it.
    pub api_port: Option<u16>,
    /// Whether it starts without its API server and joins when that answers. Otherwise not to be let in is an error.
    pub joins_later: bool,
    /// What time it is.
    pub clock: Clock,
    /// The machine it is on.
    pub machine: Machine,
    /// Where it keeps what must reach no disk.
    pub memory: MemoryVolumes,
    /// Who waits for its disk.
    pub files: Files,
    /// False when the node only ends what it already has (`adieu down` without a running instance).
    pub takes_on_pods: bool,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its folder.
    #[error("cannot use the node's folder {path}")]
    Folder { path: PathBuf, source: std::io::Error },
    /// Its memory.
    #[error("cannot open the node's journal")]
    Journal(#[source] JournalError),
    /// Its containers.
    #[error("cannot take stock of the containers on this machine")]
    Inventory(#[source] runtime_api::RuntimeError),
    /// The API.
    #[error("cannot register the node with the API server")]
    Register(#[source] kube::Error),
    /// It stopped looking after pods before they were at rest.
    #[error("the node stopped before every pod had left")]
    Stopped,
    /// The memory that volumes were in cannot be given back.
    #[error("cannot unmount the memory that volumes were in")]
    Memory(#[source] io::Error),
    /// The runtime's events were taken by someone else.
    #[error("the runtime's events are already taken")]
    EventsTaken,
}

/// A running node agent. Dropping it stops the agent and leaves every pod as it is.
pub struct Node<R: Runtime> {
    commands: mpsc::Sender<Command>,
    containers: Arc<NodeContainers<R>>,
    manifests: Manifests,
    pods: JoinHandle<Result<(), Arc<JournalError>>>,
    /// The watch, the heartbeat and the event recorder; ended with the node.
    helpers: JoinSet<()>,
    joined: watch::Receiver<bool>,
}

impl<R: Runtime> Node<R> {
    /// Recovers what the journal remembers, registers with the API and begins to look after pods.
    pub async fn start(config: NodeConfig, runtime: Arc<R>, client: kube::Client) -> Result<Self, NodeError> {
        let folder = |source| NodeError::Folder { path: config.data_dir.clone(), source };
        let (memory, files, clock) = (config.memory.clone(), config.files.clone(), config.clock.clone());
        let manifests = Manifests::open(&config.data_dir, memory, files.clone()).await.map_err(folder)?;
        let boot_id = config.machine.boot_id.clone();
        let journal = files.open_journal(&config.data_dir.join("journal"), &boot_id).await;
        let (journal, lives, writing) = journal.map_err(NodeError::Journal)?;
        let events = runtime.events().ok_or(NodeError::EventsTaken)?;
        let mut helpers = JoinSet::new();
        if let Some(writing) = writing {
            helpers.spawn(writing);
        }
        let (recorder, recording) = Recorder::start(client.clone(), config.name.clone(), clock.clone());
        helpers.spawn(recording);
        let local = open_volumes(&config, &recorder).await;
        let facts = ReportedFacts::new(runtime.clone(), local.as_ref().map(|_| config.volumes.clone()));
        let (health, showing) = HealthBoard::start(client.clone(), config.clone(), facts.clone(), recorder.clone());
        let (services, following) =
            Services::start(client.clone(), config.data_dir.join("services.json"), files.clone()).await;
        let (terminations, storing) = Terminations::start(client.clone(), journal.clone());
        helpers.spawn(storing);
        let counted = terminations.metrics();
        let tools = Arc::new(Tools {
            runtime: runtime.clone(),
            client: client.clone(),
            recorder,
            health,
            services,
            images_given: Notify::new(),
            waiters: Mutex::default(),
            watches: Watches::new(client.clone()),
            manifests: manifests.clone(),
            clock: clock.clone(),
            machine: config.machine.clone(),
            files,
            node_name: config.name.clone(),
            host_ip: config.address.to_string(),
            pod_pids_max: config.pod_pids_max,
            allowed_sysctls: config.allowed_sysctls.clone(),
            cluster_dns: config.cluster_dns.clone(),
            terminations,
            traffic: config.traffic.clone(),
            local,
        });
        let directory = Directory::default();
        let mode = if config.takes_on_pods { Mode::Open } else { Mode::Closed };
        let capacity = NodeResources::of_node(&heartbeat::allocatable(&config));
        let mut pods = Pods::new(tools.clone(), journal, directory.clone(), mode, capacity);
        pods.recover(lives, &boot_id).await.map_err(NodeError::Inventory)?;
        let (file_told, files) = mpsc::channel(1);
        if let Some(dir) = config.static_pods.clone().filter(|_| config.takes_on_pods) {
            let wrong = |source| NodeError::Folder { path: dir.clone(), source };
            let before = pods.known_statics();
            let recorder = tools.recorder.clone();
            let mut folder =
                Folder::open(dir.clone(), config.name.clone(), recorder, clock.clone(), before).map_err(wrong)?;
            pods.want(folder.wanted()).await;
            helpers.spawn(folder.follow(file_told));
        }
        helpers.spawn(following);
        let (joined_told, joined) = watch::channel(false);
        let joining = if config.joins_later {
            heartbeat::join(client.clone(), config.clone(), facts, tools.recorder.clone()).boxed()
        } else {
            let object =
                heartbeat::register(&client, &config, &facts, &tools.recorder).await.map_err(NodeError::Register)?;
            std::future::ready(object).boxed()
        };
        let keeping = client.clone();
        let known = config.clone();
        helpers.spawn(async move {
            let object = joining.await;
            // Whoever wanted to know may have left.
            let _ = joined_told.send(true);
            tokio::join!(showing, heartbeat::keep_alive(keeping, known, object));
        });
        let (update_sender, updates) = mpsc::channel(256);
        let selector = format!("spec.nodeName={}", config.name);
        helpers.spawn(client::follow(Api::<Pod>::all(client.clone()), Some(selector), update_sender));
        let (evictions_told, evictions) = mpsc::channel(1);
        let disks = (config.data_dir.clone(), config.images.clone());
        if config.takes_on_pods {
            helpers.spawn(Collector::new(tools.clone(), config.images_kept, config.images.clone()).run());
        }
        helpers.spawn(crate::volumes::keep_reclaimed(tools.clone(), directory.clone()));
        let limits = (config.eviction.clone(), config.images_kept);
        helpers.spawn(StorageLimits::new(tools.clone(), directory.clone(), evictions_told.clone()).run());
        let monitor = Monitor::new(tools, directory.clone(), limits, disks, evictions_told);
        helpers.spawn(monitor.run());
        let (commands, command_told) = mpsc::channel(1);
        let pods = tokio::spawn(pods.run(PodInputs { updates, files, events, evictions, commands: command_told }));
        let containers = Arc::new(NodeContainers::new(runtime, directory, config.name, clock, counted));
        Ok(Self { commands, containers, manifests, pods, helpers, joined })
    }

    /// Resolves when the API server knows this node.
    pub fn joined(&self) -> impl Future<Output = ()> + Send + use<R> {
        let mut joined = self.joined.clone();
        async move { drop(joined.wait_for(|joined| *joined).await) }
    }

    /// What logs and exec need of this node.
    pub fn containers(&self) -> Arc<NodeContainers<R>> {
        self.containers.clone()
    }

    /// Ends every pod and waits until nothing of them runs and their last status is stored, or their time is over.
    /// `progress` is told the names of the pods still leaving, each time that changes.
    pub async fn shut_down_pods(
        &self,
        shutdown_grace: ShutdownGrace,
        mut progress: impl FnMut(&[String]),
    ) -> Result<(), NodeError> {
        let (news, mut told) = mpsc::unbounded_channel();
        self.commands.send(Command::ShutDown { shutdown_grace, news }).await.map_err(|_| NodeError::Stopped)?;
        while let Some(news) = told.recv().await {
            match news {
                ShutdownNews::Leaving(names) => progress(&names),
                ShutdownNews::Done => return Ok(()),
            }
        }
        Err(NodeError::Stopped)
    }

    /// Calls off a shutdown, over or not. Pods whose turn did not come stay; resolves when those who were asked have left
    /// and the node takes on pods again.
    pub async fn call_off_shutdown(&self) -> Result<(), NodeError> {
        let (resumed, told) = oneshot::channel();
        self.commands.send(Command::CallOff { resumed }).await.map_err(|_| NodeError::Stopped)?;
        // Without a shutdown there is nobody to tell.
        let _ = told.await;
        Ok(())
    }

    /// Removes what it has on this machine besides its folder. To be called when every pod has left.
    pub fn tear_down(&self) -> Result<(), NodeError> {
        self.manifests.close().map_err(NodeError::Memory)
    }

    /// Resolves when the node can no longer do its work.
    pub async fn failed(&mut self) -> Arc<JournalError> {
        match (&mut self.pods).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => std::future::pending().await,
            // It goes on whatever breaks in it, and is aborted only by `stop`, which nobody waits beside.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops looking after pods and leaves them as they are.
    pub async fn stop(mut self) {
        drop(self.commands);
        self.pods.abort();
        // Aborted is what it should be; nothing else is left to hear.
        let _ = self.pods.await;
        self.helpers.shutdown().await;
    }
}

/// The directory of persistent volumes. Without it the node runs, and its pods wait for their volumes.
async fn open_volumes(config: &NodeConfig, recorder: &Recorder) -> Option<Arc<LocalDirectories>> {
    let (path, memory) = (config.volumes.clone(), config.data_dir.join("volumes-mark"));
    let fresh = format!("{} {}", config.name, config.clock.wall_now().0);
    let opening = move || LocalDirectories::open(&path, &memory, &fresh);
    match config.files.run("volumes.open", opening).await {
        Ok(opened) => Some(Arc::new(opened)),
        Err(error) => {
            tracing::error!(%error, "persistent volumes are unavailable: none is made or removed");
            recorder.record_own(EventKind::Warning, "VolumesUnavailable", error.to_string());
            None
        }
    }
}
