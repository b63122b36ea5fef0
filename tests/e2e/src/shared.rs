//! A folder that a pod and a test both see: how a test learns what happened inside a container, and when.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::inotify;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use crate::pods::SOON;

const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The folder, mounted at `/shared` in pods made by [`crate::pods::busybox`].
pub struct Shared {
    dir: TempDir,
}

impl Shared {
    /// An empty folder with a FIFO called `gate` in it.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adieu-shared-").tempdir()?;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("gate"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o666),
            0,
        )?;
        Ok(Self { dir })
    }

    /// Where it is on the host.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The lines of a file in it; none if it is not there.
    pub fn lines(&self, file: &str) -> Vec<String> {
        fs::read_to_string(self.dir.path().join(file)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until `file` has at least `count` lines, told by the kernel.
    pub async fn wait_lines(&self, file: &str, count: usize) -> Result<Vec<String>> {
        let outcome = self.wait_until(file, SOON, |lines| lines.len() >= count).await;
        outcome.with_context(|| format!("fewer than {count} lines"))
    }

    /// Waits until the lines of `file` are as wanted, at most `limit`, told by the kernel.
    pub async fn wait_until(
        &self,
        file: &str,
        limit: Duration,
        wanted: impl Fn(&[String]) -> bool,
    ) -> Result<Vec<String>> {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(
            &watch,
            self.dir.path(),
            inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::CLOSE_WRITE,
        )?;
        #[expect(deprecated, reason = "the replacement is unsafe, and this descriptor is ours alone")]
        let changes = AsyncFd::new(watch)?;
        let wait = async {
            loop {
                let lines = self.lines(file);
                if wanted(&lines) {
                    return Ok(lines);
                }
                let mut ready = changes.readable().await?;
                let mut buffer = [0; 4096];
                while rustix::io::read(ready.get_inner(), &mut buffer).is_ok() {}
                ready.clear_ready();
            }
        };
        let outcome = tokio::time::timeout(limit, wait).await;
        outcome.with_context(|| format!("{file} has only {:?}", self.lines(file)))?
    }

    /// Waits until no process has the gate open any more, at most `limit`; scripts that begin with `exec 9<> /shared/gate` have.
    pub async fn deserted(&self, limit: Duration) -> Result<()> {
        let path = self.dir.path().join("gate");
        let mut gate = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
        // The kernel tells nobody of an end that was before.
        if std::io::Read::read(&mut gate, &mut [0]).is_ok_and(|read| read == 0) {
            return Ok(());
        }
        let mut gate = pipe::Receiver::from_file(gate)?;
        let ended = tokio::time::timeout(limit, gate.read_to_end(&mut Vec::new())).await;
        ended.context("somebody does not die")??;
        Ok(())
    }

    /// Lets whoever reads `/shared/gate` in the container go on, as soon as somebody does.
    pub async fn open_gate(&self) -> Result<()> {
        let path = self.dir.path().join("gate");
        let gate = path.clone();
        let mut opening =
            tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(gate)?.write_all(b"go\n"));
        if let Ok(opened) = tokio::time::timeout(SOON, &mut opening).await {
            return Ok(opened??);
        }
        // The kernel holds the thread until there is a reader; the test could not even fail if it stayed there.
        let reader = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
        let _ = opening.await;
        drop(reader);
        bail!("nobody waits at the gate")
    }
}
