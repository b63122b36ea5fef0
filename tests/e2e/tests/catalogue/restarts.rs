//! Pods that are over, or waiting, when the agent is killed: they stay what they were.

use anyhow::{Result, ensure};
use e2e::complaints::{self, AFTER_A_CRASH};
use e2e::pods::{PodWatch, phase};
use e2e::stage::{PATIENCE, Stage};
use e2e::story::{Actor, POLITE};
use serde_json::json;

/// [NT-140] What is done is not done again; what was only waiting for somebody else to let it go goes when they
/// do; and nobody's init container runs a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_repeats_nothing() -> Result<()> {
    let mut stage = Stage::set().await?;
    let mut done = stage.pod("done")?.never_restarts().main("app", "say up").create().await?;
    let held = stage.pod("held")?.metadata("finalizers", json!(["example.com/hold"]));
    let mut held = held.main("app", POLITE).run().await?;
    let begun = stage.pod("begun")?.init("setup", "say done").sidecar("side", POLITE).main("app", POLITE).run().await?;
    done.watch.until("Succeeded", |pod| phase(pod) == Some("Succeeded")).await?;
    held.delete(&[]).await?;
    held.watch.until("Succeeded", |pod| phase(pod) == Some("Succeeded")).await?;
    let logs = [done, held, begun].map(|Actor { name, shared, .. }| (name, shared));
    let said: Vec<usize> = logs.iter().map(|(_, shared)| shared.lines("log").len()).collect();
    assert_eq!(said, [1, 2, 3]);
    let before = stage.kubectl(&["get", "pods", "-o", "json"]).await?;

    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    stage.client = stage.instance.client().await?;
    // Whoever comes afterwards is told of after all that there was to do.
    stage.all_told("done").await?;
    let after = stage.kubectl(&["get", "pods", "done", "held", "begun", "-o", "json"]).await?;
    for name in ["done", "held", "begun"] {
        let of = |text: &str| -> Result<serde_json::Value> {
            let list: serde_json::Value = serde_json::from_str(text)?;
            let pod = list["items"].as_array().and_then(|all| all.iter().find(|pod| pod["metadata"]["name"] == name));
            Ok(pod.cloned().unwrap_or_default())
        };
        assert_eq!(of(&before)?, of(&after)?, "{name}");
    }
    for ((name, shared), said) in logs.iter().zip(said) {
        ensure!(shared.lines("log").len() == said, "{name}: {:?}", shared.lines("log"));
    }
    let mut watch = PodWatch::on(&stage.client, "held").await?.patient(PATIENCE);
    stage.kubectl(&["patch", "pod", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).await?;
    watch.gone(PATIENCE).await?;
    stage.kubectl(&["delete", "pods", "--all"]).await?;
    complaints::ensure_none(&stage.instance, AFTER_A_CRASH)
}
