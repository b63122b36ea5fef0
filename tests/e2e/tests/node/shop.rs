//! A Deployment of naive servers behind a Service, and somebody inside a pod who asks them all the time and counts what comes of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, is_ready};
use e2e::{Instance, Kubectl, Shared};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

const PORT: u16 = 8080;

/// A container that runs the tool of this crate; the rest of it is the machine's C library.
fn actor(words: &[&str]) -> Value {
    let mut command = vec!["/tools/traffic-actor"];
    command.extend(words);
    let library = "/lib/x86_64-linux-gnu";
    json!({
        "name": "app", "image": "busybox", "command": command, "stdin": true,
        "volumeMounts": [
            { "name": "tools", "mountPath": "/tools", "readOnly": true },
            { "name": "loader", "mountPath": "/lib64", "readOnly": true },
            { "name": "library", "mountPath": library, "readOnly": true },
            { "name": "shared", "mountPath": "/shared" },
        ],
    })
}

fn volumes(shared: &Shared) -> Value {
    let tools = Path::new(env!("CARGO_BIN_EXE_traffic-actor")).parent().unwrap().to_owned();
    json!([
        { "name": "tools", "hostPath": { "path": tools } },
        { "name": "loader", "hostPath": { "path": "/lib64" } },
        { "name": "library", "hostPath": { "path": "/lib/x86_64-linux-gnu" } },
        { "name": "shared", "hostPath": { "path": shared.path() } },
    ])
}

/// How many ask, and how: each with a connection for every request, with one for as many as it lasts, and with one for every request of
/// 200 ms.
#[derive(Clone, Copy, Default)]
pub struct Clients {
    pub new: usize,
    pub kept: usize,
    pub slow: usize,
}

/// Pods behind a Service, and somebody who asks them all the time.
pub struct Shop {
    pub client: kube::Client,
    name: &'static str,
    pub shared: Shared,
    pub kubectl: Kubectl,
}

impl Shop {
    /// As many naive servers as said, ready, behind the Service of that name. `late_ms` is how long they accept after TERM.
    pub async fn open(
        instance: &Instance,
        name: &'static str,
        replicas: i32,
        late_ms: u32,
        annotations: Value,
    ) -> Result<Self> {
        let client = instance.client().await?;
        let (shared, kubectl) = (Shared::new()?, Kubectl::newest(instance)?);
        let labels = json!({ "app": name });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": PORT }] },
        });
        let services: Api<Service> = Api::default_namespaced(client.clone());
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        let mut container = actor(&["serve", &PORT.to_string(), &late_ms.to_string()]);
        container["readinessProbe"] = json!({ "tcpSocket": { "port": PORT }, "periodSeconds": 1 });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels, "annotations": annotations },
                    "spec": { "terminationGracePeriodSeconds": 30, "containers": [container], "volumes": volumes(&shared) },
                },
            },
        });
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
        let shop = Self { client, name, shared, kubectl };
        shop.until_ready(usize::try_from(replicas)?).await?;
        Ok(shop)
    }

    /// The Deployment and the Service of a manifest, both of this name, when they are ready.
    pub async fn of_manifest(
        instance: &Instance,
        name: &'static str,
        manifest: &Path,
        replicas: usize,
    ) -> Result<Self> {
        let client = instance.client().await?;
        let (shared, kubectl) = (Shared::new()?, Kubectl::newest(instance)?);
        kubectl.run(&["apply", "-f", &manifest.to_string_lossy()]).await?;
        let shop = Self { client, name, shared, kubectl };
        shop.until_ready(replicas).await?;
        Ok(shop)
    }

    pub fn name(&self) -> &str {
        self.name
    }

    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let all = api.list(&ListParams::default().labels(&format!("app={}", self.name))).await?;
        Ok(all.items)
    }

    /// Those that are ready and stay, the oldest first: everybody has heard of it.
    pub async fn ready(&self) -> Result<Vec<String>> {
        let mut pods = self.pods().await?;
        pods.retain(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
        Ok(pods.into_iter().filter_map(|pod| pod.metadata.name).collect())
    }

    /// Waits until so many are ready, and nobody else is there.
    pub async fn until_ready(&self, count: usize) -> Result<Vec<String>> {
        let waiting = async {
            loop {
                let (ready, all) = (self.ready().await?, self.pods().await?.len());
                if (ready.len(), all) == (count, count) {
                    return Ok::<_, anyhow::Error>(ready);
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.with_context(|| format!("{count} are not ready in time"))?
    }

    pub async fn scale(&self, replicas: usize) -> Result<Vec<String>> {
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        deployments.patch_scale(self.name, &PatchParams::default(), &patch).await?;
        self.until_ready(replicas).await
    }

    /// Replaces every pod, as a new version of the application would.
    pub async fn roll_out(&self, replicas: usize) -> Result<Vec<String>> {
        let before = self.until_ready(replicas).await?;
        self.kubectl.run(&["rollout", "restart", &format!("deployment/{}", self.name)]).await?;
        let told =
            self.kubectl.run(&["rollout", "status", &format!("deployment/{}", self.name), "--timeout=90s"]).await?;
        ensure!(told.contains("successfully rolled out"), "{told}");
        let after = self.until_ready(replicas).await?;
        ensure!(after.iter().all(|pod| !before.contains(pod)), "{before:?} {after:?}");
        Ok(after)
    }

    /// Deletes a pod; answers what it said of its traffic in the end.
    pub async fn delete(&self, pod: &str) -> Result<Option<String>> {
        let mut watch = PodWatch::on(&self.client, pod).await?;
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        api.delete(pod, &DeleteParams::default()).await?;
        let (_, last) = watch.gone(SOON).await?;
        let conditions = last.status.and_then(|status| status.conditions).unwrap_or_default();
        let drained = conditions.into_iter().find(|condition| condition.type_ == "adieu.dev/TrafficDrained");
        Ok(drained.and_then(|condition| condition.reason))
    }

    /// Begins to ask, from inside a pod.
    pub async fn ask(&self, clients: Clients) -> Result<Load> {
        let services: Api<Service> = Api::default_namespaced(self.client.clone());
        let address = services.get(self.name).await?.spec.and_then(|spec| spec.cluster_ip).context("an address")?;
        // One of its kind on this machine: tests run side by side.
        let name = format!("{}-client-{}", self.name, std::process::id());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "app", "image": "busybox", "command": ["sleep", "1000"],
                    "volumeMounts": actor(&[])["volumeMounts"] }],
                "volumes": volumes(&self.shared),
            },
        });
        let mut watch = PodWatch::on(&self.client, &name).await?;
        self.kubectl.apply(&pod).await?;
        watch.ready().await?;
        // Inside the pod's network, and outlives whatever becomes of the instance.
        let pid = process_of(&name)?;
        let child = Command::new("nsenter")
            .args(["--target", &pid.to_string(), "--net", "--mount", "/tools/traffic-actor", "load"])
            .arg(format!("{address}:80"))
            .args([clients.new, clients.kept, clients.slow].map(|count| count.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        self.shared.wait_lines("load-began", 1).await?;
        Ok(Load(child))
    }

    /// How many requests have failed so far.
    pub fn lost(&self) -> usize {
        self.shared.lines("failed").len()
    }

    /// What the servers that have left say: how many connections came after TERM.
    pub fn late(&self) -> u64 {
        let lines = self.shared.lines("served");
        lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["late"].as_u64().unwrap()).sum()
    }
}

/// The process that sleeps in the pod of that name, as the machine numbers it: its network and files are the pod's.
fn process_of(pod: &str) -> Result<u32> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_named = environment.split(|byte| *byte == 0).any(|it| it == format!("HOSTNAME={pod}").as_bytes());
        if is_named && command.starts_with(b"sleep\0") {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process of {pod}")
}

/// Somebody who asks all the time.
pub struct Load(Child);

impl Load {
    /// Stops asking; every request and its fate.
    pub async fn stop(mut self) -> Result<Value> {
        drop(self.0.stdin.take().context("its standard input")?.shutdown().await);
        let output = tokio::time::timeout(SOON, self.0.wait_with_output()).await??;
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Ensures that no request failed; otherwise says when which did, and which pods were told to stop.
pub fn ensure_no_loss(shop: &Shop, fates: &Value) -> Result<()> {
    let asked = fates["answered"].as_u64().unwrap();
    ensure!(asked > 500, "too few to tell: {fates}");
    let told = ["failed", "told-to-leave", "served"].map(|file| shop.shared.lines(file).join("\n"));
    ensure!(fates["failed"] == json!({}), "requests are lost: {fates}\n{}", told.join("\n"));
    Ok(())
}
