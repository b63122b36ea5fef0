//! What is told of a pod's end: the record, `adieu why`, `adieu timeline`, the node's metrics.

use anyhow::{Context, Result, ensure};
use e2e::Shared;
use e2e::complaints;
use e2e::pods::{PodWatch, SOON, busybox, with_pre_stop};
use e2e::stage::Stage;
use serde_json::{Value, json};

/// Leaves politely.
const POLITE: &str = "trap 'exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
/// Process 1 of its container, without a handler.
const DEAF: &str = "echo up >> /shared/log; exec sleep 1000";

/// The answer of `adieu why`.
async fn why(stage: &Stage, pod: &str) -> Result<Value> {
    let said = stage.instance.adieu(&["why", &format!("pod/{pod}"), "-o", "json"]).output().await?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Ok(serde_json::from_slice(&said.stdout)?)
}

/// Asks `adieu why` until it gives this reason: a stop signal is answered a moment after it is asked for.
async fn why_until(stage: &Stage, pod: &str, reason: &str) -> Result<Value> {
    let asking = async {
        loop {
            let answer = why(stage, pod).await?;
            if answer["reason"] == reason {
                return Ok(answer);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let answered = tokio::time::timeout(SOON, asking).await;
    answered.with_context(|| format!("{pod} is never {reason}"))?
}

/// The records of pods of this name.
async fn records(stage: &Stage, pod: &str) -> Result<Vec<Value>> {
    let said = stage.kubectl(&["get", "tr", "--field-selector", &format!("pod.name={pod}"), "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&said)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

async fn begun(stage: &Stage, manifest: &Value, shared: &Shared) -> Result<PodWatch> {
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let mut watch = PodWatch::on(&stage.client, name).await?;
    let before = shared.lines("log").len();
    stage.apply(manifest).await?;
    watch.ready().await?;
    shared.wait_lines("log", before + 1).await?;
    Ok(watch)
}

/// Who asked, with which grace, what was done and how it went is there after the pod, once.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_pod_leaves_one_record_that_kubectl_why_and_timeline_show() -> Result<()> {
    let stage = Stage::set().await?;
    let shared = Shared::new()?;
    let mut watch = begun(&stage, &busybox("web", 30, POLITE, &shared), &shared).await?;
    let alive = why(&stage, "web").await?;
    ensure!(alive["state"] == "Alive" && alive["reason"] == "Running", "{alive:#}");
    stage.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
    watch.gone(SOON).await?;
    let gone = why(&stage, "web").await?;
    ensure!(gone["state"] == "Gone" && gone["reason"] == "Recorded", "{gone:#}");
    let found = records(&stage, "web").await?;
    let [record] = found.as_slice() else { anyhow::bail!("{found:#?}") };
    ensure!(record["verdict"] == "clean" && record["cause"] == "Deleted", "{record:#}");
    ensure!(record["askedBy"] == "kubernetes-admin" && record["gracePeriodSeconds"] == 30, "{record:#}");
    ensure!(record["containers"][0]["exitCode"] == 0, "{record:#}");
    let shown = stage.kubectl(&["get", "tr"]).await?;
    let words: Vec<&str> =
        shown.lines().next().unwrap_or_default().split("  ").filter(|word| !word.is_empty()).map(str::trim).collect();
    ensure!(words == ["NAME", "POD", "VERDICT", "ASKED BY", "GRACE", "TOOK", "AGE"], "{shown}");
    let described = stage.kubectl(&["describe", "tr"]).await?;
    ensure!(described.contains("SIGTERM") && described.contains("every container left by itself"), "{described}");
    let drawn = stage.instance.adieu(&["timeline", "pod/web"]).output().await?;
    let drawn = String::from_utf8(drawn.stdout)?;
    ensure!(drawn.contains("stop app") && drawn.contains("the object is gone"), "{drawn}");
    let path = format!("/api/v1/nodes/{}/proxy/metrics", stage.instance.node_name());
    let counted = stage.kubectl(&["get", "--raw", &path]).await?;
    let line = "adieu_pod_terminations_total{verdict=\"clean\",cause=\"Deleted\"} 1";
    ensure!(counted.lines().any(|told| told == line), "{counted}");
    complaints::ensure_none(&stage.instance, &[])
}

/// A pod without a node is recorded by the server; nobody writes who asked but the server.
#[tokio::test(flavor = "multi_thread")]
async fn pod_that_never_had_a_node_is_recorded_and_its_requester_cannot_be_forged() -> Result<()> {
    let stage = Stage::set().await?;
    let shared = Shared::new()?;
    let mut manifest = busybox("lost", 30, POLITE, &shared);
    manifest["spec"]["nodeSelector"] = json!({ "nowhere": "true" });
    manifest["metadata"]["annotations"] = json!({ "adieu.dev/deletion-requests": "[{\"by\":\"mallory\"}]" });
    stage.apply(&manifest).await?;
    let answer = why_until(&stage, "lost", "Unschedulable").await?;
    ensure!(answer["state"] == "Alive", "{answer:#}");
    stage.kubectl(&["delete", "pod", "lost"]).await?;
    let found = records(&stage, "lost").await?;
    let [record] = found.as_slice() else { anyhow::bail!("{found:#?}") };
    ensure!(record["askedBy"] == "kubernetes-admin" && record["verdict"] == "clean", "{record:#}");
    complaints::ensure_none(&stage.instance, &[])
}

/// Each thing that holds up a pod is named while it does.
#[tokio::test(flavor = "multi_thread")]
async fn why_names_what_holds_up_a_leaving_pod() -> Result<()> {
    let stage = Stage::set().await?;
    let shared = Shared::new()?;

    // A process 1 without a handler.
    let mut watch = begun(&stage, &busybox("deaf", 300, DEAF, &shared), &shared).await?;
    stage.kubectl(&["delete", "pod", "deaf", "--wait=false"]).await?;
    let answer = why_until(&stage, "deaf", "SignalIgnored").await?;
    let because = answer["because"].as_str().unwrap_or_default();
    ensure!(because.contains("sleep (process 1 of container app) has no handler for SIGTERM"), "{answer:#}");
    ensure!(answer["details"][0].as_str().is_some_and(|asked| asked.contains("kubernetes-admin")), "{answer:#}");
    stage.kubectl(&["delete", "pod", "deaf", "--grace-period=1", "--wait=false"]).await?;
    watch.gone(SOON).await?;
    let found = records(&stage, "deaf").await?;
    ensure!(found.len() == 1 && found[0]["verdict"] == "forced", "{found:#?}");
    ensure!(found[0]["requests"].as_array().is_some_and(|all| all.len() == 2), "{found:#?}");

    // A hook.
    let hooked = with_pre_stop(busybox("hooked", 300, POLITE, &shared), "echo waiting; read line < /shared/gate");
    let mut watch = begun(&stage, &hooked, &shared).await?;
    stage.kubectl(&["delete", "pod", "hooked", "--wait=false"]).await?;
    why_until(&stage, "hooked", "HookRunning").await?;
    let drawn = stage.instance.adieu(&["timeline", "hooked"]).output().await?;
    let drawn = String::from_utf8(drawn.stdout)?;
    ensure!(drawn.contains("still leaving") && drawn.contains("run the preStop hook of app"), "{drawn}");
    shared.open_gate().await?;
    watch.gone(SOON).await?;

    // A finalizer.
    let mut kept = busybox("kept", 30, POLITE, &shared);
    kept["metadata"]["finalizers"] = json!(["example.com/backup"]);
    begun(&stage, &kept, &shared).await?;
    stage.kubectl(&["delete", "pod", "kept", "--wait=false"]).await?;
    let answer = why_until(&stage, "kept", "Finalizer").await?;
    ensure!(answer["because"].as_str().is_some_and(|text| text.contains("example.com/backup")), "{answer:#}");
    stage.kubectl(&["patch", "pod", "kept", "--type=merge", "-p", "{\"metadata\":{\"finalizers\":null}}"]).await?;

    // An image that is nowhere.
    let mut imageless = busybox("imageless", 30, POLITE, &shared);
    imageless["spec"]["containers"][0]["image"] = json!("127.0.0.1:1/nothing:1");
    stage.apply(&imageless).await?;
    let answer = why_until(&stage, "imageless", "ImagePull").await?;
    ensure!(answer["because"].as_str().is_some_and(|text| text.contains("127.0.0.1:1/nothing:1")), "{answer:#}");

    // Nobody.
    let answer = why(&stage, "nobody").await?;
    ensure!(answer["reason"] == "NotFound", "{answer:#}");
    complaints::ensure_none(&stage.instance, &[])
}
