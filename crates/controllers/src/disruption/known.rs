//! What the disruption controller knows: budgets, pods and the workloads that own them.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod;
use api::selector::object::selects;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::plan::{EVICTION_LIFE, Selected};
use crate::objects::Objects;
use crate::pod::PodView;

/// The UID of anything.
pub(super) type Uid = Arc<str>;

/// A pod, as far as budgets care.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PodFacts {
    pub(super) namespace: Arc<str>,
    pub(super) name: String,
    /// Its labels, in the least room: there is one of these for every pod, and mostly nobody asks.
    labels: Box<[(Box<str>, Box<str>)]>,
    pub(super) controller: Option<OwnerReference>,
    ready: bool,
    leaving: bool,
    /// Since when it is said to be disrupted while it does not leave.
    doomed_since: Option<Timestamp>,
}

impl PodFacts {
    fn of(pod: &PodView) -> Self {
        let is_true = |kind: &str| pod.status.conditions.iter().find(|c| c.type_ == kind && c.status == "True");
        let leaving = pod::is_terminating(pod);
        let doomed = is_true("DisruptionTarget")
            // What the node says of itself may take as long as the node likes.
            .filter(|condition| condition.reason.as_deref() != Some("TerminationByKubelet"))
            .filter(|_| !leaving && !pod::is_terminal(pod));
        Self {
            namespace: pod.namespace().unwrap_or_default().into(),
            name: pod.name_any(),
            labels: pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            controller: pod.owner_references().iter().find(|owner| owner.controller == Some(true)).cloned(),
            ready: pod::is_ready(pod),
            leaving,
            doomed_since: doomed.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0),
        }
    }

    /// Its labels in the shape that selectors read.
    fn labelled(&self) -> Value {
        let labels: Map<String, Value> =
            self.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
        json!({ "metadata": { "labels": labels } })
    }

    /// When the pod's disruption has turned out not to happen.
    pub(super) fn spared_at(&self) -> Option<Timestamp> {
        self.doomed_since.and_then(|since| since.saturating_add(EVICTION_LIFE).ok())
    }
}

/// A workload with a number of pods.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Workload {
    /// How many pods it is asked for.
    pub(super) replicas: i64,
    /// Who decides that, if it is not itself.
    pub(super) controller: Option<OwnerReference>,
}

impl Workload {
    pub(super) fn of(object: &DynamicObject) -> Self {
        Self {
            replicas: object.data["spec"]["replicas"].as_i64().unwrap_or(1),
            controller: object.owner_references().iter().find(|owner| owner.controller == Some(true)).cloned(),
        }
    }
}

/// A budget with its selector in the shape selectors have on the wire.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    pub(super) object: Arc<PodDisruptionBudget>,
    selector: Value,
}

/// The index of pods by their namespace.
const BY_NAMESPACE: usize = 0;

/// Everything known, and which budgets deserve a look because of it.
#[derive(Debug)]
pub(super) struct KnownObjects {
    pub(super) budgets: BTreeMap<Uid, Budget>,
    pods: Objects<PodFacts, 1>,
    pub(super) workloads: BTreeMap<Uid, Workload>,
    /// Budgets to be counted.
    dirty: BTreeSet<Uid>,
}

impl Default for KnownObjects {
    fn default() -> Self {
        Self {
            budgets: BTreeMap::new(),
            pods: Objects::new([|pod: &PodFacts| Some(Arc::clone(&pod.namespace))]),
            workloads: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }
}

impl KnownObjects {
    /// The budgets that are to be counted because of what was told since.
    pub(super) fn take_dirty(&mut self) -> BTreeSet<Uid> {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&PodFacts> {
        self.pods.get(uid)
    }

    pub(super) fn budget_seen(&mut self, object: Arc<PodDisruptionBudget>) {
        let Some(uid) = object.uid().map(Uid::from) else { return };
        let selector = object.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = selector.and_then(|selector| serde_json::to_value(selector).ok()).unwrap_or(Value::Null);
        self.dirty.insert(uid.clone());
        self.budgets.insert(uid, Budget { object, selector });
    }

    pub(super) fn budget_gone(&mut self, uid: &str) {
        self.budgets.remove(uid);
        self.dirty.remove(uid);
    }

    pub(super) fn pod_seen(&mut self, pod: &PodView) {
        let Some(uid) = pod.uid().map(Uid::from) else { return };
        let facts = PodFacts::of(pod);
        if self.pods.get(&uid) == Some(&facts) {
            return;
        }
        self.touch(&facts);
        if let Some(old) = self.pods.put(uid, facts) {
            self.touch(&old);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        if let Some(old) = self.pods.remove(uid) {
            self.touch(&old);
        }
    }

    pub(super) fn all_pods(&mut self, pods: &[Arc<PodView>]) {
        let here: BTreeSet<Uid> = pods.iter().filter_map(|pod| pod.uid().map(Uid::from)).collect();
        self.pods.missing_from(&here).iter().for_each(|uid| self.pod_gone(uid));
        pods.iter().for_each(|pod| self.pod_seen(pod));
    }

    /// A workload is there, or has changed, or (`None`) is gone. Whoever counts its pods counts again.
    pub(super) fn workload(&mut self, uid: &str, namespace: &str, workload: Option<Workload>) {
        let old = match workload.clone() {
            Some(workload) => self.workloads.insert(uid.into(), workload),
            None => self.workloads.remove(uid),
        };
        if old != workload {
            let here =
                self.budgets.iter().filter(|(_, budget)| budget.object.namespace().as_deref() == Some(namespace));
            let here: Vec<Uid> = here.map(|(uid, _)| uid.clone()).collect();
            self.dirty.extend(here);
        }
    }

    /// The pods that a budget selects.
    pub(super) fn selected(&self, budget: &Budget) -> Vec<&PodFacts> {
        let namespace = budget.object.namespace().unwrap_or_default();
        let pods = self.pods.under(BY_NAMESPACE, &namespace).map(|(_, pod)| pod);
        pods.filter(|pod| selects(&budget.selector, &pod.labelled())).collect()
    }

    fn touch(&mut self, pod: &PodFacts) {
        let here =
            self.budgets.iter().filter(|(_, budget)| budget.object.namespace().as_deref() == Some(&*pod.namespace));
        let labelled = LazyCell::new(|| pod.labelled());
        let concerned = here.filter(|(_, budget)| selects(&budget.selector, &labelled));
        let concerned: Vec<Uid> = concerned.map(|(uid, _)| uid.clone()).collect();
        self.dirty.extend(concerned);
    }
}

impl PodFacts {
    pub(super) fn as_selected(&self) -> Selected<'_> {
        Selected { name: &self.name, ready: self.ready, leaving: self.leaving }
    }
}
