//! A HorizontalPodAutoscaler as far as its controller reads it.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::controller_ref::Owner;
use crate::workload_metadata::workload_metadata;

/// The server takes no longer ones; what was stored before it looked must not be remembered for ever either.
const PERIOD_MAX: Duration = Duration::from_secs(1800);
const WINDOW_MAX: Duration = Duration::from_secs(3600);

/// What is asked for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct AutoscalerView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: AutoscalerSpec,
    #[serde(default)]
    pub(crate) status: AutoscalerStatus,
}

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerSpec {
    pub(crate) scale_target_ref: ScaleTarget,
    pub(crate) min_replicas: Option<i32>,
    pub(crate) max_replicas: i32,
    pub(crate) metrics: Vec<MetricSpec>,
    pub(crate) behavior: Option<Behavior>,
}

/// What is scaled.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScaleTarget {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// What is measured, and what it is to be.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MetricSpec {
    pub(crate) r#type: String,
    pub(crate) resource: Option<ResourceMetric>,
    pub(crate) container_resource: Option<ResourceMetric>,
}

/// A resource of pods, or of one of their containers.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(crate) struct ResourceMetric {
    pub(crate) name: String,
    pub(crate) container: Option<String>,
    pub(crate) target: Target,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Target {
    pub(crate) average_utilization: Option<i64>,
    pub(crate) average_value: Option<String>,
}

/// How fast it may go up and down.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Behavior {
    pub(crate) scale_up: Option<ScalingRules>,
    pub(crate) scale_down: Option<ScalingRules>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScalingRules {
    pub(crate) stabilization_window_seconds: Option<u64>,
    pub(crate) select_policy: Option<String>,
    pub(crate) policies: Vec<ScalingPolicy>,
    pub(crate) tolerance: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScalingPolicy {
    pub(crate) r#type: String,
    pub(crate) value: i64,
    pub(crate) period_seconds: u64,
}

impl ScalingPolicy {
    pub(crate) fn period(&self) -> Duration {
        Duration::from_secs(self.period_seconds).min(PERIOD_MAX)
    }
}

impl ScalingRules {
    pub(crate) fn window(&self) -> Option<Duration> {
        self.stabilization_window_seconds.map(|seconds| Duration::from_secs(seconds).min(WINDOW_MAX))
    }
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerStatus {
    pub(crate) current_replicas: i32,
    pub(crate) desired_replicas: i32,
    pub(crate) last_scale_time: Option<Time>,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) conditions: Vec<Value>,
    pub(crate) current_metrics: Vec<Value>,
}

impl AutoscalerStatus {
    pub(crate) fn to_patch(&self) -> Value {
        let list = |list: &[Value]| if list.is_empty() { Value::Null } else { Value::from(list) };
        json!({
            "currentReplicas": self.current_replicas,
            "desiredReplicas": self.desired_replicas,
            "lastScaleTime": self.last_scale_time.as_ref().map(|time| api::time::seconds(time.0)),
            "observedGeneration": self.observed_generation,
            "conditions": list(&self.conditions),
            "currentMetrics": list(&self.current_metrics),
        })
    }
}

impl AutoscalerView {
    pub(crate) fn owner(&self) -> Owner {
        Owner::new("autoscaling/v2", "HorizontalPodAutoscaler", &self.metadata)
    }

    pub(crate) fn min_replicas(&self) -> i32 {
        self.spec.min_replicas.unwrap_or(1)
    }
}

impl k8s_openapi::Resource for AutoscalerView {
    const API_VERSION: &'static str = "autoscaling/v2";
    const GROUP: &'static str = "autoscaling";
    const KIND: &'static str = "HorizontalPodAutoscaler";
    const VERSION: &'static str = "v2";
    const URL_PATH_SEGMENT: &'static str = "horizontalpodautoscalers";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for AutoscalerView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
