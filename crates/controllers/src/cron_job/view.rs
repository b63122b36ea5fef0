//! A CronJob as far as its controller reads it.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::controller_ref::Owner;
use crate::workload_metadata::workload_metadata;

/// What is asked for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct CronJobView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: CronJobSpec,
    #[serde(default)]
    pub(crate) status: CronJobStatus,
}

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobSpec {
    pub(crate) schedule: String,
    pub(crate) time_zone: Option<String>,
    pub(crate) starting_deadline_seconds: Option<i64>,
    pub(crate) concurrency_policy: Option<String>,
    pub(crate) suspend: Option<bool>,
    pub(crate) job_template: JobTemplate,
    pub(crate) successful_jobs_history_limit: Option<usize>,
    pub(crate) failed_jobs_history_limit: Option<usize>,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobStatus {
    pub(crate) active: Vec<ObjectReference>,
    pub(crate) last_schedule_time: Option<Time>,
    pub(crate) last_successful_time: Option<Time>,
}

impl CronJobStatus {
    pub(crate) fn to_patch(&self) -> Value {
        let time = |time: &Option<Time>| time.as_ref().map(|time| api::time::seconds(time.0));
        let active = if self.active.is_empty() { Value::Null } else { json!(self.active) };
        json!({ "active": active, "lastScheduleTime": time(&self.last_schedule_time),
            "lastSuccessfulTime": time(&self.last_successful_time) })
    }
}

/// The Job that is made each time, kept as text: mostly nobody asks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct JobTemplate(Box<str>);

impl<'de> Deserialize<'de> for JobTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|template| Self(template.to_string().into()))
    }
}

impl JobTemplate {
    /// A Job of this template called `name`, due at `scheduled`, which is a date as annotations have it.
    pub(crate) fn job(&self, owner: &Owner, name: &str, scheduled: &str) -> Value {
        let template: Value = serde_json::from_str(&self.0).unwrap_or_default();
        let part = |key: &str| {
            if template["metadata"][key].is_object() { template["metadata"][key].clone() } else { json!({}) }
        };
        let mut annotations = part("annotations");
        annotations[super::controller::SCHEDULED] = scheduled.into();
        let metadata = json!({ "name": name, "namespace": &*owner.namespace, "labels": part("labels"),
            "annotations": annotations, "ownerReferences": [owner.reference()] });
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"] })
    }
}

impl CronJobView {
    /// How those who are owned by it refer to it.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new("batch/v1", "CronJob", &self.metadata)
    }

    /// It is being deleted.
    pub(crate) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn is_annotated(&self, key: &str) -> bool {
        self.metadata.annotations.as_ref().and_then(|all| all.get(key)).is_some_and(|value| value == "true")
    }
}

impl k8s_openapi::Resource for CronJobView {
    const API_VERSION: &'static str = "batch/v1";
    const GROUP: &'static str = "batch";
    const KIND: &'static str = "CronJob";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "cronjobs";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for CronJobView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
