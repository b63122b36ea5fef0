//! One pod, timed: it comes, is asked to leave, says so, and goes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

/// No single step may take longer than this.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// What the container says when it is asked to leave, just before it does.
const LAST_WORD: &str = "leaving";

/// A pod to be measured.
pub(crate) struct Trial {
    api: Api<Pod>,
    name: String,
    container: Value,
    /// The label `app` of the pod, and the Service that leads to it.
    service: Option<String>,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From the request to create to Ready on a watch.
    pub create_to_ready: Duration,
    /// From the request to delete to the handler's word in the log.
    pub delete_to_signal: Duration,
    /// From that word, after which the process exits, to the removal on a watch.
    pub exit_to_gone: Duration,
}

impl Trial {
    /// A pod called `name` in the namespace `default`.
    pub(crate) fn new(client: &kube::Client, image: &str, name: &str) -> Self {
        let script = format!("trap 'echo {LAST_WORD}; exit 0' TERM; echo here; sleep 1000000 & wait");
        Self::with(client, name, json!({ "image": image, "command": ["sh", "-c", script] }))
    }

    /// The same with another container.
    pub(crate) fn with(client: &kube::Client, name: &str, mut container: Value) -> Self {
        container["name"] = "app".into();
        container["imagePullPolicy"] = "IfNotPresent".into();
        Self { api: Api::namespaced(client.clone(), "default"), name: name.to_owned(), container, service: None }
    }

    /// The same behind a Service.
    pub(crate) fn behind(self, service: &str) -> Self {
        Self { service: Some(service.to_owned()), ..self }
    }

    /// The whole life.
    pub(crate) async fn run(&self) -> Result<Times> {
        let create_to_ready = self.come().await?;
        if let Some(service) = &self.service {
            self.listed(service).await?;
        }
        let params = LogParams { follow: true, ..LogParams::default() };
        let mut log = self.api.log_stream(&self.name, &params).await?.lines();
        let mut events = self.watch().await?;
        let asked = Instant::now();
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        let heard = async {
            while let Some(line) = log.try_next().await? {
                if line == LAST_WORD {
                    return Ok(Instant::now());
                }
            }
            bail!("the log ended without the last word")
        };
        let gone = async {
            while let Some(event) = events.next().await {
                if let WatchEvent::Deleted(_) = event? {
                    return Ok(Instant::now());
                }
            }
            bail!("the watch ended")
        };
        let (heard, gone) = tokio::time::timeout(LIMIT, futures::future::try_join(heard, gone))
            .await
            .context("the pod does not leave")??;
        Ok(Times {
            create_to_ready,
            delete_to_signal: heard - asked,
            exit_to_gone: gone.saturating_duration_since(heard),
        })
    }

    /// What is asked for.
    pub(crate) fn pod(&self) -> Result<Pod> {
        Ok(serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": self.name, "labels": { "app": self.service.as_deref().unwrap_or("bench") } },
            "spec": { "containers": [self.container] },
        }))?)
    }

    /// Waits until the Service leads to the pod.
    async fn listed(&self, service: &str) -> Result<()> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.api.clone().into_client(), "default");
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        let listed = async {
            loop {
                let endpoints = slices.list(&of_service).await?.items.into_iter().flat_map(|slice| slice.endpoints);
                let mut targets = endpoints.flatten().filter_map(|endpoint| endpoint.target_ref?.name);
                let is_there = targets.any(|name| name == self.name);
                // A proxy has heard of it a moment later.
                tokio::time::sleep(Duration::from_millis(50)).await;
                if is_there {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(LIMIT, listed).await.with_context(|| format!("{} is on no list", self.name))?
    }

    /// Creates the pod and waits until it is Ready.
    pub(crate) async fn come(&self) -> Result<Duration> {
        let mut events = self.watch().await?;
        let pod = self.pod()?;
        let asked = Instant::now();
        self.api.create(&PostParams::default(), &pod).await?;
        let ready = async {
            while let Some(event) = events.next().await {
                match event? {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) if is_ready(&pod) => return Ok(asked.elapsed()),
                    WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
                    WatchEvent::Deleted(_) => bail!("the pod was deleted"),
                    WatchEvent::Error(status) => bail!("the watch broke: {}", status.message),
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(LIMIT, ready).await.with_context(|| format!("{} does not become Ready", self.name))?
    }

    /// Deletes the pod and waits until it is gone.
    pub(crate) async fn go(&self) -> Result<()> {
        let mut events = self.watch().await?;
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        let gone = async {
            while let Some(event) = events.next().await {
                if let WatchEvent::Deleted(_) = event? {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(LIMIT, gone).await.with_context(|| format!("{} does not leave", self.name))?
    }

    async fn watch(&self) -> Result<futures::stream::BoxStream<'static, kube::Result<WatchEvent<Pod>>>> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        Ok(self.api.watch(&params, "0").await?.boxed())
    }
}

/// Whether the pod's condition says so.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}
