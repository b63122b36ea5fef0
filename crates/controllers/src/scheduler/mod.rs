//! Gives every pod a node.
//!
//! [`plan`] decides, from what is known of pods and nodes; [`run`] listens and binds. A pod that fits nowhere is
//! told so, in an event and in its PodScheduled condition, and looked at again when something changes that may have been
//! in its way.

mod affinity;
mod fit;
mod plan;
mod resources;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Grade, Recorder, Sight, about_pod, follow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::pod::PodView;
use plan::{Placement, Planner};
use world::Uid;

/// The scheduler's name, in `spec.schedulerName` and as the source of its events.
const NAME: &str = "default-scheduler";

/// How many pods are bound at once: enough for the store to write many in one go.
const AT_ONCE: usize = 32;

/// How long to wait after a failure before looking again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Schedules until its task is ended.
pub async fn run(client: kube::Client) {
    let (pod_told, mut pod_sights) = mpsc::channel(256);
    let (node_told, mut node_sights) = mpsc::channel(64);
    let mut watches = JoinSet::new();
    watches.spawn(follow(Api::<PodView>::all(client.clone()), None, pod_told));
    watches.spawn(follow(Api::<Node>::all(client.clone()), None, node_told));
    let (recorder, recording) = Recorder::start(client.clone(), NAME, None);
    watches.spawn(recording);
    let mut state = State::new(recorder);
    loop {
        let again_at = state.again_at;
        tokio::select! {
            Some(sight) = pod_sights.recv() => state.see_pod(sight),
            Some(sight) = node_sights.recv() => state.see_node(sight),
            Some(ended) = state.binding.join_next(), if !state.binding.is_empty() => state.ended(ended),
            () = tokio::time::sleep_until(again_at.unwrap_or_else(Instant::now)), if again_at.is_some() => {
                state.again_at = None;
                state.planner.look_again();
            }
            else => return,
        }
        // Who is known before the nodes are would be told that there are none.
        while state.has_listed && state.binding.len() < AT_ONCE {
            // Decide with everything that has already been heard.
            while let Ok(sight) = pod_sights.try_recv() {
                state.see_pod(sight);
            }
            while let Ok(sight) = node_sights.try_recv() {
                state.see_node(sight);
            }
            let Some(placement) = state.planner.next() else { break };
            match placement {
                Placement::On { pod, node } => state.place(&client, pod, node),
                Placement::Nowhere { pod, why } => state.leave_waiting(&client, &pod, why).await,
            }
        }
    }
}

/// What came of binding a pod.
struct Ended {
    uid: Uid,
    pod: PodView,
    node: Arc<str>,
    outcome: kube::Result<()>,
}

struct State {
    planner: Planner,
    binding: JoinSet<Ended>,
    /// What each pod without a place was last told.
    told: BTreeMap<Uid, String>,
    /// The nodes are known.
    has_listed: bool,
    /// When those are looked at again for whom something failed that may pass.
    again_at: Option<Instant>,
    recorder: Recorder,
}

impl State {
    fn new(recorder: Recorder) -> Self {
        let (planner, binding, told) = (Planner::default(), JoinSet::new(), BTreeMap::new());
        Self { planner, binding, told, has_listed: false, again_at: None, recorder }
    }

    fn put_off(&mut self, uid: &Uid) {
        self.planner.put_off(uid);
        self.again_at.get_or_insert_with(|| Instant::now() + TRY_AGAIN);
    }

    fn see_pod(&mut self, sight: Sight<PodView>) {
        match sight {
            Sight::Listed(pods) => {
                self.planner.all_pods(pods);
                self.told.retain(|uid, _| self.planner.waiting(uid).is_some());
            }
            Sight::Changed(pod) => self.planner.pod_seen(pod),
            Sight::Removed(pod) => {
                let uid = pod.uid().unwrap_or_default();
                self.planner.pod_gone(&uid);
                self.told.remove(&*uid);
            }
        }
    }

    fn see_node(&mut self, sight: Sight<Node>) {
        match sight {
            Sight::Listed(nodes) => {
                self.planner.all_nodes(&nodes);
                self.has_listed = true;
            }
            Sight::Changed(node) => self.planner.node_seen(&node),
            Sight::Removed(node) => self.planner.node_gone(&node.name_any()),
        }
    }

    /// Begins to bind a pod, which has its room from then on.
    fn place(&mut self, client: &kube::Client, uid: Uid, node: Arc<str>) {
        let Some(pod) = self.planner.assume(&uid, Arc::clone(&node)) else { return };
        let client = client.clone();
        self.binding.spawn(async move {
            let outcome = bind(&client, &pod, &node).await;
            Ended { uid, pod, node, outcome }
        });
    }

    fn ended(&mut self, ended: Result<Ended, JoinError>) {
        let Ended { uid, pod, node, outcome } = match ended {
            Ok(ended) => ended,
            Err(error) => return warn!(%error, "the binding of a pod broke"),
        };
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        match outcome {
            Ok(()) => {
                info!(pod = name, namespace, %node, "bound");
                self.told.remove(&uid);
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                self.recorder.tell(about_pod(&pod, None), Grade::Normal, "Scheduled", message);
            }
            // Gone, or bound by someone else: the watch tells.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                debug!(message = status.message, pod = name, "not bound");
                self.planner.take_back(&uid, pod);
            }
            Err(error) => {
                warn!(%error, pod = name, "cannot bind a pod; trying again");
                self.planner.take_back(&uid, pod);
                self.put_off(&uid);
            }
        }
    }

    async fn leave_waiting(&mut self, client: &kube::Client, uid: &Uid, why: String) {
        let Some(pod) = self.planner.waiting(uid).filter(|_| self.told.get(uid) != Some(&why)) else { return };
        if let Err(error) = say_unschedulable(client, pod, &why).await {
            debug!(%error, "a pod's condition could not be stored; trying again");
            self.put_off(uid);
            return;
        }
        self.recorder.tell(about_pod(pod, None), Grade::Warning, "FailedScheduling", why.clone());
        self.told.insert(Arc::clone(uid), why);
    }
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
async fn say_unschedulable(client: &kube::Client, pod: &PodView, why: &str) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let before = pod.status.conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    let since = before.and_then(|it| it.last_transition_time.clone()).unwrap_or_else(|| Time(Timestamp::now()));
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastTransitionTime": since,
        "observedGeneration": pod.metadata.generation,
    });
    let patch = json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [condition] } });
    match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
        // Gone, or another pod by now: the watch tells.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome.map(drop),
    }
}
