//! Whether a pod that runs may have other resources: granted where there is room, put off until others have left, or more than
//! this node can give. The pod's driver keeps what was granted before anything is made of it.

use std::sync::Arc;

use runtime_api::Runtime;
use tokio::sync::oneshot;

use super::handle::Granting;
use super::{Handle, Pods, Stage};
use crate::driver::{Grant, Told};
use crate::node_resources::NodeResources;
use crate::translate::resize::Pending;

impl<R: Runtime> Pods<R> {
    /// Looks at what a pod asks for by now. Whoever gives something back may make room for others.
    pub(super) async fn resize(&mut self, uid: &str) {
        if self.decide_resize(uid).await {
            self.retry_waiting_pods().await;
        }
    }

    /// Somebody needs less than before: whoever waits for that looks again.
    pub(super) async fn resize_deferred(&mut self) {
        for uid in self.admission_queue.deferred.clone() {
            self.decide_resize(&uid).await;
        }
        self.watch_for_freed_resources();
    }

    /// Tells whether others may have more room than before, or the pod waits for some.
    async fn decide_resize(&mut self, uid: &str) -> bool {
        let was_deferred = self.admission_queue.deferred.remove(uid);
        let Some(handle) = self.drivers.get(uid) else { return was_deferred };
        // What was granted last is still being kept: it is looked at again after that.
        if handle.granting.is_some() {
            return was_deferred;
        }
        let pod = handle.pod();
        if !handle.reader.record.get().grants_other_resources_than(&pod)
            || handle.is_leaving()
            || handle.full_name().is_some()
        {
            return was_deferred;
        }
        let asks = NodeResources::of_pod(&pod);
        let generation = pod.metadata.generation.unwrap_or_default();
        let refusal = self.refusal(uid, asks);
        let Some(handle) = self.drivers.get_mut(uid) else { return was_deferred };
        let Some((reason, message)) = refusal else {
            let had = handle.claim.asks;
            handle.claim.asks = had.at_least(asks);
            handle.granting = Some(Granting { had, asks, generation, was_deferred });
            let (is_kept, answer) = oneshot::channel();
            let has_begun = handle.stage == Stage::Begun;
            handle.send(Told::Grant(Grant { pod, has_begun, is_kept })).await;
            let uid = uid.to_owned();
            // A driver that is gone has kept nothing.
            self.granting.spawn(async move { (uid, answer.await.unwrap_or(false)) });
            return false;
        };
        handle.send(Told::NotGranted { pod: Arc::clone(&pod), pending: Pending { reason, message, generation } }).await;
        match reason {
            "Deferred" => self.admission_queue.deferred.insert(uid.to_owned()),
            _ => was_deferred,
        }
    }

    /// What was granted to a pod is kept, or cannot be.
    pub(super) async fn granted(&mut self, uid: &str, is_kept: bool) {
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        let Some(Granting { had, asks, generation, was_deferred }) = handle.granting.take() else { return };
        handle.claim.asks = if is_kept { asks } else { had };
        let asks_anew = handle.pod().metadata.generation.unwrap_or_default() != generation;
        if asks_anew {
            self.resize(uid).await;
        }
        if was_deferred || (is_kept && !had.is_within(asks)) {
            self.retry_waiting_pods().await;
        }
        // For want of a disk: it is not tried again at once.
        if !is_kept && !asks_anew {
            self.admission_queue.deferred.insert(uid.to_owned());
            self.watch_for_freed_resources();
        }
    }

    /// Why a pod cannot have this instead of what it has. Who asks for nothing more gets it, however full the node is.
    fn refusal(&self, uid: &str, asks: NodeResources) -> Option<(&'static str, String)> {
        // One that has not begun asks for all of it when it does.
        let own = self.drivers.get(uid).filter(|own| own.stage == Stage::Begun)?;
        let counts = |handle: &Handle| handle.holds_resources() || handle.waits();
        let others = self.drivers.iter().filter(|(other, handle)| *other != uid && counts(handle));
        let used = others.fold(NodeResources::default(), |sum, (_, handle)| sum.plus(handle.claim.asks));
        let capacity = self.admission_queue.capacity();
        let (now, ever) = (capacity.missing(used, asks), capacity.missing(NodeResources::default(), asks));
        if asks.is_within(own.claim.asks) || now.is_nothing() {
            return None;
        }
        let reason = if ever.is_nothing() { "Deferred" } else { "Infeasible" };
        Some((reason, now.reason_and_message().1))
    }
}
