//! Pods whose files cannot be taken away, because somebody's mount is upon them: what is in the way is told, and whoever waits for
//! it goes on as soon as it is gone, or when its time has come.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use e2e::pods::{PodWatch, SOON, busybox, is_ready, phase, terminated};
use e2e::stage::Stage;
use e2e::{Instance, Shared, complaints};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::Value;

/// A mount upon a folder, which can be neither moved nor removed meanwhile.
struct MountedUpon(PathBuf);

impl MountedUpon {
    /// Upon what an instance keeps of the pod with this UID.
    fn pod(instance: &Instance, uid: &str) -> Result<Self> {
        let folder = instance.dir().join("pods").join(uid);
        mount_bind(&folder, &folder)?;
        Ok(Self(folder))
    }
}

impl Drop for MountedUpon {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Says which version it is, and leaves politely.
fn polite(version: &str) -> String {
    format!(
        "trap 'echo {version} TERM >> /shared/log; exit 0' TERM; echo {version} up >> /shared/log; sleep 1000 & wait"
    )
}

fn blocked(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "adieu.dev/TerminationBlocked")
}

/// [NT-62] Neither how it ended nor what is in the way is hidden, and the object stays until the way is free.
#[tokio::test(flavor = "multi_thread")]
async fn stuck_sandbox_removal_keeps_exit_status_and_cause_visible() -> Result<()> {
    let stage = Stage::set().await?;
    let shared = Shared::new()?;
    let mut watch = PodWatch::on(&stage.client, "web").await?;
    stage.apply(&busybox("web", 60, &polite("web"), &shared)).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    let uid = stage.pods().get("web").await?.metadata.uid.context("a UID")?;
    let upon = MountedUpon::pod(&stage.instance, &uid)?;
    stage.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
    let stuck = watch.until_one("what is in the way", |pod| blocked(pod).is_some_and(|it| it.status == "True")).await?;
    assert_eq!(phase(&stuck), Some("Succeeded"));
    assert_eq!(terminated(&stuck).map(|end| end.exit_code), Some(0));
    assert_eq!(blocked(&stuck).unwrap().reason.as_deref(), Some("SandboxNotRemoved"));
    let why = stage.told("web", "FailedKillPod").await?;
    assert!(why.contains("cannot remove the pod's control groups and files"), "{why}");
    stage.pods().get("web").await.context("it is still shown")?;
    drop(upon);
    watch.gone(SOON).await?;
    complaints::ensure_none(&stage.instance, &[])
}

/// [NT-136] The next version of a static pod waits until nothing of the last one is left, and then runs.
#[tokio::test(flavor = "multi_thread")]
async fn static_pod_successor_waits_for_a_stuck_removal() -> Result<()> {
    let stage = Stage::set().await?;
    let shared = Shared::new()?;
    let manifests = stage.instance.dir().join("manifests");
    let put = |version: &str| -> Result<()> {
        fs::write(manifests.join(".web.json"), busybox("web", 60, &polite(version), &shared).to_string())?;
        Ok(fs::rename(manifests.join(".web.json"), manifests.join("web.json"))?)
    };
    let name = format!("web-{}", stage.instance.node_name());
    let hash = |pod: &Pod| pod.metadata.annotations.as_ref()?.get("kubernetes.io/config.hash").cloned();
    let mut watch = PodWatch::on(&stage.client, &name).await?;
    put("v1")?;
    let first = hash(&watch.until_one("the first", is_ready).await?).context("a hash")?;
    shared.wait_lines("log", 1).await?;
    let upon = MountedUpon::pod(&stage.instance, &first)?;
    put("v2")?;
    stage.told(&name, "FailedKillPod").await?;
    assert_eq!(shared.lines("log"), ["v1 up", "v1 TERM"]);
    drop(upon);
    watch.until_one("the second", |pod| is_ready(pod) && hash(pod).is_some_and(|hash| hash != first)).await?;
    assert_eq!(shared.wait_lines("log", 3).await?, ["v1 up", "v1 TERM", "v2 up"]);
    complaints::ensure_none(&stage.instance, &[])
}

/// [NT-154] In a shutdown whoever cannot be removed holds up the others no longer than its group may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_pod_does_not_hold_up_a_shutdown() -> Result<()> {
    let grace = ["--shutdown-grace", "5", "--shutdown-grace-critical", "2"];
    let mut stage = Stage::on(Instance::start_with(&grace).await?).await?;
    let shared = Shared::new()?;
    let web = busybox("web", 60, &polite("web"), &shared);
    let mut vital: Value = busybox("vital", 60, &polite("vital"), &shared);
    vital["spec"]["priorityClassName"] = "system-node-critical".into();
    for (name, manifest) in [("web", &web), ("vital", &vital)] {
        let mut watch = PodWatch::on(&stage.client, name).await?;
        stage.apply(manifest).await?;
        watch.ready().await?;
    }
    shared.wait_lines("log", 2).await?;
    let uid = stage.pods().get("web").await?.metadata.uid.context("a UID")?;
    let upon = MountedUpon::pod(&stage.instance, &uid)?;
    stage.instance.power_fails()?;
    stage.instance.ended().await?;
    assert_eq!(shared.lines("log")[2..], ["web TERM", "vital TERM"]);
    drop(upon);
    stage.instance.up().await?;
    for name in ["web", "vital"] {
        let pod = stage.pods().get(name).await?;
        assert_eq!(terminated(&pod).map(|end| end.exit_code), Some(0), "{name}");
    }
    complaints::ensure_none(&stage.instance, &[])
}
