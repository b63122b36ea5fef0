//! The pods of a drill as a watch shows them: when each was asked to leave, and when it was gone.

use std::collections::{BTreeMap, BTreeSet};

use client::WatchUpdate;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::observations::PodSeen;
use super::target::Target;
use crate::cluster::Cluster;

/// So many changes wait to be taken in.
const WAITING_MOST: usize = 256;

/// A pod and its moments, by the clock of the drill.
#[derive(Clone, Debug)]
pub(super) struct WatchedPod {
    /// Its last state.
    pub pod: Pod,
    /// When it was seen to be asked to leave.
    pub asked_ms: Option<u64>,
    /// When it was seen to be gone.
    pub gone_ms: Option<u64>,
}

/// All pods that the workload selects.
#[derive(Debug, Default)]
pub(super) struct PodTable {
    /// By UID.
    pub pods: BTreeMap<String, WatchedPod>,
    /// Whether all of them are known.
    pub is_listed: bool,
    /// Those that are to leave; none until that is decided.
    pub drilled: BTreeSet<String>,
}

impl PodTable {
    /// Takes in a change at this time.
    pub(super) fn take(&mut self, update: WatchUpdate<Pod>, now_ms: u64) {
        match update {
            WatchUpdate::Listed(all) => {
                let is_there: BTreeSet<String> = all.iter().map(uid).collect();
                let absent: Vec<String> = self.pods.keys().filter(|uid| !is_there.contains(*uid)).cloned().collect();
                absent.iter().for_each(|uid| self.remove(uid, None, now_ms));
                all.into_iter().for_each(|pod| self.change(pod, now_ms));
                self.is_listed = true;
            }
            WatchUpdate::Changed(pod) => self.change(pod, now_ms),
            WatchUpdate::Removed(pod) => self.remove(&uid(&pod), Some(pod), now_ms),
        }
    }

    fn change(&mut self, pod: Pod, now_ms: u64) {
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        let own = self.pods.entry(uid(&pod)).or_insert_with(|| WatchedPod {
            pod: Pod::default(),
            asked_ms: None,
            gone_ms: None,
        });
        own.pod = pod;
        if is_leaving {
            own.asked_ms.get_or_insert(now_ms);
        }
    }

    fn remove(&mut self, uid: &str, last: Option<Pod>, now_ms: u64) {
        // Of others nothing is told.
        if !self.drilled.is_empty() && !self.drilled.contains(uid) {
            self.pods.remove(uid);
            return;
        }
        let Some(own) = self.pods.get_mut(uid) else { return };
        own.asked_ms.get_or_insert(now_ms);
        own.gone_ms.get_or_insert(now_ms);
        if let Some(last) = last {
            own.pod = last;
        }
    }

    /// Those that are there and were not asked to leave.
    pub(super) fn staying(&self) -> impl Iterator<Item = &WatchedPod> {
        self.pods.values().filter(|own| own.asked_ms.is_none() && own.gone_ms.is_none() && !is_over(&own.pod))
    }

    /// How many are ready and stay.
    pub(super) fn ready(&self) -> usize {
        self.staying().filter(|own| is_ready(&own.pod)).count()
    }

    /// How many of those that are to leave have left.
    pub(super) fn left(&self) -> usize {
        self.drilled.iter().filter(|uid| self.is_gone(uid)).count()
    }

    /// Whether it has left.
    pub(super) fn is_gone(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|own| own.gone_ms.is_some())
    }

    /// Whether somebody was asked to leave and is there.
    pub(super) fn is_anybody_leaving(&self) -> bool {
        self.pods.values().any(|own| own.asked_ms.is_some() && own.gone_ms.is_none())
    }

    /// Those that were to leave, in the order in which they were asked.
    pub(super) fn seen(&self) -> Vec<PodSeen> {
        let mut all: Vec<&WatchedPod> = self.drilled.iter().filter_map(|uid| self.pods.get(uid)).collect();
        all.sort_by_key(|own| (own.asked_ms.unwrap_or(u64::MAX), own.pod.metadata.name.clone()));
        let seen = |own: &WatchedPod| PodSeen {
            pod: own.pod.clone(),
            asked_ms: own.asked_ms,
            gone_ms: own.gone_ms,
            ..PodSeen::default()
        };
        all.into_iter().map(seen).collect()
    }
}

/// Follows the pods of a workload.
pub(super) fn follow(cluster: &Cluster, target: &Target, began: Instant) -> watch::Sender<PodTable> {
    let table = watch::Sender::new(PodTable::default());
    let shared = table.clone();
    let api = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.namespace);
    let (tell, mut told) = mpsc::channel(WAITING_MOST);
    match target.labels.clone() {
        Some(labels) => tokio::spawn(client::follow_labelled(api, labels, tell)),
        None => tokio::spawn(client::follow(api, Some(format!("metadata.name={}", target.name)), tell)),
    };
    tokio::spawn(async move {
        while let Some(update) = told.recv().await {
            let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            shared.send_modify(|table| table.take(update, now));
        }
    });
    table
}

pub(super) fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Its containers have ended, and nobody asked them to.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, is_leaving: bool) -> Pod {
        let mut pod = json!({ "metadata": { "name": name, "uid": format!("uid-{name}") },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
        if is_leaving {
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-19T20:00:00Z");
        }
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn pod_is_asked_when_it_is_first_seen_to_leave_and_gone_when_it_is_removed_or_missing() {
        let mut table = PodTable::default();
        table.take(WatchUpdate::Listed(vec![pod("a", false), pod("b", false)]), 1);
        table.drilled = table.pods.keys().cloned().collect();
        assert_eq!((table.ready(), table.left()), (2, 0));
        table.take(WatchUpdate::Changed(pod("a", true)), 5);
        table.take(WatchUpdate::Changed(pod("a", true)), 6);
        table.take(WatchUpdate::Changed(pod("c", false)), 7);
        assert!(table.is_anybody_leaving() && table.ready() == 2);
        table.take(WatchUpdate::Removed(pod("a", true)), 9);
        let a = &table.pods["uid-a"];
        assert_eq!((a.asked_ms, a.gone_ms), (Some(5), Some(9)));
        // The watch broke, and b is not in the next list.
        table.take(WatchUpdate::Listed(vec![pod("c", false)]), 12);
        assert_eq!((table.left(), table.ready(), table.is_anybody_leaving()), (2, 1, false));
        assert_eq!(table.seen().iter().map(PodSeen::name).collect::<Vec<_>>(), ["a", "b"]);
        // Others come and go, and are not kept.
        table.take(WatchUpdate::Removed(pod("c", true)), 13);
        assert!(!table.pods.contains_key("uid-c"));
    }
}
