//! Many pods at once, timed: until the last is Ready, and until the last is gone.
//!
//! The client is a frugal one, so that the cluster is measured and not the client: one watch for all pods, and as many
//! requests at a time as a client with a handful of connections sends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, WatchEvent, WatchParams};

use crate::pod::{LIMIT, Trial, is_ready};

/// Requests at a time.
const AT_A_TIME: usize = 8;

/// The label by which the watch finds them.
const LABEL: &str = "adieu-bench";

/// Creates so many pods and waits until all are Ready; then deletes all and waits until they are gone.
pub(crate) async fn run(client: &kube::Client, image: &str, size: usize) -> Result<(Duration, Duration)> {
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pods: Vec<Pod> = (0..size)
        .map(|n| {
            let mut pod = Trial::new(client, image, &format!("bench-crowd-{n}")).pod()?;
            pod.labels_mut().insert(LABEL.to_owned(), "crowd".to_owned());
            Ok(pod)
        })
        .collect::<Result<_>>()?;
    let names: BTreeSet<String> = pods.iter().map(ResourceExt::name_any).collect();
    // From the beginning, and read on for both figures.
    let mut events = api.watch(&WatchParams::default().labels(LABEL), "0").await?.boxed();

    let params = PostParams::default();
    let begun = Instant::now();
    let create = stream::iter(&pods).map(|pod| api.create(&params, pod)).buffer_unordered(AT_A_TIME);
    let ready = until(&mut events, &names, |event| match event {
        WatchEvent::Added(pod) | WatchEvent::Modified(pod) if is_ready(pod) => Ok(Some(pod.name_any())),
        WatchEvent::Deleted(pod) => bail!("{} was deleted", pod.name_any()),
        WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => Ok(None),
    });
    let created = async { Ok(create.try_for_each(async |_| Ok(())).await?) };
    tokio::try_join!(created, ready).context("not all become Ready")?;
    let all_ready = begun.elapsed();

    let params = DeleteParams::default();
    let begun = Instant::now();
    let delete = stream::iter(&names).map(|name| api.delete(name, &params)).buffer_unordered(AT_A_TIME);
    let gone = until(&mut events, &names, |event| match event {
        WatchEvent::Deleted(pod) => Ok(Some(pod.name_any())),
        WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => Ok(None),
    });
    let deleted = async { Ok(delete.try_for_each(async |_| Ok(())).await?) };
    tokio::try_join!(deleted, gone).context("not all leave")?;
    Ok((all_ready, begun.elapsed()))
}

/// Reads events until `news` has named each of `names`.
async fn until(
    events: &mut BoxStream<'_, kube::Result<WatchEvent<Pod>>>,
    names: &BTreeSet<String>,
    news: impl Fn(&WatchEvent<Pod>) -> Result<Option<String>>,
) -> Result<()> {
    let all = async {
        let mut missing = names.clone();
        while !missing.is_empty() {
            let event = events.next().await.context("the watch ended")??;
            if let WatchEvent::Error(status) = &event {
                bail!("the watch broke: {}", status.message);
            }
            if let Some(name) = news(&event)? {
                missing.remove(&name);
            }
        }
        Ok(())
    };
    tokio::time::timeout(LIMIT, all).await?
}
