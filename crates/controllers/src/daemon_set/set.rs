//! A DaemonSet as its controller reads it, the nodes that it is for, and the pods that it makes.

use api::placement::{NodeLabels, wants};
use api::pod::{Taint, Toleration};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{self as core, Affinity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::nodes::NodeFacts;
use crate::controller_history::REVISION_LABEL;
use crate::controller_ref::Owner;
use crate::pod_control::PodTemplate;
use crate::replicas::set::resource;
use crate::scaled_value::{Round, scaled_value};
use crate::workload_metadata::workload_metadata;

/// `true`: nodes that are not ready use the budget of an update, as upstream.
const COUNT_LOST_NODES: &str = "adieu.dev/count-lost-nodes";

/// What is asked for, and what is so.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct DaemonSetView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: DaemonSetSpec,
    #[serde(default)]
    pub(crate) status: DaemonSetStatus,
}

resource!(DaemonSetView, "apps/v1", "apps", "DaemonSet", "daemonsets", it => &it.metadata, &mut it.metadata);

/// What is asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetSpec {
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: LabelSelector,
    pub(crate) template: PodTemplate,
    pub(crate) update_strategy: UpdateStrategy,
    pub(crate) revision_history_limit: Option<i32>,
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
    pub(crate) max_unavailable: Option<IntOrString>,
    pub(crate) max_surge: Option<IntOrString>,
}

/// What is so.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetStatus {
    pub(crate) observed_generation: i64,
    pub(crate) desired_number_scheduled: i32,
    pub(crate) current_number_scheduled: i32,
    pub(crate) number_misscheduled: i32,
    pub(crate) number_ready: i32,
    pub(crate) number_available: i32,
    pub(crate) number_unavailable: i32,
    pub(crate) updated_number_scheduled: i32,
    pub(crate) collision_count: Option<i32>,
}

impl DaemonSetStatus {
    /// As a merge patch. Conditions are other people's and stay as they are.
    pub(super) fn to_patch(&self) -> Value {
        let number = |number: i32| if number == 0 { Value::Null } else { number.into() };
        json!({
            "observedGeneration": self.observed_generation,
            "desiredNumberScheduled": self.desired_number_scheduled,
            "currentNumberScheduled": self.current_number_scheduled,
            "numberMisscheduled": self.number_misscheduled,
            "numberReady": self.number_ready,
            "numberAvailable": number(self.number_available),
            "numberUnavailable": number(self.number_unavailable),
            "updatedNumberScheduled": number(self.updated_number_scheduled),
            "collisionCount": self.collision_count,
        })
    }
}

/// How many nodes an update may take at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Budget {
    /// So many without a pod.
    Unavailable(usize),
    /// So many with two.
    Surge(usize),
}

impl DaemonSetView {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn owner(&self) -> Owner {
        Owner::new("apps/v1", "DaemonSet", &self.metadata)
    }

    /// It is being deleted.
    pub(super) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn is_rolling(&self) -> bool {
        self.spec.update_strategy.kind.as_deref() != Some("OnDelete")
    }

    pub(super) fn history_limit(&self) -> i32 {
        self.spec.revision_history_limit.unwrap_or(10).max(0)
    }

    pub(super) fn counts_lost_nodes(&self) -> bool {
        self.metadata.annotations.as_ref().and_then(|own| own.get(COUNT_LOST_NODES)).is_some_and(|word| word == "true")
    }

    /// Whether a node may have a pod of the old and one of the new template.
    pub(super) fn is_surging(&self, desired: usize) -> bool {
        matches!(self.budget(desired), Budget::Surge(_))
    }

    /// What an update may do when `desired` nodes are to have a pod. Percentages are rounded up.
    pub(super) fn budget(&self, desired: usize) -> Budget {
        let rolling = &self.spec.update_strategy.rolling_update;
        let total = i64::try_from(desired).unwrap_or(i64::MAX);
        let number = |asked: &Option<IntOrString>, default: i64| {
            let number = asked.as_ref().map_or(default, |asked| scaled_value(asked, total, Round::Up));
            usize::try_from(number.max(0)).unwrap_or(usize::MAX)
        };
        match number(&rolling.max_surge, 0) {
            0 => Budget::Unavailable(number(&rolling.max_unavailable, 1).max(1)),
            _ if !self.is_rolling() => Budget::Unavailable(1),
            surge => Budget::Surge(surge),
        }
    }
}

/// Where the pods of a template may be.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Placement {
    node_name: Option<String>,
    node_selector: BTreeMap<String, String>,
    affinity: Option<Affinity>,
    tolerations: Vec<core::Toleration>,
}

/// What a set has to do with a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Eligibility {
    /// A pod is to be there.
    pub(super) should_run: bool,
    /// A pod that is there may stay.
    pub(super) should_continue: bool,
}

impl Placement {
    /// As the template says, with the tolerations that every daemon has.
    pub(super) fn of(template: &PodTemplate) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_name: Option<String>,
            node_selector: BTreeMap<String, String>,
            affinity: Option<Affinity>,
            tolerations: Vec<core::Toleration>,
            host_network: bool,
        }
        let spec: Spec = serde_json::from_value(template.value()["spec"].take()).unwrap_or_default();
        let mut tolerations = spec.tolerations;
        for (key, effect) in automatic(spec.host_network) {
            let there = |it: &core::Toleration| it.key.as_deref() == Some(key) && it.effect.as_deref() == Some(effect);
            tolerations.retain(|it| !there(it));
            tolerations.push(core::Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some(effect.to_owned()),
                ..core::Toleration::default()
            });
        }
        Self {
            node_name: spec.node_name.filter(|name| !name.is_empty()),
            node_selector: spec.node_selector,
            affinity: spec.affinity,
            tolerations,
        }
    }

    /// Whether a pod is to be on the node, or may stay there.
    pub(super) fn eligibility(&self, name: &str, node: &NodeFacts) -> Eligibility {
        let place = NodeLabels { name, labels: &node.labels };
        let fits = self.node_name.as_deref().is_none_or(|own| own == name)
            && wants(&self.node_selector, self.affinity.as_ref(), place);
        let tolerated =
            |taint: &core::Taint| self.tolerations.iter().any(|it| Toleration::from(it).covers(Taint::from(taint)));
        let lives_with = |effects: &[&str]| {
            node.taints.iter().filter(|taint| effects.contains(&taint.effect.as_str())).all(tolerated)
        };
        Eligibility {
            should_run: fits && lives_with(&["NoSchedule", "NoExecute"]),
            should_continue: fits && lives_with(&["NoExecute"]),
        }
    }
}

/// The taints that every daemon lives with.
fn automatic(host_network: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    ];
    all.into_iter().take(if host_network { 7 } else { 6 })
}

/// The pod of a node, made of a template.
pub(super) fn new_pod(owner: &Owner, name: &str, node: &str, hash: &str, template: &str) -> Value {
    let template: Value = serde_json::from_str(template).unwrap_or_default();
    let template = PodTemplate::of(&template);
    let mut pod = template.pod(owner, name);
    pod["metadata"]["labels"][REVISION_LABEL] = json!(hash);
    pod["spec"]["tolerations"] = json!(Placement::of(&template).tolerations);
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
    if !pod["spec"]["affinity"].is_object() {
        pod["spec"]["affinity"] = json!({});
    }
    if !pod["spec"]["affinity"]["nodeAffinity"].is_object() {
        pod["spec"]["affinity"]["nodeAffinity"] = json!({});
    }
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
    pod
}
