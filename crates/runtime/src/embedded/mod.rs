//! The runtime that needs nothing but a kernel: our own shims, images and pod network behind [`Runtime`].
//!
//! State is on disk before anything is done about it, and shims outlive this process, so an agent that dies at any
//! moment finds everything again by [`Embedded::open`] on the same directory. Read next: `reattach`, `remove`.

mod base;
mod deletion_worker;
mod inside;
mod link;
mod pod;
mod program;
mod reattach;
mod remove;
mod run;
mod sandbox;
mod usage;
mod uses;

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cgroup::{BEST_EFFORT, Group, Hierarchies, OwnMount};
use crate::container::seccomp::Filters;
use crate::contract::{
    ConnectionCounts, ConnectionFilter, Connections, ContainerId, ContainerSpec, ContainerStats, ContainerStored,
    ContainerUsage, Containers, Delivery, DurableHooks, ExecSession, ExecSpec, FirstProcess, Image, Images, PodReport,
    PodUid, Resources, Runtime, RuntimeError, RuntimeEvent, Sandbox, SandboxSpec, Sandboxes, Signals, Started,
    Statistics, Streams,
};
use crate::image::{ImageStore, Keyring, Origin, Patience, Progress, Prune, Pulled, Puller, Removed};
use crate::network::{Network, PodCidr};
use crate::shim::records::{PodDir, is_plain, make_dir};
use crate::sys::descriptors::allow_most;
use deletion_worker::DeletionWorker;
use file_tree::spread_below;
use pod::{Pod, system};
use program::ShimProgram;
pub use uses::image_uses;

type Result<T> = std::result::Result<T, RuntimeError>;

/// The bottom layer of every container, below the runtime's directory.
const BASE: &str = "base/layer";
/// The directories of pods, below the runtime's directory.
const PODS: &str = "pods";
/// The logs of pods whose sandboxes are gone, below the runtime's directory.
const LOGS: &str = "logs";
/// Where cgroup2 is mounted below the runtime's directory, on a machine that has it nowhere else.
const CGROUP2: &str = "cgroup2";
/// A termination message is at most this long; of a longer one the end counts.
const LAST_WORDS_BYTES_MAX: u64 = 4096;
/// How long the kernel may take to let go of an empty control group.
const CGROUP_PATIENCE: Duration = Duration::from_millis(500);

/// Where and as whom the runtime works.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// All it keeps is below this directory: `base`, `cgroup2`, `images`, `network`, `pods`, `seccomp`. `registries.yaml` there is read.
    pub data_dir: PathBuf,
    /// Made with the directory, part of every name that is global to the machine.
    pub instance: String,
    /// The addresses pods get.
    pub pod_cidr: PodCidr,
    /// The addresses services get, which lead nowhere: pods are told so at once.
    pub service_cidr: PodCidr,
    /// The program that serves as shim when called `PROGRAM shim DIR`; normally `/proc/self/exe`.
    pub shim_program: PathBuf,
}

/// The embedded runtime. Dropping it leaves every pod running.
#[derive(Debug)]
pub struct Embedded {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    data_dir: PathBuf,
    group: Group,
    own_cgroup2: OwnMount,
    program: ShimProgram,
    images: ImageStore,
    puller: Puller,
    filters: Filters,
    network: Network,
    pods: Mutex<BTreeMap<PodUid, Arc<Pod>>>,
    events: mpsc::UnboundedSender<RuntimeEvent>,
    receiver: Mutex<Option<mpsc::UnboundedReceiver<RuntimeEvent>>>,
    deletion_worker: DeletionWorker,
    /// What may go on after the answer was given; `tear_down` waits for it.
    background: Mutex<JoinSet<()>>,
}

impl Embedded {
    /// Opens the runtime in its directory, joins every shim that is alive and buries the pods of those that are not.
    /// Ends that happened meanwhile are among the first events.
    pub async fn open(config: EmbeddedConfig) -> Result<Self> {
        let doing = || system("cannot open the runtime");
        if !is_plain(&config.instance) {
            return Err(doing()(format!("{:?} cannot be part of a name", config.instance).into()));
        }
        for directory in [PODS, LOGS] {
            let directory = config.data_dir.join(directory);
            make_dir(&directory)
                .map_err(|error| system(format!("cannot make {}", directory.display()))(error.into()))?;
            spread_below(&directory);
        }
        let base = config.data_dir.join(BASE);
        base::make(&base).map_err(|error| system(format!("cannot make {}", base.display()))(error.into()))?;
        let own_cgroup2 = OwnMount::new(config.data_dir.join(CGROUP2), &config.instance);
        let hierarchies = Hierarchies::detect(&own_cgroup2).map_err(|error| doing()(error.into()))?;
        let group = hierarchies.instance(&config.instance);
        group.make_for_pods().map_err(|error| system("cannot make a control group")(error.into()))?;
        if !group.can_be_killed().map_err(|error| doing()(error.into()))? {
            return Err(doing()("this kernel has no cgroup.kill; Linux 5.14 or later is needed".into()));
        }
        // Every pod costs this process two descriptors; the usual limit of 1024 is soon met.
        let descriptors = allow_most().map_err(|error| system("cannot raise the limit of open files")(error.into()))?;
        let program = ShimProgram::open(&config.shim_program, descriptors)
            .map_err(|error| system(format!("cannot use {} as shim", config.shim_program.display()))(error.into()))?;
        let images = ImageStore::open(&config.data_dir.join("images"), &config.shim_program)?;
        let network = match Network::open(&config.data_dir.join("network"), &config.instance, config.pod_cidr).await {
            Ok(network) => network,
            Err(error) => {
                // Its range may be another's. What was never open is not torn down, so nobody else would take these away.
                if group.remove_without_pods() {
                    let _ = own_cgroup2.remove();
                }
                return Err(system("cannot open the pod network")(error.into()));
            }
        };
        if let Err(error) = network.refuse_services(config.service_cidr).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                "this kernel cannot refuse addresses of services: what pods send there leaves the machine"
            );
        }
        if let Err(error) = network.reach_services(config.service_cidr).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "programs of this machine may not reach addresses of services");
        }
        let (events, receiver) = mpsc::unbounded_channel();
        let puller = Puller::new(images.clone(), registries_file(&config.data_dir), Patience::default());
        let inner = Arc::new(Inner {
            filters: Filters::new(config.data_dir.join("seccomp")),
            data_dir: config.data_dir,
            group,
            own_cgroup2,
            program,
            images,
            puller,
            network,
            pods: Mutex::default(),
            events,
            receiver: Mutex::new(Some(receiver)),
            deletion_worker: DeletionWorker::start().map_err(|error| system("cannot start a thread")(error.into()))?,
            background: Mutex::default(),
        });
        inner.reattach().await?;
        inner.in_background(sweep(inner.clone()));
        Ok(Self { inner })
    }

    /// The images of this runtime, to load more.
    pub fn image_store(&self) -> &ImageStore {
        &self.inner.images
    }

    /// The pod network of this runtime.
    pub fn network(&self) -> &Network {
        &self.inner.network
    }
}

impl Inner {
    fn pods(&self) -> std::sync::MutexGuard<'_, BTreeMap<PodUid, Arc<Pod>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, uid: &PodUid) -> Result<Arc<Pod>> {
        self.pods().get(uid).cloned().ok_or_else(|| RuntimeError::NoSandbox { pod: uid.0.clone() })
    }

    /// The pod of this UID, known from now on, with this group if it was not known before.
    fn find_or_add(&self, uid: &PodUid, group: impl FnOnce() -> Group) -> Result<Arc<Pod>> {
        if !is_plain(&uid.0) || uid.0 == BEST_EFFORT {
            return Err(system(format!("pod UID {:?} cannot be used", uid.0))("it cannot be part of a name".into()));
        }
        let make = || {
            let path = self.data_dir.join(PODS).join(&uid.0);
            Arc::new(Pod::new(uid.clone(), path, group()))
        };
        Ok(self.pods().entry(uid.clone()).or_insert_with(make).clone())
    }

    fn dir_of(&self, uid: &PodUid) -> PodDir {
        PodDir { path: self.data_dir.join(PODS).join(&uid.0) }
    }

    /// Lets work go on behind an answer.
    fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are done are let go of, so that the set stays as small as the work at hand.
        while background.try_join_next().is_some() {}
        background.spawn(work);
    }
}

/// Runs blocking work off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::result::Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

/// Where the settings for registries are, below a data directory.
pub fn registries_file(data_dir: &std::path::Path) -> PathBuf {
    data_dir.join("registries.yaml")
}

/// Removes what pulls that were killed have left in the store.
async fn sweep(inner: Arc<Inner>) {
    let swept = inner.prune(Prune::Leftovers).await;
    swept.map(drop).unwrap_or_else(|error| tracing::warn!(%error, "leftovers among the images stay for now"));
}

impl Inner {
    async fn prune(&self, which: Prune) -> Result<Removed> {
        let (images, data_dir) = (self.images.clone(), self.data_dir.clone());
        let pruned = blocking(move || Ok(images.prune(which, &|| image_uses(&data_dir))));
        Ok(pruned.await.map_err(system("cannot remove images"))??)
    }
}

impl Sandboxes for Embedded {
    fn events(&self) -> Option<mpsc::UnboundedReceiver<RuntimeEvent>> {
        self.inner.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn inventory(&self) -> Result<Vec<PodReport>> {
        let pods: Vec<_> = self.inner.pods().values().cloned().collect();
        let reports = blocking(move || Ok(pods.iter().filter_map(|pod| pod.report()).collect()));
        reports.await.map_err(system("cannot read the pods' records"))
    }

    async fn create_sandbox(&self, spec: &SandboxSpec) -> Result<Sandbox> {
        self.inner.create_sandbox(spec).await
    }

    async fn set_pod_resources(&self, pod: &PodUid, resources: &Resources) -> Result<()> {
        self.inner.set_pod_resources(pod, resources).await
    }

    async fn remove_sandbox(&self, pod: &PodUid) -> Result<()> {
        self.inner.remove_sandbox(pod).await
    }

    async fn forget_logs(&self, pod: &PodUid) -> Result<()> {
        self.inner.forget_logs(pod)
    }

    async fn tidied(&self) {
        self.inner.deletion_worker.hurry().await;
    }

    async fn tear_down(&self) -> Result<()> {
        self.inner.tear_down().await
    }
}

impl Containers for Embedded {
    async fn start_container(&self, pod: &PodUid, spec: &ContainerSpec) -> Result<Started> {
        self.inner.start_container(pod, spec).await
    }

    async fn set_resources(&self, pod: &PodUid, id: &ContainerId, resources: &Resources) -> Result<Vec<String>> {
        self.inner.set_resources(pod, id, resources).await
    }

    async fn stop(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> Result<Delivery> {
        self.inner.signal(pod, id, signal).await
    }

    async fn kill(&self, pod: &PodUid, id: &ContainerId) -> Result<()> {
        self.inner.kill(pod, id).await
    }

    fn log_path(&self, pod: &PodUid, id: &ContainerId) -> PathBuf {
        let kept = PodDir { path: self.inner.kept_logs(pod) }.log(id);
        if kept.exists() { kept } else { self.inner.dir_of(pod).log(id) }
    }

    async fn termination_message(&self, pod: &PodUid, id: &ContainerId) -> Option<String> {
        let file = self.inner.dir_of(pod).container(id).termination_message();
        let read = blocking(move || {
            let mut file = std::fs::File::open(file)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES_MAX)))?;
            let mut bytes = Vec::new();
            file.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        read.await.ok().filter(|message| !message.is_empty())
    }
}

impl Images for Embedded {
    async fn ensure_image(&self, name: &str) -> Result<Image> {
        let (images, name) = (self.inner.images.clone(), name.to_owned());
        let found = blocking(move || Ok(images.find(&name))).await.map_err(system("cannot look for the image"))?;
        Ok(found?.image)
    }

    async fn find_image(&self, name: &str) -> Result<(Image, Origin)> {
        let (images, name) = (self.inner.images.clone(), name.to_owned());
        let found = blocking(move || Ok(images.find_with_origin(&name)));
        let (stored, origin) = found.await.map_err(system("cannot look for the image"))??;
        Ok((stored.image, origin))
    }

    async fn pull_image(&self, name: &str, keyring: &Keyring) -> Result<Pulled> {
        let progress = tokio::sync::watch::Sender::new(Progress::default());
        Ok(self.inner.puller.pull(&name.parse()?, keyring, &progress).await?)
    }

    async fn prune_images(&self, which: Prune) -> Result<Removed> {
        self.inner.prune(which).await
    }

    async fn images(&self) -> Result<Vec<Image>> {
        let images = self.inner.images.clone();
        blocking(move || Ok(images.list())).await.map_err(system("cannot list images"))
    }
}

impl Streams for Embedded {
    async fn exec(&self, pod: &PodUid, id: &ContainerId, spec: &ExecSpec) -> Result<ExecSession> {
        self.inner.exec(pod, id, spec).await
    }

    async fn attach(&self, pod: &PodUid, id: &ContainerId, spec: &ExecSpec) -> Result<ExecSession> {
        self.inner.attach(pod, id, spec).await
    }

    async fn connect(&self, pod: &PodUid, port: u16) -> Result<OwnedFd> {
        self.inner.connect_to(pod, port).await
    }

    fn resize(&self, session: &ExecSession, columns: u16, rows: u16) -> Result<()> {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = [session.stdout.as_ref(), session.stdin.as_ref()];
        match ends.into_iter().flatten().find(|end| rustix::termios::isatty(end)) {
            Some(terminal) => rustix::termios::tcsetwinsize(terminal, size)
                .map_err(|errno| system("cannot set the terminal's size")(std::io::Error::from(errno).into())),
            None => Ok(()),
        }
    }
}

impl Statistics for Embedded {
    async fn stats(&self, pod: &PodUid) -> Result<Vec<ContainerStats>> {
        self.inner.stats(pod).await
    }

    async fn usage(&self, pod: &PodUid) -> Result<Vec<ContainerUsage>> {
        let Some(pod) = self.inner.pods().get(pod).cloned() else { return Ok(Vec::new()) };
        blocking(move || Ok(pod.usage())).await.map_err(system("cannot look at what a pod uses"))
    }

    async fn stored(&self, pod: &PodUid) -> Result<Vec<ContainerStored>> {
        let Some(pod) = self.inner.pods().get(pod).cloned() else { return Ok(Vec::new()) };
        blocking(move || Ok(pod.stored())).await.map_err(system("cannot look at what a pod stores"))
    }

    async fn first_processes(&self, pod: &PodUid) -> Result<Vec<FirstProcess>> {
        let Some(pod) = self.inner.pods().get(pod).cloned() else { return Ok(Vec::new()) };
        blocking(move || Ok(pod.first_processes())).await.map_err(system("cannot look at the processes of a pod"))
    }
}

impl Signals for Embedded {
    async fn signal(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> Result<Delivery> {
        self.inner.signal(pod, id, signal).await
    }
}

impl DurableHooks for Embedded {
    async fn run_hook(&self, pod: &PodUid, id: &ContainerId, hook: &str, command: &[String]) -> Result<()> {
        self.inner.run_hook(pod, id, hook, command).await
    }

    async fn cancel_hook(&self, pod: &PodUid, id: &ContainerId, hook: &str) -> Result<()> {
        self.inner.cancel_hook(pod, id, hook).await
    }
}

impl ConnectionCounts for Embedded {
    async fn connections(&self, pod: &PodUid, filter: &ConnectionFilter) -> Result<Connections> {
        self.inner.connections(pod, filter).await
    }

    async fn settled(&self, pod: &PodUid, every: Duration, within: Duration) -> Result<bool> {
        self.inner.settled(pod, every, within).await
    }
}

impl Runtime for Embedded {
    type Signals = Self;
    type DurableHooks = Self;
    type ConnectionCounts = Self;

    fn signals(&self) -> Option<&Self> {
        Some(self)
    }

    fn durable_hooks(&self) -> Option<&Self> {
        Some(self)
    }

    fn connection_counts(&self) -> Option<&Self> {
        Some(self)
    }
}
