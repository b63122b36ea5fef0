//! One running `adieu up`, on its own folder, port, ranges and name.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tower::Layer as _;

use crate::{adieu, workspace};

/// How long an instance may take to say that it is ready before a test gives up on it.
const READY: Duration = Duration::from_secs(90);

/// How often to choose another port or range when somebody was faster.
const ATTEMPTS: usize = 5;

/// What `adieu up` says then.
const PORT_TAKEN: &str = "cannot listen on";
const RANGE_TAKEN: &str = "is not free";

/// Ports below are for others.
const FIRST_PORT: u16 = 20_000;

/// Asked twice, [`free_address`] gives two answers.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Instances of one test process get different ranges; processes begin at one that their id gives.
static NEXT: AtomicU8 = AtomicU8::new(0);

/// Ranges are 10.RANGES_FROM.0.0/16 and those behind it.
const RANGES_FROM: u32 = 100;
const RANGES: u32 = 140;

/// The locks of the ranges that this process has.
static RANGE_LOCKS: Mutex<Vec<fs::File>> = Mutex::new(Vec::new());

/// The shipped binary, running.
pub struct Instance {
    dir: TempDir,
    /// What is run: the build under test, or a copy of it.
    program: PathBuf,
    api: String,
    pod_cidr: String,
    node_name: String,
    /// What `adieu up` is told besides.
    options: Vec<String>,
    /// The system bus it is to use, if not the machine's.
    system_bus: Option<String>,
    /// Where `adieu up` logs to, if not to its file.
    log_to: Option<OwnedFd>,
    /// How many descriptors it may have, if not as many as the test.
    descriptors: Option<u64>,
    child: Option<Child>,
    /// Unmounted when nothing of the instance is left.
    disk: Option<Disk>,
}

impl Instance {
    /// Starts a new instance with the busybox and nginx images loaded.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same, with these options for `adieu up`.
    pub async fn start_with(options: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?;
        Self::start_in(dir, options, None, None, None).await
    }

    /// The same, with a standard error of the test's own.
    pub async fn start_logging_to(log: OwnedFd, options: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?;
        Self::start_in(dir, options, None, None, Some(log)).await
    }

    /// The same, on a system bus of its own.
    pub async fn start_on_bus(address: &str, options: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?;
        Self::start_in(dir, options, None, Some(address.to_owned()), None).await
    }

    /// The same, on a file system of its own in memory, which is no larger than this.
    pub async fn start_on_small_disk(mebibytes: u64, options: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?;
        let disk = Disk::mount(dir.path(), mebibytes, 0o700)?;
        Self::start_in(dir, options, Some(disk), None, None).await
    }

    /// The same, on a file system that was just made and mounted: its root is open to all.
    pub async fn start_on_open_disk(mebibytes: u64) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?;
        let disk = Disk::mount(dir.path(), mebibytes, 0o755)?;
        Self::start_in(dir, &[], Some(disk), None, None).await
    }

    /// The same, run from a copy of the program, as a package installs one: [`Instance::replace_program`] upgrades it, once.
    pub async fn start_from_a_copy() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?;
        // Beside what the instance owns, on the same file system.
        let program = dir.path().with_extension("program");
        fs::copy(adieu(), &program)?;
        // The next one, so that an upgrade takes no time.
        fs::copy(adieu(), program.with_extension("next"))?;
        Self::start_program_in(program, dir, &[], None, None, None).await
    }

    /// Puts another file in the place of the program, as a package manager does: the one that runs has no name any more.
    pub fn replace_program(&self) -> Result<()> {
        Ok(fs::rename(self.program.with_extension("next"), &self.program)?)
    }

    /// What is run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    async fn start_in(
        dir: TempDir,
        options: &[&str],
        disk: Option<Disk>,
        system_bus: Option<String>,
        log_to: Option<OwnedFd>,
    ) -> Result<Self> {
        Self::start_program_in(adieu(), dir, options, disk, system_bus, log_to).await
    }

    async fn start_program_in(
        program: PathBuf,
        dir: TempDir,
        options: &[&str],
        disk: Option<Disk>,
        system_bus: Option<String>,
        log_to: Option<OwnedFd>,
    ) -> Result<Self> {
        let mut instance = Self {
            program,
            api: free_address()?,
            pod_cidr: next_range(),
            node_name: format!("node-{}", dir.path().file_name().context("a name")?.to_string_lossy().to_lowercase()),
            dir,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            system_bus,
            log_to,
            descriptors: None,
            child: None,
            disk,
        };
        for image in ["busybox", "nginx"] {
            instance.load_image(image).await?;
        }
        instance.up().await?;
        Ok(instance)
    }

    /// Loads one of the images that `scripts/setup` has made.
    pub async fn load_image(&self, image: &str) -> Result<()> {
        let archive = workspace().join(format!("target/images/{image}.tar"));
        ensure!(archive.exists(), "{} is missing; run scripts/setup test", archive.display());
        let output = self.adieu(&["image", "load"]).arg(&archive).output().await?;
        ensure!(output.status.success(), "image load: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Starts the process (again), and waits for its ready line. If somebody else has its port or, before its first start, its
    /// range of addresses, it gets another one.
    pub async fn up(&mut self) -> Result<()> {
        for _ in 1..ATTEMPTS {
            let said_before = self.said().len();
            match self.try_up().await {
                Err(_) if self.said().get(said_before..).is_some_and(|said| said.contains(PORT_TAKEN)) => {
                    self.api = free_address()?;
                }
                Err(_) if said_before == 0 && self.said().contains(RANGE_TAKEN) => {
                    fs::remove_file(self.log())?;
                    self.pod_cidr = next_range();
                }
                outcome => return outcome,
            }
        }
        self.try_up().await
    }

    /// An option with its value, unless the test gives it another.
    fn unless_said(&self, option: &'static str, value: &'static str) -> Vec<&'static str> {
        let said = self.options.iter().any(|it| it.split('=').next() == Some(option));
        if said { Vec::new() } else { vec![option, value] }
    }

    async fn try_up(&mut self) -> Result<()> {
        let log = match &self.log_to {
            Some(log) => log.try_clone()?,
            None => fs::OpenOptions::new().create(true).append(true).open(self.log())?.into(),
        };
        let mut child = self
            .limited(&["up", "-v"])
            .args(["--api", &self.api, "--pod-cidr", &self.pod_cidr, "--node-name", &self.node_name])
            // What else is on the machine's disks is no concern of a test that does not say so.
            .args(self.unless_said("--eviction-hard", ""))
            .args(self.unless_said("--image-gc-high-threshold", "100"))
            .args(&self.options)
            .envs(self.system_bus.iter().map(|address| ("DBUS_SYSTEM_BUS_ADDRESS", address)))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}; build it with scripts/build", self.program.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if line.contains("ready") {
                    return Ok(());
                }
            }
            bail!("adieu up ended: {}", self.said())
        };
        tokio::time::timeout(READY, ready).await.context("adieu up is not ready in time")??;
        self.child = Some(child);
        Ok(())
    }

    /// Ends the process as a crash would.
    pub async fn kill_9(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it runs")?;
        child.start_kill()?;
        child.wait().await?;
        Ok(())
    }

    /// Asks the process to stop and leave the pods running.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal(rustix::process::Signal::TERM)?;
        self.ended().await
    }

    /// Tells the process that the machine goes down.
    pub fn power_fails(&self) -> Result<()> {
        self.signal(rustix::process::Signal::POWER)
    }

    /// Does something while the process stands still: it sees all of it at once.
    pub fn unseen<T>(&self, something: impl FnOnce() -> Result<T>) -> Result<T> {
        self.signal(rustix::process::Signal::STOP)?;
        let done = something();
        self.signal(rustix::process::Signal::CONT)?;
        done
    }

    /// Waits until the process has ended by itself, which it must do well.
    pub async fn ended(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it runs")?;
        let status = tokio::time::timeout(crate::pods::SOON, child.wait()).await.context("adieu up does not end")??;
        ensure!(status.success(), "adieu up ended with {status}");
        Ok(())
    }

    /// Waits until the process has been killed by somebody else.
    pub async fn killed(&mut self) -> Result<()> {
        let status = self.child.as_mut().context("it runs")?.wait().await?;
        self.child = None;
        ensure!(status.signal() == Some(rustix::process::Signal::KILL.as_raw()), "adieu up ended with {status}");
        Ok(())
    }

    /// The thread of the process that has this name.
    pub fn thread(&self, name: &str) -> Result<u32> {
        let id = self.child.as_ref().and_then(Child::id).context("it runs")?;
        for thread in fs::read_dir(format!("/proc/{id}/task"))? {
            let path = thread?.path();
            if fs::read_to_string(path.join("comm"))?.trim() == name {
                return Ok(path.file_name().context("a name")?.to_string_lossy().parse()?);
            }
        }
        bail!("no thread is called {name}")
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let id = self.child.as_ref().and_then(Child::id).context("it runs")?;
        let pid = rustix::process::Pid::from_raw(i32::try_from(id)?).context("a pid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Runs `adieu down`; answers what it printed. Its complaints go to the log.
    pub async fn down(&mut self) -> Result<String> {
        let output = self.adieu(&["down"]).output().await?;
        fs::OpenOptions::new().create(true).append(true).open(self.log())?.write_all(&output.stderr)?;
        ensure!(output.status.success(), "adieu down: {}", String::from_utf8_lossy(&output.stderr));
        if let Some(mut child) = self.child.take() {
            let status = child.wait().await?;
            ensure!(status.success(), "adieu up ended with {status} after adieu down");
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Ends the shim of the only pod as a crash would.
    pub fn kill_shim(&self) -> Result<()> {
        let is_shim = |words: &[u8]| {
            let words = String::from_utf8_lossy(words);
            words.starts_with("adieu\0shim\0") && words.contains(&*self.dir.path().to_string_lossy())
        };
        for process in std::fs::read_dir("/proc")? {
            let process = process?;
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            // Others come and go meanwhile.
            let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw).filter(|_| is_shim(&words)) {
                return Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?);
            }
        }
        anyhow::bail!("no shim runs")
    }

    /// The file in which the node writes down what it does.
    pub fn journal(&self) -> PathBuf {
        self.dir.path().join("node/journal")
    }

    /// The shipped binary, told about this instance's folder.
    pub fn adieu(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--data-dir").arg(self.dir.path()).kill_on_drop(true);
        command
    }

    /// The same, with the descriptors it may have.
    fn limited(&self, words: &[&str]) -> Command {
        let Some(descriptors) = self.descriptors else { return self.adieu(words) };
        let mut command = Command::new("sh");
        command.args(["-c", r#"ulimit -n "$0" && exec "$@""#, &descriptors.to_string()]).arg(&self.program);
        command.args(words).arg("--data-dir").arg(self.dir.path()).kill_on_drop(true);
        command
    }

    /// Starts it again, after it was stopped, with no more descriptors than these.
    pub async fn up_with_descriptors(&mut self, descriptors: u64) -> Result<()> {
        self.descriptors = Some(descriptors);
        self.up().await
    }

    /// A client that speaks as the administrator, by the kubeconfig that people use.
    pub async fn client(&self) -> Result<kube::Client> {
        client(&self.kubeconfig()).await
    }

    /// The folder that holds everything it owns.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The random id that is part of every global name it uses.
    pub fn id(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.path().join("instance"))?.trim().to_owned())
    }

    /// Its process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// Where its API server listens.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// What its node is called.
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// The range its pods get addresses from.
    pub fn pod_cidr(&self) -> &str {
        &self.pod_cidr
    }

    /// Where it logs to.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("up.log")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Instance {
    /// A failed test leaves nothing behind either: the process is killed, then `adieu down` ends its pods.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of adieu up ---\n{}", self.said());
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.start_kill();
            while matches!(child.try_wait(), Ok(None)) {
                std::thread::yield_now();
            }
        }
        // Whatever failed may need a moment to let go of the folder; a test that comes later must not find its pods.
        for _ in 0..ATTEMPTS {
            let down = std::process::Command::new(&self.program)
                .args(["down", "--data-dir"])
                .arg(self.dir.path())
                .stdout(Stdio::null())
                .status();
            if down.is_ok_and(|status| status.success()) {
                drop(self.disk.take());
                if self.program != adieu() {
                    let _ = fs::remove_file(&self.program);
                    let _ = fs::remove_file(self.program.with_extension("next"));
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        eprintln!("adieu down fails: {} leaves pods behind", self.dir.path().display());
    }
}

/// A file system in memory.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(path: &Path, mebibytes: u64, mode: u32) -> Result<Self> {
        let options = std::ffi::CString::new(format!("size={mebibytes}m,nr_inodes=20000,mode={mode:o}"))?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("adieu-e2e", path, "tmpfs", flags, options.as_c_str())?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A client by a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    // Other crates may have chosen a provider already; any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// The same over HTTP/2: as many requests as one likes are under way at once, all on one connection.
pub async fn crowded_client(kubeconfig: &Path) -> Result<kube::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let secure = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_only()
        .enable_http2()
        .build();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build::<_, kube::client::Body>(secure);
    Ok(kube::Client::new(config.base_uri_layer().layer(client), "default"))
}

/// A range of pod addresses that nobody on this machine has, kept for this process until it ends: tests run side by side, each in a
/// process of its own. `adieu up` says when somebody else was faster.
pub(crate) fn next_range() -> String {
    let range = |number: u32| format!("10.{number}.0.0/16");
    let mut last = RANGES_FROM;
    for _ in 0..RANGES {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        last = RANGES_FROM + (std::process::id() % 20 * 7 + step) % RANGES;
        let name = std::env::temp_dir().join(format!("adieu-e2e-range-{last}.lock"));
        let Ok(lock) = fs::OpenOptions::new().create(true).truncate(false).write(true).open(name) else { continue };
        // Its first address is an instance's own: one that was left behind by a test that was killed still has it.
        let is_in_use = TcpListener::bind((format!("10.{last}.0.1"), 0)).is_ok();
        if !is_in_use && lock.try_lock().is_ok() {
            RANGE_LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            break;
        }
    }
    range(last)
}

/// An address that nobody listens on now, and that no outgoing connection takes while an instance is away.
pub(crate) fn free_address() -> Result<String> {
    let outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let first: u16 = outgoing.split_whitespace().next().context("two numbers")?.parse()?;
    let below = usize::from(first.saturating_sub(FIRST_PORT).max(1));
    for _ in 0..below {
        let step = usize::from(NEXT_PORT.fetch_add(1, Ordering::Relaxed));
        let start = usize::try_from(std::process::id())? * 37;
        let port = FIRST_PORT + u16::try_from((start + step) % below)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(format!("127.0.0.1:{port}"));
        }
    }
    bail!("every port from {FIRST_PORT} to {first} is taken")
}
