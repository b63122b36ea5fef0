//! Object metadata without managed fields and almost all annotations, for controllers that hold many objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// The fields that are read. The others are skipped without being parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TrimmedMetadata {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    annotations: Option<KeptAnnotations>,
}

/// Declares the annotations that controllers read, by their keys.
macro_rules! kept_annotations {
    ($($field:ident = $key:literal),+ $(,)?) => {
        /// The annotations that say what an object is. The others are skipped without being parsed.
        #[derive(Deserialize)]
        struct KeptAnnotations {
            $(#[serde(rename = $key)] $field: Option<String>,)+
        }

        impl KeptAnnotations {
            /// `None` if there are none of them.
            fn into_map(self) -> Option<BTreeMap<String, String>> {
                let mut kept = BTreeMap::new();
                $(kept.extend(self.$field.map(|value| ($key.to_owned(), value)));)+
                (!kept.is_empty()).then_some(kept)
            }
        }
    };
}

kept_annotations! {
    mirror = "kubernetes.io/config.mirror",
    surge_asked_at = "adieu.dev/surge-asked-at",
    deletion_cost = "controller.kubernetes.io/pod-deletion-cost",
    completion_index = "batch.kubernetes.io/job-completion-index",
    index_failures = "batch.kubernetes.io/job-index-failure-count",
    index_ignored_failures = "batch.kubernetes.io/job-index-ignored-failure-count",
}

/// Reads metadata without the record of who wrote which field and without annotations, which are most of it, but for the few that
/// controllers read. For `#[serde(deserialize_with)]` on objects that are looked at and never written back.
pub fn trimmed_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let trimmed = TrimmedMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: trimmed.name,
        generate_name: trimmed.generate_name,
        namespace: trimmed.namespace,
        uid: trimmed.uid,
        resource_version: trimmed.resource_version,
        generation: trimmed.generation,
        creation_timestamp: trimmed.creation_timestamp,
        deletion_timestamp: trimmed.deletion_timestamp,
        deletion_grace_period_seconds: trimmed.deletion_grace_period_seconds,
        labels: trimmed.labels,
        owner_references: trimmed.owner_references,
        finalizers: trimmed.finalizers,
        annotations: trimmed.annotations.and_then(KeptAnnotations::into_map),
        ..ObjectMeta::default()
    })
}
