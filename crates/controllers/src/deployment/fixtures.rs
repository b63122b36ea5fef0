//! Deployments and ReplicaSets for tests, by their numbers.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use serde_json::{Value, json};

use super::family::{DESIRED_REPLICAS, Family, MAX_REPLICAS, OwnedSet, REVISION};
use super::view::DeploymentView;
use crate::replicas::set::ReplicaSetView;

/// A template with this image.
pub(crate) fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "app", "image": image }] } })
}

/// A Deployment called `web` with more in its spec.
pub(crate) fn deployment(replicas: i32, extra: &Value) -> DeploymentView {
    let mut object = json!({
        "metadata": { "name": "web", "namespace": "ns", "uid": "d", "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("new"),
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } } },
        "status": {},
    });
    merge(&mut object, extra);
    serde_json::from_value(object).unwrap()
}

/// As a merge patch.
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    for (key, value) in fields {
        match (value, object.as_object_mut()) {
            (Value::Null, Some(fields)) => drop(fields.remove(key)),
            _ => merge(&mut object[key], value),
        }
    }
}

/// A set: its size, and what it reports.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) spec: i32,
    pub(crate) replicas: i32,
    pub(crate) available: i32,
    pub(crate) terminating: Option<i32>,
    /// How often it was told something that it has not heard.
    pub(crate) unheard: i64,
    /// The size of its Deployment, and the most pods that one may have.
    pub(crate) told: Option<(i32, i32)>,
    pub(crate) revision: i64,
    pub(crate) extra: Value,
}

/// A set whose pods are all there, and `available` of them available.
pub(crate) fn set(name: &'static str, spec: i32, available: i32) -> Set {
    let (terminating, extra) = (Some(0), json!({}));
    Set { name, spec, replicas: spec, available, terminating, unheard: 0, told: None, revision: 1, extra }
}

impl Set {
    pub(crate) fn view(&self, age: usize) -> Arc<ReplicaSetView> {
        let mut annotations = json!({ REVISION: self.revision.to_string() });
        if let Some((desired, most)) = self.told {
            annotations[DESIRED_REPLICAS] = json!(desired.to_string());
            annotations[MAX_REPLICAS] = json!(most.to_string());
        }
        let owner =
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true });
        let mut object = json!({
            "metadata": { "name": self.name, "namespace": "ns", "uid": self.name, "generation": 9, "resourceVersion": "1",
                "labels": { "app": "web" }, "annotations": annotations, "ownerReferences": [owner],
                "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z") },
            "spec": { "replicas": self.spec, "selector": { "matchLabels": { "app": "web" } }, "template": template(self.name) },
            "status": { "replicas": self.replicas, "readyReplicas": self.available, "availableReplicas": self.available,
                "terminatingReplicas": self.terminating, "observedGeneration": 9 - self.unheard },
        });
        merge(&mut object, &self.extra);
        Arc::new(serde_json::from_value(object).unwrap())
    }
}

/// Sets under their names, the oldest first.
pub(crate) fn views(sets: &[Set]) -> Vec<(Arc<str>, Arc<ReplicaSetView>)> {
    sets.iter().enumerate().map(|(age, set)| (Arc::from(set.name), set.view(age))).collect()
}

/// The Deployment with these sets; the one called `new` is new.
pub(crate) fn family<'a>(deployment: &'a DeploymentView, views: &'a [(Arc<str>, Arc<ReplicaSetView>)]) -> Family<'a> {
    Family::new(deployment, views.iter().map(|(uid, view)| (OwnedSet { uid, view }, &**uid == "new")))
}
