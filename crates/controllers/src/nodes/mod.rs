//! Looks after nodes: notices those that have fallen silent, says so, and sees to it that nobody counts on them.
//!
//! [`watchman`] decides. The taints that only keep new pods away follow a node's conditions in the same write (the server sees
//! to that); here are the two that also end pods.

mod watchman;

use std::collections::BTreeSet;
use std::time::Duration;

use client::{Sight, about_node, about_pod, follow, list_readable};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::caught::caught;
use crate::events::Teller;
use crate::feed::Feed;
use watchman::{Act, NOT_READY, Name, UNREACHABLE, Watchman};

const NAME: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// What a node says about itself besides Ready.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Watches until its feed ends. Followers and what it tells are `tasks`.
pub(crate) fn run(
    client: kube::Client,
    grace: Duration,
    nodes: Feed<Node>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + 'static {
    let teller = Teller::start(client.clone(), NAME, tasks);
    let (lease_told, leases) = mpsc::channel(64);
    tasks.spawn(follow(Api::<Lease>::namespaced(client.clone(), LEASES), None, lease_told));
    watch(Hands { client, teller }, Watchman::new(grace), nodes, leases)
}

async fn watch(hands: Hands, mut watchman: Watchman, mut nodes: Feed<Node>, mut leases: mpsc::Receiver<Sight<Lease>>) {
    // One thing at a time is done about a node; what failed waits a little.
    let mut busy: BTreeSet<Name> = BTreeSet::new();
    let mut tasks: JoinSet<(Act, Option<kube::Result<Option<Node>>>)> = JoinSet::new();
    loop {
        let now = Instant::now();
        for act in watchman.acts(now) {
            if !busy.insert(act.node().clone()) {
                continue;
            }
            if matches!(act, Act::Taint { key: Some(_), .. }) {
                watchman.gave_up(now, act.node());
            }
            let hands = hands.clone();
            tasks.spawn(async move {
                let outcome = caught("nodes", hands.perform(&act)).await;
                (act, Some(outcome))
            });
        }
        let wake = watchman.next_wake(now);
        tokio::select! {
            sight = nodes.recv() => match (Instant::now(), sight) {
                (_, None) => return,
                (now, Some(Sight::Listed(all))) => watchman.all_nodes(now, &all),
                (now, Some(Sight::Changed(node))) => watchman.node_seen(now, &node),
                (_, Some(Sight::Removed(node))) => watchman.node_gone(&node.name_any()),
            },
            sight = leases.recv() => match (Instant::now(), sight) {
                (_, None) => return,
                (now, Some(Sight::Listed(all))) => all.iter().for_each(|lease| watchman.lease_seen(now, lease)),
                (now, Some(Sight::Changed(lease))) => watchman.lease_seen(now, &lease),
                (_, Some(Sight::Removed(_))) => {}
            },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                let (act, outcome) = match ended {
                    Ok(ended) => ended,
                    Err(error) => {
                        tracing::error!(%error, "what was to be done about a node broke");
                        // Whichever it was: doing something twice does no harm.
                        busy.clear();
                        continue;
                    }
                };
                match outcome {
                    // What came of it is known before the watch tells.
                    Some(Ok(node)) => {
                        busy.remove(act.node());
                        if matches!(act, Act::PodsNotReady { .. }) {
                            watchman.pods_told(act.node());
                        }
                        if let Some(node) = node {
                            watchman.node_seen(Instant::now(), &node);
                        }
                    }
                    Some(Err(error)) => {
                        warn!(%error, node = %act.node(), "a silent node could not be dealt with; trying again");
                        tasks.spawn(async move {
                            tokio::time::sleep(RETRY).await;
                            (act, None)
                        });
                    }
                    None => {
                        busy.remove(act.node());
                    }
                }
            }
            () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
        }
    }
}

/// What acts on the API.
#[derive(Clone)]
struct Hands {
    client: kube::Client,
    teller: Teller,
}

impl Hands {
    /// Does it, if it is still to be done. Answers the node as it is then, if it was looked at and is there.
    async fn perform(&self, act: &Act) -> kube::Result<Option<Node>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Act::PodsNotReady { node } = act {
            return self.pods_not_ready(node).await.map(|()| None);
        }
        let Some(found) = nodes.get_opt(act.node()).await? else { return Ok(None) };
        let outcome = match act {
            Act::Silent { heartbeat, .. } => self.say_unknown(&nodes, found, *heartbeat).await,
            Act::Taint { key, .. } => taint(&nodes, found, *key).await,
            Act::PodsNotReady { .. } => return Ok(None),
        };
        match outcome {
            // Somebody else wrote it meanwhile: the watch tells what.
            Err(error) if is_status(&error, 409) => nodes.get_opt(act.node()).await,
            Err(error) if is_status(&error, 404) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Says that nobody knows how the node is, unless it has spoken.
    async fn say_unknown(&self, api: &Api<Node>, node: Node, heartbeat: Option<Timestamp>) -> kube::Result<Node> {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let spoke = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0) != heartbeat;
        if spoke || ready.is_some_and(|ready| ready.status == "Unknown") {
            return Ok(node);
        }
        let name = node.name_any();
        let unknown: Vec<NodeCondition> = CONDITIONS.iter().map(|kind| unknown(kind, &node)).collect();
        let version = &node.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": unknown } });
        let stored = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        warn!(node = name, "the node says nothing any more: its state is unknown");
        self.teller.tell(about_node(&name), "NodeNotReady", &format!("Node {name} status is now: NodeNotReady"));
        Ok(stored)
    }

    /// Says of every ready pod of the node that it is not: nobody should send it anything.
    async fn pods_not_ready(&self, node: &str) -> kube::Result<()> {
        let all: Api<Pod> = Api::all(self.client.clone());
        let selector = format!("spec.nodeName={node}");
        let mut outcome = Ok(());
        for pod in list_readable(all, &ListParams::default().fields(&selector)).await? {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            if !conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                continue;
            }
            let condition = json!({ "type": "Ready", "status": "False", "reason": "NodeNotReady",
                "message": "Node is not ready", "lastTransitionTime": Time(Timestamp::now()) });
            let patch = json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [condition] } });
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            match pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
                Ok(_) => self.teller.warn(about_pod(&pod, None), "NodeNotReady", "Node is not ready"),
                Err(error) if is_status(&error, 404) || is_status(&error, 409) => {}
                // The others are told all the same.
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

/// A condition that nobody vouches for any more.
fn unknown(kind: &str, node: &Node) -> NodeCondition {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let before = conditions.iter().find(|condition| condition.type_ == kind);
    let (reason, message) = match before {
        Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
        None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
    };
    let made = || node.metadata.creation_timestamp.clone();
    NodeCondition {
        type_: kind.to_owned(),
        status: "Unknown".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: before.map_or_else(made, |before| before.last_heartbeat_time.clone()),
        last_transition_time: Some(Time(Timestamp::now())),
    }
}

/// Gives the node the taint called `key`, and takes its counterpart away.
async fn taint(api: &Api<Node>, node: Node, key: Option<&str>) -> kube::Result<Node> {
    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_ours = |taint: &Taint| taint.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    let mut new: Vec<Taint> =
        old.iter().filter(|taint| !is_ours(taint) || Some(taint.key.as_str()) == key).cloned().collect();
    if let Some(key) = key.filter(|key| !new.iter().any(|taint| is_ours(taint) && taint.key == *key)) {
        new.push(Taint {
            key: key.to_owned(),
            effect: "NoExecute".to_owned(),
            time_added: Some(Time(Timestamp::now())),
            value: None,
        });
    }
    if new == old {
        return Ok(node);
    }
    let name = node.name_any();
    info!(node = name, taint = key.unwrap_or("none"), "pods of the node have to go, or may stay");
    let patch = json!({ "metadata": { "resourceVersion": node.metadata.resource_version }, "spec": { "taints": new } });
    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
