//! A container runtime whose containers are scripts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use runtime_api::image::{Image, Keyring, Origin, Prune, Pulled, Removed};
use runtime_api::{
    ConnectionCounts, ConnectionFilter, Connections, ContainerId, ContainerSpec, ContainerStats, ContainerStored,
    ContainerUsage, Containers, Delivery, DurableHooks, ExecSession, ExecSpec, Images, PodReport, PodUid, Resources,
    Result, Runtime, RuntimeError, RuntimeEvent, Sandbox, SandboxSpec, Sandboxes, Signals, Started, Statistics,
    Streams,
};
use tokio::sync::{mpsc, oneshot};

use crate::faults::Fault;
use crate::machine::{Life, Sent};

/// The runtime of one life; what it runs outlives it.
pub struct FakeRuntime {
    life: Life,
    events: Mutex<Option<mpsc::UnboundedReceiver<RuntimeEvent>>>,
}

impl FakeRuntime {
    /// A runtime that tells `events`.
    pub fn new(life: Life, events: mpsc::UnboundedReceiver<RuntimeEvent>) -> Self {
        Self { life, events: Mutex::new(Some(events)) }
    }

    /// A verb about a pod: a seam before it, and one before its answer is heard. It may go wrong at the first, where nothing is done,
    /// or at the second, where all is done and nobody hears of it.
    async fn verb<T>(&self, place: &str, who: &str, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let seam = self.life.seam(place, who).await;
        let fault = self.life.fault(&seam, who);
        match fault {
            Some(Fault::Refused(_)) => return Err(not_here("the runtime cannot do that now")),
            Some(Fault::Away(_)) => return Err(unanswered("the runtime is away")),
            Some(Fault::Lost(_) | Fault::Late(..) | Fault::Full(..)) | None => {}
        }
        let answer = work.await;
        self.life.seam(&format!("{place}.answered"), who).await;
        match fault {
            Some(Fault::Lost(_)) => return Err(unanswered("the answer is lost")),
            Some(Fault::Late(_, ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Some(Fault::Refused(_) | Fault::Away(_) | Fault::Full(..)) | None => {}
        }
        answer
    }
}

fn no_sandbox(pod: &PodUid) -> RuntimeError {
    RuntimeError::NoSandbox { pod: pod.0.clone() }
}

fn unanswered(doing: &str) -> RuntimeError {
    RuntimeError::Unanswered { doing: doing.to_owned(), source: "nobody answered".into() }
}

fn not_here(doing: &str) -> RuntimeError {
    RuntimeError::System { doing: doing.to_owned(), source: "there is none of that here".into() }
}

/// `quit` asks for QUIT; `pull-300-x` is not here until it was pulled, which takes so many milliseconds.
fn image(name: &str) -> Image {
    Image {
        id: format!("sha256:{name}"),
        names: vec![format!("docker.io/library/{name}:latest")],
        size_bytes: 1,
        stop_signal: name.contains("quit").then_some(3),
        user: None,
        env: BTreeMap::new(),
    }
}

fn pull_ms(name: &str) -> Option<u64> {
    name.split_once("pull-")?.1.split('-').next()?.parse().ok()
}

impl Sandboxes for FakeRuntime {
    fn events(&self) -> Option<mpsc::UnboundedReceiver<RuntimeEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn inventory(&self) -> Result<Vec<PodReport>> {
        self.life.seam("runtime.inventory", self.life.nobody()).await;
        let reports = self.life.reports().await;
        self.life.seam("runtime.inventory.answered", self.life.nobody()).await;
        Ok(reports)
    }

    async fn create_sandbox(&self, spec: &SandboxSpec) -> Result<Sandbox> {
        let who = self.life.machine.label(&spec.uid.0, &spec.name);
        let work = async {
            self.life.make_sandbox(spec).await;
            Ok(Sandbox { ips: vec![[10, 86, 0, 2].into()] })
        };
        self.verb("runtime.create_sandbox", &who, work).await
    }

    async fn set_pod_resources(&self, _: &PodUid, _: &Resources) -> Result<()> {
        Ok(())
    }

    async fn remove_sandbox(&self, pod: &PodUid) -> Result<()> {
        let who = self.life.name(pod);
        let work = async {
            self.life.remove_sandbox(pod).await;
            Ok(())
        };
        self.verb("runtime.remove_sandbox", &who, work).await
    }

    async fn forget_logs(&self, _: &PodUid) -> Result<()> {
        Ok(())
    }

    async fn tidied(&self) {}

    async fn tear_down(&self) -> Result<()> {
        Ok(())
    }
}

impl Containers for FakeRuntime {
    async fn start_container(&self, pod: &PodUid, spec: &ContainerSpec) -> Result<Started> {
        let who = self.life.name(pod);
        let work = async {
            let refuses = self.life.begins_start(pod, &spec.id).await.ok_or_else(|| no_sandbox(pod))?;
            if refuses {
                return Err(RuntimeError::Start { message: "no such program".to_owned() });
            }
            let plan = self.life.machine.plan(&who, &spec.id.name);
            if let Some(ms) = plan.map(|plan| plan.start_ms).filter(|ms| *ms > 0) {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            let started = self.life.start(pod, &spec.id, &spec.image_id, &spec.resources).await;
            started.map(|wall_ms| Started { wall_ms, warnings: Vec::new() }).ok_or_else(|| no_sandbox(pod))
        };
        self.verb("runtime.start", &who, work).await
    }

    async fn set_resources(&self, _: &PodUid, _: &ContainerId, _: &Resources) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn stop(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> Result<Delivery> {
        let who = self.life.name(pod);
        let work = async {
            Ok(match self.life.signal(pod, id, signal).await {
                Sent::Now => Delivery::Delivered,
                Sent::Before(boot_ms) => Delivery::DeliveredBefore { boot_ms },
                Sent::Gone => Delivery::AlreadyGone,
            })
        };
        self.verb("runtime.stop", &who, work).await
    }

    async fn kill(&self, pod: &PodUid, id: &ContainerId) -> Result<()> {
        let who = self.life.name(pod);
        let work = async {
            match self.life.kill(pod, id).await {
                true => Ok(()),
                false => Err(RuntimeError::NoContainer { container: id.global(pod) }),
            }
        };
        self.verb("runtime.kill", &who, work).await
    }

    fn log_path(&self, _: &PodUid, _: &ContainerId) -> PathBuf {
        self.life.machine.disk.join("log")
    }

    async fn termination_message(&self, _: &PodUid, _: &ContainerId) -> Option<String> {
        None
    }
}

impl Images for FakeRuntime {
    async fn ensure_image(&self, name: &str) -> Result<Image> {
        Ok(image(name.strip_prefix("sha256:").unwrap_or(name)))
    }

    async fn find_image(&self, name: &str) -> Result<(Image, Origin)> {
        self.life.seam("runtime.find_image", self.life.nobody()).await;
        if pull_ms(name).is_some() && !self.life.has_image(name).await {
            return Err(RuntimeError::ImageAbsent { name: name.to_owned() });
        }
        Ok((image(name), Origin::Archive))
    }

    async fn pull_image(&self, name: &str, _: &Keyring) -> Result<Pulled> {
        self.life.seam("runtime.pull_image", self.life.nobody()).await;
        tokio::time::sleep(Duration::from_millis(pull_ms(name).unwrap_or(0))).await;
        self.life.keep_image(name).await;
        Ok(Pulled { image: image(name), reference: name.to_owned(), is_new: true })
    }

    async fn prune_images(&self, _: Prune) -> Result<Removed> {
        Ok(Removed::default())
    }

    async fn images(&self) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }
}

impl Streams for FakeRuntime {
    /// Probes are programs called `ready` and `live`.
    async fn exec(&self, pod: &PodUid, id: &ContainerId, spec: &ExecSpec) -> Result<ExecSession> {
        let who = self.life.name(pod);
        self.life.seam("runtime.exec", &who).await;
        let age = self.life.runs_since(pod, id).await;
        let age = age.ok_or_else(|| RuntimeError::NoContainer { container: id.global(pod) })?;
        let plan = self.life.machine.plan(&who, &id.name);
        let well = match spec.command.first().map(String::as_str) {
            Some("ready") => plan.and_then(|plan| plan.ready_ms).is_none_or(|from| age >= from),
            // A run that was started again lives.
            Some("live") => id.attempt > 0 || plan.and_then(|plan| plan.live_ms).is_none_or(|until| age < until),
            _ => true,
        };
        let (told, exit) = oneshot::channel();
        let _ = told.send(u8::from(!well));
        Ok(ExecSession { stdin: None, stdout: None, stderr: None, exit, tether: None })
    }

    async fn attach(&self, _: &PodUid, _: &ContainerId, _: &ExecSpec) -> Result<ExecSession> {
        Err(not_here("cannot attach"))
    }

    async fn connect(&self, _: &PodUid, _: u16) -> Result<std::os::fd::OwnedFd> {
        Err(not_here("cannot connect"))
    }

    fn resize(&self, _: &ExecSession, _: u16, _: u16) -> Result<()> {
        Ok(())
    }
}

impl Statistics for FakeRuntime {
    async fn stats(&self, _: &PodUid) -> Result<Vec<ContainerStats>> {
        Ok(Vec::new())
    }

    async fn usage(&self, _: &PodUid) -> Result<Vec<ContainerUsage>> {
        Ok(Vec::new())
    }

    async fn stored(&self, _: &PodUid) -> Result<Vec<ContainerStored>> {
        Ok(Vec::new())
    }
}

impl Signals for FakeRuntime {
    async fn signal(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> Result<Delivery> {
        self.stop(pod, id, signal).await
    }
}

impl DurableHooks for FakeRuntime {
    async fn run_hook(&self, pod: &PodUid, id: &ContainerId, hook: &str, _: &[String]) -> Result<()> {
        let who = self.life.name(pod);
        let work = async {
            match self.life.run_hook(pod, id, hook).await {
                true => Ok(()),
                false => Err(RuntimeError::NoContainer { container: id.global(pod) }),
            }
        };
        self.verb("runtime.run_hook", &who, work).await
    }

    async fn cancel_hook(&self, pod: &PodUid, id: &ContainerId, hook: &str) -> Result<()> {
        let who = self.life.name(pod);
        let work = async {
            self.life.cancel_hook(pod, id, hook).await;
            Ok(())
        };
        self.verb("runtime.cancel_hook", &who, work).await
    }
}

impl ConnectionCounts for FakeRuntime {
    async fn connections(&self, _: &PodUid, _: &ConnectionFilter) -> Result<Connections> {
        Ok(Connections::default())
    }

    async fn settled(&self, _: &PodUid, _: Duration, _: Duration) -> Result<bool> {
        Ok(true)
    }
}

impl Runtime for FakeRuntime {
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
