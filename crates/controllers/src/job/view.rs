//! A Job as far as controllers read it.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::policy::{PodFailurePolicy, SuccessPolicy};
use crate::controller_ref::Owner;
use crate::pod_control::PodTemplate;
use crate::workload_metadata::workload_metadata;

/// What has us as its controller, if it says who.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// What is asked for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct JobView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: JobSpec,
    #[serde(default)]
    pub(crate) status: JobStatus,
}

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    pub(crate) parallelism: Option<i32>,
    pub(crate) completions: Option<i32>,
    pub(crate) completion_mode: Option<String>,
    pub(crate) active_deadline_seconds: Option<i64>,
    pub(crate) backoff_limit: Option<i32>,
    pub(crate) backoff_limit_per_index: Option<i32>,
    pub(crate) max_failed_indexes: Option<i32>,
    pub(crate) ttl_seconds_after_finished: Option<i64>,
    pub(crate) suspend: Option<bool>,
    pub(crate) pod_failure_policy: Option<PodFailurePolicy>,
    pub(crate) success_policy: Option<SuccessPolicy>,
    pub(crate) pod_replacement_policy: Option<String>,
    pub(crate) managed_by: Option<String>,
    pub(crate) selector: LabelSelector,
    pub(crate) template: PodTemplate,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobStatus {
    /// As they were written: whoever else has conditions here keeps them.
    pub(crate) conditions: Vec<Value>,
    pub(crate) start_time: Option<Time>,
    pub(crate) completion_time: Option<Time>,
    pub(crate) active: i32,
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    pub(crate) ready: Option<i32>,
    pub(crate) terminating: Option<i32>,
    pub(crate) completed_indexes: String,
    pub(crate) failed_indexes: Option<String>,
    pub(crate) uncounted_terminated_pods: UncountedTerminatedPods,
}

/// The UIDs of pods that have ended and are not in the numbers yet.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub(crate) struct UncountedTerminatedPods {
    pub(crate) succeeded: Vec<String>,
    pub(crate) failed: Vec<String>,
}

/// The end of a Job: which of the two, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Finished {
    pub(crate) complete: bool,
    pub(crate) at: Option<Timestamp>,
}

impl JobView {
    /// How those who are owned by it refer to it.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new("batch/v1", "Job", &self.metadata)
    }

    /// It is being deleted.
    pub(crate) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Another program looks after it.
    pub(crate) fn is_managed_by_another(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|by| by != JOB_CONTROLLER)
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub(crate) fn parallelism(&self) -> i64 {
        i64::from(self.spec.parallelism.unwrap_or(1).max(0))
    }

    /// The number of indexes, if its pods have one each.
    pub(crate) fn indexes(&self) -> Option<u32> {
        let indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        indexed.then(|| u32::try_from(self.spec.completions.unwrap_or(0)).unwrap_or(0))
    }

    /// A pod that leaves is replaced when it has ended, and not before.
    pub(crate) fn replaces_failed_only(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    /// How it ended, if it has.
    pub(crate) fn finished(&self) -> Option<Finished> {
        let ended = |kind: &str| self.status.condition(kind).map(transition_time);
        let failed = || ended("Failed").map(|at| Finished { complete: false, at });
        ended("Complete").map(|at| Finished { complete: true, at }).or_else(failed)
    }
}

fn transition_time(condition: &Value) -> Option<Timestamp> {
    condition["lastTransitionTime"].as_str().and_then(api::time::parse)
}

impl JobStatus {
    /// The condition of this type, if it is so.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Value> {
        self.conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")
    }

    /// Numbers that are nothing are left out, as upstream does.
    pub(crate) fn to_patch(&self) -> Value {
        let number = |number: i32| if number == 0 { Value::Null } else { number.into() };
        let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        let list = |list: &[String]| if list.is_empty() { Value::Null } else { Value::from(list) };
        let conditions = if self.conditions.is_empty() { Value::Null } else { Value::from(self.conditions.clone()) };
        let time = |time: &Option<Time>| time.as_ref().map(|time| api::time::seconds(time.0));
        let uncounted = &self.uncounted_terminated_pods;
        json!({
            "conditions": conditions,
            "startTime": time(&self.start_time),
            "completionTime": time(&self.completion_time),
            "active": number(self.active),
            "succeeded": number(self.succeeded),
            "failed": number(self.failed),
            "ready": self.ready,
            "terminating": self.terminating,
            "completedIndexes": text(&self.completed_indexes),
            "failedIndexes": self.failed_indexes,
            "uncountedTerminatedPods": { "succeeded": list(&uncounted.succeeded), "failed": list(&uncounted.failed) },
        })
    }
}

impl k8s_openapi::Resource for JobView {
    const API_VERSION: &'static str = "batch/v1";
    const GROUP: &'static str = "batch";
    const KIND: &'static str = "Job";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "jobs";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for JobView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
