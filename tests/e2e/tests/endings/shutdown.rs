//! The machine goes down: who leaves when, what others see of it, and what is found afterwards.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::complaints::Expected;
use e2e::logind::Logind;
use e2e::pods::{PodWatch, busybox, is_ready, phase, terminated};
use e2e::{Instance, Shared, complaints};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodCondition};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

const CALLED_OFF: Expected =
    Expected { text: "the shutdown of the machine was called off", because: "that is what the story tells" };

const SLOW: Expected = Expected {
    text: "the node's conditions could not be stored in time",
    because: "pods are asked to leave after a second of waiting for that, on a machine however busy",
};

async fn pods(instance: &Instance) -> Result<Api<Pod>> {
    Ok(Api::namespaced(instance.client().await?, "default"))
}

async fn create(instance: &Instance, manifest: Value) -> Result<PodWatch> {
    let pod: Pod = serde_json::from_value(manifest)?;
    let watch = PodWatch::on(&instance.client().await?, pod.metadata.name.as_deref().unwrap()).await?;
    pods(instance).await?.create(&PostParams::default(), &pod).await?;
    Ok(watch)
}

/// Notes its name, on TERM notes that too, does `then`, and ends well.
fn polite(name: &str, then: &str) -> String {
    format!(
        "trap 'echo {name} TERM >> /shared/log; {then}; exit 0' TERM; echo {name} up >> /shared/log; sleep 1000 & wait"
    )
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

async fn node_ready(instance: &Instance) -> Result<(String, String)> {
    let node = Api::<Node>::all(instance.client().await?).get(instance.node_name()).await?;
    let conditions = node.status.context("a status")?.conditions.context("conditions")?;
    let ready = conditions.into_iter().find(|it| it.type_ == "Ready").context("Ready")?;
    Ok((ready.status, ready.message.unwrap_or_default()))
}

/// [NT-152] [NT-156] Ordinary pods leave first and are withdrawn before, critical ones when they are gone; a newcomer is
/// turned away; pods that somebody will replace are deleted, the others say why they ended.
#[tokio::test(flavor = "multi_thread")]
async fn critical_pods_outlive_the_others_in_a_shutdown() -> Result<()> {
    let mut instance = Instance::start_with(&["--shutdown-grace", "120", "--shutdown-grace-critical", "60"]).await?;
    let shared = Shared::new()?;
    let mut web = create(&instance, busybox("web", 600, &polite("web", "read word < /shared/gate"), &shared)).await?;
    let mut vital = busybox("vital", 600, &polite("vital", "true"), &shared);
    vital["spec"]["priorityClassName"] = "system-node-critical".into();
    let mut vital = create(&instance, vital).await?;
    let maps: Api<ConfigMap> = Api::namespaced(instance.client().await?, "default");
    let owner = serde_json::from_value(json!({ "metadata": { "name": "owner" } }))?;
    let owner = maps.create(&PostParams::default(), &owner).await?;
    let mut owned = busybox("owned", 600, &polite("owned", "true"), &shared);
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid, "controller": true,
    }]);
    let mut owned = create(&instance, owned).await?;
    for watch in [&mut web, &mut vital, &mut owned] {
        watch.ready().await?;
    }
    shared.wait_lines("log", 3).await?;

    instance.power_fails()?;
    let said = shared.wait_lines("log", 5).await?;
    ensure!(said[3..].contains(&"web TERM".to_owned()) && said[3..].contains(&"owned TERM".to_owned()), "{said:?}");
    let (_, last) = owned.gone(e2e::pods::SOON).await?;
    assert_eq!(last.metadata.deletion_grace_period_seconds, Some(0), "it was deleted");
    web.until("not Ready", |pod| !is_ready(pod)).await?;
    let leaving = web.last.as_ref().unwrap();
    assert_eq!((phase(leaving), &leaving.metadata.deletion_timestamp), (Some("Running"), &None));
    node_until(&instance, "False").await?;
    assert_eq!(node_ready(&instance).await?.1, "node is shutting down");
    let mut late = busybox("late", 1, "sleep 1000", &shared);
    late["spec"]["nodeName"] = instance.node_name().into();
    let mut late = create(&instance, late).await?;
    late.until("turned away", |pod| phase(pod) == Some("Failed")).await?;
    let status = late.last.unwrap().status.unwrap();
    let words = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("NodeShutdown"), Some(words)));
    assert_eq!(shared.lines("log").len(), 5, "the critical pod serves until the others are gone");
    ensure!(is_ready(vital.last.as_ref().unwrap()));

    shared.open_gate().await?;
    instance.ended().await?;
    assert_eq!(shared.lines("log").last().map(String::as_str), Some("vital TERM"));
    instance.up().await?;
    for name in ["web", "vital"] {
        let pod = pods(&instance).await?.get(name).await?;
        let status = pod.status.as_ref().unwrap();
        assert_eq!((phase(&pod), status.reason.as_deref()), (Some("Failed"), Some("Terminated")), "{name}");
        let words = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(status.message.as_deref(), Some(words));
        assert_eq!(terminated(&pod).unwrap().exit_code, 0, "how it ended is told as it was");
        let target = condition(&pod, "DisruptionTarget").context("it was disrupted")?;
        assert_eq!((&*target.status, target.reason.as_deref()), ("True", Some("TerminationByKubelet")));
    }
    assert_eq!(node_ready(&instance).await?.0, "True");
    complaints::ensure_none(&instance, &[SLOW])
}

/// Whatever a pod asks for, it has what the shutdown leaves it; and the next group comes then.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_takes_no_longer_than_it_may() -> Result<()> {
    let mut instance = Instance::start_with(&["--shutdown-grace", "5", "--shutdown-grace-critical", "2"]).await?;
    let shared = Shared::new()?;
    let deaf =
        "trap 'echo deaf TERM >> /shared/log' TERM; echo up >> /shared/log; while :; do sleep 1000 & wait $!; done";
    let mut watch = create(&instance, busybox("deaf", 600, deaf, &shared)).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    let began = Instant::now();
    instance.power_fails()?;
    instance.ended().await?;
    // It had not the ten minutes that it asked for: nobody waited for those.
    let took = began.elapsed();
    ensure!(took >= Duration::from_secs(3), "it had less than its group may take: {took:?}");
    assert_eq!(shared.lines("log"), ["up", "deaf TERM"]);
    instance.up().await?;
    let pod = pods(&instance).await?.get("deaf").await?;
    assert_eq!(terminated(&pod).unwrap().exit_code, 137);
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("Terminated"));
    complaints::ensure_none(&instance, &[SLOW])
}

/// [NT-155] Without time set aside a machine that goes down does not take its pods with it: they are left as they are. More time
/// for critical pods than for all of them is refused.
#[tokio::test(flavor = "multi_thread")]
async fn shutdown_without_grace_touches_no_pod() -> Result<()> {
    const NO_TIME: complaints::Expected =
        complaints::Expected { text: "no time is set aside for pods", because: "none is" };
    let none = ["--shutdown-grace", "0", "--shutdown-grace-critical", "0"];
    let mut instance = Instance::start_with(&none).await?;
    let shared = Shared::new()?;
    let mut web = create(&instance, busybox("web", 600, &polite("web", "true"), &shared)).await?;
    web.ready().await?;
    shared.wait_lines("log", 1).await?;
    instance.power_fails()?;
    instance.ended().await?;
    let wrong = ["up", "--shutdown-grace", "5", "--shutdown-grace-critical", "6"];
    let output = instance.adieu(&wrong).output().await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains("6 s are more than all of --shutdown-grace, 5 s"), "{said}");
    instance.up().await?;
    ensure!(is_ready(&pods(&instance).await?.get("web").await?));
    assert_eq!(node_ready(&instance).await?.0, "True");
    assert_eq!(shared.lines("log"), ["web up"], "it never noticed");
    complaints::ensure_none(&instance, &[NO_TIME])
}

/// Who is asked how an instance is names the pods that are leaving, and tells when nobody is there to look after them.
#[tokio::test(flavor = "multi_thread")]
async fn status_names_leaving_and_remaining_pods() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let mut slow =
        create(&instance, busybox("slow", 600, &polite("slow", "read word < /shared/gate"), &shared)).await?;
    slow.ready().await?;
    shared.wait_lines("log", 1).await?;
    pods(&instance).await?.delete("slow", &kube::api::DeleteParams::default()).await?;
    shared.wait_lines("log", 2).await?;
    let status = instance.adieu(&["status"]).output().await?;
    let text = String::from_utf8(status.stdout)?;
    ensure!(text.contains(&format!("  node  {}: ready\n", instance.node_name())), "{text}");
    ensure!(text.contains("  pods  1: 1 leaving\n        default/slow is leaving: 9 min "), "{text}");

    instance.kill_9().await?;
    let status = instance.adieu(&["status"]).output().await?;
    let text = String::from_utf8(status.stdout)?;
    ensure!(status.status.code() == Some(3) && text.contains("1 of its pods may still run"), "{text}");
    instance.up().await?;
    let mut slow = PodWatch::on(&instance.client().await?, "slow").await?;
    shared.open_gate().await?;
    slow.gone(e2e::pods::SOON).await?;
    complaints::ensure_none(&instance, &[])
}

/// Waits until the instance has taken so many locks of logind since it was started.
async fn locks_taken(instance: &Instance, count: usize) -> Result<()> {
    let taken = async {
        while std::fs::read_to_string(instance.log())?.matches("logind waits for pods").count() < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(e2e::pods::SOON, taken).await.context("it holds no lock of logind")?
}

/// Waits until the node says this of itself.
async fn node_until(instance: &Instance, ready: &str) -> Result<()> {
    let shown = async {
        while node_ready(instance).await?.0 != ready {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(e2e::pods::SOON, shown).await.with_context(|| format!("Ready is not {ready}"))?
}

/// A machine that is asked to go down through logind waits until its pods have left, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn logind_waits_until_pods_have_left() -> Result<()> {
    let mut logind = Logind::start().await?;
    let options = ["--shutdown-grace", "90", "--shutdown-grace-critical", "10"];
    let mut instance = Instance::start_on_bus(&logind.address(), &options).await?;
    let shared = Shared::new()?;
    let script = polite("web", "read word < /shared/gate; echo web gone >> /shared/log");
    let mut web = create(&instance, busybox("web", 600, &script, &shared)).await?;
    web.ready().await?;
    shared.wait_lines("log", 1).await?;
    locks_taken(&instance, 1).await?;

    logind.reboot().await?;
    shared.wait_lines("log", 2).await?;
    ensure!(logind.hears_nothing(Duration::from_millis(500)).await, "the machine waits while a pod leaves");
    shared.open_gate().await?;
    ensure!(logind.hears().await? == "start reboot.target");
    ensure!(shared.lines("log") == ["web up", "web TERM", "web gone"], "{:?}", shared.lines("log"));
    web.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    // It stays, and says so, until it is told to stop.
    node_until(&instance, "False").await?;
    assert_eq!(node_ready(&instance).await?.1, "node is shutting down");
    instance.stop().await
}

/// [NT-153] A shutdown that is called off when every pod had left: the node is Ready again and takes on pods, what a manifest
/// asks for runs anew, and the next shutdown is waited for like the first. logind is real; who tells it that its job was
/// cancelled is the test's.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_shutdown_is_called_off_goes_on() -> Result<()> {
    let mut logind = Logind::start().await?;
    let options = ["--shutdown-grace", "90", "--shutdown-grace-critical", "10"];
    let mut instance = Instance::start_on_bus(&logind.address(), &options).await?;
    let shared = Shared::new()?;
    let manifest = busybox("fixed", 600, &polite("fixed", "true"), &shared);
    std::fs::write(instance.dir().join("manifests/fixed.yaml"), manifest.to_string())?;
    let mut web = create(&instance, busybox("web", 600, &polite("web", "true"), &shared)).await?;
    web.ready().await?;
    shared.wait_lines("log", 2).await?;
    locks_taken(&instance, 1).await?;

    logind.reboot().await?;
    ensure!(logind.hears().await? == "start reboot.target");
    web.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    node_until(&instance, "False").await?;
    let said = shared.lines("log");
    ensure!(said.len() == 4 && said[2..].contains(&"fixed TERM".to_owned()), "{said:?}");

    logind.cancel().await?;
    node_until(&instance, "True").await?;
    ensure!(shared.wait_lines("log", 5).await?[4] == "fixed up", "{:?}", shared.lines("log"));
    let mut next = create(&instance, busybox("next", 600, &polite("next", "true"), &shared)).await?;
    next.ready().await?;
    assert_eq!(phase(&pods(&instance).await?.get("web").await?), Some("Failed"), "what is over stays over");
    shared.wait_lines("log", 6).await?;
    locks_taken(&instance, 2).await?;

    logind.reboot().await?;
    ensure!(logind.hears().await? == "start reboot.target");
    let said = shared.lines("log");
    ensure!(said.len() == 8 && said[6..].contains(&"next TERM".to_owned()), "{said:?}");
    instance.stop().await?;
    complaints::ensure_none(&instance, &[CALLED_OFF, SLOW])
}

/// [NT-153] Called off while pods leave (logind had waited long enough): who was asked leaves, who was not stays and serves,
/// and the node is Ready again.
#[tokio::test(flavor = "multi_thread")]
async fn shutdown_called_off_midway_spares_pods_not_yet_asked() -> Result<()> {
    let mut logind = Logind::start_with(Duration::from_secs(1)).await?;
    let options = ["--shutdown-grace", "600", "--shutdown-grace-critical", "100"];
    let instance = Instance::start_on_bus(&logind.address(), &options).await?;
    let shared = Shared::new()?;
    let mut web = create(&instance, busybox("web", 600, &polite("web", "read word < /shared/gate"), &shared)).await?;
    let mut vital = busybox("vital", 600, &polite("vital", "true"), &shared);
    vital["spec"]["priorityClassName"] = "system-node-critical".into();
    let mut vital = create(&instance, vital).await?;
    for watch in [&mut web, &mut vital] {
        watch.ready().await?;
    }
    shared.wait_lines("log", 2).await?;
    locks_taken(&instance, 1).await?;

    logind.reboot().await?;
    shared.wait_lines("log", 3).await?;
    ensure!(logind.hears().await? == "start reboot.target", "logind does not wait for ever");
    logind.cancel().await?;
    locks_taken(&instance, 2).await?;
    node_until(&instance, "False").await.context("somebody is still leaving")?;
    shared.open_gate().await?;
    web.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    node_until(&instance, "True").await?;
    assert_eq!(shared.lines("log").last().map(String::as_str), Some("web TERM"), "the critical pod was not asked");
    ensure!(is_ready(&pods(&instance).await?.get("vital").await?));
    let mut next = create(&instance, busybox("next", 1, "sleep 1000", &shared)).await?;
    next.ready().await?;
    let short = Expected { text: "logind waits less than pods may take to leave", because: "this logind is impatient" };
    complaints::ensure_none(&instance, &[CALLED_OFF, SLOW, short])
}
