//! Longer stories of requests through a Service while its pods leave, each told twice: nothing is lost, and with the barrier off something
//! is, so that the story can tell. With `ADIEU_LOAD=full` they are told in full length.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::pods::SOON;
use e2e::{Instance, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use crate::shop::{Clients, Shop, ensure_no_loss};

const CLIENTS: Clients = Clients { new: 4, kept: 3, slow: 6 };
/// How often a story is told at most until something is lost with the barrier off.
const NAKED_TRIES: usize = 10;

/// How often something is done: enough to tell, or as often as the whole story says.
fn times(enough: usize, full: usize) -> usize {
    if std::env::var("ADIEU_LOAD").is_ok_and(|length| length == "full") { full } else { enough }
}

fn naked() -> Value {
    json!({ "adieu.dev/drain-barrier": "off" })
}

/// Without a barrier the same loses requests.
async fn ensure_loss_without_barrier(
    instance: &Instance,
    replicas: i32,
    clients: Clients,
    act: impl AsyncFn(&Shop) -> Result<()>,
) -> Result<()> {
    let shop = Shop::open(instance, "naked", replicas, 0, naked()).await?;
    let load = shop.ask(clients).await?;
    for _ in 0..NAKED_TRIES {
        act(&shop).await?;
        if shop.lost() > 0 {
            break;
        }
    }
    let fates = load.stop().await?;
    ensure!(fates["failed"] != json!({}), "nothing is lost without a barrier either: this test cannot tell: {fates}");
    Ok(())
}

/// [TR-97] [TR-98] Rollouts of four replicas in a row, with new, kept and slow requests; nobody comes after TERM.
#[tokio::test(flavor = "multi_thread")]
async fn rollouts_in_a_row_lose_no_request_unless_the_barrier_is_off() -> Result<()> {
    let instance = Instance::start().await?;
    let shop = Shop::open(&instance, "web", 4, 0, json!({})).await?;
    let load = shop.ask(CLIENTS).await?;
    for _ in 0..times(5, 10) {
        shop.roll_out(4).await?;
    }
    ensure_no_loss(&shop, &load.stop().await?)?;
    ensure!(shop.late() == 0, "{:?}", shop.shared.lines("served"));
    ensure_loss_without_barrier(&instance, 4, CLIENTS, async |shop| shop.roll_out(4).await.map(drop)).await?;
    complaints::ensure_none(&instance, &[])
}

/// [TR-103] Scaled from eight to one and back, then a pod is deleted every half second, whatever the others are doing.
#[tokio::test(flavor = "multi_thread")]
async fn scaling_and_random_deletes_lose_no_request_unless_the_barrier_is_off() -> Result<()> {
    let instance = Instance::start().await?;
    let shop = Shop::open(&instance, "web", 8, 0, json!({})).await?;
    let load = shop.ask(CLIENTS).await?;
    shop.scale(1).await?;
    shop.scale(8).await?;
    delete_every_half_second(&shop, times(10, 20)).await?;
    shop.until_ready(8).await?;
    ensure_no_loss(&shop, &load.stop().await?)?;
    ensure_loss_without_barrier(&instance, 8, CLIENTS, async |shop| {
        shop.scale(1).await?;
        shop.scale(8).await.map(drop)
    })
    .await?;
    complaints::ensure_none(&instance, &[])
}

/// Deletes one pod after another, those that are not leaving yet in turn.
async fn delete_every_half_second(shop: &Shop, count: usize) -> Result<()> {
    let api: Api<Pod> = Api::default_namespaced(shop.client.clone());
    for number in 0..count {
        let next = Instant::now() + Duration::from_millis(500);
        let ready = shop.ready().await?;
        // Whoever is the only one left is deleted, too: it serves until there is another.
        if let Some(pod) = ready.get(number * 7 % ready.len().max(1)) {
            api.delete(pod, &DeleteParams::default()).await?;
        }
        tokio::time::sleep_until(next.into()).await;
    }
    Ok(())
}

/// [TR-29] A single replica is evicted by a drain of its node: it serves until another can take its place, which is not before
/// the node takes pods again.
#[tokio::test(flavor = "multi_thread")]
async fn drained_node_with_a_single_replica_loses_no_request_unless_the_barrier_is_off() -> Result<()> {
    let instance = Instance::start().await?;
    let drain = async |shop: &Shop| {
        let node = instance.node_name();
        let before = shop.until_ready(1).await?;
        shop.kubectl.run(&["cordon", node]).await?;
        let only = format!("app={}", shop.name());
        let words = ["drain", node, "--ignore-daemonsets", "--force", "--pod-selector", &only, "--timeout=90s"];
        let draining = shop.kubectl.run(&words);
        let opening = async {
            // Its eviction was asked for: its successor is there, and has no node yet.
            let asked = async {
                let is_new = |pod: &Pod| pod.metadata.name.as_ref().is_some_and(|name| !before.contains(name));
                while !shop.pods().await?.iter().any(is_new) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(())
            };
            let asked = tokio::time::timeout(SOON, asked).await.context("nobody comes in its place");
            // In any case: the drain waits for it.
            let opened = shop.kubectl.run(&["uncordon", node]).await;
            asked.and_then(|asked: Result<()>| asked).and(opened)
        };
        let (drained, opened) = tokio::join!(draining, opening);
        drained.and(opened)?;
        let after = shop.until_ready(1).await?;
        ensure!(before != after, "nobody was evicted");
        Ok(())
    };
    let shop = Shop::open(&instance, "web", 1, 0, json!({})).await?;
    let load = shop.ask(CLIENTS).await?;
    drain(&shop).await?;
    drain(&shop).await?;
    ensure_no_loss(&shop, &load.stop().await?)?;
    ensure_loss_without_barrier(&instance, 1, CLIENTS, drain).await?;
    complaints::ensure_none(&instance, &[])
}

/// [TR-106] With a kill at three moments: the agent is killed in the middle of rollouts and started again, each time at another moment.
#[tokio::test(flavor = "multi_thread")]
async fn rollout_while_the_agent_is_killed_loses_no_request() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shop = Shop::open(&instance, "web", 4, 0, json!({})).await?;
    let load = shop.ask(CLIENTS).await?;
    for wait_ms in [30, 150, 400] {
        let before = shop.until_ready(4).await?;
        shop.kubectl.run(&["rollout", "restart", "deployment/web"]).await?;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        instance.kill_9().await?;
        instance.up().await?;
        shop.kubectl.run(&["rollout", "status", "deployment/web", "--timeout=90s"]).await?;
        let after = shop.until_ready(4).await?;
        ensure!(after.iter().all(|pod| !before.contains(pod)), "{before:?} {after:?}");
    }
    ensure_no_loss(&shop, &load.stop().await?)?;
    complaints::ensure_none(&instance, complaints::IN_A_STORM)
}
