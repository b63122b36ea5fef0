//! Images that were made to break out of their container: the pod says why it does not start, and the machine is as it was.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../../crates/runtime/tests/containers/registry_support/registry.rs"]
mod registry;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, busybox, waits_for};
use e2e::{Instance, Kubectl, Shared};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use registry::Registry;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const RANGE: &str = "must be between 0 and 2147483647";

/// A docker archive of one layer: busybox, and whatever is added to it.
fn archive(into: &Path, name: &str, user: &str, add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Result<PathBuf> {
    let program = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let program = std::fs::read(program.context("busybox-static is not installed")?)?;
    let mut layer = tar::Builder::new(Vec::new());
    file(&mut layer, "bin/sh", &program)?;
    file(&mut layer, "bin/sleep", &program)?;
    add(&mut layer);
    let layer = layer.into_inner()?;
    let hex = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let config = json!({
        "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
        "os": "linux",
        "config": { "Cmd": ["sh"], "User": user },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&layer))] },
    });
    let config = serde_json::to_vec(&config)?;
    let config_name = format!("{}.json", hex(&config));
    let manifest = json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut archive = tar::Builder::new(Vec::new());
    file(&mut archive, "layer.tar", &layer)?;
    file(&mut archive, &config_name, &config)?;
    file(&mut archive, "manifest.json", &serde_json::to_vec(&manifest)?)?;
    let path = into.join(format!("{}.tar", name.replace(['/', ':'], "-")));
    std::fs::write(&path, archive.into_inner()?)?;
    Ok(path)
}

fn file(archive: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(bytes.len() as u64);
    Ok(archive.append_data(&mut header, path, bytes)?)
}

fn pod(name: &str, image: &str, shared: &Shared, script: &str, security: Value) -> Value {
    let mut pod = busybox(name, 1, script, shared);
    pod["spec"]["containers"][0]["image"] = image.into();
    pod["spec"]["securityContext"] = security;
    pod
}

fn state(pod: &Pod) -> ContainerState {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    status.and_then(|status| status.state.clone()).unwrap_or_default()
}

/// Waits until the pod says why it does not start, in these words; it must never be seen to run.
async fn is_refused(watch: &mut PodWatch, reason: &str, words: &str) -> Result<()> {
    let holds = |pod: &Pod| {
        let told = state(pod).waiting.and_then(|waiting| waiting.message).unwrap_or_default();
        waits_for(pod, "app") == Some(reason) && told.contains(words)
    };
    let runs = |pod: &Pod| state(pod).running.is_some();
    watch.until(&format!("{reason}: {words}"), |pod| holds(pod) || runs(pod)).await?;
    let last = watch.last.as_ref().context("a pod")?;
    ensure!(holds(last), "it runs: {:?}", last.status);
    Ok(())
}

/// [SE-1] [SE-2] [SE-12] A root that leads procfs astray, and users that no process can be.
#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_hostile_image_says_why_it_does_not_start_and_never_runs() -> Result<()> {
    let core_pattern = || std::fs::read_to_string("/proc/sys/kernel/core_pattern");
    let before = core_pattern()?;
    let registry = Registry::start();
    let instance = Instance::start().await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    let place = tempfile::tempdir()?;

    let root = archive(place.path(), "hostile/root:1", "", |layer| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, "proc", "/").unwrap();
    })?;
    let loaded = instance.adieu(&["image", "load"]).arg(&root).output().await?;
    ensure!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let mut watch = PodWatch::on(&client, "root").await?;
    // Opened to be written, and left as it is.
    let script = "(: >>/../sys/kernel/core_pattern) && echo > /shared/escaped; sleep 1000";
    kubectl.apply(&pod("root", "hostile/root:1", &shared, script, json!({}))).await?;
    is_refused(&mut watch, "RunContainerError", "/proc of the image is a symbolic link").await?;

    // A number is refused with the image, by hand and by pull.
    let numbered = archive(place.path(), "hostile/user:1", "4294967295", |_| {})?;
    let refused = instance.adieu(&["image", "load"]).arg(&numbered).output().await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && said.contains(&format!("its user 4294967295 {RANGE}")), "{said}");
    registry.copy(&format!("docker-archive:{}", numbered.display()), "hostile/user:1");
    let mut watch = PodWatch::on(&client, "numbered").await?;
    let (image, not_root) = (registry.name("hostile/user:1"), json!({ "runAsNonRoot": true }));
    kubectl.apply(&pod("numbered", &image, &shared, "echo > /shared/escaped; sleep 1000", not_root)).await?;
    is_refused(&mut watch, "ErrImagePull", &format!("its user 4294967295 {RANGE}")).await?;

    // A name is looked up when the container starts.
    let named = archive(place.path(), "hostile/named:1", "app", |layer| {
        file(layer, "etc/passwd", b"app:x:4294967295:0::/:/bin/sh\n").unwrap();
    })?;
    let loaded = instance.adieu(&["image", "load"]).arg(&named).output().await?;
    ensure!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let mut watch = PodWatch::on(&client, "named").await?;
    let script = "echo > /shared/escaped; sleep 1000";
    kubectl.apply(&pod("named", "hostile/named:1", &shared, script, json!({}))).await?;
    is_refused(&mut watch, "RunContainerError", &format!("user 4294967295 {RANGE}")).await?;

    assert_eq!(core_pattern()?, before);
    ensure!(!Path::new(shared.path()).join("escaped").exists(), "a program of one of the images ran");
    Ok(())
}
