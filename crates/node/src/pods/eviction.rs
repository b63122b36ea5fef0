//! Pods that have to go, or may not come, because the node is short of something.

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Input, KillOutcome, Pressure};
use runtime_api::Runtime;
use tracing::info;

use super::Pods;
use crate::effects::lock;
use crate::pressure::Eviction;
use crate::sysctls::FORBIDDEN;
use crate::translate::pod_spec::seconds;

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
        let own = lock(&handle.entry.facts).pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let grace = Some(pressure.grace(seconds(own.unwrap_or(30))));
        info!(uid, ?pressure, "a pod is evicted");
        let _ = handle.inbox.send(Input::KillRequested { cause: pressure.cause(), grace }).await;
        let _ = handle.inbox.send(Input::KillAwaited { ticket }).await;
    }

    /// Turns a new pod away that asks for what it may not have.
    pub(super) async fn reject_forbidden_sysctls(&mut self, uid: &str, pod: &Pod) {
        let Some(message) = self.tools.allowed_sysctls.refusal(pod) else { return };
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        handle.begun = true;
        info!(uid, message, "pod rejected");
        let _ = handle.inbox.send(Input::Rejected { reason: FORBIDDEN.to_owned(), message }).await;
    }

    /// Turns a new pod away that would make worse what the node is short of, or asks for what it may not have.
    pub(super) async fn check_pressure(&mut self, uid: &str, pod: &Pod) {
        self.reject_forbidden_sysctls(uid, pod).await;
        if self.drivers.get(uid).is_none_or(|handle| handle.begun) {
            return;
        }
        let health = self.tools.health.get();
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        if !Pressure::may_evict(false, priority) {
            return;
        }
        // Who asked for memory may have what it asked for; of the rest there is nothing to be promised.
        let best_effort = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        let bears = |key: &str| tolerations.clone().any(|it| it.key.as_deref().is_none_or(|said| said == key));
        let conditions = [
            ("DiskPressure", health.disk_pressure),
            ("MemoryPressure", health.memory_pressure && best_effort && !bears("node.kubernetes.io/memory-pressure")),
            ("PIDPressure", health.pid_pressure),
        ];
        let named: Vec<&str> = conditions.iter().filter(|(_, holds)| *holds).map(|(name, _)| *name).collect();
        if named.is_empty() {
            return;
        }
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        handle.begun = true;
        let message = format!("The node had condition: [{}]. ", named.join(" "));
        let _ = handle.inbox.send(Input::Rejected { reason: "Evicted".to_owned(), message }).await;
    }
}
