//! Stores records in the API, each until it is there: made, or written over what an earlier agent made.
//!
//! A record that the API refuses for good (its namespace is going, a quota, a server that does not know the kind) is left out: nobody
//! could store it. Everything else is tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;
use supervision::BackoffPolicy;
use timeline::{Journal, Record};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{PendingRecord, TerminationMetrics};

/// So many records are written side by side.
const AT_ONCE: usize = 8;
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(10));
/// One write may take this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a record.
enum Outcome {
    Stored,
    /// Nobody will ever take it.
    Refused(String),
    /// It goes with its namespace.
    Unwanted,
    Failed(String),
}

/// Stores what comes until nobody is left to send any.
pub async fn run(
    client: kube::Client,
    journal: Journal,
    mut queue: mpsc::UnboundedReceiver<PendingRecord>,
    metrics: Arc<TerminationMetrics>,
) {
    // Of records of one name only the newest is wanted, and never two are written at once.
    let mut waiting: BTreeMap<(String, String), Vec<PendingRecord>> = BTreeMap::new();
    let mut failures = 0_u32;
    loop {
        if waiting.is_empty() {
            let Some(pending) = queue.recv().await else { return };
            put(&mut waiting, pending);
        }
        while let Ok(pending) = queue.try_recv() {
            put(&mut waiting, pending);
        }
        let batch: Vec<_> = std::mem::take(&mut waiting).into_values().collect();
        let done = futures::stream::iter(batch.into_iter().map(|same| store_newest(&client, same)));
        let mut done = done.buffer_unordered(AT_ONCE);
        let mut failed = None;
        while let Some((same, outcome)) = done.next().await {
            match outcome {
                Outcome::Stored => metrics.stored(),
                Outcome::Unwanted => metrics.refused(),
                Outcome::Refused(why) => {
                    metrics.refused();
                    let record = same.last().map(|newest| newest.name.clone());
                    warn!(record, why, "the record of a termination cannot be stored, and is left out");
                }
                Outcome::Failed(why) => {
                    failed = Some(why);
                    same.into_iter().for_each(|pending| put(&mut waiting, pending));
                    continue;
                }
            }
            for (uid, wall) in same.into_iter().filter_map(|pending| pending.journalled) {
                // Storing it again after a crash comes to the same.
                drop(journal.append(Record::Stored { uid, wall }));
            }
        }
        drop(done);
        match failed {
            None => failures = 0,
            Some(why) => {
                failures = failures.saturating_add(1);
                debug!(why, failures, "records of terminations could not be stored; trying again");
                tokio::time::sleep(RETRY.pause(failures)).await;
            }
        }
    }
}

fn put(waiting: &mut BTreeMap<(String, String), Vec<PendingRecord>>, pending: PendingRecord) {
    let name = (pending.namespace.clone(), pending.name.clone());
    waiting.entry(name).or_default().push(pending);
}

/// Stores the newest of records of one name; the others are in it, or were of an earlier run of the same static pod.
async fn store_newest(client: &kube::Client, same: Vec<PendingRecord>) -> (Vec<PendingRecord>, Outcome) {
    let Some(newest) = same.last() else { return (same, Outcome::Stored) };
    let storing = tokio::time::timeout(PATIENCE, store(client, newest));
    let outcome = storing.await.unwrap_or_else(|_| Outcome::Failed("the API did not answer in time".to_owned()));
    (same, outcome)
}

async fn store(client: &kube::Client, pending: &PendingRecord) -> Outcome {
    let all = format!("/apis/{}/namespaces/{}/terminationrecords", api::termination::API_VERSION, pending.namespace);
    match send(client, "POST", &all, &pending.object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let one = format!("{all}/{}", pending.name);
            match send(client, "PUT", &one, &pending.object).await {
                // It was removed between: it has been there.
                Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Stored,
                outcome => judged(outcome),
            }
        }
        outcome => judged(outcome),
    }
}

async fn send(client: &kube::Client, method: &str, path: &str, object: &Value) -> kube::Result<()> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}

fn judged(outcome: kube::Result<()>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Stored,
        Err(kube::Error::Api(status)) => match status.code {
            403 if status.message.contains("being terminated") => Outcome::Unwanted,
            404 if status.message.starts_with("namespaces ") => Outcome::Unwanted,
            400 | 403 | 404 | 405 | 413 | 415 | 422 => Outcome::Refused(status.message.clone()),
            _ => Outcome::Failed(status.message.clone()),
        },
        Err(error) => Outcome::Failed(supervision::error_chain(&error)),
    }
}
