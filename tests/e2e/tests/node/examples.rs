//! The examples: what each manifest and its program are there to show is seen, under load where there is any.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON};
use e2e::{Instance, Kubectl, adieu, complaints, workspace};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::shop::{Clients, Shop, ensure_no_loss};

/// Every Deployment of them has so many pods.
const REPLICAS: usize = 3;

fn folder(name: &str) -> PathBuf {
    workspace().join("examples").join(name)
}

/// The records of pods whose names begin so.
async fn records(kubectl: &Kubectl, prefix: &str) -> Result<Vec<Value>> {
    let said = kubectl.run(&["get", "terminationrecords", "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&said)?;
    let all = list["items"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().filter(|it| it["pod"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))).collect())
}

/// Waits until there are so many: a record is stored a moment after its pod is gone.
async fn records_until(kubectl: &Kubectl, prefix: &str, count: usize) -> Result<Vec<Value>> {
    let waiting = async {
        loop {
            let found = records(kubectl, prefix).await?;
            if found.len() >= count {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.context("there are too few records")?
}

/// Ensures that it left by itself, with this exit code.
fn ensure_clean(record: &Value, exit_code: i64) -> Result<()> {
    ensure!(record["verdict"] == "clean", "{record:#}");
    ensure!(record["containers"][0]["exitCode"] == exit_code, "{record:#}");
    let steps = record["steps"].as_array().context("steps")?;
    ensure!(steps.iter().all(|step| step["type"] != "KillAsked"), "{record:#}");
    // That it was delivered is not told of a container whose end is seen before.
    ensure!(steps.iter().any(|step| step["type"] == "SignalAsked"), "{record:#}");
    Ok(())
}

/// A server of the examples, rolled out and deleted while it is asked.
struct Drilled {
    name: &'static str,
    clients: Clients,
    /// With which its process ends.
    exit_code: i64,
    /// Part of the last line that it writes.
    last_words: &'static str,
}

impl Drilled {
    async fn leaves_without_loss(self, instance: &Instance) -> Result<Shop> {
        let manifest = folder(self.name).join("manifest.yaml");
        let shop = Shop::of_manifest(instance, self.name, &manifest, REPLICAS).await?;
        let load = shop.ask(self.clients).await?;
        let mut pods = shop.roll_out(REPLICAS).await?;
        for _ in 0..2 {
            let mut following = shop.kubectl.follow(&["logs", "--follow", &pods[0]])?;
            // It is listened to before the pod leaves.
            following.next().await?;
            let reason = shop.delete(&pods[0]).await?;
            ensure!(reason.as_deref() == Some("LocalCut"), "{reason:?}");
            let said = following.rest().await?;
            ensure!(said.last().is_some_and(|line| line.contains(self.last_words)), "{said:#?}");
            pods = shop.until_ready(REPLICAS).await?;
        }
        ensure_no_loss(&shop, &load.stop().await?)?;
        let left = REPLICAS + 2;
        let found = records_until(&shop.kubectl, &format!("{}-", self.name), left).await?;
        ensure!(found.len() == left, "{found:#?}");
        for record in found {
            ensure_clean(&record, self.exit_code)?;
        }
        complaints::ensure_none(instance, &[])?;
        Ok(shop)
    }
}

async fn instance_with(image: &str) -> Result<Instance> {
    let instance = Instance::start().await?;
    instance.load_image(image).await?;
    Ok(instance)
}

const EVERY_KIND: Clients = Clients { new: 3, kept: 3, slow: 3 };

#[tokio::test(flavor = "multi_thread")]
async fn go_server_finishes_requests_and_item_and_loses_none() -> Result<()> {
    let instance = instance_with("example-go").await?;
    let last_words = "left: every request is answered, the worker has finished";
    let drilled = Drilled { name: "go", clients: EVERY_KIND, exit_code: 0, last_words };
    drilled.leaves_without_loss(&instance).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn python_server_finishes_requests_and_item_and_loses_none() -> Result<()> {
    let instance = instance_with("example-python").await?;
    let last_words = "left: every request is answered, the worker has finished";
    let drilled = Drilled { name: "python", clients: EVERY_KIND, exit_code: 0, last_words };
    drilled.leaves_without_loss(&instance).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodejs_server_finishes_requests_and_loses_none() -> Result<()> {
    let instance = instance_with("example-nodejs").await?;
    let last_words = "left: every request is answered";
    let drilled = Drilled { name: "nodejs", clients: EVERY_KIND, exit_code: 0, last_words };
    drilled.leaves_without_loss(&instance).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn java_server_finishes_requests_and_loses_none() -> Result<()> {
    let instance = instance_with("example-java").await?;
    let last_words = "left: every request is answered";
    let drilled = Drilled { name: "java", clients: EVERY_KIND, exit_code: 143, last_words };
    drilled.leaves_without_loss(&instance).await.map(drop)
}

/// The wrapper passes TERM on as QUIT and cleans up; the same program behind a shell that passes nothing on is killed, so that the
/// verdict can tell. nginx closes idle connections as soon as it is asked to leave, so nobody keeps one.
#[tokio::test(flavor = "multi_thread")]
async fn shell_that_passes_the_signal_on_loses_none_and_one_that_does_not_is_forced() -> Result<()> {
    let instance = instance_with("example-shell").await?;
    let last_words = "wrapper: cleaned up after exit code 0";
    let clients = Clients { new: 6, kept: 0, slow: 0 };
    let shop = Drilled { name: "shell", clients, exit_code: 0, last_words }.leaves_without_loss(&instance).await?;

    let mut watch = PodWatch::on(&shop.client, "naive").await?;
    shop.kubectl.run(&["apply", "-f", &folder("shell").join("naive.yaml").to_string_lossy()]).await?;
    watch.ready().await?;
    let mut following = shop.kubectl.follow(&["logs", "--follow", "naive"])?;
    let first = following.next().await?;
    ensure!(first == "prepared", "{first}");
    let api: Api<Pod> = Api::default_namespaced(shop.client.clone());
    api.delete("naive", &DeleteParams::default()).await?;
    watch.gone(SOON).await?;
    let said = following.rest().await?;
    ensure!(!said.iter().any(|line| line == "cleaned up"), "{said:#?}");
    let found = records_until(&shop.kubectl, "naive", 1).await?;
    ensure!(found[0]["verdict"] == "forced" && found[0]["containers"][0]["exitCode"] == 137, "{found:#?}");
    complaints::ensure_none(&instance, &[])
}

/// The room has half an hour, and leaves as soon as its last player has moved; nobody is thrown out.
#[tokio::test(flavor = "multi_thread")]
async fn room_with_half_an_hour_of_grace_leaves_when_its_last_player_has_moved() -> Result<()> {
    let instance = instance_with("example-long-connections").await?;
    let kubectl = Kubectl::newest(&instance)?;
    kubectl.run(&["apply", "-f", &folder("long-connections").join("manifest.yaml").to_string_lossy()]).await?;
    kubectl.run(&["rollout", "status", "deployment/room", "--timeout=90s"]).await?;
    let address = kubectl.run(&["get", "service", "room", "-o", "jsonpath={.spec.clusterIP}"]).await?;
    let players = fs::read_to_string(folder("long-connections").join("players.yaml"))?.replace("ADDRESS", &address);
    kubectl.run_with(&["apply", "-f", "-"], &players).await?;
    kubectl.run(&["wait", "--for=condition=Ready", "pod/players", "--timeout=90s"]).await?;
    let mut told = kubectl.follow(&["logs", "--follow", "players"])?;
    let mut rooms = Vec::new();
    while rooms.len() < 6 {
        let line = told.next().await?;
        rooms.extend(line.split_once(" plays in ").map(|(_, room)| room.to_owned()));
    }
    let room = &rooms[0];
    let count = rooms.iter().filter(|it| *it == room).count();

    let client = instance.client().await?;
    let mut watch = PodWatch::on(&client, room).await?;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    api.delete(room, &DeleteParams::default()).await?;
    watch.gone(SOON).await?;
    api.delete("players", &DeleteParams::default()).await?;
    let said = told.rest().await?;
    ensure!(said.last().is_some_and(|line| line.ends_with(", 0 were thrown out")), "{said:#?}");
    let moved = said.iter().filter(|line| line.contains(&format!("moved from {room} to "))).count();
    ensure!(moved == count && !said.iter().any(|line| line.ends_with(&format!(" to {room}"))), "{count} of {said:#?}");
    let found = records_until(&kubectl, room, 1).await?;
    ensure_clean(&found[0], 0)?;
    ensure!(found[0]["gracePeriodSeconds"] == 1800, "{:#}", found[0]);
    complaints::ensure_none(&instance, &[])
}

/// `examples/run`, in a folder of the test.
struct Run {
    parent: TempDir,
    child: Child,
}

impl Run {
    fn start(name: &str) -> Result<Self> {
        let parent = tempfile::Builder::new().prefix("adieu-e2e-example-").tempdir()?;
        let child = Command::new(folder("run"))
            .arg(name)
            .env("ADIEU", adieu())
            .env("TMPDIR", parent.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self { parent, child })
    }

    /// How it ended. Nothing of it is in its folder or mounted below it then.
    async fn ended(self) -> Result<Output> {
        let group = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("a pid")?;
        let mut waiting = std::pin::pin!(self.child.wait_with_output());
        let output = match tokio::time::timeout(SOON * 2, &mut waiting).await {
            Ok(output) => output?,
            Err(_) => {
                // It takes its platform down itself, as long as its folder is there.
                kill_process_group(group, Signal::TERM)?;
                let output = tokio::time::timeout(SOON, waiting).await??;
                anyhow::bail!("it does not end: {}", text(&output));
            }
        };
        let left = fs::read_dir(self.parent.path())?.count();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let is_mounted = mounts.contains(&*self.parent.path().to_string_lossy());
        ensure!(left == 0 && !is_mounted, "something is left: {}", text(&output));
        Ok(output)
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn run_says(name: &str, expected: &[&str]) -> Result<()> {
    let output = Run::start(name)?.ended().await?;
    let said = text(&output);
    ensure!(output.status.success(), "{name}: {} {said}", output.status);
    let mut rest = said.as_str();
    for part in expected {
        rest = rest.split_once(part).with_context(|| format!("no {part:?} in its place in: {said}"))?.1;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_the_lossless_deployment_counts_its_requests_and_loses_none() -> Result<()> {
    run_says("lossless-deployment", &["rollout restart", " requests, 0 lost", "verdict", ": clean", "removed"]).await
}

/// The containers' exits are in the timeline in their order.
#[tokio::test(flavor = "multi_thread")]
async fn run_of_sidecars_and_of_hooks_shows_containers_that_leave_in_order() -> Result<()> {
    run_says("sidecars", &["app exited", "shipper exited", "network exited", ": clean", "removed"]).await?;
    run_says("order-by-prestop", &["app exited", "database exited", ": clean", "removed"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_is_interrupted_leaves_nothing_behind() -> Result<()> {
    let mut run = Run::start("sidecars")?;
    let pid = run.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("a pid")?;
    let mut lines = BufReader::new(run.child.stdout.as_mut().context("piped")?).lines();
    let waiting = async {
        while let Some(line) = lines.next_line().await? {
            if line.contains("apply -f") {
                return Ok(());
            }
        }
        anyhow::bail!("it applies nothing")
    };
    let applied = tokio::time::timeout(SOON, waiting).await.context("it applies nothing in time");
    // As a terminal does it: to everybody in front.
    kill_process_group(pid, Signal::INT)?;
    let output = run.ended().await?;
    applied.and_then(|applied: Result<()>| applied).with_context(|| text(&output))?;
    ensure!(output.status.code() == Some(130), "{} {}", output.status, text(&output));
    Ok(())
}

#[tokio::test]
async fn list_of_examples_names_every_folder_with_a_manifest() -> Result<()> {
    let output = Command::new(folder("run")).arg("--list").output().await?;
    ensure!(output.status.success(), "{}", text(&output));
    let listed: Vec<String> =
        text(&output).lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    let mut there: Vec<String> = fs::read_dir(workspace().join("examples"))?
        .flatten()
        .filter(|entry| entry.path().join("manifest.yaml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    there.sort();
    ensure!(listed == there, "{listed:?} {there:?}");
    Ok(())
}
