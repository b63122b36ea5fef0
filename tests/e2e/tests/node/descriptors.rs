//! Clients cannot take the descriptors that a pod's start and termination need.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox};
use e2e::{Instance, Kubectl, Shared};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Few enough for one client to take them all.
const DESCRIPTORS: u64 = 1024;
/// More than are left beside what the program has open itself.
const SOCKETS: usize = 980;

#[tokio::test(flavor = "multi_thread")]
async fn idle_sockets_without_a_handshake_hold_up_no_termination() -> Result<()> {
    // Inherited by the instance, which can then not have more either. This process has a test of its own only.
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) })?;
    let mut instance = Instance::start().await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    let script = "trap 'echo left >> /shared/story; exit 0' TERM; sleep 1000 & wait";
    let mut watch = PodWatch::on(&instance.client().await?, "p").await?;
    kubectl.apply(&busybox("p", 30, script, &shared)).await?;
    watch.ready().await?;

    let api: std::net::SocketAddr = instance.api().parse()?;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (full, is_full) = tokio::sync::oneshot::channel();
    let idle = std::thread::spawn(move || {
        let mut full = Some(full);
        loop {
            // Those that the server closed are replaced.
            let sockets: Vec<_> =
                (0..SOCKETS).map_while(|_| TcpStream::connect_timeout(&api, Duration::from_secs(5)).ok()).collect();
            full.take().map(|full| full.send(sockets.len()));
            if stopped.recv_timeout(Duration::from_secs(3)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    });
    let sockets = is_full.await?;
    ensure!(sockets > SOCKETS / 2, "{sockets} sockets");
    kubectl.run(&["delete", "pod", "p", "--wait=false"]).await?;
    watch.gone(SOON).await?;
    ensure!(shared.lines("story") == ["left"], "{:?}", shared.lines("story"));
    // And another comes and goes meanwhile.
    let mut watch = PodWatch::on(&instance.client().await?, "q").await?;
    kubectl.apply(&busybox("q", 30, script, &shared)).await?;
    watch.ready().await?;
    kubectl.run(&["delete", "pod", "q", "--wait=false"]).await?;
    watch.gone(SOON).await?;
    drop(stop);
    idle.join().ok().context("the sockets end")?;
    instance.stop().await
}
