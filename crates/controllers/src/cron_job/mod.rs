//! CronJobs: Jobs by the clock, one for each time that comes, however often whoever makes them begins anew.

mod controller;
mod view;

use frame::{Applied, Effects, Limits};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy, Request};
use serde_json::{Value, json};
use supervision::error_chain;
use tokio::task::JoinSet;

use crate::clients::Clients;
use crate::controller_ref::{Owner, controller_of};
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::job::JOBS;
use crate::job::view::JobView;
use crate::pod_control::{PodError, is_namespace_ending};
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use controller::{Action, Answer, CronEvent, CronJobs, Input, JobRef, Uid};
use view::CronJobView;

/// What the source of CronJobs is called.
const CRON_JOBS: &str = "cronjobs";
const ACCOUNT: &str = "cronjob-controller";

/// Sees to CronJobs until its feeds end.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    jobs: &mut Feed<JobView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut crons = Feed::new(CRON_JOBS, Api::<CronJobView>::all(clients.read()));
    let sources = vec![crons.source(Input::CronJobs), jobs.source(Input::Jobs)];
    crons.start(tasks);
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), ACCOUNT, settings.clock, tasks);
    let effects = CronJobEffects { client, recorder };
    frame::run(ACCOUNT, CronJobs::new(), effects, sources, Limits::default(), settings.clock)
}

struct CronJobEffects {
    client: kube::Client,
    recorder: EventRecorder,
}

impl Effects<CronJobs> for CronJobEffects {
    type Error = PodError;

    async fn apply(&self, _: &Uid, action: &Action) -> Result<Applied<Answer>, PodError> {
        match action {
            Action::Tell { owner, events } => {
                self.tell(owner, events);
                Ok(Applied::new(Answer::Done))
            }
            Action::DeleteJobs { owner, jobs, foreground } => {
                let mut newest = None;
                for job in jobs {
                    newest = newest.max(self.delete(owner, job, *foreground).await?);
                }
                Ok(Applied::wrote(Answer::Done, JOBS, newest))
            }
            Action::Create { owner, name, job } => self.create(owner, name, job).await,
            Action::Report { owner, resource_version, status, missing, events } => {
                let jobs: Api<JobView> = Api::namespaced(self.client.clone(), &owner.namespace);
                for job in missing {
                    let there = jobs.get_metadata_opt(&job.name).await?;
                    if there.is_some_and(|there| there.uid().as_deref() == Some(&job.uid)) {
                        return Err(PodError(format!("the Job {} is there after all", job.name)));
                    }
                }
                let api: Api<CronJobView> = Api::namespaced(self.client.clone(), &owner.namespace);
                let metadata = json!({ "uid": &*owner.uid, "resourceVersion": resource_version });
                let patch = Patch::Merge(json!({ "metadata": metadata, "status": status }));
                let written = api.patch_status(&owner.name, &PatchParams::default(), &patch).await?;
                self.tell(owner, events);
                Ok(Applied::wrote(Answer::Done, CRON_JOBS, revision(written.resource_version())))
            }
        }
    }
}

impl CronJobEffects {
    fn tell(&self, owner: &Owner, events: &[CronEvent]) {
        for CronEvent { is_warning, reason, message } in events {
            match is_warning {
                true => self.recorder.warn(owner.object_reference(), reason, message),
                false => self.recorder.tell(owner.object_reference(), reason, message),
            }
        }
    }

    async fn delete(&self, owner: &Owner, job: &JobRef, foreground: bool) -> Result<Option<u64>, PodError> {
        let api: Api<JobView> = Api::namespaced(self.client.clone(), &owner.namespace);
        let policy = if foreground { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
        let preconditions = Some(Preconditions { uid: Some(job.uid.clone()), resource_version: None });
        let params = DeleteParams { preconditions, propagation_policy: Some(policy), ..DeleteParams::default() };
        match unless_gone(api.delete(&job.name, &params).await) {
            Ok(None) => Ok(None),
            Ok(Some(answer)) => {
                let message = format!("Deleted job {}", job.name);
                self.recorder.tell(owner.object_reference(), "SuccessfulDelete", &message);
                Ok(answer.left().and_then(|job| revision(job.resource_version())))
            }
            Err(error) => {
                let error = PodError::from(error);
                self.recorder.warn(owner.object_reference(), "FailedDelete", &format!("Deleted job: {error}"));
                Err(error)
            }
        }
    }

    /// Makes a Job. One of ours that is there under this name is the one that was meant.
    async fn create(&self, owner: &Owner, name: &str, job: &Value) -> Result<Applied<Answer>, PodError> {
        let api: Api<JobView> = Api::namespaced(self.client.clone(), &owner.namespace);
        let request = Request::new(api.resource_url()).create(&PostParams::default(), job.to_string().into_bytes());
        let request = request.map_err(|error| PodError(error_chain(&error)))?;
        let error = match self.client.request::<JobView>(request).await {
            Ok(made) => {
                let message = format!("Created job {name}");
                self.recorder.tell(owner.object_reference(), "SuccessfulCreate", &message);
                return Ok(Applied::wrote(Answer::Done, JOBS, revision(made.resource_version())));
            }
            Err(error) => error,
        };
        if is_namespace_ending(&error) {
            return Ok(Applied::new(Answer::NamespaceEnding));
        }
        if matches!(&error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
            && let Some(there) = api.get_metadata_opt(name).await?
            && controller_of(&there.metadata).is_some_and(|it| it.uid == *owner.uid)
        {
            return Ok(Applied::wrote(Answer::Done, JOBS, revision(there.resource_version())));
        }
        let error = PodError::from(error);
        self.recorder.warn(owner.object_reference(), "FailedCreate", &format!("Error creating job: {error}"));
        Err(error)
    }
}
