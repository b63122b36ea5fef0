//! A node that is short of something: who has to go, what everyone is told, and how it gets better.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::complaints::Expected;
use e2e::pods::{PodWatch, busybox, is_ready, phase};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::Value;

async fn create(instance: &Instance, manifest: Value) -> Result<PodWatch> {
    let pod: Pod = serde_json::from_value(manifest)?;
    let watch = PodWatch::on(&instance.client().await?, pod.metadata.name.as_deref().unwrap()).await?;
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    pods.create(&PostParams::default(), &pod).await?;
    Ok(watch)
}

/// Whether the node says that its disk is full, and whether it keeps pods away for that.
async fn disk_pressure(instance: &Instance) -> Result<(bool, bool)> {
    let node = Api::<Node>::all(instance.client().await?).get(instance.node_name()).await?;
    let conditions = node.status.context("a status")?.conditions.context("conditions")?;
    let says = conditions.iter().any(|it| it.type_ == "DiskPressure" && it.status == "True");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    Ok((says, taints.iter().any(|it| it.key == "node.kubernetes.io/disk-pressure")))
}

/// The pod that fills the disk is evicted and says why, those within what they asked for stay; nobody comes
/// while the pressure lasts, and who waited comes when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_the_pod_that_filled_it() -> Result<()> {
    const OPTIONS: &[&str] = &["--eviction-hard", "nodefs.available<100Mi", "--eviction-linger", "12"];
    const LOW: &[Expected] =
        &[Expected { text: "the node is low on something; a pod has to go", because: "this is what is tried" }];
    let instance = Instance::start_on_small_disk(256, OPTIONS).await?;
    let shared = Shared::new()?;
    let quiet = "trap 'exit 0' TERM; echo up >> /shared/quiet; sleep 1000 & wait";
    let mut modest = busybox("modest", 30, quiet, &shared);
    modest["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "1Mi".into();
    let mut modest = create(&instance, modest).await?;
    let greedy = "trap 'echo TERM >> /shared/log; exit 0' TERM; read word < /shared/gate; \
                  dd if=/dev/zero of=/filled bs=1M count=180; echo full >> /shared/log; sleep 1000 & wait";
    let mut greedy = create(&instance, busybox("greedy", 600, greedy, &shared)).await?;
    modest.ready().await?;
    greedy.ready().await?;
    assert_eq!(disk_pressure(&instance).await?, (false, false));
    let kubectl = Kubectl::newest(&instance)?;
    let mut told = kubectl.follow(&["get", "events", "-w", "--no-headers", "--field-selector=reason=Evicted"])?;

    shared.open_gate().await?;
    greedy.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    let pod = greedy.last.take().unwrap();
    let status = pod.status.as_ref().unwrap();
    let message = status.message.as_deref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    ensure!(
        message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: ")
            && message.contains(". Container app was using ")
            && message.ends_with(", request is 0, has larger consumption of ephemeral-storage. "),
        "{message:?}"
    );
    let target = status.conditions.iter().flatten().find(|it| it.type_ == "DisruptionTarget").context("disrupted")?;
    assert_eq!((target.reason.as_deref(), target.message.as_deref()), (Some("TerminationByKubelet"), Some(message)));
    assert_eq!(shared.lines("log").last().map(String::as_str), Some("TERM"), "it was asked, if only for a second");
    let event = told.next().await?;
    ensure!(event.contains("Warning") && event.contains("The node was low on resource: ephemeral-storage."), "{event}");
    assert_eq!(disk_pressure(&instance).await?, (true, true), "the pressure is said to last for a while");

    // Nobody is sent to a node that is short of something; whoever waits comes as soon as it is not.
    let mut late = create(&instance, busybox("late", 1, quiet, &shared)).await?;
    let waits = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let words = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.";
        conditions.into_iter().any(|it| {
            (&*it.type_, it.reason.as_deref(), it.message.as_deref())
                == ("PodScheduled", Some("Unschedulable"), Some(words))
        })
    };
    late.until("Unschedulable", waits).await?;
    late.ready().await?;
    assert_eq!(disk_pressure(&instance).await?, (false, false));
    ensure!(is_ready(modest.last.as_ref().unwrap()));
    assert_eq!(shared.wait_lines("quiet", 2).await?.len(), 2, "the modest pod ran on");
    complaints::ensure_none(&instance, LOW)
}
