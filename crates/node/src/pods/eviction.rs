//! Pods that have to go, or may not come, because the node is short of something.

use api::pod::{self, QosClass, Taint};
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Input, KillOutcome, Pressure};
use reading::seconds;
use runtime_api::Runtime;
use tracing::info;

use super::Pods;
use crate::effects::lock;
use crate::pressure::Eviction;
use crate::sysctls::FORBIDDEN;

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
        if !Pressure::may_evict(pod::is_static(pod), pod::priority(pod)) {
            return;
        }
        let conditions = [
            ("DiskPressure", health.disk_pressure),
            ("MemoryPressure", health.memory_pressure && !bears_memory_pressure(pod)),
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

/// Whether a pod may begin while memory is short. Who asked for memory may have what it asked for; of the rest there is nothing to be
/// promised.
fn bears_memory_pressure(pod: &Pod) -> bool {
    let taint = Taint { key: "node.kubernetes.io/memory-pressure", value: "", effect: "NoSchedule" };
    pod::qos_class(pod) != QosClass::BestEffort || pod::tolerates(pod, taint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_pressure_is_borne_by_requests_or_by_a_toleration_of_its_taint() {
        let bears = |tolerations: serde_json::Value, memory: &str| {
            let resources = json!({ "requests": { "memory": memory } });
            let spec = json!({ "containers": [{ "name": "app", "resources": resources }], "tolerations": tolerations });
            let pod: Pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).expect("a pod");
            bears_memory_pressure(&pod)
        };
        let key = "node.kubernetes.io/memory-pressure";
        assert!(bears(json!([]), "1Gi"));
        assert!(!bears(json!([]), "0"));
        assert!(bears(json!([{ "key": key, "operator": "Exists" }]), "0"));
        assert!(bears(json!([{ "key": key, "operator": "Exists", "effect": "NoSchedule" }]), "0"));
        assert!(bears(json!([{ "operator": "Exists" }]), "0"));
        assert!(!bears(json!([{ "key": key, "operator": "Exists", "effect": "NoExecute" }]), "0"), "another effect");
        assert!(!bears(json!([{ "key": key, "operator": "Equal", "value": "x" }]), "0"), "another value");
        assert!(!bears(json!([{ "operator": "Exists", "effect": "NoExecute" }]), "0"), "every key, another effect");
    }
}
