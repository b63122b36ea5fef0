//! What a user of the machine reaches of the pods on it: nothing, in whatever state the data directory was found.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, busybox};
use e2e::{Instance, Kubectl, Shared};
use serde_json::json;
use tokio::process::Command;

/// Runs a program as somebody who owns nothing on this machine.
async fn as_nobody(words: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new("setpriv");
    // `setpriv` itself keeps what root may until it runs another program; so that one runs ours.
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "env"]).args(words);
    let output = command.output().await?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// Every file below a directory that has this name.
fn named(below: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(named(&entry.path(), name)),
            _ if entry.file_name() == name => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// [SE-28] [SE-109] A pod leaves a set-user-id program in a volume, in its own layer and in a file of its pod; nobody but
/// root can run them from the host, though the data directory was made by somebody else, open to all.
#[tokio::test(flavor = "multi_thread")]
async fn set_user_id_program_of_a_pod_is_out_of_reach_of_users_of_the_machine() -> Result<()> {
    let mut instance = Instance::start_on_open_disk(512).await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    let script = "cp /bin/busybox /empty/busybox.planted && cp /bin/busybox /busybox.planted && chmod 4755 /empty/busybox.planted /busybox.planted && \
                  chmod 777 /empty && touch /shared/ready && sleep 1000";
    let mut pod = busybox("planter", 1, script, &shared);
    pod["spec"]["volumes"].as_array_mut().context("volumes")?.push(json!({ "name": "empty", "emptyDir": {} }));
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().context("mounts")?;
    mounts.push(json!({ "name": "empty", "mountPath": "/empty" }));
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({ "exec": { "command": ["test", "-e", "/shared/ready"] }, "periodSeconds": 1 });
    let mut watch = PodWatch::on(&client, "planter").await?;
    kubectl.apply(&pod).await?;
    watch.ready().await?;

    for again in [false, true] {
        let planted = named(instance.dir(), "busybox.planted");
        ensure!(planted.len() == 2, "the pod planted {planted:?}");
        for path in &planted {
            let mode = std::fs::metadata(path)?.permissions().mode();
            ensure!(mode & 0o4001 == 0o4001, "{} has mode {mode:o}", path.display());
            let (runs, said) = as_nobody(&[path.to_str().context("a path")?, "true"]).await?;
            ensure!(!runs && said.contains("Permission denied"), "again {again}: {} runs: {said}", path.display());
        }
        let dir = instance.dir().to_str().context("a path")?;
        let (_, seen) = as_nobody(&["find", dir]).await?;
        let seen: Vec<_> = seen.lines().filter(|line| !line.contains("Permission denied")).collect();
        assert_eq!(seen, [dir], "what others see of the data directory");
        if !again {
            // Somebody opens it by mistake: the next start closes it, and what is in it.
            instance.kill_9().await?;
            for opened in ["", "node", "node/pods", "pods", "images", "logs"] {
                std::fs::set_permissions(instance.dir().join(opened), std::fs::Permissions::from_mode(0o755))?;
            }
            instance.up().await?;
        }
    }
    Ok(())
}
