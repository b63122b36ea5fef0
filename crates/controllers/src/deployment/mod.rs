//! Deployments: one ReplicaSet for each template, and the way from one to the next.
//!
//! [`rollout`] says what happens next, [`history`] which revision a set is and which are forgotten, [`status`] what is reported.

mod conditions;
pub(crate) mod controller;
mod family;
#[cfg(test)]
mod fixtures;
mod history;
mod rollout;
mod status;
mod template;
#[cfg(test)]
mod test_world;
mod view;

use client::WatchUpdate;
use frame::{Applied, Effects, Limits};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, Request};
use serde_json::{Value, json};
use supervision::error_chain;
use tokio::task::JoinSet;

use crate::clients::Clients;
use crate::controller_ref::{Owner, adopt, controller_of, is_current, release};
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_control::{PodError, PodTemplate, is_namespace_ending};
use crate::pod_deletion::unless_gone;
use crate::replicas::REPLICA_SETS;
use crate::replicas::set::ReplicaSetView;
use crate::settings::Settings;
use controller::{Action, Deployments, Input, Key, SetRef};
use family::REVISION;
use history::{ROLLBACK_TO, Rollback, SetChange};
use template::Fingerprint;
use view::DeploymentView;

/// The account, the controller, and who tells the events.
const NAME: &str = "deployment-controller";
/// What sources of Deployments are called.
const DEPLOYMENTS: &str = "deployments";
/// How many Deployments are seen to at once.
const AT_ONCE: usize = 16;

/// Sees to Deployments until its feeds end.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    sets: &mut Feed<ReplicaSetView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut deployments = Feed::new(DEPLOYMENTS, Api::<DeploymentView>::all(clients.read()));
    let told = |update: WatchUpdate<_>| Input::Deployments(update);
    let sources = vec![deployments.source(told), sets.source(Input::Sets), pods.source(Input::Pods)];
    deployments.start(tasks);
    let client = clients.act(NAME);
    let recorder = EventRecorder::start(client.clone(), NAME, settings.clock, tasks);
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    frame::run(NAME, Deployments::new(), DeploymentEffects { client, recorder }, sources, limits, settings.clock)
}

struct DeploymentEffects {
    client: kube::Client,
    recorder: EventRecorder,
}

impl Effects<Deployments> for DeploymentEffects {
    type Error = PodError;

    async fn apply(&self, _: &Key, action: &Action) -> Result<Applied<()>, PodError> {
        match action {
            Action::Claim { owner, adopt, release } => self.claim(owner, adopt, release).await,
            Action::Create { owner, name, set, template, resource_version, collisions } => {
                match self.create(owner, name, set, template).await? {
                    Creation::Done(revision) => Ok(Applied::wrote((), REPLICA_SETS, revision)),
                    Creation::NameTaken => {
                        let status = json!({ "collisionCount": collisions.saturating_add(1) });
                        let written = self.report(owner, Some(resource_version), status, None).await?;
                        Ok(Applied::wrote((), DEPLOYMENTS, written))
                    }
                }
            }
            Action::Change { owner, set, from, change } => self.change(owner, set, *from, change).await,
            Action::Forget { owner, set } => self.forget(owner, set).await,
            Action::Rollback { owner, resource_version, rollback } => {
                self.roll_back(owner, resource_version, rollback).await
            }
            Action::Report { owner, resource_version, status, revision } => {
                let version = resource_version.as_deref();
                let written = self.report(owner, version, status.clone(), revision.as_deref()).await?;
                Ok(Applied::wrote((), DEPLOYMENTS, written))
            }
        }
    }
}

/// What came of creating a set.
enum Creation {
    /// It is there, by a write of this revision or of one before; or nothing can be created any more.
    Done(Option<u64>),
    /// Another set has its name.
    NameTaken,
}

impl DeploymentEffects {
    fn sets(&self, owner: &Owner) -> Api<ReplicaSetView> {
        Api::namespaced(self.client.clone(), &owner.namespace)
    }

    fn deployments(&self, owner: &Owner) -> Api<DeploymentView> {
        Api::namespaced(self.client.clone(), &owner.namespace)
    }

    async fn claim(&self, owner: &Owner, adopted: &[SetRef], released: &[SetRef]) -> Result<Applied<()>, PodError> {
        let sets = self.sets(owner);
        if !adopted.is_empty() && !is_current(&self.client, owner).await? {
            return Err(PodError(format!("{} is not the one that is there any more", owner.name)));
        }
        let mut newest = None;
        for set in adopted {
            newest = newest.max(adopt(&sets, (&set.name, &set.uid), owner, None).await?);
        }
        for set in released {
            newest = newest.max(release(&sets, (&set.name, &set.uid), owner, None).await?);
        }
        Ok(Applied::wrote((), REPLICA_SETS, newest))
    }

    /// Creates the new set. It may be there already, because an answer was lost.
    async fn create(
        &self,
        owner: &Owner,
        name: &str,
        set: &Value,
        template: &PodTemplate,
    ) -> Result<Creation, PodError> {
        // Of a Deployment that is deleted the sets go first. Whoever has not heard of it would make them anew, and their pods.
        if !is_current(&self.client, owner).await? {
            return Ok(Creation::Done(None));
        }
        let sets = self.sets(owner);
        let body = set.to_string().into_bytes();
        let request = Request::new(sets.resource_url()).create(&PostParams::default(), body);
        let request = request.map_err(|error| PodError(error_chain(&error)))?;
        let error = match self.client.request::<ReplicaSetView>(request).await {
            Ok(created) => {
                if created.replicas() > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {}", created.replicas());
                    self.recorder.tell(owner.object_reference(), "ScalingReplicaSet", &message);
                }
                return Ok(Creation::Done(revision(created.resource_version())));
            }
            Err(error) => error,
        };
        if is_namespace_ending(&error) {
            return Ok(Creation::Done(None));
        }
        if matches!(&error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
            && let Some(there) = sets.get_opt(name).await?
        {
            let ours = controller_of(&there.metadata).is_some_and(|it| it.uid == *owner.uid);
            let same = Fingerprint::of(&there.spec.template) == Fingerprint::of(template);
            return Ok(match ours && same {
                true => Creation::Done(revision(there.resource_version())),
                false => Creation::NameTaken,
            });
        }
        let error = PodError::from(error);
        let message = format!("Failed to create new replica set {name:?}: {error}");
        self.recorder.warn(owner.object_reference(), "ReplicaSetCreateError", &message);
        Err(error)
    }

    /// Changes a set in the version that was looked at; a newer one is told, and decided about again.
    async fn change(
        &self,
        owner: &Owner,
        set: &SetRef,
        from: i32,
        change: &SetChange,
    ) -> Result<Applied<()>, PodError> {
        let mut patch = json!({ "metadata": { "uid": set.uid, "resourceVersion": set.resource_version } });
        if !change.annotations.is_empty() {
            patch["metadata"]["annotations"] = json!(change.annotations);
        }
        if let Some(replicas) = change.replicas {
            patch["spec"]["replicas"] = json!(replicas);
        }
        if let Some(seconds) = change.min_ready_seconds {
            patch["spec"]["minReadySeconds"] = json!(seconds);
        }
        let written = self.sets(owner).patch(&set.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        let Some(written) = unless_gone(written)? else { return Ok(Applied::new(())) };
        if let Some(to) = change.replicas {
            let way = if from < to { "up" } else { "down" };
            let message = format!("Scaled {way} replica set {} from {from} to {to}", set.name);
            self.recorder.tell(owner.object_reference(), "ScalingReplicaSet", &message);
        }
        Ok(Applied::wrote((), REPLICA_SETS, revision(written.resource_version())))
    }

    /// Deletes a set that has no pods, in the version in which it had none.
    async fn forget(&self, owner: &Owner, set: &SetRef) -> Result<Applied<()>, PodError> {
        let preconditions =
            Some(Preconditions { uid: Some(set.uid.clone()), resource_version: Some(set.resource_version.clone()) });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let deleted = unless_gone(self.sets(owner).delete(&set.name, &params).await)?;
        let written = deleted.and_then(|answer| answer.left()).and_then(|set| revision(set.resource_version()));
        Ok(Applied::wrote((), REPLICA_SETS, written))
    }

    async fn roll_back(
        &self,
        owner: &Owner,
        resource_version: &str,
        rollback: &Rollback,
    ) -> Result<Applied<()>, PodError> {
        let version = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": resource_version });
        let asked = format!("/metadata/annotations/{ROLLBACK_TO}");
        let mut steps = vec![version];
        if let Rollback::To { template, annotations, .. } = rollback {
            steps.push(json!({ "op": "replace", "path": "/spec/template", "value": template }));
            steps.push(json!({ "op": "replace", "path": "/metadata/annotations", "value": annotations }));
        }
        steps.push(json!({ "op": "remove", "path": asked }));
        let patch = serde_json::from_value(Value::from(steps)).map_err(|error| PodError(error_chain(&error)))?;
        let deployments = self.deployments(owner);
        let written = deployments.patch(&owner.name, &PatchParams::default(), &Patch::Json::<()>(patch)).await;
        let Some(written) = unless_gone(written)? else { return Ok(Applied::new(())) };
        let about = owner.object_reference();
        match rollback {
            Rollback::To { revision, .. } => {
                let message = format!("Rolled back deployment {:?} to revision {revision}", owner.name);
                self.recorder.tell(about, "DeploymentRollback", &message);
            }
            Rollback::NotFound(asked) => {
                let message = match asked {
                    0 => "Unable to find last revision.",
                    _ => "Unable to find the revision to rollback to.",
                };
                self.recorder.warn(about, "DeploymentRollbackRevisionNotFound", message);
            }
            Rollback::Unchanged => {
                let message =
                    format!("The rollback revision contains the same template as current deployment {:?}", owner.name);
                self.recorder.warn(about, "DeploymentRollbackTemplateUnchanged", &message);
            }
        }
        Ok(Applied::wrote((), DEPLOYMENTS, revision(written.resource_version())))
    }

    /// Writes the status; the revision goes with it.
    async fn report(
        &self,
        owner: &Owner,
        resource_version: Option<&str>,
        status: Value,
        shown: Option<&str>,
    ) -> kube::Result<Option<u64>> {
        let mut patch = json!({ "metadata": { "uid": &*owner.uid }, "status": status });
        if let Some(version) = resource_version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        if let Some(shown) = shown {
            patch["metadata"]["annotations"] = json!({ REVISION: shown });
        }
        let deployments = self.deployments(owner);
        let written = deployments.patch_status(&owner.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        Ok(unless_gone(written)?.and_then(|it| revision(it.resource_version())))
    }
}
