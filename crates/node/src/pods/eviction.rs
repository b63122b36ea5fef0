//! Pods that have to go because the node is short of something.

use lifecycle::{Input, KillOutcome};
use reading::seconds;
use runtime_api::Runtime;
use tracing::info;

use super::Pods;
use crate::effects::lock;
use crate::pressure::Eviction;

impl<R: Runtime> Pods<R> {
    /// Lets a pod go, and whoever asked know when it has.
    pub(super) async fn evict(&mut self, Eviction { uid, pressure, done }: Eviction) {
        let Some(handle) = self.drivers.get(&uid) else {
            let _ = done.send(KillOutcome::NotAsked);
            return;
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        lock(&self.tools.waiters).insert(ticket, done);
        let own = handle.pod().spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let grace = Some(pressure.grace(seconds(own.unwrap_or(30))));
        info!(uid, ?pressure, "a pod is evicted");
        handle.tell(Input::KillRequested { cause: pressure.cause(), grace }).await;
        handle.tell(Input::KillAwaited { ticket }).await;
    }
}
