//! Pods that cannot begin yet, and say why: no node will have them.

use anyhow::{Result, ensure};
use e2e::stage::Stage;
use e2e::story::POLITE;
use serde_json::json;

/// A node that nobody may be sent to, one that is full, one that is tainted: each is told as Kubernetes tells it, and
/// whoever waited comes as soon as that is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_a_node_and_says_why() -> Result<()> {
    let stage = &Stage::set().await?;
    let node = stage.instance.node_name().to_owned();
    let says = async |name: &str, expected: &str| {
        let told = stage.told(name, "FailedScheduling").await?;
        ensure!(told.starts_with(&format!("0/1 nodes are available: {expected}.")), "{told}");
        Ok(())
    };

    stage.kubectl(&["cordon", &node]).await?;
    let mut cordoned = stage.pod("cordoned")?.grace(30).main("app", POLITE).create().await?;
    says("cordoned", "1 node(s) were unschedulable").await?;
    stage.kubectl(&["uncordon", &node]).await?;
    cordoned.watch.ready().await?;
    stage.told("cordoned", "Scheduled").await?;

    let huge = json!({ "requests": { "cpu": "100k", "memory": "1Pi" } });
    let huge = stage.pod("huge")?.main("app", POLITE).with("resources", huge).create().await?;
    says("huge", "1 Insufficient cpu, 1 Insufficient memory").await?;

    stage.kubectl(&["taint", "node", &node, "house=full:NoSchedule"]).await?;
    let mut shy = stage.pod("shy")?.main("app", POLITE).create().await?;
    says("shy", "1 node(s) had untolerated taint {house: full}").await?;
    let tolerations = json!([{ "key": "house", "operator": "Exists", "effect": "NoSchedule" }]);
    stage.pod("bold")?.spec("tolerations", tolerations).main("app", POLITE).run().await?;
    let table = stage.kubectl(&["get", "pod", "shy", "huge"]).await?;
    ensure!(table.matches("Pending").count() == 2, "{table}");
    stage.kubectl(&["taint", "node", &node, "house-"]).await?;
    shy.hears("app up").await?;
    shy.watch.ready().await?;
    huge.said_only(&[])?;
    stage.kubectl(&["delete", "pod", "--all"]).await?;
    e2e::complaints::ensure_none(&stage.instance, &[])
}
