//! `kill -9` of everything that can be killed, at the worst moments; then `adieu down` leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox, terminated, with_pre_stop};
use e2e::{Instance, Kubectl, Shared, leftovers};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::Value;

const IGNORES_TERM: &str =
    "trap 'echo TERM >> /shared/log' TERM; echo up >> /shared/log; while :; do sleep 1000 & wait $!; done";

async fn pods(instance: &Instance) -> Result<Api<Pod>> {
    Ok(Api::namespaced(instance.client().await?, "default"))
}

async fn create(instance: &Instance, shared: &Shared, name: &str, manifest: Value) -> Result<()> {
    let mut watch = PodWatch::on(&instance.client().await?, name).await?;
    pods(instance).await?.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    Ok(())
}

async fn delete(instance: &Instance, name: &str) -> Result<Instant> {
    let asked = Instant::now();
    pods(instance).await?.delete(name, &DeleteParams::default()).await?;
    Ok(asked)
}

/// [NT-147] The hook goes on while the agent is away, is not run again, and the deadline is the original one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_the_pre_stop_hook_changes_nothing() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let hook = "echo hook >> /shared/log; sleep 3; echo hooked >> /shared/log";
    create(&instance, &shared, "hooked", with_pre_stop(busybox("hooked", 6, IGNORES_TERM, &shared), hook)).await?;
    let asked = delete(&instance, "hooked").await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    instance.up().await?;
    ensure!(asked.elapsed() < Duration::from_secs(3), "the restart was slower than the hook: {:?}", asked.elapsed());
    let mut watch = PodWatch::on(&instance.client().await?, "hooked").await?;
    let (gone, last) = watch.gone(SOON).await?;
    let took = gone - asked;
    assert_eq!(shared.lines("log"), ["up", "hook", "hooked", "TERM"], "each step once, in order");
    ensure!(took >= Duration::from_secs(6), "ended before its deadline, after {took:?}");
    ensure!(took < Duration::from_millis(6800), "the deadline moved: {took:?}");
    assert_eq!(terminated(&last).unwrap().exit_code, 137);
    Ok(())
}

/// [NT-147] A hook that ended while the agent was away is known to have ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_ends_while_the_agent_is_away_is_not_run_again() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    let hook = "echo hook >> /shared/log; sleep 1; echo hooked >> /shared/log";
    create(&instance, &shared, "away", with_pre_stop(busybox("away", 30, script, &shared), hook)).await?;
    delete(&instance, "away").await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    shared.wait_lines("log", 3).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "away").await?;
    // The end may have come before the watch began; then there is nothing left to see.
    if pods(&instance).await?.get_opt("away").await?.is_some() {
        watch.gone(SOON).await?;
    }
    assert_eq!(shared.lines("log"), ["up", "hook", "hooked", "TERM"], "each step once, in order");
    Ok(())
}

/// [NT-146] The deadline is restored, not restarted, and the signal is not sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_waiting_for_the_exit_changes_nothing() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    create(&instance, &shared, "waiting", busybox("waiting", 5, IGNORES_TERM, &shared)).await?;
    let asked = delete(&instance, "waiting").await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "waiting").await?;
    let (gone, last) = watch.gone(SOON).await?;
    let took = gone - asked;
    ensure!(took >= Duration::from_secs(5), "ended before its deadline, after {took:?}");
    ensure!(took < Duration::from_millis(5800), "the deadline moved: {took:?}");
    assert_eq!(shared.lines("log"), ["up", "TERM"], "the stop signal is sent once");
    assert_eq!(terminated(&last).unwrap().exit_code, 137);
    Ok(())
}

/// [NT-149] An exit that happened while nobody looked is reported with its real code.
#[tokio::test(flavor = "multi_thread")]
async fn an_exit_while_the_agent_is_away_is_reported_as_it_was() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "echo up >> /shared/log; read word < /shared/gate; echo out >> /shared/log; exit 42";
    let mut manifest = busybox("quiet", 30, script, &shared);
    manifest["spec"]["restartPolicy"] = "Never".into();
    create(&instance, &shared, "quiet", manifest).await?;
    instance.kill_9().await?;
    shared.open_gate().await?;
    shared.wait_lines("log", 2).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "quiet").await?;
    watch.until("the exit", |pod| terminated(pod).is_some_and(|end| end.exit_code == 42)).await?;
    watch.until("Failed", |pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Failed")).await?;
    // A pod that ended by itself stays until somebody deletes it, and its log can still be read.
    let kubectl = Kubectl::newest(&instance)?;
    kubectl.run(&["logs", "quiet"]).await?;
    kubectl.run(&["delete", "pod", "quiet"]).await?;
    Ok(())
}

/// [NT-144] Running pods do not notice that the agent was killed, or stopped, and came back.
#[tokio::test(flavor = "multi_thread")]
async fn running_pods_are_untouched_by_a_restart() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    create(&instance, &shared, "steady", busybox("steady", 1, IGNORES_TERM, &shared)).await?;
    let kubectl = Kubectl::newest(&instance)?;
    let before = pods(&instance).await?.get("steady").await?;
    let started = kubectl.run(&["exec", "steady", "--", "stat", "-c", "%Z", "/proc/1"]).await?;
    instance.kill_9().await?;
    instance.up().await?;
    instance.stop().await?;
    instance.up().await?;
    let again = kubectl.run(&["exec", "steady", "--", "stat", "-c", "%Z", "/proc/1"]).await?;
    assert_eq!(started, again, "it is the same process");
    let after = pods(&instance).await?.get("steady").await?;
    assert_eq!(before.metadata.uid, after.metadata.uid);
    let statuses = |pod: &Pod| pod.status.clone().unwrap().container_statuses;
    assert_eq!(statuses(&before), statuses(&after), "the restart is not to be seen in the status");
    assert_eq!(shared.lines("log"), ["up"]);
    let logs = kubectl.run(&["logs", "steady"]).await?;
    assert_eq!(logs, "");
    kubectl.run(&["delete", "pod", "steady"]).await?;
    Ok(())
}

/// Every pod gets its grace, then nothing of the instance is left on the machine but its files.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_after_adieu_down() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    create(&instance, &shared, "one", busybox("one", 30, script, &shared)).await?;
    ensure!(!leftovers::find(&instance)?.is_empty(), "the search for leftovers finds what is there now");
    let said = instance.down().await?;
    ensure!(said.contains("every pod has left") && said.contains("adieu is down"), "{said}");
    assert_eq!(shared.lines("log"), ["up", "TERM"], "the pod was asked politely");
    assert_eq!(leftovers::find(&instance)?, Vec::<String>::new());

    // Stored objects stay: the pod is there, and says why it ended.
    instance.up().await?;
    let pod = pods(&instance).await?.get("one").await?;
    let status = pod.status.context("a status")?;
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Terminated")));
    Ok(())
}

/// The same when the instance was killed: `adieu down` does it by itself.
#[tokio::test(flavor = "multi_thread")]
async fn adieu_down_finishes_what_a_crash_left() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    create(&instance, &shared, "left", busybox("left", 30, script, &shared)).await?;
    instance.kill_9().await?;
    instance.down().await?;
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    assert_eq!(leftovers::find(&instance)?, Vec::<String>::new());
    Ok(())
}
