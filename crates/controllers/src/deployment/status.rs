//! What a Deployment reports: counts over its sets, and the conditions that `kubectl rollout status` reads.

use frame::{Now, Wake};
use serde_json::{Value, json};

use super::conditions::{self, AVAILABLE, PROGRESSING, REPLICA_FAILURE, Said, find, say, say_anew};
use super::family::{Family, REVISION, REVISION_HISTORY};
use super::history::current_revision;
use super::view::DeploymentStatus;
use crate::availability::Since;

const NEW_SET_CREATED: &str = "NewReplicaSetCreated";
const NEW_SET_FOUND: &str = "FoundNewReplicaSet";
const SET_UPDATED: &str = "ReplicaSetUpdated";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const CREATE_ERROR: &str = "ReplicaSetCreateError";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// Old pods that a Recreate rollout waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OldPods {
    /// How many have not ended.
    pub(crate) count: usize,
    /// The longest of their graces, in seconds.
    pub(crate) grace: i64,
}

/// What is known besides the objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// What a Recreate rollout waits for, if it does.
    pub(crate) waits_for: Option<OldPods>,
    /// Why the new set could not be created.
    pub(crate) failure: Option<&'a str>,
    /// Since when the condition that tells of progress says what it says.
    pub(crate) progress: Option<Since>,
}

/// What is reported.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Report {
    pub(crate) status: DeploymentStatus,
    /// The revision that the Deployment is told it has.
    pub(crate) revision: Option<String>,
    pub(crate) wake: Option<Wake>,
}

/// The report for a Deployment as it stands.
pub(crate) fn report(family: &Family<'_>, circumstances: Circumstances<'_>, now: Now) -> Report {
    let deployment = family.deployment;
    let mut status = counts(family);
    let minimum = i64::from(deployment.replicas()) - i64::from(deployment.fenceposts().unavailable);
    let available = match i64::from(status.available_replicas) >= minimum {
        true => said("True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned()),
        false => {
            said("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.".to_owned())
        }
    };
    say(&mut status.conditions, AVAILABLE, &available, now.timestamp);
    let wake = match deployment.progress_deadline() {
        None => {
            conditions::remove(&mut status.conditions, PROGRESSING);
            None
        }
        // Whoever is deleted does not roll out any more.
        Some(_) if deployment.leaves() => None,
        Some(deadline) => progress(family, circumstances, deadline, &mut status, now),
    };
    match failure_of_sets(family) {
        Some(failure) => {
            let stands = find(&status.conditions, REPLICA_FAILURE).is_some_and(|old| is_same_failure(old, &failure));
            if !stands {
                conditions::put(&mut status.conditions, failure);
            }
        }
        None => conditions::remove(&mut status.conditions, REPLICA_FAILURE),
    }
    let revision = current_revision(family).filter(|revision| deployment.annotation(REVISION) != Some(revision));
    Report { status, revision: revision.map(str::to_owned), wake }
}

fn said(status: &'static str, reason: &'static str, message: String) -> Said {
    Said { status, reason, message }
}

fn counts(family: &Family<'_>) -> DeploymentStatus {
    let deployment = family.deployment;
    let number = |number: i64| i32::try_from(number.max(0)).unwrap_or(i32::MAX);
    let available = family.sum(|set| set.view.status.available_replicas);
    // A set that nobody has looked at yet has not said; one that was looked at and does not say cannot be counted.
    let mut terminating = Some(0);
    for set in family.all() {
        terminating = match (terminating, set.view.status.terminating_replicas) {
            (Some(sum), Some(more)) => Some(more.saturating_add(sum)),
            (sum, None) if set.view.status.observed_generation == 0 => sum,
            _ => None,
        };
    }
    DeploymentStatus {
        observed_generation: deployment.metadata.generation.unwrap_or(0),
        replicas: number(family.sum(|set| set.view.status.replicas)),
        updated_replicas: number(family.new.map_or(0, |new| i64::from(new.view.status.replicas))),
        ready_replicas: number(family.sum(|set| set.view.status.ready_replicas)),
        available_replicas: number(available),
        unavailable_replicas: number(family.sum(|set| set.spec()) - available),
        terminating_replicas: terminating,
        collision_count: deployment.status.collision_count,
        conditions: deployment.status.conditions.clone(),
    }
}

/// Every pod that is asked for is new and available, and no other is left.
fn is_complete(family: &Family<'_>, status: &DeploymentStatus) -> bool {
    let replicas = family.deployment.replicas();
    [status.updated_replicas, status.replicas, status.available_replicas].iter().all(|count| *count == replicas)
}

/// More is new, ready or available than was reported, or less is old.
fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let former = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    new.updated_replicas > old.updated_replicas
        || former(new) < former(old)
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

/// Says how the rollout goes. Answers when it will have stood still for too long.
fn progress(
    family: &Family<'_>,
    circumstances: Circumstances<'_>,
    deadline: i32,
    status: &mut DeploymentStatus,
    now: Now,
) -> Option<Wake> {
    let deployment = family.deployment;
    let at = now.timestamp;
    let current = find(&deployment.status.conditions, PROGRESSING);
    let reason = current.and_then(|it| it["reason"].as_str()).unwrap_or_default();
    let conditions = &mut status.conditions;
    if deployment.spec.paused {
        // Lack of progress that was reported stays so.
        if reason != TIMED_OUT {
            say(conditions, PROGRESSING, &said("Unknown", PAUSED, "Deployment is paused".to_owned()), at);
        }
        return None;
    }
    if let Some(failure) = circumstances.failure {
        say(conditions, PROGRESSING, &said("False", CREATE_ERROR, failure.to_owned()), at);
        return None;
    }
    if reason == PAUSED {
        say(conditions, PROGRESSING, &said("Unknown", RESUMED, "Deployment is resumed".to_owned()), at);
        return None;
    }
    if let Some(begun) = begun(family, current.is_some()) {
        say_anew(conditions, PROGRESSING, &begun, at);
        return None;
    }
    if reason == NEW_SET_AVAILABLE && status.replicas == status.updated_replicas && circumstances.waits_for.is_none() {
        // What happens to a finished rollout afterwards is no matter of progress.
        return None;
    }
    let name = |what: &str| match family.new {
        Some(new) => format!("ReplicaSet {:?} {what}", new.name()),
        None => format!("Deployment {:?} {what}", deployment.owner().name),
    };
    if is_complete(family, status) {
        let complete = said("True", NEW_SET_AVAILABLE, name("has successfully progressed."));
        say(&mut status.conditions, PROGRESSING, &complete, at);
        return None;
    }
    let message = match circumstances.waits_for {
        None => name("is progressing."),
        Some(OldPods { count, grace }) => {
            let name = deployment.owner().name;
            format!(
                "Deployment {name:?} is waiting for {count} pods of former revisions to end, for at most {grace}s each."
            )
        }
    };
    // A wait that begins, ends or gets shorter is progress: the time of the rollout itself is counted from its end.
    let is_other_step = reason == SET_UPDATED && current.is_some_and(|it| it["message"] != message.as_str());
    let waits = circumstances.waits_for.is_some();
    if has_progressed(&deployment.status, status) || is_other_step || (waits && reason != SET_UPDATED) {
        say_anew(&mut status.conditions, PROGRESSING, &said("True", SET_UPDATED, message), at);
        return None;
    }
    if waits || current.is_none() || matches!(reason, NEW_SET_AVAILABLE | TIMED_OUT) {
        return None;
    }
    let over = circumstances.progress?.plus_seconds(deadline);
    if now.instant < over {
        return Some(Wake { at: over, why: "the rollout has made no progress for too long" });
    }
    let late = said("False", TIMED_OUT, name("has timed out progressing."));
    say(&mut status.conditions, PROGRESSING, &late, at);
    None
}

/// What is said of a rollout that has just begun: the Deployment does not have the revision of its new set yet.
fn begun(family: &Family<'_>, has_condition: bool) -> Option<Said> {
    let (new, deployment) = (family.new?, family.deployment);
    let name = new.name();
    let found = || said("True", NEW_SET_FOUND, format!("Found new replica set {name:?}"));
    let revision = current_revision(family)?;
    if deployment.annotation(REVISION) == Some(revision) {
        // Somebody began to mind how long it takes.
        return (!has_condition).then(found);
    }
    let created = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        metadata.creation_timestamp.as_ref().map(|time| time.0)
    };
    if !has_condition && created(&new.view.metadata) < created(&deployment.metadata) {
        return Some(found());
    }
    Some(match new.annotation(REVISION_HISTORY) {
        None => said("True", NEW_SET_CREATED, format!("Created new replica set {name:?}")),
        // Gone back to: it is there already.
        Some(_) => said("True", SET_UPDATED, format!("ReplicaSet {name:?} is progressing.")),
    })
}

/// What keeps a set from having its pods: the new one's, or else any one's.
fn failure_of_sets(family: &Family<'_>) -> Option<Value> {
    let mut sets = family.new.into_iter().chain(family.old.iter().copied());
    let failure = sets.find_map(|set| find(&set.view.status.conditions, REPLICA_FAILURE).cloned())?;
    let at = &failure["lastTransitionTime"];
    Some(json!({ "type": REPLICA_FAILURE, "status": failure["status"], "reason": failure["reason"],
        "message": failure["message"], "lastUpdateTime": at, "lastTransitionTime": at }))
}

fn is_same_failure(old: &Value, new: &Value) -> bool {
    ["status", "reason", "message"].iter().all(|field| old[field] == new[field])
}

/// The report as a merge patch of the status. Counts of nothing are left out, as upstream does; conditions are named only if they
/// change.
pub(crate) fn to_patch(old: &DeploymentStatus, new: &DeploymentStatus) -> Value {
    let number = |number: i32| if number == 0 { Value::Null } else { number.into() };
    let mut patch = json!({
        "observedGeneration": new.observed_generation,
        "replicas": number(new.replicas),
        "updatedReplicas": number(new.updated_replicas),
        "readyReplicas": number(new.ready_replicas),
        "availableReplicas": number(new.available_replicas),
        "unavailableReplicas": number(new.unavailable_replicas),
        "terminatingReplicas": new.terminating_replicas,
    });
    if old.conditions != new.conditions {
        patch["conditions"] = Value::from(new.conditions.clone());
    }
    patch
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
