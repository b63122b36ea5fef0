//! Pods that nobody is left to finish: their node is gone or out of service, they never had one, or too many have ended.
//!
//! Each is first reported as failed, so that whoever counts on it knows, and then removed without grace.

mod plan;

use frame::{Applied, Effects, Limits};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use serde_json::json;
use tracing::{debug, info};

use crate::PODS;
use crate::clients::Clients;
use crate::feed::Feed;
use crate::pod::PodView;
use crate::pod_deletion::{Deletion, PodId, delete_pod};
use crate::settings::Settings;
use plan::{Action, Answer, Input, Key, PodGc, Why};

const ACCOUNT: &str = "pod-garbage-collector";
/// How many pods are collected at once.
const AT_ONCE: usize = 16;

/// Collects until its feeds end.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    nodes: &mut Feed<Node>,
) -> impl Future<Output = ()> + Send + use<> {
    let sources = vec![pods.source(Input::Pods), nodes.source(Input::Nodes)];
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    let effects = PodGcEffects { client: clients.act(ACCOUNT) };
    frame::run(ACCOUNT, PodGc::new(settings), effects, sources, limits, settings.clock)
}

struct PodGcEffects {
    client: kube::Client,
}

impl Effects<PodGc> for PodGcEffects {
    type Error = kube::Error;

    async fn apply(&self, _: &Key, action: &Action) -> kube::Result<Applied<Answer>> {
        match action {
            Action::Collect { uid, pod, why, at } => {
                // It is reported as failed unless it has ended.
                let status = (!pod.ended).then(|| {
                    let mut status = json!({ "phase": "Failed" });
                    if *why == Why::NodeGone {
                        status["conditions"] = json!([{
                            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                            "message": "PodGC: node no longer exists",
                            "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                        }]);
                    }
                    status
                });
                let id = PodId { namespace: &pod.namespace, name: &pod.name, uid };
                match delete_pod(&self.client, &id, status, Some(0)).await? {
                    Deletion::Asked(revision) => {
                        info!(pod = pod.name, namespace = pod.namespace, ?why, "removed a pod that nobody finishes");
                        Ok(Applied::wrote(Answer::Collected, PODS, revision))
                    }
                    Deletion::Gone => {
                        debug!(pod = pod.name, "already gone");
                        Ok(Applied::new(Answer::Collected))
                    }
                }
            }
            Action::AskFor(name) => {
                let nodes: Api<Node> = Api::all(self.client.clone());
                let found = nodes.get_opt(name).await?;
                Ok(Applied::new(Answer::NodeExists(found.is_some())))
            }
        }
    }
}
