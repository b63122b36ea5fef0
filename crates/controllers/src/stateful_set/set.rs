//! A StatefulSet as its controller reads it, and the identities that it gives.

use std::collections::BTreeMap;
use std::ops::Range;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::controller_history::REVISION_LABEL;
use crate::controller_ref::Owner;
use crate::pod_control::PodTemplate;
use crate::replicas::set::resource;
use crate::scaled_value::{Round, scaled_value};
use crate::workload_metadata::workload_metadata;

pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
pub(super) const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
/// `never`: a pod that cannot become ready is not replaced before a person deletes it. `always`: also one that was ready once.
const UNSTICK: &str = "adieu.dev/unstick";

/// What is asked for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct StatefulSetView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: StatefulSetSpec,
    #[serde(default)]
    pub(crate) status: StatefulSetStatus,
}

resource!(StatefulSetView, "apps/v1", "apps", "StatefulSet", "statefulsets", it => &it.metadata, &mut it.metadata);

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    pub(crate) replicas: Option<i32>,
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: LabelSelector,
    pub(crate) template: PodTemplate,
    pub(crate) service_name: Option<String>,
    pub(crate) pod_management_policy: Option<String>,
    pub(crate) update_strategy: UpdateStrategy,
    pub(crate) revision_history_limit: Option<i32>,
    pub(crate) ordinals: Ordinals,
    pub(crate) volume_claim_templates: Vec<Value>,
    #[serde(rename = "persistentVolumeClaimRetentionPolicy")]
    pub(crate) retention: RetentionPolicy,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(crate) struct Ordinals {
    pub(crate) start: i32,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UpdateStrategy {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) rolling_update: RollingUpdate,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollingUpdate {
    pub(crate) partition: Option<i32>,
    pub(crate) max_unavailable: Option<IntOrString>,
}

/// What becomes of claims.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RetentionPolicy {
    pub(crate) when_deleted: Option<String>,
    pub(crate) when_scaled: Option<String>,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetStatus {
    pub(crate) observed_generation: i64,
    pub(crate) replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) current_replicas: i32,
    pub(crate) updated_replicas: i32,
    pub(crate) current_revision: String,
    pub(crate) update_revision: String,
    pub(crate) collision_count: Option<i32>,
}

impl StatefulSetStatus {
    /// As a merge patch. Conditions are other people's and stay as they are; numbers that are nothing are left out, as upstream does.
    pub(super) fn to_patch(&self) -> Value {
        let number = |number: i32| if number == 0 { Value::Null } else { number.into() };
        json!({
            "observedGeneration": self.observed_generation,
            "replicas": self.replicas,
            "readyReplicas": number(self.ready_replicas),
            "availableReplicas": self.available_replicas,
            "currentReplicas": number(self.current_replicas),
            "updatedReplicas": number(self.updated_replicas),
            "currentRevision": self.current_revision,
            "updateRevision": self.update_revision,
            "collisionCount": self.collision_count,
        })
    }
}

/// Which pods that block an update are deleted by us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unstick {
    Never,
    /// Those that were never ready.
    NeverReady,
    Always,
}

impl StatefulSetView {
    /// The ordinals that are to have a pod.
    pub(super) fn ordinals(&self) -> Range<i64> {
        let start = i64::from(self.spec.ordinals.start.max(0));
        start..start + i64::from(self.replicas())
    }

    pub(super) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    /// The ordinal of a pod of this name, if it is one that this set gives.
    pub(super) fn ordinal(&self, pod: &str) -> Option<i64> {
        let digits = pod.strip_prefix(self.name())?.strip_prefix('-')?;
        let ordinal: i32 = digits.parse().ok().filter(|ordinal| *ordinal >= 0)?;
        (ordinal.to_string() == digits).then_some(i64::from(ordinal))
    }

    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn pod_name(&self, ordinal: i64) -> String {
        format!("{}-{ordinal}", self.name())
    }

    /// All at once, in no order.
    pub(super) fn is_parallel(&self) -> bool {
        self.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    pub(super) fn is_rolling(&self) -> bool {
        self.spec.update_strategy.kind.as_deref() != Some("OnDelete")
    }

    /// The first ordinal that gets a new template.
    pub(super) fn first_updated(&self) -> i64 {
        let partition = self.spec.update_strategy.rolling_update.partition.filter(|_| self.is_rolling());
        self.ordinals().start + i64::from(partition.unwrap_or(0).max(0))
    }

    /// How many pods an update may take away at once.
    pub(super) fn max_unavailable(&self) -> i64 {
        let asked = self.spec.update_strategy.rolling_update.max_unavailable.as_ref();
        asked.map_or(1, |asked| scaled_value(asked, i64::from(self.replicas()), Round::Down)).max(1)
    }

    pub(super) fn history_limit(&self) -> i32 {
        self.spec.revision_history_limit.unwrap_or(10).max(0)
    }

    /// It is being deleted.
    pub(super) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn unstick(&self) -> Unstick {
        match self.metadata.annotations.as_ref().and_then(|own| own.get(UNSTICK)).map(String::as_str) {
            Some("never") => Unstick::Never,
            Some("always") => Unstick::Always,
            _ => Unstick::NeverReady,
        }
    }

    pub(super) fn owner(&self) -> Owner {
        Owner::new("apps/v1", "StatefulSet", &self.metadata)
    }

    /// The labels that say who a pod is.
    pub(super) fn identity(&self, ordinal: i64) -> BTreeMap<&'static str, String> {
        BTreeMap::from([(POD_NAME_LABEL, self.pod_name(ordinal)), (POD_INDEX_LABEL, ordinal.to_string())])
    }

    /// The claims of an ordinal: the name of the template, and that of the claim.
    pub(super) fn claims(&self, ordinal: i64) -> impl Iterator<Item = (&Value, String)> {
        let named = move |template: &Value| format!("{}-{}-{ordinal}", api::meta::name(template), self.name());
        self.spec.volume_claim_templates.iter().map(move |template| (template, named(template)))
    }

    /// The pod of an ordinal, made of a template.
    pub(super) fn pod(&self, owner: &Owner, ordinal: i64, revision: &str, template: &str) -> Value {
        let name = self.pod_name(ordinal);
        let template: Value = serde_json::from_str(template).unwrap_or_default();
        let mut pod = PodTemplate::of(&template).pod(owner, &name);
        for (label, value) in self.identity(ordinal) {
            pod["metadata"]["labels"][label] = json!(value);
        }
        pod["metadata"]["labels"][REVISION_LABEL] = json!(revision);
        pod["spec"]["hostname"] = json!(name);
        if let Some(service) = self.spec.service_name.as_deref().filter(|service| !service.is_empty()) {
            pod["spec"]["subdomain"] = json!(service);
        }
        let claims: Vec<(&str, String)> =
            self.claims(ordinal).map(|(template, claim)| (api::meta::name(template), claim)).collect();
        if !claims.is_empty() {
            let others = pod["spec"]["volumes"].as_array().into_iter().flatten();
            let others = others.filter(|volume| !claims.iter().any(|(name, _)| volume["name"] == *name)).cloned();
            let own = claims
                .iter()
                .map(|(name, claim)| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } }));
            pod["spec"]["volumes"] = own.chain(others).collect();
        }
        pod
    }
}
