//! What the cluster tells of the pods of a drill before and after their ends: on Adieu more than elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use api::TerminationRecord;
use api::termination::{API_VERSION, PLURAL, ProcessSignals, TerminationProgress, record_name};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::observations::PodSeen;
use super::pods::uid;
use crate::cluster::Cluster;
use crate::plan::{self, PodAdvice};
use crate::verbs::{Call, path_segment};

/// So many pods are looked into before they leave.
const PODS_MOST: usize = 50;
/// So many questions at a time.
const AT_A_TIME: usize = 8;
/// One answer may take this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A pod that has just gone has its record a moment later.
const RECORD_WAIT: Duration = Duration::from_secs(3);
const RECORD_LOOK: Duration = Duration::from_millis(50);

/// What was known of pods while they were well, by UID.
#[derive(Debug, Default)]
pub(super) struct Before {
    processes: BTreeMap<String, Vec<ProcessSignals>>,
    written: BTreeMap<String, Vec<PodAdvice>>,
    /// Whether the cluster keeps records of ends.
    pub keeps_records: bool,
}

/// Asks what can only be asked while the pods are there.
pub(super) async fn before(cluster: &Cluster, pods: &[Pod]) -> Before {
    let keeps_records = is_there(cluster, &format!("/apis/{API_VERSION}")).await;
    let few = &pods[..pods.len().min(PODS_MOST)];
    let written = few.iter().filter_map(|pod| {
        let mut object = serde_json::to_value(pod).ok()?;
        object["apiVersion"] = "v1".into();
        object["kind"] = "Pod".into();
        Some((uid(pod), plan::advice_on(&object)))
    });
    let mut found = Before { keeps_records, written: written.collect(), ..Before::default() };
    if keeps_records {
        let asking = stream::iter(few).map(|pod| async move { (uid(pod), processes(cluster, pod).await) });
        found.processes = asking.buffer_unordered(AT_A_TIME).collect().await;
    }
    found
}

/// What the first processes of a pod make of their stop signals, if its node tells.
async fn processes(cluster: &Cluster, pod: &Pod) -> Vec<ProcessSignals> {
    let (name, node) = (&pod.metadata.name, pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()));
    let path = || {
        let [node, namespace, name] = [node?, &cluster.namespace, name.as_ref()?].map(|part| path_segment(part).ok());
        Some(format!("/api/v1/nodes/{}/proxy/terminations/{}/{}", node?, namespace?, name?))
    };
    let Some(path) = path() else { return Vec::new() };
    let told: Option<TerminationProgress> =
        get(cluster, &path).await.and_then(|progress| serde_json::from_value(progress).ok());
    told.map(|progress| progress.processes).unwrap_or_default()
}

/// Adds what is known of the ends, and what was known before. Says what could not be had.
pub(super) async fn after(cluster: &Cluster, before: &Before, pods: &mut [PodSeen]) -> Vec<String> {
    let until = Instant::now() + RECORD_WAIT;
    let mut without = 0;
    for pod in &mut *pods {
        pod.processes = before.processes.get(pod.uid()).cloned().unwrap_or_default();
        pod.written = before.written.get(pod.uid()).cloned().unwrap_or_default();
    }
    if before.keeps_records {
        let asking = stream::iter(pods.iter_mut().filter(|pod| pod.gone_ms.is_some()));
        let asking = asking.map(|pod| async {
            pod.record = record(cluster, pod, until).await;
            usize::from(pod.record.is_none())
        });
        without = asking.buffer_unordered(AT_A_TIME).fold(0, |sum, one| async move { sum + one }).await;
    }
    match without {
        0 => Vec::new(),
        count => vec![format!("how {count} pods ended: their termination records are not there, or may not be read")],
    }
}

async fn record(cluster: &Cluster, pod: &PodSeen, until: Instant) -> Option<TerminationRecord> {
    let name = path_segment(&record_name(pod.name(), pod.uid())).ok()?;
    let path = format!("/apis/{API_VERSION}/namespaces/{}/{PLURAL}/{name}", path_segment(&cluster.namespace).ok()?);
    loop {
        let found = get(cluster, &path).await.and_then(|found| serde_json::from_value::<TerminationRecord>(found).ok());
        if let Some(record) = found.filter(|record| record.pod.uid == pod.uid()) {
            return Some(record);
        }
        if Instant::now() >= until {
            return None;
        }
        sleep(RECORD_LOOK).await;
    }
}

async fn is_there(cluster: &Cluster, path: &str) -> bool {
    get(cluster, path).await.is_some()
}

async fn get(cluster: &Cluster, path: &str) -> Option<Value> {
    let call = Call::get(path, "look");
    Some(timeout(PATIENCE, cluster.try_ask(&call)).await.ok()?.ok()?.value)
}
