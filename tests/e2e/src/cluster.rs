//! One `adieu server` and the `adieu node`s that join it, each on its own folder, port, range and name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::instance::{free_address, next_range};
use crate::{adieu, workspace};

/// How long a part may take to say that it is ready before a test gives up on it.
const READY: Duration = Duration::from_secs(90);
/// How often `adieu down` is tried in the end of a test that failed.
const ATTEMPTS: usize = 5;

/// A running process of ours, with its log in its folder.
struct Program {
    dir: TempDir,
    child: Option<Child>,
    out: Option<BufReader<ChildStdout>>,
}

impl Program {
    fn new() -> Result<Self> {
        Ok(Self { dir: tempfile::Builder::new().prefix("adieu-e2e-").tempdir()?, child: None, out: None })
    }

    fn adieu(&self, words: &[&str]) -> Command {
        let mut command = Command::new(adieu());
        command.args(words).arg("--data-dir").arg(self.dir.path()).kill_on_drop(true);
        command
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("test.log")
    }

    fn spawn(&mut self, mut command: Command) -> Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
        self.out = child.stdout.take().map(BufReader::new);
        self.child = Some(child);
        Ok(())
    }

    /// Waits for the line that says so.
    async fn ready(&mut self) -> Result<()> {
        let log = self.log();
        let out = self.out.as_mut().context("it runs")?;
        let reading = async {
            let mut line = String::new();
            while !line.contains("ready") {
                line.clear();
                if out.read_line(&mut line).await? == 0 {
                    bail!("it ended: {}", fs::read_to_string(&log)?);
                }
            }
            Ok(())
        };
        tokio::time::timeout(READY, reading).await.context("it is not ready in time")?
    }

    async fn kill_9(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it runs")?;
        child.start_kill()?;
        child.wait().await?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.dir.path().display(), fs::read_to_string(self.log()).unwrap_or_default());
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.start_kill();
            while matches!(child.try_wait(), Ok(None)) {
                std::thread::yield_now();
            }
        }
    }
}

/// `adieu server`.
pub struct ServerProgram {
    program: Program,
    api: String,
    words: Vec<String>,
}

impl ServerProgram {
    /// Starts one.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one that is told more.
    pub async fn start_with(words: &[&str]) -> Result<Self> {
        let words = words.iter().map(ToString::to_string).collect();
        let mut server = Self { program: Program::new()?, api: free_address()?, words };
        server.up().await?;
        Ok(server)
    }

    /// Starts it (again), where it was.
    pub async fn up(&mut self) -> Result<()> {
        let mut command = self.program.adieu(&["server", "-v"]);
        command.args(["--api", &self.api]).args(&self.words);
        self.program.spawn(command)?;
        self.program.ready().await
    }

    /// Ends it as a crash would.
    pub async fn kill_9(&mut self) -> Result<()> {
        self.program.kill_9().await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.program.dir.path().join("admin.kubeconfig")
    }

    /// Lets a node join: answers the kubeconfig that `adieu server add-node` made.
    pub async fn add_node(&self, name: &str) -> Result<PathBuf> {
        let path = self.program.dir.path().join(format!("{name}.kubeconfig"));
        let output = self.program.adieu(&["server", "add-node", name]).arg("-o").arg(&path).output().await?;
        ensure!(output.status.success(), "add-node: {}", String::from_utf8_lossy(&output.stderr));
        ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o600, "a key is for its owner only");
        Ok(path)
    }
}

/// `adieu node`.
pub struct NodeProgram {
    program: Program,
    name: String,
    pod_cidr: String,
    /// What it is told besides.
    words: Vec<String>,
}

impl NodeProgram {
    /// Starts a node with the busybox image that joins `server`.
    pub async fn join(server: &ServerProgram, name: &str) -> Result<Self> {
        Self::join_with(server, name, &[]).await
    }

    /// Starts one that is told more.
    pub async fn join_with(server: &ServerProgram, name: &str, words: &[&str]) -> Result<Self> {
        let words = words.iter().map(ToString::to_string).collect();
        let mut node = Self { program: Program::new()?, name: name.to_owned(), pod_cidr: next_range(), words };
        let archive = workspace().join("target/images/busybox.tar");
        ensure!(archive.exists(), "{} is missing; run scripts/setup test", archive.display());
        let output = node.adieu(&["image", "load"]).arg(&archive).output().await?;
        ensure!(output.status.success(), "image load: {}", String::from_utf8_lossy(&output.stderr));
        let kubeconfig = server.add_node(name).await?;
        node.spawn(&["--kubeconfig", &kubeconfig.to_string_lossy()])?;
        node.program.ready().await?;
        Ok(node)
    }

    /// The shipped binary, told about this node's folder.
    pub fn adieu(&self, words: &[&str]) -> Command {
        self.program.adieu(words)
    }

    fn spawn(&mut self, more: &[&str]) -> Result<()> {
        let mut command = self.program.adieu(&["node", "-v"]);
        command.args(["--node-api", "127.0.0.1:0", "--node-name", &self.name, "--pod-cidr", &self.pod_cidr]);
        command.args(["--eviction-hard", "", "--image-gc-high-threshold", "100"]).args(&self.words).args(more);
        self.program.spawn(command)
    }

    /// Starts it again by what it kept of its kubeconfig. It looks after its pods from then on, and says that it is
    /// ready once the server knows it.
    pub fn start(&mut self) -> Result<()> {
        self.spawn(&[])
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self) -> Result<()> {
        self.program.ready().await
    }

    /// Ends it as a crash would.
    pub async fn kill_9(&mut self) -> Result<()> {
        self.program.kill_9().await
    }

    /// Tells it that the machine goes down, and waits until it has ended, which it must do well.
    pub async fn power_fails(&mut self) -> Result<()> {
        let mut child = self.program.child.take().context("it runs")?;
        let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::POWER)?;
        let status = child.wait().await?;
        ensure!(status.success(), "adieu node ended with {status}");
        Ok(())
    }

    /// Runs `adieu down`; answers what it printed.
    pub async fn down(&mut self) -> Result<String> {
        let output = self.adieu(&["down"]).output().await?;
        ensure!(output.status.success(), "adieu down: {}", String::from_utf8_lossy(&output.stderr));
        if let Some(mut child) = self.program.child.take() {
            let status = child.wait().await?;
            ensure!(status.success(), "adieu node ended with {status} after adieu down");
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder that holds everything it owns.
    pub fn dir(&self) -> &Path {
        self.program.dir.path()
    }

    /// The range its pods get addresses from.
    pub fn pod_cidr(&self) -> &str {
        &self.pod_cidr
    }
}

impl Drop for NodeProgram {
    /// A failed test leaves nothing behind either.
    fn drop(&mut self) {
        if let Some(mut child) = self.program.child.take() {
            let _ = child.start_kill();
            while matches!(child.try_wait(), Ok(None)) {
                std::thread::yield_now();
            }
        }
        for _ in 0..ATTEMPTS {
            let mut down = std::process::Command::new(adieu());
            down.args(["down", "--data-dir"]).arg(self.dir()).stdout(Stdio::null());
            if down.status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        eprintln!("adieu down fails: {} leaves pods behind", self.dir().display());
    }
}
