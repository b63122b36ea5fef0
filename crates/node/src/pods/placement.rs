//! Whether a pod that wants certain nodes is wanted here: whoever names its node by itself asked no scheduler.
//!
//! Asked once, of the API, before a pod begins: labels that change later do not concern those that are here, and those that
//! were set a moment ago count.

use std::time::Duration;

use api::placement::{self, NodeLabels};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use runtime_api::Runtime;
use tracing::warn;

use super::{Handle, Pods, Stage};

/// How often the node's labels are asked for before a pod is taken at its word.
const TRIES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// An API that takes longer for one node is as good as away: the pod is taken at its word rather than kept waiting.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Whether a pod's wishes are known to be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Placed {
    /// Nobody asked.
    #[default]
    Unasked,
    /// The API was asked.
    Asked,
    /// It may be here.
    Here,
    /// It wants other nodes.
    Elsewhere,
}

impl<R: Runtime> Pods<R> {
    /// Asks once whether a pod may be here; the answer has it decided about again.
    pub(super) fn ask_for_placement(&mut self, uid: &str, pod: &Pod) {
        let Some(Handle { stage: Stage::Waiting { placed: placed @ Placed::Unasked, .. }, .. }) =
            self.drivers.get_mut(uid)
        else {
            return;
        };
        *placed = Placed::Asked;
        let (nodes, name) = (Api::all(self.tools.client.clone()), self.tools.node_name.clone());
        let spec = pod.spec.clone().unwrap_or_default();
        let uid = uid.to_owned();
        self.placing.spawn(async move {
            let selector = spec.node_selector.unwrap_or_default();
            let wants = |place: NodeLabels<'_>| placement::wants(&selector, spec.affinity.as_ref(), place);
            (uid, if is_wanted(nodes, &name, wants).await { Placed::Here } else { Placed::Elsewhere })
        });
    }

    /// It is known whether a pod may be here.
    pub(super) async fn placed(&mut self, uid: &str, answer: Placed) {
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        if let Stage::Waiting { placed, .. } = &mut handle.stage {
            *placed = answer;
            let pod = handle.pod();
            self.admit(uid, &pod).await;
        }
    }
}

async fn is_wanted(nodes: Api<Node>, name: &str, wants: impl Fn(NodeLabels<'_>) -> bool) -> bool {
    for _ in 0..TRIES {
        match tokio::time::timeout(ANSWER_MAX, nodes.get(name)).await {
            Ok(Ok(node)) => {
                let labels = node.metadata.labels.unwrap_or_default();
                return wants(NodeLabels { name, labels: &labels });
            }
            Ok(Err(error)) => warn!(%error, "cannot look up the node's labels"),
            Err(_) => warn!("cannot look up the node's labels: no answer"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    true
}
