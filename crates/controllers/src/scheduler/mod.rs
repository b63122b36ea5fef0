//! Gives every pod a node.
//!
//! [`plan`] decides, from what is known of pods and nodes; [`run`] listens and binds. A pod that fits nowhere is
//! told so, in an event and in its PodScheduled condition, and looked at again when something changes that may have been
//! in its way. If others matter less, some of them may have to leave for it ([`preempt`]): each is told why, and deleted with
//! the grace that it asks for.

mod affinity;
mod fit;
mod plan;
mod preempt;
mod resources;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Grade, Recorder, Sight, about_pod, follow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::caught::caught;
use crate::ending::{Meant, end};
use crate::pod::PodView;
use plan::{Placement, Planner, Victim};
use world::Uid;

/// The scheduler's name, in `spec.schedulerName` and as the source of its events.
const NAME: &str = "default-scheduler";

/// How many pods are bound at once. Their events are stored one after the other; pods that are bound faster than that
/// would make events be dropped.
const AT_ONCE: usize = 1;

/// How long to wait after a failure before looking again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Schedules until its task is ended.
pub async fn run(client: kube::Client) {
    let (pod_told, mut pod_sights) = mpsc::channel(256);
    let (node_told, mut node_sights) = mpsc::channel(64);
    let mut watches = JoinSet::new();
    watches.spawn(follow(Api::<PodView>::all(client.clone()), None, pod_told));
    watches.spawn(follow(Api::<Node>::all(client.clone()), None, node_told));
    let (budget_told, mut budget_sights) = mpsc::channel(64);
    watches.spawn(follow(Api::<PodDisruptionBudget>::all(client.clone()), None, budget_told));
    let (recorder, recording) = Recorder::start(client.clone(), NAME, None);
    watches.spawn(recording);
    let mut state = State::new(recorder);
    loop {
        let again_at = state.again_at;
        tokio::select! {
            Some(sight) = pod_sights.recv() => state.see_pod(sight),
            Some(sight) = node_sights.recv() => state.see_node(sight),
            Some(sight) = budget_sights.recv() => state.see_budget(sight),
            Some(ended) = state.binding.join_next(), if !state.binding.is_empty() => state.ended(ended),
            () = tokio::time::sleep_until(again_at.unwrap_or_else(Instant::now)), if again_at.is_some() => {
                state.again_at = None;
                state.planner.look_again();
            }
            else => return,
        }
        // Who is known before the nodes are would be told that there are none.
        while state.has_listed && state.has_budgets && state.binding.len() < AT_ONCE {
            // Decide with everything that has already been heard.
            while let Ok(sight) = pod_sights.try_recv() {
                state.see_pod(sight);
            }
            while let Ok(sight) = node_sights.try_recv() {
                state.see_node(sight);
            }
            while let Ok(sight) = budget_sights.try_recv() {
                state.see_budget(sight);
            }
            let Some(placement) = state.planner.next() else { break };
            match placement {
                Placement::On { pod, node } => state.place(&client, pod, node),
                Placement::Nowhere { pod, why } => _ = state.leave_waiting(&client, &pod, why, None).await,
                Placement::After { pod, node, victims, why } => {
                    state.make_room(&client, &pod, &node, victims, why).await;
                }
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
    /// The budgets are.
    has_budgets: bool,
    /// When those are looked at again for whom something failed that may pass.
    again_at: Option<Instant>,
    recorder: Recorder,
}

impl State {
    fn new(recorder: Recorder) -> Self {
        let (planner, binding, told) = (Planner::default(), JoinSet::new(), BTreeMap::new());
        Self { planner, binding, told, has_listed: false, has_budgets: false, again_at: None, recorder }
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
            let outcome = caught("scheduler", bind(&client, &pod, &node)).await;
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

    fn see_budget(&mut self, sight: Sight<PodDisruptionBudget>) {
        match sight {
            Sight::Listed(budgets) => {
                self.planner.all_budgets(&budgets);
                self.has_budgets = true;
            }
            Sight::Changed(budget) => self.planner.budget_seen(&budget),
            Sight::Removed(budget) => self.planner.budget_gone(&budget.uid().unwrap_or_default()),
        }
    }

    /// Lets people see that the pod waits, and why; and where room is made for it, if it is. False if that cannot be stored.
    async fn leave_waiting(&mut self, client: &kube::Client, uid: &Uid, why: String, nominated: Option<&str>) -> bool {
        let news = self.told.get(uid) != Some(&why);
        let Some(pod) = self.planner.waiting(uid).filter(|_| news || nominated.is_some()) else { return true };
        if let Err(error) = say_unschedulable(client, pod, &why, nominated).await {
            debug!(%error, "a pod's condition could not be stored; trying again");
            self.put_off(uid);
            return false;
        }
        if news {
            self.recorder.tell(about_pod(pod, None), Grade::Warning, "FailedScheduling", why.clone());
            self.told.insert(Arc::clone(uid), why);
        }
        true
    }

    /// Has others leave the node, so that the pod can come. First everybody can see for whom the room is.
    async fn make_room(
        &mut self,
        client: &kube::Client,
        uid: &Uid,
        node: &Arc<str>,
        victims: Vec<Victim>,
        why: String,
    ) {
        if !self.leave_waiting(client, uid, why, Some(node)).await {
            return;
        }
        for lesser in self.planner.nominate(uid, Arc::clone(node)) {
            if let Some(pod) = self.planner.waiting(&lesser)
                && let Err(error) = nominate(client, pod, None).await
            {
                debug!(%error, "a pod still says that room is made for it");
            }
        }
        for victim in victims {
            let Victim { uid: theirs, namespace, name } = &victim;
            self.planner.displaced(theirs, true);
            info!(pod = name, namespace, %node, for_pod = %uid, "has to leave for a more important pod");
            match end(client, &Meant { namespace, name, uid: theirs }, Some(disruption()), None).await {
                Ok(true) => {
                    let message = format!("Preempted by pod {uid} on node {node}");
                    self.recorder.tell(victim.reference(), Grade::Normal, "Preempted", message);
                }
                // The watch tells.
                Ok(false) => {}
                Err(error) => {
                    warn!(%error, pod = name, "cannot make a pod leave; trying again");
                    self.planner.displaced(theirs, false);
                    self.put_off(uid);
                }
            }
        }
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
fn disruption() -> Value {
    json!({ "conditions": [{
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{NAME}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": Time(Timestamp::now()),
    }] })
}

/// Says where room is made for the pod, or that none is.
async fn nominate(client: &kube::Client, pod: &PodView, node: Option<&str>) -> kube::Result<()> {
    say(client, pod, json!({ "nominatedNodeName": node })).await
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
) -> kube::Result<()> {
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
    match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
        // Gone, or another pod by now: the watch tells.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome.map(drop),
    }
}
