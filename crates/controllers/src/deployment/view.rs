//! A Deployment as far as its controller reads it, and the numbers that follow from what it asks for.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::Value;

use crate::controller_ref::Owner;
use crate::pod_control::PodTemplate;
use crate::replicas::brakes::Brakes;
use crate::workload_metadata::workload_metadata;

/// What is asked for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct DeploymentView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: DeploymentSpec,
    #[serde(default)]
    pub(crate) status: DeploymentStatus,
}

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    replicas: Option<i32>,
    pub(crate) min_ready_seconds: i32,
    pub(crate) paused: bool,
    progress_deadline_seconds: Option<i32>,
    revision_history_limit: Option<i32>,
    pub(crate) selector: LabelSelector,
    strategy: Strategy,
    pub(crate) template: PodTemplate,
}

/// How one template replaces another.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    #[serde(rename = "type")]
    kind: String,
    rolling_update: RollingUpdate,
}

/// How many pods more or fewer than asked for there may be meanwhile.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct RollingUpdate {
    max_surge: Option<IntOrString>,
    max_unavailable: Option<IntOrString>,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentStatus {
    pub(crate) observed_generation: i64,
    pub(crate) replicas: i32,
    pub(crate) updated_replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) unavailable_replicas: i32,
    pub(crate) terminating_replicas: Option<i32>,
    pub(crate) collision_count: Option<i32>,
    /// As they were written: whoever else has conditions here keeps them.
    pub(crate) conditions: Vec<Value>,
}

/// How many pods there may be beyond, and how many may be missing of, those that are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fenceposts {
    pub(crate) surge: i32,
    pub(crate) unavailable: i32,
}

impl DeploymentView {
    /// How many pods it is to have.
    pub(crate) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    /// It is being deleted.
    pub(crate) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    pub(crate) fn brakes(&self) -> Brakes {
        Brakes::of(self.metadata.annotations.as_ref())
    }

    /// All old pods end before the first new one begins.
    pub(crate) fn is_recreate(&self) -> bool {
        self.spec.strategy.kind == "Recreate"
    }

    /// How long a rollout may stand still, if anybody minds.
    pub(crate) fn progress_deadline(&self) -> Option<i32> {
        self.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
    }

    /// How many former revisions are kept, if that is limited.
    pub(crate) fn history_limit(&self) -> Option<usize> {
        let limit = self.spec.revision_history_limit.filter(|limit| *limit != i32::MAX)?;
        Some(usize::try_from(limit).unwrap_or(0))
    }

    /// Both are nothing unless it rolls.
    pub(crate) fn fenceposts(&self) -> Fenceposts {
        if self.is_recreate() {
            return Fenceposts { surge: 0, unavailable: 0 };
        }
        let RollingUpdate { max_surge, max_unavailable } = &self.spec.strategy.rolling_update;
        let replicas = self.replicas();
        let surge = scaled(max_surge.as_ref(), replicas, true);
        let unavailable = scaled(max_unavailable.as_ref(), replicas, false);
        // Neither more nor fewer: nothing could ever happen.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Fenceposts { surge, unavailable: unavailable.min(replicas) }
    }

    /// How what it owns refers to it.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new("apps/v1", "Deployment", &self.metadata)
    }
}

/// A number, or a part of `whole`; a quarter if nothing was written, and nothing if it cannot be read.
fn scaled(written: Option<&IntOrString>, whole: i32, round_up: bool) -> i32 {
    let percent = match written {
        None => 25,
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => match text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok()) {
            Some(percent) => percent.clamp(0, i64::from(i32::MAX)),
            None => 0,
        },
    };
    let hundredths = percent.saturating_mul(i64::from(whole));
    let part = if round_up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 };
    i32::try_from(part).unwrap_or(i32::MAX)
}

impl k8s_openapi::Resource for DeploymentView {
    const API_VERSION: &'static str = "apps/v1";
    const GROUP: &'static str = "apps";
    const KIND: &'static str = "Deployment";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "deployments";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for DeploymentView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn fenceposts(replicas: i32, rolling: Value) -> (i32, i32) {
        let spec = json!({ "replicas": replicas, "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
        let view: DeploymentView = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        let Fenceposts { surge, unavailable } = view.fenceposts();
        (surge, unavailable)
    }

    /// [TR-75]
    #[test]
    fn deployment_fenceposts_round_surge_up_and_unavailable_down() {
        assert_eq!(fenceposts(1, json!({})), (1, 0));
        assert_eq!(fenceposts(3, json!({})), (1, 0));
        assert_eq!(fenceposts(10, json!({})), (3, 2));
        assert_eq!(fenceposts(15, json!({})), (4, 3));
        assert_eq!(fenceposts(4, json!({ "maxSurge": 0, "maxUnavailable": "1%" })), (0, 1), "both nothing is one");
        assert_eq!(fenceposts(2, json!({ "maxSurge": 0, "maxUnavailable": 9 })), (0, 2), "no more than there are");
        assert_eq!(fenceposts(0, json!({})), (0, 0), "nothing is asked for");
        assert_eq!(fenceposts(i32::MAX, json!({ "maxSurge": "100%", "maxUnavailable": "x%" })), (i32::MAX, 0));
        assert_eq!(
            fenceposts(4, json!({ "maxSurge": "999999999999999999999%" })),
            (0, 1),
            "what cannot be read is nothing"
        );
    }
}
