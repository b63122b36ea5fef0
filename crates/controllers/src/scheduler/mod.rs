//! Gives every pod a node.
//!
//! [`plan`] decides, from what is known of pods and nodes; here pods are bound. A pod that fits nowhere is
//! told so, in an event and in its PodScheduled condition, and looked at again when something changes that may have been
//! in its way. If others matter less, some of them may have to leave for it ([`preempt`]): each is told why, and deleted with
//! the grace that it asks for.

mod affinity;
mod controller;
mod fit;
mod plan;
mod preempt;
mod resources;
mod score;
mod spread;
mod volumes;
mod world;

use api::volume::SELECTED_NODE;
use client::{Grade, Recorder, about_pod};
use frame::{Applied, Effects, Limits};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Binding, Namespace, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::{debug, error, info};

use crate::events::wall;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_deletion::{Deletion, PodId, delete_pod, unless_gone};
use crate::settings::Settings;
use crate::volume_objects::{CLAIMS, STORAGE_CLASSES, VOLUMES, VolumeInput, seen_as, taken_by};
use crate::{NODES, PODS, RESTART, until_one_ends};
use controller::{Action, Answer, Input, Scheduler};
use plan::Victim;
use volumes::VolumeChoice;
use world::Uid;

/// The scheduler's name, in `spec.schedulerName` and as the source of its events.
const NAME: &str = "default-scheduler";

/// How many pods are bound at once. Their events are stored one after the other; pods that are bound faster than that
/// would make events be dropped.
const AT_ONCE: usize = 1;

/// Schedules until it is dropped. Panics if any part of it does: whoever runs this starts it again.
pub async fn run(client: kube::Client, settings: Settings) {
    loop {
        run_once(&client, settings).await;
        error!("the scheduler ended; it begins anew");
        tokio::time::sleep(RESTART).await;
    }
}

async fn run_once(client: &kube::Client, settings: Settings) {
    let mut tasks = JoinSet::new();
    let mut pods = Feed::new(PODS, Api::<PodView>::all(client.clone()));
    let mut nodes = Feed::new(NODES, Api::<Node>::all(client.clone()));
    let mut namespaces = Feed::new("namespaces", Api::<Namespace>::all(client.clone()));
    let mut budgets = Feed::new("poddisruptionbudgets", Api::<PodDisruptionBudget>::all(client.clone()));
    let mut claims = Feed::new(CLAIMS, Api::<PersistentVolumeClaim>::all(client.clone()));
    let mut volumes = Feed::new(VOLUMES, Api::<PersistentVolume>::all(client.clone()));
    let mut classes = Feed::new(STORAGE_CLASSES, Api::<StorageClass>::all(client.clone()));
    let sources = vec![
        pods.source(Input::Pods),
        nodes.source(Input::Nodes),
        namespaces.source(Input::Namespaces),
        budgets.source(Input::Budgets),
        claims.source(|update| Input::Volumes(VolumeInput::Claims(update))),
        volumes.source(|update| Input::Volumes(VolumeInput::Volumes(update))),
        classes.source(|update| Input::Volumes(VolumeInput::Classes(update))),
    ];
    pods.start(&mut tasks);
    nodes.start(&mut tasks);
    namespaces.start(&mut tasks);
    budgets.start(&mut tasks);
    claims.start(&mut tasks);
    volumes.start(&mut tasks);
    classes.start(&mut tasks);
    let (recorder, recording) = Recorder::start(client.clone(), NAME, None, wall(settings.clock));
    tasks.spawn(recording);
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    let effects = SchedulerEffects { client: client.clone(), recorder };
    tasks.spawn(frame::run("scheduler", Scheduler::default(), effects, sources, limits, settings.clock));
    until_one_ends(tasks).await;
}

struct SchedulerEffects {
    client: kube::Client,
    recorder: Recorder,
}

impl Effects<Scheduler> for SchedulerEffects {
    type Error = kube::Error;

    async fn apply(&self, uid: &Uid, action: &Action) -> kube::Result<Applied<Answer>> {
        let answer = match action {
            Action::Bind { pod, node } => self.bind(pod, node).await?,
            Action::ChooseVolume { choice, .. } => return self.choose(choice).await,
            Action::Explain { pod, why, nominated, is_news, at } => {
                say_unschedulable(&self.client, pod, why, nominated.as_deref(), *at).await?;
                if *is_news {
                    self.recorder.tell(about_pod(&**pod, None), Grade::Warning, "FailedScheduling", why.clone());
                }
                Answer::Done
            }
            Action::Unnominate(pod) => {
                if let Err(error) = say(&self.client, pod, json!({ "nominatedNodeName": null })).await {
                    debug!(%error, "a pod still says that room is made for it");
                }
                Answer::Done
            }
            Action::Displace { victim, node, at } => {
                let Victim { uid: theirs, namespace, name } = victim;
                info!(pod = name, namespace, %node, for_pod = %uid, "has to leave for a more important pod");
                let id = PodId { namespace, name, uid: theirs };
                // The watch tells of one that is gone.
                if let Deletion::Asked(_) = delete_pod(&self.client, &id, Some(disruption(*at)), None).await? {
                    let message = format!("Preempted by pod {uid} on node {node}");
                    self.recorder.tell(victim.reference(), Grade::Normal, "Preempted", message);
                }
                Answer::Done
            }
        };
        Ok(Applied::new(answer))
    }
}

impl SchedulerEffects {
    /// Writes a choice into the object that holds it, if that is still as it was seen: the watch tells what has changed.
    async fn choose(&self, choice: &VolumeChoice) -> kube::Result<Applied<Answer>> {
        let params = PatchParams::default();
        let (source, written) = match choice {
            VolumeChoice::Take { volume, claim } => {
                let api: Api<PersistentVolume> = Api::all(self.client.clone());
                let patch = Patch::Merge(taken_by(volume, claim));
                let patched = unless_gone(api.patch(&volume.name_any(), &params, &patch).await)?;
                (VOLUMES, patched.and_then(|volume| volume.resource_version()))
            }
            VolumeChoice::Provision { claim, node } => {
                let namespace = claim.namespace().unwrap_or_default();
                let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
                let patch = json!({ "metadata": { "annotations": { SELECTED_NODE: &**node } } });
                let patch = Patch::Merge(seen_as(&claim.metadata, patch));
                let patched = unless_gone(api.patch(&claim.name_any(), &params, &patch).await)?;
                (CLAIMS, patched.and_then(|claim| claim.resource_version()))
            }
        };
        Ok(Applied::wrote(Answer::Done, source, revision(written)))
    }

    async fn bind(&self, pod: &PodView, node: &str) -> kube::Result<Answer> {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        // Gone, or bound by someone else: the watch tells.
        if unless_gone(bind(&self.client, pod, node).await)?.is_none() {
            debug!(pod = name, "not bound");
            return Ok(Answer::NotBound);
        }
        info!(pod = name, namespace, %node, "bound");
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.recorder.tell(about_pod(pod, None), Grade::Normal, "Scheduled", message);
        Ok(Answer::Done)
    }
}

impl Victim {
    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: Some(self.uid.to_string()),
            ..ObjectReference::default()
        }
    }
}

/// What a pod says of itself that leaves for a more important one.
fn disruption(at: Timestamp) -> Value {
    json!({ "conditions": [{
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{NAME}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": Time(at),
    }] })
}

async fn bind(client: &kube::Client, pod: &PodView, node: &str) -> kube::Result<()> {
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(pod.name_any()),
            namespace: Some(namespace),
            uid: pod.uid(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let _: serde_json::Value =
        api.create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding).await?;
    Ok(())
}

/// Lets others see that the pod fits nowhere, and why.
async fn say_unschedulable(
    client: &kube::Client,
    pod: &PodView,
    why: &str,
    nominated: Option<&str>,
    at: Timestamp,
) -> kube::Result<()> {
    let before = pod.status.conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    let since = before.and_then(|it| it.last_transition_time.clone()).unwrap_or(Time(at));
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastTransitionTime": since,
        "observedGeneration": pod.metadata.generation,
    });
    let mut status = json!({ "conditions": [condition] });
    if let Some(node) = nominated {
        status["nominatedNodeName"] = json!(node);
    }
    say(client, pod, status).await
}

/// Changes what the pod says of itself, if it is still there.
async fn say(client: &kube::Client, pod: &PodView, status: Value) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let patch = json!({ "metadata": { "uid": pod.uid() }, "status": status });
    // Gone, or another pod by now: the watch tells.
    unless_gone(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await).map(drop)
}
