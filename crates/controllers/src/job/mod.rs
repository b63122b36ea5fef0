//! Jobs: pods that run until enough of them have succeeded, each counted exactly once.

mod controller;
mod evaluation;
pub(crate) mod indexes;
mod job_pod;
mod manage;
mod new_pod;
mod policy;
pub(crate) mod ttl;
pub(crate) mod view;
#[cfg(test)]
mod world;

use frame::{Applied, Effects, Limits};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::PODS;
use crate::clients::Clients;
use crate::controller_ref::{Owner, adopt, is_current, release, remove_finalizer};
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_control::{Batch, PodControl, PodError, PodRef};
use crate::settings::Settings;
use controller::{Action, Answer, Input, Jobs, Key};
use evaluation::JobEvent;
use job_pod::{TRACKING_FINALIZER, Untracked};
use view::JobView;

/// What sources of Jobs are called.
pub(crate) const JOBS: &str = "jobs";
const ACCOUNT: &str = "job-controller";
/// How many Jobs are seen to at once.
const AT_ONCE: usize = 16;
/// How many pods are written to at once.
const WRITES_AT_ONCE: usize = 64;

/// Sees to Jobs until its feeds end.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    jobs: &mut Feed<JobView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let sources = vec![pods.source(Input::Pods), jobs.source(Input::Jobs)];
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), ACCOUNT, settings.clock, tasks);
    let effects = JobEffects { pods: PodControl::new(client.clone(), recorder.clone()), client, recorder };
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    frame::run(ACCOUNT, Jobs::new(), effects, sources, limits, settings.clock)
}

struct JobEffects {
    client: kube::Client,
    pods: PodControl,
    recorder: EventRecorder,
}

impl Effects<Jobs> for JobEffects {
    type Error = PodError;

    async fn apply(&self, _: &Key, action: &Action) -> Result<Applied<Answer>, PodError> {
        match action {
            Action::Claim { owner, adopt, release } => self.claim(owner, adopt, release).await,
            Action::Create { owner, job, pods } => {
                let template = &job.spec.template;
                let text = |(name, new)| (String::clone(name), new_pod::pod_text(template, owner, name, new));
                let batch =
                    self.pods.create_all(owner, pods.iter().map(|(name, new)| text((name, new))).collect()).await;
                let revision = batch.revision;
                Ok(Applied::wrote(created(batch), PODS, revision))
            }
            Action::Delete { owner, pods } => done(self.pods.delete_all(owner, pods).await),
            Action::Remove { owner, pods } => {
                self.free(&owner.namespace, pods).await?;
                let pods: Vec<PodRef> = pods.iter().map(|it| it.pod.clone()).collect();
                done(self.pods.delete_all(owner, &pods).await)
            }
            Action::Report { owner, resource_version, status, events } => {
                let api: Api<JobView> = Api::namespaced(self.client.clone(), &owner.namespace);
                let metadata = json!({ "uid": &*owner.uid, "resourceVersion": resource_version });
                let patch = Patch::Merge(json!({ "metadata": metadata, "status": status }));
                // Whatever is to follow relies on it: a conflict is no success.
                let written = api.patch_status(&owner.name, &PatchParams::default(), &patch).await?;
                events.iter().for_each(|event| self.tell(owner, event));
                Ok(Applied::wrote(Answer::Done, JOBS, revision(written.resource_version())))
            }
            Action::Free { namespace, pods } => {
                let newest = self.free(namespace, pods).await?;
                Ok(Applied::wrote(Answer::Done, PODS, newest))
            }
            Action::FreeIfGone { owner, pods } => {
                let api: Api<JobView> = Api::namespaced(self.client.clone(), &owner.namespace);
                let there = api.get_metadata_opt(&owner.name).await?;
                if there.is_some_and(|job| job.uid().as_deref() == Some(&*owner.uid)) {
                    return Err(PodError(format!("the Job {} is there after all", owner.name)));
                }
                let newest = self.free(&owner.namespace, pods).await?;
                Ok(Applied::wrote(Answer::Done, PODS, newest))
            }
        }
    }
}

impl JobEffects {
    async fn claim(&self, owner: &Owner, adopted: &[PodRef], released: &[PodRef]) -> Result<Applied<Answer>, PodError> {
        let pods: Api<PodView> = Api::namespaced(self.client.clone(), &owner.namespace);
        if !adopted.is_empty() && !is_current(&self.client, owner).await? {
            return Err(PodError(format!("{} is not the one that is there any more", owner.name)));
        }
        let mut newest = None;
        for pod in adopted {
            newest = newest.max(adopt(&pods, (&pod.name, &pod.uid), owner, Some(TRACKING_FINALIZER)).await?);
        }
        for pod in released {
            newest = newest.max(release(&pods, (&pod.name, &pod.uid), owner, Some(TRACKING_FINALIZER)).await?);
        }
        Ok(Applied::wrote(Answer::Done, PODS, newest))
    }

    /// Takes back the finalizers of these pods. Answers the newest revision of the writes.
    async fn free(&self, namespace: &str, pods: &[Untracked]) -> Result<Option<u64>, PodError> {
        let api: Api<PodView> = Api::namespaced(self.client.clone(), namespace);
        let writes = pods.iter().map(|Untracked { pod, version }| {
            remove_finalizer(&api, (&pod.name, &pod.uid), version.as_deref(), TRACKING_FINALIZER)
        });
        let written: Vec<_> =
            futures::stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES_AT_ONCE).collect().await;
        let mut newest = None;
        for revision in written {
            newest = newest.max(revision?);
        }
        Ok(newest)
    }

    fn tell(&self, owner: &Owner, event: &JobEvent) {
        let JobEvent { is_warning, reason, message } = event;
        match is_warning {
            true => self.recorder.warn(owner.object_reference(), reason, message),
            false => self.recorder.tell(owner.object_reference(), reason, message),
        }
    }
}

/// What came of creates. A refusal is an answer as well: the numbers of the Job go on meanwhile, and nothing is created again at
/// once, least of all in a namespace that ends.
fn created(batch: Batch) -> Answer {
    match batch {
        Batch { error: Some(_), .. } | Batch { namespace_ends: true, .. } => Answer::Refused,
        Batch { taken, .. } if taken.is_empty() => Answer::Done,
        Batch { taken, .. } => Answer::Taken(taken),
    }
}

fn done(batch: Batch) -> Result<Applied<Answer>, PodError> {
    match batch.error {
        Some(error) => Err(error),
        None => Ok(Applied::wrote(Answer::Done, PODS, batch.revision)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_waits_before_it_creates_again_in_a_namespace_that_ends() {
        let batch = |namespace_ends, taken: &[&str]| Batch {
            namespace_ends,
            taken: taken.iter().map(|name| String::from(*name)).collect(),
            ..Batch::default()
        };
        assert_eq!(created(batch(true, &[])), Answer::Refused);
        assert_eq!(created(batch(false, &[])), Answer::Done);
        assert_eq!(created(batch(false, &["sum-x7k2q"])), Answer::Taken(vec!["sum-x7k2q".to_owned()]));
    }
}
