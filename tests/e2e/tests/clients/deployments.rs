//! Deployments as people use them: stock kubectl, real containers.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::pods::{SOON, busybox};
use e2e::{Instance, Kubectl, Shared, complaints};
use serde_json::{Value, json};

/// Writes down when it starts and, a moment after it was asked to leave, when it ends.
const DIARY: &str = "echo start $COLOR >> /shared/diary; \
                     trap 'sleep 0.3; echo end $COLOR >> /shared/diary; exit 0' TERM; sleep 1000 & wait";

/// An image that is nowhere.
const NOWHERE: &str = "nowhere.invalid/image:1";

fn web(shared: &Shared) -> Value {
    let mut template = busybox("web", 20, DIARY, shared);
    template.as_object_mut().unwrap().retain(|key, _| key == "spec");
    template["metadata"] = json!({ "labels": { "app": "web" } });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": template } })
}

async fn rolls_out(kubectl: &Kubectl) -> Result<()> {
    let told = kubectl.run(&["rollout", "status", "deployment/web", "--timeout=90s"]).await?;
    ensure!(told.ends_with("deployment \"web\" successfully rolled out\n"), "{told}");
    Ok(())
}

async fn object(kubectl: &Kubectl, words: &[&str]) -> Result<Value> {
    let words = [&["get", "-o", "json"], words].concat();
    Ok(serde_json::from_str(&kubectl.run(&words).await?)?)
}

/// Color or image of each set, and how many pods it is to have.
async fn sizes(kubectl: &Kubectl) -> Result<BTreeMap<String, i64>> {
    let sets = object(kubectl, &["replicasets"]).await?;
    let sets = sets["items"].as_array().context("a list")?;
    Ok(sets
        .iter()
        .map(|set| {
            let container = &set["spec"]["template"]["spec"]["containers"][0];
            let image = container["image"].as_str().unwrap_or_default();
            let color = container["env"][0]["value"].as_str().filter(|_| image != NOWHERE);
            (color.unwrap_or(image).to_owned(), set["spec"]["replicas"].as_i64().unwrap_or(-1))
        })
        .collect())
}

async fn until_sizes(kubectl: &Kubectl, wanted: &[(&str, i64)]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let sizes = sizes(kubectl).await?;
        if wanted.iter().all(|(what, size)| sizes.get(*what) == Some(size)) {
            return Ok(());
        }
        ensure!(begun.elapsed() < SOON, "not {wanted:?}: {sizes:?}");
    }
}

/// The revisions that `kubectl rollout history` shows.
async fn history(kubectl: &Kubectl) -> Result<Vec<u32>> {
    let told = kubectl.run(&["rollout", "history", "deployment/web"]).await?;
    Ok(told.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect())
}

/// [WL-34] [WL-35] [WL-36] [WL-37] Create, roll, go back, pause, resume, scale in the middle of a rollout that cannot end.
#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_rolled_out_undone_paused_and_scaled_by_kubectl() -> Result<()> {
    let instance = Instance::start().await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    let oldest = Kubectl::all(&instance)?.remove(0);
    assert_eq!(kubectl.apply(&web(&shared)).await?, "deployment.apps/web created\n");
    rolls_out(&kubectl).await?;
    let table = kubectl.run(&["get", "deployment", "web"]).await?;
    ensure!(table.contains("web    3/3     3            3"), "{table}");

    kubectl.run(&["set", "image", "deployment/web", "app=busybox:latest"]).await?;
    rolls_out(&kubectl).await?;
    kubectl.run(&["set", "env", "deployment/web", "COLOR=blue"]).await?;
    rolls_out(&oldest).await?;
    assert_eq!(history(&kubectl).await?, [1, 2, 3]);
    let described = kubectl.run(&["describe", "deployment", "web"]).await?;
    for words in ["3 desired | 3 updated | 3 total | 3 available | 0 unavailable", "NewReplicaSetAvailable"] {
        ensure!(described.contains(words), "{described}");
    }

    oldest.run(&["rollout", "undo", "deployment/web", "--to-revision=1"]).await?;
    rolls_out(&kubectl).await?;
    assert_eq!(history(&kubectl).await?, [2, 3, 4]);
    kubectl.run(&["rollout", "undo", "deployment/web"]).await?;
    rolls_out(&kubectl).await?;
    assert_eq!(history(&oldest).await?, [2, 4, 5]);
    assert_eq!(sizes(&kubectl).await?["blue"], 3);

    kubectl.run(&["rollout", "pause", "deployment/web"]).await?;
    let refused = kubectl.run(&["rollout", "undo", "deployment/web"]).await.unwrap_err().to_string();
    ensure!(refused.contains("paused"), "{refused}");
    for color in ["red", "green"] {
        kubectl.run(&["set", "env", "deployment/web", &format!("COLOR={color}")]).await?;
    }
    kubectl.run(&["scale", "deployment/web", "--replicas=4"]).await?;
    until_sizes(&kubectl, &[("blue", 4)]).await?;
    kubectl.run(&["rollout", "resume", "deployment/web"]).await?;
    rolls_out(&kubectl).await?;
    let after = sizes(&kubectl).await?;
    ensure!(after["green"] == 4 && !after.contains_key("red"), "{after:?}");

    // An image that is nowhere: one pod more, one fewer, and there it stays. Twice as many are divided as they are.
    kubectl.run(&["set", "image", "deployment/web", &format!("app={NOWHERE}")]).await?;
    until_sizes(&kubectl, &[("green", 3), (NOWHERE, 2)]).await?;
    kubectl.run(&["scale", "deployment/web", "--replicas=8"]).await?;
    until_sizes(&kubectl, &[("green", 6), (NOWHERE, 4)]).await?;
    kubectl.run(&["rollout", "undo", "deployment/web", "--to-revision=6"]).await?;
    rolls_out(&kubectl).await?;
    assert_eq!(sizes(&kubectl).await?["green"], 8);
    kubectl.run(&["delete", "deployment", "web", "--cascade=foreground"]).await?;
    let left = object(&kubectl, &["pods,replicasets"]).await?;
    assert_eq!(left["items"], json!([]), "foreground waits for the pods");
    let expected = complaints::Expected { text: NOWHERE, because: "it cannot be pulled" };
    complaints::ensure_none(&instance, &[expected])
}

/// [WL-46] In the containers' own words: every old one has ended before the first new one starts.
#[tokio::test(flavor = "multi_thread")]
async fn recreate_ends_every_old_container_before_a_new_one_starts() -> Result<()> {
    let instance = Instance::start().await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    let mut manifest = web(&shared);
    manifest["spec"]["strategy"] = json!({ "type": "Recreate" });
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{ "name": "COLOR", "value": "red" }]);
    kubectl.apply(&manifest).await?;
    rolls_out(&kubectl).await?;
    shared.wait_lines("diary", 3).await?;
    kubectl.run(&["set", "env", "deployment/web", "COLOR=blue"]).await?;
    rolls_out(&kubectl).await?;
    // A container counts as started before its shell has said so.
    shared.wait_lines("diary", 9).await?;
    let expected = [["start red"; 3], ["end red"; 3], ["start blue"; 3]].concat();
    assert_eq!(shared.lines("diary"), expected);
    complaints::ensure_none(&instance, &[])
}
