//! A real logind on a system bus of its own, away from the machine's: what asks an instance to let its pods leave.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::pods::SOON;
use crate::workspace;

const LOGIND: &str = "/lib/systemd/systemd-logind";

/// Longer than any pod of a test needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// What its unit makes for it, and how long it waits.
const FOLDERS: &str = "cd /run && mkdir -p systemd/seats systemd/users systemd/sessions systemd/inhibit systemd/shutdown \
                       systemd/logind.conf.d && printf '[Login]\\nInhibitDelayMaxSec=PATIENCE\\n' > systemd/logind.conf.d/test.conf";

/// Everybody may do everything here.
const BUS: &str = r#"<busconfig><type>system</type><listen>unix:path=PATH</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/>
<allow send_type="method_call"/><allow send_type="signal"/><allow send_type="method_return"/><allow send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="signal"/><allow receive_type="method_return"/>
<allow receive_type="error"/>
</policy></busconfig>"#;

/// The bus, logind, and whoever plays the system manager to it.
pub struct Logind {
    dir: TempDir,
    manager: Lines<BufReader<ChildStdout>>,
    orders: ChildStdin,
    running: Vec<Child>,
}

impl Logind {
    /// Starts all three, and waits until logind is on the bus.
    pub async fn start() -> Result<Self> {
        Self::start_with(PATIENCE).await
    }

    /// The same, with a logind that waits no longer than this.
    pub async fn start_with(patience: Duration) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-logind-").tempdir()?;
        let (bus, config) = (dir.path().join("bus"), dir.path().join("bus.conf"));
        fs::write(&config, BUS.replace("PATH", &bus.to_string_lossy()))?;
        let mut daemon = Command::new("dbus-daemon");
        daemon.arg(format!("--config-file={}", config.display())).args(["--nofork", "--nopidfile", "--print-address"]);
        let mut daemon = spawn(&mut daemon)?;
        let mut lines = BufReader::new(daemon.stdout.take().context("piped")?).lines();
        lines.next_line().await?.context("the bus does not start; run scripts/setup test")?;

        let python = workspace().join("target/tools/python/bin/python");
        ensure!(python.exists(), "{} is missing; run scripts/setup test", python.display());
        let mut manager = Command::new(python);
        manager.arg(workspace().join("tests/e2e/tools/systemd.py")).arg(&bus).stdin(Stdio::piped());
        let mut manager = spawn(&mut manager)?;
        let orders = manager.stdin.take().context("piped")?;
        let heard = BufReader::new(manager.stdout.take().context("piped")?).lines();
        let mut all = Self { dir, manager: heard, orders, running: vec![daemon, manager] };
        ensure!(all.hears().await? == "ready");

        let folders = FOLDERS.replace("PATIENCE", &patience.as_secs().to_string());
        // Its files below /run are its own, so that it meets no other logind.
        let mut logind = Command::new("unshare");
        logind.args(["--mount", "sh", "-c", &format!("mount -t tmpfs adieu-e2e /run && {folders} && exec {LOGIND}")]);
        logind.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", bus.display()));
        logind.env("SYSTEMD_LOG_TARGET", "console").stderr(Stdio::null());
        all.running.push(spawn(&mut logind)?);
        ensure!(all.hears().await? == "logind is there");
        Ok(all)
    }

    /// Where the bus is, as programs are told.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.bus().display())
    }

    fn bus(&self) -> PathBuf {
        self.dir.path().join("bus")
    }

    /// Somebody asks logind for a reboot.
    pub async fn reboot(&mut self) -> Result<()> {
        Ok(self.orders.write_all(b"Reboot\n").await?)
    }

    /// Somebody cancels what the system manager was told to start.
    pub async fn cancel(&mut self) -> Result<()> {
        Ok(self.orders.write_all(b"cancel\n").await?)
    }

    /// What the system manager is told next.
    pub async fn hears(&mut self) -> Result<String> {
        let line = tokio::time::timeout(SOON, self.manager.next_line()).await.context("it hears nothing")??;
        line.context("it is gone")
    }

    /// Whether the system manager has been told nothing within this time.
    pub async fn hears_nothing(&mut self, within: Duration) -> bool {
        tokio::time::timeout(within, self.manager.next_line()).await.is_err()
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    let name = format!("{:?}", command.as_std().get_program());
    let spawned = command.stdout(Stdio::piped()).kill_on_drop(true).spawn();
    spawned.with_context(|| format!("cannot run {name}; run scripts/setup test"))
}
