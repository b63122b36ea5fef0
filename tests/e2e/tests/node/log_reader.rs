//! Whoever reads the log, or does not, decides nothing: pods start and end all the same.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox};
use e2e::{Instance, Kubectl, Shared};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// A pod starts, stops well and is gone, and the instance is still the same process.
async fn pod_comes_and_goes(instance: &Instance) -> Result<()> {
    let pid = instance.pid().context("it runs")?;
    let (kubectl, shared) = (Kubectl::newest(instance)?, Shared::new()?);
    let script = "trap 'echo left >> /shared/story; exit 0' TERM; sleep 1000 & wait";
    let mut watch = PodWatch::on(&instance.client().await?, "p").await?;
    kubectl.apply(&busybox("p", 30, script, &shared)).await?;
    watch.ready().await?;
    kubectl.run(&["delete", "pod", "p", "--wait=false"]).await?;
    watch.gone(SOON).await?;
    ensure!(shared.lines("story") == ["left"], "{:?}", shared.lines("story"));
    ensure!(std::fs::exists(format!("/proc/{pid}/exe"))? && instance.pid() == Some(pid), "the same process goes on");
    Ok(())
}

async fn dropped_lines(instance: &Instance) -> Result<u64> {
    let page = Kubectl::newest(instance)?.run(&["get", "--raw", "/metrics"]).await?;
    let line = page.lines().find_map(|line| line.strip_prefix("adieu_log_lines_dropped_total "));
    Ok(line.context("dropped lines are counted")?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_log_pipe_ends_no_instance_and_pods_start_and_end() -> Result<()> {
    let (reader, writer) = rustix::pipe::pipe()?;
    drop(reader);
    let mut instance = Instance::start_logging_to(writer, &["-vv"]).await?;
    pod_comes_and_goes(&instance).await?;
    ensure!(dropped_lines(&instance).await? > 0, "what nobody can read is counted");
    instance.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn full_unread_log_pipe_holds_up_no_pod_and_no_end() -> Result<()> {
    let (_reader, writer) = full_pipe()?;
    let mut instance = Instance::start_logging_to(writer, &["-vv"]).await?;
    pod_comes_and_goes(&instance).await?;
    // All that the queue holds, and more.
    let kubectl = Kubectl::newest(&instance)?;
    while dropped_lines(&instance).await? == 0 {
        kubectl.run(&["get", "pods,nodes,events,namespaces", "-A"]).await?;
    }
    pod_comes_and_goes(&instance).await?;
    instance.stop().await
}

/// A pipe without room for one more byte, which blocks whoever writes.
fn full_pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    loop {
        match rustix::io::write(&writer, b"x") {
            Ok(_) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    rustix::io::ioctl_fionbio(&writer, false)?;
    Ok((reader, writer))
}
