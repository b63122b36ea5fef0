//! The last words of containers: what they leave for people to read, in the pod's status.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use e2e::pods::{PodWatch, phase};
use e2e::{Instance, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// [NT-123] [NT-128]
#[tokio::test(flavor = "multi_thread")]
async fn termination_messages_are_kept_and_limited() -> Result<()> {
    let instance = Instance::start().await?;
    let client = instance.client().await?;
    termination_messages_of_containers_are_shown(&client).await?;
    termination_messages_share_one_limit(&client).await?;
    complaints::ensure_none(&instance, &[])
}

/// What the containers of a pod that never restarts them left as their last words, once all have ended.
async fn termination_messages(
    client: &kube::Client,
    name: &str,
    containers: Vec<Value>,
) -> Result<BTreeMap<String, String>> {
    let spec = json!({ "restartPolicy": "Never", "containers": containers });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
    let mut watch = PodWatch::on(client, name).await?;
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let over = watch.until_one("over", |pod| matches!(phase(pod), Some("Failed" | "Succeeded"))).await?;
    let statuses = over.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let words = |status: k8s_openapi::api::core::v1::ContainerStatus| {
        let ended = status.state.and_then(|state| state.terminated).with_context(|| status.name.clone())?;
        Ok((status.name, ended.message.unwrap_or_default()))
    };
    statuses.into_iter().map(words).collect()
}

fn says(name: &str, policy: &str, script: &str) -> Value {
    json!({ "name": name, "image": "busybox", "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": policy, "command": ["sh", "-c", script] })
}

/// The file; without one, the end of the log of a container that failed, if that is asked for.
async fn termination_messages_of_containers_are_shown(client: &kube::Client) -> Result<()> {
    let (file, log) = ("File", "FallbackToLogsOnError");
    let mut not_root = says("not-root", file, "echo from 1000 > /dev/my-words; exit 1");
    not_root["terminationMessagePath"] = "/dev/my-words".into();
    not_root["securityContext"] = json!({ "runAsUser": 1000 });
    let containers = vec![
        says("file", log, "echo not this; echo from the file > /dev/termination-log; exit 1"),
        not_root,
        says("log", log, "seq 1 100; echo to stderr >&2; exit 1"),
        says("long-log", log, "awk 'BEGIN { for (i = 0; i < 100; i++) printf \"%0100d\\n\", i; exit 1 }'"),
        says("no-log", file, "echo not this; exit 1"),
        says("good", log, "echo not this"),
        says("good-file", log, "echo not this; echo done > /dev/termination-log"),
    ];
    // Seven may say a seventh of 12 KiB each.
    const MOST: usize = 12_288 / 7;
    let words = termination_messages(client, "words", containers).await?;
    let lines = |from: u32, to: u32| (from..=to).map(|n| format!("{n}\n")).collect::<String>();
    let log = &words["log"];
    // Which of the two streams is read first is nobody's promise.
    let mut told: Vec<&str> = log.lines().collect();
    told.retain(|line| *line != "to stderr");
    assert_eq!((log.lines().count(), told.last().copied()), (80, Some("100")), "{log}");
    assert_eq!(told.concat(), lines(22, 100).replace('\n', ""));
    // The last 2048 bytes, of which the beginning is told.
    let long: String = (0..100).map(|n| format!("{n:0100}\n")).collect();
    assert_eq!(words["long-log"], long[long.len() - 2048..][..MOST]);
    let others = ["file", "not-root", "no-log", "good", "good-file"].map(|name| words[name].as_str());
    assert_eq!(others, ["from the file\n", "from 1000\n", "", "", "done\n"]);
    Ok(())
}

/// 4096 bytes each, 12 KiB together.
async fn termination_messages_share_one_limit(client: &kube::Client) -> Result<()> {
    let script = "seq 1000000 1001000 > /dev/termination-log; exit 1";
    let all: String = (1_000_000..=1_001_000).map(|n| format!("{n}\n")).collect();
    let end = &all[all.len() - 4096..];
    let alone = termination_messages(client, "one-word", vec![says("a", "File", script)]).await?;
    assert_eq!(alone["a"], end);
    let four = ["a", "b", "c", "d"].map(|name| says(name, "File", script)).to_vec();
    for (name, words) in termination_messages(client, "four-words", four).await? {
        assert_eq!(words, end[..3072], "{name}");
    }
    Ok(())
}
