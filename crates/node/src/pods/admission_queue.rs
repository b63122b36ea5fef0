//! Pods that have not begun: each is decided about when it comes, and again when resources are freed.
//!
//! A waiting pod has a driver that was not begun, and keeps its position in the queue: a later pod of no higher priority does not get
//! the resources it waits for. Nothing of this is stored: after a restart the API or a manifest asks for the pod again, and preempted
//! pods continue to terminate.

use std::collections::BTreeSet;

use api::pod;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Event, Input, KillCause};
use runtime_api::Runtime;
use tokio::task::JoinSet;
use tracing::{debug, info};

use super::admission::{Applicant, Decision, Holder, NodeSnapshot, WaitFor, decide};
use super::placement::Placed;
use super::{Handle, LeaveReason, Mode, Pods, Stage};
use crate::node_resources::NodeResources;
use crate::record::PodRecord;

/// The pods that wait for resources.
pub(super) struct AdmissionQueue {
    /// What the node has to give.
    capacity: NodeResources,
    /// Waiting pods by priority, then by arrival.
    waiting: Vec<String>,
    /// Pods whose resize waits for resources.
    pub(super) deferred: BTreeSet<String>,
    /// While pods wait: one task for each pod that holds resources, which ends when the pod needs them no more.
    freed: JoinSet<String>,
    /// The pods of these tasks.
    watched: BTreeSet<String>,
}

impl AdmissionQueue {
    pub(super) fn new(capacity: NodeResources) -> Self {
        Self {
            capacity,
            waiting: Vec::new(),
            deferred: BTreeSet::new(),
            freed: JoinSet::new(),
            watched: BTreeSet::new(),
        }
    }

    /// The next pod that frees its resources. Pending for ever if no pod waits.
    pub(super) async fn freed(&mut self) -> String {
        match self.freed.join_next().await {
            Some(Ok(uid)) => uid,
            // Whoever it was that is not watched any more: all are watched anew, and somebody may have gone.
            Some(Err(_)) => {
                (self.freed, self.watched) = (JoinSet::new(), BTreeSet::new());
                String::new()
            }
            None => std::future::pending().await,
        }
    }

    /// What the node has to give.
    pub(super) fn capacity(&self) -> NodeResources {
        self.capacity
    }

    fn remove(&mut self, uid: &str) {
        self.waiting.retain(|waiting| waiting != uid);
    }

    /// The pods that wait before this one.
    fn ahead(&self, uid: &str) -> impl Iterator<Item = &String> {
        self.waiting.iter().take_while(move |other| *other != uid)
    }
}

impl<R: Runtime> Pods<R> {
    /// Begins a pod that has not begun, if it may come.
    pub(super) async fn admit(&mut self, uid: &str, pod: &Pod) {
        self.settle(uid, pod, false).await;
        self.watch_for_freed_resources();
    }

    /// The shutdown was called off: pods that waited and were not rejected meanwhile wait again.
    pub(super) async fn recheck_waiting_pods(&mut self) {
        // One of whom it is not known yet whether it may be here comes by itself when it is.
        let may_come =
            |handle: &Handle| handle.waits() && !matches!(handle.stage, Stage::Waiting { placed: Placed::Asked, .. });
        let waiting: Vec<String> =
            self.drivers.iter().filter(|(_, handle)| may_come(handle)).map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.readmit(&uid).await;
        }
    }

    /// Decides again about a pod that was let in and has not begun.
    pub(super) async fn readmit(&mut self, uid: &str) {
        self.settle_known(uid).await;
        self.watch_for_freed_resources();
    }

    fn enqueue(&mut self, uid: &str) {
        if self.admission_queue.waiting.iter().any(|waiting| waiting == uid) {
            return;
        }
        let importance = |uid: &str| self.drivers.get(uid).map_or(0, |handle| handle.claim.importance);
        let own = importance(uid);
        let at = self.admission_queue.waiting.iter().position(|other| importance(other) < own);
        self.admission_queue.waiting.insert(at.unwrap_or(self.admission_queue.waiting.len()), uid.to_owned());
    }

    /// A pod freed its resources: decides again about the waiting pods, in their order.
    pub(super) async fn resources_freed(&mut self, freed: &str) {
        self.admission_queue.watched.remove(freed);
        self.retry_waiting_pods().await;
        self.watch_for_freed_resources();
    }

    /// Resources were freed, by an ended or resized pod: decides again about the waiting pods.
    pub(super) async fn retry_waiting_pods(&mut self) {
        for uid in self.admission_queue.waiting.clone() {
            self.settle_known(&uid).await;
        }
        self.resize_deferred().await;
    }

    async fn settle_known(&mut self, uid: &str) {
        if self.mode != Mode::Open {
            return self.admission_queue.remove(uid);
        }
        match self.drivers.get(uid).map(Handle::pod) {
            Some(pod) => self.settle(uid, &pod, true).await,
            None => self.admission_queue.remove(uid),
        }
    }

    /// Decides about one pod that has not begun, and does what was decided.
    async fn settle(&mut self, uid: &str, pod: &Pod, is_queued: bool) {
        let Some(Handle { stage: Stage::Waiting { placed, .. }, .. }) =
            self.drivers.get(uid).filter(|handle| handle.waits())
        else {
            return self.admission_queue.remove(uid);
        };
        let placed = *placed;
        // Before it is decided: whoever waits before it is asked first.
        self.enqueue(uid);
        let input = match self.decide_admission(uid, pod, placed, is_queued) {
            Decision::Admit => Input::Begin,
            Decision::Reject { reason, message } => {
                info!(uid, reason, message, "pod rejected");
                Input::Rejected { reason, message }
            }
            Decision::Wait(WaitFor::Placement) => {
                self.admission_queue.remove(uid);
                return self.ask_for_placement(uid, pod);
            }
            Decision::Wait(wait) => return self.report_waiting(uid, pod, &wait),
            Decision::Preempt { missing, victims } => {
                self.report_waiting(uid, pod, &WaitFor::Resources(missing));
                for victim in victims {
                    info!(uid = victim.uid, critical = uid, "preempting a pod for a critical one");
                    let Some(handle) = self.drivers.get_mut(&victim.uid) else { continue };
                    handle.leave(LeaveReason::Preempted);
                    let kill = Input::KillRequested { cause: KillCause::Preempted, grace: None };
                    handle.tell(kill).await;
                }
                return;
            }
        };
        self.admission_queue.remove(uid);
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        handle.stage = Stage::Begun;
        handle.tell(input).await;
    }

    fn decide_admission(&self, uid: &str, pod: &Pod, placed: Placed, is_queued: bool) -> Decision {
        let Some(own) = self.drivers.get(uid) else { return Decision::Admit };
        let ahead = self.admission_queue.ahead(uid).filter_map(|uid| self.drivers.get(uid));
        let reserved = ahead.filter(|handle| handle.waits()).map(|handle| handle.claim.asks);
        let others = self.drivers.iter().filter(|(other, handle)| *other != uid && handle.holds_resources());
        let node = NodeSnapshot {
            mode: self.mode,
            capacity: self.admission_queue.capacity,
            health: self.tools.health.get(),
            allowed_sysctls: &self.tools.allowed_sysctls,
            reserved: reserved.fold(NodeResources::default(), NodeResources::plus),
            holders: others
                .map(|(uid, handle)| Holder {
                    uid,
                    claim: handle.claim,
                    host_ports: pod::host_ports(&*handle.newest).collect(),
                    is_leaving: handle.is_leaving(),
                })
                .collect(),
        };
        decide(&node, &Applicant { pod, claim: own.claim, placed, is_queued })
    }

    /// Records once what a pod waits for.
    fn report_waiting(&mut self, uid: &str, pod: &Pod, wait: &WaitFor) {
        let Some(missing) = wait.message() else { return };
        let Some(Handle { stage: Stage::Waiting { is_recorded, .. }, .. }) = self.drivers.get_mut(uid) else { return };
        if std::mem::replace(is_recorded, true) {
            return;
        }
        let message = format!("Waiting until others have left: {missing}");
        debug!(uid, message, "pod waits for resources");
        self.tools.recorder.record(pod, Event::pod_normal("WaitingForRoom", message));
    }

    /// While pods wait, watches for pods that free their resources.
    pub(super) fn watch_for_freed_resources(&mut self) {
        if self.admission_queue.waiting.is_empty() && self.admission_queue.deferred.is_empty() {
            self.admission_queue.freed.abort_all();
            (self.admission_queue.freed, self.admission_queue.watched) = (JoinSet::new(), BTreeSet::new());
            return;
        }
        for (uid, handle) in self.drivers.iter().filter(|(_, handle)| handle.holds_resources()) {
            if self.admission_queue.watched.insert(uid.clone()) {
                let (uid, mut record) = (uid.clone(), handle.reader.record.clone());
                self.admission_queue.freed.spawn(async move {
                    // A driver that has ended needs nothing either.
                    record.wait_until(PodRecord::has_freed_resources).await;
                    uid
                });
            }
        }
    }
}
