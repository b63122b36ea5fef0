//! `adieu demo`: it loses no request, and however it ends, nothing of it is left.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::leftovers::Traces;
use e2e::{Instance, Kubectl, adieu};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// What it promises.
const TAKES_AT_MOST: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(5);

/// A running demo, in a folder of the test.
struct Demo {
    parent: TempDir,
    child: Child,
    began: Instant,
}

impl Demo {
    fn start() -> Result<Self> {
        let parent = tempfile::Builder::new().prefix("adieu-e2e-demo-").tempdir()?;
        let child = Command::new(adieu())
            .args(["demo", "--dir"])
            .arg(parent.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}; build it with scripts/build", adieu().display()))?;
        Ok(Self { parent, child, began: Instant::now() })
    }

    /// The folder that it made, with a file in it.
    async fn file(&mut self, path: &str) -> Result<PathBuf> {
        loop {
            let made = fs::read_dir(self.parent.path())?.flatten().map(|entry| entry.path().join(path));
            if let Some(found) = made.into_iter().find(|path| path.exists()) {
                return Ok(found);
            }
            ensure!(self.began.elapsed() < TAKES_AT_MOST, "there is no {path}");
            ensure!(self.child.try_wait()?.is_none(), "it ended before there was a {path}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What it has on the machine, once its load runs.
    async fn traces(&mut self) -> Result<Traces> {
        self.file("counts/counts.json").await?;
        let data = self.file("data").await?;
        let config: serde_json::Value = serde_json::from_slice(&fs::read(data.join("config.json"))?)?;
        Traces::of_parts(&data, config["podCidr"].as_str().context("a range")?, &[])
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("a pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// How it ended, and what it said. Nothing of it is in its folder then.
    async fn ended(self) -> Result<(Output, Duration)> {
        let output = tokio::time::timeout(TAKES_AT_MOST * 2, self.child.wait_with_output()).await??;
        let took = self.began.elapsed();
        let left: Vec<PathBuf> = fs::read_dir(self.parent.path())?.flatten().map(|entry| entry.path()).collect();
        ensure!(left.is_empty(), "{left:?} are left: {}", text(&output));
        ensure!(!mentions_mount(self.parent.path())?, "mounts are left: {}", text(&output));
        Ok((output, took))
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn mentions_mount(dir: &Path) -> Result<bool> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?.contains(&*dir.to_string_lossy()))
}

/// Beside an instance with a pod: neither disturbs the other.
#[tokio::test(flavor = "multi_thread")]
async fn demo_counts_its_requests_loses_none_and_leaves_nothing_behind() -> Result<()> {
    let instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    kubectl.run(&["run", "neighbour", "--image=busybox", "--command", "--", "sleep", "1000"]).await?;
    kubectl.run(&["wait", "--for=condition=Ready", "pod/neighbour", "--timeout=60s"]).await?;
    let mut demo = Demo::start()?;
    let traces = demo.traces().await?;
    let (output, took) = demo.ended().await?;
    let said = text(&output);
    ensure!(output.status.success(), "{said}");
    ensure!(took < TAKES_AT_MOST, "it took {took:?}");
    let counted = said.lines().last().context("a last line")?;
    let asked = counted.strip_suffix(" requests, 0 lost").context(said.clone())?.replace(',', "");
    ensure!(asked.parse::<u64>()? > 1000, "{said}");
    for told in
        ["web servers replaced", "ignores TERM", "Adieu killed mid-drain", "StopSignalSent", "KillSent", "kill -9"]
    {
        ensure!(said.contains(told), "nothing of {told:?} in: {said}");
    }
    ensure!(!said.contains('\x1b'), "a pipe is no terminal: {said}");
    traces.ensure_none()?;
    let restarts = kubectl.run(&["get", "pod", "neighbour", "-o", "jsonpath={.status.phase}"]).await?;
    ensure!(restarts == "Running", "{restarts}");
    Ok(())
}

/// In the midst of everything: the image is made, the platform starts, the load runs.
#[tokio::test(flavor = "multi_thread")]
async fn demo_that_is_interrupted_leaves_nothing_behind() -> Result<()> {
    for (moment, signal, code) in [
        ("image.tar", Signal::INT, 130),
        ("data/config.json", Signal::TERM, 143),
        ("data/admin.kubeconfig", Signal::HUP, 129),
    ] {
        let mut demo = Demo::start()?;
        demo.file(moment).await?;
        demo.signal(signal)?;
        let (output, _) = demo.ended().await?;
        ensure!(output.status.code() == Some(code), "{moment}: {} {}", output.status, text(&output));
    }
    let mut demo = Demo::start()?;
    let traces = demo.traces().await?;
    demo.signal(Signal::INT)?;
    // Somebody has no patience.
    tokio::time::sleep(LOOK).await;
    demo.signal(Signal::INT)?;
    let (output, took) = demo.ended().await?;
    ensure!(output.status.code() == Some(130), "{} {}", output.status, text(&output));
    ensure!(took < TAKES_AT_MOST, "it took {took:?}");
    let is_told = text(&output).lines().any(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    ensure!(!is_told, "a result is told of a demo that did not end: {}", text(&output));
    traces.ensure_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_whose_step_fails_says_why_and_leaves_nothing_behind() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let options = c"size=8m,mode=700";
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("adieu-e2e", dir.path(), "tmpfs", flags, options)?;
    let output = Command::new(adieu()).args(["demo", "--dir"]).arg(dir.path()).output().await;
    let left = fs::read_dir(dir.path())?.count();
    rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH)?;
    let output = output?;
    ensure!(output.status.code() == Some(1) && left == 0, "{left} left, {}: {}", output.status, text(&output));
    ensure!(text(&output).contains("cannot write the image"), "{}", text(&output));
    Ok(())
}
