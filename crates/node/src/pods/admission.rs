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
use crate::hands::lock;
use crate::room::{self, Missing, Promise, Room, Tenant};

/// Who waits for room, and who may give it.
pub(super) struct Line {
    /// What the node has to give.
    capacity: Room,
    /// Who waits: the most important first, of equals who came first.
    waiting: Vec<String>,
    /// Whose change of resources waits for room.
    pub(super) deferred: BTreeSet<String>,
    /// One task for each pod that has room while somebody waits; it ends when the pod needs its room no more.
    freed: JoinSet<String>,
    /// Whose tasks those are.
    watched: BTreeSet<String>,
}

impl Line {
    pub(super) fn new(capacity: Room) -> Self {
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
    pub(super) fn capacity(&self) -> Room {
        self.capacity
    }

    /// Who waits before this pod.
    fn ahead(&self, uid: &str) -> Vec<String> {
        self.waiting.iter().take_while(|other| *other != uid).cloned().collect()
    }
}

/// What becomes of a pod that wants to begin.
enum Verdict {
    Begins,
    /// When those who leave are gone, there is room.
    Waits(Missing),
    /// And with these gone, too.
    Displaces(Missing, Vec<Tenant>),
    TurnedAway(Missing),
}

impl<R: Runtime> Pods<R> {
    /// Begins a pod that has not begun, if there is room for it.
    pub(super) async fn seek_room(&mut self, uid: &str) {
        if !self.line.waiting.iter().any(|waiting| waiting == uid) {
            self.stand_in_line(uid);
        }
        self.settle(uid).await;
        self.watch_over_room();
    }

    /// The node does not go down after all: whoever waited, and was not turned away meanwhile, waits again.
    pub(super) async fn seek_room_again(&mut self) {
        // One of whom it is not known yet whether it may be here comes by itself when it is.
        let may_come = |handle: &Handle| waits(handle) && handle.placed != Placed::Asked;
        let waiting: Vec<String> =
            self.drivers.iter().filter(|(_, handle)| may_come(handle)).map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.seek_room(&uid).await;
        }
    }

    fn stand_in_line(&mut self, uid: &str) {
        let importance = |uid: &String| self.drivers.get(uid).map_or(0, |handle| handle.importance);
        let own = importance(&uid.to_owned());
        let at = self.line.waiting.iter().position(|other| importance(other) < own);
        self.line.waiting.insert(at.unwrap_or(self.line.waiting.len()), uid.to_owned());
    }

    /// Somebody needs its room no more: those who wait look again, in their order.
    pub(super) async fn room_freed(&mut self, freed: &str) {
        self.line.watched.remove(freed);
        self.look_for_room().await;
        self.watch_over_room();
    }

    /// There is more room than before, as somebody left or needs less.
    pub(super) async fn look_for_room(&mut self) {
        for uid in self.line.waiting.clone() {
            self.settle(&uid).await;
        }
        self.resize_deferred().await;
    }

    /// Decides about one who waits.
    async fn settle(&mut self, uid: &str) {
        if self.mode != Mode::Open || !self.drivers.get(uid).is_some_and(waits) {
            return self.line.waiting.retain(|waiting| waiting != uid);
        }
        let verdict = self.judge(uid);
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        let input = match verdict {
            Verdict::Begins => Input::Begin,
            Verdict::TurnedAway(missing) => {
                let (reason, message) = missing.words();
                info!(uid, message, "a pod is turned away");
                Input::Rejected { reason, message }
            }
            Verdict::Waits(missing) => return self.tell_waiting(uid, &missing),
            Verdict::Displaces(missing, victims) => {
                self.tell_waiting(uid, &missing);
                for victim in victims {
                    info!(uid = victim.uid, critical = uid, "a pod gives way to a critical one");
                    let Some(handle) = self.drivers.get_mut(&victim.uid) else { continue };
                    handle.gives_way = true;
                    let kill = Input::KillRequested { cause: KillCause::Preempted, grace: None };
                    let _ = handle.inbox.send(kill).await;
                }
                return;
            }
        };
        handle.begun = true;
        let _ = handle.inbox.send(input).await;
        self.line.waiting.retain(|waiting| waiting != uid);
    }

    fn judge(&self, uid: &str) -> Verdict {
        let Some(own) = self.drivers.get(uid) else { return Verdict::Begins };
        let ahead = self.line.ahead(uid);
        let waiting = ahead.iter().filter_map(|uid| self.drivers.get(uid)).filter(|handle| waits(handle));
        let promised = waiting.map(|handle| handle.asks);
        let (mut staying, mut leaving) = (promised.fold(Room::default(), Room::plus), Room::default());
        let mut tenants = Vec::new();
        for (other, handle) in self.drivers.iter().filter(|(other, handle)| *other != uid && has_room(handle)) {
            if is_leaving(handle) {
                leaving = leaving.plus(handle.asks);
                continue;
            }
            staying = staying.plus(handle.asks);
            if handle.importance < own.importance {
                let promise = Promise::to(&lock(&handle.entry.facts).pod);
                tenants.push(Tenant { uid: other.clone(), promise, asks: handle.asks });
            }
        }
        let capacity = self.line.capacity;
        let missing = capacity.missing(staying.plus(leaving), own.asks);
        if missing.is_nothing() {
            return Verdict::Begins;
        }
        let for_good = capacity.missing(staying, own.asks);
        if for_good.is_nothing() {
            return Verdict::Waits(missing);
        }
        let victims = room::is_critical(own.importance).then(|| room::victims(&for_good, tenants)).flatten();
        victims.map_or(Verdict::TurnedAway(for_good), |victims| Verdict::Displaces(missing, victims))
    }

    /// People are told once what a pod waits for.
    fn tell_waiting(&mut self, uid: &str, missing: &Missing) {
        let Some(handle) = self.drivers.get_mut(uid).filter(|handle| !handle.told_to_wait) else { return };
        handle.told_to_wait = true;
        let message = format!("Waiting until others have left: {}", missing.words().1);
        debug!(uid, message, "a pod waits for room");
        self.tools.recorder.record(&lock(&handle.entry.facts).pod, Event::pod_normal("WaitingForRoom", message));
    }

    /// While somebody waits, everybody who leaves is noticed.
    pub(super) fn watch_over_room(&mut self) {
        if self.line.waiting.is_empty() && self.line.deferred.is_empty() {
            self.line.freed.abort_all();
            (self.line.freed, self.line.watched) = (JoinSet::new(), BTreeSet::new());
            return;
        }
        for (uid, handle) in self.drivers.iter().filter(|(_, handle)| has_room(handle)) {
            if self.line.watched.insert(uid.clone()) {
                let (uid, mut progress) = (uid.clone(), handle.entry.progress.clone());
                self.line.freed.spawn(async move {
                    // A driver that has ended needs nothing either.
                    let _ = progress.wait_for(|progress| progress.needs_nothing()).await;
                    uid
                });
            }
        }
    }
}

/// Whether a pod takes room: it has begun, and something of it may still run. What was never begun but only has to go
/// may have left something running, too.
pub(super) fn has_room(handle: &Handle) -> bool {
    (handle.begun || is_leaving(handle)) && !handle.entry.progress.borrow().needs_nothing()
}

/// Whether a pod may still begin.
pub(super) fn waits(handle: &Handle) -> bool {
    !handle.begun && !is_leaving(handle)
}

pub(super) fn is_leaving(handle: &Handle) -> bool {
    let asked = handle.told.is_some() || handle.object_gone || handle.unwanted || handle.gives_way;
    asked || handle.entry.progress.borrow().deadline.is_some()
}

impl crate::driver::Progress {
    /// No process of the pod remains, and none will come: others may have its room.
    pub(super) fn needs_nothing(&self) -> bool {
        // A phase that somebody else has written says nothing of what still runs.
        let runs = |container: &ContainerStatus| matches!(container.state, ContainerState::Running { .. });
        let is_over = matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed);
        self.at_rest || (is_over && !self.status.containers.iter().any(runs))
    }
}
