//! Gives every pod a node.
//!
//! [`plan`] decides, from what is known of pods and nodes; [`run`] listens and binds. A pod that fits nowhere is
//! told so, in an event and in its PodScheduled condition, and looked at again whenever a node or a pod changes.

mod affinity;
mod fit;
mod plan;
mod resources;

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Grade, Recorder, Sight, about_pod, follow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

pub use plan::{Placement, plan};

/// The scheduler's name, in `spec.schedulerName` and as the source of its events.
const NAME: &str = "default-scheduler";

/// How long to wait after a failure before looking again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Schedules until its task is ended.
pub async fn run(client: kube::Client) {
    let (pod_told, mut pod_sights) = mpsc::channel(256);
    let (node_told, mut node_sights) = mpsc::channel(64);
    let mut watches = JoinSet::new();
    watches.spawn(follow(Api::<Pod>::all(client.clone()), None, pod_told));
    watches.spawn(follow(Api::<Node>::all(client.clone()), None, node_told));
    let (recorder, recording) = Recorder::start(client.clone(), NAME, None);
    watches.spawn(recording);
    let mut state = State::new(recorder);
    loop {
        let again = tokio::time::sleep(TRY_AGAIN);
        tokio::select! {
            Some(sight) = pod_sights.recv() => state.see_pod(sight),
            Some(sight) = node_sights.recv() => state.see_node(sight),
            () = again, if state.failed => {}
            else => return,
        }
        state.failed = false;
        // Decide once for everything that has already been heard.
        while let Ok(sight) = pod_sights.try_recv() {
            state.see_pod(sight);
        }
        // Who is known before the nodes are would be told that there are none.
        if !state.has_listed {
            continue;
        }
        for placement in plan(state.pods.values(), state.nodes.values()) {
            state.apply(&client, placement).await;
        }
    }
}

struct State {
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    /// What each pod without a place was last told.
    told: BTreeMap<String, String>,
    /// The nodes are known.
    has_listed: bool,
    /// Some pod could not be bound, for a reason that may pass.
    failed: bool,
    recorder: Recorder,
}

impl State {
    fn new(recorder: Recorder) -> Self {
        let (pods, nodes, told) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { pods, nodes, told, has_listed: false, failed: false, recorder }
    }

    fn see_pod(&mut self, sight: Sight<Pod>) {
        let key = |pod: &Pod| pod.uid().unwrap_or_default();
        match sight {
            Sight::Listed(pods) => self.pods = pods.into_iter().map(|p| (key(&p), p)).collect(),
            Sight::Changed(pod) => drop(self.pods.insert(key(&pod), pod)),
            Sight::Removed(pod) => {
                self.pods.remove(&key(&pod));
                self.told.remove(&key(&pod));
            }
        }
    }

    fn see_node(&mut self, sight: Sight<Node>) {
        match sight {
            Sight::Listed(nodes) => {
                self.nodes = nodes.into_iter().map(|n| (n.name_any(), n)).collect();
                self.has_listed = true;
            }
            Sight::Changed(node) => drop(self.nodes.insert(node.name_any(), node)),
            Sight::Removed(node) => drop(self.nodes.remove(&node.name_any())),
        }
    }

    async fn apply(&mut self, client: &kube::Client, placement: Placement) {
        match placement {
            Placement::On { pod, node } => {
                let Some(object) = self.pods.get_mut(&pod) else { return };
                let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
                match bind(client, object, &node).await {
                    Ok(()) => {
                        info!(pod = name, namespace, node, "bound");
                        // The watch will say so too; until then the plan must not choose again.
                        object.spec.get_or_insert_default().node_name = Some(node.clone());
                        self.told.remove(&pod);
                        let message = format!("Successfully assigned {namespace}/{name} to {node}");
                        self.recorder.tell(about_pod(object, None), Grade::Normal, "Scheduled", message);
                    }
                    // Gone, or bound by someone else: the watch tells.
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                        debug!(message = status.message, pod = name, "not bound");
                    }
                    Err(error) => {
                        warn!(%error, pod = name, "cannot bind a pod; trying again");
                        self.failed = true;
                    }
                }
            }
            Placement::Nowhere { pod, why } => {
                if self.told.get(&pod) == Some(&why) {
                    return;
                }
                if let Some(object) = self.pods.get(&pod) {
                    // Said again with the next change of a pod or a node if it cannot be stored.
                    if let Err(error) = say_unschedulable(client, object, &why).await {
                        debug!(%error, "a pod's condition could not be stored");
                        self.failed = true;
                        return;
                    }
                    self.recorder.tell(about_pod(object, None), Grade::Warning, "FailedScheduling", why.clone());
                    self.told.insert(pod, why);
                }
            }
        }
    }
}

async fn bind(client: &kube::Client, pod: &Pod, node: &str) -> kube::Result<()> {
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
async fn say_unschedulable(client: &kube::Client, pod: &Pod, why: &str) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let stored = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let before = stored.into_iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
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
