//! Ends pods on nodes whose `NoExecute` taints they do not tolerate, or tolerate no longer.
//!
//! [`plan`] says who and when; here they are marked, told about, and deleted with their own grace.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use client::{Sight, about_pod};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::caught::caught;
use crate::ending::{Meant, end};
use crate::events::Teller;
use crate::feed::Feed;
use crate::pod::PodView;
use plan::{Act, Plan};

const NAME: &str = "taint-eviction-controller";
/// How many pods are ended at once.
const AT_ONCE: usize = 16;
/// The pause after a failure.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// Evicts until its feeds end. What it tells is stored by one of `tasks`.
pub(crate) fn run(
    client: kube::Client,
    pods: Feed<PodView>,
    nodes: Feed<Node>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + 'static {
    let teller = Teller::start(client.clone(), NAME, tasks);
    evict_all(client, pods, nodes, teller)
}

async fn evict_all(client: kube::Client, mut pods: Feed<PodView>, mut nodes: Feed<Node>, teller: Teller) {
    let mut plan = Plan::default();
    let mut waiting: Vec<Arc<PodView>> = Vec::new();
    let mut tasks: JoinSet<(String, kube::Result<()>)> = JoinSet::new();
    loop {
        waiting.extend(plan.due(Timestamp::now()));
        while tasks.len() < AT_ONCE
            && let Some(pod) = waiting.pop()
        {
            let (client, teller) = (client.clone(), teller.clone());
            tasks.spawn(async move {
                let evicted = caught("taint-eviction", evict(&client, &teller, &pod)).await;
                (pod.uid().unwrap_or_default(), evicted)
            });
        }
        let wake = plan.next_wake().map(|at| Instant::now() + until(at));
        let acts = tokio::select! {
            sight = pods.recv() => match sight {
                None => return,
                Some(Sight::Listed(all)) => plan.all_pods(Timestamp::now(), &all),
                Some(Sight::Changed(pod)) => plan.pod_seen(Timestamp::now(), &pod),
                Some(Sight::Removed(pod)) => {
                    plan.pod_gone(&pod.uid().unwrap_or_default());
                    Vec::new()
                }
            },
            sight = nodes.recv() => match sight {
                None => return,
                Some(Sight::Listed(all)) => plan.all_nodes(Timestamp::now(), &all),
                Some(Sight::Changed(node)) => plan.node_seen(Timestamp::now(), &node),
                Some(Sight::Removed(node)) => plan.node_gone(Timestamp::now(), &node.name_any()),
            },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                match ended {
                    Ok((_, Ok(()))) => {}
                    Ok((uid, Err(error))) => {
                        warn!(%error, "a pod on a tainted node could not be deleted; trying again");
                        plan.put_back(&uid, Timestamp::now().saturating_add(RETRY).unwrap_or(Timestamp::MAX));
                    }
                    Err(error) => warn!(%error, "the eviction of a pod broke"),
                }
                Vec::new()
            }
            () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Vec::new(),
        };
        for Act::Spare(pod) in acts {
            waiting.retain(|other| other.uid() != pod.uid());
            let message = format!("Cancelling deletion of Pod {}", full_name(&pod));
            teller.tell(about_pod(&*pod, None), "TaintManagerEviction", &message);
        }
    }
}

/// How long it is until `at`, on a clock that only goes forward; who waits for longer than this looks again.
fn until(at: Timestamp) -> Duration {
    const MOST: Duration = Duration::from_secs(24 * 3600);
    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default().min(MOST)
}

fn full_name(pod: &PodView) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Says why, then deletes the pod with its own grace.
async fn evict(client: &kube::Client, teller: &Teller, pod: &PodView) -> kube::Result<()> {
    let (namespace, name, uid) = (pod.namespace().unwrap_or_default(), pod.name_any(), pod.uid().unwrap_or_default());
    teller.tell(about_pod(pod, None), "TaintManagerEviction", &format!("Marking for deletion Pod {}", full_name(pod)));
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "observedGeneration": pod.metadata.generation,
    });
    let meant = Meant { namespace: &namespace, name: &name, uid: &uid };
    match end(client, &meant, Some(json!({ "conditions": [condition] })), None).await? {
        true => info!(pod = full_name(pod), "deleted: it does not tolerate a taint of its node"),
        false => debug!(pod = name, "already gone"),
    }
    Ok(())
}
