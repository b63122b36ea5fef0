//! A Deployment, timed: until all its pods are available, until another template has replaced the first, and until all is gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent, WatchParams,
};
use serde_json::json;

use crate::pod::{LIMIT, Trial};

const NAME: &str = "bench-deployment";
const LABEL: &str = "adieu-bench=deployment";

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From the request to create until every pod is available, as the Deployment reports.
    pub(crate) create: Duration,
    /// From the change of the template until every pod has it and is available, and no other counts.
    pub(crate) roll: Duration,
    /// From the request to delete until the last pod is gone.
    pub(crate) delete: Duration,
}

/// Creates a Deployment of so many pods, rolls it once, and deletes it.
pub(crate) async fn run(client: &kube::Client, image: &str, size: usize) -> Result<Times> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let labels = json!({ "adieu-bench": "deployment" });
    let pod = Trial::new(client, image, NAME).pod()?;
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": NAME },
        "spec": { "replicas": size, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod.spec } },
    }))?;
    let by_name = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let mut events = deployments.watch(&by_name, "0").await?.boxed();

    let begun = Instant::now();
    deployments.create(&PostParams::default(), &deployment).await?;
    until_rolled_out(&mut events, 1).await.context("not all become available")?;
    let create = begun.elapsed();

    let env = json!([{ "name": "BENCH", "value": "2" }]);
    let template = json!({ "spec": { "containers": [{ "name": "app", "env": env }] } });
    let patch = Patch::Strategic(json!({ "spec": { "template": template } }));
    let begun = Instant::now();
    let generation = deployments.patch(NAME, &PatchParams::default(), &patch).await?.metadata.generation;
    until_rolled_out(&mut events, generation.unwrap_or(2)).await.context("the rollout does not end")?;
    let roll = begun.elapsed();

    // Those that leave still are not measured.
    let there = pods.list(&ListParams::default().labels(LABEL)).await?;
    let version = there.metadata.resource_version.unwrap_or_default();
    let mut left: std::collections::BTreeSet<String> = there.items.iter().map(|pod| pod.name_any()).collect();
    let mut leaving = pods.watch(&WatchParams::default().labels(LABEL), &version).await?.boxed();
    let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    let begun = Instant::now();
    deployments.delete(NAME, &params).await?;
    let gone = async {
        while !left.is_empty() {
            match leaving.try_next().await?.context("the watch ended")? {
                WatchEvent::Deleted(pod) => drop(left.remove(&pod.name_any())),
                WatchEvent::Added(pod) => drop(left.insert(pod.name_any())),
                WatchEvent::Error(status) => bail!("the watch broke: {}", status.message),
                WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(LIMIT, gone).await.context("not all leave")??;
    Ok(Times { create, roll, delete: begun.elapsed() })
}

/// Reads events until the Deployment of this generation, or of a later one, has all its pods, new and available, and no others.
async fn until_rolled_out(
    events: &mut BoxStream<'_, kube::Result<WatchEvent<Deployment>>>,
    generation: i64,
) -> Result<()> {
    let rolled_out = async {
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(it) | WatchEvent::Modified(it) if is_rolled_out(&it, generation) => return Ok(()),
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Deleted(_) => bail!("the Deployment was deleted"),
                WatchEvent::Error(status) => bail!("the watch broke: {}", status.message),
            }
        }
        bail!("the watch ended")
    };
    tokio::time::timeout(LIMIT, rolled_out).await?
}

fn is_rolled_out(deployment: &Deployment, generation: i64) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    deployment.status.as_ref().is_some_and(|status| {
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        status.observed_generation.unwrap_or(0) >= generation && counts.iter().all(|it| it.unwrap_or(0) == replicas)
    })
}
