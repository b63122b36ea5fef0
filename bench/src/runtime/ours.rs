//! Our own runtime, asked as the node asks it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt as _;
use runtime::verbs::*;
use runtime::{ContainerId, ContainerSpec, Embedded, EmbeddedConfig, ExecSpec, PodUid, RuntimeEvent, SandboxSpec};
use tokio::sync::{Mutex, mpsc};

use super::RuntimeArgs;
use super::peers::millis;

const IMAGE: &str = "busybox";

/// The runtime, and what it tells.
pub(crate) struct Ours {
    runtime: Embedded,
    events: Mutex<mpsc::UnboundedReceiver<RuntimeEvent>>,
    image_id: String,
    instance: String,
}

/// A pod that runs.
pub(crate) struct Running {
    uid: PodUid,
    id: ContainerId,
    /// From the call until its container ran, milliseconds.
    pub(crate) took: f64,
}

impl Ours {
    pub(crate) async fn open(args: &RuntimeArgs, dir: &Path) -> Result<Self> {
        let instance = format!("bench{}", std::process::id());
        let config = EmbeddedConfig {
            data_dir: dir.to_owned(),
            instance: instance.clone(),
            pod_cidr: "10.98.0.0/16".parse()?,
            service_cidr: "10.87.0.0/16".parse()?,
            shim_program: args.adieu.canonicalize().context("no program; run scripts/build first")?,
        };
        let runtime = Embedded::open(config).await?;
        let events = Mutex::new(runtime.events().context("the events are ours")?);
        runtime.image_store().load(fs::File::open(&args.image).context("no image; run scripts/setup first")?)?;
        let image_id = runtime.ensure_image(IMAGE).await?.id;
        Ok(Self { runtime, events, image_id, instance })
    }

    /// A pod of one container, with its network, as far as running.
    pub(crate) async fn start(&self, name: &str) -> Result<Running> {
        let sandbox = SandboxSpec {
            uid: PodUid(name.to_owned()),
            name: name.to_owned(),
            namespace: "default".to_owned(),
            hostname: name.to_owned(),
            ..SandboxSpec::default()
        };
        let id = ContainerId { name: "app".to_owned(), attempt: 0 };
        let script = "trap 'exit 0' TERM; sleep 1000000 & wait";
        let spec = ContainerSpec {
            id: id.clone(),
            image_id: self.image_id.clone(),
            command: ["sh", "-c", script].map(String::from).to_vec(),
            termination_message_path: Some("/dev/termination-log".to_owned()),
            ..ContainerSpec::default()
        };
        let begun = Instant::now();
        self.runtime.create_sandbox(&sandbox).await?;
        self.runtime.start_container(&sandbox.uid, &spec).await?;
        Ok(Running { uid: sandbox.uid, id, took: millis(begun) })
    }

    /// Until a program runs in the container.
    pub(crate) async fn exec(&self, pod: &Running) -> Result<f64> {
        let command = vec!["true".to_owned()];
        let spec = ExecSpec { command, tty: false, stdin: false, stdout: true, stderr: true, tethered: false };
        let begun = Instant::now();
        let session = self.runtime.exec(&pod.uid, &pod.id, &spec).await?;
        let took = millis(begun);
        session.exit.await?;
        Ok(took)
    }

    /// Until its exit is on disk and told.
    pub(crate) async fn term(&self, pod: &Running) -> Result<f64> {
        let begun = Instant::now();
        self.runtime.signal(&pod.uid, &pod.id, 15).await?;
        self.exit_of(&pod.uid).await?;
        Ok(millis(begun))
    }

    async fn exit_of(&self, uid: &PodUid) -> Result<()> {
        let mut events = self.events.lock().await;
        loop {
            if let RuntimeEvent::Exited { pod, .. } = events.recv().await.context("the runtime is gone")?
                && &pod == uid
            {
                return Ok(());
            }
        }
    }

    pub(crate) async fn remove(&self, pod: &Running) -> Result<()> {
        self.runtime.remove_sandbox(&pod.uid).await?;
        Ok(self.runtime.forget_logs(&pod.uid).await?)
    }

    pub(crate) async fn kill_and_remove(&self, pod: &Running) -> Result<f64> {
        let begun = Instant::now();
        self.runtime.kill(&pod.uid, &pod.id).await?;
        self.exit_of(&pod.uid).await?;
        self.runtime.remove_sandbox(&pod.uid).await?;
        let took = millis(begun);
        self.runtime.forget_logs(&pod.uid).await?;
        Ok(took)
    }

    /// Many pods, and how many of them came per second.
    pub(crate) async fn start_many(&self, count: usize, width: usize) -> Result<(Vec<Running>, f64)> {
        let begun = Instant::now();
        let names = (0..count).map(|number| format!("crowd-{number}"));
        let starts = futures::stream::iter(names).map(|name| async move { self.start(&name).await });
        let pods: Vec<Result<Running>> = starts.buffer_unordered(width).collect().await;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        Ok((pods.into_iter().collect::<Result<_>>()?, rate))
    }

    /// Ends them all, and how many went per second.
    pub(crate) async fn remove_many(&self, pods: Vec<Running>, width: usize) -> Result<f64> {
        let (begun, count) = (Instant::now(), pods.len());
        let ends = futures::stream::iter(&pods).map(|pod| self.remove(pod)).buffer_unordered(width);
        ends.collect::<Vec<_>>().await.into_iter().collect::<Result<()>>()?;
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }

    /// The mean PSS and private memory of the shims there are, in KiB.
    pub(crate) fn shim_memory(&self) -> Result<(f64, f64)> {
        let (mut pss, mut private, mut count) = (0, 0, 0);
        for group in fs::read_dir(self.group()?)?.flatten() {
            let Ok(pids) = fs::read_to_string(group.path().join("shim/cgroup.procs")) else { continue };
            for pid in pids.lines() {
                let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
                pss += kib(&rollup, "Pss:");
                private += kib(&rollup, "Private_Clean:") + kib(&rollup, "Private_Dirty:");
                count += 1;
            }
        }
        let mean = |sum: u64| sum as f64 / f64::from(count);
        Ok((mean(pss), mean(private)))
    }

    /// The part of one core that all pods and this process use while nothing happens.
    pub(crate) async fn idle_share(&self, span: Duration) -> Result<f64> {
        // What the crowd left to do is done first.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (before, begun) = (self.cpu_nanos()?, Instant::now());
        tokio::time::sleep(span).await;
        Ok((self.cpu_nanos()? - before) as f64 / begun.elapsed().as_nanos() as f64)
    }

    fn cpu_nanos(&self) -> Result<u64> {
        let pods = fs::read_to_string(self.group()?.join("cpu.stat"))?;
        let pods = pods.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<u64>().ok());
        // By the process, not by its threads: those that end would take their time along.
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = u64::try_from(own.tv_sec)? * 1_000_000_000 + u64::try_from(own.tv_nsec)?;
        Ok(pods.context("the kernel counts")? * 1000 + own)
    }

    fn group(&self) -> Result<PathBuf> {
        let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let groups = places.iter().map(|place| Path::new(place).join(format!("adieu-{}", self.instance)));
        groups.into_iter().find(|group| group.join("cgroup.procs").exists()).context("no control group")
    }

    /// Leaves nothing behind.
    pub(crate) async fn close(self) -> Result<()> {
        for pod in self.runtime.inventory().await? {
            self.runtime.remove_sandbox(&pod.spec.uid).await?;
        }
        Ok(self.runtime.tear_down().await?)
    }
}

fn kib(rollup: &str, field: &str) -> u64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
