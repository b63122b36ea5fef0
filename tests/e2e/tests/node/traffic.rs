//! Requests through a Service while its pods leave: the application closes its listener the moment it is told to stop, has no hooks,
//! and nothing is lost.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Result, ensure};
use e2e::{Instance, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::shop::{Clients, Shop, ensure_no_loss};

/// [TR-97] [TR-99] [TR-103] With few pods, and [TR-29]: a Deployment is rolled out, its pods are deleted one by one, it is scaled down and
/// up, and its only pod is deleted: neither new connections nor kept ones lose a request.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_leave_under_load_lose_no_request() -> Result<()> {
    let instance = Instance::start().await?;
    let shop = Shop::open(&instance, "web", 4, 0, json!({})).await?;
    let load = shop.ask(Clients { new: 6, kept: 4, slow: 0 }).await?;
    shop.roll_out(4).await?;
    for _ in 0..2 {
        let pods = shop.until_ready(4).await?;
        let reason = shop.delete(&pods[0]).await?;
        ensure!(reason.as_deref() == Some("LocalCut"), "{reason:?}");
    }
    shop.until_ready(4).await?;
    let only = shop.scale(1).await?;
    // The only one serves until there is another.
    let reason = shop.delete(&only[0]).await?;
    ensure!(reason.as_deref() == Some("LocalCut"), "{reason:?}");
    shop.roll_out(1).await?;
    shop.scale(4).await?;
    ensure_no_loss(&shop, &load.stop().await?)?;
    let told = shop.kubectl.run(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await?;
    ensure!(told.contains("DrainStarted") && told.contains("DrainReleased"), "{told}");
    ensure!(!told.contains("DrainDeadline") && !told.contains("LateConnections"), "{told}");
    complaints::ensure_none(&instance, &[])
}

/// [TR-26] [TR-113] The same with servers that count who comes after TERM: nobody does, also when the agent is killed and
/// started again meanwhile. Without a barrier somebody does, so the count can tell.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_connects_after_the_stop_signal_unless_the_barrier_is_off() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shop = Shop::open(&instance, "web", 3, 700, json!({})).await?;
    let load = shop.ask(Clients { new: 6, kept: 2, slow: 0 }).await?;
    let api: Api<Pod> = Api::default_namespaced(shop.client.clone());
    // Killed when the pod was told to stop, and as soon as it was asked to leave.
    for waits in [true, false] {
        let pods = shop.until_ready(3).await?;
        let before = shop.shared.lines("told-to-leave").len();
        api.delete(&pods[0], &DeleteParams::default()).await?;
        if waits {
            shop.shared.wait_lines("told-to-leave", before + 1).await?;
        }
        instance.kill_9().await?;
        instance.up().await?;
    }
    shop.until_ready(3).await?;
    ensure_no_loss(&shop, &load.stop().await?)?;
    ensure!(shop.shared.lines("served").len() >= 2 && shop.late() == 0, "{:?}", shop.shared.lines("served"));

    let naked = Shop::open(&instance, "naked", 3, 300, json!({ "adieu.dev/drain-barrier": "off" })).await?;
    let load = naked.ask(Clients { new: 6, kept: 0, slow: 0 }).await?;
    for _ in 0..10 {
        let pods = naked.until_ready(3).await?;
        let reason = naked.delete(&pods[0]).await?;
        ensure!(reason.as_deref() == Some("Off"), "{reason:?}");
        if naked.late() > 0 {
            break;
        }
    }
    load.stop().await?;
    ensure!(naked.late() > 0, "nobody came after TERM without a barrier either: this test cannot tell");
    complaints::ensure_none(&instance, complaints::AFTER_A_CRASH)
}
