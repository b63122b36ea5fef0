//! Looks after nodes: notices those that have fallen silent, says so, and sees to it that nobody counts on them.
//!
//! [`node_health`] decides. The taints that only keep new pods away follow a node's conditions in the same write (the server sees
//! to that); here are the two that also end pods.

mod node_health;

use client::{about_node, about_pod, list_readable};
use frame::{Applied, Effects, Limits};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::NODES;
use crate::clients::Clients;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use node_health::{Action, Input, NOT_READY, Name, NodeHealth, UNREACHABLE};

const ACCOUNT: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
/// What a node says about itself besides Ready.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Watches until its feeds end. Followers and what it tells are `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    nodes: &mut Feed<Node>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), ACCOUNT, settings.clock, tasks);
    let mut leases = Feed::new("leases", Api::<Lease>::namespaced(clients.read(), LEASES));
    let sources = vec![nodes.source(Input::Nodes), leases.source(Input::Leases)];
    leases.start(tasks);
    let effects = NodeHealthEffects { client, recorder };
    frame::run(ACCOUNT, NodeHealth::new(settings.node_grace), effects, sources, Limits::default(), settings.clock)
}

struct NodeHealthEffects {
    client: kube::Client,
    recorder: EventRecorder,
}

impl Effects<NodeHealth> for NodeHealthEffects {
    type Error = kube::Error;

    /// Does it, if it is still to be done.
    async fn apply(&self, name: &Name, action: &Action) -> kube::Result<Applied<()>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let written = match action {
            Action::PodsNotReady { at } => return self.pods_not_ready(name, *at).await.map(Applied::new),
            Action::Silent { heartbeat, at } => match nodes.get_opt(name).await? {
                Some(node) => self.say_unknown(&nodes, node, *heartbeat, *at).await,
                None => return Ok(Applied::new(())),
            },
            Action::Taint { key, at } => match nodes.get_opt(name).await? {
                Some(node) => taint(&nodes, node, *key, *at).await,
                None => return Ok(Applied::new(())),
            },
        };
        // Whoever wrote it meanwhile, or removed it: the watch tells.
        let node = unless_gone(written)?;
        Ok(Applied::wrote((), NODES, revision(node.and_then(|node| node.resource_version()))))
    }
}

impl NodeHealthEffects {
    /// Says that nobody knows how the node is, unless it has spoken.
    async fn say_unknown(
        &self,
        api: &Api<Node>,
        node: Node,
        heartbeat: Option<Timestamp>,
        at: Timestamp,
    ) -> kube::Result<Node> {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let spoke = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0) != heartbeat;
        if spoke || ready.is_some_and(|ready| ready.status == "Unknown") {
            return Ok(node);
        }
        let name = node.name_any();
        let unknown: Vec<NodeCondition> = CONDITIONS.iter().map(|kind| unknown(kind, &node, at)).collect();
        let version = &node.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": unknown } });
        let stored = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        warn!(node = name, "the node says nothing any more: its state is unknown");
        self.recorder.tell(about_node(&name), "NodeNotReady", &format!("Node {name} status is now: NodeNotReady"));
        Ok(stored)
    }

    /// Says of every ready pod of the node that it is not: nobody should send it anything.
    async fn pods_not_ready(&self, node: &str, at: Timestamp) -> kube::Result<()> {
        let all: Api<Pod> = Api::all(self.client.clone());
        let selector = format!("spec.nodeName={node}");
        let mut outcome = Ok(());
        for pod in list_readable(all, &ListParams::default().fields(&selector)).await? {
            if !api::pod::is_ready(&pod) {
                continue;
            }
            let condition = json!({ "type": "Ready", "status": "False", "reason": "NodeNotReady",
                "message": "Node is not ready", "lastTransitionTime": Time(at) });
            let patch = json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [condition] } });
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            match pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
                Ok(_) => self.recorder.warn(about_pod(&pod, None), "NodeNotReady", "Node is not ready"),
                // The others are told all the same.
                Err(error) => outcome = outcome.and(unless_gone::<()>(Err(error)).map(drop)),
            }
        }
        outcome
    }
}

/// A condition that nobody vouches for any more.
fn unknown(kind: &str, node: &Node, at: Timestamp) -> NodeCondition {
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
        last_transition_time: Some(Time(at)),
    }
}

/// Gives the node the taint called `key`, and takes its counterpart away.
async fn taint(api: &Api<Node>, node: Node, key: Option<&str>, at: Timestamp) -> kube::Result<Node> {
    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_ours = |taint: &Taint| taint.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    let mut new: Vec<Taint> =
        old.iter().filter(|taint| !is_ours(taint) || Some(taint.key.as_str()) == key).cloned().collect();
    if let Some(key) = key.filter(|key| !new.iter().any(|taint| is_ours(taint) && taint.key == *key)) {
        new.push(Taint {
            key: key.to_owned(),
            effect: "NoExecute".to_owned(),
            time_added: Some(Time(at)),
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
