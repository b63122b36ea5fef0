//! Whether a pod that wants certain nodes is wanted here: whoever names its node by itself asked no scheduler.
//!
//! Asked once, of the API, before a pod begins: labels that change later do not concern those that are here, and those that
//! were set a moment ago count.

use std::time::Duration;

use api::placement::{self, NOT_WANTED, NodeLabels};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use lifecycle::Input;
use runtime_api::Runtime;
use tracing::{info, warn};

use super::Pods;
use super::admission::waits;
use crate::effects::lock;

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
}

impl<R: Runtime> Pods<R> {
    /// Whether a pod has to wait until it is known that it may be here.
    pub(super) fn check_affinity(&mut self, uid: &str, pod: &Pod) -> bool {
        let Some(handle) = self.drivers.get_mut(uid) else { return false };
        // What a file asks for is for this node.
        let is_particular = pod.spec.as_ref().is_some_and(placement::is_particular) && handle.full_name.is_none();
        match handle.placed {
            Placed::Unasked if is_particular => {
                handle.placed = Placed::Asked;
                let (nodes, name) = (Api::all(self.tools.client.clone()), self.tools.node_name.clone());
                let (uid, pod) = (uid.to_owned(), pod.clone());
                self.placing.spawn(async move { (uid, is_wanted(nodes, &name, &pod).await) });
                true
            }
            Placed::Asked => true,
            Placed::Unasked | Placed::Here => false,
        }
    }

    /// It is known whether a pod may be here.
    pub(super) async fn placed(&mut self, uid: String, is_wanted: bool) {
        let Some(handle) = self.drivers.get_mut(&uid) else { return };
        handle.placed = Placed::Here;
        if !waits(handle) {
            return;
        }
        if is_wanted {
            let pod = lock(&handle.entry.facts).pod.clone();
            return self.admit(&uid, &pod).await;
        }
        info!(uid, "pod rejected: node affinity does not match");
        handle.begun = true;
        let (reason, message) = ("NodeAffinity".to_owned(), format!("Predicate NodeAffinity failed: {NOT_WANTED}"));
        let _ = handle.inbox.send(Input::Rejected { reason, message }).await;
    }
}

async fn is_wanted(nodes: Api<Node>, name: &str, pod: &Pod) -> bool {
    for _ in 0..TRIES {
        match tokio::time::timeout(ANSWER_MAX, nodes.get(name)).await {
            Ok(Ok(node)) => {
                let labels = node.metadata.labels.unwrap_or_default();
                let spec = pod.spec.clone().unwrap_or_default();
                let place = NodeLabels { name, labels: &labels };
                return placement::wants(&spec.node_selector.unwrap_or_default(), spec.affinity.as_ref(), place);
            }
            Ok(Err(error)) => warn!(%error, "cannot look up the node's labels"),
            Err(_) => warn!("cannot look up the node's labels: no answer"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    true
}
