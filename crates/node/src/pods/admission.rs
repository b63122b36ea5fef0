//! Whether there is room for a pod: it begins, waits until somebody who is leaving is gone, or is turned away. For a pod
//! that the node cannot do without others have to give way (node-termination 9.6).
//!
//! Whoever waits has a driver that was not begun, and holds its place in the line: nobody who comes later and matters no
//! more is given what it waits for. Nothing of this needs to be remembered: after a restart the API, or a file, asks for it
//! again, and those who give way go on leaving.

use std::collections::BTreeSet;

use lifecycle::{ContainerState, ContainerStatus, Event, Input, KillCause, PodPhase};
use runtime_api::Runtime;
use tokio::task::JoinSet;
use tracing::{debug, info};

use super::placement::Placed;
use super::{Handle, Mode, Pods};
use crate::effects::lock;
use crate::node_resources::{self, NodeResources, PreemptionCandidate, QosClass, ResourceShortage};

/// Who waits for room, and who may give it.
pub(super) struct AdmissionQueue {
    /// What the node has to give.
    capacity: NodeResources,
    /// Who waits: the most important first, of equals who came first.
    waiting: Vec<String>,
    /// Whose change of resources waits for room.
    pub(super) deferred: BTreeSet<String>,
    /// One task for each pod that has room while somebody waits; it ends when the pod needs its room no more.
    freed: JoinSet<String>,
    /// Whose tasks those are.
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

    /// Somebody needs its room no more. Never if nobody waits for that.
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

    /// Who waits before this pod.
    fn ahead(&self, uid: &str) -> Vec<String> {
        self.waiting.iter().take_while(|other| *other != uid).cloned().collect()
    }
}

/// What becomes of a pod that wants to begin.
enum AdmissionDecision {
    Begins,
    /// When those who leave are gone, there is room.
    Waits(ResourceShortage),
    /// And with these gone, too.
    Displaces(ResourceShortage, Vec<PreemptionCandidate>),
    TurnedAway(ResourceShortage),
}

impl<R: Runtime> Pods<R> {
    /// Begins a pod that has not begun, if there is room for it.
    pub(super) async fn check_resources(&mut self, uid: &str) {
        if !self.admission_queue.waiting.iter().any(|waiting| waiting == uid) {
            self.enqueue(uid);
        }
        self.settle(uid).await;
        self.watch_for_freed_resources();
    }

    /// The node does not go down after all: whoever waited, and was not turned away meanwhile, waits again.
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

    /// Somebody needs its room no more: those who wait look again, in their order.
    pub(super) async fn resources_freed(&mut self, freed: &str) {
        self.admission_queue.watched.remove(freed);
        self.retry_waiting_pods().await;
        self.watch_for_freed_resources();
    }

    /// There is more room than before, as somebody left or needs less.
    pub(super) async fn retry_waiting_pods(&mut self) {
        for uid in self.admission_queue.waiting.clone() {
            self.settle(&uid).await;
        }
        self.resize_deferred().await;
    }

    /// Decides about one who waits.
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
                info!(uid, message, "a pod is turned away");
                Input::Rejected { reason, message }
            }
            AdmissionDecision::Waits(missing) => return self.report_waiting(uid, &missing),
            AdmissionDecision::Displaces(missing, victims) => {
                self.report_waiting(uid, &missing);
                for victim in victims {
                    info!(uid = victim.uid, critical = uid, "a pod gives way to a critical one");
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
                let qos_class = QosClass::of(&lock(&handle.entry.facts).pod);
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

    /// People are told once what a pod waits for.
    fn report_waiting(&mut self, uid: &str, missing: &ResourceShortage) {
        let Some(handle) = self.drivers.get_mut(uid).filter(|handle| !handle.waiting_recorded) else { return };
        handle.waiting_recorded = true;
        let message = format!("Waiting until others have left: {}", missing.reason_and_message().1);
        debug!(uid, message, "a pod waits for room");
        self.tools.recorder.record(&lock(&handle.entry.facts).pod, Event::pod_normal("WaitingForRoom", message));
    }

    /// While somebody waits, everybody who leaves is noticed.
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

/// Whether a pod takes room: it has begun, and something of it may still run. What was never begun but only has to go
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
    /// No process of the pod remains, and none will come: others may have its room.
    pub(super) fn has_freed_resources(&self) -> bool {
        // A phase that somebody else has written says nothing of what still runs.
        let runs = |container: &ContainerStatus| matches!(container.state, ContainerState::Running { .. });
        let is_over = matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed);
        self.at_rest || (is_over && !self.status.containers.iter().any(runs))
    }
}
