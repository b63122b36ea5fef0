//! Disruption budgets, counted: how many pods of each may be evicted right now.
//!
//! The eviction itself is the server's; it takes from `disruptionsAllowed` what this controller puts there. A count is
//! written with the version it was made from, so an eviction that gets in between is never overwritten.

mod controller;
mod known;
mod plan;
mod scale;

use frame::{Applied, Effects, Limits};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;
use tracing::debug;

use crate::PODS;
use crate::clients::Clients;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use controller::{Action, Answer, Disruption, Input, Key};

const ACCOUNT: &str = "disruption-controller";
/// As whom it speaks in events.
const NAME: &str = "controllermanager";
const BUDGETS: &str = "poddisruptionbudgets";

/// Counts until its feeds end. Followers and what it tells are `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), NAME, settings.clock, tasks);
    let mut budgets = Feed::new(BUDGETS, Api::<PodDisruptionBudget>::all(clients.read()));
    let mut sources = vec![pods.source(Input::Pods), budgets.source(Input::Budgets)];
    budgets.start(tasks);
    for (name, resource) in scale::followed() {
        let mut workloads = Feed::new(name, Api::<DynamicObject>::all_with(clients.read(), &resource));
        sources.push(workloads.source(move |sight| Input::Workloads(name, sight)));
        workloads.start(tasks);
    }
    let effects = DisruptionEffects { client, read: clients.read(), recorder };
    frame::run(ACCOUNT, Disruption::default(), effects, sources, Limits::default(), settings.clock)
}

struct DisruptionEffects {
    client: kube::Client,
    /// Who may look at workloads of any kind.
    read: kube::Client,
    recorder: EventRecorder,
}

impl Effects<Disruption> for DisruptionEffects {
    type Error = kube::Error;

    async fn apply(&self, _: &Key, action: &Action) -> kube::Result<Applied<Answer>> {
        match action {
            Action::Ask { owner, namespace } => {
                scale::ask(&self.read, owner, namespace).await.map(|answer| Applied::new(Answer::Replicas(answer)))
            }
            Action::Count { budget, status, not_deleted, unknown, is_news } => {
                self.tell(budget, not_deleted, unknown.as_deref().filter(|_| *is_news));
                let Some(status) = status else { return Ok(Applied::new(Answer::Done)) };
                let mut next = (**budget).clone();
                next.status = Some((**status).clone());
                let api: Api<PodDisruptionBudget> =
                    Api::namespaced(self.client.clone(), &next.namespace().unwrap_or_default());
                let written = unless_gone(api.replace_status(&next.name_any(), &PostParams::default(), &next).await)?;
                if written.is_none() {
                    // The watch tells, and it is counted again.
                    debug!(budget = next.name_any(), "the budget changed while it was counted");
                }
                let written = written.and_then(|budget| budget.resource_version());
                Ok(Applied::wrote(Answer::Done, BUDGETS, revision(written)))
            }
            Action::Spare { uid, namespace, name, at } => {
                let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
                let condition = json!({ "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
                    "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() });
                let patch = json!({ "metadata": { "uid": &**uid }, "status": { "conditions": [condition] } });
                let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
                let written = unless_gone(patched)?.and_then(|pod| pod.resource_version());
                Ok(Applied::wrote(Answer::Done, PODS, revision(written)))
            }
        }
    }
}

impl DisruptionEffects {
    /// Says what a person should know about a budget.
    fn tell(&self, budget: &PodDisruptionBudget, not_deleted: &[String], unknown: Option<&str>) {
        let about = ObjectReference {
            api_version: Some("policy/v1".to_owned()),
            kind: Some("PodDisruptionBudget".to_owned()),
            name: budget.metadata.name.clone(),
            namespace: budget.metadata.namespace.clone(),
            uid: budget.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        for pod in not_deleted {
            let message = format!("Pod {pod} was expected by the budget to be deleted but it wasn't");
            self.recorder.warn(about.clone(), "NotDeleted", &message);
        }
        if let Some(why) = unknown {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            self.recorder.warn(about, "CalculateExpectedPodCountFailed", &message);
        }
    }
}
