//! Pods that are over, or waiting, when the agent is killed: they stay what they were.

use anyhow::{Result, ensure};
use e2e::complaints::{self, AFTER_A_CRASH};
use e2e::pods::{PodWatch, phase};
use e2e::stage::{PATIENCE, Stage};
use e2e::story::{Actor, POLITE};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

/// What people can see of the ends of these pods, and of their beginnings.
fn shown() -> [&'static str; 7] {
    let columns = "custom-columns=NAME:.metadata.name,UID:.metadata.uid,DELETED:.metadata.deletionTimestamp,PHASE:.status.phase,\
                   CONDITIONS:.status.conditions,STATES:.status.containerStatuses[*].state,\
                   IDS:.status.containerStatuses[*].containerID,RESTARTS:.status.containerStatuses[*].restartCount,\
                   INIT:.status.initContainerStatuses[*].state";
    ["get", "pods", "done", "held", "begun", "--output", columns]
}

/// All is said about a pod that has succeeded when its sandbox is gone.
fn is_cleared(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let gone = conditions.any(|it| it.type_ == "PodReadyToStartContainers" && it.status == "False");
    gone && phase(pod) == Some("Succeeded")
}

/// The node has deleted the object, as far as it can.
fn let_go(pod: &Pod) -> bool {
    pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// [NT-140] What is done is not done again; what was only waiting for somebody else to let it go goes when they
/// do; and nobody's init container runs a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_repeats_nothing() -> Result<()> {
    let mut stage = Stage::set().await?;
    let mut done = stage.pod("done")?.never_restarts().main("app", "say up").create().await?;
    let held = stage.pod("held")?.metadata("finalizers", json!(["example.com/hold"]));
    let mut held = held.main("app", POLITE).run().await?;
    let begun = stage.pod("begun")?.init("setup", "say done").sidecar("side", POLITE).main("app", POLITE).run().await?;
    done.watch.until("Succeeded", is_cleared).await?;
    held.delete(&[]).await?;
    held.watch.until("Succeeded", |pod| is_cleared(pod) && let_go(pod)).await?;
    let logs = [done, held, begun].map(|Actor { name, shared, .. }| (name, shared));
    let said: Vec<usize> = logs.iter().map(|(_, shared)| shared.lines("log").len()).collect();
    assert_eq!(said, [1, 2, 3]);
    let before = stage.kubectl(&shown()).await?;

    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    stage.client = stage.instance.client().await?;
    // Whoever comes afterwards is told of after all that there was to do.
    stage.all_told("done").await?;
    assert_eq!(before, stage.kubectl(&shown()).await?);
    for ((name, shared), said) in logs.iter().zip(said) {
        ensure!(shared.lines("log").len() == said, "{name}: {:?}", shared.lines("log"));
    }
    let mut watch = PodWatch::on(&stage.client, "held").await?.patient(PATIENCE);
    stage.kubectl(&["patch", "pod", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).await?;
    watch.gone(PATIENCE).await?;
    stage.kubectl(&["delete", "pods", "--all"]).await?;
    complaints::ensure_none(&stage.instance, AFTER_A_CRASH)
}
