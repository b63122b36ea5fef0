//! StatefulSets: pods with names and claims of their own, one by one. A pod is made only when nobody has its name any more.

mod claims;
mod controller;
mod plan;
mod pods;
mod set;

use frame::{Applied, Effects, Limits};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::PODS;
use crate::clients::Clients;
use crate::controller_history::{self, REVISIONS, RevisionOwner, RevisionView};
use crate::controller_ref::Owner;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::flaws::{self, Flaw};
use crate::pod::PodView;
use crate::pod_control::{Batch, EventWording, PodControl, PodError, PodRef, is_namespace_ending};
use crate::pod_deletion::{PodId, delete_pod, unless_gone};
use crate::settings::Settings;
use claims::{ClaimView, new_claim};
use controller::{Action, Input, Key, StatefulSets, Work};
use plan::{NewPod, Step};
use set::StatefulSetView;

const ACCOUNT: &str = "statefulset-controller";
const SETS: &str = "statefulsets";
const CLAIMS: &str = "persistentvolumeclaims";
/// The label of a set's revisions that has their hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// How many sets are seen to at once.
const AT_ONCE: usize = 16;

/// Sees to StatefulSets until its feeds end.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    revisions: &mut Feed<RevisionView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut sets = Feed::new(SETS, Api::<StatefulSetView>::all(clients.read()));
    let mut claims = Feed::new(CLAIMS, Api::<ClaimView>::all(clients.read()));
    let sources = vec![
        pods.source(Input::Pods),
        sets.source(Input::Sets),
        revisions.source(Input::Revisions),
        claims.source(Input::Claims),
    ];
    sets.start(tasks);
    claims.start(tasks);
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), ACCOUNT, settings.clock, tasks);
    let pods = PodControl::new(client.clone(), recorder.clone()).worded(EventWording::StatefulSet);
    let effects = StatefulSetEffects { client, pods, recorder };
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    frame::run(ACCOUNT, StatefulSets::new(), effects, sources, limits, settings.clock)
}

struct StatefulSetEffects {
    client: kube::Client,
    pods: PodControl,
    recorder: EventRecorder,
}

impl Effects<StatefulSets> for StatefulSetEffects {
    type Error = PodError;

    async fn apply(&self, _: &Key, action: &Action) -> Result<Applied<()>, PodError> {
        let Action { owner, set, work } = action;
        match work {
            Work::Claim { adopt, release } => {
                Ok(Applied::wrote((), PODS, self.pods.claim(owner, adopt, release).await?))
            }
            Work::History(action) => {
                let of = RevisionOwner { owner, metadata: &set.metadata, hash_label: HASH_LABEL };
                Ok(Applied::wrote((), REVISIONS, controller_history::apply(&self.client, of, action).await?))
            }
            Work::Step(step) => self.step(owner, set, step).await,
            Work::Report(status) => {
                let api: Api<StatefulSetView> = Api::namespaced(self.client.clone(), &owner.namespace);
                let version = set.metadata.resource_version.as_deref().unwrap_or_default();
                let patch = json!({ "metadata": { "uid": &*owner.uid, "resourceVersion": version }, "status": status });
                let written = api.patch_status(&owner.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                Ok(Applied::wrote((), SETS, unless_gone(written)?.and_then(|set| revision(set.resource_version()))))
            }
        }
    }
}

impl StatefulSetEffects {
    async fn step(&self, owner: &Owner, set: &StatefulSetView, step: &Step) -> Result<Applied<()>, PodError> {
        match step {
            Step::Create(pods) => self.create(owner, set, pods).await,
            Step::CannotCreate { pod, why } => {
                let message = format!("create Pod {pod} in StatefulSet {} failed error: {why}", owner.name);
                self.recorder.warn(owner.object_reference(), "FailedCreate", &message);
                Err(PodError(why.clone()))
            }
            Step::CreateClaims { ordinal, claims } => {
                let newest = self.create_claims(owner, set, *ordinal, claims).await?;
                Ok(Applied::wrote((), CLAIMS, newest))
            }
            Step::OwnClaim { claim, uid, owners } => {
                let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &owner.namespace);
                let patch = json!({ "metadata": { "uid": uid, "ownerReferences": owners } });
                let written = api.patch_metadata(claim, &PatchParams::default(), &Patch::Merge(patch)).await;
                let written = unless_gone(written)?.and_then(|claim| revision(claim.resource_version()));
                Ok(Applied::wrote((), CLAIMS, written))
            }
            Step::ClaimConflict { claim, .. } => {
                let message = format!(
                    "claim {claim} is controlled by somebody else and is not deleted with StatefulSet {}",
                    owner.name
                );
                self.recorder.warn(owner.object_reference(), "ConflictingController", &message);
                Ok(Applied::new(()))
            }
            Step::Label { pod, ordinal } => {
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &owner.namespace);
                let patch = json!({ "metadata": { "uid": pod.uid, "labels": set.identity(*ordinal) } });
                let written = api.patch_metadata(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                let written = unless_gone(written)?.and_then(|pod| revision(pod.resource_version()));
                let message = format!("update Pod {} in StatefulSet {} successful", pod.name, owner.name);
                self.recorder.tell(owner.object_reference(), "SuccessfulUpdate", &message);
                Ok(Applied::wrote((), PODS, written))
            }
            Step::Delete(pods) => self.delete(owner, pods).await,
            Step::Unstick { pod, revision } => {
                let update = &set.status.update_revision;
                let message = format!(
                    "Deleted Pod {}: it is not ready at revision {revision} and would have blocked revision {update}",
                    pod.name
                );
                self.recorder.tell(owner.object_reference(), "Unstuck", &message);
                self.delete(owner, std::slice::from_ref(pod)).await
            }
            Step::Wait { pod } if flaws::has(Flaw::ForcesLeaving) => {
                let id = PodId { namespace: &owner.namespace, name: &pod.name, uid: &pod.uid };
                delete_pod(&self.client, &id, None, Some(0)).await?;
                Ok(Applied::new(()))
            }
            Step::Wait { pod } => {
                let message = format!("Waiting for Pod {} to terminate before anything else is done", pod.name);
                self.recorder.tell(owner.object_reference(), "WaitingForTermination", &message);
                Ok(Applied::new(()))
            }
        }
    }

    async fn create(&self, owner: &Owner, set: &StatefulSetView, pods: &[NewPod]) -> Result<Applied<()>, PodError> {
        for pod in pods {
            self.create_claims(owner, set, pod.ordinal, &pod.claims).await?;
        }
        let text = |pod: &NewPod| {
            let made = set.pod(owner, pod.ordinal, &pod.revision.name, &pod.revision.template);
            (set.pod_name(pod.ordinal), made.to_string().into_bytes())
        };
        match self.pods.create_all(owner, pods.iter().map(text).collect()).await {
            Batch { error: Some(error), .. } => Err(error),
            Batch { taken, .. } if !taken.is_empty() => {
                Err(PodError(format!("pods of others are called {}", taken.join(", "))))
            }
            Batch { revision, .. } => Ok(Applied::wrote((), PODS, revision)),
        }
    }

    async fn delete(&self, owner: &Owner, pods: &[PodRef]) -> Result<Applied<()>, PodError> {
        match self.pods.delete_all(owner, pods).await {
            Batch { error: Some(error), .. } => Err(error),
            Batch { revision, .. } => Ok(Applied::wrote((), PODS, revision)),
        }
    }

    /// Makes claims that are missing. One that is there by now is the one that was meant.
    async fn create_claims(
        &self,
        owner: &Owner,
        set: &StatefulSetView,
        ordinal: i64,
        missing: &[String],
    ) -> Result<Option<u64>, PodError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &owner.namespace);
        let pod = set.pod_name(ordinal);
        let mut newest = None;
        for (template, name) in set.claims(ordinal).filter(|(_, name)| missing.contains(name)) {
            let claim = serde_json::from_value(new_claim(set, owner, template, &name));
            let claim: PersistentVolumeClaim = claim.map_err(|error| PodError(error.to_string()))?;
            match api.create(&PostParams::default(), &claim).await {
                Ok(made) => {
                    newest = newest.max(revision(made.resource_version()));
                    let message = format!("create Claim {name} Pod {pod} in StatefulSet {} success", owner.name);
                    self.recorder.tell(owner.object_reference(), "SuccessfulCreate", &message);
                }
                Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {}
                Err(error) if is_namespace_ending(&error) => return Ok(newest),
                Err(error) => {
                    let error = PodError::from(error);
                    let message = format!(
                        "create Claim {name} for Pod {pod} in StatefulSet {} failed error: {error}",
                        owner.name
                    );
                    self.recorder.warn(owner.object_reference(), "FailedCreate", &message);
                    return Err(error);
                }
            }
        }
        Ok(newest)
    }
}
