//! Claims and their volumes, with stock kubectl and a real disk: what is written is there for the next pod, goes with its claim, and
//! leads nowhere else.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::{Instance, Kubectl};
use serde_json::{Value, json};

fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "64Mi" } } } })
}

/// A pod that has the claim `data` at `/data` and does `script`, then waits.
fn pod(name: &str, script: &str, mounts: Value, volumes: Value) -> Value {
    let mut all_mounts = vec![json!({ "name": "data", "mountPath": "/data" })];
    all_mounts.extend(mounts.as_array().into_iter().flatten().cloned());
    let mut all_volumes = vec![json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data" } })];
    all_volumes.extend(volumes.as_array().into_iter().flatten().cloned());
    let script = format!("set -e\n{script}\ntouch /tmp/done\ntrap 'exit 0' TERM\nwhile true; do sleep 0.1; done");
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 2, "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{ "name": "app", "image": "busybox", "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script], "volumeMounts": all_mounts,
                "readinessProbe": { "exec": { "command": ["test", "-e", "/tmp/done"] }, "periodSeconds": 1 } }],
            "volumes": all_volumes } })
}

/// The directories of volumes on the host.
fn directories(instance: &Instance) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(instance.dir().join("volumes"))? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?.to_string_lossy();
        if !name.starts_with('.') {
            found.push(path);
        }
    }
    Ok(found)
}

async fn is_ready(kubectl: &Kubectl, pod: &str) -> Result<()> {
    let waited = kubectl.run(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{pod}")]).await;
    if waited.is_err() {
        let seen = kubectl.run(&["describe", "pod,pvc,pv"]).await?;
        waited.context(seen)?;
    }
    Ok(())
}

/// [WL-158] The claim's data outlives its pods and the platform, and goes with the claim; links in it lead nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn volume_outlives_its_pods_goes_with_its_claim_and_its_links_lead_nowhere() -> Result<()> {
    let mut instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let outside = instance.dir().join("outside");
    std::fs::create_dir(&outside)?;
    std::fs::write(outside.join("secret"), "kept")?;
    kubectl.apply(&claim("data")).await?;
    let classes = kubectl.run(&["get", "storageclass"]).await?;
    ensure!(classes.contains("local-path (default)") && classes.contains("adieu.dev/local-path"), "{classes}");

    // Everything that a hostile pod can put into its volume.
    let links = format!(
        "echo one > /data/file; mkdir -p /data/deep; ln -s {0} /data/absolute; ln -s ../../outside /data/relative; \
         ln -s / /data/root; ln -s {0}/secret /data/deep/secret; ln -s ../../.. /data/deep/up",
        outside.display()
    );
    kubectl.apply(&pod("writer", &links, json!([]), json!([]))).await?;
    is_ready(&kubectl, "writer").await?;
    let seen = kubectl.run(&["get", "pvc,pv"]).await?;
    ensure!(seen.contains("Bound") && seen.contains("local-path") && seen.contains("default/data"), "{seen}");
    let made = directories(&instance)?;
    ensure!(made.len() == 1 && std::fs::read_to_string(made[0].join("file"))? == "one\n", "{made:?}");
    kubectl.run(&["delete", "pod", "writer"]).await?;

    // Its successor finds it, cannot write what it has read-only, and has a volume of its own besides.
    let mounts = json!([{ "name": "again", "mountPath": "/again" }, { "name": "own", "mountPath": "/own" },
        { "name": "data", "mountPath": "/part", "subPath": "deep/new" }]);
    let template = json!({ "spec": claim("own")["spec"] });
    let volumes = json!([{ "name": "again", "persistentVolumeClaim": { "claimName": "data", "readOnly": true } },
        { "name": "own", "ephemeral": { "volumeClaimTemplate": template } }]);
    let script =
        "grep one /data/file; ! touch /again/x; test ! -e /data/absolute; echo two > /own/file; echo 3 > /part/file";
    kubectl.apply(&pod("reader", script, mounts, volumes)).await?;
    is_ready(&kubectl, "reader").await?;
    ensure!(made[0].join("deep/new/file").exists());
    ensure!(directories(&instance)?.len() == 2, "{:?}", directories(&instance)?);
    // A part of the volume that is a link out of it is not shown.
    let escape = json!([{ "name": "data", "mountPath": "/escape", "subPath": "root" }]);
    kubectl.apply(&pod("escape", "ls /escape", escape, json!([]))).await?;
    let waiting = "jsonpath={.status.containerStatuses[0].state.terminated.reason}=StartError";
    let refused = kubectl.run(&["wait", &format!("--for={waiting}"), "--timeout=60s", "pod/escape"]).await;
    if refused.is_err() {
        refused.context(kubectl.run(&["describe", "pod", "escape"]).await?)?;
    }
    kubectl.run(&["delete", "pod", "escape", "reader"]).await?;
    kubectl.run(&["wait", "--for=delete", "--timeout=60s", "pvc/reader-own"]).await?;

    // All of it again after everything was down.
    instance.down().await?;
    instance.up().await?;
    kubectl.apply(&pod("third", "grep one /data/file", json!([]), json!([]))).await?;
    is_ready(&kubectl, "third").await?;
    // [WL-158] The claim stays while a pod has it; then claim, volume and directory go.
    kubectl.run(&["delete", "pvc", "data", "--wait=false"]).await?;
    ensure!(kubectl.run(&["get", "pvc", "data"]).await?.contains("Terminating"));
    ensure!(made[0].join("file").exists());
    kubectl.run(&["delete", "pod", "third"]).await?;
    kubectl.run(&["wait", "--for=delete", "--timeout=60s", "pvc/data"]).await?;
    kubectl.run(&["wait", "--for=delete", "--timeout=60s", "pv", "--all"]).await?;
    ensure!(directories(&instance)?.is_empty(), "{:?}", directories(&instance)?);
    ensure!(std::fs::read_to_string(outside.join("secret"))? == "kept");
    emptied(&instance.dir().join("volumes/.trash")).await?;
    ensure!(std::fs::read_to_string(outside.join("secret"))? == "kept");
    instance.down().await?;
    Ok(())
}

/// Waits until nothing is left of what was given up.
async fn emptied(trash: &Path) -> Result<()> {
    let waiting = async {
        while std::fs::read_dir(trash)?.next().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(e2e::pods::SOON, waiting).await.context("the trash is not emptied")?
}
