//! Keeps volumes as the API says, for as long as the pod runs: told by watches, never by a clock but a token's own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use supervision::error_chain;
use tracing::warn;

use super::Means;
use super::content::{Reader, token_seconds};
use super::watches::Changes;
use crate::record::RecordReader;
use crate::translate::container::RunFacts;

/// How often in its life a token is looked at; it is renewed when a fifth of its life is left.
const TOKEN_LOOKS: i64 = 10;

/// Rewrites volumes of the pod in `dir` whenever something they are made of changes; at once if nobody has looked at
/// `changes` since they were made. Ends with its task; returns if the pod has no such volume.
pub async fn keep_fresh(
    means: Means,
    record: RecordReader,
    run: RunFacts,
    dir: PathBuf,
    changes: Changes,
    stale: bool,
) {
    let state = (means, record, run, dir, changes, stale);
    supervision::keep_on("volumes", state, |(means, record, run, dir, changes, due)| {
        keep_fresh_on(means, record, run, dir, changes, due).boxed()
    })
    .await;
}

/// What is `due` when it ends by a panic is due when it is started again.
async fn keep_fresh_on(
    means: &Means,
    record: &RecordReader,
    run: &RunFacts,
    dir: &Path,
    changes: &mut Changes,
    due: &mut bool,
) {
    let pod = record.pod();
    let renew = token_life(&pod);
    if changes.is_empty() && renew.is_none() {
        return;
    }
    loop {
        if !*due {
            let renewal = async {
                match renew {
                    Some(after) => tokio::time::sleep(after).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changes.next() => {}
                () = renewal => {}
            }
        }
        *due = true;
        let seen = changes.pod();
        let pod = seen.as_deref().unwrap_or(&pod);
        let reader = Reader { means, pod, facts: run, written: Some(dir) };
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let path = dir.join(&volume.name);
            let written = match reader.payload(volume).await {
                Ok(Some(payload)) => super::write(means, &volume.name, payload, path).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            // What the volume held stays: programs rather run on with old files than without any.
            if let Err(error) = written {
                // A leaving pod keeps the files it has; what they were made of may be gone, or no longer this node's to read.
                if record.pod().metadata.deletion_timestamp.is_some() || is_gone(&means.client, pod).await {
                    return;
                }
                warn!(volume = volume.name, error = error_chain(&error), "a volume could not be brought up to date");
            }
        }
        *due = false;
    }
}

/// Whether the pod's object is gone, as that of one that was deleted by force is while it still leaves.
async fn is_gone(client: &kube::Client, pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let api: Api<Pod> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let found = api.get_metadata_opt(meta.name.as_deref().unwrap_or_default()).await;
    found.is_ok_and(|found| found.is_none_or(|found| found.metadata.uid != meta.uid))
}

/// How long to wait between two looks at the pod's tokens, if it has any.
fn token_life(pod: &Pod) -> Option<Duration> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let seconds = volumes.filter_map(token_seconds).min()?;
    Some(Duration::from_secs(u64::try_from(seconds / TOKEN_LOOKS).unwrap_or(1).max(1)))
}
