//! The server as a child: `adieu server` if it knows that command, else `adieu up`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal};

use super::https::Target;
use crate::memory;

/// How long until memory is believed to have settled.
const SETTLE: Duration = Duration::from_secs(3);

/// A running server.
pub(crate) struct Server {
    adieu: PathBuf,
    dir: PathBuf,
    child: Guard,
    pid: i32,
    is_up: bool,
    pub(crate) target: Target,
}

impl Server {
    pub(crate) async fn start(adieu: &Path, dir: &Path) -> Result<Self> {
        let knows = Command::new(adieu).args(["server", "--help"]).output()?.status.success();
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(adieu);
        command.arg(if knows { "server" } else { "up" }).arg("--data-dir").arg(dir);
        command.args(["--api", &format!("127.0.0.1:{port}")]);
        if !knows {
            command.args(["--pod-cidr", "10.98.0.0/16", "--node-name", "bench"]);
        }
        let mut child = Guard(command.stdout(Stdio::piped()).spawn().context("cannot run adieu")?);
        let mut lines = BufReader::new(child.0.stdout.take().context("piped")?).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("ready"));
        ensure!(ready, "it ended before it was ready");
        // Whatever it says later must not block it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let pid = i32::try_from(child.0.id())?;
        let target = Target::read(&dir.join("admin.kubeconfig")).await?;
        Ok(Self { adieu: adieu.to_owned(), dir: dir.to_owned(), child, pid, is_up: !knows, target })
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        if self.is_up {
            let down = Command::new(&self.adieu).arg("down").arg("--data-dir").arg(&self.dir).output()?;
            ensure!(down.status.success(), "adieu down: {}", String::from_utf8_lossy(&down.stderr));
        } else {
            rustix::process::kill_process(Pid::from_raw(self.pid).context("a pid")?, Signal::TERM)?;
        }
        self.child.0.wait()?;
        Ok(())
    }

    /// Resident memory, once nothing happens any more.
    pub(crate) async fn settled_kib(&self) -> Result<u64> {
        tokio::time::sleep(SETTLE).await;
        memory::resident_kib(&[self.pid])?.context("a process")
    }

    /// Resident memory as it is.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        memory::resident_kib(&[self.pid])?.context("a process")
    }

    /// The administrator's.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.pid)
    }
}

/// A child that does not outlive us.
pub(crate) struct Guard(pub(crate) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How the kernel counts processor time for programs, on every machine we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time a process has used.
pub(crate) fn cpu_of(pid: i32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything, blanks too.
    let fields: Vec<&str> = stat.rsplit(')').next().context("a name")?.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
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
