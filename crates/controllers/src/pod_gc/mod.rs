//! Pods that nobody is left to finish: their node is gone or out of service, they never had one, or too many have ended.
//!
//! Each is first reported as failed, so that whoever counts on it knows, and then removed without grace.

mod keeper;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::Sight;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::caught::caught;
use crate::ending::{Meant, end};
use crate::feed::Feed;
use crate::pod::PodView;
use crate::settings::Settings;
use keeper::{Act, Keeper, PodFacts, Uid, Why};

/// How many pods are collected at once.
const AT_ONCE: usize = 16;
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(2);

/// What a task came to.
enum Ended {
    Collected(Uid, Why, kube::Result<()>),
    Asked(Arc<str>, kube::Result<bool>),
}

/// Collects until its feeds end.
pub(crate) async fn run(client: kube::Client, settings: Settings, mut pods: Feed<PodView>, mut nodes: Feed<Node>) {
    let mut keeper = Keeper::new(settings);
    let mut waiting: BTreeMap<Uid, (Why, Instant)> = BTreeMap::new();
    let mut tasks: JoinSet<Ended> = JoinSet::new();
    loop {
        let now = Instant::now();
        while tasks.len() < AT_ONCE {
            let due = waiting.iter().find(|(_, (_, at))| *at <= now).map(|(uid, (why, _))| (uid.clone(), *why));
            let Some((uid, why)) = due else { break };
            waiting.remove(&uid);
            let Some(pod) = keeper.pod(&uid).cloned() else { continue };
            let client = client.clone();
            tasks.spawn(async move {
                let outcome = caught("pod-gc", collect(&client, &uid, &pod, why)).await;
                Ended::Collected(uid, why, outcome)
            });
        }
        let retry = waiting.values().map(|(_, at)| *at).filter(|at| *at > now).min();
        let wake = [keeper.next_wake(), retry].into_iter().flatten().min();
        let acts = tokio::select! {
            sight = pods.recv() => match (Instant::now(), sight) {
                (_, None) => return,
                (now, Some(Sight::Listed(all))) => keeper.all_pods(now, &all),
                (now, Some(Sight::Changed(pod))) => keeper.pod_seen(now, &pod),
                (_, Some(Sight::Removed(pod))) => {
                    let uid = pod.uid().unwrap_or_default();
                    keeper.pod_gone(&uid);
                    waiting.remove(&*uid);
                    Vec::new()
                }
            },
            sight = nodes.recv() => match (Instant::now(), sight) {
                (_, None) => return,
                (now, Some(Sight::Listed(all))) => keeper.all_nodes(now, &all),
                (now, Some(Sight::Changed(node))) => keeper.node_seen(now, &node),
                (now, Some(Sight::Removed(node))) => keeper.node_gone(now, &node.name_any()),
            },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                Ok(Ended::Collected(uid, why, Err(error))) => {
                    warn!(%error, "a pod that nobody finishes could not be removed; trying again");
                    waiting.insert(uid, (why, Instant::now() + RETRY));
                    Vec::new()
                }
                Ok(Ended::Asked(name, Ok(true))) => keeper.node_is_gone(&name),
                Ok(Ended::Asked(name, Ok(false) | Err(_))) => {
                    keeper.node_is_not_gone(Instant::now(), &name);
                    Vec::new()
                }
                Ok(Ended::Collected(_, _, Ok(()))) => Vec::new(),
                Err(error) => {
                    warn!(%error, "the collection of a pod broke");
                    Vec::new()
                }
            },
            () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => keeper.time_passed(Instant::now()),
        };
        for act in acts {
            match act {
                Act::Collect(uid, why) => drop(waiting.entry(uid).or_insert((why, Instant::now()))),
                Act::AskFor(name) => {
                    let client = client.clone();
                    tasks.spawn(async move {
                        let nodes: Api<Node> = Api::all(client);
                        let found = caught("pod-gc", nodes.get_opt(&name)).await.map(|found| found.is_none());
                        Ended::Asked(name, found)
                    });
                }
            }
        }
    }
}

/// Reports the pod as failed unless it has ended, then removes it.
async fn collect(client: &kube::Client, uid: &Uid, pod: &PodFacts, why: Why) -> kube::Result<()> {
    let status = (!pod.ended).then(|| {
        let mut status = json!({ "phase": "Failed" });
        if why == Why::NodeGone {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }]);
        }
        status
    });
    let meant = Meant { namespace: &pod.namespace, name: &pod.name, uid };
    match end(client, &meant, status, Some(0)).await? {
        true => info!(pod = pod.name, namespace = pod.namespace, ?why, "removed a pod that nobody finishes"),
        false => debug!(pod = pod.name, "already gone"),
    }
    Ok(())
}
