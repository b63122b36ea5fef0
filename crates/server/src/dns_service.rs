//! The service `kube-dns`, by which pods find the cluster DNS if this process serves it: the tenth address of the range.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::own_service::{OwnService, keep_own};
use crate::state::State;

fn own(state: &State, leads_to: SocketAddr) -> OwnService {
    OwnService {
        namespace: "kube-system",
        name: "kube-dns",
        of: "the cluster DNS",
        labels: json!({
            "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "KubeDNS",
        }),
        address: state.service_range.dns().to_string(),
        ports: &[("dns", "UDP", 53), ("dns-tcp", "TCP", 53)],
        leads_to,
    }
}

/// Makes the service lead there, and answers the address that it has.
pub(crate) async fn restore(state: &State, leads_to: SocketAddr) -> Option<IpAddr> {
    let own = own(state, leads_to);
    let restored = own.restore(state, &mut None).await;
    restored.inspect_err(|error| tracing::warn!(%error, "cannot make the service of the cluster DNS")).ok()?;
    own.stored_address(state)
}

/// Keeps the service and its endpoints as they should be until `stop`, from when this process serves the cluster DNS.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let Some(leads_to) = stop.run_until_cancelled(state.dns.wait()).await.copied() else { return };
    let own = own(&state, leads_to);
    keep_own("dns-service", own, state, stop).await;
}
