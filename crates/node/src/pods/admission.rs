//! Admission by resources: a pod begins, waits until terminating pods are gone, or is rejected. A critical pod preempts others
//! (node-termination 9.6).
//!
//! A waiting pod has a driver that was not begun, and keeps its position in the queue: a later pod of no higher priority does not get
//! the resources it waits for. Nothing of this is stored: after a restart the API or a manifest asks for the pod again, and preempted
//! pods continue to terminate.

use std::collections::BTreeSet;

use api::pod;
use lifecycle::{ContainerState, ContainerStatus, Event, Input, KillCause};
use runtime_api::Runtime;
use tokio::task::JoinSet;
use tracing::{debug, info};

use super::placement::Placed;
use super::{Handle, Mode, Pods};
use crate::effects::lock;
use crate::node_resources::{self, NodeResources, PreemptionCandidate, ResourceShortage};

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

    /// The pods that wait before this one.
    fn ahead(&self, uid: &str) -> Vec<String> {
        self.waiting.iter().take_while(|other| *other != uid).cloned().collect()
    }
}

/// The decision about a pod that wants to begin.
enum AdmissionDecision {
    Begins,
    /// It fits when the terminating pods are gone.
    Waits(ResourceShortage),
    /// It fits when these are preempted, too.
    Displaces(ResourceShortage, Vec<PreemptionCandidate>),
    TurnedAway(ResourceShortage),
}

impl<R: Runtime> Pods<R> {
    /// Begins a pod that has not begun, if it fits.
    pub(super) async fn check_resources(&mut self, uid: &str) {
        if !self.admission_queue.waiting.iter().any(|waiting| waiting == uid) {
            self.enqueue(uid);
        }
        self.settle(uid).await;
        self.watch_for_freed_resources();
    }

    /// The shutdown was called off: pods that waited and were not rejected meanwhile wait again.
    pub(super) async fn recheck_waiting_pods(&mut self) {
        // One of whom it is not known yet whether it may be here comes by itself when it is.
        let may_come = |handle: &Handle| waits(handle) && handle.placed != Placed::Asked;
        let waiting: Vec<String> =
            self.drivers.iter().filter(|(_, handle)| may_come(handle)).map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.check_resources(&uid).await;
        }
    }

    fn enqueue(&mut self, uid: &str) {
        let importance = |uid: &String| self.drivers.get(uid).map_or(0, |handle| handle.importance);
        let own = importance(&uid.to_owned());
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
            self.settle(&uid).await;
        }
        self.resize_deferred().await;
    }

    /// Decides about one waiting pod.
    async fn settle(&mut self, uid: &str) {
        if self.mode != Mode::Open || !self.drivers.get(uid).is_some_and(waits) {
            return self.admission_queue.waiting.retain(|waiting| waiting != uid);
        }
        let decision = self.decide_admission(uid);
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        let input = match decision {
            AdmissionDecision::Begins => Input::Begin,
            AdmissionDecision::TurnedAway(missing) => {
                let (reason, message) = missing.reason_and_message();
                info!(uid, message, "pod rejected");
                Input::Rejected { reason, message }
            }
            AdmissionDecision::Waits(missing) => return self.report_waiting(uid, &missing),
            AdmissionDecision::Displaces(missing, victims) => {
                self.report_waiting(uid, &missing);
                for victim in victims {
                    info!(uid = victim.uid, critical = uid, "preempting a pod for a critical one");
                    let Some(handle) = self.drivers.get_mut(&victim.uid) else { continue };
                    handle.preempted = true;
                    let kill = Input::KillRequested { cause: KillCause::Preempted, grace: None };
                    let _ = handle.inbox.send(kill).await;
                }
                return;
            }
        };
        handle.begun = true;
        let _ = handle.inbox.send(input).await;
        self.admission_queue.waiting.retain(|waiting| waiting != uid);
    }

    fn decide_admission(&self, uid: &str) -> AdmissionDecision {
        let Some(own) = self.drivers.get(uid) else { return AdmissionDecision::Begins };
        let ahead = self.admission_queue.ahead(uid);
        let waiting = ahead.iter().filter_map(|uid| self.drivers.get(uid)).filter(|handle| waits(handle));
        let reserved = waiting.map(|handle| handle.asks);
        let (mut staying, mut leaving) =
            (reserved.fold(NodeResources::default(), NodeResources::plus), NodeResources::default());
        let mut candidates = Vec::new();
        for (other, handle) in self.drivers.iter().filter(|(other, handle)| *other != uid && holds_resources(handle)) {
            if is_leaving(handle) {
                leaving = leaving.plus(handle.asks);
                continue;
            }
            staying = staying.plus(handle.asks);
            if handle.importance < own.importance {
                let qos_class = pod::qos_class(&lock(&handle.entry.facts).pod);
                candidates.push(PreemptionCandidate { uid: other.clone(), qos_class, asks: handle.asks });
            }
        }
        let capacity = self.admission_queue.capacity;
        let missing = capacity.missing(staying.plus(leaving), own.asks);
        if missing.is_nothing() {
            return AdmissionDecision::Begins;
        }
        let for_good = capacity.missing(staying, own.asks);
        if for_good.is_nothing() {
            return AdmissionDecision::Waits(missing);
        }
        let victims = node_resources::is_critical(own.importance)
            .then(|| node_resources::victims(&for_good, candidates))
            .flatten();
        victims
            .map_or(AdmissionDecision::TurnedAway(for_good), |victims| AdmissionDecision::Displaces(missing, victims))
    }

    /// Records once what a pod waits for.
    fn report_waiting(&mut self, uid: &str, missing: &ResourceShortage) {
        let Some(handle) = self.drivers.get_mut(uid).filter(|handle| !handle.waiting_recorded) else { return };
        handle.waiting_recorded = true;
        let message = format!("Waiting until others have left: {}", missing.reason_and_message().1);
        debug!(uid, message, "pod waits for resources");
        self.tools.recorder.record(&lock(&handle.entry.facts).pod, Event::pod_normal("WaitingForRoom", message));
    }

    /// While pods wait, watches for pods that free their resources.
    pub(super) fn watch_for_freed_resources(&mut self) {
        if self.admission_queue.waiting.is_empty() && self.admission_queue.deferred.is_empty() {
            self.admission_queue.freed.abort_all();
            (self.admission_queue.freed, self.admission_queue.watched) = (JoinSet::new(), BTreeSet::new());
            return;
        }
        for (uid, handle) in self.drivers.iter().filter(|(_, handle)| holds_resources(handle)) {
            if self.admission_queue.watched.insert(uid.clone()) {
                let (uid, mut progress) = (uid.clone(), handle.entry.progress.clone());
                self.admission_queue.freed.spawn(async move {
                    // A driver that has ended needs nothing either.
                    let _ = progress.wait_for(|progress| progress.has_freed_resources()).await;
                    uid
                });
            }
        }
    }
}

/// Whether a pod holds resources: it has begun, and something of it may still run. What was never begun but only has to go
/// may have left something running, too.
pub(super) fn holds_resources(handle: &Handle) -> bool {
    (handle.begun || is_leaving(handle)) && !handle.entry.progress.borrow().has_freed_resources()
}

/// Whether a pod may still begin.
pub(super) fn waits(handle: &Handle) -> bool {
    !handle.begun && !is_leaving(handle)
}

pub(super) fn is_leaving(handle: &Handle) -> bool {
    let asked = handle.told.is_some() || handle.object_gone || handle.unwanted || handle.preempted;
    asked || handle.entry.progress.borrow().deadline.is_some()
}

impl crate::driver::Progress {
    /// No process of the pod remains, and none will start: its resources are free.
    pub(super) fn has_freed_resources(&self) -> bool {
        // A phase that somebody else has written says nothing of what still runs.
        let runs = |container: &ContainerStatus| matches!(container.state, ContainerState::Running { .. });
        self.at_rest || (self.status.phase.is_terminal() && !self.status.containers.iter().any(runs))
    }
}
