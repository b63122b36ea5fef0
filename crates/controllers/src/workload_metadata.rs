//! Metadata of workloads: with annotations, which controllers read and copy, without the record of who wrote which field and without
//! what `kubectl apply` wrote last.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// What `kubectl apply` remembers: as large as the object itself, and of no interest to anybody else.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// For `#[serde(deserialize_with)]` on workloads that are read and never written back whole.
pub(crate) fn workload_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut read = WorkloadMetadata::deserialize(deserializer)?;
    read.annotations.iter_mut().for_each(|annotations| drop(annotations.remove(LAST_APPLIED)));
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        generation: read.generation,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        labels: read.labels,
        annotations: read.annotations,
        owner_references: read.owner_references,
        ..ObjectMeta::default()
    })
}
