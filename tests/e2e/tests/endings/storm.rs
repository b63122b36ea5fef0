//! `kill -9` of `adieu up` again and again, at moments that chance chooses, while pods come and while they go.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::caller::{ApiCall, Caller};
use e2e::complaints::IN_A_STORM;
use e2e::dice::Dice;
use e2e::leftovers::Traces;
use e2e::pods::{PodWatch, SOON, busybox, ip, with_pre_stop};
use e2e::{Instance, Shared, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use tokio::sync::watch;
use tokio::task::JoinSet;

const PODS: usize = 12;
const KILLS: usize = 6;

/// How long an instance lives at most after it said that it is ready.
const LIFE: Duration = Duration::from_millis(150);

/// Makes all wishes, some in each life of the instance, and kills it [`KILLS`] times meanwhile.
async fn storm(instance: &mut Instance, dice: &mut Dice, wishes: Vec<(String, ApiCall)>) -> Result<()> {
    let (came_up, lives) = watch::channel(0);
    let mut calls = JoinSet::new();
    for some in wishes.chunks(wishes.len().div_ceil(KILLS)) {
        for (name, wish) in some {
            let caller = Caller::new(instance.kubeconfig(), lives.clone());
            calls.spawn(caller.call(name.clone(), wish.clone()));
        }
        // Counted from the ready line, which `up` has just seen.
        tokio::time::sleep(dice.below(LIFE)).await;
        instance.kill_9().await?;
        instance.up().await?;
        came_up.send_modify(|lives| *lives += 1);
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    Ok(())
}

/// [NT-144] [NT-146] [NT-147] Whatever moment the agent dies at: every container starts once, every hook runs once,
/// every stop signal is sent once, and nothing is left in the end.
#[tokio::test(flavor = "multi_thread")]
async fn agent_killed_at_any_moment_recovers() -> Result<()> {
    let mut dice = Dice::seeded()?;
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let names: Vec<String> = (0..PODS).map(|number| format!("storm-{number}")).collect();
    let has_hook = |number: usize| number.is_multiple_of(2);

    let manifest = |(number, name): (usize, &String)| {
        let script = format!(
            "trap 'echo TERM >> /shared/{name}; exit 0' TERM; echo up >> /shared/{name}; while :; do sleep 1000 & wait $!; done"
        );
        // Nobody is to be killed here, however slow the machine restarts: a lost signal shows as a pod that stays.
        let pod = busybox(name, 600, &script, &shared);
        let hook = format!("echo hook >> /shared/{name}; sleep 0.3; echo hooked >> /shared/{name}");
        let pod = if has_hook(number) { with_pre_stop(pod, &hook) } else { pod };
        (name.clone(), ApiCall::Create(pod))
    };
    storm(&mut instance, &mut dice, names.iter().enumerate().map(manifest).collect()).await?;

    let mut addresses = Vec::new();
    for name in &names {
        let mut watch = PodWatch::on(&instance.client().await?, name).await?;
        watch.ready().await.with_context(|| name.clone())?;
        shared.wait_lines(name, 1).await?;
        addresses.push(watch.last.as_ref().and_then(ip).context("an address")?);
    }
    for name in &names {
        let pod = pods(&instance).await?.get(name).await?;
        let restarts: Vec<i32> =
            pod.status.unwrap().container_statuses.unwrap().iter().map(|status| status.restart_count).collect();
        assert_eq!(restarts, [0], "{name} was restarted");
        assert_eq!(shared.lines(name), ["up"], "{name} starts once");
    }
    let traces = Traces::of(&instance, &addresses)?;

    storm(&mut instance, &mut dice, names.iter().map(|name| (name.clone(), ApiCall::Delete)).collect()).await?;

    for name in &names {
        let mut watch = PodWatch::on(&instance.client().await?, name).await?;
        // The watch is there, so the end comes either before this look or into the watch.
        if pods(&instance).await?.get_opt(name).await?.is_some() {
            watch.gone(SOON).await.with_context(|| name.clone())?;
        }
    }
    for (number, name) in names.iter().enumerate() {
        let story: &[&str] = if has_hook(number) { &["up", "hook", "hooked", "TERM"] } else { &["up", "TERM"] };
        assert_eq!(shared.lines(name), story, "{name}: each step once, in order");
    }
    let said = instance.down().await?;
    ensure!(said.contains("adieu is down"), "{said}");
    traces.ensure_none()?;
    complaints::ensure_none(&instance, IN_A_STORM)
}

async fn pods(instance: &Instance) -> Result<Api<Pod>> {
    Ok(Api::namespaced(instance.client().await?, "default"))
}
