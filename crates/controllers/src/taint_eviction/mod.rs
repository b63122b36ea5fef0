//! Ends pods on nodes whose `NoExecute` taints they do not tolerate, or tolerate no longer.
//!
//! [`plan`] says who and when; here they are marked, told about, and deleted with their own grace.

mod plan;

use client::about_pod;
use frame::{Applied, Effects, Limits};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::PODS;
use crate::clients::Clients;
use crate::events::EventRecorder;
use crate::feed::Feed;
use crate::pod::PodView;
use crate::pod_deletion::{Deletion, PodId, delete_pod};
use crate::settings::Settings;
use plan::{Action, Input, TaintEviction, Uid};

const ACCOUNT: &str = "taint-eviction-controller";
/// How many pods are ended at once.
const AT_ONCE: usize = 16;

/// Evicts until its feeds end. What it tells is stored by one of `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    nodes: &mut Feed<Node>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), ACCOUNT, settings.clock, tasks);
    let sources = vec![pods.source(Input::Pods), nodes.source(Input::Nodes)];
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    let effects = TaintEvictionEffects { client, recorder };
    frame::run(ACCOUNT, TaintEviction::default(), effects, sources, limits, settings.clock)
}

struct TaintEvictionEffects {
    client: kube::Client,
    recorder: EventRecorder,
}

impl Effects<TaintEviction> for TaintEvictionEffects {
    type Error = kube::Error;

    async fn apply(&self, _: &Uid, action: &Action) -> kube::Result<Applied<()>> {
        match action {
            Action::Spare(pod) => {
                let message = format!("Cancelling deletion of Pod {}", full_name(pod));
                self.recorder.tell(about_pod(&**pod, None), "TaintManagerEviction", &message);
                Ok(Applied::new(()))
            }
            Action::Evict { pod, at } => self.evict(pod, *at).await,
        }
    }
}

impl TaintEvictionEffects {
    /// Says why, then deletes the pod with its own grace.
    async fn evict(&self, pod: &PodView, at: Timestamp) -> kube::Result<Applied<()>> {
        let (namespace, name, uid) =
            (pod.namespace().unwrap_or_default(), pod.name_any(), pod.uid().unwrap_or_default());
        let message = format!("Marking for deletion Pod {}", full_name(pod));
        self.recorder.tell(about_pod(pod, None), "TaintManagerEviction", &message);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "observedGeneration": pod.metadata.generation,
        });
        let id = PodId { namespace: &namespace, name: &name, uid: &uid };
        match delete_pod(&self.client, &id, Some(json!({ "conditions": [condition] })), None).await? {
            Deletion::Asked(revision) => {
                info!(pod = full_name(pod), "deleted: it does not tolerate a taint of its node");
                Ok(Applied::wrote((), PODS, revision))
            }
            Deletion::Gone => {
                debug!(pod = name, "already gone");
                Ok(Applied::new(()))
            }
        }
    }
}

fn full_name(pod: &PodView) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
