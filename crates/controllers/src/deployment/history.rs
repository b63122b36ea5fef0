//! Revisions: what each ReplicaSet is told about them, which former ones are forgotten, and how an old client goes back to one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::family::{DESIRED_REPLICAS, Family, MAX_REPLICAS, OwnedSet, REVISION, REVISION_HISTORY};
use super::template::{POD_TEMPLATE_HASH, hash, set_name};
use super::view::DeploymentView;
use crate::replicas::brakes::BRAKES;
use crate::workload_metadata::LAST_APPLIED;

/// How clients of another age ask to go back to a revision; 0 is the one before.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// What a set keeps for itself: everything else is copied from its Deployment.
const OWN: [&str; 6] = [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

/// The former revisions of one set are remembered up to this many characters.
const HISTORY_MAX: usize = 2000;

/// What changes about a set.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SetChange {
    pub(crate) replicas: Option<i32>,
    pub(crate) min_ready_seconds: Option<i32>,
    /// `None` takes one away.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
}

impl SetChange {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn annotate(&mut self, set: OwnedSet<'_>, key: &str, value: Option<String>) {
        if set.annotation(key) != value.as_deref() {
            self.annotations.insert(key.to_owned(), value);
        }
    }

    /// A size, and for which size of the Deployment it is.
    pub(crate) fn resize(&mut self, deployment: &DeploymentView, set: OwnedSet<'_>, replicas: i32) {
        self.replicas = (set.spec() != replicas).then_some(replicas);
        for (key, value) in sizes(deployment) {
            self.annotate(set, key, Some(value));
        }
    }
}

/// The size of the Deployment, and the most pods that it may have.
fn sizes(deployment: &DeploymentView) -> [(&'static str, String); 2] {
    let (replicas, surge) = (deployment.replicas(), deployment.fenceposts().surge);
    [(DESIRED_REPLICAS, replicas.to_string()), (MAX_REPLICAS, replicas.saturating_add(surge).to_string())]
}

/// The annotations of the Deployment that its new set has too.
fn copied(deployment: &DeploymentView) -> impl Iterator<Item = (&String, &String)> {
    deployment.metadata.annotations.iter().flatten().filter(|(key, _)| !OWN.contains(&key.as_str()))
}

/// The revision that the new set has at least: one more than all old ones.
fn next_revision(family: &Family<'_>) -> i64 {
    family.old.iter().map(OwnedSet::revision).max().unwrap_or(0).max(0).saturating_add(1)
}

/// What `set` is to be told besides its size.
pub(crate) fn handed_down(family: &Family<'_>, set: OwnedSet<'_>) -> SetChange {
    let mut change = SetChange::default();
    let deployment = family.deployment;
    if family.new.is_some_and(|new| new.uid == set.uid) {
        for (key, value) in copied(deployment) {
            change.annotate(set, key, Some(value.clone()));
        }
        let seconds = deployment.spec.min_ready_seconds;
        change.min_ready_seconds = (set.view.spec.min_ready_seconds != seconds).then_some(seconds);
        revise(&mut change, set, next_revision(family));
    }
    // Brakes hold for every set that has or may get pods, also those that were new before they were written.
    if set.pods_max() > 0 || family.new.is_some_and(|new| new.uid == set.uid) {
        for key in BRAKES {
            change.annotate(set, key, deployment.annotation(key).map(str::to_owned));
        }
    }
    change
}

/// Raises the revision of the new set, and remembers the one it had.
fn revise(change: &mut SetChange, set: OwnedSet<'_>, next: i64) {
    let written = set.annotation(REVISION);
    let current = match written {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(current) => current,
            // Somebody wrote it, and knows what it means.
            Err(_) => return,
        },
    };
    if current >= next {
        return;
    }
    change.annotations.insert(REVISION.to_owned(), Some(next.to_string()));
    let Some(former) = written.filter(|text| !text.is_empty()) else { return };
    let mut history: Vec<&str> = set.annotation(REVISION_HISTORY).unwrap_or_default().split(',').collect();
    history.retain(|revision| !revision.is_empty());
    history.push(former);
    while history.len() > 1 && history.iter().map(|it| it.len() + 1).sum::<usize>() > HISTORY_MAX + 1 {
        history.remove(0);
    }
    change.annotations.insert(REVISION_HISTORY.to_owned(), Some(history.join(",")));
}

/// The revision that the Deployment is at, as its new set says.
pub(crate) fn current_revision<'a>(family: &Family<'a>) -> Option<&'a str> {
    family.new?.annotation(REVISION).filter(|revision| !revision.is_empty())
}

/// The new set of a Deployment, with so many pods, as it is created; and its name.
pub(crate) fn new_set(family: &Family<'_>, replicas: i32) -> (String, Value) {
    let deployment = family.deployment;
    let hash = hash(&deployment.spec.template, deployment.status.collision_count);
    let owner = deployment.owner();
    let name = set_name(&owner.name, &hash);
    let mut template = deployment.spec.template.value();
    template["metadata"]["labels"][POD_TEMPLATE_HASH] = json!(hash);
    let mut selector = json!(deployment.spec.selector);
    selector["matchLabels"][POD_TEMPLATE_HASH] = json!(hash);
    let mut annotations: BTreeMap<&str, String> =
        copied(deployment).map(|(key, value)| (key.as_str(), value.clone())).collect();
    annotations.insert(REVISION, next_revision(family).to_string());
    annotations.extend(sizes(deployment));
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "name": name, "namespace": &*owner.namespace, "labels": template["metadata"]["labels"],
            "annotations": annotations, "ownerReferences": [owner.reference()] },
        "spec": { "replicas": replicas, "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector, "template": template },
    });
    (name, set)
}

/// The former revisions that are one too many: without pods, also without any that are still leaving. The oldest are looked at, and
/// nobody goes in place of one that cannot.
pub(crate) fn forgotten<'a>(family: &Family<'a>) -> Vec<OwnedSet<'a>> {
    let Some(limit) = family.deployment.history_limit() else { return Vec::new() };
    let mut old: Vec<OwnedSet<'a>> = family.old.iter().copied().filter(|set| !set.view.leaves()).collect();
    old.sort_by_key(|set| (set.revision(), set.age_order()));
    old.truncate(old.len().saturating_sub(limit));
    old.retain(|set| set.pods_max() == 0 && set.terminating() == 0 && set.is_observed());
    old
}

/// What an old client asked to go back to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rollback {
    /// To this revision: the template, and the annotations that the Deployment gets.
    To { revision: i64, template: Value, annotations: BTreeMap<String, String> },
    /// There is no such revision as the one that was asked for.
    NotFound(i64),
    /// That is what there is.
    Unchanged,
}

/// The rollback that is asked for, if one is.
pub(crate) fn rollback(family: &Family<'_>) -> Option<Rollback> {
    let deployment = family.deployment;
    let asked: i64 = deployment.annotation(ROLLBACK_TO)?.parse().ok()?;
    let mut revisions: Vec<i64> = family.all().map(|set| set.revision()).collect();
    revisions.sort_unstable();
    let revision = if asked == 0 { revisions.iter().rev().nth(1).copied().unwrap_or(0) } else { asked };
    let found = family.all().find(|set| revision > 0 && set.revision() == revision);
    let Some(set) = found else { return Some(Rollback::NotFound(asked)) };
    if family.new.is_some_and(|new| new.uid == set.uid) {
        return Some(Rollback::Unchanged);
    }
    let mut template = set.view.spec.template.value();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    // The set's own stay its own, and what the Deployment has there stays too.
    let kept = deployment.metadata.annotations.iter().flatten().filter(|(key, _)| OWN.contains(&key.as_str()));
    let of_set = set.view.metadata.annotations.iter().flatten().filter(|(key, _)| !OWN.contains(&key.as_str()));
    let annotations = kept.chain(of_set).map(|(key, value)| (key.clone(), value.clone()));
    Some(Rollback::To { revision, template, annotations: annotations.collect() })
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
