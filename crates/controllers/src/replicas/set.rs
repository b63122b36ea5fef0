//! A ReplicaSet or a ReplicationController as far as controllers read it: one shape for both.

use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::controller_ref::Owner;
use crate::pod_control::PodTemplate;
use crate::workload_metadata::workload_metadata;

/// What both kinds ask for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct ReplicaSetView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: SetSpec,
    #[serde(default)]
    pub(crate) status: SetStatus,
}

/// A ReplicationController, in the same words.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(transparent)]
pub(crate) struct ReplicationControllerView(#[serde(deserialize_with = "controller_as_set")] pub(crate) ReplicaSetView);

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SetSpec {
    pub(crate) replicas: Option<i32>,
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: LabelSelector,
    pub(crate) template: PodTemplate,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SetStatus {
    pub(crate) replicas: i32,
    pub(crate) fully_labeled_replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) terminating_replicas: Option<i32>,
    pub(crate) observed_generation: i64,
    /// As they were written: whoever else has conditions here keeps them.
    pub(crate) conditions: Vec<Value>,
}

/// The selector of a ReplicationController is a plain map; an empty one is the template's labels.
fn controller_as_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ReplicaSetView, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        replicas: Option<i32>,
        min_ready_seconds: i32,
        selector: BTreeMap<String, String>,
        template: PodTemplate,
    }
    #[derive(Deserialize)]
    struct View {
        #[serde(deserialize_with = "workload_metadata")]
        metadata: ObjectMeta,
        #[serde(default)]
        spec: Spec,
        #[serde(default)]
        status: SetStatus,
    }
    let View { metadata, spec, status } = View::deserialize(deserializer)?;
    let labels = if spec.selector.is_empty() { spec.template.labels() } else { spec.selector };
    let selector = LabelSelector { match_labels: Some(labels), match_expressions: None };
    let Spec { replicas, min_ready_seconds, template, .. } = spec;
    Ok(ReplicaSetView { metadata, spec: SetSpec { replicas, min_ready_seconds, selector, template }, status })
}

/// Which of the two kinds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SetKind {
    ReplicaSet,
    ReplicationController,
}

impl SetKind {
    /// How those who are owned by `set` refer to it.
    pub(crate) fn owner(self, set: &ReplicaSetView) -> Owner {
        match self {
            Self::ReplicaSet => Owner::new("apps/v1", "ReplicaSet", &set.metadata),
            Self::ReplicationController => Owner::new("v1", "ReplicationController", &set.metadata),
        }
    }
}

impl ReplicaSetView {
    /// How many pods it is to have.
    pub(crate) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// It is being deleted.
    pub(crate) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

macro_rules! resource {
    ($view:ty, $version:literal, $group:literal, $kind:literal, $plural:literal, $metadata:ident => $at:expr, $at_mut:expr) => {
        impl k8s_openapi::Resource for $view {
            const API_VERSION: &'static str = $version;
            const GROUP: &'static str = $group;
            const KIND: &'static str = $kind;
            const VERSION: &'static str = "v1";
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = NamespaceResourceScope;
        }

        impl k8s_openapi::Metadata for $view {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                let $metadata = self;
                $at
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                let $metadata = self;
                $at_mut
            }
        }
    };
}

pub(crate) use resource;

resource!(ReplicaSetView, "apps/v1", "apps", "ReplicaSet", "replicasets", it => &it.metadata, &mut it.metadata);
resource!(ReplicationControllerView, "v1", "", "ReplicationController", "replicationcontrollers", it => &it.0.metadata, &mut it.0.metadata);
