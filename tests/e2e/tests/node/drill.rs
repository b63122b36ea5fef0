//! `adieu drill`: real pods leave under real requests, and the verdict is the right one.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::pods::SOON;
use e2e::{Instance, Kubectl, complaints};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::shop::Shop;

/// A server whose shell stays in front of it and hears no signal.
const DEAF: &str = "mkdir /www; echo hello > /www/index.html; httpd -f -p 8080 -h /www & sleep 1000; echo over";

/// Runs a drill to its end.
async fn drill(instance: &Instance, words: &[&str]) -> Result<Output> {
    let output = instance.adieu(&[&["drill"], words].concat()).stdin(Stdio::null()).output();
    tokio::time::timeout(SOON, output).await.context("the drill does not end")?.map_err(Into::into)
}

fn report(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no report: {} {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Neither pods nor images of a drill are there.
async fn ensure_nothing_left(instance: &Instance, kubectl: &Kubectl) -> Result<()> {
    let pods = kubectl.run(&["get", "pods", "-A", "-l", "adieu.dev/drill", "-o", "name"]).await?;
    let images = instance.adieu(&["image", "ls"]).output().await?;
    let images = String::from_utf8(images.stdout)?;
    ensure!(pods.is_empty() && !images.contains("adieu-drill"), "{pods} {images}");
    Ok(())
}

async fn apply_deaf(shop: &Shop) -> Result<()> {
    let labels = json!({ "app": "deaf" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "deaf" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "terminationGracePeriodSeconds": 3,
                "containers": [{ "name": "app", "image": "busybox", "command": ["sh", "-c", DEAF],
                    "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 } }],
            } },
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "deaf" },
        "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    shop.kubectl.apply(&service).await?;
    shop.kubectl.apply(&deployment).await?;
    shop.kubectl.run(&["rollout", "status", "deployment/deaf", "--timeout=80s"]).await?;
    Ok(())
}

/// A restart of servers that leave well loses nothing; one that ignores TERM is found, killed, and explained.
#[tokio::test(flavor = "multi_thread")]
async fn drill_passes_good_servers_and_finds_the_one_that_ignores_term() -> Result<()> {
    let instance = Instance::start().await?;
    let shop = Shop::open(&instance, "good", 2, 0, json!({})).await?;

    let output = drill(&instance, &["deploy/good", "-o", "json"]).await?;
    let told = report(&output)?;
    ensure!(output.status.code() == Some(0), "{}: {told:#}", output.status);
    ensure!(told["result"] == "passed" && told["requests"]["lost"] == 0, "{told:#}");
    ensure!(told["requests"]["total"].as_u64().is_some_and(|total| total > 100), "{told:#}");
    ensure!(told["requests"]["from"] == "from a pod in the cluster", "{told:#}");
    let pods = told["pods"].as_array().context("pods")?;
    ensure!(pods.len() == 2 && pods.iter().all(|pod| pod["verdict"] == "clean"), "{told:#}");
    ensure!(told["toStopSignal"]["pods"] == 2 && told["toGone"]["pods"] == 2, "{told:#}");
    ensure_nothing_left(&instance, &shop.kubectl).await?;

    apply_deaf(&shop).await?;
    let junit = shop.shared.path().join("drill.xml");
    let file = junit.to_str().context("a name")?;
    let output = drill(&instance, &["deploy/deaf", "--kill", "--pods", "1", "--junit", file, "-o", "json"]).await?;
    let told = report(&output)?;
    ensure!(output.status.code() == Some(3) && told["forcedKills"] == 1, "{}: {told:#}", output.status);
    let findings = told["findings"].as_array().context("findings")?;
    let forced = findings.iter().find(|finding| finding["code"] == "forced").context("no forced kill is told")?;
    let said = forced["finding"].as_str().context("words")?;
    ensure!(said.starts_with("app ignored SIGTERM and was killed after"), "{said}");
    ensure!(said.contains("sh (process 1 of container app) has no handler for SIGTERM"), "{said}");
    ensure!(forced["advice"].to_string().contains("trap"), "{forced}");
    let xml = std::fs::read_to_string(junit)?;
    ensure!(xml.contains("<testsuite name=\"adieu drill deployment.apps/deaf") && xml.contains("<failure "), "{xml}");
    ensure_nothing_left(&instance, &shop.kubectl).await?;
    complaints::ensure_none(&instance, &[])
}

/// Ctrl-C ends the drill, not in silence: what was seen is told, and what was made is removed.
#[tokio::test(flavor = "multi_thread")]
async fn drill_that_is_interrupted_reports_and_removes_what_it_made() -> Result<()> {
    let instance = Instance::start().await?;
    let shop = Shop::open(&instance, "cut", 2, 0, json!({})).await?;
    apply_deaf(&shop).await?;
    let mut command = instance.adieu(&["drill", "deploy/deaf", "--kill", "-o", "json"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // The first has left; the second, which needs three seconds, is leaving or about to be asked.
    let mut lines = BufReader::new(child.stderr.take().context("piped")?).lines();
    let waiting = async {
        while let Some(line) = lines.next_line().await? {
            if line.contains("was gone after") {
                return Ok(());
            }
        }
        anyhow::bail!("it ended by itself")
    };
    tokio::time::timeout(SOON, waiting).await.context("no pod is gone")??;
    let pid = Pid::from_raw(i32::try_from(child.id().context("it runs")?)?).context("a pid")?;
    kill_process(pid, Signal::INT)?;
    let output = tokio::time::timeout(SOON, child.wait_with_output()).await.context("it does not end")??;
    ensure!(output.status.code() == Some(130), "{}", output.status);
    let told = report(&output)?;
    ensure!(told["requests"]["isComplete"] == true && told["pods"][0]["verdict"] == "forced", "{told:#}");
    ensure!(told["notes"].to_string().contains("called off"), "{told:#}");
    ensure_nothing_left(&instance, &shop.kubectl).await?;
    complaints::ensure_none(&instance, &[])
}
