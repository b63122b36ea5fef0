//! Whether a pod that runs may have other resources: granted where there is room, put off until others have left, or more than
//! this node can give. What was granted is kept before anything is made of it.

use lifecycle::Event;
use runtime_api::Runtime;
use tracing::{info, warn};

use super::{Handle, Pods, Stage};
use crate::effects::lock;
use crate::node_resources::NodeResources;
use crate::translate::resize::{Pending, message};

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

    /// Tells whether room was given back, or the pod waits for some.
    async fn decide_resize(&mut self, uid: &str) -> bool {
        let was_deferred = self.admission_queue.deferred.remove(uid);
        let Some(handle) = self.drivers.get(uid) else { return was_deferred };
        let pod = {
            let mut facts = lock(&handle.entry.facts);
            if !facts.asks_for_other_resources() {
                if facts.resize.pending.take().is_some() {
                    handle.entry.flush.refresh();
                }
                return was_deferred;
            }
            facts.pod.clone()
        };
        if handle.is_leaving() || handle.full_name().is_some() {
            return was_deferred;
        }
        let (asks, had) = (NodeResources::of_pod(&pod), handle.claim.asks);
        let generation = pod.metadata.generation.unwrap_or_default();
        let pending = match self.refusal(uid, asks) {
            None => match self.tools.manifests.keep(uid, &pod).await {
                Ok(()) => None,
                Err(error) => {
                    warn!(uid, %error, "other resources cannot be granted yet: that cannot be kept");
                    Some(("Deferred", format!("what is granted cannot be kept: {error}")))
                }
            },
            some => some,
        };
        let pending = pending.map(|(reason, message)| Pending { reason, message, generation });
        let Some(handle) = self.drivers.get_mut(uid) else { return was_deferred };
        let has_begun = handle.stage == Stage::Begun;
        let mut facts = lock(&handle.entry.facts);
        let before = facts.resize.pending.take();
        facts.resize.pending.clone_from(&pending);
        let event = match &pending {
            None => {
                facts.grant(&pod);
                facts.resize.error = None;
                handle.claim.asks = asks;
                info!(uid, "other resources are granted to a pod");
                if has_begun {
                    facts.resize.granted = Some(generation);
                    handle.entry.granted.notify_one();
                }
                let message = message("Pod resize started", &pod, generation, None);
                has_begun.then(|| Event::pod_normal("ResizeStarted", message))
            }
            Some(Pending { reason, message: why, .. }) => {
                let told = before.is_some_and(|before| (before.reason, before.generation) == (*reason, generation));
                let message = message(&format!("Pod resize {reason}"), &pod, generation, Some(why));
                (!told).then(|| Event::pod_warning(&format!("Resize{reason}"), message))
            }
        };
        if let Some(event) = event {
            self.tools.recorder.record(&pod, event);
        }
        drop(facts);
        handle.entry.flush.refresh();
        match pending {
            None => was_deferred || !had.is_within(asks),
            Some(Pending { reason: "Deferred", .. }) => self.admission_queue.deferred.insert(uid.to_owned()),
            Some(_) => was_deferred,
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
