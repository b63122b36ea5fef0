//! kubectl attach, port-forward and cp, by every stock kubectl there is.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON};
use e2e::{Instance, Kubectl};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_attaches_to_containers_and_forwards_ports_and_copies_files() -> Result<()> {
    let instance = Instance::start().await?;
    for kubectl in Kubectl::all(&instance)? {
        attach(&instance, &kubectl).await.with_context(|| format!("{}: attach", kubectl.name()))?;
        forward(&instance, &kubectl).await.with_context(|| format!("{}: port-forward", kubectl.name()))?;
        copy(&kubectl).await.with_context(|| format!("{}: cp", kubectl.name()))?;
        kubectl.run(&["delete", "pod", "echo", "web", "--now"]).await?;
    }
    Ok(())
}

/// What is typed reaches the first process, what it says comes back, and its input ends with the one who typed.
async fn attach(instance: &Instance, kubectl: &Kubectl) -> Result<()> {
    let mut watch = PodWatch::on(&instance.client().await?, "echo").await?;
    kubectl
        .apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "echo" },
            "spec": { "restartPolicy": "Never", "containers": [{
                "name": "app", "image": "busybox", "stdin": true, "stdinOnce": true,
                "command": ["sh", "-c", "while read word; do echo \"<$word>\"; done; echo over"],
            }] },
        }))
        .await?;
    watch.ready().await?;
    let said = kubectl.run_with(&["attach", "-i", "echo"], "one\ntwo\n").await?;
    ensure!(said.ends_with("<one>\n<two>\nover\n"), "{said:?}");
    watch.until("over", |pod| e2e::pods::phase(pod) == Some("Succeeded")).await?;
    Ok(())
}

/// Several connections one after the other and side by side, and one to a port nobody listens on.
async fn forward(instance: &Instance, kubectl: &Kubectl) -> Result<()> {
    let mut watch = PodWatch::on(&instance.client().await?, "web").await?;
    kubectl
        .apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
            "spec": { "containers": [{
                "name": "app", "image": "busybox", "command": ["nc", "-ll", "-p", "8080", "-e", "cat"],
                "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
            }] },
        }))
        .await?;
    watch.ready().await?;
    let mut forwarding = kubectl.follow(&["port-forward", "pod/web", ":8080"])?;
    let line = forwarding.next().await?;
    let port: u16 = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .with_context(|| line.clone())?;
    let long: Vec<u8> = (0..200_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for _ in 0..3 {
        let echoed = tokio::time::timeout(SOON, echo(port, &long)).await.context("an echo")??;
        ensure!(echoed == long, "{} bytes came back", echoed.len());
    }
    let both = tokio::join!(echo(port, b"left"), echo(port, b"right"));
    ensure!((both.0?.as_slice(), both.1?.as_slice()) == (b"left".as_slice(), b"right".as_slice()), "told apart");
    Ok(())
}

/// A folder goes into a container and comes back: as many bytes, as deep, and what can be run there still can.
async fn copy(kubectl: &Kubectl) -> Result<()> {
    let place = tempfile::tempdir()?;
    let (there, back) = (place.path().join("there"), place.path().join("back"));
    std::fs::create_dir_all(there.join("deep/er"))?;
    let large: Vec<u8> = (0..3_000_000u32).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
    std::fs::write(there.join("deep/large"), &large)?;
    std::fs::write(there.join("deep/er/empty"), "")?;
    std::fs::write(there.join("run"), "#!/bin/sh\necho it runs\n")?;
    std::fs::set_permissions(there.join("run"), std::fs::Permissions::from_mode(0o755))?;
    let (from, to) = (there.to_str().context("a path")?, back.to_str().context("a path")?);
    kubectl.run(&["cp", from, "default/web:/tmp/there", "-c", "app"]).await?;
    assert_eq!(kubectl.run(&["exec", "web", "--", "/tmp/there/run"]).await?, "it runs\n");
    assert_eq!(kubectl.run(&["exec", "web", "--", "stat", "-c", "%s", "/tmp/there/deep/large"]).await?, "3000000\n");
    kubectl.run(&["cp", "default/web:/tmp/there", to, "-c", "app"]).await?;
    ensure!(std::fs::read(back.join("deep/large"))? == large, "what came back differs");
    ensure!(std::fs::read(back.join("deep/er/empty"))?.is_empty());
    Ok(())
}

async fn echo(port: u16, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut reading, mut writing) = stream.split();
    let write = async {
        writing.write_all(bytes).await?;
        writing.shutdown().await
    };
    let mut echoed = Vec::new();
    let (written, read) = tokio::join!(write, reading.read_to_end(&mut echoed));
    written?;
    read?;
    Ok(echoed)
}
