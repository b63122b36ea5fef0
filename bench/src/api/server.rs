//! The server as a child: `adieu server` if it knows that command, else `adieu up`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::https::Target;
use crate::memory;

/// How long until memory is believed to have settled.
const SETTLE: Duration = Duration::from_secs(3);

/// A running server.
pub(crate) struct Server {
    adieu: PathBuf,
    dir: PathBuf,
    child: Child,
    pid: i32,
    is_up: bool,
    pub(crate) target: Target,
}

impl Server {
    pub(crate) async fn start(adieu: &Path, dir: &Path) -> Result<Self> {
        let knows = Command::new(adieu).args(["server", "--help"]).output().await?.status.success();
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(adieu);
        command.arg(if knows { "server" } else { "up" }).arg("--data-dir").arg(dir);
        command.args(["--api", &format!("127.0.0.1:{port}")]);
        if !knows {
            command.args(["--pod-cidr", "10.98.0.0/16", "--node-name", "bench"]);
        }
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("cannot run adieu")?;
        let mut lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        loop {
            let line = lines.next_line().await?.context("it ended before it was ready")?;
            if line.contains("ready") {
                break;
            }
        }
        // Whatever it says later must not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let pid = i32::try_from(child.id().context("it runs")?)?;
        let target = Target::read(&dir.join("admin.kubeconfig")).await?;
        Ok(Self { adieu: adieu.to_owned(), dir: dir.to_owned(), child, pid, is_up: !knows, target })
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        if self.is_up {
            let down = Command::new(&self.adieu).arg("down").arg("--data-dir").arg(&self.dir).output().await?;
            ensure!(down.status.success(), "adieu down: {}", String::from_utf8_lossy(&down.stderr));
        } else {
            rustix::process::kill_process(Pid::from_raw(self.pid).context("a pid")?, Signal::TERM)?;
        }
        self.child.wait().await?;
        Ok(())
    }

    /// Resident memory, once nothing happens any more.
    pub(crate) async fn settled_kib(&self) -> Result<u64> {
        tokio::time::sleep(SETTLE).await;
        memory::resident_kib(&[self.pid])?.context("a process")
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.pid)
    }
}

/// Processor time a process has used.
pub(crate) fn cpu_of(pid: i32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything, blanks too.
    let fields: Vec<&str> = stat.rsplit(')').next().context("a name")?.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Processor time we have used ourselves.
pub(crate) fn own_cpu() -> Result<Duration> {
    cpu_of(i32::try_from(std::process::id())?)
}

/// A thousand watchers need as many sockets; what we allow ourselves, the children inherit.
pub(crate) fn raise_file_limit() -> Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
