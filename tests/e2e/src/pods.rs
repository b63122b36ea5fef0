//! Pods to test with, and ways to wait for what becomes of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::{Value, json};

/// How long a test waits for something that should come at once before it gives up. Reached only when something is broken: how
/// soon a thing comes is for the test to say, and a busy machine is no failure.
pub const SOON: Duration = Duration::from_secs(90);

/// A busybox pod that runs `script`, with a shared folder of the host at `/shared`.
pub fn busybox(name: &str, grace_seconds: u64, script: &str, shared: &crate::Shared) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": grace_seconds,
            "containers": [{
                "name": "app",
                "image": "busybox",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
            }],
            "volumes": [{ "name": "shared", "hostPath": { "path": shared.path() } }],
        },
    })
}

/// Adds a preStop hook that runs `script` to the first container.
pub fn with_pre_stop(mut pod: Value, script: &str) -> Value {
    pod["spec"]["containers"][0]["lifecycle"] = json!({ "preStop": { "exec": { "command": ["sh", "-c", script] } } });
    pod
}

/// A watch on one pod, begun before what it is to see.
pub struct PodWatch {
    events: futures::stream::BoxStream<'static, kube::Result<WatchEvent<Pod>>>,
    /// The last state seen.
    pub last: Option<Pod>,
    patience: Duration,
}

impl PodWatch {
    /// Watches the pod called `name` in `default`, present or yet to come.
    pub async fn on(client: &kube::Client, name: &str) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(client.clone(), "default");
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let events = api.watch(&params, "0").await?.boxed();
        Ok(Self { events, last: None, patience: SOON })
    }

    /// The same, for a stage that is shared with many: each has to wait for the others.
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Waits until `wanted` holds of the pod; answers when that was seen.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&Pod) -> bool) -> Result<Instant> {
        if self.last.as_ref().is_some_and(&wanted) {
            return Ok(Instant::now());
        }
        let seen = async {
            loop {
                match self.events.next().await.context("the watch ended")?? {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        let holds = wanted(&pod);
                        self.last = Some(pod);
                        if holds {
                            return Ok(Instant::now());
                        }
                    }
                    WatchEvent::Deleted(pod) => bail!("the pod is gone: {:?}", pod.status),
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => bail!("the watch broke: {status:?}"),
                }
            }
        };
        let outcome = tokio::time::timeout(self.patience, seen).await;
        outcome
            .with_context(|| format!("not seen in time: {what}; last {:?}", self.last.as_ref().map(|p| &p.status)))?
    }

    /// Waits until `wanted` holds of a pod of that name, whatever becomes of others before it.
    pub async fn until_one(&mut self, what: &str, wanted: impl Fn(&Pod) -> bool) -> Result<Pod> {
        let seen = async {
            loop {
                match self.events.next().await.context("the watch ended")?? {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        self.last = Some(pod.clone());
                        if wanted(&pod) {
                            return Ok(pod);
                        }
                    }
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => bail!("the watch broke: {status:?}"),
                }
            }
        };
        let outcome = tokio::time::timeout(self.patience, seen).await;
        outcome.with_context(|| format!("no such pod in time: {what}; last {:?}", self.last))?
    }

    /// Waits until the pod is Ready.
    pub async fn ready(&mut self) -> Result<Instant> {
        self.until("Ready", is_ready).await
    }

    /// Waits until the pod is gone, at most `limit`; answers when, and its last state.
    pub async fn gone(&mut self, limit: Duration) -> Result<(Instant, Pod)> {
        let seen = async {
            loop {
                match self.events.next().await.context("the watch ended")?? {
                    WatchEvent::Deleted(pod) => return Ok((Instant::now(), pod)),
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => self.last = Some(pod),
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => bail!("the watch broke: {status:?}"),
                }
            }
        };
        let outcome = tokio::time::timeout(limit, seen).await;
        outcome.with_context(|| format!("not gone in time; last {:?}", self.last.as_ref().map(|p| &p.status)))?
    }
}

impl PodWatch {
    /// Everything that is still to be seen of the pod, up to its last state, which is the last of these.
    pub async fn to_the_end(&mut self) -> Result<Vec<Pod>> {
        let mut seen = Vec::from_iter(self.last.take());
        let reading = async {
            loop {
                match self.events.next().await.context("the watch ended")?? {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => seen.push(pod),
                    WatchEvent::Deleted(pod) => {
                        seen.push(pod);
                        return Ok(());
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => bail!("the watch broke: {status:?}"),
                }
            }
        };
        let outcome = tokio::time::timeout(self.patience, reading).await;
        outcome.with_context(|| format!("not gone in time; last {:?}", seen.last().map(|pod| &pod.status)))??;
        Ok(seen)
    }
}

/// Whether the pod's Ready condition holds.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// How the pod's first container ended, if it did.
pub fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.as_ref()
}

/// The status of the container called `name`, of whatever kind it is.
pub fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.find(|status| status.name == name)
}

/// The state of the container called `name`.
pub fn state<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerState> {
    status(pod, name)?.state.as_ref()
}

/// Why the container called `name` is not running yet, or not again.
pub fn waits_for<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    state(pod, name)?.waiting.as_ref()?.reason.as_deref()
}

/// The pod's phase.
pub fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// The pod's address.
pub fn ip(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}
