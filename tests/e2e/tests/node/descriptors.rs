//! Clients cannot take the descriptors that a pod's start and termination need.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::Result;
use e2e::pods::{PodWatch, SOON, busybox};
use e2e::{Instance, Kubectl, Shared};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

/// Few enough for one client to take them all, and enough for a node with a pod.
const DESCRIPTORS: u64 = 400;
/// Far more than that: when the server closes one, the next waits already.
const SOCKETS: usize = 3000;

#[tokio::test(flavor = "multi_thread")]
async fn idle_sockets_without_a_handshake_hold_up_no_termination() -> Result<()> {
    let mut instance = Instance::start().await?;
    instance.stop().await?;
    instance.up_with_descriptors(DESCRIPTORS).await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    let script = "trap 'echo asked >> /shared/story; while [ ! -e /shared/go ]; do sleep 0.1; done; exit 0' TERM; sleep 1000 & wait";
    let mut watch = PodWatch::on(&instance.client().await?, "p").await?;
    kubectl.apply(&busybox("p", 300, script, &shared)).await?;
    watch.ready().await?;
    // It is on its way out when they come.
    kubectl.run(&["delete", "pod", "p", "--wait=false"]).await?;
    shared.wait_lines("story", 1).await?;

    let api: std::net::SocketAddr = instance.api().parse()?;
    let mut idle = JoinSet::new();
    let (taken, mut all_taken) = tokio::sync::watch::channel(0);
    for _ in 0..SOCKETS {
        let taken = taken.clone();
        idle.spawn(async move {
            loop {
                let connected = tokio::net::TcpStream::connect(api).await;
                taken.send_modify(|count| *count += 1);
                // Until the server closes it; then there is another at once.
                if let Ok(mut socket) = connected {
                    let _ = socket.read(&mut [0]).await;
                }
            }
        });
    }
    // As many as the server may have, however many wait behind them.
    all_taken.wait_for(|count| *count >= DESCRIPTORS).await?;
    std::fs::write(shared.path().join("go"), "")?;
    watch.gone(SOON).await?;
    idle.shutdown().await;
    instance.stop().await
}
